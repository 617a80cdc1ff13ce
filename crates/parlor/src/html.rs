//! Exports a session as a self-contained HTML page.
//!
//! The entries are those of the web page (`parlor_web::render`), which is safe for untrusted content. A content security policy
//! forbids the page to run or load anything.

use maud::{DOCTYPE, PreEscaped, html};
use parlor_server::stored::StoredSession;
use parlor_session::{Entry, MessageNumbers, Transcript};
use parlor_web::assets;
use parlor_web::render::content_block::MediaSource;
use parlor_web::render::text::clean_line;
use parlor_web::render::{EntryContext, entry};

use crate::offline_sessions::{session_id, session_title};
use crate::output::timestamp;

/// The content security policy: the style sheet and media that are part of the page, and nothing else.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; media-src data:; base-uri 'none'; \
    form-action 'none'";

/// Renders a session with its metadata.
pub(crate) fn session(opened: &StoredSession, transcript: &Transcript) -> String {
    let row = &opened.row;
    let numbers = MessageNumbers::of(transcript);
    let created_at = |entry: &Entry| {
        let at = opened.transcript.get(entry.id()).and_then(Entry::created_at)?;
        jiff::Timestamp::from_millisecond(at.0).ok()
    };
    let title = clean_line(&session_title(row).unwrap_or_else(|| "Session".to_owned()));
    let metadata = [
        ("Session", session_id(row)),
        ("Agent", row.agent.clone()),
        ("Directory", row.cwd.clone()),
        ("Started", timestamp(row.created_at)),
        ("Last change", timestamp(row.active_at)),
    ];
    let entries = transcript.entries().iter().filter_map(|one| {
        let context = EntryContext {
            transcript,
            agent: &row.agent,
            cwd: &row.cwd,
            media: MediaSource::Embedded,
            number: numbers.number_of(one),
            created_at: created_at(one),
            is_waiting: false,
        };
        entry(one, &context)
    });
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="referrer" content="no-referrer";
                title { (title) }
                style { (PreEscaped(assets::STYLE)) }
            }
            body.export {
                (assets::icons())
                header.page {
                    h1 { (title) }
                    dl.facts { @for (name, value) in &metadata { dt { (name) } dd { (clean_line(value)) } } }
                }
                main { ol.log { @for entry in entries { (entry) } } }
            }
        }
    };
    page.into_string() + "\n"
}

#[cfg(test)]
mod tests;
