//! The prompts of a session: the clients that wait for them, withdrawal, keys, and what is stored.

use std::collections::VecDeque;

use parlor_json::{Json, JsonRef, JsonStr, Object};

use super::{ClientId, Clients, Effect, PromptTiming, Scope, Step, blocks};
use crate::stored::{read_state, state_object};
use crate::turns::{OpenPrompt, OpenPrompts, PromptId, PromptState};
use crate::{Activity, MessageId, State, UpdateError};

/// A prompt of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompt {
    /// Unique in the session.
    pub id: PromptId,
    /// The client that sent it.
    pub by: ClientId,
    /// Its content: an array of blocks.
    pub content: Json,
    /// The other members of the request.
    pub extra: Object,
    /// The idempotency key: a second prompt with the same key is the same prompt.
    pub key: Option<JsonStr>,
    /// When the agent is to get it.
    pub timing: PromptTiming,
}

/// A queued prompt, for display.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuedPrompt {
    /// The prompt's id.
    pub id: PromptId,
    /// Its text.
    pub text: String,
    /// The client that sent it.
    pub by: ClientId,
}

impl QueuedPrompt {
    /// The prompts that were queued when a session was stored, by the state beside its transcript.
    pub fn stored_in(side_state: &Object) -> Vec<Self> {
        Prompts::restored(Some(side_state)).queued_prompts()
    }
}

/// The outcome of a prompt, for the clients that wait for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PromptOutcome {
    /// It is in the transcript.
    Accepted {
        /// Its message.
        message: MessageId,
        /// The other members of the agent's response.
        fields: Object,
    },
    /// Its turn has ended.
    Ended {
        /// Its message.
        message: MessageId,
        /// The state at the end.
        state: State,
        /// The other members of the agent's response.
        fields: Object,
    },
    /// It was withdrawn before it was inserted, or its sender closed the session before its turn ended.
    Withdrawn {
        /// The client that withdrew it, if known.
        by: Option<ClientId>,
    },
    /// The agent rejected it.
    Rejected {
        /// The agent's error object.
        error: Json,
        /// The client that withdrew it before, if any.
        by: Option<ClientId>,
    },
    /// Every agent was lost before it accepted the prompt; the state in which the last one left the session.
    Failed(State),
    /// Too many prompts are queued.
    TooMany {
        /// The limit.
        limit: usize,
    },
    /// The transcript cannot take it.
    NoRoom(UpdateError),
}

/// A prompt whose turn has not ended.
pub(super) type Open = OpenPrompt<SessionPrompt>;

/// The data that a session keeps with an open prompt.
#[derive(Debug, Clone)]
pub(super) struct SessionPrompt {
    pub(super) prompt: Prompt,
    /// The last change before it was sent to the agent.
    pub(super) sent_after: u64,
    /// The clients without a response: its sender, and those that sent it again.
    waiters: Vec<Waiter>,
    /// The client that withdrew it after it was sent to the agent.
    pub(super) withdrawn: Option<ClientId>,
    /// Whether a turn was cancelled while the agent had this prompt, which was not withdrawn: if the agent drops it, before or
    /// after it reports the end of the turn, it is sent again.
    pub(super) spared: bool,
    /// The number of agents that were lost before they accepted it.
    lost_agents: u8,
}

/// A client that waits for the outcome of a prompt.
#[derive(Debug, Clone, Copy)]
struct Waiter {
    id: PromptId,
    by: ClientId,
    /// Whether it is answered at the end of the turn.
    waits: bool,
}

/// The outcome of a prompt that had a key.
#[derive(Debug, Clone)]
struct RecentKey {
    key: JsonStr,
    /// Its message; `None` if it was withdrawn.
    message: Option<MessageId>,
    /// The state that ended its turn, if it has ended.
    ended: Option<State>,
}

/// The prompts whose turn has not ended, in the order of their arrival, and the outcome of recent prompts with a key.
#[derive(Debug, Clone, Default)]
pub(super) struct Prompts {
    /// The progress of each prompt.
    pub(super) open: OpenPrompts<SessionPrompt>,
    recent: VecDeque<RecentKey>,
    /// The greatest prompt id of the session so far, so that ids are never reused.
    last_id: u64,
}

