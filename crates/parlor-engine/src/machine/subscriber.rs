//! A subscriber: what it has received, and what waits for it.

use std::collections::VecDeque;
use std::sync::Arc;

use parlor_dialect::live::UpdateEncoder;
use parlor_json::{Json, Object};
use parlor_session::{ReplayCursor, SessionId};
use parlor_wire::RequestId;

use super::broadcast::BroadcastBuffers;
use crate::{ClientInfo, Delivery, Frame, Outgoing, QueueLimits};

/// A client that is attached to the session.
pub(crate) struct Subscriber {
    pub(crate) client: Arc<ClientInfo>,
    /// How many bytes of replay it can be sent until it has read them.
    pub(crate) credit: usize,
    pub(crate) encoder: UpdateEncoder,
    pub(crate) state: SubscriberState,
    /// The index of its broadcast buffer, with the [order](BroadcastBuffers::order) of the buffers for which it holds.
    buffer_index: Option<(u64, usize)>,
    /// Frames for this client alone, with their offsets in the broadcast buffer.
    own: Vec<(usize, Outgoing)>,
    /// Frames for this client alone that follow the replay up to a change, and their bytes.
    later: VecDeque<Deferred>,
    later_bytes: usize,
    final_response: Option<FinalResponse>,
    limits: QueueLimits,
    /// The change after which it was first sent entries.
    pub(crate) since: u64,
    /// Whether it is attached only because it is attached to the owner of the session.
    pub(crate) follows_owner: bool,
    /// The session in which it is shown requests, if it is sent nothing else.
    pub(crate) shown_in: Option<SessionId>,
}

/// The place of a frame for one client in the session.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FramePosition {
    /// The last change before it.
    pub(crate) seq: u64,
    /// The number of the batch with the changes that it is about. Not every change of a session has a sequence number: a queued
    /// prompt that is withdrawn has none.
    pub(crate) batch: u64,
}

/// A frame for a client that catches up.
struct Deferred {
    frame: Outgoing,
    position: FramePosition,
}

/// The response to a client that closes the session.
struct FinalResponse {
    frame: Frame,
    /// Its offset in the broadcast buffer.
    offset: usize,
    /// A client that catches up is sent the changes up to it.
    position: FramePosition,
}

/// Whether a client receives changes as they happen.
pub(crate) enum SubscriberState {
    /// It was sent all changes.
    Live,
    /// It is sent what it missed.
    CatchingUp {
        /// The changes that it lacks.
        cursor: ReplayCursor,
        /// The requests that are answered after these.
        answers: Vec<AttachRequest>,
        /// Whether an event is due when it has read what was sent ([`Outgoing::AwaitDrain`]).
        waiting: bool,
    },
}

/// A request for a session that has no answer yet.
pub(crate) struct AttachRequest {
    pub(crate) id: RequestId,
    /// Whether the session has just begun.
    pub(crate) is_new: bool,
    /// Whether the client asked for no replay.
    pub(crate) is_blank: bool,
    /// Whether the client knows the session up to a change.
    pub(crate) is_resumed: bool,
    /// Keys for the metadata of the response.
    pub(crate) notes: Vec<(&'static str, Json)>,
    /// Further members of the response.
    pub(crate) members: Object,
}

impl Subscriber {
    pub(crate) fn new(
        client: Arc<ClientInfo>,
        cursor: ReplayCursor,
        answers: Vec<AttachRequest>,
        limits: QueueLimits,
    ) -> Self {
        let encoder = UpdateEncoder::new(client.dialect, &client.initialize);
        let state = SubscriberState::CatchingUp { cursor, answers, waiting: false };
        Self {
            client,
            credit: limits.catch_up_bytes,
            encoder,
            state,
            buffer_index: None,
            own: Vec::new(),
            later: VecDeque::new(),
            later_bytes: 0,
            final_response: None,
            limits,
            since: 0,
            follows_owner: false,
            shown_in: None,
        }
    }

    /// The index of the broadcast buffer of this client.
    pub(crate) fn buffer_index(&mut self, buffers: &mut BroadcastBuffers) -> usize {
        match self.buffer_index {
            Some((order, index)) if order == buffers.order() => index,
            Some(_) | None => {
                let index = buffers.of(&self.client);
                self.buffer_index = Some((buffers.order(), index));
                index
            }
        }
    }

    pub(crate) fn is_live(&self) -> bool {
        matches!(self.state, SubscriberState::Live)
    }

    /// Sends something to this client alone, after everything that it was sent so far, or at an earlier offset of the
    /// broadcast buffer.
    pub(crate) fn send(&mut self, frame: Outgoing, offset: usize, position: FramePosition) {
        match self.state {
            SubscriberState::Live => self.own.push((offset, frame)),
            SubscriberState::CatchingUp { .. } => self.defer(Deferred { frame, position }),
        }
    }

