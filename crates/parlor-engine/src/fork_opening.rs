//! Opens a stored fork for the client that requested it.
//!
//! ```text
//! forking -> starting -> attaching -> (prompting) -> finished
//!        \           \
//!         `-----------`-> responding, or prompting with the response -> finished
//! ```
//!
//! An agent that can fork is asked to. The client is then attached to the fork and sends its first prompt. Every other fork
//! is opened from the store when a client uses it, and its agent gets the transcript: the client gets its response at once, or
//! with the first prompt. It learns from `parlor/forkFailed` why its agent did not fork.

use parlor_dialect::settings::Settings;
use parlor_json::{Json, JsonStr, Object};
use parlor_session::SessionId;
use parlor_wire::{RequestId, RpcError, code};

use crate::{AgentEpoch, ClientCall, FORK, ForkContext, ForkStart, Frame, ReplayFrom};

/// The metadata key of the response that says why the agent did not fork.
const FORK_FAILED: &str = "parlor/forkFailed";

/// Opens a stored fork for the client that requested it.
#[derive(Debug)]
pub struct ForkOpening {
    session: SessionId,
    /// The request, until it is answered or belongs to a call of the session.
    request: Option<RequestId>,
    /// The result of the request if the agent gets the transcript.
    answer: Object,
    prompt: Option<Json>,
    state: State,
}

/// What a fork that is opened waits for.
#[derive(Debug, PartialEq, Eq)]
enum State {
    /// The agent, which was asked to fork.
    Forking,
    /// The session, which is started with what the agent forked.
    Starting,
    /// The session, which is sent the call that attaches the client.
    Attaching,
    /// The session, which is sent the first prompt.
    Prompting,
    /// Nothing.
    Finished,
}

/// Something that happens while a fork is opened.
#[derive(Debug)]
pub enum ForkEvent {
    /// The agent has forked its session.
    AgentForked,
    /// The agent did not fork its session.
    AgentFailed(RpcError),
    /// The session has started with the agent session that the agent forked.
    Started,
    /// Another client has opened the fork, which therefore does not use the agent session that the agent forked.
    AlreadyOpen,
    /// The session, which may have been deleted meanwhile, could not be started with the agent session that the agent forked.
    StartFailed(RpcError),
    /// The session was sent a call, or could not be.
    Called(Result<(), RpcError>),
}

/// Something to do for a fork that is opened. If an event follows, it is the last one of its list.
#[derive(Debug)]
pub enum ForkAction {
    /// Has the agent of this epoch fork; [`ForkEvent::AgentForked`] or [`ForkEvent::AgentFailed`] follows.
    ForkAtAgent {
        /// The epoch.
        epoch: AgentEpoch,
        /// The params of `session/fork`.
        params: Object,
        /// The settings that the fork must have.
        settings: Box<Settings>,
    },
    /// Starts the session with the agent session that the agent forked; [`ForkEvent::Started`], [`ForkEvent::AlreadyOpen`] or
    /// [`ForkEvent::StartFailed`] follows.
    Start,
    /// Has the agent delete what it forked.
    DiscardAgentSession,
    /// Attaches the client when the session is opened.
    AttachOnOpen,
    /// Sends the client a response.
    Respond(Frame),
    /// Calls the session for the client; [`ForkEvent::Called`] follows.
    Call(ClientCall),
}

impl ForkOpening {
    /// Starts to open a stored fork.
    pub fn start(start: ForkStart) -> (Self, Vec<ForkAction>) {
        let ForkStart { id, row, answer, prompt, agent, .. } = start;
        let session = JsonStr::from_literal(&row.id).unwrap_or_else(|| JsonStr::new(&row.id)).into();
        let mut opening = Self { session, request: Some(id), answer, prompt, state: State::Forking };
        let actions = match agent {
            ForkContext::Native { epoch, params, settings } => {
                vec![ForkAction::ForkAtAgent { epoch, params, settings }]
            }
            ForkContext::Transcript(error) => opening.open_with_transcript(error.as_ref()),
        };
        (opening, actions)
    }

    /// The new session.
    pub fn session(&self) -> &SessionId {
        &self.session
    }

    /// Returns what to do after an event. One that was not waited for changes nothing.
    pub fn handle(&mut self, event: ForkEvent) -> Vec<ForkAction> {
        match (&self.state, event) {
            (State::Forking, ForkEvent::AgentForked) => {
                self.state = State::Starting;
                vec![ForkAction::Start]
            }
            (State::Forking, ForkEvent::AgentFailed(error)) => self.open_with_transcript(Some(&error)),
            (State::Starting, ForkEvent::Started) => self.attach(),
            (State::Starting, ForkEvent::AlreadyOpen) => {
                let message = "another client opened the fork before its agent was ready";
                let error = RpcError::new(code::INTERNAL_ERROR, message);
                let mut actions = vec![ForkAction::DiscardAgentSession];
                actions.extend(self.open_with_transcript(Some(&error)));
                actions
            }
            (State::Starting, ForkEvent::StartFailed(error)) => {
                let mut actions = vec![ForkAction::DiscardAgentSession];
                actions.extend(self.fail(&error));
                actions
            }
            (State::Attaching | State::Prompting, ForkEvent::Called(Err(error))) => self.fail(&error),
            (State::Attaching, ForkEvent::Called(Ok(()))) => {
                // The session answers the request.
                self.request = None;
                self.send_prompt(None)
            }
            (State::Prompting, ForkEvent::Called(Ok(()))) => self.finish(Vec::new()),
            _ => Vec::new(),
        }
    }

