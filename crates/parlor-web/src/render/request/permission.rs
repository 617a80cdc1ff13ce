//! Permissions: everything that a person permits, in full.

use maud::{Markup, html};
use parlor_client::{PermissionOption, PermissionOptionKind, ToolCallId};
use parlor_json::{Json, Object};
use parlor_session::Transcript;
use parlor_view::content_block;
use parlor_view::tool_call::{ToolContent, ToolDetails, verb};

use crate::assets::icon;
use crate::render::text::{clean, clean_line, percent_encoded, short_path};
use crate::render::tool_call::command_html;
use crate::render::{code, diff};

/// Bytes of one text that are shown, other than of a command. The number of the others is shown as well.
const MAX_TEXT: usize = 64 << 10;

/// Lines of one diff that are shown. The number of the others is shown as well.
const MAX_DIFF: usize = 10_000;

/// The tool call that a person permits or rejects, with the options for it.
#[derive(Debug, Clone)]
pub(super) struct PermissionSubject {
    pub(super) options: Vec<PermissionOption>,
    pub(super) tool_call: Option<ToolCallId>,
    details: ToolDetails,
    says: Option<String>,
}

impl PermissionSubject {
    /// The params have everything that the session knows of the tool call.
    pub(super) fn new(params: &Object, cwd: &str) -> Self {
        let details = ToolDetails::of_request(params, &Transcript::default(), cwd);
        let subject = params.get_object("subject").unwrap_or_default();
        let call = params.get_object("toolCall").or_else(|| subject.get_object("toolCall"));
        let mut this = Self {
            tool_call: call.unwrap_or(subject).get_json_str("toolCallId").map(ToolCallId::from),
            options: PermissionOption::all_in(params),
            says: None,
            details,
        };
        let title = Some(this.details.title.clone()).filter(|title| !this.shows_title(title));
        let description = params.get_string("description").filter(|text| !text.trim().is_empty());
        this.says = match (title, description) {
            (Some(title), Some(says)) if title != says => Some(format!("{title}\n{says}")),
            (title, says) => says.or(title),
        };
        this
    }

    /// Whether the card shows the title otherwise: as the command, a path or the headline.
    fn shows_title(&self, title: &str) -> bool {
        // Agents name a command as itself, in backticks, or after a verb.
        let named = title.trim_start_matches("Run").trim().trim_matches('`');
        let is_command = self.details.command.as_ref().is_some_and(|command| command.contains(named));
        title.trim().is_empty() || is_command || self.asks().contains(title)
    }

    fn files(&self) -> usize {
        let mut paths: Vec<&str> = self.details.diffs().map(|diff| diff.path.as_str()).collect();
        paths.sort_unstable();
        paths.dedup();
        paths.len()
    }

    /// What is asked for: `to run a command and change 2 files`.
    pub(super) fn asks(&self) -> String {
        let command = self.details.command.as_ref().map(|_| "run a command".to_owned());
        let files = Some(self.files()).filter(|files| *files > 0);
        let files = files.map(|files| format!("change {}", count(files, "file")));
        let parts: Vec<String> = command.into_iter().chain(files).collect();
        if !parts.is_empty() {
            return format!("to {}", parts.join(" and "));
        }
        let summary = self.details.summary_line();
        if self.details.summary().0.is_empty() {
            format!("for permission: {summary}")
        } else {
            format!("to {summary}")
        }
    }

    /// What is asked for in one line with the command or the path: `run make`.
    pub(super) fn summary(&self) -> String {
        self.details.summary_line()
    }

    /// How much is asked for, for the end of the card: `1 command, 2 files`.
    pub(super) fn extent(&self) -> String {
        let command = self.details.command.as_ref().map(|_| "1 command".to_owned());
        let files = Some(self.files()).filter(|files| *files > 0).map(|files| count(files, "file"));
        command.into_iter().chain(files).collect::<Vec<_>>().join(", ")
    }

