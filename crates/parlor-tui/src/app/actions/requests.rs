//! Keys of permission requests and forms.

use std::collections::hash_map::Entry;

use crossterm::event::KeyCode;
use parlor_client::{Elicitation, Object, PermissionOption, PermissionOptionKind};

use crate::app::{Answer, App};
use crate::clean::Clean;
use crate::event::{Call, Effect};
use crate::form::{FieldValue, Form};
use crate::keys::{Action, Key};
use crate::overlay::step;
use crate::request::{Request, Subject, selection};

impl App {
    pub(super) fn on_request_action(&mut self, action: Action, effects: &mut Vec<Effect>) {
        let half = usize::from(self.size.1 / 4).max(1);
        match action {
            Action::Allow | Action::AllowAlways | Action::Reject | Action::RejectAlways => {
                let id = self.shown_request().map(|request| request.id.clone());
                self.answer(id.as_ref(), action, effects);
            }
            Action::Next => self.request_scroll += 1,
            Action::Previous => self.request_scroll = self.request_scroll.saturating_sub(1),
            Action::HalfDown => self.request_scroll += half,
            Action::HalfUp => self.request_scroll = self.request_scroll.saturating_sub(half),
            Action::First => self.request_scroll = 0,
            Action::Last => self.request_scroll = usize::MAX / 2,
            Action::View => {
                effects.extend(self.shown_request().map(|request| Effect::Page(self.request_text(request))));
            }
            _ => {}
        }
    }

    /// Answers the shown request with the option of a number.
    pub(super) fn choose_option(&mut self, number: usize, effects: &mut Vec<Effect>) {
        let Some(request) = self.shown_request() else { return };
        let chosen = number.checked_sub(1).and_then(|index| request.options().get(index)).cloned();
        if let Some(option) = chosen {
            let id = request.id.clone();
            self.select_option(id, &option, effects);
        }
    }

    /// Selects an option of a request.
    pub(super) fn select_option(&mut self, id: String, option: &PermissionOption, effects: &mut Vec<Effect>) {
        let is_rejection =
            matches!(option.kind, PermissionOptionKind::RejectOnce | PermissionOptionKind::RejectAlways);
        let text = Clean::line(&format!("{} (here)", option.name));
        self.send_answer(id, selection(option), Answer { text, is_rejection: Some(is_rejection) }, effects);
    }

    /// Sends a form, or declines it.
    fn send_form(&mut self, id: String, values: Option<Object>, effects: &mut Vec<Effect>) {
        let text = Clean::line(if values.is_some() { "sent here" } else { "declined here" });
        let answer = Answer { text, is_rejection: Some(values.is_none()) };
        self.send_answer(id, values.unwrap_or_else(Elicitation::decline), answer, effects);
    }

    fn send_answer(&mut self, id: String, result: Object, answer: Answer, effects: &mut Vec<Effect>) {
        // The first answer counts.
        if let Entry::Vacant(entry) = self.answered_here.entry(id.clone()) {
            entry.insert(answer);
            effects.push(Effect::Send(Call::Answer { id, result }));
        }
    }

    /// Answers a request with the only option of a kind.
    pub(super) fn answer(&mut self, id: Option<&String>, action: Action, effects: &mut Vec<Effect>) {
        let request = self.requests.iter().find(|request| Some(&request.id) == id);
        let Some(Request { id, subject: Subject::Permission(permission), .. }) = request else { return };
        let kind = match action {
            Action::Allow => PermissionOptionKind::AllowOnce,
            Action::AllowAlways => PermissionOptionKind::AllowAlways,
            Action::Reject => PermissionOptionKind::RejectOnce,
            _ => PermissionOptionKind::RejectAlways,
        };
        match permission.only_option(&kind) {
            Some(option) => {
                let (id, option) = (id.clone(), option.clone());
                self.select_option(id, &option, effects);
            }
            None if permission.options.iter().any(|option| option.kind == kind) => {
                self.note("Several options fit this key: choose by number");
            }
            None => self.note("The agent does not offer this"),
        }
    }

