//! Converts requests of clients for agents of another version.

use parlor_json::{Json, JsonRef, Object, Type};
use parlor_session::{SessionId, Slot, Transcript};

use crate::values::{blocks, capabilities, mcp, options};
use crate::{Dialect, LossKind, Losses, json_ext};

/// The id of the option for the modes of a v1 agent, unless the agent has one of its own.
const MODE: &str = "mode";

/// The kind of result of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResultKind {
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
    /// Nothing, after a v2 client set the option for a v1 agent's modes.
    SetModeOption,
    /// The end of a turn, or its acceptance.
    Prompt,
    /// A permission decision.
    Permission,
    /// The values of a form.
    Elicitation,
    /// The same in all versions.
    Same,
    /// None for the other side: the translator responded itself.
    Dropped,
}

/// A request in the other version.
pub(crate) struct Request {
    pub(crate) method: &'static str,
    pub(crate) what: ResultKind,
    pub(crate) params: Object,
}

/// A request cannot be expressed in the other version; the loss was reported.
pub(crate) struct Inexpressible(pub(crate) LossKind);

/// Reports a loss that leaves nothing to send.
pub(super) fn cannot(loss: LossKind, losses: &mut Losses) -> Inexpressible {
    losses.add(loss);
    Inexpressible(loss)
}

/// Converts a v1 client's request for a v2 agent; `None` if it is the same.
pub(crate) fn request_for_v2(
    method: &str,
    params: Option<Object>,
    to: Dialect,
    transcript: Option<&Transcript>,
    losses: &mut Losses,
) -> Result<Option<Request>, Inexpressible> {
    if method.starts_with("proxy/") {
        return Err(cannot(LossKind::Method, losses));
    }
    let Some(params) = params else { return Ok(None) };
    let request = |method, what, params| Ok(Some(Request { method, what, params }));
    match method {
        "initialize" => {
            let mut params = capabilities::client_to_v2(&params, losses);
            mark_dialect(&mut params, to);
            request("initialize", ResultKind::Initialize, params)
        }
        "authenticate" => request("auth/login", ResultKind::Same, params),
        "logout" => request("auth/logout", ResultKind::Same, params),
        "session/new" => {
            request("session/new", ResultKind::Session, with_servers(params, mcp::to_v2, losses))
        }
        "session/resume" => {
            request("session/resume", ResultKind::Session, with_servers(params, mcp::to_v2, losses))
        }
        "session/fork" => {
            request("session/fork", ResultKind::Session, with_servers(params, mcp::to_v2, losses))
        }
        "session/load" => {
            let mut params = with_servers(params, mcp::to_v2, losses);
            params.set("replayFrom", Object::new().with("type", "start"));
            request("session/resume", ResultKind::Session, params)
        }
        "session/set_mode" => {
            let option = transcript.and_then(mode_option);
            let option = option.and_then(|option| option.get_string("configId"));
            let mut params = json_ext::renamed(&params, "modeId", "value");
            params.set("configId", Json::from(option.as_deref().unwrap_or(MODE)));
            params.set("type", "id");
            request("session/set_config_option", ResultKind::SetMode, params)
        }
        "session/set_config_option" => {
            let is_boolean = is_boolean(&params, transcript);
            request(
                "session/set_config_option",
                ResultKind::SetOption,
                options::set_to_v2(&params, is_boolean),
            )
        }
        "session/prompt" if params.get("prompt").is_some_and(|prompt| prompt.as_str() == "[]") => {
            Err(cannot(LossKind::EmptyList, losses))
        }
        _ => Ok(None),
    }
}

