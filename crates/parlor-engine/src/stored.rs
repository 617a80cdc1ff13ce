//! A session as the store has it.

use parlor_json::{Json, Object};
use parlor_session::{InvalidRow, Transcript};

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
    ) -> Result<(), InvalidRow> {
        self.transcript.restore_entry(created, seq, head, content, inherited)
    }

    /// Adds a slot of the session.
    pub fn add_slot(&mut self, name: &str, seq: u64, body: String) -> Result<(), InvalidRow> {
        let object = |body: String| Json::parse(body).ok().map(|body| json::object(Some(body.raw())));
        match name {
            KEPT => self.kept = object(body),
            ALIASES => self.aliases = Some(body),
            OPENED => self.opened = object(body),
            _ => self.transcript.restore_slot(name, seq, &body)?,
        }
        Ok(())
    }
}
