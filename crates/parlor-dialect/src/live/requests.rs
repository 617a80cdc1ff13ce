//! Converts requests and responses between the agent and its clients.

use parlor_json::{Json, Object, Type};
use parlor_session::Transcript;
use parlor_wire::RequestId;

use crate::translate::peer_requests;
use crate::translate::requests::{request_for_v1, request_for_v2, setting_for_v1};
use crate::values::{blocks, capabilities, commands, permission};
use crate::{Dialect, LossKind, Losses, json_ext};

/// The request of an agent that is answered, with an empty object, when all of its earlier updates are applied.
pub const SETTLED: &str = "_parlor/settled";

/// The notification to an agent inside the process when a session that it created is open to all clients.
pub const BEGUN: &str = "_parlor/begun";

/// The prefix of requests of an agent inside the process for a service of a client, such as
/// `_parlor/client/fs/read_text_file`: a client answers them, or nobody does.
pub const CLIENT_SERVICE: &str = "_parlor/client/";

/// The `data.reason` of the error for such a request when the client that was sent it has disconnected.
pub const CLIENT_GONE: &str = "client_gone";

/// The reason in the error of a client that cannot answer a peer request and leaves it open for other clients, also for such
/// that are not attached to the session.
pub const LEFT_OPEN: &str = "left_open";

/// Converts the method and params of a client's request for the agent.
pub fn request_to_agent(
    method: &str,
    params: &Object,
    from: Dialect,
    to: Dialect,
    transcript: Option<&Transcript>,
    losses: &mut Losses,
) -> Result<(String, Object), LossKind> {
    let request = match (from, to) {
        (Dialect::V1, Dialect::V2 | Dialect::Draft) => {
            request_for_v2(method, Some(params.clone()), to, transcript, losses)
        }
        (Dialect::V2 | Dialect::Draft, Dialect::V1) => {
            request_for_v1(method, Some(params.clone()), transcript, losses)
        }
        (Dialect::V1, Dialect::V1) => Ok(setting_for_v1(method, params, transcript)),
        (Dialect::V2 | Dialect::Draft, Dialect::V2 | Dialect::Draft) => Ok(None),
    };
    match request {
        Ok(Some(request)) => Ok((request.method.to_owned(), request.params)),
        Ok(None) => Ok((method.to_owned(), params.clone())),
        Err(inexpressible) => Err(inexpressible.0),
    }
}

/// Converts the params of an agent's request for a client.
pub fn request_to_client(
    method: &str,
    id: &RequestId,
    params: &Object,
    from: Dialect,
    to: Dialect,
    transcript: &Transcript,
    losses: &mut Losses,
) -> Result<Object, LossKind> {
    let translated = match (from, to) {
        (Dialect::V1, Dialect::V2 | Dialect::Draft) => {
            peer_requests::request_to_v2(method, Some(params.clone()), Some(transcript), losses)
        }
        (Dialect::V2 | Dialect::Draft, Dialect::V1) => {
            peer_requests::request_to_v1(method, id, Some(params.clone()), Some(transcript), losses)
        }
        (Dialect::V1 | Dialect::V2 | Dialect::Draft, _) => Ok(None),
    };
    match translated {
        Ok(translated) => Ok(translated.unwrap_or_else(|| params.clone())),
        Err(inexpressible) => Err(inexpressible.0),
    }
}

/// Converts a client's result for an agent's request.
pub fn answer_to_agent(method: &str, result: &Json, from: Dialect, to: Dialect, losses: &mut Losses) -> Json {
    let to_v1 = from != Dialect::V1 && to == Dialect::V1;
    let Some(object) = result.to_object().filter(|_| to_v1) else { return result.clone() };
    match method {
        "session/request_permission" => permission::result_to_v1(&object, losses).to_json(),
        "elicitation/create" => permission::elicitation_result_to_v1(&object, losses).to_json(),
        _ => result.clone(),
    }
}

/// The result of a request that was cancelled.
pub fn cancelled_answer(method: &str) -> Json {
    match method {
        "elicitation/create" => Object::new().with("action", "cancel").to_json(),
        _ => Object::new().with("outcome", Object::new().with("outcome", "cancelled")).to_json(),
    }
}

/// Converts the result of an agent's `initialize` for a client.
pub fn agent_info(result: &Object, from: Dialect, to: Dialect, losses: &mut Losses) -> Object {
    match (from, to) {
        (Dialect::V1, Dialect::V2 | Dialect::Draft) => capabilities::agent_to_v2(result, losses),
        (Dialect::V2 | Dialect::Draft, Dialect::V1) => capabilities::agent_to_v1(result, losses),
        (Dialect::V1 | Dialect::V2 | Dialect::Draft, _) => result.clone(),
    }
}

/// Whether the result of an `initialize` is valid for version 2: some agents return any version that they are sent.
pub fn speaks_v2(result: &Object) -> bool {
    result.get("protocolVersion").is_some_and(|version| version.as_str() == "2")
        && json_ext::is(result, "info", Type::Object)
}

/// Converts the content of a prompt for the agent.
pub fn prompt_to_agent(content: &Json, to: Dialect, losses: &mut Losses) -> Json {
    if to == Dialect::V1 { blocks::list_to_v1(content, losses) } else { content.clone() }
}

/// Checks that a prompt is a list of content blocks with the required members of their types. Unknown types are
/// accepted.
pub fn check_prompt(content: &Json) -> Result<(), String> {
    let blocks = content.elements();
    let blocks = blocks.ok_or_else(|| "`prompt` must be a list of content blocks".to_owned())?;
    if blocks.is_empty() {
        return Err("`prompt` must not be empty".to_owned());
    }
    for (index, block) in blocks.into_iter().enumerate() {
        let needs = |what: &str| format!("`prompt[{index}]` {what}");
        let block = Object::parse(block).map_err(|_| needs("must be an object"))?;
        let kind = block.get_string("type").ok_or_else(|| needs("needs a `type`"))?;
        let fields: &[&str] = match kind.as_str() {
            "text" => &["text"],
            "image" | "audio" => &["data", "mimeType"],
            "resource_link" => &["name", "uri"],
            _ => &[],
        };
        for field in fields {
            if !json_ext::is(&block, field, Type::String) {
                return Err(needs(&format!("of type {kind} needs a string `{field}`")));
            }
        }
        if kind == "resource" {
            let resource = block.get_object("resource").unwrap_or_default();
            let has = |field: &str| json_ext::is(&resource, field, Type::String);
            if !has("uri") || !(has("text") || has("blob")) {
                return Err(needs("of type resource needs a `resource` with `uri` and `text` or `blob`"));
            }
        }
    }
    Ok(())
}

/// Converts the commands of a session for a client.
pub fn commands_for(list: &Json, to: Dialect, losses: &mut Losses) -> Json {
    if to == Dialect::V1 { commands::to_v1(list, losses) } else { commands::to_v2(list) }
}
