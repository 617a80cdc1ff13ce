//! Applies the settings of a session again, one request after the other.

use core::time::Duration;
use std::collections::VecDeque;

use parlor_dialect::Dialect;
use parlor_dialect::settings::{Choice, Setting, Settings};
use parlor_json::{Json, Object};
use parlor_wire::{RpcError, code};

use super::event::OpeningAction;
use super::machine::{Opening, State};
use super::plan::OpeningPlan;

/// The settings that an agent is sent, and those that it did not accept.
#[derive(Debug, Default)]
pub(super) struct ApplySettings {
    wanted: Settings,
    left: VecDeque<Setting>,
    /// What the agent was sent and has not answered.
    sent: Option<Choice>,
    /// What it did not accept, with its errors.
    pub(super) refused: Vec<(Choice, Json)>,
}

impl ApplySettings {
    pub(super) fn new(wanted: Settings) -> Self {
        let left = wanted.chosen().into();
        Self { wanted, left, sent: None, refused: Vec::new() }
    }

    /// Whether nothing was chosen in the session.
    pub(super) fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    /// The next request, without the session, for an agent with these settings in force; `None` if all are applied.
    pub(super) fn next_request(
        &mut self,
        dialect: Dialect,
        in_force: &Settings,
    ) -> Option<(&'static str, Object)> {
        while let Some(setting) = self.left.pop_front() {
            // What the agent answered before this one may show how this one is set.
            let choice = self.wanted.choice(&setting, dialect, in_force);
            let Some(choice) = choice.filter(|choice| in_force.is_missing(choice)) else { continue };
            if let Some(request) = choice.request.clone() {
                self.sent = Some(choice);
                return Some(request);
            }
            let message = format!("the agent has no request that sets the {}", choice.what);
            let error = RpcError::new(code::METHOD_NOT_FOUND, message).to_json();
            self.refused.push((choice, error));
        }
        None
    }

    /// The agent answered the last request.
    pub(super) fn on_response(&mut self, response: Result<Json, Json>, in_force: &mut Settings) {
        let Some(choice) = self.sent.take() else { return };
        match response {
            Ok(result) => in_force.chose(&choice, &result.to_object().unwrap_or_default()),
            Err(error) => self.refused.push((choice, error)),
        }
    }
}

impl Opening {
    /// Has the agent apply the settings that were in force. They are the last thing before a prompt can be sent.
    pub(super) fn apply_settings(&mut self, now: Duration) {
        // A replay may have taken longer than the agent has to start.
        self.startup.until = self.startup.until.max(now + self.startup.timeout);
        let wanted = match &self.plan {
            OpeningPlan::Restore(plan) => plan.wanted.clone(),
            OpeningPlan::Fork { wanted, .. } => wanted.clone(),
            OpeningPlan::Create { .. } | OpeningPlan::Adopt { .. } => Settings::default(),
        };
        self.applying = ApplySettings::new(wanted);
        if self.applying.is_empty() {
            self.early.use_replayed_settings();
        }
        self.apply_next();
    }

    pub(super) fn apply_next(&mut self) {
        let next = self.applying.next_request(self.agent.dialect, &self.early.settings);
        let (Some((method, mut params)), Some(session)) = (next, &self.session) else { return self.finish() };
        params.set("sessionId", session.as_json());
        self.state = State::ApplyingSettings(method);
        self.actions.push(OpeningAction::Call { method, params, creates: false });
    }
}

#[cfg(test)]
mod tests {
    use super::super::script::{mode, object, restore, script, v1};
    use super::*;

    #[test]
    fn only_what_differs_is_sent_and_a_response_may_show_the_next() {
        let mut wanted = mode("code");
        wanted.want(&Setting::Model, &Json::from("large"));
        let mut in_force = Settings::default();
        let mut applying = ApplySettings::new(wanted);
        let (method, params) = applying.next_request(Dialect::V1, &in_force).unwrap();
        assert_eq!((method, params.to_json().as_str()), ("session/set_model", r#"{"modelId":"large"}"#));
        // With another model, the mode is as it should be.
        let shown = r#"{"modes":{"currentModeId":"code"}}"#;
        applying.on_response(Ok(object(shown).to_json()), &mut in_force);
        assert_eq!(in_force.get(&Setting::Model), Some(Json::from("large")));
        assert_eq!(applying.next_request(Dialect::V1, &in_force), None);
        assert!(applying.refused.is_empty());
    }

    /// codex-acp has models with their effort, and an option for the model alone; its fork presents only the option.
    #[test]
    fn a_model_with_other_values_as_an_option_is_compared_with_the_option() {
        let option = |value: &str| {
            let values = r#"[{"value":"small","name":"S"},{"value":"large","name":"L"}]"#;
            format!(
                r#""configOptions":[{{"id":"model","name":"Model","category":"model","type":"select","currentValue":"{value}","options":{values}}}]"#
            )
        };
        let models = r#""models":{"currentModelId":"large[high]","availableModels":[{"modelId":"large[high]","name":"L"}]}"#;
        let settings = |members: &str| {
            let mut settings = Settings::default();
            settings.take_from(&mut object(&format!("{{{members}}}")));
            settings
        };
        let wanted = settings(&format!("{models},{}", option("large")));
        let mut applying = ApplySettings::new(wanted.clone());
        assert_eq!(applying.next_request(Dialect::V1, &settings(&option("large"))), None);
        let mut applying = ApplySettings::new(wanted);
        let (method, params) = applying.next_request(Dialect::V1, &settings(&option("small"))).unwrap();
        assert_eq!(
            (method, params.to_json().as_str()),
            ("session/set_config_option", r#"{"configId":"model","value":"large"}"#)
        );
    }

    #[test]
    fn a_response_to_nothing_changes_nothing() {
        let mut in_force = Settings::default();
        ApplySettings::default().on_response(Ok(Object::new().to_json()), &mut in_force);
        assert_eq!(in_force, Settings::default());
    }

    #[test]
    fn settings_are_applied_again_one_after_the_other() {
        let agent = v1(&["load"]);
        let mut wanted = mode("code");
        wanted.want(&Setting::Model, &Json::from("large"));
        let plan = restore(&agent, &wanted);
        script(agent, plan).check(
            r#"
            0 closed
            0 routed
            ...
            10 result {"modes":{"currentModeId":"ask"},"models":{"currentModelId":"small"}}
                until 210
            210 timeout
                call session/set_model {"modelId":"large","sessionId":"s"}
                until 30210
            220 result {}
                call session/set_mode {"modeId":"code","sessionId":"s"}
            230 mode plan
            240 result {}
                done s {}
                    mode "code"
        "#,
        );
    }

    #[test]
    fn a_setting_that_is_in_force_is_not_sent() {
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
            10 result {"modes":{"currentModeId":"code"}}
                until 210
            20 mode ask
                until 220
            220 timeout
                done s {}
                    mode "code"
        "#,
        );
    }
}
