//! What clients ask of a session, and what they are asked.

use std::sync::Arc;

use parlor_dialect::live::Telling;
use parlor_dialect::{Dialect, live};
use parlor_json::{Json, Object};
use parlor_session::session::{Answer, ClientId, Input, Prompt, PromptId, QuestionId, Reply, Settled};
use parlor_session::{Activity, SessionId, State, Update};
use parlor_wire::{RequestId, RpcError, cancel_line, code, write};

use super::tell::Marks;
use super::{Actor, Asked, End, StepMarks};
use crate::client::{Client, Question};
use crate::json;

impl Actor {
    pub(super) fn prompt(&mut self, client: &Arc<Client>, id: RequestId, mut params: Object) {
        self.attach(client);
        self.hub.note_peer(&self.id, &client.peer);
        let Some(content) =
            params.remove("prompt").filter(|list| parlor_json::elements(list.raw()).is_some())
        else {
            let error = RpcError::new(code::INVALID_PARAMS, "`prompt` must be a list of content blocks");
            return self.say(client.id, json::error(&id, &error));
        };
        self.set_archived(false);
        params.remove("sessionId");
        let key =
            json::noted(&params, "parlor/key").and_then(|key| parlor_json::JsonStr::from_raw(key.raw()));
        let prompt = PromptId(self.next_prompt);
        self.next_prompt += 1;
        self.prompts.insert(prompt, (client.id, id));
        self.step(Input::Prompted(Prompt { id: prompt, by: client.id, content, more: params, key }));
    }

    /// A client says something without asking what comes of it. Should the agent not want it, the session says so.
    pub(super) fn speak(&mut self, client: &Arc<Client>, content: Json, answer: Option<(RequestId, Object)>) {
        self.hub.note_peer(&self.id, &client.peer);
        self.attach(client);
        if let Some((id, answer)) = answer {
            self.say(client.id, json::response(&id, &answer));
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
            Some((prompt, _)) => self.step(Input::TakenBack(*prompt)),
            None => self.unforward(client, id),
        }
    }

    pub(super) fn unhold(&mut self, client: &Arc<Client>, id: &RequestId, prompt: PromptId) {
        self.attach(client);
        if self.session.held().iter().any(|held| held.id == prompt) {
            self.step(Input::TakenBack(prompt));
            self.say(client.id, json::response(id, &Object::default()));
        } else {
            let error = RpcError::new(code::INVALID_PARAMS, "no such prompt waits in this session");
            self.say(client.id, json::error(id, &error));
        }
    }

    /// Ends the session for all: its turn is over, and no prompt of anybody's is left without an answer.
    pub(super) fn delete(&mut self, client: &Arc<Client>, id: &RequestId) {
        self.step(Input::Cancelled);
        self.step(Input::AgentGone(cancelled_state()));
        self.attach(client);
        self.say(client.id, json::response(id, &Object::default()));
        self.ends = Some(End::Deleted);
    }

    /// The session was deleted before these clients had been told all of it.
    pub(super) fn tell_those_behind(&mut self, error: &RpcError) {
        let transcript = self.session.transcript();
        let telling = Telling { from: self.decoder.dialect(), transcript, meta_before: None };
        for seat in self.seats.values_mut().filter(|seat| !seat.is_live()) {
            let mut lines = String::new();
            let ended = Update::State(cancelled_state());
            for update in seat.listener.tell(&ended, telling, &mut super::fresh, &mut self.losses) {
                lines.push_str(&live::update_line(&self.id, &update, None));
            }
            lines.push_str(&seat.due(u64::MAX));
            if let Some(request) = seat.asked() {
                lines.push_str(&json::error(&request.id, error));
            }
            seat.client.outbox.push(lines.into());
        }
    }

