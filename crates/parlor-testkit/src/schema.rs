//! Checks lines that agents and servers send against the published types of the protocol.

use agent_client_protocol_schema::{v1, v2};
use parlor_dialect::Dialect;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Checks that a line that a peer of this dialect sends is what the published types allow. `method` is the one of the
/// request that a response answers.
pub fn check(dialect: Dialect, line: &Value, method: Option<&str>) {
    let is_v1 = dialect == Dialect::V1;
    if let Some(called) = line["method"].as_str() {
        let params = as_published(dialect, &line["params"]);
        match (called, is_v1) {
            ("session/update", true) => reads::<v1::SessionNotification>(&params),
            ("session/update", false) => reads::<v2::UpdateSessionNotification>(&params),
            ("session/request_permission", true) => reads::<v1::RequestPermissionRequest>(&params),
            ("session/request_permission", false) => reads::<v2::RequestPermissionRequest>(&params),
            ("elicitation/create", true) => reads::<v1::CreateElicitationRequest>(&params),
            ("elicitation/create", false) => reads::<v2::CreateElicitationRequest>(&params),
            ("fs/read_text_file", true) => reads::<v1::ReadTextFileRequest>(&params),
            ("fs/write_text_file", true) => reads::<v1::WriteTextFileRequest>(&params),
            ("terminal/create", true) => reads::<v1::CreateTerminalRequest>(&params),
            ("terminal/wait_for_exit", true) => reads::<v1::WaitForTerminalExitRequest>(&params),
            ("terminal/output", true) => reads::<v1::TerminalOutputRequest>(&params),
            ("terminal/kill", true) => reads::<v1::KillTerminalRequest>(&params),
            ("terminal/release", true) => reads::<v1::ReleaseTerminalRequest>(&params),
            ("$/cancel_request", true) => reads::<v1::CancelRequestNotification>(&params),
            ("$/cancel_request", false) => reads::<v2::CancelRequestNotification>(&params),
            (extension, _) => assert!(extension.starts_with('_'), "{line}"),
        }
        return;
    }
    let Some(result) = line.get("result") else {
        return reads::<v1::Error>(&line["error"]);
    };
    match (method.expect("a response answers a request"), is_v1) {
        ("initialize", true) => reads::<v1::InitializeResponse>(result),
        ("initialize", false) => reads::<v2::InitializeResponse>(result),
        ("session/new", true) => reads::<v1::NewSessionResponse>(result),
        ("session/new", false) => reads::<v2::NewSessionResponse>(result),
        ("session/fork", true) => reads::<v1::ForkSessionResponse>(result),
        ("session/fork", false) => reads::<v2::ForkSessionResponse>(result),
        ("session/load", true) => reads::<v1::LoadSessionResponse>(result),
        ("session/resume", true) => reads::<v1::ResumeSessionResponse>(result),
        ("session/resume", false) => reads::<v2::ResumeSessionResponse>(result),
        // A proposal: the response to `session/resume` with other members.
        ("session/attach", _) => {
            let mut result = result.clone();
            for name in ["sessionId", "clientId", "historyPolicy"] {
                result.as_object_mut().and_then(|result| result.remove(name)).expect(name);
            }
            if is_v1 {
                reads::<v1::ResumeSessionResponse>(&result);
            } else {
                reads::<v2::ResumeSessionResponse>(&result);
            }
        }
        ("session/list", true) => reads::<v1::ListSessionsResponse>(result),
        ("session/list", false) => reads::<v2::ListSessionsResponse>(result),
        ("session/set_config_option", true) => reads::<v1::SetSessionConfigOptionResponse>(result),
        ("session/set_config_option", false) => reads::<v2::SetSessionConfigOptionResponse>(result),
        ("session/set_title", true) => reads::<v1::SetSessionTitleResponse>(result),
        ("session/set_title", false) => reads::<v2::SetSessionTitleResponse>(result),
        ("session/prompt", true) => reads::<v1::PromptResponse>(result),
        ("session/prompt", false) if dialect == Dialect::V2 => reads::<v2::PromptResponse>(result),
        _ => assert_eq!(*result, serde_json::json!({})),
    }
}

/// The draft's own spelling, as the published version writes it.
fn as_published(dialect: Dialect, params: &Value) -> Value {
    let mut params = params.clone();
    let update = params.get_mut("update").and_then(Value::as_object_mut);
    let Some(update) = update.filter(|_| dialect == Dialect::Draft) else { return params };
    assert!(update["sessionUpdate"] != "state_update", "the draft says state_change");
    if update["sessionUpdate"] == "state_change" {
        update.insert("sessionUpdate".to_owned(), "state_update".into());
        if let Some(reason) = update.remove("stop_reason") {
            update.insert("stopReason".to_owned(), reason);
        }
    }
    params
}

/// Reads a value and writes it again: what the type does not know, or forgives, is missing then.
fn reads<T: DeserializeOwned + Serialize>(value: &Value) {
    let read: T = serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{error}: {value}"));
    if let Some(lost) = lost(value, &serde_json::to_value(read).unwrap(), "") {
        panic!("{lost} is not in the schema: {value}");
    }
}

/// The way to the first thing that is not the same.
fn lost(before: &Value, after: &Value, way: &str) -> Option<String> {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => before.iter().find_map(|(name, value)| {
            let way = format!("{way}/{name}");
            match after.get(name) {
                Some(after) => lost(value, after, &way),
                // Forking at a message is a proposal that the schema does not have.
                None => (!is_default(value) && name != "atMessageId").then_some(way),
            }
        }),
        (Value::Array(before), Value::Array(after)) if before.len() == after.len() => before
            .iter()
            .zip(after)
            .enumerate()
            .find_map(|(n, (before, after))| lost(before, after, &format!("{way}/{n}"))),
        _ => (before != after).then(|| way.to_owned()),
    }
}

/// Whether a type may leave a value out because it means the same as nothing.
fn is_default(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::String(text) => text == "pending" || text == "other",
        Value::Bool(true) | Value::Number(_) => false,
    }
}
