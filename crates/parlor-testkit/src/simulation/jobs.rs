//! What the server does beside its sessions: starts agents, restores their sessions, opens forks, serves files.

use std::collections::VecDeque;

use parlor_dialect::Dialect;
use parlor_dialect::settings::{Setting, Settings};
use parlor_engine::opening::{RefusedSetting, RefusedSettings};
use parlor_engine::rows::SessionRow;
use parlor_engine::stored::StoredSession;
use parlor_engine::{
    AgentEpoch, AgentEvent, ClientCall, Event, ForkAction, ForkEvent, ForkOpening, ForkStart,
    RejectableRequest, ReplayFrom,
};
use parlor_json::{Json, Object};
use parlor_session::SessionId;
use parlor_session::session::ClientId;
use parlor_wire::{RequestId, RpcError, code};

use super::Invariant;
use super::agent::{AgentSession, AgentSessionKey, Link, Process, Receiver};
use super::client::Tag;
use super::shell::{Message, gone};
use super::world::{World, session_id};

/// Something that takes its time.
pub(super) enum Job {
    /// A client wants a new session.
    New { client: ClientId, request: u64, session: SessionId, kind: usize, is_adopted: bool },
    /// A session's agent is started and its session restored.
    Restore { session: SessionId, incarnation: u64 },
    /// The agent's session is restored; the session does not know it yet.
    Ready { session: SessionId, incarnation: u64, restored: Box<Restored> },
    /// The agent is asked to fork for a stored fork that is opened.
    Fork { fork: Box<OpenedFork>, parent: Option<AgentSessionKey> },
    /// The server serves a file or a terminal for an agent.
    Serve { link: Link, id: u64 },
    /// The server looks whether an agent may have a file.
    CheckFile { link: Link, id: u64, method: String, params: Object },
}

/// A fork that is opened, with what this needs.
pub(super) struct OpenedFork {
    client: ClientId,
    opening: ForkOpening,
    /// What the agent has forked, until the session has it.
    forked: Option<Restored>,
}

/// An agent session for one of ours.
#[derive(Debug)]
pub(super) struct Restored {
    pub(super) place: AgentSessionKey,
    pub(super) epoch: AgentEpoch,
    pub(super) without_history: bool,
    pub(super) lost: Option<String>,
    pub(super) result: Object,
    pub(super) settings: Settings,
    pub(super) refused: Option<RefusedSettings>,
}

impl World {
    /// Does the next part of a job.
    pub(super) fn run_job(&mut self, place: usize) {
        match self.jobs.remove(place) {
            Job::New { client, request, session, kind, is_adopted } => {
                self.begin_session(client, request, &session, kind, is_adopted);
            }
            Job::Restore { session, incarnation } => self.restore(&session, incarnation),
            Job::Ready { session, incarnation, restored } => {
                let Restored { place, epoch, .. } = &*restored;
                let (place, epoch) = (place.clone(), *epoch);
                let ready = if self.processes[place.process].is_alive { Ok(*restored) } else { Err(gone()) };
                if ready.is_err() {
                    self.ledger.agent_lost(&session);
                }
                if self.send_to(&session, incarnation, Message::AgentReady(ready)).is_err() {
                    self.unlink(&place, epoch);
                }
            }
            Job::Fork { fork, parent } => self.fork_at_agent(*fork, parent),
            Job::Serve { link, id } => {
                let _ = self.send_to(&link.session, link.incarnation, Message::Served(link.epoch, id));
            }
            Job::CheckFile { link, id, method, params } => {
                let id = RequestId::from(id);
                let allowed = AgentEvent::FileAllowed { id, method, params };
                let event = Message::Event(Event::Agent(link.epoch, allowed));
                let _ = self.send_to(&link.session, link.incarnation, event);
            }
        }
    }

