//! What is due at a time: notes, the focus of requests, connections, removals and searches.

use jiff::{SignedDuration, Timestamp};

use super::state::{Focus, Link, PendingRemoval};
use super::{App, SEARCH_DELAY, UNDO_TIME};
use crate::event::{Call, Effect};
use crate::overlay::Overlay;

impl App {
    /// When [`Event::Tick`](crate::event::Event::Tick) is needed next, if nothing else happens.
    pub fn next_tick(&self) -> Option<Timestamp> {
        let now = self.look.now;
        let mut due: Vec<Timestamp> = Vec::new();
        due.extend(self.note.as_ref().map(|note| note.until));
        if self.link == Link::Live {
            due.extend(self.removals.iter().map(|removal| removal.at + UNDO_TIME));
            due.extend(self.reopening.filter(|_| self.opening.is_none()).map(|reopening| reopening.at));
        }
        if let Some(conversation) = self.conversation.as_ref().filter(|_| self.link == Link::Live) {
            due.extend(conversation.older_retry.filter(|retry| *retry > now));
        }
        if let Some(Overlay::Search(search)) = self.overlays.last() {
            due.extend(search.changed.map(|changed| changed + SEARCH_DELAY));
        }
        let counts = self.is_busy()
            || self.sending.0 > 0
            || !self.removals.is_empty()
            || matches!(self.link, Link::Retrying { .. })
            || self.reopening.is_some()
            || self.forking.is_some()
            || self.shown_request().is_some();
        if counts {
            // The next full second.
            let millis = now.as_millisecond().rem_euclid(1000);
            due.push(now + SignedDuration::from_millis(1000 - millis));
        }
        // Ages in lists change by the minute.
        due.push(now + SignedDuration::from_secs(30));
        due.into_iter().min()
    }

    /// Does what is due.
    pub(super) fn on_time(&mut self, effects: &mut Vec<Effect>) {
        let now = self.look.now;
        if self.note.as_ref().is_some_and(|note| note.until <= now) {
            self.note = None;
        }
        // A request that was opened while the person typed gets the focus when the person has stopped.
        if self.focus == Focus::Input && self.shown_request().is_some() {
            self.show_request(true);
        }
        if self.reopening.is_some_and(|reopening| reopening.at <= now) {
            self.reopen(effects);
        }
        let is_due = |removal: &PendingRemoval| self.link == Link::Live && removal.at + UNDO_TIME <= now;
        let due: Vec<_> = self.removals.iter().filter(|removal| is_due(removal)).cloned().collect();
        self.removals.retain(|removal| !is_due(removal));
        due.into_iter().for_each(|removal| self.carry_out(&removal, effects));
        if let Some(Overlay::Search(search)) = self.overlays.last_mut()
            && search.changed.is_some_and(|changed| changed + SEARCH_DELAY <= now)
        {
            search.changed = None;
            if search.query.text().trim().is_empty() {
                search.hits.clear();
                search.is_answered = false;
            } else {
                self.searches += 1;
                search.generation = self.searches;
                let (generation, query, scope) =
                    (search.generation, search.query.text().to_owned(), search.scope);
                let cwd = (scope == crate::overlay::Scope::Directory).then(|| self.cwd().to_owned());
                let session = (scope == crate::overlay::Scope::Session).then(|| self.open_id()).flatten();
                effects.push(Effect::Send(Call::Search { generation, query, cwd, session }));
            }
        }
    }
}
