//! The sessions that a connection receives updates of.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use parlor_json::Json;
use parlor_session::SessionId;
use tracing::Span;

use crate::Error;
use crate::replica::{ConnectionToken, Replay, SessionReplica, SubscriptionStatus};

/// How many sessions a connection tracks. One more is refused while all of them have handles.
const MAX_SESSIONS: usize = 10_000;

/// How many sessions may have updates before a response names them. Updates of one more are dropped.
const MAX_EARLY: usize = 64;

/// The sessions of one connection, shared between its task and its clients.
#[derive(Debug, Clone)]
pub(crate) struct Subscriptions {
    pub(crate) connection: ConnectionToken,
    sessions: Arc<Mutex<Sessions>>,
}

#[derive(Debug, Default)]
struct Sessions {
    /// Sessions that were requested or that a response named.
    tracked: HashMap<SessionId, Arc<SessionReplica>>,
    /// Sessions with early updates: a response in flight may name them.
    early: HashMap<SessionId, Arc<SessionReplica>>,
    is_disconnected: bool,
}

/// The session to join.
#[derive(Debug)]
pub(crate) enum JoinTarget {
    /// A session by its id, with the replica that this connection has of it.
    Id(SessionId),
    /// A replica that another connection had, which replaces that of this connection.
    Replica(Arc<SessionReplica>),
}

impl JoinTarget {
    pub(crate) fn id(&self) -> &SessionId {
        match self {
            Self::Id(id) => id,
            Self::Replica(session) => session.id(),
        }
    }
}

impl Sessions {
    /// Whether no more can be tracked. Those without a handle are dropped first.
    fn is_full(&mut self) -> bool {
        if self.tracked.len() >= MAX_SESSIONS {
            self.tracked.retain(|_, session| Arc::strong_count(session) > 1);
        }
        self.tracked.len() >= MAX_SESSIONS
    }
}

impl Subscriptions {
    pub(crate) fn new(connection: Span) -> Self {
        Self { connection: ConnectionToken::new(connection), sessions: Arc::default() }
    }

    fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tracks a session from here on. Its handle gets no updates if the connection is closed or tracks too many.
    pub(crate) fn track(&self, id: &SessionId) -> Arc<SessionReplica> {
        let mut sessions = self.sessions();
        if let Some(tracked) = sessions.tracked.get(id) {
            return Arc::clone(tracked);
        }
        if sessions.is_disconnected {
            return Arc::new(SessionReplica::unsubscribed(id.clone(), SubscriptionStatus::Disconnected));
        }
        if sessions.is_full() {
            return Arc::new(SessionReplica::unsubscribed(id.clone(), SubscriptionStatus::NotSubscribed));
        }
        let early = sessions.early.remove(id);
        let session = early
            .unwrap_or_else(|| Arc::new(SessionReplica::subscribed(id.clone(), self.connection.clone())));
        sessions.tracked.insert(id.clone(), Arc::clone(&session));
        session
    }

    /// The session that an update is for: one that is tracked, or that a response in flight `may_be_named` by.
    pub(crate) fn find(
        &self,
        id: &SessionId,
        may_be_named: impl FnOnce() -> bool,
    ) -> Option<Arc<SessionReplica>> {
        let mut sessions = self.sessions();
        if let Some(session) = sessions.tracked.get(id).or_else(|| sessions.early.get(id)) {
            return Some(Arc::clone(session));
        }
        if sessions.early.len() >= MAX_EARLY || !may_be_named() {
            return None;
        }
        let session = Arc::new(SessionReplica::subscribed(id.clone(), self.connection.clone()));
        sessions.early.insert(id.clone(), Arc::clone(&session));
        Some(session)
    }

    /// Drops early updates: no response in flight can name a session.
    pub(crate) fn drop_early(&self) {
        self.sessions().early.clear();
    }

    /// Gives this connection the subscription of a session. Returns also the replay to ask for.
    pub(crate) fn begin_join(
        &self,
        target: JoinTarget,
        replay: Replay,
    ) -> Result<(Arc<SessionReplica>, Option<Json>), Error> {
        let mut sessions = self.sessions();
        let tracked = sessions.tracked.get(target.id()).cloned();
        if tracked.is_none() && sessions.is_full() {
            return Err(Error::Busy);
        }
        let session = match (target, &tracked) {
            (JoinTarget::Replica(session), _) => session,
            (JoinTarget::Id(_), Some(tracked)) => Arc::clone(tracked),
            (JoinTarget::Id(id), None) => {
                Arc::new(SessionReplica::unsubscribed(id, SubscriptionStatus::NotSubscribed))
            }
        };
        let from = session.begin_join(&self.connection, replay)?;
        sessions.tracked.insert(session.id().clone(), Arc::clone(&session));
        if let Some(replaced) = tracked.filter(|tracked| !Arc::ptr_eq(tracked, &session)) {
            replaced.unsubscribe(&self.connection, SubscriptionStatus::NotSubscribed);
        }
        Ok((session, from))
    }

    /// Whether no more sessions can be tracked.
    pub(crate) fn is_full(&self) -> bool {
        self.sessions().is_full()
    }

    /// Stops tracking a session.
    pub(crate) fn forget(&self, session: &Arc<SessionReplica>) {
        let mut sessions = self.sessions();
        if sessions.tracked.get(session.id()).is_some_and(|tracked| Arc::ptr_eq(tracked, session)) {
            sessions.tracked.remove(session.id());
        }
    }

    /// Ends all subscriptions: the connection is closed.
    pub(crate) fn disconnect(&self) {
        let mut sessions = self.sessions();
        sessions.is_disconnected = true;
        sessions.early.clear();
        for session in sessions.tracked.values() {
            session.unsubscribe(&self.connection, SubscriptionStatus::Disconnected);
        }
    }
}
