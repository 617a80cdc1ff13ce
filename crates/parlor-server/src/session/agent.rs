//! A session's agent: what it says, what it is told, how it is brought back.

use std::sync::Arc;
use std::time::Instant;

use parlor_dialect::live::{self, AgentUpdate, Spans, Stream};
use parlor_dialect::{Decoded, Decoder, Dialect, Losses};
use parlor_json::{Json, JsonStr, Object};
use parlor_session::session::{Effect, Input, Prompt, Reply, Step, TurnTaking};
use parlor_session::{Entry, EntryId, Role, SessionId, Slot, Target, Update, Upsert};
use parlor_wire::{Outcome, RequestId, RpcError, code};

use super::chosen::Chosen;
use super::tell::{Source, meta_before};
use super::{Actor, AgentCall, MOST_SILENCE, Message, SILENCE, Starting, StepMarks, fresh};
use crate::agent::{Agent, Home, Offer, Reply as AgentReply};
use crate::config::chosen_env;
use crate::context;
use crate::hub::Shared;
use crate::json;
use crate::services::files;
use crate::services::terminals::{TerminalEvent, Terminals};

/// An agent and the session that it has for ours.
#[derive(Debug)]
pub(crate) struct Bound {
    pub(crate) agent: Arc<Agent>,
    pub(crate) session: SessionId,
    /// Whether the agent may still be telling what was before.
    pub(crate) replays: bool,
    /// Whether the agent knows nothing of the conversation.
    pub(crate) anew: bool,
    /// What it said about modes and options.
    pub(crate) result: Object,
}

/// The key by which a session remembers that its agent was not given the conversation yet.
const HAND_OVER: &str = "handOver";

impl Bound {
    /// Our session needs the agent no more, for now. What the agent still says is said in it.
    pub(super) fn release(self, hub: &Arc<Shared>, ours: &SessionId) {
        self.agent.release(&self.session, Home { hub: Arc::downgrade(hub), session: ours.clone() });
        if self.agent.offers(Offer::Close) {
            self.tell("session/close");
        }
    }

    /// Our session is gone, or goes without the agent.
    pub(super) fn discard(self) {
        self.agent.unlink(&self.session);
        if self.agent.offers(Offer::Delete) {
            self.tell("session/delete");
        } else if self.agent.offers(Offer::Close) {
            self.tell("session/close");
        }
    }

    /// Tells the agent at once, before it can be asked for the session again. Nobody waits for its answer.
    fn tell(&self, method: &str) {
        drop(self.agent.call_now(method, &Actor::params_for(&self.session)));
    }
}

impl Actor {
    /// The agent is there.
    pub(super) fn bind(&mut self, bound: Bound, anew: bool) {
        self.flush_info();
        let dialect = bound.agent.dialect;
        self.decoder = Decoder::new(dialect);
        self.stream = None;
        let taking = if dialect == Dialect::V1 { TurnTaking::OneByOne } else { TurnTaking::Queueing };
        let mut data = json::object(Json::parse(self.row.data.clone()).ok().as_ref().map(Json::raw));
        data.set("agentDialect", json::string(dialect.name()));
        let anew = anew && !self.session.transcript().entries().is_empty();
        // An agent that began anew may be brought back before it was given the conversation.
        self.hand_over = anew || data.get(HAND_OVER).is_some();
        if self.hand_over {
            data.set(HAND_OVER, json::json("true"));
        }
        self.handed = None;
        data.to_json().as_str().clone_into(&mut self.row.data);
        self.row.agent_session = Some(bound.session.as_json().as_literal().to_owned());
        self.due.row = true;
        self.agent = Some(bound);
        self.step(Input::AgentReady { taking, anew });
        self.go_on_with_forks(None);
    }

    /// Updates of the agent, one a line.
    pub(super) fn lines(&mut self, lines: &str) {
        if let Some(starting) = &mut self.starting {
            starting.heard = Instant::now();
        }
        for line in lines.split_terminator('\n') {
            self.line(line);
        }
    }

