//! Typed values of the protocol. Each keeps what it does not know.

use std::borrow::Cow;

use parlor_json::{Json, JsonRef, Object};
use parlor_session::{Content, Entry, EntryId, Patch, State, Target, ToolCallId, Update};
use parlor_wire::{StopReason, ToolCallStatus, ToolKind};

/// How a turn ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TurnOutcome {
    /// Why it ended, if the agent gave a reason.
    pub stop_reason: Option<StopReason>,
    /// The state of the session at the end of the turn, with everything that the agent reported: usage, errors, metadata.
    pub state: State,
}

impl From<State> for TurnOutcome {
    fn from(state: State) -> Self {
        Self { stop_reason: state.stop_reason.as_ref().map(StopReason::from), state }
    }
}

/// A typed view of a tool call. The JSON that the agent sent is kept, and available with [`fields`](Self::fields).
///
/// ```
/// use parlor_client::{EntryId, Json, Object, Target, ToolCall, ToolCallStatus, Update, Upsert};
///
/// let fields = Json::parse(r#"{"title":"Read it","status":"completed","locations":[{"path":"/a","line":3}]}"#).unwrap();
/// let upsert = Upsert { fields: Object::parse(fields.raw()).unwrap(), ..Upsert::default() };
/// let update = Update::Upsert { target: Target::Entry(EntryId::ToolCall("call-1".into())), upsert };
/// let call = ToolCall::of_update(&update).unwrap();
/// assert_eq!(call.title().as_deref(), Some("Read it"));
/// assert_eq!(call.status(), Some(ToolCallStatus::Completed));
/// assert_eq!(call.locations()[0].line, Some(3));
/// ```
#[derive(Debug, Clone, Copy)]
pub struct ToolCall<'a> {
    id: &'a ToolCallId,
    fields: &'a Object,
    content: Option<&'a Content>,
}

/// A file that a tool call works on.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ToolCallLocation {
    /// The path of the file.
    pub path: String,
    /// The line, from 1 on.
    pub line: Option<u64>,
}

impl<'a> ToolCall<'a> {
    /// The tool call that an entry of a transcript is.
    pub fn of_entry(entry: &'a Entry) -> Option<Self> {
        let EntryId::ToolCall(id) = entry.id() else { return None };
        Some(Self { id, fields: &entry.body().fields, content: Some(&entry.body().content) })
    }

    /// What an update changes in a tool call. Members that the update does not set are `None`.
    pub fn of_update(update: &'a Update) -> Option<Self> {
        let Update::Upsert { target: Target::Entry(EntryId::ToolCall(id)), upsert } = update else {
            return None;
        };
        let content = if let Patch::Value(content) = &upsert.content { Some(content) } else { None };
        Some(Self { id, fields: &upsert.fields, content })
    }

    /// Its id.
    pub fn id(&self) -> &'a ToolCallId {
        self.id
    }

    /// What it does, for people.
    pub fn title(&self) -> Option<Cow<'a, str>> {
        self.fields.get_str("title")
    }

    /// What sort of operation it is.
    pub fn kind(&self) -> Option<ToolKind> {
        Some(ToolKind::from(&self.fields.get_json_str("kind")?))
    }

    /// How far it has come.
    pub fn status(&self) -> Option<ToolCallStatus> {
        Some(ToolCallStatus::from(&self.fields.get_json_str("status")?))
    }

    /// The files that it works on.
    pub fn locations(&self) -> Vec<ToolCallLocation> {
        let list = self.fields.get_array("locations").unwrap_or_default();
        let location = |raw: JsonRef<'_>| {
            let location = raw.to_object()?;
            Some(ToolCallLocation { path: location.get_string("path")?, line: location.get_u64("line") })
        };
        list.into_iter().filter_map(location).collect()
    }

    /// The input of the tool, in its own format.
    pub fn raw_input(&self) -> Option<&'a Json> {
        self.fields.get("rawInput").filter(|input| !input.is_null())
    }

    /// The output of the tool, in its own format.
    pub fn raw_output(&self) -> Option<&'a Json> {
        self.fields.get("rawOutput").filter(|output| !output.is_null())
    }

    /// What it produced: content blocks, diffs and terminals.
    pub fn content(&self) -> Option<&'a Content> {
        self.content
    }

    /// All fields but the content, as the agent sent them.
    pub fn fields(&self) -> &'a Object {
        self.fields
    }
}
