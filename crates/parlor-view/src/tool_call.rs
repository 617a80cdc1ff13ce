//! What a tool call does, in a few words and in full, for any output.

use std::collections::HashSet;

use parlor_json::{Json, JsonRef, Object};
use parlor_session::{Content, Entry, EntryId, TerminalId, Transcript};
use parlor_wire::{ToolCallStatus, ToolKind};

use crate::diff::{self, FileDiff, FileOperation};

/// The names that tools use for a command.
const COMMANDS: [&str; 3] = ["command", "cmd", "script"];

/// The names that tools use for the directory of a command.
const DIRECTORIES: [&str; 3] = ["cwd", "workdir", "directory"];

/// The names that tools use for the path of a file.
const PATHS: [&str; 6] = ["file_path", "filePath", "path", "absolute_path", "notebook_path", "filename"];

/// The names that tools use for what they search.
const PATTERNS: [&str; 3] = ["pattern", "query", "regex"];

/// How far a tool call has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolStatus {
    /// It has not started.
    Pending,
    /// It runs.
    Running,
    /// It succeeded.
    Completed,
    /// It failed.
    Failed,
    /// It was cancelled.
    Cancelled,
}

/// A part of what a tool call produced.
#[derive(Debug, Clone)]
pub enum ToolContent {
    /// Text.
    Text(String),
    /// Another content block.
    Block(Object),
    /// Changes of files.
    Diffs(Vec<FileDiff>),
    /// The output of a terminal.
    Terminal(TerminalId),
    /// Content that this version does not know.
    Unknown(Json),
}

/// What a tool call works on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolSubject {
    /// A command.
    Command(String),
    /// A file.
    Path(String),
    /// Anything else.
    Text(String),
}

/// Everything that is known of a tool call.
#[derive(Debug, Clone)]
pub struct ToolDetails {
    /// What it does, in the words of the agent.
    pub title: String,
    /// What sort of operation it is.
    pub kind: Option<ToolKind>,
    /// How far it has come.
    pub status: ToolStatus,
    /// The name of the tool.
    pub tool: Option<String>,
    /// The command that it runs.
    pub command: Option<String>,
    /// The directory of the command.
    pub directory: Option<String>,
    /// The files that it works on, with a line.
    pub paths: Vec<(String, Option<u64>)>,
    /// The input of the tool.
    pub input: Option<Json>,
    /// The output of the tool.
    pub output: Option<Json>,
    /// What it produced.
    pub content: Vec<ToolContent>,
    meta: Object,
}

impl ToolDetails {
    /// The tool call that an entry is; paths inside `cwd` become relative to it.
    pub fn of_entry(entry: &Entry, cwd: &str) -> Self {
        let body = entry.body();
        let id = if let EntryId::ToolCall(id) = entry.id() { id.to_string() } else { String::new() };
        Self::new(&id, &body.fields, body.meta.as_ref(), &items(&body.content), cwd)
    }

    /// A terminal that belongs to no tool call.
    pub fn of_terminal(entry: &Entry, id: &TerminalId) -> Self {
        let fields = &entry.body().fields;
        let exit = fields.get_object("exitStatus");
        let code = exit.as_ref().and_then(|exit| exit.get_u64("exitCode"));
        let command = fields.get("command").and_then(command_text);
        Self {
            title: command.clone().unwrap_or_else(|| id.to_string()),
            kind: Some(ToolKind::Execute),
            status: match (exit, code) {
                (None, _) => ToolStatus::Running,
                (Some(_), Some(0)) => ToolStatus::Completed,
                (Some(_), _) => ToolStatus::Failed,
            },
            tool: None,
            command,
            directory: fields.get_string("cwd"),
            paths: Vec::new(),
            input: None,
            output: None,
            content: vec![ToolContent::Terminal(id.clone())],
            meta: Object::default(),
        }
    }

