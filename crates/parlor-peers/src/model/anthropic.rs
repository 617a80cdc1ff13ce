//! Responses of the Anthropic messages API.

use serde_json::{Value, json};

use super::{Answer, AnswerBody, Event, ModelRequest, unique};

/// The events of a stream, and the same as one response.
pub(super) fn write(request: &ModelRequest, answer: &Answer) -> (Vec<Event>, Value) {
    let usage = json!({ "input_tokens": 11, "output_tokens": 7, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0 });
    let id = unique("msg");
    let message = |content: Value, stop: Value| {
        json!({ "id": id, "type": "message", "role": "assistant", "model": request.model, "content": content,
            "stop_reason": stop, "stop_sequence": null, "usage": usage })
    };
    let mut writer = Writer { events: Vec::new(), blocks: Vec::new() };
    let start = json!({ "type": "message_start", "message": message(json!([]), Value::Null) });
    writer.events.push(Event::new(Some("message_start"), start));
    if let Some(thinking) = &answer.thinking {
        let signature = "c3RhbmQtaW4=";
        writer.block(
            &json!({ "type": "thinking", "thinking": "", "signature": "" }),
            &[
                json!({ "type": "thinking_delta", "thinking": thinking }),
                json!({ "type": "signature_delta", "signature": signature }),
            ],
            json!({ "type": "thinking", "thinking": thinking, "signature": signature }),
        );
    }
    let stop = match &answer.body {
        AnswerBody::Text(parts) => {
            let deltas: Vec<_> =
                parts.iter().map(|part| json!({ "type": "text_delta", "text": part })).collect();
            writer.block(
                &json!({ "type": "text", "text": "" }),
                &deltas,
                json!({ "type": "text", "text": parts.concat() }),
            );
            "end_turn"
        }
        AnswerBody::Tool { name, arguments } => {
            let id = unique("toolu");
            writer.block(
                &json!({ "type": "tool_use", "id": id, "name": name, "input": {} }),
                &[json!({ "type": "input_json_delta", "partial_json": arguments.to_string() })],
                json!({ "type": "tool_use", "id": id, "name": name, "input": arguments }),
            );
            "tool_use"
        }
    };
    let delta = json!({ "type": "message_delta", "delta": { "stop_reason": stop, "stop_sequence": null }, "usage": usage });
    writer.events.push(Event::new(Some("message_delta"), delta));
    writer.events.push(Event::new(Some("message_stop"), json!({ "type": "message_stop" })));
    let whole = message(Value::Array(writer.blocks), json!(stop));
    (writer.events, whole)
}

struct Writer {
    events: Vec<Event>,
    blocks: Vec<Value>,
}

impl Writer {
    /// Adds a block of content: how it starts, what follows, and the whole.
    fn block(&mut self, start: &Value, deltas: &[Value], whole: Value) {
        let index = self.blocks.len();
        let start = json!({ "type": "content_block_start", "index": index, "content_block": start });
        self.events.push(Event::new(Some("content_block_start"), start));
        for delta in deltas {
            let data = json!({ "type": "content_block_delta", "index": index, "delta": delta });
            let event = if delta["type"] == "text_delta" { Event::text } else { Event::new };
            self.events.push(event(Some("content_block_delta"), data));
        }
        let stop = json!({ "type": "content_block_stop", "index": index });
        self.events.push(Event::new(Some("content_block_stop"), stop));
        self.blocks.push(whole);
    }
}
