//! Exports a session as a self-contained HTML page.
//!
//! The content is untrusted: text is escaped, only safe Markdown becomes HTML, and a content security policy forbids the page to
//! run or load anything.

mod markdown;

use maud::{DOCTYPE, Markup, PreEscaped, html};
use parlor_dialect::event;
use parlor_json::{Json, Members};
use parlor_server::stored::StoredSession;
use parlor_session::{Body, Content, Entry, EntryId, MessageNumbers, Role, Transcript};

use crate::ansi::{self, Colour, TextStyle};
use crate::content_block::{ContentBlock, is_web_or_mail};
use crate::offline_sessions::{session_id, session_title};
use crate::output::timestamp;
use crate::render::{field, mark, members_of, push_visible, raw_input, tool_text};

const STYLE: &str = include_str!("html/style.css");

/// The content security policy: inline styles and embedded images only.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'";

/// Renders a session with its metadata.
pub(crate) fn session(opened: &StoredSession, transcript: &Transcript) -> String {
    let row = &opened.row;
    let numbers = MessageNumbers::of(transcript);
    let time = |entry: &Entry| {
        let at = opened.transcript.get(entry.id()).and_then(Entry::created_at);
        at.map(|at| timestamp(at.0)).unwrap_or_default()
    };
    let title = clean(&session_title(row).unwrap_or_else(|| "Session".to_owned()));
    let metadata = [
        ("Session", session_id(row)),
        ("Agent", row.agent.clone()),
        ("Directory", row.cwd.clone()),
        ("Started", timestamp(row.created_at)),
        ("Last change", timestamp(row.active_at)),
    ];
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="referrer" content="no-referrer";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header {
                    h1 { (title) }
                    dl { @for (name, value) in &metadata { div { dt { (name) } dd { (clean(value)) } } } }
                }
                main {
                    @for entry in transcript.entries().iter().filter(|entry| !entry.body().removed) {
                        (self::entry(entry, numbers.number_of(entry), &time(entry)))
                    }
                }
            }
        }
    };
    page.into_string() + "\n"
}

fn entry(entry: &Entry, number: Option<usize>, time: &str) -> Markup {
    let body = entry.body();
    match entry.id() {
        EntryId::Message(role, id) => message(*role, &id.to_string(), number, time, &body.content),
        EntryId::ToolCall(id) => tool_call(&id.to_string(), body),
        EntryId::Plan(_) => plan(body),
        EntryId::Terminal(_) => {
            let command = field(body, "command").unwrap_or_else(|| "terminal".to_owned());
            let output = String::from_utf8_lossy(&body.output);
            html! { pre.terminal { "$ " (clean(&command)) "\n" (coloured(&output)) } }
        }
        EntryId::Compaction(_) => folded("The context was compacted", &content(&body.content)),
        EntryId::Subagent(id) => {
            let title = field(body, "title").unwrap_or_else(|| id.to_string());
            html! { p.note { "Subagent: " (clean(&title)) } }
        }
        EntryId::SessionMessage(_) => {
            html! { section.message { h2 { "Message from another session" } (content(&body.content)) } }
        }
        EntryId::Event(id) => {
            let at = clean(&field(body, "at").unwrap_or_default());
            html! {
                p.note id=(clean(&id.to_string())) {
                    (clean(&event::sentence(body))) " " time datetime=(at) { (at) }
                }
            }
        }
        EntryId::Note(_) => match field(body, "title") {
            Some(title) => {
                let more = field(body, "description").unwrap_or_default();
                html! { p.note { strong { (clean(&title)) } " " (clean(&more)) } }
            }
            None => folded("Unknown entry", &code(body.fields.to_json().as_str(), "")),
        },
    }
}

fn message(role: Role, id: &str, number: Option<usize>, time: &str, message: &Content) -> Markup {
    let anchor = clean(id);
    let number = number.map_or_else(|| anchor.clone(), |number| format!("#{number}"));
    let link = html! {
        a.anchor href=(format!("#{}", escaped(&anchor))) title="Link to this message" { (number) }
        @if !time.is_empty() { " " time datetime=(time) { (short_time(time)) } }
    };
    match role {
        Role::User => html! {
            section.message.user id=(anchor) { h2 { "User" (link) } (as_written(message)) }
        },
        Role::Agent => html! {
            section.message.agent id=(anchor) { h2 { "Agent" (link) } (content(message)) }
        },
        Role::Thought => html! {
            details.thought id=(anchor) { summary { "Thought" (link) } (content(message)) }
        },
    }
}

fn tool_call(id: &str, body: &Body) -> Markup {
    let title = clean(&field(body, "title").unwrap_or_else(|| id.to_owned()));
    let status = clean(&field(body, "status").unwrap_or_else(|| "pending".to_owned()));
    let kind = field(body, "kind").map(|kind| clean(&kind)).unwrap_or_default();
    html! {
        details.tool.(state(&status)) id=(format!("tool-{}", clean(id))) {
            summary { span.mark { (mark(&status).0) } " " strong { (title) } " " span.kind { (kind) " " (status) } }
            @if let Some(input) = raw_input(body) { (code(input.as_str(), "json")) }
            @for item in body.content.iter() { (tool_item(item.json)) }
        }
    }
}

/// Renders an item of tool content: an image or a link as in a message, other items as code.
fn tool_item(item: &str) -> Markup {
    let members = members_of(item);
    let inner = members.get("content").map(|block| ContentBlock::of(block.as_str()));
    if let Some(block) = inner.filter(|block| !matches!(block, ContentBlock::Text(_))) {
        return self::block(&block, |text| html! { p { (clean(text)) } });
    }
    let (text, language) = tool_text(item);
    match (text.trim().is_empty(), language) {
        (true, _) => html! {},
        (false, "") => html! { pre { code { (coloured(&text)) } } },
        (false, _) => code(&text, language),
    }
}

