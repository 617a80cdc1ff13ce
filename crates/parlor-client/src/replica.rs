//! What is known of a session, shared between the connection and all who look.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use parlor_dialect::live::AgentUpdate;
use parlor_dialect::{Dialect, Fold};
use parlor_json::{Json, Object};
use parlor_session::{Activity, SessionId, State};
use tokio::sync::watch;

use crate::Error;

/// What is known of a session.
pub(crate) struct SessionReplica {
    id: SessionId,
    known: Mutex<ReplicaState>,
    /// The number of the last change here, and whether more can come.
    changed: watch::Sender<(u64, SubscriptionStatus)>,
}

/// Whether more can be learned of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SubscriptionStatus {
    /// A connection tells of it.
    Subscribed,
    /// The connection that told of it is gone.
    Disconnected,
    /// No connection tells of it, for another reason.
    NotSubscribed,
    /// This client closed or deleted it.
    Closed,
}

/// One connection. Of a session only one of them tells.
#[derive(Debug, Clone, Default)]
pub(crate) struct ConnectionToken(Arc<()>);

/// What the answer to joining is preceded by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Replay {
    /// Nothing that was.
    Nothing,
    /// What came after the last change that is known, or all of it if that has no number.
    Missed,
    /// All of it.
    All,
}

pub(crate) struct ReplicaState {
    pub(crate) told: SessionFold,
    /// How often all of it was told anew, so that the numbers began again.
    pub(crate) epoch: u64,
    owner: Option<ConnectionToken>,
    joining: Option<Joining>,
}

/// What somebody was told of a session.
#[derive(Clone)]
pub(crate) struct SessionFold {
    pub(crate) fold: Fold,
    /// The last change as a server of parlor's numbers it.
    server_seq: Option<u64>,
    /// How many updates could not be read, and what was wrong with the last of them.
    pub(crate) unread: Option<(u64, String)>,
    /// How the last turns ended, with the numbers of the changes that said so.
    ends: VecDeque<(u64, State)>,
    /// The last change when the last prompt was taken.
    prompted: Option<u64>,
    /// Whether the state is one that a server noted, and not one that was told.
    is_noted: bool,
}

/// What a connection asked to be told, and has no answer yet. A server of parlor's numbers what happens, and not what it
/// tells again: so what has a number came before it began to tell.
enum Joining {
    /// What comes is what happens.
    Nothing { was_followed: bool },
    /// What has a number will be told again.
    Missed,
    /// All is told anew.
    All(Box<PendingReload>),
}

/// What is told anew, beside what is known.
struct PendingReload {
    /// It counts when the answer is there.
    told: SessionFold,
    /// What is known with all that comes meanwhile, if it was followed: it counts if the answer is an error.
    otherwise: Option<SessionFold>,
}

