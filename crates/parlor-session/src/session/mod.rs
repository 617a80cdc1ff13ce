//! A live session: what happens to a conversation when people and an agent act on it.
//!
//! [`Session::step`] takes one thing that happened and says what came of it: changes of the transcript, and effects,
//! which are what somebody with hands has to do. It waits for nothing and knows no clock.

mod echo;
mod fork;
mod names;
mod prompts;
mod questions;
mod title;

use std::collections::BTreeMap;

use parlor_json::{Json, JsonStr, Object};

use self::echo::{Again, Echo, Echoes, Ending};
pub use self::fork::{AgentsPoint, Fork, Moved, NotForked, Point};
pub use self::names::Names;
use self::prompts::Prompts;
pub use self::prompts::{Held, Prompt, PromptId, Settled, Stage};
use self::questions::Questions;
pub use self::questions::{Answer, QuestionId, Reply};
pub use self::title::TITLE_MARK;
use self::title::Titles;
use crate::{
    Activity, Body, Change, EntryId, MessageId, Naming, Refused, Role, Slot, State, Target, Transcript,
    Update, Upsert,
};

/// A conversation, who takes part in it, and what is going on.
#[derive(Debug)]
pub struct Session {
    transcript: Transcript,
    words: Words,
    names: Names,
    titles: Titles,
    prompts: Prompts,
    questions: Questions,
    clients: BTreeMap<ClientId, Client>,
    agent: Option<TurnTaking>,
    /// What an agent that takes prompts one by one says again of the one it has.
    echo: Option<Echo>,
    /// What an agent that takes any number of prompts says again of them.
    echoes: Echoes,
    /// The change before the running turn: entries that are older belong to earlier ones.
    turn_began: u64,
}

/// How the transcript of an agent's dialect is read where a session has to know what it means.
#[derive(Debug, Clone, Copy)]
pub struct Words {
    /// Whether a tool call is over.
    pub is_final: fn(&Body) -> bool,
    /// What makes a tool call that will never go on a failed one; `None` if it is over.
    pub failed: fn(&Body) -> Option<Upsert>,
}

/// Names a client that takes part. Later ones have greater names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId(pub u64);

impl ClientId {
    /// Who sent the prompts of which that is not known any more. No client is named so.
    pub const NOBODY: Self = Self(0);
}

/// What matters of a client that takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Client {
    /// Whether it may act, and so is asked.
    pub drives: bool,
    /// Whether its prompts are answered when their turn has ended, and not when they are accepted.
    pub waits: bool,
    /// Whether it can show forms.
    pub elicits: bool,
}

/// How an agent takes prompts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnTaking {
    /// One at a time, each answered at the end of its turn. Such an agent reports no states and names no prompts.
    OneByOne,
    /// Any number at any time; it says when it takes one, under which name, and what it is doing.
    Queueing,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// A client takes part from now on.
    Joined(ClientId, Client),
    /// A client is gone.
    Left(ClientId),
    /// A client wants no more of the session: prompts of its that wait are not wanted either.
    Closed(ClientId),
    /// A client sent a prompt.
    Prompted(Prompt),
    /// A prompt is not wanted any more.
    TakenBack(PromptId),
    /// The running turn is not wanted any more, nor what waits after it.
    Cancelled,
    /// The agent is there. `anew`: it was given the conversation to read and goes by names of its own from here on.
    AgentReady {
        /// How it takes prompts.
        taking: TurnTaking,
        /// Whether names it used before mean nothing to it.
        anew: bool,
    },
    /// The agent is gone. This is the state that the session is in, if it was busy.
    AgentGone(State),
    /// The agent is released and will be brought back when it is needed. Nothing runs then: an agent that is released
    /// in the middle of a turn is gone.
    AgentReleased,
    /// The agent said something about the conversation.
    Said(Update, Naming),
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
    /// An agent that takes prompts one by one has ended a turn.
    Ended {
        /// The prompt that began it.
        prompt: PromptId,
        /// How it ended.
        state: State,
    },
    /// The agent asks a person.
    Asked {
        /// The question.
        question: QuestionId,
        /// Whether only clients that can show forms are asked.
        form: bool,
    },
    /// A client answered.
    Answered {
        /// The question.
        question: QuestionId,
        /// Who answered.
        by: ClientId,
        /// What.
        answer: Answer,
    },
    /// The agent does not want to know any more.
    Unasked(QuestionId),
    /// Something parlor itself has to say about the conversation.
    Noted(Update),
    /// A person gives the session a title, or takes it away.
    Titled(Option<JsonStr>),
}