/// Maximum number of waiting prompts in a session, and of clients that wait for one prompt.
const MAX_QUEUED: usize = 64;

/// Maximum number of keys that are remembered.
const MAX_KEYS: usize = 256;

/// The number of agents lost before accepting it after which a prompt fails.
const MAX_LOST_AGENTS: u8 = 2;

const QUEUE: &str = "held";
const KEYS: &str = "keys";
const LAST_ID: &str = "lastPrompt";

impl Prompts {
    /// The greatest prompt id of the session so far, 0 if there was none.
    pub(super) const fn last_id(&self) -> PromptId {
        PromptId(self.last_id)
    }

    pub(super) fn add(&mut self, prompt: Prompt, waits: bool, out: &mut Step) {
        let waiter = Waiter { id: prompt.id, by: prompt.by, waits };
        if let Some(key) = &prompt.key {
            let has_key = |open: &&mut Open| open.prompt.key.as_ref() == Some(key) && !open.is_dropped();
            if let Some(open) = self.open.all.iter_mut().find(has_key) {
                open.add_waiter(waiter, out);
                return;
            }
            if let Some(recent) = self.recent.iter().find(|recent| recent.key == *key) {
                let outcome = match &recent.message {
                    Some(message) => waiter.outcome(message, &Object::default(), recent.ended.as_ref()),
                    None => PromptOutcome::Withdrawn { by: None },
                };
                waiter.respond(outcome, out);
                return;
            }
        }
        if self.open.all.iter().filter(|open| open.is_waiting()).count() >= MAX_QUEUED {
            waiter.respond(PromptOutcome::TooMany { limit: MAX_QUEUED }, out);
            return;
        }
        self.push(prompt, vec![waiter]);
        out.side_state_dirty = true;
    }

    /// Whether a prompt with this key is open, or its outcome is remembered.
    pub(super) fn has_key(&self, key: &JsonStr) -> bool {
        let is_open =
            self.open.all.iter().any(|open| open.prompt.key.as_ref() == Some(key) && !open.is_dropped());
        is_open || self.recent.iter().any(|recent| recent.key == *key)
    }

    fn push(&mut self, prompt: Prompt, waiters: Vec<Waiter>) {
        self.last_id = self.last_id.max(prompt.id.0);
        let is_next = prompt.timing != PromptTiming::InOrder;
        let (id, content) = (prompt.id, prompt.content.clone());
        let (sent_after, withdrawn, spared, lost_agents) = (0, None, false, 0);
        let owned = SessionPrompt { prompt, sent_after, waiters, withdrawn, spared, lost_agents };
        self.open.push_before(id, &content, owned, |other| {
            is_next && other.prompt.timing == PromptTiming::InOrder
        });
    }

    pub(super) fn queued_prompts(&self) -> Vec<QueuedPrompt> {
        let queued = self.open.all.iter().filter(|open| open.is_shown_in_queue());
        queued
            .map(|open| {
                let by = open.waiters.last().map_or(open.prompt.by, |waiter| waiter.by);
                QueuedPrompt { id: open.id, text: blocks(&open.prompt.content).to_text(), by }
            })
            .collect()
    }

    /// The ids of the prompts that clients see in the queue.
    pub(super) fn queued_ids(&self) -> Vec<PromptId> {
        self.open.all.iter().filter(|open| open.is_shown_in_queue()).map(|open| open.id).collect()
    }

    pub(super) fn any_open(&self) -> bool {
        self.open.all.iter().any(|open| !open.is_dropped())
    }

    /// Whether the agent was sent any.
    pub(super) fn any_with_agent(&self) -> bool {
        self.open.all.iter().any(|open| open.state != PromptState::Queued)
    }

    pub(super) fn first_queued(&self) -> Option<PromptId> {
        self.open.all.iter().find(|open| open.state == PromptState::Queued).map(|open| open.id)
    }