    /// The tool call that permission is requested for, combined with what the transcript has of it.
    pub fn of_request(params: &Object, transcript: &Transcript, cwd: &str) -> Self {
        let subject = params.get_object("subject").unwrap_or_default();
        let call =
            params.get_object("toolCall").or_else(|| subject.get_object("toolCall")).unwrap_or_default();
        let id =
            call.get_string("toolCallId").or_else(|| subject.get_string("toolCallId")).unwrap_or_default();
        let stored = transcript.get(&EntryId::ToolCall(id.as_str().into())).map(Entry::body);
        // Fields of the request take precedence over those of the transcript.
        let mut fields = stored.map(|body| body.fields.clone()).unwrap_or_default();
        call.iter()
            .filter(|(_, value)| !value.is_null())
            .for_each(|(name, value)| fields.set(name.clone(), value.clone()));
        let content = call.get_array("content").map(|items| items.into_iter().collect::<Content>());
        let content = content.or_else(|| stored.map(|body| body.content.clone())).unwrap_or_default();
        let meta = call.get_object("_meta").or_else(|| stored.and_then(|body| body.meta.clone()));
        let mut details = Self::new(&id, &fields, meta.as_ref(), &items(&content), cwd);
        if let Some(command) = subject.get("command").and_then(command_text) {
            details.command = Some(command);
            details.kind.get_or_insert(ToolKind::Execute);
        }
        details.directory = subject.get_string("cwd").or(details.directory);
        if let Some(title) = params.get_string("title").or_else(|| subject.get_string("title")) {
            details.title = title;
        }
        details
    }

    fn new(id: &str, fields: &Object, meta: Option<&Object>, items: &[Json], cwd: &str) -> Self {
        let input = fields.get("rawInput").filter(|input| !input.is_null()).cloned();
        let arguments = input.as_ref().and_then(Json::to_object).unwrap_or_default();
        let text = |name: &str| fields.get_string(name).filter(|text| !text.trim().is_empty());
        let mut paths = locations(fields, cwd);
        let named = PATHS.iter().find_map(|name| arguments.get_string(name)).filter(|path| !path.is_empty());
        if let Some(path) = named.filter(|_| paths.is_empty()) {
            paths.push((relative(&path, cwd).to_owned(), None));
        }
        let first_line = |path: &str| {
            let path = relative(path, cwd);
            let line = paths.iter().find(|(named, _)| named == path).and_then(|(_, line)| *line);
            line.and_then(|line| usize::try_from(line).ok()).unwrap_or(1).max(1)
        };
        let content = items.iter().map(|item| tool_content(item, cwd, first_line)).collect();
        let meta = meta.cloned().unwrap_or_default();
        let tool = text("name").or_else(|| tool_name(&meta));
        let status = fields.get_json_str("status").map(|status| ToolCallStatus::from(&status));
        Self {
            title: text("title").or_else(|| tool.clone()).unwrap_or_else(|| id.to_owned()),
            kind: fields.get_json_str("kind").map(|kind| ToolKind::from(&kind)),
            status: status_of(status.as_ref()),
            tool,
            command: COMMANDS.iter().find_map(|name| command_text(arguments.get(name)?)),
            directory: DIRECTORIES
                .iter()
                .find_map(|name| arguments.get_string(name))
                .filter(|path| !path.is_empty()),
            paths,
            output: fields.get("rawOutput").filter(|output| !output.is_null()).cloned(),
            content,
            input,
            meta,
        }
    }

    /// The changes of files.
    pub fn diffs(&self) -> impl Iterator<Item = &FileDiff> {
        self.content.iter().flat_map(|content| match content {
            ToolContent::Diffs(diffs) => diffs.as_slice(),
            ToolContent::Text(_)
            | ToolContent::Block(_)
            | ToolContent::Terminal(_)
            | ToolContent::Unknown(_) => &[],
        })
    }

    /// What it does, as a verb and what it works on.
    pub fn summary(&self) -> (&'static str, ToolSubject) {
        let title = || ToolSubject::Text(one_line(&self.title));
        let path = || self.paths.first().map(|(path, _)| ToolSubject::Path(path.clone()));
        let input = |names: &[&str]| {
            let input = self.input.as_ref().and_then(Json::to_object).unwrap_or_default();
            names.iter().find_map(|name| input.get_string(name)).filter(|text| !text.is_empty())
        };
        let (verb, subject) = match &self.kind {
            Some(ToolKind::Execute) => {
                let command = self
                    .command
                    .as_deref()
                    .map(|command| ToolSubject::Command(unwrapped(command).to_owned()));
                (
                    "Run",
                    command.unwrap_or_else(|| ToolSubject::Command(self.title.trim_matches('`').to_owned())),
                )
            }
            Some(ToolKind::Read) => ("Read", path().unwrap_or_else(title)),
            Some(ToolKind::Edit) => return self.edit_summary(),
            Some(ToolKind::Delete) => ("Delete", path().unwrap_or_else(title)),
            Some(ToolKind::Move) => ("Move", self.moved().unwrap_or_else(title)),
            Some(ToolKind::Search) => {
                let place = input(&["path", "glob", "include"]);
                let searched = input(&PATTERNS).map(|pattern| match place {
                    Some(place) => format!(
                        "\"{}\" in {}",
                        one_line(&pattern),
                        self.paths.first().map_or(place, |(path, _)| path.clone())
                    ),
                    None => format!("\"{}\"", one_line(&pattern)),
                });
                ("Search", searched.map_or_else(title, ToolSubject::Text))
            }
            Some(ToolKind::Fetch) => ("Fetch", input(&["url", "uri"]).map_or_else(title, ToolSubject::Text)),
            Some(_) | None => ("", title()),
        };
        match &subject {
            // The title names the verb itself.
            ToolSubject::Text(text) if starts_with_word(text, verb) => ("", subject),
            ToolSubject::Text(_) | ToolSubject::Command(_) | ToolSubject::Path(_) => (verb, subject),
        }
    }

