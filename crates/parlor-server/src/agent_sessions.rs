//! Sessions that only an agent has, listed together with those of the server.
//!
//! They are stored as one value per agent, and not as sessions, so that no operation on stored sessions applies to them. A
//! client that loads one has the server adopt it; from then on it is an ordinary session.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::HashSet;

use parlor_json::{Json, JsonRef, Object, ObjectWriter};
use parlor_store::{Cursor, Filter, SessionRow, Store, StoreError, Write};

pub use parlor_engine::deleted_agent_session;
use parlor_engine::deleted_key;

use crate::fields;

/// The key of the list of agents that have such sessions.
const INDEX: &str = "agents with sessions";

/// How many agents' sessions are stored; those of the agent whose list is the oldest are dropped.
const MAX_AGENTS: usize = 100;

/// The start of the data of a row for such a session.
const DATA_PREFIX: &str = r#"{"adopted":false"#;

/// The members of a listed session that are columns of the row.
const COLUMNS: [&str; 5] = ["sessionId", "cwd", "title", "updatedAt", "archived"];

/// Whether only the agent has a listed session.
pub fn is_agent_only(row: &SessionRow) -> bool {
    row.data.starts_with(DATA_PREFIX)
}

/// The other members with which the agent lists such a session.
pub(crate) fn other_members(row: &SessionRow) -> Object {
    let data = Json::parse(&row.data).ok().as_ref().and_then(Json::to_object).unwrap_or_default();
    data.get_object("info").unwrap_or_default()
}

/// Encodes the data of a row from the members that the agent lists.
fn data(mut info: Object) -> String {
    COLUMNS.iter().for_each(|name| drop(info.remove(name)));
    let meta = fields::foreign_meta(&info);
    if meta.is_empty() {
        info.remove("_meta");
    } else {
        info.set("_meta", meta.to_json());
    }
    let info = (!info.is_empty()).then(|| info.to_json());
    ObjectWriter::new().raw("adopted", "false").optional_json("info", info.as_ref()).finish()
}

/// Creates the row of such a session from the members that the agent lists.
pub(crate) fn row(agent: &str, info: &Object) -> Option<SessionRow> {
    let id = info.get_json_str("sessionId")?.as_literal().to_owned();
    let title = info.get_json_str("title").filter(|title| !title.to_text().trim().is_empty());
    let title = title.map(|title| title.truncated(500).unwrap_or(title).as_literal().to_owned());
    let updated = info.get_string("updatedAt").and_then(|time| time.parse::<jiff::Timestamp>().ok());
    let at = updated.map_or(0, jiff::Timestamp::as_millisecond);
    Some(SessionRow {
        agent: agent.to_owned(),
        agent_session: Some(id.clone()),
        id,
        cwd: info.get_string("cwd")?,
        title,
        parent: None,
        owner: None,
        created_at: at,
        active_at: at,
        archived: false,
        busy: false,
        data: data(info.clone()),
    })
}

/// Sorts sessions into list order: the latest activity first.
pub(crate) fn sort(rows: &mut [SessionRow]) {
    rows.sort_unstable_by(|a, b| sort_key(a).cmp(&sort_key(b)));
}

/// The stored sessions that only this agent has, in list order.
pub(crate) fn of_agent(store: &dyn Store, key: &str) -> Result<Vec<SessionRow>, StoreError> {
    Ok(store.value(&value_key(key))?.map(|stored| decode(&stored)).unwrap_or_default())
}

/// The stored sessions that only agents have, of all agents, in list order.
pub fn of_all(store: &dyn Store) -> Result<Vec<SessionRow>, StoreError> {
    let mut rows = Vec::new();
    for key in index(store)? {
        rows.extend(of_agent(store, &key)?);
    }
    sort(&mut rows);
    // Two agents may have the same session.
    let mut seen = HashSet::new();
    rows.retain(|row| seen.insert(row.id.clone()));
    Ok(rows)
}

/// The writes that store the list of an agent's sessions.
pub(crate) fn writes(store: &dyn Store, key: &str, rows: &[SessionRow]) -> Result<Vec<Write>, StoreError> {
    let mut keys = index(store)?;
    keys.retain(|other| other != key);
    keys.insert(0, key.to_owned());
    let mut writes: Vec<_> = keys
        .drain(MAX_AGENTS.min(keys.len())..)
        .map(|key| Write::Value { key: value_key(&key), value: None })
        .collect();
    writes.push(Write::Value { key: INDEX.to_owned(), value: Some(Json::array(keys).as_str().to_owned()) });
    writes.push(Write::Value { key: value_key(key), value: Some(encode(rows)) });
    Ok(writes)
}

