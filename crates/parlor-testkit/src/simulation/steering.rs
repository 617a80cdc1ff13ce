//! Prompts for running turns: clients that send them, agents that take them, and what has to hold for them.

use parlor_dialect::Dialect;
use parlor_engine::{ClientCall, Frame};
use parlor_json::{Json, Object};
use parlor_session::session::{ClientId, is_steered};
use parlor_session::{EntryId, Role, SessionId, Transcript};
use parlor_wire::{RequestId, RpcError, code};

use super::Invariant;
use super::agent::{AgentSessionKey, ServerCall};
use super::client::What;
use super::ledger::PromptStage;
use super::plan::Echo;
use super::tokens::tokens_in;
use super::world::World;

/// What an agent answers to a prompt for its running turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SteerAnswer {
    Injected,
    PromptRequired,
    Failed,
    Error(i64),
}

/// An answer that an agent is about to send.
#[derive(Debug)]
struct AnsweredSteer {
    call: ServerCall,
    reply: Result<Json, Json>,
    /// The updates that repeat the prompt.
    repetition: Vec<String>,
}

impl World {
    /// A client sends a prompt for the running turn, with metadata or by the method of agents.
    pub(super) fn steer(&mut self, client: ClientId, person: usize) {
        let replicas = self.people[person].replicas.iter().filter(|(_, replica)| replica.is_attached());
        let is_running = |key: &&SessionId| {
            self.shells.get(*key).is_some_and(|shell| shell.machine.session().has_turn_to_steer())
        };
        let running: Vec<_> = replicas.map(|(key, _)| key).filter(is_running).cloned().collect();
        let running = self.random.pick(&running).filter(|_| self.random.percent(90));
        let Some(session) = running.or_else(|| self.own_session(person)) else { return };
        let text = format!("{} now", self.tokens.next());
        let token = self.tokens.last();
        self.count("prompts for running turns");
        self.ledger.prompt_sent(token, &session, client);
        let by_method = self.random.percent(30);
        let is_for_turn_only = by_method && self.random.percent(30);
        if let Some(prompt) = self.ledger.prompts.get_mut(&token) {
            prompt.is_for_turn_only = is_for_turn_only;
        }
        let meta = match self.random.below(3) {
            _ if is_for_turn_only => r#"{"steering":{"idleBehavior":"promptRequired"}}"#,
            _ if by_method => "{}",
            0 => r#"{"parlor/steer":"cancel"}"#,
            _ => r#"{"parlor/steer":true}"#,
        };
        let params = format!(r#"{{"prompt":[{{"type":"text","text":"{text}"}}],"_meta":{meta}}}"#);
        let params: Object = serde_json::from_str(&params).expect("it is an object");
        let what = if by_method { What::Steer(token) } else { What::Prompt(token) };
        let id = RequestId::from(self.new_request(client, Some(&session), what));
        let call =
            if by_method { ClientCall::Steer { id, params } } else { ClientCall::Prompt { id, params } };
        self.call(client, &session, call);
    }

    /// An agent answers the oldest prompt for its running turn, or the oldest two, and may repeat them before or after that.
    pub(super) fn answer_steer(&mut self, place: &AgentSessionKey) {
        let mut answers: Vec<_> = self.take_steer(place).into_iter().collect();
        if self.random.percent(30) {
            answers.extend(self.take_steer(place));
        }
        let is_repeated_first = self.random.percent(40);
        let is_one_by_one = self.random.percent(50);
        if is_repeated_first && !is_one_by_one {
            answers
                .iter()
                .flat_map(|answer| &answer.repetition)
                .for_each(|update| self.repeat(place, update));
        }
        let mut later = Vec::new();
        for AnsweredSteer { call, reply, repetition } in answers {
            if is_repeated_first && is_one_by_one {
                repetition.iter().for_each(|update| self.repeat(place, update));
            }
            self.answer_call(call, reply);
            if !is_repeated_first && is_one_by_one {
                repetition.iter().for_each(|update| self.repeat(place, update));
            } else if !is_repeated_first {
                later.extend(repetition);
            }
        }
        later.iter().for_each(|update| self.repeat(place, update));
    }

    fn repeat(&mut self, place: &AgentSessionKey, update: &String) {
        self.say(place, std::slice::from_ref(update));
    }

    /// Takes the oldest prompt for the running turn of an agent, and decides about it.
    fn take_steer(&mut self, place: &AgentSessionKey) -> Option<AnsweredSteer> {
        let dialect = self.processes[place.process].dialect();
        let session = self.session_mut(place)?;
        if session.steers.is_empty() {
            return None;
        }
        let prompt = session.steers.remove(0);
        let is_running = match dialect {
            Dialect::V1 => session.prompts.iter().any(|prompt| prompt.is_started),
            Dialect::V2 | Dialect::Draft => session.is_running,
        };
        let call = self.processes[place.process].calls.remove(&prompt.call)?;
        let answer = match self.random.below(20) {
            0 => SteerAnswer::Failed,
            1 => SteerAnswer::Error(code::INTERNAL_ERROR),
            2..8 if prompt.was_cancelled || call.is_cancelled => SteerAnswer::Error(code::REQUEST_CANCELLED),
            2..5 => SteerAnswer::PromptRequired,
            _ if is_running || self.random.percent(20) => SteerAnswer::Injected,
            _ => SteerAnswer::PromptRequired,
        };
        let mut repetition = Vec::new();
        let reply = match answer {
            SteerAnswer::Injected => {
                self.count("prompts taken into running turns");
                self.ledger.prompt_steered(prompt.token);
                repetition = self.repetition(place, &prompt.content);
                Ok(outcome("injected"))
            }
            SteerAnswer::PromptRequired => {
                self.ledger.prompt_not_steered(prompt.token);
                Ok(outcome("promptRequired"))
            }
            SteerAnswer::Failed => {
                self.ledger.excuse(prompt.token, "the agent did not take it into its turn");
                Ok(outcome("failed"))
            }
            SteerAnswer::Error(code) => {
                if code != code::REQUEST_CANCELLED || !prompt.was_cancelled {
                    self.ledger.excuse(prompt.token, "the agent rejected it");
                }
                Err(RpcError::new(code, "no").to_json())
            }
        };
        Some(AnsweredSteer { call, reply, repetition })
    }

    /// The prompt as the agent repeats it, if it does: as a message, or in one chunk or two.
    fn repetition(&mut self, place: &AgentSessionKey, content: &str) -> Vec<String> {
        let process = &mut self.processes[place.process];
        process.next_id += 1;
        let id = match process.dialect() {
            Dialect::V1 => String::new(),
            Dialect::V2 | Dialect::Draft => {
                format!(r#""messageId":"u{}.{}","#, place.process, process.next_id)
            }
        };
        let chunk =
            |block: &str| format!(r#"{{"sessionUpdate":"user_message_chunk",{id}"content":{block}}}"#);
        match process.plan.echo {
            Echo::None => Vec::new(),
            Echo::Whole => {
                vec![format!(r#"{{"sessionUpdate":"user_message",{id}"content":[{content}]}}"#)]
            }
            Echo::Chunks => match content.split_once(" now").filter(|_| self.random.percent(30)) {
                Some((start, end)) => {
                    let rest = r#"{"type":"text","text":" now"}"#;
                    vec![chunk(&format!("{start}{end}")), chunk(rest)]
                }
                None => vec![chunk(content)],
            },
        }
    }

    /// Notes what the sender of a `_session/steering` gets as a response.
    pub(super) fn note_steer_outcome(&mut self, token: u64, is_error: bool, frame: &Frame) {
        let has = |name: &str| frame.as_str().contains(&format!(r#""outcome":"{name}""#));
        self.check_withdrawal(token, frame);
        let stage = if is_error || has("failed") {
            PromptStage::Refused
        } else if has("promptRequired") {
            self.count("prompts given back");
            PromptStage::GivenBack
        } else if has("injected") {
            PromptStage::Accepted
        } else {
            // It started a turn, or waits for one.
            PromptStage::Sent
        };
        if let Some(prompt) = self.ledger.prompts.get_mut(&token) {
            prompt.stage = stage;
        }
    }

    /// A client gets the response to a prompt: it was not withdrawn without a reason.
    pub(super) fn check_withdrawal(&mut self, token: u64, frame: &Frame) {
        let is_withdrawn = frame.as_str().contains(&format!(r#""code":{}"#, code::REQUEST_CANCELLED));
        let excuse = self.ledger.prompts.get(&token).and_then(|prompt| prompt.excuse);
        if is_withdrawn && excuse.is_none() {
            self.fail(Invariant::Prompts, format!("the prompt «{token}» was withdrawn, and nobody did that"));
        }
    }

    /// What is wrong with the messages of a session that are marked as parts of a running turn: an agent has taken each of them,
    /// in this order.
    pub(super) fn steered_wrongly(&self, key: &SessionId, transcript: &Transcript) -> Option<String> {
        let mut last = 0;
        for entry in transcript.entries() {
            let EntryId::Message(Role::User, _) = entry.id() else { continue };
            let token = tokens_in(entry.body().content.to_json().as_str()).last();
            let Some(prompt) = token.and_then(|token| self.ledger.prompts.get(&token)) else { continue };
            if !is_steered(entry) {
                continue;
            }
            let Some(at) = prompt.steered_at else {
                return Some(format!(
                    "the prompt {token:?} of {key} is in a turn that no agent took it into"
                ));
            };
            if at <= last {
                return Some(format!("the prompt {token:?} of {key} is in the wrong order"));
            }
            last = at;
        }
        None
    }
}

fn outcome(name: &str) -> Json {
    Object::new().with("outcome", name).to_json()
}
