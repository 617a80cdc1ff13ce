//! Sessions that only an agent knows, listed together with those that are kept here.
//!
//! They are kept as values of the store, one an agent, and not as sessions: nothing that opens, searches, forks or
//! deletes sessions can take one of them for its own. One that is loaded becomes a session like any other.

use std::cmp::Reverse;
use std::collections::HashSet;

use parlor_json::{Json, JsonStr, Object};
use parlor_store::{Cursor, Filter, SessionRow, Store, StoreError, Write};

pub use parlor_engine::deleted_agent_session;
use parlor_engine::deleted_key;

use crate::json;

/// Under which name it is kept which agents have sessions of their own.
const INDEX: &str = "agents with sessions";

/// How many agents' sessions are kept. The one that was asked the longest ago goes.
const MAX_AGENTS: usize = 100;

/// How the data of a session's row begins that only its agent knows.
const MARK: &str = r#"{"adopted":false"#;

/// What is kept of such a session in a place of its own.
const OWN: [&str; 5] = ["sessionId", "cwd", "title", "updatedAt", "archived"];

/// Whether a listed session is one that only its agent knows.
pub fn is_foreign(row: &SessionRow) -> bool {
    row.data.starts_with(MARK)
}

/// What else its agent lists of such a session.
pub(crate) fn listed(row: &SessionRow) -> Object {
    let data = json::object(Json::parse(row.data.clone()).ok().as_ref().map(Json::raw));
    data.get_object("info").unwrap_or_default()
}

/// The data of a row that has this.
fn data(mut info: Object) -> String {
    OWN.iter().for_each(|name| drop(info.remove(name)));
    let meta = json::foreign_meta(&info);
    if meta.is_empty() {
        info.remove("_meta");
    } else {
        info.set("_meta", meta.to_json());
    }
    if info.is_empty() {
        format!("{MARK}}}")
    } else {
        format!(r#"{MARK},"info":{}}}"#, info.to_json().as_str())
    }
}

/// The row by which such a session is listed. `info` is how the agent lists it.
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
        created_at: at,
        active_at: at,
        archived: false,
        busy: false,
        data: data(info.clone()),
    })
}

/// Puts sessions into the order of lists.
pub(crate) fn sort(rows: &mut [SessionRow]) {
    rows.sort_unstable_by(|a, b| place(a).cmp(&place(b)));
}

/// The sessions of one agent that only it knows, in the order of lists. `key` is what the agent is remembered by.
pub(crate) fn of_agent(store: &dyn Store, key: &str) -> Result<Vec<SessionRow>, StoreError> {
    Ok(store.value(&value_of(key))?.map(|kept| read(&kept)).unwrap_or_default())
}

/// Those of all agents, in the order of lists.
pub fn of_all(store: &dyn Store) -> Result<Vec<SessionRow>, StoreError> {
    let mut rows = Vec::new();
    for key in index(store)? {
        rows.extend(of_agent(store, &key)?);
    }
    sort(&mut rows);
    // Two agents may know the same session.
    let mut seen = HashSet::new();
    rows.retain(|row| seen.insert(row.id.clone()));
    Ok(rows)
}

/// What keeps the sessions that an agent was found to have.
pub(crate) fn writes(store: &dyn Store, key: &str, rows: &[SessionRow]) -> Result<Vec<Write>, StoreError> {
    let mut keys = index(store)?;
    keys.retain(|other| other != key);
    keys.insert(0, key.to_owned());
    let mut writes: Vec<_> = keys
        .drain(MAX_AGENTS.min(keys.len())..)
        .map(|key| Write::Value { key: value_of(&key), value: None })
        .collect();
    let keys: Vec<_> = keys.iter().map(|key| Json::from(key).as_str().to_owned()).collect();
    writes.push(Write::Value { key: INDEX.to_owned(), value: Some(format!("[{}]", keys.join(","))) });
    writes.push(Write::Value { key: value_of(key), value: Some(text(rows)) });
    Ok(writes)
}

