//! The task of a session, as the server has it: receives what is ready, has the machine handle it, stores the batch, releases
//! the output in order.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use parlor_engine::{
    AgentCall, AgentCommand, AgentEpoch, AgentEvent, AgentLink, AgentSessionEnd, CachedAgentInfo, ClientCall,
    ClientRequestId, EndCall, Event, Frame, OpenedAgent, Outgoing, Output, SessionEnd, SessionLookup,
    SessionMachine, Timer,
};
use parlor_json::{Json, Object};
use parlor_session::SessionId;
use parlor_session::session::{Answer, ClientId, PeerRequestId, PromptId};
use parlor_wire::{RequestId, RpcError, code};

use super::Invariant;
use super::agent::{AgentPrompt, AgentSessionKey, Home, Link, Receiver, ServerCall};
use super::client::{Following, Tag};
use super::jobs::{Job, Restored};
use super::subagents::{FollowChange, follow_changes};
use super::tokens::{tokens_in, tokens_of_event};
use super::world::World;

/// A session in memory.
pub(super) struct Shell {
    pub(super) machine: SessionMachine,
    /// Which of the tasks of this session it is.
    pub(super) incarnation: u64,
    pub(super) inbox: VecDeque<Message>,
    pub(super) pending: VecDeque<Message>,
    /// The output whose batch is being stored.
    pub(super) in_flight: Option<Output>,
    /// The last request of each client to be attached.
    attaches: BTreeMap<ClientId, u64>,
    /// How clients follow it because they are attached to its owner.
    following: BTreeMap<ClientId, Following>,
    /// The marks in the events that it comes of.
    tokens: Vec<u64>,
    /// Whether the machine has to be asked although nothing happened.
    pub(super) is_new: bool,
    /// The ids under which clients were sent requests.
    pub(super) requests: BTreeMap<(ClientId, ClientRequestId), u64>,
    /// The open requests, as the machine last reported them.
    pub(super) open_requests: Vec<PeerRequestId>,
    pub(super) ties: BTreeMap<AgentEpoch, AgentSessionKey>,
    pub(super) sent_prompts: BTreeMap<PromptId, u64>,
    pub(super) sent_calls: BTreeMap<(ClientId, u64), u64>,
    started: Duration,
    /// Whether the sessions of its subagents have ended because it is about to be deleted.
    pub(super) is_deleting: bool,
}

/// Something for a session.
pub(super) enum Message {
    /// A client calls it.
    Call(ClientId, ClientCall),
    Event(Event),
    /// The agent's session is restored, or cannot be.
    AgentReady(Result<Restored, RpcError>),
    /// A new session has its agent.
    Started(Restored, Option<Vec<String>>),
    /// The server answered a request of the agent.
    Served(AgentEpoch, u64),
}

/// A timer that runs.
pub(super) struct ArmedTimer {
    pub(super) at: Duration,
    pub(super) session: SessionId,
    pub(super) incarnation: u64,
    pub(super) timer: Timer,
}

impl Shell {
    pub(super) fn new(
        machine: SessionMachine,
        incarnation: u64,
        started: Duration,
        first: Vec<Message>,
    ) -> Self {
        Self {
            machine,
            incarnation,
            inbox: first.into(),
            pending: VecDeque::new(),
            in_flight: None,
            attaches: BTreeMap::new(),
            following: BTreeMap::new(),
            tokens: Vec::new(),
            is_new: true,
            requests: BTreeMap::new(),
            open_requests: Vec::new(),
            ties: BTreeMap::new(),
            sent_prompts: BTreeMap::new(),
            sent_calls: BTreeMap::new(),
            started,
            is_deleting: false,
        }
    }

    /// Where a frame for a client comes from.
    pub(super) fn tag_for(&self, client: ClientId) -> Tag {
        Tag {
            incarnation: self.incarnation,
            attach: self.attaches.get(&client).copied().unwrap_or_default(),
            following: self.following.get(&client).copied().unwrap_or_default(),
        }
    }

