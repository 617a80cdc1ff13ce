//! The requests that wait for a person: which one is shown, and who answered.

use parlor_client::{EntryId, Object};

use super::{Answer, AnsweredRequest, App, CANCELLING, Focus, FormState, GUARD_TIME, Link, TYPING_TIME};
use crate::clean::Clean;
use crate::event::Effect;
use crate::field::TextField;
use crate::form::FieldValue;
use crate::overlay::Overlay;
use crate::request::{Request, Subject};

/// How many answered requests the inbox lists.
const MAX_ANSWERED: usize = 20;

impl App {
    /// The requests of the open session, the oldest first.
    pub(super) fn own_requests(&self) -> Vec<&Request> {
        let Some(conversation) = &self.conversation else { return Vec::new() };
        let is_direct = self.link == Link::Direct;
        self.requests.iter().filter(|request| is_direct || request.session == conversation.id).collect()
    }

    /// The request that can be answered in place of the input.
    pub(super) fn shown_request(&self) -> Option<&Request> {
        self.own_requests().into_iter().next()
    }

    /// Whether the form of the shown request is being filled in.
    pub(super) fn shown_form(&self) -> bool {
        matches!(self.shown_request().map(|request| &request.subject), Some(Subject::Form(_)))
    }

    pub(super) fn on_requests(&mut self, opened: Vec<Request>, closed: &[String], effects: &mut Vec<Effect>) {
        let shown = self.shown_request().map(|request| request.id.clone());
        for id in closed {
            if let Some(index) = self.requests.iter().position(|request| request.id == *id) {
                let request = self.requests.remove(index);
                self.on_closed(&request);
            }
        }
        let mut is_new = false;
        for request in opened {
            if self.requests.iter().any(|known| known.id == request.id) {
                continue;
            }
            is_new = true;
            if self.is_away() {
                let text = format!(
                    "{} asks: {} ({})",
                    request.agent,
                    request.short_summary(),
                    request.session_title
                );
                effects.push(Effect::Notify(text));
            }
            self.requests.push(request);
        }
        self.on_requests_changed(shown.as_deref(), is_new);
    }

    /// The requests that are open on a new connection. Those that were open before keep what was filled in.
    pub(super) fn on_all_requests(&mut self, all: Vec<Request>) {
        let shown = self.shown_request().map(|request| request.id.clone());
        let mut known = std::mem::take(&mut self.requests);
        for request in all {
            let is_same = |known: &mut Request| {
                (&known.id, &known.session, known.opened) == (&request.id, &request.session, request.opened)
            };
            let kept = known.extract_if(.., is_same).next();
            self.requests.push(kept.unwrap_or(request));
        }
        self.answered_here.clear();
        // After a restart of the server, ids can stand for other requests.
        let shown = shown.map(|id| if known.iter().any(|gone| gone.id == id) { String::new() } else { id });
        self.on_requests_changed(shown.as_deref(), true);
    }

    /// Shows the request of the open session that is now the first one. A key that was meant for the one before is ignored.
    fn on_requests_changed(&mut self, shown: Option<&str>, is_new: bool) {
        let ids = self.inbox_ids();
        if let Some(Overlay::Inbox(inbox)) = self.overlays.last_mut()
            && inbox.update(&ids)
        {
            self.ignore_keys_until = Some(self.look.now + GUARD_TIME);
        }
        let now_shown = self.shown_request().map(|request| request.id.clone());
        let is_other = shown != now_shown.as_deref();
        if shown.is_some() && is_other && self.focus == Focus::Request {
            self.ignore_keys_until = Some(self.look.now + GUARD_TIME);
            self.focus = Focus::Input;
        }
        if is_other {
            self.request_scroll = 0;
            self.drawn_request = None;
            self.form = FormState { request: now_shown.unwrap_or_default(), ..Default::default() };
            self.load_form_field();
        }
        self.show_request(is_new);
    }

    /// The ids of all requests, the newest first.
    pub(super) fn inbox_ids(&self) -> Vec<String> {
        self.requests.iter().rev().map(|request| request.id.clone()).collect()
    }

