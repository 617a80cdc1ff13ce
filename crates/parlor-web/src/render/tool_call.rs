//! Tool calls and terminals as cards: one line that opens.

use maud::{Markup, html};
use parlor_json::{Json, JsonRef, Members, Object};
use parlor_session::{Body, Entry, EntryId, TerminalId, Transcript};

use super::content_block::{ContentBlock, MediaSource};
use super::diff::{self, FileDiff};
use super::text::{clean, clean_line, element_id};
use super::{ansi, markdown};
use crate::assets::{icon, state_icon};

/// Bytes at the end of a program's output that are shown.
const MAX_OUTPUT: usize = 256 << 10;

/// The names that tools use for a command.
const COMMANDS: [&str; 3] = ["command", "cmd", "script"];

/// The names that tools use for the directory of a command.
const DIRECTORIES: [&str; 3] = ["cwd", "workdir", "directory"];

/// How far a tool call has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ToolState {
    Pending,
    Running,
    /// A person has to answer a request about it.
    Waiting,
    Completed,
    Failed,
    Cancelled,
}

impl ToolState {
    fn of(status: Option<&str>) -> Self {
        match status {
            Some("completed") => Self::Completed,
            Some("failed") => Self::Failed,
            Some("cancelled") => Self::Cancelled,
            Some("in_progress") => Self::Running,
            Some(_) | None => Self::Pending,
        }
    }

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

/// A card: a summary in one line, and what it opens.
pub(crate) struct Card<'a> {
    pub(crate) state: ToolState,
    pub(crate) icon: &'static str,
    /// What is done: `Run`, `Edit`.
    pub(crate) verb: &'a str,
    /// What it is done to.
    pub(crate) subject: Markup,
    /// What came of it, in a few words.
    pub(crate) result: Markup,
    pub(crate) body: Markup,
}

impl Card<'_> {
    pub(crate) fn html(&self) -> Markup {
        html! {
            details.tool data-s=(self.state.class()) open[self.state == ToolState::Failed] {
                summary {
                    (icon("chev", "chev")) (icon(self.icon, "kind"))
                    @if !self.verb.is_empty() { span { (self.verb) } }
                    (self.subject)
                    span.res.num { (self.result) }
                    (self.state.icon())
                }
                div.body { (self.body) }
            }
        }
    }
}

/// What a tool call does, as far as its card shows it.
struct ToolCall<'a> {
    body: &'a Body,
    input: Object,
    command: Option<String>,
    diffs: Vec<FileDiff>,
}

impl<'a> ToolCall<'a> {
    fn new(body: &'a Body) -> Self {
        let input = body.fields.get_object("rawInput").unwrap_or_default();
        let command = COMMANDS.iter().find_map(|name| command_text(input.get(name)?));
        let items = body.content.iter().filter_map(|item| Members::parse(item.json));
        let is_diff = |item: &Members<'_>| item.get_str("type").as_deref() == Some("diff");
        let diffs = items.filter(is_diff).flat_map(|item| FileDiff::all_in(&item)).collect();
        Self { body, input, command, diffs }
    }

    fn path(&self, cwd: &str) -> Option<String> {
        let locations = self.body.fields.get_array("locations").unwrap_or_default();
        let first = locations.first().and_then(|location| location.to_object())?;
        let path = first.get_string("path")?;
        let line = first.get_u64("line").map(|line| format!(":{line}")).unwrap_or_default();
        Some(format!("{}{line}", relative(&path, cwd)))
    }

    /// The icon, the verb and the subject.
    fn summary(&self, id: &str, cwd: &str) -> (&'static str, &'static str, Markup) {
        let fields = &self.body.fields;
        let title = fields.get_string("title").filter(|title| !title.trim().is_empty());
        let title = title.unwrap_or_else(|| id.to_owned());
        let code = |text: String| html! { code.what.cut { (clean_line(&text)) } };
        let titled = || html! { span.what.cut { (clean_line(&title)) } };
        let path = || self.path(cwd).map(code);
        let input = |names: &[&str]| names.iter().find_map(|name| self.input.get_string(name)).map(code);
        let (icon, verb, subject) = match fields.get_string("kind").as_deref() {
            Some("execute") => {
                let command = self.command.clone().unwrap_or_else(|| title.trim_matches('`').to_owned());
                ("term", "Run", Some(code(command)))
            }
            Some("read") => ("file", "Read", path()),
            Some("edit") => {
                let paths: Vec<&str> = self.diffs.iter().map(|diff| relative(&diff.path, cwd)).collect();
                let subject = match paths.as_slice() {
                    [] => path(),
                    [path] => Some(code((*path).to_owned())),
                    paths => Some(code(format!("{} files: {}", paths.len(), paths.join(", ")))),
                };
                ("edit", "Edit", subject)
            }
            Some("delete") => ("x", "Delete", path()),
            Some("move") => ("file", "Move", None),
            Some("search") => ("search", "Search", input(&["pattern", "query", "regex"])),
            Some("fetch") => ("link", "Fetch", input(&["url", "uri", "query"])),
            Some(_) | None => ("dots", "", None),
        };
        match subject {
            Some(subject) => (icon, verb, subject),
            // The title says it all.
            None => (icon, "", titled()),
        }
    }

