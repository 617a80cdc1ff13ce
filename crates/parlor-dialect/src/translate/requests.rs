//! What a client asks, in the words of an agent of another version.

use parlor_json::{Json, JsonStr, Object, Type};
use parlor_session::{SessionId, Slot, Transcript};

use crate::values::{blocks, capabilities, mcp, options};
use crate::{Dialect, LossKind, Losses, shape};

/// The option that stands for the modes of a v1 agent, unless the agent has one of its own.
const MODE: &str = "mode";

/// What kind of answer a request gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// Capabilities.
    Initialize,
    /// A session with its options.
    Session,
    /// Nothing, after a session was deleted.
    Delete,
    /// Options after one was set.
    SetOption,
    /// Nothing, after a v1 client set a mode.
    SetMode,
    /// Nothing, after a v2 client set the option that stands for a v1 agent's modes.
    SetModeOption,
    /// The end of a turn, or its beginning.
    Prompt,
    /// A person's decision.
    Permission,
    /// What a person filled in.
    Elicitation,
    /// The same in all versions.
    Same,
    /// None that the other side hears: it was answered here.
    Dropped,
}

/// A request as the other side knows it.
pub(crate) struct Request {
    pub(crate) method: &'static str,
    pub(crate) what: What,
    pub(crate) params: Object,
}

/// A request cannot be said in the other version; the loss was reported.
pub(crate) struct Unsayable(pub(crate) LossKind);

/// Reports a loss that leaves nothing to say.
pub(super) fn cannot(loss: LossKind, losses: &mut Losses) -> Unsayable {
    losses.add(loss);
    Unsayable(loss)
}

