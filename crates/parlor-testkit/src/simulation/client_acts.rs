//! What simulated clients do.

use parlor_dialect::Dialect;
use parlor_engine::{ClientCall, Event, ForkKind, ForkRequest, HandoffAgent, ReplayFrom};
use parlor_json::{Json, JsonStr, Object};
use parlor_session::session::{Answer, ClientId, PeerRequestId, PromptId, Scope};
use parlor_session::{EntryId, SessionId};
use parlor_wire::RequestId;

use super::client::{Made, What};
use super::jobs::Job;
use super::replica::From;
use super::shell::{Message, error};
use super::world::World;

impl World {
    /// A client program does something.
    pub(super) fn client_acts(&mut self) {
        let person = self.random.below(self.people.len());
        let Some(client) = self.people[person].connection else {
            let client = self.connect(person);
            if self.random.percent(60) {
                self.attach(client, person);
            }
            return;
        };
        if self.people[person].plan.is_driver {
            self.driver_acts(client, person);
        } else {
            self.observer_acts(client, person);
        }
    }

    fn observer_acts(&mut self, client: ClientId, person: usize) {
        match self.random.weighted(&[10, 3, 1]) {
            0 => self.attach(client, person),
            1 => self.stall(person),
            _ => self.lose_connection(client),
        }
    }

    fn driver_acts(&mut self, client: ClientId, person: usize) {
        let weights = [8, 30, 6, 5, 6, 12, 4, 3, 2, 1, 4, 6, 5, 4, 2, 3, 5, 3, 10];
        match self.random.weighted(&weights) {
            0 => self.attach(client, person),
            1 => self.prompt(client, person),
            2 => self.cancel_turn(client, person),
            3 => self.cancel_request(client),
            4 => self.withdraw(client, person),
            5 => self.answer_one(client, person),
            6 => self.close(client, person),
            7 => self.set_title(client),
            8 => self.archive(client),
            9 => self.delete(client),
            10 => self.status(client),
            11 => self.fork(client),
            12 => self.forward(client),
            13 => self.stall(person),
            14 => self.lose_connection(client),
            15 => self.new_session(client),
            16 => self.answer_listed(client),
            17 => self.read_older(client),
            _ => self.steer(client, person),
        }
    }

    /// A session that exists, or did.
    fn any_session(&mut self) -> Option<SessionId> {
        let sessions = self.known_sessions.clone();
        self.random.pick(&sessions)
    }

    /// A session that the client is attached to, else any.
    pub(super) fn own_session(&mut self, person: usize) -> Option<SessionId> {
        let replicas = self.people[person].replicas.iter();
        let own = replicas.filter(|(_, replica)| replica.is_attached()).map(|(id, _)| id.clone());
        let own: Vec<_> = own.filter(|id| !self.subagent_sessions.contains(id)).collect();
        if own.is_empty() || self.random.percent(10) { self.any_session() } else { self.random.pick(&own) }
    }

    fn new_session(&mut self, client: ClientId) {
        if self.stored_sessions().len() >= self.plan.sessions {
            return;
        }
        let kind = self.random.below(self.plan.agents.len());
        let session = self.new_session_id();
        let is_adopted = self.random.percent(15);
        let request = if is_adopted {
            let person = self.connections[&client].person;
            let request = self.new_request(client, Some(&session), What::Attach(From::Start));
            self.people[person].replica(&session).attach(request, From::Start);
            request
        } else {
            self.new_request(client, None, What::New)
        };
        self.note(|| format!("client {} wants a session with agent{kind}, adopted: {is_adopted}", client.0));
        self.jobs.push(Job::New { client, request, session, kind, is_adopted });
    }

