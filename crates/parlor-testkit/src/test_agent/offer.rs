//! What the agent says about itself and about a session as a whole.

use std::fmt;
use std::str::FromStr;

use super::commands::{COMMANDS, Step};
use super::json::list;
use super::quirk::{Quirk, Quirks};
use super::say::{Voice, update};
use super::server::Peer;
use super::session::Saved;
use super::{Options, auth};
use crate::script::Command;
use parlor_json::ObjectWriter;

/// A method that agents need not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Offer {
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

/// The optional methods that are served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Offers(Vec<Offer>);

/// The error for a name that is not an offer.
#[derive(Debug)]
pub(crate) struct UnknownOffer(String);

/// What a session can be set to: an id, a name for people, and the values with their names.
struct Setting {
    id: &'static str,
    name: &'static str,
    values: &'static [(&'static str, &'static str)],
}

/// The id of the option, and the category, that stands for modes.
pub(super) const MODE: &str = "mode";
/// The id of the option for the model.
pub(super) const MODEL: &str = "model";

const SETTINGS: [Setting; 2] = [
    Setting { id: MODE, name: "Mode", values: &[("ask", "Ask first"), ("code", "Write code")] },
    Setting { id: MODEL, name: "Model", values: &[("small", "Small"), ("large", "Large")] },
];

impl Setting {
    /// The values that an agent with these quirks offers.
    fn values_with(&self, quirks: &Quirks) -> impl Iterator<Item = &(&'static str, &'static str)> {
        let most = if self.id == MODE && quirks.has(Quirk::LacksModes) { 1 } else { self.values.len() };
        self.values.iter().take(most)
    }
}

impl Offer {
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

impl Offers {
    /// Whether this is offered.
    pub(super) fn has(&self, offer: Offer) -> bool {
        // Forking at a message is a way of forking.
        let forks = [Offer::ForkAtMessage, Offer::AirFork, Offer::AirTurnFork];
        self.0.contains(&offer) || offer == Offer::Fork && forks.iter().any(|fork| self.0.contains(fork))
    }
}

impl FromStr for Offers {
    type Err = UnknownOffer;

    fn from_str(list: &str) -> Result<Self, UnknownOffer> {
        let find = |name: &str| Offer::ALL.into_iter().find(|(known, _)| *known == name);
        let names = list.split(',').map(str::trim).filter(|name| !name.is_empty() && *name != "none");
        let offers = names.map(|name| Ok(find(name).ok_or_else(|| UnknownOffer(name.to_owned()))?.1));
        offers.collect::<Result<_, _>>().map(Self)
    }
}

impl fmt::Display for UnknownOffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known: Vec<&str> = Offer::ALL.iter().map(|(name, _)| *name).collect();
        write!(f, "unknown method '{}': there are {}, none", self.0, known.join(", "))
    }
}

impl std::error::Error for UnknownOffer {}

