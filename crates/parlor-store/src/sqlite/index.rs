//! The full-text index. A content has one index document, however many entries share it.
//!
//! A content is found in one of its entries. When that entry no longer has it, another one is searched among the
//! sessions of its family, which are the sessions that copied entries from each other. A copy writes only the
//! membership in the family.

use std::collections::BTreeSet;

use rusqlite::{Connection, OptionalExtension, params};

use super::cache::WriterCache;
use super::content;
use crate::{IndexDocument, SessionRow, StoreError, TITLE, check, words};

/// Replaces the index document of an entry; returns `None` if the entry does not exist.
pub(super) fn set(
    conn: &Connection,
    cache: &mut WriterCache,
    session: i64,
    created: i64,
    seq: i64,
    document: Option<&IndexDocument>,
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
            // The other entries keep their document.
            content = content::unshare(conn, cache, session, created, content)?;
        } else {
            remove(conn, content)?;
        }
    }
    if let Some(document) = document {
        insert(conn, content, session, created, document)?;
    }
    Ok(Some(()))
}

/// Indexes the title of a session.
pub(super) fn set_title(conn: &Connection, row: &SessionRow) -> Result<(), StoreError> {
    let key: i64 = conn
        .prepare_cached("SELECT key FROM sessions WHERE id = ?")?
        .query_row([&row.id], |row| row.get(0))?;
    remove(conn, -key)?;
    match check::title(row) {
        Some(text) => {
            insert(conn, -key, key, 0, &IndexDocument { kind: TITLE.to_owned(), at: row.active_at, text })
        }
        None => Ok(()),
    }
}

fn insert(
    conn: &Connection,
    content: i64,
    session: i64,
    created: i64,
    document: &IndexDocument,
) -> Result<(), StoreError> {
    let text = words::folded(&document.text);
    if text.is_empty() {
        return Ok(());
    }
    conn.prepare_cached("INSERT INTO word_index (rowid, text) VALUES (?, ?)")?
        .execute(params![content, text])?;
    conn.prepare_cached("INSERT INTO indexed_texts (content, text) VALUES (?, ?)")?
        .execute(params![content, text])?;
    conn.prepare_cached("INSERT INTO words (content, session, created, kind, at) VALUES (?, ?, ?, ?, ?)")?
        .execute(params![content, session, created, document.kind, document.at])?;
    Ok(())
}

fn has_words(conn: &Connection, content: i64) -> Result<bool, StoreError> {
    Ok(conn.prepare_cached("SELECT 1 FROM words WHERE content = ?")?.exists([content])?)
}

/// Removes the index document of a content. The index needs the words that were inserted to remove them.
pub(super) fn remove(conn: &Connection, content: i64) -> Result<(), StoreError> {
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

/// Moves the hits of a content after an entry was detached from it and others still have it.
pub(super) fn on_detached(
    conn: &Connection,
    session: i64,
    created: i64,
    content: i64,
) -> Result<(), StoreError> {
    let was_here = conn
        .prepare_cached("SELECT 1 FROM words WHERE content = ? AND session = ? AND created = ?")?
        .exists(params![content, session, created])?;
    if !was_here {
        return Ok(());
    }
    let except = Some((session, created));
    move_hits(conn, session, BTreeSet::from([content]), except)
}

/// Moves the hits of contents after their session was deleted and others still have them.
pub(super) fn on_session_deleted(
    conn: &Connection,
    session: i64,
    contents: BTreeSet<i64>,
) -> Result<(), StoreError> {
    remove(conn, -session)?;
    let mut found_here = conn.prepare_cached("SELECT 1 FROM words WHERE content = ? AND session = ?")?;
    let mut homeless = BTreeSet::new();
    for content in contents {
        if found_here.exists([content, session])? {
            homeless.insert(content);
        }
    }
    move_hits(conn, session, homeless, None)?;
    for rows in ["DELETE FROM families WHERE session = ?", "DELETE FROM unindexed WHERE session = ?"] {
        conn.prepare_cached(rows)?.execute([session])?;
    }
    Ok(())
}

/// Moves the hits of contents to the first entries in the family of a session that have them.
fn move_hits(
    conn: &Connection,
    session: i64,
    mut contents: BTreeSet<i64>,
    except: Option<(i64, i64)>,
) -> Result<(), StoreError> {
    if contents.is_empty() {
        return Ok(());
    }
    // Keys increase, so the oldest session comes first.
    let mut family = conn.prepare_cached(
        "SELECT session FROM families WHERE root = (SELECT root FROM families WHERE session = ?) ORDER BY session",
    )?;
    let mut entries =
        conn.prepare_cached("SELECT created, content FROM entries WHERE session = ? ORDER BY created")?;
    let mut set = conn.prepare_cached("UPDATE words SET session = ?, created = ? WHERE content = ?")?;
    let mut sessions = family.query([session])?;
    while let Some(row) = sessions.next()? {
        let other: i64 = row.get(0)?;
        let mut rows = entries.query([other])?;
        while let Some(row) = rows.next()? {
            let (created, content): (i64, i64) = (row.get(0)?, row.get(1)?);
            if except != Some((other, created)) && contents.remove(&content) {
                set.execute([other, created, content])?;
                if contents.is_empty() {
                    return Ok(());
                }
            }
        }
    }
    // No entry has these contents; a hit must refer to an entry.
    contents.into_iter().try_for_each(|content| remove(conn, content))
}

/// Records that one session copies from another.
pub(super) fn link(conn: &Connection, from: i64, to: i64) -> Result<(), StoreError> {
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

/// Records that all entries of an earlier session are indexed.
pub(super) fn mark_indexed(conn: &Connection, session: &str) -> Result<(), StoreError> {
    let Some(row) = super::list::session(conn, session)? else { return Ok(()) };
    let was_not = conn
        .prepare_cached("DELETE FROM unindexed WHERE session = (SELECT key FROM sessions WHERE id = ?)")?
        .execute([session])?;
    if was_not > 0 { set_title(conn, &row) } else { Ok(()) }
}