/// A v1 client's request to a v2 agent; `None` if it is the same.
pub(crate) fn request_for_v2(
    method: &str,
    params: Option<Object>,
    to: Dialect,
    transcript: Option<&Transcript>,
    losses: &mut Losses,
) -> Result<Option<Request>, Unsayable> {
    if method.starts_with("proxy/") {
        return Err(cannot(LossKind::Method, losses));
    }
    let Some(params) = params else { return Ok(None) };
    let request = |method, what, params| Ok(Some(Request { method, what, params }));
    match method {
        "initialize" => {
            let mut params = capabilities::client_to_v2(&params, losses);
            mark_dialect(&mut params, to);
            request("initialize", What::Initialize, params)
        }
        "authenticate" => request("auth/login", What::Same, params),
        "logout" => request("auth/logout", What::Same, params),
        "session/new" => request("session/new", What::Session, with_servers(params, mcp::to_v2, losses)),
        "session/resume" => {
            request("session/resume", What::Session, with_servers(params, mcp::to_v2, losses))
        }
        "session/fork" => request("session/fork", What::Session, with_servers(params, mcp::to_v2, losses)),
        "session/load" => {
            let mut params = with_servers(params, mcp::to_v2, losses);
            params.set("replayFrom", shape::json(r#"{"type":"start"}"#));
            request("session/resume", What::Session, params)
        }
        "session/set_mode" => {
            let option = transcript.and_then(mode_option);
            let option = option.and_then(|option| option.get_string("configId"));
            let mut params = shape::renamed(&params, "modeId", "value");
            params.set("configId", Json::from(option.as_deref().unwrap_or(MODE)));
            params.set("type", Json::from("id"));
            request("session/set_config_option", What::SetMode, params)
        }
        "session/set_config_option" => {
            let is_boolean = is_boolean(&params, transcript);
            request("session/set_config_option", What::SetOption, options::set_to_v2(&params, is_boolean))
        }
        "session/prompt" if params.get("prompt").is_some_and(|prompt| prompt.as_str() == "[]") => {
            Err(cannot(LossKind::EmptyList, losses))
        }
        _ => Ok(None),
    }
}

/// A v2 client's request to a v1 agent; `None` if it is the same.
pub(crate) fn request_for_v1(
    method: &str,
    params: Option<Object>,
    transcript: Option<&Transcript>,
    losses: &mut Losses,
) -> Result<Option<Request>, Unsayable> {
    if matches!(method, "tool_call/cancel" | "terminal/cancel") || method.starts_with("proxy/") {
        return Err(cannot(LossKind::Method, losses));
    }
    let Some(mut params) = params else { return Ok(None) };
    let request = |method, what, params| Ok(Some(Request { method, what, params }));
    match method {
        "initialize" => {
            let mut params = capabilities::client_to_v1(&params);
            mark_dialect(&mut params, Dialect::V1);
            request("initialize", What::Initialize, params)
        }
        "auth/login" => request("authenticate", What::Same, params),
        "auth/logout" => request("logout", What::Same, params),
        "session/new" => request("session/new", What::Session, session_for_v1(params, losses)),
        "session/fork" => request("session/fork", What::Session, session_for_v1(params, losses)),
        "session/prompt" => {
            if let Some(prompt) = params.get("prompt").cloned() {
                let known = blocks::list_to_v1(&prompt, losses);
                if known.as_str() == "[]" && prompt != known {
                    return Err(Unsayable(LossKind::ContentBlockType));
                }
                params.set("prompt", known);
            }
            request("session/prompt", What::Prompt, params)
        }
        "session/resume" => {
            let from = params.remove("replayFrom").filter(|from| !from.is_null());
            let params = session_for_v1(params, losses);
            let Some(from) = from else { return request("session/resume", What::Session, params) };
            let is_start = from.to_object().and_then(|from| from.get_string("type"));
            if is_start.as_deref() != Some("start") {
                losses.add(LossKind::ReplayFrom);
            }
            request("session/load", What::Session, params)
        }
        "session/set_config_option" if is_made_mode(&params, transcript) => {
            params.remove("configId");
            params.remove("type");
            let params = shape::renamed(&params, "value", "modeId");
            request("session/set_mode", What::SetModeOption, params)
        }
        "session/set_config_option" if is_made_model(&params, transcript) => {
            request("session/set_model", What::Same, model_for_v1(params))
        }
        "session/set_config_option" => match options::set_to_v1(&params, losses) {
            Some(params) => request("session/set_config_option", What::SetOption, params),
            None => Err(Unsayable(LossKind::OptionValue)),
        },
        _ => Ok(None),
    }
}

/// The option of a session by which its mode is set.
fn mode_option(transcript: &Transcript) -> Option<Object> {
    let options = transcript.slot(Slot::Options)?;
    options::mode_option(options.fields.get("configOptions")?)
}

/// Whether params set an option that is a boolean on the agent's side.
fn is_boolean(params: &Object, transcript: Option<&Transcript>) -> bool {
    let option = || {
        let options = transcript?.slot(Slot::Options)?;
        let list = options.fields.get_array("configOptions")?;
        let wanted = params.get_string("configId")?;
        let options = list.into_iter().filter_map(|option| Object::parse(option).ok());
        options.into_iter().find(|option| option.get_string("configId").as_ref() == Some(&wanted))
    };
    option().is_some_and(|option| option.get_string("type").as_deref() == Some("boolean"))
}

/// Whether params set the option that was made of a v1 agent's modes.
fn is_made_mode(params: &Object, transcript: Option<&Transcript>) -> bool {
    let Some(transcript) = transcript else { return false };
    let has_modes = transcript.slot(Slot::Mode).is_some_and(|body| !body.fields.is_empty());
    let options = transcript.slot(Slot::Options).and_then(|options| options.fields.get("configOptions"));
    let own = options.and_then(options::mode_option);
    let sets_mode = params.get_string("configId").as_deref() == Some(MODE);
    has_modes && own.is_none() && sets_mode && shape::is(params, "value", Type::String)
}

/// Whether params set the option that was made of a v1 agent's models.
fn is_made_model(params: &Object, transcript: Option<&Transcript>) -> bool {
    let Some(transcript) = transcript else { return false };
    let options = transcript.slot(Slot::Options).and_then(|options| options.fields.get("configOptions"));
    let has_own = options.is_some_and(|options| options::has_choice_of(options, options::MODEL));
    let sets_model = params.get_string("configId").as_deref() == Some(options::MODEL);
    transcript.slot(Slot::Model).is_some_and(|body| !body.fields.is_empty())
        && !has_own
        && sets_model
        && shape::is(params, "value", Type::String)
}

fn model_for_v1(mut params: Object) -> Object {
    params.remove("configId");
    params.remove("type");
    shape::renamed(&params, "value", "modelId")
}

/// What a v1 client sets, for a v1 agent that was shown to it otherwise than it shows itself: an option that was made of
/// models, modes that were made of an option. `None` if it is the same.
pub(crate) fn setting_for_v1(
    method: &str,
    params: &Object,
    transcript: Option<&Transcript>,
) -> Option<Request> {
    match method {
        "session/set_config_option" if is_made_model(params, transcript) => {
            let params = model_for_v1(params.clone());
            Some(Request { method: "session/set_model", what: What::Same, params })
        }
        "session/set_mode" => {
            let transcript = transcript?;
            let modes = transcript.slot(Slot::Mode).map(|body| &body.fields);
            let has_own = modes.is_some_and(|modes| modes.get("availableModes").is_some());
            let option = mode_option(transcript).filter(|_| !has_own)?;
            let id = option.get("configId").or_else(|| option.get("id"))?.clone();
            let mut params = shape::renamed(params, "modeId", "value");
            params.set("configId", id);
            Some(Request { method: "session/set_config_option", what: What::SetMode, params })
        }
        _ => None,
    }
}

/// What kind of answer a request gets that needs no translation.
pub(super) fn same_in_all(method: &str) -> What {
    match method {
        "initialize" => What::Initialize,
        "session/new" | "session/load" | "session/resume" | "session/fork" => What::Session,
        "session/prompt" => What::Prompt,
        "session/delete" => What::Delete,
        "session/set_config_option" => What::SetOption,
        _ => What::Same,
    }
}

/// Between v2 and its draft, only the mark by which the draft is chosen differs in what a client asks.
pub(super) fn same_version(method: &str, params: Option<Object>, to: Dialect) -> Option<Request> {
    let mut params = params.filter(|_| method == "initialize")?;
    mark_dialect(&mut params, to);
    Some(Request { method: "initialize", what: What::Initialize, params })
}

pub(crate) fn session_in(params: &Object) -> Option<SessionId> {
    JsonStr::from_raw(params.get("sessionId")?.raw()).map(SessionId::from)
}

fn with_servers(mut params: Object, convert: fn(&Json, &mut Losses) -> Json, losses: &mut Losses) -> Object {
    if let Some(servers) = params.get("mcpServers").cloned() {
        params.set("mcpServers", convert(&servers, losses));
    }
    params
}

/// The params of a request for a session, as v1 has them: the list of servers must be there, and a system prompt
/// has blocks of its own.
fn session_for_v1(params: Object, losses: &mut Losses) -> Object {
    let mut params = with_servers(params, mcp::to_v1, losses);
    if params.get("mcpServers").is_none() {
        params.set("mcpServers", shape::json("[]"));
    }
    shape::within(&mut params, "systemPrompt", |mut prompt| {
        if let Some(content) = prompt.get("content").cloned() {
            prompt.set("content", blocks::list_to_v1(&content, losses));
        }
        prompt
    });
    params
}

/// The draft is chosen by a mark in the metadata; the published versions have none.
fn mark_dialect(params: &mut Object, dialect: Dialect) {
    shape::take_note(params, Dialect::MARK);
    if dialect == Dialect::Draft {
        shape::note(params, Dialect::MARK, Json::from(dialect.name()));
    }
}
