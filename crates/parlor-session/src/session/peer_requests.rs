//! Peer requests: requests of the agent that clients answer.

use std::collections::BTreeMap;

use parlor_json::Json;

use crate::ToolCallId;

use super::{Client, ClientId, Effect, Step};

/// Identifies a peer request in its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerRequestId(pub u64);

/// A client's answer to a peer request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// A result.
    Result(Json),
    /// An error: the client cannot answer.
    Error(Json),
    /// The client cannot answer, and the request waits for other clients, also for such that are not attached.
    LeftOpen,
}

/// The response to the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// A client's result.
    Result(Json),
    /// No client could answer; the error of the last one.
    Error(Json),
    /// The request was cancelled with its turn.
    Cancelled,
    /// The agent cancelled the request itself.
    CancelledByAgent,
    /// The agent was lost: no response is sent.
    AgentLost,
}

/// The peer requests without a response.
#[derive(Debug, Clone, Default)]
pub(super) struct PeerRequests(BTreeMap<PeerRequestId, PeerRequest>);

#[derive(Debug, Clone)]
struct PeerRequest {
    form: bool,
    /// The tool call that it requests permission for.
    call: Option<ToolCallId>,
    /// Clients that have it and have not answered.
    pending: Vec<ClientId>,
    /// Attached clients that answered with an error.
    failed: Vec<ClientId>,
    /// The last error.
    error: Option<Json>,
    /// Whether a client left it open, so that errors of the others do not end it.
    is_left_open: bool,
}

impl PeerRequests {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The tool calls with an open permission request.
    pub(super) fn tool_calls(&self) -> impl Iterator<Item = ToolCallId> + '_ {
        self.0.values().filter_map(|peer_request| peer_request.call.clone())
    }

    /// Sends a request to all clients that can answer it; returns whether it waits for an answer.
    pub(super) fn open(
        &mut self,
        id: PeerRequestId,
        form: bool,
        call: Option<ToolCallId>,
        clients: &BTreeMap<ClientId, Client>,
        out: &mut Step,
    ) -> bool {
        let can = |client: &Client| client.is_driver && (!form || client.can_elicit);
        let pending: Vec<_> = clients.iter().filter(|(_, client)| can(client)).map(|(id, _)| *id).collect();
        if form && pending.is_empty() {
            out.effects.push(Effect::RespondRequest(id, Reply::Cancelled));
            return false;
        }
        out.effects.extend(pending.iter().map(|client| Effect::SendRequest(id, *client)));
        self.0.insert(
            id,
            PeerRequest { form, call, pending, failed: Vec::new(), error: None, is_left_open: false },
        );
        true
    }

    /// Sends the open requests to a client that attached. A client that attaches again is not sent a request twice.
    pub(super) fn on_attached(&mut self, id: ClientId, client: &Client, out: &mut Step) {
        for (peer_request, open) in &mut self.0 {
            if (!open.form || client.can_elicit) && !open.pending.contains(&id) {
                open.failed.retain(|failed| *failed != id);
                open.pending.push(id);
                out.effects.push(Effect::SendRequest(*peer_request, id));
            }
        }
    }

    /// Handles a detached client. If all remaining clients answered with errors, the request fails.
    pub(super) fn on_detached(&mut self, id: ClientId, out: &mut Step) {
        let mut to_end = Vec::new();
        for (peer_request, open) in &mut self.0 {
            open.pending.retain(|pending| *pending != id);
            open.failed.retain(|failed| *failed != id);
            if open.pending.is_empty() && !open.failed.is_empty() && !open.is_left_open {
                to_end.extend(open.error.take().map(|error| (*peer_request, error)));
            }
        }
        to_end.into_iter().for_each(|(id, error)| self.end(id, Reply::Error(error), out));
    }

    /// Handles a client that closed the session and stays connected.
    pub(super) fn on_closed(&mut self, id: ClientId, out: &mut Step) {
        let pending = self.0.iter().filter(|(_, open)| open.pending.contains(&id));
        out.effects.extend(pending.map(|(peer_request, _)| Effect::CancelClientRequest(*peer_request, id)));
        self.on_detached(id, out);
    }

    /// Handles an answer: the first result counts; an error counts if no other client can answer and none left it open.
    pub(super) fn on_answer(&mut self, id: PeerRequestId, by: ClientId, answer: Answer, out: &mut Step) {
        let Some(open) = self.0.get_mut(&id) else { return };
        let Some(index) = open.pending.iter().position(|pending| *pending == by) else { return };
        open.pending.remove(index);
        match answer {
            Answer::Result(result) => self.decide(id, by, result, out),
            Answer::Error(error) if open.pending.is_empty() && !open.is_left_open => {
                self.end(id, Reply::Error(error), out);
            }
            Answer::Error(error) => {
                open.failed.push(by);
                open.error = Some(error);
            }
            Answer::LeftOpen => open.is_left_open = true,
        }
    }

    /// Ends a request with a result of a client, which need not have been sent the request. The decision is recorded.
    pub(super) fn decide(&mut self, id: PeerRequestId, by: ClientId, result: Json, out: &mut Step) {
        if !self.0.contains_key(&id) {
            return;
        }
        out.durable = true;
        out.effects.push(Effect::RecordDecision { peer_request: id, by, result: result.clone() });
        self.end(id, Reply::Result(result), out);
    }

    /// Ends a request and cancels it at the clients that have it.
    pub(super) fn end(&mut self, id: PeerRequestId, reply: Reply, out: &mut Step) {
        let Some(open) = self.0.remove(&id) else { return };
        out.effects.extend(open.pending.into_iter().map(|client| Effect::CancelClientRequest(id, client)));
        out.effects.push(Effect::RespondRequest(id, reply));
    }

    pub(super) fn end_all(&mut self, reply: &Reply, out: &mut Step) {
        let open: Vec<_> = self.0.keys().copied().collect();
        open.into_iter().for_each(|id| self.end(id, reply.clone(), out));
    }
}