/// Renders output of a program with its colours.
fn coloured(output: &str) -> Markup {
    html! {
        @for span in ansi::spans(output) {
            @if span.style == TextStyle::default() {
                (clean(&span.text))
            } @else {
                span class=(classes(&span.style)) style=[inline_colours(&span.style)] { (clean(&span.text)) }
            }
        }
    }
}

/// The CSS classes of a style.
fn classes(style: &TextStyle) -> String {
    let theme = |prefix: &str, colour| match colour {
        Some(Colour::Theme(index)) => Some(format!("{prefix}{index}")),
        Some(Colour::Rgb(..)) | None => None,
    };
    let flag = |is_set: bool, name: &str| is_set.then(|| name.to_owned());
    let classes = [
        theme("fg", style.foreground),
        theme("bg", style.background),
        flag(style.bold, "bold"),
        flag(style.dim, "dim"),
        flag(style.italic, "italic"),
        flag(style.underlined, "underlined"),
    ];
    classes.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// The colours that no theme has.
fn inline_colours(style: &TextStyle) -> Option<String> {
    let rgb = |property: &str, colour| match colour {
        Some(Colour::Rgb(red, green, blue)) => Some(format!("{property}:rgb({red},{green},{blue})")),
        Some(Colour::Theme(_)) | None => None,
    };
    let colours = [rgb("color", style.foreground), rgb("background-color", style.background)];
    let colours: Vec<_> = colours.into_iter().flatten().collect();
    (!colours.is_empty()).then(|| colours.join(";"))
}

/// The date and the minute of a time.
fn short_time(time: &str) -> String {
    time.chars().take("2026-01-31T12:00".len()).collect::<String>().replace('T', " ") + " UTC"
}

/// The CSS class of a status.
fn state(status: &str) -> &'static str {
    match status {
        "completed" => "completed",
        "failed" | "cancelled" => "failed",
        _ => "open",
    }
}

fn plan(body: &Body) -> Markup {
    let plan = body.fields.get("plan").map_or("{}", Json::as_str);
    let plan = members_of(plan);
    let steps = plan.get_array("entries").unwrap_or_default();
    let text_in = |name: &str| clean(&plan.get_str(name).unwrap_or_default());
    html! {
        section.plan {
            h2 { "Plan" }
            ul {
                @for step in steps {
                    @let step = Members::of(step).unwrap_or_default();
                    @let named = |name: &str| clean(&step.get_str(name).unwrap_or_default());
                    @let status = named("status");
                    li.done[status == "completed"] {
                        span.mark { (if status == "completed" { "☑" } else { "☐" }) } " " (named("content"))
                    }
                }
            }
            @for name in ["content", "uri"] { @if !text_in(name).is_empty() { p { (text_in(name)) } } }
        }
    }
}

fn folded(title: &str, inside: &Markup) -> Markup {
    html! { details { summary { (title) } (inside) } }
}

/// Renders a prompt as plain text.
fn as_written(message: &Content) -> Markup {
    blocks(message, |text| html! { p.written { (clean(text)) } })
}

/// Renders content of the agent, which is Markdown.
fn content(message: &Content) -> Markup {
    blocks(message, |text| html! { div.markdown { (PreEscaped(markdown::to_html(&clean(text)))) } })
}

fn blocks(message: &Content, show: impl Fn(&str) -> Markup) -> Markup {
    html! { @for item in message.joined().iter() { (block(&ContentBlock::of(item.json), &show)) } }
}

fn block(block: &ContentBlock<'_>, show: impl Fn(&str) -> Markup) -> Markup {
    match block {
        ContentBlock::Text(text) => show(text),
        ContentBlock::Image { url, name } => html! { img src=(url) alt=(clean(name)); },
        ContentBlock::Link { uri, name } if is_web_or_mail(uri) => {
            html! { p.note { a href=(clean(uri)) { (clean(name)) } } }
        }
        // Other addresses are not links: a page must not open local files or run scripts.
        ContentBlock::Link { uri, name } => html! { p.note { (clean(name)) " " code { (clean(uri)) } } },
        ContentBlock::File { uri, text } => html! { p.note { code { (clean(uri)) } } (code(text, "")) },
        ContentBlock::Other(text) => html! { p.note { (clean(text)) } },
    }
}

/// Renders text that is not Markdown; the lines of a diff are coloured.
fn code(text: &str, language: &str) -> Markup {
    let text = clean(text);
    if language != "diff" {
        return html! { pre { code { (text) } } };
    }
    html! {
        pre.diff {
            @for line in text.lines() {
                span class=[colour(line)] { (line) "\n" }
            }
        }
    }
}

/// The CSS class of a line of a diff.
fn colour(line: &str) -> Option<&'static str> {
    match line.as_bytes().first()? {
        b'+' => Some("added"),
        b'-' => Some("removed"),
        _ => None,
    }
}

/// Percent-encodes text for the fragment of a URL.
fn escaped(text: &str) -> String {
    let escape = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(escape).collect()
}

/// Replaces control characters, and makes bidirectional controls visible.
fn clean(text: &str) -> String {
    let is_allowed = |c: char| !c.is_control() || matches!(c, '\n' | '\t');
    let text = text.replace("\r\n", "\n");
    let mut clean = String::with_capacity(text.len());
    for c in text.chars() {
        if is_allowed(c) {
            push_visible(c, &mut clean);
        } else {
            clean.push(char::REPLACEMENT_CHARACTER);
        }
    }
    clean
}

#[cfg(test)]
mod tests;
