//! What clients ask of a session, and what they are asked.

use std::sync::Arc;

use parlor_dialect::live::Telling;
use parlor_dialect::{Dialect, Losses, live};
use parlor_engine::{AgentCommand, ClientInfo, Delivery, Frame, FrameKind, Outgoing};
use parlor_json::{Json, Object};
use parlor_session::session::{Answer, ClientId, Input, Prompt, PromptId, QuestionId, Reply, Scope, Settled};
use parlor_session::{Activity, EventKind, SessionId, State, ToolCallId, Update};
use parlor_wire::{RequestId, RpcError, code};

use tokio::sync::oneshot;

use super::tell::Marks;
use super::{Actor, Asked, End, StepMarks};
use crate::json;

impl Actor {
    pub(super) fn prompt(&mut self, client: &Arc<ClientInfo>, id: RequestId, mut params: Object) {
        self.attach(client);
        let content = params.remove("prompt").unwrap_or_else(Json::null);
        if let Err(error) = self.check_prompt(&content) {
            return self.say(client.id, Frame::error(&id, &error));
        }
        if let Some(error) = self.refusal() {
            return self.say(client.id, Frame::error(&id, &error));
        }
        self.set_archived(false);
        params.remove("sessionId");
        let key =
            json::noted(&params, "parlor/key").and_then(|key| parlor_json::JsonStr::from_raw(key.raw()));
        let prompt = PromptId(self.next_prompt);
        self.next_prompt += 1;
        self.prompts.insert(prompt, (client.id, id));
        self.step(Input::Prompted(Prompt { id: prompt, by: client.id, content, more: params, key }));
    }

    /// Whether something of a prompt can be sent to the agent.
    pub(super) fn check_prompt(&self, content: &Json) -> Result<(), RpcError> {
        live::check_prompt(content).map_err(|problem| RpcError::new(code::INVALID_PARAMS, problem))?;
        let mut losses = Losses::default();
        let sent = live::prompt_to_agent(content, self.agent_dialect(), &mut losses);
        if sent.as_str() != "[]" {
            return Ok(());
        }
        let mut names: Vec<_> = losses.as_slice().iter().map(|loss| format!("\"{}\"", loss.kind)).collect();
        names.dedup();
        let mut data = Object::default();
        data.set("losses", json::json(format!("[{}]", names.join(","))));
        let message = "nothing of the prompt can be said in the agent's version of the protocol";
        Err(RpcError::new(code::INVALID_PARAMS, message).with_data(data.to_json()))
    }

    /// Says a line to those of the clients that take part, in the order of all else that they are told.
    pub(super) fn relay(
        &mut self,
        frame: &Frame,
        clients: &[ClientId],
        told: oneshot::Sender<Vec<ClientId>>,
    ) {
        let here: Vec<_> = clients.iter().copied().filter(|client| self.seats.contains_key(client)).collect();
        here.iter().for_each(|client| self.say(*client, frame.clone()));
        self.relayed.push((told, here));
    }

    /// A client says something without asking what comes of it. Should the agent not want it, the session says so.
    pub(super) fn speak(
        &mut self,
        client: &Arc<ClientInfo>,
        content: Json,
        answer: Option<(RequestId, Object)>,
    ) {
        self.attach(client);
        if let Some((id, answer)) = answer {
            self.say(client.id, Frame::response(&id, &answer));
        }
        if let Some(error) = self.refusal() {
            return self.settle_unasked(&Settled::Rejected { error: json::error_object(&error), by: None });
        }
        let prompt = PromptId(self.next_prompt);
        self.next_prompt += 1;
        self.unasked.insert(prompt);
        let more = Object::default();
        self.step(Input::Prompted(Prompt { id: prompt, by: client.id, content, more, key: None }));
    }

    pub(super) fn take_back(&mut self, client: ClientId, id: &RequestId) {
        let found = self.prompts.iter().find(|(_, (by, request))| *by == client && request == id);
        match found {
            Some((prompt, _)) => self.step(Input::Withdrawn { prompt: *prompt, by: client }),
            None => self.unforward(client, id),
        }
    }

    pub(super) fn withdraw_prompt(&mut self, client: &Arc<ClientInfo>, id: &RequestId, prompt: PromptId) {
        self.attach(client);
        if self.session.held().iter().any(|held| held.id == prompt) {
            self.step(Input::Withdrawn { prompt, by: client.id });
            self.say(client.id, Frame::response(id, &Object::default()));
        } else {
            let error = RpcError::new(code::INVALID_PARAMS, "no such prompt waits in this session");
            self.say(client.id, Frame::error(id, &error));
        }
    }

