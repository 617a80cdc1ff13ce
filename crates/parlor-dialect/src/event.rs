//! Events as JSON: the members of an `_parlor_event` update.

use parlor_json::{Json, JsonRef, JsonStr, Object};
use parlor_session::session::TurnEnd;
use parlor_session::{Body, Decider, Decision, Event, EventKind, State, Upsert};

/// The name of the update.
pub(crate) const UPDATE: &str = "_parlor_event";

/// The metadata key of `initialize` with which a client requests events.
pub const EVENTS_KEY: &str = "parlor/events";

/// Maximum bytes of JSON of a request's raw input that a decision records. Longer input is left out.
const MAX_INPUT: usize = 64 << 10;

/// Whether the params of an `initialize` request events.
pub fn wants_events(initialize: &Object) -> bool {
    initialize.get_nested("_meta", EVENTS_KEY).is_some_and(|wanted| wanted.as_bool() == Some(true))
}

/// The entry of an event.
pub(crate) fn upsert(event: &Event) -> Upsert {
    let mut fields = Object::default();
    fields.set("type", type_of(&event.kind));
    fields.set("at", event.at.to_string());
    match &event.kind {
        EventKind::TurnFailed { prompt, error } => {
            set(&mut fields, "messageId", prompt.as_ref().map(|prompt| prompt.as_json().into()));
            set(&mut fields, "error", error.clone());
        }
        EventKind::TurnRefused { prompt } => {
            set(&mut fields, "messageId", prompt.as_ref().map(|prompt| prompt.as_json().into()));
        }
        EventKind::TurnCancelled { prompt, by, unanswered } => {
            set(&mut fields, "messageId", prompt.as_ref().map(|prompt| prompt.as_json().into()));
            set(&mut fields, "by", by.as_ref().map(by_whom));
            set(&mut fields, "agentDidNotAnswer", unanswered.then(|| true.into()));
        }
        EventKind::Decision(decision) => {
            fields.set("request", &decision.request);
            set(&mut fields, "toolCallId", decision.tool_call.as_ref().map(|call| call.as_json().into()));
            set(&mut fields, "title", decision.title.as_ref().map(Json::from));
            set(&mut fields, "rawInput", decision.input.clone());
            set(&mut fields, "outcome", decision.outcome.as_ref().map(Json::from));
            set(&mut fields, "option", decision.option.clone());
            fields.set("by", by_whom(&decision.by));
        }
        EventKind::MemoryRebuilt { reason } => fields.set("reason", reason),
    }
    Upsert { whole: true, fields, ..Upsert::default() }
}

fn by_whom(client: &Decider) -> Json {
    let mut by = Object::default();
    by.set("client", client.client.0);
    set(&mut by, "name", client.name.as_ref().map(Json::from));
    by.to_json()
}

fn set(fields: &mut Object, name: &str, value: Option<Json>) {
    if let Some(value) = value {
        fields.set(name, value);
    }
}

fn type_of(kind: &EventKind) -> &'static str {
    match kind {
        EventKind::TurnFailed { .. } => "turn_failed",
        EventKind::TurnRefused { .. } => "turn_refused",
        EventKind::TurnCancelled { .. } => "turn_cancelled",
        EventKind::Decision(_) => "decision",
        EventKind::MemoryRebuilt { .. } => "memory_rebuilt",
    }
}

/// How the turn ended that left the session in this state.
pub(crate) fn turn_end(state: &State) -> TurnEnd {
    match state.stop_reason.as_ref().map(JsonStr::inner) {
        Some("cancelled") => TurnEnd::Cancelled,
        Some("refusal") => TurnEnd::Refused,
        Some("error") => TurnEnd::Failed(state.fields.get("error").cloned()),
        Some(_) | None => TurnEnd::Completed,
    }
}

/// Whether the turn that left the session in this state failed.
pub fn has_failed(state: &State) -> bool {
    matches!(turn_end(state), TurnEnd::Failed(_))
}

