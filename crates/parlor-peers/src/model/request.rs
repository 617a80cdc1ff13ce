//! What the model is asked, read from the requests of the APIs.

use serde_json::{Map, Value, json};

/// An API of models.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Api {
    /// `POST /v1/messages`
    Anthropic,
    /// `POST /v1/responses`
    Responses,
    /// `POST /v1/chat/completions`
    Chat,
    /// `POST /v1beta/models/MODEL:generateContent` and `:streamGenerateContent`
    Gemini,
}

impl Api {
    pub(super) fn of_path(path: &str) -> Option<Self> {
        if path.ends_with("/messages") {
            Some(Self::Anthropic)
        } else if path.ends_with("/responses") {
            Some(Self::Responses)
        } else if path.ends_with("/chat/completions") {
            Some(Self::Chat)
        } else if path.ends_with(":generateContent") || path.ends_with(":streamGenerateContent") {
            Some(Self::Gemini)
        } else {
            None
        }
    }
}

/// One request to the model.
#[derive(Debug, Clone)]
pub struct ModelRequest {
    /// The API that it was sent to.
    pub api: Api,
    /// The model that the agent asks for.
    pub model: String,
    /// The text of the users' messages after the last message of the model.
    pub prompt: String,
    /// The text of the whole conversation: all that the model is given except the instructions and the tools.
    pub conversation: String,
    /// Whether it has the result of a tool that the model called for this prompt.
    pub has_tool_result: bool,
    /// The names of the tools that the model may call.
    pub tools: Vec<String>,
    /// Whether the response is a stream of events.
    pub is_streamed: bool,
    /// The schema of the response, if it has to be JSON.
    pub(super) schema: Option<Value>,
}

/// One message of the conversation.
struct Turn {
    is_user: bool,
    text: String,
    is_result: bool,
}

impl ModelRequest {
    /// Whether the agent made it for itself, such as for a title: it offers no tools.
    pub fn is_auxiliary(&self) -> bool {
        self.tools.is_empty()
    }

    pub(super) fn read(api: Api, path: &str, body: &Value) -> Self {
        let turns = match api {
            Api::Anthropic => list(&body["messages"]).iter().map(anthropic_turn).collect(),
            Api::Chat => list(&body["messages"]).iter().filter_map(chat_turn).collect(),
            Api::Responses => responses_turns(&body["input"]),
            Api::Gemini => list(&body["contents"]).iter().map(gemini_turn).collect::<Vec<_>>(),
        };
        let has_tool_result = has_result_at_end(&turns);
        // The call that a result belongs to comes after the prompt.
        let end = turns.iter().rposition(|turn| turn.is_user && !turn.is_result).map_or(0, |last| last + 1);
        let start = turns[..end].iter().rposition(|turn| !turn.is_user).map_or(0, |last| last + 1);
        let prompt: Vec<_> =
            turns[start..end].iter().filter(|turn| !turn.is_result).map(|turn| turn.text.as_str()).collect();
        let conversation: Vec<_> = turns.iter().map(|turn| turn.text.as_str()).collect();
        let model = match api {
            Api::Gemini => {
                path.rsplit('/').next().and_then(|last| last.split(':').next()).unwrap_or_default()
            }
            Api::Anthropic | Api::Responses | Api::Chat => body["model"].as_str().unwrap_or_default(),
        };
        let generation = &body["generationConfig"];
        let schema = [
            &generation["responseJsonSchema"],
            &generation["responseSchema"],
            &body["output_config"]["format"]["schema"],
            &body["text"]["format"]["schema"],
        ];
        Self {
            api,
            model: model.to_owned(),
            prompt: prompt.join("\n"),
            conversation: conversation.join("\n"),
            has_tool_result,
            tools: tools(api, body),
            is_streamed: match api {
                Api::Gemini => path.ends_with(":streamGenerateContent"),
                Api::Anthropic | Api::Responses | Api::Chat => body["stream"] == true,
            },
            schema: schema.into_iter().find(|schema| schema.is_object()).cloned(),
        }
    }
}

/// Whether there is a result of a tool after the last message of a user. A message with a result may also have text, which agents
/// add for themselves.
fn has_result_at_end(turns: &[Turn]) -> bool {
    turns.iter().rev().take_while(|turn| turn.is_result || !turn.is_user).any(|turn| turn.is_result)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn anthropic_turn(message: &Value) -> Turn {
    let content = &message["content"];
    let is_result = list(content).iter().any(|block| block["type"] == "tool_result");
    Turn { is_user: message["role"] == "user", text: text(content), is_result }
}

fn chat_turn(message: &Value) -> Option<Turn> {
    let role = message["role"].as_str().unwrap_or_default();
    let is_instruction = matches!(role, "system" | "developer");
    let turn = Turn { is_user: role == "user", text: text(&message["content"]), is_result: role == "tool" };
    (!is_instruction).then_some(turn)
}

fn responses_turns(input: &Value) -> Vec<Turn> {
    if let Some(text) = input.as_str() {
        return vec![Turn { is_user: true, text: text.to_owned(), is_result: false }];
    }
    let items =
        list(input).iter().filter(|item| !matches!(item["role"].as_str(), Some("system" | "developer")));
    let turn = |item: &Value| Turn {
        is_user: item["role"] == "user",
        text: text(&item["content"]) + &text(&item["output"]),
        is_result: item["type"].as_str().is_some_and(|kind| kind.ends_with("_output")),
    };
    items.map(turn).collect()
}

fn gemini_turn(content: &Value) -> Turn {
    let parts = list(&content["parts"]);
    let is_result = parts.iter().any(|part| part.get("functionResponse").is_some());
    let texts: Vec<_> =
        parts.iter().map(|part| text(&part["text"]) + &text(&part["functionResponse"])).collect();
    Turn { is_user: content["role"] != "model", text: texts.join("\n"), is_result }
}

/// All text in the content of a message.
fn text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(text).collect::<Vec<_>>().join("\n"),
        Value::Object(block) => {
            let texts = ["text", "content", "thinking", "output", "response"]
                .iter()
                .filter_map(|name| block.get(*name));
            texts.map(text).collect::<Vec<_>>().join("\n")
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => String::new(),
    }
}

fn tools(api: Api, body: &Value) -> Vec<String> {
    let name = |value: &Value| value.as_str().map(str::to_owned);
    let tools = list(&body["tools"]).iter();
    match api {
        Api::Anthropic | Api::Responses => {
            tools.filter_map(|tool| name(&tool["name"]).or_else(|| name(&tool["type"]))).collect()
        }
        Api::Chat => tools.filter_map(|tool| name(&tool["function"]["name"])).collect(),
        Api::Gemini => {
            let declared = tools.flat_map(|tool| list(&tool["functionDeclarations"]));
            declared.filter_map(|tool| name(&tool["name"])).collect()
        }
    }
}

/// A value that fits a schema.
pub(super) fn example(schema: &Value) -> Value {
    if let Some(first) = list(&schema["enum"]).first() {
        return first.clone();
    }
    match schema["type"].as_str().unwrap_or_default().to_lowercase().as_str() {
        "object" => {
            let properties = schema["properties"].as_object().into_iter().flatten();
            let members: Map<String, Value> =
                properties.map(|(name, schema)| (name.clone(), example(schema))).collect();
            Value::Object(members)
        }
        "array" => json!([]),
        "boolean" => json!(false),
        "integer" | "number" => json!(1),
        _ => json!("Stand-in"),
    }
}
