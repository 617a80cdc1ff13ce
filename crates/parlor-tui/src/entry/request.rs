//! What a permission request permits, in full.

use parlor_client::{Object, ToolKind, Transcript};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;

use super::row::{Text, Wrap};
use super::tool_view::{diff_rows, foreign_lines, whole_heading};
use super::{EntryContext, is_narrow};
use crate::clean::{Clean, is_bidirectional};
use crate::text::short_path;
use crate::theme::{Role, Theme};
use parlor_view::content_block;
use parlor_view::diff::{self, FileDiff};
use parlor_view::tool_call::{ToolContent, ToolDetails};

/// Columns of the names of rows.
const LABEL: usize = 11;

/// Bytes of one text that are shown. The number of the others is shown as well.
const MAX_TEXT: usize = 64 << 10;

/// Lines of one diff that are shown. The number of the others is shown as well.
const MAX_DIFF: usize = 10_000;

/// Lines around a change that are shown.
const CONTEXT: usize = 1;

/// The tool call of a permission request, ready to be shown in full.
#[derive(Debug, Clone)]
pub struct RequestDetails {
    /// The request in a few words, after `claude asks: `: `run a command (execute)`, `edit 2 files`.
    pub headline: Clean,
    /// Lines that are added and removed, if files are changed.
    pub counts: Option<(usize, usize)>,
    details: ToolDetails,
    title: Option<String>,
    says: Option<String>,
}

impl RequestDetails {
    /// Reads the params of a permission request; what they leave out is in the transcript. `cwd` is the working directory of the
    /// session.
    pub fn new(params: &Object, transcript: &Transcript, cwd: &str) -> Self {
        let mut details = ToolDetails::of_request(params, transcript, cwd);
        if details.command.is_some() {
            details.directory.get_or_insert_with(|| cwd.to_owned());
        }
        let diffs: Vec<FileDiff> = details.diffs().cloned().collect();
        let says = params.get_string("description").filter(|text| !text.trim().is_empty());
        let headline = Clean::line(&headline(&details));
        // The headline is cut where it does not fit, so that a title is shown below it, unless other rows have all of it.
        let title = Some(details.title.clone())
            .filter(|title| !title.trim().is_empty() && says.as_ref() != Some(title))
            .filter(|title| !is_shown(title, &details) && !is_tool_call_id(title, params, &details));
        Self { headline, counts: (!diffs.is_empty()).then(|| diff::total(&diffs)), details, title, says }
    }

    /// The request in the fewest words, for one that is shown in full elsewhere: `run a command`, `edit 2 files`.
    pub fn short_headline(&self) -> Clean {
        Clean::line(&short_headline(&self.details))
    }

    /// The request in one line for a list: `run rm -rf target`, `edit src/http.rs`.
    pub fn summary(&self) -> Clean {
        Clean::line(&self.details.summary_line())
    }

