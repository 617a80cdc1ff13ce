//! A session as one JSON object: who it belongs to, and its transcript.

use parlor_dialect::view;
use parlor_json::{Json, JsonRef, Object};
use parlor_server::stored::StoredSession;
use parlor_session::{MessageNumbers, Transcript};

use crate::output::timestamp;
use crate::session_list::ListedSession;

/// A session with the members of `parlor fold`. In `order`, messages have their `number`, and entries the time `at` which they were
/// created, if it is known.
pub(crate) fn session(session: &ListedSession, opened: &StoredSession, transcript: &Transcript) -> Json {
    let text = |text: &Option<String>| text.as_ref().map_or_else(Json::null, Json::from);
    let mut object = Object::new()
        .with("sessionId", &session.session_id)
        .with("title", text(&session.title))
        .with("agent", &session.agent)
        .with("cwd", &session.cwd)
        .with("createdAt", &session.created_at)
        .with("updatedAt", &session.updated_at)
        .with("mode", text(&session.mode))
        .with("model", text(&session.model))
        .with("parent", text(&session.parent))
        .with("forkedAt", text(&session.forked_at));
    let folded = view::transcript(transcript).to_object().unwrap_or_default();
    object.add_missing(&folded);
    object.set("order", order(&folded, opened, transcript));
    object.to_json()
}

fn order(folded: &Object, opened: &StoredSession, transcript: &Transcript) -> Json {
    let numbers = MessageNumbers::of(transcript);
    let shown = transcript.entries().iter().filter(|entry| !entry.body().removed);
    let listed = folded.get_array("order").unwrap_or_default();
    let entries = listed.into_iter().filter_map(JsonRef::to_object).zip(shown).map(|(mut listed, entry)| {
        if let Some(number) = numbers.number_of(entry) {
            listed.set("number", number);
        }
        if let Some(at) = opened.transcript.get(entry.id()).and_then(parlor_session::Entry::created_at) {
            listed.set("at", timestamp(at.0));
        }
        listed
    });
    Json::array(entries.collect::<Vec<_>>())
}