    pub(super) fn store_form_text(&mut self) {
        let (cursor, typed) = (self.form.cursor, self.form.text.text().to_owned());
        let id = self.form.request.clone();
        let request = self.requests.iter_mut().find(|request| request.id == id);
        let Some(Request { subject: Subject::Form(form), .. }) = request else { return };
        match form.fields.get_mut(cursor).map(|field| &mut field.value) {
            Some(FieldValue::Text(text)) => *text = typed,
            Some(FieldValue::Boolean(_) | FieldValue::One { .. } | FieldValue::Many { .. }) | None => {}
        }
    }

    /// Keys of a form. Returns whether the key was used.
    pub(super) fn on_form_key(
        &mut self,
        key: Key,
        action: Option<Action>,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let id = self.shown_request().map(|request| request.id.clone()).unwrap_or_default();
        if self.form.request != id {
            self.form = crate::app::FormState { request: id.clone(), ..Default::default() };
            self.load_form_field();
        }
        let Some(request) = self.requests.iter_mut().find(|request| request.id == id) else { return false };
        let Subject::Form(form) = &mut request.subject else { return false };
        let fields = form.fields.len();
        let cursor = self.form.cursor;
        if let Some(url) = form.url().map(str::to_owned) {
            match (action, key.typed()) {
                (Some(Action::Open), _) => {
                    effects.push(Effect::OpenLink(url));
                    let values = Form::accept(form).ok();
                    self.send_form(id, values, effects);
                }
                (_, Some('y')) => effects.push(Effect::Copy(url)),
                (_, Some('n')) => self.send_form(id, None, effects),
                _ => return false,
            }
            return true;
        }
        let value = form.fields.get_mut(cursor).map(|field| &mut field.value);
        match (action, value) {
            (Some(Action::NextPane), _) => self.go_to_field(step(cursor, fields + 2, true)),
            (Some(Action::PreviousField), _) => self.go_to_field(step(cursor, fields + 2, false)),
            (Some(Action::Open), None) => self.submit(cursor > fields, effects),
            (Some(Action::Open), Some(_)) => self.go_to_field(cursor + 1),
            (Some(Action::Switch), Some(FieldValue::Boolean(value))) => *value = !*value,
            (Some(Action::Switch), Some(FieldValue::One { options, chosen })) => {
                *chosen = Some(chosen.map_or(0, |chosen| (chosen + 1) % options.len().max(1)));
            }
            (Some(Action::Switch), Some(FieldValue::Many { chosen, cursor, .. })) => {
                if let Some(chosen) = chosen.get_mut(*cursor) {
                    *chosen = !*chosen;
                }
            }
            (Some(Action::Previous | Action::Next), Some(FieldValue::One { options, chosen })) => {
                let forward = action == Some(Action::Next);
                *chosen = Some(chosen.map_or(0, |chosen| step(chosen, options.len(), forward)));
            }
            (Some(Action::Previous | Action::Next), Some(FieldValue::Many { options, cursor, .. })) => {
                *cursor = step(*cursor, options.len(), action == Some(Action::Next));
            }
            (Some(Action::Previous | Action::Next), _) => {
                self.go_to_field(step(cursor, fields + 2, action == Some(Action::Next)));
            }
            (_, Some(FieldValue::Many { options, cursor, .. }))
                if matches!(key.code(), KeyCode::Left | KeyCode::Right) =>
            {
                *cursor = step(*cursor, options.len(), key.code() == KeyCode::Right);
            }
            (_, None) if matches!(key.code(), KeyCode::Left | KeyCode::Right) => {
                self.form.cursor = if key.code() == KeyCode::Left { fields } else { fields + 1 };
            }
            (_, Some(FieldValue::Text(_))) => {
                if !self.form.text.on_key(key) {
                    return false;
                }
                self.form.problem = None;
                self.store_form_text();
            }
            _ => return false,
        }
        true
    }

    fn go_to_field(&mut self, cursor: usize) {
        self.form.cursor = cursor;
        self.load_form_field();
    }

    fn submit(&mut self, is_declined: bool, effects: &mut Vec<Effect>) {
        let Some(Request { id, subject: Subject::Form(form), .. }) = self.shown_request() else { return };
        let id = id.clone();
        if is_declined {
            self.send_form(id, None, effects);
            return;
        }
        match form.accept() {
            Ok(values) => self.send_form(id, Some(values), effects),
            Err((field, problem)) => {
                self.form.problem = Some(Clean::line(&problem));
                self.go_to_field(field);
            }
        }
    }
}
