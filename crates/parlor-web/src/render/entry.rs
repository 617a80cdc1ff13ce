//! One entry of a transcript as an element of the conversation.

use jiff::Timestamp;
use maud::{Markup, PreEscaped, html};
use parlor_session::{Entry, EntryId, Role, TerminalId, Transcript};

use super::content_block::MediaSource;
use super::message::MessageBlocks;
use super::text::{clean_line, element_id};
use super::tool_call::CardContext;
use super::turn_files::FileCounts;
use super::{event, plan, tool_call};
use crate::assets::icon;

/// What an entry is rendered with.
#[derive(Debug, Clone, Copy)]
pub struct EntryContext<'a> {
    /// The transcript of the entry, for the terminals that tool calls refer to.
    pub transcript: &'a Transcript,
    /// The name of the agent.
    pub agent: &'a str,
    /// The working directory of the session: paths inside it are shown relative to it.
    pub cwd: &'a str,
    /// Where images and sounds are.
    pub media: MediaSource<'a>,
    /// The number of a message, if it is known.
    pub number: Option<usize>,
    /// When the entry was created, if it is known.
    pub created_at: Option<Timestamp>,
    /// Whether a request about the tool call waits for a person.
    pub is_waiting: bool,
    /// The files that the turn changed which ended with the entry.
    pub changed: Option<&'a FileCounts>,
}

/// The element of an entry. An entry that is not [shown](is_shown) has none.
pub fn entry(entry: &Entry, context: &EntryContext<'_>) -> Option<Markup> {
    if !is_shown(entry, context.transcript) {
        return None;
    }
    let id = element_id(entry.id());
    let EntryContext { transcript, cwd, media, is_waiting, created_at, .. } = *context;
    let card = CardContext { transcript, cwd, media, is_waiting, created_at };
    let changed = changed_html(context);
    Some(match entry.id() {
        EntryId::Message(role, _) => {
            let mut blocks = MessageBlocks::new(*role);
            blocks.update(entry, &id, media);
            message(*role, &id, blocks.blocks(), context)
        }
        EntryId::ToolCall(_) => html! { li.entry.call id=(id) { (tool_call::card(entry, card)) (changed) } },
        EntryId::Terminal(terminal) => {
            html! { li.entry.call id=(id) { (tool_call::terminal_card(entry, terminal, card)) } }
        }
        EntryId::Plan(_) => {
            html! { li.entry.call id=(id) { (plan::card(entry.body(), created_at)) (changed) } }
        }
        EntryId::Event(_)
        | EntryId::Compaction(_)
        | EntryId::Subagent(_)
        | EntryId::SessionMessage(_)
        | EntryId::Note(_) => event::element(entry, &id),
    })
}

/// Whether an entry has an element of its own: it is not removed, and no tool call shows it.
pub fn is_shown(entry: &Entry, transcript: &Transcript) -> bool {
    !entry.body().removed
        && match entry.id() {
            EntryId::Terminal(id) => tool_call_of(entry, id, transcript).is_none(),
            EntryId::Message(..)
            | EntryId::ToolCall(_)
            | EntryId::Plan(_)
            | EntryId::Compaction(_)
            | EntryId::Subagent(_)
            | EntryId::SessionMessage(_)
            | EntryId::Event(_)
            | EntryId::Note(_) => true,
        }
}

/// How far around a terminal the tool call that shows it is searched.
const NEAR: usize = 64;

/// The tool call that shows a terminal.
pub(crate) fn tool_call_of<'a>(
    entry: &Entry,
    id: &TerminalId,
    transcript: &'a Transcript,
) -> Option<&'a Entry> {
    let entries = transcript.entries();
    let index = entries.binary_search_by_key(&entry.created(), Entry::created).ok()?;
    let near = &entries[index.saturating_sub(NEAR)..entries.len().min(index + NEAR)];
    near.iter().find(|near| {
        matches!(near.id(), EntryId::ToolCall(_))
            && tool_call::terminals(near.body()).any(|terminal| terminal == *id)
    })
}

/// The element of a message with the HTML of its blocks.
pub(crate) fn message(role: Role, id: &str, blocks: &[String], context: &EntryContext<'_>) -> Markup {
    let blocks = html! { @for block in blocks { (PreEscaped(block)) } };
    match role {
        Role::User => html! {
            li.entry.user id=(id) { (who("You", id, context)) div.md id=(blocks_id(id)) { (blocks) } }
        },
        Role::Agent => html! {
            li.entry.agent id=(id) {
                (who(&clean_line(context.agent), id, context)) div.md id=(blocks_id(id)) { (blocks) }
                (changed_html(context))
            }
        },
        Role::Thought => html! {
            li.entry id=(id) {
                details.thought {
                    summary { (icon("chev", "chev")) "Thought" (clock_html(context.created_at)) }
                    div.md id=(blocks_id(id)) { (blocks) }
                }
                (changed_html(context))
            }
        },
    }
}

/// The files that the turn changed which ended with the entry.
fn changed_html(context: &EntryContext<'_>) -> Markup {
    context.changed.map(FileCounts::summary).unwrap_or_default()
}

/// The id of the element that has the blocks of a message.
pub(crate) fn blocks_id(id: &str) -> String {
    // No id of an entry has a colon.
    format!("{id}:c")
}

/// The head of a message: who wrote it, its number as a link to it, and when.
fn who(name: &str, id: &str, context: &EntryContext<'_>) -> Markup {
    html! {
        div.who {
            h2 { (name) }
            @if let Some(number) = context.number { a.muted href=(format!("#{id}")) { "#" (number) } }
            @if let Some(at) = context.created_at { (time_html(at)) }
        }
    }
}

/// The time of day at which an entry was created, which is shown beside its summary while a person points at it.
pub(crate) fn clock_html(at: Option<Timestamp>) -> Markup {
    let shown = at.map(|at| at.to_string()).unwrap_or_default();
    html! { @if let Some(at) = at { time.at datetime=(at) { (shown.get(11..16).unwrap_or_default()) } } }
}

/// A time, which the script shows as how long ago it was.
pub(crate) fn age_html(at: Timestamp) -> Markup {
    let shown = at.to_string();
    let shown = shown.get(..16).unwrap_or(&shown).replace('T', " ");
    html! { time.ago datetime=(at) { (shown) " UTC" } }
}

/// A time, in UTC until the script shows it in the zone of the browser.
pub(crate) fn time_html(at: Timestamp) -> Markup {
    let shown = at.to_string();
    let shown = shown.get(..16).unwrap_or(&shown).replace('T', " ");
    html! { time datetime=(at) { (shown) " UTC" } }
}
