//! Reading and making small JSON objects.

use parlor_json::{Json, JsonRef, JsonStr, Object};
use parlor_session::SessionId;
use parlor_wire::{RequestId, RpcError};

/// JSON from text that is known to be JSON.
pub fn json(text: impl AsRef<str>) -> Json {
    Json::parse(text).expect("it is made of JSON")
}

/// A JSON string.
pub fn string(text: &str) -> Json {
    Json::from(&JsonStr::new(text))
}

/// The params of a message as an object; none and anything else is one without members.
pub fn object(params: Option<JsonRef<'_>>) -> Object {
    params.and_then(|params| Object::parse(params).ok()).unwrap_or_default()
}

/// A member that is an object.
pub fn member(holder: &Object, name: &str) -> Option<Object> {
    Object::parse(holder.get(name)?.raw()).ok()
}

/// A member that is a string, as it is.
pub fn literal(holder: &Object, name: &str) -> Option<JsonStr> {
    JsonStr::from_raw(holder.get(name)?.raw())
}

/// A member that is a string, as text.
pub fn text(holder: &Object, name: &str) -> Option<String> {
    Some(literal(holder, name)?.to_text().into_owned())
}

/// A member that is an absolute path.
pub fn absolute(holder: &Object, name: &str) -> Option<String> {
    text(holder, name).filter(|path| path.starts_with('/'))
}

/// A member that is true or false.
pub fn flag(holder: &Object, name: &str) -> Option<bool> {
    holder.get(name)?.as_str().parse().ok()
}

/// The session that params are about.
pub fn session_of(params: &Object) -> Option<SessionId> {
    literal(params, "sessionId").map(SessionId::from)
}

/// Sets a key of the metadata.
pub fn note(holder: &mut Object, key: &str, value: Json) {
    let mut meta = member(holder, "_meta").unwrap_or_default();
    meta.set(key, value);
    holder.set("_meta", meta.to_json());
}

/// A key of the metadata.
pub fn noted(holder: &Object, key: &str) -> Option<Json> {
    member(holder, "_meta")?.get(key).cloned()
}

/// The metadata of what an agent said, without the keys that are parlor's own.
pub fn foreign_meta(holder: &Object) -> Object {
    let meta = member(holder, "_meta").unwrap_or_default();
    let foreign = meta.iter().filter(|(key, _)| !key.to_text().starts_with("parlor/"));
    foreign.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// An error as it stands in a response.
pub fn error_object(error: &RpcError) -> Json {
    let line = parlor_wire::write::error_response(&RequestId::null(), error);
    let line = json(line);
    object(Some(line.raw())).get("error").cloned().unwrap_or_else(Json::null)
}
