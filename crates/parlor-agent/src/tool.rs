use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use parlor_dialect::live;
use parlor_json::{Json, JsonStr, Object};

use crate::Failure;
use crate::session::{Session, fresh};
use crate::text::{Text, list, words};

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
        let shown = Text::update("tool_call_update").str("toolCallId", &id).str("title", &title);
        let mut shown = shown.maybe("kind", kind.as_deref()).str("status", "in_progress");
        if !files.is_empty() {
            let places: Vec<_> = files.iter().map(|path| Text::new().str("path", path).end()).collect();
            shown = shown.raw("locations", &list(&places));
        }
        if let Some(input) = &input {
            shown = shown.raw("rawInput", input.as_str());
        }
        session.tell(&shown.end()).await;
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
        self.content(&Text::new().str("type", "content").raw("content", &words(text)).end()).await;
    }

    /// Shows a changed file; without `old` it is new.
    pub async fn diff(&self, path: &str, old: Option<&str>, new: &str) {
        self.content(live::diff(path, old, new).as_str()).await;
    }

    /// Shows a terminal.
    pub async fn terminal(&self, terminal: &Terminal) {
        self.content(&Text::new().str("type", "terminal").str("terminalId", &terminal.id).end()).await;
    }

    /// Asks a person whether the tool may do it. `None` if nobody decided, or no client can be asked, which mostly is a
    /// reason to stop.
    pub async fn ask(&self, choices: &[Choice]) -> Result<Option<Choice>, Failure> {
        let options: Vec<_> = choices
            .iter()
            .map(|choice| {
                let (id, name) = choice.names();
                Text::new().str("optionId", id).str("name", name).str("kind", id).end()
            })
            .collect();
        let call = Text::new().str("toolCallId", &self.id).end();
        let subject = Text::new().str("type", "tool_call").raw("toolCall", &call).end();
        let params = self.session.about().str("title", &self.title).raw("subject", &subject);
        let params = params.raw("options", &list(&options));
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
        let update = Text::update("tool_call_update").str("toolCallId", &self.id);
        self.session.tell(&update.raw("rawOutput", output.as_str()).end()).await;
    }

    /// It could not do its work.
    pub async fn fail(self) {
        self.end("failed").await;
    }

    async fn content(&self, content: &str) {
        let chunk = Text::update("tool_call_content_chunk").str("toolCallId", &self.id);
        self.session.tell(&chunk.raw("content", content).end()).await;
    }

    async fn end(&self, status: &str) {
        let update = Text::update("tool_call_update").str("toolCallId", &self.id).str("status", status);
        self.session.tell(&update.end()).await;
        self.session.end_call(&self.id);
    }
}

impl Terminal {
    pub(crate) fn new(session: Session, id: String) -> Self {
        Self { session, id }
    }

    /// Shows what was written.
    pub async fn output(&self, bytes: &[u8]) {
        let chunk = Text::update("terminal_output_chunk").str("terminalId", &self.id);
        self.session.tell(&chunk.str("data", &BASE64_STANDARD.encode(bytes)).end()).await;
    }

    /// The command has ended.
    pub async fn exit(self, code: i32) {
        self.end(Text::new().raw("exitCode", &code.to_string())).await;
    }

    /// The command was ended by a signal, such as `SIGKILL`.
    pub async fn killed(self, signal: &str) {
        self.end(Text::new().str("signal", signal)).await;
    }

    async fn end(self, status: Text) {
        let status = status.end();
        let update = Text::update("terminal_update").str("terminalId", &self.id).raw("exitStatus", &status);
        self.session.tell(&update.end()).await;
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
