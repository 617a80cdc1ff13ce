//! The live session: a state machine over the inputs of clients and an agent.
//!
//! [`Session::step`] takes one [`Input`] and returns the changes of the transcript and the [`Effect`]s that the
//! caller performs after storing them. It does no I/O and has no clock.

mod cancellation;
mod echo;
mod effect;
mod envelope;
mod fork;
mod id_map;
mod input;
mod matching;
mod peer_requests;
mod prompts;
mod steering;
mod title;
mod turn;

use std::collections::BTreeMap;

use parlor_json::{Json, JsonStr, Object};

pub use self::cancellation::{Cancelled, Scope};
use self::echo::Echoes;
pub use self::effect::{Effect, Inserted, Step};
pub use self::envelope::Envelope;
use self::envelope::{CutUpdates, Envelopes};
pub use self::fork::{AgentForkMessage, AgentForkPoint, Boundary, Fork, ForkError, ForkedEntry, Point};
pub use self::id_map::IdMap;
pub use self::input::Input;
use self::peer_requests::PeerRequests;
pub use self::peer_requests::{Answer, PeerRequestId, Reply};
use self::prompts::Prompts;
pub use self::prompts::{Prompt, PromptOutcome, QueuedPrompt};
use self::steering::steer_mark;
pub use self::steering::{PromptTiming, STEER_MARK, is_steered};
pub use self::title::TITLE_MARK;
use self::title::Titles;
use crate::turns::Candidate;
pub use crate::turns::{PromptId, PromptState};
use crate::{
    Activity, Body, Content, Decider, EntryId, Event, EventId, EventKind, IdSource, MessageId, Role, Slot,
    State, Target, Transcript, UnixMillis, Update, UpdateError, Upsert,
};

/// A transcript with its attached clients, open prompts, open peer requests and agent.
#[derive(Debug)]
pub struct Session {
    transcript: Transcript,
    hooks: DialectHooks,
    id_map: IdMap,
    titles: Titles,
    prompts: Prompts,
    peer_requests: PeerRequests,
    clients: Clients,
    agent: Option<PromptMode>,
    /// The prompt mode of the last agent: updates of a released agent may still repeat prompts.
    last_mode: Option<PromptMode>,
    /// Whether early updates of a restored agent are still to be applied; no prompt is sent before.
    has_early_updates: bool,
    /// Prompts in the transcript that the agent may repeat.
    echoes: Echoes,
    /// A new user message of the agent that may be a prompt.
    candidate: Option<Candidate>,
    /// A user message without content, from an agent that assigns the ids.
    empty_message: Option<MessageId>,
    /// The envelopes in which agents were sent the transcript.
    envelopes: Envelopes,
    /// The last change before the running turn: older entries belong to earlier turns.
    turn_began: u64,
    /// The time of the current step.
    now: UnixMillis,
    /// The client that cancelled the running turn first, until the turn ends.
    cancelling: Option<Decider>,
    /// Number of turns that were cancelled.
    cancels: u64,
    /// The tool calls whose permission requests were cancelled in the running turn.
    unpermitted_calls: Vec<EntryId>,
}

/// Functions that interpret dialect-specific values of the transcript for the session.
#[derive(Debug, Clone, Copy)]
pub struct DialectHooks {
    /// Whether a tool call has ended.
    pub is_final: fn(&Body) -> bool,
    /// The patch that marks an unfinished tool call as failed; `None` if it has ended.
    pub mark_failed: fn(&Body) -> Option<Upsert>,
    /// The patch that marks an unfinished tool call as cancelled; `None` if it has ended.
    pub mark_cancelled: fn(&Body) -> Option<Upsert>,
    /// How the turn ended that left the session in this state.
    pub turn_end: fn(&State) -> TurnEnd,
    /// The entry of an event.
    pub event_entry: fn(&Event) -> Upsert,
    /// The updates of other slots that keep them consistent with a slot that has just changed: some settings have two
    /// representations, and agents report a change in either.
    pub linked_settings: fn(&Transcript, Slot) -> Vec<Update>,
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TurnEnd {
    /// Normally.
    Completed,
    /// With an error.
    Failed(Option<Json>),
    /// The agent refused to continue.
    Refused,
    /// A client cancelled it.
    Cancelled,
}

/// Identifies a client of the server. Ids increase in the order of connecting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId(pub u64);

impl ClientId {
    /// The sender of prompts whose sender is not known any more. No client has this id.
    pub const UNKNOWN: Self = Self(0);
}

/// The attached clients, in the order of connecting.
type Clients = BTreeMap<ClientId, Client>;

/// The properties of an attached client that a session needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    /// The name that the client gave in `initialize`.
    pub name: Option<JsonStr>,
    /// Whether it is a driver: it may act, and receives peer requests.
    pub is_driver: bool,
    /// Whether its prompts are answered at the end of their turn, instead of when they are accepted.
    pub waits_for_turn_end: bool,
    /// Whether it can show elicitation forms.
    pub can_elicit: bool,
}