    fn line(&mut self, line: &str) {
        if let Some(stream) = self.stream.take()
            && let Some(decoded) = stream.read(line)
        {
            self.said(line, decoded, Some(stream.spans()));
            self.stream = Some(stream);
            return;
        }
        let read = AgentUpdate::read(line);
        let spans = read.as_ref().and_then(|read| read.spans(line));
        let decoded = match read {
            Some(read) => read.decode(&self.decoder, &mut fresh),
            None => {
                let Ok(message) = Json::parse(line) else { return };
                let params = json::object(Some(message.raw())).get("params").cloned();
                let Ok((_, update)) = live::update_of(params.as_ref().map(Json::raw)) else { return };
                self.decoder.decode(update, &mut fresh)
            }
        };
        match decoded {
            Ok(decoded) => {
                self.stream = spans.as_ref().and_then(|spans| Stream::after(line, spans, &decoded));
                self.said(line, decoded, spans.as_ref());
            }
            Err(bad) => tracing::warn!(session = %self.id, "an update of the agent is refused: {bad}"),
        }
    }

    /// What the agent said in a line. `spans` is where its ids stand.
    fn said(&mut self, line: &str, decoded: Decoded, spans: Option<&Spans>) {
        if let Some(ignored) = &decoded.ignored {
            tracing::debug!(session = %self.id, "part of an update is ignored: {ignored}");
        }
        if self.starting.as_ref().is_some_and(|starting| starting.replays)
            && !matches!(decoded.update, Update::Upsert { target: Target::Slot(_), .. })
        {
            return;
        }
        match decoded.update {
            Update::Upsert { target: Target::Slot(Slot::Info), upsert } => {
                return self.said_info(upsert, line, spans);
            }
            Update::State(_) => self.flush_info(),
            Update::Upsert { .. }
            | Update::Append { .. }
            | Update::Output { .. }
            | Update::Remove { .. }
            | Update::Note { .. } => {}
        }
        let meta = meta_before(self.session.transcript(), &decoded.update);
        let entry = entry_of(&decoded.update);
        let named = decoded.naming != parlor_session::Naming::Named;
        let naming = decoded.naming;
        let mut step = std::mem::take(&mut self.room);
        self.session.step(Input::Said(decoded.update, naming), &mut fresh, &mut step);
        let before = self.marks_for(&step);
        let marks = if step.inserted.is_empty() && step.changes.len() == 1 {
            let source = spans.map(|spans| Source { line, spans, entry, named });
            let change = step.changes.remove(0);
            self.decoder.took(&change, naming);
            self.unsaved.note(&change);
            self.unworded.note(&change);
            self.changed(&change);
            self.tell(&change, meta.as_ref(), source.as_ref());
            StepMarks { before, ended: self.marks_for(&step) }
        } else {
            for change in &step.changes {
                self.decoder.took(change, naming);
            }
            self.took(&mut step, before)
        };
        self.effects(step, &marks);
    }