    fn directory(&self) -> Option<String> {
        DIRECTORIES.iter().find_map(|name| self.input.get_string(name)).filter(|path| !path.is_empty())
    }

    /// The input, if it has more than the command and its directory.
    fn more_input(&self) -> Option<&Json> {
        let is_shown =
            |name: &str| name == "description" || COMMANDS.contains(&name) || DIRECTORIES.contains(&name);
        let has_more =
            self.command.is_none() || self.input.iter().any(|(name, _)| !is_shown(&name.to_text()));
        let input = self.body.fields.get("rawInput");
        input.filter(|input| !matches!(input.as_str(), "null" | "{}") && has_more)
    }
}

/// The card of a tool call.
pub(crate) fn card(
    entry: &Entry,
    id: &str,
    transcript: &Transcript,
    cwd: &str,
    media: MediaSource<'_>,
    is_waiting: bool,
) -> Markup {
    let body = entry.body();
    let call = ToolCall::new(body);
    let (icon, verb, subject) = call.summary(id, cwd);
    let state = ToolState::of(body.fields.get_str("status").as_deref());
    let is_open = matches!(state, ToolState::Pending | ToolState::Running);
    let state = if is_waiting && is_open { ToolState::Waiting } else { state };
    let terminals: Vec<&Entry> =
        terminals(body).filter_map(|id| transcript.get(&EntryId::Terminal(id))).collect();
    let exit = terminals.iter().find_map(|terminal| exit(terminal.body()));
    let counts =
        call.diffs.iter().map(FileDiff::counts).fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
    let result = html! {
        @if state == ToolState::Waiting { "waits for you" }
        @else if let Some(exit) = &exit { (exit) }
        @else if !call.diffs.is_empty() { (diff::counts_html(counts)) }
    };
    let directory = call
        .directory()
        .or_else(|| terminals.iter().find_map(|terminal| terminal.body().fields.get_string("cwd")));
    let place = element_id(entry.id());
    let content = html! {
        @if let Some(command) = &call.command {
            @if let Some(directory) = &directory { header { "in " code { (clean_line(directory)) } } }
            (command_html(command))
        }
        @if let Some(input) = call.more_input() { (section("Input", &html! { pre.term tabindex="0" { (clean(input.as_str())) } })) }
        @for (index, item) in body.content.iter().enumerate() {
            (item_html(item.json, transcript, cwd, media, &format!("{place}:{index}")))
        }
        @if body.content.is_empty() && let Some(output) = body.fields.get("rawOutput").filter(|output| !output.is_null()) {
            (output_html(&output.to_text().unwrap_or_else(|| output.as_str().into())))
        }
    };
    Card { state, icon, verb, subject, result, body: content }.html()
}

/// The card of a terminal that no tool call shows.
pub(crate) fn terminal_card(id: &str, body: &Body) -> Markup {
    let command = body.fields.get("command").and_then(command_text).unwrap_or_else(|| id.to_owned());
    let exit = exit(body);
    let state = match exit.as_deref() {
        None => ToolState::Running,
        Some("exit 0") => ToolState::Completed,
        Some(_) => ToolState::Failed,
    };
    let directory = body.fields.get_string("cwd");
    let content = html! {
        @if let Some(directory) = directory { header { "in " code { (clean_line(&directory)) } } }
        (terminal_html(body))
    };
    let subject = html! { code.what.cut { (clean_line(&command)) } };
    let result = html! { (exit.unwrap_or_default()) };
    Card { state, icon: "term", verb: "Run", subject, result, body: content }.html()
}

