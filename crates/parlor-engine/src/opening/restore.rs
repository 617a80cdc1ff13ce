//! Restores a session that the agent had: by `session/resume`, else by `session/load`, else by `session/new`.

use parlor_json::Object;
use parlor_session::SessionId;
use parlor_wire::{RpcError, code};

use super::event::OpeningAction;
use super::machine::{Call, Opening, RoutePurpose, State};
use super::missing::is_session_missing;
use super::plan::{OpeningPlan, RestorePlan, name_session};
use crate::{AgentEpoch, Capability};

/// A method that restores a session, in the order in which they are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
pub(super) enum RestoreMethod {
    /// The agent need not replay.
    Resume,
    /// The agent replays.
    Load,
}

impl RestoreMethod {
    fn name(self) -> &'static str {
        match self {
            Self::Resume => "session/resume",
            Self::Load => "session/load",
        }
    }

    fn capability(self) -> Capability {
        match self {
            Self::Resume => Capability::Resume,
            Self::Load => Capability::Load,
        }
    }
}

impl Opening {
    fn restore_plan(&self) -> Option<&RestorePlan> {
        match &self.plan {
            OpeningPlan::Restore(plan) => Some(plan),
            OpeningPlan::Create { .. } | OpeningPlan::Adopt { .. } | OpeningPlan::Fork { .. } => None,
        }
    }

    /// The session that the agent had.
    fn known_session(&self) -> Option<SessionId> {
        self.restore_plan().and_then(|plan| plan.agent_session.clone())
    }

    pub(super) fn restore(&mut self) {
        match self.known_session() {
            // Some reject a session that they are closing.
            Some(session) => self.actions.push(OpeningAction::AwaitClosed(session)),
            None => self.create(),
        }
    }

    pub(super) fn on_closed(&mut self, open_since: Option<AgentEpoch>) {
        if !matches!(self.state, State::AwaitingClose) {
            return;
        }
        match (open_since, self.known_session()) {
            // One that has it open would replay everything if it loaded it again.
            (Some(epoch), Some(session)) => self.set_route(session, RoutePurpose::Reopened, Some(epoch)),
            (_, _) => self.try_restore(None),
        }
    }

    /// Tries the next method that the agent has, after one that it does not have after all.
    pub(super) fn try_restore(&mut self, after: Option<RestoreMethod>) {
        let Some(session) = self.known_session() else { return self.create() };
        let methods = [RestoreMethod::Resume, RestoreMethod::Load].into_iter();
        let next = methods
            .filter(|method| after.is_none_or(|after| *method > after))
            .find(|method| self.agent.has(method.capability()));
        match next {
            Some(method) => self.set_route(session, RoutePurpose::Restore(method), None),
            None => self.on_lost("cannot restore sessions"),
        }
    }

    pub(super) fn call_restore(&mut self, method: RestoreMethod) {
        let OpeningPlan::Restore(plan) = &self.plan else { return };
        match method {
            RestoreMethod::Resume => self.early.expect_replay_of(&plan.history),
            RestoreMethod::Load => self.early.expect_replay(),
        }
        let mut params = plan.params.clone();
        if let Some(session) = &plan.agent_session {
            params.set("sessionId", session.as_json());
        }
        self.call(Call::Restore(method), method.name(), params);
    }

    /// The agent did not restore the session.
    pub(super) fn on_restore_error(&mut self, method: RestoreMethod, error: RpcError) {
        self.remove_route();
        let Some(session) = self.known_session() else { return };
        if error.code() == code::METHOD_NOT_FOUND {
            self.try_restore(Some(method));
        } else if is_session_missing(&error, &session) {
            self.on_missing(&error);
        } else if error.code() != code::AUTH_REQUIRED && self.agent.has(Capability::List) {
            self.state = State::Listing(error);
            self.actions.push(OpeningAction::List);
        } else {
            self.fail_with(error);
        }
    }

    /// The agent's list says whether it has the session.
    pub(super) fn on_listed(&mut self, list: Option<&[SessionId]>) {
        let State::Listing(error) = &self.state else { return };
        let error = error.clone();
        let session = self.known_session();
        if list.is_some_and(|list| list.iter().all(|listed| Some(listed) != session.as_ref())) {
            self.on_missing(&error);
        } else {
            self.fail_with(error);
        }
    }

    fn on_missing(&mut self, error: &RpcError) {
        self.on_lost(&format!("does not have the session: {}", error.message()));
    }

    /// The agent does not have the session any more: it gets another one.
    pub(super) fn on_lost(&mut self, why: &str) {
        self.remove_route();
        self.lost = Some(format!("agent '{}' {why}", self.agent.label));
        self.create();
    }

    /// Creates an agent session that knows nothing of the conversation.
    fn create(&mut self) {
        let Some(RestorePlan { session, params, .. }) = self.restore_plan() else { return };
        let mut params: Object = params.clone();
        name_session(&self.agent, &mut params, session);
        self.without_history = true;
        self.call(Call::Create, "session/new", params);
    }
}

