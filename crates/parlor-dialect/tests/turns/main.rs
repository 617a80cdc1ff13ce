//! Turns through a relay: the lines that each side receives, and that every request is answered.

mod echoes;
mod turn_ends;

use parlor_dialect::Dialect::{self, V1, V2};
use parlor_dialect::{Side, Translator};
use serde_json::{Value, json};

/// A relay, whose lines are compared in a short form.
struct Relay(Translator);

impl Relay {
    fn between(agent: Dialect, client: Dialect) -> Self {
        Self(Translator::relay(agent, client))
    }

    #[track_caller]
    fn agent(&mut self, message: Value, expected: &[&str]) -> Vec<&'static str> {
        self.says(Side::Agent, message, expected)
    }

    #[track_caller]
    fn client(&mut self, message: Value, expected: &[&str]) -> Vec<&'static str> {
        self.says(Side::Client, message, expected)
    }

    #[track_caller]
    fn says(&mut self, by: Side, mut message: Value, expected: &[&str]) -> Vec<&'static str> {
        message["jsonrpc"] = json!("2.0");
        let line = message.to_string();
        let translation = self.0.line(by, &line).unwrap();
        let said: Vec<_> = translation.lines.iter().map(|line| short(line.by, &line.text)).collect();
        assert_eq!(said, expected);
        translation.losses.iter().map(|loss| loss.kind.name()).collect()
    }
}

/// The short form of a line: its receiver and its kind.
fn short(by: Side, line: &str) -> String {
    let message: Value = serde_json::from_str(line).unwrap();
    let to = if by == Side::Agent { "client" } else { "agent" };
    let said = match message["method"].as_str() {
        Some("session/update") => {
            let update = &message["params"]["update"];
            let mut words = vec![update["sessionUpdate"].as_str().unwrap().to_owned()];
            for name in ["messageId", "state", "stopReason", "stop_reason"] {
                words.extend(update[name].as_str().map(str::to_owned));
            }
            let content =
                if update["content"].is_array() { &update["content"][0] } else { &update["content"] };
            words.extend(content["text"].as_str().map(|text| format!("{text:?}")));
            words.join(" ")
        }
        Some(method) => format!("{method} {}", message["id"]),
        None if message.get("result").is_some() => format!("{} = {}", message["id"], message["result"]),
        None => format!("{} failed {}", message["id"], message["error"]),
    };
    format!("{to}: {said}")
}

fn prompt(id: u8, text: &str) -> Value {
    json!({ "id": id, "method": "session/prompt", "params": { "sessionId": "s", "prompt": [{ "type": "text", "text": text }] } })
}

#[expect(clippy::needless_pass_by_value, reason = "it is always handed a value that was just made")]
fn update(update: Value) -> Value {
    json!({ "method": "session/update", "params": { "sessionId": "s", "update": update } })
}

fn state(state: &str) -> Value {
    update(json!({ "sessionUpdate": "state_update", "state": state }))
}

fn user_message(id: &str, text: &str) -> Value {
    update(
        json!({ "sessionUpdate": "user_message", "messageId": id, "content": [{ "type": "text", "text": text }] }),
    )
}

fn user_chunk(id: &str, text: &str) -> Value {
    update(
        json!({ "sessionUpdate": "user_message_chunk", "messageId": id, "content": { "type": "text", "text": text } }),
    )
}

fn idle() -> Value {
    update(json!({ "sessionUpdate": "state_update", "state": "idle", "stopReason": "end_turn" }))
}

fn permission(id: u8) -> Value {
    json!({ "id": id, "method": "session/request_permission", "params": {
        "sessionId": "s", "toolCall": { "toolCallId": "t", "title": "Run" },
        "options": [{ "optionId": "y", "name": "Yes", "kind": "allow_once" }]
    } })
}

/// The lines for a v2 client whose prompt to a v1 agent starts a turn.
fn begun(id: u8, text: &str) -> Vec<String> {
    vec![
        format!(r#"client: {id} = {{"messageId":"parlor-{id}"}}"#),
        format!("client: user_message parlor-{id} {text:?}"),
        "client: state_update running".to_owned(),
    ]
}

/// Two prompts at once to a v1 agent: the second waits, as v2 has it, until the first one's turn has ended.
fn overlapping() -> Relay {
    let mut relay = Relay::between(V1, V2);
    let first = [vec!["agent: session/prompt 1".to_owned()], begun(1, "A")].concat();
    relay.client(prompt(1, "A"), &first.iter().map(String::as_str).collect::<Vec<_>>());
    relay.client(prompt(2, "B"), &["agent: session/prompt 2"]);
    relay
}

fn line(mut message: Value) -> String {
    message["jsonrpc"] = json!("2.0");
    message.to_string()
}

fn maybe_named_chunk(kind: &str, id: Option<&str>, text: &str) -> Value {
    let mut chunk = json!({ "sessionUpdate": kind, "content": { "type": "text", "text": text } });
    if let Some(id) = id {
        chunk["messageId"] = json!(id);
    }
    update(chunk)
}