    /// What it does in one line, for lists and notifications: `run rm -rf target`, `edit src/http.rs`.
    pub fn summary_line(&self) -> String {
        let (verb, subject) = self.summary();
        let subject = match subject {
            ToolSubject::Command(text) | ToolSubject::Path(text) | ToolSubject::Text(text) => text,
        };
        format!("{} {subject}", verb.to_lowercase()).trim().to_owned()
    }

    fn edit_summary(&self) -> (&'static str, ToolSubject) {
        let mut files: Vec<(&str, FileOperation)> = Vec::new();
        for diff in self.diffs() {
            if !files.iter().any(|(path, _)| *path == diff.path) {
                files.push((&diff.path, diff.operation));
            }
        }
        if files.is_empty() {
            files = self.paths.iter().map(|(path, _)| (path.as_str(), FileOperation::Edit)).collect();
        }
        match files.as_slice() {
            [] => {
                let title = one_line(&self.title);
                (if starts_with_word(&title, "Edit") { "" } else { "Edit" }, ToolSubject::Text(title))
            }
            [(path, operation)] => (verb(*operation), ToolSubject::Path((*path).to_owned())),
            files => {
                let names: Vec<&str> = files.iter().map(|(path, _)| *path).collect();
                ("Edit", ToolSubject::Text(format!("{} files: {}", files.len(), names.join(", "))))
            }
        }
    }

    fn moved(&self) -> Option<ToolSubject> {
        let diff = self.diffs().find(|diff| diff.operation == FileOperation::Move)?;
        Some(ToolSubject::Text(format!("{} to {}", diff.old_path.as_deref()?, diff.path)))
    }

    /// The results in a few words each: an exit code, matches, lines, changed lines.
    pub fn facts(&self, transcript: &Transcript) -> Vec<String> {
        let mut facts = Vec::new();
        facts.extend(self.exit(transcript));
        let diffs: Vec<FileDiff> = self.diffs().cloned().collect();
        if !diffs.is_empty() {
            let (added, removed) = diff::total(&diffs);
            facts.push(format!("+{added} -{removed}"));
        }
        if self.status == ToolStatus::Completed {
            let count = |count: usize, one: &str, many: &str| {
                format!("{count} {}", if count == 1 { one } else { many })
            };
            match &self.kind {
                Some(ToolKind::Search) => {
                    facts.extend(self.matches().map(|matches| count(matches, "match", "matches")));
                }
                Some(ToolKind::Read) => {
                    facts.extend(self.lines_read().map(|lines| count(lines, "line", "lines")));
                }
                Some(_) | None => {}
            }
        }
        facts
    }

    /// The code with which the command ended, unless it is 0.
    fn exit(&self, transcript: &Transcript) -> Option<String> {
        let output = self.output.as_ref().and_then(Json::to_object).unwrap_or_default();
        let metadata = output.get_object("metadata").unwrap_or_default();
        let of_terminal = self
            .terminals()
            .filter_map(|id| transcript.get(&EntryId::Terminal(id.clone())))
            .find_map(|terminal| exit_of(&terminal.body().fields.get_object("exitStatus")?));
        let named = [output.get("exit_code"), output.get("exitCode"), metadata.get("exit")];
        let named = || named.into_iter().flatten().find_map(exit_code);
        of_terminal.or_else(named).filter(|exit| exit != "exit 0")
    }

    /// The terminals whose output belongs to the tool call.
    pub fn terminals(&self) -> impl Iterator<Item = &TerminalId> {
        self.content.iter().filter_map(|content| match content {
            ToolContent::Terminal(id) => Some(id),
            ToolContent::Text(_)
            | ToolContent::Block(_)
            | ToolContent::Diffs(_)
            | ToolContent::Unknown(_) => None,
        })
    }

