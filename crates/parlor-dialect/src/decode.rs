use std::fmt;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use parlor_json::{Json, JsonStr, Members, Object, Type, type_of};
use parlor_session::{
    Activity, Content, EntryId, MessageId, MetaPatch, Namer, Patch, Role, Slot, State, Target, Update, Upsert,
};
use serde_json::value::RawValue;

use crate::Dialect;

/// The id of the one plan that a v1 session has: v1 names none.
pub(crate) const ONLY_PLAN: &str = "default";

/// Reads the updates of one session in one dialect.
///
/// It keeps what is needed to name messages that come without an id; the transcript is somebody else's.
#[derive(Debug, Clone)]
pub struct Decoder {
    dialect: Dialect,
    namer: Namer,
}

/// An update that cannot be taken, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadUpdate {
    /// The kind of update, where it could be read.
    pub kind: Option<JsonStr>,
    /// What is wrong with it.
    pub problem: Problem,
}

/// What can be wrong with an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Problem {
    /// It is no object.
    NotAnObject(Type),
    /// A field that must be there is not.
    Missing(&'static str),
    /// A field is of the wrong type.
    WrongType {
        /// The field.
        field: &'static str,
        /// What it must be.
        expected: Type,
        /// What it is.
        found: Type,
    },
    /// A field that carries bytes is not base64.
    NotBase64(&'static str),
}

impl Decoder {
    /// A decoder for a session whose agent speaks `dialect`.
    pub fn new(dialect: Dialect) -> Self {
        Self { dialect, namer: Namer::default() }
    }

    /// A turn began or ended: messages that have no id of their own do not go on across it.
    pub fn turn_boundary(&mut self) {
        self.namer.turn_boundary();
    }

    /// Reads one update. Messages that have no id get a `fresh` one where the dialect allows that.
    pub fn decode(
        &mut self,
        update: &RawValue,
        fresh: &mut dyn FnMut() -> MessageId,
    ) -> Result<Update, BadUpdate> {
        let members = Members::of(update)
            .map_err(|other| BadUpdate { kind: None, problem: Problem::NotAnObject(other.0) })?;
        self.decode_members(members, fresh)
    }

    /// Reads one update whose members were read already.
    pub fn decode_members(
        &mut self,
        members: Members<'_>,
        fresh: &mut dyn FnMut() -> MessageId,
    ) -> Result<Update, BadUpdate> {
        let kind = typed(members.get("sessionUpdate"), "sessionUpdate", Type::String)
            .map_err(|problem| BadUpdate { kind: None, problem })?;
        let name = parlor_json::text(kind).unwrap_or_default();
        let decoded = self.by_kind(&name, Fields { members, dialect: self.dialect }, fresh);
        decoded.map_err(|problem| BadUpdate { kind: JsonStr::from_raw(kind), problem })
    }

    fn by_kind(
        &mut self,
        kind: &str,
        fields: Fields<'_>,
        fresh: &mut dyn FnMut() -> MessageId,
    ) -> Result<Update, Problem> {
        match kind {
            "user_message_chunk" => self.message_chunk(Role::User, fields, fresh),
            "agent_message_chunk" => self.message_chunk(Role::Agent, fields, fresh),
            "agent_thought_chunk" => self.message_chunk(Role::Thought, fields, fresh),
            "user_message" => self.message(Role::User, fields, fresh),
            "agent_message" => self.message(Role::Agent, fields, fresh),
            "agent_thought" => self.message(Role::Thought, fields, fresh),
            "tool_call" | "tool_call_update" => self.tool_call(fields),
            "tool_call_content_chunk" => fields.chunk("toolCallId", |id| EntryId::ToolCall(id.into())),
            "plan" => fields.only_plan(),
            "plan_update" => fields.plan(),
            "plan_removed" => Ok(Update::Remove { entry: EntryId::Plan(fields.id("planId")?.into()) }),
            "terminal_update" => fields.terminal(),
            "terminal_output_chunk" => Ok(Update::Output {
                terminal: fields.id("terminalId")?.into(),
                bytes: bytes(fields.members.get("data"), "data")?,
            }),
            "compaction_update" => {
                fields.upsert("compactionId", Some("summary"), |id| EntryId::Compaction(id.into()))
            }
            "compaction_summary_chunk" => fields.chunk("compactionId", |id| EntryId::Compaction(id.into())),
            "subagent_update" => fields.upsert("sessionId", None, |id| EntryId::Subagent(id.into())),
            "session_message" => {
                fields.upsert("messageId", Some("content"), |id| EntryId::SessionMessage(id.into()))
            }
            "session_message_chunk" => fields.chunk("messageId", |id| EntryId::SessionMessage(id.into())),
            "available_commands_update" => fields.report(Slot::Commands, "availableCommands", Type::Array),
            "config_option_update" => fields.report(Slot::Options, "configOptions", Type::Array),
            "current_mode_update" => fields.report(Slot::Mode, "currentModeId", Type::String),
            "usage_update" => fields.usage(),
            "session_info_update" => fields.info(),
            "state_update" | "state_change" => {
                self.namer.turn_boundary();
                fields.state()
            }
            _ => Ok(Update::Note { fields: Object::from(&fields.members) }),
        }
    }

    fn message_chunk(
        &mut self,
        role: Role,
        fields: Fields<'_>,
        fresh: &mut dyn FnMut() -> MessageId,
    ) -> Result<Update, Problem> {
        // In v1 an id that is no string means, like none, that the agent gave none.
        let given = match self.dialect {
            Dialect::V1 => fields.members.get("messageId").and_then(JsonStr::from_raw),
            Dialect::V2 | Dialect::Draft => Some(fields.id("messageId")?),
        };
        object(fields.members.get("content"), "content")?;
        let id = self.namer.name(role, given.map(MessageId::from), fresh);
        fields.chunk_of(EntryId::Message(role, id), "messageId")
    }

    fn message(
        &mut self,
        role: Role,
        fields: Fields<'_>,
        fresh: &mut dyn FnMut() -> MessageId,
    ) -> Result<Update, Problem> {
        let update = fields.upsert("messageId", Some("content"), |id| EntryId::Message(role, id.into()))?;
        if let Update::Upsert { target: Target::Entry(EntryId::Message(_, id)), .. } = &update {
            self.namer.name(role, Some(id.clone()), fresh);
        }
        Ok(update)
    }

    fn tool_call(&mut self, fields: Fields<'_>) -> Result<Update, Problem> {
        let update = fields.upsert("toolCallId", Some("content"), |id| EntryId::ToolCall(id.into()))?;
        if let Update::Upsert { target: Target::Entry(EntryId::ToolCall(id)), .. } = &update {
            self.namer.tool_call(id);
        }
        Ok(update)
    }
}

/// The members of one update, read by the rules of a dialect.
struct Fields<'a> {
    members: Members<'a>,
    dialect: Dialect,
}

