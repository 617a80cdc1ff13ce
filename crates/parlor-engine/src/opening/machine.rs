//! The states of an agent session that is opened.

use core::time::Duration;
use std::sync::Arc;

use parlor_json::{Json, Object};
use parlor_session::SessionId;
use parlor_wire::{RequestId, RpcError, code};

use super::adopt::{AdoptedReplay, MAX_SILENCE, adoption_error, can_adopt};
use super::early::{EarlyMessage, EarlyMessages, Kept};
use super::event::{AgentSession, OpeningAction, OpeningError, OpeningEvent, OpeningOutput};
use super::plan::{OpeningPlan, StartupLimit};
use super::refused::RefusedSettings;
use super::restore::RestoreMethod;
use super::settings::ApplySettings;
use super::{MAX_REPLAY_TIME, REPLAY_IDLE};
use crate::{AgentEpoch, AgentInfo, Now, fields};

/// Opens an agent session.
#[derive(Debug)]
pub struct Opening {
    pub(super) agent: Arc<AgentInfo>,
    pub(super) plan: OpeningPlan,
    pub(super) startup: StartupLimit,
    pub(super) state: State,
    /// The agent session whose messages arrive.
    pub(super) session: Option<SessionId>,
    pub(super) early: EarlyMessages,
    pub(super) adopted: AdoptedReplay,
    /// When the agent last sent something about the session, at first when that could arrive.
    last_message_at: Duration,
    /// What the agent said of the session.
    result: Object,
    pub(super) applying: ApplySettings,
    pub(super) without_history: bool,
    pub(super) lost: Option<String>,
    pub(super) actions: Vec<OpeningAction>,
}

#[derive(Debug)]
pub(super) enum State {
    /// Waits until the agent has closed the session.
    AwaitingClose,
    /// Waits until messages about the session can arrive.
    SettingRoute(RoutePurpose),
    /// Waits for the response that opens the session.
    Calling(Call, &'static str),
    /// An error does not say whether the session is gone: waits for the list that does.
    Listing(RpcError),
    /// The agent may be replaying, since it answered.
    Replaying { since: Duration },
    /// Waits for the response to a request that sets something.
    ApplyingSettings(&'static str),
    /// Bound, or failed.
    Finished,
}

/// What is done once messages about a session can arrive.
#[derive(Debug, Clone, Copy)]
pub(super) enum RoutePurpose {
    /// Its settings are applied: the agent still has it open.
    Reopened,
    /// The agent is asked to restore it.
    Restore(RestoreMethod),
    /// The agent is asked to replay it from its start.
    Adopt,
    /// The agent has created it.
    Created,
    /// The agent has forked it.
    Forked,
}

/// What a request is for that opens a session: each is a state of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    Restore(RestoreMethod),
    Create,
    Fork,
    Adopt,
}

impl Opening {
    /// Starts to open a session at an agent.
    pub fn start(plan: OpeningPlan, agent: &Arc<AgentInfo>, startup: StartupLimit) -> (Self, OpeningOutput) {
        let mut opening = Self {
            agent: Arc::clone(agent),
            plan,
            startup,
            state: State::AwaitingClose,
            session: None,
            early: EarlyMessages::new(agent),
            adopted: AdoptedReplay::default(),
            last_message_at: Duration::ZERO,
            result: Object::default(),
            applying: ApplySettings::default(),
            without_history: false,
            lost: None,
            actions: Vec::new(),
        };
        match &opening.plan {
            OpeningPlan::Create { params } => {
                let params = params.clone();
                opening.call(Call::Create, "session/new", params);
            }
            OpeningPlan::Fork { params, .. } => {
                let params = params.clone();
                opening.call(Call::Fork, "session/fork", params);
            }
            OpeningPlan::Adopt { session, .. } if can_adopt(agent) => {
                let session = session.clone();
                opening.set_route(session, RoutePurpose::Adopt, None);
            }
            OpeningPlan::Adopt { .. } => {
                let message = "the agent cannot load sessions";
                opening.fail_with(RpcError::new(code::INTERNAL_ERROR, message));
            }
            OpeningPlan::Restore(_) => opening.restore(),
        }
        let output = opening.output();
        (opening, output)
    }