    /// The number of matches that the agent reports.
    fn matches(&self) -> Option<usize> {
        let output = self.output.as_ref().and_then(Json::to_object).unwrap_or_default();
        let claude = self
            .meta
            .get_object("claudeCode")
            .and_then(|own| own.get_object("toolResponse"))
            .unwrap_or_default();
        let reports = [output.get_object("metadata").unwrap_or_default(), claude, output];
        let names = ["matches", "numMatches", "numFiles", "count"];
        let count = reports.iter().find_map(|report| names.iter().find_map(|name| report.get_u64(name)));
        count.and_then(|count| usize::try_from(count).ok())
    }

    /// The number of lines of text that was read.
    fn lines_read(&self) -> Option<usize> {
        let text = self.content.iter().find_map(|content| match content {
            ToolContent::Text(text) => Some(without_fence(text)),
            ToolContent::Block(_)
            | ToolContent::Diffs(_)
            | ToolContent::Terminal(_)
            | ToolContent::Unknown(_) => None,
        })?;
        Some(text.lines().count())
    }

    /// The output in the raw output, if the tool call has no content.
    pub fn raw_text(&self) -> Option<String> {
        let output = self.output.as_ref()?;
        if let Some(text) = output.to_text() {
            return Some(text.into_owned());
        }
        let members = output.to_object().unwrap_or_default();
        let names = [
            "formatted_output",
            "aggregated_output",
            "output",
            "stdout",
            "text",
            "content",
            "error",
            "message",
        ];
        names.iter().find_map(|name| members.get_string(name)).filter(|text| !text.trim().is_empty())
    }

    /// The input, unless every value of it is shown otherwise: as the command, the directory, a path, `says` or lines of the diff.
    pub fn unshown_input(&self, says: Option<&str>, cwd: &str) -> Option<&Json> {
        let input = self.input.as_ref().filter(|input| !matches!(input.as_str(), "{}" | "[]" | "\"\""))?;
        let lines: HashSet<&str> =
            self.diffs().flat_map(|diff| &diff.lines).map(|line| line.text.as_str()).collect();
        let is_path = |text: &str| {
            let path = relative(text, cwd);
            self.paths.iter().any(|(named, _)| named == path) || self.diffs().any(|diff| diff.path == path)
        };
        let is_shown_text = |text: &str| {
            let is_named = [self.directory.as_deref(), says].contains(&Some(text));
            is_named || is_path(text) || (!lines.is_empty() && text.lines().all(|line| lines.contains(line)))
        };
        // Read member by member: a name may occur several times.
        let members = members_of(input.raw());
        let is_shown = |name: &str, value: JsonRef<'_>| {
            let is_command = COMMANDS.contains(&name)
                && self.command.is_some()
                && command_text(&Json::from(value)) == self.command;
            is_command || value.to_text().is_some_and(|text| is_shown_text(&text))
        };
        let has_all =
            members.is_some_and(|members| members.iter().all(|(name, value)| is_shown(name, *value)));
        (!has_all).then_some(input)
    }
}

/// The members of an object in order, also those with the same name; `None` if the value is not an object.
fn members_of(object: JsonRef<'_>) -> Option<Vec<(String, JsonRef<'_>)>> {
    let members = parlor_json::Members::of(object).ok()?;
    Some(members.iter().map(|(name, value)| (name.to_text().into_owned(), value)).collect())
}

fn items(content: &Content) -> Vec<Json> {
    content.joined().iter().filter_map(|item| Json::parse(item.json).ok()).collect()
}

fn tool_content(item: &Json, cwd: &str, first_line: impl Fn(&str) -> usize) -> ToolContent {
    let unknown = || ToolContent::Unknown(item.clone());
    let Some(members) = item.to_object() else { return unknown() };
    match members.get_str("type").as_deref() {
        Some("content") => match members.get_object("content") {
            Some(block) if block.get_str("type").as_deref() == Some("text") => {
                ToolContent::Text(block.get_string("text").unwrap_or_default())
            }
            Some(block) => ToolContent::Block(block),
            None => unknown(),
        },
        Some("diff") => FileDiff::all_in(&members, first_line).map_or_else(unknown, |mut diffs| {
            for diff in &mut diffs {
                diff.path = relative(&diff.path, cwd).to_owned();
                diff.old_path = diff.old_path.take().map(|path| relative(&path, cwd).to_owned());
            }
            ToolContent::Diffs(diffs)
        }),
        Some("terminal") => match members.get_json_str("terminalId") {
            Some(id) => ToolContent::Terminal(id.into()),
            None => unknown(),
        },
        Some(_) | None => unknown(),
    }
}

