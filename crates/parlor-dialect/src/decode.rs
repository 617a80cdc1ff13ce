use std::fmt;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use parlor_json::{Json, JsonRef, JsonStr, MAX_ELEMENTS, Members, NotAnObject, Object, ObjectWriter, Type};
use parlor_session::{
    Activity, Change, Content, EntryId, IdSource, ImplicitMessageIds, MessageId, MetaPatch, Patch, Role,
    Slot, State, Target, Update, Upsert,
};

use crate::Dialect;
use crate::meta::Rule;
use crate::values::blocks::is_block;
use crate::values::tool_content::is_tool_item;

/// The id of the only plan of a v1 session: v1 has no plan ids.
pub(crate) const ONLY_PLAN: &str = "default";

/// Decodes the updates of one session in one dialect.
///
/// Decoding changes nothing: [`on_applied`](Self::on_applied) tracks applied updates, so that a rejected one moves no
/// boundary between messages.
#[derive(Debug, Clone)]
pub struct Decoder {
    dialect: Dialect,
    implicit_ids: ImplicitMessageIds,
}

/// A decoded update.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decoded {
    /// The update.
    pub update: Update,
    /// How it got its message id.
    pub id_source: IdSource,
    /// Optional fields that could not be decoded. As the schema defines, they count as absent.
    pub ignored: Vec<BadUpdate>,
}

/// An update that cannot be decoded, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadUpdate {
    /// The kind of update, if it could be read.
    pub kind: Option<JsonStr>,
    /// The problem.
    pub problem: Problem,
}