    /// Takes something that happened.
    pub fn handle(&mut self, event: OpeningEvent, now: Now) -> OpeningOutput {
        let now = now.monotonic;
        if matches!(self.state, State::Finished) {
            return self.output();
        }
        match event {
            OpeningEvent::Closed { open_since } => self.on_closed(open_since),
            OpeningEvent::RouteSet => self.on_routed(now),
            OpeningEvent::RouteFailed(error) => self.on_route_failed(error),
            OpeningEvent::Response(response) => self.on_response(response, now),
            OpeningEvent::Message(message) => self.on_message(message, now),
            OpeningEvent::Listed(list) => self.on_listed(list.as_deref()),
            OpeningEvent::Cancelled => self.on_cancelled(),
            // It lists nothing any more.
            OpeningEvent::AgentGone(_) if matches!(self.state, State::Listing(_)) => self.on_listed(None),
            OpeningEvent::CallFailed(error) | OpeningEvent::AgentGone(error) => self.fail_with(error),
            OpeningEvent::Timeout { awaits_person } => {
                if self.deadline().is_some_and(|deadline| deadline <= now) {
                    self.on_timeout(now, awaits_person);
                }
            }
        }
        self.output()
    }

    fn output(&mut self) -> OpeningOutput {
        OpeningOutput { actions: std::mem::take(&mut self.actions), deadline: self.deadline() }
    }

    fn deadline(&self) -> Option<Duration> {
        match &self.state {
            State::SettingRoute(_) | State::Finished => None,
            State::Calling(Call::Adopt, _) => Some(self.last_message_at + MAX_SILENCE),
            State::Calling(..) | State::ApplyingSettings(_) if self.early.is_replaying() => {
                // An agent that goes on replaying has more time.
                Some(self.startup.until.max(self.last_message_at + self.startup.timeout))
            }
            State::AwaitingClose | State::Calling(..) | State::Listing(_) | State::ApplyingSettings(_) => {
                Some(self.startup.until)
            }
            State::Replaying { since } => {
                let idle_at = self.last_message_at.max(*since) + REPLAY_IDLE;
                Some(idle_at.min(*since + MAX_REPLAY_TIME))
            }
        }
    }

    pub(super) fn call(&mut self, call: Call, method: &'static str, params: Object) {
        self.state = State::Calling(call, method);
        let creates = matches!(call, Call::Create | Call::Fork);
        self.actions.push(OpeningAction::Call { method, params, creates });
    }

    pub(super) fn set_route(&mut self, session: SessionId, purpose: RoutePurpose, epoch: Option<AgentEpoch>) {
        self.state = State::SettingRoute(purpose);
        let drops_early = matches!(purpose, RoutePurpose::Adopt);
        self.actions.push(OpeningAction::SetRoute { session: session.clone(), epoch, drops_early });
        self.session = Some(session);
    }

    fn on_routed(&mut self, now: Duration) {
        let State::SettingRoute(purpose) = self.state else { return };
        self.last_message_at = now;
        match purpose {
            RoutePurpose::Reopened => {
                if let OpeningPlan::Restore(plan) = &self.plan {
                    self.early.settings = plan.in_force.clone();
                }
                self.apply_settings(now);
            }
            RoutePurpose::Restore(method) => self.call_restore(method),
            RoutePurpose::Adopt => self.call_adopt(),
            RoutePurpose::Created if matches!(self.plan, OpeningPlan::Create { .. }) => {
                // The session itself learns from the result.
                self.finish();
            }
            RoutePurpose::Created => {
                self.early.settings.take_from(&mut self.result);
                self.apply_settings(now);
            }
            RoutePurpose::Forked => {
                if let OpeningPlan::Fork { history, .. } = &self.plan {
                    self.early.expect_replay_in_fork(history);
                }
                self.on_opened(now);
            }
        }
    }

