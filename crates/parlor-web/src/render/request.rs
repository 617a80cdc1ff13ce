//! Requests of agents that wait for a person: permissions with everything that they permit, and forms.
//!
//! The markup needs no script of its own. A button or a form with `data-do` sends that action with its `data-` attributes and the named
//! fields of its form: `answer` (with `data-option` for a permission), `decline` or `not_now`, each with `data-session`, `data-request` and
//! `data-opened`. The session and the option are percent-encoded. Ids of requests begin again when the server starts, so the time when the
//! request was opened is part of its name.

use std::fmt::Write;

use jiff::Timestamp;
use maud::{Markup, html};
use parlor_client::{
    Elicitation, FieldKind, FormField, OpenRequest, PermissionOption, PermissionOptionKind, ToolCallId,
};
use parlor_json::{Json, Object};
use parlor_session::{SessionId, Transcript};
use parlor_view::content_block;
use parlor_view::tool_call::{ToolContent, ToolDetails, ToolSubject};

use super::content_block::is_web_or_mail;
use super::entry::age_html;
use super::text::{clean, clean_line, is_bidirectional, percent_encoded, short_path};
use super::tool_call::command_html;
use super::{code, diff};
use crate::assets::{icon, state_icon};

/// Bytes of one text that are shown, other than of a command. The number of the others is shown as well.
const MAX_TEXT: usize = 64 << 10;

/// Lines of one diff that are shown. The number of the others is shown as well.
const MAX_DIFF: usize = 10_000;

/// A field with more options than this is a list that opens.
const MAX_RADIOS: usize = 12;

/// A request that waits for a person.
#[derive(Debug, Clone)]
pub struct RequestCard {
    id: String,
    session: SessionId,
    opened_at: String,
    agent: String,
    cwd: String,
    subject: RequestSubject,
}

#[derive(Debug, Clone)]
enum RequestSubject {
    Permission(Box<PermissionSubject>),
    Form(Box<Elicitation>),
    /// Something that can only be shown as JSON, and declined.
    Unknown(String),
}

#[derive(Debug, Clone)]
struct PermissionSubject {
    details: ToolDetails,
    says: Option<String>,
    options: Vec<PermissionOption>,
    tool_call: Option<ToolCallId>,
}

/// The place of a card.
#[derive(Debug, Clone, Copy)]
pub enum CardPlace<'a> {
    /// In the place of the composer, with the places where the request is shown as well.
    Dock(&'a Markup),
    /// In the inbox.
    Inbox,
}

/// An answer to a request that the page does not send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnswerError {
    /// The request has no option with this id.
    UnknownOption,
    /// A value of the form is rejected; the text says why.
    Rejected(String),
    /// The request can only be declined.
    NotAnswerable,
}

impl std::fmt::Display for AnswerError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::UnknownOption => f.write_str("the request has no such option"),
            Self::Rejected(reason) => f.write_str(reason),
            Self::NotAnswerable => f.write_str("this request can only be declined"),
        }
    }
}

impl std::error::Error for AnswerError {}

impl RequestCard {
    /// Reads an open request of the server.
    pub fn new(open: &OpenRequest) -> Self {
        Self {
            id: open.id.clone(),
            session: open.session.clone(),
            opened_at: open.opened_at.clone().unwrap_or_default(),
            agent: open.agent.clone(),
            cwd: open.cwd.clone(),
            subject: RequestSubject::new(open),
        }
    }

    /// The id with which it is answered.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The session of the request.
    pub fn session(&self) -> &SessionId {
        &self.session
    }

    /// The tool call that a permission is requested for.
    pub fn tool_call(&self) -> Option<&ToolCallId> {
        match &self.subject {
            RequestSubject::Permission(permission) => permission.tool_call.as_ref(),
            RequestSubject::Form(_) | RequestSubject::Unknown(_) => None,
        }
    }

    /// Whether it is the request with this id that was opened at this time.
    pub fn is(&self, id: &str, opened_at: &str) -> bool {
        self.id == id && self.opened_at == opened_at
    }

