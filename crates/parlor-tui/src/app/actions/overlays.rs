//! Keys of what is drawn over the panes: questions, the inbox and search.

use crossterm::event::KeyCode;

use crate::app::{App, Focus, OpenAt};
use crate::event::{Call, Effect};
use crate::field::TextField;
use crate::keys::{Action, Key};
use crate::overlay::{Ask, AskPurpose, Choice, Overlay, step};

impl App {
    pub(super) fn ask(&mut self, title: &'static str, text: String, purpose: AskPurpose) {
        self.overlays.push(Overlay::Ask(Ask { title, text: TextField::new(text), purpose }));
    }

    pub(super) fn on_overlay_key(&mut self, key: Key, action: Option<Action>, effects: &mut Vec<Effect>) {
        let has_session = self.conversation.is_some();
        match self.overlays.last_mut() {
            Some(Overlay::Picker(picker)) => match action {
                Some(Action::Previous) => picker.step(false),
                Some(Action::Next) => picker.step(true),
                Some(Action::Open) => self.choose(effects),
                Some(Action::ValueLeft | Action::ValueRight)
                    if matches!(picker.current().map(|item| &item.choice), Some(Choice::Values { .. })) =>
                {
                    self.change_value(action == Some(Action::ValueRight), effects);
                }
                Some(Action::PageUp) => (0..10).for_each(|_| picker.step(false)),
                Some(Action::PageDown) => (0..10).for_each(|_| picker.step(true)),
                Some(Action::Clear) => {
                    picker.query.clear();
                    picker.filter();
                }
                _ => {
                    if picker.query.on_key(key) {
                        picker.filter();
                        self.refresh_picker();
                    }
                }
            },
            Some(Overlay::Search(search)) => match action {
                Some(Action::Previous) => search.cursor = step(search.cursor, search.hits.len(), false),
                Some(Action::Next) => search.cursor = step(search.cursor, search.hits.len(), true),
                Some(Action::Scope) => {
                    search.next_scope(has_session);
                    search.changed = Some(self.look.now);
                }
                Some(Action::Open) => self.open_hit(effects),
                Some(Action::Clear) => {
                    search.query.clear();
                    search.changed = Some(self.look.now);
                }
                _ => {
                    if search.query.on_key(key) {
                        search.changed = Some(self.look.now);
                    }
                }
            },
            Some(Overlay::Ask(ask)) => match action {
                Some(Action::Open) => self.on_asked(effects),
                Some(Action::Clear) => ask.text.clear(),
                _ => {
                    if ask.text.on_key(key) {
                        self.on_ask_changed();
                    }
                }
            },
            Some(Overlay::Inbox(_)) => self.on_inbox_key(key, action, effects),
            Some(Overlay::Forks(_)) => self.on_fork_tree_action(action, effects),
            Some(Overlay::Help(help)) => {
                if let Some(query) = &mut help.query {
                    if key.code() == KeyCode::Enter {
                        help.query = None;
                    } else {
                        query.on_key(key);
                        help.scroll = 0;
                    }
                    return;
                }
                let page = usize::from(self.size.1.saturating_sub(3)).max(1);
                match action {
                    Some(Action::Next) => help.scroll += 1,
                    Some(Action::Previous) => help.scroll = help.scroll.saturating_sub(1),
                    Some(Action::HalfDown | Action::PageDown) => help.scroll += page,
                    Some(Action::HalfUp | Action::PageUp) => help.scroll = help.scroll.saturating_sub(page),
                    Some(Action::First) => help.scroll = 0,
                    Some(Action::Last) => help.scroll = usize::MAX / 2,
                    Some(Action::Find) => help.query = Some(TextField::default()),
                    Some(Action::Help | Action::Detach) => {
                        self.overlays.pop();
                    }
                    _ => {}
                }
            }
            None => {}
        }
    }