    /// Whether a client that followed the session of a subagent is sent the end of it.
    pub(super) fn is_leaving(&self, client: ClientId) -> bool {
        let leaves =
            |message: &Message| matches!(message, Message::Call(by, ClientCall::LeaveOwner) if *by == client);
        let is_over = self.following.get(&client).is_some_and(|following| following.is_over);
        self.pending.iter().chain(&self.inbox).any(leaves)
            || (is_over && self.machine.subscribers().any(|other| other == client))
    }

    /// Whether it has something to do.
    pub(super) fn is_ready(&self) -> bool {
        let has_work =
            self.is_new || !self.inbox.is_empty() || !self.pending.is_empty() || self.machine.has_pending();
        self.in_flight.is_none() && has_work
    }
}

impl World {
    /// Lets a session handle up to `most` messages.
    pub(super) fn run_session(&mut self, key: &SessionId, most: usize) {
        let Some(shell) = self.shells.get_mut(key).filter(|shell| shell.is_ready()) else { return };
        shell.is_new = false;
        let mut events = Vec::new();
        let mut taken = 0;
        while taken < most {
            let Some(shell) = self.shells.get_mut(key) else { return };
            // Only at the beginning of a batch it is known from which change on a client follows the session.
            let next = shell.pending.front().or_else(|| shell.inbox.front());
            let is_beginning = events.is_empty() && !shell.machine.has_pending();
            if !is_beginning && matches!(next, Some(Message::Call(_, ClientCall::FollowOwner(_)))) {
                break;
            }
            let Some(message) = shell.pending.pop_front().or_else(|| shell.inbox.pop_front()) else { break };
            taken += 1;
            self.add_events(key, message, &mut events);
        }
        self.handle(key, events);
    }

    fn handle(&mut self, key: &SessionId, events: Vec<Event>) {
        for event in &events {
            self.note(|| format!("  {key} < {}", shown(event)));
        }
        let stale = self.only_stale(key, &events);
        let expected_fork = self.expected_fork(key, &events);
        let room: BTreeMap<ClientId, bool> = self
            .connections
            .iter()
            .map(|(id, connection)| (*id, connection.bytes < self.plan.room))
            .collect();
        let has_room = |client: ClientId| room.get(&client).copied().unwrap_or(true);
        let Some(started) = self.shells.get(key).map(|shell| shell.started) else { return };
        let now = self.now_for(started);
        let Some(shell) = self.shells.get_mut(key) else { return };
        let seq = shell.machine.transcript().seq();
        let attach_of = |event: &Event| {
            let Event::Client { client, call: ClientCall::Attach { id, .. }, .. } = event else {
                return None;
            };
            Some((client.id, number(id)))
        };
        let attaches: Vec<_> = events.iter().map(attach_of).collect();
        shell.tokens = events.iter().flat_map(tokens_of_event).collect();
        let follows = follow_changes(&shell.machine, &events);
        let mut output = shell.machine.handle(events, now, &has_room);
        // What follows the deletion of the session in the batch is not handled.
        let is_deleted = matches!(shell.machine.end(), Some(SessionEnd::Deleted));
        let unhandled = if is_deleted { shell.machine.queues().pending_events } else { 0 };
        let handled = attaches.len().saturating_sub(unhandled);
        shell.attaches.extend(attaches.into_iter().take(handled).flatten());
        for (client, change) in follows {
            let following = shell.following.entry(client).or_default();
            following.changes += 1;
            following.is_over = change == FollowChange::Ends;
            following.floor = match change {
                FollowChange::Begins { from_start } => {
                    if from_start {
                        0
                    } else {
                        seq
                    }
                }
                FollowChange::BeginsLater | FollowChange::Ends => u64::MAX,
            };
        }
        let incarnation = shell.incarnation;
        if stale {
            self.count("stale events alone");
            self.check_nothing_changed(key, seq, &output);
        }
        if let Some(expected) = expected_fork {
            self.check_expected_fork(key, &expected, &output);
        }
        self.check_queues(key);
        let machine = self.shells.get(key).map(|shell| &shell.machine);
        let deletes = |machine: &SessionMachine| {
            matches!(machine.end(), Some(SessionEnd::Deleted)) && !machine.is_owned()
        };
        if machine.is_some_and(deletes) {
            self.end_subagents(key);
        }
        let batch = std::mem::take(&mut output.batch);
        let Some(shell) = self.shells.get_mut(key) else { return };
        shell.in_flight = Some(output);
        if batch.writes.is_empty() {
            self.batch_done(key, Ok(()));
        } else {
            self.note(|| {
                format!(
                    "  {key} stores {} writes{}",
                    batch.writes.len(),
                    if batch.durable { ", durable" } else { "" }
                )
            });
            self.disk.submit(incarnation, batch);
            // Subagents have ended by now, and must still be there if the deletion fails.
            if is_deleted && self.plan.faults.store && self.random.percent(20) {
                self.fail_write();
            }
        }
    }

