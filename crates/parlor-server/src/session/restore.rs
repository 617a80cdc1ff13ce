//! How an agent session is restored: by resuming, by loading, or by beginning another one that is given the conversation.
//! Before the session has the agent, what was chosen in it is chosen again.

use std::sync::Arc;

use parlor_dialect::settings::{Setting, Settings};
use parlor_dialect::{Dialect, Losses, live};
use parlor_engine::Capability;
use parlor_engine::refused_settings::{RefusedSettings, Unaccepted, refused_before, wanted};
use parlor_json::{Json, JsonStr, Object};
use parlor_session::SessionId;
use parlor_wire::{RpcError, code};
use serde_json::value::RawValue;

use crate::agent::{Agent, History, Home, Intake, RefusedSetting, Rest, Startup, Tie};
use crate::hub::Shared;
use crate::json;

/// How many words may be between a thing and the words that say that it is not there.
const NEAR: usize = 4;

/// What sessions are called in errors.
const SESSIONS: &[&str] = &["session", "sessionid", "thread", "conversation", "rollout"];

/// What settings are called in errors.
const SETTINGS: &[&str] =
    &["mode", "modeid", "model", "modelid", "option", "config", "configid", "value", "setting"];

/// An agent and the session that it has for ours.
#[derive(Debug)]
pub(crate) struct Bound {
    pub(super) tie: Tie,
    /// Whether the agent knows nothing of the conversation.
    pub(super) anew: bool,
    /// Why it does not have the session any more that it had, if it had one.
    pub(super) lost: Option<String>,
    /// What it said of the session, without its settings.
    pub(super) result: Object,
    /// The settings in force, as far as they are known.
    pub(super) settings: Settings,
    /// What it did not accept again of what was chosen.
    pub(super) refused: Option<RefusedSettings>,
    /// What it has said meanwhile.
    pub(super) rest: Option<Rest>,
}

impl Bound {
    /// A session that has just begun.
    pub(crate) fn begun(intake: Intake) -> Self {
        Self::new(intake, Object::default(), &[])
    }

    /// A session that only the agent knew.
    pub(crate) fn adopted(tie: Tie, rest: Rest) -> Self {
        Self {
            tie,
            anew: false,
            lost: None,
            result: Object::default(),
            settings: Settings::default(),
            refused: None,
            rest: Some(rest),
        }
    }

    fn new(intake: Intake, result: Object, refused: &[RefusedSetting]) -> Self {
        let (tie, mut settings, rest) = intake.finish();
        let refused = refused_settings(&tie.agent, &mut settings, refused);
        Self { tie, anew: false, lost: None, result, settings, refused, rest: Some(rest) }
    }

    /// A session that the agent has forked by itself. It may tell its messages, which the fork has, and begin with other
    /// settings than those of the session that it was forked from.
    pub(super) async fn forked(
        agent: &Arc<Agent>,
        mut result: Object,
        wanted: &Settings,
        history: &Arc<History>,
        startup: Startup,
    ) -> Result<Self, RpcError> {
        let session = json::session_of(&result)
            .ok_or_else(|| RpcError::new(code::INTERNAL_ERROR, "the agent forked without an id"))?;
        result.remove("sessionId");
        let mut intake = Intake::open(agent, &session, startup)?;
        intake.expect_replay_in_fork(history);
        intake.learn(&mut result);
        if !agent.about.is_embedded {
            intake.quiet().await?;
        }
        let refused = intake.choose(wanted).await?;
        Ok(Self::new(intake, result, &refused))
    }

    /// What the agent said of the session, without its settings.
    pub(crate) fn take_result(&mut self) -> Object {
        std::mem::take(&mut self.result)
    }
}

impl Tie {
    /// Our session needs the agent no more, for now. What the agent still says is said in it.
    pub(super) fn release(self, hub: &Arc<Shared>, ours: &SessionId) {
        let Self { agent, session, epoch } = &self;
        let closes = agent.about.has(Capability::Close);
        let home = Home { hub: Arc::downgrade(hub), session: ours.clone(), epoch: *epoch, is_open: !closes };
        if agent.release(session, home) && closes {
            agent.close_session(session);
        }
    }

    /// Our session is gone, or goes without the agent.
    pub(super) fn discard(self) {
        let Self { agent, session, .. } = &self;
        if agent.about.has(Capability::Delete) {
            let mut params = Object::default();
            params.set("sessionId", session.as_json());
            // Nobody waits for its answer.
            drop(agent.call_now("session/delete", &params));
        } else if agent.about.has(Capability::Close) {
            agent.close_session(session);
        }
    }
}

