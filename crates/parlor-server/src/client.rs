//! One connected client, as sessions and agents see it.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use parlor_dialect::Dialect;
use parlor_json::Object;
use parlor_session::session::{ClientId, QuestionId};
use parlor_wire::{Asked, RequestId};

use crate::hub::{Door, Peer, Role};
use crate::json;
use crate::outbox::Outbox;
use crate::session::Inbox;

/// How many requests to one client may be without an answer.
const MAX_ASKED: usize = 1000;

/// A connected client.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) id: ClientId,
    pub(crate) peer: Peer,
    pub(crate) outbox: Outbox,
    /// What it said of itself, once it has.
    terms: OnceLock<Terms>,
    asked: Mutex<Asked<Question>>,
}

/// How a client speaks and what it can do.
#[derive(Debug)]
pub(crate) struct Terms {
    pub(crate) dialect: Dialect,
    /// The params of its `initialize`.
    pub(crate) initialize: Object,
    /// Whether it wants the number of each change.
    pub(crate) wants_seq: bool,
    /// Which questions beyond permissions it can show.
    elicitation: Option<Object>,
}

/// What a client was asked, and who wants to know the answer.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) session: Inbox,
    pub(crate) about: QuestionId,
}

impl Client {
    pub(crate) fn new(id: ClientId, peer: Peer, outbox: Outbox) -> Self {
        Self { id, peer, outbox, terms: OnceLock::new(), asked: Mutex::new(Asked::new(MAX_ASKED)) }
    }

    /// The client began. Doing so twice changes nothing.
    pub(crate) fn begins(&self, dialect: Dialect, initialize: Object) -> bool {
        let wants_seq = json::noted(&initialize, "parlor/seq").is_some_and(|wants| wants.as_str() == "true");
        let capabilities = match dialect {
            Dialect::V1 => json::member(&initialize, "clientCapabilities"),
            Dialect::V2 | Dialect::Draft => json::member(&initialize, "capabilities"),
        };
        let elicitation = capabilities.and_then(|capabilities| json::member(&capabilities, "elicitation"));
        self.terms.set(Terms { dialect, initialize, wants_seq, elicitation }).is_ok()
    }

    pub(crate) fn terms(&self) -> Option<&Terms> {
        self.terms.get()
    }

    pub(crate) fn dialect(&self) -> Dialect {
        self.terms.get().map_or(Dialect::V2, |terms| terms.dialect)
    }

    pub(crate) fn drives(&self) -> bool {
        self.peer.role == Role::Driver
    }

    /// Whether it can show questions of a kind (a form, a link), or of any.
    pub(crate) fn elicits(&self, mode: Option<&str>) -> bool {
        let modes = self.terms().and_then(|terms| terms.elicitation.as_ref());
        let has = |mode: &str| modes.is_some_and(|modes| json::member(modes, mode).is_some());
        match mode {
            Some(mode) => has(mode),
            None => has("form") || has("url"),
        }
    }

    /// Whether its files are this machine's.
    pub(crate) fn is_local(&self) -> bool {
        matches!(self.peer.door, Door::Stdio | Door::Unix)
    }

    /// Whether a v1 client serves this method of the file system.
    pub(crate) fn serves_file(&self, method: &str) -> bool {
        let capability = match method {
            "fs/read_text_file" => "readTextFile",
            _ => "writeTextFile",
        };
        let files = self
            .terms
            .get()
            .and_then(|terms| json::member(&json::member(&terms.initialize, "clientCapabilities")?, "fs"));
        files.is_some_and(|files| files.get(capability).is_some_and(|offers| offers.as_str() == "true"))
    }

    /// The id for a question that is about to be put to it.
    pub(crate) fn ask(&self, question: Question) -> Option<RequestId> {
        self.asked().ask(question).ok()
    }

    pub(crate) fn answered(&self, id: &RequestId) -> Option<Question> {
        self.asked().answered(id)
    }

    fn asked(&self) -> MutexGuard<'_, Asked<Question>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
