//! Takes over a session that only the agent knows: the agent replays all of it.

use core::time::Duration;

use parlor_dialect::{Dialect, live};
use parlor_json::Object;
use parlor_session::SessionId;
use parlor_wire::{RpcError, code};

use super::early::EarlyMessage;
use super::machine::{Call, Opening, State};
use super::plan::OpeningPlan;
use crate::{AgentInfo, Capability};

/// How long an agent that has not answered may send nothing.
pub(super) const MAX_SILENCE: Duration = Duration::from_secs(60);

/// How many bytes of updates a session may have.
const MAX_REPLAY: usize = 256 << 20;

/// The replay of a session that is taken over.
#[derive(Debug, Default)]
pub(super) struct AdoptedReplay {
    pub(super) updates: Vec<String>,
    bytes: usize,
    /// Whether the agent has reported the end of it.
    pub(super) is_complete: bool,
}

impl AdoptedReplay {
    /// Adds lines of updates.
    pub(super) fn push(&mut self, lines: String) -> Result<(), RpcError> {
        if lines.is_empty() {
            return Ok(());
        }
        self.bytes += lines.len();
        if self.bytes > MAX_REPLAY {
            let message = "the session is larger than can be taken over";
            return Err(RpcError::new(code::INTERNAL_ERROR, message));
        }
        self.updates.push(lines);
        Ok(())
    }

    /// Whether any update is part of a conversation, and not only of what every session has.
    pub(super) fn has_history(&self) -> bool {
        let is_history = |line: &str| {
            live::update_kind(line).is_some_and(|kind| {
                !matches!(
                    kind.as_str(),
                    "available_commands_update"
                        | "config_option_update"
                        | "current_mode_update"
                        | "usage_update"
                        | "state_update"
                        | "state_change"
                )
            })
        };
        self.updates.iter().flat_map(|lines| lines.lines()).any(is_history)
    }
}

impl Opening {
    /// Asks the agent to replay the session from its start.
    pub(super) fn call_adopt(&mut self) {
        let OpeningPlan::Adopt { session, params, .. } = &self.plan else { return };
        let mut params = params.clone();
        params.set("sessionId", session.as_json());
        match self.agent.dialect {
            Dialect::V1 => self.call(Call::Adopt, "session/load", params),
            Dialect::V2 | Dialect::Draft => {
                params.set("replayFrom", Object::new().with("type", "start"));
                self.call(Call::Adopt, "session/resume", params);
            }
        }
    }

    pub(super) fn on_adopted_message(&mut self, message: EarlyMessage) {
        match message {
            EarlyMessage::Updates(mut lines) => {
                if self.early.remove_replay_end(&mut lines) {
                    self.adopted.is_complete = true;
                }
                if let Err(error) = self.adopted.push(lines) {
                    return self.fail_with(error);
                }
                if self.adopted.is_complete && matches!(self.state, State::Replaying { .. }) {
                    self.finish_adoption();
                }
            }
            EarlyMessage::Request { id, .. } => {
                self.reject(id, code::METHOD_NOT_FOUND, "no client is attached yet");
            }
            EarlyMessage::RequestCancelled(_) | EarlyMessage::Notification(_) => {}
        }
    }

    /// The agent has answered and replayed.
    pub(super) fn finish_adoption(&mut self) {
        let OpeningPlan::Adopt { is_listed, .. } = self.plan else { return };
        // Some agents answer for any id.
        if self.is_other_session() || !(is_listed || self.adopted.has_history()) {
            let message = "the agent has no such session";
            return self.fail_with(RpcError::new(code::INTERNAL_ERROR, message));
        }
        self.finish();
    }
}

/// Whether an agent can replay a session from its start.
pub(super) fn can_adopt(agent: &AgentInfo) -> bool {
    agent.dialect != Dialect::V1 || agent.has(Capability::Load)
}

/// The error for the client: that it has to log in, or cancelled, else that there is no such session.
pub(super) fn adoption_error(session: &SessionId, error: RpcError) -> RpcError {
    match error.code() {
        code::AUTH_REQUIRED | code::REQUEST_CANCELLED => error,
        _ => session_not_found(session, error.message()),
    }
}

/// The error for a session that cannot be taken over from an agent, with the reason.
pub fn session_not_found(session: &SessionId, reason: &str) -> RpcError {
    let mut data = Object::default();
    data.set("sessionId", session.as_json());
    data.set("reason", reason);
    RpcError::new(code::RESOURCE_NOT_FOUND, "there is no such session").with_data(data.to_json())
}

#[cfg(test)]
mod tests {
    use super::super::script::{object, script, v1, v2};
    use super::*;