/// Converts a v2 client's request for a v1 agent; `None` if it is the same.
pub(crate) fn request_for_v1(
    method: &str,
    params: Option<Object>,
    transcript: Option<&Transcript>,
    losses: &mut Losses,
) -> Result<Option<Request>, Inexpressible> {
    if matches!(method, "tool_call/cancel" | "terminal/cancel") || method.starts_with("proxy/") {
        return Err(cannot(LossKind::Method, losses));
    }
    let Some(mut params) = params else { return Ok(None) };
    let request = |method, what, params| Ok(Some(Request { method, what, params }));
    match method {
        "initialize" => {
            let mut params = capabilities::client_to_v1(&params);
            mark_dialect(&mut params, Dialect::V1);
            request("initialize", ResultKind::Initialize, params)
        }
        "auth/login" => request("authenticate", ResultKind::Same, params),
        "auth/logout" => request("logout", ResultKind::Same, params),
        "session/new" => request("session/new", ResultKind::Session, session_for_v1(params, losses)),
        "session/fork" => request("session/fork", ResultKind::Session, session_for_v1(params, losses)),
        "session/prompt" => {
            if let Some(prompt) = params.get("prompt").cloned() {
                let known = blocks::list_to_v1(&prompt, losses);
                if known.as_str() == "[]" && prompt != known {
                    return Err(Inexpressible(LossKind::ContentBlockType));
                }
                params.set("prompt", known);
            }
            request("session/prompt", ResultKind::Prompt, params)
        }
        "session/resume" => {
            let from = params.remove("replayFrom").filter(|from| !from.is_null());
            let params = session_for_v1(params, losses);
            let Some(from) = from else { return request("session/resume", ResultKind::Session, params) };
            let is_start = from.to_object().and_then(|from| from.get_string("type"));
            if is_start.as_deref() != Some("start") {
                losses.add(LossKind::ReplayFrom);
            }
            request("session/load", ResultKind::Session, params)
        }
        "session/set_config_option" if is_generated_mode(&params, transcript) => {
            params.remove("configId");
            params.remove("type");
            let params = json_ext::renamed(&params, "value", "modeId");
            request("session/set_mode", ResultKind::SetModeOption, params)
        }
        "session/set_config_option" if is_generated_model(&params, transcript) => {
            request("session/set_model", ResultKind::Same, model_for_v1(params))
        }
        "session/set_config_option" => match options::set_to_v1(&params, losses) {
            Some(params) => request("session/set_config_option", ResultKind::SetOption, params),
            None => Err(Inexpressible(LossKind::OptionValue)),
        },
        _ => Ok(None),
    }
}

/// The session's option for the mode.
fn mode_option(transcript: &Transcript) -> Option<Object> {
    let options = transcript.slot(Slot::Options)?;
    options::mode_option(options.fields.get("configOptions")?)
}

/// Whether params set an option that is boolean at the agent.
fn is_boolean(params: &Object, transcript: Option<&Transcript>) -> bool {
    let option = || {
        let options = transcript?.slot(Slot::Options)?;
        let list = options.fields.get("configOptions")?.elements()?;
        let wanted = params.get_string("configId")?;
        let options = list.into_iter().filter_map(JsonRef::to_object);
        options.into_iter().find(|option| option.get_string("configId").as_ref() == Some(&wanted))
    };
    option().is_some_and(|option| option.get_str("type").as_deref() == Some("boolean"))
}

/// Whether params set the option that was generated from a v1 agent's modes.
fn is_generated_mode(params: &Object, transcript: Option<&Transcript>) -> bool {
    let Some(transcript) = transcript else { return false };
    let has_modes = transcript.slot(Slot::Mode).is_some_and(|body| !body.fields.is_empty());
    let options = transcript.slot(Slot::Options).and_then(|options| options.fields.get("configOptions"));
    let own = options.and_then(options::mode_option);
    let sets_mode = params.get_str("configId").as_deref() == Some(MODE);
    has_modes && own.is_none() && sets_mode && json_ext::is(params, "value", Type::String)
}

