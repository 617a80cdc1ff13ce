//! What the server reports.

use parlor_client::{EntryId, SessionId, Slot};

use super::{AnsweredRequest, App, Focus, Link, OpenAt, Start, TYPING_TIME};
use crate::clean::Clean;
use crate::conversation::Conversation;
use crate::event::{Call, Effect, Event, Opened};
use crate::overlay::Overlay;
use crate::request::{Request, Subject};
use crate::theme::Role;

/// How many answered requests the inbox lists.
const MAX_ANSWERED: usize = 20;

impl App {
    pub(super) fn on_server_event(&mut self, event: Event, effects: &mut Vec<Effect>) {
        match event {
            Event::Connected { server } => self.on_connected(&server, effects),
            Event::Disconnected { server, reason, retry_at } => {
                let since = match &self.link {
                    Link::Retrying { since, .. } => *since,
                    Link::Connecting | Link::Live | Link::Direct => self.look.now,
                };
                let (server, reason) = (Clean::line(&server), Clean::line(&reason));
                self.link = Link::Retrying { since, next: retry_at, server, reason };
            }
            Event::List(rows) => {
                self.sessions.replace(rows);
                self.open_first(effects);
            }
            Event::ListChanged(changed, removed) => {
                if let Some(open) = self.open_id().filter(|open| removed.contains(open)) {
                    self.on_deleted_elsewhere(&open);
                }
                self.sessions.change(changed, &removed);
                self.mark_seen(effects);
            }
            Event::Agents(agents) => self.agents = agents,
            Event::Requests(opened, closed) => self.on_requests(opened, &closed, effects),
            Event::Opened(opened) => self.on_opened(*opened, effects),
            Event::OpenFailed { ticket, reason } => {
                if self.opening.as_ref().is_some_and(|(opening, _)| *opening == ticket) {
                    self.opening = None;
                }
                if let Some(text) = self.drafts.remove(&None).filter(|_| self.input.is_empty()) {
                    self.input.set(&text);
                }
                self.fail(&reason);
            }
            Event::Older { session, page, before } => {
                if let Some(conversation) = self.conversation.as_mut().filter(|open| open.id == session) {
                    conversation.add_older(*page, before);
                    self.select_opened();
                }
            }
            Event::OlderFailed => {
                if let Some(conversation) = &mut self.conversation {
                    conversation.is_loading_older = false;
                    conversation.older = None;
                }
            }
            Event::PromptAccepted => self.on_prompt_settled(),
            Event::PromptFailed { text, reason } => {
                self.on_prompt_settled();
                if self.input.is_blank() {
                    self.input.set(&text);
                }
                self.fail(&reason);
            }
            Event::Forked { id, cwd, note } => {
                if let Some(conversation) = &self.conversation {
                    self.parents.push((conversation.id.clone(), conversation.cwd.clone()));
                }
                self.open(id, cwd, effects);
                self.note(&note);
            }
            Event::Hits { generation, hits, millis } => {
                if let Some(Overlay::Search(search)) = self.overlays.last_mut()
                    && search.generation == generation
                {
                    search.millis = millis;
                    search.is_answered = true;
                    search.cursor = 0;
                    match hits {
                        Ok(hits) => (search.hits, search.problem) = (hits, None),
                        Err(problem) => {
                            (search.hits, search.problem) = (Vec::new(), Some(Clean::line(&problem)));
                        }
                    }
                }
            }
            Event::SessionLost
            | Event::Changed
            | Event::Key(_)
            | Event::Paste(_)
            | Event::Wheel(_)
            | Event::Click(..)
            | Event::Resize(..)
            | Event::Focus(_)
            | Event::Tick
            | Event::Files(_)
            | Event::Edited(_)
            | Event::Note(_)
            | Event::Failed(_) => {}
        }
    }

    fn on_connected(&mut self, _server: &str, effects: &mut Vec<Effect>) {
        let lost = match std::mem::replace(&mut self.link, Link::Live) {
            Link::Retrying { since, .. } if self.is_started => Some(since),
            Link::Retrying { .. } | Link::Connecting | Link::Live => None,
            Link::Direct => {
                self.link = Link::Direct;
                None
            }
        };
        // The new connection lists all open requests again.
        self.requests.clear();
        if let Some(since) = lost {
            let time = crate::time::clock(crate::time::seconds_between(since, self.look.now));
            self.note(&format!("Connected again after {time}."));
            if let Some(conversation) = &self.conversation {
                let (id, cwd) = (conversation.id.clone(), conversation.cwd.clone());
                let ticket = self.new_ticket();
                self.opening = Some((ticket, id.clone()));
                effects.push(Effect::Send(Call::Open { ticket, id, cwd }));
            }
        }
    }

