//! What an agent's error says to be missing: the session, or a setting.
//!
//! There is one code for that, which few agents use. The others say it in words, in many ways.

use parlor_json::{JsonRef, JsonStr, Object};
use parlor_session::SessionId;
use parlor_wire::{RpcError, code};

/// How many words may be between a thing and the words that say that it is missing.
const NEAR: usize = 4;

/// What sessions are called in errors.
const SESSIONS: &[&str] = &["session", "sessionid", "thread", "conversation", "rollout"];

/// What settings are called in errors.
const SETTINGS: &[&str] =
    &["mode", "modeid", "model", "modelid", "option", "config", "configid", "value", "setting"];

/// Whether an error says that a session does not exist.
pub(super) fn is_session_missing(error: &RpcError, session: &SessionId) -> bool {
    if error.code() == code::AUTH_REQUIRED {
        return false;
    }
    error.code() == code::RESOURCE_NOT_FOUND || is_missing(error, SESSIONS, &session.as_json().to_text())
}

/// Whether an error says that a setting, or this value of it, does not exist.
pub(super) fn is_setting_missing(error: &RpcError, value: &str) -> bool {
    [code::INVALID_PARAMS, code::RESOURCE_NOT_FOUND].contains(&error.code())
        || is_missing(error, SETTINGS, value)
}

/// Whether the words of an error say that a thing with one of these names, or with this id, is missing.
fn is_missing(error: &RpcError, names: &[&str], id: &str) -> bool {
    let mut texts = vec![error.message().to_owned()];
    if let Some(data) = error.data() {
        add_texts(data.raw(), &mut texts);
    }
    let id = id.to_lowercase();
    texts.iter().any(|text| has_missing(&text.to_lowercase(), names, &id))
}

/// Adds all strings in a value that are not keys.
fn add_texts(value: JsonRef<'_>, texts: &mut Vec<String>) {
    if let Some(text) = JsonStr::from_raw(value) {
        texts.push(text.to_text().into_owned());
    } else if let Some(elements) = value.elements() {
        elements.into_iter().for_each(|element| add_texts(element, texts));
    } else if let Ok(object) = Object::parse(value) {
        object.iter().for_each(|(_, value)| add_texts(value.raw(), texts));
    }
}

/// Whether a phrase of a text in lower case says of a thing that it is missing.
fn has_missing(text: &str, names: &[&str], id: &str) -> bool {
    let is_mark = |char: char| char.is_ascii_punctuation();
    let is_it = |word: &str| {
        let word = word.trim_matches(is_mark);
        word == id || names.contains(&word.strip_suffix('s').unwrap_or(word))
    };
    let is = |words: &[&str], said: &[&str]| {
        words.len() == said.len()
            && words.iter().zip(said).all(|(word, said)| word.trim_matches(is_mark) == *said)
    };
    let missing: [&[&str]; 3] = [&["not", "found"], &["does", "not", "exist"], &["not", "active"]];
    let words: Vec<_> = text.split_whitespace().collect();
    let phrases: Vec<_> = words.split_inclusive(|word| word.ends_with([':', '.', ';', ','])).collect();
    let is_name = |phrase: &&[&str]| phrase.iter().all(|word| is_it(word));
    phrases.iter().enumerate().any(|(place, phrase)| {
        (0..phrase.len()).any(|at| {
            let rest = &phrase[at..];
            let starts = |said: &[&str]| rest.get(..said.len()).is_some_and(|words| is(words, said));
            // Session 1 was not found; not found: 1.
            let before = &phrase[at.saturating_sub(NEAR)..at];
            let is_named = || {
                before.iter().any(|word| is_it(word))
                    || phrases.get(place + 1).is_some_and(is_name)
                    || (at == 0 && place > 0 && is_name(&phrases[place - 1]))
            };
            // No such session; no session found.
            let is_next = |place: usize| rest.get(place).is_some_and(|word| is_it(word));
            let is_found = || rest.iter().any(|word| word.trim_matches(is_mark) == "found");
            // Session 1 is unknown; not: session 1: unknown error.
            let is_unknown = starts(&["unknown"]) && rest.len() == 1;
            // Invalid session identifier "1"; not: invalid session state.
            let is_id = |place: usize| {
                rest.get(place).is_some_and(|word| ["id", "identifier"].contains(&word.trim_matches(is_mark)))
            };
            (is_unknown || missing.iter().any(|said| starts(said))) && is_named()
                || (starts(&["no", "such"]) || starts(&["no", "previous"])) && is_next(2)
                || starts(&["unknown"]) && is_next(1)
                || starts(&["no"]) && is_next(1) && is_found()
                || starts(&["invalid"]) && is_next(1) && is_id(2)
        })
    })
}

