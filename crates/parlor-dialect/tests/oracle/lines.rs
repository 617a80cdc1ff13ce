//! Lines for tests.

use parlor_dialect::Dialect;
use serde_json::{Value, json};

pub(crate) fn notification(method: &str, params: &Value) -> String {
    json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string()
}

pub(crate) fn request(id: &Value, method: &str, params: &Value) -> String {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string()
}

pub(crate) fn response(id: &Value, result: &Value) -> String {
    json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string()
}

/// An update of the published version in a dialect of version 2.
pub(crate) fn drafted(dialect: Dialect, mut update: Value) -> Value {
    if dialect == Dialect::Draft && update["sessionUpdate"] == "state_update" {
        update["sessionUpdate"] = json!("state_change");
        if let Some(reason) = update.as_object_mut().and_then(|update| update.remove("stopReason")) {
            update["stop_reason"] = reason;
        }
    }
    update
}

/// The params or the result of a method, with the version that its sender speaks.
pub(crate) fn versioned(dialect: Dialect, method: &str, mut value: Value) -> Value {
    if method == "initialize" {
        value["protocolVersion"] = json!(version(dialect));
    }
    value
}

/// The version that a dialect is of.
pub(crate) fn version(dialect: Dialect) -> u16 {
    if dialect == Dialect::V1 { 1 } else { 2 }
}
