use parlor_json::Members;
use parlor_session::{MessageId, SessionId};
use parlor_wire::{Batches, Body, Incoming, Outcome, parse, span_of, splice};

use crate::fast_path::UpdateLine;

/// Rewrites a message for a peer of the same dialect: the same bytes, with the given ids.
///
/// Replaced are the `sessionId` of params or result, and the `messageId` of an update or of a prompt's response.
/// What the line does not have stays absent. `None` if the line is not a message.
///
/// ```
/// use parlor_dialect::with_ids;
///
/// let line = r#"{"jsonrpc":"2.0", "method":"session/update", "params":{"n":1.0,"sessionId":"a","update":{}}}"#;
/// let passed = with_ids(line, Some(&"b".into()), None).unwrap();
/// assert_eq!(passed, r#"{"jsonrpc":"2.0", "method":"session/update", "params":{"n":1.0,"sessionId":"b","update":{}}}"#);
/// ```
pub fn with_ids(line: &str, session: Option<&SessionId>, message: Option<&MessageId>) -> Option<String> {
    let (old_session, old_message) = match UpdateLine::read(line) {
        Some(update) => (Some(update.session), update.update.get("messageId")),
        None => {
            let Ok(Incoming::One(parsed)) = parse(line, Batches::Refuse) else { return None };
            let holder = match parsed.body {
                Body::Request { params, .. } | Body::Notification { params, .. } => params,
                Body::Response { outcome: Outcome::Result(result), .. } => Some(result),
                Body::Response { outcome: Outcome::Error(_), .. } => None,
            };
            let holder = holder.and_then(|holder| Members::of(holder).ok()).unwrap_or_default();
            let update = holder.get("update").and_then(|update| Members::of(update).ok());
            let message = update.map_or_else(|| holder.get("messageId"), |update| update.get("messageId"));
            (holder.get("sessionId"), message)
        }
    };
    let new =
        [(old_session, session.map(SessionId::as_json)), (old_message, message.map(MessageId::as_json))];
    let replaced: Vec<_> =
        new.into_iter().filter_map(|(old, new)| Some((span_of(line, old?)?, new?.as_literal()))).collect();
    splice(line, &replaced)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_ids_change() {
        for (line, expected) in [
            // The compact form, the general one, a request, two responses.
            (
                r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","messageId":"m","content":{"n":1e2}}}}"#,
                r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"S\"","update":{"sessionUpdate":"agent_message_chunk","messageId":"M","content":{"n":1e2}}}}"#,
            ),
            (
                r#"{ "params" : {"update":{"x":18446744073709551616, "messageId" : "m"}, "sessionId":"s"}, "method":"session/update", "jsonrpc":"2.0", "z":0 }"#,
                r#"{ "params" : {"update":{"x":18446744073709551616, "messageId" : "M"}, "sessionId":"S\""}, "method":"session/update", "jsonrpc":"2.0", "z":0 }"#,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}"#,
                r#"{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"S\"","prompt":[]}}"#,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"result":{"messageId":"m"}}"#,
                r#"{"jsonrpc":"2.0","id":1,"result":{"messageId":"M"}}"#,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"sessionId"}}"#,
                r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"sessionId"}}"#,
            ),
        ] {
            let passed = with_ids(line, Some(&"S\"".into()), Some(&"M".into()));
            assert_eq!(passed.as_deref(), Some(expected));
            assert_eq!(with_ids(line, None, None).as_deref(), Some(line));
        }
        assert_eq!(with_ids("{", None, None), None);
    }
}