/// Something to be done, after what changed is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Hand this prompt to the agent.
    Send(Prompt),
    /// Tell the agent that a prompt which it has and did not take yet is not wanted any more.
    Recall(PromptId),
    /// Tell the agent to end the turn.
    Interrupt,
    /// Answer the client that sent a prompt.
    Settle {
        /// The prompt.
        prompt: PromptId,
        /// Who sent it.
        by: ClientId,
        /// What came of it.
        outcome: Settled,
    },
    /// Put a question to a client.
    Ask(QuestionId, ClientId),
    /// Tell a client that a question needs no answer any more.
    Withdraw(QuestionId, ClientId),
    /// Answer the agent.
    Reply(QuestionId, Reply),
    /// Tell the drivers which prompts wait.
    HeldChanged,
    /// A prompt waits and there is no agent: bring it back.
    NeedAgent,
    /// Nobody wants the session any more: let the agent forget it.
    Release,
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
}

impl Session {
    /// A session that goes on from a transcript and what was kept beside it. Prompts that waited keep their names:
    /// later ones must have others than those that are [`held`](Self::held).
    pub fn new(transcript: Transcript, words: Words, kept: Option<&Object>) -> Self {
        let turn_began = transcript.seq();
        Self {
            names: Names::restored(kept),
            titles: Titles::restored(kept, &transcript),
            prompts: Prompts::restored(kept),
            transcript,
            words,
            questions: Questions::default(),
            clients: BTreeMap::new(),
            agent: None,
            echo: None,
            echoes: Echoes::default(),
            turn_began,
        }
    }

    /// What has to be kept beside the transcript.
    pub fn kept(&self) -> Object {
        let mut kept = Object::default();
        self.prompts.keep(&mut kept);
        self.names.keep(&mut kept);
        self.titles.keep(&mut kept);
        kept
    }

    /// The conversation.
    pub fn transcript(&self) -> &Transcript {
        &self.transcript
    }

    /// Which names the agent uses for which entries.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// The agent's name of a message that the session names; `None` if the agent does not know the message.
    pub fn agents_message(&self, role: Role, id: &MessageId) -> Option<MessageId> {
        self.names.agents_message(role, id, &self.transcript)
    }

    /// The prompts that wait.
    pub fn held(&self) -> Vec<Held> {
        self.prompts.held()
    }

    /// Whether a turn runs or something waits for an agent.
    pub fn is_busy(&self) -> bool {
        self.activity().is_busy() || self.prompts.any_open()
    }

    /// Who sent the prompt whose turn runs.
    pub fn prompter(&self) -> Option<ClientId> {
        self.prompts.running().map(|prompt| prompt.by)
    }

    /// How the agent takes prompts, if it is there.
    pub fn agent(&self) -> Option<TurnTaking> {
        self.agent
    }