/// The terminals whose output belongs to a tool call.
pub(crate) fn terminals(body: &Body) -> impl Iterator<Item = TerminalId> + '_ {
    body.content.iter().filter_map(|item| {
        let item = Members::parse(item.json)?;
        let is_terminal = item.get_str("type").as_deref() == Some("terminal");
        is_terminal.then(|| item.get("terminalId")?.to_json_str()).flatten().map(TerminalId::from)
    })
}

fn section(name: &str, inside: &Markup) -> Markup {
    html! { div.part { header { (name) } (inside) } }
}

fn item_html(item: &str, transcript: &Transcript, cwd: &str, media: MediaSource<'_>, place: &str) -> Markup {
    let members = Members::parse(item).unwrap_or_default();
    match members.get_str("type").as_deref() {
        Some("content") => {
            let block = members.get("content").map_or(item, |block| block.as_str());
            let block = ContentBlock::of(block);
            if let ContentBlock::Text(text) = &block {
                return output_html(without_fence(text));
            }
            block.html(media, place)
        }
        Some("diff") => {
            let files = FileDiff::all_in(&members);
            html! {
                @for file in &files {
                    div.part {
                        header { code.grow { (clean_line(relative(&file.path, cwd))) } (diff::counts_html(file.counts())) }
                        (file.html())
                    }
                }
                // An item that has nothing of a diff is shown as it is.
                @if files.is_empty() { (markdown::code(&clean(item))) }
            }
        }
        Some("terminal") => {
            let id = members.get("terminalId").and_then(JsonRef::to_json_str).map(TerminalId::from);
            let terminal = id.and_then(|id| transcript.get(&EntryId::Terminal(id)));
            html! { @if let Some(terminal) = terminal { (terminal_html(terminal.body())) } }
        }
        Some(_) | None => markdown::code(&clean(item)),
    }
}

fn terminal_html(body: &Body) -> Markup {
    output_html(&String::from_utf8_lossy(&body.output))
}

/// The end of a program's output.
fn output_html(output: &str) -> Markup {
    let start = output.len().saturating_sub(MAX_OUTPUT);
    let start = (start..=output.len()).find(|at| output.is_char_boundary(*at)).unwrap_or(output.len());
    let shown = output[start..].trim_end();
    html! {
        @if start > 0 { header { (start) " bytes before this are not shown" } }
        @if !shown.is_empty() { pre.term tabindex="0" aria-label="Output" { (ansi::to_html(shown)) } }
    }
}

/// A command in words that are not broken.
pub(crate) fn command_html(command: &str) -> Markup {
    html! {
        pre.cmd {
            @for (index, word) in clean(command).split(' ').enumerate() {
                @if index > 0 { " " }
                span { (word) }
            }
        }
    }
}

/// A command as text: a string, or a list of arguments.
pub(crate) fn command_text(value: &Json) -> Option<String> {
    let Some(arguments) = value.elements() else { return value.to_text().map(std::borrow::Cow::into_owned) };
    let arguments = arguments.into_iter().map(|argument| Some(argument.to_text()?.into_owned()));
    Some(arguments.collect::<Option<Vec<_>>>()?.join(" "))
}

/// How a terminal's program ended.
fn exit(body: &Body) -> Option<String> {
    let status = body.fields.get_object("exitStatus")?;
    let code = status.get("exitCode").filter(|code| code.as_str().bytes().all(|byte| byte.is_ascii_digit()));
    let signal = status.get_string("signal").map(|signal| format!("killed by {}", clean_line(&signal)));
    Some(code.map(|code| format!("exit {}", code.as_str())).or(signal).unwrap_or_else(|| "ended".to_owned()))
}

/// A path inside `cwd` without it.
fn relative<'a>(path: &'a str, cwd: &str) -> &'a str {
    let inside = path.strip_prefix(cwd.trim_end_matches('/')).and_then(|path| path.strip_prefix('/'));
    inside.filter(|inside| !inside.is_empty() && !cwd.is_empty()).unwrap_or(path)
}

/// The text inside a code fence around all of it.
fn without_fence(text: &str) -> &str {
    let inner = text.trim();
    let fence = &inner[..inner.bytes().take_while(|byte| *byte == b'`').count()];
    let body = (fence.len() >= 3).then(|| inner.strip_suffix(fence)).flatten();
    let body = body.and_then(|body| body.get(fence.len()..)?.split_once('\n'));
    match body {
        Some((_, body)) if !body.contains(&format!("\n{fence}")) => body.strip_suffix('\n').unwrap_or(body),
        Some(_) | None => text,
    }
}
