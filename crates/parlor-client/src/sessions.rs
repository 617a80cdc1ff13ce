//! The sessions that a connection tells of.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use parlor_json::Json;
use parlor_session::SessionId;

use crate::Error;
use crate::replica::{ConnectionToken, Replay, SessionReplica, SubscriptionStatus};

/// How many sessions are followed. One more is refused if somebody has all of them still.
const MAX_FOLLOWED: usize = 10_000;

/// How many sessions may be told of before an answer names them. Updates of one more are dropped.
const MAX_EARLY: usize = 64;

/// The sessions of one connection, for its task and those who ask for one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sessions {
    pub(crate) owner: ConnectionToken,
    all: Arc<Mutex<All>>,
}

#[derive(Debug, Default)]
struct All {
    /// Those that somebody asked for.
    followed: HashMap<SessionId, Arc<SessionReplica>>,
    /// Those that were told of while an answer is to come that may name them.
    early: HashMap<SessionId, Arc<SessionReplica>>,
    /// Whether the connection is gone.
    is_over: bool,
}

/// What is joined.
#[derive(Debug)]
pub(crate) enum Joined {
    /// A session, with what this connection knows of it.
    Named(SessionId),
    /// A session that another connection told of, in place of what this one knows of it.
    Lost(Arc<SessionReplica>),
}

impl Joined {
    pub(crate) fn id(&self) -> &SessionId {
        match self {
            Self::Named(id) => id,
            Self::Lost(session) => session.id(),
        }
    }
}

impl All {
    /// Whether no more can be followed. Those that nobody has are forgotten first.
    fn is_full(&mut self) -> bool {
        if self.followed.len() >= MAX_FOLLOWED {
            self.followed.retain(|_, session| Arc::strong_count(session) > 1);
        }
        self.followed.len() >= MAX_FOLLOWED
    }
}

impl Sessions {
    fn all(&self) -> MutexGuard<'_, All> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A session that somebody asks for, or that an answer named: it is followed from here on. If the connection is gone or
    /// follows too many, nobody tells of it.
    pub(crate) fn follow(&self, id: &SessionId) -> Arc<SessionReplica> {
        let mut all = self.all();
        if let Some(known) = all.followed.get(id) {
            return Arc::clone(known);
        }
        if all.is_over || all.is_full() {
            let standing = if all.is_over {
                SubscriptionStatus::Disconnected
            } else {
                SubscriptionStatus::NotSubscribed
            };
            return Arc::new(SessionReplica::unfollowed(id.clone(), standing));
        }
        let early = all.early.remove(id);
        let session =
            early.unwrap_or_else(|| Arc::new(SessionReplica::followed(id.clone(), self.owner.clone())));
        all.followed.insert(id.clone(), Arc::clone(&session));
        session
    }

    /// The session that an update is about, if it is kept: it is followed, or `may_be_named` by an answer that is to come.
    pub(crate) fn told(
        &self,
        id: &SessionId,
        may_be_named: impl FnOnce() -> bool,
    ) -> Option<Arc<SessionReplica>> {
        let mut all = self.all();
        if let Some(known) = all.followed.get(id).or_else(|| all.early.get(id)) {
            return Some(Arc::clone(known));
        }
        if all.early.len() >= MAX_EARLY || !may_be_named() {
            return None;
        }
        let session = Arc::new(SessionReplica::followed(id.clone(), self.owner.clone()));
        all.early.insert(id.clone(), Arc::clone(&session));
        Some(session)
    }

    /// No answer is to come that could name a session.
    pub(crate) fn forget_early(&self) {
        self.all().early.clear();
    }

    /// Makes this connection the one that tells of a session. Gives also from where on it is to be told.
    pub(crate) fn join(
        &self,
        joined: Joined,
        replay: Replay,
    ) -> Result<(Arc<SessionReplica>, Option<Json>), Error> {
        let mut all = self.all();
        let known = all.followed.get(joined.id()).cloned();
        if known.is_none() && all.is_full() {
            return Err(Error::Busy);
        }
        let session = match (joined, &known) {
            (Joined::Lost(session), _) => session,
            (Joined::Named(_), Some(known)) => Arc::clone(known),
            (Joined::Named(id), None) => {
                Arc::new(SessionReplica::unfollowed(id, SubscriptionStatus::NotSubscribed))
            }
        };
        let from = session.join(&self.owner, replay)?;
        all.followed.insert(session.id().clone(), Arc::clone(&session));
        if let Some(replaced) = known.filter(|known| !Arc::ptr_eq(known, &session)) {
            replaced.end(&self.owner, SubscriptionStatus::NotSubscribed);
        }
        Ok((session, from))
    }

    /// Whether no more can be followed.
    pub(crate) fn is_full(&self) -> bool {
        self.all().is_full()
    }

    /// This connection does not tell of a session any more.
    pub(crate) fn forget(&self, session: &Arc<SessionReplica>) {
        let mut all = self.all();
        if all.followed.get(session.id()).is_some_and(|known| Arc::ptr_eq(known, session)) {
            all.followed.remove(session.id());
        }
    }

    /// The connection is gone, and tells of nothing any more.
    pub(crate) fn end(&self) {
        let mut all = self.all();
        all.is_over = true;
        all.early.clear();
        all.followed.values().for_each(|session| session.end(&self.owner, SubscriptionStatus::Disconnected));
    }
}