    /// The batch of a session is stored, or could not be.
    pub(super) fn batch_done(&mut self, key: &SessionId, result: Result<(), &str>) {
        let Some(shell) = self.shells.get_mut(key) else { return };
        let Some(mut output) = shell.in_flight.take() else { return };
        match result {
            Ok(()) => {
                *self.counts.entry("batches").or_default() += 1;
                self.tokens.handled(&std::mem::take(&mut shell.tokens));
                shell.machine.on_stored(output.seq);
            }
            Err(reason) => {
                *self.counts.entry("batches that failed").or_default() += 1;
                output = shell.machine.on_store_failed(output, reason);
            }
        }
        if result.is_ok() {
            self.check_stored_state(key);
        }
        self.release(key, output);
        let has_ended = self.shells.get(key).is_some_and(|shell| shell.machine.end().is_some());
        if has_ended && !self.is_called_again(key) {
            self.leave(key);
        }
    }

    fn is_called_again(&mut self, key: &SessionId) -> bool {
        let Some(shell) = self.shells.get_mut(key) else { return false };
        if !matches!(shell.machine.end(), Some(SessionEnd::Unused)) {
            return false;
        }
        let is_called = shell.machine.has_pending() || !shell.pending.is_empty() || !shell.inbox.is_empty();
        if is_called {
            shell.machine.stay();
        }
        is_called
    }

    /// The session is not live any more.
    fn leave(&mut self, key: &SessionId) {
        let Some(shell) = self.shells.get(key) else { return };
        let end = shell.machine.end().cloned();
        self.count(match &end {
            Some(SessionEnd::Deleted) => "sessions deleted",
            Some(SessionEnd::Failed(_)) => "sessions failed",
            Some(SessionEnd::Unused) => "sessions evicted",
            Some(SessionEnd::Stopped) | None => "sessions stopped",
        });
        self.note(|| format!("  {key} ends: {end:?}"));
        let mut rest = Vec::new();
        if matches!(end, Some(SessionEnd::Deleted | SessionEnd::Failed(_)) | None) {
            while let Some(shell) = self.shells.get_mut(key)
                && let Some(message) = shell.pending.pop_front().or_else(|| shell.inbox.pop_front())
            {
                self.add_events(key, message, &mut rest);
            }
        }
        let Some(shell) = self.shells.get_mut(key) else { return };
        let output = shell.machine.finish(rest);
        match &end {
            Some(SessionEnd::Deleted) => self.ledger.session_ended(key, "the session was deleted"),
            Some(SessionEnd::Failed(_)) => self.ledger.session_ended(key, "the session could not be stored"),
            Some(SessionEnd::Unused | SessionEnd::Stopped) | None => {}
        }
        self.release(key, output);
        self.unbind_subagents(key);
        let Some(shell) = self.shells.remove(key) else { return };
        let agent_session_end = shell.machine.agent_session_end();
        let epoch = shell.machine.agent().map(|link| link.epoch);
        for (tied, place) in shell.ties {
            match agent_session_end {
                AgentSessionEnd::Keep => {}
                AgentSessionEnd::Discard => self.discard_agent_session(&place),
                AgentSessionEnd::Release if Some(tied) == epoch => {
                    self.release_agent_session(key, &place, tied);
                }
                AgentSessionEnd::Release | AgentSessionEnd::Unbind => self.unlink(&place, tied),
            }
        }
    }

