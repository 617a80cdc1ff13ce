//! A session machine with clients and an agent whose parts the test plays.

use core::time::Duration;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;

use parlor_dialect::Dialect;
use parlor_dialect::settings::Settings;
use parlor_engine::rows::{Batch, SessionRow};
use parlor_engine::stored::StoredSession;
use parlor_engine::{
    AgentCall, AgentCommand, AgentEpoch, AgentEvent, AgentInfo, AgentLink, ClientCall, ClientInfo, Event,
    IdGen, Now, OpenedAgent, Outgoing, Output, QueueLimits, ReplayFrom, SessionConfig, SessionLookup,
    SessionMachine,
};
use parlor_json::{Json, Object};
use parlor_session::UnixMillis;
use parlor_session::session::ClientId;
use parlor_wire::RequestId;

/// A session in memory. Whatever it wants stored is stored at once.
pub(crate) struct Stage {
    pub(crate) machine: SessionMachine,
    pub(crate) now: Duration,
    /// What each client was sent, one line each, in order.
    pub(crate) sent: Vec<(u64, String)>,
    /// What the agent was to do.
    pub(crate) commands: Vec<(AgentEpoch, AgentCommand)>,
    /// How many forks are opened.
    pub(crate) forks: usize,
    /// The batches that were stored.
    pub(crate) batches: Vec<Batch>,
    /// The clients whose send queues are full.
    full: RefCell<BTreeSet<u64>>,
}

impl Stage {
    /// A new session with an agent of a dialect.
    pub(crate) fn new(dialect: Dialect) -> Self {
        let mut stage = Self::stored(StoredSession::new(row()), QueueLimits::default());
        stage.happens([Event::Started { agent: Box::new(opened(dialect, 1)), replay: None }]);
        stage
    }

    /// A session as it is stored.
    pub(crate) fn stored(stored: StoredSession, limits: QueueLimits) -> Self {
        let mut last = 0;
        let ids = IdGen::new(move || {
            last += 1;
            last
        });
        let config = SessionConfig { cancel_timeout: None, is_embedded: false, limits };
        let now = Now { monotonic: Duration::ZERO, wall: UnixMillis(0) };
        let mut stage = Self {
            machine: SessionMachine::new(stored, config, ids, now),
            now: Duration::ZERO,
            sent: Vec::new(),
            commands: Vec::new(),
            forks: 0,
            batches: Vec::new(),
            full: RefCell::default(),
        };
        stage.happens([]);
        stage
    }

    /// Handles events that happened together, and stores what comes of it.
    pub(crate) fn happens(&mut self, events: impl IntoIterator<Item = Event>) {
        let mut output = self.handle(events);
        self.machine.on_stored(output.seq);
        self.batches.push(std::mem::take(&mut output.batch));
        self.release(output);
        if self.machine.has_pending() && self.machine.end().is_none() {
            self.happens([]);
        }
    }

    /// Handles events whose batch cannot be stored.
    pub(crate) fn fails(&mut self, events: impl IntoIterator<Item = Event>) {
        let output = self.handle(events);
        let output = self.machine.on_store_failed(output, "the disk is full");
        self.release(output);
        self.ends();
    }

    /// The session is not live any more.
    pub(crate) fn ends(&mut self) {
        let output = self.machine.finish([]);
        self.release(output);
    }

    fn handle(&mut self, events: impl IntoIterator<Item = Event>) -> Output {
        let now = Now { monotonic: self.now, wall: UnixMillis(0) };
        let full = self.full.borrow().clone();
        self.machine.handle(events, now, &|client| !full.contains(&client.0))
    }

    fn release(&mut self, output: Output) {
        for delivery in output.sends {
            let to = delivery.to.0;
            match delivery.what {
                Outgoing::Frame(frame) => {
                    self.sent.extend(frame.as_str().lines().map(|line| (to, line.to_owned())));
                }
                Outgoing::Request { request, method, .. } => {
                    self.sent.push((to, format!("request {} {method}", request.peer_request.0)));
                }
                Outgoing::CancelRequest(request) => {
                    self.sent.push((to, format!("cancel {}", request.peer_request.0)));
                }
                Outgoing::AwaitDrain => {}
                Outgoing::Disconnect => self.sent.push((to, "disconnect".to_owned())),
            }
        }
        self.commands.extend(output.agent);
        self.forks += output.forks.len();
    }