    fn attach(&mut self, client: ClientId, person: usize) {
        if self.known_sessions.is_empty() {
            if self.people[person].plan.is_driver {
                self.new_session(client);
            }
            return;
        }
        let subagents = self.subagent_sessions.clone();
        let subagent = self.random.pick(&subagents).filter(|_| self.random.percent(20));
        let Some(session) = subagent.or_else(|| self.any_session()) else { return };
        let plan = self.people[person].plan.clone();
        let connection = self.connections.get(&client);
        let is_waiting = connection.is_some_and(|to| to.waits_for(&session));
        let is_close = |made: &Made| made.what == What::Close && made.session.as_ref() == Some(&session);
        // A client cannot distinguish what is sent before it has left from a replay.
        let is_closing = connection.is_some_and(|to| to.open().any(|(_, made)| is_close(made)))
            || self.shells.get(&session).is_some_and(|shell| shell.is_leaving(client));
        let is_begun = connection.is_some_and(|to| to.open().any(|(_, made)| made.what == What::New));
        let replica = self.people[person].replica(&session);
        // It may not want to wait for the response, and begin again.
        let is_again = replica.is_attaching();
        let may_begin_again = plan.wants_seq && !is_begun && !is_closing;
        if is_again && !(may_begin_again && self.random.percent(30)) {
            return;
        }
        let may_replay =
            !is_begun && !is_closing && (plan.wants_seq || (replica.is_detached() && !is_waiting));
        let known = replica.seq;
        let messages = self.message_ids(&session);
        let from = match self.random.below(5) {
            _ if is_again => From::Start,
            0 | 1 if may_replay => From::Start,
            2 if plan.dialect != Dialect::V1 => match known {
                Some(seq) if may_replay && plan.wants_seq => From::After(seq),
                _ => From::Now,
            },
            3 if may_replay && plan.dialect != Dialect::V1 => match self.random.pick(&messages) {
                Some(message) => From::Message(message),
                None => From::Start,
            },
            _ => From::Now,
        };
        self.attach_from(client, person, &session, from);
    }

    pub(super) fn attach_from(&mut self, client: ClientId, person: usize, session: &SessionId, from: From) {
        let replay = match &from {
            From::Start => ReplayFrom::Start,
            From::Now => ReplayFrom::Now,
            From::After(seq) => ReplayFrom::After(*seq),
            From::Message(message) => ReplayFrom::Message(message.as_str().into()),
        };
        let id = self.new_request(client, Some(session), What::Attach(from.clone()));
        self.people[person].replica(session).attach(id, from);
        let call = ClientCall::Attach {
            id: RequestId::from(id),
            from: replay,
            cwd: None,
            members: Object::default(),
        };
        self.call(client, session, call);
    }

    /// The messages of a session.
    fn message_ids(&self, session: &SessionId) -> Vec<String> {
        let Some(shell) = self.shells.get(session) else { return Vec::new() };
        let entries = shell.machine.transcript().entries().iter();
        let messages = entries.filter_map(|entry| {
            let EntryId::Message(_, id) = entry.id() else { return None };
            Some(id.as_json().to_text().into_owned())
        });
        messages.collect()
    }