    /// The filter of the sessions follows each key.
    pub(super) fn on_ask_changed(&mut self) {
        if let Some(Overlay::Ask(ask)) = self.overlays.last()
            && ask.purpose == AskPurpose::Filter
        {
            self.list_filter = ask.text.text().to_owned();
            self.list_cursor = self.listed().first().cloned();
        }
    }

    fn on_asked(&mut self, effects: &mut Vec<Effect>) {
        let Some(Overlay::Ask(ask)) = self.overlays.pop() else { return };
        let text = ask.text.text().trim().to_owned();
        match ask.purpose {
            AskPurpose::Title(id) => effects.push(Effect::Send(Call::SetTitle(id, text))),
            AskPurpose::Directory => {
                if !text.is_empty() {
                    self.new_cwd = match (text.strip_prefix('~'), &self.look.home) {
                        (Some(rest), Some(home)) => format!("{home}{rest}"),
                        _ => text,
                    };
                }
            }
            AskPurpose::Find => {
                let Some(conversation) = &mut self.conversation else { return };
                conversation.matches = text.split_whitespace().map(str::to_lowercase).collect();
                self.find(false);
            }
            AskPurpose::Filter => self.open_listed(effects),
        }
    }

    fn on_inbox_key(&mut self, key: Key, action: Option<Action>, effects: &mut Vec<Effect>) {
        let ids = self.inbox_ids();
        let half = usize::from(self.size.1 / 4).max(1);
        let Some(Overlay::Inbox(inbox)) = self.overlays.last_mut() else { return };
        let current = inbox.selected().cloned();
        match action {
            Some(Action::Next | Action::Previous) => inbox.step(&ids, action == Some(Action::Next)),
            Some(Action::HalfDown) => inbox.scroll += half,
            Some(Action::HalfUp) => inbox.scroll = inbox.scroll.saturating_sub(half),
            Some(action @ (Action::Allow | Action::AllowAlways | Action::Reject | Action::RejectAlways)) => {
                self.answer(current.as_ref(), action, effects);
            }
            Some(Action::View) => {
                let request = self.requests.iter().find(|request| Some(&request.id) == current.as_ref());
                effects.extend(request.map(|request| Effect::Page(self.request_text(request))));
            }
            Some(Action::Open) => {
                let request = self.requests.iter().find(|request| Some(&request.id) == current.as_ref());
                if let Some((id, cwd)) = request.map(|request| (request.session.clone(), request.cwd.clone()))
                {
                    self.overlays.clear();
                    if self.open_id().as_ref() == Some(&id) {
                        self.set_focus(Focus::Request);
                    } else {
                        self.open(id, cwd, effects);
                        self.open_at = Some(OpenAt::Request);
                    }
                }
            }
            _ => {
                let digit = key.typed().and_then(|letter| letter.to_digit(10));
                let number = digit.and_then(|digit| usize::try_from(digit).ok()?.checked_sub(1));
                let request = self.requests.iter().find(|request| Some(&request.id) == current.as_ref());
                let option = request.zip(number).and_then(|(request, number)| request.options().get(number));
                if let (Some(option), Some(id)) = (option.cloned(), current) {
                    self.select_option(id, &option, effects);
                }
            }
        }
    }

    pub(super) fn open_hit(&mut self, effects: &mut Vec<Effect>) {
        let Some(Overlay::Search(search)) = self.overlays.last() else { return };
        let Some(hit) = search.hits.get(search.cursor).cloned() else { return };
        let words = search.words();
        let open_at = match (hit.message, hit.tool_call) {
            (Some(id), _) => Some(OpenAt::Message(id, words)),
            (None, Some(id)) => Some(OpenAt::ToolCall(id, words)),
            (None, None) => None,
        };
        let results = self.overlays.pop().map(Box::new);
        self.overlays.clear();
        self.open(hit.session, hit.cwd, effects);
        (self.open_at, self.results) = (open_at, results);
        if self.opening.is_none() {
            self.select_opened();
        }
    }
}
