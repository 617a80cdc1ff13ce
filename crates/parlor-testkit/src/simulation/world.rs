//! The whole server in one place: sessions, clients, agents and the disk.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parlor_engine::stored::StoredSession;
use parlor_engine::{Event, IdGen, Now, SessionMachine, no_session};
use parlor_json::JsonStr;
use parlor_session::session::ClientId;
use parlor_session::{SessionId, UnixMillis};
use parlor_wire::{RpcError, code};

use super::agent::Process;
use super::client::{Connection, Person};
use super::disk::Disk;
use super::jobs::Job;
use super::ledger::Ledger;
use super::plan::Plan;
use super::random::Random;
use super::shell::{ArmedTimer, Message, Shell};
use super::tokens::Tokens;
use super::{Counts, Failure, Invariant};

/// A simulated server with all its peers.
pub(super) struct World {
    pub(super) plan: Plan,
    /// What the current step draws from.
    pub(super) random: Random,
    pub(super) now: Duration,
    pub(super) wall: i64,
    ids: Arc<AtomicU64>,
    pub(super) tokens: Tokens,
    pub(super) disk: Disk,
    /// The sessions that are in memory.
    pub(super) shells: BTreeMap<SessionId, Shell>,
    /// Whether the server is stopping: no session is opened any more.
    pub(super) is_stopping: bool,
    /// All sessions that there ever were.
    pub(super) known_sessions: Vec<SessionId>,
    /// All sessions of subagents that there ever were.
    pub(super) subagent_sessions: Vec<SessionId>,
    /// The agent sessions of subagents in which texts were said, by the marks of the texts.
    pub(super) subagent_texts: BTreeMap<u64, String>,
    pub(super) people: Vec<Person>,
    pub(super) connections: BTreeMap<ClientId, Connection>,
    pub(super) processes: Vec<Process>,
    pub(super) jobs: Vec<Job>,
    pub(super) timers: Vec<ArmedTimer>,
    /// The makers of forks that nobody opened yet.
    pub(super) expected: HashMap<SessionId, ClientId>,
    pub(super) ledger: Ledger,
    /// How often something happened, to see that it does.
    pub(super) counts: Counts,
    pub(super) is_settling: bool,
    next_client: u64,
    next_epoch: u64,
    next_incarnation: u64,
    failure: Option<Failure>,
    trace: Option<Vec<String>>,
}

/// When the world begins, in milliseconds since 1970.
const BEGINNING: i64 = 1_700_000_000_000;

impl World {
    pub(super) fn new(seed: u64, is_traced: bool) -> Self {
        let mut random = Random::new(seed, u64::MAX);
        let plan = Plan::new(&mut random);
        let people = plan.people.iter().cloned().map(Person::new).collect();
        Self {
            plan,
            random,
            now: Duration::from_secs(1),
            wall: BEGINNING,
            ids: Arc::new(AtomicU64::new(0)),
            tokens: Tokens::default(),
            disk: Disk::default(),
            shells: BTreeMap::new(),
            known_sessions: Vec::new(),
            subagent_sessions: Vec::new(),
            subagent_texts: BTreeMap::new(),
            is_stopping: false,
            people,
            connections: BTreeMap::new(),
            processes: Vec::new(),
            jobs: Vec::new(),
            timers: Vec::new(),
            expected: HashMap::new(),
            ledger: Ledger::default(),
            counts: Counts::default(),
            is_settling: false,
            next_client: 0,
            next_epoch: 0,
            next_incarnation: 0,
            failure: None,
            trace: is_traced.then(Vec::new),
        }
    }

    /// Notes that an invariant does not hold. The first one counts.
    pub(super) fn fail(&mut self, invariant: Invariant, message: String) {
        self.note(|| format!("!! {invariant}: {message}"));
        if self.failure.is_none() {
            self.failure = Some(Failure { invariant, message });
        }
    }