    fn prompt(&mut self, client: ClientId, person: usize) {
        let Some(session) = self.own_session(person) else { return self.new_session(client) };
        if self.plan.faults.nonsense && self.random.percent(5) {
            let id = self.new_request(client, Some(&session), What::Other("bad prompt"));
            let params = serde_json::from_str(r#"{"prompt":[{"type":"text"}]}"#).expect("it is an object");
            return self.call(client, &session, ClientCall::Prompt { id: RequestId::from(id), params });
        }
        let keyed = self.people[person].keyed.clone();
        if let Some((session, key, text)) = self.random.pick(&keyed).filter(|_| self.random.percent(10)) {
            let token = super::tokens::tokens_in(&text).last().unwrap_or_default();
            return self.send_prompt(client, &session, &text, token, Some(&key));
        }
        let text = self.tokens.next();
        let token = self.tokens.last();
        let text = format!("{text} please");
        let key = self.random.percent(20).then(|| format!("k{token}"));
        if let Some(key) = &key {
            self.people[person].keyed.push((session.clone(), key.clone(), text.clone()));
        }
        self.send_prompt(client, &session, &text, token, key.as_deref());
    }

    fn send_prompt(
        &mut self,
        client: ClientId,
        session: &SessionId,
        text: &str,
        token: u64,
        key: Option<&str>,
    ) {
        let meta = key.map(|key| format!(r#","_meta":{{"parlor/key":"{key}"}}"#)).unwrap_or_default();
        let params = format!(r#"{{"prompt":[{{"type":"text","text":"{text}"}}]{meta}}}"#);
        let params: Object = serde_json::from_str(&params).expect("it is an object");
        let id = self.new_request(client, Some(session), What::Prompt(token));
        self.ledger.prompt_sent(token, session, client);
        self.call(client, session, ClientCall::Prompt { id: RequestId::from(id), params });
    }

    fn cancel_turn(&mut self, client: ClientId, person: usize) {
        let subagents = self.subagent_sessions.clone();
        let subagent = self.random.pick(&subagents).filter(|_| self.random.percent(30));
        let Some(session) = subagent.or_else(|| self.own_session(person)) else { return };
        let scope = if self.random.percent(50) { Scope::Turn } else { Scope::Session };
        self.note(|| format!("client {} cancels {session} ({scope:?})", client.0));
        match scope {
            Scope::Turn => self.ledger.turn_cancelled(&session, client),
            Scope::Session | Scope::Prompt => {
                self.ledger.session_ended(&session, "the session was cancelled");
            }
        }
        let _ = self.send(&session, Message::Event(Event::CancelTurn { by: client, scope }));
    }

    fn cancel_request(&mut self, client: ClientId) {
        let Some(connection) = self.connections.get(&client) else { return };
        let open: Vec<_> = connection.open().map(|(id, made)| (id, made.what.clone())).collect();
        let sessions: Vec<_> = connection.sessions.iter().cloned().collect();
        let Some((id, what)) = self.random.pick(&open) else { return };
        if let What::Prompt(token) | What::Steer(token) = what {
            self.ledger.excuse(Some(token), "its request was cancelled");
        }
        self.note(|| format!("client {} cancels request {id}", client.0));
        for session in sessions {
            if !self.shells.contains_key(&session) {
                continue;
            }
            let id = RequestId::from(id);
            let _ = self.send(&session, Message::Event(Event::CancelRequest { client, id }));
        }
    }

    fn withdraw(&mut self, client: ClientId, person: usize) {
        let Some(session) = self.own_session(person) else { return };
        let queue = self.people[person].replica(&session).queue.clone().unwrap_or_default();
        let queue: Vec<_> = queue.as_array().cloned().unwrap_or_default();
        let prompt = match self.random.pick(&queue) {
            Some(queued) => {
                let text = queued["text"].as_str().unwrap_or_default();
                self.ledger.excuse(super::tokens::tokens_in(text).last(), "it was withdrawn");
                queued["id"].as_u64().unwrap_or_default()
            }
            None if self.plan.faults.nonsense => 999,
            None => return,
        };
        let id = self.new_request(client, Some(&session), What::Other("withdraw"));
        let call = ClientCall::WithdrawPrompt { id: RequestId::from(id), prompt: PromptId(prompt) };
        self.call(client, &session, call);
    }

    fn answer_one(&mut self, client: ClientId, person: usize) {
        let open: Vec<_> = self.people[person].requests.keys().copied().collect();
        let Some(id) = self.random.pick(&open) else { return };
        self.answer_request(client, person, id);
    }

    /// Answers a request of an agent in one way or another.
    pub(super) fn answer_request(&mut self, client: ClientId, person: usize, id: u64) {
        let Some(request) = self.people[person].requests.get(&id) else { return };
        let result = match request.method.as_str() {
            "session/request_permission" => r#"{"outcome":{"outcome":"selected","optionId":"allow"}}"#,
            "elicitation/create" => r#"{"action":"accept","content":{}}"#,
            _ => "{}",
        };
        let answer = match self.random.below(6) {
            0 => Answer::Error(error("I cannot")),
            1 if self.plan.faults.nonsense => Answer::Result(Json::parse("7").unwrap()),
            _ => Answer::Result(Json::parse(result).unwrap()),
        };
        self.answer(client, id, answer);
    }

    /// Answers a request of any session, which the client need not be attached to, or one that is over.
    fn answer_listed(&mut self, client: ClientId) {
        let open = self.shells.iter().flat_map(|(session, shell)| {
            shell.open_requests.iter().map(move |request| (session.clone(), *request))
        });
        let open: Vec<_> = open.collect();
        let listed = self.random.pick(&open).or_else(|| Some((self.any_session()?, PeerRequestId(0))));
        let Some((session, peer_request)) = listed else { return };
        self.count("answers by request id");
        let id = RequestId::from(self.new_request(client, Some(&session), What::Other("answer")));
        let result = Json::parse(
            r#"{"outcome":{"outcome":"selected","optionId":"allow"},"action":"accept","content":{}}"#,
        );
        let result = result.expect("it is JSON");
        self.call(client, &session, ClientCall::AnswerRequest { id, peer_request, result });
    }

    /// Reads a page of entries, and says what a person has seen.
    fn read_older(&mut self, client: ClientId) {
        let Some(session) = self.any_session() else { return };
        let before = 1 + self.random.below(40) as u64;
        let id = RequestId::from(self.new_request(client, Some(&session), What::Other("older")));
        self.call(client, &session, ClientCall::Older { id, before, entries: 5 });
        let id = RequestId::from(self.new_request(client, Some(&session), What::Other("seen")));
        self.call(client, &session, ClientCall::Seen { id, seq: before });
    }

    fn close(&mut self, client: ClientId, person: usize) {
        let Some(session) = self.own_session(person) else { return };
        self.ledger.session_ended(&session, "the session was closed");
        let id = self.new_request(client, Some(&session), What::Close);
        self.call(client, &session, ClientCall::Close { id: RequestId::from(id) });
    }

    fn set_title(&mut self, client: ClientId) {
        let Some(session) = self.any_session() else { return };
        let title = self.random.percent(70).then(|| JsonStr::new(&self.tokens.next()));
        let id = self.new_request(client, Some(&session), What::Other("title"));
        self.call(client, &session, ClientCall::SetTitle { id: RequestId::from(id), title });
    }

    fn archive(&mut self, client: ClientId) {
        let Some(session) = self.any_session() else { return };
        let archived = self.random.percent(60);
        if archived {
            self.ledger.session_ended(&session, "the session was archived");
        }
        let id = self.new_request(client, Some(&session), What::Other("archive"));
        self.call(client, &session, ClientCall::Archive { id: RequestId::from(id), archived });
    }

    fn delete(&mut self, client: ClientId) {
        let Some(session) = self.any_session().filter(|_| self.random.percent(40)) else { return };
        self.ledger.session_ended(&session, "the session was deleted");
        let id = self.new_request(client, Some(&session), What::Other("delete"));
        self.call(client, &session, ClientCall::Delete { id: RequestId::from(id) });
    }

    fn status(&mut self, client: ClientId) {
        let Some(session) = self.any_session() else { return };
        let id = self.new_request(client, Some(&session), What::Other("status"));
        self.call(client, &session, ClientCall::Status { id: RequestId::from(id) });
    }

    fn fork(&mut self, client: ClientId) {
        if self.stored_sessions().len() >= self.plan.sessions + 3 {
            return;
        }
        let Some(session) = self.any_session() else { return };
        let messages = self.message_ids(&session);
        let message = self.random.pick(&messages).filter(|_| self.random.percent(70));
        let named = self.people[self.connections[&client].person].aliases.iter();
        let named = named.flat_map(|(session, aliases)| aliases.keys().map(move |alias| (session, alias)));
        let named: Vec<_> = named.map(|(session, alias)| (session.clone(), alias.clone())).collect();
        let (session, message) = match self.random.pick(&named).filter(|_| self.random.percent(40)) {
            Some((session, alias)) => (session, Some(alias)),
            None => (session, message),
        };
        let kind = match self.random.below(4) {
            0 => ForkKind::Edit,
            1 => ForkKind::Regenerate,
            _ => ForkKind::Fork,
        };
        let mut params = Object::default();
        if let Some(message) = &message {
            params.set("messageId", message);
        } else if self.plan.faults.nonsense && self.random.percent(20) {
            params.set("messageId", "no such message");
        }
        if kind == ForkKind::Edit {
            let text = self.tokens.next();
            params.set(
                "prompt",
                Json::parse(format!(r#"[{{"type":"text","text":"{text} instead"}}]"#)).unwrap(),
            );
        }
        let id = self.new_request(client, Some(&session), What::New);
        let id = RequestId::from(id);
        let handoff = (kind == ForkKind::Fork && self.random.percent(30)).then(|| {
            let kind = self.random.below(self.plan.agents.len());
            HandoffAgent { name: format!("agent{kind}"), dialect: None }
        });
        let request = ForkRequest { id, params, kind, known_agent: None, handoff };
        self.call(client, &session, ClientCall::Fork(Box::new(request)));
    }

    /// Asks something that only the agent can answer.
    fn forward(&mut self, client: ClientId) {
        let Some(session) = self.any_session() else { return };
        let (method, members) = match self.random.below(4) {
            0 => ("session/set_mode", r#","modeId":"b""#),
            1 => ("session/set_config_option", r#","configId":"m","value":"a","type":"select""#),
            2 => ("terminal/cancel", r#","terminalId":"x""#),
            _ => ("_vendor/ask", ""),
        };
        let params = format!(r#"{{"sessionId":{}{members}}}"#, session.as_json().as_literal());
        let params: Object = serde_json::from_str(&params).expect("it is an object");
        let is_request = method != "_vendor/ask" || self.random.percent(70);
        let id = is_request.then(|| self.new_request(client, Some(&session), What::Other("forward")));
        let id = id.map(RequestId::from);
        self.call(client, &session, ClientCall::Forward { id, method: method.to_owned(), params });
    }

    fn stall(&mut self, person: usize) {
        if self.plan.faults.stalls {
            self.people[person].is_stalled = !self.people[person].is_stalled;
        }
    }

    fn lose_connection(&mut self, client: ClientId) {
        if self.plan.faults.disconnects {
            self.disconnect(client);
        }
    }
}
