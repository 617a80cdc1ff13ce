//! A session as the store has it.

use crate::rows::SessionRow;
use parlor_json::{Json, Object};
use parlor_session::{InvalidRow, Transcript};

/// The slot of the state beside the transcript.
pub const SIDE_STATE: &str = "session";

/// The slot of the aliases of messages.
pub const ALIASES: &str = "aliases";

/// The slot of the agent's response to opening the session.
pub const OPENED: &str = "opened";

/// The slot of the sessions of subagents, by the agent's ids for them.
pub const SUBAGENTS: &str = "subagents";

/// A stored session.
#[derive(Debug, Clone)]
pub struct StoredSession {
    /// Its row in lists.
    pub row: SessionRow,
    /// Its conversation.
    pub transcript: Transcript,
    /// The state beside the transcript.
    pub side_state: Option<Object>,
    /// The aliases of messages, as JSON.
    pub aliases: Option<String>,
    /// The agent's response to opening the session.
    pub opened: Option<Object>,
    /// The sessions of its subagents, by the agent's ids for them.
    pub subagents: Option<Object>,
}

impl StoredSession {
    /// A session of which only the row was read. Its entries are added in any order, and so are its slots.
    pub fn new(row: SessionRow) -> Self {
        Self {
            row,
            transcript: Transcript::default(),
            side_state: None,
            aliases: None,
            opened: None,
            subagents: None,
        }
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
        let object = |body: String| Json::parse(body).ok().map(|body| body.to_object().unwrap_or_default());
        match name {
            SIDE_STATE => self.side_state = object(body),
            ALIASES => self.aliases = Some(body),
            OPENED => self.opened = object(body),
            SUBAGENTS => self.subagents = object(body),
            _ => self.transcript.restore_slot(name, seq, &body)?,
        }
        Ok(())
    }
}
