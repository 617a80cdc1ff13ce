//! The open requests of the agent, and which clients were sent them.

use std::collections::BTreeMap;

use parlor_dialect::live;
use parlor_json::{Json, Object};
use parlor_session::Decider;
use parlor_session::session::{ClientId, PeerRequestId};
use parlor_wire::{RequestId, RpcError, code};

use crate::ClientRequestId;

/// A request of the agent to all drivers or to one client.
#[derive(Debug)]
pub(super) struct PeerRequest {
    /// The agent's id for it.
    pub(super) id: RequestId,
    pub(super) method: String,
    pub(super) params: Object,
    /// The clients that were sent it and have not answered.
    pub(super) clients: BTreeMap<ClientId, ClientRequestId>,
    /// Whether it is sent to one client, and any answer is forwarded unchanged.
    pub(super) is_forwarded: bool,
    /// When the agent sent it.
    pub(super) opened_at: i64,
    /// The client that answered it without having been sent it.
    pub(super) decided_by: Option<Decider>,
    /// Whether only a client can answer it, and not the server in place of the client.
    pub(super) is_client_only: bool,
}

impl PeerRequest {
    pub(super) fn new(id: RequestId, method: String, params: Object, opened_at: i64) -> Self {
        Self {
            id,
            method,
            params,
            clients: BTreeMap::new(),
            is_forwarded: false,
            opened_at,
            decided_by: None,
            is_client_only: false,
        }
    }

    /// Whether this is an elicitation that no client could show.
    pub(super) fn is_form_without_client(&self, error: &Json) -> bool {
        self.method == "elicitation/create" && *error == cannot_ask()
    }
}

/// The open requests of the agent.
#[derive(Debug, Default)]
pub(super) struct PeerRequests {
    open: BTreeMap<PeerRequestId, PeerRequest>,
    next: u64,
    /// The number of the next sending of a request to a client.
    next_sending: u64,
    /// The open requests that were last reported in an output, with the numbers of their clients.
    reported: Vec<(PeerRequestId, usize)>,
}

impl PeerRequests {
    pub(super) fn add(&mut self, request: PeerRequest) -> PeerRequestId {
        let id = PeerRequestId(self.next);
        self.next += 1;
        self.open.insert(id, request);
        id
    }

    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    pub(super) fn get(&self, id: PeerRequestId) -> Option<&PeerRequest> {
        self.open.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: PeerRequestId) -> Option<&mut PeerRequest> {
        self.open.get_mut(&id)
    }

    pub(super) fn remove(&mut self, id: PeerRequestId) -> Option<PeerRequest> {
        self.open.remove(&id)
    }

    /// The request that the agent knows by this id.
    pub(super) fn find(&self, agents: &RequestId) -> Option<(PeerRequestId, &PeerRequest)> {
        self.open.iter().find(|(_, request)| request.id == *agents).map(|(id, request)| (*id, request))
    }

    /// The requests that any driver may answer.
    pub(super) fn for_drivers(&self) -> impl Iterator<Item = (PeerRequestId, &PeerRequest)> {
        self.open.iter().filter(|(_, request)| !request.is_forwarded).map(|(id, request)| (*id, request))
    }

    /// The requests that were sent to one client each.
    pub(super) fn forwarded(&self) -> Vec<PeerRequestId> {
        self.open.iter().filter(|(_, request)| request.is_forwarded).map(|(id, _)| *id).collect()
    }

    /// The requests that only this client was sent.
    pub(super) fn forwarded_to(&self, client: ClientId) -> Vec<PeerRequestId> {
        let is_its = |request: &PeerRequest| request.is_forwarded && request.clients.contains_key(&client);
        self.open.iter().filter(|(_, request)| is_its(request)).map(|(id, _)| *id).collect()
    }

    /// Whether a client was sent a request and has not answered this sending.
    pub(super) fn is_asking(&self, request: ClientRequestId, client: ClientId) -> bool {
        self.get(request.peer_request).is_some_and(|open| open.clients.get(&client) == Some(&request))
    }

    /// A client is sent a request: the id of this sending.
    pub(super) fn on_sent(&mut self, id: PeerRequestId, client: ClientId) -> ClientRequestId {
        let sending = ClientRequestId { peer_request: id, sending: self.next_sending };
        self.next_sending += 1;
        if let Some(request) = self.open.get_mut(&id) {
            request.clients.insert(client, sending);
        }
        sending
    }

    /// Takes the sending of a request to a client, which has answered or is not asked any more.
    pub(super) fn take_sending(&mut self, id: PeerRequestId, client: ClientId) -> Option<ClientRequestId> {
        self.open.get_mut(&id)?.clients.remove(&client)
    }

    /// Whether the open requests or the numbers of their clients are others than the last reported ones, which they become.
    pub(super) fn report(&mut self, open: Vec<(PeerRequestId, usize)>) -> bool {
        let has_changed = open != self.reported;
        self.reported = open;
        has_changed
    }
}

/// The answer for a client that cannot be sent a request.
pub fn cannot_ask() -> Json {
    RpcError::new(code::METHOD_NOT_FOUND, "the client does not support this request").to_json()
}

/// Whether a client leaves a request open with its error.
pub(super) fn is_left_open(error: &Json) -> bool {
    let data = error.to_object().and_then(|error| error.get_object("data"));
    data.and_then(|data| data.get_string("reason")).as_deref() == Some(live::LEFT_OPEN)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ClientId = ClientId(1);
    const B: ClientId = ClientId(2);

    fn request(id: u64) -> PeerRequest {
        PeerRequest::new(id.into(), "session/request_permission".to_owned(), Object::default(), 0)
    }

    #[test]
    fn a_sending_is_answered_once_and_only_by_its_client() {
        let mut requests = PeerRequests::default();
        let id = requests.add(request(7));
        let sent = requests.on_sent(id, A);
        assert!(requests.is_asking(sent, A) && !requests.is_asking(sent, B));
        assert_eq!(requests.take_sending(id, A), Some(sent));
        assert_eq!(requests.take_sending(id, A), None);
        let again = requests.on_sent(id, A);
        assert!(!requests.is_asking(sent, A), "an answer to the earlier sending does not count");
        assert!(requests.is_asking(again, A));
    }

    #[test]
    fn requests_for_one_client_are_not_for_drivers() {
        let mut requests = PeerRequests::default();
        let all = requests.add(request(7));
        let one = requests.add(PeerRequest { is_forwarded: true, ..request(8) });
        requests.on_sent(all, A);
        requests.on_sent(one, A);
        assert_eq!(requests.for_drivers().map(|(id, _)| id).collect::<Vec<_>>(), [all]);
        assert_eq!(requests.forwarded(), [one]);
        assert_eq!(requests.forwarded_to(A), [one]);
        assert_eq!(requests.forwarded_to(B), []);
        assert_eq!(requests.find(&8_u64.into()).map(|(id, _)| id), Some(one));
    }

    #[test]
    fn open_requests_are_reported_when_they_change() {
        let mut requests = PeerRequests::default();
        let id = requests.add(request(7));
        assert!(requests.report(vec![(id, 0)]));
        assert!(!requests.report(vec![(id, 0)]));
        assert!(requests.report(vec![(id, 1)]), "another client has it");
        assert!(!requests.report(vec![(id, 1)]));
        assert!(requests.report(Vec::new()));
    }
}
