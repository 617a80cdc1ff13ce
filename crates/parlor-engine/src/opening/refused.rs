//! Settings that an agent does not accept again when its session is restored.

use parlor_dialect::settings::{Choice, Setting, Settings};
use parlor_json::{Json, Object};
use parlor_wire::{RpcError, code};

use super::missing::is_setting_missing;
use crate::{AgentInfo, SessionData};

/// The settings that an agent did not accept again, with the error for prompts that are not sent because of them.
#[derive(Debug, Clone)]
pub struct RefusedSettings {
    /// The error for the sender of a prompt.
    pub error: RpcError,
    /// The settings.
    pub settings: Vec<RefusedSetting>,
}

/// A setting that an agent did not accept again, and that nobody has chosen since.
#[derive(Debug, Clone)]
pub struct RefusedSetting {
    /// The setting.
    pub setting: Setting,
    /// The value that was not accepted.
    pub value: Json,
    /// Whether the agent does not have it any more. Then one prompt is rejected; else all prompts are, until a client sets it.
    pub is_gone: bool,
}

impl RefusedSettings {
    /// The settings that are still refused after the sender of a prompt got the error: those that the agent still has.
    pub fn after_report(mut self) -> Option<Self> {
        self.settings.retain(|one| !one.is_gone);
        (!self.settings.is_empty()).then_some(self)
    }

    /// The settings as JSON, for [`SessionData`].
    pub fn to_json(&self) -> Json {
        let settings = self.settings.iter().map(|RefusedSetting { setting, value, .. }| {
            let mut one = Object::default();
            match setting {
                Setting::Mode => one.set("setting", "mode"),
                Setting::Model => one.set("setting", "model"),
                Setting::Option(id) => one.set("option", id.clone()),
            }
            one.set("value", value.clone());
            one
        });
        Json::array(settings)
    }

    /// What an agent did not accept, with its errors; `None` if that is nothing. The settings in force forget what the agent
    /// does not have any more.
    pub(super) fn of(agent: &AgentInfo, in_force: &mut Settings, refused: &[(Choice, Json)]) -> Option<Self> {
        if refused.is_empty() {
            return None;
        }
        let settings = refused.iter().map(|(choice, error)| RefusedSetting {
            setting: choice.setting.clone(),
            value: choice.value.clone(),
            is_gone: is_gone(in_force, choice, error),
        });
        let settings: Vec<_> = settings.collect();
        for one in settings.iter().filter(|one| one.is_gone) {
            in_force.forget(&one.setting);
        }
        let error = error_of(agent, in_force, refused, &settings);
        Some(Self { error, settings })
    }
}

/// The settings that an agent has to apply before a prompt is sent: those in force, and those that it did not accept before.
pub fn wanted_settings(data: &SessionData, in_force: &Settings) -> Settings {
    let mut wanted = in_force.clone();
    refused_before(data).iter().for_each(|(setting, value)| wanted.want(setting, value));
    wanted
}

/// The settings in force as far as a session can know them. One that was refused may still be shown as it was before that:
/// then only the agent knows what is in force.
pub(super) fn known_settings(data: &SessionData, in_force: &Settings) -> Settings {
    let is_stale = |(setting, value): &(Setting, Json)| in_force.get(setting).as_ref() == Some(value);
    if refused_before(data).iter().any(is_stale) { Settings::default() } else { in_force.clone() }
}

/// The settings that a session's agent did not accept before, with the values that it was sent.
fn refused_before(data: &SessionData) -> Vec<(Setting, Json)> {
    let list = data.refused_settings.as_ref().and_then(|list| list.elements()).unwrap_or_default();
    let read = |one: Object| {
        let setting = match (one.get_string("setting").as_deref(), one.get("option")) {
            (Some("mode"), _) => Setting::Mode,
            (Some("model"), _) => Setting::Model,
            (_, Some(id)) => Setting::Option(id.clone()),
            (_, None) => return None,
        };
        Some((setting, one.get("value")?.clone()))
    };
    list.into_iter().filter_map(|one| read(one.to_object()?)).collect()
}

/// Whether an agent that did not accept a setting does not have it any more.
fn is_gone(in_force: &Settings, choice: &Choice, error: &Json) -> bool {
    let error = RpcError::from_raw(error.raw());
    if error.code() == code::METHOD_NOT_FOUND {
        // Nobody can choose it.
        return true;
    }
    match in_force.offers(choice) {
        Some(offers) => !offers,
        None => is_setting_missing(&error, &text_of(&choice.value)),
    }
}

