//! One entry of a transcript as an element of the conversation.

use jiff::Timestamp;
use maud::{Markup, PreEscaped, html};
use parlor_session::{Content, Entry, EntryId, Role, Transcript, text_of};

use super::content_block::{ContentBlock, MediaSource};
use super::markdown::MarkdownBlocks;
use super::text::{clean, clean_line, element_id};
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
}

/// The element of an entry. An entry that is not [shown](is_shown) has none.
pub fn entry(entry: &Entry, context: &EntryContext<'_>) -> Option<Markup> {
    if !is_shown(entry, context.transcript) {
        return None;
    }
    let id = element_id(entry.id());
    let body = entry.body();
    Some(match entry.id() {
        EntryId::Message(role, _) => message(*role, &id, &body.content, context),
        EntryId::ToolCall(call) => {
            let EntryContext { transcript, cwd, media, is_waiting, .. } = *context;
            let card = tool_call::card(entry, &call.to_string(), transcript, cwd, media, is_waiting);
            html! { li.entry.call id=(id) { (card) } }
        }
        EntryId::Terminal(terminal) => {
            html! { li.entry.call id=(id) { (tool_call::terminal_card(&terminal.to_string(), body)) } }
        }
        EntryId::Plan(_) => html! { li.entry.call id=(id) { (plan::card(body)) } },
        EntryId::Event(_) if event::is_failure(body) => {
            html! { li.entry.fail id=(id) { (event::html(entry)) } }
        }
        EntryId::Event(_)
        | EntryId::Compaction(_)
        | EntryId::Subagent(_)
        | EntryId::SessionMessage(_)
        | EntryId::Note(_) => html! { li.entry.turn id=(id) { (event::html(entry)) } },
    })
}

/// Whether an entry has an element of its own: it is not removed, and no tool call shows it.
pub fn is_shown(entry: &Entry, transcript: &Transcript) -> bool {
    !entry.body().removed
        && match entry.id() {
            EntryId::Terminal(id) => !is_in_tool_call(entry, id, transcript),
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

/// The last change of what an entry shows: its own, or that of a terminal that it refers to.
pub fn revision(entry: &Entry, transcript: &Transcript) -> u64 {
    let EntryId::ToolCall(_) = entry.id() else { return entry.seq() };
    let terminals =
        tool_call::terminals(entry.body()).filter_map(|id| transcript.get(&EntryId::Terminal(id)));
    terminals.map(Entry::seq).fold(entry.seq(), u64::max)
}

/// How far around a terminal the tool call that shows it is searched.
const NEAR: usize = 64;

fn is_in_tool_call(entry: &Entry, id: &parlor_session::TerminalId, transcript: &Transcript) -> bool {
    let entries = transcript.entries();
    let Ok(index) = entries.binary_search_by_key(&entry.created(), Entry::created) else { return false };
    let near = &entries[index.saturating_sub(NEAR)..entries.len().min(index + NEAR)];
    near.iter().any(|near| {
        matches!(near.id(), EntryId::ToolCall(_))
            && tool_call::terminals(near.body()).any(|terminal| terminal == *id)
    })
}

fn message(role: Role, id: &str, content: &Content, context: &EntryContext<'_>) -> Markup {
    let blocks = message_blocks(role, id, content, context.media);
    let blocks = html! { @for block in blocks { (block) } };
    match role {
        Role::User => html! {
            li.entry.user id=(id) { (who("You", id, context)) div.md id=(format!("{id}:c")) { (blocks) } }
        },
        Role::Agent => html! {
            li.entry.agent id=(id) {
                (who(&clean_line(context.agent), id, context)) div.md id=(format!("{id}:c")) { (blocks) }
            }
        },
        Role::Thought => html! {
            li.entry id=(id) {
                details.thought {
                    summary { (icon("chev", "chev")) "Thought" }
                    div.md id=(format!("{id}:c")) { (blocks) }
                }
            }
        },
    }
}

/// The blocks of a message: text as Markdown, or as it was written if a person wrote it, and other content.
fn message_blocks(role: Role, id: &str, content: &Content, media: MediaSource<'_>) -> Vec<Markup> {
    let mut blocks = Vec::new();
    for (index, item) in content.joined().iter().enumerate() {
        match text_of(item.json) {
            Some(text) if role == Role::User => blocks.push(html! { p.written { (clean(text.trim_end())) } }),
            Some(text) => {
                let mut markdown = MarkdownBlocks::default();
                markdown.push(&text);
                blocks.extend(markdown.blocks().iter().map(|block| PreEscaped(block.clone())));
            }
            None => blocks.push(ContentBlock::of(item.json).html(media, &format!("{id}:{index}"))),
        }
    }
    blocks
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

/// A time, in UTC until the script shows it in the zone of the browser.
pub(crate) fn time_html(at: Timestamp) -> Markup {
    let shown = at.to_string();
    let shown = shown.get(..16).unwrap_or(&shown).replace('T', " ");
    html! { time datetime=(at) { (shown) " UTC" } }
}
