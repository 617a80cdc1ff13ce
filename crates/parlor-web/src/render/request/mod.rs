//! Requests of agents that wait for a person: permissions with everything that they permit, and forms.
//!
//! The markup needs no script of its own. A button or a form with `data-do` sends that action with its `data-` attributes and the named
//! fields of its form: `answer` (with `data-option` for a permission), `decline` or `not_now`, each with `data-session`, `data-request` and
//! `data-opened`. The session and the option are percent-encoded. Ids of requests begin again when the server starts, so the time when the
//! request was opened is part of its name.

mod form;
mod permission;

#[cfg(test)]
mod tests;

use jiff::Timestamp;
use maud::{Markup, html};
use parlor_client::{Elicitation, OpenRequest, PermissionOptionKind, ToolCallId};
use parlor_json::{JsonRef, Members, Object};
use parlor_session::SessionId;
use parlor_view::content_block;

use self::permission::{PermissionSubject, option_name, text_html, unnamed_effect};
use super::entry::age_html;
use super::text::{clean_line, is_bidirectional, percent_encoded};
use crate::assets::state_icon;

/// A request that waits for a person.
#[derive(Debug, Clone)]
pub struct RequestCard {
    id: String,
    session: SessionId,
    opened_at: String,
    agent: String,
    cwd: String,
    /// Bidirectional control characters of the request.
    hidden: usize,
    subject: RequestSubject,
}

#[derive(Debug, Clone)]
enum RequestSubject {
    Permission(Box<PermissionSubject>),
    Form(Box<Elicitation>),
    /// Something that can only be shown as JSON, and declined.
    Unknown(String),
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
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// The request has no option with this id.
    #[error("the request has no such option")]
    UnknownOption,
    /// A value of the form is rejected; the text says why.
    #[error("{0}")]
    Rejected(String),
    /// The request can only be declined.
    #[error("this request can only be declined")]
    NotAnswerable,
}

impl RequestCard {
    /// Reads an open request of the server.
    pub fn new(open: &OpenRequest) -> Self {
        Self {
            id: open.id.clone(),
            session: open.session.clone(),
            opened_at: open.opened_at.clone().unwrap_or_default(),
            agent: open.agent.clone(),
            cwd: open.cwd.clone(),
            hidden: hidden_in(open.params.to_json().raw()),
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
            RequestSubject::Permission(permission) => clean_line(&permission.summary()),
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
                // The script replaces this when it knows that all content is visible.
                p.rest data-end=(self.end()) { "More below" }
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
            RequestSubject::Form(form) => form::answer(form, &self.id, values),
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
            RequestSubject::Form(form) => form::html(form, &self.id),
            RequestSubject::Unknown(params) => html! {
                div.part { header { "Request" } (text_html(params)) }
            },
        }
    }

    /// What the bar at the end of the content says.
    fn end(&self) -> String {
        let extent = match &self.subject {
            RequestSubject::Permission(permission) => permission.extent(),
            RequestSubject::Form(_) | RequestSubject::Unknown(_) => String::new(),
        };
        if extent.is_empty() {
            "End of the request".to_owned()
        } else {
            format!("End of the request: {extent}")
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

    /// Says how many bidirectional control characters the request has.
    fn warning(&self) -> Option<String> {
        match self.hidden {
            0 => None,
            1 => Some("1 bidirectional control character is shown as ‹U+…›".to_owned()),
            hidden => Some(format!("{hidden} bidirectional control characters are shown as ‹U+…›")),
        }
    }
}

/// The number of bidirectional control characters in all texts of a value, whichever of them are shown.
fn hidden_in(value: JsonRef<'_>) -> usize {
    let count = |text: &str| text.chars().filter(|character| is_bidirectional(*character)).count();
    if let Some(text) = value.to_text() {
        return count(&text);
    }
    if let Some(elements) = value.elements() {
        return elements.into_iter().map(hidden_in).sum();
    }
    // A number, or a value with too many members to be read, which is shown as JSON.
    let Ok(members) = Members::of(value) else { return count(value.as_str()) };
    members.iter().map(|(name, value)| count(&name.to_text()) + hidden_in(value)).sum()
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