    fn on_route_failed(&mut self, error: RpcError) {
        let State::SettingRoute(purpose) = self.state else { return };
        self.session = None;
        match purpose {
            // An agent that restarts its session numbers may have given the id to another session.
            RoutePurpose::Restore(_) => self.on_lost("gave the id of the session to another one"),
            RoutePurpose::Reopened | RoutePurpose::Adopt | RoutePurpose::Created | RoutePurpose::Forked => {
                self.fail_with(error);
            }
        }
    }

    fn on_response(&mut self, response: Result<Json, Json>, now: Duration) {
        match self.state {
            State::Calling(call, _) => match response {
                Ok(result) => {
                    self.result = result.to_object().unwrap_or_default();
                    self.on_result(call, now);
                }
                Err(error) => {
                    let error = RpcError::from_raw(error.raw());
                    match call {
                        Call::Restore(method) => self.on_restore_error(method, error),
                        Call::Create | Call::Fork | Call::Adopt => self.fail_with(error),
                    }
                }
            },
            State::ApplyingSettings(_) => {
                self.applying.on_response(response, &mut self.early.settings);
                self.apply_next();
            }
            State::AwaitingClose
            | State::SettingRoute(_)
            | State::Listing(_)
            | State::Replaying { .. }
            | State::Finished => {}
        }
    }

    /// The agent answered the request that opens the session.
    fn on_result(&mut self, call: Call, now: Duration) {
        let (purpose, missing_id) = match call {
            Call::Create => (RoutePurpose::Created, "the agent's response to session/new has no `sessionId`"),
            Call::Fork => (RoutePurpose::Forked, "the agent's response to session/fork has no `sessionId`"),
            Call::Adopt if self.adopted.is_complete => return self.finish_adoption(),
            Call::Adopt => {
                self.state = State::Replaying { since: now };
                return;
            }
            // Some answer for any id, with another session.
            Call::Restore(_) if self.is_other_session() => return self.on_lost("restored another session"),
            Call::Restore(_) => return self.on_opened(now),
        };
        let Some(session) = fields::session_of(&self.result) else {
            return self.fail_with(RpcError::new(code::INTERNAL_ERROR, missing_id));
        };
        self.result.remove("sessionId");
        self.set_route(session, purpose, None);
    }

    /// Whether the response names another session than the one that was asked for.
    pub(super) fn is_other_session(&self) -> bool {
        fields::session_of(&self.result).is_some_and(|other| Some(other) != self.session)
    }

    /// The agent has the session: it may be replaying.
    fn on_opened(&mut self, now: Duration) {
        self.early.settings.take_from(&mut self.result);
        // An embedded agent has no history to replay.
        if self.agent.is_embedded {
            return self.apply_settings(now);
        }
        self.state = State::Replaying { since: now };
        self.on_replayed(now);
    }

    /// The agent sent something, or nothing, while it may be replaying.
    fn on_replayed(&mut self, now: Duration) {
        if !self.early.is_replaying() {
            self.early.on_replay_idle();
            self.apply_settings(now);
        }
    }

    fn on_message(&mut self, message: EarlyMessage, now: Duration) {
        if self.session.is_none() {
            return;
        }
        self.last_message_at = now;
        if matches!(self.plan, OpeningPlan::Adopt { .. }) {
            return self.on_adopted_message(message);
        }
        if let Some(id) = self.early.on_message(message) {
            self.reject(id, code::INTERNAL_ERROR, "too many requests before the session is open");
        }
        if matches!(self.state, State::Replaying { .. }) {
            self.on_replayed(now);
        }
    }

    fn on_cancelled(&mut self) {
        match (&self.plan, &self.state) {
            // The agent decides what comes of it.
            (OpeningPlan::Create { .. }, State::Calling(..)) => self.actions.push(OpeningAction::CancelCall),
            (OpeningPlan::Adopt { .. }, _) => {
                self.fail_with(RpcError::new(code::REQUEST_CANCELLED, "the request was cancelled"));
            }
            (OpeningPlan::Create { .. } | OpeningPlan::Restore(_) | OpeningPlan::Fork { .. }, _) => {}
        }
    }