    /// A process of a configured agent that can be given sessions.
    fn process(&mut self, kind: usize) -> Result<usize, RpcError> {
        let is_it = |process: &Process| process.kind == kind && process.is_usable();
        if let Some(found) = self.processes.iter().position(is_it) {
            return Ok(found);
        }
        if self.plan.faults.failed_starts && !self.is_settling && self.random.percent(30) {
            return Err(RpcError::new(code::INTERNAL_ERROR, "the agent cannot be started"));
        }
        let place = self.processes.len();
        self.note(|| format!("agent{kind} starts as process {place}"));
        let process = Process::new(kind, self.plan.agents[kind].clone());
        self.processes.push(process);
        Ok(place)
    }

    /// Has an agent begin a session of its own.
    fn agent_session(&mut self, process: usize) -> (AgentSessionKey, AgentEpoch) {
        let epoch = self.new_epoch();
        let session = format!("a{process}-{}", self.processes[process].sessions.len());
        let receiver = Receiver::Intake { epoch, early: Vec::new() };
        let begun = AgentSession { receiver, ..AgentSession::default() };
        self.processes[process].sessions.insert(session.clone(), begun);
        (AgentSessionKey { process, session }, epoch)
    }

    /// What an agent says when it opens a session.
    fn opening(&mut self, process: usize) -> (Object, Settings) {
        let mut result = Object::default();
        if self.random.percent(40) {
            let text = match self.processes[process].dialect() {
                Dialect::V1 => {
                    r#"{"modes":{"currentModeId":"a","availableModes":[{"id":"a","name":"A"},{"id":"b","name":"B"}]}}"#
                }
                Dialect::V2 | Dialect::Draft => {
                    r#"{"configOptions":[{"configId":"m","name":"M","type":"select","category":"mode","currentValue":"a","options":[{"value":"a","name":"A"},{"value":"b","name":"B"}]}]}"#
                }
            };
            result = serde_json::from_str(text).expect("it is an object");
        }
        if self.random.percent(20) {
            result.set("extra", Json::parse("1").unwrap());
        }
        let mut settings = Settings::default();
        settings.take_from(&mut result);
        (result, settings)
    }

