//! Writes messages as lines, without the line end.
//!
//! Params, results and data are written unchanged, except that line breaks between the tokens of a value become
//! spaces.

use std::borrow::Cow;

use parlor_json::{JsonRef, string_literal};

use crate::{RequestId, RpcError};

/// Writes a request.
///
/// ```
/// use parlor_wire::{RequestId, write};
///
/// let line = write::request(&RequestId::from(1), "session/list", None);
/// assert_eq!(line, r#"{"jsonrpc":"2.0","id":1,"method":"session/list"}"#);
/// ```
pub fn request(id: &RequestId, method: &str, params: Option<JsonRef<'_>>) -> String {
    let mut line = start(params);
    push_id(&mut line, id);
    push_call(line, method, params)
}

/// Writes a notification.
pub fn notification(method: &str, params: Option<JsonRef<'_>>) -> String {
    push_call(start(params), method, params)
}

/// Writes the response to a request that succeeded.
pub fn response(id: &RequestId, result: JsonRef<'_>) -> String {
    let mut line = start(Some(result));
    push_id(&mut line, id);
    line.push_str(",\"result\":");
    push_one_line(&mut line, result.as_str());
    line.push('}');
    line
}

/// Writes the response to a request that failed.
pub fn error_response(id: &RequestId, error: &RpcError) -> String {
    let mut line = start(None);
    push_id(&mut line, id);
    line.push_str(",\"error\":");
    line.push_str(error.to_json().as_str());
    line.push('}');
    line
}

/// Returns a JSON text on one line.
///
/// Line breaks in JSON are always between tokens, so a space has the same meaning.
pub fn one_line(json: &str) -> Cow<'_, str> {
    if memchr::memchr2(b'\n', b'\r', json.as_bytes()).is_none() {
        return Cow::Borrowed(json);
    }
    Cow::Owned(json.replace(['\n', '\r'], " "))
}

pub(crate) fn push_one_line(line: &mut String, json: &str) {
    line.push_str(&one_line(json));
}

fn start(payload: Option<JsonRef<'_>>) -> String {
    const ENVELOPE: usize = 96;
    let mut line = String::with_capacity(ENVELOPE + payload.map_or(0, |raw| raw.as_str().len()));
    line.push_str("{\"jsonrpc\":\"2.0\"");
    line
}

fn push_id(line: &mut String, id: &RequestId) {
    line.push_str(",\"id\":");
    line.push_str(id.as_literal());
}

fn push_call(mut line: String, method: &str, params: Option<JsonRef<'_>>) -> String {
    line.push_str(",\"method\":");
    line.push_str(&string_literal(method));
    if let Some(params) = params {
        line.push_str(",\"params\":");
        push_one_line(&mut line, params.as_str());
    }
    line.push('}');
    line
}

#[cfg(test)]
mod tests {
    use parlor_json::Json;

    use super::*;
    use crate::code;

    #[test]
    fn messages_are_written_as_json_rpc() {
        let json = |text: &str| Json::parse(text).unwrap();
        let id: RequestId = serde_json::from_str(r#""\u0061""#).unwrap();
        let error = RpcError::new(code::AUTH_REQUIRED, "log in");
        for (line, expected) in [
            (request(&1.into(), "a", None), r#"{"jsonrpc":"2.0","id":1,"method":"a"}"#),
            (
                request(&id, "a\"\n", Some(json(r#"{"n": 1.50}"#).raw())),
                r#"{"jsonrpc":"2.0","id":"\u0061","method":"a\"\n","params":{"n": 1.50}}"#,
            ),
            (notification("$/x", None), r#"{"jsonrpc":"2.0","method":"$/x"}"#),
            (
                notification("x", Some(json("[\r\n1,\n2]").raw())),
                r#"{"jsonrpc":"2.0","method":"x","params":[  1, 2]}"#,
            ),
            (response(&id, json("null").raw()), r#"{"jsonrpc":"2.0","id":"\u0061","result":null}"#),
            (response(&2.into(), json("{\n}").raw()), r#"{"jsonrpc":"2.0","id":2,"result":{ }}"#),
            (
                error_response(&RequestId::null(), &error),
                r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"log in"}}"#,
            ),
        ] {
            assert_eq!(line, expected);
        }
    }

    #[test]
    fn text_on_one_line_is_not_copied() {
        assert!(matches!(one_line(r#"{"a": "\n"}"#), Cow::Borrowed(r#"{"a": "\n"}"#)));
        assert_eq!(one_line("{\r\n\"a\":\n1}"), "{  \"a\": 1}");
        assert_eq!(one_line("[\r1]"), "[ 1]", "some readers end a line at \\r");
    }
}