    /// Adds what a message means to the machine.
    fn add_events(&mut self, key: &SessionId, message: Message, events: &mut Vec<Event>) {
        match message {
            Message::Call(client, mut call) => {
                if let ClientCall::Fork(request) = &mut call {
                    request.known_agent = self.known_agent(key);
                }
                let is_connected = self.is_connected(client);
                let Some(info) = self.ledger.client(client) else { return };
                events.push(Event::Client { client: info, is_connected, call });
            }
            Message::Event(event) => {
                let Some(shell) = self.shells.get_mut(key) else { return };
                if let Event::Disconnected(client) = &event {
                    shell.requests.retain(|(by, _), _| by != client);
                } else if let Event::Answered { request, by, .. } = &event {
                    shell.requests.remove(&(*by, *request));
                } else if let Event::Agent(epoch, AgentEvent::Response(call, _)) = &event
                    && shell.ties.contains_key(epoch)
                {
                    match call {
                        AgentCall::Prompt(prompt) | AgentCall::Steer(prompt) => {
                            shell.sent_prompts.remove(prompt);
                        }
                        AgentCall::Forwarded(call) => {
                            shell.sent_calls.remove(&(call.client, number(&call.id)));
                        }
                        AgentCall::SetTitle => {}
                    }
                }
                events.push(event);
            }
            Message::AgentReady(Err(error)) => {
                self.ledger.session_ended(key, "the agent could not be started");
                events.push(Event::AgentReady(Err(error)));
            }
            Message::AgentReady(Ok(restored)) => {
                if restored.refused.is_some() {
                    self.ledger.session_ended(key, "the agent did not accept the settings");
                }
                let (epoch, is_alive) = (restored.epoch, self.processes[restored.place.process].is_alive);
                let opened = self.bind(key, restored);
                events.push(Event::AgentReady(Ok(Box::new(opened))));
                if !is_alive {
                    self.ledger.agent_lost(key);
                    events.push(Event::Agent(epoch, AgentEvent::Gone(gone())));
                }
            }
            Message::Started(restored, replay) => {
                let (epoch, is_alive) = (restored.epoch, self.processes[restored.place.process].is_alive);
                let agent = Box::new(self.bind(key, restored));
                events.push(Event::Started { agent, replay });
                if !is_alive {
                    events.push(Event::Agent(epoch, AgentEvent::Gone(gone())));
                }
            }
            Message::Served(epoch, id) => {
                let place = self.shells.get(key).and_then(|shell| shell.ties.get(&epoch)).cloned();
                if let Some(place) = place {
                    self.agent_answered(&place, id, "served");
                }
            }
        }
    }

    /// The session gets its agent, with what the agent said before.
    fn bind(&mut self, key: &SessionId, restored: Restored) -> OpenedAgent {
        let Restored { place, epoch, without_history, lost, result, settings, refused } = restored;
        self.count(if without_history { "agents bound without history" } else { "agents bound" });
        let incarnation = self.shells.get(key).map_or(0, |shell| shell.incarnation);
        let process = &mut self.processes[place.process];
        let mut early = Vec::new();
        if let Some(session) = process.sessions.get_mut(&place.session)
            && let Receiver::Intake { epoch: taken, early: collected } = &mut session.receiver
            && *taken == epoch
        {
            early = std::mem::take(collected);
            session.receiver = Receiver::Session(Link { session: key.clone(), incarnation, epoch });
        }
        let link = AgentLink {
            epoch,
            agent: process.info.clone(),
            session: SessionId::from(place.session.as_str()),
            sessions: SessionLookup::new(|_| None),
        };
        if let Some(shell) = self.shells.get_mut(key) {
            shell.ties.insert(epoch, place);
        }
        OpenedAgent { link, without_history, lost, result, settings, refused, early }
    }

    /// What is known of the agent of a session while it does not run.
    fn known_agent(&self, key: &SessionId) -> Option<CachedAgentInfo> {
        let kind = self.kind_of(key)?;
        let plan = &self.plan.agents[kind];
        Some(CachedAgentInfo { dialect: plan.dialect, initialize: plan.initialize() })
    }

    /// The configuration of the agent of a session.
    pub(super) fn kind_of(&self, key: &SessionId) -> Option<usize> {
        let name = &self.shells.get(key)?.machine.row().agent;
        name.strip_prefix("agent")?.parse().ok()
    }

