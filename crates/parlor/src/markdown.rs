//! Exports a session as Markdown.

use std::fmt::Write;

use parlor_dialect::event;
use parlor_json::{Json, Members};
use parlor_server::stored::StoredSession;
use parlor_session::{Body, Content, Entry, EntryId, MessageNumbers, Role, Transcript};
use parlor_web::render::content_block::{ContentBlock, MediaKind, is_web_or_mail};

use crate::ansi;
use crate::offline_sessions::session_id;
use crate::output::{parse_timestamp, timestamp};
use crate::render::{field, mark, members_of, push_visible, raw_input, tool_text};

/// Renders a session with its name and metadata.
pub(crate) fn session(name: Option<&str>, opened: &StoredSession, transcript: &Transcript) -> String {
    let row = &opened.row;
    let mut out = String::new();
    let _ = writeln!(out, "# {}\n", line(name.unwrap_or("Session")));
    for (name, value) in [
        ("Session", session_id(row)),
        ("Agent", row.agent.clone()),
        ("Directory", row.cwd.clone()),
        ("Started", minute(row.created_at)),
        ("Last change", minute(row.active_at)),
    ] {
        let _ = writeln!(out, "- {name}: {}", code(&value));
    }
    let numbers = MessageNumbers::of(transcript);
    let mut section = None;
    for entry in transcript.entries().iter().filter(|entry| !entry.body().removed) {
        let heading = if matches!(entry.id(), EntryId::Message(Role::User, _)) { "User" } else { "Agent" };
        let at = opened.transcript.get(entry.id()).and_then(Entry::created_at);
        let at = at.map(|at| minute(at.0)).unwrap_or_default();
        // One heading for all entries of the agent until the next prompt.
        if section.replace(heading) != Some(heading) || heading == "User" {
            let _ = match (heading, numbers.number_of(entry)) {
                ("User", Some(number)) if at.is_empty() => writeln!(out, "\n## User #{number}"),
                ("User", Some(number)) => writeln!(out, "\n## User #{number} ({at})"),
                _ => writeln!(out, "\n## {heading}"),
            };
        }
        out.push('\n');
        self::entry(entry, &mut out);
    }
    out
}

/// A time for people: `2026-01-31 12:00 UTC`.
fn minute(millis: i64) -> String {
    let time: String = timestamp(millis).chars().take("2026-01-31T12:00".len()).collect();
    format!("{} UTC", time.replace('T', " "))
}

fn entry(entry: &Entry, out: &mut String) {
    let body = entry.body();
    match entry.id() {
        EntryId::Message(Role::Thought, _) => quote(&content(&body.content), out),
        EntryId::Message(..) | EntryId::SessionMessage(_) => lines(&content(&body.content), out),
        EntryId::ToolCall(id) => tool_call(&id.to_string(), body, out),
        EntryId::Plan(_) => plan(body, out),
        EntryId::Terminal(_) => {
            let command = field(body, "command").unwrap_or_else(|| "terminal".to_owned());
            // Markdown has no colours.
            let output = ansi::plain(&String::from_utf8_lossy(&body.output));
            fenced(&format!("$ {command}\n{output}"), "console", out);
        }
        EntryId::Compaction(_) => {
            let _ = writeln!(out, "*The context was compacted.*");
            quote(&content(&body.content), out);
        }
        EntryId::Subagent(id) => {
            let title = field(body, "title").unwrap_or_else(|| id.to_string());
            let state = parlor_view::event::subagent_state(body);
            let state = state.map(|state| format!(" ({state})")).unwrap_or_default();
            let _ = writeln!(out, "**Subagent** {}{}", line(&title), line(&state));
        }
        EntryId::Event(_) => {
            let at = field(body, "at").unwrap_or_default();
            let at = parse_timestamp(&at).map_or(at, minute);
            let _ = writeln!(out, "*{}* ({})", line(&event::sentence(body)), line(&at));
        }
        EntryId::Note(_) => match field(body, "title") {
            Some(title) => {
                let _ = writeln!(out, "*{}*", line(&title));
                lines(&field(body, "description").unwrap_or_default(), out);
            }
            None => fenced(body.fields.to_json().as_str(), "json", out),
        },
    }
}

