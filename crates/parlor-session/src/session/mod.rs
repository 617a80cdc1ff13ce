//! A live session: what happens to a conversation when people and an agent act on it.
//!
//! [`Session::step`] takes one thing that happened and says what came of it: changes of the transcript, and effects,
//! which are what somebody with hands has to do. It waits for nothing and knows no clock.

mod echo;
mod envelope;
mod fork;
mod id_map;
mod matching;
mod peer_requests;
mod prompts;
mod title;

use std::collections::BTreeMap;

use parlor_json::{Json, JsonStr, Object};

use self::echo::Echoes;
pub use self::envelope::Envelope;
use self::envelope::{Envelopes, Uncovered};
pub use self::fork::{AgentsPoint, Fork, Moved, NotForked, Point};
pub use self::id_map::IdMap;
use self::peer_requests::PeerRequests;
pub use self::peer_requests::{Answer, PeerRequestId, Reply};
use self::prompts::Prompts;
pub use self::prompts::{Prompt, PromptOutcome, QueuedPrompt};
pub use self::title::TITLE_MARK;
use self::title::Titles;
use crate::turns::Candidate;
pub use crate::turns::{PromptId, PromptState};
use crate::{
    Activity, Body, Change, Content, Decider, Entry, EntryId, Event, EventId, EventKind, IdSource, MessageId,
    Refused, Role, Slot, State, Target, ToolCallId, Transcript, UnixMillis, Update, Upsert,
};

/// A conversation, who takes part in it, and what is going on.
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
    /// How the last agent takes prompts: one that was released may still repeat them.
    last_taking: Option<PromptMode>,
    /// Whether the agent said something before it was ready that is not taken yet: until then no prompt is sent.
    has_early_updates: bool,
    /// What the agent says again of the prompts that are in the conversation.
    echoes: Echoes,
    /// What the agent says that may be a prompt.
    candidate: Option<Candidate>,
    /// A user message of which an agent that assigns the ids has not said what it says.
    bare: Option<MessageId>,
    /// In what the agent was given the conversation.
    envelopes: Envelopes,
    /// The change before the running turn: entries that are older belong to earlier ones.
    turn_began: u64,
    /// The time of the step that is being taken.
    now: UnixMillis,
    /// Who cancelled the running turn first, if it was cancelled and has not ended yet.
    cancelling: Option<Decider>,
    /// Counts the turns that were cancelled.
    cancels: u64,
    /// The tool calls whose requests for permission were cancelled in the running turn.
    unpermitted: Vec<EntryId>,
}

/// How the transcript of an agent's dialect is read where a session has to know what it means.
#[derive(Debug, Clone, Copy)]
pub struct DialectHooks {
    /// Whether a tool call is over.
    pub is_final: fn(&Body) -> bool,
    /// What makes a tool call that will never go on a failed one; `None` if it is over.
    pub failed: fn(&Body) -> Option<Upsert>,
    /// What makes a tool call that was cancelled before it was over a cancelled one; `None` if it is over.
    pub cancelled: fn(&Body) -> Option<Upsert>,
    /// How a turn ended that left the session in this state.
    pub ended: fn(&State) -> TurnEnd,
    /// What an event's entry holds.
    pub event: fn(&Event) -> Upsert,
    /// The updates of other slots that say the same as a slot that has just changed: agents have two views of some
    /// settings, and report a change in either.
    pub same_setting: fn(&Transcript, Slot) -> Vec<Update>,
}

/// What was cancelled, until the agent says what came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cancelled {
    /// The turn, by a number that no other cancelled turn of the session has.
    turn: Option<u64>,
    /// The prompts that the agent has.
    prompts: Vec<PromptId>,
}

impl Cancelled {
    /// Whether nothing was.
    pub fn is_empty(&self) -> bool {
        self.turn.is_none() && self.prompts.is_empty()
    }

    /// What of it is also in another one.
    #[must_use]
    pub fn still_in(&self, other: &Self) -> Self {
        let prompts = self.prompts.iter().copied().filter(|prompt| other.prompts.contains(prompt));
        Self { turn: self.turn.filter(|_| self.turn == other.turn), prompts: prompts.collect() }
    }

    /// Whether it is nothing but prompts.
    pub fn is_no_turn(&self) -> bool {
        self.turn.is_none()
    }
}

/// Which prompts are withdrawn when a turn is cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// All that are not in the conversation.
    Session,
    /// Those of the one who cancels.
    Turn,
    /// None.
    Prompt,
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TurnEnd {
    /// As turns end.
    Completed,
    /// With an error.
    Failed(Option<Json>),
    /// The agent refused to go on.
    Refused,
    /// Somebody cancelled it.
    Cancelled,
}

