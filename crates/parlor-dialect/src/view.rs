//! A transcript as JSON, for people and scripts: what `parlor fold` prints.

use parlor_json::{Json, JsonStr, Object};
use parlor_session::{Activity, Body, Content, Entry, EntryId, Role, Slot, State, Transcript};

use crate::encode::output;

/// The whole transcript as one object.
pub fn transcript(transcript: &Transcript) -> Json {
    let shown = || transcript.entries().iter().filter(|entry| !entry.body().removed);
    let list =
        |wanted: fn(&EntryId) -> bool| Json::array(shown().filter(|entry| wanted(entry.id())).map(entry));
    let slot = |slot: Slot, field: &str| {
        transcript.slot(slot).and_then(|body| body.fields.get(field)).cloned().unwrap_or_else(empty_array)
    };
    let whole_slot =
        |slot: Slot| transcript.slot(slot).map_or_else(Json::null, |body| Shape::default().body(body).json());
    object([
        ("messages", list(|id| matches!(id, EntryId::Message(..)))),
        ("toolCalls", list(|id| matches!(id, EntryId::ToolCall(_)))),
        ("plans", list(|id| matches!(id, EntryId::Plan(_)))),
        ("terminals", list(|id| matches!(id, EntryId::Terminal(_)))),
        (
            "info",
            transcript
                .slot(Slot::Info)
                .map_or_else(Shape::default, |info| Shape::default().body(info))
                .json(),
        ),
        ("state", transcript.state().map_or_else(Json::null, state)),
        ("usage", whole_slot(Slot::Usage)),
        ("commands", slot(Slot::Commands, "availableCommands")),
        ("configOptions", slot(Slot::Options, "configOptions")),
        ("modes", whole_slot(Slot::Mode)),
        (
            "other",
            list(|id| match id {
                EntryId::Compaction(_)
                | EntryId::Subagent(_)
                | EntryId::SessionMessage(_)
                | EntryId::Note(_) => true,
                EntryId::Message(..)
                | EntryId::ToolCall(_)
                | EntryId::Plan(_)
                | EntryId::Terminal(_)
                | EntryId::Event(_) => false,
            }),
        ),
        ("events", list(|id| matches!(id, EntryId::Event(_)))),
        ("order", Json::array(shown().map(place))),
    ])
}

/// One entry as an object.
pub fn entry(entry: &Entry) -> Json {
    let body = entry.body();
    let shape = Shape::default();
    match entry.id() {
        EntryId::Message(role, id) => shape
            .string("messageId", id.as_json())
            .string("role", &role_name(*role).into())
            .set("content", body.content.to_json())
            .body(body),
        EntryId::ToolCall(id) => {
            shape.string("toolCallId", id.as_json()).body(body).content("content", &body.content)
        }
        EntryId::Plan(_) => {
            let plan = body.fields.get("plan").and_then(|plan| Object::parse(plan.raw()).ok());
            let mut shape = Shape(plan.unwrap_or_default());
            for (name, value) in body.fields.iter().filter(|(name, _)| name.inner() != "plan") {
                shape = shape.missing(name, value);
            }
            body.meta.iter().fold(shape, |shape, meta| shape.missing(&"_meta".into(), &meta.to_json()))
        }
        EntryId::Terminal(id) => {
            let output = output(&body.output, body.fields.get("output"));
            shape.string("terminalId", id.as_json()).body(body).set("output", output)
        }
        EntryId::Compaction(id) => shape
            .string("sessionUpdate", &"compaction_update".into())
            .string("compactionId", id.as_json())
            .body(body)
            .content("summary", &body.content),
        EntryId::Subagent(id) => shape
            .string("sessionUpdate", &"subagent_update".into())
            .string("sessionId", id.as_json())
            .body(body),
        EntryId::SessionMessage(id) => shape
            .string("sessionUpdate", &"session_message".into())
            .string("messageId", id.as_json())
            .body(body)
            .content("content", &body.content),
        EntryId::Event(id) => shape.string("eventId", id.as_json()).body(body),
        EntryId::Note(_) => shape.body(body),
    }
    .json()
}

