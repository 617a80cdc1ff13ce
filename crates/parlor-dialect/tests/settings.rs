//! Settings of a session: one mode and one model in every view, restored when an agent lost them.

use parlor_dialect::settings::{self, Setting, Settings};
use parlor_dialect::{Dialect, live};
use parlor_json::{Json, Object};
use parlor_session::session::{Input, Session, Step};
use parlor_session::{MessageId, Slot, Transcript, UnixMillis};

fn object(text: &str) -> Object {
    Object::parse(Json::parse(text).unwrap().raw()).unwrap()
}

const BOTH: &str = r#"{"modes":{"currentModeId":"ask","availableModes":[{"id":"ask"},{"id":"code"}]},
    "models":{"currentModelId":"small","availableModels":[{"modelId":"small"},{"modelId":"large"}]},
    "configOptions":[
        {"id":"m","category":"mode","type":"select","currentValue":"ask","options":[{"group":"g","options":[{"value":"ask"},{"value":"code"}]}]},
        {"id":"l","category":"model","type":"select","currentValue":"small","options":[{"value":"small"},{"value":"large"}]},
        {"id":"deep","type":"boolean","currentValue":true}]}"#;

fn session(response: &str) -> Session {
    let mut session = Session::new(Transcript::default(), live::HOOKS, None);
    live::updates_from_response(&object(response))
        .into_iter()
        .for_each(|update| step(&mut session, Input::ServerUpdate(update)));
    session
}

fn step(session: &mut Session, input: Input) {
    let mut new_id = || MessageId::from("new");
    session.step(input, UnixMillis(0), &mut new_id, &mut Step::default());
}

/// The mode and the model in each view.
fn views(session: &Session) -> [String; 4] {
    let field = |slot, name| session.transcript().slot(slot).unwrap().fields.get(name).unwrap().clone();
    let options = field(Slot::Options, "configOptions");
    let options = options.elements().unwrap();
    let value =
        |place: usize| object(options[place].as_str()).get("currentValue").unwrap().as_str().to_owned();
    let own = |slot, name| field(slot, name).as_str().to_owned();
    [own(Slot::Mode, "currentModeId"), value(0), own(Slot::Model, "currentModelId"), value(1)]
}

