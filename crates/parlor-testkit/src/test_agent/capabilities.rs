//! Encodes the capabilities of the agent and the settings of a session.

use std::str::FromStr;

use super::commands::{COMMANDS, Step};
use super::encode::{Encoder, update};
use super::json::list;
use super::names::{self, UnknownName};
use super::quirks::{Quirk, Quirks};
use super::server::ClientInfo;
use super::session::StoredSession;
use super::{Options, auth};
use crate::script::Command;
use parlor_json::ObjectWriter;

/// A method that agents may lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OptionalMethod {
    Load,
    Resume,
    List,
    Close,
    Delete,
    Fork,
    ForkAtMessage,
    /// A fork at the message in `_meta.jetbrains.air.fork`.
    AirFork,
    /// The same, at the end of the message's turn.
    AirTurnFork,
    /// `_session/steering`: prompts in the running turn.
    Steering,
    Title,
}

/// The supported optional methods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OptionalMethods(Vec<OptionalMethod>);

/// A setting of a session: its id, its name for people, and its values with their names.
struct Setting {
    id: &'static str,
    name: &'static str,
    values: &'static [(&'static str, &'static str)],
}

/// The id and the category of the option for the mode.
pub(super) const MODE: &str = "mode";
/// The id of the option for the model.
pub(super) const MODEL: &str = "model";

const SETTINGS: [Setting; 2] = [
    Setting { id: MODE, name: "Mode", values: &[("ask", "Ask first"), ("code", "Write code")] },
    Setting { id: MODEL, name: "Model", values: &[("small", "Small"), ("large", "Large")] },
];

impl Setting {
    /// Returns the values that an agent with these quirks has.
    fn values_with(&self, quirks: &Quirks) -> impl Iterator<Item = &(&'static str, &'static str)> {
        let most = if self.id == MODE && quirks.has(Quirk::LacksModes) { 1 } else { self.values.len() };
        self.values.iter().take(most)
    }
}

impl OptionalMethod {
    const ALL: [(&str, Self); 11] = [
        ("load", Self::Load),
        ("resume", Self::Resume),
        ("list", Self::List),
        ("close", Self::Close),
        ("delete", Self::Delete),
        ("fork", Self::Fork),
        ("fork-at-message", Self::ForkAtMessage),
        ("air-fork", Self::AirFork),
        ("air-turn-fork", Self::AirTurnFork),
        ("steering", Self::Steering),
        ("title", Self::Title),
    ];
}

impl OptionalMethods {
    /// Whether the method is supported.
    pub(super) fn has(&self, method: OptionalMethod) -> bool {
        // An agent that forks at a message also forks at the end.
        let forks = [OptionalMethod::ForkAtMessage, OptionalMethod::AirFork, OptionalMethod::AirTurnFork];
        self.0.contains(&method)
            || method == OptionalMethod::Fork && forks.iter().any(|fork| self.0.contains(fork))
    }
}

impl FromStr for OptionalMethods {
    type Err = UnknownName;

    fn from_str(list: &str) -> Result<Self, UnknownName> {
        names::parse("method", list, &OptionalMethod::ALL).map(Self)
    }
}