    fn adopt(is_listed: bool) -> OpeningPlan {
        OpeningPlan::Adopt { session: "s".into(), params: object(r#"{"cwd":"/"}"#), is_listed }
    }

    #[test]
    fn a_session_is_made_of_all_that_the_agent_replays() {
        script(v1(&["load"]), adopt(false)).check(
            r#"
            start
                route s, drop early updates
            0 routed
                call session/load {"cwd":"/","sessionId":"s"}
                until 60000
            10 user hi there
                until 60010
            59000 agent Hello.
                until 119000
            60000 result {"sessionId":"s","x":1}
                until 60200
            60100 mode code
                until 60300
            60300 timeout
                done s {"sessionId":"s","x":1}
                    replay: user_message_chunk hi there
                    replay: agent_message_chunk Hello.
                    replay: current_mode_update
        "#,
        );
    }

    #[test]
    fn an_agent_that_reports_the_end_of_its_replay_is_not_waited_for() {
        for agent in [v1(&["load"]), v2()] {
            script(agent.clone(), adopt(false)).check(
                r#"
                0 routed
                ...
                10 agent Hello.
                    until 60010
                20 replayed
                    until 60020
                30 mode code
                    until 60030
                40 result {}
                    done s {}
                        replay: agent_message_chunk Hello.
                        replay: current_mode_update
            "#,
            );
            script(agent, adopt(false)).check(
                r#"
                0 routed
                ...
                10 result {}
                    until 210
                20 agent Hello.
                    until 220
                30 replayed
                    done s {}
                        replay: agent_message_chunk Hello.
            "#,
            );
        }
    }

    #[test]
    fn an_agent_of_version_2_is_asked_to_replay_from_the_start() {
        script(v2(), adopt(true)).check(
            r#"
            start
                route s, drop early updates
            0 routed
                call session/resume {"cwd":"/","sessionId":"s","replayFrom":{"type":"start"}}
                until 60000
            10 note {}
                until 60010
            20 request 7
                reject 7: -32601 no client is attached yet
                until 60020
            30 result {}
                until 230
            230 timeout
                done s {}
        "#,
        );
    }

    #[test]
    fn a_session_without_history_that_is_not_listed_is_not_found() {
        script(v2(), adopt(false)).check(r#"
            start
                route s, drop early updates
            0 routed
                call session/resume {"cwd":"/","sessionId":"s","replayFrom":{"type":"start"}}
                until 60000
            10 commands
                until 60010
            20 mode code
                until 60020
            30 result {}
                until 230
            230 timeout
                remove route
                failed: -32002 there is no such session {"sessionId":"s","reason":"the agent has no such session"}
        "#);
    }

    #[test]
    fn another_session_in_the_response_is_not_found() {
        script(v2(), adopt(true)).check(r#"
            start
                route s, drop early updates
            0 routed
                call session/resume {"cwd":"/","sessionId":"s","replayFrom":{"type":"start"}}
                until 60000
            10 agent Hello.
                until 60010
            30 result {"sessionId":"other"}
                until 230
            230 timeout
                remove route
                failed: -32002 there is no such session {"sessionId":"s","reason":"the agent has no such session"}
        "#);
    }

    #[test]
    fn an_agent_that_cannot_load_has_no_sessions_to_adopt() {
        script(v1(&["resume"]), adopt(true)).check(r#"
            start
                failed: -32002 there is no such session {"sessionId":"s","reason":"the agent cannot load sessions"}
        "#);
    }

    #[test]
    fn an_error_says_that_there_is_no_such_session_unless_a_login_helps() {
        script(v2(), adopt(true)).check(
            r#"
            start
                route s, drop early updates
            0 routed
                call session/resume {"cwd":"/","sessionId":"s","replayFrom":{"type":"start"}}
                until 60000
            10 error -32603 boom
                remove route
                failed: -32002 there is no such session {"sessionId":"s","reason":"boom"}
        "#,
        );
        script(v2(), adopt(true)).check(
            r#"
            start
                route s, drop early updates
            0 routed
                call session/resume {"cwd":"/","sessionId":"s","replayFrom":{"type":"start"}}
                until 60000
            10 error -32000 log in first
                remove route
                failed: -32000 log in first
        "#,
        );
        script(v2(), adopt(true)).check(
            r#"
            start
                route s, drop early updates
            0 route_failed in use
                failed: -32002 there is no such session {"sessionId":"s","reason":"in use"}
        "#,
        );
    }

    #[test]
    fn a_client_that_cancels_ends_the_adoption() {
        script(v2(), adopt(true)).check(
            r#"
            start
                route s, drop early updates
            0 routed
                call session/resume {"cwd":"/","sessionId":"s","replayFrom":{"type":"start"}}
                until 60000
            10 cancelled
                remove route
                failed: -32800 the request was cancelled
        "#,
        );
        script(v2(), adopt(true)).check(
            r#"
            start
                route s, drop early updates
            0 routed
                call session/resume {"cwd":"/","sessionId":"s","replayFrom":{"type":"start"}}
                until 60000
            10 result {}
                until 210
            20 cancelled
                remove route
                failed: -32800 the request was cancelled
        "#,
        );
    }

    #[test]
    fn a_session_that_is_too_large_is_refused() {
        let mut replay = AdoptedReplay { bytes: MAX_REPLAY - 1, ..AdoptedReplay::default() };
        assert!(replay.push("x".to_owned()).is_ok());
        assert!(replay.push("x".to_owned()).is_err());
        assert_eq!(replay.updates.len(), 1);
    }
}