/// The answer to `initialize`.
pub(super) fn initialize(options: &Options, peer: &Peer) -> String {
    let voice = peer.voice;
    let methods = auth::methods(options, peer);
    let info = ObjectWriter::new().str("name", &options.name).str("title", "Test agent of parlor");
    let info = info.str("version", &options.agent_version).finish();
    let result = ObjectWriter::new().u64("protocolVersion", u64::from(voice.dialect.version()));
    let has = |offer| options.offers.has(offer);
    let empty_if = |offer| has(offer).then_some("{}");
    let fork = has(Offer::ForkAtMessage).then(|| ObjectWriter::new().raw("atMessageId", "true").finish());
    let fork = fork.or_else(|| has(Offer::Fork).then(|| "{}".to_owned()));
    let fork = fork.as_deref();
    let meta = has(Offer::Steering).then_some(r#"{"steering":{"supported":true}}"#);
    let result = result.optional_raw("_meta", meta);
    if voice.is_v1() {
        let sessions = ObjectWriter::new()
            .optional_raw("list", empty_if(Offer::List))
            .optional_raw("resume", empty_if(Offer::Resume));
        let sessions = sessions
            .optional_raw("close", empty_if(Offer::Close))
            .optional_raw("delete", empty_if(Offer::Delete));
        let sessions =
            sessions.optional_raw("fork", fork).optional_raw("title", empty_if(Offer::Title)).finish();
        let prompts = r#"{"image":true,"audio":true,"embeddedContext":true}"#;
        let capabilities = ObjectWriter::new()
            .raw("loadSession", if has(Offer::Load) { "true" } else { "false" })
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
        .optional_raw("delete", empty_if(Offer::Delete));
    let sessions = sessions.optional_raw("fork", fork).optional_raw("title", empty_if(Offer::Title)).finish();
    result
        .raw("info", &info)
        .raw("capabilities", &ObjectWriter::new().raw("session", &sessions).raw("auth", "{}").finish())
        .raw("authMethods", &methods)
        .finish()
}

/// What a session can be set to, in the answer that opens it.
pub(super) fn session(quirks: &Quirks, voice: Voice, session: &Saved, text: ObjectWriter) -> String {
    if voice.is_v1() && quirks.has(Quirk::LacksSettings) {
        return text.finish();
    }
    let text = if voice.is_v1() { text.raw("modes", &modes(quirks, session)) } else { text };
    let has_models = voice.is_v1() && quirks.has(Quirk::Models);
    let text = if has_models { text.raw("models", &models(session)) } else { text };
    text.raw("configOptions", &config_options(quirks, voice, session)).finish()
}

/// The options of a session; v1 has modes beside them.
pub(super) fn config_options(quirks: &Quirks, voice: Voice, session: &Saved) -> String {
    let id = if voice.is_v1() { "id" } else { "configId" };
    let shown = SETTINGS.iter().filter(|setting| has_option(quirks, voice, setting.id));
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

/// Whether something is set with an option.
pub(super) fn has_option(quirks: &Quirks, voice: Voice, id: &str) -> bool {
    if quirks.has(Quirk::LacksSettings) {
        return false;
    }
    !voice.is_v1() || if id == MODE { quirks.has(Quirk::ModeOption) } else { !quirks.has(Quirk::Models) }
}

fn models(session: &Saved) -> String {
    let model = |(id, name): &(&str, &str)| ObjectWriter::new().str("modelId", id).str("name", name).finish();
    let available = list(SETTINGS[1].values.iter().map(model));
    ObjectWriter::new().str("currentModelId", &session.model).raw("availableModels", &available).finish()
}

fn modes(quirks: &Quirks, session: &Saved) -> String {
    let mode = |(id, name): &(&str, &str)| ObjectWriter::new().str("id", id).str("name", name).finish();
    let available = list(SETTINGS[0].values_with(quirks).map(mode));
    ObjectWriter::new().str("currentModeId", &session.mode).raw("availableModes", &available).finish()
}

/// Sets an option of a session; false if there is no such option or value.
pub(super) fn set(session: &mut Saved, option: &str, value: &str) -> bool {
    let Some(setting) = SETTINGS.iter().find(|setting| setting.id == option) else { return false };
    if !setting.values.iter().any(|(known, _)| *known == value) {
        return false;
    }
    let slot = if option == MODE { &mut session.mode } else { &mut session.model };
    value.clone_into(slot);
    true
}

/// Tells of a mode that the agent changed itself.
pub(super) fn mode_changed(quirks: &Quirks, voice: Voice, session: &Saved) -> String {
    if voice.is_v1() {
        return update("current_mode_update").str("currentModeId", &session.mode).finish();
    }
    update("config_option_update").raw("configOptions", &config_options(quirks, voice, session)).finish()
}

/// Announces the commands of the script.
pub(super) fn commands(voice: Voice) -> String {
    let one = |command: &Command<Step>| {
        let text =
            if voice.is_v1() { ObjectWriter::new() } else { ObjectWriter::new().str("type", "command") };
        let text = text.str("name", command.name).str("description", command.about);
        if command.input.is_empty() {
            return text.finish();
        }
        let input = if voice.is_v1() { ObjectWriter::new() } else { ObjectWriter::new().str("type", "text") };
        text.raw("input", &input.str("hint", command.input).finish()).finish()
    };
    update("available_commands_update").raw("availableCommands", &list(COMMANDS.iter().map(one))).finish()
}

/// A session in the answer to `session/list`.
pub(super) fn listed(session: &Saved) -> String {
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
    fn offers_are_read_from_a_list_of_names() {
        let offers: Offers = "load, fork-at-message".parse().unwrap();
        let has = |offer| offers.has(offer);
        assert!(has(Offer::Load) && has(Offer::Fork) && has(Offer::ForkAtMessage) && !has(Offer::List));
        assert_eq!("none".parse::<Offers>().unwrap(), Offers(Vec::new()));
        let unknown = "load,fly".parse::<Offers>().unwrap_err().to_string();
        assert!(unknown.starts_with("unknown method 'fly': there are load, resume,"), "{unknown}");
    }
}