#[cfg(test)]
mod tests {
    use parlor_dialect::settings::Settings;

    use super::super::script::{mode, restore, restore_with, script, v1, v2};

    #[test]
    fn a_load_drops_what_is_replayed_before_and_after_the_response_until_the_agent_is_idle() {
        let agent = v1(&["load"]);
        let plan = restore(&agent, &Settings::default());
        script(agent, plan).check(
            r#"
            start
                await close of s
                until 30000
            0 closed
                route s
            0 routed
                call session/load {"cwd":"/","mcpServers":[],"sessionId":"s"}
                until 30000
            100 user hi there
                until 30100
            150 agent Hello.
                until 30150
            200 result {"sessionId":"s","x":1}
                until 400
            390 tool t1
                until 590
            500 timeout
            590 timeout
                done s {"sessionId":"s","x":1}
        "#,
        );
    }

    #[test]
    fn a_resume_without_replay_keeps_new_updates() {
        let agent = v1(&["resume", "load"]);
        let plan = restore(&agent, &Settings::default());
        script(agent, plan).check(
            "
            0 closed
            0 routed
            ...
            10 commands
                until 30010
            20 agent Background work
                until 30000
            30 result {}
                done s {}
                    early: available_commands_update
                    early: agent_message_chunk Background work
        ",
        );
    }

    #[test]
    fn a_resume_that_replays_drops_the_replay() {
        let agent = v2();
        let plan = restore(&agent, &Settings::default());
        script(agent, plan).check(
            "
            0 closed
            0 routed
            ...
            10 user in other words
                until 30010
            20 agent Hel
                until 30020
            30 result {}
                until 230
            40 agent lo.
                until 240
            50 thought something new
                until 250
            250 timeout
                done s {}
        ",
        );
    }

    #[test]
    fn a_resume_that_sends_nothing_is_bound_when_the_agent_is_idle() {
        let agent = v2();
        let plan = restore(&agent, &Settings::default());
        script(agent, plan).check(
            "
            0 closed
            0 routed
            ...
            10 result {}
                until 210
            210 timeout
                done s {}
        ",
        );
    }

    #[test]
    fn a_replay_takes_at_most_ten_seconds_after_the_response() {
        let agent = v1(&["load"]);
        let plan = restore(&agent, &Settings::default());
        script(agent, plan).check(
            "
            0 closed
            0 routed
            ...
            10 result {}
                until 210
            200 agent Hello.
                until 400
            9900 agent Hello again.
                until 10010
            10010 timeout
                done s {}
        ",
        );
    }

    #[test]
    fn a_method_that_the_agent_does_not_have_after_all_is_followed_by_the_next() {
        let agent = v1(&["resume", "load"]);
        let plan = restore(&agent, &Settings::default());
        script(agent, plan).check(
            r#"
            start
                await close of s
                until 30000
            0 closed
                route s
            0 routed
                call session/resume {"cwd":"/","mcpServers":[],"sessionId":"s"}
                until 30000
            10 request 7
                until 30010
            20 error -32601 no such method
                reject 7: -32603 the session could not be opened
                remove route
                route s
            20 routed
                call session/load {"cwd":"/","mcpServers":[],"sessionId":"s"}
                until 30020
            30 error -32601 no such method
                remove route
                call session/new {"cwd":"/","mcpServers":[]}, creates
                until 30000
            40 result {"sessionId":"t"}
                route t
            40 routed
                done t {}
                    without history
                    lost: agent 'a' cannot restore sessions
        "#,
        );
    }

    #[test]
    fn an_agent_that_cannot_restore_gets_a_new_session() {
        let agent = v1(&[]);
        let plan = restore(&agent, &Settings::default());
        script(agent, plan).check(
            r#"
            start
                await close of s
                until 30000
            0 closed
                call session/new {"cwd":"/","mcpServers":[]}, creates
            10 result {"sessionId":"t"}
                route t
            10 routed
                done t {}
                    without history
                    lost: agent 'a' cannot restore sessions
        "#,
        );
    }

