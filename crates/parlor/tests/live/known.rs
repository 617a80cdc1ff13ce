//! What a client knows of a session, so that it can be compared with what others know.

use std::time::Instant;

use parlor_dialect::view;
use serde_json::Value;

use crate::client::Client;
use crate::server::PATIENCE;

impl Client {
    /// The whole session as the client knows it.
    pub(crate) fn view(&self, session: &str) -> Value {
        let fold = self.folds.get(session).expect("the session was heard of");
        serde_json::from_str(view::transcript(fold.transcript()).as_str()).unwrap()
    }

    /// The messages and tool calls of a session, one a line, as everybody must know them.
    pub(crate) fn transcript(&self, session: &str) -> Vec<String> {
        if !self.folds.contains_key(session) {
            return Vec::new();
        }
        let view = self.view(session);
        let list = |name: &str| view[name].as_array().unwrap().clone();
        let find = |list: &[Value], key: &str, id: &Value| {
            let found: Vec<_> = list.iter().filter(|entry| entry[key] == *id).collect();
            assert_eq!(found.len(), 1, "an id names one thing: {found:?}");
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

    /// Listens until it knows a session as it truly is.
    pub(crate) fn comes_to(&mut self, session: &str, truth: &[String]) {
        let own = |line: &&String| {
            let is_own = |text: &String| line.ends_with(&format!(": {text}"));
            !(line.starts_with("user_message") && self.own.iter().any(is_own))
        };
        let truth: Vec<_> = truth.iter().filter(own).cloned().collect();
        let deadline = Instant::now() + PATIENCE;
        while self.transcript(session) != truth {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.ears.recv_timeout(left) {
                Ok(line) => self.hear_all(&line),
                Err(error) => {
                    assert_eq!(self.transcript(session), truth, "{error}");
                }
            }
        }
    }

    /// The last message of the agent that ends like this, once there is one. Later messages may have come with it.
    pub(crate) fn hears(&mut self, session: &str, end: &str) -> String {
        self.until(&format!("the agent says {end}"), |client| {
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