#[cfg(test)]
mod tests {
    use parlor_json::Json;

    use super::*;

    #[test]
    fn a_session_is_missing_only_if_the_error_says_so_of_the_session() {
        let error = |code: i64, message: &str, data: &str| {
            RpcError::new(code, message).with_data(Json::parse(data).unwrap())
        };
        for missing in [
            error(-32002, "Resource not found", r#"{"sessionId":"x"}"#),
            error(-32603, "Internal error", r#"{"details":"no rollout found for thread id 0"}"#),
            error(-32603, "Internal error", r#"{"details":"No previous sessions found for this project."}"#),
            error(
                -32603,
                "Internal error",
                r#"{"details":"Invalid session identifier \"s-1\".\n  Searched for sessions in /x/chats."}"#,
            ),
            error(-32602, "Invalid params: session not found: x", "{}"),
            error(-32602, "Invalid params", r#""Session nope not found""#),
            error(-32603, "Session with id s-1 does not exist", "{}"),
            error(-32603, "Internal error", r#"{"details":["No conversation found with session ID: s-1"]}"#),
            error(-32603, "Not found: s-1", "{}"),
            error(-32603, "Session s-1: not found", "{}"),
            error(-32603, "Unknown session", "{}"),
            error(-32603, "Session s-1 is unknown", "{}"),
        ] {
            assert!(is_session_missing(&missing, &"s-1".into()), "{missing:?}");
        }
        for other in [
            error(-32603, "it is already loaded", "{}"),
            error(-32603, "Invalid session state", "{}"),
            error(-32603, "Internal error", r#"{"details":"Directory does not exist: /x"}"#),
            error(-32000, "Authentication required", "{}"),
            error(-32000, "Session not found: log in first", "{}"),
            error(-32603, "MCP server foo not found", r#"{"sessionId":"s-1"}"#),
            error(-32603, "Model not found", r#"{"session":{"id":"s-1"},"threadId":"t"}"#),
            error(-32603, "Failed to load session s-1: MCP server foo not found", "{}"),
            error(-32603, "unknown error while the session was loaded", "{}"),
            error(-32603, "Session load failed with unknown error", "{}"),
            error(-32603, "Session s-1: unknown error", "{}"),
            error(-32603, "ENOENT: no such file or directory, open '/x/sessions/s-1'", "{}"),
            error(-32603, "Internal error: OpenCode service failure", r#"{"service":"session"}"#),
        ] {
            assert!(!is_session_missing(&other, &"s-1".into()), "{other:?}");
        }
    }

    #[test]
    fn a_setting_is_missing_only_if_the_error_says_so_of_the_setting() {
        let error = |message: &str| RpcError::new(code::INTERNAL_ERROR, message);
        for missing in
            ["Unknown mode: code", "Mode not found: code", "no such mode", "Model 'code' does not exist"]
        {
            assert!(is_setting_missing(&error(missing), "code"), "{missing}");
        }
        for other in ["unknown error", "the mode cannot be set now", "Internal error", "file not found"] {
            assert!(!is_setting_missing(&error(other), "code"), "{other}");
        }
    }
}
