//! The index of words, kept beside the contents: a content has its words once, however many entries have the content.
//!
//! A content is found in one of these entries. When that one has it no more, another one is looked for among the
//! sessions of its family, those that copied from each other. Copying itself writes nothing here but who is family.

use std::collections::BTreeSet;

use rusqlite::{Connection, OptionalExtension, params};

use super::cache::Known;
use super::content;
use crate::{SessionRow, StoreError, TITLE, Words, check, words};

/// Puts words in place of those that an entry had; `None` without such an entry.
pub(super) fn put(
    conn: &Connection,
    known: &mut Known,
    session: i64,
    created: i64,
    seq: i64,
    words: Option<&Words>,
    only_missing: bool,
) -> Result<Option<()>, StoreError> {
    let Some(owned) = content::owned(conn, session, created)? else { return Ok(None) };
    let written: i64 = conn
        .prepare_cached("SELECT seq FROM entries WHERE session = ? AND created = ?")?
        .query_row([session, created], |row| row.get(0))?;
    if written.max(content::appended_seq(conn, &owned)?) > seq {
        return Ok(Some(()));
    }
    let mut content = owned.content;
    if has_words(conn, content)? {
        if only_missing {
            return Ok(Some(()));
        }
        if content::entries_of(conn, content)? > 1 {
            // The others keep theirs.
            content = content::unshare(conn, known, session, created, content)?;
        } else {
            forget(conn, content)?;
        }
    }
    if let Some(words) = words {
        insert(conn, content, session, created, words)?;
    }
    Ok(Some(()))
}

/// A session has another title.
pub(super) fn put_title(conn: &Connection, row: &SessionRow) -> Result<(), StoreError> {
    let key: i64 = conn
        .prepare_cached("SELECT key FROM sessions WHERE id = ?")?
        .query_row([&row.id], |row| row.get(0))?;
    forget(conn, -key)?;
    match check::title(row) {
        Some(text) => insert(conn, -key, key, 0, &Words { kind: TITLE.to_owned(), at: row.active_at, text }),
        None => Ok(()),
    }
}

fn insert(
    conn: &Connection,
    content: i64,
    session: i64,
    created: i64,
    words: &Words,
) -> Result<(), StoreError> {
    let text = words::folded(&words.text);
    if text.is_empty() {
        return Ok(());
    }
    conn.prepare_cached("INSERT INTO word_index (rowid, text) VALUES (?, ?)")?
        .execute(params![content, text])?;
    conn.prepare_cached("INSERT INTO indexed_texts (content, text) VALUES (?, ?)")?
        .execute(params![content, text])?;
    conn.prepare_cached("INSERT INTO words (content, session, created, kind, at) VALUES (?, ?, ?, ?, ?)")?
        .execute(params![content, session, created, words.kind, words.at])?;
    Ok(())
}

fn has_words(conn: &Connection, content: i64) -> Result<bool, StoreError> {
    Ok(conn.prepare_cached("SELECT 1 FROM words WHERE content = ?")?.exists([content])?)
}

/// A content is found no more. The index removes the words that it is told, so it is told those that it was given.
pub(super) fn forget(conn: &Connection, content: i64) -> Result<(), StoreError> {
    let text: Option<String> = conn
        .prepare_cached("DELETE FROM indexed_texts WHERE content = ? RETURNING text")?
        .query_row([content], |row| row.get(0))
        .optional()?;
    if let Some(text) = text {
        conn.prepare_cached("DELETE FROM words WHERE content = ?")?.execute([content])?;
        conn.prepare_cached("INSERT INTO word_index (word_index, rowid, text) VALUES ('delete', ?, ?)")?
            .execute(params![content, text])?;
    }
    Ok(())
}

