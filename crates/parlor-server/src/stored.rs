//! Sessions as they are in the store, for servers and for those who only look.

use parlor_dialect::Dialect;
pub use parlor_engine::stored::{
    StoredSession, additional_directories, dialect_of, forked_at, title, updated_at,
};
use parlor_json::{Json, Object};
use parlor_session::{Slot, Transcript};
use parlor_store::{ErrorKind, Store, StoreError};

use crate::config::AgentConfig;
use crate::json;

/// The slot that has a session's title and metadata.
const INFO: &str = "info";

/// How much of a session is read at once.
const PAGE: usize = 4 << 20;

/// What is remembered of an agent from its last start.
#[derive(Debug, Clone)]
pub struct Remembered {
    /// What it speaks.
    pub dialect: Dialect,
    /// What it said of itself.
    pub info: Object,
}

/// Reads a session from the store. This blocks.
pub fn open(store: &dyn Store, id: &str) -> Result<Option<StoredSession>, StoreError> {
    let Some(row) = store.session(id)? else { return Ok(None) };
    let damaged =
        |error: parlor_session::BadRow| StoreError { kind: ErrorKind::Format, message: error.to_string() };
    let mut session = StoredSession::new(row);
    let mut after = 0;
    loop {
        let page = store.entries(id, 0, after, PAGE)?;
        let Some(last) = page.last() else { break };
        after = last.created;
        for entry in &page {
            session
                .add_entry(entry.created, entry.seq, &entry.head, &entry.content, entry.inherited)
                .map_err(damaged)?;
        }
    }
    for slot in store.slots(id, 0)? {
        session.add_slot(&slot.name, slot.seq, slot.body).map_err(damaged)?;
    }
    Ok(Some(session))
}

/// The metadata of a session.
pub fn meta(store: &dyn Store, id: &str) -> Result<Option<Object>, StoreError> {
    let mut transcript = Transcript::default();
    for slot in store.slots(id, 0)?.iter().filter(|slot| slot.name == INFO) {
        // What cannot be read is missed when the session is opened, and not before.
        let _ = transcript.restore_slot(&slot.name, slot.seq, &slot.body);
    }
    Ok(transcript.slot(Slot::Info).and_then(|info| info.meta.clone()))
}

/// A time as JSON, from milliseconds since 1970.
pub(crate) fn time(millis: i64) -> Option<Json> {
    Some(Json::from(&jiff::Timestamp::from_millisecond(millis).ok()?.to_string()))
}

/// What an agent said of itself when it was last started.
pub fn remembered(store: &dyn Store, config: &AgentConfig) -> Result<Option<Remembered>, StoreError> {
    remembered_by(store, &key_of(config))
}

/// The same by the [key](key_of) of the agent.
pub(crate) fn remembered_by(store: &dyn Store, key: &str) -> Result<Option<Remembered>, StoreError> {
    Ok(store.value(key)?.and_then(decode_remembered))
}

fn decode_remembered(kept: String) -> Option<Remembered> {
    let kept = json::object(Some(Json::parse(kept).ok()?.raw()));
    let dialect = kept.get_string("dialect")?.parse().ok()?;
    Some(Remembered { dialect, info: kept.get_object("info")? })
}

/// Under which name it is remembered what an agent said of itself. One that is told how to speak says other things.
pub(crate) fn key_of(config: &AgentConfig) -> String {
    let command = config.command.join(" ");
    match (config.dialect, config.version) {
        (Some(dialect), _) => format!("agent {} {command}", dialect.name()),
        (None, Some(version)) => format!("agent {version} {command}"),
        (None, None) => format!("agent {command}"),
    }
}
