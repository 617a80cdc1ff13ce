use std::path::{Path, PathBuf};

use parlor_dialect::live;
use parlor_json::{Json, ObjectWriter};

use crate::session::{Session, new_id};
use crate::wire_text::{array, update};
use crate::{
    ContentBlock, PermissionOption, PermissionOutcome, RequestError, Terminal, ToolCallStatus, ToolKind,
};

/// A tool call that has started. If it has not ended when the turn ends, it has failed, or was cancelled with the turn.
///
/// ```
/// # use parlor_agent::{Turn, ToolKind, TurnError};
/// # async fn example(turn: Turn) -> Result<(), TurnError> {
/// let call = turn.tool_call("Read notes.txt").kind(ToolKind::Read).location("/notes.txt", None).start().await;
/// // If this fails, so does the call, because the turn ends.
/// let text = std::fs::read_to_string("/notes.txt")?;
/// call.send_content(text).await;
/// call.complete().await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ToolCall {
    session: Session,
    id: String,
    title: String,
}

/// A tool call that has not started.
#[derive(Debug)]
#[must_use = "clients see the tool call when it starts"]
pub struct ToolCallBuilder {
    session: Session,
    title: String,
    kind: Option<ToolKind>,
    status: ToolCallStatus,
    locations: Vec<ToolCallLocation>,
    raw_input: Option<Json>,
}

/// A file that a tool call works on.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ToolCallLocation {
    /// The path of the file.
    pub path: PathBuf,
    /// The line, from 1 on.
    pub line: Option<u32>,
}

/// What a tool call produced.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ToolCallContent {
    /// Content.
    Content(ContentBlock),
    /// A changed file.
    Diff {
        /// The path of the file.
        path: PathBuf,
        /// Its text before; `None` if it is new.
        old: Option<String>,
        /// Its text now.
        new: String,
    },
    /// A terminal of the agent, by its id.
    Terminal(String),
    /// Anything else, as version 2 of the protocol has it.
    Other(Json),
}

impl ToolCallBuilder {
    pub(crate) fn new(session: Session, title: String) -> Self {
        let status = ToolCallStatus::InProgress;
        Self { session, title, kind: None, status, locations: Vec::new(), raw_input: None }
    }

    /// Sets what sort of operation it is.
    pub fn kind(mut self, kind: ToolKind) -> Self {
        self.kind = Some(kind);
        self
    }

    /// Sets the status with which it starts; `in_progress` if none is set.
    pub fn status(mut self, status: ToolCallStatus) -> Self {
        self.status = status;
        self
    }

    /// Adds a file that it works on, with a line from 1 on.
    pub fn location(mut self, path: impl Into<PathBuf>, line: Option<u32>) -> Self {
        self.locations.push(ToolCallLocation { path: path.into(), line });
        self
    }

    /// Sets the input of the tool, in its own format.
    pub fn raw_input(mut self, input: Json) -> Self {
        self.raw_input = Some(input);
        self
    }

    /// Starts the tool call.
    pub async fn start(self) -> ToolCall {
        let Self { session, title, kind, status, locations, raw_input } = self;
        let id = new_id();
        session.end_message();
        let update = update("tool_call_update").str("toolCallId", &id).str("title", &title);
        let mut update = update
            .optional_str("kind", kind.as_ref().map(ToolKind::as_str).as_deref())
            .str("status", &status.as_str());
        if !locations.is_empty() {
            update = update.raw("locations", &array(locations.iter().map(ToolCallLocation::write)));
        }
        if let Some(input) = &raw_input {
            update = update.raw("rawInput", input.as_str());
        }
        session.send_raw_update(&update.finish()).await;
        session.start_tool_call(&id);
        ToolCall { session, id, title }
    }
}

impl ToolCall {
    /// Its id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Adds content: text, or a block of any type.
    pub async fn send_content(&self, block: impl Into<ContentBlock>) {
        self.send(&ToolCallContent::Content(block.into())).await;
    }

    /// Adds a changed file; without `old` it is new.
    pub async fn send_diff(&self, path: impl AsRef<Path>, old: Option<&str>, new: &str) {
        let (path, old) = (path.as_ref().to_owned(), old.map(str::to_owned));
        self.send(&ToolCallContent::Diff { path, old, new: new.to_owned() }).await;
    }

    /// Adds a terminal of the agent.
    pub async fn send_terminal(&self, terminal: &Terminal) {
        self.send(&ToolCallContent::Terminal(terminal.id().to_owned())).await;
    }

    /// Adds anything that a tool call can produce.
    pub async fn send(&self, content: &ToolCallContent) {
        let chunk = update("tool_call_content_chunk").str("toolCallId", &self.id);
        self.session.send_raw_update(&chunk.raw("content", content.to_json().as_str()).finish()).await;
    }

