//! A session as the store has it, and what its row says.

use parlor_dialect::Dialect;
use parlor_json::{Json, JsonStr, Object};
use parlor_session::{BadRow, Transcript};

use crate::json;
use crate::rows::SessionRow;

/// The slot in which a session keeps what is not in its transcript.
pub const KEPT: &str = "session";

/// The slot in which it keeps under which other names clients were told of messages.
pub const ALIASES: &str = "aliases";

/// The slot in which it keeps what its agent said when it opened it.
pub const OPENED: &str = "opened";

/// A session as it was stored.
#[derive(Debug, Clone)]
pub struct StoredSession {
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

impl StoredSession {
    /// A session of which only the row was read. Its entries are added in any order, and so are its slots.
    pub fn new(row: SessionRow) -> Self {
        Self { row, transcript: Transcript::default(), kept: None, aliases: None, opened: None }
    }

    /// Adds an entry of the session. `inherited` is how many bytes at the start of its content came with a copy.
    pub fn add_entry(
        &mut self,
        created: u64,
        seq: u64,
        head: &str,
        content: &str,
        inherited: usize,
    ) -> Result<(), BadRow> {
        self.transcript.restore_entry(created, seq, head, content, inherited)
    }

    /// Adds a slot of the session.
    pub fn add_slot(&mut self, name: &str, seq: u64, body: String) -> Result<(), BadRow> {
        let object = |body: String| Json::parse(body).ok().map(|body| body.to_object().unwrap_or_default());
        match name {
            KEPT => self.kept = object(body),
            ALIASES => self.aliases = Some(body),
            OPENED => self.opened = object(body),
            _ => self.transcript.restore_slot(name, seq, &body)?,
        }
        Ok(())
    }
}

/// The dialect of the agent when the session was last written.
pub fn dialect_of(row: &SessionRow) -> Option<Dialect> {
    data(row).get_string("agentDialect")?.parse().ok()
}

/// The title of a session: one that it was given, else the one that was made of its first prompt.
pub fn title(row: &SessionRow) -> Option<JsonStr> {
    match &row.title {
        Some(title) => JsonStr::from_literal(title),
        None => data(row).get_json_str(MADE_TITLE),
    }
}

/// The time that the agent gave as the session's last activity, unless something happened since.
pub fn updated_at(row: &SessionRow) -> Option<JsonStr> {
    data(row).get_json_str(UPDATED_AT)
}

/// Keeps the time that the agent gave, or forgets it.
pub fn set_updated_at(row: &mut SessionRow, time: Option<&JsonStr>) {
    let mut data = data(row);
    match time {
        Some(time) => data.set(UPDATED_AT, time),
        None => drop(data.remove(UPDATED_AT)),
    }
    data.to_json().as_str().clone_into(&mut row.data);
}

/// Keeps a title. One that was made of what was said is found by that, so that the store need not know it.
pub fn set_title(row: &mut SessionRow, title: Option<&JsonStr>, is_made: bool) {
    row.title = title.filter(|_| !is_made).map(|title| title.as_literal().to_owned());
    let mut data = data(row);
    match title.filter(|_| is_made) {
        Some(title) => data.set(MADE_TITLE, title),
        None => drop(data.remove(MADE_TITLE)),
    }
    data.to_json().as_str().clone_into(&mut row.data);
}

/// What is kept of a session for the server itself.
pub fn data(row: &SessionRow) -> Object {
    json::object(Json::parse(row.data.clone()).ok().as_ref().map(Json::raw))
}

/// The key of the agent's own time.
const UPDATED_AT: &str = "updatedAt";

/// The key of a title that was made.
const MADE_TITLE: &str = "madeTitle";

/// The directories that it has besides its working directory.
pub fn additional_directories(row: &SessionRow) -> Option<Json> {
    data(row).get_object("params")?.get("additionalDirectories").cloned()
}

/// The message at which a session was forked from its parent.
pub fn forked_at(row: &SessionRow) -> Option<JsonStr> {
    data(row).get_json_str("forkedAt")
}
