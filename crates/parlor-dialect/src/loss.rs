use std::fmt;

use parlor_session::MessageId;
use parlor_wire::{RpcError, code};

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
    /// Content that a v1 peer already has was replaced; the new content is sent under another message id.
    MessageReplaced = "message_replaced",
    /// Content that a v1 peer already has was cleared; an empty message is sent under another message id.
    MessageCleared = "message_cleared",
    /// A message without content has no v1 update; it was omitted.
    MessageEmpty = "message_empty",
    /// A message has metadata, which v1 allows only on chunks; the first chunk carries it, if there is one.
    MessageMeta = "message_meta",
    /// A message's metadata was cleared after its content was sent to a v1 peer.
    MessageMetaCleared = "message_meta_cleared",
    /// A message has fields that v1 does not have.
    MessageFields = "message_fields",
    /// A content block of a type that v1 cannot parse was omitted.
    ContentBlockType = "content_block_type",
    /// A block names audiences that v1 does not have; they were omitted.
    Audience = "audience",
    /// A v1 tool call must have a title; one was generated.
    ToolCallTitleMade = "tool_call_title_made",
    /// A field of a tool call was cleared, which v1 cannot express.
    ToolCallFieldCleared = "tool_call_field_cleared",
    /// The metadata of a tool call was cleared, which v1 cannot express.
    ToolCallMetaCleared = "tool_call_meta_cleared",
    /// A tool call has a status that v1 does not have; the nearest one was sent.
    ToolCallStatus = "tool_call_status",
    /// A tool call has a kind that v1 does not have; `other` was sent.
    ToolCallKind = "tool_call_kind",
    /// Tool content of a type that v1 cannot parse was omitted.
    ToolContentType = "tool_content_type",
    /// Accumulated tool content exceeded the limit for repeated content; the middle was omitted.
    ToolContentCut = "tool_content_cut",
    /// A chunk of tool content or terminal output has fields that v1 does not have.
    ChunkFields = "chunk_fields",
    /// A diff contains only the changed lines, so v1's old and new texts are parts of the file.
    DiffPartial = "diff_partial",
    /// A diff has no readable patch; the changed paths were sent as text.
    DiffWithoutPatch = "diff_without_patch",
    /// A diff deletes, moves or copies a file, or has details that v1 does not have; only path and texts were sent.
    DiffOperation = "diff_operation",
    /// A terminal was sent as text of the tool call that refers to it: its output only.
    TerminalAsText = "terminal_as_text",
    /// A terminal that no tool call refers to cannot be expressed in v1.
    TerminalAlone = "terminal_alone",
    /// v1 has one plan; another plan replaced it.
    PlanReplaced = "plan_replaced",
    /// A plan that is not a list of entries cannot be expressed in v1.
    PlanType = "plan_type",
    /// The v1 client did not declare that it supports the removal of plans; the removal was omitted.
    PlanRemoved = "plan_removed",
    /// A plan entry has a status that v1 does not have; the nearest one was sent.
    PlanEntryStatus = "plan_entry_status",
    /// A plan entry has a priority that v1 does not have; `medium` was sent.
    PlanEntryPriority = "plan_entry_priority",
    /// A command has a type that v1 does not have; it was sent as a plain command.
    CommandType = "command_type",
    /// A command takes input of a type that v1 does not have; it was sent without input.
    CommandInput = "command_input",
    /// The current mode changed, but the list of modes is not known.
    Mode = "mode",
    /// An option of a type that v1 does not have was omitted.
    OptionType = "option_type",
    /// An option's value has a type that v1 does not have.
    OptionValue = "option_value",
    /// An MCP server of a type that v1 cannot parse was omitted.
    McpServerType = "mcp_server_type",
    /// An MCP server over SSE was passed through, though v2 does not define that transport.
    McpSse = "mcp_sse",
    /// An MCP server of the configuration was omitted: the agent does not support its transport.
    McpTransport = "mcp_transport",
    /// An authentication method has a type that v1 does not have; it was sent as one that the agent handles.
    AuthMethodType = "auth_method_type",
    /// v2 requires listing, resuming and closing sessions; this agent does not declare them.
    CapabilityBaseline = "capability_baseline",
    /// v1 requires MCP servers over stdio; this agent does not declare them.
    McpStdio = "mcp_stdio",
    /// A v2 agent without sessions cannot be expressed in v1.
    NoSessions = "no_sessions",
    /// A v2 peer must send its name and version; they were generated.
    InfoMade = "info_made",
    /// A permission request is about something other than a tool call; a tool call was generated for it.
    PermissionSubject = "permission_subject",
    /// A permission option has a kind that v1 does not have; `reject_once` was sent.
    PermissionOptionKind = "permission_option_kind",
    /// The answer to a permission request has an outcome that v1 does not have; `cancelled` was sent.
    PermissionOutcome = "permission_outcome",
    /// An elicitation has a mode that v1 does not have.
    ElicitationMode = "elicitation_mode",
    /// The answer to an elicitation has an action that v1 does not have; `cancel` was sent.
    ElicitationAction = "elicitation_action",
    /// A session state has no v1 message.
    State = "state",
    /// The stop reason is missing or v1 does not have it; `end_turn` was sent.
    StopReason = "stop_reason",
    /// The v1 client did not declare that it supports notices; a notice was omitted.
    Notice = "notice",
    /// The v1 client did not declare that it supports compactions; a compaction was omitted.
    Compaction = "compaction",
    /// The v1 client did not declare that it supports subagents; a subagent or a message between sessions was omitted.
    Subagent = "subagent",
    /// The agent did not declare that it takes system prompts; that of the client was omitted.
    SystemPrompt = "system_prompt",
    /// An update kind is not in the v1 schema.
    UnknownUpdate = "unknown_update",
    /// Metadata contains a null, which the merge rule of the other dialect treats as a removal.
    MetaNull = "meta_null",
    /// A title exceeded the limit and was truncated.
    TitleCut = "title_cut",
    /// The other version does not have this method.
    Method = "method",
    /// A list that v2 requires to be non-empty is empty; its parent was omitted or rejected.
    EmptyList = "empty_list",
    /// A message refers to a request whose id is null, which v2 cannot express.
    NullId = "null_id",
    /// A replay from a point that v1 cannot express was requested; the whole session was requested instead.
    ReplayFrom = "replay_from",
    /// A response arrived without its request; it was passed through unchanged.
    ResponseWithoutRequest = "response_without_request",
    /// An update from an agent was unreadable or too large; it was rejected.
    UpdateRefused = "update_refused",
    /// Part of an update was unreadable; the rest was applied.
    UpdatePart = "update_part",
    /// An agent sent metadata keys that begin with `parlor/`, which are reserved; they were removed.
    ReservedMeta = "reserved_meta",
}

impl LossKind {
    /// The error for a request that a peer's version of the protocol cannot express. `peer` is `agent`, for example.
    pub fn request_error(self, peer: &str, method: &str) -> RpcError {
        if self == Self::Method {
            let message = format!("the {peer}'s protocol version has no method {method}");
            return RpcError::new(code::METHOD_NOT_FOUND, message);
        }
        let meaning = self.meaning().trim();
        let message = format!("the {peer}'s protocol version cannot express {method}: {meaning}");
        RpcError::new(code::INVALID_PARAMS, message)
    }
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