    /// Does what a step wanted done, now that all is stored.
    pub(super) fn act(&mut self) {
        self.tell_title();
        for effect in std::mem::take(&mut self.effects) {
            match effect {
                Effect::Send(prompt) => self.send(&prompt),
                Effect::Recall(prompt) => {
                    if let (Some((agent, _)), Some(id)) = (self.bound(), self.sent.get(&prompt)) {
                        agent.take_back(id);
                    }
                }
                Effect::Interrupt => {
                    if let Some((agent, session)) = self.bound() {
                        agent.notify("session/cancel", &Self::params_for(session));
                    }
                }
                Effect::Reply(question, reply) => {
                    let Some(asked) = self.questions.remove(&question) else { continue };
                    let Some((agent, _)) = self.bound() else { continue };
                    let reply = match reply {
                        Reply::Result(result) => Ok(result),
                        // A form that nobody here can show is one that nobody filled in.
                        Reply::Error(error) if asked.is_unasked_form(&error) => {
                            Ok(live::cancelled_answer(&asked.method))
                        }
                        Reply::Error(error) => Err(error),
                        Reply::Cancelled => Ok(live::cancelled_answer(&asked.method)),
                        Reply::TakenBack => {
                            let error = RpcError::new(code::REQUEST_CANCELLED, "the question was taken back");
                            Err(json::error_object(&error))
                        }
                        Reply::Gone => continue,
                    };
                    agent.answer(&asked.id, &reply);
                }
                Effect::NeedAgent => self.start_agent(),
                Effect::Release => {
                    if !self.session.is_busy()
                        && let Some(bound) = self.agent.take()
                    {
                        bound.release(&self.hub, &self.id);
                        self.session.step(Input::AgentReleased, &mut fresh, &mut Step::default());
                    }
                }
                Effect::Settle { .. } | Effect::Ask(..) | Effect::Withdraw(..) | Effect::HeldChanged => {}
            }
        }
    }

    fn send(&mut self, prompt: &Prompt) {
        let Some((agent, session)) = self.bound() else { return };
        let (agent, session) = (Arc::clone(agent), session.clone());
        let mut content = live::prompt_to_agent(&prompt.content, agent.dialect, &mut self.losses);
        if std::mem::take(&mut self.hand_over) {
            self.handed = Some(prompt.id);
            content = self.with_context(&content, agent.offers(Offer::EmbeddedContext));
        }
        let mut params = Self::params_for(&session);
        params.set("prompt", content);
        params.add_missing(&prompt.more);
        self.decoder.turn_boundary();
        match agent.call_for(&self.me, AgentCall::Prompt(prompt.id), "session/prompt", &params) {
            Ok(id) => drop(self.sent.insert(prompt.id, id)),
            Err(error) => {
                let me = self.me.clone();
                let call = AgentCall::Prompt(prompt.id);
                tokio::spawn(async move { me.send(Message::AgentAnswered(call, Err(error))).await });
            }
        }
    }

    /// A prompt with the conversation so far in front of it, for an agent that knows nothing of it. The prompt itself may
    /// be in the conversation already.
    fn with_context(&self, content: &Json, embedded: bool) -> Json {
        let transcript = self.session.transcript();
        let entries = transcript.entries();
        let is_prompt = |entry: &Entry| matches!(entry.id(), EntryId::Message(Role::User, _));
        let end = match self.session.agent() {
            Some(TurnTaking::OneByOne) => entries.iter().rposition(is_prompt).unwrap_or(entries.len()),
            Some(TurnTaking::Queueing) | None => entries.len(),
        };
        context::in_front_of(content, &context::of(transcript, &entries[..end]), embedded)
    }

    pub(super) fn agent_answered(&mut self, call: AgentCall, reply: AgentReply) {
        match call {
            AgentCall::Forwarded(call) => self.forwarded(&call, reply),
            AgentCall::Prompt(prompt) => {
                self.sent.remove(&prompt);
                self.flush_info();
                if self.handed.take_if(|handed| *handed == prompt).is_some() {
                    self.handed_over(reply.is_ok());
                }
                let input = match (self.session.agent(), reply) {
                    (Some(TurnTaking::Queueing), Ok(result)) => {
                        let mut fields = json::object(Some(result.raw()));
                        let message = json::literal(&fields, "messageId").map(Into::into);
                        fields.remove("messageId");
                        Input::Accepted { prompt, message, fields }
                    }
                    (Some(TurnTaking::Queueing), Err(error)) => Input::Rejected { prompt, error },
                    (Some(TurnTaking::OneByOne) | None, reply) => {
                        self.decoder.turn_boundary();
                        let state = match &reply {
                            Ok(result) => live::state_after(Outcome::Result(result.raw())),
                            Err(error) => live::state_after(Outcome::Error(error.raw())),
                        };
                        Input::Ended { prompt, state }
                    }
                };
                self.step(input);
            }
        }
    }

