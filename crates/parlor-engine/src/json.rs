//! JSON members that the protocol gives a meaning to.

use parlor_json::{Json, JsonRef, Object};
use parlor_session::SessionId;

/// Parses text that the caller knows to be JSON.
pub fn json(text: impl AsRef<str>) -> Json {
    Json::parse(text).expect("the caller passes valid JSON")
}

/// Returns the params of a message, or an object without members if they are missing or not an object.
pub fn object(params: Option<JsonRef<'_>>) -> Object {
    params.and_then(JsonRef::to_object).unwrap_or_default()
}

/// Returns a member that is an absolute path.
pub fn absolute(holder: &Object, name: &str) -> Option<String> {
    holder.get_string(name).filter(|path| path.starts_with('/'))
}

/// Returns the `sessionId` of params.
pub fn session_of(params: &Object) -> Option<SessionId> {
    params.get_json_str("sessionId").map(SessionId::from)
}

/// Sets a key of `_meta`.
pub fn note(holder: &mut Object, key: &str, value: Json) {
    let mut meta = holder.get_object("_meta").unwrap_or_default();
    meta.set(key, value);
    holder.set("_meta", meta.to_json());
}

/// Returns a key of `_meta`.
pub fn noted(holder: &Object, key: &str) -> Option<Json> {
    holder.get_object("_meta")?.get(key).cloned()
}

/// Returns `_meta` without the keys that start with `parlor/`.
pub fn foreign_meta(holder: &Object) -> Object {
    let meta = holder.get_object("_meta").unwrap_or_default();
    let foreign = meta.iter().filter(|(key, _)| !key.to_text().starts_with("parlor/"));
    foreign.map(|(key, value)| (key.clone(), value.clone())).collect()
}
