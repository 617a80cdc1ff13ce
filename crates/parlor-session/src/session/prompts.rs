//! The prompts of a session: who waits for each, which were withdrawn, and what is kept of them.

use std::collections::VecDeque;

use parlor_json::{Json, JsonStr, Object};
use serde_json::value::RawValue;

use super::{ClientId, Clients, Effect, Scope, Step, blocks, string_member};
use crate::stored::{read_state, state_text};
use crate::turns::{OpenPrompt, OpenPrompts, PromptId, PromptState};
use crate::{Activity, MessageId, Refused, State};

/// What a client wants to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompt {
    /// Its name.
    pub id: PromptId,
    /// Who sent it.
    pub by: ClientId,
    /// Its content: a list of blocks.
    pub content: Json,
    /// What else the request said.
    pub more: Object,
    /// The client's own name for it: the same again is the same prompt.
    pub key: Option<JsonStr>,
}

/// A prompt that waits, as people see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuedPrompt {
    /// Its name.
    pub id: PromptId,
    /// What it says.
    pub text: String,
    /// Who sent it.
    pub by: ClientId,
}

/// What came of a prompt, for who sent it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PromptOutcome {
    /// It is in the conversation.
    Accepted {
        /// Its message.
        message: MessageId,
        /// What else the agent said.
        fields: Object,
    },
    /// Its turn has ended.
    Ended {
        /// Its message.
        message: MessageId,
        /// How.
        state: State,
        /// What the agent said when it took the prompt.
        fields: Object,
    },
    /// It was withdrawn before it was in the conversation, or its sender closed the session before its turn ended.
    Withdrawn {
        /// Who withdrew it, if that is known.
        by: Option<ClientId>,
    },
    /// The agent did not take it.
    Rejected {
        /// What the agent said.
        error: Json,
        /// Who withdrew it before, if anybody did.
        by: Option<ClientId>,
    },
    /// No agent stayed for long enough to take it: the state in which the last one left the session.
    Failed(State),
    /// Too many prompts wait.
    TooMany {
        /// How many may.
        limit: usize,
    },
    /// The conversation has no room for it.
    NoRoom(Refused),
}

/// A prompt whose turn has not ended.
pub(super) type Open = OpenPrompt<SessionPrompt>;

/// What a session keeps with an open prompt.
#[derive(Debug, Clone)]
pub(super) struct SessionPrompt {
    pub(super) prompt: Prompt,
    /// The last change before the agent was given it.
    pub(super) sent_after: u64,
    /// Who has no answer yet: its sender, and those who sent it again.
    waiters: Vec<Waiter>,
    /// Who withdrew it, if the agent has it and was told so.
    withdrawn: Option<ClientId>,
    /// Whether the agent was told to cancel its turn while it had this prompt, which is still wanted: if the agent drops
    /// it, it is sent again.
    spared: bool,
    /// How many agents were gone before they took it.
    returned: u8,
}

/// Somebody who wants to know what comes of a prompt.
#[derive(Debug, Clone, Copy)]
struct Waiter {
    id: PromptId,
    by: ClientId,
    /// Whether the end of the turn is the answer.
    waits: bool,
}

/// What became of a prompt that had a key.
#[derive(Debug, Clone)]
struct RecentKey {
    key: JsonStr,
    /// Its message; `None` if it was withdrawn.
    message: Option<MessageId>,
    /// How its turn ended, if it has.
    ended: Option<State>,
}

/// All prompts whose turn has not ended, in the order they came, and what became of the last ones that had a key.
#[derive(Debug, Clone, Default)]
pub(super) struct Prompts {
    /// How far each has come.
    pub(super) open: OpenPrompts<SessionPrompt>,
    recent: VecDeque<RecentKey>,
    /// The greatest id that a prompt of the session ever had, so that no later prompt gets the id of an earlier one.
    last_id: u64,
}

/// How many prompts may wait in one session, and how many may ask for the same one.
const MAX_QUEUED: usize = 64;

/// How many keys are remembered.
const MAX_KEYS: usize = 256;

/// After how many agents that were gone before they took it a prompt has failed.
const MAX_RETURNED: u8 = 2;

const KEPT: &str = "held";
const KEYS: &str = "keys";
const LAST_ID: &str = "lastPrompt";