    /// The agent was given the conversation, and has taken it or not.
    fn handed_over(&mut self, taken: bool) {
        self.hand_over = !taken;
        if taken {
            let mut data = json::object(Json::parse(self.row.data.clone()).ok().as_ref().map(Json::raw));
            data.remove(HAND_OVER);
            data.to_json().as_str().clone_into(&mut self.row.data);
            self.due.row = true;
        }
    }

    /// Brings the agent back, unless somebody is at it.
    pub(super) fn start_agent(&mut self) {
        if self.starting.is_some() || self.agent.is_some() {
            return;
        }
        let now = Instant::now();
        // One inside this process tells no old stories.
        let is_local = self.hub.config_of(&self.row).is_some_and(|config| config.local.is_some());
        self.starting = Some(Starting { since: now, heard: now, replays: !is_local, bound: None });
        let (hub, row, me) = (Arc::clone(&self.hub), self.row.clone(), self.me.clone());
        let id = self.id.clone();
        let chosen = Chosen::of(self.session.transcript(), self.decoder.dialect());
        tokio::spawn(async move {
            let bound = bring_back(&hub, &row, &id, &chosen, &me).await;
            let _ = me.send(Message::AgentReady(bound)).await;
        });
    }

    pub(super) fn agent_ready(&mut self, bound: Result<Bound, RpcError>) {
        match bound {
            Ok(bound) => {
                if let Some(starting) = &mut self.starting {
                    let replays = bound.replays;
                    starting.heard = Instant::now();
                    starting.bound = Some(bound);
                    if replays {
                        self.wait_for_quiet();
                    } else {
                        self.agent_restored();
                    }
                }
            }
            Err(error) => {
                self.starting = None;
                self.go_on_with_forks(Some(&error));
                self.go_on_with_calls(Some(&error));
                for held in self.session.held() {
                    self.step(Input::Rejected { prompt: held.id, error: json::error_object(&error) });
                }
            }
        }
    }

    fn wait_for_quiet(&self) {
        let me = self.me.clone();
        tokio::spawn(async move {
            tokio::time::sleep(SILENCE).await;
            let _ = me.send(Message::Quiet).await;
        });
    }

    /// Looks whether the agent has finished telling what was before.
    pub(super) fn quiet(&mut self) {
        // One that is not there yet has told nothing: it is a later one than the one that was waited for.
        let Some(starting) = self.starting.as_ref().filter(|starting| starting.bound.is_some()) else {
            return;
        };
        if starting.heard.elapsed() >= SILENCE || starting.since.elapsed() >= MOST_SILENCE {
            self.agent_restored();
        } else {
            self.wait_for_quiet();
        }
    }

    fn agent_restored(&mut self) {
        let Some(bound) = self.starting.take().and_then(|starting| starting.bound) else { return };
        let result = bound.result.clone();
        let anew = bound.anew;
        self.bind(bound, anew);
        self.learn(&result);
        self.go_on_with_calls(None);
        for id in std::mem::take(&mut self.unsettled) {
            self.settled(&id);
        }
    }

    /// All that the agent said before it asked this has been taken. One that is on its way back is answered when it is
    /// there.
    pub(super) fn settled(&mut self, id: &RequestId) {
        match self.bound() {
            Some((agent, _)) => agent.answer(id, &Ok(Object::default().to_json())),
            None => self.unsettled.push(id.clone()),
        }
    }

    pub(super) fn agent_gone(&mut self, error: &RpcError) {
        if self.agent.take().is_none() && self.starting.is_none() {
            return;
        }
        self.flush_info();
        self.starting = None;
        self.sent.clear();
        self.passed_on.clear();
        self.unsettled.clear();
        self.questions.retain(|_, asked| !asked.forwarded);
        self.terminals = None;
        self.decoder.turn_boundary();
        self.step(Input::AgentGone(live::failed_state(error)));
        self.go_on_with_forks(Some(error));
        self.go_on_with_calls(Some(error));
    }