    /// Opens the session that the client was started for.
    fn open_first(&mut self, effects: &mut Vec<Effect>) {
        if std::mem::replace(&mut self.is_started, true) {
            return;
        }
        match self.start.clone() {
            Start::Session(id, cwd) => self.open(id, cwd, effects),
            Start::Latest => {
                let rows = self.sessions.latest_first();
                let here = rows.into_iter().find(|row| row.cwd == self.new_cwd);
                if let Some((id, cwd)) = here.map(|row| (row.id.clone(), row.cwd.clone())) {
                    self.open(id, cwd, effects);
                }
            }
            Start::Named(name) => {
                let lower = name.to_lowercase();
                let is_it = |row: &&crate::sessions::SessionRow| {
                    name == "latest"
                        || row.id.to_string().starts_with(&name)
                        || row.title.as_str().to_lowercase().starts_with(&lower)
                };
                let named = self.sessions.latest_first().into_iter().find(is_it);
                match named.map(|row| (row.id.clone(), row.cwd.clone())) {
                    Some((id, cwd)) => self.open(id, cwd, effects),
                    None => self.fail(&format!("no session has an id or a title that starts with '{name}'")),
                }
            }
            Start::New | Start::Direct => {}
        }
    }

    pub(super) fn new_ticket(&mut self) -> u64 {
        self.next_ticket += 1;
        self.next_ticket
    }

    /// Opens a session; the draft of the present one is kept.
    pub(super) fn open(&mut self, id: SessionId, cwd: String, effects: &mut Vec<Effect>) {
        if self.open_id().as_ref() == Some(&id) && self.opening.is_none() {
            return;
        }
        let ticket = self.new_ticket();
        self.opening = Some((ticket, id.clone()));
        effects.push(Effect::Send(Call::Open { ticket, id, cwd }));
    }

    fn on_opened(&mut self, opened: Opened, effects: &mut Vec<Effect>) {
        let is_awaited = match &self.opening {
            Some((ticket, _)) => *ticket == opened.ticket,
            // The session of an agent without a server is opened by itself.
            None => self.link == Link::Direct && self.conversation.is_none(),
        };
        if !is_awaited {
            return;
        }
        let is_new = self.opening.take().is_some_and(|(_, id)| id == SessionId::from(""));
        self.is_started = true;
        let is_same = self.conversation.as_ref().is_some_and(|conversation| conversation.id == opened.id);
        if let Some(conversation) = self.conversation.as_mut().filter(|_| is_same) {
            let before = conversation.messages();
            conversation.reconnect(opened.replica);
            if opened.is_reloaded {
                conversation.reload();
                (conversation.older, conversation.older_messages) = (opened.older, opened.older_messages);
            }
            conversation.sync(self.look.now);
            let new = conversation.messages().saturating_sub(before);
            if new > 0
                && let Some(note) = &mut self.note
            {
                let text = format!(
                    "{}, {}.",
                    note.text.as_str().trim_end_matches('.'),
                    crate::text::count(new, "new message")
                );
                note.text = Clean::line(&text);
            }
            return;
        }
        self.keep_draft();
        let mut conversation = Conversation::new(opened.id.clone(), opened.cwd, opened.replica);
        (conversation.older, conversation.older_messages) = (opened.older, opened.older_messages);
        conversation.sync(self.look.now);
        conversation.resize(self.size.0, self.size.1.saturating_sub(6));
        self.was_busy = false;
        self.turn_started = None;
        self.opened_at = Some(self.look.now);
        self.sending = (0, None);
        // A new session is opened with its first prompt.
        if is_new {
            self.drafts.remove(&None);
            self.on_prompt_sent();
        }
        self.conversation = Some(conversation);
        self.input.set(&self.drafts.remove(&Some(opened.id.clone())).unwrap_or_default());
        self.list_cursor = Some(opened.id);
        self.editing = None;
        self.queued_cursor = None;
        self.put_off = None;
        self.focus = Focus::Input;
        self.sessions.thaw();
        self.overlays.clear();
        self.select_opened();
        self.show_request(true);
        self.mark_seen(effects);
    }

    /// Keeps the text of the input for when its session is opened again.
    pub(super) fn keep_draft(&mut self) {
        let text = self.input.full_text();
        if !text.trim().is_empty() {
            self.drafts.insert(self.open_id(), text);
        }
        self.input.set("");
    }

