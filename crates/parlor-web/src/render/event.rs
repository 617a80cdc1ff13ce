//! Events and other entries that are neither messages nor tool calls.

use maud::{Markup, PreEscaped, html};
use parlor_dialect::event;
use parlor_session::{Body, Content, Entry, EntryId};

use super::markdown;
use super::text::{clean, clean_line};
use crate::assets::{icon, state_icon};

/// An event, a compaction, a subagent, a message between sessions, a notice or an unknown update.
pub(crate) fn html(entry: &Entry) -> Markup {
    let body = entry.body();
    let text = |name: &str| body.fields.get_string(name).filter(|text| !text.is_empty());
    match entry.id() {
        EntryId::Event(_) => event_html(body),
        EntryId::Compaction(_) => folded("The context was compacted", &content(&body.content)),
        EntryId::Subagent(id) => {
            let title = text("title").unwrap_or_else(|| id.to_string());
            let status = text("status").map(|status| format!(" ({status})")).unwrap_or_default();
            note(&format!("Subagent {title}{status}"))
        }
        EntryId::SessionMessage(_) => {
            let name = |field| text(field).unwrap_or_else(|| "?".to_owned());
            let title = format!("Message from {} to {}", name("senderSessionId"), name("recipientSessionId"));
            folded(&title, &content(&body.content))
        }
        EntryId::Note(_) if text("sessionUpdate").as_deref() == Some("notice") => {
            let severity = text("severity").filter(|severity| severity != "info");
            let severity = severity.map(|severity| format!("{severity}: ")).unwrap_or_default();
            let title = text("title").unwrap_or_default();
            html! {
                (note(&format!("{severity}{title}")))
                @if let Some(more) = text("description") { p.muted { (clean(&more)) } }
            }
        }
        EntryId::Note(_)
        | EntryId::Message(..)
        | EntryId::ToolCall(_)
        | EntryId::Plan(_)
        | EntryId::Terminal(_) => {
            let kind = text("sessionUpdate").unwrap_or_else(|| "update".to_owned());
            folded(&format!("Unknown update {kind}"), &markdown::code(&clean(body.fields.to_json().as_str())))
        }
    }
}

/// Whether an entry is shown as a failed turn.
pub(crate) fn is_failure(body: &Body) -> bool {
    matches!(body.fields.get_str("type").as_deref(), Some("turn_failed" | "turn_refused"))
}

fn event_html(body: &Body) -> Markup {
    let sentence = clean_line(&event::sentence(body));
    let mut letters = sentence.chars();
    let sentence: String = letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect();
    if !is_failure(body) {
        return html! { span { (sentence) } (time(body)) };
    }
    let (head, more) = sentence.split_once(": ").unwrap_or((&sentence, ""));
    html! {
        (state_icon("bad", "bad", "failed"))
        div.grow { h3 { (head) (time(body)) } @if !more.is_empty() { p { (more) } } }
    }
}

/// When an event happened.
fn time(body: &Body) -> Markup {
    let at = body.fields.get_str("at").and_then(|at| at.parse::<jiff::Timestamp>().ok());
    html! { @if let Some(at) = at { " " (super::entry::time_html(at)) } }
}

fn note(sentence: &str) -> Markup {
    html! { span { (clean_line(sentence)) } }
}

fn folded(title: &str, inside: &Markup) -> Markup {
    html! {
        details.thought { summary { (icon("chev", "chev")) (clean_line(title)) } (inside) }
    }
}

fn content(content: &Content) -> Markup {
    html! { div.md { (PreEscaped(markdown::to_html(&content.to_text()))) } }
}
