//! Small words for making and reading JSON.

use parlor_json::{Json, JsonStr, Object};
use parlor_session::SessionId;
use parlor_wire::{RequestId, RpcError};
use serde_json::value::RawValue;

/// JSON from text that is known to be JSON.
pub(crate) fn json(text: impl Into<String>) -> Json {
    Json::parse(text).expect("it is made of JSON")
}

/// A JSON string.
pub(crate) fn string(text: &str) -> Json {
    Json::from(&JsonStr::new(text))
}

/// The params of a message as an object; none and anything else is one without members.
pub(crate) fn object(params: Option<&RawValue>) -> Object {
    params.and_then(|params| Object::parse(params).ok()).unwrap_or_default()
}

/// A member that is an object.
pub(crate) fn member(holder: &Object, name: &str) -> Option<Object> {
    Object::parse(holder.get(name)?.raw()).ok()
}

/// A member that is a string, as it is.
pub(crate) fn literal(holder: &Object, name: &str) -> Option<JsonStr> {
    JsonStr::from_raw(holder.get(name)?.raw())
}

/// A member that is a string, as text.
pub(crate) fn text(holder: &Object, name: &str) -> Option<String> {
    Some(literal(holder, name)?.to_text().into_owned())
}

/// A member that is true or false.
pub(crate) fn flag(holder: &Object, name: &str) -> Option<bool> {
    holder.get(name)?.as_str().parse().ok()
}

/// A time, from milliseconds since 1970.
pub(crate) fn time(millis: i64) -> Option<Json> {
    Some(string(&jiff::Timestamp::from_millisecond(millis).ok()?.to_string()))
}

/// The session that params are about.
pub(crate) fn session_of(params: &Object) -> Option<SessionId> {
    literal(params, "sessionId").map(SessionId::from)
}

/// Sets a key of the metadata.
pub(crate) fn note(holder: &mut Object, key: &str, value: Json) {
    let mut meta = member(holder, "_meta").unwrap_or_default();
    meta.set(key, value);
    holder.set("_meta", meta.to_json());
}

/// A key of the metadata.
pub(crate) fn noted(holder: &Object, key: &str) -> Option<Json> {
    member(holder, "_meta")?.get(key).cloned()
}

/// The line of a response.
pub(crate) fn response(id: &RequestId, result: &Object) -> String {
    let mut line = parlor_wire::write::response(id, result.to_json().raw());
    line.push('\n');
    line
}

/// The line of an error response.
pub(crate) fn error(id: &RequestId, error: &RpcError) -> String {
    let mut line = parlor_wire::write::error_response(id, error);
    line.push('\n');
    line
}

/// An error as it stands in a response.
pub(crate) fn error_object(error: &RpcError) -> Json {
    let line = parlor_wire::write::error_response(&RequestId::null(), error);
    let line = json(line);
    object(Some(line.raw())).get("error").cloned().unwrap_or_else(Json::null)
}