impl Prompts {
    /// The greatest id that a prompt of the session ever had, 0 if there was none.
    pub(super) const fn last_id(&self) -> PromptId {
        PromptId(self.last_id)
    }

    pub(super) fn add(&mut self, prompt: Prompt, waits: bool, out: &mut Step) {
        let waiter = Waiter { id: prompt.id, by: prompt.by, waits };
        if let Some(key) = &prompt.key {
            let same = |open: &&mut Open| open.prompt.key.as_ref() == Some(key) && !open.is_dropped();
            if let Some(open) = self.open.all.iter_mut().find(same) {
                open.resent(waiter, out);
                return;
            }
            if let Some(recent) = self.recent.iter().find(|recent| recent.key == *key) {
                let outcome = match &recent.message {
                    Some(message) => waiter.outcome(message, &Object::default(), recent.ended.as_ref()),
                    None => PromptOutcome::Withdrawn { by: None },
                };
                waiter.settle(outcome, out);
                return;
            }
        }
        if self.open.all.iter().filter(|open| open.is_waiting()).count() >= MAX_QUEUED {
            waiter.settle(PromptOutcome::TooMany { limit: MAX_QUEUED }, out);
            return;
        }
        self.push(prompt, vec![waiter]);
        out.upkeep = true;
    }

    fn push(&mut self, prompt: Prompt, waiters: Vec<Waiter>) {
        self.last_id = self.last_id.max(prompt.id.0);
        let (id, content) = (prompt.id, prompt.content.clone());
        let (sent_after, withdrawn, spared, returned) = (0, None, false, 0);
        let kept = SessionPrompt { prompt, sent_after, waiters, withdrawn, spared, returned };
        self.open.push(id, &content, kept);
    }

    pub(super) fn queued_prompts(&self) -> Vec<QueuedPrompt> {
        let waiting = self.open.all.iter().filter(|open| open.is_waiting());
        waiting
            .map(|open| {
                let by = open.waiters.last().map_or(open.prompt.by, |waiter| waiter.by);
                QueuedPrompt { id: open.id, text: blocks(&open.prompt.content).to_text(), by }
            })
            .collect()
    }

    /// The names of the prompts that wait.
    pub(super) fn waiting(&self) -> Vec<PromptId> {
        self.open.all.iter().filter(|open| open.is_waiting()).map(|open| open.id).collect()
    }

    pub(super) fn any_open(&self) -> bool {
        self.open.all.iter().any(|open| !open.is_dropped())
    }

    /// Whether the agent has any.
    pub(super) fn any_with_agent(&self) -> bool {
        self.open.all.iter().any(|open| open.state != PromptState::Queued)
    }

    pub(super) fn first_queued(&self) -> Option<PromptId> {
        self.open.all.iter().find(|open| open.state == PromptState::Queued).map(|open| open.id)
    }

    /// The first one that too many agents were gone with before they took it. The others have one try left.
    pub(super) fn take_hopeless(&mut self) -> Option<PromptId> {
        let mut hopeless = self
            .open
            .all
            .iter_mut()
            .filter(|open| open.state == PromptState::Queued && open.returned >= MAX_RETURNED);
        let first = hopeless.next()?.id;
        hopeless.for_each(|open| open.returned = MAX_RETURNED - 1);
        Some(first)
    }

    /// Who withdrew the latest prompt whose turn runs, if somebody did so before it was in the conversation.
    pub(super) fn running_withdrawn_by(&self) -> Option<ClientId> {
        self.open.running()?.withdrawn
    }

    /// Hands all that wait to the agent. `seq` is the last change, `is_idle` whether the agent reports that it is.
    pub(super) fn send_all(&mut self, seq: u64, is_idle: bool, out: &mut Step) {
        for id in self.open.send_queued(is_idle) {
            let Some(open) = self.open.get_mut(id) else { continue };
            open.sent_after = seq;
            out.effects.push(Effect::SendPrompt(open.prompt.clone()));
        }
    }

    pub(super) fn accepted(&mut self, id: PromptId, fields: Object) {
        let Some(open) = self.open.get_mut(id) else { return };
        open.spared = false;
        open.accept(fields);
    }

