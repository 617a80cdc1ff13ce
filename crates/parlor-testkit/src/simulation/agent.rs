//! Simulated agent processes and the sessions that they have.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parlor_dialect::Dialect;
use parlor_engine::{AgentCall, AgentEpoch, AgentEvent, AgentInfo};
use parlor_session::SessionId;

use super::plan::AgentPlan;

/// One agent process.
#[derive(Debug)]
pub(super) struct Process {
    /// The place of its configuration.
    pub(super) kind: usize,
    pub(super) plan: AgentPlan,
    pub(super) info: Arc<AgentInfo>,
    pub(super) is_alive: bool,
    /// Whether it is given no more sessions.
    pub(super) is_retired: bool,
    /// Whether it does nothing at present.
    pub(super) is_hung: bool,
    pub(super) sessions: BTreeMap<String, AgentSession>,
    /// The requests of the server that it has not answered, by their ids.
    pub(super) calls: BTreeMap<u64, ServerCall>,
    pub(super) next_call: u64,
    pub(super) next_request: u64,
    pub(super) next_id: u64,
}

/// Names a session of a process.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct AgentSessionKey {
    pub(super) process: usize,
    pub(super) session: String,
}

/// Where messages of an agent go.
#[derive(Debug, Clone)]
pub(super) struct Link {
    pub(super) session: SessionId,
    pub(super) incarnation: u64,
    pub(super) epoch: AgentEpoch,
}

/// A request of the server.
#[derive(Debug)]
pub(super) struct ServerCall {
    pub(super) session: String,
    pub(super) link: Link,
    pub(super) call: AgentCall,
    /// Whether the server does not want the answer any more.
    pub(super) is_cancelled: bool,
}

impl ServerCall {
    /// Whether it is a prompt, for a turn of its own or for the running one.
    pub(super) fn is_prompt(&self) -> bool {
        matches!(self.call, AgentCall::Prompt(_) | AgentCall::Steer(_))
    }
}

/// One session at the agent.
#[derive(Debug, Default)]
pub(super) struct AgentSession {
    pub(super) receiver: Receiver,
    /// The session that released it, and in which epoch.
    pub(super) home: Option<Home>,
    /// The prompts that have no answer or no turn yet.
    pub(super) prompts: Vec<AgentPrompt>,
    /// The prompts for its running turn that have no answer yet.
    pub(super) steers: Vec<AgentPrompt>,
    pub(super) is_running: bool,
    pub(super) is_cancelled: bool,
    /// The message that is being written.
    pub(super) message: Option<(&'static str, Option<String>)>,
    /// All messages that it named.
    pub(super) messages: Vec<(&'static str, String)>,
    pub(super) tool_calls: Vec<String>,
    /// The session that owns it, if it is that of a subagent.
    pub(super) owner: Option<String>,
    /// Requests to the server, by their ids.
    pub(super) requests: BTreeMap<u64, AgentRequest>,
}

/// Who receives the messages of an agent session.
#[derive(Debug, Default)]
pub(super) enum Receiver {
    #[default]
    Nobody,
    /// Somebody who collects them for a session that does not have the agent yet.
    Intake { epoch: AgentEpoch, early: Vec<AgentEvent> },
    /// A session.
    Session(Link),
}

/// A session that has released the agent session.
#[derive(Debug, Clone)]
pub(super) struct Home {
    pub(super) session: SessionId,
    pub(super) epoch: AgentEpoch,
    /// Whether the agent still has it open.
    pub(super) is_open: bool,
}

/// A prompt that the agent was sent.
#[derive(Debug, Clone)]
pub(super) struct AgentPrompt {
    pub(super) call: u64,
    /// Its content without any context.
    pub(super) content: String,
    pub(super) is_accepted: bool,
    pub(super) is_started: bool,
    /// Whether a turn was cancelled while the agent had it.
    pub(super) was_cancelled: bool,
    pub(super) message: Option<String>,
    pub(super) token: Option<u64>,
}

/// A request of the agent to people or to the server.
#[derive(Debug)]
pub(super) struct AgentRequest {
    pub(super) method: String,
    pub(super) epoch: AgentEpoch,
    pub(super) answers: usize,
    /// Whether the agent session was let go of or is gone: then nobody need answer.
    pub(super) is_excused: bool,
}

impl Process {
    pub(super) fn new(kind: usize, plan: AgentPlan) -> Self {
        let info = AgentInfo {
            name: format!("agent{kind}"),
            label: format!("agent{kind}"),
            dialect: plan.dialect,
            initialize: plan.initialize(),
            is_embedded: false,
        };
        Self {
            kind,
            plan,
            info: Arc::new(info),
            is_alive: true,
            is_retired: false,
            is_hung: false,
            sessions: BTreeMap::new(),
            calls: BTreeMap::new(),
            next_call: 0,
            next_request: 0,
            next_id: 0,
        }
    }

    pub(super) fn dialect(&self) -> Dialect {
        self.plan.dialect
    }

    /// Whether it can be given sessions.
    pub(super) fn is_usable(&self) -> bool {
        self.is_alive && !self.is_retired
    }

    /// Whether sessions have it.
    pub(super) fn is_used(&self) -> bool {
        self.sessions.values().any(|session| !matches!(session.receiver, Receiver::Nobody))
    }

    pub(super) fn kill(&mut self) {
        self.is_alive = false;
        self.calls.clear();
        for session in self.sessions.values_mut() {
            session.end();
        }
    }

    /// The requests of the server for a session.
    pub(super) fn calls_of(&self, session: &str) -> Vec<u64> {
        self.calls.iter().filter(|(_, call)| call.session == session).map(|(id, _)| *id).collect()
    }
}

impl AgentSession {
    /// Nobody has it any more, and what was going on in it is over.
    pub(super) fn end(&mut self) {
        self.receiver = Receiver::Nobody;
        self.home = None;
        self.close();
    }

    /// What was going on in it is over.
    pub(super) fn close(&mut self) {
        self.prompts.clear();
        self.steers.clear();
        self.is_running = false;
        self.is_cancelled = false;
        self.message = None;
        self.requests.values_mut().for_each(|request| request.is_excused = true);
    }

    pub(super) fn epoch(&self) -> Option<AgentEpoch> {
        match &self.receiver {
            Receiver::Nobody => self.home.as_ref().map(|home| home.epoch),
            Receiver::Intake { epoch, .. } => Some(*epoch),
            Receiver::Session(link) => Some(link.epoch),
        }
    }

    /// The ids of the requests that have no answer.
    pub(super) fn open_requests(&self) -> BTreeSet<u64> {
        let open = self.requests.iter().filter(|(_, request)| request.answers == 0 && !request.is_excused);
        open.map(|(id, _)| *id).collect()
    }
}
