//! The stand-in model, asked as agents ask it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use parlor_peers::model::{Api, Model, Reply};
use serde_json::{Value, json};

/// Sends a request: the status, and a reader of the body.
fn send(model: &Model, path: &str, body: &Value) -> (u16, BufReader<TcpStream>) {
    let address = model.url().replace("http://", "");
    let mut stream = TcpStream::connect(&address).unwrap();
    let body = body.to_string();
    // Version 1.0 has no chunks.
    let head = format!("POST {path} HTTP/1.0\r\nhost: {address}\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all((head + &body).as_bytes()).unwrap();
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let status = line.split(' ').nth(1).unwrap().parse().unwrap();
    while line != "\r\n" {
        line.clear();
        reader.read_line(&mut line).unwrap();
    }
    (status, reader)
}

/// The body of a response.
fn post(model: &Model, path: &str, body: &Value) -> String {
    let (status, mut reader) = send(model, path, body);
    assert_eq!(status, 200);
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    text
}

/// A request of each API with one prompt.
fn requests(prompt: &str) -> [(Api, &'static str, Value); 4] {
    let schema = json!({ "type": "object" });
    let messages = json!([{ "role": "user", "content": prompt }]);
    [
        (
            Api::Anthropic,
            "/v1/messages",
            json!({ "model": "m", "messages": messages, "tools": [{ "name": "run", "input_schema": schema }] }),
        ),
        (
            Api::Chat,
            "/v1/chat/completions",
            json!({ "model": "m", "messages": messages, "tools": [{ "type": "function", "function": { "name": "run" } }] }),
        ),
        (
            Api::Responses,
            "/v1/responses",
            json!({ "model": "m", "input": [{ "type": "message", "role": "user",
                "content": [{ "type": "input_text", "text": prompt }] }], "tools": [{ "type": "function", "name": "run" }] }),
        ),
        (
            Api::Gemini,
            "/v1beta/models/m:generateContent",
            json!({ "contents": [{ "role": "user", "parts": [{ "text": prompt }] }],
                "tools": [{ "functionDeclarations": [{ "name": "run" }] }] }),
        ),
    ]
}

fn streamed(path: &str, mut body: Value) -> (String, Value) {
    body["stream"] = json!(true);
    (path.replace(":generateContent", ":streamGenerateContent"), body)
}

/// The events of a stream.
fn events(text: &str) -> Vec<Value> {
    let data = text.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|data| *data != "[DONE]");
    data.map(|data| serde_json::from_str(data).unwrap()).collect()
}

#[test]
fn every_api_streams_thoughts_and_text_and_logs_the_request() {
    let model = Model::start().unwrap();
    model.reply("alpha", Reply::text(&["one ", "two"]).thinking("a thought"));
    for (index, (api, path, body)) in requests("say alpha").into_iter().enumerate() {
        let whole = post(&model, path, &body);
        assert!(whole.contains("one two") && whole.contains("a thought"), "{api:?}: {whole}");
        serde_json::from_str::<Value>(&whole).unwrap();
        let (path, body) = streamed(path, body);
        let stream = post(&model, &path, &body);
        assert!(stream.contains("a thought"), "{api:?}: {stream}");
        let texts: Vec<_> = events(&stream).iter().filter_map(delta).collect();
        assert_eq!(texts, ["one ", "two"], "{api:?}: {stream}");
        let logged = &model.requests()[2 * index + 1];
        assert_eq!((logged.api, logged.model.as_str(), logged.prompt.as_str()), (api, "m", "say alpha"));
        assert_eq!(logged.tools, ["run"]);
    }
}

/// The text that an event adds.
fn delta(event: &Value) -> Option<String> {
    let gemini = &event["candidates"][0]["content"]["parts"][0];
    let gemini = if gemini["thought"] == true { &Value::Null } else { &gemini["text"] };
    let chat = &event["choices"][0]["delta"]["content"];
    let anthropic = &event["delta"]["text"];
    let responses =
        if event["type"] == "response.output_text.delta" { &event["delta"] } else { &Value::Null };
    let texts = [gemini, chat, anthropic, responses].into_iter().filter_map(Value::as_str);
    texts.filter(|text| !text.is_empty()).map(str::to_owned).next()
}

#[test]
fn a_tool_is_called_once_and_its_result_gets_the_text() {
    let model = Model::start().unwrap();
    model.reply("beta", Reply::tool("run", json!({ "command": "ls" }), "it is done"));
    for (api, path, mut body) in requests("beta") {
        let call = post(&model, path, &body);
        assert!(
            call.contains("run") && call.contains("ls") && !call.contains("it is done"),
            "{api:?}: {call}"
        );
        let (list, items) = match api {
            Api::Anthropic => (
                "messages",
                vec![
                    json!({ "role": "assistant", "content": [{ "type": "tool_use", "id": "t", "name": "run", "input": {} }] }),
                    json!({ "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "t", "content": "files" },
                        { "type": "text", "text": "a note of the agent" }] }),
                ],
            ),
            Api::Chat => (
                "messages",
                vec![
                    json!({ "role": "assistant", "content": null, "tool_calls": [] }),
                    json!({ "role": "tool", "tool_call_id": "t", "content": "files" }),
                ],
            ),
            Api::Responses => (
                "input",
                vec![
                    json!({ "type": "function_call", "name": "run", "arguments": "{}", "call_id": "t" }),
                    json!({ "type": "function_call_output", "call_id": "t", "output": "files" }),
                ],
            ),
            Api::Gemini => (
                "contents",
                vec![
                    json!({ "role": "model", "parts": [{ "functionCall": { "name": "run", "args": {} } }] }),
                    json!({ "role": "user", "parts": [{ "functionResponse": { "name": "run", "response": { "output": "files" } } }] }),
                ],
            ),
        };
        body[list].as_array_mut().unwrap().extend(items);
        let text = post(&model, path, &body);
        assert!(text.contains("it is done"), "{api:?}: {text}");
        let logged = model.requests().pop().unwrap();
        assert!(logged.has_tool_result && logged.conversation.contains("files"), "{logged:?}");
    }
}

