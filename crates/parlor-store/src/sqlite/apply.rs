//! Applies a write as SQL.

use std::collections::BTreeSet;

use rusqlite::{Connection, OptionalExtension, params};

use super::cache::{RecentMap, WriterCache};
use super::content::{self, Released, Tail};
use super::copy::copy;
use super::index;
use crate::check::{no_entry, no_session, number};
use crate::{ErrorKind, SessionRow, StoreError, Write};

/// Applies a write inside a transaction; after an error the caller must roll back and clear `cache`.
pub(super) fn apply(conn: &Connection, cache: &mut WriterCache, write: &Write) -> Result<(), StoreError> {
    match write {
        Write::Session(row) => put_session(conn, row),
        Write::Slot { session, name, seq, body } => {
            let seq = number(*seq)?;
            let session = session_key(conn, cache, session)?;
            put_slot(conn, session, name, seq, body.as_deref())
        }
        Write::Entry { session, created, seq, head, content } => {
            let (created, seq) = (number(*created)?, number(*seq)?);
            let session = session_key(conn, cache, session)?;
            match content {
                Some(content) => put_entry(conn, cache, session, created, seq, head, content),
                None if put_head(conn, session, created, seq, head)? => Ok(()),
                None => put_entry(conn, cache, session, created, seq, head, ""),
            }
        }
        Write::Append { session, created, seq, content } => {
            append_to(conn, cache, session, *created, *seq, content)
        }
        Write::Copy { from, to, entries } => {
            let (from_key, to_key) = (session_key(conn, cache, from)?, session_key(conn, cache, to)?);
            // Contents that belonged to one entry alone are now shared.
            cache.tails.retain(|(session, _)| *session != from_key);
            copy(conn, (from, from_key), (to, to_key), entries)
        }
        Write::Index { session, created, seq, document, only_missing } => {
            let (made, seq) = (number(*created)?, number(*seq)?);
            let key = session_key(conn, cache, session)?;
            index::set(conn, cache, key, made, seq, document.as_ref(), *only_missing)?
                .ok_or_else(|| no_entry(session, *created))
        }
        Write::Indexed { session } => index::mark_indexed(conn, session),
        Write::Delete { session } => delete(conn, cache, session),
        Write::Value { key, value } => put_value(conn, key, value.as_deref()),
    }
}

fn put_session(conn: &Connection, row: &SessionRow) -> Result<(), StoreError> {
    let before: Option<Option<String>> = conn
        .prepare_cached("SELECT title FROM sessions WHERE id = ?")?
        .query_row([&row.id], |row| row.get(0))
        .optional()?;
    conn.prepare_cached(
        "INSERT INTO sessions
         (id, agent, agent_session, cwd, title, parent, created_at, rank, archived, busy, data, owner)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
         ON CONFLICT (id) DO UPDATE SET
         agent = excluded.agent, agent_session = excluded.agent_session, cwd = excluded.cwd,
         title = excluded.title, parent = excluded.parent, created_at = excluded.created_at,
         rank = excluded.rank, archived = excluded.archived, busy = excluded.busy, data = excluded.data,
         owner = excluded.owner",
    )?
    .execute(params![
        row.id,
        row.agent,
        row.agent_session,
        row.cwd,
        row.title,
        row.parent,
        row.created_at,
        !row.active_at,
        row.archived,
        row.busy,
        row.data,
        row.owner,
    ])?;
    if before.flatten() == row.title { Ok(()) } else { index::set_title(conn, row) }
}

fn session_key(conn: &Connection, cache: &mut WriterCache, id: &str) -> Result<i64, StoreError> {
    if let Some(key) = cache.sessions.get(id) {
        return Ok(key);
    }
    let key = conn
        .prepare_cached("SELECT key FROM sessions WHERE id = ?")?
        .query_row([id], |row| row.get(0))
        .optional()?
        .ok_or_else(|| no_session(id))?;
    cache.sessions.put(id.to_owned(), key);
    Ok(key)
}

fn put_slot(
    conn: &Connection,
    session: i64,
    name: &str,
    seq: i64,
    body: Option<&str>,
) -> Result<(), StoreError> {
    match body {
        Some(body) => conn
            .prepare_cached("INSERT OR REPLACE INTO slots (session, name, seq, body) VALUES (?, ?, ?, ?)")?
            .execute(params![session, name, seq, body])?,
        None => conn
            .prepare_cached("DELETE FROM slots WHERE session = ? AND name = ?")?
            .execute(params![session, name])?,
    };
    Ok(())
}

