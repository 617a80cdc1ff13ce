//! Tool calls and terminals as cards: one line that opens.

use jiff::Timestamp;
use maud::{Markup, html};
use parlor_json::{Members, Object};
use parlor_session::{Body, Entry, EntryId, TerminalId, Transcript};
use parlor_view::content_block::compact;
use parlor_view::diff::{self as view_diff, FileDiff};
use parlor_view::tool_call::{ToolContent, ToolDetails, ToolStatus, ToolSubject, without_fence};
use parlor_wire::ToolKind;

use super::content_block::{ContentBlock, MediaSource};
use super::entry::clock_html;
use super::text::{clean, clean_line, element_id, short_path};
use super::{code, diff, terminal};
use crate::assets::{icon, state_icon};

/// Bytes of a command that is not repeated below the summary: a longer one may be cut there.
const MAX_IN_SUMMARY: usize = 32;

/// How far the work on a card has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CardState {
    Pending,
    Running,
    /// A person has to answer a request about it.
    Waiting,
    Completed,
    Failed,
    Cancelled,
}

impl CardState {
    fn class(self) -> &'static str {
        match self {
            Self::Pending | Self::Cancelled => "idle",
            Self::Running => "run",
            Self::Waiting => "you",
            Self::Completed => "ok",
            Self::Failed => "bad",
        }
    }

    fn icon(self) -> Markup {
        match self {
            Self::Pending => state_icon("idle", "idle", "pending"),
            Self::Running => state_icon("run", "run", "running"),
            Self::Waiting => state_icon("you", "you", "needs you"),
            Self::Completed => state_icon("ok", "ok", "completed"),
            Self::Failed => state_icon("bad", "bad", "failed"),
            Self::Cancelled => state_icon("x", "idle", "cancelled"),
        }
    }
}

impl From<ToolStatus> for CardState {
    fn from(status: ToolStatus) -> Self {
        match status {
            ToolStatus::Pending => Self::Pending,
            ToolStatus::Running => Self::Running,
            ToolStatus::Completed => Self::Completed,
            ToolStatus::Failed => Self::Failed,
            ToolStatus::Cancelled => Self::Cancelled,
        }
    }
}

/// A card: a summary in one line, and what it opens.
pub(crate) struct Card<'a> {
    pub(crate) state: CardState,
    pub(crate) icon: &'static str,
    /// What is done: `Run`, `Edit`.
    pub(crate) verb: &'a str,
    /// What it is done to.
    pub(crate) subject: Markup,
    /// What came of it, in a few words.
    pub(crate) result: Markup,
    pub(crate) body: Markup,
    pub(crate) created_at: Option<Timestamp>,
}

impl Card<'_> {
    pub(crate) fn html(&self) -> Markup {
        html! {
            details.tool data-s=(self.state.class()) open[self.state == CardState::Failed] {
                summary {
                    (icon("chev", "chev")) (icon(self.icon, "kind"))
                    @if !self.verb.is_empty() { span { (self.verb) } }
                    (self.subject)
                    (clock_html(self.created_at))
                    span.res.num { (self.result) }
                    (self.state.icon())
                }
                div.body { (self.body) }
            }
        }
    }
}

/// Where and how the content of a card is shown.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CardContext<'a> {
    pub(crate) transcript: &'a Transcript,
    pub(crate) cwd: &'a str,
    pub(crate) media: MediaSource<'a>,
    pub(crate) is_waiting: bool,
    pub(crate) created_at: Option<Timestamp>,
}

/// The card of a tool call.
pub(crate) fn card(entry: &Entry, context: CardContext<'_>) -> Markup {
    let details = ToolDetails::of_entry(entry, context.cwd);
    details_card(&details, &element_id(entry.id()), context)
}

/// The card of a terminal that no tool call shows.
pub(crate) fn terminal_card(entry: &Entry, id: &TerminalId, context: CardContext<'_>) -> Markup {
    details_card(&ToolDetails::of_terminal(entry, id), &element_id(entry.id()), context)
}

fn details_card(details: &ToolDetails, place: &str, context: CardContext<'_>) -> Markup {
    let state = CardState::from(details.status);
    let is_open = matches!(state, CardState::Pending | CardState::Running);
    let state = if context.is_waiting && is_open { CardState::Waiting } else { state };
    let (verb, subject) = details.summary();
    let subject = match subject {
        ToolSubject::Command(text) | ToolSubject::Path(text) => {
            html! { code.what.cut { (clean_line(&text)) } }
        }
        ToolSubject::Text(text) => html! { span.what.cut { (clean_line(&text)) } },
    };
    let result = html! { @if state == CardState::Waiting { "waits for you" } @else { (facts(details, context.transcript)) } };
    let body = body(details, place, context);
    Card {
        state,
        icon: icon_of(details.kind.as_ref()),
        verb,
        subject,
        result,
        body,
        created_at: context.created_at,
    }
    .html()
}