    /// The send queue of a client is full, or has room again.
    pub(crate) fn fills(&mut self, client: u64, is_full: bool) {
        if is_full {
            self.full.borrow_mut().insert(client);
        } else {
            self.full.borrow_mut().remove(&client);
            self.happens([Event::Drained(ClientId(client))]);
        }
    }

    /// The agent sends updates in its first epoch.
    pub(crate) fn says(&mut self, updates: &[&str]) {
        self.happens([said(1, updates)]);
    }

    /// The lines that a client was sent since the last time.
    pub(crate) fn take_sent(&mut self, client: u64) -> Vec<String> {
        self.sent.extract_if(.., |(to, _)| *to == client).map(|(_, line)| line).collect()
    }

    /// The responses that a client was sent since the last time, by the ids of the requests.
    pub(crate) fn responses(&mut self, client: u64) -> Vec<String> {
        let id = |line: &String| {
            let line = Json::parse(line.clone()).ok()?;
            let line = line.to_object().unwrap_or_default();
            line.get("method").is_none().then_some(())?;
            Some(line.get("id")?.as_str().to_owned())
        };
        self.take_sent(client).iter().filter_map(id).collect()
    }

    /// The prompts that the agent was sent.
    pub(crate) fn prompts(&self) -> Vec<u64> {
        let prompts = self.commands.iter().filter_map(|(_, command)| {
            let AgentCommand::Call { call: AgentCall::Prompt(prompt), .. } = command else { return None };
            Some(prompt.0)
        });
        prompts.collect()
    }
}

/// The row of a session.
pub(crate) fn row() -> SessionRow {
    SessionRow {
        id: "\"s\"".to_owned(),
        agent: "a".to_owned(),
        agent_session: None,
        cwd: "/".to_owned(),
        title: None,
        parent: None,
        owner: None,
        created_at: 0,
        active_at: 0,
        archived: false,
        busy: false,
        data: "{}".to_owned(),
    }
}

/// An agent session of an agent that can do everything.
pub(crate) fn opened(dialect: Dialect, epoch: u64) -> OpenedAgent {
    let agent = AgentInfo {
        name: "a".to_owned(),
        label: "a".to_owned(),
        dialect,
        initialize: object(r#"{"capabilities":{"session":{"fork":{}}}}"#),
        is_embedded: false,
    };
    OpenedAgent {
        link: AgentLink {
            epoch: AgentEpoch(epoch),
            agent: Arc::new(agent),
            session: "theirs".into(),
            sessions: SessionLookup::new(|_| None),
        },
        without_history: false,
        lost: None,
        result: Object::default(),
        settings: Settings::default(),
        refused: None,
        early: Vec::new(),
    }
}

pub(crate) fn object(text: &str) -> Object {
    serde_json::from_str(text).unwrap()
}

/// A driver that receives the numbers of changes.
pub(crate) fn client(id: u64, dialect: Dialect) -> Arc<ClientInfo> {
    let initialize = object(r#"{"_meta":{"parlor/seq":true}}"#);
    Arc::new(ClientInfo::new(ClientId(id), dialect, initialize, true, true))
}

/// A call of a driver.
pub(crate) fn calls(id: u64, dialect: Dialect, call: ClientCall) -> Event {
    Event::Client { client: client(id, dialect), is_connected: true, call }
}

/// A driver attaches.
pub(crate) fn attaches(id: u64, dialect: Dialect, request: u64, from: ReplayFrom) -> Event {
    calls(
        id,
        dialect,
        ClientCall::Attach { id: RequestId::from(request), from, cwd: None, members: Object::default() },
    )
}

/// A driver prompts.
pub(crate) fn prompts(id: u64, dialect: Dialect, request: u64, text: &str) -> Event {
    let params = object(&format!(r#"{{"prompt":[{{"type":"text","text":"{text}"}}]}}"#));
    calls(id, dialect, ClientCall::Prompt { id: RequestId::from(request), params })
}

/// The agent sends updates in an epoch.
pub(crate) fn said(epoch: u64, updates: &[&str]) -> Event {
    let line = |update: &&str| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"theirs","update":{update}}}}}"#
        ) + "\n"
    };
    Event::Agent(AgentEpoch(epoch), AgentEvent::Updates(updates.iter().map(line).collect()))
}