/// Names a client that takes part. Later ones have greater names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId(pub u64);

impl ClientId {
    /// Who sent the prompts of which that is not known any more. No client is named so.
    pub const UNKNOWN: Self = Self(0);
}

/// The clients that take part, the longest there first.
type Clients = BTreeMap<ClientId, Client>;

/// What matters of a client that takes part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    /// The name that it gave itself.
    pub name: Option<JsonStr>,
    /// Whether it may act, and so is asked.
    pub drives: bool,
    /// Whether its prompts are answered when their turn has ended, and not when they are accepted.
    pub waits: bool,
    /// Whether it can show forms.
    pub elicits: bool,
}

/// How an agent takes prompts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromptMode {
    /// One at a time, each answered at the end of its turn. Such an agent reports no states and names no prompts.
    Serial,
    /// Any number at any time; it says when it takes one, under which name, and what it is doing.
    Queued,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// A client takes part from now on.
    Attached(ClientId, Client),
    /// A client is gone.
    Detached(ClientId),
    /// A client wants no more of the session: prompts of its that wait are not wanted either.
    Closed(ClientId),
    /// A client sent a prompt.
    Prompted(Prompt),
    /// A prompt is not wanted any more. If it is too late for that, its turn is cancelled.
    Withdrawn {
        /// Which.
        prompt: PromptId,
        /// Who withdraws it.
        by: ClientId,
    },
    /// The running turn is not wanted any more, nor are prompts that wait.
    Cancelled {
        /// Who cancels.
        by: ClientId,
        /// Which of the prompts.
        scope: Scope,
    },
    /// The agent is there. `anew`: it was given the conversation to read and goes by names of its own from here on.
    AgentReady {
        /// How it takes prompts.
        taking: PromptMode,
        /// Whether names it used before mean nothing to it.
        anew: bool,
    },
    /// The same for an agent that has said something already: no prompt is sent until that is taken.
    AgentRestored {
        /// How it takes prompts.
        taking: PromptMode,
        /// Whether names it used before mean nothing to it.
        anew: bool,
    },
    /// All that a restored agent said before it was ready is taken.
    EarlyUpdatesTaken,
    /// The agent is about to be given the conversation in this envelope.
    ContextHandedOver(Envelope),
    /// The agent is gone. This is the state that the session is in, if it was busy.
    AgentGone(State),
    /// The agent is released and will be brought back when it is needed. Nothing runs then: an agent that is released
    /// in the middle of a turn is gone.
    AgentReleased,
    /// The agent said something about the conversation.
    AgentUpdate(Update, IdSource),
    /// The agent took a prompt.
    Accepted {
        /// Which.
        prompt: PromptId,
        /// Its message, if the agent named it.
        message: Option<MessageId>,
        /// What else it said.
        fields: Object,
    },
    /// The agent did not take a prompt.
    Rejected {
        /// Which.
        prompt: PromptId,
        /// Why.
        error: Json,
    },
    /// The agent dropped a prompt from its queue, as agents do when a turn is cancelled.
    Dropped {
        /// Which.
        prompt: PromptId,
        /// What it said.
        error: Json,
    },
    /// An agent that takes prompts one by one has ended a turn.
    Ended {
        /// The prompt that began it.
        prompt: PromptId,
        /// How it ended.
        state: State,
    },
    /// The agent asks a person.
    RequestOpened {
        /// The question.
        peer_request: PeerRequestId,
        /// Whether only clients that can show forms are asked.
        form: bool,
        /// The tool call that it wants permission for.
        call: Option<ToolCallId>,
    },
    /// A client answered.
    RequestAnswered {
        /// The question.
        peer_request: PeerRequestId,
        /// Who answered.
        by: ClientId,
        /// What.
        answer: Answer,
    },
    /// The agent does not want to know any more.
    RequestCancelled(PeerRequestId),
    /// Something parlor itself has to say about the conversation.
    ServerUpdate(Update),
    /// Something happened that is to stay visible in the conversation.
    Happened(EventKind),
    /// A person gives the session a title, or takes it away.
    Titled(Option<JsonStr>),
}

