//! What a session hands to the store, and what happens when the store cannot take it.

use std::time::{Duration, Instant};

use parlor_dialect::live;
use parlor_json::{Json, Object};
use parlor_session::session::{QuestionId, TITLE_MARK};
use parlor_session::{Change, Row, Slot, Target, Update};
use parlor_store::{Batch, StoreError, Write};
use parlor_wire::{Batches, Body, Incoming, Message, Outcome, RequestId, RpcError, code};
use tokio::sync::oneshot;

use super::words::Turn;
use super::{Actor, End, now};
use crate::json;
use crate::stored::{self, ALIASES, ANSWERS, KEPT};

/// How many decisions are kept.
const MAX_ANSWERS: usize = 100;

/// How often a session's last activity is written when nothing else of its row changed.
const ACTIVITY: Duration = Duration::from_secs(1);

/// A session could not be stored.
#[derive(Debug)]
pub(crate) struct Failed(StoreError);

impl Actor {
    /// A change was taken: looks whether it shows in lists.
    pub(super) fn changed(&mut self, change: &Change) {
        match &change.update {
            Update::State(state) => {
                let busy = state.activity.is_busy();
                self.due.row |= busy != self.row.busy;
                self.row.busy = busy;
            }
            Update::Upsert { target: Target::Slot(Slot::Info), .. } => {
                let info = self.session.transcript().slot(Slot::Info);
                let title = info.and_then(|info| json::literal(&info.fields, "title"));
                let mark = info.and_then(|info| json::literal(info.meta.as_ref()?, TITLE_MARK));
                let is_made = mark.is_some_and(|mark| mark.inner() == "made");
                let was_made = self.row.title.is_none();
                if stored::title(&self.row) != title || was_made != (is_made || title.is_none()) {
                    stored::set_title(&mut self.row, title.as_ref(), is_made);
                    self.due.row = true;
                }
            }
            Update::Upsert { .. }
            | Update::Append { .. }
            | Update::Output { .. }
            | Update::Remove { .. }
            | Update::Note { .. } => {}
        }
    }

    /// A person decided something: that is on record before the agent acts on it.
    pub(super) fn decided(&mut self, question: QuestionId, result: &Json) {
        let Some(asked) = self.questions.get(&question) else { return };
        let mut record = Object::default();
        record.set("at", json::json(now().to_string()));
        record.set("method", json::string(&asked.method));
        for about in ["toolCall", "subject", "title"] {
            if let Some(value) = asked.params.get(about) {
                record.set(about, value.clone());
            }
        }
        record.set("answer", result.clone());
        if self.answers.len() >= MAX_ANSWERS {
            self.answers.pop_front();
        }
        self.answers.push_back(record.to_json().as_str().to_owned());
        self.due.answers = true;
        self.due.durable = true;
    }

    /// Stores all that changed and waits until it is taken.
    pub(super) async fn store(&mut self) -> Result<(), Failed> {
        let writes = self.writes();
        let durable = std::mem::take(&mut self.due.durable);
        let seq = self.session.transcript().seq();
        if writes.is_empty() {
            self.stored = seq;
            return Ok(());
        }
        let (sender, done) = oneshot::channel();
        let batch = Batch { writes, durable };
        self.hub.store().write(batch, Box::new(move |result| drop(sender.send(result))));
        match done.await {
            Ok(result) => {
                result.map_err(Failed)?;
                self.stored = seq;
                Ok(())
            }
            Err(_) => Err(Failed(StoreError {
                kind: parlor_store::ErrorKind::Closed,
                message: "the store is gone".to_owned(),
            })),
        }
    }

    fn writes(&mut self) -> Vec<Write> {
        let is_deleted = matches!(self.ends, Some(End::Deleted));
        // What was forked in the last moment outlives the session.
        let mut writes = if is_deleted && self.forks.is_empty() { Vec::new() } else { self.changes() };
        if is_deleted {
            self.due.durable = true;
            writes.push(Write::Delete { session: self.id.as_json().as_literal().to_owned() });
            writes.extend(crate::known::forget(&self.row));
        }
        writes
    }

