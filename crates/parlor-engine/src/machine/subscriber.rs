//! A client's place in a session: how far it was told, and what waits for it.

use std::collections::VecDeque;
use std::sync::Arc;

use parlor_dialect::live::Listener;
use parlor_json::Json;
use parlor_session::Reading;
use parlor_wire::RequestId;

use super::broadcast::Groups;
use crate::{ClientInfo, Delivery, Frame, Outgoing, QueueLimits};

/// A client that takes part, or is about to.
pub(crate) struct Seat {
    pub(crate) client: Arc<ClientInfo>,
    /// How many bytes it can be sent of what it missed, until it has read them.
    pub(crate) credit: usize,
    pub(crate) listener: Listener,
    pub(crate) pace: Pace,
    /// Which group it belongs to, as of which order of the groups.
    group: Option<(u64, usize)>,
    /// What is said to this client alone, with the place among what is said to all of its kind.
    own: Vec<(usize, Outgoing)>,
    /// What is said to it alone once it has been told all up to a change, and how many bytes that are.
    later: VecDeque<(u64, Outgoing)>,
    later_bytes: usize,
    farewell: Option<Farewell>,
    limits: QueueLimits,
}

/// The last that a client is told of the session that it closes.
struct Farewell {
    frame: Frame,
    /// Its place among what is said to all of the client's kind.
    place: usize,
    /// The change up to which one that is behind is told.
    seq: u64,
}

/// Whether a client hears of changes as they happen.
pub(crate) enum Pace {
    /// It was told all changes.
    Live,
    /// It reads what it missed.
    Behind {
        /// What it lacks.
        reading: Reading,
        /// The requests that are answered when it was told this.
        answers: Vec<Answer>,
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
    /// Whether the client knows the session up to a change.
    pub(crate) is_resumed: bool,
    /// What is to be noted in the metadata of the answer.
    pub(crate) notes: Vec<(&'static str, Json)>,
}

impl Seat {
    pub(crate) fn new(
        client: Arc<ClientInfo>,
        reading: Reading,
        answers: Vec<Answer>,
        limits: QueueLimits,
    ) -> Self {
        let listener = Listener::new(client.dialect, &client.initialize);
        let pace = Pace::Behind { reading, answers, waiting: false };
        Self {
            client,
            credit: limits.catch_up_bytes,
            listener,
            pace,
            group: None,
            own: Vec::new(),
            later: VecDeque::new(),
            later_bytes: 0,
            farewell: None,
            limits,
        }
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
    pub(crate) fn say(&mut self, frame: Outgoing, place: usize, seq: u64) {
        match self.pace {
            Pace::Live => self.own.push((place, frame)),
            Pace::Behind { .. } => self.say_later(frame, seq),
        }
    }

    /// A client that does not read is cut off when too much waits for it, here as in its send queue.
    fn say_later(&mut self, frame: Outgoing, seq: u64) {
        self.later_bytes += frame.len();
        if self.overflows() {
            self.later.clear();
        } else {
            self.later.push_back((seq, frame));
        }
    }

    /// Whether too much waits for the client: it is to be disconnected.
    pub(crate) fn overflows(&self) -> bool {
        self.later_bytes > self.limits.unsent_bytes
    }

    /// How many bytes wait for the client.
    pub(crate) fn unsent_bytes(&self) -> usize {
        self.later.iter().map(|(_, frame)| frame.len()).sum()
    }

    /// Says the last line: after all that is said to this client alone, and nothing comes after it.
    pub(crate) fn say_last(&mut self, frame: Frame, place: usize, seq: u64) {
        self.farewell = Some(Farewell { frame, place, seq });
    }

    /// Up to which change a client is told before it goes, if it does.
    pub(crate) fn leaves_after(&self) -> Option<u64> {
        self.farewell.as_ref().map(|farewell| farewell.seq)
    }

    /// Queues what is ready: what all of its kind are sent, with its own frames in their places.
    pub(crate) fn flush(&mut self, groups: &mut Groups, sends: &mut Vec<Delivery>) {
        if !self.is_live() {
            return;
        }
        let id = self.client.id;
        let group = self.group(groups);
        if self.own.is_empty() && self.farewell.is_none() {
            sends.push(Delivery::new(id, groups.shared(group)));
            return;
        }
        let all = groups.shared(group);
        let end = self.farewell.as_ref().map_or(all.len(), |farewell| farewell.place);
        // A response may stand before what was said while it was made.
        self.own.sort_by_key(|(place, _)| *place);
        let mut at = 0;
        for (place, frame) in self.own.drain(..) {
            let place = place.min(end);
            sends.extend([Delivery::new(id, all.slice(at..place)), Delivery::new(id, frame)]);
            at = place;
        }
        sends.push(Delivery::new(id, all.slice(at..end)));
        sends.extend(self.farewell.as_ref().map(|farewell| Delivery::new(id, farewell.frame.clone())));
    }

    /// The client asks for the session again, and for nothing that was: it goes on where it is. One that is behind is
    /// answered when it has caught up; the request of one that is live is given back, because it can be answered now.
    pub(crate) fn go_on(&mut self, again: Answer) -> Option<Answer> {
        match &mut self.pace {
            Pace::Live => Some(again),
            Pace::Behind { answers, .. } => {
                answers.push(again);
                None
            }
        }
    }

    /// The requests for the session that have no answer yet.
    pub(crate) fn asked(&mut self) -> Vec<Answer> {
        match &mut self.pace {
            Pace::Behind { answers, .. } => std::mem::take(answers),
            Pace::Live => Vec::new(),
        }
    }

    /// What was to be said to this client alone and was not, and whether what it is about is stored.
    pub(crate) fn unsaid(&mut self, stored: u64) -> Vec<(Outgoing, bool)> {
        self.later_bytes = 0;
        let later = self.later.drain(..).map(|(seq, frame)| (frame, seq <= stored));
        let own = self.own.drain(..).map(|(_, frame)| (frame, false));
        later.chain(own).chain(self.farewell.take().map(|farewell| (farewell.frame.into(), false))).collect()
    }

    /// What it can be told now that it knows all up to a change.
    pub(crate) fn due(&mut self, told: u64) -> Vec<Outgoing> {
        let count = self.later.iter().take_while(|(seq, _)| *seq <= told).count();
        let due: Vec<_> = self.later.drain(..count).map(|(_, frame)| frame).collect();
        self.later_bytes -= due.iter().map(Outgoing::len).sum::<usize>();
        due
    }

    /// What it is told at the very end.
    pub(crate) fn last(&mut self) -> Vec<Outgoing> {
        let mut last = self.due(u64::MAX);
        last.extend(self.farewell.take().map(|farewell| farewell.frame.into()));
        last
    }
}
