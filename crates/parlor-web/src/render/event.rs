//! Events and other entries that are neither messages nor tool calls.

use maud::{Markup, PreEscaped, html};
use parlor_session::{Entry, EntryId};
use parlor_view::address::session_path;
use parlor_view::event::{EventMark, EventWords};

use super::text::{clean, clean_line};
use super::{code, markdown};
use crate::assets::{icon, state_icon};

/// The element of an event, a compaction, a subagent, a message between sessions, a notice or an unknown update.
pub(crate) fn element(entry: &Entry, id: &str) -> Markup {
    let words = EventWords::of_entry(entry);
    let time = words.at.as_ref().and_then(|at| at.parse::<jiff::Timestamp>().ok());
    let time = html! { @if let Some(at) = time { " " (super::entry::time_html(at)) } };
    let sentence = capitalised(&clean_line(&words.sentence));
    if words.mark == EventMark::Failed {
        let (head, more) = sentence.split_once(": ").unwrap_or((&sentence, ""));
        return html! {
            li.entry.fail id=(id) {
                (state_icon("bad", "bad", "failed"))
                div.grow {
                    h3 { (head) (time) }
                    @if !more.is_empty() { p { (more) } }
                    @if !words.details.is_empty() { pre.term tabindex="0" { (clean(&words.details.join("\n"))) } }
                }
            }
        };
    }
    let details = words.details.join("\n");
    let sentence = if let EntryId::Subagent(session) = entry.id() {
        html! { a href=(session_path(session)) { (sentence) } }
    } else {
        html! { (sentence) }
    };
    html! {
        li.entry.turn id=(id) {
            @if details.is_empty() {
                span { (sentence) (time) }
            } @else {
                details.thought {
                    summary { (icon("chev", "chev")) (sentence) (time) }
                    (details_html(entry, &details))
                }
            }
        }
    }
}

/// What there is to know beside the sentence: Markdown of the agent, JSON or text.
fn details_html(entry: &Entry, details: &str) -> Markup {
    match entry.id() {
        EntryId::Compaction(_) | EntryId::SessionMessage(_) => {
            html! { div.md { (PreEscaped(markdown::to_html(details))) } }
        }
        EntryId::Note(_) if details.starts_with('{') => code::block(&clean(details), "json"),
        EntryId::Note(_)
        | EntryId::Event(_)
        | EntryId::Subagent(_)
        | EntryId::Message(..)
        | EntryId::ToolCall(_)
        | EntryId::Plan(_)
        | EntryId::Terminal(_) => html! { p.muted.written { (clean(details)) } },
    }
}

fn capitalised(sentence: &str) -> String {
    let mut letters = sentence.chars();
    letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect()
}
