//! Exports a session as a self-contained HTML page.
//!
//! The content is untrusted: text is escaped, only safe Markdown becomes HTML, and a content security policy forbids the page to
//! run or load anything.

mod markdown;

use maud::{DOCTYPE, Markup, PreEscaped, html};
use parlor_dialect::event;
use parlor_json::{Json, Members};
use parlor_session::{Body, Content, Entry, EntryId, Role, Transcript, text_of};
use parlor_store::SessionRow;

use crate::offline_sessions::{session_id, session_title};
use crate::output::timestamp;
use crate::render::{block_text, field, mark, members_of, push_visible, raw_input, tool_text};

const STYLE: &str = include_str!("html/style.css");

/// The content security policy: inline styles and embedded images only.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'";

/// Renders a session with its metadata.
pub(crate) fn session(row: &SessionRow, transcript: &Transcript) -> String {
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
                        (self::entry(entry))
                    }
                }
            }
        }
    };
    page.into_string() + "\n"
}

fn entry(entry: &Entry) -> Markup {
    let body = entry.body();
    match entry.id() {
        EntryId::Message(role, id) => message(*role, &id.to_string(), &body.content),
        EntryId::ToolCall(id) => tool_call(&id.to_string(), body),
        EntryId::Plan(_) => plan(body),
        EntryId::Terminal(_) => {
            let command = field(body, "command").unwrap_or_else(|| "terminal".to_owned());
            let output = String::from_utf8_lossy(&body.output);
            html! { pre.terminal { "$ " (clean(&command)) "\n" (clean(&output)) } }
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

fn message(role: Role, id: &str, message: &Content) -> Markup {
    let anchor = clean(id);
    let link =
        html! { a.anchor href=(format!("#{}", escaped(&anchor))) title="Link to this message" { (anchor) } };
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
    let parts = body.content.iter().map(|item| tool_text(item.json));
    let parts: Vec<_> = parts.filter(|(text, _)| !text.trim().is_empty()).collect();
    html! {
        details.tool.(state(&status)) id=(format!("tool-{}", clean(id))) {
            summary { span.mark { (mark(&status).0) } " " strong { (title) } " " span.kind { (kind) " " (status) } }
            @if let Some(input) = raw_input(body) { (code(input.as_str(), "json")) }
            @for (text, language) in &parts { (code(text, language)) }
        }
    }
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
    html! {
        @for item in message.joined().iter() {
            @if let Some(text) = text_of(item.json) {
                (show(&text))
            } @else if let Some(image) = image(item.json) {
                img src=(image) alt="Image";
            } @else {
                p.note { (clean(&block_text(item.json))) }
            }
        }
    }
}

/// An image as a data URL, if it is of a type that browsers display and that contains no scripts.
fn image(block: &str) -> Option<String> {
    let members = members_of(block);
    let named = |name: &str| members.get_str(name);
    let (mime, data) = (named("mimeType")?, named("data")?);
    let is_image = named("type")? == "image"
        && matches!(&*mime, "image/png" | "image/jpeg" | "image/gif" | "image/webp")
        && data.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte));
    is_image.then(|| format!("data:{mime};base64,{data}"))
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