    /// Ends the session for all: its turn is over, and no prompt of anybody's is left without an answer.
    pub(super) fn delete(&mut self, client: &Arc<ClientInfo>, id: &RequestId) {
        self.step(Input::Cancelled { by: client.id, scope: Scope::Session });
        self.step(Input::AgentGone(cancelled_state()));
        self.attach(client);
        self.say(client.id, Frame::response(id, &Object::default()));
        self.ends = Some(End::Deleted);
    }

    /// The session was deleted before these clients had been told all of it.
    pub(super) fn tell_those_behind(&mut self, error: &RpcError) {
        let transcript = self.session.transcript();
        let telling = Telling { from: self.decoder.dialect(), transcript, meta_before: None };
        let ids = &mut self.ids;
        for seat in self.seats.values_mut().filter(|seat| !seat.is_live()) {
            let ended = Update::State(cancelled_state());
            let mut lines = String::new();
            for update in seat.listener.tell(&ended, telling, &mut || ids.new_id(), &mut self.losses) {
                lines.push_str(&live::update_line(&self.id, &update, None));
            }
            let id = seat.client.id;
            self.sends.push(Delivery::new(id, Frame::updates(lines)));
            self.sends.extend(seat.due(u64::MAX).into_iter().map(|frame| Delivery::new(id, frame)));
            self.sends
                .extend(seat.asked().map(|request| Delivery::new(id, Frame::error(&request.id, error))));
        }
    }

    /// Tells the sender of a prompt what came of it.
    pub(super) fn settle(&mut self, prompt: PromptId, by: ClientId, outcome: &Settled, marks: &StepMarks) {
        if self.unasked.remove(&prompt) || by == ClientId::NOBODY {
            return self.settle_unasked(outcome);
        }
        let Some((client, id)) = self.prompts.remove(&prompt).filter(|(client, _)| *client == by) else {
            return;
        };
        let Some(seat) = self.seats.get(&client) else { return };
        let dialect = seat.client.dialect;
        let (line, place): (Frame, Option<&Marks>) = match outcome {
            Settled::Accepted { message, fields } => {
                let mut result = Object::default();
                match dialect {
                    Dialect::V2 => result.set("messageId", message.as_json()),
                    Dialect::V1 => result.set("stopReason", json::string("end_turn")),
                    Dialect::Draft => {}
                }
                result.add_missing(fields);
                if dialect == Dialect::Draft {
                    result.remove("messageId");
                }
                // The answer comes right before the message, and after the turn before it.
                let inserted = marks.inserted.iter().find(|(inserted, _)| *inserted == prompt);
                (Frame::response(&id, &result), Some(inserted.map_or(&marks.before, |(_, marks)| marks)))
            }
            Settled::Ended { message, state, fields } => {
                let agent = self.decoder.dialect();
                match live::turn_result(state, fields, agent, &mut self.losses) {
                    Ok(mut result) => {
                        // Version 1 has no place for it, and a client that counts changes wants to know what is what.
                        if seat.client.wants_seq {
                            json::note(&mut result, live::MESSAGE, message.as_json().into());
                        }
                        (Frame::response(&id, &result), Some(&marks.ended))
                    }
                    Err(error) => (Frame::error(&id, &error), Some(&marks.ended)),
                }
            }
            Settled::Withdrawn { by } if dialect == Dialect::V1 => {
                (Frame::response(&id, &cancelled(*by)), None)
            }
            Settled::Withdrawn { by } => {
                let message = self.withdrawn_by(*by, client);
                let error = RpcError::new(code::REQUEST_CANCELLED, message);
                (Frame::error(&id, &with_by(error, *by)), None)
            }
            Settled::Rejected { error, by } => {
                let error = RpcError::from_raw(error.raw());
                let is_cancelled = error.code() == code::REQUEST_CANCELLED;
                // An agent that holds prompts itself says in this way that it gave one back.
                if dialect == Dialect::V1 && is_cancelled {
                    (Frame::response(&id, &cancelled(*by)), None)
                } else {
                    let error = if is_cancelled { with_by(error, *by) } else { error };
                    (Frame::error(&id, &error), None)
                }
            }
            // It may have been what ended the agents.
            Settled::Failed(state) => {
                let failed =
                    live::turn_result(state, &Object::default(), self.decoder.dialect(), &mut self.losses);
                let gone = || RpcError::new(code::INTERNAL_ERROR, "the agent is gone");
                let error = failed.err().unwrap_or_else(gone);
                (Frame::error(&id, &error), None)
            }
            Settled::NoRoom(refused) => {
                let error =
                    RpcError::new(code::INTERNAL_ERROR, format!("the prompt was not taken: {refused}"));
                (Frame::error(&id, &error), None)
            }
            Settled::TooMany { limit } => {
                let message = format!("{limit} prompts wait in this session already: try again later");
                (Frame::error(&id, &RpcError::new(code::INTERNAL_ERROR, message)), None)
            }
        };
        self.say_at(client, line, place);
    }