    /// Attaches the client to a session that its agent has forked.
    fn attach(&mut self) -> Vec<ForkAction> {
        let Some(id) = self.request.clone() else { return self.finish(Vec::new()) };
        self.state = State::Attaching;
        let from = ReplayFrom::Forked(vec![(FORK, Json::from("native"))]);
        vec![ForkAction::Call(ClientCall::Attach { id, from, cwd: None, members: Object::default() })]
    }

    /// Responds to the client for a fork whose agent gets the transcript. With a prompt, the session responds when it has stored
    /// the prompt.
    fn open_with_transcript(&mut self, error: Option<&RpcError>) -> Vec<ForkAction> {
        let Some(id) = self.request.clone() else { return self.finish(Vec::new()) };
        let mut answer = std::mem::take(&mut self.answer);
        if let Some(error) = error {
            answer.set_nested("_meta", FORK_FAILED, error.message());
        }
        if self.prompt.is_some() {
            return self.send_prompt(Some((id, answer)));
        }
        self.finish(vec![ForkAction::AttachOnOpen, ForkAction::Respond(Frame::response(&id, &answer))])
    }

    fn send_prompt(&mut self, answer: Option<(RequestId, Object)>) -> Vec<ForkAction> {
        let Some(content) = self.prompt.take() else { return self.finish(Vec::new()) };
        self.state = State::Prompting;
        vec![ForkAction::Call(ClientCall::PromptWithoutRequest { content, answer })]
    }

    fn fail(&mut self, error: &RpcError) -> Vec<ForkAction> {
        let response = self.request.take().map(|id| ForkAction::Respond(Frame::error(&id, error)));
        self.finish(response.into_iter().collect())
    }

    fn finish(&mut self, actions: Vec<ForkAction>) -> Vec<ForkAction> {
        self.state = State::Finished;
        actions
    }
}

#[cfg(test)]
mod tests {
    use core::fmt::Write as _;

    use parlor_session::session::ClientId;

    use super::*;
    use crate::rows::SessionRow;

    /// The native fork of an agent in epoch 3.
    fn native() -> ForkContext {
        let params = Object::new().with("sessionId", "theirs");
        ForkContext::Native { epoch: AgentEpoch(3), params, settings: Box::default() }
    }