/// An entry does not have a content any more that others have.
pub(super) fn left(conn: &Connection, session: i64, created: i64, content: i64) -> Result<(), StoreError> {
    let was_here = conn
        .prepare_cached("SELECT 1 FROM words WHERE content = ? AND session = ? AND created = ?")?
        .exists(params![content, session, created])?;
    if !was_here {
        return Ok(());
    }
    let except = Some((session, created));
    move_to_others(conn, session, BTreeSet::from([content]), except)
}

/// A session is gone, and others still have these contents of it.
pub(super) fn session_left(
    conn: &Connection,
    session: i64,
    contents: BTreeSet<i64>,
) -> Result<(), StoreError> {
    forget(conn, -session)?;
    let mut found_here = conn.prepare_cached("SELECT 1 FROM words WHERE content = ? AND session = ?")?;
    let mut homeless = BTreeSet::new();
    for content in contents {
        if found_here.exists([content, session])? {
            homeless.insert(content);
        }
    }
    move_to_others(conn, session, homeless, None)?;
    for rows in ["DELETE FROM families WHERE session = ?", "DELETE FROM unindexed WHERE session = ?"] {
        conn.prepare_cached(rows)?.execute([session])?;
    }
    Ok(())
}

/// Looks for the first entries in the family of a session that have these contents: from now on they are found there.
fn move_to_others(
    conn: &Connection,
    session: i64,
    mut contents: BTreeSet<i64>,
    except: Option<(i64, i64)>,
) -> Result<(), StoreError> {
    if contents.is_empty() {
        return Ok(());
    }
    // Keys grow, so that the oldest comes first.
    let mut family = conn.prepare_cached(
        "SELECT session FROM families WHERE root = (SELECT root FROM families WHERE session = ?) ORDER BY session",
    )?;
    let mut entries =
        conn.prepare_cached("SELECT created, content FROM entries WHERE session = ? ORDER BY created")?;
    let mut put = conn.prepare_cached("UPDATE words SET session = ?, created = ? WHERE content = ?")?;
    let mut sessions = family.query([session])?;
    while let Some(row) = sessions.next()? {
        let other: i64 = row.get(0)?;
        let mut rows = entries.query([other])?;
        while let Some(row) = rows.next()? {
            let (created, content): (i64, i64) = (row.get(0)?, row.get(1)?);
            if except != Some((other, created)) && contents.remove(&content) {
                put.execute([other, created, content])?;
                if contents.is_empty() {
                    return Ok(());
                }
            }
        }
    }
    // Nobody has them after all; what is found must be there.
    contents.into_iter().try_for_each(|content| forget(conn, content))
}

/// One session copies from another.
pub(super) fn are_family(conn: &Connection, from: i64, to: i64) -> Result<(), StoreError> {
    if from == to {
        return Ok(());
    }
    let root = |session: i64| -> Result<Option<i64>, StoreError> {
        let mut root = conn.prepare_cached("SELECT root FROM families WHERE session = ?")?;
        Ok(root.query_row([session], |row| row.get(0)).optional()?)
    };
    let mut join = conn.prepare_cached("INSERT INTO families (session, root) VALUES (?, ?)")?;
    let theirs = match root(from)? {
        Some(root) => root,
        None => {
            join.execute([from, from])?;
            from
        }
    };
    match root(to)? {
        Some(ours) if ours == theirs => {}
        Some(ours) => {
            conn.prepare_cached("UPDATE families SET root = ? WHERE root = ?")?.execute([theirs, ours])?;
        }
        None => {
            join.execute([to, theirs])?;
        }
    }
    Ok(())
}

/// All words of a session of before are there, apart from its title.
pub(super) fn indexed(conn: &Connection, session: &str) -> Result<(), StoreError> {
    let Some(row) = super::list::session(conn, session)? else { return Ok(()) };
    let was_not = conn
        .prepare_cached("DELETE FROM unindexed WHERE session = (SELECT key FROM sessions WHERE id = ?)")?
        .execute([session])?;
    if was_not > 0 { put_title(conn, &row) } else { Ok(()) }
}