    fn on_timeout(&mut self, now: Duration, awaits_person: bool) {
        match std::mem::replace(&mut self.state, State::Finished) {
            State::AwaitingClose => self.try_restore(None),
            State::Calling(Call::Adopt, method) => {
                let message = format!("the agent did not answer {method} in time");
                self.fail_with(RpcError::new(code::INTERNAL_ERROR, message));
            }
            state @ State::Calling(Call::Create, _)
                if awaits_person && matches!(self.plan, OpeningPlan::Create { .. }) =>
            {
                self.startup.until = now + self.startup.timeout;
                self.state = state;
            }
            State::Calling(_, method) | State::ApplyingSettings(method) => {
                self.fail(OpeningError::Late(method));
            }
            State::Listing(error) => self.fail_with(error),
            State::Replaying { .. } if matches!(self.plan, OpeningPlan::Adopt { .. }) => {
                self.finish_adoption();
            }
            State::Replaying { .. } => {
                self.early.on_replay_idle();
                self.apply_settings(now);
            }
            state @ (State::SettingRoute(_) | State::Finished) => self.state = state,
        }
    }

    pub(super) fn finish(&mut self) {
        let Some(session) = self.session.take() else { return };
        self.state = State::Finished;
        let early = std::mem::replace(&mut self.early, EarlyMessages::new(&self.agent));
        let Kept { messages, dropped, mut settings } = early.finish();
        let refused = RefusedSettings::of(&self.agent, &mut settings, &self.applying.refused);
        self.actions.push(OpeningAction::Done(Box::new(AgentSession {
            session,
            result: std::mem::take(&mut self.result),
            settings,
            refused,
            without_history: self.without_history,
            lost: self.lost.take(),
            replay: std::mem::take(&mut self.adopted.updates),
            early: messages,
            dropped,
        })));
    }

    /// Fails with an error of the agent, or about it.
    pub(super) fn fail_with(&mut self, error: RpcError) {
        let error = match &self.plan {
            OpeningPlan::Adopt { session, .. } => adoption_error(session, error),
            OpeningPlan::Create { .. } | OpeningPlan::Restore(_) | OpeningPlan::Fork { .. } => error,
        };
        self.fail(OpeningError::Rpc(error));
    }

    fn fail(&mut self, error: OpeningError) {
        self.remove_route();
        self.state = State::Finished;
        self.actions.push(OpeningAction::Failed(error));
    }

    /// Receives nothing more about the session. Nobody answers what the agent asked about it.
    pub(super) fn remove_route(&mut self) {
        if self.session.take().is_none() {
            return;
        }
        let early = std::mem::replace(&mut self.early, EarlyMessages::new(&self.agent));
        for id in early.abandon() {
            self.reject(id, code::INTERNAL_ERROR, "the session could not be opened");
        }
        self.actions.push(OpeningAction::RemoveRoute);
    }

