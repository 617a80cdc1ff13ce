//! Entries as text to copy: plain, and as Markdown.
//!
//! **Invariant:** copied text has no control and no bidirectional characters.

use std::fmt::Write;

use parlor_client::{Content, Entry, EntryId, Role as Sender, Transcript, text_of};

use super::markdown::{MarkdownLayout, markdown as markdown_rows};
use super::row::Text;
use crate::clean::Clean;
use crate::theme::{Colors, Mark, Theme};
use parlor_view::content_block::{self, compact};
use parlor_view::diff::{FileDiff, FileOperation, LineKind};
use parlor_view::event::{EventWords, plan_items, plan_text};
use parlor_view::terminal::TerminalScreen;
use parlor_view::tool_call::{ToolContent, ToolDetails, ToolStatus, ToolSubject, without_fence};

const THEME: Theme = Theme { colors: Colors::Ansi, is_light: false, is_ascii: false };

/// The text that a person copies of an entry: the text of a message without its marks, the output of a tool call, the items of a plan.
pub fn plain(entry: &Entry, transcript: &Transcript, cwd: &str) -> String {
    let body = entry.body();
    match entry.id() {
        EntryId::Message(Sender::User, _) => clean_text(&content_text(&body.content)),
        EntryId::Message(Sender::Agent | Sender::Thought, _) => {
            let rows = markdown_rows(&content_text(&body.content), MarkdownLayout::unbroken(THEME));
            rows.iter().map(Text::plain).collect::<Vec<_>>().join("\n")
        }
        EntryId::ToolCall(_) => tool_text(&ToolDetails::of_entry(entry, cwd), transcript),
        EntryId::Terminal(id) => tool_text(&ToolDetails::of_terminal(entry, id), transcript),
        EntryId::Plan(_) => {
            let mut text = String::new();
            for (status, item) in plan_items(body) {
                let _ = writeln!(text, "{} {}", THEME.mark(plan_mark(&status)), Clean::line(&item));
            }
            text.push_str(&clean_text(&plan_text(body).unwrap_or_default()));
            text.trim_end().to_owned()
        }
        EntryId::Compaction(_)
        | EntryId::Subagent(_)
        | EntryId::SessionMessage(_)
        | EntryId::Event(_)
        | EntryId::Note(_) => {
            let words = EventWords::of_entry(entry);
            let lines: Vec<String> =
                [&words.sentence].into_iter().chain(&words.details).map(|line| clean_text(line)).collect();
            lines.join("\n")
        }
    }
}

/// An entry as Markdown, with what it produced in code blocks.
pub fn markdown(entry: &Entry, transcript: &Transcript, cwd: &str) -> String {
    let body = entry.body();
    match entry.id() {
        EntryId::Message(Sender::Thought, _) => {
            let text = clean_text(&content_text(&body.content));
            text.lines().map(|line| format!("> {line}")).collect::<Vec<_>>().join("\n")
        }
        EntryId::Message(..) => clean_text(&content_text(&body.content)),
        EntryId::ToolCall(_) => tool_markdown(&ToolDetails::of_entry(entry, cwd), transcript),
        EntryId::Terminal(id) => tool_markdown(&ToolDetails::of_terminal(entry, id), transcript),
        EntryId::Plan(_) => {
            let mut text = "**Plan**\n\n".to_owned();
            for (status, item) in plan_items(body) {
                let done = if status == "completed" { 'x' } else { ' ' };
                let _ = writeln!(text, "- [{done}] {}", Clean::line(&item));
            }
            text.push_str(&clean_text(&plan_text(body).unwrap_or_default()));
            text.trim_end().to_owned()
        }
        EntryId::Compaction(_)
        | EntryId::Subagent(_)
        | EntryId::SessionMessage(_)
        | EntryId::Event(_)
        | EntryId::Note(_) => {
            let words = EventWords::of_entry(entry);
            let mut text = format!("*{}*", Clean::line(&words.sentence));
            words.details.iter().for_each(|line| {
                let _ = write!(text, "\n> {}", clean_text(line));
            });
            text
        }
    }
}

