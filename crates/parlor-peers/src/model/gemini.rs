//! Responses of the Gemini API.

use serde_json::{Value, json};

use super::{Answer, AnswerBody, Event, ModelRequest, unique};

/// The events of a stream, and the same as one response.
pub(super) fn write(request: &ModelRequest, answer: &Answer) -> (Vec<Event>, Value) {
    let id = unique("resp");
    let response = |parts: Value, is_last: bool| {
        let mut candidate = json!({ "index": 0, "content": { "role": "model", "parts": parts } });
        if is_last {
            candidate["finishReason"] = json!("STOP");
        }
        json!({ "candidates": [candidate], "responseId": id, "modelVersion": request.model,
            "usageMetadata": { "promptTokenCount": 11, "candidatesTokenCount": 7, "totalTokenCount": 18 } })
    };
    let mut events = Vec::new();
    let mut whole = Vec::new();
    if let Some(thinking) = &answer.thinking {
        let part = json!({ "text": thinking, "thought": true });
        events.push(Event::new(None, response(json!([part]), false)));
        whole.push(part);
    }
    match &answer.body {
        AnswerBody::Text(texts) => {
            for (index, text) in texts.iter().enumerate() {
                let is_last = index + 1 == texts.len();
                events.push(Event::text(None, response(json!([{ "text": text }]), is_last)));
            }
            whole.push(json!({ "text": texts.concat() }));
        }
        AnswerBody::Tool { name, arguments } => {
            let part = json!({ "functionCall": { "name": name, "args": arguments } });
            events.push(Event::new(None, response(json!([part]), true)));
            whole.push(part);
        }
    }
    let whole = response(Value::Array(whole), true);
    (events, whole)
}
