//! Searches the full-text index and looks up its hits.

use std::cmp::Reverse;
use std::fmt::Write as _;

use rusqlite::types::ToSql;
use rusqlite::{Connection, params};

use super::list;
use super::pending::{Pending, PendingDocument};
use crate::query::Term;
use crate::{Hit, Query, Search, SessionRow, StoreError};

/// The time of a hit; for a title, the last activity of its session.
const HIT_TIME: &str = "CASE w.created WHEN 0 THEN ~s.rank ELSE w.at END";

pub(super) fn search(
    conn: &Connection,
    pending: &Pending,
    search: &Search,
    offset: usize,
    limit: usize,
) -> Result<Vec<Hit>, StoreError> {
    if search.query.is_empty() || limit == 0 {
        return Ok(Vec::new());
    }
    let changed = pending.documents();
    if changed.is_empty() {
        return stored(conn, search, offset, limit);
    }
    let mut hits = Vec::new();
    for (&(session, created), document) in &changed {
        let matching = document.as_ref().filter(|document| search.query.matches(&document.text));
        let Some(PendingDocument { kind, at, .. }) = matching else { continue };
        let row = match pending.session(session) {
            Some(row) => Some(row.clone()),
            None => list::session(conn, session)?,
        };
        if row.is_some_and(|row| search.includes(&row, kind, *at)) {
            let (session, created) = (session.to_owned(), (created > 0).then_some(created));
            hits.push(Hit { session, created, kind: (*kind).to_owned(), at: *at });
        }
    }
    // The index ranks a hit by all documents in it, and these are not. The latest is the most likely to be wanted.
    hits.sort_by_key(|hit| Reverse(hit.at));
    let most = offset.saturating_add(limit).saturating_add(changed.len());
    let unchanged = |hit: &Hit| {
        let is_included = |row: &SessionRow| search.includes(row, &hit.kind, hit.at);
        !changed.contains_key(&(&*hit.session, hit.created.unwrap_or(0)))
            && pending.session(&hit.session).is_none_or(is_included)
    };
    hits.extend(stored(conn, search, 0, most)?.into_iter().filter(unchanged));
    Ok(hits.into_iter().skip(offset).take(limit).collect())
}

/// Returns the hits in the database.
fn stored(conn: &Connection, search: &Search, offset: usize, limit: usize) -> Result<Vec<Hit>, StoreError> {
    let expression = expression(&search.query);
    let [offset, limit] = [offset, limit].map(|number| i64::try_from(number).unwrap_or(i64::MAX));
    let mut values: Vec<&dyn ToSql> = vec![&expression];
    let mut filters = String::new();
    for (clause, value) in [
        (" AND w.kind = ?", &search.kind),
        (" AND s.id = ?", &search.session),
        (" AND s.agent = ?", &search.agent),
        (" AND s.cwd = ?", &search.cwd),
    ] {
        if let Some(value) = value {
            filters += clause;
            values.push(value);
        }
    }
    if let Some(since) = &search.since {
        filters.extend([" AND ", HIT_TIME, " >= ?"]);
        values.push(since);
    }
    values.extend([&limit as &dyn ToSql, &offset]);
    // Without other conditions only the hits of the page are joined. The order of the joins is fixed by CROSS JOIN.
    let joins = "CROSS JOIN words AS w ON w.content = f.rowid CROSS JOIN sessions AS s ON s.key = w.session";
    // The function is faster than the equal column `rank`.
    let worth = "bm25(word_index) AS worth";
    let order = "ORDER BY worth, f.rowid DESC";
    let sql = if filters.is_empty() {
        format!(
            "SELECT s.id, w.created, w.kind, {HIT_TIME} FROM (
                 SELECT rowid, {worth} FROM word_index AS f WHERE word_index MATCH ? {order} LIMIT ? OFFSET ?
             ) AS f {joins} {order}"
        )
    } else {
        format!(
            "SELECT s.id, w.created, w.kind, {HIT_TIME}, {worth} FROM word_index AS f {joins}
             WHERE word_index MATCH ?{filters} {order} LIMIT ? OFFSET ?"
        )
    };
    let mut found = conn.prepare_cached(&sql)?;
    let hits = found.query_map(&values[..], |row| {
        let created: u64 = row.get(1)?;
        let created = (created > 0).then_some(created);
        Ok(Hit { session: row.get(0)?, created, kind: row.get(2)?, at: row.get(3)? })
    })?;
    Ok(hits.collect::<Result<_, _>>()?)
}

/// Returns a query in the language of the index. Words consist of letters and digits, so they need no escapes.
fn expression(query: &Query) -> String {
    let joined = |terms: &[Term], with: &str| {
        let mut text = String::new();
        for term in terms {
            let separator = if text.is_empty() { "" } else { with };
            let star = if term.is_prefix { " *" } else { "" };
            let _ = write!(text, "{separator}\"{}\"{star}", term.words.join(" "));
        }
        text
    };
    let wanted = joined(query.required(), " AND ");
    match query.excluded() {
        [] => wanted,
        unwanted => format!("({wanted}) NOT ({})", joined(unwanted, " OR ")),
    }
}

pub(super) fn unindexed(conn: &Connection, limit: usize) -> Result<Vec<String>, StoreError> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    // The latest sessions come first.
    let mut sessions = conn.prepare_cached(
        "SELECT s.id FROM unindexed AS u CROSS JOIN sessions AS s ON s.key = u.session ORDER BY s.rank LIMIT ?",
    )?;
    let ids = sessions.query_map(params![limit], |row| row.get(0))?;
    Ok(ids.collect::<Result<_, _>>()?)
}