    pub(super) fn reject(&mut self, id: RequestId, code: i64, message: &str) {
        self.actions.push(OpeningAction::Reject { id, error: RpcError::new(code, message) });
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use parlor_dialect::settings::Settings;

    use super::super::script::{history, mode, object, restore, script, v1, v2};
    use super::*;

    fn create() -> OpeningPlan {
        OpeningPlan::Create { params: object(r#"{"cwd":"/"}"#) }
    }

    fn fork(wanted: Settings) -> OpeningPlan {
        OpeningPlan::Fork { params: object(r#"{"sessionId":"s"}"#), wanted, history: history() }
    }

    #[test]
    fn a_session_is_created_with_the_whole_result() {
        script(v1(&[]), create()).check(
            r#"
            start
                call session/new {"cwd":"/"}, creates
                until 30000
            10 result {"sessionId":"t","modes":{"currentModeId":"ask"}}
                route t
            10 routed
                done t {"modes":{"currentModeId":"ask"}}
        "#,
        );
    }

    #[test]
    fn an_agent_that_waits_for_a_person_has_more_time_to_create_a_session() {
        script(v1(&[]), create()).check(
            r#"
            start
                call session/new {"cwd":"/"}, creates
                until 30000
            30000 timeout person
                until 60000
            60000 timeout
                failed: no response to session/new
        "#,
        );
    }

    #[test]
    fn a_cancelled_creation_ends_as_the_agent_says() {
        script(v1(&[]), create()).check(
            r#"
            start
                call session/new {"cwd":"/"}, creates
                until 30000
            10 cancelled
                cancel call
            20 error -32800 cancelled
                failed: -32800 cancelled
        "#,
        );
    }

    #[test]
    fn an_error_to_a_creation_is_passed_on() {
        script(v1(&["list"]), create()).check(
            r#"
            start
                call session/new {"cwd":"/"}, creates
                until 30000
            10 error -32000 log in first
                failed: -32000 log in first
        "#,
        );
        script(v1(&["list"]), create()).check(
            r#"
            start
                call session/new {"cwd":"/"}, creates
                until 30000
            10 result {}
                failed: -32603 the agent's response to session/new has no `sessionId`
        "#,
        );
    }

    #[test]
    fn a_fork_drops_what_is_replayed_and_applies_the_settings() {
        script(v1(&[]), fork(mode("code"))).check(
            r#"
            start
                call session/fork {"sessionId":"s"}, creates
                until 30000
            10 result {"sessionId":"f","modes":{"currentModeId":"ask"}}
                route f
            10 routed
                until 210
            20 user any prompt
                until 220
            30 agent not as it was
                until 230
            40 mode plan
                until 240
            240 timeout
                call session/set_mode {"modeId":"code","sessionId":"f"}
                until 30240
            250 result {}
                done f {}
                    mode "code"
        "#,
        );
    }

    #[test]
    fn a_fork_without_replay_keeps_new_updates() {
        script(v2(), fork(Settings::default())).check(
            r#"
            start
                call session/fork {"sessionId":"s"}, creates
                until 30000
            10 result {"sessionId":"f"}
                route f
            10 routed
                until 210
            20 agent Ready.
                done f {}
                    early: agent_message_chunk Ready.
        "#,
        );
    }

    #[test]
    fn a_fork_without_an_id_fails() {
        script(v2(), fork(Settings::default())).check(
            r#"
            start
                call session/fork {"sessionId":"s"}, creates
                until 30000
            10 result {}
                failed: -32603 the agent's response to session/fork has no `sessionId`
        "#,
        );
    }

    /// What comes of events in each state in which the agent is waited for.
    fn in_every_state(events: &[&str]) -> String {
        let adopt = || OpeningPlan::Adopt { session: "s".into(), params: Object::default(), is_listed: true };
        let load = || v1(&["load", "list"]);
        let restored = |agent: &AgentInfo| restore(agent, &mode("code"));
        let states = [
            ("closing", load(), restored(&load()), ""),
            ("resuming", v2(), restored(&v2()), "0 closed\n0 routed"),
            ("loading", load(), restored(&load()), "0 closed\n0 routed"),
            ("replacing", load(), restored(&load()), "0 closed\n0 route_failed in use"),
            ("listing", load(), restored(&load()), "0 closed\n0 routed\n10 error -32603 boom"),
            ("replaying", load(), restored(&load()), "0 closed\n0 routed\n10 request 7\n10 result {}"),
            ("applying", load(), restored(&load()), "0 closed\n0 routed\n10 result {}\n210 timeout"),
            ("creating", v1(&[]), create(), ""),
            ("forking", v2(), fork(Settings::default()), ""),
            ("adopting", v2(), adopt(), "0 routed\n10 agent Hello."),
            ("adopted", v2(), adopt(), "0 routed\n10 agent Hello.\n10 result {}"),
        ];
        let run = |(state, agent, plan, before): (&str, AgentInfo, OpeningPlan, &str)| {
            let all = before.lines().chain(["..."]).chain(events.iter().copied());
            format!("{state}\n{}", script(agent, plan).run(all))
        };
        states.into_iter().map(run).collect()
    }

    #[test]
    fn an_agent_that_dies_ends_the_opening_in_every_state() {
        let printed = in_every_state(&["300 gone it ended"]);
        expect![[r#"
            closing
            300 gone it ended
                failed: -32603 it ended
            resuming
            300 gone it ended
                remove route
                failed: -32603 it ended
            loading
            300 gone it ended
                remove route
                failed: -32603 it ended
            replacing
            300 gone it ended
                failed: -32603 it ended
            listing
            300 gone it ended
                failed: -32603 boom
            replaying
            300 gone it ended
                reject 7: -32603 the session could not be opened
                remove route
                failed: -32603 it ended
            applying
            300 gone it ended
                remove route
                failed: -32603 it ended
            creating
            300 gone it ended
                failed: -32603 it ended
            forking
            300 gone it ended
                failed: -32603 it ended
            adopting
            300 gone it ended
                remove route
                failed: -32002 there is no such session {"sessionId":"s","reason":"it ended"}
            adopted
            300 gone it ended
                remove route
                failed: -32002 there is no such session {"sessionId":"s","reason":"it ended"}
        "#]]
        .assert_eq(&printed);
    }

    #[test]
    fn an_agent_that_does_not_answer_fails_in_every_state_when_its_time_is_over() {
        let printed = in_every_state(&["29999 timeout", "100000 timeout"]);
        expect![[r#"
            closing
            29999 timeout
            100000 timeout
                route s
            resuming
            29999 timeout
            100000 timeout
                remove route
                failed: no response to session/resume
            loading
            29999 timeout
            100000 timeout
                remove route
                failed: no response to session/load
            replacing
            29999 timeout
            100000 timeout
                failed: no response to session/new
            listing
            29999 timeout
            100000 timeout
                failed: -32603 boom
            replaying
            29999 timeout
                call session/set_mode {"modeId":"code","sessionId":"s"}
                until 59999
            100000 timeout
                reject 7: -32603 the session could not be opened
                remove route
                failed: no response to session/set_mode
            applying
            29999 timeout
            100000 timeout
                remove route
                failed: no response to session/set_mode
            creating
            29999 timeout
            100000 timeout
                failed: no response to session/new
            forking
            29999 timeout
            100000 timeout
                failed: no response to session/fork
            adopting
            29999 timeout
            100000 timeout
                remove route
                failed: -32002 there is no such session {"sessionId":"s","reason":"the agent did not answer session/resume in time"}
            adopted
            29999 timeout
                done s {}
                    replay: agent_message_chunk Hello.
            100000 timeout
        "#]]
        .assert_eq(&printed);
    }

    #[test]
    fn a_load_that_replays_has_time_since_its_last_update() {
        let agent = v1(&["load"]);
        let plan = restore(&agent, &mode("code"));
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
            20000 agent Hello.
                until 50000
            30000 timeout
            45000 agent More.
                until 75000
            60000 result {}
                until 60200
            60200 timeout
                call session/set_mode {"modeId":"code","sessionId":"s"}
                until 90200
            90200 timeout
                remove route
                failed: no response to session/set_mode
        "#,
        );
    }

    #[test]
    fn a_response_that_comes_late_or_twice_changes_nothing() {
        let agent = v1(&["load"]);
        let plan = restore(&agent, &Settings::default());
        script(agent, plan).check(
            r#"
            start
                await close of s
                until 30000
            0 result {}
            0 closed
                route s
            0 routed
                call session/load {"cwd":"/","mcpServers":[],"sessionId":"s"}
                until 30000
            10 result {}
                until 210
            20 result {"sessionId":"other"}
            210 timeout
                done s {}
            220 result {}
            230 agent More.
            240 gone it ended
        "#,
        );
    }
}