/// Reads a page of sessions: those of the server merged with `agent_only`, the sorted sessions that only agents have. Those
/// that the server has adopted by now are left out.
///
/// Activity moves a session to the front. So while a list is read page by page, a session without activity is listed exactly
/// once, and any other at most once.
pub fn page(
    store: &dyn Store,
    agent_only: &[SessionRow],
    filter: &Filter,
    after: Option<&Cursor>,
    limit: usize,
) -> Result<Vec<SessionRow>, StoreError> {
    let mut own = store.sessions(filter, after, limit)?.into_iter().peekable();
    let after = after.map(|cursor| (Reverse(cursor.active_at), cursor.id.as_str()));
    let first = after.map_or(0, |after| agent_only.partition_point(|row| sort_key(row) <= after));
    let mut others = agent_only[first..].iter().filter(|row| matches(filter, row)).peekable();
    let mut rows = Vec::new();
    while rows.len() < limit {
        match (own.peek(), others.peek()) {
            (None, None) => break,
            (Some(ours), Some(other)) if sort_key(ours) <= sort_key(other) => rows.extend(own.next()),
            (Some(_), None) => rows.extend(own.next()),
            (_, Some(other)) => {
                if !is_stored(store, other)? {
                    rows.push((*other).clone());
                }
                others.next();
            }
        }
    }
    Ok(rows)
}

/// Whether the server has an agent's session, has deleted it, or has another session with its id.
pub(crate) fn is_stored(store: &dyn Store, row: &SessionRow) -> Result<bool, StoreError> {
    if store.value(&deleted_key(&row.id))?.is_some() {
        return Ok(true);
    }
    let same = Filter { agent_session: Some(row.id.clone()), owned: true, ..Filter::default() };
    Ok(!store.sessions(&same, None, 1)?.is_empty() || store.session(&row.id)?.is_some())
}

fn sort_key(row: &SessionRow) -> (Reverse<i64>, &str) {
    (Reverse(row.active_at), &row.id)
}

fn matches(filter: &Filter, row: &SessionRow) -> bool {
    filter.cwd.as_ref().is_none_or(|cwd| *cwd == row.cwd)
        && filter.agent_session.as_ref().is_none_or(|id| *id == row.id)
        && filter.archived != Some(true)
        && filter.busy != Some(true)
}

fn value_key(key: &str) -> String {
    format!("sessions of {key}")
}

fn index(store: &dyn Store) -> Result<Vec<String>, StoreError> {
    let stored = store.value(INDEX)?.and_then(|stored| Json::parse(stored).ok());
    let keys = stored.as_ref().and_then(Json::elements).unwrap_or_default();
    Ok(keys.into_iter().filter_map(|key| key.to_text().map(Cow::into_owned)).collect())
}

fn encode(rows: &[SessionRow]) -> String {
    let rows = rows.iter().map(|row| {
        let mut stored = Object::default();
        stored.set("agent", &row.agent);
        stored.set("sessionId", Json::parse(&row.id).unwrap_or_default());
        stored.set("cwd", &row.cwd);
        if let Some(title) = &row.title {
            stored.set("title", Json::parse(title).unwrap_or_default());
        }
        if let Some(time) = crate::stored::time(row.active_at).filter(|_| row.active_at != 0) {
            stored.set("updatedAt", time);
        }
        let info = other_members(row);
        if !info.is_empty() {
            stored.set("info", info.to_json());
        }
        stored
    });
    Json::array(rows).as_str().to_owned()
}

fn decode(stored: &str) -> Vec<SessionRow> {
    let stored = Json::parse(stored).ok();
    let rows = stored.as_ref().and_then(Json::elements).unwrap_or_default();
    let decode_row = |stored: JsonRef<'_>| {
        let stored = stored.to_object().unwrap_or_default();
        let row = row(&stored.get_string("agent")?, &stored)?;
        Some(SessionRow { data: data(stored.get_object("info").unwrap_or_default()), ..row })
    };
    let mut rows: Vec<_> = rows.into_iter().filter_map(decode_row).collect();
    sort(&mut rows);
    rows
}
