//! A client's place in a session: how far it was told, and what waits for it.

use std::collections::VecDeque;
use std::sync::Arc;

use parlor_dialect::Dialect;
use parlor_dialect::live::Listener;
use parlor_json::Json;
use parlor_session::Reading;
use parlor_wire::RequestId;

use super::tell::Groups;
use crate::client::Client;

/// A client that takes part, or is about to.
pub(crate) struct Seat {
    pub(crate) client: Arc<Client>,
    pub(crate) listener: Listener,
    pub(crate) pace: Pace,
    /// Which group it belongs to, as of which order of the groups.
    group: Option<(u64, usize)>,
    /// What is said to this client alone, with the place among what is said to all of its kind.
    own: Vec<(usize, String)>,
    /// What is said to it alone once it has been told all up to a change.
    later: VecDeque<(u64, String)>,
}

/// Whether a client hears of changes as they happen.
pub(crate) enum Pace {
    /// It was told all changes.
    Live,
    /// It reads what it missed.
    Behind {
        /// What it lacks.
        reading: Reading,
        /// The request that is answered when it was told this.
        answer: Option<Answer>,
        /// Whether somebody waits for it to read on.
        waiting: bool,
    },
}

/// A request for a session that has no answer yet.
pub(crate) struct Answer {
    pub(crate) id: RequestId,
    /// Whether the session has just begun.
    pub(crate) is_new: bool,
    /// Whether the client wants to know nothing of what was.
    pub(crate) is_blank: bool,
    /// What is to be noted in the metadata of the answer.
    pub(crate) notes: Vec<(&'static str, Json)>,
}

impl Seat {
    pub(crate) fn new(client: Arc<Client>, reading: Reading, answer: Option<Answer>) -> Self {
        let listener = match client.terms() {
            Some(terms) => Listener::new(terms.dialect, &terms.initialize),
            None => Listener::new(Dialect::V2, &parlor_json::Object::default()),
        };
        let pace = Pace::Behind { reading, answer, waiting: false };
        Self { client, listener, pace, group: None, own: Vec::new(), later: VecDeque::new() }
    }

    /// The place of those who hear the same as this client.
    pub(crate) fn group(&mut self, groups: &mut Groups) -> usize {
        match self.group {
            Some((order, group)) if order == groups.order() => group,
            Some(_) | None => {
                let group = groups.of(&self.client);
                self.group = Some((groups.order(), group));
                group
            }
        }
    }

    pub(crate) fn is_live(&self) -> bool {
        matches!(self.pace, Pace::Live)
    }

    /// Says something to this client alone, after all it has been told so far; or at an earlier place among what is
    /// told to all.
    pub(crate) fn say(&mut self, line: String, place: usize, seq: u64) {
        match self.pace {
            Pace::Live => self.own.push((place, line)),
            Pace::Behind { .. } => self.later.push_back((seq, line)),
        }
    }

    /// Puts what is ready into the outbox: what all of its kind are told, with its own lines in their places.
    pub(crate) fn flush(&mut self, groups: &mut Groups) {
        if !self.is_live() {
            return;
        }
        let group = self.group(groups);
        if self.own.is_empty() {
            self.client.outbox.push(groups.shared(group));
            return;
        }
        let all = groups.shared(group);
        // An answer may stand before what was said while it was made.
        self.own.sort_by_key(|(place, _)| *place);
        let mut at = 0;
        let mut mixed = String::with_capacity(all.len() + 256);
        for (place, line) in self.own.drain(..) {
            mixed.push_str(&all[at..place]);
            at = place;
            mixed.push_str(&line);
        }
        mixed.push_str(&all[at..]);
        self.client.outbox.push(mixed.into());
    }

    /// The client asks for the session again, and for nothing that was: it goes on where it is, and is answered when it was
    /// told all up to `seq`. One that is live was told all up to `told`. Gives the answer back if another is due first.
    pub(crate) fn go_on(&mut self, again: Answer, told: u64, seq: u64) -> Option<Answer> {
        match &mut self.pace {
            Pace::Live => {
                self.later.extend(self.own.drain(..).map(|(_, line)| (seq, line)));
                let reading = Reading::new(told, seq);
                self.pace = Pace::Behind { reading, answer: Some(again), waiting: false };
                None
            }
            Pace::Behind { answer: answer @ None, .. } => {
                *answer = Some(again);
                None
            }
            Pace::Behind { answer: Some(_), .. } => Some(again),
        }
    }

    /// The request for the session, if it has no answer yet.
    pub(crate) fn asked(&self) -> Option<&Answer> {
        match &self.pace {
            Pace::Behind { answer, .. } => answer.as_ref(),
            Pace::Live => None,
        }
    }

    /// What was to be said to this client alone and was not, and whether what it is about is stored.
    pub(crate) fn unsaid(&mut self, stored: u64) -> Vec<(String, bool)> {
        let later = self.later.drain(..).map(|(seq, line)| (line, seq <= stored));
        later.chain(self.own.drain(..).map(|(_, line)| (line, false))).collect()
    }

    /// What it can be told now that it knows all up to a change.
    pub(crate) fn due(&mut self, told: u64) -> String {
        let mut due = String::new();
        while self.later.front().is_some_and(|(seq, _)| *seq <= told) {
            due.extend(self.later.pop_front().map(|(_, line)| line));
        }
        due
    }
}
