//! When entries were created, for clients that are sent them again.

use parlor_json::Json;
use parlor_session::{Target, Transcript, UnixMillis, Update};

/// When the entry was created that a replayed update is about. The first update of an entry is an upsert.
pub(super) fn created_at(update: &Update, transcript: &Transcript) -> Option<UnixMillis> {
    match update {
        Update::Upsert { target: Target::Entry(entry), .. } => transcript.get(entry)?.created_at(),
        Update::Upsert { target: Target::Slot(_), .. }
        | Update::Append { .. }
        | Update::Output { .. }
        | Update::Remove { .. }
        | Update::Note { .. }
        | Update::State(_) => None,
    }
}

/// An encoded update with the time at which its entry was created, in its metadata.
pub(super) fn with_time(encoded: String, at: Option<UnixMillis>) -> String {
    let Some(UnixMillis(at)) = at else { return encoded };
    let Some(mut update) = Json::parse(encoded.as_str()).ok().and_then(|update| update.to_object()) else {
        return encoded;
    };
    update.set_nested("_meta", "parlor/at", at);
    update.text()
}
