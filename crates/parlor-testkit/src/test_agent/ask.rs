//! Steps that need the client's answer.

use parlor_json::{Json, ObjectWriter};
use parlor_wire::{RequestId, RpcError, cancel_line, code, write};

use super::json::{self, list};
use super::say::{Tool, Voice, tool_fields};
use super::session::Event;
use super::turn::{End, Turn};

/// What a client said to a request.
type Answer = Result<Json, RpcError>;

/// The ways a permission can be given or not.
const CHOICES: [(&str, &str, &str); 3] = [
    ("allow-once", "Allow once", "allow_once"),
    ("allow-always", "Always allow", "allow_always"),
    ("reject-once", "Reject", "reject_once"),
];

impl Turn {
    /// Asks the client and waits for the answer, unless the turn is cancelled: then the question is taken back.
    pub(super) fn request(&self, method: &str, params: String) -> Result<Answer, End> {
        let Some(id) = self.send(method, params) else {
            return Ok(Err(RpcError::new(code::INTERNAL_ERROR, "too many questions are open")));
        };
        self.agent.out.flush();
        loop {
            match self.events.recv() {
                Ok(Event::Answer(to, answer)) if to == id => return Ok(answer),
                Ok(Event::Answer(..) | Event::Output(_) | Event::Steered(_)) => {}
                Ok(Event::Cancel) => {
                    self.agent.out.line(&cancel_line(&id));
                    return Err(End::Cancelled);
                }
                // This turn holds a sender itself, so there is always one.
                Err(_) => return Err(End::Cancelled),
            }
        }
    }

    /// Asks the client without waiting for an answer.
    pub(super) fn send(&self, method: &str, params: String) -> Option<RequestId> {
        let id = self.agent.asked().register(self.sender.clone()).ok()?;
        self.agent.out.line(&write::request(&id, method, Some(json::value(params).raw())));
        Some(id)
    }

    /// The params of a request about this session, to be continued.
    pub(super) fn about_session(&self) -> ObjectWriter {
        ObjectWriter::new().str("sessionId", &self.session.id)
    }

    /// A tool call that may only be done if the user agrees. `closes`: it is said to have ended when it is cancelled.
    pub(super) fn permission(&mut self, title: &str, closes: bool) -> Result<(), End> {
        let id = self.agent.fresh_id();
        let tool = Tool {
            id: &id,
            title: Some(title),
            kind: Some("delete"),
            status: Some("pending"),
            ..Tool::default()
        };
        self.update(&self.voice.tool_begins(&tool));
        let choice = |(id, name, kind): &(&str, &str, &str)| {
            ObjectWriter::new().str("optionId", id).str("name", name).str("kind", kind).finish()
        };
        let choices = list(CHOICES.iter().map(choice));
        let call = tool_fields(ObjectWriter::new(), &tool).finish();
        let params = if self.voice.is_v1() {
            self.about_session().raw("toolCall", &call)
        } else {
            let subject = ObjectWriter::new().str("type", "tool_call").raw("toolCall", &call).finish();
            self.about_session().str("title", title).raw("subject", &subject)
        };
        self.state("requires_action");
        let answer = self.request("session/request_permission", params.raw("options", &choices).finish());
        let ended = |status| Voice::tool_goes_on(&Tool { id: &id, status: Some(status), ..Tool::default() });
        let Ok(answer) = answer else {
            if closes {
                self.update(&ended(self.voice.stopped()));
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
            Ok(Some(option)) => self.say(&format!("You chose {option}.")),
            Ok(None) => Err(End::Cancelled),
            Err(error) => self.say(&format!("Asking failed: {error}")),
        }
    }

    /// A form for the user.
    pub(super) fn elicit(&mut self) -> Result<(), End> {
        if !self.peer.offers(&["elicitation", "form"]) {
            return self.say("This client shows no forms.");
        }
        let schema = r#"{"type":"object","properties":{"name":{"type":"string","title":"Your name"},"sugar":{"type":"boolean","title":"Sugar?"}},"required":["name"]}"#;
        let params = self.about_session().str("mode", "form").str("message", "Who wants coffee?");
        self.state("requires_action");
        let answer = self.request("elicitation/create", params.raw("requestedSchema", schema).finish())?;
        self.state("running");
        self.report("Your answer", answer)
    }

    /// Reads a file through the client.
    pub(super) fn read(&mut self, path: &str) -> Result<(), End> {
        if !self.voice.is_v1() || !self.peer.offers(&["fs", "readTextFile"]) {
            return self.say("This client reads no files for me.");
        }
        let answer = self.request("fs/read_text_file", self.about_session().str("path", path).finish())?;
        match answer.map(|answer| answer.to_object().and_then(|file| file.get_string("content"))) {
            Ok(Some(content)) => self.say(&format!("{path} says: {content}")),
            Ok(None) => self.say("The answer has no content."),
            Err(error) => self.say(&format!("Reading failed: {error}")),
        }
    }

    /// Writes a file through the client.
    pub(super) fn write(&mut self, path: &str, text: &str) -> Result<(), End> {
        if !self.voice.is_v1() || !self.peer.offers(&["fs", "writeTextFile"]) {
            return self.say("This client writes no files for me.");
        }
        let params = self.about_session().str("path", path).str("content", text).finish();
        match self.request("fs/write_text_file", params)? {
            Ok(_) => self.say(&format!("Wrote {} bytes to {path}.", text.len())),
            Err(error) => self.say(&format!("Writing failed: {error}")),
        }
    }

    /// A request that no version of the protocol knows.
    pub(super) fn extension(&mut self, method: &str) -> Result<(), End> {
        let answer = self.request(method, self.about_session().finish())?;
        self.report("The answer", answer)
    }

    fn report(&mut self, what: &str, answer: Answer) -> Result<(), End> {
        match answer {
            Ok(answer) => self.say(&format!("{what}: {}", write::one_line(answer.as_str()))),
            Err(error) => self.say(&format!("{what}: an error, {error}")),
        }
    }
}

/// The option that was chosen; `None` if the client cancelled.
fn outcome(answer: &Json) -> Option<String> {
    let outcome = answer.to_object()?.get_object("outcome")?;
    outcome.get_string("optionId")
}