fn status_of(status: Option<&ToolCallStatus>) -> ToolStatus {
    match status {
        Some(ToolCallStatus::InProgress) => ToolStatus::Running,
        Some(ToolCallStatus::Completed) => ToolStatus::Completed,
        Some(ToolCallStatus::Failed) => ToolStatus::Failed,
        Some(ToolCallStatus::Cancelled) => ToolStatus::Cancelled,
        Some(_) | None => ToolStatus::Pending,
    }
}

fn locations(fields: &Object, cwd: &str) -> Vec<(String, Option<u64>)> {
    let location = |location: JsonRef<'_>| {
        let location = location.to_object()?;
        let path = location.get_string("path").filter(|path| !path.is_empty())?;
        Some((relative(&path, cwd).to_owned(), location.get_u64("line")))
    };
    fields.get_array("locations").unwrap_or_default().into_iter().filter_map(location).collect()
}

/// The path relative to the directory, if it is inside.
pub fn relative<'a>(path: &'a str, directory: &str) -> &'a str {
    let directory = directory.trim_end_matches('/');
    match path.strip_prefix(directory).and_then(|path| path.strip_prefix('/')) {
        Some(inside) if !directory.is_empty() && !inside.is_empty() => inside,
        Some(_) | None => path,
    }
}

/// A command as text: a string, or a list of arguments.
pub fn command_text(value: &Json) -> Option<String> {
    if let Some(arguments) = value.elements() {
        let arguments = arguments.into_iter().map(|argument| Some(quoted(&argument.to_text()?)));
        return Some(arguments.collect::<Option<Vec<_>>>()?.join(" ")).filter(|command| !command.is_empty());
    }
    value.to_text().map(std::borrow::Cow::into_owned).filter(|command| !command.trim().is_empty())
}

/// Quotes an argument for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// The command that a shell is given, for a title.
fn unwrapped(command: &str) -> &str {
    let shells = ["/bin/bash", "/usr/bin/bash", "bash", "/bin/sh", "sh", "/bin/zsh", "zsh"];
    let after_shell = shells.iter().find_map(|shell| command.strip_prefix(shell)?.strip_prefix(' '));
    let after_option =
        after_shell.and_then(|rest| rest.strip_prefix("-lc ").or_else(|| rest.strip_prefix("-c ")));
    let inner = after_option.and_then(|rest| rest.strip_prefix('\'')?.strip_suffix('\''));
    inner.filter(|inner| !inner.contains('\'')).unwrap_or(command)
}

/// The name of the tool, which agents put into their metadata under their own key.
fn tool_name(meta: &Object) -> Option<String> {
    let own = |object: &Object| object.get_string("toolName").or_else(|| object.get_string("tool_name"));
    own(meta).or_else(|| meta.iter().find_map(|(_, value)| own(&value.to_object()?)))
}

fn exit_of(status: &Object) -> Option<String> {
    let signal = || status.get_string("signal").map(|signal| format!("killed by {signal}"));
    status.get("exitCode").and_then(exit_code).or_else(signal)
}

fn exit_code(code: &Json) -> Option<String> {
    let is_number = code.type_of() == parlor_json::Type::Number;
    is_number.then(|| format!("exit {}", code.as_str()))
}

/// The word for what happens to a file.
pub fn verb(operation: FileOperation) -> &'static str {
    match operation {
        FileOperation::Edit => "Edit",
        FileOperation::Create => "Create",
        FileOperation::Delete => "Delete",
        FileOperation::Move => "Move",
    }
}

/// The text inside a code fence around all of it.
pub fn without_fence(text: &str) -> &str {
    let inner = text.trim();
    let ticks = inner.bytes().take_while(|byte| *byte == b'`').count();
    let fence = &inner[..ticks];
    let body = (ticks >= 3).then(|| inner.strip_suffix(fence)).flatten();
    let body = body.and_then(|body| body.get(ticks..)?.split_once('\n'));
    match body {
        Some((_, body)) if !body.contains(&format!("\n{fence}")) => body.strip_suffix('\n').unwrap_or(body),
        Some(_) | None => text,
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn starts_with_word(text: &str, word: &str) -> bool {
    !word.is_empty() && text.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word))
}
