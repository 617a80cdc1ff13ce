//! What simulated agents do.

use parlor_dialect::Dialect;
use parlor_engine::{AgentCall, AgentEvent, Event, Frame};
use parlor_json::{Json, Object};
use parlor_wire::{RequestId, RpcError, code};

use super::agent::{AgentRequest, AgentSessionKey, Receiver, ServerCall};
use super::client::Tag;
use super::jobs::update_line;
use super::plan::{Echo, Ids};
use super::shell::{Message, error};
use super::world::World;

impl World {
    /// An agent does something in one of its sessions.
    pub(super) fn agent_acts(&mut self) {
        let mut places = Vec::new();
        for (process, one) in self.processes.iter().enumerate() {
            if one.is_alive && !one.is_hung {
                let linked = one.sessions.iter().filter(|(_, session)| session.epoch().is_some());
                places
                    .extend(linked.map(|(session, _)| AgentSessionKey { process, session: session.clone() }));
            }
        }
        // Those that have something to do are busier than the others.
        let has_prompts = |place: &AgentSessionKey| {
            let session = self.session_of(place);
            session.is_some_and(|session| !session.prompts.is_empty() || !session.steers.is_empty())
        };
        let busy: Vec<_> = places.iter().filter(|place| has_prompts(place)).cloned().collect();
        if let Some(place) = self.random.pick(&busy)
            && self.random.percent(80)
        {
            return self.work(&place);
        }
        let Some(place) = self.random.pick(&places) else { return };
        if self.is_subagent(&place) && self.random.percent(70) {
            return self.subagent_acts(&place);
        }
        match self.random.weighted(&[4, 4, 3]) {
            0 => self.say_info(&place),
            1 => self.revise(&place),
            _ => self.answer_calls(&place),
        }
    }

    pub(super) fn session_of(&self, place: &AgentSessionKey) -> Option<&super::agent::AgentSession> {
        self.processes[place.process].sessions.get(&place.session)
    }

    pub(super) fn session_mut(&mut self, place: &AgentSessionKey) -> Option<&mut super::agent::AgentSession> {
        self.processes[place.process].sessions.get_mut(&place.session)
    }

    /// Sends a message about a session to whoever receives it.
    fn emit(&mut self, place: &AgentSessionKey, event: AgentEvent) {
        let Some(session) = self.session_mut(place) else { return };
        match &mut session.receiver {
            Receiver::Intake { early, .. } => early.push(event),
            Receiver::Session(link) => {
                let link = link.clone();
                let message = Message::Event(Event::Agent(link.epoch, event));
                let _ = self.send_to(&link.session, link.incarnation, message);
            }
            Receiver::Nobody => {
                let Some(home) = session.home.clone() else { return };
                if let AgentEvent::Updates(_) = event {
                    let _ = self.send(&home.session, Message::Event(Event::Agent(home.epoch, event)));
                }
            }
        }
    }

    /// Sends updates about a session.
    pub(super) fn say(&mut self, place: &AgentSessionKey, updates: &[String]) {
        let lines: String = updates.iter().map(|update| update_line(&place.session, update)).collect();
        self.note_subagent_text(place, &lines);
        self.emit(place, AgentEvent::Updates(lines));
    }

    /// The answer to a request of the server goes to who made it.
    pub(super) fn answer_call(&mut self, call: ServerCall, reply: Result<Json, Json>) {
        let ServerCall { link, call, .. } = call;
        let event = Event::Agent(link.epoch, AgentEvent::Response(call, reply));
        let Err(back) = self.send_to(&link.session, link.incarnation, Message::Event(event)) else { return };
        if let Message::Event(Event::Agent(_, AgentEvent::Response(AgentCall::Forwarded(call), _))) = *back {
            let error = RpcError::new(code::INTERNAL_ERROR, "the session was closed");
            self.push(call.client, Frame::error(&call.id, &error), Tag::default());
        }
    }

    /// Works on the prompts of a session.
    fn work(&mut self, place: &AgentSessionKey) {
        let is_steered = self.session_of(place).is_some_and(|session| !session.steers.is_empty());
        if is_steered && self.random.percent(50) {
            return self.answer_steer(place);
        }
        if self.processes[place.process].dialect() == Dialect::V1 {
            self.work_one_by_one(place);
        } else {
            self.work_queueing(place);
        }
    }

