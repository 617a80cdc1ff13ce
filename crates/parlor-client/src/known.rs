//! What is known of a session, shared between the connection and all who look.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use parlor_dialect::{Dialect, Fold, LineProblem};
use parlor_json::Object;
use parlor_session::{Activity, SessionId, State};
use tokio::sync::watch;

/// What is known of a session.
pub(crate) struct Shared {
    id: SessionId,
    known: Mutex<Known>,
    /// The number of the last change here, and whether more can come.
    changed: watch::Sender<(u64, bool)>,
}

pub(crate) struct Known {
    pub(crate) fold: Fold,
    /// The last change as a server of parlor's numbers it.
    server_seq: Option<u64>,
    /// How many updates could not be read, and what was wrong with the last of them.
    pub(crate) unread: Option<(u64, String)>,
    /// How the last turns ended, with the numbers of the changes that said so.
    ends: VecDeque<(u64, State)>,
    /// Whether the state is one that a server noted, and not one that was told.
    is_noted: bool,
    /// How often all of it was told anew, so that the numbers began again.
    pub(crate) epoch: u64,
}

/// How many ends of turns are remembered for those who wait for one and are not woken at once.
const ENDS: usize = 64;

impl Known {
    fn new(id: &SessionId) -> Self {
        let fold = Fold::of_session(Dialect::V2, id.clone());
        Self { fold, server_seq: None, unread: None, ends: VecDeque::new(), is_noted: false, epoch: 0 }
    }

    /// How the first turn ended that did so after a change.
    pub(crate) fn end_after(&self, seq: u64) -> Option<State> {
        self.ends.iter().find(|(ended, _)| *ended > seq).map(|(_, state)| state.clone())
    }

    /// Takes what was said, and notes the end of a turn.
    fn take(&mut self, said: impl FnOnce(&mut Fold) -> Result<(), LineProblem>) -> Result<(), LineProblem> {
        let before = self.fold.transcript().state_seq();
        let taken = said(&mut self.fold);
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
        taken
    }

    /// Takes a state that a server noted: its JSON.
    fn note(&mut self, state: &str) {
        let line = format!(r#"{{"sessionUpdate":"state_update","state":{state}}}"#);
        self.is_noted = self.take(|fold| fold.line(&line)).is_ok();
    }
}

impl Shared {
    pub(crate) fn new(id: SessionId) -> Self {
        let known = Mutex::new(Known::new(&id));
        Self { id, known, changed: watch::Sender::new((0, true)) }
    }

    pub(crate) fn id(&self) -> &SessionId {
        &self.id
    }

    pub(crate) fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hears of changes: the number of the last one, and whether more can come.
    pub(crate) fn subscribe(&self) -> watch::Receiver<(u64, bool)> {
        self.changed.subscribe()
    }

    /// Takes an update. Who looks does not know of it before [`tell`](Self::tell), which is once for many.
    pub(crate) fn take(
        &self,
        said: impl FnOnce(&mut Fold) -> Result<(), LineProblem>,
        server_seq: Option<u64>,
    ) {
        let mut known = self.known();
        // An update that cannot be read, or only in part, leaves the rest of the session as it is.
        if let Err(problem) = known.take(said) {
            let before = known.unread.take().map_or(0, |(count, _)| count);
            known.unread = Some((before + 1, problem.to_string()));
        }
        // Without a number it is in the middle of being told what it missed, and could not go on from here.
        known.server_seq = server_seq;
    }

    /// Takes the state that a server noted for a client that is told none. It tells whether a turn of others runs; one of
    /// this client's is told by its prompt, and better.
    pub(crate) fn noted(&self, state: &str) {
        let mut known = self.known();
        let is_told_to_run = !known.is_noted
            && known.fold.transcript().state().is_some_and(|state| state.activity != Activity::Idle);
        if !is_told_to_run {
            known.note(state);
        }
    }

    /// Tells who looks that there is something new.
    pub(crate) fn tell(&self) {
        let seq = self.seq();
        self.changed.send_replace((seq, true));
    }

    /// All that was known is going to be said again.
    pub(crate) fn begin_anew(&self) {
        let mut known = self.known();
        *known = Known { epoch: known.epoch + 1, ..Known::new(&self.id) };
    }

    /// The connection is there again.
    pub(crate) fn found(&self) {
        self.changed.send_modify(|(_, more)| *more = true);
    }

    /// The connection is gone.
    pub(crate) fn lost(&self) {
        self.changed.send_modify(|(_, more)| *more = false);
    }

    /// What the answer to joining says of the session: the last change, and whether a turn runs.
    pub(crate) fn joined(&self, answer: &Object) {
        let meta = answer.get("_meta").and_then(|meta| Object::parse(meta.raw()).ok()).unwrap_or_default();
        let seq = meta.get("parlor/seq").and_then(|seq| seq.as_str().parse().ok());
        let mut known = self.known();
        known.server_seq = seq.or(known.server_seq);
        // A state that was told since is the later one.
        if let Some(state) = meta.get("parlor/state").filter(|_| known.fold.transcript().state().is_none()) {
            known.note(state.as_str());
        }
        let seq = known.fold.transcript().seq();
        drop(known);
        self.changed.send_modify(|(last, _)| *last = seq);
    }

    /// The number of the last change here.
    pub(crate) fn seq(&self) -> u64 {
        self.known().fold.transcript().seq()
    }

    pub(crate) fn server_seq(&self) -> Option<u64> {
        self.known().server_seq
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A conversation is too long to be looked at in passing.
        f.debug_struct("Shared").field("id", &self.id).finish_non_exhaustive()
    }
}