    /// How the sender of a prompt is told that it was withdrawn.
    fn withdrawn_by(&self, by: Option<ClientId>, sender: ClientId) -> String {
        let Some(by) = by.filter(|by| *by != sender) else { return "the prompt was withdrawn".to_owned() };
        let client = self.seats.get(&by).and_then(|seat| seat.client.decider().name);
        match client {
            Some(name) => format!("the prompt was withdrawn by another client ({name})"),
            None => "the prompt was withdrawn by another client".to_owned(),
        }
    }

    /// What came of a prompt that nobody waits for is seen in the session, unless it never came into it.
    fn settle_unasked(&mut self, outcome: &Settled) {
        let error = match outcome {
            Settled::Accepted { .. }
            | Settled::Ended { .. }
            | Settled::Withdrawn { .. }
            | Settled::Rejected { by: Some(_), .. }
            | Settled::Failed(_) => return,
            Settled::Rejected { error, .. } => RpcError::from_raw(error.raw()),
            Settled::NoRoom(refused) => {
                RpcError::new(code::INTERNAL_ERROR, format!("the prompt was not taken: {refused}"))
            }
            Settled::TooMany { limit } => {
                RpcError::new(code::INTERNAL_ERROR, format!("{limit} prompts wait in this session already"))
            }
        };
        // An agent that holds prompts itself says in this way that it gave one back.
        if error.code() == code::REQUEST_CANCELLED {
            return;
        }
        let failed = EventKind::TurnFailed { prompt: None, error: Some(json::error_object(&error)) };
        self.step(Input::Happened(failed));
        // A turn that runs is another one, and goes on.
        if !self.session.is_running() {
            self.step(Input::Noted(Update::State(live::failed_state(&error))));
        }
    }

    /// Keeps what a response said about modes, options and commands.
    pub(super) fn learn(&mut self, result: &Object) {
        for update in live::learned(result) {
            self.on_settings_reported(&update);
            self.step(Input::Noted(update));
        }
    }

    /// The agent asks something that is for people, or for parlor.
    pub(super) fn agent_asks(&mut self, id: RequestId, method: String, params: Object) {
        match method.as_str() {
            "session/request_permission" => self.question(id, method, params, false),
            "elicitation/create" => self.question(id, method, params, true),
            "fs/read_text_file" | "fs/write_text_file" => self.serve_file(id, method, params),
            live::SETTLED => self.settled(&id),
            _ if method.starts_with("terminal/") => {
                self.command(AgentCommand::ServeTerminal { id, method, params });
            }
            _ => self.forward_to_client(id, method, params),
        }
    }

    fn new_question(&mut self, asked: Asked) -> QuestionId {
        let question = QuestionId(self.next_question);
        self.next_question += 1;
        self.questions.insert(question, asked);
        question
    }

    fn question(&mut self, id: RequestId, method: String, mut params: Object, form: bool) {
        let mut about = self.rename_call(&mut params);
        if let Some(mut subject) = json::member(&params, "subject") {
            about = self.rename_call(&mut subject).or(about);
            params.set("subject", subject.to_json());
        }
        // Only a tool call that waits for permission is over without an answer.
        let call = about.filter(|_| !form);
        let asked = Asked { id, method, params, clients: std::collections::HashSet::new(), forwarded: false };
        let question = self.new_question(asked);
        self.step(Input::Asked { question, form, call });
    }

    /// Names the tool call that a request is about as the session does, which may not be as the agent does. It stands in
    /// the request, or in it by its name only.
    fn rename_call(&self, holder: &mut Object) -> Option<ToolCallId> {
        let name = |holder: &mut Object| {
            let id = self.session.names().tool_call(&json::literal(holder, "toolCallId")?.into());
            holder.set("toolCallId", id.as_json());
            Some(id)
        };
        let named = name(holder);
        let Some(mut call) = json::member(holder, "toolCall") else { return named };
        let id = name(&mut call);
        holder.set("toolCall", call.to_json());
        id.or(named)
    }

