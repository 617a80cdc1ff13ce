use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use parlor_dialect::live;
use parlor_json::{Json, JsonStr, Object};
use parlor_session::{Content, MessageId, Role, SessionId, Transcript};

use crate::Failure;
use crate::host::{Line, fresh};
use crate::text::{Text, words};

/// One prompt that is being answered. Clones speak in the same turn.
#[derive(Clone)]
pub struct Turn {
    pub(crate) line: Arc<Line>,
    pub(crate) session: SessionId,
    pub(crate) cwd: PathBuf,
    pub(crate) message: MessageId,
    pub(crate) prompt: Content,
    pub(crate) state: Arc<Mutex<State>>,
}

/// What was begun in a turn and has to end with it.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// The message that is being said, and whose it is.
    open: Option<(Role, String)>,
    /// Tool calls that are not over.
    pub(crate) calls: BTreeSet<String>,
    /// How many questions have no answer yet.
    asking: usize,
}

/// A tool at work. One that is not over when the turn ends has failed.
pub struct ToolCall {
    turn: Turn,
    id: String,
}

/// A tool that is about to work.
pub struct ToolCallBuilder {
    turn: Turn,
    title: String,
    kind: Option<String>,
    files: Vec<String>,
    input: Option<Json>,
}

/// A terminal of the agent's, for people to look at.
pub struct Terminal {
    turn: Turn,
    id: String,
}

