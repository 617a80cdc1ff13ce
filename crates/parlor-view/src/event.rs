//! Events and other entries that are neither messages nor tool calls, in words, for any output.

use parlor_json::{Json, Object};
use parlor_session::{Body, Entry, EntryId};

use crate::content_block::compact;

/// How an entry is marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventMark {
    /// Something failed.
    Failed,
    /// Something was cancelled.
    Cancelled,
    /// Something happened.
    None,
    /// A decision about the entry before it.
    Below,
}

/// An entry in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventWords {
    /// How it is marked.
    pub mark: EventMark,
    /// What happened.
    pub sentence: String,
    /// More about it, one line each.
    pub details: Vec<String>,
    /// When it happened, as RFC 3339.
    pub at: Option<String>,
}

/// The state of a subagent in a word, as its owner knows it; `None` if the agent does not report it.
pub fn subagent_state(body: &Body) -> Option<String> {
    let state = body.fields.get_object("state")?;
    let name = state.get_string("state")?;
    let stop_reason = state.get_string("stopReason");
    Some(match (name.as_str(), stop_reason.as_deref()) {
        ("idle", None | Some("end_turn")) => "done".to_owned(),
        ("idle", Some("error")) => "failed".to_owned(),
        ("idle", Some(reason)) => reason.replace('_', " "),
        ("requires_action", _) => "waits for you".to_owned(),
        (name, _) => name.replace('_', " "),
    })
}

impl EventWords {
    /// The words for an event, a compaction, a subagent, a message between sessions, a notice or an unknown update.
    pub fn of_entry(entry: &Entry) -> Self {
        let body = entry.body();
        let text = |name: &str| body.fields.get_string(name).filter(|text| !text.is_empty());
        let named = |sentence: String, details: Option<String>| Self {
            mark: EventMark::None,
            sentence,
            details: details.iter().flat_map(|text| text.lines()).map(str::to_owned).collect(),
            at: text("at"),
        };
        match entry.id() {
            EntryId::Event(_) => Self::of_event(body),
            EntryId::Compaction(_) => {
                let sentence = match text("status").as_deref() {
                    None | Some("completed") => "Context compacted".to_owned(),
                    Some("in_progress") => "Context is being compacted".to_owned(),
                    Some(status) => format!("Context compaction {status}"),
                };
                named(sentence, Some(body.content.to_text()))
            }
            EntryId::Subagent(id) => {
                let state = subagent_state(body).map(|state| format!(" ({state})")).unwrap_or_default();
                named(
                    format!("Subagent {}{state}", text("title").unwrap_or_else(|| id.to_string())),
                    text("description"),
                )
            }
            EntryId::SessionMessage(_) => {
                let name = |field| text(field).unwrap_or_else(|| "?".to_owned());
                let sentence =
                    format!("Message from {} to {}", name("senderSessionId"), name("recipientSessionId"));
                named(sentence, Some(body.content.to_text()))
            }
            EntryId::Note(_) => {
                let kind = text("sessionUpdate").unwrap_or_else(|| "update".to_owned());
                match text("title").filter(|_| kind == "notice") {
                    Some(title) => {
                        let severity = text("severity").filter(|severity| severity != "info");
                        let severity = severity.map(|severity| format!("{severity}: ")).unwrap_or_default();
                        named(format!("{severity}{title}"), text("description"))
                    }
                    None => named(kind, Some(compact(&body.fields.to_json()))),
                }
            }
            EntryId::Message(..) | EntryId::ToolCall(_) | EntryId::Plan(_) | EntryId::Terminal(_) => {
                named("Entry".to_owned(), Some(compact(&body.fields.to_json())))
            }
        }
    }

