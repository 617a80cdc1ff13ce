//! What the server reports.

use parlor_client::{EntryId, Json, SessionId, Slot};

use super::{App, Focus, Link, OpenAt, Opening, REOPEN_TIMES, Reopening, Start};
use crate::clean::Clean;
use crate::conversation::Conversation;
use crate::event::{Call, Effect, Event, Failure, Hit, Opened};
use crate::overlay::Overlay;

impl App {
    pub(super) fn on_server_event(&mut self, event: Event, effects: &mut Vec<Effect>) {
        match event {
            Event::Connected => self.on_connected(effects),
            Event::Disconnected { server, reason, is_down, retry_at } => {
                let since = match &self.link {
                    Link::Retrying { since, .. } => *since,
                    Link::Connecting | Link::Live | Link::Direct => self.look.now,
                };
                let (server, reason) = (Clean::line(&server), Clean::line(&reason));
                self.link = Link::Retrying { since, next: retry_at, server, reason, is_down };
            }
            Event::Refused { server, reason } => {
                effects.push(Effect::Fail(format!("cannot use the server {server}: {reason}")));
            }
            Event::List(rows) => {
                self.sessions.replace(rows);
                self.open_first(effects);
            }
            Event::ListChanged(changed, removed) => {
                if let Some(open) = self.open_id().filter(|open| removed.contains(open)) {
                    self.on_deleted_elsewhere(&open);
                }
                let open = self.open_id().and_then(|open| self.sessions.get(&open));
                if let Some(open) = open.filter(|open| !open.is_archived)
                    && changed.iter().any(|row| row.id == open.id && row.is_archived)
                {
                    self.note("The session was archived by another client. A prompt restores it.");
                }
                self.notify_ended(&changed, effects);
                self.sessions.change(changed, &removed);
                self.mark_seen(effects);
            }
            Event::Agents(agents) => self.agents = agents,
            Event::AllRequests(all) => self.on_all_requests(all),
            Event::Requests(opened, closed) => self.on_requests(opened, &closed, effects),
            Event::AnswerFailed { id, reason } => {
                self.answered_here.remove(&id);
                self.fail(&reason);
            }
            Event::Opened(opened) => self.on_opened(*opened, effects),
            Event::OpenFailed { ticket, failure } => self.on_open_failed(ticket, &failure),
            Event::SessionLost { ticket } => self.on_session_lost(ticket),
            Event::Older { session, cursor, page, before } => {
                if let Some(conversation) = self.loading_older(&session, &cursor) {
                    conversation.add_older(*page, before);
                    self.select_opened();
                }
            }
            Event::OlderFailed { session, cursor, reason } => {
                let now = self.look.now;
                if let Some(conversation) = self.loading_older(&session, &cursor) {
                    conversation.retry_older(now);
                    // A lost connection is shown by itself.
                    if self.link == Link::Live && self.reopening.is_none() {
                        self.fail(&format!("Cannot load earlier messages: {reason}. Trying again"));
                    }
                }
            }
            Event::PromptAccepted(session) => self.on_prompt_settled(&session),
            Event::PromptWithdrawn { session, text } => self.on_prompt_withdrawn(&session, text),
            Event::PromptFailed { session, text, failure } => {
                self.on_prompt_failed(&session, text, &failure);
            }
            Event::Forked { parent, id, cwd, ticket } => self.on_forked(parent, id, cwd, ticket, effects),
            Event::ForkFailed { parent, ticket, failure } => {
                self.on_fork_failed(&parent, ticket, &failure);
            }
            Event::RemovalFailed { id, is_deletion, reason } => {
                self.sessions.hidden.remove(&id);
                if !is_deletion {
                    self.sessions.set_archived(&id, false);
                }
                self.fail(&reason);
            }
            Event::Hits { generation, hits, millis } => self.on_hits(generation, hits, millis),
            Event::Changed
            | Event::Key(_)
            | Event::Paste(_)
            | Event::Wheel { .. }
            | Event::Click(..)
            | Event::Resize(..)
            | Event::Focus(_)
            | Event::FocusUnknown
            | Event::Tick
            | Event::Files(_)
            | Event::NotCopied(_)
            | Event::Edited(_)
            | Event::LoginEnded(_)
            | Event::Note(_)
            | Event::Failed(_) => {}
        }
    }

    fn on_hits(&mut self, generation: u64, hits: Result<Vec<Hit>, String>, millis: u64) {
        let Some(Overlay::Search(search)) = self.overlays.last_mut() else { return };
        if search.generation != generation {
            return;
        }
        (search.millis, search.is_answered, search.cursor) = (millis, true, 0);
        (search.hits, search.problem) = match hits {
            Ok(hits) => (hits, None),
            Err(problem) => (Vec::new(), Some(Clean::line(&problem))),
        };
    }

    /// The open session, if its earlier entries were requested with this cursor: a page that arrives late is not added again.
    fn loading_older(&mut self, session: &SessionId, cursor: &Json) -> Option<&mut Conversation> {
        let open = self.conversation.as_mut().filter(|open| open.id == *session)?;
        Some(open).filter(|open| open.is_loading_older && open.older.as_ref() == Some(cursor))
    }