    /// Tells the sender of a prompt what came of it.
    pub(super) fn settle(&mut self, prompt: PromptId, by: ClientId, outcome: &Settled, marks: &StepMarks) {
        if self.unasked.remove(&prompt) {
            return self.settle_unasked(outcome);
        }
        let Some((client, id)) = self.prompts.remove(&prompt).filter(|(client, _)| *client == by) else {
            return;
        };
        let Some(seat) = self.seats.get(&client) else { return };
        let dialect = seat.client.dialect();
        let (line, place): (String, Option<&Marks>) = match outcome {
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
                // The answer comes before the message.
                (json::response(&id, &result), Some(&marks.before))
            }
            Settled::Ended { message, state, fields } => {
                match live::turn_result(state, fields, &mut self.losses) {
                    Ok(mut result) => {
                        // Version 1 has no place for it, and a client that counts changes wants to know what is what.
                        if seat.client.terms().is_some_and(|terms| terms.wants_seq) {
                            json::note(&mut result, live::MESSAGE, message.as_json().into());
                        }
                        (json::response(&id, &result), Some(&marks.ended))
                    }
                    Err(error) => (json::error(&id, &error), Some(&marks.ended)),
                }
            }
            Settled::TakenBack if dialect == Dialect::V1 => (json::response(&id, &cancelled()), None),
            Settled::TakenBack => {
                let error = RpcError::new(code::REQUEST_CANCELLED, "the prompt was taken back");
                (json::error(&id, &error), None)
            }
            Settled::Rejected(error) => {
                let error = RpcError::from_raw(error.raw());
                // An agent that holds prompts itself says in this way that it gave one back.
                if dialect == Dialect::V1 && error.code() == code::REQUEST_CANCELLED {
                    (json::response(&id, &cancelled()), None)
                } else {
                    (json::error(&id, &error), None)
                }
            }
            Settled::NoRoom(refused) => {
                let error =
                    RpcError::new(code::INTERNAL_ERROR, format!("the prompt was not taken: {refused}"));
                (json::error(&id, &error), None)
            }
            Settled::TooMany { limit } => {
                let message = format!("{limit} prompts wait in this session already: try again later");
                (json::error(&id, &RpcError::new(code::INTERNAL_ERROR, message)), None)
            }
        };
        self.say_at(client, line, place);
    }

    /// What came of a prompt that nobody waits for is seen in the session, unless it never came into it.
    fn settle_unasked(&mut self, outcome: &Settled) {
        let error = match outcome {
            Settled::Accepted { .. } | Settled::Ended { .. } | Settled::TakenBack => return,
            Settled::Rejected(error) => RpcError::from_raw(error.raw()),
            Settled::NoRoom(refused) => {
                RpcError::new(code::INTERNAL_ERROR, format!("the prompt was not taken: {refused}"))
            }
            Settled::TooMany { limit } => {
                RpcError::new(code::INTERNAL_ERROR, format!("{limit} prompts wait in this session already"))
            }
        };
        self.step(Input::Noted(Update::State(live::failed_state(&error))));
    }

    /// Keeps what a response said about modes, options and commands.
    pub(super) fn learn(&mut self, result: &Object) {
        for update in live::learned(result) {
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
            _ if method.starts_with("terminal/") => self.serve_terminal(id, &method, &params),
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
        // The agent's name for the tool call may not be the session's.
        if let Some(mut call) = json::member(&params, "toolCall")
            && let Some(agents) = json::literal(&call, "toolCallId")
        {
            call.set("toolCallId", self.session.names().tool_call(&agents.into()).as_json());
            params.set("toolCall", call.to_json());
        }
        let asked = Asked { id, method, params, clients: std::collections::HashMap::new(), forwarded: false };
        let question = self.new_question(asked);
        self.step(Input::Asked { question, form });
    }

    /// A question for one client: the one whose prompt runs, else the one that is here the longest.
    pub(super) fn forward_to_client(&mut self, id: RequestId, method: String, params: Object) {
        let prompter = self.session.prompter().filter(|client| self.seats.contains_key(client));
        let Some(client) = prompter.or_else(|| self.session.drivers().next()) else {
            let error =
                RpcError::new(code::METHOD_NOT_FOUND, format!("no client is here to answer {method}"));
            if let Some((agent, _)) = self.bound() {
                agent.answer(&id, &Err(json::error_object(&error)));
            }
            return;
        };
        let asked = Asked { id, method, params, clients: std::collections::HashMap::new(), forwarded: true };
        let question = self.new_question(asked);
        self.ask(question, client);
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
        let to = seat.client.dialect();
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
        let line = said.map(|params| {
            let about = Question { session: self.me.clone(), about: question };
            let id = seat.client.ask(about)?;
            asked.clients.insert(client, id.clone());
            Some(write::request(&id, &asked.method, Some(params.to_json().raw())) + "\n")
        });
        match line {
            Ok(Some(line)) => self.say(client, line),
            // One that cannot be asked counts as one that cannot answer.
            Ok(None) | Err(_) => self.answered(question, client, Answer::Error(cannot_ask())),
        }
    }

    /// Tells a client that its answer is not needed any more.
    pub(super) fn withdraw(&mut self, question: QuestionId, client: ClientId) {
        let id = self.questions.get_mut(&question).and_then(|asked| asked.clients.remove(&client));
        if let Some(id) = id {
            self.say(client, cancel_line(&id) + "\n");
        }
    }

    pub(super) fn answered(&mut self, question: QuestionId, by: ClientId, answer: Answer) {
        let Some(asked) = self.questions.get_mut(&question) else { return };
        asked.clients.remove(&by);
        let from = self.seats.get(&by).map_or(Dialect::V2, |seat| seat.client.dialect());
        let to = self.agent.as_ref().map_or(Dialect::V2, |bound| bound.agent.dialect);
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
        let found = self.questions.iter().find(|(_, asked)| asked.id == *id).map(|(question, _)| *question);
        if let Some(question) = found {
            self.step(Input::Unasked(question));
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
            r#"{{"sessionUpdate":"session_info_update","_meta":{{"parlor/held":[{}]}}}}"#,
            list.join(",")
        );
        let wants_seq =
            self.seats.get(&client).and_then(|seat| seat.client.terms()).is_some_and(|terms| terms.wants_seq);
        let seq = wants_seq.then(|| self.session.transcript().seq());
        self.say(client, live::update_line(&self.id, &update, seq));
    }

    /// Something of the agent's for all who take part.
    pub(super) fn agent_notes(&mut self, line: &str) {
        let line =
            parlor_dialect::with_ids(line, Some(&self.id), None).unwrap_or_else(|| line.to_owned()) + "\n";
        let clients: Vec<ClientId> = self.seats.keys().copied().collect();
        clients.into_iter().for_each(|client| self.say(client, line.clone()));
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
fn cannot_ask() -> Json {
    json::error_object(&RpcError::new(code::METHOD_NOT_FOUND, "the client cannot be asked this"))
}

/// The state of a session whose turn was cancelled.
fn cancelled_state() -> State {
    let stop_reason = Some("cancelled".into());
    State { activity: Activity::Idle, stop_reason, fields: Object::default(), meta: None }
}

/// How a v1 client is told that its prompt was not wanted any more.
fn cancelled() -> Object {
    let mut result = Object::default();
    result.set("stopReason", json::string("cancelled"));
    result
}
