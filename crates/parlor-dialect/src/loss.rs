use std::fmt;

use parlor_session::MessageId;

/// Something that the other dialect could not express.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// The kind of loss.
    pub kind: LossKind,
    /// The message that it concerns, if any.
    pub message_id: Option<MessageId>,
}

/// Collects the losses of a translation.
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
            /// All kinds.
            pub const ALL: &[Self] = &[$(Self::$kind,)*];

            /// The stable name, for scripts.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)*
                }
            }

            /// The meaning, for people.
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
    /// A message without content, for which v1 has no update, was left out.
    MessageEmpty = "message_empty",
    /// A message has metadata, which v1 has only for chunks; if there is a chunk, the first one carries it.
    MessageMeta = "message_meta",
    /// A message's metadata was cleared after content was sent to a v1 peer.
    MessageMetaCleared = "message_meta_cleared",
    /// A message has fields that v1 does not have.
    MessageFields = "message_fields",
    /// A content block of a type that v1 cannot parse was left out.
    ContentBlockType = "content_block_type",
    /// A block has an audience that v1 does not know; it was left out.
    Audience = "audience",
    /// A v1 tool call must have a title; one was generated.
    ToolCallTitleMade = "tool_call_title_made",
    /// A field of a tool call was cleared, which v1 cannot express.
    ToolCallFieldCleared = "tool_call_field_cleared",
    /// The metadata of a tool call was cleared, which v1 cannot express.
    ToolCallMetaCleared = "tool_call_meta_cleared",
    /// A tool call has a status that v1 does not know; the nearest was sent.
    ToolCallStatus = "tool_call_status",
    /// A tool call has a kind that v1 does not know; `other` was sent.
    ToolCallKind = "tool_call_kind",
    /// Tool content of a type that v1 cannot parse was left out.
    ToolContentType = "tool_content_type",
    /// Accumulated tool content was too long to be repeated with every chunk; the middle was left out.
    ToolContentCut = "tool_content_cut",
    /// A chunk of tool content or of output has other members, which v1 does not have.
    ChunkFields = "chunk_fields",
    /// A diff has only the changed lines, so that v1's old and new texts are parts of the file.
    DiffPartial = "diff_partial",
    /// A diff has no readable patch; the changed paths were sent as text.
    DiffWithoutPatch = "diff_without_patch",
    /// A diff deletes, moves or copies a file, or has other members that v1 lacks; only path and texts were sent.
    DiffOperation = "diff_operation",
    /// A terminal is shown as text of the tool call that refers to it: only its output.
    TerminalAsText = "terminal_as_text",
    /// A terminal that no tool call refers to cannot be shown in v1.
    TerminalAlone = "terminal_alone",
    /// v1 has one plan; another one replaced it.
    PlanReplaced = "plan_replaced",
    /// A plan that is no list of entries cannot be shown in v1.
    PlanType = "plan_type",
    /// The removal of a plan cannot be sent to a v1 client that does not support it.
    PlanRemoved = "plan_removed",
    /// A plan entry has a status that v1 does not know; the nearest was sent.
    PlanEntryStatus = "plan_entry_status",
    /// A plan entry has a priority that v1 does not know; `medium` was sent.
    PlanEntryPriority = "plan_entry_priority",
    /// A command has a type that v1 does not know; it was sent as a plain one.
    CommandType = "command_type",
    /// A command has input of a type that v1 does not know; it was sent without input.
    CommandInput = "command_input",
    /// The current mode changed, but the available modes are unknown.
    Mode = "mode",
    /// An option of a type that v1 does not know was left out.
    OptionType = "option_type",
    /// An option's value has a type that v1 does not know.
    OptionValue = "option_value",
    /// An MCP server of a type that v1 cannot parse was left out.
    McpServerType = "mcp_server_type",
    /// An MCP server over SSE was forwarded, although v2 does not define that transport.
    McpSse = "mcp_sse",
    /// An authentication method has a type that v1 does not know; it was sent as one that the agent handles.
    AuthMethodType = "auth_method_type",
    /// v2 requires that sessions can be listed, resumed and closed; this agent did not advertise it.
    CapabilityBaseline = "capability_baseline",
    /// v1 requires that MCP servers can be started as processes; this agent did not advertise it.
    McpStdio = "mcp_stdio",
    /// A v2 agent without sessions cannot be expressed in v1.
    NoSessions = "no_sessions",
    /// A v2 peer must send its name and version; they were generated.
    InfoMade = "info_made",
    /// A permission request is not about a tool call; one was generated for it.
    PermissionSubject = "permission_subject",
    /// A permission option has a kind that v1 does not know; `reject_once` was sent.
    PermissionOptionKind = "permission_option_kind",
    /// The result of a permission request has an outcome that v1 does not know; `cancelled` was sent.
    PermissionOutcome = "permission_outcome",
    /// An elicitation has a mode that v1 does not know.
    ElicitationMode = "elicitation_mode",
    /// The result of an elicitation has an action that v1 does not know; `cancel` was sent.
    ElicitationAction = "elicitation_action",
    /// A state of the session for which v1 has no message.
    State = "state",
    /// A stop reason that v1 does not know, or none; `end_turn` was sent.
    StopReason = "stop_reason",
    /// A notice, for a v1 client that does not support them.
    Notice = "notice",
    /// A compaction, for a v1 client that does not support them.
    Compaction = "compaction",
    /// A subagent or a message between sessions, for a v1 client that does not support them.
    Subagent = "subagent",
    /// An update that v1 does not define.
    UnknownUpdate = "unknown_update",
    /// Metadata contains a null, which the other dialect's merge rule treats as a removal.
    MetaNull = "meta_null",
    /// A title exceeded the limit and was truncated.
    TitleCut = "title_cut",
    /// The other version does not have this method.
    Method = "method",
    /// A list that must not be empty in v2 is empty; the value that contains it was left out or rejected.
    EmptyList = "empty_list",
    /// A reference to a request without an id, which v2 cannot express.
    NullId = "null_id",
    /// A session is to be replayed from a point that v1 cannot express; all of it was requested.
    ReplayFrom = "replay_from",
    /// A response to an unknown request was forwarded unchanged.
    ResponseWithoutRequest = "response_without_request",
    /// An update of an agent could not be decoded or was too large; it was rejected.
    UpdateRefused = "update_refused",
    /// A part of an update could not be decoded; the rest was applied.
    UpdatePart = "update_part",
    /// An agent sent metadata under `parlor/`, which is reserved; those keys were dropped.
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

    /// The losses, in order.
    pub fn into_vec(self) -> Vec<Loss> {
        self.0
    }

    /// The losses so far.
    pub fn as_slice(&self) -> &[Loss] {
        &self.0
    }
}

impl fmt::Display for LossKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
