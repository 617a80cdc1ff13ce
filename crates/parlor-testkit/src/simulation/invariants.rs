//! What has to hold at every step.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use parlor_dialect::live;
use parlor_engine::rows::{Batch, Write};
use parlor_engine::stored::ALIASES;
use parlor_engine::{AgentEvent, Event, Output};
use parlor_session::session::{ClientId, Session};
use parlor_session::{SessionId, Transcript};

use super::agent::Receiver;
use super::ledger::PromptStage;
use super::tokens::tokens_in;
use super::world::World;

/// Something that must never be otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Invariant {
    /// No peer is sent anything that is not stored.
    StoredFirst,
    /// A subscriber that has read everything knows the stored conversation.
    Replicas,
    /// The stored rows are the live state.
    StoredState,
    /// Every request of a client gets exactly one response, and there is no other response.
    Responses,
    /// Every request of an agent gets exactly one answer; no client is sent one twice, or kept waiting with one that is over.
    PeerRequests,
    /// Every queue is within its limit.
    Limits,
    /// A fork is the beginning of its parent, up to where it was wanted.
    Forks,
    /// Events of an earlier epoch of an agent change nothing.
    Epochs,
    /// No prompt is lost.
    Prompts,
    /// The numbers of changes never go back, and no text is sent twice.
    Order,
    /// No batch is rejected by the store.
    Batches,
    /// The engine does not panic.
    Panics,
    /// The world comes to rest, and a cancelled turn ends in time.
    Rest,
}

impl Invariant {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::StoredFirst,
        Self::Replicas,
        Self::StoredState,
        Self::Responses,
        Self::PeerRequests,
        Self::Limits,
        Self::Forks,
        Self::Epochs,
        Self::Prompts,
        Self::Order,
        Self::Batches,
        Self::Panics,
        Self::Rest,
    ];
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::StoredFirst => "stored first",
            Self::Replicas => "replicas",
            Self::StoredState => "stored state",
            Self::Responses => "responses",
            Self::PeerRequests => "peer requests",
            Self::Limits => "limits",
            Self::Forks => "forks",
            Self::Epochs => "epochs",
            Self::Prompts => "prompts",
            Self::Order => "order",
            Self::Batches => "batches",
            Self::Panics => "panics",
            Self::Rest => "rest",
        })
    }
}

/// How many prompts may wait in one session.
const MAX_QUEUED: usize = 64;

impl World {
    /// A batch is committed.
    pub(super) fn check_batch(&mut self, batch: &Batch) {
        if let Some(token) = self.tokens.commit(batch) {
            self.fail(Invariant::Epochs, format!("the text «{token}» of an earlier agent is stored"));
        }
        self.check_forks(batch);
    }

    /// A client is sent updates.
    pub(super) fn check_client_was_sent_stored(&mut self, client: ClientId, text: &str) {
        if let Some(token) = tokens_in(text).find(|token| !self.tokens.may_be_sent(*token)) {
            let message = format!("client {} is sent «{token}», which is not stored: {text}", client.0);
            self.fail(Invariant::StoredFirst, message);
        }
    }

    /// An agent is sent a request.
    pub(super) fn check_agent_was_sent_stored(&mut self, session: &SessionId, text: &str) {
        if let Some(token) = tokens_in(text).find(|token| !self.tokens.may_be_sent(*token)) {
            let message = format!("the agent of {session} is sent «{token}», which is not stored: {text}");
            self.fail(Invariant::StoredFirst, message);
        }
    }

    /// A client is sent a response.
    pub(super) fn check_response(&mut self, client: ClientId, id: u64) {
        let Some(connection) = self.connections.get_mut(&client) else { return };
        match connection.made.get_mut(&id) {
            None => {
                let message =
                    format!("client {} gets a response to request {id}, which it did not make", client.0);
                self.fail(Invariant::Responses, message);
            }
            Some(made) if made.is_answered => {
                let message =
                    format!("client {} gets a second response to request {id} ({:?})", client.0, made.what);
                self.fail(Invariant::Responses, message);
            }
            Some(made) => made.is_answered = true,
        }
    }