    /// The first prompt that too many agents were lost with. The others get one more attempt.
    pub(super) fn take_exhausted(&mut self) -> Option<PromptId> {
        let mut exhausted = self
            .open
            .all
            .iter_mut()
            .filter(|open| open.state == PromptState::Queued && open.lost_agents >= MAX_LOST_AGENTS);
        let first = exhausted.next()?.id;
        exhausted.for_each(|open| open.lost_agents = MAX_LOST_AGENTS - 1);
        Some(first)
    }

    /// The client that withdrew the latest running prompt before it was inserted, if any.
    pub(super) fn running_withdrawn_by(&self) -> Option<ClientId> {
        self.open.running()?.withdrawn
    }

    /// Sends all queued prompts to the agent. `seq` is the last change; `is_idle`: the agent reports that it is idle.
    pub(super) fn send_all(&mut self, seq: u64, is_idle: bool, out: &mut Step) {
        for id in self.open.send_queued(is_idle) {
            let Some(open) = self.open.get_mut(id) else { continue };
            open.sent_after = seq;
            out.effects.push(Effect::SendPrompt(open.prompt.clone()));
        }
    }

    pub(super) fn on_accepted(&mut self, id: PromptId, fields: Object) {
        let Some(open) = self.open.get_mut(id) else { return };
        open.spared = false;
        open.accept(fields);
    }

    /// Marks a prompt as inserted with this message, or replaces the message that it was matched with.
    pub(super) fn on_inserted(&mut self, id: PromptId, message: MessageId) {
        let Some(open) = self.open.get_mut(id) else { return };
        open.insert(message.clone());
        open.spared = false;
        let key = open.prompt.key.clone();
        self.remember(key, Some(message));
    }

    /// Undoes a match: the message is another prompt, and the message of this one is still to come.
    pub(super) fn unmatch(&mut self, id: PromptId) {
        let Some(open) = self.open.get_mut(id) else { return };
        open.state = PromptState::Sent;
        let key = open.prompt.key.clone();
        self.recent.retain(|recent| key.as_ref() != Some(&recent.key));
    }

    fn remember(&mut self, key: Option<JsonStr>, message: Option<MessageId>) {
        let Some(key) = key else { return };
        self.recent.retain(|recent| recent.key != key);
        if self.recent.len() >= MAX_KEYS {
            self.recent.pop_front();
        }
        self.recent.push_back(RecentKey { key, message, ended: None });
    }

    /// Responds to the clients that wait for the acceptance of an inserted prompt.
    pub(super) fn respond_accepted(&mut self, id: PromptId, out: &mut Step) {
        let Some(open) = self.open.get_mut(id) else { return };
        let PromptState::Inserted { message, fields } = open.state.clone() else { return };
        let answered = open.waiters.extract_if(.., |waiter| !waiter.waits);
        answered.for_each(|waiter| waiter.respond(waiter.outcome(&message, &fields, None), out));
    }

    /// Ends an inserted prompt whose turn ended with this state.
    pub(super) fn end(&mut self, id: PromptId, state: &State, out: &mut Step) {
        if let Some(open) = self.open.get_mut(id) {
            open.end(state);
        }
        self.end_finished(out);
    }

    /// Ends the prompts whose turn has ended, also those that were inserted after its end.
    pub(super) fn end_finished(&mut self, out: &mut Step) {
        for (open, state) in self.open.take_ended() {
            out.ended_after = Some(out.changes.len());
            out.side_state_dirty = true;
            let recent = self.recent.iter_mut().find(|recent| Some(&recent.key) == open.prompt.key.as_ref());
            recent.into_iter().for_each(|recent| recent.ended = Some(state.clone()));
            respond_ended(&open, &state, out);
        }
    }

    pub(super) fn on_rejected(&mut self, id: PromptId, error: &Json, clients: &Clients, out: &mut Step) {
        let by = self.open.get(id).and_then(|open| open.withdrawn);
        self.fail(id, &PromptOutcome::Rejected { error: error.clone(), by }, clients, out);
    }