/// A page of sessions: those that are kept here and those that only agents know, in one order. `known` are the latter,
/// in that order and of the agents that are asked for; those of them that are kept here by now are left out.
///
/// Activity moves a session to the front, so that while a list is read page by page, one in which nothing happens is
/// listed exactly once, and any other at most once.
pub fn page(
    store: &dyn Store,
    known: &[SessionRow],
    filter: &Filter,
    after: Option<&Cursor>,
    limit: usize,
) -> Result<Vec<SessionRow>, StoreError> {
    let mut own = store.sessions(filter, after, limit)?.into_iter().peekable();
    let after = after.map(|cursor| (Reverse(cursor.active_at), cursor.id.as_str()));
    let first = after.map_or(0, |after| known.partition_point(|row| place(row) <= after));
    let mut others = known[first..].iter().filter(|row| matches(filter, row)).peekable();
    let mut rows = Vec::new();
    while rows.len() < limit {
        match (own.peek(), others.peek()) {
            (None, None) => break,
            (Some(ours), Some(other)) if place(ours) <= place(other) => rows.extend(own.next()),
            (Some(_), None) => rows.extend(own.next()),
            (_, Some(other)) => {
                if !is_kept(store, other)? {
                    rows.push((*other).clone());
                }
                others.next();
            }
        }
    }
    Ok(rows)
}

/// Whether an agent's session is one of those that are kept here, or were, or has the id of one.
pub(crate) fn is_kept(store: &dyn Store, row: &SessionRow) -> Result<bool, StoreError> {
    if store.value(&deleted_key(&row.id))?.is_some() {
        return Ok(true);
    }
    let same = Filter { agent_session: Some(row.id.clone()), ..Filter::default() };
    Ok(!store.sessions(&same, None, 1)?.is_empty() || store.session(&row.id)?.is_some())
}

/// Where a session stands in lists.
fn place(row: &SessionRow) -> (Reverse<i64>, &str) {
    (Reverse(row.active_at), &row.id)
}

fn matches(filter: &Filter, row: &SessionRow) -> bool {
    filter.cwd.as_ref().is_none_or(|cwd| *cwd == row.cwd)
        && filter.agent_session.as_ref().is_none_or(|id| *id == row.id)
        && filter.archived != Some(true)
        && filter.busy != Some(true)
}

fn value_of(key: &str) -> String {
    format!("sessions of {key}")
}

fn index(store: &dyn Store) -> Result<Vec<String>, StoreError> {
    let kept = store.value(INDEX)?.and_then(|kept| Json::parse(kept).ok());
    let keys = kept.as_ref().and_then(Json::elements).unwrap_or_default();
    Ok(keys.into_iter().filter_map(|key| Some(JsonStr::from_raw(key)?.to_text().into_owned())).collect())
}

fn text(rows: &[SessionRow]) -> String {
    let rows = rows.iter().map(|row| {
        let mut kept = Object::default();
        kept.set("agent", &row.agent);
        kept.set("sessionId", json::json(row.id.clone()));
        kept.set("cwd", &row.cwd);
        if let Some(title) = &row.title {
            kept.set("title", json::json(title.clone()));
        }
        if let Some(time) = crate::stored::time(row.active_at).filter(|_| row.active_at != 0) {
            kept.set("updatedAt", time);
        }
        let info = listed(row);
        if !info.is_empty() {
            kept.set("info", info.to_json());
        }
        kept.to_json().as_str().to_owned()
    });
    format!("[{}]", rows.collect::<Vec<_>>().join(","))
}

fn read(kept: &str) -> Vec<SessionRow> {
    let kept = Json::parse(kept).ok();
    let rows = kept.as_ref().and_then(Json::elements).unwrap_or_default();
    let one = |kept| {
        let kept = json::object(Some(kept));
        let row = row(&kept.get_string("agent")?, &kept)?;
        Some(SessionRow { data: data(kept.get_object("info").unwrap_or_default()), ..row })
    };
    let mut rows: Vec<_> = rows.into_iter().filter_map(one).collect();
    sort(&mut rows);
    rows
}