    /// Everything that the request permits. Nothing is cut: lines wrap.
    pub fn lines(&self, context: &EntryContext<'_>, width: u16) -> Vec<Line<'static>> {
        let (theme, width) = (*context.theme, usize::from(width.max(1)));
        let mut rows =
            RequestRows { theme, width, label: if is_narrow(width) { 0 } else { LABEL }, shown: Vec::new() };
        let details = &self.details;
        if let Some(command) = &details.command {
            rows.command(command);
        }
        if let Some(directory) = &details.directory {
            rows.named("directory", "in ", &short_path(directory, context.home));
        }
        let diffs: Vec<&FileDiff> = details.diffs().collect();
        for (path, line) in
            details.paths.iter().filter(|(path, _)| !diffs.iter().any(|diff| diff.path == *path))
        {
            let line = line.map(|line| format!(":{line}")).unwrap_or_default();
            rows.named("path", "", &format!("{path}{line}"));
        }
        rows.diffs(&diffs);
        // The headline may be cut before it.
        let is_named =
            is_clear(details) || (details.command.is_some() && details.kind == Some(ToolKind::Execute));
        if let Some(kind) = details.kind.as_ref().filter(|_| !is_named) {
            rows.named("kind", "kind ", &kind.to_string());
        }
        if let Some(tool) = &details.tool {
            rows.named("tool", "tool ", tool);
        }
        if let Some(title) = &self.title {
            rows.named("title", "", title);
        }
        if let Some(says) = &self.says {
            rows.named("says", "", says);
        }
        if let Some(input) = details.unshown_input(self.says.as_deref(), context.cwd) {
            rows.named("raw input", "", &content_block::compact(input));
        }
        for content in &details.content {
            match content {
                ToolContent::Text(text) => rows.text(text),
                ToolContent::Block(block) => {
                    rows.text(&content_block::label(block));
                    rows.text(&content_block::resource_text(block).unwrap_or_default());
                }
                ToolContent::Unknown(json) => rows.text(&content_block::compact(json)),
                ToolContent::Terminal(id) => rows.text(&format!("terminal {id}")),
                ToolContent::Diffs(_) => {}
            }
        }
        rows.shown.into_iter().map(|row| row.into_line(width, theme)).collect()
    }

    /// Says how many bidirectional control characters the request has, and where.
    pub fn warning(&self) -> Option<String> {
        let count = |text: &str| text.chars().filter(|character| is_bidirectional(*character)).count();
        let details = &self.details;
        let lines: Vec<_> =
            details.diffs().flat_map(|diff| &diff.lines).filter(|line| count(&line.text) > 0).collect();
        let in_diffs: usize = lines.iter().map(|line| count(&line.text)).sum();
        let texts =
            [self.title.as_ref(), details.command.as_ref(), details.directory.as_ref(), self.says.as_ref()];
        let mut elsewhere: usize = texts.into_iter().flatten().map(|text| count(text)).sum();
        elsewhere += details.paths.iter().map(|(path, _)| count(path)).sum::<usize>();
        elsewhere += details.diffs().map(|diff| count(&diff.path)).sum::<usize>();
        elsewhere += details.input.as_ref().map_or(0, |input| count(input.as_str()));
        for content in &details.content {
            elsewhere += match content {
                ToolContent::Text(text) => count(text),
                ToolContent::Block(block) => count(&block.text()),
                ToolContent::Unknown(json) => count(json.as_str()),
                ToolContent::Terminal(_) | ToolContent::Diffs(_) => 0,
            };
        }
        let lines = match (lines.as_slice(), elsewhere) {
            ([line], 0) => line.number.map(|number| format!(" in line {number}")).unwrap_or_default(),
            _ => String::new(),
        };
        match in_diffs + elsewhere {
            0 => None,
            1 => Some(format!("1 bidirectional control character{lines} is shown as ‹U+…›")),
            all => Some(format!("{all} bidirectional control characters{lines} are shown as ‹U+…›")),
        }
    }
}

/// Whether the rows of the command, of the tool or of the paths have every word of a title.
fn is_shown(title: &str, details: &ToolDetails) -> bool {
    let verb = match details.summary().0 {
        "Edit" | "Create" => vec!["Edit", "Create", "Update", "Write", "Modify"],
        verb => vec![verb],
    };
    let bare = title.strip_prefix("Run ").unwrap_or(title).trim_matches('`');
    if details.command.as_ref().is_some_and(|command| command.contains(bare))
        || details.tool.as_deref() == Some(title)
    {
        return true;
    }
    let paths = || {
        details
            .paths
            .iter()
            .map(|(path, _)| path)
            .chain(details.diffs().map(|diff| &diff.path))
            .map(String::as_str)
    };
    let is_end = |whole: &str, end: &str| {
        whole.strip_suffix(end).is_some_and(|before| before.is_empty() || before.ends_with('/'))
    };
    title.split_whitespace().enumerate().all(|(index, word)| {
        let word = word.trim_matches('`');
        (index == 0 && verb.iter().any(|verb| verb.eq_ignore_ascii_case(word)))
            || (!word.is_empty() && paths().any(|path| is_end(path, word) || is_end(word, path)))
    }) && paths().next().is_some()
}

/// Whether the agent gave no title, so that the id stands for it, but something that says more.
fn is_tool_call_id(title: &str, params: &Object, details: &ToolDetails) -> bool {
    let call = params.get_object("toolCall").or_else(|| params.get_object("subject")?.get_object("toolCall"));
    let id = call.and_then(|call| call.get_string("toolCallId"));
    id.as_deref() == Some(title) && (details.command.is_some() || details.input.is_some())
}

/// Whether the verb of the headline says what kind of operation it is.
fn is_clear(details: &ToolDetails) -> bool {
    matches!(details.kind, Some(ToolKind::Edit | ToolKind::Delete | ToolKind::Move))
        && !details.summary().0.is_empty()
}

fn headline(details: &ToolDetails) -> String {
    let words = if details.command.is_none() && details.diffs().count() < 2 {
        details.summary_line()
    } else {
        short_headline(details)
    };
    match &details.kind {
        Some(kind) if !is_clear(details) || details.command.is_some() => format!("{words} ({kind})"),
        Some(_) | None => words,
    }
}

fn short_headline(details: &ToolDetails) -> String {
    if details.command.is_some() {
        return "run a command".to_owned();
    }
    let words = details.summary_line();
    let has_files = details.diffs().count().max(details.paths.len()) > 1;
    match words.split_once(": ") {
        // `edit 2 files: a, b`: the names are in the body.
        Some((files, _)) if details.kind == Some(ToolKind::Edit) && has_files => files.to_owned(),
        Some(_) | None => words,
    }
}

/// Rows with a name at the left; on narrow screens without.
struct RequestRows {
    theme: Theme,
    width: usize,
    label: usize,
    shown: Vec<Text>,
}

impl RequestRows {
    fn room(&self) -> usize {
        self.width.saturating_sub(self.label).max(1)
    }

    fn push(&mut self, name: &str, parts: Vec<Text>) {
        for (index, part) in parts.into_iter().enumerate() {
            let name = if index == 0 { name } else { "" };
            let columns = self.label;
            let label = if columns == 0 { String::new() } else { format!("{name:<columns$}") };
            self.shown.push(Text::own(label, self.theme.style(Role::Dim)).and(part));
        }
    }