/// An update, as far as it was read.
enum Said<'a> {
    Update(AgentUpdate<'a>),
    Line(&'a str),
}

/// How many ends of turns are remembered for those who wait for one and are not woken at once.
const ENDS: usize = 64;

impl SessionFold {
    fn nothing(id: &SessionId) -> Self {
        let fold = Fold::of_session(Dialect::V2, id.clone());
        Self { fold, server_seq: None, unread: None, ends: VecDeque::new(), prompted: None, is_noted: false }
    }

    /// How the first turn ended that did so after a change, and which change said so.
    pub(crate) fn end_after(&self, seq: u64) -> Option<(u64, State)> {
        self.ends.iter().find(|(ended, _)| *ended > seq).cloned()
    }

    /// Notes that a prompt was taken. Whether nothing is to end before its turn, as far as is known.
    fn prompted(&mut self) -> bool {
        let transcript = self.fold.transcript();
        let is_idle = transcript.state().is_none_or(|state| state.activity == Activity::Idle);
        let seq = transcript.seq();
        let before = self.prompted.replace(seq);
        is_idle && before.is_none_or(|before| self.end_after(before).is_some())
    }

    /// Takes an update, and notes the end of a turn.
    fn take(&mut self, said: Said<'_>, server_seq: Option<u64>) {
        let before = self.fold.transcript().state_seq();
        let taken = match said {
            Said::Update(update) => self.fold.take(update),
            Said::Line(line) => self.fold.line(line),
        };
        // An update that cannot be read, or only in part, leaves the rest of the session as it is.
        if let Err(problem) = taken {
            let count = self.unread.take().map_or(0, |(count, _)| count);
            self.unread = Some((count + 1, problem.to_string()));
        }
        // Without a number it is in the middle of being told what it missed, and could not go on from here.
        self.server_seq = server_seq;
        let transcript = self.fold.transcript();
        let seq = transcript.state_seq();
        if seq > before {
            self.is_noted = false;
            if let Some(state) = transcript.state().filter(|state| state.activity == Activity::Idle) {
                if self.ends.len() >= ENDS {
                    self.ends.pop_front();
                }
                self.ends.push_back((seq, state.clone()));
            }
        }
    }

    /// What the answer to joining says of the session: the last change, and whether a turn runs.
    fn joined(&mut self, answer: &Object) {
        let meta = answer.get("_meta").and_then(|meta| Object::parse(meta.raw()).ok()).unwrap_or_default();
        // A state that was told is the later one.
        if let Some(state) = meta.get("parlor/state").filter(|_| self.fold.transcript().state().is_none()) {
            self.note(state.as_str());
        }
        self.server_seq = meta.get("parlor/seq").and_then(|seq| seq.as_str().parse().ok());
    }
}

impl SessionFold {
    /// Takes a state that a server noted for a client that is told none: its JSON. It tells whether a turn of others runs;
    /// one of this client's is told by its prompt, and better.
    fn note(&mut self, state: &str) {
        let is_told_to_run = !self.is_noted
            && self.fold.transcript().state().is_some_and(|state| state.activity != Activity::Idle);
        if !is_told_to_run {
            let line = format!(r#"{{"sessionUpdate":"state_update","state":{state}}}"#);
            self.take(Said::Line(&line), self.server_seq);
            self.is_noted = true;
        }
    }
}

impl ReplicaState {
    /// Whether a connection tells of the session.
    pub(crate) fn is_told_by(&self, owner: &ConnectionToken) -> bool {
        self.owner.as_ref().is_some_and(|own| Arc::ptr_eq(&own.0, &owner.0))
    }
}

impl SessionReplica {
    /// A session that a connection tells of.
    pub(crate) fn followed(id: SessionId, owner: ConnectionToken) -> Self {
        Self::new(id, Some(owner), SubscriptionStatus::Subscribed)
    }

    /// A session that no connection tells of.
    pub(crate) fn unfollowed(id: SessionId, standing: SubscriptionStatus) -> Self {
        Self::new(id, None, standing)
    }

    fn new(id: SessionId, owner: Option<ConnectionToken>, standing: SubscriptionStatus) -> Self {
        let told = SessionFold::nothing(&id);
        let known = Mutex::new(ReplicaState { told, epoch: 0, owner, joining: None });
        Self { id, known, changed: watch::Sender::new((0, standing)) }
    }

    pub(crate) fn id(&self) -> &SessionId {
        &self.id
    }

    pub(crate) fn known(&self) -> MutexGuard<'_, ReplicaState> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hears of changes: the number of the last one, and whether more can come.
    pub(crate) fn subscribe(&self) -> watch::Receiver<(u64, SubscriptionStatus)> {
        self.changed.subscribe()
    }

    /// Takes an update: its line, and what was read of it, if it is of the usual form. One of a connection that does not
    /// tell of the session any more is not taken. Who looks does not know of it before [`tell`](Self::tell), which is once
    /// for many.
    pub(crate) fn take(
        &self,
        by: &ConnectionToken,
        line: &str,
        update: Option<AgentUpdate<'_>>,
        server_seq: Option<u64>,
    ) {
        let said = update.map_or(Said::Line(line), Said::Update);
        let mut known = self.known();
        if !known.is_told_by(by) {
            return;
        }
        match &mut known.joining {
            Some(Joining::All(anew)) => {
                if let Some(otherwise) = &mut anew.otherwise {
                    otherwise.take(Said::Line(line), server_seq);
                }
                if server_seq.is_none() {
                    anew.told.take(said, None);
                }
            }
            Some(Joining::Missed) if server_seq.is_some() => {}
            Some(Joining::Missed | Joining::Nothing { .. }) | None => known.told.take(said, server_seq),
        }
    }

    /// Takes a state that a server noted, as JSON.
    pub(crate) fn noted(&self, by: &ConnectionToken, state: &str) {
        let mut known = self.known();
        if known.is_told_by(by) && known.joining.is_none() {
            known.told.note(state);
        }
    }

    /// Tells who looks that there is something new, if this connection tells of the session.
    pub(crate) fn tell(&self, by: &ConnectionToken) {
        let known = self.known();
        if known.is_told_by(by) {
            self.stands(&known, SubscriptionStatus::Subscribed);
        }
    }

    /// A connection asks to be told of the session, and is the only one to tell from here on: what it asks for is what
    /// nobody told before. Gives that as the protocol has it.
    pub(crate) fn join(&self, by: &ConnectionToken, replay: Replay) -> Result<Option<Json>, Error> {
        let mut known = self.known();
        let was_followed = known.is_told_by(by);
        if was_followed && known.joining.is_some() {
            return Err(Error::Busy);
        }
        let (joining, from) = match (replay, known.told.server_seq) {
            (Replay::Nothing, _) => (Joining::Nothing { was_followed }, None),
            (Replay::Missed, Some(seq)) => {
                (Joining::Missed, Some(format!(r#"{{"type":"_parlor_after","seq":{seq}}}"#)))
            }
            (Replay::Missed, None) | (Replay::All, _) => {
                let otherwise = was_followed.then(|| known.told.clone());
                let anew = Box::new(PendingReload { told: SessionFold::nothing(&self.id), otherwise });
                (Joining::All(anew), Some(r#"{"type":"start"}"#.to_owned()))
            }
        };
        known.joining = Some(joining);
        known.owner = Some(by.clone());
        self.stands(&known, SubscriptionStatus::Subscribed);
        Ok(from.map(|from| Json::parse(from).expect("it is made of JSON")))
    }

    /// A prompt of this client's was taken. Whether nothing is to end before its turn, as far as is known.
    pub(crate) fn prompted(&self) -> bool {
        self.known().told.prompted()
    }

    /// It was answered. What was told anew counts.
    pub(crate) fn joined(&self, by: &ConnectionToken, answer: &Object) {
        let mut known = self.known();
        if !known.is_told_by(by) {
            return;
        }
        if let Some(Joining::All(anew)) = known.joining.take() {
            known.told = anew.told;
            known.epoch += 1;
        }
        known.told.joined(answer);
        self.stands(&known, SubscriptionStatus::Subscribed);
    }

    /// It was refused. Who told of the session before goes on to; else nobody does.
    pub(crate) fn refused(&self, by: &ConnectionToken) {
        let mut known = self.known();
        if !known.is_told_by(by) {
            return;
        }
        let is_followed = match known.joining.take() {
            Some(Joining::All(anew)) => anew.otherwise.map(|otherwise| known.told = otherwise).is_some(),
            Some(Joining::Nothing { was_followed }) => was_followed,
            Some(Joining::Missed) | None => false,
        };
        if !is_followed {
            known.owner = None;
        }
        let standing =
            if is_followed { SubscriptionStatus::Subscribed } else { SubscriptionStatus::NotSubscribed };
        self.stands(&known, standing);
    }

    /// A connection tells no more of the session.
    pub(crate) fn end(&self, by: &ConnectionToken, standing: SubscriptionStatus) {
        let mut known = self.known();
        if known.is_told_by(by) {
            known.owner = None;
            known.joining = None;
            self.stands(&known, standing);
        }
    }

    /// Whether this connection tells of the session.
    pub(crate) fn is_told_by(&self, owner: &ConnectionToken) -> bool {
        self.known().is_told_by(owner)
    }

    /// Up to where the session is known: how often it was told anew, and the number of the last change since.
    pub(crate) fn place(&self) -> (u64, u64) {
        let known = self.known();
        (known.epoch, known.told.fold.transcript().seq())
    }

    /// Whether the last change has a number to go on from.
    pub(crate) fn is_numbered(&self) -> bool {
        self.known().told.server_seq.is_some()
    }

    fn stands(&self, known: &ReplicaState, standing: SubscriptionStatus) {
        self.changed.send_replace((known.told.fold.transcript().seq(), standing));
    }
}

impl fmt::Debug for SessionReplica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A conversation is too long to be looked at in passing.
        f.debug_struct("SessionReplica").field("id", &self.id).finish_non_exhaustive()
    }
}
