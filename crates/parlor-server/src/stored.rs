//! Sessions as they are in the store, for servers and for those who only look.

use parlor_dialect::Dialect;
use parlor_json::{Json, JsonStr, Object};
use parlor_session::{Slot, Transcript};
use parlor_store::{ErrorKind, SessionRow, Store, StoreError};

use crate::config::AgentConfig;
use crate::json;

/// The slot in which a session keeps what is not in its transcript.
pub(crate) const KEPT: &str = "session";

/// The slot in which it keeps under which other names clients were told of messages.
pub(crate) const ALIASES: &str = "aliases";

/// The slot in which it keeps what its agent said when it opened it.
pub(crate) const OPENED: &str = "opened";

/// The slot that has a session's title and metadata.
const INFO: &str = "info";

/// How much of a session is read at once.
const PAGE: usize = 4 << 20;

/// A session as it was stored.
#[derive(Debug, Clone)]
pub struct Opened {
    /// What lists show of it.
    pub row: SessionRow,
    /// What was said.
    pub transcript: Transcript,
    /// What the server keeps besides.
    pub kept: Option<Object>,
    /// Under which other names clients were told of messages.
    pub aliases: Option<String>,
    /// What its agent said when it opened it.
    pub opened: Option<Object>,
}

/// What is remembered of an agent from its last start.
#[derive(Debug, Clone)]
pub struct Remembered {
    /// What it speaks.
    pub dialect: Dialect,
    /// What it said of itself.
    pub info: Object,
}

/// Reads a session from the store. This blocks.
pub fn open(store: &dyn Store, id: &str) -> Result<Option<Opened>, StoreError> {
    let Some(row) = store.session(id)? else { return Ok(None) };
    let damaged =
        |error: parlor_session::BadRow| StoreError { kind: ErrorKind::Format, message: error.to_string() };
    let mut transcript = Transcript::default();
    let mut after = 0;
    loop {
        let page = store.entries(id, 0, after, PAGE)?;
        let Some(last) = page.last() else { break };
        after = last.created;
        for entry in &page {
            transcript
                .restore_entry(entry.created, entry.seq, &entry.head, &entry.content, entry.inherited)
                .map_err(damaged)?;
        }
    }
    let (mut kept, mut aliases, mut agents) = (None, None, None);
    for slot in store.slots(id, 0)? {
        if slot.name == KEPT {
            kept = Json::parse(slot.body).ok().map(|body| json::object(Some(body.raw())));
        } else if slot.name == ALIASES {
            aliases = Some(slot.body);
        } else if slot.name == OPENED {
            agents = Json::parse(slot.body).ok().map(|body| json::object(Some(body.raw())));
        } else {
            transcript.restore_slot(&slot.name, slot.seq, &slot.body).map_err(damaged)?;
        }
    }
    Ok(Some(Opened { row, transcript, kept, aliases, opened: agents }))
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

/// The dialect of the agent when the session was last written.
pub fn dialect_of(row: &SessionRow) -> Option<Dialect> {
    json::text(&data(row), "agentDialect")?.parse().ok()
}

/// The title of a session: one that it was given, else the one that was made of its first prompt.
pub fn title(row: &SessionRow) -> Option<JsonStr> {
    match &row.title {
        Some(title) => JsonStr::from_literal(title),
        None => json::literal(&data(row), MADE_TITLE),
    }
}

/// The time that the agent gave as the session's last activity, unless something happened since.
pub fn updated_at(row: &SessionRow) -> Option<JsonStr> {
    json::literal(&data(row), UPDATED_AT)
}

/// Keeps the time that the agent gave, or forgets it.
pub(crate) fn set_updated_at(row: &mut SessionRow, time: Option<&JsonStr>) {
    let mut data = data(row);
    match time {
        Some(time) => data.set(UPDATED_AT, time),
        None => drop(data.remove(UPDATED_AT)),
    }
    data.to_json().as_str().clone_into(&mut row.data);
}

/// Keeps a title. One that was made of what was said is found by that, so that the store need not know it.
pub(crate) fn set_title(row: &mut SessionRow, title: Option<&JsonStr>, is_made: bool) {
    row.title = title.filter(|_| !is_made).map(|title| title.as_literal().to_owned());
    let mut data = data(row);
    match title.filter(|_| is_made) {
        Some(title) => data.set(MADE_TITLE, title),
        None => drop(data.remove(MADE_TITLE)),
    }
    data.to_json().as_str().clone_into(&mut row.data);
}

/// What is kept of a session for the server itself.
fn data(row: &SessionRow) -> Object {
    json::object(Json::parse(row.data.clone()).ok().as_ref().map(Json::raw))
}

/// A time as JSON, from milliseconds since 1970.
pub(crate) fn time(millis: i64) -> Option<Json> {
    Some(json::string(&jiff::Timestamp::from_millisecond(millis).ok()?.to_string()))
}

/// The key of the agent's own time.
const UPDATED_AT: &str = "updatedAt";

/// The key of a title that was made.
const MADE_TITLE: &str = "madeTitle";

/// The directories that it has besides its working directory.
pub fn additional_directories(row: &SessionRow) -> Option<Json> {
    json::member(&data(row), "params")?.get("additionalDirectories").cloned()
}

/// The message at which a session was forked from its parent.
pub fn forked_at(row: &SessionRow) -> Option<JsonStr> {
    json::literal(&data(row), "forkedAt")
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
    let dialect = json::text(&kept, "dialect")?.parse().ok()?;
    Some(Remembered { dialect, info: json::member(&kept, "info")? })
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