    #[test]
    fn a_session_that_no_agent_had_is_created() {
        let agent = v1(&["load"]);
        let plan =
            restore_with(&agent, None, &mode("code"), r#"{"params":{"mcpServers":[]},"dialect":"v1"}"#);
        script(agent, plan).check(
            r#"
            start
                call session/new {"mcpServers":[],"cwd":"/"}, creates
                until 30000
            10 result {"sessionId":"t","modes":{"currentModeId":"ask","availableModes":[]}}
                route t
            10 routed
                call session/set_mode {"modeId":"code","sessionId":"t"}
                until 30010
            20 agent Welcome
            30 result {}
                done t {}
                    mode "code"
                    without history
                    early: agent_message_chunk Welcome
        "#,
        );
    }

    #[test]
    fn an_embedded_agent_is_told_our_id_for_a_new_session_and_does_not_replay() {
        let mut agent = v2();
        agent.is_embedded = true;
        let plan = restore_with(&agent, None, &Settings::default(), "{}");
        script(agent.clone(), plan).check(
            r#"
            start
                call session/new {"cwd":"/","_meta":{"parlor/session":"ours"}}, creates
                until 30000
            10 result {"sessionId":"ours"}
                route ours
            10 routed
                done ours {}
                    without history
        "#,
        );
        let plan = restore(&agent, &Settings::default());
        script(agent, plan).check(
            "
            0 closed
            0 routed
            ...
            10 agent Hello.
                until 30010
            20 result {}
                done s {}
        ",
        );
    }

    #[test]
    fn a_response_with_another_session_means_that_the_session_is_lost() {
        let agent = v1(&["load"]);
        let plan = restore(&agent, &Settings::default());
        script(agent, plan).check(
            r#"
            0 closed
            0 routed
            ...
            10 agent of another session
                until 30010
            20 result {"sessionId":"other"}
                remove route
                call session/new {"cwd":"/","mcpServers":[]}, creates
                until 30000
            30 result {"sessionId":"t"}
                route t
            30 routed
                done t {}
                    without history
                    lost: agent 'a' restored another session
        "#,
        );
    }

    #[test]
    fn an_id_that_the_agent_gave_to_another_session_is_lost() {
        let agent = v1(&["load"]);
        let plan = restore(&agent, &Settings::default());
        script(agent, plan).check(
            r#"
            start
                await close of s
                until 30000
            0 closed
                route s
            0 route_failed in use
                call session/new {"cwd":"/","mcpServers":[]}, creates
                until 30000
            10 result {"sessionId":"t"}
                route t
            10 route_failed in use as well
                failed: -32603 in use as well
        "#,
        );
    }

    #[test]
    fn an_error_that_says_that_the_session_is_missing_is_followed_by_a_new_session() {
        let agent = v2();
        let plan = restore(&agent, &Settings::default());
        script(agent, plan).check(
            r#"
            0 closed
            0 routed
            ...
            10 error -32603 Session s not found
                remove route
                call session/new {"cwd":"/"}, creates
            20 error -32603 disk full
                failed: -32603 disk full
        "#,
        );
    }

    #[test]
    fn the_agents_list_decides_where_an_error_does_not_say_whether_the_session_is_missing() {
        let after = |listed: &str, expected: &str| {
            let agent = v1(&["load", "list"]);
            let plan = restore(&agent, &Settings::default());
            let printed =
                script(agent, plan).run(["0 closed", "0 routed", "10 error -32603 boom", "...", listed]);
            assert_eq!(printed, format!("{listed}\n    {expected}\n"));
        };
        after("15 listed a b", r#"call session/new {"cwd":"/","mcpServers":[]}, creates"#);
        after("15 listed a s", "failed: -32603 boom");
        after("15 listed nothing", "failed: -32603 boom");
    }

    #[test]
    fn an_error_is_final_if_the_agent_lists_nothing_or_wants_a_login() {
        let agent = v1(&["load"]);
        let plan = restore(&agent, &Settings::default());
        script(agent, plan).check(
            "
            0 closed
            0 routed
            ...
            10 error -32603 boom
                remove route
                failed: -32603 boom
        ",
        );
        let agent = v1(&["load", "list"]);
        let plan = restore(&agent, &Settings::default());
        script(agent, plan).check(
            "
            0 closed
            0 routed
            ...
            10 error -32000 Session not found: log in first
                remove route
                failed: -32000 Session not found: log in first
        ",
        );
    }

    #[test]
    fn a_session_that_the_agent_still_has_open_is_not_restored() {
        let agent = v1(&["load"]);
        let plan = restore(&agent, &mode("code"));
        script(agent.clone(), plan).check(
            r#"
            start
                await close of s
                until 30000
            0 closed 7
                route s as 7
            0 routed
                done s {}
                    mode "code"
        "#,
        );
        // The agent did not accept the mode `code` before: what is in force is only known to the agent.
        let data = r#"{"refusedSettings":[{"setting":"mode","value":"code"}]}"#;
        let plan = restore_with(&agent, Some("s"), &mode("code"), data);
        script(agent, plan).check(
            r#"
            start
                await close of s
                until 30000
            0 closed 7
                route s as 7
            0 routed
                call session/set_mode {"modeId":"code","sessionId":"s"}
                until 30000
            10 result {}
                done s {}
                    mode "code"
        "#,
        );
    }

    #[test]
    fn a_session_that_is_not_closed_in_time_is_restored_all_the_same() {
        let agent = v1(&["load"]);
        let plan = restore(&agent, &Settings::default());
        script(agent, plan).check(
            r#"
            start
                await close of s
                until 30000
            29999 timeout
            30000 timeout
                route s
            30000 routed
                call session/load {"cwd":"/","mcpServers":[],"sessionId":"s"}
                until 60000
            30001 closed
        "#,
        );
    }
}
