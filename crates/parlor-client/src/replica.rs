//! A local copy of a session, which the connection's task updates and all handles read.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use parlor_dialect::live::AgentUpdate;
use parlor_dialect::{Dialect, Fold};
use parlor_json::{Json, Object, ObjectWriter};
use parlor_session::{Activity, SessionId, State, Transcript};
use tokio::sync::watch;
use tracing::Span;

use crate::{Error, Losses};

/// How many ends of turns are remembered for callers that wait for one and have not been polled yet.
const MAX_TURN_ENDS: usize = 64;

/// The local copy of a session.
pub(crate) struct SessionReplica {
    id: SessionId,
    state: Mutex<ReplicaState>,
    /// Sent with each change, also if the status stays.
    status: watch::Sender<SubscriptionStatus>,
}

/// Whether more updates of a session can arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SubscriptionStatus {
    Subscribed,
    /// The connection that had the subscription is closed.
    Disconnected,
    /// No connection has a subscription, for another reason.
    NotSubscribed,
    /// This client closed or deleted the session.
    Closed,
}

impl SubscriptionStatus {
    /// Why no more updates can arrive.
    pub(crate) fn error(self) -> Option<Error> {
        match self {
            Self::Subscribed => None,
            Self::Disconnected => Some(Error::Disconnected),
            Self::NotSubscribed => Some(Error::NotSubscribed),
            Self::Closed => Some(Error::SessionClosed),
        }
    }
}

/// Identifies a connection, with its tracing span. A replica takes updates from one connection at a time.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionToken(Arc<Span>);

impl ConnectionToken {
    pub(crate) fn new(span: Span) -> Self {
        Self(Arc::new(span))
    }

    /// The span of the connection.
    pub(crate) fn span(&self) -> &Span {
        &self.0
    }

    /// The span of a session on this connection.
    fn session_span(&self, id: &SessionId) -> Span {
        tracing::info_span!(parent: &*self.0, "session", %id)
    }
}

/// A point in the history of a replica. The change counter starts again with each reload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    /// How often the session was reloaded.
    pub(crate) epoch: u64,
    /// The last change.
    pub(crate) seq: u64,
}

/// What the peer is asked to send before it responds to `session/resume`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Replay {
    Nothing,
    /// The changes after the last one that has a server's number, or everything if that has none.
    Missed,
    All,
    /// The latest entries, at most this many.
    Tail(usize),
}

/// The local copy of a session, and which connection updates it.
pub(crate) struct ReplicaState {
    pub(crate) fold: SessionFold,
    /// How often the session was reloaded.
    pub(crate) epoch: u64,
    owner: Option<ConnectionToken>,
    joining: Option<Joining>,
    span: Span,
}

/// The updates of a session, folded into a transcript.
#[derive(Clone)]
pub(crate) struct SessionFold {
    /// Shared with snapshots: it is copied when an update arrives while a snapshot exists.
    fold: Arc<Fold>,
    /// The number that a parlor server gave to the last change.
    server_seq: Option<u64>,
    /// The updates that could not be decoded, or not in full.
    pub(crate) losses: Losses,
    /// How the last turns ended, with the changes that said so.
    turn_ends: VecDeque<(u64, State)>,
    /// The last change when the agent accepted the last prompt.
    prompt_accepted: Option<u64>,
    /// Whether the state is a server's note for clients of version 1, which have no state updates.
    is_state_noted: bool,
    /// The cursor for entries before those that a parlor server replayed.
    pub(crate) older: Option<Json>,
    /// How many messages there are among those entries.
    pub(crate) older_messages: usize,
    /// The last response that opened the session.
    pub(crate) opened: Object,
}

/// A subscription that was requested and has no response yet. A parlor server numbers live updates and not replayed ones:
/// updates with a number were sent before the replay began.
enum Joining {
    /// Updates are live.
    WithoutReplay { was_subscribed: bool },
    /// Updates with a number will be replayed.
    Missed,
    /// Everything is replayed.
    Reload(Box<PendingReload>),
}