/// Starts a session's agent, or finds it, and restores the session there.
pub(super) async fn restore(
    hub: &Arc<Shared>,
    row: &parlor_store::SessionRow,
    id: &SessionId,
    in_force: &Settings,
    history: &Arc<History>,
) -> Result<Bound, RpcError> {
    let config = hub.config_of(row).ok_or_else(|| {
        RpcError::new(code::INTERNAL_ERROR, format!("there is no agent '{}' any more", row.agent))
    })?;
    let data = json::object(Json::parse(row.data.clone()).ok().as_ref().map(Json::raw));
    let wanted = &wanted(&data, in_force);
    // A setting that was refused may be shown still as it was before that: then only the agent knows what is in force.
    let is_stale = |(setting, value): &(Setting, Json)| in_force.get(setting).as_ref() == Some(value);
    let unknown = Settings::default();
    let in_force = if refused_before(&data).iter().any(is_stale) { &unknown } else { in_force };
    let startup = Startup::new(config.startup_timeout);
    let peer = hub.peer_of(id);
    let agent = hub.registry().get(&config, peer.as_ref(), row.cwd.as_ref(), id, startup).await?;
    let mut losses = Losses::default();
    let params = params_of(row, &agent, &mut losses)?;
    hub.losses().count(id, losses);
    let known = row.agent_session.as_deref().and_then(JsonStr::from_literal).map(SessionId::from);
    let mut lost = None;
    if let Some(session) = known {
        match restored(&agent, &session, params.clone(), (in_force, wanted), history, startup).await? {
            Restored::Bound(bound) => return Ok(*bound),
            Restored::Lost(why) => lost = Some(format!("agent '{}' {why}", agent.about.label)),
        }
    }
    let mut params = params;
    agent.name_session(&mut params, id);
    let _beginning = agent.beginnings.begin();
    let result = agent.call_in_startup("session/new", &params, startup).await;
    let mut result = json::object(Some(result.map_err(|error| RpcError::from_raw(error.raw()))?.raw()));
    let session = json::session_of(&result)
        .ok_or_else(|| RpcError::new(code::INTERNAL_ERROR, "the agent began a session without an id"))?;
    result.remove("sessionId");
    let mut intake = Intake::open(&agent, &session, startup)?;
    intake.learn(&mut result);
    let refused = intake.choose(wanted).await?;
    Ok(Bound { anew: true, lost, ..Bound::new(intake, result, &refused) })
}

/// The params by which the agent is given the session.
fn params_of(row: &parlor_store::SessionRow, agent: &Agent, losses: &mut Losses) -> Result<Object, RpcError> {
    let data = json::object(Json::parse(row.data.clone()).ok().as_ref().map(Json::raw));
    let mut params = json::member(&data, "params").unwrap_or_default();
    let from = json::text(&data, "dialect").and_then(|name| name.parse().ok()).unwrap_or(Dialect::V2);
    params.set("cwd", json::string(&row.cwd));
    let converted = live::request_to_agent("session/new", &params, from, agent.about.dialect, None, losses);
    converted.map(|(_, params)| params).map_err(|loss| {
        RpcError::new(code::INTERNAL_ERROR, format!("the session cannot be given to the agent: {loss}"))
    })
}

/// What came of restoring a session that the agent had.
enum Restored {
    Bound(Box<Bound>),
    /// The agent does not have it any more.
    Lost(String),
}

impl Restored {
    fn lost(why: &str) -> Self {
        Self::Lost(why.to_owned())
    }
}