    /// All that changed.
    fn changes(&mut self) -> Vec<Write> {
        let session = self.id.as_json().as_literal().to_owned();
        let mut writes = Vec::new();
        if !self.unsaved.is_empty() {
            self.last_active = Instant::now();
            if self.row_written.elapsed() >= ACTIVITY {
                self.due.row = true;
                self.row_stored = None;
            }
        }
        // A short turn that begins and ends in one go leaves the row as it was.
        if std::mem::take(&mut self.due.row) && self.row_stored.as_ref() != Some(&self.row) {
            self.row_written = Instant::now();
            // Lists go by it, and never back, whatever the clock does.
            self.row.active_at = now().max(self.row.active_at);
            self.row_stored = Some(self.row.clone());
            writes.push(Write::Session(self.row.clone()));
        }
        if std::mem::take(&mut self.due.kept) {
            // It may have to be kept before anything was said, and a store numbers from 1.
            let seq = self.session.transcript().seq().max(1);
            let body = Some(self.session.kept().to_json().as_str().to_owned());
            writes.push(Write::Slot { session: session.clone(), name: KEPT.to_owned(), seq, body });
        }
        if std::mem::take(&mut self.due.answers) {
            let seq = self.session.transcript().seq().max(1);
            let list: Vec<_> = self.answers.iter().map(String::as_str).collect();
            let body = Some(format!("[{}]", list.join(",")));
            writes.push(Write::Slot { session: session.clone(), name: ANSWERS.to_owned(), seq, body });
        }
        if std::mem::take(&mut self.due.aliases) {
            let seq = self.session.transcript().seq().max(1);
            let body = Some(self.aliases.to_json());
            writes.push(Write::Slot { session: session.clone(), name: ALIASES.to_owned(), seq, body });
        }
        for row in self.unsaved.take(self.session.transcript()) {
            let session = session.clone();
            writes.push(match row {
                Row::Entry { created, seq, head, content } => {
                    Write::Entry { session, created, seq, head, content }
                }
                Row::Append { created, seq, content } => Write::Append { session, created, seq, content },
                Row::Slot { name, seq, body } => {
                    Write::Slot { session, name: name.to_owned(), seq, body: Some(body) }
                }
            });
        }
        let turn = match (&self.ends, self.row.busy) {
            (Some(_), _) => Turn::Ends,
            (None, true) => Turn::Runs,
            (None, false) => Turn::Rests,
        };
        writes.extend(self.unworded.take(&session, self.session.transcript(), turn, now()));
        writes.extend(self.fork_writes());
        writes
    }

    /// The session cannot be stored. All who take part are told, nothing that was not stored is shown or acknowledged,
    /// each open request is answered, and the session ends here; who comes back finds it as it was last stored.
    pub(super) fn fail(&mut self, failed: &Failed) {
        let error =
            RpcError::new(code::INTERNAL_ERROR, format!("the session cannot be stored: {}", failed.0));
        tracing::error!(session = %self.id, error = %failed.0, "the session cannot be stored and is closed");
        let state = live::failed_state(&error);
        let transcript = parlor_session::Transcript::default();
        let telling =
            live::Telling { from: self.decoder.dialect(), transcript: &transcript, meta_before: None };
        for seat in self.seats.values_mut() {
            let mut lines = String::new();
            for (line, is_stored) in seat.unsaid(self.stored) {
                match answered(&line) {
                    Some((_, is_error)) if is_stored || is_error => lines.push_str(&line),
                    Some((id, _)) => lines.push_str(&json::error(&id, &error)),
                    None => {}
                }
            }
            let update = Update::State(state.clone());
            for update in seat.listener.tell(&update, telling, &mut super::fresh, &mut self.losses) {
                lines.push_str(&live::update_line(&self.id, &update, None));
            }
            if let Some(request) = seat.asked() {
                lines.push_str(&json::error(&request.id, &error));
            }
            for (by, id) in self.prompts.values() {
                if *by == seat.client.id {
                    lines.push_str(&json::error(id, &error));
                }
            }
            seat.client.outbox.push(lines.into());
        }
        for owed in self.owed.drain(..) {
            owed.client.outbox.push(json::error(&owed.id, &error).into());
        }
        if let Some((agent, session)) = self.bound() {
            let mut params = parlor_json::Object::default();
            params.set("sessionId", session.as_json());
            agent.notify("session/cancel", &params);
        }
        self.refuse_forks(&error);
        self.go_on_with_forks(Some(&error));
        // A server that ends goes on doing so.
        if !matches!(self.ends, Some(End::Stopped(_))) {
            self.ends = Some(End::Failed(error));
        }
    }
}

/// The request that a line answers, if it does, and whether with an error.
fn answered(line: &str) -> Option<(RequestId, bool)> {
    match parlor_wire::parse(line.trim_end(), Batches::Refuse).ok()? {
        Incoming::One(Message { body: Body::Response { id, outcome }, .. }) => {
            Some((id, matches!(outcome, Outcome::Error(_))))
        }
        Incoming::One(_) | Incoming::Batch(_) => None,
    }
}
