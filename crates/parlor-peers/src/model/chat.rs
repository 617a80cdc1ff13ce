//! Responses of the `OpenAI` chat completions API, with the reasoning that other providers have added to it.

use serde_json::{Value, json};

use super::{Answer, AnswerBody, Event, ModelRequest, unique};

/// The events of a stream, and the same as one response.
pub(super) fn write(request: &ModelRequest, answer: &Answer) -> (Vec<Event>, Value) {
    let usage = json!({ "prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18 });
    let id = unique("chatcmpl");
    let response = |object: &str, choices: Value| json!({ "id": id, "object": object, "created": 1, "model": request.model, "choices": choices });
    let chunk = |delta: Value, finish: Value| {
        response("chat.completion.chunk", json!([{ "index": 0, "delta": delta, "finish_reason": finish }]))
    };
    let mut events =
        vec![Event::new(None, chunk(json!({ "role": "assistant", "content": "" }), Value::Null))];
    let mut message = json!({ "role": "assistant", "content": null });
    if let Some(thinking) = &answer.thinking {
        events.push(Event::new(None, chunk(json!({ "reasoning_content": thinking }), Value::Null)));
        message["reasoning_content"] = json!(thinking);
    }
    let finish = match &answer.body {
        AnswerBody::Text(parts) => {
            let parts_sent =
                parts.iter().map(|part| Event::text(None, chunk(json!({ "content": part }), Value::Null)));
            events.extend(parts_sent);
            message["content"] = json!(parts.concat());
            "stop"
        }
        AnswerBody::Tool { name, arguments } => {
            let call = json!({ "index": 0, "id": unique("call"), "type": "function",
                "function": { "name": name, "arguments": arguments.to_string() } });
            events.push(Event::new(None, chunk(json!({ "tool_calls": [call] }), Value::Null)));
            message["tool_calls"] = json!([call]);
            "tool_calls"
        }
    };
    events.push(Event::new(None, chunk(json!({}), json!(finish))));
    let mut last = response("chat.completion.chunk", json!([]));
    last["usage"] = usage.clone();
    events.push(Event::new(None, last));
    events.push(Event::new(None, json!("[DONE]")));
    let mut whole =
        response("chat.completion", json!([{ "index": 0, "message": message, "finish_reason": finish }]));
    whole["usage"] = usage;
    (events, whole)
}