/// Restores the session that the agent has.
async fn restored(
    agent: &Arc<Agent>,
    session: &SessionId,
    mut params: Object,
    (in_force, wanted): (&Settings, &Settings),
    history: &Arc<History>,
    startup: Startup,
) -> Result<Restored, RpcError> {
    // Some refuse a session that they are closing.
    let _ = tokio::time::timeout_at(startup.until.into(), agent.closed(session)).await;
    if let Some(epoch) = agent.open_since(session) {
        // It has it open, and would tell everything twice if it loaded it again.
        let mut intake = Intake::reopen(agent, session, startup, epoch, in_force.clone())?;
        let refused = intake.choose(wanted).await?;
        return Ok(Restored::Bound(Box::new(Bound::new(intake, Object::default(), &refused))));
    }
    params.set("sessionId", session.as_json());
    let methods = [(Capability::Resume, "session/resume"), (Capability::Load, "session/load")];
    for (offer, method) in methods.into_iter().filter(|(offer, _)| agent.about.has(*offer)) {
        // An agent that counts its sessions anew may have given the id to another one.
        let Ok(mut intake) = Intake::open(agent, session, startup) else {
            return Ok(Restored::lost("gave the id of the session to another one"));
        };
        if offer == Capability::Resume {
            intake.expect_replay_of(history);
        } else {
            intake.expect_replay();
        }
        match intake.call(method, &params).await {
            Ok(result) => {
                let mut result = json::object(Some(result.raw()));
                // Some answer for any id, with another session.
                if json::session_of(&result).is_some_and(|other| other != *session) {
                    return Ok(Restored::lost("restored another session"));
                }
                intake.learn(&mut result);
                if !agent.about.is_embedded {
                    intake.quiet().await?;
                }
                let refused = intake.choose(wanted).await?;
                return Ok(Restored::Bound(Box::new(Bound::new(intake, result, &refused))));
            }
            Err(error) => {
                drop(intake);
                let error = RpcError::from_raw(error.raw());
                if error.code() == code::METHOD_NOT_FOUND {
                    continue;
                }
                if !agent.is_gone() && is_unknown_session(agent, session, &error, startup).await {
                    tracing::info!(
                        agent = agent.about.name,
                        "the agent does not know the session: {}",
                        error.message()
                    );
                    return Ok(Restored::Lost(format!("does not have the session: {}", error.message())));
                }
                return Err(error);
            }
        }
    }
    Ok(Restored::lost("cannot restore sessions"))
}

/// Whether an error of load or resume means that the agent does not have the session any more. Where the error does not
/// say so, the agent's list does.
async fn is_unknown_session(
    agent: &Arc<Agent>,
    session: &SessionId,
    error: &RpcError,
    startup: Startup,
) -> bool {
    if error.code() == code::AUTH_REQUIRED {
        return false;
    }
    if says_unknown(error, session) {
        return true;
    }
    if !agent.about.has(Capability::List) {
        return false;
    }
    let literal = session.as_json().as_literal();
    agent.lists(startup.until).await.is_some_and(|all| all.iter().all(|row| row.id != literal))
}

/// Whether the words of an error say that a session is not there. There is one code for it, which few agents use.
fn says_unknown(error: &RpcError, session: &SessionId) -> bool {
    if error.code() == code::AUTH_REQUIRED {
        return false;
    }
    error.code() == code::RESOURCE_NOT_FOUND || says_missing(error, SESSIONS, &session.as_json().to_text())
}

/// Whether the words of an error say that a thing with one of these names, or with this id, is not there.
fn says_missing(error: &RpcError, names: &[&str], id: &str) -> bool {
    let mut texts = vec![error.message().to_owned()];
    if let Some(data) = error.data() {
        add_texts(data.raw(), &mut texts);
    }
    let id = id.to_lowercase();
    texts.iter().any(|text| is_about_missing(&text.to_lowercase(), names, &id))
}

/// All strings in a value that are no keys.
fn add_texts(value: &RawValue, texts: &mut Vec<String>) {
    if let Some(text) = JsonStr::from_raw(value) {
        texts.push(text.to_text().into_owned());
    } else if let Some(elements) = parlor_json::elements(value) {
        elements.into_iter().for_each(|element| add_texts(element, texts));
    } else if let Ok(object) = Object::parse(value) {
        object.iter().for_each(|(_, value)| add_texts(value.raw(), texts));
    }
}

