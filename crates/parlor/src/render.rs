//! Prints transcripts as text, and makes untrusted text safe to print.

use std::collections::HashMap;
use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use parlor_dialect::{event, view};
use parlor_json::{Json, JsonRef, Members, Type};
use parlor_session::{Body, Content, Entry, EntryId, MessageNumbers, Role, Slot, State, Transcript, text_of};
use parlor_view::event::subagent_state;
use parlor_web::render::content_block;

use crate::ansi;
use crate::output::{BOLD, DIM, GREEN, RED, YELLOW};

const USER: Style = AnsiColor::Cyan.on_default().bold();
const AGENT: Style = AnsiColor::Green.on_default().bold();

/// Which parts of entries are printed.
#[derive(Default)]
pub(crate) struct Details<'a> {
    /// The numbers of messages; without them, the ids are printed.
    pub(crate) numbers: Option<&'a MessageNumbers<'a>>,
    /// The times of entries.
    pub(crate) times: HashMap<EntryId, String>,
    /// Whether the ids of messages and tool calls are printed.
    pub(crate) ids: bool,
    /// Whether the inputs and complete outputs of tool calls are printed.
    pub(crate) tools: bool,
}

impl Details<'_> {
    /// Everything, without numbers.
    fn everything() -> Self {
        Self { ids: true, tools: true, ..Self::default() }
    }

    /// The time of an entry after a separator.
    fn time(&self, id: &EntryId) -> String {
        self.times.get(id).map(|time| format!(" · {}", safe(time))).unwrap_or_default()
    }
}

/// How many lines of a diff, and of the output of a failed tool call or a terminal, are printed without `--tools`.
const DIFF_LINES: usize = 40;
const OUTPUT_LINES: usize = 3;

/// Writes the whole transcript.
pub(crate) fn transcript(transcript: &Transcript, out: &mut impl Write) -> io::Result<()> {
    if let Some(title) = transcript.slot(Slot::Info).and_then(|info| field(info, "title")) {
        writeln!(out, "{BOLD}{}{BOLD:#}\n", safe(&title))?;
    }
    let details = Details::everything();
    for entry in transcript.entries().iter().filter(|entry| !entry.body().removed) {
        self::entry(entry, &details, out)?;
        writeln!(out)?;
    }
    match transcript.state() {
        Some(state) => writeln!(out, "{DIM}{}{DIM:#}", self::state(state)),
        None => Ok(()),
    }
}

/// Writes entries, each followed by an empty line.
pub(crate) fn entries(entries: &[Entry], details: &Details<'_>, out: &mut impl Write) -> io::Result<()> {
    for entry in entries.iter().filter(|entry| !entry.body().removed) {
        self::entry(entry, details, out)?;
        writeln!(out)?;
    }
    Ok(())
}

fn entry(entry: &Entry, details: &Details<'_>, out: &mut impl Write) -> io::Result<()> {
    let body = entry.body();
    let time = details.time(entry.id());
    match entry.id() {
        EntryId::Message(role, id) => {
            let (name, style) = match role {
                Role::User => ("user", USER),
                Role::Agent => ("agent", AGENT),
                Role::Thought => ("thought", DIM),
            };
            let number = details.numbers.and_then(|numbers| numbers.number_of(entry));
            let number = number.map(|number| format!("#{number} ")).unwrap_or_default();
            let id = if details.ids { format!(" {}", safe(&id.to_string())) } else { String::new() };
            writeln!(out, "{DIM}{number}{DIM:#}{style}{name}{style:#}{DIM}{id}{time}{DIM:#}")?;
            content(&body.content, "  ", out)
        }
        EntryId::ToolCall(id) => tool_call(&id.to_string(), body, details, &time, out),
        EntryId::Plan(_) => plan(body, out),
        EntryId::Terminal(_) => terminal(body, details, out),
        EntryId::Compaction(_) => {
            let status = field(body, "status").unwrap_or_else(|| "in_progress".to_owned());
            writeln!(out, "{BOLD}context compacted{BOLD:#} {DIM}{}{time}{DIM:#}", safe(&status))?;
            content(&body.content, "  ", out)
        }
        EntryId::Subagent(id) => {
            let title = field(body, "title").unwrap_or_else(|| id.to_string());
            let state = subagent_state(body).map(|state| format!(" ({state})")).unwrap_or_default();
            writeln!(out, "{BOLD}subagent{BOLD:#} {}{DIM}{}{time}{DIM:#}", safe(&title), safe(&state))?;
            // Only stored sessions have numbers.
            match details.numbers {
                Some(_) => writeln!(out, "  {DIM}parlor show {}{DIM:#}", safe(&id.to_string())),
                None => Ok(()),
            }
        }
        EntryId::SessionMessage(id) => {
            let name = |field_name| field(body, field_name).unwrap_or_else(|| "?".to_owned());
            let (from, to) = (name("senderSessionId"), name("recipientSessionId"));
            writeln!(
                out,
                "{BOLD}message{BOLD:#} {} -> {} {DIM}{}{DIM:#}",
                safe(&from),
                safe(&to),
                safe(&id.to_string())
            )?;
            content(&body.content, "  ", out)
        }
        EntryId::Event(_) => {
            let Line { text, style, .. } = event_line(body);
            let at = if time.is_empty() {
                format!(" {}", safe(&field(body, "at").unwrap_or_default()))
            } else {
                time
            };
            writeln!(out, "{style}{text}{style:#}{DIM}{at}{DIM:#}")
        }
        EntryId::Note(_) => note(entry, out),
    }
}