    /// Runs the events of a text, and compares what is printed with the text: an event, and indented the actions after it.
    #[track_caller]
    fn check(agent: ForkContext, prompt: Option<&str>, text: &str) {
        let indent = |line: &str| line.len() - line.trim_start().len();
        let lines: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        let least = lines.iter().map(|line| indent(line)).min().unwrap();
        let expected: String = lines.iter().map(|line| format!("{}\n", &line[least..])).collect();
        let row = SessionRow { id: r#""fork""#.to_owned(), ..SessionRow::default() };
        let answer = Object::new().with("sessionId", "fork");
        let prompt = prompt.map(|text| Json::parse(text).unwrap());
        let start = ForkStart::for_tests(ClientId(1), RequestId::from(7_u64), row, answer, prompt, agent);
        let (mut opening, actions) = ForkOpening::start(start);
        assert_eq!(opening.session(), &"fork".into());
        let mut printed = "start\n".to_owned();
        print(&actions, &mut printed);
        for line in expected.lines().skip(1).filter(|line| indent(line) == 0) {
            let actions = opening.handle(event(line));
            writeln!(printed, "{line}").unwrap();
            print(&actions, &mut printed);
        }
        assert!(printed == expected, "printed:\n{printed}\nexpected:\n{expected}");
    }

    fn event(line: &str) -> ForkEvent {
        let error = |message: &str| RpcError::new(code::INTERNAL_ERROR, message);
        match line.split_once(' ').unwrap_or((line, "")) {
            ("forked", _) => ForkEvent::AgentForked,
            ("agent_failed", message) => ForkEvent::AgentFailed(error(message)),
            ("started", _) => ForkEvent::Started,
            ("already_open", _) => ForkEvent::AlreadyOpen,
            ("start_failed", message) => ForkEvent::StartFailed(error(message)),
            ("called", _) => ForkEvent::Called(Ok(())),
            ("call_failed", message) => ForkEvent::Called(Err(error(message))),
            other => panic!("{other:?} is not an event"),
        }
    }

    fn print(actions: &[ForkAction], printed: &mut String) {
        for action in actions {
            let line = match action {
                ForkAction::ForkAtAgent { epoch, params, .. } => {
                    format!("fork at agent {}: {}", epoch.0, params.to_json().as_str())
                }
                ForkAction::Start => "start session".to_owned(),
                ForkAction::DiscardAgentSession => "discard agent session".to_owned(),
                ForkAction::AttachOnOpen => "attach on open".to_owned(),
                ForkAction::Respond(frame) => format!("respond {}", frame.as_str().trim_end()),
                ForkAction::Call(ClientCall::Attach { id, from: ReplayFrom::Forked(meta), .. }) => {
                    let meta = meta.iter().map(|(name, value)| format!(" {name} {}", value.as_str()));
                    format!("attach for {}:{}", id.as_literal(), meta.collect::<String>())
                }
                ForkAction::Call(ClientCall::PromptWithoutRequest { content, answer }) => {
                    let answer = answer.as_ref().map_or(String::new(), |(id, answer)| {
                        format!(", answer {} {}", id.as_literal(), answer.to_json().as_str())
                    });
                    format!("prompt {}{answer}", content.as_str())
                }
                ForkAction::Call(other) => panic!("{other:?} is not a call for a fork"),
            };
            writeln!(printed, "    {line}").unwrap();
        }
    }

    #[test]
    fn a_client_is_attached_to_what_its_agent_forked_and_then_its_prompt_is_sent() {
        check(
            native(),
            Some("[]"),
            r#"
            start
                fork at agent 3: {"sessionId":"theirs"}
            forked
                start session
            started
                attach for 7: parlor/fork "native"
            called
                prompt []
            called
            "#,
        );
        check(
            native(),
            None,
            r#"
            start
                fork at agent 3: {"sessionId":"theirs"}
            forked
                start session
            started
                attach for 7: parlor/fork "native"
            called
            "#,
        );
    }

    #[test]
    fn an_agent_that_does_not_fork_gets_the_transcript_and_the_client_the_reason() {
        check(
            native(),
            None,
            r#"
            start
                fork at agent 3: {"sessionId":"theirs"}
            agent_failed it is busy
                attach on open
                respond {"jsonrpc":"2.0","id":7,"result":{"sessionId":"fork","_meta":{"parlor/forkFailed":"it is busy"}}}
            "#,
        );
        check(
            ForkContext::Transcript(Some(RpcError::new(code::INTERNAL_ERROR, "it cannot start"))),
            Some("[1]"),
            r#"
            start
                prompt [1], answer 7 {"sessionId":"fork","_meta":{"parlor/forkFailed":"it cannot start"}}
            called
            "#,
        );
    }

    #[test]
    fn a_fork_whose_agent_was_not_asked_has_no_reason() {
        check(
            ForkContext::Transcript(None),
            None,
            r#"
            start
                attach on open
                respond {"jsonrpc":"2.0","id":7,"result":{"sessionId":"fork"}}
            "#,
        );
    }

    #[test]
    fn what_the_agent_forked_is_discarded_if_another_client_has_opened_the_fork() {
        check(
            native(),
            None,
            r#"
            start
                fork at agent 3: {"sessionId":"theirs"}
            forked
                start session
            already_open
                discard agent session
                attach on open
                respond {"jsonrpc":"2.0","id":7,"result":{"sessionId":"fork","_meta":{"parlor/forkFailed":"another client opened the fork before its agent was ready"}}}
            "#,
        );
        check(
            native(),
            Some("[1]"),
            r#"
            start
                fork at agent 3: {"sessionId":"theirs"}
            forked
                start session
            already_open
                discard agent session
                prompt [1], answer 7 {"sessionId":"fork","_meta":{"parlor/forkFailed":"another client opened the fork before its agent was ready"}}
            called
            "#,
        );
    }

    #[test]
    fn a_request_is_answered_once_wherever_the_fork_fails() {
        check(
            native(),
            Some("[]"),
            r#"
            start
                fork at agent 3: {"sessionId":"theirs"}
            forked
                start session
            start_failed the disk is full
                discard agent session
                respond {"jsonrpc":"2.0","id":7,"error":{"code":-32603,"message":"the disk is full"}}
            call_failed again
            "#,
        );
        check(
            native(),
            Some("[]"),
            r#"
            start
                fork at agent 3: {"sessionId":"theirs"}
            forked
                start session
            started
                attach for 7: parlor/fork "native"
            call_failed it was deleted
                respond {"jsonrpc":"2.0","id":7,"error":{"code":-32603,"message":"it was deleted"}}
            "#,
        );
        check(
            ForkContext::Transcript(None),
            Some("[]"),
            r#"
            start
                prompt [], answer 7 {"sessionId":"fork"}
            call_failed it was deleted
                respond {"jsonrpc":"2.0","id":7,"error":{"code":-32603,"message":"it was deleted"}}
            "#,
        );
        // The session that attaches the client also answers the request.
        check(
            native(),
            Some("[]"),
            r#"
            start
                fork at agent 3: {"sessionId":"theirs"}
            forked
                start session
            started
                attach for 7: parlor/fork "native"
            called
                prompt []
            call_failed it was deleted
            "#,
        );
    }
}