/// How an agent accepts prompts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromptMode {
    /// One at a time, answered at the end of the turn. The agent reports no states and gives prompts no ids.
    Serial,
    /// Any number at any time; the agent reports when it accepts one, its message id, and its own state.
    Queued,
}

impl Session {
    /// Restores a session from its transcript and its side state. Queued prompts keep their ids: new ones must be
    /// greater than [`last_prompt`](Self::last_prompt).
    pub fn new(transcript: Transcript, hooks: DialectHooks, side_state: Option<&Object>) -> Self {
        let turn_began = transcript.seq();
        Self {
            id_map: IdMap::restored(side_state),
            titles: Titles::restored(side_state, &transcript),
            prompts: Prompts::restored(side_state),
            transcript,
            hooks,
            peer_requests: PeerRequests::default(),
            clients: BTreeMap::new(),
            agent: None,
            last_mode: None,
            has_early_updates: false,
            echoes: Echoes::default(),
            candidate: None,
            empty_message: None,
            envelopes: Envelopes::restored(side_state),
            turn_began,
            now: UnixMillis::default(),
            cancelling: None,
            cancels: 0,
            unpermitted_calls: Vec::new(),
        }
    }

    /// The state to store beside the transcript.
    pub fn side_state(&self) -> Object {
        let mut side_state = Object::default();
        self.prompts.store(&mut side_state);
        self.id_map.store(&mut side_state);
        self.titles.store(&mut side_state);
        self.envelopes.store(&mut side_state);
        side_state
    }

    /// The transcript.
    pub fn transcript(&self) -> &Transcript {
        &self.transcript
    }

    /// The map between the agent's ids and the session's.
    pub fn id_map(&self) -> &IdMap {
        &self.id_map
    }

    /// The agent's id of a message; `None` if the agent does not know the message.
    pub fn agents_message(&self, role: Role, id: &MessageId) -> Option<MessageId> {
        self.id_map.agents_message(role, id, &self.transcript)
    }