/// Whether a phrase of a text, in small letters, says of a thing that it is not there.
fn is_about_missing(text: &str, names: &[&str], id: &str) -> bool {
    let is_mark = |char: char| char.is_ascii_punctuation();
    let is_it = |word: &str| {
        let word = word.trim_matches(is_mark);
        word == id || names.contains(&word.strip_suffix('s').unwrap_or(word))
    };
    let is = |words: &[&str], said: &[&str]| {
        words.len() == said.len()
            && words.iter().zip(said).all(|(word, said)| word.trim_matches(is_mark) == *said)
    };
    let missing: [&[&str]; 3] = [&["not", "found"], &["does", "not", "exist"], &["not", "active"]];
    let words: Vec<_> = text.split_whitespace().collect();
    let phrases: Vec<_> = words.split_inclusive(|word| word.ends_with([':', '.', ';', ','])).collect();
    let is_name = |phrase: &&[&str]| phrase.iter().all(|word| is_it(word));
    phrases.iter().enumerate().any(|(place, phrase)| {
        (0..phrase.len()).any(|at| {
            let rest = &phrase[at..];
            let starts = |said: &[&str]| rest.get(..said.len()).is_some_and(|words| is(words, said));
            // Session 1 was not found; not found: 1.
            let before = &phrase[at.saturating_sub(NEAR)..at];
            let is_named = || {
                before.iter().any(|word| is_it(word))
                    || phrases.get(place + 1).is_some_and(is_name)
                    || (at == 0 && place > 0 && is_name(&phrases[place - 1]))
            };
            // No such session; no session found.
            let is_next = |place: usize| rest.get(place).is_some_and(|word| is_it(word));
            let is_found = || rest.iter().any(|word| word.trim_matches(is_mark) == "found");
            // Session 1 is unknown; not: session 1: unknown error.
            let is_unknown = starts(&["unknown"]) && rest.len() == 1;
            (is_unknown || missing.iter().any(|said| starts(said))) && is_named()
                || (starts(&["no", "such"]) || starts(&["no", "previous"])) && is_next(2)
                || starts(&["unknown"]) && is_next(1)
                || starts(&["no"]) && is_next(1) && is_found()
        })
    })
}

/// Whether an agent that did not accept a setting does not have it any more.
fn is_gone(settings: &Settings, RefusedSetting { choice, error }: &RefusedSetting) -> bool {
    let error = RpcError::from_raw(error.raw());
    if error.code() == code::METHOD_NOT_FOUND {
        // Nobody can choose it.
        return true;
    }
    match settings.offers(choice) {
        Some(offers) => !offers,
        None => {
            [code::INVALID_PARAMS, code::RESOURCE_NOT_FOUND].contains(&error.code())
                || says_missing(&error, SETTINGS, &text_of(&choice.value))
        }
    }
}

fn text_of(value: &Json) -> String {
    JsonStr::from_raw(value.raw())
        .map_or_else(|| value.as_str().to_owned(), |text| text.to_text().into_owned())
}