    /// A prompt is this message of the conversation, or is another one there than it was taken for.
    pub(super) fn inserted(&mut self, id: PromptId, message: MessageId) {
        let Some(open) = self.open.get_mut(id) else { return };
        open.insert(message.clone());
        open.spared = false;
        let key = open.prompt.key.clone();
        self.remember(key, Some(message));
    }

    /// What was taken for a prompt is another one, and the agent has yet to say which message it is.
    pub(super) fn mistaken(&mut self, id: PromptId) {
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

    /// Answers those who asked for a prompt that is in the conversation, if that is what they want to know.
    pub(super) fn settle_accepted(&mut self, id: PromptId, out: &mut Step) {
        let Some(open) = self.open.get_mut(id) else { return };
        let PromptState::Inserted { message, fields } = open.state.clone() else { return };
        let answered = open.waiters.extract_if(.., |waiter| !waiter.waits);
        answered.for_each(|waiter| waiter.settle(waiter.outcome(&message, &fields, None), out));
    }

    /// A prompt that came into the conversation only after its turn has ended with that.
    pub(super) fn end_if_over(&mut self, out: &mut Step) {
        for (open, state) in self.open.take_ended() {
            out.ended_after = Some(out.changes.len());
            out.upkeep = true;
            let recent = self.recent.iter_mut().find(|recent| Some(&recent.key) == open.prompt.key.as_ref());
            recent.into_iter().for_each(|recent| recent.ended = Some(state.clone()));
            ended(&open, &state, out);
        }
    }

    pub(super) fn rejected(&mut self, id: PromptId, error: &Json, clients: &Clients, out: &mut Step) {
        let by = self.open.get(id).and_then(|open| open.withdrawn);
        self.refused(id, &PromptOutcome::Rejected { error: error.clone(), by }, clients, out);
    }

    /// The agent dropped a prompt from its queue. One that a cancelled turn was not to take along is queued again.
    pub(super) fn dropped(&mut self, id: PromptId, error: &Json, clients: &Clients, out: &mut Step) {
        match self.open.get_mut(id).filter(|open| open.spared) {
            Some(open) => {
                open.requeue();
                open.spared = false;
            }
            None => self.rejected(id, error, clients, out),
        }
    }

    /// Whether the agent has yet to say whether it keeps prompts that a cancelled turn was not to take along.
    pub(super) fn any_spared(&self) -> bool {
        self.open.all.iter().any(|open| open.spared)
    }

    /// A prompt that comes to nothing. If it was still wanted and none of those is there who wait for it, as when it was
    /// restored, that is said first.
    pub(super) fn refused(
        &mut self,
        id: PromptId,
        outcome: &PromptOutcome,
        clients: &Clients,
        out: &mut Step,
    ) {
        let Some(mut open) = self.open.remove(id) else { return };
        out.upkeep = true;
        let is_told = open.waiters.iter().any(|waiter| clients.contains_key(&waiter.by));
        if !is_told && open.is_waiting() {
            Waiter { id, by: ClientId::UNKNOWN, waits: false }.settle(outcome.clone(), out);
        }
        open.settle(outcome, out);
    }

    /// Withdraws a prompt, by its own id or that of one who sent it again. Whether it is too late because its turn runs,
    /// and somebody waits for the end of that.
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

    /// Withdraws the prompts that are not in the conversation and that the scope of a cancellation names.
    pub(super) fn withdraw_all(&mut self, by: ClientId, scope: Scope, out: &mut Step) {
        let mut unwanted = Vec::new();
        for open in self.open.all.iter_mut().filter(|open| !open.is_inserted()) {
            let is_unwanted = match scope {
                Scope::Session => true,
                Scope::Turn => open.is_of(by),
                Scope::Prompt => false,
            };
            if is_unwanted {
                unwanted.push(open.id);
            } else {
                open.spared = open.is_with_agent() && open.withdrawn.is_none();
            }
        }
        unwanted.into_iter().for_each(|id| self.withdraw_waiting(id, by, out));
    }

    /// Somebody closes the session while others go on: it is answered now, and what nobody else asked for is withdrawn.
    pub(super) fn closed(&mut self, by: ClientId, out: &mut Step) {
        let mut unwanted = Vec::new();
        for open in &mut self.open.all {
            let is_only = !open.waiters.is_empty() && open.waiters.iter().all(|waiter| waiter.by == by);
            if is_only && !open.is_inserted() {
                unwanted.push(open.id);
            }
            let theirs = open.waiters.extract_if(.., |waiter| waiter.by == by);
            theirs.for_each(|waiter| waiter.settle(PromptOutcome::Withdrawn { by: Some(by) }, out));
        }
        unwanted.into_iter().for_each(|id| self.withdraw_waiting(id, by, out));
    }

    /// Nobody wants a prompt any more that is not in the conversation. If the agent has it, it may be too late: the agent
    /// says what came of it, and until then there may be a turn to come.
    fn withdraw_waiting(&mut self, id: PromptId, by: ClientId, out: &mut Step) {
        let Some(open) = self.open.get_mut(id).filter(|open| open.withdrawn.is_none()) else { return };
        let key = open.prompt.key.clone();
        if open.state == PromptState::Queued {
            open.settle(&PromptOutcome::Withdrawn { by: Some(by) }, out);
            self.open.remove(id);
        } else {
            open.withdrawn = Some(by);
            open.spared = false;
            out.effects.push(Effect::CancelPrompt(id));
        }
        self.remember(key, None);
        out.upkeep = true;
    }

    /// The prompts that were withdrawn and of which the agent has yet to say what came of them.
    pub(super) fn withdrawn(&self) -> Vec<PromptId> {
        let withdrawn = self.open.all.iter().filter(|open| open.withdrawn.is_some() && !open.is_inserted());
        withdrawn.map(|open| open.id).collect()
    }

    /// Whether the turn that runs is that of a prompt that was withdrawn.
    pub(super) fn any_withdrawn_begun(&self) -> bool {
        self.open.all.iter().any(|open| open.withdrawn.is_some() && open.is_running_early())
    }

    /// The agent reports a state, or has left the session in it.
    pub(super) fn on_state(&mut self, state: &State, out: &mut Step) {
        self.open.on_state(state);
        if state.activity != Activity::Idle {
            return;
        }
        out.ended_after = Some(out.changes.len());
        self.open.take_ended().into_iter().for_each(|(open, state)| ended(&open, &state, out));
        // What the agent has kept is not for a cancelled turn to take along any more.
        self.open.all.iter_mut().for_each(|open| open.spared = false);
        let unended = |recent: &&mut RecentKey| recent.message.is_some() && recent.ended.is_none();
        for recent in self.recent.iter_mut().filter(unended) {
            recent.ended = Some(state.clone());
            out.upkeep = true;
        }
    }

    /// What the agent had and was not in the conversation waits again, unless it was not wanted any more.
    pub(super) fn agent_gone(&mut self, out: &mut Step) {
        for mut open in self.open.all.extract_if(.., |open| open.withdrawn.is_some() && !open.is_inserted()) {
            let by = open.withdrawn;
            open.settle(&PromptOutcome::Withdrawn { by }, out);
        }
        for open in self.open.all.iter_mut().filter(|open| open.is_with_agent()) {
            open.requeue();
            open.spared = false;
            open.returned = open.returned.saturating_add(1);
        }
    }

    /// An agent was gone before it was ready.
    pub(super) fn agent_never_came(&mut self) {
        let queued = self.open.all.iter_mut().filter(|open| open.state == PromptState::Queued);
        queued.for_each(|open| open.returned = open.returned.saturating_add(1));
    }

    pub(super) fn keep(&self, kept: &mut Object) {
        let held: Vec<_> =
            self.open.all.iter().filter(|open| open.is_waiting()).map(|open| open.keep()).collect();
        if !held.is_empty() {
            kept.set(KEPT, Json::parse(format!("[{}]", held.join(","))).expect("it is made of JSON"));
        }
        if self.last_id > 0 {
            kept.set(LAST_ID, Json::parse(self.last_id.to_string()).expect("a number is JSON"));
        }
        let recent: Vec<_> = self.recent.iter().map(RecentKey::keep).collect();
        if !recent.is_empty() {
            kept.set(KEYS, Json::parse(format!("[{}]", recent.join(","))).expect("it is made of JSON"));
        }
    }

    pub(super) fn restored(kept: Option<&Object>) -> Self {
        let list = |name: &str| {
            kept.and_then(|kept| kept.get(name)).and_then(|list| parlor_json::elements(list.raw()))
        };
        let recent = list(KEYS).unwrap_or_default().into_iter().filter_map(RecentKey::restored);
        let last_id = kept.and_then(|kept| kept.get(LAST_ID)?.as_str().parse().ok()).unwrap_or_default();
        let mut prompts = Self { open: OpenPrompts::default(), recent: recent.collect(), last_id };
        let queued = list(KEPT).unwrap_or_default().into_iter().filter_map(|held| {
            let held = Object::parse(held).ok()?;
            let id = PromptId(held.get("id")?.as_str().parse().ok()?);
            let more = Object::parse(held.get("more")?.raw()).ok()?;
            let (content, key) = (held.get("content")?.clone(), string_member(&held, "key"));
            Some(Prompt { id, by: ClientId::UNKNOWN, content, more, key })
        });
        queued.for_each(|prompt| prompts.push(prompt, Vec::new()));
        prompts
    }
}

impl Open {
    /// Whether it is wanted and not in the conversation.
    fn is_waiting(&self) -> bool {
        !self.is_inserted() && self.withdrawn.is_none()
    }