/// The decision about an agent's request, as an event. The values of a form are not part of it.
pub fn decision(method: &str, params: &Object, result: &Json, by: Decider) -> EventKind {
    let subject = params.get_object("subject").unwrap_or_default();
    let call = params.get_object("toolCall").or_else(|| subject.get_object("toolCall"));
    let call = call.unwrap_or_else(|| subject.clone());
    let title = params.get_json_str("title").or_else(|| call.get_json_str("title"));
    let input = call.get("rawInput").filter(|input| !input.is_null()).cloned();
    let input = input.or_else(|| command(&subject)).filter(|input| input.as_str().len() <= MAX_INPUT);
    let result = result.to_object().unwrap_or_default();
    let outcome = result.get_object("outcome").unwrap_or_default();
    let chosen = outcome.get_json_str("optionId");
    let options = params.get_array("options");
    let option = chosen.as_ref().and_then(|chosen| {
        let mut options = options.unwrap_or_default().into_iter().filter_map(JsonRef::to_object);
        let listed = options.find(|option| option.get_json_str("optionId").as_ref() == Some(chosen))?;
        Some(listed.to_json())
    });
    EventKind::Decision(Decision {
        request: method.to_owned(),
        tool_call: call
            .get_json_str("toolCallId")
            .or_else(|| params.get_json_str("toolCallId"))
            .map(Into::into),
        title: title.or_else(|| params.get_json_str("message")),
        input,
        outcome: outcome.get_json_str("outcome").or_else(|| result.get_json_str("action")),
        option: option.or_else(|| {
            let mut unlisted = Object::default();
            unlisted.set("optionId", &chosen?);
            Some(unlisted.to_json())
        }),
        by,
    })
}

/// The command that permission is requested for, if the request has it without a tool call.
fn command(subject: &Object) -> Option<Json> {
    let mut input = Object::default();
    for name in ["command", "cwd"] {
        set(&mut input, name, subject.get(name).cloned());
    }
    (!input.is_empty()).then(|| input.to_json())
}

/// An event in one sentence, for people.
pub fn sentence(body: &Body) -> String {
    let fields = &body.fields;
    let text = |name: &str| fields.get_string(name);
    let by = || {
        let name = fields.get_object("by").and_then(|by| by.get_string("name"));
        name.map(|name| format!(" ({})", parlor_session::acted_where(&name))).unwrap_or_default()
    };
    match text("type").as_deref() {
        Some("turn_failed") => {
            let error = fields.get_object("error").unwrap_or_default();
            let message = error.get_string("message");
            message.map_or_else(|| "turn failed".to_owned(), |message| format!("turn failed: {message}"))
        }
        Some("turn_refused") => "turn refused by the agent".to_owned(),
        Some("turn_cancelled") => {
            let unanswered = fields.get_bool("agentDidNotAnswer") == Some(true);
            let why = if unanswered { "; the agent did not answer the cancellation" } else { "" };
            format!("turn cancelled{}{why}", by())
        }
        Some("memory_rebuilt") => {
            "the agent no longer had this session and was given the transcript".to_owned()
        }
        Some("decision") => {
            let option = fields.get_object("option").unwrap_or_default();
            let chosen = option.get_string("name").or_else(|| option.get_string("optionId"));
            let chosen = chosen.or_else(|| text("outcome")).unwrap_or_else(|| "answered".to_owned());
            let about = text("title").or_else(|| text("toolCallId"));
            let about = about.map(|about| format!(": {about}")).unwrap_or_default();
            match chosen.as_str() {
                "accept" => format!("filled in{about}{}", by()),
                "decline" => format!("declined{about}{}", by()),
                chosen => format!("decided \u{201c}{chosen}\u{201d}{about}{}", by()),
            }
        }
        Some(other) => other.to_owned(),
        None => "event".to_owned(),
    }
}
