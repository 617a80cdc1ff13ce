//! What changed, in words for all who listen. What several hear alike is put into words once.

use std::sync::Arc;

use parlor_dialect::live::{self, Listener, Spans, Telling};
use parlor_dialect::{Dialect, Losses};
use parlor_json::Object;
use parlor_session::session::ClientId;
use parlor_session::{Change, EntryId, MessageId, MetaPatch, Target, Transcript, Update};

use super::{Actor, fresh};
use crate::client::Client;
use crate::outbox::Lines;

/// Clients that hear the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// v2 or its draft, with the number of each change or without.
    Stateless(Dialect, bool),
    /// v1 depends on what a client has heard.
    Alone(ClientId),
}

/// What is told in one go.
#[derive(Default)]
pub(crate) struct Groups {
    all: Vec<Group>,
    /// Changes when groups get other places.
    order: u64,
    /// Room for a line that is passed on.
    passed: String,
}

struct Group {
    kind: Kind,
    text: String,
    shared: Option<Lines>,
    /// The ears of all of them.
    listener: Option<Listener>,
    /// The last change that they were told of.
    told: u64,
}

/// Where each group's text ended at some time.
#[derive(Default)]
pub(crate) struct Marks(Vec<usize>);

impl Groups {
    pub(crate) fn marks(&self) -> Marks {
        Marks(self.all.iter().map(|group| group.text.len()).collect())
    }

    /// Until this changes, a group stays in its place.
    pub(crate) fn order(&self) -> u64 {
        self.order
    }

    pub(crate) fn of(&mut self, client: &Client) -> usize {
        let kind = match client.terms() {
            Some(terms) if terms.dialect != Dialect::V1 => Kind::Stateless(terms.dialect, terms.wants_seq),
            Some(_) | None => Kind::Alone(client.id),
        };
        if let Some(place) = self.all.iter().position(|group| group.kind == kind) {
            return place;
        }
        let listener = match kind {
            Kind::Stateless(dialect, _) => Some(Listener::new(dialect, &Object::default())),
            Kind::Alone(_) => None,
        };
        self.all.push(Group { kind, text: String::new(), shared: None, listener, told: 0 });
        self.all.len() - 1
    }

    /// Where the next line of a client's group will stand, or stood at a mark.
    pub(crate) fn place(&mut self, client: &Client, marks: Option<&Marks>) -> usize {
        let group = self.of(client);
        // A group that was not there at the mark had said nothing.
        marks.map_or(self.all[group].text.len(), |marks| marks.0.get(group).copied().unwrap_or(0))
    }

    pub(crate) fn shared(&mut self, place: usize) -> Lines {
        let group = &mut self.all[place];
        let text = &group.text;
        Arc::clone(group.shared.get_or_insert_with(|| text.as_str().into()))
    }

    /// Begins anew, for those who are still here.
    pub(crate) fn clear(&mut self, is_here: impl Fn(ClientId) -> bool) {
        let count = self.all.len();
        self.all.retain(|group| match group.kind {
            Kind::Stateless(..) => true,
            Kind::Alone(client) => is_here(client),
        });
        self.order += u64::from(self.all.len() != count);
        for group in &mut self.all {
            group.text.clear();
            group.shared = None;
        }
    }
}

/// The line of the agent that a change came with.
pub(super) struct Source<'a> {
    pub(super) line: &'a str,
    pub(super) spans: &'a Spans,
    /// The entry as the agent names it, and whether it named it at all.
    pub(super) entry: Option<EntryId>,
    pub(super) named: bool,
}