/// A summary in one line.
pub(crate) struct Line {
    pub(crate) text: String,
    pub(crate) style: Style,
    /// Whether the line may still change.
    pub(crate) is_open: bool,
}

/// Summarizes a tool call.
pub(crate) fn tool_line(id: &str, body: &Body) -> Line {
    let title = field(body, "title").unwrap_or_else(|| id.to_owned());
    let status = field(body, "status").unwrap_or_else(|| "pending".to_owned());
    let (mark, style) = mark(&status);
    Line { text: safe(&format!("{mark} {}", title.replace('\n', " "))), style, is_open: mark == "…" }
}

/// Summarizes the progress of a plan.
pub(crate) fn plan_line(body: &Body) -> Line {
    let plan = body.fields.get("plan").map_or("{}", Json::as_str);
    let entries = members_of(plan).get_array("entries").unwrap_or_default();
    let status = |entry: &parlor_json::JsonRef<'_>, name: &str| {
        let members = Members::of(*entry).unwrap_or_default();
        members.get_str(name).unwrap_or_default().into_owned()
    };
    let done = entries.iter().filter(|entry| status(entry, "status") == "completed").count();
    let now = entries.iter().find(|entry| status(entry, "status") == "in_progress");
    let now = now.map(|entry| format!(": {}", status(entry, "content"))).unwrap_or_default();
    let text = safe(&format!("plan {done}/{}{now}", entries.len()));
    Line { text, style: DIM, is_open: false }
}

/// Summarizes an event.
pub(crate) fn event_line(body: &Body) -> Line {
    let (mark, style) = match field(body, "type").as_deref() {
        Some("turn_failed") => mark("failed"),
        Some("turn_refused" | "turn_cancelled") => mark("cancelled"),
        Some(_) | None => ("·", DIM),
    };
    let text = safe(&format!("{mark} {}", event::sentence(body).replace('\n', " ")));
    Line { text, style, is_open: false }
}

/// Summarizes a notice.
pub(crate) fn notice_line(body: &Body) -> Line {
    let severity = field(body, "severity").unwrap_or_else(|| "notice".to_owned());
    let text = safe(&format!("{severity}: {}", field(body, "title").unwrap_or_default()));
    Line { text, style: YELLOW, is_open: false }
}

pub(crate) fn mark(status: &str) -> (&'static str, Style) {
    match status {
        "completed" => ("✓", GREEN),
        "failed" => ("✗", RED),
        "cancelled" => ("⊘", RED),
        _ => ("…", YELLOW),
    }
}