/// Something to be done, after what changed is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Hand this prompt to the agent.
    SendPrompt(Prompt),
    /// Tell the agent that a prompt which it has and did not take yet is not wanted any more.
    CancelPrompt(PromptId),
    /// Tell the agent to end the turn.
    CancelTurn,
    /// Answer the client that sent a prompt. [`ClientId::UNKNOWN`] stands for those who find out later that it came to nothing.
    RespondPrompt {
        /// The prompt.
        prompt: PromptId,
        /// Who sent it.
        by: ClientId,
        /// What came of it.
        outcome: PromptOutcome,
    },
    /// Put a question to a client.
    SendRequest(PeerRequestId, ClientId),
    /// Tell a client that a question needs no answer any more.
    CancelClientRequest(PeerRequestId, ClientId),
    /// Answer the agent.
    RespondRequest(PeerRequestId, Reply),
    /// Record who decided what; the reply to the agent follows.
    RecordDecision {
        /// The question.
        peer_request: PeerRequestId,
        /// Whose answer counts.
        by: ClientId,
        /// The answer.
        result: Json,
    },
    /// Tell the drivers which prompts wait.
    QueueChanged,
    /// A prompt waits and there is no agent: bring it back.
    StartAgent,
}

/// What came of one step.
#[derive(Debug, Default)]
pub struct Step {
    /// What changed in the transcript, in order.
    pub changes: Vec<Change>,
    /// What to do when the changes are stored, in order.
    pub effects: Vec<Effect>,
    /// Whether the changes must be safe from a power cut before that.
    pub durable: bool,
    /// Whether the prompts that wait or other such things changed, which are stored beside the transcript.
    pub upkeep: bool,
    /// Prompts that came into the conversation.
    pub inserted: Vec<Inserted>,
    /// After how many of the changes a turn ended: who waited for that is told there, before the next turn's changes.
    pub ended_after: Option<usize>,
    /// Prompts whose turn ended, and how.
    pub ended: Vec<(PromptId, State)>,
    /// Why something could not be taken.
    pub refused: Vec<Refused>,
}

/// A prompt that came into the conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inserted {
    /// Which.
    pub prompt: PromptId,
    /// Who sent it.
    pub by: ClientId,
    /// The message that it is now.
    pub message: MessageId,
    /// What it says.
    pub content: Json,
    /// How many changes of the step come before it.
    pub place: usize,
}

impl Session {
    /// A session that goes on from a transcript and what was kept beside it. Queued prompts keep their ids:
    /// later ones must have greater ids than [`last_prompt`](Self::last_prompt).
    pub fn new(transcript: Transcript, hooks: DialectHooks, kept: Option<&Object>) -> Self {
        let turn_began = transcript.seq();
        Self {
            id_map: IdMap::restored(kept),
            titles: Titles::restored(kept, &transcript),
            prompts: Prompts::restored(kept),
            transcript,
            hooks,
            peer_requests: PeerRequests::default(),
            clients: BTreeMap::new(),
            agent: None,
            last_taking: None,
            has_early_updates: false,
            echoes: Echoes::default(),
            candidate: None,
            bare: None,
            envelopes: Envelopes::restored(kept),
            turn_began,
            now: UnixMillis::default(),
            cancelling: None,
            cancels: 0,
            unpermitted: Vec::new(),
        }
    }

    /// What has to be kept beside the transcript.
    pub fn kept(&self) -> Object {
        let mut kept = Object::default();
        self.prompts.keep(&mut kept);
        self.id_map.keep(&mut kept);
        self.titles.keep(&mut kept);
        self.envelopes.keep(&mut kept);
        kept
    }

    /// The conversation.
    pub fn transcript(&self) -> &Transcript {
        &self.transcript
    }

    /// Which names the agent uses for which entries.
    pub fn id_map(&self) -> &IdMap {
        &self.id_map
    }

    /// The agent's name of a message that the session names; `None` if the agent does not know the message.
    pub fn agents_message(&self, role: Role, id: &MessageId) -> Option<MessageId> {
        self.id_map.agents_message(role, id, &self.transcript)
    }