    /// Releases an output in order.
    fn release(&mut self, key: &SessionId, output: Output) {
        if let (Some(open), Some(shell)) = (&output.open_requests, self.shells.get_mut(key)) {
            shell.open_requests = open.iter().map(|open| open.request).collect();
        }
        for delivery in output.sends {
            self.deliver(key, delivery.to, delivery.what);
        }
        for start in output.forks {
            self.start_fork(key, start);
        }
        for (epoch, command) in output.agent {
            self.run_command(key, epoch, command);
        }
        self.run_subagents(key, output.subagents);
        let incarnation = self.shells.get(key).map_or(0, |shell| shell.incarnation);
        for (wait, timer) in output.timers {
            let at = self.now + wait;
            self.timers.push(ArmedTimer { at, session: key.clone(), incarnation, timer });
        }
    }

    fn deliver(&mut self, key: &SessionId, to: ClientId, what: Outgoing) {
        if !self.is_connected(to) {
            return;
        }
        let Some(shell) = self.shells.get(key) else { return };
        let (incarnation, tag) = (shell.incarnation, shell.tag_for(to));
        match what {
            Outgoing::Frame(frame) => self.push(to, frame, tag),
            Outgoing::Request { request, method, params } => {
                let id = self.ask_client(key, incarnation, to, request, &method, &params);
                if let Some(shell) = self.shells.get_mut(key) {
                    match id {
                        Some(id) => drop(shell.requests.insert((to, request), id)),
                        None => {
                            let answer = Answer::Error(parlor_engine::cannot_ask());
                            let answered = Event::Answered { request, by: to, answer };
                            shell.pending.push_back(Message::Event(answered));
                        }
                    }
                }
            }
            Outgoing::CancelRequest(request) => {
                let id = self.shells.get_mut(key).and_then(|shell| shell.requests.remove(&(to, request)));
                if let Some(id) = id {
                    self.push(to, Frame::cancel(&RequestId::from(id)), tag);
                }
            }
            Outgoing::AwaitDrain => {
                self.count("clients that fell behind");
                if let Some(connection) = self.connections.get_mut(&to) {
                    connection.drains.push((key.clone(), incarnation));
                }
            }
            Outgoing::Disconnect => {
                self.count("clients cut off");
                self.disconnect(to);
            }
        }
    }

    fn run_command(&mut self, key: &SessionId, epoch: AgentEpoch, command: AgentCommand) {
        let Some(shell) = self.shells.get_mut(key) else { return };
        let incarnation = shell.incarnation;
        if matches!(command, AgentCommand::Start) {
            self.note(|| format!("  {key} starts its agent"));
            self.jobs.push(Job::Restore { session: key.clone(), incarnation });
            return;
        }
        let Some(place) = shell.ties.get(&epoch).cloned() else { return };
        let link = Link { session: key.clone(), incarnation, epoch };
        match command {
            AgentCommand::Call { call, method, params } => {
                self.call_agent(&place, link, call, &method, &params);
            }
            AgentCommand::CancelPrompt(prompt) => {
                let id = shell.sent_prompts.get(&prompt).copied();
                self.cancel_call(&place, id);
            }
            AgentCommand::CancelForwarded(client, id) => {
                let id = shell.sent_calls.get(&(client, number(&id))).copied();
                self.cancel_call(&place, id);
            }
            AgentCommand::Notify { method, .. } => {
                self.note(|| format!("  {key} notifies the agent: {method}"));
                let session = self.processes[place.process].sessions.get_mut(&place.session);
                if let Some(session) = session.filter(|_| method == "session/cancel") {
                    session.is_cancelled = true;
                    let prompts = session.prompts.iter_mut().chain(&mut session.steers);
                    prompts.for_each(|prompt| prompt.was_cancelled = true);
                }
            }
            AgentCommand::Respond { id, reply } => {
                let said = match &reply {
                    Ok(result) => result.as_str().to_owned(),
                    Err(error) => error.as_str().to_owned(),
                };
                self.agent_answered(&place, number(&id), &said);
            }
            AgentCommand::ServeFile { id, .. } | AgentCommand::ServeTerminal { id, .. } => {
                self.jobs.push(Job::Serve { link, id: number(&id) });
            }
            AgentCommand::CheckFile { id, method, params } => {
                self.jobs.push(Job::CheckFile { link, id: number(&id), method, params });
            }
            AgentCommand::KillTerminal { .. } | AgentCommand::AddClient(_) | AgentCommand::Start => {}
            AgentCommand::Retire => {
                self.note(|| format!("  {key} retires its agent"));
                self.count("agents retired");
                self.processes[place.process].is_retired = true;
                self.ledger.agent_lost(key);
            }
            AgentCommand::Release => {
                self.forget_calls(key);
                if let Some(shell) = self.shells.get_mut(key) {
                    shell.ties.remove(&epoch);
                }
                self.release_agent_session(key, &place, epoch);
            }
            AgentCommand::DropSession => {
                self.forget_calls(key);
                if let Some(shell) = self.shells.get_mut(key) {
                    shell.ties.remove(&epoch);
                }
                self.unlink(&place, epoch);
            }
        }
    }