fn tool_call(
    id: &str,
    body: &Body,
    details: &Details<'_>,
    time: &str,
    out: &mut impl Write,
) -> io::Result<()> {
    let title = field(body, "title").unwrap_or_else(|| id.to_owned());
    let status = field(body, "status").unwrap_or_else(|| "pending".to_owned());
    let (mark, style) = mark(&status);
    let kind = field(body, "kind").map(|kind| format!(" {}", safe(&kind))).unwrap_or_default();
    let shown_id =
        if details.ids && details.numbers.is_some() { format!(" {}", safe(id)) } else { String::new() };
    writeln!(
        out,
        "{style}{mark}{style:#} {BOLD}{}{BOLD:#}{DIM}{kind} {}{shown_id}{time}{DIM:#}",
        safe(&title),
        safe(&status)
    )?;
    if details.tools {
        if let Some(input) = raw_input(body) {
            indented(&format!("input {}", input.as_str()), "  ", out)?;
        }
        return body.content.iter().try_for_each(|item| tool_item(item.json, out));
    }
    // What changed files, and why it failed.
    for item in body.content.iter() {
        let kind = members_of(item.json).get_string("type").unwrap_or_default();
        let lines = match (kind.as_str(), status.as_str()) {
            ("diff", _) => DIFF_LINES,
            // The terminal is an entry of its own.
            ("terminal", _) => continue,
            (_, "failed") => OUTPUT_LINES,
            (_, _) => continue,
        };
        let mut written = Vec::new();
        tool_item(item.json, &mut written)?;
        first_lines(&String::from_utf8_lossy(&written), lines, out)?;
    }
    Ok(())
}

/// Writes the first lines of text that is safe to print, and how many there are more.
fn first_lines(text: &str, limit: usize, out: &mut impl Write) -> io::Result<()> {
    let count = text.lines().count();
    text.lines().take(limit).try_for_each(|line| writeln!(out, "{line}"))?;
    match count.saturating_sub(limit) {
        0 => Ok(()),
        more => {
            writeln!(out, "  {DIM}… {} (--tools prints all){DIM:#}", crate::output::count(more, "more line"))
        }
    }
}

/// The input of a tool call, if it has any.
pub(crate) fn raw_input(body: &Body) -> Option<&Json> {
    body.fields.get("rawInput").filter(|input| !matches!(input.as_str(), "null" | "{}"))
}

fn tool_item(item: &str, out: &mut impl Write) -> io::Result<()> {
    let members = members_of(item);
    let named = |name: &str| members.get_string(name);
    match named("type").as_deref() {
        Some("content") => {
            let block = members.get("content").map_or(item, |block| block.as_str());
            indented(&block_text(block), "  ", out)
        }
        Some("diff") => {
            let patch = members.get("patch").filter(|patch| patch.type_of() == Type::Object);
            let patch = patch.and_then(|patch| Members::of(patch).ok()).and_then(|patch| patch.get("text"));
            if let Some(patch) = patch.and_then(JsonRef::to_text) {
                return indented(&patch, "  ", out);
            }
            if let Some(path) = named("path") {
                writeln!(out, "  {DIM}{}{DIM:#}", safe(&path))?;
            }
            for (sign, style, name) in [("-", RED, "oldText"), ("+", GREEN, "newText")] {
                for line in named(name).unwrap_or_default().lines() {
                    writeln!(out, "  {style}{sign} {}{style:#}", safe(line))?;
                }
            }
            Ok(())
        }
        Some("terminal") => {
            writeln!(out, "  {DIM}terminal {}{DIM:#}", safe(&named("terminalId").unwrap_or_default()))
        }
        Some(_) | None => indented(item, "  ", out),
    }
}

/// An item of tool content as text, with its language for a Markdown fence. A terminal is an entry of its own, and has no text here.
pub(crate) fn tool_text(item: &str) -> (String, &'static str) {
    let members = members_of(item);
    let named = |name: &str| members.get_string(name);
    match named("type").as_deref() {
        Some("content") => (block_text(members.get("content").map_or(item, |block| block.as_str())), ""),
        Some("diff") => {
            let patch = members.get("patch").and_then(|patch| Members::of(patch).ok());
            let patch = patch.as_ref().and_then(|patch| patch.get("text")).and_then(JsonRef::to_text);
            let changed = || {
                let signed = |sign: char, name: &str| -> String {
                    named(name).unwrap_or_default().lines().map(|line| format!("{sign}{line}\n")).collect()
                };
                let (old, new) = (signed('-', "oldText"), signed('+', "newText"));
                format!("{}\n{old}{new}", named("path").unwrap_or_default())
            };
            (patch.map_or_else(changed, std::borrow::Cow::into_owned), "diff")
        }
        Some("terminal") => (String::new(), ""),
        Some(_) | None => (item.to_owned(), "json"),
    }
}