    /// Whether it was withdrawn, and nobody but the agent has something to say about it any more.
    fn is_dropped(&self) -> bool {
        self.withdrawn.is_some() && self.waiters.is_empty() && !self.is_inserted()
    }

    /// Whether a client sent it, first or again.
    fn is_of(&self, client: ClientId) -> bool {
        self.prompt.by == client || self.waiters.iter().any(|waiter| waiter.by == client)
    }

    /// The same prompt came again, from somebody who has lost the first one's answer or does not want to wait for it.
    fn resent(&mut self, waiter: Waiter, out: &mut Step) {
        if let PromptState::Inserted { message, fields } = &self.state
            && !waiter.waits
        {
            waiter.settle(waiter.outcome(message, fields, None), out);
        } else if self.waiters.len() >= MAX_QUEUED {
            waiter.settle(PromptOutcome::TooMany { limit: MAX_QUEUED }, out);
        } else {
            self.waiters.push(waiter);
        }
    }
}

impl SessionPrompt {
    fn settle(&mut self, outcome: &PromptOutcome, out: &mut Step) {
        self.waiters.drain(..).for_each(|waiter| waiter.settle(outcome.clone(), out));
    }

    fn keep(&self) -> String {
        let mut held = Object::default();
        held.set("id", Json::parse(self.prompt.id.0.to_string()).expect("a number is JSON"));
        held.set("content", self.prompt.content.clone());
        held.set("more", self.prompt.more.to_json());
        if let Some(key) = &self.prompt.key {
            held.set("key", key);
        }
        held.to_json().as_str().to_owned()
    }
}

/// The turn of a prompt has ended in a state.
fn ended(open: &Open, state: &State, out: &mut Step) {
    let PromptState::Inserted { message, fields } = &open.state else { return };
    out.ended.push((open.id, state.clone()));
    let waiters = open.waiters.iter();
    waiters.for_each(|waiter| waiter.settle(waiter.outcome(message, fields, Some(state)), out));
}

impl Waiter {
    /// What came of a prompt that is in the conversation, for this waiter.
    fn outcome(self, message: &MessageId, fields: &Object, ended: Option<&State>) -> PromptOutcome {
        let (message, fields) = (message.clone(), fields.clone());
        match ended.filter(|_| self.waits) {
            Some(state) => PromptOutcome::Ended { message, state: state.clone(), fields },
            None => PromptOutcome::Accepted { message, fields },
        }
    }

    fn settle(self, outcome: PromptOutcome, out: &mut Step) {
        out.effects.push(Effect::RespondPrompt { prompt: self.id, by: self.by, outcome });
    }
}

impl RecentKey {
    fn keep(&self) -> String {
        let message = self.message.as_ref().map_or("null", |message| message.as_json().as_literal());
        let ended = self.ended.as_ref().map_or_else(|| "null".to_owned(), state_text);
        format!("[{},{message},{ended}]", self.key.as_literal())
    }

    fn restored(kept: &RawValue) -> Option<Self> {
        let parts = parlor_json::elements(kept)?;
        let [key, message, ended] = parts[..] else { return None };
        let ended = Object::parse(ended).ok().and_then(|ended| read_state(&ended));
        Some(Self {
            key: JsonStr::from_raw(key)?,
            message: JsonStr::from_raw(message).map(MessageId::from),
            ended,
        })
    }
}
