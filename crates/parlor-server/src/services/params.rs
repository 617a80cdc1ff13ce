//! Typed getters for the params of requests, with errors that name the parameter.

use std::io;
use std::path::{Path, PathBuf};

use parlor_json::{Json, Object, Type};
use parlor_wire::{RpcError, code};

/// The error for invalid params.
pub(super) fn invalid(message: impl Into<String>) -> RpcError {
    RpcError::new(code::INVALID_PARAMS, message)
}

/// The error for something that does not exist, with its name as data.
pub(super) fn not_found(message: impl Into<String>, member: &str, name: &str) -> RpcError {
    let data = Object::new().with(member, name).to_json();
    RpcError::new(code::RESOURCE_NOT_FOUND, message).with_data(data)
}

/// The error for a failed system call.
pub(super) fn io_error(error: &io::Error, message: String) -> RpcError {
    let invalid = error.kind() == io::ErrorKind::InvalidInput;
    RpcError::new(if invalid { code::INVALID_PARAMS } else { code::INTERNAL_ERROR }, message)
}

/// A required string.
pub(super) fn text(params: &Object, name: &str) -> Result<String, RpcError> {
    exact(name, present(params, name).ok_or_else(|| invalid(format!("`{name}` is missing")))?)
}

/// An optional whole number.
pub(super) fn number(params: &Object, name: &str) -> Result<Option<u64>, RpcError> {
    let Some(value) = present(params, name) else { return Ok(None) };
    match value.as_u64() {
        Some(number) => Ok(Some(number)),
        None => Err(invalid(format!("`{name}` must be a whole number, not {}", shown(value)))),
    }
}

/// A required absolute path.
pub(super) fn path(params: &Object, name: &str) -> Result<PathBuf, RpcError> {
    let path = text(params, name)?;
    if !Path::new(&path).is_absolute() {
        return Err(invalid(format!("`{name}` must be an absolute path, not `{path}`")));
    }
    Ok(path.into())
}

/// An optional absolute path.
pub(super) fn optional_path(params: &Object, name: &str) -> Result<Option<PathBuf>, RpcError> {
    present(params, name).map(|_| path(params, name)).transpose()
}

/// An optional array of strings.
pub(super) fn texts(params: &Object, name: &str) -> Result<Vec<String>, RpcError> {
    array(params, name)?.iter().map(|value| exact(name, value)).collect()
}

/// An optional array of names with values.
pub(super) fn pairs(params: &Object, name: &str) -> Result<Vec<(String, String)>, RpcError> {
    let pair = |value: &Json| {
        let object = Object::parse(value.raw()).map_err(|error| invalid(format!("`{name}`: {error}")))?;
        Ok((text(&object, "name")?, text(&object, "value")?))
    };
    array(params, name)?.iter().map(pair).collect()
}

fn array(params: &Object, name: &str) -> Result<Vec<Json>, RpcError> {
    let Some(value) = present(params, name) else { return Ok(Vec::new()) };
    let elements = value
        .elements()
        .ok_or_else(|| invalid(format!("`{name}` must be an array, not {}", shown(value))))?;
    Ok(elements.into_iter().map(Json::from).collect())
}

/// A parameter that is not null.
fn present<'a>(params: &'a Object, name: &str) -> Option<&'a Json> {
    params.get(name).filter(|value| !value.is_null())
}

fn exact(name: &str, value: &Json) -> Result<String, RpcError> {
    let string = value
        .to_json_str()
        .ok_or_else(|| invalid(format!("`{name}` must be a string, not {}", shown(value))))?;
    match string.to_exact() {
        Some(text) => Ok(text.into_owned()),
        None => Err(invalid(format!("`{name}` contains an unpaired surrogate"))),
    }
}

/// Describes a value for a message: a short one by itself, others by their type.
fn shown(value: &Json) -> String {
    let is_short = value.as_str().len() < 40 && matches!(value.type_of(), Type::Number | Type::Bool);
    if is_short { value.as_str().to_owned() } else { value.type_of().to_string() }
}
