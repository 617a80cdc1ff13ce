//! Responses of the `OpenAI` responses API.

use serde_json::{Value, json};

use super::{Answer, AnswerBody, Event, ModelRequest, unique};

/// The events of a stream, and the same as one response.
pub(super) fn write(request: &ModelRequest, answer: &Answer) -> (Vec<Event>, Value) {
    let mut response = json!({ "id": unique("resp"), "object": "response", "created_at": 1, "model": request.model,
        "status": "in_progress", "output": [], "usage": null, "error": null, "incomplete_details": null,
        "parallel_tool_calls": false, "tool_choice": "auto", "tools": [], "metadata": {} });
    let mut writer = Writer::default();
    writer.event("response.created", json!({ "response": response }));
    if let Some(thinking) = &answer.thinking {
        let id = unique("rs");
        let item = |summary: Value| json!({ "type": "reasoning", "id": id, "summary": summary });
        let place = json!({ "item_id": id, "summary_index": 0 });
        writer.start(&item(json!([])));
        writer.in_item(
            "response.reasoning_summary_part.added",
            &place,
            json!({ "part": { "type": "summary_text", "text": "" } }),
        );
        writer.in_item("response.reasoning_summary_text.delta", &place, json!({ "delta": thinking }));
        writer.finish(item(json!([{ "type": "summary_text", "text": thinking }])));
    }
    match &answer.body {
        AnswerBody::Text(parts) => {
            let id = unique("msg");
            let item = |status: &str, content: Value| json!({ "type": "message", "id": id, "role": "assistant", "status": status, "content": content });
            let text = |text: &str| json!({ "type": "output_text", "text": text, "annotations": [] });
            let place = json!({ "item_id": id, "content_index": 0 });
            writer.start(&item("in_progress", json!([])));
            writer.in_item("response.content_part.added", &place, json!({ "part": text("") }));
            for part in parts {
                writer.in_item("response.output_text.delta", &place, json!({ "delta": part }));
            }
            writer.in_item("response.output_text.done", &place, json!({ "text": parts.concat() }));
            writer.finish(item("completed", json!([text(&parts.concat())])));
        }
        AnswerBody::Tool { name, arguments } => {
            let (id, call) = (unique("fc"), unique("call"));
            let arguments = arguments.to_string();
            let (namespace, name) = name
                .split_once('.')
                .map_or((None, name.as_str()), |(namespace, name)| (Some(namespace), name));
            let item = |status: &str, arguments: &str| {
                let mut item = json!({ "type": "function_call", "id": id, "call_id": call, "name": name, "arguments": arguments, "status": status });
                if let Some(namespace) = namespace {
                    item["namespace"] = json!(namespace);
                }
                item
            };
            let place = json!({ "item_id": id });
            writer.start(&item("in_progress", ""));
            writer.in_item("response.function_call_arguments.delta", &place, json!({ "delta": arguments }));
            writer.in_item(
                "response.function_call_arguments.done",
                &place,
                json!({ "arguments": arguments }),
            );
            writer.finish(item("completed", &arguments));
        }
    }
    response["status"] = json!("completed");
    response["output"] = Value::Array(std::mem::take(&mut writer.output));
    response["usage"] = json!({ "input_tokens": 11, "input_tokens_details": { "cached_tokens": 0 },
        "output_tokens": 7, "output_tokens_details": { "reasoning_tokens": 0 }, "total_tokens": 18 });
    writer.event("response.completed", json!({ "response": response }));
    (writer.events, response)
}

#[derive(Default)]
struct Writer {
    events: Vec<Event>,
    output: Vec<Value>,
}

impl Writer {
    fn event(&mut self, name: &'static str, mut data: Value) {
        data["type"] = json!(name);
        data["sequence_number"] = json!(self.events.len());
        let is_text = name == "response.output_text.delta";
        self.events.push(Event { name: Some(name), data, is_text });
    }

    /// An event about the item of the output that is being written.
    fn in_item(&mut self, name: &'static str, place: &Value, mut data: Value) {
        for (key, value) in place.as_object().into_iter().flatten() {
            data[key] = value.clone();
        }
        data["output_index"] = json!(self.output.len());
        self.event(name, data);
    }

    fn start(&mut self, item: &Value) {
        self.in_item("response.output_item.added", &Value::Null, json!({ "item": item }));
    }

    fn finish(&mut self, item: Value) {
        self.in_item("response.output_item.done", &Value::Null, json!({ "item": item }));
        self.output.push(item);
    }
}