/// The error for the sender of a prompt: what was not accepted, what is in force, and what to do.
fn error_of(
    agent: &AgentInfo,
    in_force: &Settings,
    refused: &[(Choice, Json)],
    settings: &[RefusedSetting],
) -> RpcError {
    let list: Vec<_> =
        refused.iter().map(|(choice, _)| format!("{} '{}'", choice.what, text_of(&choice.value))).collect();
    let mode = in_force.get(&Setting::Mode);
    let shown = match &mode {
        Some(mode) => format!("the mode in force is '{}'", text_of(mode)),
        None => "the agent does not say which mode is in force".to_owned(),
    };
    let left: Vec<_> = refused.iter().zip(settings).filter(|(_, one)| !one.is_gone).collect();
    let next = if left.is_empty() {
        "send it again to go on so".to_owned()
    } else {
        let names: Vec<_> = left.iter().map(|((choice, _), _)| choice.what.as_str()).collect();
        format!("set the {} to go on", names.join(", "))
    };
    let message = format!(
        "agent '{}' did not accept {} again, and the prompt was not sent: {shown}; {next}",
        agent.label,
        list.join(", ")
    );
    let mut data = Object::default();
    data.set("reason", "settings_refused");
    if let Some(mode) = &mode {
        data.set("mode", mode.clone());
    }
    let mut values = Object::default();
    let mut errors = Object::default();
    for (choice, error) in refused {
        values.set(choice.what.as_str(), choice.value.clone());
        errors.set(choice.what.as_str(), error.clone());
    }
    data.set("refused", values.to_json());
    data.set("errors", errors.to_json());
    RpcError::new(code::INTERNAL_ERROR, message).with_data(data.to_json())
}

fn text_of(value: &Json) -> String {
    value.to_json_str().map_or_else(|| value.as_str().to_owned(), |text| text.to_text().into_owned())
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::super::script::{self, mode, restore, script, v1, v2};
    use super::*;

    /// What comes of an error to `session/set_mode`, at an agent that shows these modes.
    fn refused(modes: Option<&[&str]>, error: &str) -> String {
        let agent = v1(&["load"]);
        let plan = restore(&agent, &mode("code"));
        let shown = modes.map(|ids| format!(r#""modes":{}"#, script::modes("ask", ids).as_str()));
        let result = format!("10 result {{{}}}", shown.unwrap_or_default());
        let error = format!("220 error {error}");
        script(agent, plan).run(["0 closed", "0 routed", &result, "210 timeout", "...", &error])
    }

    #[test]
    fn a_setting_that_the_agent_has_is_refused_until_somebody_chooses() {
        expect![[r#"
            220 error -32603 not now
                done s {}
                    mode "ask"
                    refused [{"setting":"mode","value":"code"}] agent 'a' did not accept mode 'code' again, and the prompt was not sent: the mode in force is 'ask'; set the mode to go on
        "#]].assert_eq(&refused(Some(&["ask", "code"]), "-32603 not now"));
    }

    #[test]
    fn a_setting_that_the_agent_does_not_have_any_more_is_refused_once() {
        for printed in [
            refused(Some(&["ask"]), "-32603 not now"),
            refused(None, "-32603 Unknown mode: code"),
            refused(None, "-32602 bad"),
            refused(None, "-32601 no such method"),
        ] {
            assert!(printed.contains("send it again to go on so"), "{printed}");
        }
        expect![[r#"
            220 error -32603 Unknown mode: code
                done s {}
                    refused [{"setting":"mode","value":"code"}] agent 'a' did not accept mode 'code' again, and the prompt was not sent: the agent does not say which mode is in force; send it again to go on so
        "#]].assert_eq(&refused(None, "-32603 Unknown mode: code"));
    }

    #[test]
    fn a_setting_for_which_the_agent_has_no_request_is_refused() {
        let agent = v2();
        let plan = restore(&agent, &mode("code"));
        script(agent, plan).check(r#"
            0 closed
            0 routed
            ...
            10 result {}
                until 210
            210 timeout
                done s {}
                    refused [{"setting":"mode","value":"code"}] agent 'a' did not accept mode 'code' again, and the prompt was not sent: the agent does not say which mode is in force; send it again to go on so
        "#);
    }

    #[test]
    fn refused_settings_are_wanted_when_the_session_is_restored_again() {
        let refused = |setting, is_gone| RefusedSetting { setting, value: Json::from("v"), is_gone };
        let error = RpcError::new(code::INTERNAL_ERROR, "e");
        let option = || Setting::Option(Json::from("o"));
        let all = RefusedSettings {
            error,
            settings: vec![
                refused(Setting::Mode, false),
                refused(Setting::Model, true),
                refused(option(), false),
            ],
        };
        let mut data = SessionData::default();
        data.set_refused(Some(&all));
        let read: Vec<_> = refused_before(&data).into_iter().map(|(setting, _)| setting).collect();
        assert_eq!(read, [Setting::Mode, Setting::Model, option()]);
        let wanted = wanted_settings(&data, &mode("ask"));
        assert_eq!(wanted.get(&Setting::Mode), Some(Json::from("v")));
        // A setting that the agent no longer has is forgotten after one error.
        let left = all.after_report().unwrap();
        assert_eq!(left.settings.len(), 2);
        let gone = RefusedSettings { settings: vec![refused(Setting::Mode, true)], ..left };
        assert!(gone.after_report().is_none());
    }

    #[test]
    fn settings_that_cannot_be_read_are_not_wanted() {
        let refused = Json::parse(r#"[{"setting":"mode"},{"value":"v"},7]"#).unwrap();
        let data = SessionData { refused_settings: Some(refused), ..SessionData::default() };
        assert_eq!(wanted_settings(&data, &mode("ask")), mode("ask"));
    }
}
