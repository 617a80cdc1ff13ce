use std::fmt;

use parlor_session::MessageId;

/// Something that could not be said in the other dialect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// What it is.
    pub kind: LossKind,
    /// The message it is about, where it is about one.
    pub message_id: Option<MessageId>,
}

/// Collects what a translation could not say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Losses(Vec<Loss>);

macro_rules! loss_kinds {
    ($($(#[doc = $doc:literal])+ $kind:ident = $name:literal,)*) => {
        /// The kinds of losses. Their names are stable.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum LossKind {
            $($(#[doc = $doc])+ $kind,)*
        }

        impl LossKind {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$kind,)*];

            /// The name by which scripts know it.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)*
                }
            }

            /// What it means, for people.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$kind => concat!($($doc,)+),)*
                }
            }
        }
    };
}

loss_kinds! {
    /// Content that was sent to a v1 peer was replaced; it is restated under another id.
    MessageReplaced = "message_replaced",
    /// Content that was sent to a v1 peer was cleared; an empty message is stated under another id.
    MessageCleared = "message_cleared",
    /// A message without content, which v1 has no update for; it was left out.
    MessageEmpty = "message_empty",
    /// A message has metadata, which v1 has only for chunks; where there is a chunk, the first one carries it.
    MessageMeta = "message_meta",
    /// A message's metadata was cleared after content was sent to a v1 peer.
    MessageMetaCleared = "message_meta_cleared",
    /// A message has fields that v1 has no place for.
    MessageFields = "message_fields",
    /// A content block of a type that v1 cannot parse was left out.
    ContentBlockType = "content_block_type",
    /// A block is meant for readers that v1 does not know; they were left out.
    Audience = "audience",
    /// A v1 tool call must have a title; one was made.
    ToolCallTitleMade = "tool_call_title_made",
    /// A field of a tool call was cleared, which v1 cannot say.
    ToolCallFieldCleared = "tool_call_field_cleared",
    /// The metadata of a tool call was cleared, which v1 cannot say.
    ToolCallMetaCleared = "tool_call_meta_cleared",
    /// A tool call has a status that v1 does not know; the nearest was said.
    ToolCallStatus = "tool_call_status",
    /// A tool call has a kind that v1 does not know; `other` was said.
    ToolCallKind = "tool_call_kind",
    /// Tool content of a type that v1 cannot parse was left out.
    ToolContentType = "tool_content_type",
    /// Accumulated tool content was longer than is repeated with every chunk; the middle was left out.
    ToolContentCut = "tool_content_cut",
    /// A chunk of tool content or of output says more than its content, which v1 has no place for.
    ChunkFields = "chunk_fields",
    /// A diff names only the changed lines, so v1's old and new texts are parts of the file.
    DiffPartial = "diff_partial",
    /// A diff has no patch that can be read; the changed paths were said as text.
    DiffWithoutPatch = "diff_without_patch",
    /// A diff deletes, moves or copies a file, or says more of it than v1 can; only path and texts were said.
    DiffOperation = "diff_operation",
    /// A terminal is shown as text of the tool call that refers to it: its output, and nothing else of it.
    TerminalAsText = "terminal_as_text",
    /// A terminal that no tool call refers to cannot be shown in v1.
    TerminalAlone = "terminal_alone",
    /// v1 has one plan; another one took its place.
    PlanReplaced = "plan_replaced",
    /// A plan that is no list of entries cannot be shown in v1.
    PlanType = "plan_type",
    /// The removal of a plan cannot be said to a v1 client that did not ask for it.
    PlanRemoved = "plan_removed",
    /// A plan entry has a status that v1 does not know; the nearest was said.
    PlanEntryStatus = "plan_entry_status",
    /// A plan entry has a priority that v1 does not know; `medium` was said.
    PlanEntryPriority = "plan_entry_priority",
    /// A command is of a type that v1 does not know; it was said as a plain one.
    CommandType = "command_type",
    /// A command takes input of a type that v1 does not know; it was said without.
    CommandInput = "command_input",
    /// The current mode changed, but which modes there are was not said.
    Mode = "mode",
    /// An option of a type that v1 does not know was left out.
    OptionType = "option_type",
    /// An option's value is of a type that v1 does not know.
    OptionValue = "option_value",
    /// An MCP server of a type that v1 cannot parse was left out.
    McpServerType = "mcp_server_type",
    /// An MCP server over SSE was passed on, though v2 does not define that transport.
    McpSse = "mcp_sse",
    /// A way to authenticate is of a type that v1 does not know; it was said as one that the agent handles.
    AuthMethodType = "auth_method_type",
    /// v2 takes for granted that sessions can be listed, resumed and closed; this agent did not say it can.
    CapabilityBaseline = "capability_baseline",
    /// v1 takes for granted that MCP servers can be started as processes; this agent did not say it can.
    McpStdio = "mcp_stdio",
    /// A v2 agent without sessions cannot be said in v1.
    NoSessions = "no_sessions",
    /// A v2 peer must say its name and version; they were made.
    InfoMade = "info_made",
    /// A permission is asked for something other than a tool call; one was made up to stand for it.
    PermissionSubject = "permission_subject",
    /// A permission option is of a kind that v1 does not know; `reject_once` was said.
    PermissionOptionKind = "permission_option_kind",
    /// The answer to a permission request is one that v1 does not know; `cancelled` was said.
    PermissionOutcome = "permission_outcome",
    /// An elicitation is of a mode that v1 does not know.
    ElicitationMode = "elicitation_mode",
    /// The answer to an elicitation is one that v1 does not know; `cancel` was said.
    ElicitationAction = "elicitation_action",
    /// A state of the session that no v1 message stands for.
    State = "state",
    /// A stop reason that v1 does not know, or none; `end_turn` was said.
    StopReason = "stop_reason",
    /// A notice, to a v1 client that did not ask for them.
    Notice = "notice",
    /// A compaction, to a v1 client that did not ask for them.
    Compaction = "compaction",
    /// A subagent or a message between sessions, to a v1 client that did not ask for them.
    Subagent = "subagent",
    /// An update that v1 does not list.
    UnknownUpdate = "unknown_update",
    /// Metadata holds a null, which the other dialect's merge rule takes for a removal.
    MetaNull = "meta_null",
    /// A title was longer than a session takes and was cut.
    TitleCut = "title_cut",
    /// The other version has no such method.
    Method = "method",
    /// A list that v2 wants filled is empty; what it belongs to was left out or refused.
    EmptyList = "empty_list",
    /// A request without an id of its own is spoken of, which v2 cannot.
    NullId = "null_id",
    /// A session is to be replayed from a point that v1 cannot name; all of it was asked for.
    ReplayFrom = "replay_from",
    /// A response came without its request having been seen, so it was passed on as it is.
    ResponseWithoutRequest = "response_without_request",
    /// An update of an agent could not be read or was too large; it was refused.
    UpdateRefused = "update_refused",
    /// A part of an update could not be read; the rest was taken.
    UpdatePart = "update_part",
    /// An agent wrote metadata under `parlor/`, which only parlor writes; those keys were left out.
    ReservedMeta = "reserved_meta",
}

impl Losses {
    /// Adds a loss.
    pub fn add(&mut self, kind: LossKind) {
        self.0.push(Loss { kind, message_id: None });
    }

    /// Adds a loss about a message.
    pub fn add_for(&mut self, kind: LossKind, message: &MessageId) {
        self.0.push(Loss { kind, message_id: Some(message.clone()) });
    }

    /// What was lost, in order.
    pub fn into_vec(self) -> Vec<Loss> {
        self.0
    }

    /// What was lost so far.
    pub fn as_slice(&self) -> &[Loss] {
        &self.0
    }
}

impl fmt::Display for LossKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