    /// Changes the title.
    pub async fn set_title(&mut self, title: impl Into<String>) {
        self.title = title.into();
        self.session.send_raw_update(&self.update().str("title", &self.title).finish()).await;
    }

    /// Changes the status. [`complete`](Self::complete) and [`fail`](Self::fail) set the last one.
    pub async fn set_status(&self, status: &ToolCallStatus) {
        self.session.send_raw_update(&self.update().str("status", &status.as_str()).finish()).await;
        if matches!(status, ToolCallStatus::Completed | ToolCallStatus::Failed | ToolCallStatus::Cancelled) {
            self.session.end_tool_call(&self.id);
        }
    }

    /// Sets the output of the tool, in its own format.
    pub async fn set_raw_output(&self, output: &Json) {
        self.session.send_raw_update(&self.update().raw("rawOutput", output.as_str()).finish()).await;
    }

    /// Asks people for permission. All attached clients are asked, and the first answer counts.
    ///
    /// ```
    /// # use parlor_agent::{PermissionOption, StopReason, ToolKind, Turn, TurnError};
    /// # async fn example(turn: Turn) -> Result<StopReason, TurnError> {
    /// let call = turn.tool_call("Delete the notes").kind(ToolKind::Delete).start().await;
    /// let options = [PermissionOption::allow_once(), PermissionOption::reject_once()];
    /// if !call.request_permission(options).await?.is_allowed() {
    ///     call.fail().await;
    ///     return Ok(StopReason::Refusal);
    /// }
    /// # Ok(StopReason::EndTurn)
    /// # }
    /// ```
    pub async fn request_permission(
        &self,
        options: impl IntoIterator<Item = PermissionOption>,
    ) -> Result<PermissionOutcome, RequestError> {
        let options: Vec<_> = options.into_iter().collect();
        let call = ObjectWriter::new().str("toolCallId", &self.id).finish();
        let subject = ObjectWriter::new().str("type", "tool_call").raw("toolCall", &call).finish();
        let params = self.session.params().str("title", &self.title).raw("subject", &subject);
        let params = params.raw("options", &array(options.iter().map(PermissionOption::write)));
        let result = self.session.request_people("session/request_permission", params).await?;
        Ok(result.map_or(PermissionOutcome::Unanswered, |result| PermissionOutcome::read(&result, &options)))
    }

    /// Ends the call: the tool succeeded.
    pub async fn complete(self) {
        self.set_status(&ToolCallStatus::Completed).await;
    }

    /// Ends the call: the tool failed.
    pub async fn fail(self) {
        self.set_status(&ToolCallStatus::Failed).await;
    }

    fn update(&self) -> ObjectWriter {
        update("tool_call_update").str("toolCallId", &self.id)
    }
}

impl ToolCallContent {
    /// The content as version 2 of the protocol has it.
    pub fn to_json(&self) -> Json {
        match self {
            Self::Content(block) => ObjectWriter::new()
                .str("type", "content")
                .raw("content", block.to_json().as_str())
                .into_json(),
            Self::Diff { path, old, new } => live::diff(&path.to_string_lossy(), old.as_deref(), new),
            Self::Terminal(id) => {
                ObjectWriter::new().str("type", "terminal").str("terminalId", id).into_json()
            }
            Self::Other(json) => json.clone(),
        }
    }
}

impl ToolCallLocation {
    fn write(&self) -> String {
        let location = ObjectWriter::new().str("path", &self.path.to_string_lossy());
        match self.line {
            Some(line) => location.u64("line", line.into()).finish(),
            None => location.finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use agent_client_protocol_schema::v2;

    use super::*;

    #[test]
    fn content_is_that_of_the_protocol() {
        let other = Json::parse(r#"{"type":"_chart","points":[1]}"#).unwrap();
        for content in [
            ToolCallContent::Content("text".into()),
            ToolCallContent::Content(ContentBlock::resource("file:///a", "b")),
            ToolCallContent::Diff { path: "/a".into(), old: Some("a\n".into()), new: "b\n".into() },
            ToolCallContent::Diff { path: "/a".into(), old: None, new: "b\n".into() },
            ToolCallContent::Terminal("t".into()),
            ToolCallContent::Other(other.clone()),
        ] {
            let json = content.to_json();
            let parsed: v2::ToolCallContent = serde_json::from_str(json.as_str()).unwrap();
            let is_known = !matches!(parsed, v2::ToolCallContent::Other(_));
            assert_eq!(is_known, !matches!(content, ToolCallContent::Other(_)), "{content:?}");
        }
        assert_eq!(ToolCallContent::Other(other.clone()).to_json(), other);
    }

    #[test]
    fn a_location_has_a_line_if_it_is_known() {
        let location = ToolCallLocation { path: "/a b".into(), line: Some(3) };
        assert_eq!(location.write(), r#"{"path":"/a b","line":3}"#);
        assert_eq!(ToolCallLocation { line: None, ..location }.write(), r#"{"path":"/a b"}"#);
    }
}
