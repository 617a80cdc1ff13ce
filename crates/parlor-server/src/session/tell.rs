//! What changed, in words for all who listen. What several hear alike is put into words once.

use std::sync::Arc;

use parlor_dialect::live::{self, Listener, Spans, Telling};
use parlor_dialect::{Dialect, Losses};
use parlor_json::Object;
use parlor_session::session::ClientId;
use parlor_session::{Change, EntryId, MessageId, MetaPatch, Slot, Target, Transcript, Update};

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
pub(crate) struct Groups(Vec<Group>);

struct Group {
    kind: Kind,
    text: String,
    shared: Option<Lines>,
    /// The ears of all of them.
    listener: Option<Listener>,
}

/// Where each group's text ended at some time.
pub(crate) struct Marks(Vec<usize>);

impl Groups {
    pub(crate) fn marks(&self) -> Marks {
        Marks(self.0.iter().map(|group| group.text.len()).collect())
    }

    pub(crate) fn of(&mut self, client: &Client) -> usize {
        let kind = match client.terms() {
            Some(terms) if terms.dialect != Dialect::V1 => Kind::Stateless(terms.dialect, terms.wants_seq),
            Some(_) | None => Kind::Alone(client.id),
        };
        if let Some(place) = self.0.iter().position(|group| group.kind == kind) {
            return place;
        }
        let listener = match kind {
            Kind::Stateless(dialect, _) => Some(Listener::new(dialect, &Object::default())),
            Kind::Alone(_) => None,
        };
        self.0.push(Group { kind, text: String::new(), shared: None, listener });
        self.0.len() - 1
    }

    /// Where the next line of a client's group will stand, or stood at a mark.
    pub(crate) fn place(&mut self, client: &Client, marks: Option<&Marks>) -> usize {
        let group = self.of(client);
        // A group that was not there at the mark had said nothing.
        marks.map_or(self.0[group].text.len(), |marks| marks.0.get(group).copied().unwrap_or(0))
    }

    pub(crate) fn shared(&mut self, place: usize) -> Lines {
        let group = &mut self.0[place];
        let text = &group.text;
        Arc::clone(group.shared.get_or_insert_with(|| text.as_str().into()))
    }

    /// Begins anew, for those who are still here.
    pub(crate) fn clear(&mut self, is_here: impl Fn(ClientId) -> bool) {
        self.0.retain(|group| match group.kind {
            Kind::Stateless(..) => true,
            Kind::Alone(client) => is_here(client),
        });
        for group in &mut self.0 {
            group.text.clear();
            group.shared = None;
        }
    }
}

/// The line of the agent that a change came with.
pub(super) struct Source<'a> {
    pub(super) line: &'a str,
    pub(super) spans: Spans,
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
        let passed = source.and_then(|source| source.passed(change, &self.id));
        let mut said_to: Vec<usize> = Vec::new();
        for seat in self.seats.values_mut().filter(|seat| seat.is_live()) {
            let place = self.groups.of(&seat.client);
            if said_to.contains(&place) {
                continue;
            }
            said_to.push(place);
            let group = &mut self.groups.0[place];
            let (dialect, wants_seq) = match seat.client.terms() {
                Some(terms) => (terms.dialect, terms.wants_seq),
                None => (Dialect::V2, false),
            };
            if dialect == from
                && !wants_seq
                && let Some(passed) = &passed
            {
                group.text.push_str(passed);
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
        let losses = std::mem::take(&mut self.losses).into_vec();
        for loss in losses {
            tracing::debug!(session = %self.id, loss = %loss.kind, "something could not be said to a client");
        }
    }
}

impl Source<'_> {
    /// The agent's own line with the ids of the session, if it says just what changed.
    fn passed(&self, change: &Change, session: &parlor_session::SessionId) -> Option<String> {
        let renamed = |entry: &EntryId| self.entry.as_ref() != Some(entry);
        let mut message: Option<&MessageId> = None;
        match &change.update {
            Update::Append { entry: entry @ EntryId::Message(_, id), .. } => {
                message = (!self.named || renamed(entry)).then_some(id);
            }
            Update::Append { entry, .. } | Update::Remove { entry, .. } if renamed(entry) => return None,
            Update::Upsert { target: Target::Entry(entry), .. } if renamed(entry) => {
                let EntryId::Message(_, id) = entry else { return None };
                message = Some(id);
            }
            // A terminal that parlor runs is not the client's.
            Update::Upsert { target: Target::Entry(EntryId::ToolCall(_)), .. }
                if self.line.contains("\"terminal\"") =>
            {
                return None;
            }
            // A title may have been cut.
            Update::Upsert { target: Target::Slot(Slot::Info), upsert }
                if upsert.fields.get("title").is_some_and(|title| title.as_str().len() > 500) =>
            {
                return None;
            }
            Update::Append { .. }
            | Update::Remove { .. }
            | Update::Upsert { .. }
            | Update::Output { .. }
            | Update::Note { .. }
            | Update::State(_) => {}
        }
        Some(self.spans.passed(self.line, session, message))
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
