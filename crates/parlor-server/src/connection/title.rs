//! Decodes the params of requests that set titles or archive sessions.

use parlor_json::{JsonStr, Object};
use parlor_wire::{RpcError, code};

/// Decodes a title; `None` clears it, which `session/set_title` does not allow.
pub(super) fn title(method: &str, params: &Object) -> Result<Option<JsonStr>, RpcError> {
    let invalid = |message: &str| RpcError::new(code::INVALID_PARAMS, message);
    let given = params.get("title").filter(|title| !title.is_null());
    let title = match given {
        Some(title) => {
            let title = title.to_json_str().ok_or_else(|| invalid("`title` must be a string"))?;
            let text = title.to_text();
            let trimmed = text.trim();
            let trimmed = if trimmed.len() == text.len() { title.clone() } else { JsonStr::new(trimmed) };
            Some(trimmed).filter(|_| !text.trim().is_empty())
        }
        None => None,
    };
    if title.is_none() && method == "session/set_title" {
        return Err(invalid("`title` must not be empty; use `_parlor/title` to clear a title"));
    }
    Ok(title)
}

/// Whether a request archives or unarchives a session.
pub(super) fn archived(method: &str, params: &Object) -> Result<bool, RpcError> {
    match (method, params.get_bool("archived")) {
        ("session/archive", _) => Ok(true),
        ("session/unarchive", _) => Ok(false),
        (_, Some(archived)) => Ok(archived),
        (_, None) => Err(RpcError::new(code::INVALID_PARAMS, "`archived` must be true or false")),
    }
}
