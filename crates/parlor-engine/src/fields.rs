//! Members of messages that the protocol or parlor gives a meaning to.

use parlor_json::Object;
use parlor_session::SessionId;

/// Returns a member that is an absolute path.
pub fn absolute(holder: &Object, name: &str) -> Option<String> {
    holder.get_string(name).filter(|path| path.starts_with('/'))
}

/// Returns the `sessionId` of params.
pub fn session_of(params: &Object) -> Option<SessionId> {
    params.get_json_str("sessionId").map(SessionId::from)
}

/// Returns `_meta` without the keys that start with `parlor/`.
pub fn foreign_meta(holder: &Object) -> Object {
    let meta = holder.get_object("_meta").unwrap_or_default();
    let foreign = meta.iter().filter(|(key, _)| !key.to_text().starts_with("parlor/"));
    foreign.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Removes the keys that start with `parlor/` from `_meta`, and `_meta` if it has no others: they are for the server.
pub fn keep_foreign_meta(holder: &mut Object) {
    if holder.get_object("_meta").is_none() {
        return;
    }
    let meta = foreign_meta(holder);
    if meta.is_empty() {
        holder.remove("_meta");
    } else {
        holder.set("_meta", meta);
    }
}