#[test]
fn a_tool_of_a_namespace_is_called_with_both_names() {
    let model = Model::start().unwrap();
    model.reply("beta", Reply::tool("agents.spawn", json!({ "message": "look" }), "it is done"));
    let (_, path, body) = requests("beta").into_iter().find(|(api, ..)| *api == Api::Responses).unwrap();
    let response: Value = serde_json::from_str(&post(&model, path, &body)).unwrap();
    let call = &response["output"][0];
    assert_eq!((&call["namespace"], &call["name"]), (&json!("agents"), &json!("spawn")), "{response}");
    model.reply("beta", Reply::tool("run", json!({}), "it is done"));
    let response: Value = serde_json::from_str(&post(&model, path, &body)).unwrap();
    assert_eq!(response["output"][0].get("namespace"), None, "{response}");
}

#[test]
fn a_held_reply_waits_after_its_first_part_until_it_is_released() {
    let model = Model::start().unwrap();
    for (api, path, body) in requests("gamma") {
        let hold = model.reply_held("gamma", Reply::text(&["first", "second"]));
        let (path, body) = streamed(path, body);
        let (_, mut reader) = send(&model, &path, &body);
        let mut line = String::new();
        while !line.contains("first") {
            line.clear();
            assert_ne!(reader.read_line(&mut line).unwrap(), 0, "{api:?}");
        }
        reader.get_ref().set_nonblocking(true).unwrap();
        let mut early = Vec::new();
        let _ = reader.read_to_end(&mut early);
        assert!(!String::from_utf8_lossy(&early).contains("second"), "{api:?}");
        reader.get_ref().set_nonblocking(false).unwrap();
        hold.release();
        let mut rest = String::new();
        reader.read_to_string(&mut rest).unwrap();
        assert!(rest.contains("second"), "{api:?}: {rest}");
    }
}

#[test]
fn errors_unknown_prompts_and_requests_without_tools_have_replies_of_their_own() {
    let model = Model::start().unwrap();
    model.reply("delta", Reply::error(529, "overloaded"));
    for (api, path, mut body) in requests("delta") {
        let (status, mut reader) = send(&model, path, &body);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(status, 529, "{api:?}");
        assert!(text.contains("overloaded"), "{api:?}: {text}");
        body.as_object_mut().unwrap().remove("tools");
        assert!(post(&model, path, &body).contains("title"), "{api:?}");
    }
    for (api, path, body) in requests("something else") {
        assert!(post(&model, path, &body).contains("has no reply"), "{api:?}");
    }
    let (status, _) = send(&model, "/nowhere", &json!({}));
    assert_eq!(status, 404);
    assert_eq!(model.other_requests(), ["POST /nowhere"]);
}

#[test]
fn the_last_word_of_the_last_prompt_chooses_the_reply() {
    let model = Model::start().unwrap();
    model.reply("alpha", Reply::text(&["of alpha"]));
    model.reply("beta", Reply::text(&["of beta"]));
    let tools = json!([{ "name": "run" }]);
    let earlier = json!({ "tools": tools, "messages": [{ "role": "user", "content": "beta" },
        { "role": "assistant", "content": "of beta" }, { "role": "user", "content": "alpha" }] });
    assert!(post(&model, "/v1/messages", &earlier).contains("of alpha"));
    let both =
        json!({ "tools": tools, "messages": [{ "role": "user", "content": "after alpha comes beta" }] });
    assert!(post(&model, "/v1/messages", &both).contains("of beta"));
    // A prompt that was cancelled has no answer.
    let cancelled = json!({ "tools": tools, "messages": [{ "role": "user", "content": "beta" },
        { "role": "user", "content": "alpha" }] });
    assert!(post(&model, "/v1/messages", &cancelled).contains("of alpha"));
}