/// One step of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step<'a> {
    /// It is still to be done.
    Pending(&'a str),
    /// It is being worked on.
    InProgress(&'a str),
    /// It is done.
    Completed(&'a str),
}

/// One of the choices that a person has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

impl Turn {
    /// What the person says, as words.
    pub fn text(&self) -> String {
        self.prompt.to_text()
    }

    /// All that the person says: content blocks as the protocol has them.
    pub fn content(&self) -> &Content {
        &self.prompt
    }

    /// The message that the prompt is.
    pub fn message(&self) -> &MessageId {
        &self.message
    }

    /// The session.
    pub fn session(&self) -> &SessionId {
        &self.session
    }

    /// Where the session works.
    pub fn cwd(&self) -> &Path {
        &self.cwd
    }

    /// What was said in the session so far, the prompt included.
    pub async fn transcript(&self) -> Transcript {
        self.line.transcript(&self.session, &self.message).await
    }

    /// Says something, at the end of what was said last.
    pub async fn say(&self, text: &str) {
        self.speak(Role::Agent, &words(text)).await;
    }

    /// Thinks aloud.
    pub async fn think(&self, text: &str) {
        self.speak(Role::Thought, &words(text)).await;
    }

    /// Says a content block of any kind.
    pub async fn say_block(&self, block: &Json) {
        self.speak(Role::Agent, block.as_str()).await;
    }

    /// What is said next is a message of its own.
    pub fn end_message(&self) {
        self.state().open = None;
    }

    /// Begins to use a tool, which is shown by a title.
    pub fn tool(&self, title: impl Into<String>) -> ToolCallBuilder {
        let (kind, files, input) = (None, Vec::new(), None);
        ToolCallBuilder { turn: self.clone(), title: title.into(), kind, files, input }
    }

    /// Shows what is going to be done. There is one plan in a session.
    pub async fn plan(&self, steps: &[Step<'_>]) {
        let steps: Vec<_> = steps
            .iter()
            .map(|step| {
                let (text, status) = match step {
                    Step::Pending(text) => (text, "pending"),
                    Step::InProgress(text) => (text, "in_progress"),
                    Step::Completed(text) => (text, "completed"),
                };
                Text::new().str("content", text).str("priority", "medium").str("status", status).end()
            })
            .collect();
        let entries = format!("[{}]", steps.join(","));
        let plan = Text::new().str("type", "items").str("planId", "plan").raw("entries", &entries).end();
        self.update(&Text::update("plan_update").raw("plan", &plan).end()).await;
    }

    /// Opens a terminal that shows a command.
    pub async fn terminal(&self, command: &str) -> Terminal {
        let id = fresh();
        let cwd = self.cwd.to_string_lossy();
        let shown = Text::update("terminal_update").str("terminalId", &id).str("command", command);
        self.update(&shown.str("cwd", &cwd).end()).await;
        Terminal { turn: self.clone(), id }
    }

    /// Names the session. A person's own title stays.
    pub async fn title(&self, title: &str) {
        self.update(&Text::update("session_info_update").str("title", title).end()).await;
    }

    /// Changes the session's metadata, by top-level key; a null removes one.
    pub async fn meta(&self, patch: &Object) {
        let update = Text::update("session_info_update").raw("_meta", patch.to_json().as_str());
        self.update(&update.end()).await;
    }

    /// Says anything about the session, as an update of version 2 of the protocol.
    pub async fn update(&self, update: &str) {
        self.line.say(&live::update_line(&self.session, update, None)).await;
    }

    async fn speak(&self, role: Role, block: &str) {
        let (kind, id) = {
            let mut state = self.state();
            if state.open.as_ref().is_none_or(|(open, _)| *open != role) {
                state.open = Some((role, fresh()));
            }
            let id = state.open.as_ref().map(|(_, id)| id.clone()).unwrap_or_default();
            (if role == Role::Thought { "agent_thought_chunk" } else { "agent_message_chunk" }, id)
        };
        self.update(&Text::update(kind).str("messageId", &id).raw("content", block).end()).await;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn state_is(&self, state: &str) {
        self.update(&Text::update("state_update").str("state", state).end()).await;
    }
}

impl ToolCallBuilder {
    /// What sort of thing it does: `read`, `edit`, `delete`, `move`, `search`, `execute`, `think`, `fetch`, `other`.
    #[must_use]
    pub fn kind(mut self, kind: impl Into<String>) -> Self {
        self.kind = Some(kind.into());
        self
    }

    /// A file that it is about.
    #[must_use]
    pub fn file(mut self, path: impl Into<String>) -> Self {
        self.files.push(path.into());
        self
    }

    /// What the tool is given.
    #[must_use]
    pub fn input(mut self, input: Json) -> Self {
        self.input = Some(input);
        self
    }

    /// Shows it, at work.
    pub async fn start(self) -> ToolCall {
        let Self { turn, title, kind, files, input } = self;
        let id = fresh();
        turn.end_message();
        turn.state().calls.insert(id.clone());
        let shown = Text::update("tool_call_update").str("toolCallId", &id).str("title", &title);
        let mut shown = shown.maybe("kind", kind.as_deref()).str("status", "in_progress");
        if !files.is_empty() {
            let places: Vec<_> = files.iter().map(|path| Text::new().str("path", path).end()).collect();
            shown = shown.raw("locations", &format!("[{}]", places.join(",")));
        }
        if let Some(input) = &input {
            shown = shown.raw("rawInput", input.as_str());
        }
        turn.update(&shown.end()).await;
        ToolCall { turn, id }
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

    /// Asks a person whether the tool may do it. `None` if nobody decided, which mostly is a reason to stop.
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
        let params = Text::new()
            .raw("sessionId", self.turn.session.as_json().as_literal())
            .str("title", "Permission")
            .raw("subject", &subject)
            .raw("options", &format!("[{}]", options.join(",")))
            .end();
        self.turn.state().asking += 1;
        self.turn.state_is("requires_action").await;
        let answer = self.turn.line.ask("session/request_permission", &params).await;
        let is_last = {
            let mut state = self.turn.state();
            state.asking -= 1;
            state.asking == 0
        };
        if is_last {
            self.turn.state_is("running").await;
        }
        let answer = answer.map_err(Failure)?;
        let outcome = answer.get("outcome").and_then(|outcome| Object::parse(outcome.raw()).ok());
        let chosen = outcome.and_then(|outcome| JsonStr::from_raw(outcome.get("optionId")?.raw()));
        Ok(chosen
            .and_then(|chosen| choices.iter().copied().find(|choice| choice.names().0 == chosen.to_text())))
    }

    /// It has done its work.
    pub async fn complete(self) {
        self.end("completed").await;
    }

    /// It could not do its work.
    pub async fn fail(self) {
        self.end("failed").await;
    }

    async fn content(&self, content: &str) {
        let chunk = Text::update("tool_call_content_chunk").str("toolCallId", &self.id);
        self.turn.update(&chunk.raw("content", content).end()).await;
    }

    async fn end(&self, status: &str) {
        self.turn.state().calls.remove(&self.id);
        let update = Text::update("tool_call_update").str("toolCallId", &self.id).str("status", status);
        self.turn.update(&update.end()).await;
    }
}

impl Terminal {
    /// Shows what was written.
    pub async fn output(&self, bytes: &[u8]) {
        let chunk = Text::update("terminal_output_chunk").str("terminalId", &self.id);
        self.turn.update(&chunk.str("data", &BASE64_STANDARD.encode(bytes)).end()).await;
    }

    /// The command has ended.
    pub async fn exit(self, code: i32) {
        let status = Text::new().raw("exitCode", &code.to_string()).end();
        let update = Text::update("terminal_update").str("terminalId", &self.id).raw("exitStatus", &status);
        self.turn.update(&update.end()).await;
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
