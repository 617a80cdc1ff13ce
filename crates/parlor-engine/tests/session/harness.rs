//! A session with clients and an agent whose part the test plays.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parlor_dialect::Dialect;
use parlor_dialect::settings::Settings;
use parlor_engine::rows::{SessionRow, Write};
use parlor_engine::stored::{ALIASES, OPENED, SIDE_STATE, SUBAGENTS, StoredSession};
use parlor_engine::{
    AgentCall, AgentCommand, AgentEpoch, AgentEvent, AgentInfo, AgentLink, CachedAgentInfo, ClientCall,
    ClientInfo, ClientRequestId, Event, Follow, ForkKind, ForkRequest, ForkStart, HandoffAgent, IdGen, Now,
    OpenRequest, OpenedAgent, Outgoing, Output, QueueLimits, ReplayFrom, SessionConfig, SessionData,
    SessionEnd, SessionLookup, SessionMachine, SessionSummary, SubagentCommand, SubagentInfo, SubagentOutput,
    Timer,
};
use parlor_json::{Json, Object};
use parlor_session::session::{Answer, ClientId, PromptId};
use parlor_session::{Transcript, UnixMillis};
use parlor_wire::{RequestId, RpcError, code};

/// One session, driven as a server does it.
pub(crate) struct Script {
    pub(crate) machine: SessionMachine,
    clients: BTreeMap<u64, Arc<ClientInfo>>,
    sent: BTreeMap<u64, Vec<String>>,
    commands: Vec<String>,
    /// The prompts that the agent has, by the order in which it was sent them.
    pub(crate) prompts: Vec<PromptId>,
    pub(crate) peer_requests: Vec<(u64, ClientRequestId)>,
    pub(crate) forks: Vec<ForkStart>,
    pub(crate) timers: Vec<(Duration, Timer)>,
    subagents: Vec<String>,
    /// The rows of other sessions that were written with those of this one.
    pub(crate) other_rows: Vec<SessionRow>,
    /// Whether the last batch was to be synced before it was released.
    pub(crate) is_durable: bool,
    /// The sessions that were deleted, and the keys of the values that were written.
    pub(crate) deleted: Vec<String>,
    /// The open requests, as they were last reported.
    pub(crate) open_requests: Vec<OpenRequest>,
    full: BTreeSet<u64>,
    now: Duration,
    /// The time of day, in milliseconds since 1970.
    pub(crate) wall: i64,
    rows: Rows,
    /// Whether the store refuses the next batch.
    pub(crate) fails_next: bool,
    dialect: Dialect,
    /// The agent's response to `initialize`.
    initialize: String,
    pub(crate) epoch: AgentEpoch,
}

/// The rows of one session, as a store keeps them.
#[derive(Default)]
struct Rows {
    session: Option<SessionRow>,
    entries: BTreeMap<u64, (u64, String, String)>,
    slots: BTreeMap<String, (u64, String)>,
}

impl Rows {
    fn apply(&mut self, writes: &[Write]) {
        for write in writes {
            match write {
                Write::Session(row) if self.session.as_ref().is_none_or(|own| own.id == row.id) => {
                    self.session = Some(row.clone());
                }
                Write::Entry { session, created, seq, head, content } if self.is_own(session) => {
                    let entry = self.entries.entry(*created).or_default();
                    (entry.0, entry.1) = (*seq, head.clone());
                    if let Some(content) = content {
                        entry.2.clone_from(content);
                    }
                }
                Write::Append { session, created, seq, content } if self.is_own(session) => {
                    let entry = self.entries.get_mut(created).expect("an entry grows that is there");
                    entry.0 = *seq;
                    entry.2.push_str(content);
                }
                Write::Slot { session, name, seq, body } if self.is_own(session) => {
                    match body {
                        Some(body) => self.slots.insert(name.clone(), (*seq, body.clone())),
                        None => self.slots.remove(name),
                    };
                }
                // Rows of forks, the search index and values are not looked at here.
                Write::Session(_)
                | Write::Slot { .. }
                | Write::Entry { .. }
                | Write::Append { .. }
                | Write::Copy { .. }
                | Write::Index { .. }
                | Write::Indexed { .. }
                | Write::Delete { .. }
                | Write::Value { .. } => {}
            }
        }
    }