impl Fields<'_> {
    fn id(&self, name: &'static str) -> Result<JsonStr, Problem> {
        string(self.members.get(name), name)
    }

    /// A patch of an entry: all fields but those with a meaning of their own are handed on by name.
    fn upsert(
        mut self,
        id: &'static str,
        content: Option<&'static str>,
        entry: impl FnOnce(JsonStr) -> EntryId,
    ) -> Result<Update, Problem> {
        let target = Target::Entry(entry(self.id(id)?));
        let content = match content {
            Some(name) => self.content(name)?,
            None => Patch::Omitted,
        };
        let meta = self.meta()?;
        self.members.take(id);
        let fields = self.rest();
        Ok(Update::Upsert { target, upsert: Upsert { fields, content, meta, ..Upsert::default() } })
    }

    fn chunk(self, id: &'static str, entry: impl FnOnce(JsonStr) -> EntryId) -> Result<Update, Problem> {
        let entry = entry(self.id(id)?);
        self.chunk_of(entry, id)
    }

    fn chunk_of(mut self, entry: EntryId, id: &'static str) -> Result<Update, Problem> {
        let item = Json::from(object(self.members.take("content"), "content")?);
        if self.members.get("_meta").is_some_and(|meta| type_of(meta) == Type::Null) {
            self.members.take("_meta");
        }
        self.members.take(id);
        self.members.take("sessionUpdate");
        let extra = (!self.members.is_empty()).then(|| Object::from(&self.members).to_json());
        Ok(Update::Append { entry, item, extra })
    }

    /// The only plan of a v1 session, told in the words of the later ones.
    fn only_plan(mut self) -> Result<Update, Problem> {
        let entries = typed(self.members.take("entries"), "entries", Type::Array)?;
        let plan = format!(r#"{{"type":"items","planId":"{ONLY_PLAN}","entries":{}}}"#, entries.get());
        self.whole(
            Target::Entry(EntryId::Plan(ONLY_PLAN.into())),
            [("plan".into(), Json::parse(plan).expect("it is made of JSON"))],
        )
    }

    fn plan(mut self) -> Result<Update, Problem> {
        let plan = object(self.members.take("plan"), "plan")?;
        let id = Members::of(plan).ok().and_then(|plan| plan.get("planId"));
        let target = Target::Entry(EntryId::Plan(string(id, "plan.planId")?.into()));
        self.whole(target, [("plan".into(), plan.into())])
    }

    fn terminal(mut self) -> Result<Update, Problem> {
        let output = match self.members.take("output") {
            None => Patch::Omitted,
            Some(null) if type_of(null) == Type::Null => Patch::Clear,
            Some(output) => Patch::Value(object(Some(output), "output")?),
        };
        let (output, rest) = match output {
            Patch::Omitted => (Patch::Omitted, None),
            Patch::Clear => (Patch::Clear, Some(Json::null())),
            Patch::Value(output) => {
                let mut output = Members::of(output).unwrap_or_default();
                let bytes = bytes(output.take("data"), "output.data")?;
                let rest = if output.is_empty() { Json::null() } else { Object::from(&output).to_json() };
                (Patch::Value(bytes), Some(rest))
            }
        };
        let update = self.upsert("terminalId", None, |id| EntryId::Terminal(id.into()))?;
        let Update::Upsert { target, mut upsert } = update else { return Ok(update) };
        upsert.output = output;
        // What else was said about the output stays with it, under its name.
        if let Some(rest) = rest {
            upsert.fields.set("output", rest);
        }
        Ok(Update::Upsert { target, upsert })
    }

    /// A report that replaces the last one of its kind.
    fn report(self, slot: Slot, field: &'static str, expected: Type) -> Result<Update, Problem> {
        typed(self.members.get(field), field, expected)?;
        self.whole(Target::Slot(slot), [])
    }

    fn whole<const N: usize>(
        mut self,
        target: Target,
        first: [(JsonStr, Json); N],
    ) -> Result<Update, Problem> {
        let meta = self.report_meta()?;
        self.members.take("sessionUpdate");
        let rest = self.members.iter().map(|(name, value)| (name, value.into()));
        let fields = first.into_iter().chain(rest).collect();
        Ok(Update::Upsert { target, upsert: Upsert { whole: true, fields, meta, ..Upsert::default() } })
    }

    fn usage(mut self) -> Result<Update, Problem> {
        let meta = self.report_meta()?;
        let upsert = Upsert { fields: self.rest(), meta, ..Upsert::default() };
        Ok(Update::Upsert { target: Target::Slot(Slot::Usage), upsert })
    }

    fn info(mut self) -> Result<Update, Problem> {
        for field in ["title", "updatedAt"] {
            if let Some(value) = self.members.get(field).filter(|value| type_of(value) != Type::Null) {
                typed(Some(value), field, Type::String)?;
            }
        }
        let meta = match (object_or_null(self.members.take("_meta"), "_meta")?, self.dialect) {
            (Patch::Omitted, _) => MetaPatch::Keep,
            (Patch::Clear, _) => MetaPatch::Clear,
            (Patch::Value(meta), Dialect::V1 | Dialect::Draft) => MetaPatch::MergeDeep(meta),
            (Patch::Value(meta), Dialect::V2) => MetaPatch::MergeKeys(meta),
        };
        self.members.take("sessionUpdate");
        // In every dialect a null title is a title that was cleared.
        let upsert = Upsert { fields: Object::from(&self.members), meta, ..Upsert::default() };
        Ok(Update::Upsert { target: Target::Slot(Slot::Info), upsert })
    }

    fn state(mut self) -> Result<Update, Problem> {
        let state = string(self.members.take("state"), "state")?;
        let activity = match state.inner() {
            "running" => Activity::Running,
            "idle" => Activity::Idle,
            "requires_action" => Activity::RequiresAction,
            _ => Activity::Other(state),
        };
        let published = self.members.take("stopReason");
        let stop_reason = published.or(self.members.take("stop_reason")).and_then(JsonStr::from_raw);
        let meta = match object_or_null(self.members.take("_meta"), "_meta")? {
            Patch::Value(meta) => Some(meta),
            Patch::Omitted | Patch::Clear => None,
        };
        self.members.take("sessionUpdate");
        Ok(Update::State(State { activity, stop_reason, fields: Object::from(&self.members), meta }))
    }

    fn content(&mut self, name: &'static str) -> Result<Patch<Content>, Problem> {
        match (self.members.take(name), self.dialect) {
            (None, _) => Ok(Patch::Omitted),
            (Some(null), dialect) if type_of(null) == Type::Null => Ok(match dialect {
                Dialect::V1 => Patch::Omitted,
                Dialect::V2 | Dialect::Draft => Patch::Clear,
            }),
            (Some(value), _) => match Content::parse(value) {
                Ok(content) if content.is_empty() => Ok(Patch::Clear),
                Ok(content) => Ok(Patch::Value(content)),
                Err(found) => Err(Problem::WrongType { field: name, expected: Type::Array, found }),
            },
        }
    }

    fn meta(&mut self) -> Result<MetaPatch, Problem> {
        Ok(match (object_or_null(self.members.take("_meta"), "_meta")?, self.dialect) {
            (Patch::Omitted, _) | (Patch::Clear, Dialect::V1) => MetaPatch::Keep,
            (Patch::Clear, Dialect::V2 | Dialect::Draft) => MetaPatch::Clear,
            (Patch::Value(meta), Dialect::V1 | Dialect::Draft) => MetaPatch::Replace(meta),
            (Patch::Value(meta), Dialect::V2) => MetaPatch::MergeKeys(meta),
        })
    }

    /// The metadata of a report goes with it: the next report has its own or none.
    fn report_meta(&mut self) -> Result<MetaPatch, Problem> {
        Ok(match object_or_null(self.members.take("_meta"), "_meta")? {
            Patch::Value(meta) => MetaPatch::Replace(meta),
            Patch::Omitted | Patch::Clear => MetaPatch::Clear,
        })
    }

    /// What is left, by name. v1 has optional fields where v2 has patches: there a null says nothing.
    fn rest(mut self) -> Object {
        self.members.take("sessionUpdate");
        let said = |value: &RawValue| self.dialect != Dialect::V1 || type_of(value) != Type::Null;
        let rest = self.members.iter().filter(|(_, value)| said(value));
        rest.map(|(name, value)| (name, value.into())).collect()
    }
}