    /// Queues a frame until the client has caught up. If too many bytes wait, they are dropped and the client is disconnected.
    fn defer(&mut self, deferred: Deferred) {
        self.later_bytes += deferred.frame.len();
        if self.overflows() {
            self.later.clear();
        } else {
            self.later.push_back(deferred);
        }
    }

    /// Whether too much waits for the client: it is to be disconnected.
    pub(crate) fn overflows(&self) -> bool {
        self.later_bytes > self.limits.unsent_bytes
    }

    /// How many bytes wait for the client.
    pub(crate) fn unsent_bytes(&self) -> usize {
        self.later.iter().map(|deferred| deferred.frame.len()).sum()
    }

    /// Sends the last frame: after all other frames of this client, and nothing follows it.
    pub(crate) fn send_last(&mut self, frame: Frame, offset: usize, position: FramePosition) {
        self.final_response = Some(FinalResponse { frame, offset, position });
    }

    /// The last change that a client is sent before it is detached, if it closes the session.
    pub(crate) fn closes_after(&self) -> Option<u64> {
        self.final_response.as_ref().map(|response| response.position.seq)
    }

    /// Adds the broadcast buffer to `sends`, with the client's own frames at their offsets.
    pub(crate) fn flush(&mut self, buffers: &mut BroadcastBuffers, sends: &mut Vec<Delivery>) {
        if !self.is_live() {
            return;
        }
        let id = self.client.id;
        let index = self.buffer_index(buffers);
        if self.own.is_empty() && self.final_response.is_none() {
            sends.push(Delivery::new(id, buffers.shared(index)));
            return;
        }
        let all = buffers.shared(index);
        let end = self.final_response.as_ref().map_or(all.len(), |response| response.offset);
        // A response may belong before updates that were encoded earlier.
        self.own.sort_by_key(|(offset, _)| *offset);
        let mut at = 0;
        for (offset, frame) in self.own.drain(..) {
            let offset = offset.min(end);
            sends.extend([Delivery::new(id, all.slice(at..offset)), Delivery::new(id, frame)]);
            at = offset;
        }
        sends.push(Delivery::new(id, all.slice(at..end)));
        sends.extend(self.final_response.as_ref().map(|response| Delivery::new(id, response.frame.clone())));
    }

    /// The client attaches again without a replay: it continues where it is. One that catches up is answered when it has; the
    /// request of a live one is returned, because it can be answered now.
    pub(crate) fn reattach(&mut self, again: AttachRequest) -> Option<AttachRequest> {
        match &mut self.state {
            SubscriberState::Live => Some(again),
            SubscriberState::CatchingUp { answers, .. } => {
                answers.push(again);
                None
            }
        }
    }

    /// The requests for the session that have no answer yet.
    pub(crate) fn take_open_requests(&mut self) -> Vec<AttachRequest> {
        match &mut self.state {
            SubscriberState::CatchingUp { answers, .. } => std::mem::take(answers),
            SubscriberState::Live => Vec::new(),
        }
    }

    /// Takes the frames that were not sent, when the store has so many batches.
    pub(crate) fn take_unsent(&mut self, stored_batches: u64) -> Vec<Delivery> {
        let id = self.client.id;
        let own: Vec<_> = self.own.drain(..).map(|(_, frame)| Delivery::new(id, frame)).collect();
        let mut unsent = self.take_due(u64::MAX, stored_batches);
        unsent.extend(own);
        unsent.extend(self.take_final_response(stored_batches));
        unsent
    }

    /// Takes the frames that follow the replay up to a change, when the store has so many batches.
    pub(crate) fn take_due(&mut self, through: u64, stored_batches: u64) -> Vec<Delivery> {
        let id = self.client.id;
        let count = self.later.iter().take_while(|deferred| deferred.position.seq <= through).count();
        let due = self.later.drain(..count).map(|Deferred { frame, position }| Delivery {
            is_stored: position.batch <= stored_batches,
            ..Delivery::new(id, frame)
        });
        let due: Vec<_> = due.collect();
        self.later_bytes -= due.iter().map(|delivery| delivery.what.len()).sum::<usize>();
        due
    }

    /// Takes everything that is left of a client that catches up, with the last frame.
    pub(crate) fn take_remaining(&mut self, stored_batches: u64) -> Vec<Delivery> {
        let mut last = self.take_due(u64::MAX, stored_batches);
        last.extend(self.take_final_response(stored_batches));
        last
    }

    fn take_final_response(&mut self, stored_batches: u64) -> Option<Delivery> {
        let FinalResponse { frame, position, .. } = self.final_response.take()?;
        Some(Delivery { is_stored: position.batch <= stored_batches, ..Delivery::new(self.client.id, frame) })
    }
}