    /// Handles a prompt that the agent dropped from its queue: it is queued again if a cancelled turn spared it.
    pub(super) fn on_dropped(&mut self, id: PromptId, error: &Json, clients: &Clients, out: &mut Step) {
        match self.open.get_mut(id).filter(|open| open.spared) {
            Some(open) => open.queue_again(),
            None => self.on_rejected(id, error, clients, out),
        }
    }

    /// Whether the agent has not yet decided about prompts that a cancelled turn spared.
    pub(super) fn any_spared(&self) -> bool {
        self.open.all.iter().any(|open| open.spared)
    }

    /// Removes a prompt that failed. If it was not withdrawn and none of its waiters is attached, the outcome is also
    /// reported for clients that attach later.
    pub(super) fn fail(&mut self, id: PromptId, outcome: &PromptOutcome, clients: &Clients, out: &mut Step) {
        let Some(mut open) = self.open.remove(id) else { return };
        out.side_state_dirty = true;
        let is_waiter_attached = open.waiters.iter().any(|waiter| clients.contains_key(&waiter.by));
        if !is_waiter_attached && open.is_waiting() {
            Waiter { id, by: ClientId::UNKNOWN, waits: false }.respond(outcome.clone(), out);
        }
        open.respond(outcome, out);
    }

    /// Withdraws a prompt, by its own id or that of a repeated request. Returns whether its turn is running, and
    /// clients wait for its end: then it is too late.
    pub(super) fn withdraw(&mut self, id: PromptId, by: ClientId, out: &mut Step) -> bool {
        let is_it = |open: &&Open| open.id == id || open.waiters.iter().any(|waiter| waiter.id == id);
        let Some(open) = self.open.all.iter().find(is_it) else { return false };
        if open.is_inserted() {
            return !open.waiters.is_empty();
        }
        let id = open.id;
        self.withdraw_waiting(id, by, out);
        false
    }

    /// Withdraws the prompts that are not inserted and that are in the scope of a cancellation.
    pub(super) fn withdraw_all(&mut self, by: ClientId, scope: Scope, out: &mut Step) {
        let mut withdrawn = Vec::new();
        for open in self.open.all.iter_mut().filter(|open| !open.is_inserted()) {
            let is_in_scope = match scope {
                Scope::Session => true,
                Scope::Turn => open.is_of(by),
                Scope::Prompt => false,
            };
            if is_in_scope {
                withdrawn.push(open.id);
            } else {
                // A prompt whose turn has started is cancelled with the turn.
                open.spared = open.is_with_agent() && open.withdrawn.is_none() && !open.is_running_early();
            }
        }
        withdrawn.into_iter().for_each(|id| self.withdraw_waiting(id, by, out));
    }

    /// Handles a client that closed the session: its requests are answered, and prompts that no other client waits
    /// for are withdrawn.
    pub(super) fn on_closed(&mut self, by: ClientId, out: &mut Step) {
        let mut withdrawn = Vec::new();
        for open in &mut self.open.all {
            let is_only = !open.waiters.is_empty() && open.waiters.iter().all(|waiter| waiter.by == by);
            if is_only && !open.is_inserted() {
                withdrawn.push(open.id);
            }
            let answered = open.waiters.extract_if(.., |waiter| waiter.by == by);
            answered.for_each(|waiter| waiter.respond(PromptOutcome::Withdrawn { by: Some(by) }, out));
        }
        withdrawn.into_iter().for_each(|id| self.withdraw_waiting(id, by, out));
    }

    /// Withdraws a prompt that is not inserted. If the agent was sent it, the agent's response decides; until then
    /// its turn may still start.
    fn withdraw_waiting(&mut self, id: PromptId, by: ClientId, out: &mut Step) {
        let Some(open) = self.open.get_mut(id).filter(|open| open.withdrawn.is_none()) else { return };
        let key = open.prompt.key.clone();
        if open.state == PromptState::Queued {
            open.respond(&PromptOutcome::Withdrawn { by: Some(by) }, out);
            self.open.remove(id);
        } else {
            open.withdrawn = Some(by);
            open.spared = false;
            out.effects.push(Effect::CancelPrompt(id));
        }
        self.remember(key, None);
        out.side_state_dirty = true;
    }

