use std::borrow::Cow;

use parlor_json::{Json, JsonRef, JsonStr, Members, Object};

use crate::write::one_line;

/// The error codes that JSON-RPC and ACP define.
pub mod code {
    /// The line is not JSON.
    pub const PARSE_ERROR: i64 = -32700;
    /// The JSON is not a message, or the message is not allowed in the present state.
    pub const INVALID_REQUEST: i64 = -32600;
    /// The method does not exist.
    pub const METHOD_NOT_FOUND: i64 = -32601;
    /// The params are invalid for this method.
    pub const INVALID_PARAMS: i64 = -32602;
    /// The receiver failed.
    pub const INTERNAL_ERROR: i64 = -32603;
    /// The sender cancelled the request with `$/cancel_request`.
    pub const REQUEST_CANCELLED: i64 = -32800;
    /// The requested session, file or other resource does not exist.
    pub const RESOURCE_NOT_FOUND: i64 = -32002;
    /// The agent requires authentication first.
    pub const AUTH_REQUIRED: i64 = -32000;
    /// The requested protocol version is not supported.
    pub const UNSUPPORTED_VERSION: i64 = -32022;
}

/// The error object of a response.
///
/// An error that was received from a peer is written exactly as it was received, with its unknown members.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message} ({code})")]
pub struct RpcError {
    code: i64,
    message: String,
    data: Option<Json>,
    as_received: Option<Json>,
}

impl RpcError {
    /// Creates an error.
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None, as_received: None }
    }

    /// Sets `data`; unknown members of a received error are dropped.
    #[must_use]
    pub fn with_data(self, data: Json) -> Self {
        Self { data: Some(data), as_received: None, ..self }
    }

    /// Reads the `error` of a response.
    ///
    /// Any value is accepted, because the request must complete in any case: the code is
    /// [`code::INTERNAL_ERROR`] if it is missing or not an integer, and the message is the text of the value if it
    /// has none.
    pub fn from_raw(raw: JsonRef<'_>) -> Self {
        let members = Members::of(raw).unwrap_or_default();
        let message = members.get("message").and_then(JsonStr::from_raw);
        Self {
            code: members
                .get("code")
                .and_then(|code| code.as_str().parse().ok())
                .unwrap_or(code::INTERNAL_ERROR),
            message: match message.or_else(|| JsonStr::from_raw(raw)) {
                Some(message) => message.to_text().into_owned(),
                None => raw.as_str().to_owned(),
            },
            data: members.get("data").map(Json::from),
            as_received: Some(raw.into()),
        }
    }

    /// Returns the error code; see [`code`].
    pub fn code(&self) -> i64 {
        self.code
    }

    /// Returns the message for people.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the details for programs.
    pub fn data(&self) -> Option<&Json> {
        self.data.as_ref()
    }

    /// Returns the error object, without line breaks.
    pub fn to_json(&self) -> Json {
        let one_line = |json: &Json| match one_line(json.as_str()) {
            Cow::Borrowed(_) => json.clone(),
            Cow::Owned(line) => Json::parse(line).unwrap_or_else(|_| json.clone()),
        };
        if let Some(json) = &self.as_received {
            return one_line(json);
        }
        let mut object = Object::new().with("code", self.code).with("message", &self.message);
        if let Some(data) = &self.data {
            object.set("data", one_line(data));
        }
        object.to_json()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(error: &RpcError) -> String {
        error.to_json().as_str().to_owned()
    }

    #[test]
    fn any_value_is_read_as_an_error_and_written_unchanged() {
        for (text, code, message, data) in [
            (r#"{"code":-32000,"message":"log in"}"#, -32000, "log in", None),
            (r#"{"message":"\u0061", "x":1e9, "data":null,"code":1}"#, 1, "a", Some("null")),
            (r#"{"code":"E1","message":"m","data":[1.0]}"#, -32603, "m", Some("[1.0]")),
            (r#"{"code":1.5}"#, -32603, r#"{"code":1.5}"#, None),
            (r#""it broke""#, -32603, "it broke", None),
            ("true", -32603, "true", None),
        ] {
            let error = RpcError::from_raw(serde_json::from_str(text).unwrap());
            let read = (error.code(), error.message(), error.data().map(Json::as_str));
            assert_eq!(read, (code, message, data), "{text}");
            assert_eq!(written(&error), text);
        }
    }

    #[test]
    fn new_errors_are_escaped_and_written_on_one_line() {
        let error = RpcError::new(code::INVALID_PARAMS, "no \"x\"\n");
        assert_eq!(written(&error), r#"{"code":-32602,"message":"no \"x\"\n"}"#);
        let error = error.with_data(Json::parse("{\n\"a\": 1.0}").unwrap());
        assert_eq!(written(&error), r#"{"code":-32602,"message":"no \"x\"\n","data":{ "a": 1.0}}"#);
    }

    #[test]
    fn setting_data_drops_unknown_members() {
        let received = RpcError::from_raw(serde_json::from_str(r#"{"code":1,"message":"m","x":2}"#).unwrap());
        assert_eq!(written(&received.with_data(Json::null())), r#"{"code":1,"message":"m","data":null}"#);
    }
}