#[test]
fn a_mode_or_model_that_changes_in_one_view_changes_in_the_other() {
    let mut session = session(BOTH);
    for (method, params, expected) in [
        ("session/set_mode", r#"{"modeId":"code"}"#, ["code", "code", "small", "small"]),
        ("session/set_model", r#"{"modelId":"large"}"#, ["code", "code", "large", "large"]),
    ] {
        let update = settings::chosen_by(method, &object(params)).unwrap();
        step(&mut session, Input::ServerUpdate(update));
        assert_eq!(views(&session), expected.map(|value| format!("\"{value}\"")));
    }
    for (params, expected) in [
        (r#"{"configId":"m","value":"ask"}"#, ["ask", "ask", "large", "large"]),
        (r#"{"configId":"l","value":"small"}"#, ["ask", "ask", "small", "small"]),
    ] {
        let update = settings::option_chosen(session.transcript(), &object(params)).unwrap();
        step(&mut session, Input::ServerUpdate(update));
        assert_eq!(views(&session), expected.map(|value| format!("\"{value}\"")));
    }
}

#[test]
fn a_value_that_the_other_view_does_not_offer_stays_where_it_is() {
    let mut session = session(BOTH);
    let update = settings::chosen_by("session/set_mode", &object(r#"{"modeId":"secret"}"#)).unwrap();
    step(&mut session, Input::ServerUpdate(update));
    assert_eq!(views(&session)[..2], ["\"secret\"", "\"ask\""]);
}

#[test]
fn settings_that_are_not_in_force_are_restored_the_mode_last() {
    let mut wanted = session(BOTH);
    for (method, params) in
        [("session/set_mode", r#"{"modeId":"code"}"#), ("session/set_model", r#"{"modelId":"large"}"#)]
    {
        step(&mut wanted, Input::ServerUpdate(settings::chosen_by(method, &object(params)).unwrap()));
    }
    let wanted = Settings::of(wanted.transcript());
    let asked = |dialect, mut agents: Settings| -> Vec<String> {
        let mut asked = Vec::new();
        for setting in wanted.chosen() {
            let choice = wanted.choice(&setting, dialect, &agents).unwrap();
            if agents.is_missing(&choice) {
                let request = choice.request.as_ref();
                asked.push(match request {
                    Some((method, params)) => format!("{method} {}", params.to_json().as_str()),
                    None => format!("{} cannot be asked for", choice.what),
                });
                agents.chose(&choice, &Object::default());
            }
        }
        asked
    };
    let mut defaults = Settings::default();
    defaults.take_from(&mut object(BOTH));
    let mode = r#"session/set_mode {"modeId":"code"}"#;
    let model = r#"session/set_model {"modelId":"large"}"#;
    assert_eq!(asked(Dialect::V1, defaults), [model, mode]);
    // An agent that presents nothing may be set to any value.
    let deep = r#"session/set_config_option {"configId":"deep","value":true,"type":"boolean"}"#;
    assert_eq!(asked(Dialect::V1, Settings::default()), [model, deep, mode]);
    // An agent with all settings needs no request.
    assert_eq!(asked(Dialect::V1, wanted.clone()), [""; 0]);
    // An agent with an option for its mode gets the request for the option.
    let mut options = Settings::default();
    options.take_from(&mut object(
        r#"{"configOptions":[{"configId":"x","category":"mode","type":"select","currentValue":"ask","options":[{"value":"ask"},{"value":"code"}]}]}"#,
    ));
    let by_option = r#"session/set_config_option {"configId":"x","value":"code","type":"id"}"#;
    assert_eq!(asked(Dialect::V2, options), [by_option]);
}

#[test]
fn a_v2_agent_without_an_option_for_a_mode_or_model_has_no_request_for_it() {
    let alone =
        r#"{"modes":{"currentModeId":"code"},"models":{"currentModelId":"large"},"configOptions":[]}"#;
    let wanted = Settings::of(session(alone).transcript());
    let mut none = Settings::default();
    none.take_from(&mut object(r#"{"configOptions":[]}"#));
    for dialect in [Dialect::V2, Dialect::Draft] {
        for agents in [&none, &Settings::default()] {
            let choices =
                wanted.chosen().into_iter().map(|one| wanted.choice(&one, dialect, agents).unwrap());
            let choices: Vec<_> = choices.collect();
            let what: Vec<_> = choices.iter().map(|choice| choice.what.as_str()).collect();
            assert_eq!(what, ["model", "mode"]);
            assert!(choices.iter().all(|choice| choice.request.is_none() && agents.is_missing(choice)));
        }
    }
}

#[test]
fn each_option_is_restored_once() {
    let options = r#"{"configOptions":[
        {"id":"m","category":"mode","type":"select","currentValue":"ask","options":[{"value":"ask"}]},
        {"id":"l","category":"model","type":"select","currentValue":"small","options":[{"value":"small"}]},
        {"id":"second","category":"model","type":"select","currentValue":"tiny","options":[{"value":"tiny"}]}]}"#;
    let wanted = Settings::of(session(options).transcript());
    let second = Setting::Option(Json::parse("\"second\"").unwrap());
    assert_eq!(wanted.chosen(), [Setting::Model, second, Setting::Mode]);
}

#[test]
fn a_session_shows_no_option_that_a_silent_agent_does_not_have_any_more() {
    let mut session = session(BOTH);
    let wanted = Settings::of(session.transcript());
    let mut agents = Settings::default();
    agents.forget(&Setting::Model);
    agents.forget(&Setting::Mode);
    let deep = Setting::Option(Json::parse("\"deep\"").unwrap());
    let mut choice = wanted.choice(&deep, Dialect::V1, &agents).unwrap();
    choice.value = Json::parse("false").unwrap();
    agents.chose(&choice, &Object::default());
    assert_eq!(agents.get(&Setting::Mode), None);
    for update in agents.updates(session.transcript()) {
        step(&mut session, Input::ServerUpdate(update));
    }
    let shown = Settings::of(session.transcript());
    assert_eq!(shown.chosen(), std::slice::from_ref(&deep));
    assert_eq!(shown.get(&deep).unwrap().as_str(), "false");
    assert_eq!(agents.updates(session.transcript()), []);
}

#[test]
fn another_option_of_the_same_category_is_a_setting_of_its_own() {
    let option = |id: &str| {
        format!(r#"{{"id":"{id}","category":"model","type":"select","currentValue":"{id}","options":[]}}"#)
    };
    let mut session = session(&format!(r#"{{"configOptions":[{},{}]}}"#, option("one"), option("two")));
    let mut wanted = Settings::of(session.transcript());
    let two = Setting::Option(Json::parse("\"two\"").unwrap());
    let value = Json::parse("\"x\"").unwrap();
    wanted.want(&Setting::Model, &value);
    assert_eq!(
        (wanted.get(&Setting::Model).unwrap(), wanted.get(&two).unwrap().as_str()),
        (value, "\"two\"")
    );
    let mut agents = Settings::default();
    agents.forget(&Setting::Model);
    for update in agents.updates(session.transcript()) {
        step(&mut session, Input::ServerUpdate(update));
    }
    let list = session.transcript().slot(Slot::Options).unwrap().fields.get("configOptions").unwrap().clone();
    assert_eq!(list.as_str(), format!("[{}]", option("two")));
}

#[test]
fn known_settings_are_not_updated_again() {
    let session = session(BOTH);
    let mut said = Settings::default();
    let mut response = object(BOTH);
    response.set("more", Json::parse("1").unwrap());
    said.take_from(&mut response);
    assert_eq!(said.updates(session.transcript()), []);
    assert_eq!(response.to_json().as_str(), r#"{"more":1}"#);
    said.take_from(&mut object(r#"{"configOptions":[]}"#));
    assert_eq!(said.updates(session.transcript()).len(), 1);
}