    fn on_connected(&mut self, effects: &mut Vec<Effect>) {
        let lost = match std::mem::replace(&mut self.link, Link::Live) {
            Link::Retrying { since, .. } if self.is_started => Some(since),
            Link::Retrying { .. } | Link::Connecting | Link::Live => None,
            Link::Direct => {
                self.link = Link::Direct;
                None
            }
        };
        if let Some(since) = lost {
            let time = crate::time::clock(crate::time::seconds_between(since, self.look.now));
            self.note(&format!("Connected again after {time}."));
            self.reconnected = Some(self.look.now);
            if let Some(conversation) = &self.conversation {
                let (id, cwd) = (conversation.id.clone(), conversation.cwd.clone());
                self.send_open(id, cwd, effects);
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
                let named = if name == "latest" {
                    self.sessions.latest_first().into_iter().take(1).collect()
                } else {
                    self.sessions.named(&name)
                };
                match named[..] {
                    [] => self.fail(&format!("No session has an id or a title that starts with '{name}'")),
                    [row] => self.open(row.id.clone(), row.cwd.clone(), effects),
                    [latest, ..] => {
                        let (many, latest) = (named.len(), latest.id.clone());
                        self.list_filter.clone_from(&name);
                        self.list_cursor = Some(latest);
                        self.set_focus(Focus::Sessions);
                        self.fail(&format!("'{name}' matches {many} sessions: choose one"));
                    }
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
        self.results = None;
        self.open_at = None;
        self.send_open(id, cwd, effects);
    }

    fn send_open(&mut self, id: SessionId, cwd: String, effects: &mut Vec<Effect>) {
        self.end_forking();
        let ticket = self.new_ticket();
        self.opening = Some(Opening { ticket, session: Some(id.clone()), note: None });
        effects.push(Effect::Send(Call::Open { ticket, id, cwd }));
    }

    /// A session could not be opened or created. The prompt of a new one comes back.
    fn on_open_failed(&mut self, ticket: u64, failure: &Failure) {
        let Some(Opening { session, .. }) = self.opening.take_if(|opening| opening.ticket == ticket) else {
            self.fail(&failure.reason);
            return;
        };
        self.is_send_pending = false;
        if self.forking.as_ref().is_some_and(|forking| forking.ticket == Some(ticket)) {
            self.parents.pop();
            self.end_forking();
        }
        if session.is_some() && session == self.open_id() {
            self.on_session_lost(self.opened_with);
            self.fail(&failure.reason);
            return;
        }
        if session.is_none()
            && let Some(text) = self.drafts.remove(&None)
        {
            let typed = self.input.full_text();
            let is_blank = typed.trim().is_empty();
            self.input.set(&if is_blank { text } else { format!("{text}\n{typed}") });
        }
        let agent = self.agent.clone().or_else(|| self.default_agent());
        self.on_failure(failure, agent);
    }

    /// A prompt was not accepted: its text comes back, unless another one is being written. The history has it in any case.
    fn on_prompt_failed(&mut self, session: &SessionId, text: String, failure: &Failure) {
        self.on_prompt_settled(session);
        // While a fork is made, the input is that of the fork.
        if self.open_id().as_ref() != Some(session) || self.forking.is_some() {
            self.drafts.entry(Some(session.clone())).or_insert(text);
            self.fail(&failure.reason);
            return;
        }
        if self.input.is_blank() {
            self.input.set(&text);
        }
        let agent = self.agent_name().to_string();
        self.on_failure(failure, Some(agent));
    }

    pub(super) fn on_failure(&mut self, failure: &Failure, agent: Option<String>) {
        self.needs_login = agent.filter(|_| failure.needs_login && self.can_log_in);
        if self.needs_login.is_none() {
            self.fail(&failure.reason);
        }
    }

    /// The connection of the open session ended. While the server is connected, the session is opened again.
    fn on_session_lost(&mut self, ticket: u64) {
        if ticket != self.opened_with || self.conversation.is_none() {
            return;
        }
        if self.link == Link::Direct {
            self.has_ended = true;
            self.sending = (0, None);
        } else if self.reopening.is_none() {
            self.reopening = Some(Reopening { attempts: 0, at: self.look.now + REOPEN_TIMES[0] });
        }
    }

    /// Opens the session again whose connection was lost.
    pub(super) fn reopen(&mut self, effects: &mut Vec<Effect>) {
        let Some(conversation) = &self.conversation else {
            self.reopening = None;
            return;
        };
        if self.link != Link::Live || self.opening.is_some() {
            return;
        }
        if let Some(reopening) = &mut self.reopening {
            reopening.attempts += 1;
            let pause = REOPEN_TIMES[reopening.attempts.min(REOPEN_TIMES.len() - 1)];
            reopening.at = self.look.now + pause;
        }
        let (id, cwd) = (conversation.id.clone(), conversation.cwd.clone());
        self.send_open(id, cwd, effects);
    }

    /// Ends a login that was run on the terminal.
    pub(super) fn on_login_ended(&mut self, outcome: Result<(), String>, effects: &mut Vec<Effect>) {
        match outcome {
            Ok(()) => {
                self.needs_login = None;
                self.note("Logged in");
                effects.push(Effect::Send(Call::Agents));
            }
            Err(reason) => self.fail(&reason),
        }
    }

    fn on_opened(&mut self, opened: Opened, effects: &mut Vec<Effect>) {
        let is_awaited = match &self.opening {
            Some(opening) => opening.ticket == opened.ticket,
            // The session of an agent without a server is opened by itself.
            None => self.link == Link::Direct && self.conversation.is_none(),
        };
        if !is_awaited {
            return;
        }
        let opening = self.opening.take();
        let is_new = opening.as_ref().is_some_and(|opening| opening.session.is_none());
        let forking = self.forking.take_if(|forking| forking.ticket == Some(opened.ticket));
        // What was typed before the first session was open, or while a new one or a fork was created, is for this session.
        let keeps_input = is_new || forking.is_some() || (!self.has_opened && self.conversation.is_none());
        self.is_started = true;
        self.has_opened = true;
        self.opened_with = opened.ticket;
        self.reopening = None;
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
        if !keeps_input {
            self.keep_draft();
            self.is_send_pending = false;
        }
        let mut conversation = Conversation::new(opened.id.clone(), opened.cwd, opened.replica);
        (conversation.older, conversation.older_messages) = (opened.older, opened.older_messages);
        conversation.sync(self.look.now);
        let (width, height) = self.conversation_size();
        conversation.resize(width, height);
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
        (self.withdrawn, self.returned) = (Vec::new(), None);
        let draft = self.drafts.remove(&Some(opened.id.clone()));
        if !keeps_input {
            self.input.set(&draft.unwrap_or_default());
        }
        self.list_cursor = Some(opened.id);
        self.editing = None;
        self.needs_login = None;
        self.history_index = None;
        self.queued_cursor = None;
        self.put_off = None;
        self.focus = Focus::Input;
        self.sessions.thaw();
        // What was opened meanwhile stays, unless it is about the session before.
        self.overlays.retain(|overlay| !overlay.is_of_session());
        if let Some(note) = opening.and_then(|opening| opening.note) {
            self.note(&note);
        }
        self.select_opened();
        if forking.as_ref().is_some_and(|forking| !forking.held.is_empty()) {
            self.last_key = Some(self.look.now);
        }
        self.show_request(true);
        self.mark_seen(effects);
        if let Some(forking) = forking {
            self.release_held(forking, effects);
        }
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
    pub(super) fn select_opened(&mut self) {
        let (Some(conversation), Some(at)) = (&mut self.conversation, self.open_at.clone()) else { return };
        conversation.sync(self.look.now);
        let (is_found, words) = match at {
            OpenAt::Message(id, words) => (conversation.select_message(&id, &self.look), words),
            OpenAt::ToolCall(id, words) => {
                let is_it = |entry: &parlor_client::Entry| matches!(entry.id(), EntryId::ToolCall(known) if known.to_string() == id);
                (conversation.select_where(is_it, &self.look), words)
            }
            OpenAt::Match => return self.select_match_above(),
            OpenAt::List => {
                self.open_at = None;
                self.set_focus(Focus::Sessions);
                return;
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
            conversation.reveal_words(&self.look);
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

    /// Finds the words that are searched for in the messages that have just been loaded, or has the ones before them loaded.
    fn select_match_above(&mut self) {
        let Some(conversation) = &mut self.conversation else { return };
        let is_found = conversation.has_match_above(&self.look);
        if !is_found && conversation.older.is_some() {
            conversation.wants_first = true;
            return self.note("Searching in earlier messages");
        }
        self.open_at = None;
        conversation.wants_first = false;
        if !conversation.select_match(false, &self.look) {
            self.note("No hits in this session");
        }
    }

    /// Selects the next or previous entry with the words that are searched for. Earlier messages are loaded for it.
    pub(super) fn find(&mut self, forward: bool) {
        let Some(conversation) = &mut self.conversation else { return };
        if conversation.matches.is_empty() {
            return;
        }
        let has_hit = if forward {
            conversation.select_match(true, &self.look)
        } else {
            conversation.has_match_above(&self.look) && conversation.select_match(false, &self.look)
        };
        if !has_hit {
            self.open_at = Some(OpenAt::Match);
            self.select_match_above();
        }
    }

    fn on_deleted_elsewhere(&mut self, id: &SessionId) {
        if self.removals.iter().any(|removal| removal.id == *id) {
            return;
        }
        self.end_forking();
        self.keep_draft();
        if let Some(draft) = self.drafts.remove(&Some(id.clone())) {
            self.input.set(&draft);
        }
        self.conversation = None;
        self.fail("The session was deleted by another client. What you wrote is kept.");
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