    /// The drivers that take part, the longest there first.
    pub fn drivers(&self) -> impl Iterator<Item = ClientId> + '_ {
        self.clients.iter().filter(|(_, client)| client.drives).map(|(id, _)| *id)
    }

    /// Whether a client takes part.
    pub fn takes_part(&self, client: ClientId) -> bool {
        self.clients.contains_key(&client)
    }

    /// Whether nobody takes part.
    pub fn is_deserted(&self) -> bool {
        self.clients.is_empty()
    }

    /// Takes one thing that happened. `fresh` gives ids that no session has.
    pub fn step(&mut self, input: Input, fresh: &mut dyn FnMut() -> MessageId, out: &mut Step) {
        let waiting = self.prompts.waiting();
        self.happened(input, fresh, out);
        if self.prompts.waiting() != waiting {
            out.effects.push(Effect::HeldChanged);
        }
    }

    fn happened(&mut self, input: Input, fresh: &mut dyn FnMut() -> MessageId, out: &mut Step) {
        match input {
            Input::Said(update, naming) => self.said(update, naming, fresh, out),
            Input::Noted(update) => self.push(update, out),
            Input::Titled(title) => {
                let limits = self.transcript.limits();
                self.retitle(|titles, _| titles.named(title, limits), out);
                out.durable = true;
            }
            Input::Joined(id, client) => {
                self.clients.insert(id, client);
                if client.drives {
                    self.questions.joined(id, client, out);
                    self.advance(fresh, out);
                }
            }
            Input::Left(id) => {
                self.clients.remove(&id);
                self.questions.left(id, out);
                self.go_on(out);
            }
            Input::Closed(id) => {
                self.clients.remove(&id);
                self.prompts.closed(id, out);
                self.questions.closed(id, out);
                self.go_on(out);
                if self.clients.is_empty() {
                    self.cancel(out);
                    out.effects.push(Effect::Release);
                }
            }
            Input::Prompted(prompt) => {
                let waits = self.clients.get(&prompt.by).is_some_and(|client| client.waits);
                self.prompts.add(prompt, waits, out);
                self.advance(fresh, out);
            }
            Input::TakenBack(prompt) => self.prompts.take_back(prompt, out),
            Input::Cancelled => self.cancel(out),
            Input::AgentReady { taking, anew } => {
                self.agent = Some(taking);
                self.echo = None;
                self.echoes = Echoes::default();
                if anew {
                    self.names.begin_anew(self.transcript.seq());
                    out.upkeep = true;
                }
                // A conversation that began elsewhere has none yet.
                self.retitle(Titles::make_for, out);
                self.advance(fresh, out);
            }
            Input::AgentGone(state) => self.agent_gone(&state, fresh, out),
            Input::AgentReleased => {
                self.agent = None;
                self.questions.withdraw_all(&Reply::Gone, out);
                self.prompts.agent_gone(out);
            }
            Input::Accepted { prompt, message, fields } => {
                self.accepted(prompt, message.as_ref(), fields, fresh, out);
            }
            Input::Rejected { prompt, error } => {
                self.prompts.rejected(prompt, &error, out);
                // Who rejects because no agent can be had does so for each prompt, and wants none again for the rest.
                if self.agent.is_some() {
                    self.advance(fresh, out);
                }
            }
            Input::Ended { prompt, state } => self.ended(prompt, &state, fresh, out),
            Input::Asked { question, form } => {
                let asked = self.questions.ask(question, form, &self.clients, out);
                if asked && self.agent == Some(TurnTaking::OneByOne) {
                    self.report(Activity::RequiresAction, out);
                }
            }
            Input::Answered { question, by, answer } => {
                self.questions.answer(question, by, answer, out);
                self.go_on(out);
            }
            Input::Unasked(question) => {
                self.questions.withdraw(question, Reply::TakenBack, out);
                self.go_on(out);
            }
        }
    }

    fn activity(&self) -> &Activity {
        self.transcript.state().map_or(&Activity::Idle, |state| &state.activity)
    }

    /// Takes an update into the transcript.
    fn push(&mut self, update: Update, out: &mut Step) {
        match self.transcript.push(update) {
            Ok(change) => out.changes.push(change),
            Err(refused) => out.refused.push(refused),
        }
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
        if self.questions.is_empty() && self.agent == Some(TurnTaking::OneByOne) {
            let runs = self.prompts.running().is_some();
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
    fn said(&mut self, update: Update, naming: Naming, fresh: &mut dyn FnMut() -> MessageId, out: &mut Step) {
        if let Update::State(state) = update {
            self.reported(&state, fresh, out);
            return;
        }
        if let Update::Upsert { target: Target::Slot(Slot::Info), upsert } = update {
            self.said_info(upsert, out);
            return;
        }
        let news = if self.agent == Some(TurnTaking::Queueing) {
            self.not_a_prompt(update, fresh, out)
        } else {
            self.not_an_echo(update, naming, fresh, out)
        };
        if let Some(update) = news {
            self.take(update, naming, fresh, out);
        }
    }

    /// An update of the agent's, under the names of this session.
    fn take(
        &mut self,
        mut update: Update,
        naming: Naming,
        fresh: &mut dyn FnMut() -> MessageId,
        out: &mut Step,
    ) {
        let starts = naming == Naming::StartsToolCall;
        let Self { names, transcript, words, turn_began, .. } = self;
        if let Some(entry) = entry_of(&mut update) {
            let is_over = |body: &Body| (words.is_final)(body);
            out.upkeep |= names.rename(entry, transcript, starts, *turn_began, is_over, fresh);
        }
        let takes_back = match &update {
            Update::Upsert { target: Target::Entry(EntryId::Message(Role::User, _)), upsert } => {
                upsert.whole || !upsert.content.is_omitted()
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
    fn reported(&mut self, state: &State, fresh: &mut dyn FnMut() -> MessageId, out: &mut Step) {
        let is_idle = state.activity == Activity::Idle;
        if is_idle {
            // The agent took these and never said under which name.
            for prompt in self.prompts.accepted_unnamed() {
                self.insert(prompt, None, fresh, out);
            }
        } else if *self.activity() == Activity::Idle {
            self.turn_began = self.transcript.seq();
        }
        self.push(Update::State(state.clone()), out);
        if is_idle {
            self.echoes.age();
            self.prompts.turn_ended(state, out);
            self.advance(fresh, out);
        }
    }

    /// Looks whether an agent that takes prompts one by one says its prompt again; what is left is news.
    fn not_an_echo(
        &mut self,
        mut update: Update,
        naming: Naming,
        fresh: &mut dyn FnMut() -> MessageId,
        out: &mut Step,
    ) -> Option<Update> {
        let Some(mut echo) = self.echo.take() else { return Some(update) };
        let is_late = entry_of(&mut update)
            .and_then(|entry| self.transcript.get(entry))
            .is_some_and(|entry| entry.created() <= self.turn_began);
        match echo.hears(update, naming, is_late) {
            echo::Heard::Waits => {
                self.echo = Some(echo);
                None
            }
            echo::Heard::Beside(update) => {
                self.echo = Some(echo);
                Some(update)
            }
            echo::Heard::Over(update) => {
                self.heard(echo.ending(), fresh, out);
                Some(update)
            }
        }
    }

    /// What was taken for a prompt said again is that, or news.
    fn heard(&mut self, ending: Ending, fresh: &mut dyn FnMut() -> MessageId, out: &mut Step) {
        match ending {
            Ending::Again(message, Some(named)) => {
                self.names.same(Role::User, named, &message);
                out.upkeep = true;
            }
            Ending::Again(_, None) => {}
            Ending::News(news) => {
                news.into_iter().for_each(|(update, naming)| self.take(update, naming, fresh, out));
            }
        }
    }

    /// Looks whether an agent that names prompts says one, for the first time or again; what is left is news.
    fn not_a_prompt(
        &mut self,
        mut update: Update,
        fresh: &mut dyn FnMut() -> MessageId,
        out: &mut Step,
    ) -> Option<Update> {
        let Some((named, text)) = echo::user_text(&update) else {
            if let Some(entry) = entry_of(&mut update) {
                // The agent answers what it took and did not name.
                if self.prompts.running().is_none()
                    && self.transcript.get(entry).is_none()
                    && let Some(prompt) = self.prompts.accepted_unnamed().first()
                {
                    self.insert(*prompt, None, fresh, out);
                }
                self.echoes.age();
            }
            return Some(update);
        };
        if self.names.known(Role::User, named, &self.transcript).is_none()
            && let Some(prompt) = self.prompts.begun_by(&text)
        {
            let named = named.clone();
            self.insert(prompt, Some(&named), fresh, out);
        }
        match self.echoes.hears(update) {
            Again::No(update) => Some(update),
            Again::Yes { named, left } => {
                if let Some((named, message)) = named {
                    self.names.same(Role::User, named, &message);
                    out.upkeep = true;
                }
                left
            }
        }
    }

    fn accepted(
        &mut self,
        prompt: PromptId,
        message: Option<&MessageId>,
        fields: Object,
        fresh: &mut dyn FnMut() -> MessageId,
        out: &mut Step,
    ) {
        self.prompts.accepted(prompt, fields);
        if let Some(named) = message {
            let open = self.prompts.get(prompt);
            let inserted = open.and_then(|open| Some((open.stage.message()?.clone(), &open.prompt.content)));
            match inserted {
                // It was taken for another message of the agent's: both are this one.
                Some((message, content))
                    if self.names.known(Role::User, named, &self.transcript).is_none() =>
                {
                    self.echoes.expect(&message, Some(named), &echo::blocks(content));
                    self.names.same(Role::User, named.clone(), &message);
                    out.upkeep = true;
                }
                Some(_) => {}
                None => {
                    self.insert(prompt, message, fresh, out);
                }
            }
        }
        self.prompts.settle_accepted(prompt, out);
    }

    /// Puts a prompt into the conversation, under the agent's name for it if it has one; whether it is there now.
    fn insert(
        &mut self,
        prompt: PromptId,
        named: Option<&MessageId>,
        fresh: &mut dyn FnMut() -> MessageId,
        out: &mut Step,
    ) -> bool {
        let Some(found) = self.prompts.get(prompt).filter(|prompt| prompt.stage.message().is_none()) else {
            return false;
        };
        let (by, sent) = (found.prompt.by, found.prompt.content.clone());
        let content = echo::blocks(&sent);
        let mut entry = EntryId::Message(Role::User, named.cloned().unwrap_or_else(&mut *fresh));
        if let (Some(named), EntryId::Message(_, id)) = (named, &mut entry) {
            if self.names.known(Role::User, named, &self.transcript).is_some() {
                // A prompt is never another message, whatever the agent calls it.
                *id = fresh();
                self.names.same(Role::User, named.clone(), id);
                out.upkeep = true;
            } else {
                let Self { names, transcript, turn_began, .. } = self;
                out.upkeep |= names.rename(&mut entry, transcript, false, *turn_began, |_| false, fresh);
            }
        }
        let EntryId::Message(_, message) = &entry else { return false };
        let message = message.clone();
        let upsert = Upsert { content: crate::Patch::Value(content.clone()), ..Upsert::default() };
        match self.transcript.push(Update::Upsert { target: Target::Entry(entry), upsert }) {
            Ok(change) => out.changes.push(change),
            Err(refused) => {
                out.refused.push(refused);
                self.prompts.refused(prompt, &Settled::NoRoom(refused), out);
                return false;
            }
        }
        if self.agent == Some(TurnTaking::Queueing) {
            self.echoes.expect(&message, named, &content);
        } else {
            self.echo = Some(Echo::of(&message, &content));
        }
        out.inserted.push(Inserted { prompt, by, message: message.clone(), content: sent });
        self.prompts.inserted(prompt, message);
        self.retitle(|titles, _| titles.make(&content), out);
        out.durable = true;
        out.upkeep = true;
        self.prompts.settle_accepted(prompt, out);
        true
    }

    /// Lets what waits go on, as far as it can.
    fn advance(&mut self, fresh: &mut dyn FnMut() -> MessageId, out: &mut Step) {
        let Some(taking) = self.agent else {
            if self.prompts.first_held().is_some() && self.drivers().next().is_some() {
                out.effects.push(Effect::NeedAgent);
            }
            return;
        };
        match taking {
            TurnTaking::Queueing => self.prompts.send_all(out),
            TurnTaking::OneByOne => {
                if self.prompts.running().is_some() {
                    return;
                }
                let began = self.transcript.seq();
                while let Some(next) = self.prompts.first_held() {
                    if self.insert(next, None, fresh, out) {
                        self.turn_began = began;
                        self.report(Activity::Running, out);
                        self.prompts.send(next, out);
                        break;
                    }
                }
                if self.prompts.running().is_some() && !self.questions.is_empty() {
                    self.report(Activity::RequiresAction, out);
                }
            }
        }
    }

    fn ended(
        &mut self,
        prompt: PromptId,
        state: &State,
        fresh: &mut dyn FnMut() -> MessageId,
        out: &mut Step,
    ) {
        if self.prompts.running().is_none_or(|running| running.id != prompt) {
            return;
        }
        if let Some(echo) = self.echo.take() {
            self.heard(echo.ending(), fresh, out);
        }
        self.questions.withdraw_all(&Reply::Cancelled, out);
        self.push(Update::State(state.clone()), out);
        self.prompts.turn_ended(state, out);
        out.upkeep = true;
        self.advance(fresh, out);
    }

    fn cancel(&mut self, out: &mut Step) {
        // An agent may have begun with a prompt and not said so yet, or not know how to give one back.
        let is_busy = self.activity().is_busy() || self.prompts.any_with_agent();
        self.prompts.take_back_all(out);
        // First, so that the agent does not take the answers for something to go on with.
        if is_busy {
            out.effects.push(Effect::Interrupt);
        }
        self.questions.withdraw_all(&Reply::Cancelled, out);
        self.go_on(out);
    }

    fn agent_gone(&mut self, state: &State, fresh: &mut dyn FnMut() -> MessageId, out: &mut Step) {
        let was_there = self.agent.take().is_some();
        if let Some(echo) = self.echo.take() {
            self.heard(echo.ending(), fresh, out);
        }
        self.echoes = Echoes::default();
        self.questions.withdraw_all(&Reply::Gone, out);
        if self.activity().is_busy() || self.prompts.running().is_some() {
            self.fail_tool_calls(out);
            self.push(Update::State(state.clone()), out);
        }
        self.prompts.turn_ended(state, out);
        self.prompts.agent_gone(out);
        if !was_there {
            self.prompts.agent_never_came();
        }
        out.upkeep = true;
        if !self.prompts.is_hopeless() {
            self.advance(fresh, out);
        }
    }

    /// Tool calls that nobody will go on with have failed.
    fn fail_tool_calls(&mut self, out: &mut Step) {
        let entries = self.transcript.entries().iter();
        let open: Vec<_> = entries
            .filter(|entry| matches!(entry.id(), EntryId::ToolCall(_)) && !entry.body().removed)
            .filter_map(|entry| Some((entry.id().clone(), (self.words.failed)(entry.body())?)))
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

fn string_member(object: &Object, name: &str) -> Option<JsonStr> {
    JsonStr::from_raw(object.get(name)?.raw())
}