/// The results in a few words; the numbers of changed lines have colours.
fn facts(details: &ToolDetails, transcript: &Transcript) -> Markup {
    let diffs: Vec<FileDiff> = details.diffs().cloned().collect();
    let (added, removed) = view_diff::total(&diffs);
    let in_words = format!("+{added} -{removed}");
    let facts = details.facts(transcript);
    html! {
        @for (index, fact) in facts.iter().enumerate() {
            @if index > 0 { " · " }
            @if *fact == in_words && !diffs.is_empty() { (diff::counts((added, removed))) } @else { (clean_line(fact)) }
        }
    }
}

fn body(details: &ToolDetails, place: &str, context: CardContext<'_>) -> Markup {
    let terminal_directory = || {
        let terminals =
            details.terminals().filter_map(|id| context.transcript.get(&EntryId::Terminal(id.clone())));
        terminals.map(Entry::body).find_map(|body| body.fields.get_string("cwd"))
    };
    let directory = details.directory.clone().or_else(terminal_directory);
    html! {
        @if let Some(directory) = &directory { header { "in " code { (short_path(directory)) } } }
        @if let Some(command) = details.command.as_deref().filter(|command| command.len() > MAX_IN_SUMMARY || command.contains('\n')) {
            (command_html(command))
        }
        @if let Some(input) = details.unshown_input(Some(&details.title), context.cwd) {
            div.part { header { "Input" } pre.term tabindex="0" { (clean(&compact(input))) } }
        }
        @for (index, content) in details.content.iter().enumerate() {
            (content_html(content, context, &format!("{place}:{index}")))
        }
        @if details.content.is_empty() && let Some(output) = details.raw_text() {
            (terminal::output(output.as_bytes()))
        }
    }
}

fn content_html(content: &ToolContent, context: CardContext<'_>, place: &str) -> Markup {
    match content {
        ToolContent::Text(text) => terminal::output(without_fence(text).as_bytes()),
        ToolContent::Block(block) => block_html(block, context.media, place),
        ToolContent::Diffs(diffs) => html! {
            @for file in diffs {
                div.part {
                    header { code.grow { (clean_line(&file.path)) } (diff::layout_button()) span.num { (diff::counts(file.counts())) } }
                    (diff::table(file))
                }
            }
        },
        ToolContent::Terminal(id) => {
            let terminal = context.transcript.get(&EntryId::Terminal(id.clone()));
            html! { @if let Some(terminal) = terminal { (terminal::output(&terminal.body().output)) } }
        }
        ToolContent::Unknown(json) => code::block(&clean(json.as_str()), "json"),
    }
}

fn block_html(block: &Object, media: MediaSource<'_>, place: &str) -> Markup {
    ContentBlock::of(&block.text()).html(media, place)
}

fn icon_of(kind: Option<&ToolKind>) -> &'static str {
    match kind {
        Some(ToolKind::Execute) => "term",
        Some(ToolKind::Read | ToolKind::Move) => "file",
        Some(ToolKind::Edit) => "edit",
        Some(ToolKind::Delete) => "x",
        Some(ToolKind::Search) => "search",
        Some(ToolKind::Fetch) => "link",
        Some(_) | None => "dots",
    }
}

/// The terminals whose output belongs to a tool call.
pub(crate) fn terminals(body: &Body) -> impl Iterator<Item = TerminalId> + '_ {
    body.content.iter().filter_map(|item| {
        // An item that refers to a terminal is short.
        let item = if item.json.len() < 512 { Members::parse(item.json)? } else { return None };
        let is_terminal = item.get_str("type").as_deref() == Some("terminal");
        is_terminal.then(|| item.get("terminalId")?.to_json_str()).flatten().map(TerminalId::from)
    })
}

/// A command in words that are not broken.
pub(crate) fn command_html(command: &str) -> Markup {
    html! {
        pre.cmd {
            @for (row, line) in clean(command).trim_end_matches('\n').split('\n').enumerate() {
                @if row > 0 { "\n" }
                @for (index, word) in line.split(' ').enumerate() {
                    @if index > 0 { " " }
                    @if !word.is_empty() { span { (word) } }
                }
            }
        }
    }
}