    fn begin_session(
        &mut self,
        client: ClientId,
        request: u64,
        session: &SessionId,
        kind: usize,
        is_adopted: bool,
    ) {
        let process = match self.process(kind) {
            Ok(process) => process,
            Err(error) => {
                let request = RejectableRequest::new(request.into(), "session/new");
                return self.push(client, request.response(&error), Tag::default());
            }
        };
        let (place, epoch) = self.agent_session(process);
        let (result, settings) = self.opening(process);
        let dialect = self.processes[process].dialect();
        let data = format!(r#"{{"params":{{}},"dialect":"v2","agentDialect":"{}"}}"#, dialect.name());
        let row = SessionRow {
            id: session.as_json().as_literal().to_owned(),
            agent: format!("agent{kind}"),
            agent_session: Some(format!("\"{}\"", place.session)),
            cwd: "/work".to_owned(),
            title: None,
            parent: None,
            owner: None,
            created_at: self.wall,
            active_at: self.wall,
            archived: false,
            busy: false,
            data,
        };
        let replay = is_adopted.then(|| self.replayed(&place));
        let from = if replay.is_some() { ReplayFrom::Start } else { ReplayFrom::New };
        let restored =
            Restored { place, epoch, without_history: false, lost: None, result, settings, refused: None };
        let attach =
            ClientCall::Attach { id: RequestId::from(request), from, cwd: None, members: Object::default() };
        let first = vec![Message::Started(restored, replay), Message::Call(client, attach)];
        self.start(StoredSession::new(row), first);
    }

    /// What an agent replays of a session that only it knows.
    fn replayed(&mut self, place: &AgentSessionKey) -> Vec<String> {
        let mut lines = Vec::new();
        for count in 0..self.random.between(1, 4) {
            let text = self.tokens.next();
            let kind = if count % 2 == 0 { "user_message_chunk" } else { "agent_message_chunk" };
            let id = format!("old{count}");
            let content = format!(r#"{{"type":"text","text":"{text}"}}"#);
            let update = format!(r#"{{"sessionUpdate":"{kind}","messageId":"{id}","content":{content}}}"#);
            lines.push(update_line(&place.session, &update));
        }
        lines
    }

    /// Restores the agent's session of one of ours.
    fn restore(&mut self, session: &SessionId, incarnation: u64) {
        let Some(shell) = self.shells.get(session).filter(|shell| shell.incarnation == incarnation) else {
            return;
        };
        let known = shell.machine.row().agent_session.clone();
        let known = known.as_deref().map(|literal| session_id(literal).as_json().to_text().into_owned());
        let Some(kind) = self.kind_of(session) else { return };
        if let Some(known) = &known
            && self.processes.iter().any(|other| other.kind != kind && other.sessions.contains_key(known))
        {
            let message = format!("agent{kind} is asked for {known} of another agent, for {session}");
            self.fail(Invariant::Forks, message);
        }
        let process = match self.process(kind) {
            Ok(process) => process,
            Err(error) => {
                let _ = self.send_to(session, incarnation, Message::AgentReady(Err(error)));
                return;
            }
        };
        let restored = match known.clone().and_then(|known| self.reopened(process, &known)) {
            Some(restored) => restored,
            None => {
                let (place, epoch) = self.agent_session(process);
                let (result, settings) = self.opening(process);
                let lost = known.map(|_| "the agent does not have the session".to_owned());
                Restored { place, epoch, without_history: true, lost, result, settings, refused: None }
            }
        };
        let refused = (self.plan.faults.nonsense && self.random.percent(10)).then(refused_settings);
        let restored = Box::new(Restored { refused, ..restored });
        self.jobs.push(Job::Ready { session: session.clone(), incarnation, restored });
    }

    /// The session that the agent has already, if it can be had.
    fn reopened(&mut self, process: usize, known: &str) -> Option<Restored> {
        let restores = self.processes[process].plan.restores;
        if let Some(session) = self.processes[process].sessions.get_mut(known) {
            let is_free = matches!(session.receiver, Receiver::Nobody);
            if let Some(home) = session.home.clone().filter(|home| home.is_open && is_free) {
                session.home = None;
                session.receiver = Receiver::Intake { epoch: home.epoch, early: Vec::new() };
                let place = AgentSessionKey { process, session: known.to_owned() };
                let (result, settings) = (Object::default(), Settings::default());
                return Some(Restored {
                    place,
                    epoch: home.epoch,
                    without_history: false,
                    lost: None,
                    result,
                    settings,
                    refused: None,
                });
            }
            if !is_free {
                return None;
            }
        }
        if !restores || self.random.percent(15) {
            return None;
        }
        // It may be another process than the one that began the session.
        let messages = self.processes.iter().filter_map(|process| process.sessions.get(known)).next_back();
        let messages = messages.map(|session| session.messages.clone())?;
        let epoch = self.new_epoch();
        let receiver = Receiver::Intake { epoch, early: Vec::new() };
        let session = AgentSession { receiver, messages, ..AgentSession::default() };
        self.processes[process].sessions.insert(known.to_owned(), session);
        let (result, settings) = self.opening(process);
        let place = AgentSessionKey { process, session: known.to_owned() };
        Some(Restored { place, epoch, without_history: false, lost: None, result, settings, refused: None })
    }

    /// A fork is stored: it is opened as the server does.
    pub(super) fn start_fork(&mut self, parent: &SessionId, start: ForkStart) {
        let client = start.client;
        let (opening, actions) = ForkOpening::start(start);
        self.known_sessions.push(opening.session().clone());
        let fork = OpenedFork { client, opening, forked: None };
        if let Some(ForkAction::ForkAtAgent { epoch, .. }) = actions.first() {
            let parent = self.shells.get(parent).and_then(|shell| shell.ties.get(epoch)).cloned();
            self.jobs.push(Job::Fork { fork: Box::new(fork), parent });
        } else {
            self.open_fork(fork, actions);
        }
    }

    /// The agent forks its session, or not.
    fn fork_at_agent(&mut self, mut fork: OpenedFork, parent: Option<AgentSessionKey>) {
        let parent = parent.filter(|place| self.processes[place.process].is_alive);
        let event = match parent.filter(|_| self.random.percent(85)) {
            Some(AgentSessionKey { process, .. }) => {
                let (place, epoch) = self.agent_session(process);
                let (result, settings) = self.opening(process);
                let without_history = false;
                let forked =
                    Restored { place, epoch, without_history, lost: None, result, settings, refused: None };
                fork.forked = Some(forked);
                ForkEvent::AgentForked
            }
            None => ForkEvent::AgentFailed(RpcError::new(code::INTERNAL_ERROR, "the agent does not fork")),
        };
        let actions = fork.opening.handle(event);
        self.open_fork(fork, actions);
    }

    fn open_fork(&mut self, mut fork: OpenedFork, actions: Vec<ForkAction>) {
        let mut actions = VecDeque::from(actions);
        while let Some(action) = actions.pop_front() {
            let event = self.perform(&mut fork, action);
            actions.extend(event.into_iter().flat_map(|event| fork.opening.handle(event)));
        }
    }

    fn perform(&mut self, fork: &mut OpenedFork, action: ForkAction) -> Option<ForkEvent> {
        let (client, session) = (fork.client, fork.opening.session());
        match action {
            // `start_fork` does that.
            ForkAction::ForkAtAgent { .. } => None,
            ForkAction::Start if self.shells.contains_key(session) => {
                self.count("forks that others opened first");
                Some(ForkEvent::AlreadyOpen)
            }
            ForkAction::Start => {
                let Some(stored) = self.disk.open(session.as_json().as_literal()) else {
                    return Some(ForkEvent::StartFailed(parlor_engine::no_session(session)));
                };
                self.count("forks by the agent");
                self.start(stored, vec![Message::Started(fork.forked.take()?, None)]);
                Some(ForkEvent::Started)
            }
            ForkAction::DiscardAgentSession => {
                self.discard_agent_session(&fork.forked.take()?.place);
                None
            }
            ForkAction::AttachOnOpen => {
                self.expected.insert(session.clone(), client);
                None
            }
            ForkAction::Respond(frame) => {
                self.count("forks answered without a session");
                self.push(client, frame, Tag::default());
                None
            }
            ForkAction::Call(call) => {
                if matches!(call, ClientCall::PromptWithoutRequest { answer: Some(_), .. }) {
                    self.count("forks answered with a prompt");
                }
                Some(ForkEvent::Called(self.send(session, Message::Call(client, call))))
            }
        }
    }

    /// An agent process ends: those who wait for it learn of it.
    pub(super) fn end_process(&mut self, process: usize) {
        if !self.processes[process].is_alive {
            return;
        }
        self.note(|| format!("process {process} ends"));
        self.count("agent processes ended");
        let calls = std::mem::take(&mut self.processes[process].calls);
        for call in calls.into_values() {
            if let parlor_engine::AgentCall::Forwarded(_) = &call.call {
                self.answer_call(call, Err(gone().to_json()));
            }
        }
        let sessions = self.processes[process].sessions.values();
        let links = sessions.filter_map(|session| match &session.receiver {
            Receiver::Session(link) => Some(link.clone()),
            Receiver::Nobody | Receiver::Intake { .. } => None,
        });
        let links: Vec<_> = links.collect();
        self.processes[process].kill();
        for link in links {
            self.ledger.agent_lost(&link.session);
            let gone = Event::Agent(link.epoch, AgentEvent::Gone(gone()));
            let _ = self.send_to(&link.session, link.incarnation, Message::Event(gone));
        }
    }
}

/// The line of an update of an agent's session.
pub(super) fn update_line(session: &str, update: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"{session}","update":{update}}}}}"#
    ) + "\n"
}

fn refused_settings() -> RefusedSettings {
    let error = RpcError::new(code::INTERNAL_ERROR, "the agent does not accept the mode");
    let setting = RefusedSetting { setting: Setting::Mode, value: Json::from("b"), is_gone: true };
    RefusedSettings { error, settings: vec![setting] }
}
