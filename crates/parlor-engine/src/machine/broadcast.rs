//! Changes encoded for all live subscribers, once for all that receive the same bytes.

use parlor_dialect::Dialect;
use parlor_dialect::live::{AgentLine, Broadcast, UpdateEncoder};
use parlor_session::session::ClientId;
use parlor_session::{Change, Update};

use super::SessionMachine;
use super::subscriber::FramePosition;
use crate::{ClientInfo, Delivery, Frame, Outgoing};

/// Identifies the subscribers that receive the same bytes, and so share a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EncoderKey {
    /// v2 or its draft, with the number of each change or without, and with events or without.
    Shared { dialect: Dialect, wants_seq: bool, wants_events: bool },
    /// v1: what is sent depends on what the client has received.
    PerClient(ClientId),
}

/// The broadcasts of one batch: a buffer for all subscribers that receive the same bytes.
#[derive(Default)]
pub(crate) struct BroadcastBuffers {
    all: Vec<BroadcastBuffer>,
    /// Changes when buffers get other indices.
    order: u64,
    /// How many changes were broadcast.
    rounds: u64,
    /// The capacity for the agent's line with the session's ids, which is reused for every change.
    forwarded_line: String,
}

struct BroadcastBuffer {
    key: EncoderKey,
    text: String,
    shared: Option<Frame>,
    /// The encoder that the subscribers share; `None` if the subscriber has its own.
    encoder: Option<UpdateEncoder>,
    /// The last change that was encoded for this buffer, by its number.
    last_round: u64,
}

/// The length of each buffer at some time, by the index of the buffer.
#[derive(Default)]
pub(crate) struct BufferOffsets(Vec<usize>);

impl BroadcastBuffers {
    pub(crate) fn offsets(&self) -> BufferOffsets {
        BufferOffsets(self.all.iter().map(|buffer| buffer.text.len()).collect())
    }

    /// Until this changes, the indices of buffers stay the same.
    pub(crate) fn order(&self) -> u64 {
        self.order
    }

    /// The index of a client's buffer, which is created if it does not exist.
    pub(crate) fn of(&mut self, client: &ClientInfo) -> usize {
        let key = match client.dialect {
            Dialect::V1 => EncoderKey::PerClient(client.id),
            dialect @ (Dialect::V2 | Dialect::Draft) => {
                let ClientInfo { wants_seq, wants_events, .. } = *client;
                EncoderKey::Shared { dialect, wants_seq, wants_events }
            }
        };
        if let Some(index) = self.all.iter().position(|buffer| buffer.key == key) {
            return index;
        }
        let encoder = match key {
            EncoderKey::Shared { dialect, .. } => Some(UpdateEncoder::new(dialect, &client.initialize)),
            EncoderKey::PerClient(_) => None,
        };
        self.all.push(BroadcastBuffer { key, text: String::new(), shared: None, encoder, last_round: 0 });
        self.all.len() - 1
    }

    /// The offset of the end of a client's buffer, now or when `offsets` were taken.
    pub(crate) fn offset(&mut self, client: &ClientInfo, offsets: Option<&BufferOffsets>) -> usize {
        let index = self.of(client);
        // A buffer that did not exist then had no bytes.
        offsets.map_or(self.all[index].text.len(), |offsets| offsets.0.get(index).copied().unwrap_or(0))
    }

    /// Reserves memory for about this many bytes in each buffer.
    pub(crate) fn reserve(&mut self, bytes: usize) {
        for buffer in &mut self.all {
            buffer.text.reserve(bytes);
        }
    }

    /// The text of a buffer as one frame, which all of its subscribers share.
    pub(crate) fn shared(&mut self, index: usize) -> Frame {
        let buffer = &mut self.all[index];
        let text = &mut buffer.text;
        buffer.shared.get_or_insert_with(|| Frame::updates(std::mem::take(text))).clone()
    }

    /// Empties the buffers, and drops those of clients that are not attached any more.
    pub(crate) fn clear(&mut self, is_attached: impl Fn(ClientId) -> bool) {
        let count = self.all.len();
        self.all.retain(|buffer| match buffer.key {
            EncoderKey::Shared { .. } => true,
            EncoderKey::PerClient(client) => is_attached(client),
        });
        self.order += u64::from(self.all.len() != count);
        for buffer in &mut self.all {
            buffer.text.clear();
            buffer.shared = None;
        }
    }
}

impl SessionMachine {
    /// Encodes one change for all live subscribers. `line` is the agent's line that made it.
    pub(super) fn broadcast(&mut self, change: &Change, line: Option<&AgentLine<'_>>) {
        // All v1 clients get the replacement under one alias.
        let mut alias = None;
        let ids = &mut self.ids;
        let mut new_alias = || alias.get_or_insert_with(|| ids.new_id()).clone();
        let buffer = std::mem::take(&mut self.buffers.forwarded_line);
        let (from, transcript) = (self.decoder.dialect(), self.session.transcript());
        let mut broadcast = Broadcast::new(&self.id, from, transcript, change, line, buffer);
        self.buffers.rounds += 1;
        let round = self.buffers.rounds;
        for subscriber in self.subscribers.values_mut().filter(|subscriber| subscriber.is_live()) {
            let index = subscriber.buffer_index(&mut self.buffers);
            let buffer = &mut self.buffers.all[index];
            if buffer.last_round == round {
                continue;
            }
            buffer.last_round = round;
            let wants_seq = subscriber.client.wants_seq;
            let encoder = buffer.encoder.as_mut().unwrap_or(&mut subscriber.encoder);
            encoder.broadcast(&mut broadcast, wants_seq, &mut new_alias, &mut self.losses, &mut buffer.text);
        }
        self.buffers.forwarded_line = broadcast.into_buffer();
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

    /// Sends something to one client, after what it had been sent when `offsets` were taken; `None` is now.
    pub(super) fn send_at(
        &mut self,
        client: ClientId,
        frame: impl Into<Outgoing>,
        offsets: Option<&BufferOffsets>,
    ) {
        let position = self.position();
        let Some(subscriber) = self.subscribers.get_mut(&client) else { return };
        let offset = if subscriber.is_live() { self.buffers.offset(&subscriber.client, offsets) } else { 0 };
        subscriber.send(frame.into(), offset, position);
    }

    /// Sends the last frame of the session to a client that closes it.
    pub(super) fn send_last(&mut self, client: ClientId, frame: Frame, offsets: Option<&BufferOffsets>) {
        let position = self.position();
        let Some(subscriber) = self.subscribers.get_mut(&client) else { return };
        let offset = if subscriber.is_live() { self.buffers.offset(&subscriber.client, offsets) } else { 0 };
        subscriber.send_last(frame, offset, position);
    }

    /// The present position: after the last change, and in the batch that is being made.
    fn position(&self) -> FramePosition {
        FramePosition { seq: self.session.transcript().seq(), batch: self.rows.stored_batches + 1 }
    }

    /// Moves the buffers to the output, with the frames of single clients at their offsets.
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
