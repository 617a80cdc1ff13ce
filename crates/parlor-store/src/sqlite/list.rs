//! Lists sessions: each page is read in order from one index, whatever the filter.

use rusqlite::types::ToSql;
use rusqlite::{Connection, OptionalExtension, Row};

use super::pending::Pending;
use crate::{Cursor, Filter, SessionRow, StoreError, list_order};

const COLUMNS: &str =
    "id, agent, agent_session, cwd, title, parent, created_at, rank, archived, busy, data, owner";

pub(super) fn session(conn: &Connection, id: &str) -> Result<Option<SessionRow>, StoreError> {
    let mut session = conn.prepare_cached(&format!("SELECT {COLUMNS} FROM sessions WHERE id = ?"))?;
    Ok(session.query_row([id], read_row).optional()?)
}

pub(super) fn sessions(
    conn: &Connection,
    pending: &Pending,
    filter: &Filter,
    after: Option<&Cursor>,
    limit: usize,
) -> Result<Vec<SessionRow>, StoreError> {
    let changed = pending.sessions();
    let mut rows = stored(conn, filter, after, limit.saturating_add(changed.len()))?;
    if !changed.is_empty() {
        rows.retain(|row| !changed.contains_key(&*row.id));
        let is_listed =
            |row: &&&SessionRow| filter.includes(row) && after.is_none_or(|cursor| cursor.precedes(row));
        rows.extend(changed.values().filter(is_listed).map(|row| (*row).clone()));
        sort(&mut rows);
        rows.truncate(limit);
    }
    Ok(rows)
}

fn sort(rows: &mut [SessionRow]) {
    rows.sort_unstable_by(|a, b| list_order(a).cmp(&list_order(b)));
}

/// Returns a page of the sessions in the database.
fn stored(
    conn: &Connection,
    filter: &Filter,
    after: Option<&Cursor>,
    limit: usize,
) -> Result<Vec<SessionRow>, StoreError> {
    let Some(archived) = filter.archived else {
        // The first page of all sessions consists of rows of the first pages of the archived and of the other
        // sessions.
        let mut rows = part(conn, filter, false, after, limit)?;
        rows.extend(part(conn, filter, true, after, limit)?);
        sort(&mut rows);
        rows.truncate(limit);
        return Ok(rows);
    };
    part(conn, filter, archived, after, limit)
}

/// Returns a page of the archived or of the other sessions.
fn part(
    conn: &Connection,
    filter: &Filter,
    archived: bool,
    after: Option<&Cursor>,
    limit: usize,
) -> Result<Vec<SessionRow>, StoreError> {
    let rank = after.map(|cursor| !cursor.active_at);
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut sql = format!("SELECT {COLUMNS} FROM sessions INDEXED BY {} WHERE archived = ?", index(filter));
    let mut values: Vec<&dyn ToSql> = vec![&archived];
    for (clause, text) in [
        (" AND agent = ?", &filter.agent),
        (" AND cwd = ?", &filter.cwd),
        (" AND agent_session = ?", &filter.agent_session),
    ] {
        if let Some(text) = text {
            sql += clause;
            values.push(text);
        }
    }
    // As a literal, because SQLite uses the partial index of busy sessions only if the text of the query implies its
    // condition.
    sql += match filter.busy {
        Some(true) => " AND busy = 1",
        Some(false) => " AND busy = 0",
        None => "",
    };
    if !filter.owned {
        sql += " AND owner IS NULL";
    }
    if let (Some(rank), Some(cursor)) = (&rank, after) {
        sql += " AND (rank, id) > (?, ?)";
        values.extend([rank as &dyn ToSql, &cursor.id]);
    }
    sql += " ORDER BY rank, id LIMIT ?";
    values.push(&limit);
    let mut page = conn.prepare_cached(&sql)?;
    let rows = page.query_map(&values[..], read_row)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Returns the index to read from, because SQLite would have to guess how many rows a filter matches.
fn index(filter: &Filter) -> &'static str {
    match filter {
        Filter { agent_session: Some(_), .. } => "sessions_agent_session",
        Filter { busy: Some(true), .. } => "sessions_busy",
        Filter { agent: Some(_), cwd: Some(_), .. } => "sessions_agent_cwd",
        Filter { agent: Some(_), .. } => "sessions_agent",
        Filter { cwd: Some(_), .. } => "sessions_cwd",
        Filter { .. } => "sessions_all",
    }
}

fn read_row(row: &Row<'_>) -> Result<SessionRow, rusqlite::Error> {
    Ok(SessionRow {
        id: row.get(0)?,
        agent: row.get(1)?,
        agent_session: row.get(2)?,
        cwd: row.get(3)?,
        title: row.get(4)?,
        parent: row.get(5)?,
        created_at: row.get(6)?,
        active_at: !row.get::<_, i64>(7)?,
        archived: row.get(8)?,
        busy: row.get(9)?,
        data: row.get(10)?,
        owner: row.get(11)?,
    })
}