    /// A question for one client: the one whose prompt runs, else the one that is here the longest.
    pub(super) fn forward_to_client(&mut self, id: RequestId, method: String, params: Object) {
        let prompter = self.session.prompter().filter(|client| self.is_staying(*client));
        let Some(client) = prompter.or_else(|| self.session.drivers().next()) else {
            let error =
                RpcError::new(code::METHOD_NOT_FOUND, format!("no client is here to answer {method}"));
            return self.respond(id, Err(json::error_object(&error)));
        };
        self.forward_to(client, id, method, params);
    }

    pub(super) fn forward_to(&mut self, client: ClientId, id: RequestId, method: String, params: Object) {
        let asked = Asked { id, method, params, clients: std::collections::HashSet::new(), forwarded: true };
        let question = self.new_question(asked);
        self.ask(question, client);
    }

    /// Whether a client takes part and has not closed the session.
    pub(super) fn is_staying(&self, client: ClientId) -> bool {
        self.seats.contains_key(&client) && !self.is_leaving(client)
    }

    /// A client leaves: requests that it alone was asked are answered without it. Files are on the disk as well.
    pub(super) fn answer_without(&mut self, client: ClientId) {
        let is_its = |asked: &Asked| asked.forwarded && asked.clients.contains(&client);
        let its: Vec<_> =
            self.questions.iter().filter(|(_, asked)| is_its(asked)).map(|(question, _)| *question).collect();
        for question in its {
            self.withdraw(question, client);
            let Some(Asked { id, method, params, .. }) = self.questions.remove(&question) else { continue };
            if method.starts_with("fs/") {
                self.serve_file_from_disk(id, method, params);
            } else {
                let message = format!("the client that was asked {method} has left the session");
                let error = RpcError::new(code::INTERNAL_ERROR, message);
                self.respond(id, Err(json::error_object(&error)));
            }
        }
    }

    /// Tells the client that alone was asked something that its answer is not needed any more.
    pub(super) fn withdraw_forwarded(&mut self, question: QuestionId) {
        let asked = self.questions.get(&question).filter(|asked| asked.forwarded);
        let clients: Vec<_> = asked.map(|asked| asked.clients.iter().copied().collect()).unwrap_or_default();
        clients.into_iter().for_each(|client| self.withdraw(question, client));
    }

    /// Puts a question to a client.
    pub(super) fn ask(&mut self, question: QuestionId, client: ClientId) {
        let from = self.agent_dialect();
        let Some(asked) = self.questions.get_mut(&question) else { return };
        let Some(seat) = self.seats.get(&client) else { return };
        let mut params = asked.params.clone();
        if params.get("sessionId").is_some() {
            params.set("sessionId", self.id.as_json());
        }
        if asked.method == "elicitation/create"
            && !seat.client.elicits(json::text(&params, "mode").as_deref())
        {
            return self.answered(question, client, Answer::Error(cannot_ask()));
        }
        let to = seat.client.dialect;
        let transcript = self.session.transcript();
        let said = live::request_to_client(
            &asked.method,
            &asked.id,
            &params,
            from,
            to,
            transcript,
            &mut self.losses,
        );
        let request = said.map(|params| {
            asked.clients.insert(client);
            Outgoing::Request { question, method: asked.method.clone(), params }
        });
        match request {
            Ok(request) => self.say(client, request),
            // One that cannot be asked counts as one that cannot answer.
            Err(_) => self.answered(question, client, Answer::Error(cannot_ask())),
        }
    }

    /// Tells a client that its answer is not needed any more.
    pub(super) fn withdraw(&mut self, question: QuestionId, client: ClientId) {
        let asked = self.questions.get_mut(&question);
        if asked.is_some_and(|asked| asked.clients.remove(&client)) {
            self.say(client, Outgoing::CancelRequest(question));
        }
    }