/// Whether params set the option that was generated from a v1 agent's models.
fn is_generated_model(params: &Object, transcript: Option<&Transcript>) -> bool {
    let Some(transcript) = transcript else { return false };
    let options = transcript.slot(Slot::Options).and_then(|options| options.fields.get("configOptions"));
    let has_own = options.is_some_and(|options| options::has_choice_of(options, options::MODEL));
    let sets_model = params.get_str("configId").as_deref() == Some(options::MODEL);
    transcript.slot(Slot::Model).is_some_and(|body| !body.fields.is_empty())
        && !has_own
        && sets_model
        && json_ext::is(params, "value", Type::String)
}

fn model_for_v1(mut params: Object) -> Object {
    params.remove("configId");
    params.remove("type");
    json_ext::renamed(&params, "value", "modelId")
}

/// Converts a v1 client's setting for a v1 agent whose settings were presented differently: an option generated from
/// models, modes generated from an option. `None` if it is the same.
pub(crate) fn setting_for_v1(
    method: &str,
    params: &Object,
    transcript: Option<&Transcript>,
) -> Option<Request> {
    match method {
        "session/set_config_option" if is_generated_model(params, transcript) => {
            let params = model_for_v1(params.clone());
            Some(Request { method: "session/set_model", what: ResultKind::Same, params })
        }
        "session/set_mode" => {
            let transcript = transcript?;
            let modes = transcript.slot(Slot::Mode).map(|body| &body.fields);
            let has_own = modes.is_some_and(|modes| modes.get("availableModes").is_some());
            let option = mode_option(transcript).filter(|_| !has_own)?;
            let id = option.get("configId").or_else(|| option.get("id"))?.clone();
            let mut params = json_ext::renamed(params, "modeId", "value");
            params.set("configId", id);
            Some(Request { method: "session/set_config_option", what: ResultKind::SetMode, params })
        }
        _ => None,
    }
}

/// The kind of result of a request that needs no conversion.
pub(super) fn same_in_all(method: &str) -> ResultKind {
    match method {
        "initialize" => ResultKind::Initialize,
        "session/new" | "session/load" | "session/resume" | "session/fork" => ResultKind::Session,
        "session/prompt" => ResultKind::Prompt,
        "session/delete" => ResultKind::Delete,
        "session/set_config_option" => ResultKind::SetOption,
        _ => ResultKind::Same,
    }
}

/// Converts between v2 and its draft: only the mark that selects the draft differs.
pub(super) fn same_version(method: &str, params: Option<Object>, to: Dialect) -> Option<Request> {
    let mut params = params.filter(|_| method == "initialize")?;
    mark_dialect(&mut params, to);
    Some(Request { method: "initialize", what: ResultKind::Initialize, params })
}

pub(crate) fn session_in(params: &Object) -> Option<SessionId> {
    params.get_json_str("sessionId").map(SessionId::from)
}

fn with_servers(mut params: Object, convert: fn(&Json, &mut Losses) -> Json, losses: &mut Losses) -> Object {
    if let Some(servers) = params.get("mcpServers").cloned() {
        params.set("mcpServers", convert(&servers, losses));
    }
    params
}

/// Converts the params of a request for a session to v1: the list of servers is required, and a system prompt has its
/// own blocks.
fn session_for_v1(params: Object, losses: &mut Losses) -> Object {
    let mut params = with_servers(params, mcp::to_v1, losses);
    if params.get("mcpServers").is_none() {
        params.set("mcpServers", Json::array::<Json>([]));
    }
    json_ext::within(&mut params, "systemPrompt", |mut prompt| {
        if let Some(content) = prompt.get("content").cloned() {
            prompt.set("content", blocks::list_to_v1(&content, losses));
        }
        prompt
    });
    params
}

/// Sets the mark that selects the draft in the metadata, or removes it.
fn mark_dialect(params: &mut Object, dialect: Dialect) {
    params.remove_nested("_meta", Dialect::MARK);
    if dialect == Dialect::Draft {
        params.set_nested("_meta", Dialect::MARK, dialect.name());
    }
}