    /// Whether another card is of the same request.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.is(&other.id, &other.opened_at)
    }

    /// The id of its element.
    pub fn element_id(&self) -> String {
        format!("q-{}", percent_encoded(&self.id))
    }

    /// Who asks for what, in one line: `claude asks to run a command and change 2 files`.
    pub fn headline(&self) -> String {
        let agent = clean_line(if self.agent.is_empty() { "The agent" } else { &self.agent });
        match &self.subject {
            RequestSubject::Permission(permission) => {
                format!("{agent} asks {}", clean_line(&permission.asks()))
            }
            RequestSubject::Form(form) if form.url.is_some() => format!("{agent} asks you to open a link"),
            RequestSubject::Form(_) => format!("{agent} asks for an answer"),
            RequestSubject::Unknown(_) => format!("{agent} sends a request that can only be declined"),
        }
    }

    /// What it asks for in one line with the command, the path or the message, for lists and notifications.
    pub fn summary(&self) -> String {
        match &self.subject {
            RequestSubject::Permission(permission) => {
                let (verb, subject) = permission.details.summary();
                let subject = match subject {
                    ToolSubject::Command(text) | ToolSubject::Path(text) | ToolSubject::Text(text) => text,
                };
                clean_line(&format!("{} {subject}", verb.to_lowercase()))
            }
            RequestSubject::Form(form) => clean_line(&form.message),
            RequestSubject::Unknown(params) => clean_line(params),
        }
    }

    /// The card, with its options.
    pub fn html(&self, place: CardPlace<'_>) -> Markup {
        let id = self.element_id();
        let heading = format!("{id}:h");
        let session = percent_encoded(&self.session.to_string());
        let content = html! {
            header {
                (state_icon("you", "you", "needs you"))
                h2 id=(heading) { (self.headline()) }
                @if let CardPlace::Dock(places) = place { p { (self.note(places)) } }
            }
            div.scroll tabindex="0" role="region" aria-label="What is asked for" {
                @if let Some(warning) = self.warning() { p.warning { (warning) } }
                (self.body())
                p.rest data-end=(self.end()) { (self.end()) }
            }
            (self.options())
        };
        let opened = (!self.opened_at.is_empty()).then_some(self.opened_at.as_str());
        // The options of a permission are buttons; the values of a form belong to its one answer.
        match &self.subject {
            RequestSubject::Form(_) => html! {
                form.req.ask id=(id) aria-labelledby=(heading) autocomplete="off" data-do="answer" data-session=(session)
                    data-request=(self.id) data-opened=[opened] { (content) }
            },
            RequestSubject::Permission(_) | RequestSubject::Unknown(_) => html! {
                section.req.ask id=(id) aria-labelledby=(heading) data-session=(session) data-request=(self.id) data-opened=[opened] {
                    (content)
                }
            },
        }
    }

    /// The result that answers it: with an option of a permission, or with the values of a form by the names of its fields.
    pub fn answer(
        &self,
        option: Option<&str>,
        values: &dyn Fn(&str) -> Vec<String>,
    ) -> Result<Object, AnswerError> {
        match &self.subject {
            RequestSubject::Permission(permission) => {
                let found = permission
                    .options
                    .iter()
                    .find(|known| option.is_some_and(|option| option_name(known) == option));
                let found = found.ok_or(AnswerError::UnknownOption)?;
                let outcome = Object::new().with("outcome", "selected").with("optionId", &found.id);
                Ok(Object::new().with("outcome", outcome))
            }
            RequestSubject::Form(form) => {
                let mut entered = Object::default();
                for (index, field) in form.fields.iter().enumerate() {
                    let value = field_value(field, &values(&field_name(&self.id, index)));
                    let title = clean_line(&field.title);
                    let value =
                        value.map_err(|reason| AnswerError::Rejected(format!("{title}: {reason}")))?;
                    match value {
                        Some(value) => entered.set(field.name.clone(), value),
                        None if field.is_required => {
                            return Err(AnswerError::Rejected(format!("{title}: a value is required")));
                        }
                        None => {}
                    }
                }
                Ok(form.accept(&entered))
            }
            RequestSubject::Unknown(_) => Err(AnswerError::NotAnswerable),
        }
    }

    /// The result that declines it: a form is declined, a permission is cancelled.
    pub fn decline(&self) -> Object {
        match &self.subject {
            RequestSubject::Permission(_) => {
                Object::new().with("outcome", Object::new().with("outcome", "cancelled"))
            }
            RequestSubject::Form(_) | RequestSubject::Unknown(_) => Elicitation::decline(),
        }
    }

    fn note(&self, places: &Markup) -> Markup {
        html! {
            @if let Ok(at) = self.opened_at.parse::<Timestamp>() { "Asked " (age_html(at)) ". " }
            (places)
            "The first answer counts."
        }
    }

    fn body(&self) -> Markup {
        match &self.subject {
            RequestSubject::Permission(permission) => permission.html(&self.cwd),
            RequestSubject::Form(form) => form_html(form, &self.id),
            RequestSubject::Unknown(params) => html! {
                div.part { header { "Request" } (text_html(params)) }
            },
        }
    }

    /// What the bar at the end of the content says.
    fn end(&self) -> String {
        let RequestSubject::Permission(permission) = &self.subject else {
            return "End of the request".to_owned();
        };
        let files = permission.files();
        let command = permission.details.command.as_ref().map(|_| "1 command".to_owned());
        let files = (files > 0).then(|| count(files, "file"));
        let parts: Vec<String> = [command, files].into_iter().flatten().collect();
        if parts.is_empty() {
            "End of the request".to_owned()
        } else {
            format!("End of the request: {}", parts.join(", "))
        }
    }

    fn options(&self) -> Markup {
        let (session, request) = (percent_encoded(&self.session.to_string()), &self.id);
        // A page that replaces the card keeps the focus by these ids.
        let id = |name: &str| format!("{}:{name}", self.element_id());
        let opened = (!self.opened_at.is_empty()).then_some(self.opened_at.as_str());
        let button = |action: &str, name: &str, class: &str, key: &str| {
            html! {
                button id=(id(action)) class=(format!("btn {class}").trim_end()) type="button" data-do=(action) data-session=(session) data-request=(request)
                    data-opened=[opened] { (name) @if !key.is_empty() { " " kbd { (key) } } }
            }
        };
        html! {
            div.opts role="group" aria-label="Answer" {
                @match &self.subject {
                    RequestSubject::Permission(permission) => {
                        @let main = permission.options.iter().position(|option| option.kind == PermissionOptionKind::AllowOnce);
                        @for (index, option) in permission.options.iter().enumerate() {
                            button id=(id(&index.to_string())) class=(if main == Some(index) { "btn main" } else { "btn" }) type="button" data-do="answer"
                                data-session=(session) data-request=(request) data-opened=[opened]
                                data-option=(option_name(option)) {
                                (clean_line(&option.name))
                                @if let Some(effect) = unnamed_effect(option) { " " span { "(" (effect) ")" } }
                                @if index < 9 { " " kbd { (index + 1) } }
                            }
                        }
                        @if permission.options.is_empty() { (button("decline", "Decline", "", "")) }
                    }
                    RequestSubject::Form(form) => {
                        button.btn.main id=(id("send")) type="submit" {
                            @if form.url.is_some() { "I opened it" } @else { "Send answer" } " " kbd { "↵" }
                        }
                        (button("decline", "Decline", "", ""))
                    }
                    RequestSubject::Unknown(_) => (button("decline", "Decline", "main", "")),
                }
                (button("not_now", "Not now", "quiet", "Esc"))
            }
        }
    }

    /// How many bidirectional control characters the request has.
    fn warning(&self) -> Option<String> {
        let count = |text: &str| text.chars().filter(|character| is_bidirectional(*character)).count();
        let hidden = match &self.subject {
            RequestSubject::Permission(permission) => permission.texts().iter().map(|text| count(text)).sum(),
            RequestSubject::Form(form) => {
                let fields = form.fields.iter().map(|field| {
                    count(&field.title) + field.description.as_deref().map(count).unwrap_or_default()
                });
                count(&form.message) + fields.sum::<usize>()
            }
            RequestSubject::Unknown(params) => count(params),
        };
        match hidden {
            0 => None,
            1 => Some("1 bidirectional control character is shown as ‹U+…›".to_owned()),
            hidden => Some(format!("{hidden} bidirectional control characters are shown as ‹U+…›")),
        }
    }
}

