use std::borrow::Cow;
use std::fmt;

use parlor_json::{Json, JsonRef, JsonStr, Members, Object};

use crate::write::one_line;

/// The error codes that JSON-RPC and ACP give a meaning to.
pub mod code {
    /// The line is not JSON.
    pub const PARSE_ERROR: i64 = -32700;
    /// The JSON is not a message, or not one that may be sent here and now.
    pub const INVALID_REQUEST: i64 = -32600;
    /// Nobody serves this method.
    pub const METHOD_NOT_FOUND: i64 = -32601;
    /// The method exists and cannot work with these params.
    pub const INVALID_PARAMS: i64 = -32602;
    /// The answering side failed.
    pub const INTERNAL_ERROR: i64 = -32603;
    /// The request was taken back with `$/cancel_request`.
    pub const REQUEST_CANCELLED: i64 = -32800;
    /// The session, file or other thing asked for does not exist.
    pub const RESOURCE_NOT_FOUND: i64 = -32002;
    /// The agent wants the user to log in first.
    pub const AUTH_REQUIRED: i64 = -32000;
    /// The protocol version asked for is not spoken here.
    pub const UNSUPPORTED_VERSION: i64 = -32022;
}

/// The error object of a response.
///
/// One that was read from a peer is written again exactly as it came, with members that nobody here knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RpcError {
    code: i64,
    message: String,
    data: Option<Json>,
    as_received: Option<Json>,
}

impl RpcError {
    /// An error of our own.
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None, as_received: None }
    }

    /// The same error with `data`. It is then our own error, also if it was read from a peer before.
    #[must_use]
    pub fn with_data(self, data: Json) -> Self {
        Self { data: Some(data), as_received: None, ..self }
    }

    /// Reads the `error` of a response. Any value is taken, because a request must end in any case: where
    /// the code is missing or no integer it reads as [`code::INTERNAL_ERROR`], and where there is no message
    /// the text of the value stands for it.
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

    /// What went wrong, as a number; see [`code`].
    pub fn code(&self) -> i64 {
        self.code
    }

    /// What went wrong, for people.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Details for programs.
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

impl fmt::Display for RpcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.code)
    }
}

impl std::error::Error for RpcError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(error: &RpcError) -> String {
        error.to_json().as_str().to_owned()
    }

    #[test]
    fn any_value_reads_as_an_error_and_is_written_as_it_came() {
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
    fn our_own_errors_are_written_with_escapes_and_on_one_line() {
        let error = RpcError::new(code::INVALID_PARAMS, "no \"x\"\n");
        assert_eq!(written(&error), r#"{"code":-32602,"message":"no \"x\"\n"}"#);
        let error = error.with_data(Json::parse("{\n\"a\": 1.0}").unwrap());
        assert_eq!(written(&error), r#"{"code":-32602,"message":"no \"x\"\n","data":{ "a": 1.0}}"#);
    }

    #[test]
    fn new_data_makes_it_our_own_error() {
        let received = RpcError::from_raw(serde_json::from_str(r#"{"code":1,"message":"m","x":2}"#).unwrap());
        assert_eq!(written(&received.with_data(Json::null())), r#"{"code":1,"message":"m","data":null}"#);
    }
}