    pub(super) fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    /// Counts something that happened.
    pub(super) fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// Adds a line to the trace, if there is one.
    pub(super) fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(line());
        }
    }

    pub(super) fn take_trace(&mut self) -> Vec<String> {
        self.trace.take().unwrap_or_default()
    }

    pub(super) fn new_epoch(&mut self) -> parlor_engine::AgentEpoch {
        self.next_epoch += 1;
        parlor_engine::AgentEpoch(self.next_epoch)
    }

    pub(super) fn new_client_id(&mut self) -> ClientId {
        self.next_client += 1;
        ClientId(self.next_client)
    }

    fn id_gen(&self) -> IdGen {
        let ids = Arc::clone(&self.ids);
        IdGen::new(move || u128::from(ids.fetch_add(1, Ordering::Relaxed)) + (0xabc << 100))
    }

    pub(super) fn new_session_id(&mut self) -> SessionId {
        self.id_gen().new_session_id()
    }

    /// The server ends. Connections, agents and all that is in memory are gone.
    pub(super) fn forget_server(&mut self) {
        self.shells.clear();
        self.jobs.clear();
        self.timers.clear();
        self.expected.clear();
        for process in &mut self.processes {
            process.kill();
        }
        let clients: Vec<_> = self.connections.keys().copied().collect();
        clients.into_iter().for_each(|client| self.drop_connection(client));
        self.ledger.server_ended();
        for session in self.known_sessions.clone() {
            self.ledger.agent_lost(&session);
        }
        (self.next_client, self.next_epoch) = (0, 0);
    }

    /// The time for a session.
    pub(super) fn now_for(&self, started: Duration) -> Now {
        Now { monotonic: self.now.saturating_sub(started), wall: UnixMillis(self.wall) }
    }

    /// Puts a session into memory.
    pub(super) fn start(&mut self, stored: StoredSession, first: Vec<Message>) {
        let (key, is_owned) = (session_id(&stored.row.id), stored.row.owner.is_some());
        self.next_incarnation += 1;
        let now = Now { monotonic: Duration::ZERO, wall: UnixMillis(self.wall) };
        let machine = SessionMachine::new(stored, self.plan.config, self.id_gen(), now);
        let shell = Shell::new(machine, self.next_incarnation, self.now, first);
        self.note(|| format!("open {key}"));
        let known = if is_owned { &mut self.subagent_sessions } else { &mut self.known_sessions };
        if !known.contains(&key) {
            known.push(key.clone());
        }
        self.shells.insert(key, shell);
    }

    /// Reads a session into memory unless it is there.
    pub(super) fn open(&mut self, key: &SessionId) -> Result<(), RpcError> {
        if self.shells.contains_key(key) {
            return Ok(());
        }
        if self.is_stopping {
            return Err(RpcError::new(code::INTERNAL_ERROR, "the server is stopping"));
        }
        let stored = self.disk.open(key.as_json().as_literal()).ok_or_else(|| no_session(key))?;
        if self.disk.owners(&stored.row).iter().any(|owner| self.is_deleting(owner)) {
            return Err(no_session(key));
        }
        let expected = self.expected.remove(key).filter(|client| self.is_connected(*client));
        let first = expected.map(|client| Message::Call(client, parlor_engine::ClientCall::Follow));
        self.start(stored, first.into_iter().collect());
        Ok(())
    }

    /// Hands a message to a session.
    pub(super) fn send(&mut self, key: &SessionId, message: Message) -> Result<(), RpcError> {
        self.open(key)?;
        if let Some(shell) = self.shells.get_mut(key) {
            shell.inbox.push_back(message);
        }
        Ok(())
    }

    /// Hands a message to one incarnation of a session; returns it if that is gone.
    pub(super) fn send_to(
        &mut self,
        key: &SessionId,
        incarnation: u64,
        message: Message,
    ) -> Result<(), Box<Message>> {
        match self.shells.get_mut(key).filter(|shell| shell.incarnation == incarnation) {
            Some(shell) => shell.inbox.push_back(message),
            None => return Err(Box::new(message)),
        }
        Ok(())
    }

    pub(super) fn is_connected(&self, client: ClientId) -> bool {
        self.connections.get(&client).is_some_and(|connection| connection.is_open)
    }

    /// Ends a connection: what waits in it is lost, and the sessions learn of it.
    pub(super) fn disconnect(&mut self, client: ClientId) {
        self.note(|| format!("client {} disconnects", client.0));
        self.drop_connection(client);
        for shell in self.shells.values_mut() {
            shell.inbox.push_back(Message::Event(Event::Disconnected(client)));
        }
    }

    fn drop_connection(&mut self, client: ClientId) {
        let Some(connection) = self.connections.remove(&client) else { return };
        let person = &mut self.people[connection.person];
        if person.connection == Some(client) {
            person.connection = None;
            person.requests.clear();
            person.replicas.values_mut().for_each(super::replica::Replica::detach);
        }
    }

    /// All sessions that exist, as the store has them.
    pub(super) fn stored_sessions(&self) -> BTreeSet<SessionId> {
        self.disk.sessions(false).iter().map(|id| session_id(id)).collect()
    }
}

/// A session's id from the id that its row has.
pub(super) fn session_id(literal: &str) -> SessionId {
    SessionId::from(JsonStr::from_literal(literal).unwrap_or_else(|| JsonStr::new(literal)))
}
