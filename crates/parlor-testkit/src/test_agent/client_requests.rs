//! Steps that send requests to the client.

use parlor_json::{Json, ObjectWriter};
use parlor_wire::{RequestId, RpcError, cancel_line, code, write};

use super::encode::{Encoder, Tool, tool_fields};
use super::json::{self, list};
use super::session::Event;
use super::turn::{End, Turn};

/// The response of a client.
type Response = Result<Json, RpcError>;

/// The options of a permission request: id, name and kind.
const OPTIONS: [(&str, &str, &str); 3] = [
    ("allow-once", "Allow once", "allow_once"),
    ("allow-always", "Always allow", "allow_always"),
    ("reject-once", "Reject", "reject_once"),
];

impl Turn {
    /// Sends a request and waits for the response. If the turn is cancelled meanwhile, cancels the request.
    pub(super) fn request(&self, method: &str, params: String) -> Result<Response, End> {
        let Some(id) = self.send(method, params) else {
            return Ok(Err(RpcError::new(code::INTERNAL_ERROR, "too many open requests")));
        };
        self.agent.out.flush();
        loop {
            match self.events.recv() {
                Ok(Event::Response(to, answer)) if to == id => return Ok(answer),
                Ok(Event::Response(..) | Event::Output(_) | Event::Steered(_)) => {}
                Ok(Event::Cancel) => {
                    self.agent.out.line(&cancel_line(&id));
                    return Err(End::Cancelled);
                }
                // Does not happen: the turn holds a sender.
                Err(_) => return Err(End::Cancelled),
            }
        }
    }

    /// Sends a request without waiting for the response.
    pub(super) fn send(&self, method: &str, params: String) -> Option<RequestId> {
        let id = self.agent.client_requests().register(self.sender.clone()).ok()?;
        self.agent.out.line(&write::request(&id, method, Some(json::value(params).raw())));
        Some(id)
    }

    /// Starts the params of a request about this session.
    pub(super) fn session_params(&self) -> ObjectWriter {
        ObjectWriter::new().str("sessionId", &self.session.id)
    }

    /// Sends a tool call that needs permission. With `closes`, a cancelled tool call is reported as ended.
    pub(super) fn permission(&mut self, title: &str, closes: bool) -> Result<(), End> {
        let id = self.agent.new_id();
        let tool = Tool {
            id: &id,
            title: Some(title),
            kind: Some("delete"),
            status: Some("pending"),
            ..Tool::default()
        };
        self.update(&self.encoder.tool_call(&tool));
        let choice = |(id, name, kind): &(&str, &str, &str)| {
            ObjectWriter::new().str("optionId", id).str("name", name).str("kind", kind).finish()
        };
        let choices = list(OPTIONS.iter().map(choice));
        let call = tool_fields(ObjectWriter::new(), &tool).finish();
        let params = if self.encoder.is_v1() {
            self.session_params().raw("toolCall", &call)
        } else {
            let subject = ObjectWriter::new().str("type", "tool_call").raw("toolCall", &call).finish();
            self.session_params().str("title", title).raw("subject", &subject)
        };
        self.state("requires_action");
        let answer = self.request("session/request_permission", params.raw("options", &choices).finish());
        let ended = |status| Encoder::tool_update(&Tool { id: &id, status: Some(status), ..Tool::default() });
        let Ok(answer) = answer else {
            if closes {
                self.update(&ended(self.encoder.cancelled_status()));
            }
            return Err(End::Cancelled);
        };
        self.state("running");
        let outcome = answer.map(|answer| outcome(&answer));
        if !closes && matches!(outcome, Ok(None)) {
            return Err(End::Cancelled);
        }
        let is_allowed = matches!(&outcome, Ok(Some(option)) if option.starts_with("allow"));
        self.update(&ended(if is_allowed { "completed" } else { "failed" }));
        match outcome {
            Ok(Some(option)) => self.send_message(&format!("You chose {option}.")),
            Ok(None) => Err(End::Cancelled),
            Err(error) => self.send_message(&format!("Asking failed: {error}")),
        }
    }

    /// Sends a form for the user.
    pub(super) fn elicit(&mut self) -> Result<(), End> {
        if !self.client.has_capability(&["elicitation", "form"]) {
            return self.send_message("This client shows no forms.");
        }
        let schema = r#"{"type":"object","properties":{"name":{"type":"string","title":"Your name"},"sugar":{"type":"boolean","title":"Sugar?"}},"required":["name"]}"#;
        let params = self.session_params().str("mode", "form").str("message", "Who wants coffee?");
        self.state("requires_action");
        let answer = self.request("elicitation/create", params.raw("requestedSchema", schema).finish())?;
        self.state("running");
        self.report("Your answer", answer)
    }

    /// Reads a file through the client.
    pub(super) fn read(&mut self, path: &str) -> Result<(), End> {
        if !self.encoder.is_v1() || !self.client.has_capability(&["fs", "readTextFile"]) {
            return self.send_message("This client reads no files for me.");
        }
        let answer = self.request("fs/read_text_file", self.session_params().str("path", path).finish())?;
        match answer.map(|answer| answer.to_object().and_then(|file| file.get_string("content"))) {
            Ok(Some(content)) => self.send_message(&format!("{path} contains: {content}")),
            Ok(None) => self.send_message("The answer has no content."),
            Err(error) => self.send_message(&format!("Reading failed: {error}")),
        }
    }

    /// Writes a file through the client.
    pub(super) fn write(&mut self, path: &str, text: &str) -> Result<(), End> {
        if !self.encoder.is_v1() || !self.client.has_capability(&["fs", "writeTextFile"]) {
            return self.send_message("This client writes no files for me.");
        }
        let params = self.session_params().str("path", path).str("content", text).finish();
        match self.request("fs/write_text_file", params)? {
            Ok(_) => self.send_message(&format!("Wrote {} bytes to {path}.", text.len())),
            Err(error) => self.send_message(&format!("Writing failed: {error}")),
        }
    }

    /// Sends an extension request.
    pub(super) fn extension(&mut self, method: &str) -> Result<(), End> {
        let answer = self.request(method, self.session_params().finish())?;
        self.report("The answer", answer)
    }

    fn report(&mut self, what: &str, answer: Response) -> Result<(), End> {
        match answer {
            Ok(answer) => self.send_message(&format!("{what}: {}", write::one_line(answer.as_str()))),
            Err(error) => self.send_message(&format!("{what}: an error, {error}")),
        }
    }
}

/// Returns the selected option; `None` if the client cancelled.
fn outcome(answer: &Json) -> Option<String> {
    let outcome = answer.to_object()?.get_object("outcome")?;
    outcome.get_string("optionId")
}