/// The problems of an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Problem {
    /// It is not an object, or one that is too large.
    NotAnObject(NotAnObject),
    /// A required field is missing.
    Missing(&'static str),
    /// A field has the wrong type.
    WrongType {
        /// The field.
        field: &'static str,
        /// The required type.
        expected: Type,
        /// The actual type.
        found: Type,
    },
    /// A list has too many items.
    TooManyItems(&'static str),
    /// A field that carries bytes is not base64.
    NotBase64(&'static str),
    /// A content item is invalid for its type.
    InvalidItem(&'static str),
    /// Some items of a list are invalid for their type.
    InvalidItems {
        /// The list.
        field: &'static str,
        /// Number of invalid items.
        count: usize,
    },
}

impl Decoder {
    /// A decoder for a session whose agent speaks `dialect`.
    pub fn new(dialect: Dialect) -> Self {
        Self { dialect, implicit_ids: ImplicitMessageIds::default() }
    }

    /// The dialect of the agent.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Tracks the start or end of a turn: messages without an id end there.
    pub fn on_turn_boundary(&mut self) {
        self.implicit_ids.on_turn_boundary();
    }

    /// Tracks an applied update.
    pub fn on_applied(&mut self, change: &Change, id_source: IdSource) {
        self.implicit_ids.on_applied(change, id_source);
    }

    /// Tracks an applied change of a message; see [`on_applied`](Self::on_applied).
    pub fn on_message_applied(&mut self, role: Role, id: &MessageId, id_source: IdSource) {
        self.implicit_ids.on_message_applied(role, id, id_source);
    }

    /// Decodes one update. Messages without an id are assigned one from `new_id` where the dialect allows that; it
    /// must return ids that the session does not have.
    pub fn decode(
        &self,
        update: JsonRef<'_>,
        new_id: &mut dyn FnMut() -> MessageId,
    ) -> Result<Decoded, BadUpdate> {
        let members = Members::of(update)
            .map_err(|reason| BadUpdate { kind: None, problem: Problem::NotAnObject(reason) })?;
        self.decode_members(members, new_id)
    }

    /// Decodes one update whose members are parsed already.
    pub fn decode_members(
        &self,
        members: Members<'_>,
        new_id: &mut dyn FnMut() -> MessageId,
    ) -> Result<Decoded, BadUpdate> {
        let kind = typed(members.get("sessionUpdate"), "sessionUpdate", Type::String)
            .map_err(|problem| BadUpdate { kind: None, problem })?;
        let name = kind.to_text().unwrap_or_default();
        let given = members.get("messageId").is_some_and(|id| id.type_of() == Type::String);
        let id_source = match name.as_ref() {
            "user_message_chunk" | "agent_message_chunk" | "agent_thought_chunk" if !given => {
                IdSource::Assigned
            }
            "tool_call" => IdSource::StartsToolCall,
            _ => IdSource::Given,
        };
        // v1 has optional fields where v2 has patches: a null is the same as an absent field.
        let nulls_are_absent = self.dialect == Dialect::V1
            && matches!(name.as_ref(), "tool_call" | "tool_call_update" | "usage_update");
        let mut fields = Fields { members, dialect: self.dialect, nulls_are_absent, ignored: Vec::new() };
        let bad = |problem| BadUpdate { kind: JsonStr::from_raw(kind), problem };
        let update = self.by_kind(&name, &mut fields, new_id).map_err(bad)?;
        Ok(Decoded { update, id_source, ignored: fields.ignored.into_iter().map(bad).collect() })
    }

    fn by_kind(
        &self,
        kind: &str,
        fields: &mut Fields<'_>,
        new_id: &mut dyn FnMut() -> MessageId,
    ) -> Result<Update, Problem> {
        match kind {
            "user_message_chunk" => self.message_chunk(Role::User, fields, new_id),
            "agent_message_chunk" => self.message_chunk(Role::Agent, fields, new_id),
            "agent_thought_chunk" => self.message_chunk(Role::Thought, fields, new_id),
            "user_message" => fields.message(Role::User),
            "agent_message" => fields.message(Role::Agent),
            "agent_thought" => fields.message(Role::Thought),
            "tool_call" | "tool_call_update" => {
                fields.upsert("toolCallId", Some(TOOL_CONTENT), |id| EntryId::ToolCall(id.into()))
            }
            "tool_call_content_chunk" => {
                fields.chunk("toolCallId", is_tool_item, |id| EntryId::ToolCall(id.into()))
            }
            "plan" => fields.only_plan(),
            "plan_update" => fields.plan(),
            "plan_removed" => {
                let entry = EntryId::Plan(fields.id("planId")?.into());
                Ok(Update::Remove { entry, extra: fields.extra("planId") })
            }
            "terminal_update" => fields.terminal(),
            "terminal_output_chunk" => {
                let terminal = fields.id("terminalId")?.into();
                let bytes = bytes(fields.members.take("data"), "data")?;
                Ok(Update::Output { terminal, bytes, extra: fields.extra("terminalId") })
            }
            "compaction_update" => {
                let summary = Items { field: "summary", is_valid: is_block };
                fields.upsert("compactionId", Some(summary), |id| EntryId::Compaction(id.into()))
            }
            "compaction_summary_chunk" => {
                fields.chunk("compactionId", is_block, |id| EntryId::Compaction(id.into()))
            }
            "subagent_update" => fields.upsert("sessionId", None, |id| EntryId::Subagent(id.into())),
            "session_message" => {
                fields.upsert("messageId", Some(CONTENT), |id| EntryId::SessionMessage(id.into()))
            }
            "session_message_chunk" => {
                fields.chunk("messageId", is_block, |id| EntryId::SessionMessage(id.into()))
            }
            crate::event::UPDATE => fields.upsert("eventId", None, |id| EntryId::Event(id.into())),
            "available_commands_update" => fields.report(Slot::Commands, "availableCommands"),
            "config_option_update" => fields.report(Slot::Options, "configOptions"),
            "current_mode_update" => fields.mode(),
            "usage_update" => Ok(fields.usage()),
            "session_info_update" => Ok(fields.info()),
            "state_update" | "state_change" => fields.state(),
            "notice" => {
                fields.id("severity")?;
                fields.id("title")?;
                Ok(Update::Note { fields: Object::from(&fields.members) })
            }
            _ => Ok(Update::Note { fields: Object::from(&fields.members) }),
        }
    }

    fn message_chunk(
        &self,
        role: Role,
        fields: &mut Fields<'_>,
        new_id: &mut dyn FnMut() -> MessageId,
    ) -> Result<Update, Problem> {
        // In v1 an id that is not a string counts as missing.
        let given = match self.dialect {
            Dialect::V1 => fields.members.get("messageId").and_then(JsonStr::from_raw),
            Dialect::V2 | Dialect::Draft => Some(fields.id("messageId")?),
        };
        item(fields.members.get("content"), "content", is_block)?;
        let id = given.map_or_else(|| self.implicit_ids.assign(role, new_id), MessageId::from);
        fields.chunk_of(EntryId::Message(role, id), "messageId")
    }
}

/// The members of one update, decoded by the rules of a dialect.
struct Fields<'a> {
    members: Members<'a>,
    dialect: Dialect,
    /// Whether a null is the same as an absent field.
    nulls_are_absent: bool,
    /// The optional fields that could not be decoded.
    ignored: Vec<Problem>,
}

impl Fields<'_> {
    fn id(&self, name: &'static str) -> Result<JsonStr, Problem> {
        string(self.members.get(name), name)
    }

    /// Treats an invalid optional field as absent.
    fn optional<T>(&mut self, read: Result<Patch<T>, Problem>) -> Patch<T> {
        match read {
            Ok(Patch::Clear) if self.nulls_are_absent => Patch::Omitted,
            Ok(patch) => patch,
            Err(problem) => {
                self.ignored.push(problem);
                Patch::Omitted
            }
        }
    }

    fn message(&mut self, role: Role) -> Result<Update, Problem> {
        self.upsert("messageId", Some(CONTENT), |id| EntryId::Message(role, id.into()))
    }

    /// A patch of an entry: all fields without a special meaning are kept by name.
    fn upsert(
        &mut self,
        id: &'static str,
        items: Option<Items>,
        entry: impl FnOnce(JsonStr) -> EntryId,
    ) -> Result<Update, Problem> {
        let target = Target::Entry(entry(self.id(id)?));
        let content = match items {
            Some(items) => self.content(items),
            None => Patch::Omitted,
        };
        let meta = self.meta(&target);
        self.members.take(id);
        Ok(Update::Upsert {
            target,
            upsert: Upsert { fields: self.rest(), content, meta, ..Upsert::default() },
        })
    }

    fn chunk(
        &mut self,
        id: &'static str,
        is_valid: fn(JsonRef<'_>) -> bool,
        entry: impl FnOnce(JsonStr) -> EntryId,
    ) -> Result<Update, Problem> {
        let entry = entry(self.id(id)?);
        item(self.members.get("content"), "content", is_valid)?;
        self.chunk_of(entry, id)
    }

    /// A list of content items. Invalid ones are left out, as the schema defines.
    fn content(&mut self, items: Items) -> Patch<Content> {
        let list = self.members.take(items.field);
        let (read, invalid) = match content(list, items) {
            Ok((content, invalid)) => (Ok(content), invalid),
            Err(problem) => (Err(problem), 0),
        };
        if invalid > 0 {
            self.ignored.push(Problem::InvalidItems { field: items.field, count: invalid });
        }
        self.optional(read)
    }

    fn chunk_of(&mut self, entry: EntryId, id: &'static str) -> Result<Update, Problem> {
        let item = Json::from(object(self.members.take("content"), "content")?);
        Ok(Update::Append { entry, item, extra: self.extra(id) })
    }

    /// The other members of a chunk.
    fn extra(&mut self, id: &'static str) -> Option<Json> {
        if self.members.get("_meta").is_some_and(|meta| meta.type_of() == Type::Null) {
            self.members.take("_meta");
        }
        self.members.take(id);
        self.members.take("sessionUpdate");
        (!self.members.is_empty()).then(|| Object::from(&self.members).to_json())
    }

    /// The only plan of a v1 session, in the form of v2. A plan that had an id before it was translated to v1 still
    /// carries it, as a field that v1 does not know.
    fn only_plan(&mut self) -> Result<Update, Problem> {
        let entries = typed(self.members.take("entries"), "entries", Type::Array)?;
        let id = self.members.take("planId").and_then(JsonStr::from_raw).unwrap_or_else(|| ONLY_PLAN.into());
        let plan = ObjectWriter::new().str("type", "items").json_str("planId", &id);
        let plan = plan.raw("entries", entries.as_str()).into_json();
        Ok(self.whole(Target::Entry(EntryId::Plan(id.into())), Some(("plan", plan))))
    }

    fn plan(&mut self) -> Result<Update, Problem> {
        let plan = object(self.members.take("plan"), "plan")?;
        let id = Members::of(plan).ok().and_then(|plan| plan.get("planId"));
        let target = Target::Entry(EntryId::Plan(string(id, "plan.planId")?.into()));
        Ok(self.whole(target, Some(("plan", plan.into()))))
    }

    fn terminal(&mut self) -> Result<Update, Problem> {
        self.id("terminalId")?;
        let output = self.members.take("output");
        let output = self.optional(terminal_output(output));
        let update = self.upsert("terminalId", None, |id| EntryId::Terminal(id.into()))?;
        let Update::Upsert { target, mut upsert } = update else { return Ok(update) };
        // The other members of the output stay under its name.
        match &output {
            Patch::Omitted => {}
            Patch::Clear => upsert.fields.set("output", Json::null()),
            Patch::Value((_, extra)) => upsert.fields.set("output", extra.clone()),
        }
        upsert.output = output.map(|(bytes, _)| bytes);
        Ok(Update::Upsert { target, upsert })
    }

    /// A list that replaces the last one of its kind.
    fn report(&mut self, slot: Slot, field: &'static str) -> Result<Update, Problem> {
        typed(self.members.get(field), field, Type::Array)?;
        Ok(self.whole(Target::Slot(slot), None))
    }

    fn whole(&mut self, target: Target, known: Option<(&str, Json)>) -> Update {
        let meta = self.report_meta();
        self.members.take("sessionUpdate");
        let mut fields: Object = known.into_iter().map(|(name, value)| (name.into(), value)).collect();
        fields.add_missing(&Object::from(&self.members));
        Update::Upsert { target, upsert: Upsert { whole: true, fields, meta, ..Upsert::default() } }
    }

    /// Only the current mode changes; the available modes are part of the response that created the session.
    fn mode(&mut self) -> Result<Update, Problem> {
        self.id("currentModeId")?;
        let meta = self.report_meta();
        let upsert = Upsert { fields: self.rest(), meta, ..Upsert::default() };
        Ok(Update::Upsert { target: Target::Slot(Slot::Mode), upsert })
    }

    fn usage(&mut self) -> Update {
        let meta = self.report_meta();
        let upsert = Upsert { fields: self.rest(), meta, ..Upsert::default() };
        Update::Upsert { target: Target::Slot(Slot::Usage), upsert }
    }

    fn info(&mut self) -> Update {
        for field in ["title", "updatedAt"] {
            let value = self.members.get(field).filter(|value| value.type_of() != Type::Null);
            if let Some(Err(problem)) = value.map(|value| typed(Some(value), field, Type::String)) {
                self.members.take(field);
                self.ignored.push(problem);
            }
        }
        let target = Target::Slot(Slot::Info);
        let meta = self.meta(&target);
        Update::Upsert { target, upsert: Upsert { fields: self.rest(), meta, ..Upsert::default() } }
    }

    fn state(&mut self) -> Result<Update, Problem> {
        let state = string(self.members.get("state"), "state")?;
        let activity = match state.inner() {
            "running" => Activity::Running,
            "idle" => Activity::Idle,
            "requires_action" => Activity::RequiresAction,
            _ => Activity::Other(state),
        };
        // Either of the two spellings; a reason that is not a string stays a field.
        let mut stop_reason = None;
        for name in ["stopReason", "stop_reason"] {
            let reason = self.members.get(name).and_then(JsonStr::from_raw);
            if stop_reason.is_none() && reason.is_some() {
                self.members.take(name);
                stop_reason = reason;
            }
        }
        let meta = self.members.take("_meta");
        let meta = match self.optional(object_or_null(meta, "_meta")) {
            Patch::Value(meta) => Some(meta),
            Patch::Omitted | Patch::Clear => None,
        };
        self.members.take("state");
        self.members.take("sessionUpdate");
        let present = self.members.iter().filter(|(_, value)| value.type_of() != Type::Null);
        let fields = present.map(|(name, value)| (name, value.into())).collect();
        Ok(Update::State(State { activity, stop_reason, fields, meta }))
    }

    fn meta(&mut self, target: &Target) -> MetaPatch {
        let meta = self.members.take("_meta");
        match self.optional(object_or_null(meta, "_meta")) {
            Patch::Omitted => MetaPatch::Keep,
            Patch::Clear => MetaPatch::Clear,
            Patch::Value(meta) => Rule::of(self.dialect, target).patch(meta),
        }
    }

    /// The metadata of a report is replaced with it.
    fn report_meta(&mut self) -> MetaPatch {
        let meta = self.members.take("_meta");
        match self.optional(object_or_null(meta, "_meta")) {
            Patch::Value(meta) => MetaPatch::Replace(meta),
            Patch::Omitted | Patch::Clear => MetaPatch::Clear,
        }
    }

    /// The remaining members, by name.
    fn rest(&mut self) -> Object {
        self.members.take("sessionUpdate");
        let is_present = |value: JsonRef<'_>| !self.nulls_are_absent || value.type_of() != Type::Null;
        let rest = self.members.iter().filter(|(_, value)| is_present(*value));
        rest.map(|(name, value)| (name, value.into())).collect()
    }
}

/// A list of content items, and the number of invalid ones.
fn content(value: Option<JsonRef<'_>>, items: Items) -> Result<(Patch<Content>, usize), Problem> {
    let Items { field, is_valid } = items;
    let Some(value) = value else { return Ok((Patch::Omitted, 0)) };
    if value.type_of() == Type::Null {
        return Ok((Patch::Clear, 0));
    }
    let array = typed(Some(value), field, Type::Array)?;
    let mut items = array.elements().ok_or(Problem::TooManyItems(field))?;
    let all = items.len();
    items.retain(|item| is_valid(*item));
    let invalid = all - items.len();
    let content: Content = items.into_iter().collect();
    Ok((if content.is_empty() { Patch::Clear } else { Patch::Value(content) }, invalid))
}

/// A list of content items in an update.
#[derive(Debug, Clone, Copy)]
struct Items {
    field: &'static str,
    is_valid: fn(JsonRef<'_>) -> bool,
}

const CONTENT: Items = Items { field: "content", is_valid: is_block };
const TOOL_CONTENT: Items = Items { field: "content", is_valid: is_tool_item };

/// One content item.
fn item<'a>(
    value: Option<JsonRef<'a>>,
    field: &'static str,
    is_valid: fn(JsonRef<'_>) -> bool,
) -> Result<JsonRef<'a>, Problem> {
    let item = object(value, field)?;
    if is_valid(item) { Ok(item) } else { Err(Problem::InvalidItem(field)) }
}

/// The bytes of a terminal's output, and its other members.
fn terminal_output(value: Option<JsonRef<'_>>) -> Result<Patch<(Vec<u8>, Json)>, Problem> {
    let Some(value) = value else { return Ok(Patch::Omitted) };
    if value.type_of() == Type::Null {
        return Ok(Patch::Clear);
    }
    let mut output = Members::of(object(Some(value), "output")?).map_err(Problem::NotAnObject)?;
    let bytes = bytes(output.take("data"), "output.data")?;
    let extra = if output.is_empty() { Json::null() } else { Object::from(&output).to_json() };
    Ok(Patch::Value((bytes, extra)))
}

fn typed<'a>(
    value: Option<JsonRef<'a>>,
    field: &'static str,
    expected: Type,
) -> Result<JsonRef<'a>, Problem> {
    let value = value.ok_or(Problem::Missing(field))?;
    let found = value.type_of();
    if found == expected { Ok(value) } else { Err(Problem::WrongType { field, expected, found }) }
}