    pub(super) fn answered(&mut self, question: QuestionId, by: ClientId, answer: Answer) {
        let Some(asked) = self.questions.get_mut(&question) else { return };
        asked.clients.remove(&by);
        let from = self.seats.get(&by).map_or(Dialect::V2, |seat| seat.client.dialect);
        let to = self.agent.as_ref().map_or(Dialect::V2, |link| link.agent.dialect);
        let answer = match answer {
            Answer::Result(result) => {
                Answer::Result(live::answer_to_agent(&asked.method, &result, from, to, &mut self.losses))
            }
            error @ Answer::Error(_) => error,
        };
        if asked.forwarded {
            let reply = match answer {
                Answer::Result(result) => Reply::Result(result),
                Answer::Error(error) => Reply::Error(error),
            };
            self.effects.push(parlor_session::session::Effect::Reply(question, reply));
        } else {
            self.step(Input::Answered { question, by, answer });
        }
    }

    pub(super) fn agent_unasks(&mut self, id: &RequestId) {
        let found = self.questions.iter().find(|(_, asked)| asked.id == *id);
        match found.map(|(question, asked)| (*question, asked.forwarded)) {
            Some((question, true)) => {
                self.withdraw_forwarded(question);
                self.effects.push(parlor_session::session::Effect::Reply(question, Reply::TakenBack));
            }
            Some((question, false)) => self.step(Input::Unasked(question)),
            None => {}
        }
    }

    /// Tells all drivers which prompts wait, if that is news.
    pub(super) fn tell_held(&mut self) {
        let held = self.session.held();
        if !std::mem::take(&mut self.held_changed) || held == self.held {
            return;
        }
        self.held = held;
        let drivers: Vec<_> = self.session.drivers().collect();
        drivers.into_iter().for_each(|client| self.tell_held_to(client));
    }

    pub(super) fn tell_held_to(&mut self, client: ClientId) {
        if self.config.is_embedded {
            return;
        }
        let held: Vec<_> = self.session.held();
        let list: Vec<_> = held
            .iter()
            .map(|held| {
                let mut shown = Object::default();
                shown.set("id", json::json(held.id.0.to_string()));
                shown.set("text", json::string(&held.text));
                shown.set("from", json::json(held.by.0.to_string()));
                shown.to_json().as_str().to_owned()
            })
            .collect();
        let update = format!(
            r#"{{"sessionUpdate":"session_info_update","_meta":{{"parlor/queue":[{}]}}}}"#,
            list.join(",")
        );
        let wants_seq = self.seats.get(&client).is_some_and(|seat| seat.client.wants_seq);
        let seq = wants_seq.then(|| self.session.transcript().seq());
        self.say(client, Frame::updates(live::update_line(&self.id, &update, seq)));
    }

    /// Something of the agent's for all who take part.
    pub(super) fn agent_notes(&mut self, line: &str) {
        let line = parlor_dialect::with_ids(line, Some(&self.id), None).unwrap_or_else(|| line.to_owned());
        let frame = Frame::line(line, FrameKind::Notification);
        let clients: Vec<ClientId> = self.seats.keys().copied().collect();
        clients.into_iter().for_each(|client| self.say(client, frame.clone()));
    }

    /// The session that the agent is asked about.
    pub(super) fn params_for(session: &SessionId) -> Object {
        let mut params = Object::default();
        params.set("sessionId", session.as_json());
        params
    }
}

impl Asked {
    /// Whether this is a form and the error says that nobody could be asked.
    pub(super) fn is_unasked_form(&self, error: &Json) -> bool {
        self.method == "elicitation/create" && *error == cannot_ask()
    }
}

/// What is said for a client that cannot be asked something.
pub(super) fn cannot_ask() -> Json {
    json::error_object(&RpcError::new(code::METHOD_NOT_FOUND, "the client cannot be asked this"))
}

/// The state of a session whose turn was cancelled.
pub(super) fn cancelled_state() -> State {
    let stop_reason = Some("cancelled".into());
    State { activity: Activity::Idle, stop_reason, fields: Object::default(), meta: None }
}

/// How a v1 client is told that its prompt was not wanted any more, and by whom.
fn cancelled(by: Option<ClientId>) -> Object {
    let mut result = Object::default();
    result.set("stopReason", json::string("cancelled"));
    if let Some(by) = by {
        json::note(&mut result, "parlor/by", json::json(by.0.to_string()));
    }
    result
}

/// The error of a prompt that was withdrawn, with the client that did so in its data.
fn with_by(error: RpcError, by: Option<ClientId>) -> RpcError {
    let Some(by) = by else { return error };
    let mut data = json::object(error.data().map(Json::raw));
    data.set("by", json::json(by.0.to_string()));
    error.with_data(data.to_json())
}