    fn of_event(body: &Body) -> Self {
        let fields = &body.fields;
        let text = |name: &str| fields.get_string(name).filter(|text| !text.is_empty());
        let by = || {
            let name = fields.get_object("by").and_then(|by| by.get_string("name"));
            name.map(|name| format!(" {}", parlor_session::acted_where(&name))).unwrap_or_default()
        };
        let kind = text("type").unwrap_or_else(|| "event".to_owned());
        let (mark, sentence, details) = match kind.as_str() {
            "turn_failed" => {
                let error = fields.get_object("error").unwrap_or_default();
                let message = error.get_string("message").filter(|message| !message.is_empty());
                let sentence = message
                    .map_or_else(|| "Turn failed".to_owned(), |message| format!("Turn failed: {message}"));
                (EventMark::Failed, sentence, error_details(&error))
            }
            "turn_refused" => (EventMark::Failed, "Turn refused by the agent".to_owned(), Vec::new()),
            "turn_cancelled" => {
                let unanswered = fields.get_bool("agentDidNotAnswer") == Some(true);
                let details = unanswered.then(|| "The agent did not answer the cancellation.".to_owned());
                (EventMark::Cancelled, format!("Turn cancelled{}", by()), details.into_iter().collect())
            }
            "memory_rebuilt" => {
                let sentence = "Agent restarted; context restored from the transcript".to_owned();
                (EventMark::None, sentence, text("reason").into_iter().collect())
            }
            "decision" => (EventMark::Below, decision(fields, &by()), Vec::new()),
            other => {
                let other = other.replace('_', " ");
                (EventMark::None, other, vec![compact(&fields.to_json())])
            }
        };
        Self { mark, sentence, details, at: text("at") }
    }
}

/// What was decided and where: `allowed once by zed`, or the name of the chosen option.
fn decision(fields: &Object, by: &str) -> String {
    let option = fields.get_object("option").unwrap_or_default();
    let known = match option.get_str("kind").as_deref() {
        Some("allow_once") => Some("allowed once"),
        Some("allow_always") => Some("allowed always"),
        Some("reject_once") => Some("rejected"),
        Some("reject_always") => Some("rejected always"),
        Some(_) | None => None,
    };
    let name = || option.get_string("name").or_else(|| option.get_string("optionId"));
    let outcome = || {
        fields.get_string("outcome").map(|outcome| match outcome.as_str() {
            "accept" => "form sent".to_owned(),
            "decline" => "form declined".to_owned(),
            "cancel" | "cancelled" => "not answered, cancelled".to_owned(),
            _ => outcome,
        })
    };
    let chosen = known.map(str::to_owned).or_else(name).or_else(outcome);
    let chosen = chosen.unwrap_or_else(|| "answered".to_owned());
    // A decision about a tool call is below it.
    match fields.get_string("title").filter(|_| fields.get("toolCallId").is_none()) {
        Some(title) => format!("{chosen}{by}: {title}"),
        None => format!("{chosen}{by}"),
    }
}

/// The data of an error: its lines if it is text, else JSON.
fn error_details(error: &Object) -> Vec<String> {
    let Some(data) = error.get("data").filter(|data| !data.is_null()) else { return Vec::new() };
    let stderr =
        data.to_object().and_then(|data| data.get_string("stderr").or_else(|| data.get_string("details")));
    let text = data.to_text().map(std::borrow::Cow::into_owned).or(stderr);
    text.map_or_else(|| vec![compact(data)], |text| text.lines().map(str::to_owned).collect())
}

/// An item of a plan: its status and its text.
pub fn plan_items(body: &Body) -> Vec<(String, String)> {
    let plan = body.fields.get("plan").and_then(Json::to_object).unwrap_or_else(|| body.fields.clone());
    let items = plan.get_array("entries").unwrap_or_default();
    let item = |item: parlor_json::JsonRef<'_>| {
        let item = item.to_object()?;
        let status = item.get_string("status").unwrap_or_else(|| "pending".to_owned());
        Some((status, item.get_string("content").unwrap_or_default()))
    };
    items.into_iter().filter_map(item).collect()
}

/// The text of a plan that has no items: Markdown, or the address of a file.
pub fn plan_text(body: &Body) -> Option<String> {
    let plan = body.fields.get("plan").and_then(Json::to_object).unwrap_or_else(|| body.fields.clone());
    plan.get_string("content").or_else(|| plan.get_string("uri")).filter(|text| !text.is_empty())
}