fn typed<'a>(
    value: Option<&'a RawValue>,
    field: &'static str,
    expected: Type,
) -> Result<&'a RawValue, Problem> {
    let value = value.ok_or(Problem::Missing(field))?;
    let found = type_of(value);
    if found == expected { Ok(value) } else { Err(Problem::WrongType { field, expected, found }) }
}

fn object<'a>(value: Option<&'a RawValue>, field: &'static str) -> Result<&'a RawValue, Problem> {
    typed(value, field, Type::Object)
}

fn object_or_null(value: Option<&RawValue>, field: &'static str) -> Result<Patch<Object>, Problem> {
    match value {
        None => Ok(Patch::Omitted),
        Some(null) if type_of(null) == Type::Null => Ok(Patch::Clear),
        Some(value) => Object::parse(value).map(Patch::Value).map_err(|other| Problem::WrongType {
            field,
            expected: Type::Object,
            found: other.0,
        }),
    }
}

fn string(value: Option<&RawValue>, field: &'static str) -> Result<JsonStr, Problem> {
    let value = typed(value, field, Type::String)?;
    JsonStr::from_raw(value).ok_or(Problem::Missing(field))
}

fn bytes(value: Option<&RawValue>, field: &'static str) -> Result<Vec<u8>, Problem> {
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
            Self::NotAnObject(found) => write!(f, "an update must be an object, this is {found}"),
            Self::Missing(field) => write!(f, "`{field}` is missing"),
            Self::WrongType { field, expected, found } => {
                write!(f, "`{field}` must be {expected}, this is {found}")
            }
            Self::NotBase64(field) => write!(f, "`{field}` is not base64"),
        }
    }
}
