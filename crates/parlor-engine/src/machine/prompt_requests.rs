//! The requests of clients that are answered with the outcomes of prompts.

use std::collections::{BTreeMap, HashMap, HashSet};

use parlor_session::session::{ClientId, PromptId};
use parlor_wire::RequestId;

/// What a `_session/steering` of a client wants if no turn is running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IdleBehavior {
    /// A new turn.
    StartTurn,
    /// Nothing: the client sends the prompt again.
    PromptRequired,
}

/// The prompts of a session that have no outcome yet, with the requests that wait for it.
#[derive(Debug)]
pub(super) struct PromptRequests {
    next: PromptId,
    open: BTreeMap<PromptId, (ClientId, RequestId)>,
    /// Prompts that have no request: the transcript records their failures.
    without_request: HashSet<PromptId>,
    /// The prompts that clients sent with `_session/steering`. They stay when the client leaves.
    steering: HashMap<PromptId, IdleBehavior>,
}

impl PromptRequests {
    /// `last` is the last prompt that has an id.
    pub(super) fn new(last: PromptId) -> Self {
        Self {
            next: PromptId(last.0 + 1),
            open: BTreeMap::new(),
            without_request: HashSet::new(),
            steering: HashMap::new(),
        }
    }

    fn new_id(&mut self) -> PromptId {
        let id = self.next;
        self.next.0 += 1;
        id
    }

    /// A prompt whose outcome answers a `session/prompt`.
    pub(super) fn add(&mut self, client: ClientId, request: RequestId) -> PromptId {
        let prompt = self.new_id();
        self.open.insert(prompt, (client, request));
        prompt
    }

    /// A prompt whose outcome answers a `_session/steering`.
    pub(super) fn add_steering(
        &mut self,
        client: ClientId,
        request: RequestId,
        behavior: IdleBehavior,
    ) -> PromptId {
        let prompt = self.add(client, request);
        self.steering.insert(prompt, behavior);
        prompt
    }

    /// A prompt without a request.
    pub(super) fn add_without_request(&mut self) -> PromptId {
        let prompt = self.new_id();
        self.without_request.insert(prompt);
        prompt
    }

    pub(super) fn is_without_request(&self, prompt: PromptId) -> bool {
        self.without_request.contains(&prompt)
    }

    /// How many requests are open.
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// The prompt of a client's request.
    pub(super) fn find(&self, client: ClientId, request: &RequestId) -> Option<PromptId> {
        let is_it = |(_, (by, id)): &(&PromptId, &(ClientId, RequestId))| *by == client && id == request;
        self.open.iter().find(is_it).map(|(prompt, _)| *prompt)
    }

    /// The prompts of a client with their requests, in the order in which they were sent.
    pub(super) fn of(&self, client: ClientId) -> impl Iterator<Item = (PromptId, &RequestId)> {
        self.open.iter().filter(move |(_, (by, _))| *by == client).map(|(prompt, (_, id))| (*prompt, id))
    }

    /// Takes a prompt that has its outcome, which answers this client.
    pub(super) fn take(&mut self, prompt: PromptId, by: ClientId) -> TakenPrompt {
        let request = if by == ClientId::UNKNOWN { None } else { self.open.remove(&prompt) };
        TakenPrompt {
            request: request.filter(|(client, _)| *client == by).map(|(_, id)| id),
            is_without_request: self.without_request.remove(&prompt) || by == ClientId::UNKNOWN,
            is_steering: self.steering.remove(&prompt).is_some(),
        }
    }

    /// Takes the request of a prompt that was sent with `_session/steering`, and which may get its outcome later.
    pub(super) fn take_steering(&mut self, prompt: PromptId) -> Option<(ClientId, RequestId)> {
        self.steering.remove(&prompt)?;
        self.open.remove(&prompt)
    }

    /// What a `_session/steering` wants if no turn is running.
    pub(super) fn idle_behavior(&self, prompt: PromptId) -> Option<IdleBehavior> {
        self.steering.get(&prompt).copied()
    }

    /// The prompts that clients want in the running turn and in no other, in the order in which they were sent.
    pub(super) fn for_this_turn_only(&self) -> Vec<PromptId> {
        let only = self.steering.iter().filter(|(_, behavior)| **behavior == IdleBehavior::PromptRequired);
        let mut prompts: Vec<_> = only.map(|(prompt, _)| *prompt).collect();
        prompts.sort_unstable();
        prompts
    }

    /// A client has left: nobody waits for its requests.
    pub(super) fn remove_client(&mut self, client: ClientId) {
        self.open.retain(|_, (by, _)| *by != client);
    }
}

/// A prompt with its outcome.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TakenPrompt {
    /// The request that the outcome answers, unless its client has left.
    pub(super) request: Option<RequestId>,
    /// Whether it never had a request, at least none since the server started.
    pub(super) is_without_request: bool,
    /// Whether it was sent with `_session/steering`.
    pub(super) is_steering: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: ClientId = ClientId(1);
    const OTHER: ClientId = ClientId(2);

    fn id(number: u64) -> RequestId {
        RequestId::from(number)
    }

    #[test]
    fn prompts_are_numbered_after_the_last_stored_one() {
        let mut requests = PromptRequests::new(PromptId(4));
        let added = [requests.add(CLIENT, id(1)), requests.add_without_request()];
        assert_eq!(added, [PromptId(5), PromptId(6)]);
        assert_eq!(requests.len(), 1, "the second has no request");
    }

    #[test]
    fn a_request_is_found_by_its_client_and_id() {
        let mut requests = PromptRequests::new(PromptId(0));
        let first = requests.add(CLIENT, id(1));
        let second = requests.add(OTHER, id(1));
        assert_eq!(requests.find(CLIENT, &id(1)), Some(first));
        assert_eq!(requests.find(OTHER, &id(1)), Some(second));
        assert_eq!(requests.find(OTHER, &id(2)), None);
        assert_eq!(requests.of(OTHER).collect::<Vec<_>>(), [(second, &id(1))]);
    }

    #[test]
    fn a_prompt_is_taken_once() {
        let mut requests = PromptRequests::new(PromptId(0));
        let prompt = requests.add(CLIENT, id(1));
        let nothing = TakenPrompt { request: None, is_without_request: false, is_steering: false };
        assert_eq!(requests.take(prompt, CLIENT).request, Some(id(1)));
        assert_eq!(requests.take(prompt, CLIENT), nothing);
        let prompt = requests.add_without_request();
        assert!(requests.take(prompt, CLIENT).is_without_request);
        assert_eq!(requests.take(prompt, CLIENT), nothing);
        assert!(
            requests.take(prompt, ClientId::UNKNOWN).is_without_request,
            "it was sent to an earlier server"
        );
    }

    #[test]
    fn a_steering_of_a_client_that_left_keeps_what_it_wants() {
        let mut requests = PromptRequests::new(PromptId(0));
        let next = requests.add_steering(CLIENT, id(1), IdleBehavior::StartTurn);
        let only = requests.add_steering(CLIENT, id(2), IdleBehavior::PromptRequired);
        requests.remove_client(CLIENT);
        assert_eq!(requests.len(), 0);
        assert_eq!(requests.for_this_turn_only(), [only]);
        assert_eq!(requests.idle_behavior(next), Some(IdleBehavior::StartTurn));
        assert_eq!(requests.take_steering(only), None, "nobody waits");
        assert_eq!(requests.for_this_turn_only(), []);
    }
}