/// What the agent did not accept of what was chosen. The settings have no more what it does not have any more.
fn refused_settings(
    agent: &Agent,
    settings: &mut Settings,
    refused: &[RefusedSetting],
) -> Option<RefusedSettings> {
    if refused.is_empty() {
        return None;
    }
    let unaccepted = refused.iter().map(|one| Unaccepted {
        setting: one.choice.setting.clone(),
        value: one.choice.value.clone(),
        is_gone: is_gone(settings, one),
    });
    let unaccepted: Vec<_> = unaccepted.collect();
    for one in unaccepted.iter().filter(|one| one.is_gone) {
        settings.forget(&one.setting);
    }
    let list: Vec<_> =
        refused.iter().map(|one| format!("{} '{}'", one.choice.what, text_of(&one.choice.value))).collect();
    let mode = settings.get(&Setting::Mode);
    let in_force = match &mode {
        Some(mode) => format!("the mode in force is '{}'", text_of(mode)),
        None => "the agent does not say which mode is in force".to_owned(),
    };
    let kept: Vec<_> = refused.iter().zip(&unaccepted).filter(|(_, one)| !one.is_gone).collect();
    let next = if kept.is_empty() {
        "send it again to go on so".to_owned()
    } else {
        let names: Vec<_> = kept.iter().map(|(one, _)| one.choice.what.as_str()).collect();
        format!("set the {} to go on", names.join(", "))
    };
    let message = format!(
        "agent '{}' did not accept {} again, and the prompt was not sent: {in_force}; {next}",
        agent.about.label,
        list.join(", ")
    );
    let mut data = Object::default();
    data.set("reason", json::string("settings_refused"));
    if let Some(mode) = &mode {
        data.set("mode", mode.clone());
    }
    let mut values = Object::default();
    let mut errors = Object::default();
    for RefusedSetting { choice, error } in refused {
        values.set(choice.what.as_str(), choice.value.clone());
        errors.set(choice.what.as_str(), error.clone());
    }
    data.set("refused", values.to_json());
    data.set("errors", errors.to_json());
    let error = RpcError::new(code::INTERNAL_ERROR, message).with_data(data.to_json());
    Some(RefusedSettings { error, settings: unaccepted })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use parlor_store::MemoryStore;
    use tokio::io::{AsyncBufReadExt as _, BufReader};

    use super::*;
    use crate::config::{Agents, Config};
    use crate::hub::{Hub, LIVE_SESSIONS, Options};
    use crate::process::Watcher;

    #[tokio::test]
    async fn a_session_released_late_does_not_close_the_agent_session_of_a_newer_epoch() {
        let hub = Hub::new(Options {
            store: Arc::new(MemoryStore::default()),
            agents: Agents::new(Vec::new(), &Config::default()).unwrap(),
            watcher: Watcher::nobody(),
            idle: Duration::from_secs(60),
            live_sessions: LIVE_SESSIONS,
            private: Vec::new(),
        });
        let hub = hub.await.unwrap();
        let (agent, requests) = Agent::for_tests(Dialect::V2);
        let startup = Startup::new(Duration::from_secs(30));
        let open = || Bound::begun(Intake::open(&agent, &"s".into(), startup).unwrap());
        let late = open();
        agent.unlink(&"s".into(), late.tie.epoch);
        let newer = open();
        late.tie.release(&hub.shared(), &"ours".into());
        // The requests are in the order in which they were sent.
        agent.notify("_mark", &Object::default());
        newer.tie.release(&hub.shared(), &"ours".into());
        let mut requests = BufReader::new(requests).lines();
        for expected in ["_mark", "session/close"] {
            let line = requests.next_line().await.unwrap().unwrap();
            assert!(line.contains(expected), "{line}");
        }
    }

    #[test]
    fn only_errors_about_a_session_that_is_not_there_mean_that_it_is_gone() {
        let error = |code: i64, message: &str, data: &str| {
            RpcError::new(code, message).with_data(json::json(data.to_owned()))
        };
        for gone in [
            error(-32002, "Resource not found", r#"{"sessionId":"x"}"#),
            error(-32603, "Internal error", r#"{"details":"no rollout found for thread id 0"}"#),
            error(-32603, "Internal error", r#"{"details":"No previous sessions found for this project."}"#),
            error(-32602, "Invalid params: session not found: x", "{}"),
            error(-32602, "Invalid params", r#""Session nope not found""#),
            error(-32603, "Session with id s-1 does not exist", "{}"),
            error(-32603, "Internal error", r#"{"details":["No conversation found with session ID: s-1"]}"#),
            error(-32603, "Not found: s-1", "{}"),
            error(-32603, "Session s-1: not found", "{}"),
            error(-32603, "Unknown session", "{}"),
            error(-32603, "Session s-1 is unknown", "{}"),
        ] {
            assert!(says_unknown(&gone, &"s-1".into()), "{gone:?}");
        }
        for other in [
            error(-32603, "it is already loaded", "{}"),
            error(-32603, "Internal error", r#"{"details":"Directory does not exist: /x"}"#),
            error(-32000, "Authentication required", "{}"),
            error(-32000, "Session not found: log in first", "{}"),
            error(-32603, "MCP server foo not found", r#"{"sessionId":"s-1"}"#),
            error(-32603, "Model not found", r#"{"session":{"id":"s-1"},"threadId":"t"}"#),
            error(-32603, "Failed to load session s-1: MCP server foo not found", "{}"),
            error(-32603, "unknown error while the session was loaded", "{}"),
            error(-32603, "Session load failed with unknown error", "{}"),
            error(-32603, "Session s-1: unknown error", "{}"),
            error(-32603, "ENOENT: no such file or directory, open '/x/sessions/s-1'", "{}"),
            error(-32603, "Internal error: OpenCode service failure", r#"{"service":"session"}"#),
        ] {
            assert!(!says_unknown(&other, &"s-1".into()), "{other:?}");
        }
    }

    #[test]
    fn only_errors_about_a_setting_that_is_not_there_mean_that_it_is_gone() {
        let error = |message: &str| RpcError::new(code::INTERNAL_ERROR, message);
        for gone in
            ["Unknown mode: code", "Mode not found: code", "no such mode", "Model 'code' does not exist"]
        {
            assert!(says_missing(&error(gone), SETTINGS, "code"), "{gone}");
        }
        for other in ["unknown error", "the mode cannot be set now", "Internal error", "file not found"] {
            assert!(!says_missing(&error(other), SETTINGS, "code"), "{other}");
        }
    }
}