/// Makes each line clean but keeps tabs, which copied code may need.
fn clean_text(text: &str) -> String {
    let line = |line: &str| {
        line.split('\t').map(|part| Clean::line(part).to_string()).collect::<Vec<_>>().join("\t")
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// The text of a message; other blocks are lines of their own.
fn content_text(content: &Content) -> String {
    let mut text = String::new();
    for item in content.joined().iter() {
        match text_of(item.json) {
            Some(part) => text.push_str(&part),
            None => {
                let gap = if text.is_empty() { "" } else { "\n\n" };
                let _ = write!(text, "{gap}{}\n\n", content_block::label_of(item.json));
            }
        }
    }
    text.trim_end().to_owned()
}

fn plan_mark(status: &str) -> Mark {
    match status {
        "completed" => Mark::Completed,
        "in_progress" => Mark::Running,
        "failed" => Mark::Failed,
        "cancelled" => Mark::Cancelled,
        _ => Mark::Pending,
    }
}

/// The title of a tool call with its results.
pub fn title(details: &ToolDetails, transcript: &Transcript) -> Clean {
    let mark = match details.status {
        ToolStatus::Pending => Mark::Pending,
        ToolStatus::Running => Mark::Running,
        ToolStatus::Completed => Mark::Completed,
        ToolStatus::Failed => Mark::Failed,
        ToolStatus::Cancelled => Mark::Cancelled,
    };
    let (verb, subject) = details.summary();
    let subject = match subject {
        ToolSubject::Command(text) | ToolSubject::Path(text) | ToolSubject::Text(text) => text,
    };
    let mut words: Vec<String> =
        [verb.to_owned(), subject].into_iter().filter(|word| !word.is_empty()).collect();
    words = vec![words.join(" ")];
    words.extend(details.facts(transcript));
    Clean::line(&format!("{} {}", THEME.mark(mark), words.join(" · ")))
}

fn tool_text(details: &ToolDetails, transcript: &Transcript) -> String {
    let parts: Vec<String> = tool_parts(details, transcript).into_iter().map(|(text, _)| text).collect();
    if parts.is_empty() { title(details, transcript).to_string() } else { parts.join("\n") }
}

fn tool_markdown(details: &ToolDetails, transcript: &Transcript) -> String {
    let mut text = title(details, transcript).to_string();
    if let Some(command) = details.command.as_ref().filter(|command| command.contains('\n')) {
        let _ = write!(text, "\n\n{}", fenced(&clean_text(command), "sh"));
    }
    let is_named = details.command.is_some() || !details.paths.is_empty();
    if let Some(input) = details.input.as_ref().filter(|_| !is_named) {
        let _ = write!(text, "\n\n{}", fenced(&clean_text(&compact(input)), "json"));
    }
    for (part, language) in tool_parts(details, transcript) {
        let _ = write!(text, "\n\n{}", fenced(&part, language));
    }
    text
}

/// The results of a tool call, each with its language.
fn tool_parts(details: &ToolDetails, transcript: &Transcript) -> Vec<(String, &'static str)> {
    let mut parts = Vec::new();
    for content in &details.content {
        parts.push(match content {
            ToolContent::Text(text) => {
                (clean_text(&TerminalScreen::of(without_fence(text).as_bytes()).text()), "")
            }
            ToolContent::Terminal(id) => {
                let terminal = transcript.get(&EntryId::Terminal(id.clone()));
                let output = terminal.map(|terminal| terminal.body().output.as_slice()).unwrap_or_default();
                (clean_text(&TerminalScreen::of(output).text()), "console")
            }
            ToolContent::Diffs(diffs) => (diffs.iter().map(patch).collect::<Vec<_>>().join("\n"), "diff"),
            ToolContent::Block(block) => {
                let text =
                    content_block::resource_text(block).map(|text| format!("\n{text}")).unwrap_or_default();
                (clean_text(&format!("{}{text}", content_block::label(block))), "")
            }
            ToolContent::Unknown(json) => (clean_text(&compact(json)), "json"),
        });
    }
    parts.retain(|(text, _)| !text.trim().is_empty());
    if parts.is_empty() {
        let text = details.raw_text().map(|text| (text, ""));
        let json = || details.output.as_ref().map(|output| (compact(output), "json"));
        parts.extend(text.or_else(json).map(|(text, language)| (clean_text(&text), language)));
    }
    parts
}

/// A diff in the form of a patch.
fn patch(diff: &FileDiff) -> String {
    let old = diff.old_path.as_deref().unwrap_or(&diff.path);
    let old = if diff.operation == FileOperation::Create { "/dev/null" } else { old };
    let new = if diff.operation == FileOperation::Delete { "/dev/null" } else { &diff.path };
    let mut text = format!("--- {}\n+++ {}", Clean::line(old), Clean::line(new));
    for line in &diff.lines {
        let sign = match line.kind {
            LineKind::Context => ' ',
            LineKind::Added => '+',
            LineKind::Removed => '-',
            LineKind::Note => '\\',
        };
        let _ = write!(text, "\n{sign}{}", clean_text(&line.text));
    }
    text
}

/// Text in a fence that is longer than any fence in it.
fn fenced(text: &str, language: &str) -> String {
    let longest = text.split(|character| character != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}{language}\n{text}\n{fence}")
}
