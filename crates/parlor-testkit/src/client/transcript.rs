//! The transcript of a session as a client has it, so that it can be compared with those of others.

use std::time::Instant;

use parlor_dialect::{Fold, view};
use serde_json::Value;

use super::Client;
use crate::wait::TIMEOUT;

impl Client {
    /// The session as its updates describe it, if the client received any.
    pub fn fold(&self, session: &str) -> Option<&Fold> {
        self.folds.get(session)
    }

    /// The whole session as JSON.
    pub fn view(&self, session: &str) -> Value {
        let fold = self.folds.get(session).expect("the client received updates of the session");
        serde_json::from_str(view::transcript(fold.transcript()).as_str()).unwrap()
    }

    /// The messages and tool calls of a session, one a line: the same for all clients.
    pub fn transcript(&self, session: &str) -> Vec<String> {
        if !self.folds.contains_key(session) {
            return Vec::new();
        }
        let view = self.view(session);
        let list = |name: &str| view[name].as_array().unwrap().clone();
        let find = |list: &[Value], key: &str, id: &Value| {
            let found: Vec<_> = list.iter().filter(|entry| entry[key] == *id).collect();
            assert_eq!(found.len(), 1, "an id names one entry: {found:?}");
            found[0].clone()
        };
        let (messages, calls) = (list("messages"), list("toolCalls"));
        let lines = list("order").into_iter().filter_map(|place| {
            let (kind, id) = (place["kind"].as_str().unwrap(), &place["id"]);
            match kind {
                "user_message" | "agent_message" | "agent_thought" => {
                    let message = find(&messages, "messageId", id);
                    Some(format!("{kind} {id}: {}", text(&message["content"])))
                }
                "tool_call" => {
                    let call = find(&calls, "toolCallId", id);
                    // v1 has no word for a call that was cancelled.
                    let status = call["status"].as_str().unwrap_or("pending").replace("cancelled", "failed");
                    Some(format!("{kind} {id}: {} ({status})", call["title"].as_str().unwrap()))
                }
                _ => None,
            }
        });
        lines.collect()
    }

    /// Receives messages until its transcript of a session is this one, without the prompts that v1 does not send back.
    pub fn wait_for_transcript(&mut self, session: &str, transcript: &[String]) {
        let own = |line: &&String| {
            let is_own = |text: &String| line.ends_with(&format!(": {text}"));
            !(line.starts_with("user_message") && self.own_prompts.iter().any(is_own))
        };
        let wanted: Vec<_> = transcript.iter().filter(own).cloned().collect();
        let deadline = Instant::now() + TIMEOUT;
        while self.transcript(session) != wanted {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.reader.recv_timeout(left) {
                Ok(line) => self.receive_all(&line),
                Err(error) => {
                    assert_eq!(self.transcript(session), wanted, "{error}");
                }
            }
        }
    }

    /// Waits for a message of the agent that ends like this: the last one. Later messages may have come with it.
    pub fn wait_for_message(&mut self, session: &str, end: &str) -> String {
        self.wait_for(&format!("a message that ends with {end}"), |client| {
            let is_it = |line: &String| line.starts_with("agent_message") && line.ends_with(end);
            client.transcript(session).into_iter().rfind(is_it)
        })
    }
}

/// The text of content blocks; others by their type.
fn text(content: &Value) -> String {
    let blocks = content.as_array().unwrap();
    let one = |block: &Value| match block["text"].as_str() {
        Some(text) => text.to_owned(),
        None => format!("<{}>", block["type"].as_str().unwrap_or_default()),
    };
    blocks.iter().map(one).collect()
}
