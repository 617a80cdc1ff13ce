//! The options of a session that the user can set: mode, model and others.

use parlor_client::{Client, Error};
use parlor_json::{Json, JsonStr, Object};
use parlor_session::{SessionId, Slot, Transcript};
use parlor_wire::code;

use crate::command_error::CommandError;
use crate::offline_sessions::{OfflineSessions, v2_transcript};
use crate::path_options::PathOptions;

/// An option of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SessionOption {
    id: JsonStr,
    category: Option<String>,
    /// Whether its values are true and false.
    is_boolean: bool,
    /// The value in force.
    value: Option<String>,
    /// The ids of its values; empty if they are not listed.
    values: Vec<String>,
}

impl SessionOption {
    /// The name by which it is set: its category if no other option has it, else its id.
    pub(crate) fn key(&self, all: &[Self]) -> String {
        let category = self.category.as_deref();
        let is_only = all.iter().filter(|other| other.category.as_deref() == category).count() == 1;
        match category.filter(|_| is_only) {
            Some(category) => category.to_owned(),
            None => self.id.to_text().into_owned(),
        }
    }

    /// The value in force.
    pub(crate) fn value(&self) -> Option<&str> {
        self.value.as_deref()
    }

    /// The values that can be set; empty if they are not listed.
    pub(crate) fn choices(&self) -> Vec<String> {
        if self.is_boolean { vec!["true".to_owned(), "false".to_owned()] } else { self.values.clone() }
    }
}

/// Reads the options of a session that the server has stored.
pub(crate) fn stored(paths: &PathOptions, id: &SessionId) -> Result<Vec<SessionOption>, CommandError> {
    let sessions = OfflineSessions::open(paths)?;
    let row = sessions.find(&id.to_string(), crate::offline_sessions::LatestScope::All)?;
    Ok(all_in(&v2_transcript(&sessions.read(&row)?)))
}

/// The options of a transcript of version 2.
fn all_in(transcript: &Transcript) -> Vec<SessionOption> {
    let list = transcript.slot(Slot::Options).and_then(|body| body.fields.get("configOptions"));
    let list = list.and_then(Json::elements).unwrap_or_default();
    let option = |option: Object| {
        let mut values = Vec::new();
        for value in option.get_array("options").unwrap_or_default() {
            let value = value.to_object()?;
            match value.get_array("options") {
                Some(group) => values
                    .extend(group.into_iter().filter_map(|value| value.to_object()?.get_string("value"))),
                None => values.extend(value.get_string("value")),
            }
        }
        Some(SessionOption {
            id: option.get_json_str("configId").or_else(|| option.get_json_str("id"))?,
            category: option.get_string("category"),
            is_boolean: option.get_string("type").as_deref() == Some("boolean"),
            value: option
                .get("currentValue")
                .map(|value| value.to_text().map_or_else(|| value.as_str().to_owned(), Into::into)),
            values,
        })
    };
    list.into_iter().filter_map(|raw| option(raw.to_object()?)).collect()
}

/// Sets an option by its category or id.
pub(crate) async fn set(
    client: &Client,
    session: &SessionId,
    options: &[SessionOption],
    key: &str,
    value: &str,
) -> Result<(), CommandError> {
    let is_named = |option: &&SessionOption| option.id.to_text() == key;
    let is_of_category = |option: &&SessionOption| option.category.as_deref() == Some(key);
    let option = options.iter().find(is_of_category).or_else(|| options.iter().find(is_named));
    let Some(option) = option else {
        let names: Vec<_> = options.iter().map(|option| option.key(options)).collect();
        let hint = if names.is_empty() {
            "it has no options; its agent may report them with the first prompt".to_owned()
        } else {
            format!("it has: {}", names.join(", "))
        };
        return Err(CommandError::bad_input(format_args!("the session has no option '{key}'")).hint(hint));
    };
    let choices = || format!("choose one of these: {}", option.values.join(", "));
    if !option.values.is_empty() && !option.values.iter().any(|known| known == value) {
        return Err(CommandError::bad_input(format_args!("{key} has no value '{value}'")).hint(choices()));
    }
    let value = match (option.is_boolean, value) {
        (true, "true" | "false") => Json::from(value == "true"),
        (true, _) => {
            return Err(CommandError::bad_input(format_args!("{key} has no value '{value}'"))
                .hint("choose one of these: true, false"));
        }
        (false, _) => Json::from(value),
    };
    let params =
        Object::new().with("sessionId", session.as_json()).with("configId", &option.id).with("value", value);
    match client.call("session/set_config_option", &params).await {
        Ok(_) => Ok(()),
        Err(Error::Rpc(error)) if error.code() == code::INVALID_PARAMS => {
            let failure = CommandError::bad_input(format_args!("cannot set {key}: {}", error.message()));
            Err(if option.values.is_empty() { failure } else { failure.hint(choices()) })
        }
        Err(error) => Err(CommandError::client(&error)),
    }
}