    /// A text with its name; `short` is before it on narrow screens.
    fn named(&mut self, name: &str, short: &'static str, text: &str) {
        let (text, omitted) = truncate(text);
        let text = if self.label == 0 { format!("{short}{text}") } else { text.to_owned() };
        let room = self.room();
        self.push(name, foreign_lines(&text, self.theme, Style::new(), room));
        self.omitted(omitted);
    }

    /// The command: bold, with a new row after each of its parts.
    fn command(&mut self, command: &str) {
        let (command, omitted) = truncate(command);
        let mut rows = Vec::new();
        for part in command_parts(command.trim_end_matches('\n')) {
            let mut text = Text::default();
            for (piece, is_operator) in operators(part) {
                let bold = Style::new().add_modifier(Modifier::BOLD);
                let style = if is_operator { self.theme.style(Role::Accent).patch(bold) } else { bold };
                // A line break at the end of a part is part of the command.
                let shown = piece.replace("\r\n", "\n").replace('\n', "↵");
                text.append(Text::foreign(self.theme, &shown, style));
            }
            rows.extend(text.wrap(self.room(), self.room(), Wrap::Words));
        }
        self.push("command", rows);
        self.omitted(omitted);
    }

    fn text(&mut self, text: &str) {
        let (text, omitted) = truncate(text);
        self.shown.extend(foreign_lines(text, self.theme, Style::new(), self.width));
        self.omitted(omitted);
    }

    fn diffs(&mut self, diffs: &[&FileDiff]) {
        for diff in diffs {
            self.shown.extend(whole_heading(diff, self.theme, self.width));
            let indent = if self.label == 0 { 0 } else { 2 };
            let rows = diff_rows(&[diff], self.theme, self.width - indent, CONTEXT, true, MAX_DIFF);
            let indent = Text::own(" ".repeat(indent), Style::new());
            self.shown.extend(rows.into_iter().map(|row| indent.clone().and(row)));
        }
    }

    fn omitted(&mut self, bytes: usize) {
        if bytes > 0 {
            let style = self.theme.style(Role::Warning);
            self.shown.push(Text::own(format!("… {bytes} more bytes"), style));
        }
    }
}

/// The part of a text that is shown, and the number of other bytes.
fn truncate(text: &str) -> (&str, usize) {
    let end = (0..=MAX_TEXT.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    (&text[..end], text.len() - end)
}

/// The parts of a command: each but the last ends with `&&`, `||`, `;` or a line break outside quotes.
fn command_parts(command: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut quote) = (0, None);
    let mut characters = command.char_indices().peekable();
    while let Some((at, character)) = characters.next() {
        match (character, quote) {
            ('\\', None | Some('"')) => {
                characters.next();
            }
            ('\'' | '"', None) => quote = Some(character),
            (_, Some(open)) if open == character => quote = None,
            ('&' | '|', None) if characters.peek().is_some_and(|(_, next)| *next == character) => {
                characters.next();
                let end = at + 2;
                parts.push(&command[start..end]);
                start = end;
            }
            (';' | '\n', None) => {
                parts.push(&command[start..=at]);
                start = at + 1;
            }
            (_, _) => {}
        }
    }
    parts.push(&command[start..]);
    let is_blank = |part: &&str| part.trim_matches(' ').is_empty();
    parts.into_iter().filter(|part| !is_blank(part)).map(|part| part.trim_matches(' ')).collect()
}

/// The part of a command in pieces, each with whether it combines or redirects commands.
fn operators(part: &str) -> Vec<(&str, bool)> {
    let mut pieces = Vec::new();
    let mut start = 0;
    let mut at = 0;
    while at < part.len() {
        let rest = &part[at..];
        let operator = ["&&", "||", "$(", ">>", ";", "|", ">", "<", "`"]
            .into_iter()
            .find(|operator| rest.starts_with(operator));
        match operator {
            Some(operator) => {
                pieces.push((&part[start..at], false));
                pieces.push((&part[at..at + operator.len()], true));
                at += operator.len();
                start = at;
            }
            None => at += rest.chars().next().map_or(1, char::len_utf8),
        }
    }
    pieces.push((&part[start..], false));
    pieces.retain(|(piece, _)| !piece.is_empty());
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_broken_after_its_parts_and_not_inside_quotes() {
        assert_eq!(
            command_parts("rm -rf a && git clean; ls || x"),
            ["rm -rf a &&", "git clean;", "ls ||", "x"]
        );
        assert_eq!(command_parts("echo 'a && b' \"c; \\\" d\" \\; e"), ["echo 'a && b' \"c; \\\" d\" \\; e"]);
        assert_eq!(command_parts("a\nb"), ["a\n", "b"]);
    }

    #[test]
    fn operators_of_a_shell_are_found() {
        let found: Vec<&str> = operators("a | b > c $(d) && e")
            .into_iter()
            .filter(|(_, is)| *is)
            .map(|(piece, _)| piece)
            .collect();
        assert_eq!(found, ["|", ">", "$(", "&&"]);
    }
}