/// Encodes the response to `initialize`.
pub(super) fn initialize(options: &Options, client: &ClientInfo) -> String {
    let encoder = client.encoder;
    let methods = auth::methods(options, client);
    let info = ObjectWriter::new().str("name", &options.name).str("title", "Test agent of parlor");
    let info = info.str("version", &options.agent_version).finish();
    let result = ObjectWriter::new().u64("protocolVersion", u64::from(encoder.dialect.version()));
    let has = |method| options.methods.has(method);
    let empty_if = |method| has(method).then_some("{}");
    let fork =
        has(OptionalMethod::ForkAtMessage).then(|| ObjectWriter::new().raw("atMessageId", "true").finish());
    let fork = fork.or_else(|| has(OptionalMethod::Fork).then(|| "{}".to_owned()));
    let fork = fork.as_deref();
    let meta = has(OptionalMethod::Steering).then_some(r#"{"steering":{"supported":true}}"#);
    let result = result.optional_raw("_meta", meta);
    if encoder.is_v1() {
        let sessions = ObjectWriter::new()
            .optional_raw("list", empty_if(OptionalMethod::List))
            .optional_raw("resume", empty_if(OptionalMethod::Resume));
        let sessions = sessions
            .optional_raw("close", empty_if(OptionalMethod::Close))
            .optional_raw("delete", empty_if(OptionalMethod::Delete));
        let sessions = sessions
            .optional_raw("fork", fork)
            .optional_raw("title", empty_if(OptionalMethod::Title))
            .finish();
        let prompts = r#"{"image":true,"audio":true,"embeddedContext":true}"#;
        let capabilities = ObjectWriter::new()
            .raw("loadSession", if has(OptionalMethod::Load) { "true" } else { "false" })
            .raw("promptCapabilities", prompts)
            .raw("sessionCapabilities", &sessions)
            .raw("auth", if options.auth.is_required() { r#"{"logout":{}}"# } else { "{}" })
            .finish();
        return result
            .raw("agentCapabilities", &capabilities)
            .raw("agentInfo", &info)
            .raw("authMethods", &methods)
            .finish();
    }
    let sessions = ObjectWriter::new()
        .raw("prompt", r#"{"image":{},"audio":{},"embeddedContext":{}}"#)
        .raw("mcp", r#"{"stdio":{}}"#)
        .optional_raw("delete", empty_if(OptionalMethod::Delete));
    let sessions =
        sessions.optional_raw("fork", fork).optional_raw("title", empty_if(OptionalMethod::Title)).finish();
    result
        .raw("info", &info)
        .raw("capabilities", &ObjectWriter::new().raw("session", &sessions).raw("auth", "{}").finish())
        .raw("authMethods", &methods)
        .finish()
}

/// Adds the settings of a session to the response that opens it.
pub(super) fn session(
    quirks: &Quirks,
    encoder: Encoder,
    session: &StoredSession,
    text: ObjectWriter,
) -> String {
    if encoder.is_v1() && quirks.has(Quirk::LacksSettings) {
        return text.finish();
    }
    let text = if encoder.is_v1() { text.raw("modes", &modes(quirks, session)) } else { text };
    let has_models = encoder.is_v1() && quirks.has(Quirk::Models);
    let text = if has_models { text.raw("models", &models(session)) } else { text };
    text.raw("configOptions", &config_options(quirks, encoder, session)).finish()
}

/// Encodes the options of a session; in v1 its mode is separate.
pub(super) fn config_options(quirks: &Quirks, encoder: Encoder, session: &StoredSession) -> String {
    let id = if encoder.is_v1() { "id" } else { "configId" };
    let shown = SETTINGS.iter().filter(|setting| has_option(quirks, encoder, setting.id));
    list(shown.map(|setting| {
        let value =
            |(value, name): &(&str, &str)| ObjectWriter::new().str("value", value).str("name", name).finish();
        ObjectWriter::new()
            .str(id, setting.id)
            .str("name", setting.name)
            .str("category", setting.id)
            .str("type", "select")
            .str("currentValue", if setting.id == MODE { &session.mode } else { &session.model })
            .raw("options", &list(setting.values_with(quirks).map(value)))
            .finish()
    }))
}

/// Whether a setting is an option.
pub(super) fn has_option(quirks: &Quirks, encoder: Encoder, id: &str) -> bool {
    if quirks.has(Quirk::LacksSettings) {
        return false;
    }
    !encoder.is_v1() || if id == MODE { quirks.has(Quirk::ModeOption) } else { !quirks.has(Quirk::Models) }
}

fn models(session: &StoredSession) -> String {
    let model = |(id, name): &(&str, &str)| ObjectWriter::new().str("modelId", id).str("name", name).finish();
    let available = list(SETTINGS[1].values.iter().map(model));
    ObjectWriter::new().str("currentModelId", &session.model).raw("availableModels", &available).finish()
}

fn modes(quirks: &Quirks, session: &StoredSession) -> String {
    let mode = |(id, name): &(&str, &str)| ObjectWriter::new().str("id", id).str("name", name).finish();
    let available = list(SETTINGS[0].values_with(quirks).map(mode));
    ObjectWriter::new().str("currentModeId", &session.mode).raw("availableModes", &available).finish()
}

/// Sets an option of a session; false if there is no such option or value.
pub(super) fn set(session: &mut StoredSession, option: &str, value: &str) -> bool {
    let Some(setting) = SETTINGS.iter().find(|setting| setting.id == option) else { return false };
    if !setting.values.iter().any(|(known, _)| *known == value) {
        return false;
    }
    let slot = if option == MODE { &mut session.mode } else { &mut session.model };
    value.clone_into(slot);
    true
}

/// Encodes a change of the mode by the agent.
pub(super) fn mode_changed(quirks: &Quirks, encoder: Encoder, session: &StoredSession) -> String {
    if encoder.is_v1() {
        return update("current_mode_update").str("currentModeId", &session.mode).finish();
    }
    update("config_option_update").raw("configOptions", &config_options(quirks, encoder, session)).finish()
}

/// Encodes the list of commands.
pub(super) fn commands(encoder: Encoder) -> String {
    let one = |command: &Command<Step>| {
        let text =
            if encoder.is_v1() { ObjectWriter::new() } else { ObjectWriter::new().str("type", "command") };
        let text = text.str("name", command.name).str("description", command.about);
        if command.input.is_empty() {
            return text.finish();
        }
        let input =
            if encoder.is_v1() { ObjectWriter::new() } else { ObjectWriter::new().str("type", "text") };
        text.raw("input", &input.str("hint", command.input).finish()).finish()
    };
    update("available_commands_update").raw("availableCommands", &list(COMMANDS.iter().map(one))).finish()
}

/// Encodes a session for the response to `session/list`.
pub(super) fn listed(session: &StoredSession) -> String {
    ObjectWriter::new()
        .str("sessionId", &session.id)
        .str("cwd", &session.cwd)
        .optional_str("title", session.title.as_deref())
        .str("updatedAt", &session.updated_at)
        .finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn optional_methods_are_parsed_from_a_list_of_names() {
        let methods: OptionalMethods = "load, fork-at-message".parse().unwrap();
        let has = |method| methods.has(method);
        assert!(
            has(OptionalMethod::Load)
                && has(OptionalMethod::Fork)
                && has(OptionalMethod::ForkAtMessage)
                && !has(OptionalMethod::List)
        );
        assert_eq!("none".parse::<OptionalMethods>().unwrap(), OptionalMethods(Vec::new()));
        let unknown = "load,fly".parse::<OptionalMethods>().unwrap_err().to_string();
        assert!(unknown.starts_with("unknown method 'fly': there are load, resume,"), "{unknown}");
    }
}