    /// Reads or writes a file for the agent: the editor has unsaved changes, the disk has the rest.
    pub(super) fn serve_file(&mut self, id: RequestId, method: String, params: Object) {
        let prompter = self.session.prompter().and_then(|client| self.seats.get(&client));
        if prompter.is_some_and(|seat| seat.client.is_local() && seat.client.serves_file(&method)) {
            return self.forward_to_client(id, method, params);
        }
        let me = self.me.clone();
        tokio::spawn(async move {
            let done = tokio::task::spawn_blocking(move || match method.as_str() {
                "fs/read_text_file" => files::read(&params),
                _ => files::write(&params),
            });
            let failed = || RpcError::new(code::INTERNAL_ERROR, "the file could not be served");
            let reply = done.await.unwrap_or_else(|_| Err(failed()));
            let _ = me.send(Message::Served(id, reply.map_err(|error| json::error_object(&error)))).await;
        });
    }

    pub(super) fn serve_terminal(&mut self, id: RequestId, method: &str, params: &Object) {
        let hub = &self.hub;
        let (row, me, id_here) = (&self.row, &self.me, &self.id);
        let config = hub.config_of(row);
        let terminals = self.terminals.get_or_insert_with(|| {
            let peer = hub.peer_of(id_here);
            let theirs = peer.as_ref().map_or(&[][..], |peer| &peer.env);
            let env = config.map(|config| chosen_env(&config, theirs)).unwrap_or_default();
            let env = env.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
            let (events, mut reader) = tokio::sync::mpsc::channel(64);
            let session = me.downgrade();
            tokio::spawn(async move {
                while let Some(event) = reader.recv().await {
                    let Some(session) = session.upgrade() else { return };
                    if session.send(Message::Terminal(event)).await.is_err() {
                        return;
                    }
                }
            });
            Terminals::new(hub.watcher().clone(), env, row.cwd.clone().into(), events)
        });
        let served = terminals.serve(method, params);
        let me = self.me.clone();
        tokio::spawn(async move {
            let reply = served.await.map_err(|error| json::error_object(&error));
            let _ = me.send(Message::Served(id, reply)).await;
        });
    }

    /// Ends what runs in a terminal that parlor runs for the agent.
    pub(super) fn cancel_terminal(&self, params: &Object) -> Result<(), RpcError> {
        let terminal = json::literal(params, "terminalId").map(|id| EntryId::Terminal(id.into()));
        let shown = terminal.and_then(|terminal| self.session.transcript().get(&terminal));
        let runs = shown.is_some_and(|shown| shown.body().fields.get("exitStatus").is_none());
        let terminals = self.terminals.as_ref().filter(|_| runs);
        let no_such = || RpcError::new(code::INVALID_PARAMS, "no such terminal runs in this session");
        let ended = terminals.map(|terminals| terminals.serve("terminal/kill", params));
        // It is asked to end already; there is nothing in the answer.
        ended.map(drop).ok_or_else(no_such)
    }