fn tool_call(id: &str, body: &Body, out: &mut String) {
    let title = field(body, "title").unwrap_or_else(|| id.to_owned());
    let status = field(body, "status").unwrap_or_else(|| "pending".to_owned());
    let kind = field(body, "kind").map(|kind| format!("{kind}, ")).unwrap_or_default();
    let _ = writeln!(out, "{} **{}** ({})", mark(&status).0, line(&title), line(&format!("{kind}{status}")));
    if let Some(input) = raw_input(body) {
        out.push('\n');
        fenced(input.as_str(), "json", out);
    }
    for item in body.content.iter() {
        let block = members_of(item.json).get("content").map(|block| ContentBlock::of(block.as_str()));
        let (text, language) = tool_text(item.json);
        match block {
            // What is not text, such as an image, is shown as in a message.
            Some(block) if !matches!(block, ContentBlock::Text(_)) => {
                out.push('\n');
                lines(&markdown_of(&block), out);
            }
            Some(_) | None if text.trim().is_empty() => {}
            Some(_) | None => {
                out.push('\n');
                fenced(&ansi::plain(&text), language, out);
            }
        }
    }
}

fn plan(body: &Body, out: &mut String) {
    let _ = writeln!(out, "**Plan**\n");
    let plan = body.fields.get("plan").map_or("{}", Json::as_str);
    let plan = members_of(plan);
    for entry in plan.get_array("entries").unwrap_or_default() {
        let entry = Members::of(entry).unwrap_or_default();
        let named = |name: &str| entry.get_str(name).unwrap_or_default();
        let done = if named("status") == "completed" { 'x' } else { ' ' };
        let _ = writeln!(out, "- [{done}] {}", line(&named("content")));
    }
    for name in ["content", "uri"] {
        lines(&plan.get_str(name).unwrap_or_default(), out);
    }
}

fn content(content: &Content) -> String {
    let content = content.joined();
    let blocks: Vec<_> = content.iter().map(|item| markdown_of(&ContentBlock::of(item.json))).collect();
    blocks.join("\n\n")
}

/// A block of content. Text is Markdown already.
fn markdown_of(block: &ContentBlock<'_>) -> String {
    match block {
        ContentBlock::Text(text) => text.to_string(),
        ContentBlock::Media { kind: MediaKind::Image, mime, data, name } => {
            format!("![{}](data:{mime};base64,{data})", escaped(name))
        }
        ContentBlock::Media { kind: MediaKind::Audio, mime, name, .. } => {
            format!("{} {}", line(name), code(mime))
        }
        ContentBlock::Link { uri, name } if is_web_or_mail(uri) || uri.starts_with("file:") => {
            format!("[{}](<{}>)", escaped(name), uri.replace(['<', '>', '\n'], ""))
        }
        ContentBlock::Link { uri, name } => format!("{} {}", line(name), code(uri)),
        ContentBlock::File { uri, text } => {
            let mut out = format!("{}\n\n", code(uri));
            fenced(text, "", &mut out);
            out
        }
        ContentBlock::Download { label, .. } | ContentBlock::Other(label) => label.clone(),
    }
}

/// The text of a link.
fn escaped(text: &str) -> String {
    line(text).replace('\\', "\\\\").replace('[', "\\[").replace(']', "\\]")
}

/// Writes text unchanged: prompts and answers are mostly Markdown.
fn lines(text: &str, out: &mut String) {
    out.extend(text.lines().map(|line| clean(line) + "\n"));
}

fn quote(text: &str, out: &mut String) {
    out.extend(text.lines().map(|line| format!("> {}\n", clean(line))));
}

/// Writes text that is not Markdown, in a fence that is longer than any fence in the text.
fn fenced(text: &str, language: &str, out: &mut String) {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    let _ = writeln!(out, "{fence}{language}");
    lines(text, out);
    let _ = writeln!(out, "{fence}");
}

fn code(text: &str) -> String {
    let text = line(text);
    if text.contains('`') { format!("`` {text} ``") } else { format!("`{text}`") }
}

/// Joins text into one line.
fn line(text: &str) -> String {
    clean(&text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Removes control characters, which a terminal could interpret.
fn clean(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    text.chars().filter(|c| !c.is_control() || *c == '\t').for_each(|c| push_visible(c, &mut clean));
    clean
}