    /// The withdrawn prompts that the agent has not ended.
    pub(super) fn withdrawn(&self) -> Vec<PromptId> {
        let withdrawn = self.open.all.iter().filter(|open| open.withdrawn.is_some() && !open.is_inserted());
        withdrawn.map(|open| open.id).collect()
    }

    /// Whether the running turn is that of a withdrawn prompt.
    pub(super) fn is_withdrawn_running(&self) -> bool {
        self.open.all.iter().any(|open| open.withdrawn.is_some() && open.is_running_early())
    }

    /// Tracks a state that the agent reports, or in which it left the session.
    pub(super) fn on_state(&mut self, state: &State, out: &mut Step) {
        self.open.on_state(state);
        if state.activity != Activity::Idle {
            return;
        }
        out.ended_after = Some(out.changes.len());
        self.open.take_ended().into_iter().for_each(|(open, state)| respond_ended(&open, &state, out));
        let unended = |recent: &&mut RecentKey| recent.message.is_some() && recent.ended.is_none();
        for recent in self.recent.iter_mut().filter(unended) {
            recent.ended = Some(state.clone());
            out.side_state_dirty = true;
        }
    }

    /// Queues the prompts again that a lost agent had not inserted, unless they were withdrawn.
    pub(super) fn on_agent_lost(&mut self, out: &mut Step) {
        for mut open in self.open.all.extract_if(.., |open| open.withdrawn.is_some() && !open.is_inserted()) {
            let by = open.withdrawn;
            open.respond(&PromptOutcome::Withdrawn { by }, out);
        }
        for open in self.open.all.iter_mut().filter(|open| open.is_with_agent()) {
            open.queue_again();
            open.lost_agents = open.lost_agents.saturating_add(1);
        }
    }

    /// Counts an agent that was lost before it was ready.
    pub(super) fn on_agent_start_failed(&mut self) {
        let queued = self.open.all.iter_mut().filter(|open| open.state == PromptState::Queued);
        queued.for_each(|open| open.lost_agents = open.lost_agents.saturating_add(1));
    }

    pub(super) fn store(&self, side_state: &mut Object) {
        let stored: Vec<_> =
            self.open.all.iter().filter(|open| open.is_waiting()).map(|open| open.to_stored()).collect();
        if !stored.is_empty() {
            side_state.set(QUEUE, Json::array(stored));
        }
        if self.last_id > 0 {
            side_state.set(LAST_ID, self.last_id);
        }
        let recent: Vec<_> = self.recent.iter().map(RecentKey::to_stored).collect();
        if !recent.is_empty() {
            side_state.set(KEYS, Json::array(recent));
        }
    }

    pub(super) fn restored(side_state: Option<&Object>) -> Self {
        let list = |name: &str| side_state.and_then(|state| state.get_array(name));
        let recent = list(KEYS).unwrap_or_default().into_iter().filter_map(RecentKey::restored);
        let last_id = side_state.and_then(|state| state.get_u64(LAST_ID)).unwrap_or_default();
        let mut prompts = Self { open: OpenPrompts::default(), recent: recent.collect(), last_id };
        let queued = list(QUEUE).unwrap_or_default().into_iter().filter_map(|stored| {
            let stored = stored.to_object()?;
            let (id, more) = (PromptId(stored.get_u64("id")?), stored.get_object("more")?);
            let (content, key) = (stored.get("content")?.clone(), stored.get_json_str("key"));
            let timing = PromptTiming::InOrder;
            Some(Prompt { id, by: ClientId::UNKNOWN, content, extra: more, key, timing })
        });
        queued.for_each(|prompt| prompts.push(prompt, Vec::new()));
        prompts
    }
}