    /// A terminal that parlor runs for the agent is one that the agent shows.
    pub(super) fn terminal(&mut self, event: TerminalEvent) {
        let entry = |id: &str| Target::Entry(EntryId::Terminal(id.into()));
        let update = match event {
            TerminalEvent::Created { id, command, cwd } => {
                let mut fields = Object::default();
                fields.set("command", json::string(&command));
                fields.set("cwd", json::string(&cwd.to_string_lossy()));
                fields.set("capabilities", json::json(r#"{"cancel":{}}"#));
                Update::Upsert { target: entry(&id), upsert: Upsert { fields, ..Upsert::default() } }
            }
            TerminalEvent::Output { id, bytes } => {
                Update::Output { terminal: (&*id).into(), bytes, extra: None }
            }
            TerminalEvent::Exited { id, code, signal } => {
                let mut status = Object::default();
                if let Some(code) = code {
                    status.set("exitCode", json::json(code.to_string()));
                }
                if let Some(signal) = signal {
                    status.set("signal", json::string(&signal));
                }
                let mut fields = Object::default();
                fields.set("exitStatus", status.to_json());
                fields.set("capabilities", Json::null());
                Update::Upsert { target: entry(&id), upsert: Upsert { fields, ..Upsert::default() } }
            }
            TerminalEvent::Released { .. } => return,
        };
        self.step(Input::Noted(update));
    }
}

/// Starts a session's agent, or finds it, and gives it the session back: by resuming, by loading, or anew.
async fn bring_back(
    hub: &Arc<Shared>,
    row: &parlor_store::SessionRow,
    id: &SessionId,
    chosen: &Chosen,
    me: &super::Inbox,
) -> Result<Bound, RpcError> {
    let config = hub.config_of(row).ok_or_else(|| {
        RpcError::new(code::INTERNAL_ERROR, format!("there is no agent '{}' any more", row.agent))
    })?;
    let peer = hub.peer_of(id);
    let agent = hub.registry().get(&config, peer.as_ref(), row.cwd.as_ref(), id).await?;
    let data = json::object(Json::parse(row.data.clone()).ok().as_ref().map(Json::raw));
    let mut params = json::member(&data, "params").unwrap_or_default();
    let from = json::text(&data, "dialect").and_then(|name| name.parse().ok()).unwrap_or(Dialect::V2);
    params.set("cwd", json::string(&row.cwd));
    let mut losses = Losses::default();
    let mut convert = |method: &str, params: &Object| {
        live::request_to_agent(method, params, from, agent.dialect, None, &mut losses).map_err(|loss| {
            RpcError::new(code::INTERNAL_ERROR, format!("the session cannot be given to the agent: {loss}"))
        })
    };
    if let Some(agents) = row.agent_session.as_deref().and_then(JsonStr::from_literal).map(SessionId::from) {
        let method = match () {
            () if agent.offers(Offer::Resume) => Some("session/resume"),
            () if agent.offers(Offer::Load) => Some("session/load"),
            () => None,
        };
        if let Some(method) = method {
            let (_, mut params) = convert("session/new", &params)?;
            params.set("sessionId", agents.as_json());
            agent.link(&agents, me);
            match agent.call(method, &params).await {
                Ok(result) => {
                    let mut result = json::object(Some(result.raw()));
                    // One inside this process leaves the past to the session, and with it what was chosen.
                    let is_local = config.local.is_some();
                    if is_local {
                        chosen.choose(&agent, &agents, &mut result).await;
                    }
                    return Ok(Bound { agent, session: agents, replays: !is_local, anew: false, result });
                }
                Err(error) => {
                    agent.unlink(&agents);
                    tracing::info!(session = %id, error = error.as_str(), "the agent does not know the session any more");
                }
            }
        }
    }
    let (method, mut params) = convert("session/new", &params)?;
    agent.name_session(&mut params, id);
    let _beginning = agent.beginnings.begin();
    let result = agent.call(&method, &params).await.map_err(|error| RpcError::from_raw(error.raw()))?;
    let mut result = json::object(Some(result.raw()));
    let session = json::session_of(&result)
        .ok_or_else(|| RpcError::new(code::INTERNAL_ERROR, "the agent began a session without an id"))?;
    agent.link(&session, me);
    chosen.choose(&agent, &session, &mut result).await;
    Ok(Bound { agent, session, replays: false, anew: true, result })
}

fn entry_of(update: &Update) -> Option<EntryId> {
    match update {
        Update::Upsert { target: Target::Entry(entry), .. }
        | Update::Append { entry, .. }
        | Update::Remove { entry, .. } => Some(entry.clone()),
        Update::Upsert { target: Target::Slot(_), .. }
        | Update::Output { .. }
        | Update::Note { .. }
        | Update::State(_) => None,
    }
}