impl Actor {
    /// Puts one change into words for all who are told changes as they happen.
    pub(super) fn tell(
        &mut self,
        change: &Change,
        meta_before: Option<&Object>,
        source: Option<&Source<'_>>,
    ) {
        let transcript = self.session.transcript();
        let from = self.decoder.dialect();
        let telling = Telling { from, transcript, meta_before };
        // One alias for all who have to be told of a replacement.
        let mut alias = None;
        let mut mint = || alias.get_or_insert_with(fresh).clone();
        let mut passed = std::mem::take(&mut self.groups.passed);
        passed.clear();
        let passes = source.is_some_and(|source| source.pass(change, &self.id, &mut passed));
        for seat in self.seats.values_mut().filter(|seat| seat.is_live()) {
            let place = seat.group(&mut self.groups);
            let group = &mut self.groups.all[place];
            if group.told == change.seq {
                continue;
            }
            group.told = change.seq;
            let (dialect, wants_seq) = match seat.client.terms() {
                Some(terms) => (terms.dialect, terms.wants_seq),
                None => (Dialect::V2, false),
            };
            if passes && dialect == from && !wants_seq {
                group.text.push_str(&passed);
                // What a v1 client hears this way it has heard.
                if dialect == Dialect::V1 && !is_chunk(&change.update) {
                    seat.listener.tell(&change.update, telling, &mut fresh, &mut Losses::default());
                }
                continue;
            }
            let listener = group.listener.as_mut().unwrap_or(&mut seat.listener);
            let updates = listener.tell(&change.update, telling, &mut mint, &mut self.losses);
            for update in updates {
                let seq = wants_seq.then_some(change.seq);
                group.text.push_str(&live::update_line(&self.id, &update, seq));
            }
        }
        self.groups.passed = passed;
        if let Some(alias) = alias {
            self.alias(alias, &change.update);
        }
    }

    /// Says something to one client, after what it has been told so far.
    pub(super) fn say(&mut self, client: ClientId, line: String) {
        self.say_at(client, line, None);
    }

    pub(super) fn say_at(&mut self, client: ClientId, line: String, marks: Option<&Marks>) {
        let seq = self.session.transcript().seq();
        let Some(seat) = self.seats.get_mut(&client) else { return };
        let place = if seat.is_live() { self.groups.place(&seat.client, marks) } else { 0 };
        seat.say(line, place, seq);
    }

    /// Hands over all that was said.
    pub(super) fn flush(&mut self) {
        for seat in self.seats.values_mut() {
            seat.flush(&mut self.groups);
        }
        self.groups.clear(|client| self.seats.contains_key(&client));
        self.owed.drain(..).for_each(|owed| owed.give());
        let losses = std::mem::take(&mut self.losses).into_vec();
        for loss in losses {
            tracing::debug!(session = %self.id, loss = %loss.kind, "something could not be said to a client");
        }
    }
}

impl Source<'_> {
    /// Writes the agent's own line with the ids of the session; `false` if it does not say just what changed.
    fn pass(&self, change: &Change, session: &parlor_session::SessionId, passed: &mut String) -> bool {
        let renamed = |entry: &EntryId| self.entry.as_ref() != Some(entry);
        let mut message: Option<&MessageId> = None;
        match &change.update {
            Update::Append { entry: entry @ EntryId::Message(_, id), .. } => {
                message = (!self.named || renamed(entry)).then_some(id);
            }
            Update::Append { entry, .. } | Update::Remove { entry, .. } if renamed(entry) => return false,
            Update::Upsert { target: Target::Entry(entry), .. } if renamed(entry) => {
                let EntryId::Message(_, id) = entry else { return false };
                message = Some(id);
            }
            // A terminal that parlor runs is not the client's.
            Update::Upsert { target: Target::Entry(EntryId::ToolCall(_)), .. }
                if self.line.contains("\"terminal\"") =>
            {
                return false;
            }
            Update::Append { .. }
            | Update::Remove { .. }
            | Update::Upsert { .. }
            | Update::Output { .. }
            | Update::Note { .. }
            | Update::State(_) => {}
        }
        self.spans.pass(self.line, session, message, passed);
        true
    }
}

fn is_chunk(update: &Update) -> bool {
    matches!(update, Update::Append { entry: EntryId::Message(..), .. })
}

/// The metadata that an update is about to patch.
pub(super) fn meta_before(transcript: &Transcript, update: &Update) -> Option<Object> {
    let Update::Upsert { target, upsert } = update else { return None };
    if upsert.meta == MetaPatch::Keep {
        return None;
    }
    match target {
        Target::Entry(id) => transcript.get(id)?.body().meta.clone(),
        Target::Slot(slot) => transcript.slot(*slot)?.meta.clone(),
    }
}