    /// The batch of a session is stored: what the store has of it is its state.
    pub(super) fn check_stored_state(&mut self, key: &SessionId) {
        let Some(shell) = self.shells.get(key) else { return };
        let machine = &shell.machine;
        if machine.end().is_some() {
            return;
        }
        let Some(stored) = self.disk.open(key.as_json().as_literal()) else {
            if machine.transcript().seq() > 0 {
                self.fail(Invariant::StoredState, format!("{key} is live and not in the store"));
            }
            return;
        };
        let problem = if stored.transcript == *machine.transcript() {
            let again = Session::new(stored.transcript.clone(), live::HOOKS, stored.side_state.as_ref());
            let (stored, live) = (again.side_state(), machine.session().side_state());
            (stored != live)
                .then(|| format!("beside the transcript, {key} has\n{live:?}\nand stored\n{stored:?}"))
        } else {
            let (stored, live) = (&stored.transcript, machine.transcript());
            Some(format!("the transcript of {key} is stored as\n{stored:?}\nand is\n{live:?}"))
        };
        if let Some(problem) = problem {
            self.fail(Invariant::StoredState, problem);
        }
        let aliases = stored.aliases.unwrap_or_default();
        let sent = self.people.iter().filter_map(|person| person.aliases.get(key));
        if let Some(alias) = sent.flat_map(BTreeMap::keys).find(|alias| !aliases.contains(*alias)).cloned() {
            let message = format!("{key} has a message that was sent as {alias}, which is not stored");
            self.fail(Invariant::StoredState, message);
        }
        if stored.row.busy != self.shells[key].machine.row().busy {
            self.fail(Invariant::StoredState, format!("whether a turn runs in {key} is not stored"));
        }
    }

    /// A session has handled events.
    pub(super) fn check_queues(&mut self, key: &SessionId) {
        let Some(shell) = self.shells.get(key) else { return };
        let (sizes, limits) = (shell.machine.queues(), self.plan.config.limits);
        let subscribers = shell.machine.subscribers().count();
        for (name, size, limit) in [
            ("deferred calls", sizes.deferred_calls, limits.deferred_calls),
            ("waiting calls", sizes.waiting_calls, limits.waiting_calls),
            ("waiting forks", sizes.waiting_forks, limits.waiting_forks),
            ("queued prompts", sizes.queued_prompts, MAX_QUEUED),
            ("unsent bytes", sizes.unsent_bytes, limits.unsent_bytes),
            ("pending events", sizes.pending_events, limits.deferred_calls + 2 * subscribers + MAX_QUEUED),
        ] {
            if size > limit {
                self.fail(Invariant::Limits, format!("{key} has {size} {name}, the limit is {limit}"));
            }
        }
    }

    /// Whether events are all of earlier epochs of the agent, and the session has nothing else to do.
    pub(super) fn only_stale(&self, key: &SessionId, events: &[Event]) -> bool {
        let Some(shell) = self.shells.get(key) else { return false };
        let is_stale = |event: &Event| {
            matches!(event, Event::Agent(epoch, event) if *epoch < shell.machine.epoch()
                && !matches!(event, AgentEvent::Response(parlor_engine::AgentCall::Forwarded(_), _)))
        };
        !events.is_empty() && events.iter().all(is_stale) && !shell.machine.has_pending()
    }

    /// A session has handled events of earlier epochs of its agent only.
    pub(super) fn check_nothing_changed(&mut self, key: &SessionId, before: u64, output: &Output) {
        let Some(shell) = self.shells.get(key) else { return };
        let seq = shell.machine.transcript().seq();
        if seq != before {
            self.fail(Invariant::Epochs, format!("an event of an earlier agent changed {key}"));
        }
        // Whatever happens, words are handed to the search index in time, and clients that catch up get aliases.
        let is_due = |write: &&Write| {
            let is_alias = matches!(write, Write::Slot { name, .. } if name == ALIASES);
            is_alias || matches!(write, Write::Index { .. })
        };
        let writes: Vec<_> = output.batch.writes.iter().filter(|write| !is_due(write)).collect();
        if !writes.is_empty() {
            self.fail(Invariant::Epochs, format!("an event of an earlier agent made {key} store {writes:?}"));
        }
        if let Some((_, command)) = output.agent.first() {
            self.fail(Invariant::Epochs, format!("an event of an earlier agent made {key} want {command:?}"));
        }
    }

    /// Everything is delivered: every request of a client has its response.
    pub(super) fn check_all_answered(&mut self) {
        let mut problems = Vec::new();
        for (client, connection) in &self.connections {
            for (id, made) in connection.unanswered() {
                problems.push(format!(
                    "request {id} of client {} ({:?} in {:?}) has no response",
                    client.0, made.what, made.session
                ));
            }
        }
        if let Some(problem) = problems.pop() {
            self.fail(Invariant::Responses, problem);
        }
    }

