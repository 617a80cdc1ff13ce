use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use parlor_dialect::live;
use parlor_json::{Json, JsonStr, Object, ObjectWriter};

use crate::Failure;
use crate::session::{Session, fresh};
use crate::update::{array, text_block, update};

/// A tool at work. One that is not over when the turn ends has failed, or was cancelled with it.
#[derive(Debug)]
pub struct ToolCall {
    session: Session,
    id: String,
    title: String,
}

/// A tool that is about to work.
#[derive(Debug)]
#[must_use = "it is shown when it starts"]
pub struct ToolCallBuilder {
    session: Session,
    title: String,
    kind: Option<String>,
    files: Vec<String>,
    input: Option<Json>,
}

/// A terminal of the agent's, for people to look at. One in which something still runs when the turn ends has ended too.
#[derive(Debug)]
pub struct Terminal {
    session: Session,
    id: String,
}

/// One of the choices that a person has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Choice {
    /// This once.
    AllowOnce,
    /// From now on.
    AllowAlways,
    /// Not this time.
    RejectOnce,
    /// Never.
    RejectAlways,
}

impl ToolCallBuilder {
    pub(crate) fn new(session: Session, title: String) -> Self {
        Self { session, title, kind: None, files: Vec::new(), input: None }
    }

    /// What sort of thing it does: `read`, `edit`, `delete`, `move`, `search`, `execute`, `think`, `fetch`, `other`.
    pub fn kind(mut self, kind: impl Into<String>) -> Self {
        self.kind = Some(kind.into());
        self
    }

    /// A file that it is about.
    pub fn file(mut self, path: impl Into<String>) -> Self {
        self.files.push(path.into());
        self
    }

    /// What the tool is given.
    pub fn input(mut self, input: Json) -> Self {
        self.input = Some(input);
        self
    }

    /// Shows it, at work.
    pub async fn start(self) -> ToolCall {
        let Self { session, title, kind, files, input } = self;
        let id = fresh();
        session.end_message();
        let shown = update("tool_call_update").str("toolCallId", &id).str("title", &title);
        let mut shown = shown.optional_str("kind", kind.as_deref()).str("status", "in_progress");
        if !files.is_empty() {
            let places: Vec<_> =
                files.iter().map(|path| ObjectWriter::new().str("path", path).finish()).collect();
            shown = shown.raw("locations", &array(&places));
        }
        if let Some(input) = &input {
            shown = shown.raw("rawInput", input.as_str());
        }
        session.tell(&shown.finish()).await;
        session.begin_call(&id);
        ToolCall { session, id, title }
    }
}

impl ToolCall {
    /// Its id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Shows words of it.
    pub async fn say(&self, text: &str) {
        self.content(&ObjectWriter::new().str("type", "content").raw("content", &text_block(text)).finish())
            .await;
    }

    /// Shows a changed file; without `old` it is new.
    pub async fn diff(&self, path: &str, old: Option<&str>, new: &str) {
        self.content(live::diff(path, old, new).as_str()).await;
    }

    /// Shows a terminal.
    pub async fn terminal(&self, terminal: &Terminal) {
        self.content(&ObjectWriter::new().str("type", "terminal").str("terminalId", &terminal.id).finish())
            .await;
    }

    /// Asks a person whether the tool may do it. `None` if nobody decided, or no client can be asked, which mostly is a
    /// reason to stop.
    pub async fn ask(&self, choices: &[Choice]) -> Result<Option<Choice>, Failure> {
        let options: Vec<_> = choices
            .iter()
            .map(|choice| {
                let (id, name) = choice.names();
                ObjectWriter::new().str("optionId", id).str("name", name).str("kind", id).finish()
            })
            .collect();
        let call = ObjectWriter::new().str("toolCallId", &self.id).finish();
        let subject = ObjectWriter::new().str("type", "tool_call").raw("toolCall", &call).finish();
        let params = self.session.about().str("title", &self.title).raw("subject", &subject);
        let params = params.raw("options", &array(&options));
        let Some(answer) = self.session.ask("session/request_permission", params).await? else {
            return Ok(None);
        };
        let outcome = answer.get("outcome").and_then(|outcome| Object::parse(outcome.raw()).ok());
        let chosen = outcome.and_then(|outcome| JsonStr::from_raw(outcome.get("optionId")?.raw()));
        Ok(chosen
            .and_then(|chosen| choices.iter().copied().find(|choice| choice.names().0 == chosen.to_text())))
    }

    /// It has done its work.
    pub async fn complete(self) {
        self.end("completed").await;
    }

    /// It says what came of it, as a value for programs to look at.
    pub async fn output(&self, output: &Json) {
        let update = update("tool_call_update").str("toolCallId", &self.id);
        self.session.tell(&update.raw("rawOutput", output.as_str()).finish()).await;
    }

    /// It could not do its work.
    pub async fn fail(self) {
        self.end("failed").await;
    }

    async fn content(&self, content: &str) {
        let chunk = update("tool_call_content_chunk").str("toolCallId", &self.id);
        self.session.tell(&chunk.raw("content", content).finish()).await;
    }

    async fn end(&self, status: &str) {
        let update = update("tool_call_update").str("toolCallId", &self.id).str("status", status);
        self.session.tell(&update.finish()).await;
        self.session.end_call(&self.id);
    }
}

impl Terminal {
    pub(crate) fn new(session: Session, id: String) -> Self {
        Self { session, id }
    }

    /// Shows what was written.
    pub async fn output(&self, bytes: &[u8]) {
        let chunk = update("terminal_output_chunk").str("terminalId", &self.id);
        self.session.tell(&chunk.str("data", &BASE64_STANDARD.encode(bytes)).finish()).await;
    }

    /// The command has ended.
    pub async fn exit(self, code: i32) {
        self.end(ObjectWriter::new().raw("exitCode", &code.to_string())).await;
    }

    /// The command was ended by a signal, such as `SIGKILL`.
    pub async fn killed(self, signal: &str) {
        self.end(ObjectWriter::new().str("signal", signal)).await;
    }

    async fn end(self, status: ObjectWriter) {
        let status = status.finish();
        let update = update("terminal_update").str("terminalId", &self.id).raw("exitStatus", &status);
        self.session.tell(&update.finish()).await;
        self.session.end_terminal(&self.id);
    }
}

impl Choice {
    /// Whether it allows what was asked.
    pub fn allows(self) -> bool {
        matches!(self, Self::AllowOnce | Self::AllowAlways)
    }

    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::AllowOnce => ("allow_once", "Allow once"),
            Self::AllowAlways => ("allow_always", "Always allow"),
            Self::RejectOnce => ("reject_once", "Reject"),
            Self::RejectAlways => ("reject_always", "Always reject"),
        }
    }
}