    /// Gives the focus to the request of the open session, unless the person is typing or has put it off.
    pub(super) fn show_request(&mut self, is_new: bool) {
        let Some(request) = self.shown_request() else {
            if self.focus == Focus::Request {
                self.focus = Focus::Input;
            }
            return;
        };
        let is_put_off = self.put_off.as_ref() == Some(&request.id);
        let is_typing = self.last_key.is_some_and(|key| key + TYPING_TIME > self.look.now);
        let is_free = self.input.is_empty()
            && self.focus == Focus::Input
            && self.overlays.is_empty()
            && self.forking.is_none();
        if is_free && !is_put_off && (!is_typing || !is_new) {
            self.focus = Focus::Request;
            self.took_focus = Some(self.look.now);
        }
    }

    /// Remembers how a request was answered, and says so.
    fn on_closed(&mut self, request: &Request) {
        let here = self.answered_here.remove(&request.id);
        let is_here = here.is_some();
        let is_own = self.open_id().is_some_and(|id| id == request.session);
        let elsewhere =
            || Answer { text: Clean::line("answered elsewhere or withdrawn"), is_rejection: None };
        let outcome = here.or_else(|| self.decision_about(request)).unwrap_or_else(elsewhere);
        let is_cancelling = self.note.as_ref().is_some_and(|note| note.text.as_str() == CANCELLING);
        if is_own && !is_here && !is_cancelling {
            let what = if matches!(request.subject, Subject::Form(_)) { "Form" } else { "Request" };
            let separator = if outcome.is_rejection.is_some() { " answered:" } else { "" };
            self.note(&format!("{what}{separator} {}", outcome.text));
        }
        let (title, details) = (request.session_title.clone(), request.details());
        self.answered.insert(0, AnsweredRequest { title, details, outcome, at: self.look.now });
        self.answered.truncate(MAX_ANSWERED);
    }

    /// The decision of another client about a request, as the transcript of the open session has it.
    fn decision_about(&self, request: &Request) -> Option<Answer> {
        let conversation = self.conversation.as_ref().filter(|open| open.id == request.session)?;
        let is_about = |fields: &Object| match &request.subject {
            Subject::Permission(permission) => {
                let tool_call = permission.tool_call.as_ref().map(ToString::to_string);
                tool_call.is_some() && fields.get_string("toolCallId") == tool_call
            }
            // The text is all that a form and the decision about it have in common.
            Subject::Form(form) => fields.get_string("title").as_deref() == Some(form.message()),
            Subject::Unknown(_) => false,
        };
        let transcript = conversation.transcript();
        let decision = transcript.entries().iter().rev().take(50).find(|entry| {
            let fields = &entry.body().fields;
            matches!(entry.id(), EntryId::Event(_))
                && fields.get_string("type").as_deref() == Some("decision")
                && is_about(fields)
        })?;
        let fields = &decision.body().fields;
        let option = fields.get_object("option").unwrap_or_default();
        let kind = option.get_string("kind").unwrap_or_default();
        let outcome = fields.get_string("outcome").unwrap_or_default();
        let is_rejection = kind.starts_with("reject") || matches!(outcome.as_str(), "decline" | "cancel");
        let chosen = option.get_string("name").unwrap_or_else(|| match outcome.as_str() {
            "accept" => "sent".to_owned(),
            "decline" => "declined".to_owned(),
            _ => "answered".to_owned(),
        });
        let name = fields.get_object("by").and_then(|by| by.get_string("name"));
        let by =
            name.map_or_else(|| "by another client".to_owned(), |name| parlor_client::acted_where(&name));
        Some(Answer { text: Clean::line(&format!("{chosen} {by}")), is_rejection: Some(is_rejection) })
    }

    /// Copies the value of a text field of the form to the text that is edited, and back before it changes.
    pub(super) fn load_form_field(&mut self) {
        let cursor = self.form.cursor;
        let text = match self.shown_request().map(|request| &request.subject) {
            Some(Subject::Form(form)) => match form.fields.get(cursor).map(|field| &field.value) {
                Some(FieldValue::Text(text)) => text.clone(),
                Some(FieldValue::Boolean(_) | FieldValue::One { .. } | FieldValue::Many { .. }) | None => {
                    String::new()
                }
            },
            Some(Subject::Permission(_) | Subject::Unknown(_)) | None => String::new(),
        };
        self.form.text = TextField::new(text);
    }
}
