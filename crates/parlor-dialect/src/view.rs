//! A transcript as JSON, for people and scripts: the output of `parlor fold`.

use parlor_json::{Json, JsonStr, Object};
use parlor_session::{Activity, Body, Entry, EntryId, Role, Slot, State, Transcript};

use crate::encode::output;

/// The whole transcript as one object.
pub fn transcript(transcript: &Transcript) -> Json {
    let shown = || transcript.entries().iter().filter(|entry| !entry.body().removed);
    let list =
        |wanted: fn(&EntryId) -> bool| Json::array(shown().filter(|entry| wanted(entry.id())).map(entry));
    let slot = |slot: Slot, field: &str| {
        transcript.slot(slot).and_then(|body| body.fields.get(field)).cloned().unwrap_or_else(empty_array)
    };
    let whole_slot = |slot: Slot| transcript.slot(slot).map(|body| with_body(Object::new(), body).to_json());
    let members = [
        ("messages", list(|id| matches!(id, EntryId::Message(..)))),
        ("toolCalls", list(|id| matches!(id, EntryId::ToolCall(_)))),
        ("plans", list(|id| matches!(id, EntryId::Plan(_)))),
        ("terminals", list(|id| matches!(id, EntryId::Terminal(_)))),
        ("info", whole_slot(Slot::Info).unwrap_or_else(|| Object::new().to_json())),
        ("state", transcript.state().map_or_else(Json::null, state)),
        ("usage", whole_slot(Slot::Usage).unwrap_or_else(Json::null)),
        ("commands", slot(Slot::Commands, "availableCommands")),
        ("configOptions", slot(Slot::Options, "configOptions")),
        ("modes", whole_slot(Slot::Mode).unwrap_or_else(Json::null)),
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
        ("order", Json::array(shown().map(reference))),
    ];
    members.into_iter().map(|(name, value)| (name.into(), value)).collect::<Object>().to_json()
}

/// One entry as an object.
pub fn entry(entry: &Entry) -> Json {
    let body = entry.body();
    let object = match entry.id() {
        EntryId::Message(role, id) => {
            let message = Object::new().with("messageId", id.as_json()).with("role", role_name(*role));
            with_body(message.with("content", body.content.to_json()), body)
        }
        EntryId::ToolCall(id) => with_body(Object::new().with("toolCallId", id.as_json()), body)
            .with("content", body.content.to_json()),
        EntryId::Plan(_) => {
            let mut fields = body.fields.clone();
            let plan = fields.remove("plan").and_then(|plan| plan.to_object());
            with_fields(plan.unwrap_or_default(), &fields, body.meta.as_ref())
        }
        EntryId::Terminal(id) => {
            let output = output(&body.output, body.fields.get("output"));
            with_body(Object::new().with("terminalId", id.as_json()), body).with("output", output)
        }
        EntryId::Compaction(id) => {
            let compaction = Object::new().with("sessionUpdate", "compaction_update");
            with_body(compaction.with("compactionId", id.as_json()), body)
                .with("summary", body.content.to_json())
        }
        EntryId::Subagent(id) => {
            let subagent = Object::new().with("sessionUpdate", "subagent_update");
            with_body(subagent.with("sessionId", id.as_json()), body)
        }
        EntryId::SessionMessage(id) => {
            let message = Object::new().with("sessionUpdate", "session_message");
            with_body(message.with("messageId", id.as_json()), body).with("content", body.content.to_json())
        }
        EntryId::Event(id) => with_body(Object::new().with("eventId", id.as_json()), body),
        EntryId::Note(_) => with_body(Object::new(), body),
    };
    object.to_json()
}

/// The name of a role.
pub const fn role_name(role: Role) -> &'static str {
    match role {
        Role::User => "user",
        Role::Agent => "agent",
        Role::Thought => "thought",
    }
}

/// The name of an activity.
pub fn activity_name(activity: &Activity) -> JsonStr {
    match activity {
        Activity::Running => "running".into(),
        Activity::Idle => "idle".into(),
        Activity::RequiresAction => "requires_action".into(),
        Activity::Other(name) => name.clone(),
    }
}

/// The name of an entry's kind; for a note, the agent's name of the update.
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
            kind.and_then(parlor_json::Json::to_json_str).unwrap_or_else(|| "note".into())
        }
    }
}

fn reference(entry: &Entry) -> Json {
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
    Object::new().with("kind", kind_name(entry)).with("id", id).to_json()
}

fn state(state: &State) -> Json {
    let mut object = Object::new().with("state", activity_name(&state.activity));
    if let Some(reason) = &state.stop_reason {
        object.set("stopReason", reason);
    }
    with_fields(object, &state.fields, state.meta.as_ref()).to_json()
}

fn with_body(object: Object, body: &Body) -> Object {
    with_fields(object, &body.fields, body.meta.as_ref())
}

/// Adds fields and metadata, except those whose names the object has.
fn with_fields(mut object: Object, fields: &Object, meta: Option<&Object>) -> Object {
    object.add_missing(fields);
    if let Some(meta) = meta.filter(|_| object.get("_meta").is_none()) {
        object.set("_meta", meta.to_json());
    }
    object
}

fn empty_array() -> Json {
    Json::array::<Json>([])
}
