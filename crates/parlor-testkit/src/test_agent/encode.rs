//! Encodes updates for a dialect.

use parlor_dialect::Dialect;
use parlor_json::{ObjectWriter, string_literal};

use super::json::list;
use super::turn::End;

/// The author and kind of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    User,
    Agent,
    Thought,
}

/// A content block of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Block {
    /// Text; consecutive text blocks are joined.
    Text(String),
    /// Any other block, as JSON.
    Json(String),
}

/// A tool call, or the changed fields of one.
#[derive(Debug, Clone, Default)]
pub(super) struct Tool<'a> {
    pub(super) id: &'a str,
    /// Set in the first update.
    pub(super) title: Option<&'a str>,
    /// Set in the first update.
    pub(super) kind: Option<&'a str>,
    pub(super) status: Option<&'a str>,
    /// A JSON array.
    pub(super) content: Option<String>,
}

/// Encodes updates for the client of a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Encoder {
    pub(super) dialect: Dialect,
    /// Whether chunks carry message ids.
    pub(super) message_ids: bool,
}

/// The id of a session's only plan.
const PLAN: &str = "test-plan";

impl Role {
    /// The name in a stored session.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Agent => "agent",
            Self::Thought => "thought",
        }
    }

    /// Parses the name in a stored session.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        [Self::User, Self::Agent, Self::Thought].into_iter().find(|role| role.name() == name)
    }

    const fn update(self) -> &'static str {
        match self {
            Self::User => "user_message",
            Self::Agent => "agent_message",
            Self::Thought => "agent_thought",
        }
    }
}

impl Block {
    /// Encodes the block.
    pub(super) fn to_json(&self) -> String {
        match self {
            Self::Text(text) => ObjectWriter::new().str("type", "text").str("text", text).finish(),
            Self::Json(json) => json.clone(),
        }
    }
}

impl Encoder {
    /// Whether this is version 1 of the protocol.
    pub(super) fn is_v1(self) -> bool {
        self.dialect == Dialect::V1
    }

    /// Encodes a chunk of a message.
    pub(super) fn chunk(self, role: Role, id: &str, block: &str) -> String {
        let id = (!self.is_v1() || self.message_ids).then_some(id);
        update(&format!("{}_chunk", role.update()))
            .optional_str("messageId", id)
            .raw("content", block)
            .finish()
    }

    /// Encodes a whole message, for v2 only; `None` clears its content.
    pub(super) fn message(role: Role, id: &str, content: Option<&[Block]>) -> String {
        let content = content.map_or_else(|| "null".to_owned(), blocks);
        update(role.update()).str("messageId", id).raw("content", &content).finish()
    }

    /// Encodes a message for replay: as chunks in v1, whole in v2.
    pub(super) fn replay(self, role: Role, id: &str, content: &[Block]) -> Vec<String> {
        if self.is_v1() {
            return content.iter().map(|block| self.chunk(role, id, &block.to_json())).collect();
        }
        vec![Self::message(role, id, Some(content))]
    }

    /// Encodes a state without further fields; `None` in v1.
    pub(super) fn state(self, state: &str) -> Option<String> {
        Some(update(self.state_names()?.0).str("state", state).finish())
    }

    /// Encodes the state at the end of a turn; `None` in v1.
    pub(super) fn idle(self, end: &End, usage: &str) -> Option<String> {
        let (kind, reason) = self.state_names()?;
        let state = update(kind).str("state", "idle").str(reason, end.stop_reason());
        let state = match end {
            End::Failed { code, message } => state.raw(
                "error",
                &ObjectWriter::new().raw("code", &code.to_string()).str("message", message).finish(),
            ),
            End::Done | End::Cancelled | End::Refused => state,
        };
        Some(state.raw("usage", usage).finish())
    }

    fn state_names(self) -> Option<(&'static str, &'static str)> {
        match self.dialect {
            Dialect::V1 => None,
            Dialect::V2 => Some(("state_update", "stopReason")),
            Dialect::Draft => Some(("state_change", "stop_reason")),
        }
    }

    /// Encodes the first update of a tool call.
    pub(super) fn tool_call(self, tool: &Tool<'_>) -> String {
        tool_fields(update(if self.is_v1() { "tool_call" } else { "tool_call_update" }), tool).finish()
    }