/// The word for a role.
pub const fn role_name(role: Role) -> &'static str {
    match role {
        Role::User => "user",
        Role::Agent => "agent",
        Role::Thought => "thought",
    }
}

/// The word for a state.
pub fn activity_name(activity: &Activity) -> JsonStr {
    match activity {
        Activity::Running => "running".into(),
        Activity::Idle => "idle".into(),
        Activity::RequiresAction => "requires_action".into(),
        Activity::Other(name) => name.clone(),
    }
}

/// What kind of entry this is, as a word; a note is called what the agent called it.
pub fn kind_name(entry: &Entry) -> JsonStr {
    match entry.id() {
        EntryId::Message(Role::User, _) => "user_message".into(),
        EntryId::Message(Role::Agent, _) => "agent_message".into(),
        EntryId::Message(Role::Thought, _) => "agent_thought".into(),
        EntryId::ToolCall(_) => "tool_call".into(),
        EntryId::Plan(_) => "plan".into(),
        EntryId::Terminal(_) => "terminal".into(),
        EntryId::Compaction(_) => "compaction".into(),
        EntryId::Subagent(_) => "subagent".into(),
        EntryId::SessionMessage(_) => "session_message".into(),
        EntryId::Event(_) => "event".into(),
        EntryId::Note(_) => {
            let kind = entry.body().fields.get("sessionUpdate");
            kind.and_then(|kind| JsonStr::from_raw(kind.raw())).unwrap_or_else(|| "note".into())
        }
    }
}

fn place(entry: &Entry) -> Json {
    let id = match entry.id() {
        EntryId::Message(_, id) | EntryId::SessionMessage(id) => id.as_json().clone(),
        EntryId::ToolCall(id) => id.as_json().clone(),
        EntryId::Plan(id) => id.as_json().clone(),
        EntryId::Terminal(id) => id.as_json().clone(),
        EntryId::Compaction(id) => id.as_json().clone(),
        EntryId::Subagent(id) => id.as_json().clone(),
        EntryId::Event(id) => id.as_json().clone(),
        EntryId::Note(seq) => seq.to_string().into(),
    };
    Shape::default().string("kind", &kind_name(entry)).string("id", &id).json()
}

fn state(state: &State) -> Json {
    let shape = Shape::default().string("state", &activity_name(&state.activity));
    let shape = state.stop_reason.iter().fold(shape, |shape, reason| shape.string("stopReason", reason));
    shape.fields(&state.fields, state.meta.as_ref()).json()
}

/// An object under construction.
#[derive(Default)]
struct Shape(Object);

impl Shape {
    fn set(mut self, name: &str, value: Json) -> Self {
        self.0.set(name, value);
        self
    }

    fn string(self, name: &str, value: &JsonStr) -> Self {
        self.set(name, value.into())
    }

    fn content(self, name: &str, content: &Content) -> Self {
        self.set(name, content.to_json())
    }

    /// Sets a member unless there is one of that name.
    fn missing(mut self, name: &JsonStr, value: &Json) -> Self {
        if self.0.get_key(name).is_none() {
            self.0.set(name.clone(), value.clone());
        }
        self
    }

    fn body(self, body: &Body) -> Self {
        self.fields(&body.fields, body.meta.as_ref())
    }

    fn fields(self, fields: &Object, meta: Option<&Object>) -> Self {
        let mut shape = self;
        shape.0.add_missing(fields);
        meta.iter().fold(shape, |shape, meta| shape.missing(&"_meta".into(), &meta.to_json()))
    }

    fn json(self) -> Json {
        self.0.to_json()
    }
}

fn object<const N: usize>(members: [(&str, Json); N]) -> Json {
    members.into_iter().fold(Shape::default(), |shape, (name, value)| shape.set(name, value)).json()
}

fn empty_array() -> Json {
    Json::array::<Json>([])
}