    pub(super) fn html(&self, cwd: &str) -> Markup {
        let details = &self.details;
        let diffs: Vec<_> = details.diffs().collect();
        let paths: Vec<_> =
            details.paths.iter().filter(|(path, _)| !diffs.iter().any(|diff| diff.path == *path)).collect();
        html! {
            @if let Some(command) = &details.command {
                div.part {
                    header {
                        span.grow { "Command, in " code { (short_path(details.directory.as_deref().unwrap_or(cwd))) } }
                        button.btn.quiet.small.icon type="button" data-do="copy-code" aria-label="Copy command" { (icon("copy", "")) }
                    }
                    (command_html(command))
                }
            }
            @for diff in diffs {
                div.part {
                    header {
                        code.grow {
                            @if let Some(old) = &diff.old_path { (clean(old)) " → " }
                            (clean(&diff.path))
                        }
                        @let verb = verb(diff.operation).to_lowercase();
                        // The headline says that files are changed.
                        @if verb != "edit" { span.muted { (verb) } }
                        (diff::layout_button()) span.num { (diff::counts(diff.counts())) }
                    }
                    (diff::table_of(diff, MAX_DIFF))
                }
            }
            @if !paths.is_empty() || details.tool.is_some() {
                dl.part.facts {
                    @for (path, line) in paths {
                        dt { "Path" }
                        dd { code { (clean(path)) @if let Some(line) = line { ":" (line) } } }
                    }
                    @if let Some(tool) = &details.tool { dt { "Tool" } dd { code { (clean(tool)) } } }
                }
            }
            @if self.has_no_details(cwd) { p.part.muted { "The agent gave no command, no files and no input." } }
            @if let Some(says) = &self.says { div.part.says { (text_html(says)) } }
            @if let Some(input) = details.unshown_input(self.says.as_deref(), cwd) {
                div.part { header { "Input" } (json_html(input)) }
            }
            @for content in &details.content {
                @match content {
                    ToolContent::Text(text) => div.part { (text_html(text)) },
                    ToolContent::Block(block) => div.part {
                        header { (clean_line(&content_block::label(block))) }
                        @if let Some(text) = content_block::resource_text(block) { (text_html(&text)) }
                    },
                    ToolContent::Unknown(json) => div.part { (json_html(json)) },
                    ToolContent::Terminal(id) => div.part { header { "Terminal " (clean_line(&id.to_string())) } },
                    ToolContent::Diffs(_) => {}
                }
            }
        }
    }

    /// Whether the headline is all that is known.
    fn has_no_details(&self, cwd: &str) -> bool {
        let details = &self.details;
        details.command.is_none()
            && details.paths.is_empty()
            && details.content.is_empty()
            && details.unshown_input(self.says.as_deref(), cwd).is_none()
    }
}

/// The name of an option in the page: its id, encoded.
pub(super) fn option_name(option: &PermissionOption) -> String {
    percent_encoded(option.id.inner())
}

/// What an option does, if its name does not say it, or says the opposite as well.
pub(super) fn unnamed_effect(option: &PermissionOption) -> Option<&'static str> {
    let name = option.name.to_lowercase();
    let has = |word: &str| name.contains(word);
    let is_denied = ["reject", "deny", "not", "n't", "n’t", "never"].into_iter().any(has);
    let (is_named, effect) = match &option.kind {
        PermissionOptionKind::AllowOnce => (has("allow") && !has("always") && !is_denied, "allow once"),
        PermissionOptionKind::AllowAlways => (has("allow") && has("always") && !is_denied, "always allow"),
        PermissionOptionKind::RejectOnce => (has("reject") && !has("always"), "reject once"),
        PermissionOptionKind::RejectAlways => (has("reject") && has("always"), "always reject"),
        PermissionOptionKind::Other(_) | _ => return None,
    };
    (!is_named).then_some(effect)
}

/// A text in full, with the number of bytes that are left out of a very long one.
pub(super) fn text_html(text: &str) -> Markup {
    let end = (0..=MAX_TEXT.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    let omitted = text.len() - end;
    html! {
        pre.written { (clean(text.get(..end).unwrap_or_default())) }
        @if omitted > 0 { p.warning { (omitted) " more bytes are not shown" } }
    }
}

fn json_html(json: &Json) -> Markup {
    let text = content_block::compact(json);
    if text.len() <= MAX_TEXT { code::block(&clean(&text), "json") } else { text_html(&text) }
}

fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}