fn object<'a>(value: Option<JsonRef<'a>>, field: &'static str) -> Result<JsonRef<'a>, Problem> {
    typed(value, field, Type::Object)
}

fn object_or_null(value: Option<JsonRef<'_>>, field: &'static str) -> Result<Patch<Object>, Problem> {
    match value {
        None => Ok(Patch::Omitted),
        Some(null) if null.type_of() == Type::Null => Ok(Patch::Clear),
        Some(value) => {
            let value = object(Some(value), field)?;
            Object::parse(value).map(Patch::Value).map_err(Problem::NotAnObject)
        }
    }
}

fn string(value: Option<JsonRef<'_>>, field: &'static str) -> Result<JsonStr, Problem> {
    let value = typed(value, field, Type::String)?;
    JsonStr::from_raw(value).ok_or(Problem::Missing(field))
}

fn bytes(value: Option<JsonRef<'_>>, field: &'static str) -> Result<Vec<u8>, Problem> {
    const LENIENT: GeneralPurpose = GeneralPurpose::new(
        &STANDARD,
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
    );
    let text = string(value, field)?;
    LENIENT.decode(text.to_text().as_bytes()).map_err(|_| Problem::NotBase64(field))
}

impl fmt::Display for BadUpdate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Some(kind) => write!(f, "{kind}: {}", self.problem),
            None => write!(f, "{}", self.problem),
        }
    }
}

impl std::error::Error for BadUpdate {}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAnObject(reason) => reason.fmt(f),
            Self::TooManyItems(field) => write!(f, "`{field}` has more than {MAX_ELEMENTS} items"),
            Self::Missing(field) => write!(f, "`{field}` is missing"),
            Self::WrongType { field, expected, found } => {
                write!(f, "`{field}` must be {expected}, this is {found}")
            }
            Self::NotBase64(field) => write!(f, "`{field}` is not base64"),
            Self::InvalidItem(field) => write!(f, "`{field}` is not what its type must be"),
            Self::InvalidItems { field, count } => {
                write!(f, "`{field}` has {count} items that are not what their type must be")
            }
        }
    }
}