    /// Selects what the session was opened for, as soon as it is loaded.
    fn select_opened(&mut self) {
        let (Some(conversation), Some(at)) = (&mut self.conversation, self.open_at.clone()) else { return };
        conversation.sync(self.look.now);
        let (is_found, words) = match at {
            OpenAt::Message(id, words) => (conversation.select_message(&id, &self.look), words),
            OpenAt::ToolCall(id, words) => {
                let is_it = |entry: &parlor_client::Entry| matches!(entry.id(), EntryId::ToolCall(known) if known.to_string() == id);
                (conversation.select_where(is_it, &self.look), words)
            }
            OpenAt::Request => {
                self.open_at = None;
                if self.shown_request().is_some() {
                    self.focus = Focus::Request;
                }
                return;
            }
        };
        if is_found {
            conversation.matches = words;
            conversation.wants_first = false;
            self.open_at = None;
            if conversation.has_selection() {
                self.focus = Focus::Messages;
            }
        } else {
            // It is among the earlier entries.
            conversation.wants_first = conversation.older.is_some();
            if !conversation.wants_first {
                self.open_at = None;
            }
        }
    }

    fn on_deleted_elsewhere(&mut self, id: &SessionId) {
        if self.removals.iter().any(|removal| removal.id == *id) {
            return;
        }
        self.keep_draft();
        if let Some(draft) = self.drafts.remove(&Some(id.clone())) {
            self.input.set(&draft);
        }
        self.conversation = None;
        self.fail("The session was deleted or archived by another client. What you wrote is kept.");
    }

    fn on_requests(&mut self, opened: Vec<Request>, closed: &[String], effects: &mut Vec<Effect>) {
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
            if !self.has_focus {
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
        let now_shown = self.shown_request().map(|request| request.id.clone());
        if shown.is_some() && shown != now_shown && self.focus == Focus::Request {
            self.ignore_keys_until = Some(self.look.now + super::ESCAPE_GUARD);
            self.focus = Focus::Input;
        }
        if now_shown != shown {
            self.request_scroll = 0;
            self.form = super::FormState { request: now_shown.unwrap_or_default(), ..Default::default() };
            self.load_form_field();
        }
        self.show_request(is_new);
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
        let is_free = self.input.is_empty() && self.focus == Focus::Input && self.overlays.is_empty();
        if is_free && !is_put_off && (!is_typing || !is_new) {
            self.focus = Focus::Request;
        }
    }

    /// Remembers how a request was answered, and says so.
    fn on_closed(&mut self, request: &Request) {
        let is_here = self.answered_here.remove(&request.id);
        let decision = self.decision_about(request, is_here);
        let closed = if is_here { "answered here" } else { "answered or withdrawn" };
        let outcome = decision.clone().unwrap_or_else(|| Clean::line(closed));
        let is_rejected = outcome.as_str().to_lowercase().starts_with("reject");
        let role = if is_rejected { Role::Error } else { Role::Added };
        let (title, details) = (request.session_title.clone(), request.details());
        self.answered.insert(0, AnsweredRequest { title, details, outcome, role, at: self.look.now });
        self.answered.truncate(MAX_ANSWERED);
        let is_own = self.open_id().is_some_and(|id| id == request.session);
        if let Some(decision) = decision.filter(|_| is_own && !is_here) {
            self.note(&format!("Request answered: {decision}"));
        }
    }

    /// The decision about a request, as the transcript of the open session has it.
    fn decision_about(&self, request: &Request, is_here: bool) -> Option<Clean> {
        let conversation = self.conversation.as_ref().filter(|open| open.id == request.session)?;
        let Subject::Permission(permission) = &request.subject else { return None };
        let tool_call = permission.tool_call.as_ref()?.to_string();
        let transcript = conversation.transcript();
        let decision = transcript.entries().iter().rev().take(50).find(|entry| {
            let fields = &entry.body().fields;
            matches!(entry.id(), EntryId::Event(_))
                && fields.get_string("type").as_deref() == Some("decision")
                && fields.get_string("toolCallId").as_ref() == Some(&tool_call)
        })?;
        let fields = &decision.body().fields;
        let option = fields.get_object("option").and_then(|option| option.get_string("name"));
        let by = fields.get_object("by").unwrap_or_default();
        let name = by.get_string("name");
        let by = match name {
            _ if is_here => "here".to_owned(),
            Some(name) => parlor_client::acted_where(&name),
            None => "by another client".to_owned(),
        };
        Some(Clean::line(&format!("{} {by}", option.unwrap_or_else(|| "answered".to_owned()))))
    }

    /// The commands of the agent: name, hint of the input, description.
    pub(super) fn agent_commands(&self) -> Vec<(String, String, String)> {
        let slot = self.conversation.as_ref().and_then(|conversation| conversation.slot(Slot::Commands));
        let Some(slot) = slot else { return Vec::new() };
        let commands = slot.fields.get_array("availableCommands").unwrap_or_default();
        let command = |raw: parlor_client::JsonRef<'_>| {
            let command = raw.to_object()?;
            let hint = command.get_object("input").and_then(|input| input.get_string("hint"));
            Some((
                command.get_string("name")?,
                hint.unwrap_or_default(),
                command.get_string("description").unwrap_or_default(),
            ))
        };
        commands.into_iter().filter_map(command).collect()
    }
}
