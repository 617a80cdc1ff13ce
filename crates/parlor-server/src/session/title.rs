//! A session as lists show it: its title and metadata, and whether it was put away.

use std::sync::Arc;
use std::time::Instant;

use parlor_dialect::LossKind;
use parlor_dialect::live::Spans;
use parlor_json::{Json, JsonStr, Object};
use parlor_session::session::{Effect, Input};
use parlor_session::{Naming, Slot, TITLE, Target, Update, Upsert};
use parlor_wire::RequestId;

use super::tell::{Source, meta_before};
use super::{Actor, Message, StepMarks, fresh};
use crate::agent::Offer;
use crate::client::Client;
use crate::json;

/// An answer to a client that may not take part in the session. It is given when all is stored.
#[derive(Debug)]
pub(super) struct Owed {
    pub(super) client: Arc<Client>,
    pub(super) id: RequestId,
    result: Object,
}

impl Owed {
    pub(super) fn give(&self) {
        self.client.outbox.push(json::response(&self.id, &self.result).into());
    }
}

impl Actor {
    /// The agent said something about the session as a whole: told at once, or with what comes right after it.
    pub(super) fn said_info(&mut self, said: Upsert, line: &str, spans: Option<&Spans>) {
        let now = Instant::now();
        if self.bursts.passes(now) {
            return self.take_info(said, spans.map(|spans| (line, spans)));
        }
        let is_first = self.bursts.is_empty();
        if let Err(refused) = self.bursts.hold(said, self.session.transcript()) {
            tracing::warn!(session = %self.id, "an update was not taken: {refused}");
        }
        if is_first && !self.bursts.is_empty() {
            self.wait_for_room(now);
        }
    }

    fn wait_for_room(&self, now: Instant) {
        let (me, wait) = (self.me.clone(), self.bursts.wait(now));
        tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            let _ = me.send(Message::InfoDue).await;
        });
    }

    /// What was held may have its time now.
    pub(super) fn info_due(&mut self) {
        let now = Instant::now();
        match self.bursts.due(now) {
            Some(held) => self.take_info(held, None),
            None if self.bursts.is_empty() => {}
            None => self.wait_for_room(now),
        }
    }

    /// Takes what was held, before something that it must come before.
    pub(super) fn flush_info(&mut self) {
        if let Some(held) = self.bursts.take() {
            self.take_info(held, None);
        }
    }

    fn take_info(&mut self, said: Upsert, line: Option<(&str, &Spans)>) {
        let title = said.fields.get(TITLE).and_then(|title| JsonStr::from_raw(title.raw()));
        let most = self.session.transcript().limits().title_chars;
        if title.is_some_and(|title| title.truncated(most).is_some()) {
            self.losses.add(LossKind::TitleCut);
        }
        let update = Update::Upsert { target: Target::Slot(Slot::Info), upsert: said };
        let meta = meta_before(self.session.transcript(), &update);
        let mut step = std::mem::take(&mut self.room);
        self.session.step(Input::Said(update.clone(), Naming::Silent), &mut fresh, &mut step);
        let before = self.marks_for(&step);
        for change in std::mem::take(&mut step.changes) {
            // What came of it may not be just what the agent said.
            let same = line.filter(|_| change.update == update);
            let source = same.map(|(line, spans)| Source { line, spans, entry: None, named: false });
            self.decoder.took(&change, Naming::Silent);
            self.unsaved.note(&change);
            self.changed(&change);
            self.tell(&change, meta.as_ref(), source.as_ref());
        }
        let ended = self.marks_for(&step);
        self.effects(step, &StepMarks { before, ended });
    }

    /// The title that shows, as JSON.
    fn title(&self) -> Json {
        let info = self.session.transcript().slot(Slot::Info);
        info.and_then(|info| info.fields.get(TITLE).cloned()).unwrap_or_else(Json::null)
    }

    /// A person gives the session a title, or takes it away.
    pub(super) fn set_title(&mut self, client: &Arc<Client>, id: RequestId, title: Option<JsonStr>) {
        self.flush_info();
        let names = title.is_some();
        self.step(Input::Titled(title));
        let mut result = Object::default();
        result.set(TITLE, self.title());
        self.owe(client, id, result);
        self.retitled |= names;
    }

    /// Tells the agent of a person's title, if it wants to know. It goes by its own otherwise, which is no harm: what
    /// people see is decided here.
    pub(super) fn tell_title(&mut self) {
        if !std::mem::take(&mut self.retitled) {
            return;
        }
        let Some((agent, session)) = self.bound() else { return };
        if !agent.offers(Offer::Title) {
            return;
        }
        let (agent, mut params) = (Arc::clone(agent), Self::params_for(session));
        params.set(TITLE, self.title());
        let id = self.id.clone();
        tokio::spawn(async move {
            if let Err(error) = agent.call("session/set_title", &params).await {
                tracing::warn!(session = %id, error = error.as_str(), "the agent does not take the title");
            }
        });
    }

    /// A person puts the session away, or takes it out again. One that is put away rests.
    pub(super) fn archive(&mut self, client: &Arc<Client>, id: RequestId, archived: bool) {
        if archived {
            self.step(Input::Cancelled);
            self.effects.push(Effect::Release);
        }
        self.set_archived(archived);
        self.due.durable = true;
        self.owe(client, id, Object::default());
    }

    pub(super) fn set_archived(&mut self, archived: bool) {
        self.due.row |= self.row.archived != archived;
        self.row.archived = archived;
    }

    /// Answers when all is stored, in its place among what the client is told if it takes part.
    fn owe(&mut self, client: &Arc<Client>, id: RequestId, result: Object) {
        if self.seats.contains_key(&client.id) {
            self.say(client.id, json::response(&id, &result));
        } else {
            self.owed.push(Owed { client: Arc::clone(client), id, result });
        }
    }
}