    fn is_own(&self, session: &str) -> bool {
        self.session.as_ref().is_some_and(|row| row.id == session)
    }

    fn open(&self) -> StoredSession {
        let mut transcript = Transcript::default();
        for (created, (seq, head, content)) in &self.entries {
            transcript.restore_entry(*created, *seq, head, content, 0).unwrap();
        }
        let object = |name: &str| {
            let body = Json::parse(self.slots.get(name)?.1.clone()).ok()?;
            Some(body.to_object().unwrap_or_default())
        };
        for (name, (seq, body)) in &self.slots {
            if ![SIDE_STATE, ALIASES, OPENED, SUBAGENTS].contains(&name.as_str()) {
                transcript.restore_slot(name, *seq, body).unwrap();
            }
        }
        StoredSession {
            row: self.session.clone().expect("the session is stored"),
            transcript,
            side_state: object(SIDE_STATE),
            aliases: self.slots.get(ALIASES).map(|(_, body)| body.clone()),
            opened: object(OPENED),
            subagents: object(SUBAGENTS),
        }
    }
}

impl Script {
    /// A new session whose agent speaks this dialect.
    pub(crate) fn new(dialect: Dialect) -> Self {
        Self::with_agent(dialect, r#"{"capabilities":{"session":{"fork":{}}}}"#)
    }

    /// A new session whose agent speaks this dialect and has this response to `initialize`.
    pub(crate) fn with_agent(dialect: Dialect, initialize: &str) -> Self {
        Self::with_owner(dialect, initialize, None)
    }

    /// The session of a subagent, whose agent speaks this dialect.
    pub(crate) fn of_subagent(dialect: Dialect) -> Self {
        Self::with_owner(dialect, "{}", Some(r#""owner""#.to_owned()))
    }

    fn with_owner(dialect: Dialect, initialize: &str, owner: Option<String>) -> Self {
        let row = SessionRow {
            id: r#""s""#.to_owned(),
            agent: "agent".to_owned(),
            agent_session: None,
            cwd: "/work".to_owned(),
            title: None,
            parent: None,
            owner,
            created_at: 1,
            active_at: 1,
            archived: false,
            busy: false,
            data: "{}".to_owned(),
        };
        let transcript = Transcript::default();
        let stored =
            StoredSession { row, transcript, side_state: None, aliases: None, opened: None, subagents: None };
        let mut script = Self {
            machine: machine(stored, 0),
            clients: BTreeMap::new(),
            sent: BTreeMap::new(),
            commands: Vec::new(),
            prompts: Vec::new(),
            peer_requests: Vec::new(),
            forks: Vec::new(),
            timers: Vec::new(),
            subagents: Vec::new(),
            other_rows: Vec::new(),
            is_durable: false,
            deleted: Vec::new(),
            open_requests: Vec::new(),
            full: BTreeSet::new(),
            now: Duration::ZERO,
            wall: 1_000_000,
            rows: Rows::default(),
            fails_next: false,
            dialect,
            initialize: initialize.to_owned(),
            epoch: AgentEpoch(1),
        };
        let agent = Box::new(script.opened_agent(false));
        script.handle([Event::Started { agent, replay: None }]);
        script.commands.clear();
        script
    }

    /// An agent session, as it is when it was opened.
    pub(crate) fn opened_agent(&self, without_history: bool) -> OpenedAgent {
        let initialize = Json::parse(self.initialize.clone()).unwrap().to_object().unwrap_or_default();
        let agent = AgentInfo {
            name: "agent".to_owned(),
            label: "agent".to_owned(),
            dialect: self.dialect,
            initialize,
            is_embedded: false,
        };
        let link = AgentLink {
            epoch: self.epoch,
            agent: Arc::new(agent),
            session: "theirs".into(),
            sessions: SessionLookup::new(|_| None),
        };
        OpenedAgent {
            link,
            without_history,
            lost: None,
            result: Object::default(),
            settings: Settings::default(),
            refused: None,
            early: Vec::new(),
        }
    }

    /// Lets the session handle events until it has nothing more to do by itself.
    pub(crate) fn handle(&mut self, events: impl IntoIterator<Item = Event>) {
        let mut events: Vec<_> = events.into_iter().collect();
        loop {
            let now = Now { monotonic: self.now, wall: UnixMillis(self.wall) };
            let full = self.full.clone();
            let mut output = self.machine.handle(events.drain(..), now, &|client| !full.contains(&client.0));
            if std::mem::take(&mut self.fails_next) && !output.batch.writes.is_empty() {
                output = self.machine.on_store_failed(output, "the disk is full");
            } else {
                self.rows.apply(&output.batch.writes);
                self.is_durable = output.batch.durable;
                let own = self.machine.row().id.clone();
                let rows = output.batch.writes.iter().filter_map(|write| {
                    let Write::Session(row) = write else { return None };
                    Some(row).filter(|row| row.id != own)
                });
                self.other_rows.extend(rows.cloned());
                for write in &output.batch.writes {
                    if let Write::Delete { session: name } | Write::Value { key: name, .. } = write {
                        self.deleted.push(name.clone());
                    }
                }
                self.machine.on_stored(output.seq);
            }
            self.release(output);
            if !self.machine.has_pending() || self.machine.end().is_some() {
                return;
            }
        }
    }

    fn release(&mut self, output: Output) {
        for delivery in output.sends {
            let to = delivery.to.0;
            let lines = self.sent.entry(to).or_default();
            match delivery.what {
                Outgoing::Frame(frame) => {
                    let text = String::from_utf8(frame.bytes().to_vec()).unwrap();
                    lines.extend(text.lines().map(short));
                }
                Outgoing::Request { request, method, params } => {
                    self.peer_requests.push((to, request));
                    lines.push(format!("request {method} {}", params.to_json().as_str()));
                }
                Outgoing::CancelRequest(request) => lines.push(format!("cancel {}", request.peer_request.0)),
                Outgoing::AwaitDrain => lines.push("await drain".to_owned()),
                Outgoing::Disconnect => lines.push("disconnect".to_owned()),
            }
        }
        for (epoch, command) in output.agent {
            let text = match command {
                AgentCommand::Call { call, method, params } => {
                    if let AgentCall::Prompt(prompt) = call {
                        self.prompts.push(prompt);
                    }
                    format!("{method} {}", params.to_json().as_str())
                }
                AgentCommand::Notify { method, .. } => method,
                AgentCommand::Respond { reply: Ok(result), .. } => format!("respond {}", result.as_str()),
                AgentCommand::Respond { reply: Err(error), .. } => format!("error {}", error.as_str()),
                AgentCommand::AddClient(_) => continue,
                other @ (AgentCommand::Start
                | AgentCommand::CancelPrompt(_)
                | AgentCommand::CancelForwarded(..)
                | AgentCommand::ServeFile { .. }
                | AgentCommand::CheckFile { .. }
                | AgentCommand::ServeTerminal { .. }
                | AgentCommand::KillTerminal { .. }
                | AgentCommand::Retire
                | AgentCommand::Release
                | AgentCommand::DropSession) => format!("{other:?}"),
            };
            self.commands.push(format!("{}: {text}", epoch.0));
        }
        if let Some(open) = output.open_requests {
            self.open_requests = open;
        }
        self.timers.extend(output.timers);
        self.subagents.extend(output.subagents.into_iter().map(|one| describe(&one)));
        self.forks.extend(output.forks);
    }

    /// A client that attaches to the session, with a replay from the start.
    pub(crate) fn attach(&mut self, client: u64, dialect: Dialect) {
        self.attach_with(client, dialect, r"{}", ReplayFrom::Start);
        self.sent.remove(&client);
    }

    /// A client that attaches with these params of `initialize`.
    pub(crate) fn attach_with(&mut self, client: u64, dialect: Dialect, initialize: &str, from: ReplayFrom) {
        self.connect(client, dialect, initialize);
        self.call(client, attach(0, from));
    }

    /// A client that is connected and not attached.
    pub(crate) fn connect(&mut self, client: u64, dialect: Dialect, initialize: &str) {
        let initialize = Json::parse(initialize).unwrap().to_object().unwrap_or_default();
        let info = ClientInfo::new(ClientId(client), dialect, initialize, true, true);
        self.clients.insert(client, Arc::new(info));
    }

    /// A call of a client.
    pub(crate) fn call(&mut self, client: u64, call: ClientCall) {
        let event = self.client_event(client, call);
        self.handle([event]);
    }

    pub(crate) fn client_event(&self, client: u64, call: ClientCall) -> Event {
        Event::Client { client: Arc::clone(&self.clients[&client]), is_connected: true, call }
    }

    /// A prompt of a client.
    pub(crate) fn prompt(&mut self, client: u64, id: u64, text: &str) {
        self.call(client, prompt(id, text));
    }

    /// A fork that a client asks for.
    pub(crate) fn fork(&mut self, client: u64, id: u64, kind: ForkKind, params: &str) {
        let params = Json::parse(params).unwrap().to_object().unwrap_or_default();
        let request = ForkRequest { id: RequestId::from(id), params, kind, known_agent: None, handoff: None };
        self.call(client, ClientCall::Fork(Box::new(request)));
    }

    /// A fork at the end, while no agent is there and it is known what it said in `initialize`.
    pub(crate) fn fork_of_known_agent(&mut self, client: u64, id: u64, initialize: &str) {
        let initialize = Json::parse(initialize).unwrap().to_object().unwrap_or_default();
        let known_agent = Some(CachedAgentInfo { dialect: self.dialect, initialize });
        let (id, params) = (RequestId::from(id), Object::default());
        let request = ForkRequest { id, params, kind: ForkKind::Fork, known_agent, handoff: None };
        self.call(client, ClientCall::Fork(Box::new(request)));
    }

    /// A fork that another agent is to continue.
    pub(crate) fn hand_over(&mut self, client: u64, id: u64, params: &str, agent: &str) {
        let params = Json::parse(params).unwrap().to_object().unwrap_or_default();
        let handoff = Some(HandoffAgent { name: agent.to_owned(), dialect: Some(Dialect::V1) });
        let (id, kind) = (RequestId::from(id), ForkKind::Fork);
        let request = ForkRequest { id, params, kind, known_agent: None, handoff };
        self.call(client, ClientCall::Fork(Box::new(request)));
    }

    /// Updates of the agent.
    pub(crate) fn says(&mut self, updates: &[&str]) {
        let epoch = self.epoch;
        self.handle([Event::Agent(epoch, updates_of(updates))]);
    }

    /// The agent's response to the prompt that it was sent as number `nth`.
    pub(crate) fn responds(&mut self, nth: usize, result: &str) {
        let call = AgentCall::Prompt(self.prompts[nth]);
        let response = AgentEvent::Response(call, Ok(Json::parse(result).unwrap()));
        self.handle([Event::Agent(self.epoch, response)]);
    }

    /// A request of the agent.
    pub(crate) fn asks(&mut self, id: u64, method: &str, params: &str) {
        let params = Json::parse(params).unwrap().to_object().unwrap_or_default();
        let request = AgentEvent::Request { id: RequestId::from(id), method: method.to_owned(), params };
        self.handle([Event::Agent(self.epoch, request)]);
    }

    /// A client answers the request that it was sent last.
    pub(crate) fn answers(&mut self, client: u64, result: &str) {
        let (_, request) = *self.peer_requests.iter().rfind(|(to, _)| *to == client).expect("it was asked");
        let answer = Answer::Result(Json::parse(result).unwrap());
        self.handle([Event::Answered { request, by: ClientId(client), answer }]);
    }

    /// The agent process ends.
    pub(crate) fn agent_ends(&mut self) {
        let error = RpcError::new(code::INTERNAL_ERROR, "agent 'agent' ended");
        self.handle([Event::Agent(self.epoch, AgentEvent::Gone(error))]);
    }

    /// The agent's session is restored in a new epoch.
    pub(crate) fn restores(&mut self, without_history: bool) {
        self.epoch = AgentEpoch(self.epoch.0 + 1);
        let agent = self.opened_agent(without_history);
        self.handle([Event::AgentReady(Ok(Box::new(agent)))]);
    }

    /// Whether a client's send queue is full from now on.
    pub(crate) fn set_full(&mut self, client: u64, is_full: bool) {
        if is_full {
            self.full.insert(client);
        } else {
            self.full.remove(&client);
            self.handle([Event::Drained(ClientId(client))]);
        }
    }

    /// The server was killed and opens the session again.
    pub(crate) fn reopen(&mut self) {
        self.machine = machine(self.rows.open(), 1 << 64);
        self.clients.clear();
        self.sent.clear();
        self.commands.clear();
        self.handle([]);
    }

    /// What a client was sent since it was last looked at.
    pub(crate) fn sent(&mut self, client: u64) -> Vec<String> {
        self.sent.remove(&client).unwrap_or_default()
    }

    /// What the agent was sent since it was last looked at, each with its epoch.
    pub(crate) fn commands(&mut self) -> Vec<String> {
        std::mem::take(&mut self.commands)
    }

    /// What is stored of the conversation, and what the session has.
    pub(crate) fn texts(&self) -> (Vec<String>, Vec<String>) {
        (texts(&self.rows.open().transcript), texts(self.machine.transcript()))
    }

    /// Checks that the store has what the session has, and returns it.
    pub(crate) fn stored_texts(&self) -> Vec<String> {
        let (stored, live) = self.texts();
        assert_eq!(stored, live);
        stored
    }

    /// The heads of the stored entries.
    pub(crate) fn stored_heads(&self) -> Vec<String> {
        self.rows.entries.values().map(|(_, head, _)| head.clone()).collect()
    }

    /// The stored row of the session.
    pub(crate) fn stored_row(&self) -> &SessionRow {
        self.rows.session.as_ref().expect("the session is stored")
    }

    /// What the store has for lists.
    pub(crate) fn stored_summary(&self) -> SessionSummary {
        SessionData::of(self.stored_row()).summary
    }

    /// What was done with the sessions of subagents since it was last looked at.
    pub(crate) fn subagents(&mut self) -> Vec<String> {
        std::mem::take(&mut self.subagents)
    }

    pub(crate) fn has_failed(&self) -> bool {
        matches!(self.machine.end(), Some(SessionEnd::Failed(_)))
    }
}

fn machine(stored: StoredSession, first_id: u128) -> SessionMachine {
    let config = SessionConfig {
        cancel_timeout: Some(Duration::from_secs(30)),
        is_embedded: false,
        limits: QueueLimits::default(),
    };
    let mut last = first_id;
    let ids = IdGen::new(move || {
        last += 1;
        last
    });
    let now = Now { monotonic: Duration::ZERO, wall: UnixMillis(1_000_000) };
    SessionMachine::new(stored, config, ids, now)
}

fn describe(output: &SubagentOutput) -> String {
    let session = output.session.to_string();
    let session = session.trim_start_matches(['0', '-']);
    match &output.command {
        SubagentCommand::Bind { epoch, agent_session, is_bound_again } => {
            let again = if *is_bound_again { " again" } else { "" };
            format!("{session}: bind {agent_session} of {}{again}", epoch.0)
        }
        SubagentCommand::Describe(info) => {
            let SubagentInfo { title, cwd, can_cancel, state } = &**info;
            let title = title.as_ref().map(|title| title.to_text().into_owned());
            let state = state.as_ref().map(Json::as_str);
            format!("{session}: {title:?} {cwd:?} can_cancel={can_cancel} {state:?}")
        }
        SubagentCommand::Follow { client, follow: Follow::Updates { from_start } } => {
            format!("{session}: client {} follows from_start={from_start}", client.0)
        }
        SubagentCommand::Follow { client, follow: Follow::Requests { shown_in } } => {
            format!("{session}: client {} is asked in {shown_in}", client.0)
        }
        SubagentCommand::Leave(client) => format!("{session}: client {} leaves", client.0),
        SubagentCommand::Unbind(error) => format!("{session}: unbind: {}", error.message()),
    }
}

/// A request to attach.
pub(crate) fn attach(id: u64, from: ReplayFrom) -> ClientCall {
    ClientCall::Attach { id: RequestId::from(id), from, cwd: None, members: Object::default() }
}

/// A prompt request.
pub(crate) fn prompt(id: u64, text: &str) -> ClientCall {
    let params = format!(r#"{{"sessionId":"s","prompt":[{{"type":"text","text":"{text}"}}]}}"#);
    ClientCall::Prompt {
        id: RequestId::from(id),
        params: Json::parse(params).unwrap().to_object().unwrap_or_default(),
    }
}

/// Updates as the agent writes them.
pub(crate) fn updates_of(updates: &[&str]) -> AgentEvent {
    let line = |update: &&str| {
        format!(
            "{{\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":{{\"sessionId\":\"theirs\",\"update\":{update}}}}}\n"
        )
    };
    AgentEvent::Updates(updates.iter().map(line).collect())
}

/// A chunk of an agent message.
pub(crate) fn chunk(id: &str, text: &str) -> String {
    format!(
        r#"{{"sessionUpdate":"agent_message_chunk","messageId":"{id}","content":{{"type":"text","text":"{text}"}}}}"#
    )
}

pub(crate) const RUNNING: &str = r#"{"sessionUpdate":"state_update","state":"running"}"#;
pub(crate) const IDLE: &str = r#"{"sessionUpdate":"state_update","state":"idle","stopReason":"end_turn"}"#;

/// A line in a form that is easy to read: `agent_message_chunk {...}` for an update, `7 -> {...}` for a response.
fn short(line: &str) -> String {
    let message = Json::parse(line).unwrap().to_object().unwrap_or_default();
    let tidy = |value: &Json| value.as_str().replace("00000000000000000000000000000", "#");
    let id = message.get("id").map(Json::as_str).unwrap_or_default();
    if let Some(result) = message.get("result") {
        return format!("{id} -> {}", tidy(result));
    }
    if let Some(error) = message.get("error") {
        return format!("{id} failed: {}", RpcError::from_raw(error.raw()).message());
    }
    let params = message.get_object("params").unwrap_or_default();
    let Some(mut update) = params.get_object("update") else { return tidy(&Json::parse(line).unwrap()) };
    let kind = update.get_string("sessionUpdate").unwrap_or_default();
    update.remove("sessionUpdate");
    let seq = params.get_nested("_meta", "parlor/seq").map(|seq| format!(" seq {}", seq.as_str()));
    format!("{kind} {}{}", tidy(&update.to_json()), seq.unwrap_or_default())
}

/// Lines as one text, for snapshots.
pub(crate) fn lines(lines: &[String]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn texts(transcript: &Transcript) -> Vec<String> {
    let text = |entry: &parlor_session::Entry| {
        let parts = entry.body().content.joined();
        let text: String =
            parts.iter().filter_map(|part| parlor_session::text_of(part.json)).map(Cow::into_owned).collect();
        format!("{:?}: {text}", entry.id())
    };
    transcript.entries().iter().map(text).collect()
}