    /// The messages and tool calls that the agent knows, by its names.
    pub fn agents_entries(&self) -> impl Iterator<Item = EntryId> + '_ {
        self.id_map.agents_entries(&self.transcript)
    }

    /// In what an agent that was not there is given the conversation.
    pub fn envelope(&self) -> Option<&Envelope> {
        self.envelopes.last()
    }

    /// All in which agents of this session were given the conversation, as far as they are remembered.
    pub fn envelopes(&self) -> impl Iterator<Item = &Envelope> {
        self.envelopes.used()
    }

    /// The prompts that wait.
    pub fn queued_prompts(&self) -> Vec<QueuedPrompt> {
        self.prompts.queued_prompts()
    }

    /// The greatest id that a prompt of the session ever had, 0 if there was none.
    pub fn last_prompt(&self) -> PromptId {
        self.prompts.last_id()
    }

    /// Whether a turn runs or something waits for an agent.
    pub fn is_busy(&self) -> bool {
        self.activity().is_busy() || self.prompts.any_open()
    }

    /// Who sent the prompt whose turn runs.
    pub fn prompter(&self) -> Option<ClientId> {
        self.prompts.open.running().map(|open| open.prompt.by)
    }

    /// How the agent takes prompts, if it is there.
    pub fn agent(&self) -> Option<PromptMode> {
        self.agent
    }

    /// The drivers that take part, the longest there first.
    pub fn drivers(&self) -> impl Iterator<Item = ClientId> + '_ {
        self.clients.iter().filter(|(_, client)| client.drives).map(|(id, _)| *id)
    }

    /// Whether a client takes part.
    pub fn is_attached(&self, client: ClientId) -> bool {
        self.clients.contains_key(&client)
    }

    /// Whether nobody takes part.
    pub fn has_no_clients(&self) -> bool {
        self.clients.is_empty()
    }

    /// Whether a turn runs, or waits for a person.
    pub fn is_running(&self) -> bool {
        self.activity().is_busy() || self.prompts.open.running().is_some()
    }

    /// Whether something was cancelled, a turn or a prompt that the agent has, and the agent has not said what came of it.
    pub fn is_cancelling(&self) -> bool {
        self.cancelling.is_some() || !self.prompts.withdrawn().is_empty()
    }

    /// What was cancelled and of which the agent has not said what came of it.
    pub fn cancelled(&self) -> Cancelled {
        Cancelled {
            turn: self.cancelling.is_some().then_some(self.cancels),
            prompts: self.prompts.withdrawn(),
        }
    }

    /// Whether a turn runs that nobody cancelled, nor withdrew the prompt of.
    pub fn is_wanted_turn_running(&self) -> bool {
        self.is_running() && self.cancelling.is_none() && !self.prompts.any_withdrawn_begun()
    }

    /// Takes one thing that happened, at a time. `new_id` gives ids that no session has.
    pub fn step(
        &mut self,
        input: Input,
        now: UnixMillis,
        new_id: &mut dyn FnMut() -> MessageId,
        out: &mut Step,
    ) {
        self.now = now;
        let waiting = self.prompts.waiting();
        self.happened(input, new_id, out);
        if self.prompts.waiting() != waiting {
            out.effects.push(Effect::QueueChanged);
        }
    }

    fn happened(&mut self, input: Input, new_id: &mut dyn FnMut() -> MessageId, out: &mut Step) {
        match input {
            Input::AgentUpdate(update, naming) => self.said(update, naming, new_id, out),
            Input::ServerUpdate(update) => self.push(update, out),
            Input::Happened(event) => self.record(event, new_id, out),
            Input::Titled(title) => {
                let limits = self.transcript.limits();
                self.retitle(|titles, _| titles.named(title, limits), out);
                out.durable = true;
            }
            Input::Attached(id, client) => self.joined(id, client, new_id, out),
            Input::Detached(id) => {
                self.clients.remove(&id);
                self.peer_requests.left(id, out);
                self.go_on(out);
            }
            Input::Closed(id) => {
                let by = self.decider(id);
                self.clients.remove(&id);
                self.peer_requests.closed(id, out);
                if self.clients.is_empty() {
                    self.cancel(by, Scope::Session, out);
                } else {
                    self.prompts.closed(id, out);
                    self.go_on(out);
                }
            }
            Input::Prompted(prompt) => {
                let waits = self.clients.get(&prompt.by).is_some_and(|client| client.waits);
                self.prompts.add(prompt, waits, out);
                self.advance(new_id, out);
            }
            Input::Withdrawn { prompt, by } => {
                if self.prompts.withdraw(prompt, by, out) {
                    self.cancel(self.decider(by), Scope::Prompt, out);
                }
            }
            Input::Cancelled { by, scope } => self.cancel(self.decider(by), scope, out),
            Input::AgentReady { taking, anew } => {
                self.agent_restored(taking, anew, out);
                self.early_updates_taken(new_id, out);
            }
            Input::AgentRestored { taking, anew } => self.agent_restored(taking, anew, out),
            Input::EarlyUpdatesTaken => self.early_updates_taken(new_id, out),
            Input::ContextHandedOver(envelope) => {
                self.envelopes.add(envelope);
                out.upkeep = true;
            }
            Input::AgentGone(state) => self.agent_gone(&state, new_id, out),
            Input::AgentReleased => {
                self.settle_echoes(new_id, out);
                self.agent = None;
                self.has_early_updates = false;
                self.peer_requests.withdraw_all(&Reply::Gone, out);
                self.prompts.agent_gone(out);
            }
            Input::Accepted { prompt, message, fields } => {
                self.accepted(prompt, message.as_ref(), fields, new_id, out);
            }
            Input::Rejected { prompt, error } => {
                self.prompts.rejected(prompt, &error, &self.clients, out);
                self.review_candidate(new_id, out);
                // Who rejects because no agent can be had does so for each prompt, and wants none again for the rest.
                if self.agent.is_some() {
                    self.advance(new_id, out);
                }
            }
            Input::Dropped { prompt, error } => {
                self.prompts.dropped(prompt, &error, &self.clients, out);
                self.review_candidate(new_id, out);
                // What the agent drops one by one goes back to it in order.
                if self.agent.is_some() && !self.prompts.any_spared() {
                    self.advance(new_id, out);
                }
            }
            Input::Ended { prompt, state } => self.ended(prompt, &state, new_id, out),
            Input::RequestOpened { peer_request, form, call } => {
                let asked = self.peer_requests.ask(peer_request, form, call, &self.clients, out);
                if asked && self.agent == Some(PromptMode::Serial) {
                    self.report(Activity::RequiresAction, out);
                }
            }
            Input::RequestAnswered { peer_request, by, answer } => {
                self.peer_requests.answer(peer_request, by, answer, out);
                self.go_on(out);
            }
            Input::RequestCancelled(peer_request) => {
                self.peer_requests.withdraw(peer_request, Reply::TakenBack, out);
                self.go_on(out);
            }
        }
    }

    fn agent_restored(&mut self, taking: PromptMode, anew: bool, out: &mut Step) {
        self.agent = Some(taking);
        self.last_taking = Some(taking);
        self.has_early_updates = true;
        self.echoes = Echoes::default();
        self.bare = None;
        if anew {
            self.id_map.begin_anew(self.transcript.seq());
            out.upkeep = true;
        }
        // A conversation that began elsewhere has none yet.
        self.retitle(Titles::make_for, out);
    }

    fn early_updates_taken(&mut self, new_id: &mut dyn FnMut() -> MessageId, out: &mut Step) {
        // The agent may be gone again.
        if !std::mem::take(&mut self.has_early_updates) {
            return;
        }
        self.advance(new_id, out);
    }

    fn joined(
        &mut self,
        id: ClientId,
        client: Client,
        new_id: &mut dyn FnMut() -> MessageId,
        out: &mut Step,
    ) {
        if !client.drives {
            self.clients.insert(id, client);
            return;
        }
        self.peer_requests.joined(id, &client, out);
        self.clients.insert(id, client);
        self.advance(new_id, out);
    }

    fn activity(&self) -> &Activity {
        self.transcript.state().map_or(&Activity::Idle, |state| &state.activity)
    }

    /// Takes an update into the transcript.
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
        match self.transcript.push(update) {
            Ok(change) => out.changes.push(change),
            Err(refused) => return out.refused.push(refused),
        }
        let same = slot.map(|slot| (self.hooks.same_setting)(&self.transcript, slot)).unwrap_or_default();
        for update in same {
            match self.transcript.push(update) {
                Ok(change) => out.changes.push(change),
                Err(refused) => out.refused.push(refused),
            }
        }
    }

    /// Takes an event into the transcript.
    fn record(&mut self, kind: EventKind, new_id: &mut dyn FnMut() -> MessageId, out: &mut Step) {
        let event = Event { id: EventId::from(new_id().as_json().clone()), at: self.now, kind };
        let upsert = (self.hooks.event)(&event);
        self.push(Update::Upsert { target: Target::Entry(EntryId::Event(event.id)), upsert }, out);
    }

    /// A client, as events name it.
    fn decider(&self, client: ClientId) -> Decider {
        Decider { client, name: self.clients.get(&client).and_then(|client| client.name.clone()) }
    }

    /// The turn ends in a state, by the agent's word or without the agent. Unless it ended as turns do, an event says so
    /// before.
    fn end_turn(
        &mut self,
        state: &State,
        is_agents: bool,
        new_id: &mut dyn FnMut() -> MessageId,
        out: &mut Step,
    ) {
        self.close_tool_calls(out);
        // A prompt that was withdrawn too late is cancelled with its turn.
        let withdrawn = self.prompts.running_withdrawn_by().map(|by| self.decider(by));
        let by = self.cancelling.take().or(withdrawn);
        if self.is_running() {
            let prompt = self.prompts.open.running().and_then(|open| open.message().cloned());
            let event = match (self.hooks.ended)(state) {
                TurnEnd::Completed => None,
                TurnEnd::Failed(error) => Some(EventKind::TurnFailed { prompt, error }),
                TurnEnd::Refused => Some(EventKind::TurnRefused { prompt }),
                TurnEnd::Cancelled => Some(EventKind::TurnCancelled { prompt, by, unanswered: !is_agents }),
            };
            event.into_iter().for_each(|event| self.record(event, new_id, out));
        }
        self.push(Update::State(state.clone()), out);
        self.echoes.age();
    }

    /// Reports a state for an agent that reports none.
    fn report(&mut self, activity: Activity, out: &mut Step) {
        if *self.activity() != activity {
            let state = State { activity, stop_reason: None, fields: Object::default(), meta: None };
            self.push(Update::State(state), out);
        }
    }

    /// After a question is off the table: an agent that reports no states goes on.
    fn go_on(&mut self, out: &mut Step) {
        if self.peer_requests.is_empty() && self.agent == Some(PromptMode::Serial) {
            let runs = self.prompts.open.running().is_some();
            if *self.activity() == Activity::RequiresAction {
                self.report(if runs { Activity::Running } else { Activity::Idle }, out);
            }
        }
    }

    /// Lets the titles change, and tells of it if another one shows.
    fn retitle(&mut self, change: impl FnOnce(&mut Titles, &Transcript) -> Option<Update>, out: &mut Step) {
        let mut titles = self.titles.clone();
        let told = change(&mut titles, &self.transcript);
        if titles == self.titles {
            return;
        }
        let refused = out.refused.len();
        told.into_iter().for_each(|update| self.push(update, out));
        if out.refused.len() == refused {
            self.titles = titles;
            out.upkeep = true;
        }
    }

    /// The agent said something about the session as a whole. A title that does not count is told nobody.
    fn said_info(&mut self, upsert: Upsert, out: &mut Step) {
        let mut titles = self.titles.clone();
        let counts = titles.said(upsert, self.transcript.limits());
        let refused = out.refused.len();
        if let Some(upsert) = counts {
            self.push(Update::Upsert { target: Target::Slot(Slot::Info), upsert }, out);
        }
        if out.refused.len() == refused && titles != self.titles {
            self.titles = titles;
            out.upkeep = true;
        }
    }

    /// The agent said something.
    fn said(
        &mut self,
        mut update: Update,
        naming: IdSource,
        new_id: &mut dyn FnMut() -> MessageId,
        out: &mut Step,
    ) {
        if let Update::State(state) = update {
            match self.agent {
                Some(PromptMode::Serial) => out.refused.push(Refused::UnexpectedState),
                Some(PromptMode::Queued) | None => self.reported(&state, new_id, out),
            }
            return;
        }
        if let Update::Upsert { target: Target::Slot(Slot::Info), upsert } = update {
            self.said_info(upsert, out);
            return;
        }
        if let Some(EntryId::Event(_)) = entry_of(&mut update) {
            out.refused.push(Refused::ReservedEntry);
            return;
        }
        if !self.envelopes.is_empty() {
            let Self { envelopes, id_map, transcript, .. } = self;
            let is_new = |entry: &EntryId| {
                if let EntryId::Message(role, id) = entry {
                    id_map.known(*role, id, transcript).is_none()
                } else {
                    transcript.get(entry).is_none()
                }
            };
            let Uncovered { before, update: rest } = envelopes.cut(update, naming, is_new);
            self.take_uncovered(before, new_id, out);
            let Some(rest) = rest else { return };
            update = rest;
        }
        self.take_uncovered([(update, naming)], new_id, out);
    }

    /// Takes updates that have nothing of an envelope.
    fn take_uncovered(
        &mut self,
        updates: impl IntoIterator<Item = (Update, IdSource)>,
        new_id: &mut dyn FnMut() -> MessageId,
        out: &mut Step,
    ) {
        for (update, naming) in updates {
            if let Some(news) = self.without_prompts(update, naming, new_id, out) {
                self.take(news, naming, new_id, out);
            }
        }
    }

    /// The turn is over, or the agent is: what may be an echo and was not finished is none.
    fn settle_echoes(&mut self, new_id: &mut dyn FnMut() -> MessageId, out: &mut Step) {
        let kept = self.envelopes.end();
        self.take_uncovered(kept, new_id, out);
        self.settle_candidate(new_id, out);
        self.close_echo();
        let left = self.echoes.turn_ended();
        self.take_all(left, new_id, out);
    }

    /// Takes updates that are no prompt.
    fn take_all(
        &mut self,
        updates: Vec<(Update, IdSource)>,
        new_id: &mut dyn FnMut() -> MessageId,
        out: &mut Step,
    ) {
        updates.into_iter().for_each(|(update, naming)| self.take(update, naming, new_id, out));
    }

    /// An update of the agent's, under the names of this session.
    fn take(
        &mut self,
        mut update: Update,
        naming: IdSource,
        new_id: &mut dyn FnMut() -> MessageId,
        out: &mut Step,
    ) {
        let starts = naming == IdSource::StartsToolCall;
        let Self { id_map, transcript, hooks, turn_began, .. } = self;
        if let Some(entry) = entry_of(&mut update) {
            let is_over = |body: &Body| (hooks.is_final)(body);
            out.upkeep |= id_map.rename(entry, transcript, starts, *turn_began, is_over, new_id);
        }
        let takes_back = match &update {
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
        if takes_back {
            // A title may have been made of it.
            self.retitle(Titles::remake, out);
        }
    }

    /// An agent that reports states said what it does.
    fn reported(&mut self, state: &State, new_id: &mut dyn FnMut() -> MessageId, out: &mut Step) {
        let is_idle = state.activity == Activity::Idle;
        if is_idle {
            self.settle_echoes(new_id, out);
            // The agent took these and never said under which name.
            for prompt in self.prompts.open.accepted() {
                self.insert(prompt, None, new_id, out);
            }
        } else if *self.activity() == Activity::Idle {
            self.turn_began = self.transcript.seq();
        }
        if is_idle {
            self.end_turn(state, true, new_id, out);
        } else {
            self.push(Update::State(state.clone()), out);
        }
        self.prompts.on_state(state, out);
        if is_idle {
            self.advance(new_id, out);
        }
    }

    /// Puts a prompt into the conversation, under the agent's name for it if it has one; whether it is there now.
    fn insert(
        &mut self,
        prompt: PromptId,
        named: Option<&MessageId>,
        new_id: &mut dyn FnMut() -> MessageId,
        out: &mut Step,
    ) -> bool {
        let Some(found) = self.prompts.open.get(prompt).filter(|open| !open.is_inserted()) else {
            return false;
        };
        let (by, sent, pattern) = (found.prompt.by, found.prompt.content.clone(), found.pattern.clone());
        let content = blocks(&sent);
        let mut entry = EntryId::Message(Role::User, named.cloned().unwrap_or_else(&mut *new_id));
        if let (Some(named), EntryId::Message(_, id)) = (named, &mut entry) {
            if self.id_map.known(Role::User, named, &self.transcript).is_some() {
                // A prompt is never another message, whatever the agent calls it.
                *id = new_id();
                self.id_map.same(Role::User, named.clone(), id);
                out.upkeep = true;
            } else {
                let Self { id_map, transcript, turn_began, .. } = self;
                out.upkeep |= id_map.rename(&mut entry, transcript, false, *turn_began, |_| false, new_id);
            }
        }
        let EntryId::Message(_, message) = &entry else { return false };
        let message = message.clone();
        let upsert = Upsert { content: crate::Patch::Value(content), ..Upsert::default() };
        let place = out.changes.len();
        match self.transcript.push(Update::Upsert { target: Target::Entry(entry), upsert }) {
            Ok(change) => out.changes.push(change),
            Err(refused) => {
                out.refused.push(refused);
                self.prompts.refused(prompt, &PromptOutcome::NoRoom(refused), &self.clients, out);
                return false;
            }
        }
        self.close_echo();
        self.echoes.expect(&message, named.is_some(), pattern);
        out.inserted.push(Inserted { prompt, by, message: message.clone(), content: sent, place });
        self.is_in_conversation(prompt, message, out);
        true
    }

    /// Lets what waits go on, as far as it can.
    fn advance(&mut self, new_id: &mut dyn FnMut() -> MessageId, out: &mut Step) {
        if self.has_early_updates {
            return;
        }
        let Some(taking) = self.agent else {
            if self.prompts.first_queued().is_some() && self.drivers().next().is_some() {
                out.effects.push(Effect::StartAgent);
            }
            return;
        };
        match taking {
            PromptMode::Queued => {
                let is_idle = !self.activity().is_busy();
                self.prompts.send_all(self.transcript.seq(), is_idle, out);
            }
            PromptMode::Serial => {
                if self.prompts.open.running().is_some() {
                    return;
                }
                if self.prompts.first_queued().is_some() {
                    let kept = self.envelopes.begin_turn();
                    self.take_uncovered(kept, new_id, out);
                }
                let began = self.transcript.seq();
                while let Some(next) = self.prompts.first_queued() {
                    if self.insert(next, None, new_id, out) {
                        self.turn_began = began;
                        self.report(Activity::Running, out);
                        let sent =
                            self.prompts.open.get(next).map(|open| Effect::SendPrompt(open.prompt.clone()));
                        out.effects.extend(sent);
                        break;
                    }
                }
                if self.prompts.open.running().is_some() && !self.peer_requests.is_empty() {
                    self.report(Activity::RequiresAction, out);
                }
            }
        }
    }

    fn ended(
        &mut self,
        prompt: PromptId,
        state: &State,
        new_id: &mut dyn FnMut() -> MessageId,
        out: &mut Step,
    ) {
        if self.prompts.open.running().is_none_or(|running| running.id != prompt) {
            return;
        }
        self.settle_echoes(new_id, out);
        self.cancel_questions(out);
        self.end_turn(state, true, new_id, out);
        self.prompts.on_state(state, out);
        out.upkeep = true;
        self.advance(new_id, out);
    }

    fn cancel(&mut self, by: Decider, scope: Scope, out: &mut Step) {
        // An agent may have begun with a prompt and not said so yet, or not know how to give one back.
        let is_busy = self.activity().is_busy() || self.prompts.any_with_agent();
        self.prompts.withdraw_all(by.client, scope, out);
        if self.is_running() && self.cancelling.is_none() {
            self.cancelling = Some(by);
            self.cancels += 1;
        }
        // First, so that the agent does not take the answers for something to go on with.
        if is_busy {
            out.effects.push(Effect::CancelTurn);
        }
        self.cancel_questions(out);
        self.go_on(out);
        if !self.is_running() {
            // What was cancelled was no turn, and nothing else ends it.
            self.cancelling = None;
            self.close_tool_calls(out);
        }
    }

    fn cancel_questions(&mut self, out: &mut Step) {
        self.unpermitted.extend(self.peer_requests.calls().map(EntryId::ToolCall));
        self.peer_requests.withdraw_all(&Reply::Cancelled, out);
    }

    /// Nothing goes on with tool calls that were never permitted, nor with those of a turn that was cancelled if the agent
    /// has no other way to go on with them.
    fn close_tool_calls(&mut self, out: &mut Step) {
        let mut cancelled = std::mem::take(&mut self.unpermitted);
        if self.cancelling.is_some() && self.agent == Some(PromptMode::Serial) {
            let turn = self.transcript.entries().iter().rev();
            let turn = turn.take_while(|entry| entry.created() > self.turn_began);
            let calls = turn.filter(|entry| matches!(entry.id(), EntryId::ToolCall(_)));
            cancelled.extend(calls.map(|entry| entry.id().clone()));
        }
        for entry in cancelled {
            let body = self.transcript.get(&entry).map(Entry::body).filter(|body| !body.removed);
            if let Some(upsert) = body.and_then(|body| (self.hooks.cancelled)(body)) {
                self.push(Update::Upsert { target: Target::Entry(entry), upsert }, out);
            }
        }
    }

    fn agent_gone(&mut self, state: &State, new_id: &mut dyn FnMut() -> MessageId, out: &mut Step) {
        self.settle_echoes(new_id, out);
        let was_ready = self.agent.take().is_some() && !std::mem::take(&mut self.has_early_updates);
        self.echoes = Echoes::default();
        self.peer_requests.withdraw_all(&Reply::Gone, out);
        let changes = out.changes.len();
        if self.activity().is_busy() || self.prompts.open.running().is_some() {
            self.end_tool_calls(out);
            self.end_turn(state, false, new_id, out);
        }
        self.cancelling = None;
        let is_told = out.changes.len() > changes;
        self.prompts.on_state(state, out);
        self.prompts.agent_gone(out);
        if !was_ready {
            self.prompts.agent_never_came();
        }
        out.upkeep = true;
        // It may be what ends the agents. Those that wait behind it get another agent.
        if let Some(prompt) = self.prompts.take_hopeless() {
            if !is_told {
                if let TurnEnd::Failed(error) = (self.hooks.ended)(state) {
                    self.record(EventKind::TurnFailed { prompt: None, error }, new_id, out);
                }
                self.push(Update::State(state.clone()), out);
            }
            self.prompts.refused(prompt, &PromptOutcome::Failed(state.clone()), &self.clients, out);
        }
        self.advance(new_id, out);
    }

    /// Tool calls that nobody will go on with have failed, or were cancelled with their turn.
    fn end_tool_calls(&mut self, out: &mut Step) {
        let end = if self.cancelling.is_some() { self.hooks.cancelled } else { self.hooks.failed };
        let entries = self.transcript.entries().iter();
        let open: Vec<_> = entries
            .filter(|entry| matches!(entry.id(), EntryId::ToolCall(_)) && !entry.body().removed)
            .filter_map(|entry| Some((entry.id().clone(), end(entry.body())?)))
            .collect();
        for (entry, upsert) in open {
            self.push(Update::Upsert { target: Target::Entry(entry), upsert }, out);
        }
    }
}

/// The entry that an update is about, to be named otherwise.
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

fn string_member(object: &Object, name: &str) -> Option<JsonStr> {
    JsonStr::from_raw(object.get(name)?.raw())
}
