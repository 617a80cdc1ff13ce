//! The options of a session that the user can set: mode, model and others.

use parlor_client::{Client, ConfigOption, Error};
use parlor_json::{Json, Object};
use parlor_session::SessionId;
use parlor_wire::code;

use crate::command_error::CommandError;
use crate::offline_sessions::{OfflineSessions, v2_transcript};
use crate::path_options::PathOptions;

/// The name by which an option is set: its category if no other option has it, else its id.
pub(crate) fn key(option: &ConfigOption, all: &[ConfigOption]) -> String {
    let is_same = |other: &&ConfigOption| other.category == option.category;
    match &option.category {
        Some(category) if all.iter().filter(is_same).count() == 1 => category.clone(),
        Some(_) | None => text(&option.id),
    }
}

/// The value in force.
pub(crate) fn value(option: &ConfigOption) -> Option<String> {
    option.value.as_ref().map(text)
}

/// The values that can be set; empty if they are not listed.
pub(crate) fn choices(option: &ConfigOption) -> Vec<String> {
    if option.is_boolean {
        return vec!["true".to_owned(), "false".to_owned()];
    }
    option.values.iter().map(|value| text(&value.value)).collect()
}

/// The text of a string, or the JSON of another value.
fn text(value: &Json) -> String {
    value.to_text().map_or_else(|| value.as_str().to_owned(), Into::into)
}

/// Reads the options of a session that the server has stored.
pub(crate) fn stored(paths: &PathOptions, id: &SessionId) -> Result<Vec<ConfigOption>, CommandError> {
    let sessions = OfflineSessions::open(paths)?;
    let row = sessions.find(&id.to_string(), crate::offline_sessions::LatestScope::All)?;
    Ok(ConfigOption::of_session(&v2_transcript(&sessions.read(&row)?), &Object::new()))
}

/// Sets an option by its category or id.
pub(crate) async fn set(
    client: &Client,
    session: &SessionId,
    options: &[ConfigOption],
    key: &str,
    value: &str,
) -> Result<(), CommandError> {
    let is_named = |option: &&ConfigOption| text(&option.id) == key;
    let option = options.iter().find(|option| option.is_of(key)).or_else(|| options.iter().find(is_named));
    let Some(option) = option else {
        let names: Vec<_> = options.iter().map(|option| self::key(option, options)).collect();
        let hint = if names.is_empty() {
            "it has no options; its agent may report them with the first prompt".to_owned()
        } else {
            format!("it has: {}", names.join(", "))
        };
        return Err(CommandError::bad_input(format_args!("the session has no option '{key}'")).hint(hint));
    };
    let choices = choices(option);
    let hint = || format!("choose one of these: {}", choices.join(", "));
    if !choices.is_empty() && !choices.iter().any(|choice| choice == value) {
        return Err(CommandError::bad_input(format_args!("{key} has no value '{value}'")).hint(hint()));
    }
    let value = if option.is_boolean { Json::from(value == "true") } else { Json::from(value) };
    let params =
        Object::new().with("sessionId", session.as_json()).with("configId", &option.id).with("value", value);
    match client.call("session/set_config_option", &params).await {
        Ok(_) => Ok(()),
        Err(Error::Rpc(error)) if error.code() == code::INVALID_PARAMS => {
            let failure = CommandError::bad_input(format_args!("cannot set {key}: {}", error.message()));
            Err(if choices.is_empty() { failure } else { failure.hint(hint()) })
        }
        Err(error) => Err(CommandError::client(&error)),
    }
}