    fn work_one_by_one(&mut self, place: &AgentSessionKey) {
        let Some(session) = self.session_of(place) else { return };
        let Some(prompt) = session.prompts.first().cloned() else { return };
        let call_is_cancelled =
            self.processes[place.process].calls.get(&prompt.call).is_some_and(|call| call.is_cancelled);
        let is_cancelled =
            self.session_of(place).is_some_and(|session| session.is_cancelled) || call_is_cancelled;
        if !prompt.is_started {
            if let Some(session) = self.session_mut(place) {
                session.prompts[0].is_started = true;
                session.message = None;
            }
            self.echo(place, &prompt.content);
            return;
        }
        let ends = if is_cancelled { 60 } else { 25 };
        if !self.random.percent(ends) {
            return self.output(place);
        }
        let Some(call) = self.processes[place.process].calls.remove(&prompt.call) else { return };
        if let Some(session) = self.session_mut(place) {
            session.prompts.remove(0);
            session.is_cancelled = false;
            session.message = None;
        }
        let reply = if !is_cancelled && self.random.percent(8) {
            self.ledger.excuse(prompt.token, "the agent failed");
            Err(error("it does not work"))
        } else {
            Ok(Json::parse(format!(r#"{{"stopReason":"{}"}}"#, self.stop_reason(is_cancelled))).unwrap())
        };
        self.answer_call(call, reply);
    }

    fn stop_reason(&mut self, is_cancelled: bool) -> &'static str {
        if is_cancelled {
            return "cancelled";
        }
        match self.random.below(10) {
            0 => "refusal",
            1 => "max_tokens",
            2 => "cancelled",
            _ => "end_turn",
        }
    }

    fn work_queueing(&mut self, place: &AgentSessionKey) {
        let Some(session) = self.session_of(place) else { return };
        let (is_running, is_cancelled) = (session.is_running, session.is_cancelled);
        let unaccepted: Vec<_> =
            session.prompts.iter().filter(|prompt| !prompt.is_accepted).cloned().collect();
        let cancelled: Vec<_> = unaccepted.iter().filter(|prompt| prompt.was_cancelled).cloned().collect();
        // It takes prompts in order, and drops them in any order.
        let dropped = self.random.pick(&cancelled[cancelled.len() / 2..]).filter(|_| self.random.percent(80));
        let dropped = dropped.filter(|_| self.processes[place.process].plan.drops_queue);
        if let Some(prompt) = dropped {
            return self.reject(place, prompt.call, code::REQUEST_CANCELLED);
        }
        if let Some(prompt) = unaccepted.first()
            && self.random.percent(60)
        {
            let withdrawn =
                self.processes[place.process].calls.get(&prompt.call).is_none_or(|call| call.is_cancelled);
            if withdrawn && self.random.percent(70) {
                return self.reject(place, prompt.call, code::REQUEST_CANCELLED);
            }
            if self.random.percent(6) {
                return self.reject(place, prompt.call, code::INTERNAL_ERROR);
            }
            return self.accept(place, prompt.call);
        }
        let Some(session) = self.session_of(place) else { return };
        let has_accepted = session.prompts.iter().any(|prompt| prompt.is_accepted);
        if !is_running {
            if has_accepted || self.random.percent(10) {
                if let Some(session) = self.session_mut(place) {
                    session.is_running = true;
                    session.message = None;
                    if let Some(prompt) = session.prompts.iter_mut().find(|prompt| prompt.is_accepted) {
                        prompt.is_started = true;
                    }
                }
                self.say_state(place, "running", None);
            }
            return;
        }
        if self.random.percent(if is_cancelled { 60 } else { 25 }) {
            return self.end_turn(place);
        }
        self.output(place);
    }

    /// Ends the turn of an agent that reports states.
    pub(super) fn end_turn(&mut self, place: &AgentSessionKey) {
        let is_cancelled = self.session_of(place).is_some_and(|session| session.is_cancelled);
        let reason = self.stop_reason(is_cancelled);
        if let Some(session) = self.session_mut(place) {
            session.is_running = false;
            session.is_cancelled = false;
            session.message = None;
            session.prompts.retain(|prompt| !prompt.is_started || !prompt.is_accepted);
        }
        if self.is_subagent(place) {
            return self.report_subagent(place, "idle", Some(reason));
        }
        self.say_state(place, "idle", Some(reason));
    }

    pub(super) fn say_state(&mut self, place: &AgentSessionKey, state: &str, reason: Option<&str>) {
        let (kind, name) = match self.processes[place.process].dialect() {
            Dialect::Draft => ("state_change", "stop_reason"),
            Dialect::V1 | Dialect::V2 => ("state_update", "stopReason"),
        };
        let reason = reason.map(|reason| format!(r#","{name}":"{reason}""#)).unwrap_or_default();
        self.say(place, &[format!(r#"{{"sessionUpdate":"{kind}","state":"{state}"{reason}}}"#)]);
    }

    /// Accepts a prompt, and perhaps repeats it.
    fn accept(&mut self, place: &AgentSessionKey, call: u64) {
        let process = &mut self.processes[place.process];
        process.next_id += 1;
        let message = format!("u{}.{}", place.process, process.next_id);
        let (dialect, echo) = (process.dialect(), process.plan.echo);
        let Some(session) = process.sessions.get_mut(&place.session) else { return };
        let Some(prompt) = session.prompts.iter_mut().find(|prompt| prompt.call == call) else { return };
        prompt.is_accepted = true;
        prompt.message = Some(message.clone());
        let content = prompt.content.clone();
        session.messages.push(("user_message", message.clone()));
        let echo_first = self.random.percent(40);
        let repeat = match echo {
            Echo::None => None,
            Echo::Whole => Some(format!(
                r#"{{"sessionUpdate":"user_message","messageId":"{message}","content":[{content}]}}"#
            )),
            Echo::Chunks => Some(format!(
                r#"{{"sessionUpdate":"user_message_chunk","messageId":"{message}","content":{content}}}"#
            )),
        };
        if echo_first {
            repeat.iter().for_each(|update| self.say(place, std::slice::from_ref(update)));
        }
        let result = if dialect == Dialect::Draft {
            "{}".to_owned()
        } else {
            format!(r#"{{"messageId":"{message}"}}"#)
        };
        if let Some(call) = self.processes[place.process].calls.remove(&call) {
            self.answer_call(call, Ok(Json::parse(result).unwrap()));
        }
        if !echo_first {
            repeat.iter().for_each(|update| self.say(place, std::slice::from_ref(update)));
        }
    }

    fn reject(&mut self, place: &AgentSessionKey, call: u64, code: i64) {
        let Some(session) = self.session_mut(place) else { return };
        let Some(at) = session.prompts.iter().position(|prompt| prompt.call == call) else { return };
        // The turn that was cancelled may be that of the first prompt that the agent has not accepted.
        let is_first = session.prompts[..at].iter().all(|earlier| earlier.is_accepted);
        let prompt = session.prompts.remove(at);
        if code != code::REQUEST_CANCELLED || is_first || !prompt.was_cancelled {
            self.ledger.excuse(prompt.token, "the agent rejected it");
        } else {
            self.count("prompts dropped with the turn of another");
        }
        if let Some(call) = self.processes[place.process].calls.remove(&call) {
            let error = RpcError::new(code, "no").to_json();
            self.answer_call(call, Err(error));
        }
    }

    /// An agent of version 1 may repeat its prompt.
    fn echo(&mut self, place: &AgentSessionKey, content: &str) {
        if self.processes[place.process].plan.echo == Echo::Chunks {
            let update = format!(r#"{{"sessionUpdate":"user_message_chunk","content":{content}}}"#);
            self.say(place, &[update]);
        }
    }

    /// Says something in a turn.
    pub(super) fn output(&mut self, place: &AgentSessionKey) {
        match self.random.weighted(&[36, 10, 14, 6, 14, 5, 4, 4, 6]) {
            0 => self.chunks(place, "agent_message"),
            1 => self.chunks(place, "agent_thought"),
            2 => self.tool_call(place),
            3 => self.plan_update(place),
            4 => self.ask_people(place),
            5 => self.ask_server(place),
            6 => self.say_info(place),
            7 => self.revise(place),
            _ => self.announce(place),
        }
    }

    /// Chunks of a message, the one that is being written or a new one.
    fn chunks(&mut self, place: &AgentSessionKey, kind: &'static str) {
        let (ids, dialect) =
            (self.processes[place.process].plan.ids, self.processes[place.process].dialect());
        let current = self.session_of(place).and_then(|session| session.message.clone());
        let goes_on = current.as_ref().is_some_and(|(of, _)| *of == kind) && self.random.percent(80);
        let id = if goes_on {
            current.and_then(|(_, id)| id)
        } else if ids == Ids::None {
            None
        } else {
            Some(self.message_id(place, ids, current.as_ref().and_then(|(_, id)| id.clone())))
        };
        if let Some(session) = self.session_mut(place) {
            session.message = Some((kind, id.clone()));
            if let Some(id) = &id {
                session.messages.push((kind, id.clone()));
            }
        }
        let named = id.as_ref().map(|id| format!(r#""messageId":"{id}","#)).unwrap_or_default();
        let whole = id.is_some() && dialect != Dialect::V1 && self.random.percent(15);
        let mut updates = Vec::new();
        for _ in 0..self.random.between(1, 4) {
            let content = self.block();
            updates.push(format!(r#"{{"sessionUpdate":"{kind}_chunk",{named}"content":{content}}}"#));
        }
        if whole {
            let blocks: Vec<_> = (0..self.random.between(0, 2)).map(|_| self.block()).collect();
            let content = blocks.join(",");
            updates.push(format!(r#"{{"sessionUpdate":"{kind}",{named}"content":[{content}]}}"#));
        }
        self.say(place, &updates);
    }

    fn message_id(&mut self, place: &AgentSessionKey, ids: Ids, current: Option<String>) -> String {
        if ids == Ids::Shared
            && let Some(current) = current
            && self.random.percent(50)
        {
            return current;
        }
        let process = &mut self.processes[place.process];
        process.next_id += 1;
        match ids {
            Ids::Counted => format!("m{}", process.next_id),
            Ids::None | Ids::Unique | Ids::Shared => format!("m{}.{}", place.process, process.next_id),
        }
    }

    /// A content block.
    fn block(&mut self) -> String {
        let text = self.tokens.next();
        match self.random.below(12) {
            0 => format!(r#"{{"type":"resource_link","name":"{text}","uri":"file:///a"}}"#),
            1 if self.plan.faults.nonsense => format!(r#"{{"type":"hologram","text":"{text}"}}"#),
            2 => format!(r#"{{"type":"text","text":"{text}","annotations":{{"priority":1}}}}"#),
            3 => format!(r#"{{"text":"é\n{text}\ud83d\ude00","type":"text"}}"#),
            4 => {
                let filler = "lorem ipsum ".repeat(self.random.between(1, 40));
                format!(r#"{{"type":"text","text":"{text} {filler}"}}"#)
            }
            _ => format!(r#"{{"type":"text","text":"{text} "}}"#),
        }
    }

    /// A tool call begins or changes.
    fn tool_call(&mut self, place: &AgentSessionKey) {
        let calls = self.session_of(place).map(|session| session.tool_calls.clone()).unwrap_or_default();
        let is_v1 = self.processes[place.process].dialect() == Dialect::V1;
        let text = self.tokens.next();
        if calls.is_empty() || self.random.percent(40) {
            let is_again = self.plan.faults.nonsense && !calls.is_empty() && self.random.percent(30);
            let id = if is_again {
                self.random.pick(&calls).unwrap_or_default()
            } else {
                self.processes[place.process].next_id += 1;
                format!("t{}.{}", place.process, self.processes[place.process].next_id)
            };
            if let Some(session) = self.session_mut(place) {
                session.message = None;
                session.tool_calls.push(id.clone());
            }
            let kind = if is_v1 { "tool_call" } else { "tool_call_update" };
            let update = format!(
                r#"{{"sessionUpdate":"{kind}","toolCallId":"{id}","title":"{text}","status":"in_progress"}}"#
            );
            return self.say(place, &[update]);
        }
        let id = self.random.pick(&calls).unwrap_or_default();
        let content = format!(r#"{{"type":"content","content":{{"type":"text","text":"{text}"}}}}"#);
        let update = match self.random.below(4) {
            0 => {
                format!(r#"{{"sessionUpdate":"tool_call_update","toolCallId":"{id}","status":"completed"}}"#)
            }
            1 if !is_v1 => {
                format!(
                    r#"{{"sessionUpdate":"tool_call_content_chunk","toolCallId":"{id}","content":{content}}}"#
                )
            }
            2 => {
                format!(r#"{{"sessionUpdate":"tool_call_update","toolCallId":"{id}","content":[{content}]}}"#)
            }
            _ => format!(r#"{{"sessionUpdate":"tool_call_update","toolCallId":"{id}","title":"{text}"}}"#),
        };
        self.say(place, &[update]);
    }

    fn plan_update(&mut self, place: &AgentSessionKey) {
        let text = self.tokens.next();
        let entries = format!(r#"[{{"content":"{text}","priority":"high","status":"pending"}}]"#);
        let is_v1 = self.processes[place.process].dialect() == Dialect::V1;
        let update = match self.random.below(4) {
            0 if !is_v1 => r#"{"sessionUpdate":"plan_removed","planId":"p1"}"#.to_owned(),
            _ if is_v1 => format!(r#"{{"sessionUpdate":"plan","entries":{entries}}}"#),
            place => format!(
                r#"{{"sessionUpdate":"plan_update","plan":{{"type":"items","planId":"p{}","entries":{entries}}}}}"#,
                place % 2
            ),
        };
        self.say(place, &[update]);
    }

    /// Asks for permission, or for a form to be filled in, or something that only one client knows.
    fn ask_people(&mut self, place: &AgentSessionKey) {
        let call = self.session_of(place).and_then(|session| session.tool_calls.last().cloned());
        let call = call.unwrap_or_else(|| "t0".to_owned());
        let session = &place.session;
        let options = r#"[{"optionId":"allow","name":"Allow","kind":"allow_once"},{"optionId":"no","name":"No","kind":"reject_once"}]"#;
        let is_v1 = self.processes[place.process].dialect() == Dialect::V1;
        let (method, params) = match self.random.below(4) {
            0 => (
                "elicitation/create",
                format!(
                    r#"{{"sessionId":"{session}","mode":"form","message":"?","requestedSchema":{{"type":"object","properties":{{}}}}}}"#
                ),
            ),
            1 => ("_vendor/ask", format!(r#"{{"sessionId":"{session}"}}"#)),
            _ if is_v1 => (
                "session/request_permission",
                format!(
                    r#"{{"sessionId":"{session}","toolCall":{{"toolCallId":"{call}"}},"options":{options}}}"#
                ),
            ),
            _ => (
                "session/request_permission",
                format!(
                    r#"{{"sessionId":"{session}","title":"May I?","subject":{{"type":"tool_call","toolCall":{{"toolCallId":"{call}"}}}},"options":{options}}}"#
                ),
            ),
        };
        self.ask(place, method, &params);
    }

    /// Asks for something that the server serves.
    fn ask_server(&mut self, place: &AgentSessionKey) {
        let session = &place.session;
        let (method, params) = match self.random.below(4) {
            0 => ("fs/read_text_file", format!(r#"{{"sessionId":"{session}","path":"/work/a"}}"#)),
            1 => ("terminal/create", format!(r#"{{"sessionId":"{session}","command":"true"}}"#)),
            2 => ("_parlor/settled", format!(r#"{{"sessionId":"{session}"}}"#)),
            _ => (
                "fs/write_text_file",
                format!(r#"{{"sessionId":"{session}","path":"/work/a","content":"x"}}"#),
            ),
        };
        self.ask(place, method, &params);
    }

    fn ask(&mut self, place: &AgentSessionKey, method: &str, params: &str) {
        let process = &mut self.processes[place.process];
        process.next_request += 1;
        let id = process.next_request;
        let Some(session) = process.sessions.get_mut(&place.session) else { return };
        // Who receives nothing answers nothing: the server refuses the request by itself.
        if matches!(session.receiver, Receiver::Nobody) {
            return;
        }
        let Some(epoch) = session.epoch() else { return };
        let request = AgentRequest { method: method.to_owned(), epoch, answers: 0, is_excused: false };
        session.requests.insert(id, request);
        let params: Object = serde_json::from_str(params).expect("it is an object");
        let id = RequestId::from(id);
        self.emit(place, AgentEvent::Request { id, method: method.to_owned(), params });
    }

    /// Says something about the session as a whole, or something that makes no sense.
    fn say_info(&mut self, place: &AgentSessionKey) {
        let text = self.tokens.next();
        let is_v1 = self.processes[place.process].dialect() == Dialect::V1;
        let nonsense = self.plan.faults.nonsense;
        let updates = match self.random.below(12) {
            0 => vec![format!(r#"{{"sessionUpdate":"session_info_update","title":"{text}"}}"#)],
            1 => {
                let count = self.random.between(1, 30);
                let one = |n: usize| format!(r#"{{"sessionUpdate":"session_info_update","_meta":{{"k{}":{n}}}}}"#, n % 3);
                (0..count).map(one).collect()
            }
            2 => vec![format!(r#"{{"sessionUpdate":"session_info_update","_meta":{{"k1":null,"k2":{{"a":"{text}"}}}}}}"#)],
            3 => vec![format!(r#"{{"sessionUpdate":"available_commands_update","availableCommands":[{{"name":"{text}","description":"d"}}]}}"#)],
            4 if is_v1 => vec![r#"{"sessionUpdate":"current_mode_update","currentModeId":"b"}"#.to_owned()],
            4 => vec![r#"{"sessionUpdate":"config_option_update","configOptions":[{"configId":"m","name":"M","type":"select","category":"mode","currentValue":"b","options":[{"value":"a","name":"A"},{"value":"b","name":"B"}]}]}"#.to_owned()],
            5 => vec![r#"{"sessionUpdate":"usage_update","used":1,"size":2}"#.to_owned()],
            6 if nonsense => vec![format!(r#"{{"sessionUpdate":"_vendor_update","text":"{text}"}}"#)],
            7 if nonsense => vec![r#"{"sessionUpdate":"agent_message_chunk","content":7}"#.to_owned(), "[]".to_owned()],
            8 if nonsense => vec![r#"{"sessionUpdate":"notice","severity":"info","title":"hey"}"#.to_owned()],
            9 if nonsense => vec![r#"{"sessionUpdate":"session_info_update","_meta":{"parlor/seq":1,"parlor/x":2}}"#.to_owned()],
            10 if nonsense => {
                // Whatever it is, it ends like a turn.
                if let Some(session) = self.session_mut(place) {
                    session.is_running = !is_v1;
                }
                vec![r#"{"sessionUpdate":"state_update","state":"dreaming"}"#.to_owned()]
            }
            11 if nonsense => {
                let line = format!(r#"{{"jsonrpc":"2.0","method":"_vendor/note","params":{{"sessionId":"{}"}}}}"#, place.session);
                return self.emit(place, AgentEvent::Notification(line));
            }
            _ => vec![r#"{"sessionUpdate":"session_info_update","updatedAt":"2024-01-01T00:00:00Z"}"#.to_owned()],
        };
        self.say(place, &updates);
    }

    /// Replaces, clears or goes on with a message of before; takes a request back.
    fn revise(&mut self, place: &AgentSessionKey) {
        let Some(session) = self.session_of(place) else { return };
        let mut messages = session.messages.clone();
        let requests: Vec<_> = session.open_requests().into_iter().collect();
        messages.retain(|(kind, _)| *kind != "user_message");
        if let Some(id) = self.random.pick(&requests)
            && self.random.percent(40)
        {
            return self.emit(place, AgentEvent::CancelRequest(RequestId::from(id)));
        }
        let Some((kind, id)) = self.random.pick(&messages) else { return };
        let content = self.block();
        let is_v1 = self.processes[place.process].dialect() == Dialect::V1;
        let update = match self.random.below(4) {
            0 if !is_v1 => {
                format!(r#"{{"sessionUpdate":"{kind}","messageId":"{id}","content":[{content}]}}"#)
            }
            1 if !is_v1 => format!(r#"{{"sessionUpdate":"{kind}","messageId":"{id}","content":null}}"#),
            2 if !is_v1 => format!(r#"{{"sessionUpdate":"{kind}","messageId":"{id}","_meta":{{"a":1}}}}"#),
            _ => format!(r#"{{"sessionUpdate":"{kind}_chunk","messageId":"{id}","content":{content}}}"#),
        };
        self.say(place, &[update]);
    }

    /// Answers requests that are not prompts.
    fn answer_calls(&mut self, place: &AgentSessionKey) {
        let calls = self.processes[place.process].calls_of(&place.session);
        for id in calls {
            let calls = &mut self.processes[place.process].calls;
            if calls.get(&id).is_some_and(ServerCall::is_prompt) {
                continue;
            }
            let Some(call) = calls.remove(&id) else { continue };
            let reply = if self.random.percent(25) { Err(error("no")) } else { Ok(Object::new().to_json()) };
            self.answer_call(call, reply);
        }
    }

    /// Brings all that an agent has to its end: what it was asked is answered, and its turns are over. Whether there was
    /// something to do.
    pub(super) fn finish_agent(&mut self, process: usize) -> bool {
        if !self.processes[process].is_alive {
            return false;
        }
        let mut has_done = std::mem::take(&mut self.processes[process].is_hung);
        let names: Vec<_> = self.processes[process].sessions.keys().cloned().collect();
        for session in names {
            let place = AgentSessionKey { process, session };
            let is_call = |call: &ServerCall| !call.is_prompt();
            let calls = self.processes[process].calls_of(&place.session);
            has_done |= calls.iter().any(|id| self.processes[process].calls.get(id).is_some_and(is_call));
            self.answer_calls(&place);
            if self.session_of(&place).is_none_or(|session| session.epoch().is_none()) {
                continue;
            }
            while self.session_of(&place).is_some_and(|session| !session.steers.is_empty()) {
                has_done = true;
                self.answer_steer(&place);
            }
            let prompts = self.session_of(&place).map(|session| session.prompts.clone()).unwrap_or_default();
            for prompt in prompts {
                has_done = true;
                self.finish_prompt(&place, prompt.call, prompt.is_accepted);
            }
            if self.session_of(&place).is_some_and(|session| session.is_running) {
                has_done = true;
                self.end_turn(&place);
            }
        }
        has_done
    }

    fn finish_prompt(&mut self, place: &AgentSessionKey, call: u64, is_accepted: bool) {
        let process = &mut self.processes[place.process];
        if process.dialect() == Dialect::V1 {
            if let Some(session) = process.sessions.get_mut(&place.session) {
                session.prompts.retain(|prompt| prompt.call != call);
                session.is_cancelled = false;
            }
            if let Some(call) = process.calls.remove(&call) {
                self.answer_call(call, Ok(Json::parse(r#"{"stopReason":"end_turn"}"#).unwrap()));
            }
            return;
        }
        if !is_accepted {
            self.accept(place, call);
        }
        if let Some(session) = self.session_mut(place) {
            session.is_running = true;
            session.prompts.iter_mut().for_each(|prompt| prompt.is_started = true);
        }
        self.say_state(place, "running", None);
        self.end_turn(place);
    }

    /// An event of an earlier epoch of the agent arrives.
    pub(super) fn inject_stale(&mut self) {
        let keys: Vec<_> = self.shells.keys().cloned().collect();
        let Some(key) = self.random.pick(&keys) else { return };
        let Some(shell) = self.shells.get(&key) else { return };
        let epoch = shell.machine.epoch();
        if epoch.0 < 2 {
            return;
        }
        let stale = parlor_engine::AgentEpoch(
            self.random.between(1, usize::try_from(epoch.0).unwrap_or(2) - 1) as u64,
        );
        let text = self.tokens.forbidden();
        let event = match self.random.below(5) {
            4 => {
                let prompt = parlor_session::session::PromptId(self.random.between(1, 20) as u64);
                let reply = Ok(Json::parse(r#"{"outcome":"injected"}"#).unwrap());
                AgentEvent::Response(AgentCall::Steer(prompt), reply)
            }
            0 => {
                let prompt = parlor_session::session::PromptId(self.random.between(1, 20) as u64);
                let reply =
                    Ok(Json::parse(format!(r#"{{"messageId":"{text}","stopReason":"end_turn"}}"#)).unwrap());
                AgentEvent::Response(AgentCall::Prompt(prompt), reply)
            }
            1 => AgentEvent::Gone(super::shell::gone()),
            2 => {
                let params =
                    Json::parse(r#"{"sessionId":"x","options":[]}"#).unwrap().to_object().unwrap_or_default();
                let id = RequestId::from(9999);
                AgentEvent::Request { id, method: "session/request_permission".to_owned(), params }
            }
            _ => {
                let update = format!(
                    r#"{{"sessionUpdate":"agent_message_chunk","messageId":"stale","content":{{"type":"text","text":"{text}"}}}}"#
                );
                AgentEvent::Updates(update_line("x", &update))
            }
        };
        if let Some(shell) = self.shells.get_mut(&key) {
            shell.inbox.push_back(Message::Event(Event::Agent(stale, event)));
        }
    }
}