    /// Everything is read: no client was left with a request that is over.
    pub(super) fn check_open_requests(&mut self) {
        let mut problem = None;
        for (client, connection) in &self.connections {
            for (id, request) in &connection.asked {
                let shell = self.shells.get(&request.session);
                let shell = shell.filter(|shell| shell.incarnation == request.incarnation);
                let is_known = shell.is_some_and(|shell| shell.requests.contains_key(&(*client, request.id)));
                let is_wanted = shell.is_some_and(|shell| shell.machine.is_asking(request.id, *client));
                // The session is gone: nobody is left who could cancel it.
                if shell.is_some() && !(is_known && is_wanted) {
                    problem = Some(format!(
                        "client {} still has request {id} ({}, {:?}) of {}, which is over",
                        client.0, request.method, request.id, request.session
                    ));
                }
            }
        }
        for (session, shell) in &self.shells {
            if !shell.machine.open_requests().eq(shell.open_requests.iter().copied()) {
                problem = Some(format!(
                    "{session} reports other open requests than it has: {:?}",
                    shell.open_requests
                ));
            }
        }
        if let Some(problem) = problem {
            self.fail(Invariant::PeerRequests, problem);
        }
    }

    /// Everything is answered: no request of an agent is left.
    pub(super) fn check_agents_answered(&mut self) {
        let mut problem = None;
        for (process, one) in self.processes.iter().enumerate().filter(|(_, one)| one.is_alive) {
            for (name, session) in &one.sessions {
                let Receiver::Session(link) = &session.receiver else { continue };
                let Some(shell) = self.shells.get(&link.session) else { continue };
                if shell.incarnation != link.incarnation || shell.machine.epoch() != link.epoch {
                    continue;
                }
                // A form waits for a client that can show it.
                let elicits = |client: ClientId| {
                    let connection = self.connections.get(&client);
                    connection.is_some_and(|connection| self.people[connection.person].plan.elicits)
                };
                let has_forms = shell.machine.session().drivers().any(elicits);
                let open = session.requests.iter().filter(|(_, request)| {
                    let is_open = request.answers == 0 && !request.is_excused;
                    let can_answer = has_forms || request.method != "elicitation/create";
                    is_open && can_answer && request.epoch == link.epoch
                });
                for (id, request) in open {
                    let drivers: Vec<_> = shell.machine.session().drivers().collect();
                    problem = Some(format!(
                        "request {id} ({}) of agent session {name} (process {process}, {}) has no answer; {:?}, {:?}",
                        request.method,
                        link.session,
                        drivers,
                        shell.machine.queues()
                    ));
                }
            }
        }
        if let Some(problem) = problem {
            self.fail(Invariant::PeerRequests, problem);
        }
    }

    /// Looks for every prompt that was promised not to be lost.
    pub(super) fn check_prompts(&mut self) {
        let mut problem = None;
        let sessions: BTreeSet<_> =
            self.ledger.prompts.values().map(|prompt| prompt.session.clone()).collect();
        for key in sessions {
            let Some(stored) = self.disk.open(key.as_json().as_literal()) else { continue };
            let said = tokens_of(&stored.transcript);
            problem = problem.or_else(|| self.steered_wrongly(&key, &stored.transcript));
            let session = Session::new(stored.transcript, live::HOOKS, stored.side_state.as_ref());
            let queued: BTreeSet<_> = session
                .queued_prompts()
                .iter()
                .flat_map(|held| tokens_in(&held.text).collect::<Vec<_>>())
                .collect();
            for (token, prompt) in self.ledger.prompts.iter().filter(|(_, prompt)| prompt.session == key) {
                let is_there = said.contains(token);
                let lost = match prompt.stage {
                    PromptStage::Accepted => !is_there,
                    PromptStage::Sent => {
                        let is_kept = is_there || queued.contains(token);
                        prompt.excuse.is_none() && self.tokens.is_stored(*token) && !is_kept
                    }
                    PromptStage::Refused => false,
                    PromptStage::GivenBack => {
                        if is_there || queued.contains(token) {
                            problem = Some(format!("the prompt «{token}» was given back and is in {key}"));
                        }
                        false
                    }
                };
                if lost {
                    problem =
                        Some(format!("the prompt «{token}» ({:?}) is not in {key} any more", prompt.stage));
                }
            }
        }
        if let Some(problem) = problem {
            self.fail(Invariant::Prompts, problem);
        }
    }
}

/// The marks in all entries.
pub(super) fn tokens_of(transcript: &Transcript) -> BTreeSet<u64> {
    let entries = transcript.entries().iter();
    entries.flat_map(|entry| tokens_in(entry.body().content.to_json().as_str()).collect::<Vec<_>>()).collect()
}