    fn forget_calls(&mut self, key: &SessionId) {
        if let Some(shell) = self.shells.get_mut(key) {
            shell.sent_prompts.clear();
            shell.sent_calls.clear();
        }
    }

    fn call_agent(
        &mut self,
        place: &AgentSessionKey,
        link: Link,
        call: AgentCall,
        method: &str,
        params: &Object,
    ) {
        let text = params.to_json();
        self.check_agent_was_sent_stored(&link.session, text.as_str());
        self.note(|| format!("  {} > agent {}: {method} {}", link.session, place.session, text.as_str()));
        let process = &mut self.processes[place.process];
        if !process.is_alive {
            self.ledger.excuse(tokens_in(text.as_str()).last(), "the agent was gone");
            let answered = Event::Agent(link.epoch, AgentEvent::Response(call, Err(error("it is gone"))));
            if let Some(shell) = self.shells.get_mut(&link.session) {
                shell.pending.push_back(Message::Event(answered));
            }
            return;
        }
        process.next_call += 1;
        let id = process.next_call;
        if let AgentCall::Prompt(prompt) | AgentCall::Steer(prompt) = &call {
            let blocks = params.get("prompt").map(Json::as_str).unwrap_or_default();
            let prompt_of = |content: String| AgentPrompt {
                call: id,
                token: tokens_in(&content).last(),
                content,
                is_accepted: false,
                is_started: false,
                was_cancelled: false,
                message: None,
            };
            let prompt_at_agent = prompt_of(last_block(blocks));
            if let Some(session) = process.sessions.get_mut(&place.session) {
                let is_steer = matches!(call, AgentCall::Steer(_));
                let prompts = if is_steer { &mut session.steers } else { &mut session.prompts };
                prompts.push(prompt_at_agent);
            }
            if let Some(shell) = self.shells.get_mut(&link.session) {
                shell.sent_prompts.insert(*prompt, id);
            }
        } else if let AgentCall::Forwarded(forwarded) = &call
            && let Some(shell) = self.shells.get_mut(&link.session)
        {
            shell.sent_calls.insert((forwarded.client, number(&forwarded.id)), id);
        }
        let call = ServerCall { session: place.session.clone(), link, call, is_cancelled: false };
        self.processes[place.process].calls.insert(id, call);
    }

    fn cancel_call(&mut self, place: &AgentSessionKey, id: Option<u64>) {
        self.note(|| format!("  agent {} < cancel request {id:?}", place.session));
        let calls = &mut self.processes[place.process].calls;
        if let Some(call) = id.and_then(|id| calls.get_mut(&id)) {
            call.is_cancelled = true;
        }
    }

    /// A request of the agent got an answer.
    fn agent_answered(&mut self, place: &AgentSessionKey, id: u64, answer: &str) {
        self.note(|| format!("  agent {} < answer to {id}: {answer}", place.session));
        let session = self.processes[place.process].sessions.get_mut(&place.session);
        let Some(request) = session.and_then(|session| session.requests.get_mut(&id)) else {
            return self.fail(
                Invariant::PeerRequests,
                format!(
                    "agent session {} got an answer to request {id}, which it did not make",
                    place.session
                ),
            );
        };
        request.answers += 1;
        let is_second = request.answers > 1;
        *self.counts.entry("peer requests answered").or_default() += 1;
        if is_second {
            let method = request.method.clone();
            self.fail(
                Invariant::PeerRequests,
                format!("agent session {} got two answers to request {id} ({method})", place.session),
            );
        }
    }

