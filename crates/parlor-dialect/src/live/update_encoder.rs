//! Encodes changes of a session for one client.

use parlor_json::{Json, Object};
use parlor_session::{EntryId, MessageId, Slot, State, Target, Transcript, Update};

use crate::encode::update_writer;
use crate::encode::v1::{self, Features, V1PeerState};
use crate::encode::{Context, v2};
use crate::view::activity_name;
use crate::{Dialect, Losses, event};

/// Encodes the updates of one session for one client.
///
/// The encoding for a v1 client depends on what it has received, so that each client and session has its own encoder.
#[derive(Debug, Clone)]
pub struct UpdateEncoder {
    pub(crate) dialect: Dialect,
    features: Features,
    pub(crate) peer: V1PeerState,
    wants_events: bool,
}

/// The context of one update that is encoded.
#[derive(Debug, Clone, Copy)]
pub struct EncodeContext<'a> {
    /// The dialect of the agent.
    pub from: Dialect,
    /// The session after the update.
    pub transcript: &'a Transcript,
    /// The metadata of the target before the update.
    pub meta_before: Option<&'a Object>,
}

impl UpdateEncoder {
    /// An encoder for a client with these params of `initialize`.
    pub fn new(dialect: Dialect, initialize: &Object) -> Self {
        let features = if dialect == Dialect::V1 { Features::of(initialize) } else { Features::default() };
        let wants_events = event::wants_events(initialize);
        Self { dialect, features, peer: V1PeerState::default(), wants_events }
    }

    /// Encodes events even if the client did not request them.
    #[must_use]
    pub fn with_events(self) -> Self {
        Self { wants_events: true, ..self }
    }

    /// Resets the encoder before the session is replayed to the client.
    pub fn reset(&mut self) {
        self.peer.reset();
    }

    /// Marks everything up to a change as received: the client resumes after it.
    pub fn resume_after(&mut self, transcript: &Transcript, seq: u64) {
        if self.dialect == Dialect::V1 {
            let received = transcript.entries().iter().take_while(|entry| entry.created() <= seq);
            received.for_each(|entry| self.peer.received(entry));
        }
    }

    /// Marks a message that the client itself sent: its content is not sent to the client again.
    pub fn sent(&mut self, message: &MessageId, content: &Json) {
        if self.dialect == Dialect::V1 {
            self.peer.sent(message, content);
        }
    }

    /// Encodes an update as JSON objects. `new_id` returns ids for messages that are restated.
    pub fn encode(
        &mut self,
        update: &Update,
        context: EncodeContext<'_>,
        new_id: &mut dyn FnMut() -> MessageId,
        losses: &mut Losses,
    ) -> Vec<String> {
        if is_event(update) && !self.wants_events {
            return Vec::new();
        }
        let EncodeContext { from, transcript, meta_before } = context;
        let mut cx = Context { from, transcript, meta_before, new_id, losses };
        match (self.dialect, update) {
            // The response to a prompt reports its turn; clients that did not send the prompt get a note.
            (Dialect::V1, Update::State(state)) => vec![state_note(state)],
            (Dialect::V1, update) => self.peer.updates(update, self.features, &mut cx),
            (dialect @ (Dialect::V2 | Dialect::Draft), update) => v2::updates(update, dialect, &mut cx),
        }
    }

    /// The options, modes and models of a session for a response to the client.
    pub fn session_fields(&mut self, transcript: &Transcript, losses: &mut Losses) -> Object {
        let mut fields = Object::default();
        let options = transcript.slot(Slot::Options).and_then(|body| body.fields.get("configOptions"));
        let modes = transcript.slot(Slot::Mode).map(|body| &body.fields);
        let models = transcript.slot(Slot::Model).map(|body| &body.fields);
        let list = v2::option_list(options, modes, models, losses);
        if self.dialect != Dialect::V1 {
            fields.set("configOptions", list);
            return fields;
        }
        // An agent's own modes are sent unchanged; only options of category `mode` are converted to modes.
        let (list, made) = v1::split_modes(&list, self.features, losses);
        if list.as_str() != "[]" {
            fields.set("configOptions", list);
        }
        if let Some(models) = models.filter(|models| !models.is_empty()) {
            fields.set("models", models.to_json());
        }
        let modes = modes.filter(|modes| modes.get("availableModes").is_some()).cloned().or(made);
        if let Some(modes) = modes {
            self.peer.set_mode(modes.get_json_str("currentModeId"));
            fields.set("modes", modes.to_json());
        }
        fields
    }
}

/// The update that reports the state of a session to a v1 client.
fn state_note(state: &State) -> String {
    let meta = Object::new().with("parlor/state", activity_name(&state.activity));
    update_writer("session_info_update").raw("_meta", &meta.text()).finish()
}

fn is_event(update: &Update) -> bool {
    matches!(update, Update::Upsert { target: Target::Entry(EntryId::Event(_)), .. })
}