impl RequestSubject {
    fn new(open: &OpenRequest) -> Self {
        let params = &open.params;
        if open.method == "session/request_permission" {
            return Self::Permission(Box::new(PermissionSubject::new(params, &open.cwd)));
        }
        match Elicitation::parse(params) {
            Some(form) if open.method == "elicitation/create" => Self::Form(Box::new(form)),
            Some(_) | None => Self::Unknown(content_block::compact(&params.to_json())),
        }
    }
}

impl PermissionSubject {
    /// The params have everything that the session knows of the tool call.
    fn new(params: &Object, cwd: &str) -> Self {
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
    fn asks(&self) -> String {
        let command = self.details.command.as_ref().map(|_| "run a command".to_owned());
        let files = Some(self.files()).filter(|files| *files > 0);
        let files = files.map(|files| format!("change {}", count(files, "file")));
        let parts: Vec<String> = [command, files].into_iter().flatten().collect();
        if !parts.is_empty() {
            return format!("to {}", parts.join(" and "));
        }
        let (verb, subject) = self.details.summary();
        let subject = match subject {
            ToolSubject::Command(text) | ToolSubject::Path(text) | ToolSubject::Text(text) => text,
        };
        if verb.is_empty() {
            format!("for permission: {subject}")
        } else {
            format!("to {} {subject}", verb.to_lowercase())
        }
    }

    fn html(&self, cwd: &str) -> Markup {
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
                        @let verb = parlor_view::tool_call::verb(diff.operation).to_lowercase();
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

    /// All texts that are shown.
    fn texts(&self) -> Vec<&str> {
        let details = &self.details;
        let mut texts = vec![details.title.as_str()];
        texts.extend(
            [&details.command, &details.directory, &details.tool, &self.says]
                .into_iter()
                .flatten()
                .map(String::as_str),
        );
        texts.extend(details.paths.iter().map(|(path, _)| path.as_str()));
        texts.extend(details.input.as_ref().map(Json::as_str));
        texts.extend(self.options.iter().map(|option| option.name.as_str()));
        for diff in details.diffs() {
            texts.push(&diff.path);
            texts.extend(diff.old_path.as_deref());
            texts.extend(diff.lines.iter().map(|line| line.text.as_str()));
        }
        texts.extend(details.content.iter().filter_map(|content| match content {
            ToolContent::Text(text) => Some(text.as_str()),
            ToolContent::Unknown(json) => Some(json.as_str()),
            ToolContent::Block(_) | ToolContent::Terminal(_) | ToolContent::Diffs(_) => None,
        }));
        texts
    }
}

/// The name of an option in the page: its id, encoded.
fn option_name(option: &PermissionOption) -> String {
    percent_encoded(option.id.inner())
}

/// What an option does, if its name does not say it.
fn unnamed_effect(option: &PermissionOption) -> Option<&'static str> {
    let name = option.name.to_lowercase();
    let has = |words: &[&str]| words.iter().all(|word| name.contains(word));
    match &option.kind {
        PermissionOptionKind::AllowOnce => (!has(&["allow"]) || has(&["always"])).then_some("allow once"),
        PermissionOptionKind::AllowAlways => (!has(&["allow", "always"])).then_some("always allow"),
        PermissionOptionKind::RejectOnce => (!has(&["reject"]) || has(&["always"])).then_some("reject once"),
        PermissionOptionKind::RejectAlways => (!has(&["reject", "always"])).then_some("always reject"),
        PermissionOptionKind::Other(_) | _ => None,
    }
}

/// A text in full, with the number of bytes that are left out of a very long one.
fn text_html(text: &str) -> Markup {
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
    let mut text = format!("{number} {noun}");
    if number != 1 {
        let _ = write!(text, "s");
    }
    text
}

/// The name of the field with this index in the form of a request. The inbox has several forms.
fn field_name(request: &str, index: usize) -> String {
    format!("{}.{index}", percent_encoded(request))
}

fn form_html(form: &Elicitation, request: &str) -> Markup {
    html! {
        div.form {
            @if !form.message.trim().is_empty() { p.written { (clean(&form.message)) } }
            @if let Some(url) = &form.url {
                // The whole address is shown: a person decides by it.
                p { code { (clean(url)) } }
                @if is_web_or_mail(url) {
                    p { a.btn href=(clean_line(url)) rel="noopener noreferrer nofollow" target="_blank" { (icon("link", "")) "Open the link" } }
                }
            }
            @for (index, field) in form.fields.iter().enumerate() { (field_html(field, &field_name(request, index))) }
        }
    }
}

fn field_html(field: &FormField, name: &str) -> Markup {
    let default = field.default.as_ref();
    let is_chosen = |value: &Json| default.is_some_and(|default| default.as_str() == value.as_str());
    let text_default = default.and_then(|default| Some(default.to_text()?.into_owned()));
    let head = html! {
        (clean_line(&field.title))
        @if !field.is_required { " " span.muted { "(optional)" } }
        @if let Some(text) = field.description.as_deref().filter(|text| !text.trim().is_empty()) {
            " " span.muted { (clean_line(text)) }
        }
        @if let Some(limits) = field.limits() { " " span.muted { "(" (limits) ")" } }
    };
    match &field.kind {
        FieldKind::One(options) if options.len() <= MAX_RADIOS => html! {
            fieldset {
                legend { (head) }
                @for (choice, (value, title)) in options.iter().enumerate() {
                    label {
                        input id=(format!("{name}.{choice}")) type="radio" name=(name) value=(choice) checked[is_chosen(value)] required[field.is_required];
                        span { (clean_line(title)) }
                    }
                }
            }
        },
        FieldKind::One(options) => html! {
            label.col {
                span { (head) }
                select.field id=(name) name=(name) required[field.is_required] {
                    option value="" { "Choose one" }
                    @for (choice, (value, title)) in options.iter().enumerate() {
                        option value=(choice) selected[is_chosen(value)] { (clean_line(title)) }
                    }
                }
            }
        },
        FieldKind::Many(options) => {
            let defaults = default.and_then(Json::elements).unwrap_or_default();
            let is_default = |value: &Json| defaults.iter().any(|default| default.as_str() == value.as_str());
            html! {
                fieldset {
                    legend { (head) }
                    @for (choice, (value, title)) in options.iter().enumerate() {
                        label {
                            input id=(format!("{name}.{choice}")) type="checkbox" name=(name) value=(choice) checked[is_default(value)];
                            span { (clean_line(title)) }
                        }
                    }
                }
            }
        }
        FieldKind::Boolean => html! {
            label {
                input id=(name) type="checkbox" name=(name) value="true" checked[default.and_then(Json::as_bool) == Some(true)];
                span { (head) }
            }
        },
        FieldKind::Number { is_whole, min, max } => html! {
            label.col {
                span { (head) }
                input.field id=(name) type="number" name=(name) step=(if *is_whole { "1" } else { "any" })
                    min=[*min] max=[*max] value=[default.map(|default| clean_line(default.as_str()))] required[field.is_required];
            }
        },
        FieldKind::Text { .. } | _ => html! {
            label.col {
                span { (head) }
                input.field id=(name) type=(if field.is_secret { "password" } else { "text" }) name=(name)
                    value=[text_default.map(|text| clean_line(&text))] required[field.is_required] autocomplete="off";
            }
        },
    }
}

/// The value of a field from what a person entered; `None` if it is empty, or why it is rejected.
fn field_value(field: &FormField, entered: &[String]) -> Result<Option<Json>, String> {
    let chosen = |options: &[(Json, String)], choice: &String| {
        let value = choice.parse::<usize>().ok().and_then(|index| options.get(index));
        value.map(|(value, _)| value.clone()).ok_or_else(|| "there is no such choice".to_owned())
    };
    let first = entered.first().filter(|text| !text.trim().is_empty());
    match &field.kind {
        FieldKind::One(options) => first.map(|choice| chosen(options, choice)).transpose(),
        FieldKind::Many(options) => {
            let values: Vec<Json> =
                entered.iter().map(|choice| chosen(options, choice)).collect::<Result<_, _>>()?;
            Ok((!values.is_empty()).then(|| Json::array(values)))
        }
        FieldKind::Boolean => Ok(Some(Json::from(first.is_some_and(|value| value == "true")))),
        FieldKind::Text { .. } | FieldKind::Number { .. } | _ => {
            first.map(|text| field.parse_text(text)).transpose()
        }
    }
}