    /// Encodes a later update of a tool call.
    pub(super) fn tool_update(tool: &Tool<'_>) -> String {
        tool_fields(update("tool_call_update"), tool).finish()
    }

    /// Encodes content of a tool call: v1 replaces the whole list, v2 appends.
    pub(super) fn tool_content(self, id: &str, contents: &[String]) -> Vec<String> {
        if self.is_v1() {
            return vec![Self::tool_update(&Tool { id, content: Some(list(contents)), ..Tool::default() })];
        }
        let chunk = |content: &String| {
            update("tool_call_content_chunk").str("toolCallId", id).raw("content", content).finish()
        };
        contents.iter().map(chunk).collect()
    }

    /// The status of a cancelled tool call: v1 has no `cancelled`.
    pub(super) fn cancelled_status(self) -> &'static str {
        if self.is_v1() { "failed" } else { "cancelled" }
    }

    /// Encodes the change of a file from `old` to `new`, one line each.
    pub(super) fn diff(self, path: &str, old: &str, new: &str) -> String {
        let diff = ObjectWriter::new().str("type", "diff");
        if self.is_v1() {
            return diff.str("path", path).str("oldText", old).str("newText", new).finish();
        }
        let patch = format!(
            "diff --git {path} {path}\n--- {path}\n+++ {path}\n@@ -1 +1 @@\n-{}\n+{}\n",
            old.trim_end(),
            new.trim_end()
        );
        let change =
            ObjectWriter::new().str("operation", "modify").str("path", path).str("fileType", "text").finish();
        let patch = ObjectWriter::new().str("format", "git_patch").str("text", &patch).finish();
        diff.raw("changes", &list([change])).raw("patch", &patch).finish()
    }

    /// Encodes a plan; the entries before `done` are completed, the next one is in progress if `is_busy`.
    pub(super) fn plan(self, entries: &[String], done: usize, is_busy: bool) -> String {
        let entry = |(index, text): (usize, &String)| {
            let status = match index {
                index if index < done => "completed",
                index if index == done && is_busy => "in_progress",
                _ => "pending",
            };
            ObjectWriter::new().str("content", text).str("priority", "medium").str("status", status).finish()
        };
        let entries = list(entries.iter().enumerate().map(entry));
        if self.is_v1() {
            return update("plan").raw("entries", &entries).finish();
        }
        let plan =
            ObjectWriter::new().str("type", "items").str("planId", PLAN).raw("entries", &entries).finish();
        update("plan_update").raw("plan", &plan).finish()
    }

    /// Encodes the removal of the plan, for v2 only.
    pub(super) fn plan_removed() -> String {
        update("plan_removed").str("planId", PLAN).finish()
    }
}

/// Starts an update of this kind.
pub(super) fn update(kind: &str) -> ObjectWriter {
    ObjectWriter::new().str("sessionUpdate", kind)
}

/// Encodes tool content that is text.
pub(super) fn tool_text(text: &str) -> String {
    let block = Block::Text(text.to_owned()).to_json();
    ObjectWriter::new().str("type", "content").raw("content", &block).finish()
}

/// Encodes tool content that is a terminal.
pub(super) fn tool_terminal(id: &str) -> String {
    ObjectWriter::new().str("type", "terminal").str("terminalId", id).finish()
}

/// Adds the fields of a tool call, also outside of updates.
pub(super) fn tool_fields(text: ObjectWriter, tool: &Tool<'_>) -> ObjectWriter {
    let text = text.str("toolCallId", tool.id).optional_str("title", tool.title);
    let text = text.optional_str("kind", tool.kind).optional_str("status", tool.status);
    match &tool.content {
        Some(content) => text.raw("content", content),
        None => text,
    }
}

/// Encodes a change of the title; an empty one clears it.
pub(super) fn title(title: &str) -> String {
    let title = if title.is_empty() { "null".to_owned() } else { string_literal(title) };
    update("session_info_update").raw("title", &title).finish()
}

/// Encodes content blocks.
pub(super) fn blocks(content: &[Block]) -> String {
    list(content.iter().map(Block::to_json))
}