/// Replaces the head of an entry; returns whether it exists.
fn put_head(conn: &Connection, session: i64, created: i64, seq: i64, head: &str) -> Result<bool, StoreError> {
    let rows = conn
        .prepare_cached("UPDATE entries SET seq = max(seq, ?), head = ? WHERE session = ? AND created = ?")?
        .execute(params![seq, head, session, created])?;
    Ok(rows > 0)
}

/// Creates an entry or replaces all of it.
fn put_entry(
    conn: &Connection,
    cache: &mut WriterCache,
    session: i64,
    created: i64,
    seq: i64,
    head: &str,
    text: &str,
) -> Result<(), StoreError> {
    cache.tails.take(&(session, created));
    let content = match content::owned(conn, session, created)? {
        Some(owned) => {
            // The segments that have the later seq are deleted.
            let seq = seq.max(content::appended_seq(conn, &owned)?);
            content::release(conn, session, created, owned.content)?;
            let content = content::new_content(conn, cache)?;
            conn.prepare_cached(
                "UPDATE entries SET seq = max(seq, ?), head = ?, content = ?, inherited = 0
                 WHERE session = ? AND created = ?",
            )?
            .execute(params![seq, head, content, session, created])?;
            content
        }
        None => {
            let content = content::new_content(conn, cache)?;
            conn.prepare_cached(
                "INSERT INTO entries (session, created, seq, content, inherited, head)
                 VALUES (?, ?, ?, ?, 0, ?)",
            )?
            .execute(params![session, created, seq, content, head])?;
            content
        }
    };
    let mut tail = Tail::empty(content);
    if !text.is_empty() {
        tail.push(conn, seq, text)?;
    }
    cache.tails.put((session, created), tail);
    Ok(())
}

/// Appends to the content of an entry.
pub(super) fn append_to(
    conn: &Connection,
    cache: &mut WriterCache,
    session: &str,
    created: u64,
    seq: u64,
    text: &str,
) -> Result<(), StoreError> {
    let (entry, seq) = (number(created)?, number(seq)?);
    let key = session_key(conn, cache, session)?;
    let tail = content::own_tail(conn, cache, key, entry)?;
    let mut tail = tail.ok_or_else(|| no_entry(session, created))?;
    tail.push(conn, seq, text)?;
    cache.tails.put((key, entry), tail);
    Ok(())
}

/// Returns a session, the sessions that it owns, those that they own, and so on.
pub(super) fn with_owned(conn: &Connection, session: &str) -> Result<Vec<String>, StoreError> {
    let mut found = vec![session.to_owned()];
    let mut next = 0;
    while let Some(owner) = found.get(next) {
        let mut owned = conn.prepare_cached("SELECT id FROM sessions WHERE owner = ?")?;
        let owned: Vec<String> = owned.query_map([owner], |row| row.get(0))?.collect::<Result<_, _>>()?;
        found.extend(owned);
        next += 1;
    }
    Ok(found)
}

fn delete(conn: &Connection, cache: &mut WriterCache, session: &str) -> Result<(), StoreError> {
    let key = match session_key(conn, cache, session) {
        Ok(key) => key,
        Err(error) if error.kind == ErrorKind::Invalid => return Ok(()),
        Err(error) => return Err(error),
    };
    // SQLite may reuse the key for another session.
    cache.sessions.take(session);
    cache.tails = RecentMap::default();
    let contents: Vec<i64> = conn
        .prepare_cached("SELECT content FROM entries WHERE session = ?")?
        .query_map([key], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    let mut left = BTreeSet::new();
    for content in contents {
        if let Released::ByOne = content::count_down(conn, content)? {
            left.insert(content);
        }
    }
    for rows in [
        "DELETE FROM entries WHERE session = ?",
        "DELETE FROM slots WHERE session = ?",
        "DELETE FROM sessions WHERE key = ?",
    ] {
        conn.prepare_cached(rows)?.execute([key])?;
    }
    index::on_session_deleted(conn, key, left)
}

fn put_value(conn: &Connection, key: &str, value: Option<&str>) -> Result<(), StoreError> {
    match value {
        Some(value) => conn
            .prepare_cached("INSERT OR REPLACE INTO loose_values (key, value) VALUES (?, ?)")?
            .execute([key, value])?,
        None => conn.prepare_cached("DELETE FROM loose_values WHERE key = ?")?.execute([key])?,
    };
    Ok(())
}
