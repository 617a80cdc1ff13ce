//! A server of the Model Context Protocol: one line in, at most one line out.
//!
//! Only what a server with tools needs is here: `initialize`, `ping`, `tools/list` and `tools/call`. Requests are answered in
//! order, so that a cancellation always comes too late, and no state is kept.

pub(crate) mod tools;

use parlor_json::{Json, JsonRef, Object};
use parlor_wire::{Batches, Body, Incoming, Message, RpcError, code, parse, write};

/// The versions of the protocol, the latest first. They do not differ in what is used here.
const VERSIONS: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// A tool that agents can call.
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    /// What it does, for the model.
    pub(crate) description: &'static str,
    /// The JSON Schema of its arguments.
    pub(crate) schema: &'static str,
    /// Returns the text of the result, or of an error that the model can correct.
    pub(crate) call: fn(&tools::Sessions, &Object) -> Result<String, String>,
}

/// Responds to a line of the client; `None` if it needs no response.
pub(crate) fn respond(line: &str, sessions: &tools::Sessions) -> Option<String> {
    let respond_to = |message: &Message<'_>| respond_to_message(message, sessions);
    match parse(line, Batches::Accept) {
        Ok(Incoming::One(message)) => respond_to(&message),
        Ok(Incoming::Batch(messages)) => {
            let responses: Vec<_> = messages
                .iter()
                .filter_map(|message| match message {
                    Ok(message) => respond_to(message),
                    Err(malformed) => {
                        Some(write::error_response(malformed.respond_to()?, &malformed.to_error()))
                    }
                })
                .collect();
            (!responses.is_empty()).then(|| format!("[{}]", responses.join(",")))
        }
        Err(malformed) => Some(write::error_response(malformed.respond_to()?, &malformed.to_error())),
    }
}

fn respond_to_message(message: &Message<'_>, sessions: &tools::Sessions) -> Option<String> {
    let Body::Request { id, method, params } = &message.body else { return None };
    let params = params.and_then(JsonRef::to_object).unwrap_or_default();
    Some(match result(method, &params, sessions) {
        Ok(result) => write::response(id, result.to_json().raw()),
        Err(error) => write::error_response(id, &error),
    })
}

fn result(method: &str, params: &Object, sessions: &tools::Sessions) -> Result<Object, RpcError> {
    match method {
        "initialize" => Ok(initialize(params)),
        "ping" => Ok(Object::new()),
        "tools/list" => Ok(Object::new().with("tools", Json::array(tools::TOOLS.iter().map(describe)))),
        "tools/call" => call(params, sessions),
        _ => Err(RpcError::new(code::METHOD_NOT_FOUND, format!("method not found: {method}"))),
    }
}

fn initialize(params: &Object) -> Object {
    let wanted = params.get_string("protocolVersion");
    let version =
        VERSIONS.into_iter().find(|version| wanted.as_deref() == Some(version)).unwrap_or(VERSIONS[0]);
    let info = Object::new()
        .with("name", "parlor")
        .with("title", "parlor")
        .with("version", env!("CARGO_PKG_VERSION"));
    Object::new()
        .with("protocolVersion", version)
        .with("capabilities", Object::new().with("tools", Object::new()))
        .with("serverInfo", info)
        .with("instructions", tools::INSTRUCTIONS)
}

fn describe(tool: &Tool) -> Object {
    let hints = Object::new()
        .with("readOnlyHint", true)
        .with("destructiveHint", false)
        .with("idempotentHint", true)
        .with("openWorldHint", false);
    Object::new()
        .with("name", tool.name)
        .with("title", tool.title)
        .with("description", tool.description)
        .with("inputSchema", Json::parse(one_line(tool.schema)).unwrap_or_default())
        .with("annotations", hints)
}

/// JSON without its line breaks and indentation, which are part of no string.
fn one_line(json: &str) -> String {
    json.lines().map(str::trim).collect()
}

/// Calls a tool. Its errors are results, so that the model sees them.
fn call(params: &Object, sessions: &tools::Sessions) -> Result<Object, RpcError> {
    let name = params.get_string("name").unwrap_or_default();
    let tool = tools::TOOLS.iter().find(|tool| tool.name == name);
    let tool = tool.ok_or_else(|| RpcError::new(code::INVALID_PARAMS, format!("unknown tool: {name}")))?;
    let arguments = params.get_object("arguments").unwrap_or_default();
    let (text, is_error) = match (tool.call)(sessions, &arguments) {
        Ok(text) => (text, false),
        Err(text) => (text, true),
    };
    let content = Object::new().with("type", "text").with("text", text);
    Ok(Object::new().with("content", Json::array([content])).with("isError", is_error))
}