    /// The messages and tool calls that the agent knows, by its ids.
    pub fn agents_entries(&self) -> impl Iterator<Item = EntryId> + '_ {
        self.id_map.agents_entries(&self.transcript)
    }

    /// The envelope in which an agent was last sent the transcript.
    pub fn envelope(&self) -> Option<&Envelope> {
        self.envelopes.last()
    }

    /// All remembered envelopes in which agents of this session were sent the transcript.
    pub fn envelopes(&self) -> impl Iterator<Item = &Envelope> {
        self.envelopes.used()
    }

    /// The prompts that wait.
    pub fn queued_prompts(&self) -> Vec<QueuedPrompt> {
        self.prompts.queued_prompts()
    }

    /// The greatest prompt id of the session so far, 0 if there was none.
    pub fn last_prompt(&self) -> PromptId {
        self.prompts.last_id()
    }

    /// Whether a turn is running or a prompt waits for an agent.
    pub fn is_busy(&self) -> bool {
        self.activity().is_busy() || self.prompts.any_open()
    }

    /// The client that sent the prompt whose turn is running.
    pub fn running_prompt_sender(&self) -> Option<ClientId> {
        self.prompts.turn().map(|open| open.prompt.by)
    }

    /// Whether a prompt with this key is open, or its outcome is remembered: the same key again is the same prompt.
    pub fn has_prompt_key(&self, key: &JsonStr) -> bool {
        self.prompts.has_key(key)
    }

    /// The prompt mode of the agent, if the session is bound to one.
    pub fn agent(&self) -> Option<PromptMode> {
        self.agent
    }

    /// The attached drivers, in the order of connecting.
    pub fn drivers(&self) -> impl Iterator<Item = ClientId> + '_ {
        self.clients.iter().filter(|(_, client)| client.is_driver).map(|(id, _)| *id)
    }

    /// Whether a client is attached.
    pub fn is_attached(&self, client: ClientId) -> bool {
        self.clients.contains_key(&client)
    }

    /// Whether no client is attached.
    pub fn has_no_clients(&self) -> bool {
        self.clients.is_empty()
    }

    /// Whether a turn is running, or waits for a person.
    pub fn is_running(&self) -> bool {
        self.activity().is_busy() || self.prompts.open.running().is_some()
    }

    /// Handles one input. `new_id` returns ids that no session uses.
    pub fn step(
        &mut self,
        input: Input,
        now: UnixMillis,
        new_id: &mut dyn FnMut() -> MessageId,
        out: &mut Step,
    ) {
        self.now = now;
        let queued = self.prompts.queued_ids();
        self.on_input(input, new_id, out);
        if self.prompts.queued_ids() != queued {
            out.effects.push(Effect::QueueChanged);
        }
    }

    fn on_input(&mut self, input: Input, new_id: &mut dyn FnMut() -> MessageId, out: &mut Step) {
        match input {
            Input::AgentUpdate(update, id_source) => self.on_agent_update(update, id_source, new_id, out),
            Input::ServerUpdate(update) => self.push(update, out),
            Input::EventOccurred(event) => self.record(event, new_id, out),
            Input::Titled(title) => {
                let limits = self.transcript.limits();
                self.retitle(|titles, _| titles.set_person_title(title, limits), out);
                out.durable = true;
            }
            Input::Attached(id, client) => self.on_attached(id, client, new_id, out),
            Input::Detached(id) => {
                self.clients.remove(&id);
                self.peer_requests.on_detached(id, out);
                self.resume_after_request(out);
            }
            Input::Closed(id) => {
                let by = self.decider(id);
                self.clients.remove(&id);
                self.peer_requests.on_closed(id, out);
                if self.clients.is_empty() {
                    self.cancel(by, Scope::Session, out);
                } else {
                    self.prompts.on_closed(id, out);
                    self.resume_after_request(out);
                }
            }
            Input::Prompted(prompt) => {
                let waits = self.clients.get(&prompt.by).is_some_and(|client| client.waits_for_turn_end);
                self.prompts.add(prompt, waits, out);
                self.advance(new_id, out);
            }
            Input::Withdrawn { prompt, by } => {
                if self.prompts.withdraw(prompt, by, out) {
                    self.cancel(self.decider(by), Scope::Prompt, out);
                }
            }
            Input::Cancelled { by, scope } => self.cancel(self.decider(by), scope, out),
            Input::AgentReady { mode, without_history } => {
                self.on_agent_restored(mode, without_history, out);
                self.on_early_updates_applied(new_id, out);
            }
            Input::AgentRestored { mode, without_history } => {
                self.on_agent_restored(mode, without_history, out);
            }
            Input::EarlyUpdatesApplied => self.on_early_updates_applied(new_id, out),
            Input::ContextHandedOver(envelope) => {
                self.envelopes.add(envelope);
                out.side_state_dirty = true;
            }
            Input::AgentLost(state) => self.on_agent_lost(&state, new_id, out),
            Input::AgentReleased => {
                self.release_held_back(new_id, out);
                self.agent = None;
                self.has_early_updates = false;
                self.peer_requests.end_all(&Reply::AgentLost, out);
                self.prompts.on_agent_lost(out);
            }
            Input::Accepted { prompt, message, fields } => {
                self.on_accepted(prompt, message.as_ref(), fields, new_id, out);
                self.send_dropped_again(new_id, out);
            }
            Input::Rejected { prompt, error } => {
                self.prompts.on_rejected(prompt, &error, &self.clients, out);
                self.review_candidate(new_id, out);
                // If no agent can be started, the caller rejects each prompt; the rest must not start one again.
                if self.agent.is_some() {
                    self.advance(new_id, out);
                }
            }
            Input::Dropped { prompt, error } => {
                self.prompts.on_dropped(prompt, &error, &self.clients, out);
                self.review_candidate(new_id, out);
                self.send_dropped_again(new_id, out);
            }
            Input::Steered(prompt) => self.on_steered(prompt, new_id, out),
            Input::NotSteered(prompt) => self.on_not_steered(prompt, new_id, out),
            Input::Ended { prompt, state } => self.on_turn_ended(prompt, &state, new_id, out),
            Input::RequestOpened { peer_request, form, call } => {
                let is_open = self.peer_requests.open(peer_request, form, call, &self.clients, out);
                if is_open && self.agent == Some(PromptMode::Serial) {
                    self.set_activity(Activity::RequiresAction, out);
                }
            }
            Input::RequestAnswered { peer_request, by, answer } => {
                self.peer_requests.on_answer(peer_request, by, answer, out);
                self.resume_after_request(out);
            }
            Input::RequestDecided { peer_request, by, result } => {
                self.peer_requests.decide(peer_request, by, result, out);
                self.resume_after_request(out);
            }
            Input::RequestCancelled(peer_request) => {
                self.peer_requests.end(peer_request, Reply::CancelledByAgent, out);
                self.resume_after_request(out);
            }
        }
    }

    fn on_agent_restored(&mut self, mode: PromptMode, without_history: bool, out: &mut Step) {
        self.agent = Some(mode);
        self.last_mode = Some(mode);
        self.has_early_updates = true;
        self.echoes = Echoes::default();
        self.empty_message = None;
        if without_history {
            self.id_map.forget_all(self.transcript.seq());
            out.side_state_dirty = true;
        }
        // Nothing ends a state that an agent of version 1 reported before, in the replay of an adopted session.
        if mode == PromptMode::Serial
            && self.prompts.open.running().is_none()
            && self.peer_requests.is_empty()
        {
            self.set_activity(Activity::Idle, out);
        }
        // An adopted session has no generated title yet.
        self.retitle(Titles::generate_for, out);
    }

    fn on_early_updates_applied(&mut self, new_id: &mut dyn FnMut() -> MessageId, out: &mut Step) {
        // The agent may have been lost meanwhile.
        if !std::mem::take(&mut self.has_early_updates) {
            return;
        }
        self.advance(new_id, out);
    }

    fn on_attached(
        &mut self,
        id: ClientId,
        client: Client,
        new_id: &mut dyn FnMut() -> MessageId,
        out: &mut Step,
    ) {
        if !client.is_driver {
            self.clients.insert(id, client);
            return;
        }
        self.peer_requests.on_attached(id, &client, out);
        self.clients.insert(id, client);
        self.advance(new_id, out);
    }

    fn activity(&self) -> &Activity {
        self.transcript.state().map_or(&Activity::Idle, |state| &state.activity)
    }

    /// Applies an update to the transcript.
    fn push(&mut self, update: Update, out: &mut Step) {
        let slot = match &update {
            Update::Upsert { target: Target::Slot(slot), .. } => Some(*slot),
            Update::Upsert { .. }
            | Update::Append { .. }
            | Update::Output { .. }
            | Update::Remove { .. }
            | Update::Note { .. }
            | Update::State(_) => None,
        };
        match self.transcript.push_at(update, self.now) {
            Ok(change) => out.changes.push(change),
            Err(error) => return out.rejected.push(error),
        }
        let linked =
            slot.map(|slot| (self.hooks.linked_settings)(&self.transcript, slot)).unwrap_or_default();
        for update in linked {
            match self.transcript.push_at(update, self.now) {
                Ok(change) => out.changes.push(change),
                Err(error) => out.rejected.push(error),
            }
        }
    }

    /// Adds an event to the transcript.
    fn record(&mut self, kind: EventKind, new_id: &mut dyn FnMut() -> MessageId, out: &mut Step) {
        let event = Event { id: EventId::from(new_id().as_json().clone()), at: self.now, kind };
        let upsert = (self.hooks.event_entry)(&event);
        self.push(Update::Upsert { target: Target::Entry(EntryId::Event(event.id)), upsert }, out);
    }

    /// A client as recorded in events.
    fn decider(&self, client: ClientId) -> Decider {
        Decider { client, name: self.clients.get(&client).and_then(|client| client.name.clone()) }
    }

    /// Changes the titles, and updates the session info if another title is shown.
    fn retitle(&mut self, change: impl FnOnce(&mut Titles, &Transcript) -> Option<Update>, out: &mut Step) {
        let mut titles = self.titles.clone();
        let update = change(&mut titles, &self.transcript);
        if titles == self.titles {
            return;
        }
        let errors = out.rejected.len();
        update.into_iter().for_each(|update| self.push(update, out));
        if out.rejected.len() == errors {
            self.titles = titles;
            out.side_state_dirty = true;
        }
    }

    /// Applies an agent's update of the session info. A title that is not shown is remembered and not broadcast.
    fn on_agent_info(&mut self, upsert: Upsert, out: &mut Step) {
        let mut titles = self.titles.clone();
        let applied = titles.on_agent_info(upsert, self.transcript.limits());
        let errors = out.rejected.len();
        if let Some(upsert) = applied {
            self.push(Update::Upsert { target: Target::Slot(Slot::Info), upsert }, out);
        }
        if out.rejected.len() == errors && titles != self.titles {
            self.titles = titles;
            out.side_state_dirty = true;
        }
    }

    /// Handles an update of the agent.
    fn on_agent_update(
        &mut self,
        mut update: Update,
        id_source: IdSource,
        new_id: &mut dyn FnMut() -> MessageId,
        out: &mut Step,
    ) {
        if let Update::State(state) = update {
            match self.agent {
                Some(PromptMode::Serial) => out.rejected.push(UpdateError::UnexpectedState),
                Some(PromptMode::Queued) | None => self.on_agent_state(&state, new_id, out),
            }
            return;
        }
        if let Update::Upsert { target: Target::Slot(Slot::Info), upsert } = update {
            self.on_agent_info(upsert, out);
            return;
        }
        if let Some(EntryId::Event(_)) = entry_of(&mut update) {
            out.rejected.push(UpdateError::ReservedEntry);
            return;
        }
        if !self.envelopes.is_empty() {
            let Self { envelopes, id_map, transcript, .. } = self;
            let is_new = |entry: &EntryId| {
                if let EntryId::Message(role, id) = entry {
                    id_map.resolve(*role, id, transcript).is_none()
                } else {
                    transcript.get(entry).is_none()
                }
            };
            let CutUpdates { before, update: rest } = envelopes.cut(update, id_source, is_new);
            self.apply_without_envelopes(before, new_id, out);
            let Some(rest) = rest else { return };
            update = rest;
        }
        self.apply_without_envelopes([(update, id_source)], new_id, out);
    }

    /// Applies updates that have no part of an envelope, except for repeated prompts.
    fn apply_without_envelopes(
        &mut self,
        updates: impl IntoIterator<Item = (Update, IdSource)>,
        new_id: &mut dyn FnMut() -> MessageId,
        out: &mut Step,
    ) {
        for (update, id_source) in updates {
            if let Some(update) = self.without_prompts(update, id_source, new_id, out) {
                self.apply(update, id_source, new_id, out);
            }
        }
    }

    /// Applies updates that are not prompts.
    fn apply_all(
        &mut self,
        updates: Vec<(Update, IdSource)>,
        new_id: &mut dyn FnMut() -> MessageId,
        out: &mut Step,
    ) {
        updates.into_iter().for_each(|(update, id_source)| self.apply(update, id_source, new_id, out));
    }

    /// Applies an update of the agent, with the session's ids.
    fn apply(
        &mut self,
        mut update: Update,
        id_source: IdSource,
        new_id: &mut dyn FnMut() -> MessageId,
        out: &mut Step,
    ) {
        let starts = id_source == IdSource::StartsToolCall;
        let Self { id_map, transcript, hooks, turn_began, .. } = self;
        if let Some(entry) = entry_of(&mut update) {
            let is_over = |body: &Body| (hooks.is_final)(body);
            out.side_state_dirty |= id_map.map_entry(entry, transcript, starts, *turn_began, is_over, new_id);
        }
        let replaces_prompt = match &update {
            Update::Upsert { target: Target::Entry(entry @ EntryId::Message(Role::User, _)), upsert } => {
                (upsert.whole || !upsert.content.is_omitted()) && self.transcript.get(entry).is_some()
            }
            Update::Remove { entry: EntryId::Message(Role::User, _), .. } => true,
            Update::Upsert { .. }
            | Update::Remove { .. }
            | Update::Append { .. }
            | Update::Output { .. }
            | Update::Note { .. }
            | Update::State(_) => false,
        };
        self.push(update, out);
        if replaces_prompt {
            // The generated title may be based on it.
            self.retitle(Titles::regenerate, out);
        }
    }
}

/// The entry that an update changes, to be replaced.
fn entry_of(update: &mut Update) -> Option<&mut EntryId> {
    match update {
        Update::Upsert { target: Target::Entry(entry), .. }
        | Update::Append { entry, .. }
        | Update::Remove { entry, .. } => Some(entry),
        Update::Upsert { target: Target::Slot(_), .. }
        | Update::Output { .. }
        | Update::Note { .. }
        | Update::State(_) => None,
    }
}

/// The blocks of a prompt.
fn blocks(content: &Json) -> Content {
    Content::parse(content.raw()).unwrap_or_default()
}