    /// A session lets go of its agent's session, which may still be spoken of.
    pub(super) fn release_agent_session(
        &mut self,
        key: &SessionId,
        place: &AgentSessionKey,
        epoch: AgentEpoch,
    ) {
        let process = &mut self.processes[place.process];
        let closes = process.info.end_call(AgentSessionEnd::Release) == Some(EndCall::Close);
        let Some(session) = process.sessions.get_mut(&place.session) else { return };
        if session.epoch() != Some(epoch) || matches!(session.receiver, Receiver::Nobody) {
            return;
        }
        self.note(|| format!("  {key} releases agent session {}", place.session));
        let session = self.processes[place.process].sessions.get_mut(&place.session);
        let Some(session) = session else { return };
        session.receiver = Receiver::Nobody;
        session.requests.values_mut().for_each(|request| request.is_excused = true);
        session.home = Some(Home { session: key.clone(), epoch, is_open: !closes });
        if closes {
            session.close();
            self.drop_prompt_calls(place);
        }
        self.end_if_retired(place.process);
    }

    /// A session has no use for its agent's session any more.
    pub(super) fn unlink(&mut self, place: &AgentSessionKey, epoch: AgentEpoch) {
        let process = &mut self.processes[place.process];
        let Some(session) = process.sessions.get_mut(&place.session) else { return };
        if session.epoch() != Some(epoch) || matches!(session.receiver, Receiver::Nobody) {
            return;
        }
        session.receiver = Receiver::Nobody;
        session.requests.values_mut().for_each(|request| request.is_excused = true);
        self.end_if_retired(place.process);
    }

    /// The session of an agent is deleted with ours.
    pub(super) fn discard_agent_session(&mut self, place: &AgentSessionKey) {
        if let Some(session) = self.processes[place.process].sessions.get_mut(&place.session) {
            session.end();
        }
        self.drop_prompt_calls(place);
        self.end_if_retired(place.process);
    }

    /// An agent that closed a session answers no prompt of it any more.
    fn drop_prompt_calls(&mut self, place: &AgentSessionKey) {
        let calls = &mut self.processes[place.process].calls;
        calls.retain(|_, call| call.session != place.session || !call.is_prompt());
    }

    fn end_if_retired(&mut self, process: usize) {
        if self.processes[process].is_retired && !self.processes[process].is_used() {
            self.end_process(process);
        }
    }
}

/// The error of an agent that is gone.
pub(super) fn gone() -> RpcError {
    RpcError::new(code::INTERNAL_ERROR, "the agent ended")
}

/// An error object.
pub(super) fn error(message: &str) -> Json {
    RpcError::new(code::INTERNAL_ERROR, message).to_json()
}

/// The number that an id is.
pub(super) fn number(id: &RequestId) -> u64 {
    id.as_u64().unwrap_or(u64::MAX)
}

/// The last block of a prompt: what comes before it may be context.
fn last_block(blocks: &str) -> String {
    let list = Json::parse(blocks).ok();
    let list = list.as_ref().and_then(Json::elements).unwrap_or_default();
    list.last().map(|block| block.as_str().to_owned()).unwrap_or_default()
}

/// An event for the trace.
fn shown(event: &Event) -> String {
    if let Event::Client { client, call, .. } = event {
        return format!("client {}: {call:?}", client.id.0);
    }
    if let Event::AgentReady(Ok(opened)) = event {
        let OpenedAgent { link, without_history, early, .. } = &**opened;
        let (epoch, session) = (link.epoch, &link.session);
        return format!(
            "agent ready: {epoch:?} as {session}, without history: {without_history}, early: {early:?}"
        );
    }
    if let Event::Started { agent, replay } = event {
        return format!("started: {:?} as {}, replay: {replay:?}", agent.link.epoch, agent.link.session);
    }
    format!("{event:?}")
}