impl Open {
    /// Whether it is neither withdrawn nor inserted.
    fn is_waiting(&self) -> bool {
        !self.is_inserted() && self.withdrawn.is_none()
    }

    /// Queues it again. A prompt for a running turn is the next one: the turn has ended, or was cancelled.
    pub(super) fn queue_again(&mut self) {
        self.requeue();
        self.spared = false;
        if self.prompt.timing == PromptTiming::InTurn {
            self.prompt.timing = PromptTiming::Next;
        }
    }

    /// Whether clients see it in the queue: it waits, and not only for the response of the agent whose turn it joins.
    fn is_shown_in_queue(&self) -> bool {
        self.is_waiting() && !(self.prompt.timing == PromptTiming::InTurn && self.is_with_agent())
    }

    /// Whether it was withdrawn and no client waits for it.
    fn is_dropped(&self) -> bool {
        self.withdrawn.is_some() && self.waiters.is_empty() && !self.is_inserted()
    }

    /// Whether a client sent it, first or again.
    fn is_of(&self, client: ClientId) -> bool {
        self.prompt.by == client || self.waiters.iter().any(|waiter| waiter.by == client)
    }

    /// Handles a repeated request for the prompt, from a client that lost the first response or does not wait for it.
    fn add_waiter(&mut self, waiter: Waiter, out: &mut Step) {
        if let PromptState::Inserted { message, fields } = &self.state
            && !waiter.waits
        {
            waiter.respond(waiter.outcome(message, fields, None), out);
        } else if self.waiters.len() >= MAX_QUEUED {
            waiter.respond(PromptOutcome::TooMany { limit: MAX_QUEUED }, out);
        } else {
            self.waiters.push(waiter);
        }
    }
}

impl SessionPrompt {
    fn respond(&mut self, outcome: &PromptOutcome, out: &mut Step) {
        self.waiters.drain(..).for_each(|waiter| waiter.respond(outcome.clone(), out));
    }

    fn to_stored(&self) -> Object {
        let mut stored = Object::default();
        stored.set("id", self.prompt.id.0);
        stored.set("content", self.prompt.content.clone());
        stored.set("more", self.prompt.extra.to_json());
        if let Some(key) = &self.prompt.key {
            stored.set("key", key);
        }
        stored
    }
}

/// Responds to the clients that wait for the end of a turn.
fn respond_ended(open: &Open, state: &State, out: &mut Step) {
    let PromptState::Inserted { message, fields } = &open.state else { return };
    out.ended.push((open.id, state.clone()));
    let waiters = open.waiters.iter();
    waiters.for_each(|waiter| waiter.respond(waiter.outcome(message, fields, Some(state)), out));
}

impl Waiter {
    /// The outcome of an inserted prompt for this waiter.
    fn outcome(self, message: &MessageId, fields: &Object, ended: Option<&State>) -> PromptOutcome {
        let (message, fields) = (message.clone(), fields.clone());
        match ended.filter(|_| self.waits) {
            Some(state) => PromptOutcome::Ended { message, state: state.clone(), fields },
            None => PromptOutcome::Accepted { message, fields },
        }
    }

    fn respond(self, outcome: PromptOutcome, out: &mut Step) {
        out.effects.push(Effect::RespondPrompt { prompt: self.id, by: self.by, outcome });
    }
}

impl RecentKey {
    fn to_stored(&self) -> Json {
        let message = self.message.as_ref().map(|message| Json::from(message.as_json()));
        let ended = self.ended.as_ref().map(|ended| state_object(ended).to_json());
        Json::array([Json::from(&self.key), message.unwrap_or_default(), ended.unwrap_or_default()])
    }

    fn restored(stored: JsonRef<'_>) -> Option<Self> {
        let parts = stored.elements()?;
        let [key, message, ended] = parts[..] else { return None };
        let ended = ended.to_object().and_then(|ended| read_state(&ended));
        Some(Self {
            key: JsonStr::from_raw(key)?,
            message: JsonStr::from_raw(message).map(MessageId::from),
            ended,
        })
    }
}
