//! Exports a session as a self-contained HTML page.

use jiff::Timestamp;
use parlor_server::stored::{SessionData, StoredSession};
use parlor_session::{Entry, Transcript};
use parlor_web::export::Export;
use parlor_web::render::Authors;

use crate::offline_sessions::session_id;
use crate::output::timestamp;

/// Renders a session with its name and metadata.
pub(crate) fn session(name: Option<&str>, opened: &StoredSession, transcript: &Transcript) -> String {
    let row = &opened.row;
    let facts = [
        ("Session", session_id(row)),
        ("Agent", row.agent.clone()),
        ("Directory", row.cwd.clone()),
        ("Started", timestamp(row.created_at)),
        ("Last change", timestamp(row.active_at)),
    ];
    let earlier = SessionData::of(row).earlier_agents;
    let authors =
        Authors::new(&row.agent, earlier.into_iter().map(|agent| (agent.name, agent.messages)).collect());
    let export = Export {
        title: name.unwrap_or("Session"),
        authors: &authors,
        cwd: &row.cwd,
        facts: &facts,
        transcript,
    };
    let page = export.render(|entry| {
        let at = opened.transcript.get(entry.id()).and_then(Entry::created_at)?;
        Timestamp::from_millisecond(at.0).ok()
    });
    page.into_string() + "\n"
}

#[cfg(test)]
mod tests;