/// A reload beside the present state.
struct PendingReload {
    /// Becomes the state with a successful response.
    reloaded: SessionFold,
    /// The present state with the updates that arrive meanwhile, if there was a subscription. Stays with an error response.
    present: Option<SessionFold>,
}

/// An update, decoded or as its line.
enum Encoded<'a> {
    Update(AgentUpdate<'a>),
    Line(&'a str),
}

/// A transcript at one point in time. It is cheap to make and to clone, and stays as it is while the session goes on.
#[derive(Clone)]
pub struct Snapshot(Arc<Fold>);

impl Deref for Snapshot {
    type Target = Transcript;

    fn deref(&self) -> &Transcript {
        self.0.transcript()
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.transcript().fmt(f)
    }
}

impl SessionFold {
    fn new(id: &SessionId) -> Self {
        Self {
            fold: Arc::new(Fold::of_session(Dialect::V2, id.clone())),
            server_seq: None,
            losses: Losses::default(),
            turn_ends: VecDeque::new(),
            prompt_accepted: None,
            is_state_noted: false,
            older: None,
            older_messages: 0,
            opened: Object::default(),
        }
    }

    pub(crate) fn transcript(&self) -> &Transcript {
        self.fold.transcript()
    }

    /// The first end of a turn after a change: the change that reported it, and the state.
    pub(crate) fn turn_end_after(&self, seq: u64) -> Option<(u64, State)> {
        self.turn_ends.iter().find(|(end, _)| *end > seq).cloned()
    }

    /// Records that the agent accepted a prompt. Returns whether its turn is the next to end, as far as is known.
    fn on_prompt_accepted(&mut self) -> bool {
        let transcript = self.transcript();
        let is_idle = transcript.state().is_none_or(|state| state.activity == Activity::Idle);
        let seq = transcript.seq();
        let before = self.prompt_accepted.replace(seq);
        is_idle && before.is_none_or(|before| self.turn_end_after(before).is_some())
    }

    /// Applies an update. One that cannot be decoded, or only in part, leaves the rest of the session as it is.
    fn apply(&mut self, update: Encoded<'_>, server_seq: Option<u64>) {
        let before = self.transcript().state_seq();
        let fold = Arc::make_mut(&mut self.fold);
        let applied = match update {
            Encoded::Update(update) => fold.take(update),
            Encoded::Line(line) => fold.line(line),
        };
        if let Err(problem) = applied {
            self.losses.record(problem.to_string());
        }
        // Without a number this is in the middle of a replay, from which the session cannot be resumed.
        self.server_seq = server_seq;
        let seq = self.transcript().state_seq();
        if seq > before {
            self.is_state_noted = false;
            let state = self.transcript().state().filter(|state| state.activity == Activity::Idle).cloned();
            if let Some(state) = state {
                if self.turn_ends.len() >= MAX_TURN_ENDS {
                    self.turn_ends.pop_front();
                }
                self.turn_ends.push_back((seq, state));
            }
        }
    }

    /// Applies what the response to a subscription says: the last change, and whether a turn runs.
    fn on_subscribed(&mut self, result: &Object) {
        let meta = result.get_object("_meta").unwrap_or_default();
        // A state from an update is later.
        if let Some(state) = meta.get("parlor/state").filter(|_| self.transcript().state().is_none()) {
            self.note_state(state.as_str());
        }
        self.server_seq = meta.get_u64("parlor/seq");
        // A resume from a number has no cursor: that of the first subscription stays.
        if let Some(older) = meta.get("parlor/older") {
            self.older = Some(older.clone());
            let messages = meta.get_u64("parlor/olderMessages");
            self.older_messages = messages.and_then(|count| count.try_into().ok()).unwrap_or_default();
        }
        self.opened = result.clone();
    }

    /// Applies a state that a server notes for clients of version 1. It shows whether a turn of another client runs; the
    /// response to a prompt of this client is more exact.
    fn note_state(&mut self, state: &str) {
        let is_running = self.transcript().state().is_some_and(|state| state.activity != Activity::Idle);
        if self.is_state_noted || !is_running {
            let line = ObjectWriter::new().str("sessionUpdate", "state_update").raw("state", state).finish();
            self.apply(Encoded::Line(&line), self.server_seq);
            self.is_state_noted = true;
        }
    }
}

impl ReplicaState {
    /// Whether updates come from this connection.
    pub(crate) fn is_owned_by(&self, connection: &ConnectionToken) -> bool {
        self.owner.as_ref().is_some_and(|owner| Arc::ptr_eq(&owner.0, &connection.0))
    }

    /// The number of reloads and the last change.
    pub(crate) fn position(&self) -> Position {
        Position { epoch: self.epoch, seq: self.fold.transcript().seq() }
    }
}

impl SessionReplica {
    /// A session that a connection receives updates of.
    pub(crate) fn subscribed(id: SessionId, owner: ConnectionToken) -> Self {
        let span = owner.session_span(&id);
        Self::new(id, Some(owner), span, SubscriptionStatus::Subscribed)
    }

    /// A session that no connection receives updates of.
    pub(crate) fn unsubscribed(id: SessionId, status: SubscriptionStatus) -> Self {
        Self::new(id, None, Span::none(), status)
    }

    fn new(id: SessionId, owner: Option<ConnectionToken>, span: Span, status: SubscriptionStatus) -> Self {
        let state = ReplicaState { fold: SessionFold::new(&id), epoch: 0, owner, joining: None, span };
        Self { id, state: Mutex::new(state), status: watch::Sender::new(status) }
    }

    pub(crate) fn id(&self) -> &SessionId {
        &self.id
    }

    /// Locks the state. Never held while code of the library's user runs.
    pub(crate) fn state(&self) -> MutexGuard<'_, ReplicaState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot(Arc::clone(&self.state().fold.fold))
    }

    /// Announces changes of the transcript and of the subscription.
    pub(crate) fn subscribe(&self) -> watch::Receiver<SubscriptionStatus> {
        self.status.subscribe()
    }

    /// Applies an update from a connection, as its line and decoded if it has the usual form. Those that wait for changes
    /// learn of it with [`announce`](Self::announce), once for many updates.
    pub(crate) fn apply(
        &self,
        from: &ConnectionToken,
        line: &str,
        update: Option<AgentUpdate<'_>>,
        server_seq: Option<u64>,
    ) {
        let mut state = self.state();
        if !state.is_owned_by(from) {
            return;
        }
        tracing::trace!(parent: &state.span, server_seq, bytes = line.len(), "update");
        let update = update.map_or(Encoded::Line(line), Encoded::Update);
        match &mut state.joining {
            Some(Joining::Reload(reload)) => {
                if let Some(present) = &mut reload.present {
                    present.apply(Encoded::Line(line), server_seq);
                }
                if server_seq.is_none() {
                    reload.reloaded.apply(update, None);
                }
            }
            Some(Joining::Missed) if server_seq.is_some() => {}
            Some(Joining::Missed | Joining::WithoutReplay { .. }) | None => {
                state.fold.apply(update, server_seq);
            }
        }
    }

    /// Applies a state that a server noted, as JSON.
    pub(crate) fn note_state(&self, from: &ConnectionToken, noted: &str) {
        let mut state = self.state();
        if state.is_owned_by(from) && state.joining.is_none() {
            state.fold.note_state(noted);
        }
    }

    /// Wakes those that wait for changes, if this connection has the subscription.
    pub(crate) fn announce(&self, from: &ConnectionToken) {
        let state = self.state();
        if state.is_owned_by(from) {
            self.set_status(&state, SubscriptionStatus::Subscribed);
        }
    }

    /// Makes a connection the only one whose updates count, and returns the replay to ask for, as the protocol has it.
    pub(crate) fn begin_join(&self, by: &ConnectionToken, replay: Replay) -> Result<Option<Json>, Error> {
        let mut state = self.state();
        let was_subscribed = state.is_owned_by(by);
        if was_subscribed && state.joining.is_some() {
            return Err(Error::Busy);
        }
        let (joining, from) = match (replay, state.fold.server_seq) {
            (Replay::Nothing, _) => (Joining::WithoutReplay { was_subscribed }, None),
            (Replay::Missed, Some(seq)) => {
                (Joining::Missed, Some(Object::new().with("type", "_parlor_after").with("seq", seq)))
            }
            (Replay::Missed, None) | (Replay::All | Replay::Tail(_), _) => {
                let present = was_subscribed.then(|| state.fold.clone());
                let reload = PendingReload { reloaded: SessionFold::new(&self.id), present };
                let from = match replay {
                    Replay::Tail(entries) => {
                        Object::new().with("type", "_parlor_tail").with("entries", entries)
                    }
                    Replay::Nothing | Replay::Missed | Replay::All => Object::new().with("type", "start"),
                };
                (Joining::Reload(Box::new(reload)), Some(from))
            }
        };
        state.joining = Some(joining);
        state.owner = Some(by.clone());
        state.span = by.session_span(&self.id);
        self.set_status(&state, SubscriptionStatus::Subscribed);
        Ok(from.map(Json::from))
    }

    /// Completes a subscription with the peer's response. A reload takes effect.
    pub(crate) fn complete_join(&self, by: &ConnectionToken, result: &Object) {
        let mut state = self.state();
        if !state.is_owned_by(by) {
            return;
        }
        if let Some(Joining::Reload(reload)) = state.joining.take() {
            state.fold = reload.reloaded;
            state.epoch += 1;
        }
        state.fold.on_subscribed(result);
        tracing::debug!(parent: &state.span, entries = state.fold.transcript().entries().len(), "subscribed");
        self.set_status(&state, SubscriptionStatus::Subscribed);
    }

    /// Ends a subscription that the peer refused. An earlier one of this connection goes on.
    pub(crate) fn fail_join(&self, by: &ConnectionToken) {
        let mut state = self.state();
        if !state.is_owned_by(by) {
            return;
        }
        let is_subscribed = match state.joining.take() {
            Some(Joining::Reload(reload)) => reload.present.map(|present| state.fold = present).is_some(),
            Some(Joining::WithoutReplay { was_subscribed }) => was_subscribed,
            Some(Joining::Missed) | None => false,
        };
        tracing::debug!(parent: &state.span, is_subscribed, "the peer refused the subscription");
        if is_subscribed {
            self.set_status(&state, SubscriptionStatus::Subscribed);
        } else {
            state.owner = None;
            self.set_status(&state, SubscriptionStatus::NotSubscribed);
        }
    }

    /// Records that the agent accepted a prompt of this client. Returns whether its turn is the next to end, as far as is
    /// known.
    pub(crate) fn on_prompt_accepted(&self) -> bool {
        let mut state = self.state();
        tracing::debug!(parent: &state.span, "prompt accepted");
        state.fold.on_prompt_accepted()
    }

    /// Ends the subscription of a connection.
    pub(crate) fn unsubscribe(&self, by: &ConnectionToken, status: SubscriptionStatus) {
        let mut state = self.state();
        if state.is_owned_by(by) {
            tracing::debug!(parent: &state.span, ?status, "unsubscribed");
            state.owner = None;
            state.joining = None;
            self.set_status(&state, status);
        }
    }

    pub(crate) fn is_owned_by(&self, connection: &ConnectionToken) -> bool {
        self.state().is_owned_by(connection)
    }

    pub(crate) fn position(&self) -> Position {
        self.state().position()
    }

    /// Whether a server can replay what follows the last change.
    pub(crate) fn is_resumable(&self) -> bool {
        self.state().fold.server_seq.is_some()
    }

    /// Announces a change, while the state is locked so that the order is that of the changes.
    fn set_status(&self, _locked: &ReplicaState, status: SubscriptionStatus) {
        self.status.send_replace(status);
    }
}

impl fmt::Debug for SessionReplica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A transcript is too long for the output of a handle.
        f.debug_struct("SessionReplica").field("id", &self.id).finish_non_exhaustive()
    }
}
