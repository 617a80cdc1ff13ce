//! Changes encoded for all live subscribers, once for each group that receives the same bytes.

use parlor_dialect::Dialect;
use parlor_dialect::live::{AgentLine, Broadcast, UpdateEncoder};
use parlor_session::session::ClientId;
use parlor_session::{Change, Update};

use super::SessionMachine;
use crate::{ClientInfo, Delivery, Frame, Outgoing};

/// Subscribers that receive the same bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EncoderKey {
    /// v2 or its draft, with the number of each change or without, and with events or without.
    Shared { dialect: Dialect, wants_seq: bool, wants_events: bool },
    /// v1: what is sent depends on what the client has received.
    PerClient(ClientId),
}

/// The broadcasts of one batch, a buffer for each group.
#[derive(Default)]
pub(crate) struct BroadcastBuffers {
    all: Vec<BroadcastBuffer>,
    /// Changes when groups get other places.
    order: u64,
    /// How many changes were broadcast.
    rounds: u64,
    /// Room for a line that is passed on.
    passed: String,
}

struct BroadcastBuffer {
    kind: EncoderKey,
    text: String,
    shared: Option<Frame>,
    /// The encoder that the group shares; `None` if each client has its own.
    encoder: Option<UpdateEncoder>,
    /// The last change that was encoded for the group, by its number.
    last_round: u64,
}

/// Where each group's text ended at some time.
#[derive(Default)]
pub(crate) struct BufferOffsets(Vec<usize>);

impl BroadcastBuffers {
    pub(crate) fn offsets(&self) -> BufferOffsets {
        BufferOffsets(self.all.iter().map(|group| group.text.len()).collect())
    }

    /// Until this changes, a group stays in its place.
    pub(crate) fn order(&self) -> u64 {
        self.order
    }

    pub(crate) fn of(&mut self, client: &ClientInfo) -> usize {
        let kind = match client.dialect {
            Dialect::V1 => EncoderKey::PerClient(client.id),
            dialect @ (Dialect::V2 | Dialect::Draft) => {
                let ClientInfo { wants_seq, wants_events, .. } = *client;
                EncoderKey::Shared { dialect, wants_seq, wants_events }
            }
        };
        if let Some(place) = self.all.iter().position(|group| group.kind == kind) {
            return place;
        }
        let encoder = match kind {
            EncoderKey::Shared { dialect, .. } => Some(UpdateEncoder::new(dialect, &client.initialize)),
            EncoderKey::PerClient(_) => None,
        };
        self.all.push(BroadcastBuffer { kind, text: String::new(), shared: None, encoder, last_round: 0 });
        self.all.len() - 1
    }

    /// Where the next line of a client's group will stand, or stood at a mark.
    pub(crate) fn place(&mut self, client: &ClientInfo, offsets: Option<&BufferOffsets>) -> usize {
        let group = self.of(client);
        // A group that did not exist then had no bytes.
        offsets.map_or(self.all[group].text.len(), |offsets| offsets.0.get(group).copied().unwrap_or(0))
    }

    pub(crate) fn shared(&mut self, place: usize) -> Frame {
        let group = &mut self.all[place];
        let text = &mut group.text;
        group.shared.get_or_insert_with(|| Frame::updates(std::mem::take(text))).clone()
    }

    /// Empties the buffers, and drops those of clients that have left.
    pub(crate) fn clear(&mut self, is_here: impl Fn(ClientId) -> bool) {
        let count = self.all.len();
        self.all.retain(|group| match group.kind {
            EncoderKey::Shared { .. } => true,
            EncoderKey::PerClient(client) => is_here(client),
        });
        self.order += u64::from(self.all.len() != count);
        for group in &mut self.all {
            group.text.clear();
            group.shared = None;
        }
    }
}

impl SessionMachine {
    /// Encodes one change for all live subscribers. `line` is the agent's line that made it.
    pub(super) fn broadcast(&mut self, change: &Change, line: Option<&AgentLine<'_>>) {
        // All v1 clients get the replacement under one alias.
        let mut alias = None;
        let ids = &mut self.ids;
        let mut mint = || alias.get_or_insert_with(|| ids.new_id()).clone();
        let room = std::mem::take(&mut self.buffers.passed);
        let (from, transcript) = (self.decoder.dialect(), self.session.transcript());
        let mut broadcast = Broadcast::new(&self.id, from, transcript, change, line, room);
        self.buffers.rounds += 1;
        let round = self.buffers.rounds;
        for subscriber in self.subscribers.values_mut().filter(|subscriber| subscriber.is_live()) {
            let place = subscriber.group(&mut self.buffers);
            let group = &mut self.buffers.all[place];
            if group.last_round == round {
                continue;
            }
            group.last_round = round;
            let wants_seq = subscriber.client.wants_seq;
            let encoder = group.encoder.as_mut().unwrap_or(&mut subscriber.encoder);
            encoder.broadcast(&mut broadcast, wants_seq, &mut mint, &mut self.losses, &mut group.text);
        }
        self.buffers.passed = broadcast.into_buffer();
        if let Some(alias) = alias {
            self.add_alias(alias, &change.update);
        }
    }

    /// Broadcasts an update that is not stored.
    pub(super) fn broadcast_unstored(&mut self, update: Update, line: Option<&AgentLine<'_>>) {
        let seq = self.session.transcript().seq();
        self.broadcast(&Change { seq, created: 0, update, meta_before: None }, line);
    }

    /// Sends something to one client, after everything that it was sent so far.
    pub(super) fn send(&mut self, client: ClientId, frame: impl Into<Outgoing>) {
        self.send_at(client, frame, None);
    }

    pub(super) fn send_at(
        &mut self,
        client: ClientId,
        frame: impl Into<Outgoing>,
        offsets: Option<&BufferOffsets>,
    ) {
        let seq = self.session.transcript().seq();
        let Some(subscriber) = self.subscribers.get_mut(&client) else { return };
        let place = if subscriber.is_live() { self.buffers.place(&subscriber.client, offsets) } else { 0 };
        subscriber.send(frame.into(), place, seq);
    }

    /// Sends the last frame of the session to a client that closes it.
    pub(super) fn send_last(&mut self, client: ClientId, frame: Frame, offsets: Option<&BufferOffsets>) {
        let seq = self.session.transcript().seq();
        let Some(subscriber) = self.subscribers.get_mut(&client) else { return };
        let place = if subscriber.is_live() { self.buffers.place(&subscriber.client, offsets) } else { 0 };
        subscriber.send_last(frame, place, seq);
    }

    /// Moves the buffers to the output, with the frames of single clients in their places.
    pub(super) fn flush(&mut self) {
        for subscriber in self.subscribers.values_mut() {
            subscriber.flush(&mut self.buffers, &mut self.output.sends);
        }
        self.buffers.clear(|client| self.subscribers.contains_key(&client));
        self.output
            .sends
            .extend(self.unattached_responses.drain(..).map(|(client, frame)| Delivery::new(client, frame)));
    }

    /// Sends a frame to a client that may not be attached.
    pub(super) fn send_unattached(&mut self, client: ClientId, frame: Frame) {
        self.output.sends.push(Delivery::new(client, frame));
    }
}