fn plan(body: &Body, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{BOLD}plan{BOLD:#}")?;
    let plan = body.fields.get("plan").map_or("{}", Json::as_str);
    let plan = members_of(plan);
    for entry in plan.get_array("entries").unwrap_or_default() {
        let entry = Members::of(entry).unwrap_or_default();
        let named = |name: &str| entry.get_str(name).unwrap_or_default();
        let mark = match named("status").as_ref() {
            "completed" => "[x]",
            "in_progress" => "[~]",
            "cancelled" => "[-]",
            _ => "[ ]",
        };
        writeln!(out, "  {mark} {}", safe(&named("content")))?;
    }
    for name in ["content", "uri"] {
        indented(&plan.get_str(name).unwrap_or_default(), "  ", out)?;
    }
    Ok(())
}

fn terminal(body: &Body, details: &Details<'_>, out: &mut impl Write) -> io::Result<()> {
    let command = field(body, "command").unwrap_or_else(|| "terminal".to_owned());
    writeln!(out, "{BOLD}$ {}{BOLD:#}", safe(&command))?;
    let mut written = Vec::new();
    indented(&ansi::plain(&String::from_utf8_lossy(&body.output)), "  ", &mut written)?;
    let limit = if details.tools { usize::MAX } else { OUTPUT_LINES };
    first_lines(&String::from_utf8_lossy(&written), limit, out)?;
    let Some(exit) = body.fields.get("exitStatus").filter(|exit| !exit.is_null()) else { return Ok(()) };
    let exit = members_of(exit.as_str());
    let code = exit.get("exitCode").filter(|code| code.type_of() == Type::Number);
    match (code, exit.get_str("signal")) {
        (Some(code), _) => writeln!(out, "  {DIM}exit code {}{DIM:#}", code.as_str()),
        (None, Some(signal)) => writeln!(out, "  {DIM}killed by {}{DIM:#}", safe(&signal)),
        (None, None) => writeln!(out, "  {DIM}ended{DIM:#}"),
    }
}

fn note(entry: &Entry, out: &mut impl Write) -> io::Result<()> {
    let body = entry.body();
    let kind = view::kind_name(entry);
    if kind.inner() == "notice" {
        let severity = field(body, "severity").unwrap_or_default();
        writeln!(
            out,
            "{YELLOW}{}{YELLOW:#} {}",
            safe(&severity),
            safe(&field(body, "title").unwrap_or_default())
        )?;
        return indented(&field(body, "description").unwrap_or_default(), "  ", out);
    }
    writeln!(out, "{BOLD}{}{BOLD:#}", safe(&kind.to_text()))?;
    indented(body.fields.to_json().as_str(), "  ", out)
}

fn state(state: &State) -> String {
    let activity = view::activity_name(&state.activity);
    let reason = state.stop_reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    safe(&format!("{activity}{reason}"))
}

/// Writes text blocks, and other blocks on separate lines.
fn content(content: &Content, indent: &str, out: &mut impl Write) -> io::Result<()> {
    for item in content.joined().iter() {
        indented(&block_text(item.json), indent, out)?;
    }
    Ok(())
}

pub(crate) fn block_text(block: &str) -> String {
    text_of(block).map_or_else(|| content_block::label(block), std::borrow::Cow::into_owned)
}

fn indented(text: &str, indent: &str, out: &mut impl Write) -> io::Result<()> {
    text.lines().try_for_each(|line| writeln!(out, "{indent}{}", safe(line)))
}

pub(crate) fn field(body: &Body, name: &str) -> Option<String> {
    body.fields.get_string(name)
}

pub(crate) fn members_of(object: &str) -> Members<'_> {
    Members::parse(object).unwrap_or_default()
}

/// Makes untrusted text safe to print: control characters are replaced, and bidirectional controls are made visible.
pub(crate) fn safe(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() && c != '\t' {
            safe.push(char::REPLACEMENT_CHARACTER);
        } else {
            push_visible(c, &mut safe);
        }
    }
    safe
}

/// Appends a character; a bidirectional control character is written as `‹U+202E›`.
pub(crate) fn push_visible(c: char, text: &mut String) {
    if is_bidi(c) {
        let _ = std::fmt::Write::write_fmt(text, format_args!("‹U+{:04X}›", u32::from(c)));
    } else {
        text.push(c);
    }
}

/// Whether a character is a bidirectional control, which changes the order in which others are displayed.
pub(crate) fn is_bidi(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
