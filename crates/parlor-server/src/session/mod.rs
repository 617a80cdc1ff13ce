//! One task for each live session, which owns it.
//!
//! It takes all that is ready, lets the session step through it, hands what changed to the store, and only then tells
//! anybody: clients what changed, the agent what it is to do. Nothing here waits for a client or an agent.

mod agent;
mod aliases;
mod bursts;
mod calls;
mod chosen;
pub(crate) mod fork;
mod forward;
mod join;
mod keep;
mod open;
mod seat;
mod tell;
mod title;
mod words;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parlor_dialect::live::Stream;
use parlor_dialect::{Decoder, Dialect, Losses};
use parlor_json::{Json, JsonStr, Object};
use parlor_session::session::{
    Answer, ClientId, Effect, Held, Input, Inserted, PromptId, QuestionId, Reply as Decision, Session, Step,
};
use parlor_session::{EntryId, MessageId, Role, SessionId, Transcript, Unsaved};
use parlor_store::SessionRow;
use parlor_wire::{RequestId, RpcError};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use crate::agent::{Agent, Reply};
use crate::client::Client;
use crate::hub::Shared;
use crate::services::terminals::{TerminalEvent, Terminals};

pub(crate) use self::agent::Bound;
use self::aliases::Aliases;
use self::bursts::Bursts;
use self::forward::Forward;
pub(crate) use self::forward::Forwarded;
pub(crate) use self::join::From;
pub(crate) use self::open::{Replay, start};
use self::seat::Seat;
use self::tell::{Groups, Marks};
use self::title::Owed;
use self::words::Unworded;

/// How a session is reached.
pub(crate) type Inbox = mpsc::Sender<Message>;

/// How many messages may wait for a session. Who sends more waits.
pub(crate) const INBOX: usize = 1024;

/// How many bytes of updates are taken before what changed is stored and told.
const DRAIN: usize = 1 << 20;

/// Something for a session to do.
#[derive(Debug)]
pub(crate) enum Message {
    /// A client wants to take part; the answer tells it what it missed.
    Join { client: Arc<Client>, id: RequestId, from: From },
    /// A client that was told what it missed takes part from now on.
    Seated(ClientId),
    /// A client keeps up again.
    Drained(ClientId),
    /// A client is gone.
    Left(ClientId),
    /// A client wants no more of the session.
    Close { client: Arc<Client>, id: RequestId },
    /// A client speaks.
    Prompt { client: Arc<Client>, id: RequestId, params: Object },
    /// A client takes back a request.
    TakeBack { client: ClientId, id: RequestId },
    /// A client takes back a prompt of anybody's.
    Unhold { client: Arc<Client>, id: RequestId, prompt: PromptId },
    /// The turn is not wanted any more.
    Cancel,
    /// A person gives the session a title, or takes it away.
    Title { client: Arc<Client>, id: RequestId, title: Option<JsonStr> },
    /// The session is put away, or taken out again.
    Archive { client: Arc<Client>, id: RequestId, archived: bool },
    /// The session is to go.
    Delete { client: Arc<Client>, id: RequestId },
    /// The conversation is to go on elsewhere as well.
    Fork(Box<fork::Request>),
    /// A client takes part without having asked for what was.
    Attach(Arc<Client>),
    /// A client speaks, and what comes of it is seen in the session. Before that it is given an answer, if one is due.
    Say { client: Arc<Client>, content: Json, answer: Option<(RequestId, Object)> },
    /// Something for the agent; without an id it wants no answer.
    Forward { client: Arc<Client>, id: Option<RequestId>, method: String, params: Object },
    /// A client answered a question.
    Answered { question: QuestionId, by: ClientId, answer: Answer },
    /// Lines of the agent, each an update of this session, and their place among what is on its way.
    Lines(String, Option<OwnedSemaphorePermit>),
    /// The agent asks.
    AgentAsks { id: RequestId, method: String, params: Object },
    /// The agent takes back what it asked.
    AgentUnasks(RequestId),
    /// The agent says something that is no update.
    AgentNotes(String),
    /// The agent answered.
    AgentAnswered(AgentCall, Reply),
    /// The agent is there, or cannot be brought back.
    AgentReady(Result<Bound, RpcError>),
    /// The agent is gone.
    AgentGone(RpcError),
    /// The agent may have finished telling old stories.
    Quiet,
    /// What the agent said about the session too fast may be told.
    InfoDue,
    /// Something happened to a terminal that parlor runs for the agent.
    Terminal(TerminalEvent),
    /// Parlor answered what the agent asked.
    Served(RequestId, Reply),
    /// Somebody wants to know what was said, once this message is there.
    Look { message: Option<MessageId>, reply: oneshot::Sender<Transcript> },
    /// Time has passed.
    Tick,
    /// The server ends. Whoever holds the other end learns when all is stored.
    End(oneshot::Sender<()>),
}

/// What an agent was asked for.
#[derive(Debug)]
pub(crate) enum AgentCall {
    /// To take a prompt.
    Prompt(PromptId),
    /// Something for a client.
    Forwarded(Forwarded),
}

/// A session and what it is made of.
pub(crate) struct Actor {
    hub: Arc<Shared>,
    id: SessionId,
    inbox: mpsc::Receiver<Message>,
    me: Inbox,
    session: Session,
    row: SessionRow,
    /// The row as it was last written, unless it has to be written in any case.
    row_stored: Option<SessionRow>,
    row_written: Instant,
    decoder: Decoder,
    /// What the agent says about the session faster than it is told.
    bursts: Bursts,
    /// How the agent said its last chunk.
    stream: Option<Stream>,
    agent: Option<Bound>,
    /// Whether an agent is being brought back. What it says meanwhile are old stories.
    starting: Option<Starting>,
    /// Whether the agent has to be given the conversation with the next prompt.
    hand_over: bool,
    /// The prompt with which it was given the conversation, until it has taken it.
    handed: Option<PromptId>,
    terminals: Option<Terminals>,
    seats: BTreeMap<ClientId, Seat>,
    /// Who closed the session and has yet to hear so.
    leaving: Vec<ClientId>,
    /// Whose answer a prompt is.
    prompts: HashMap<PromptId, (ClientId, RequestId)>,
    /// Prompts that nobody waits for an answer of.
    unasked: HashSet<PromptId>,
    /// What the agent knows a prompt by.
    sent: HashMap<PromptId, RequestId>,
    next_prompt: u64,
    /// Which prompts wait, as the drivers were told.
    held: Vec<Held>,
    held_changed: bool,
    questions: HashMap<QuestionId, Asked>,
    next_question: u64,
    /// What people last decided, as JSON, the oldest first.
    answers: VecDeque<String>,
    /// Who wants to know what was said, and after which message.
    lookers: Vec<(Option<MessageId>, oneshot::Sender<Transcript>)>,
    /// Forks that have yet to be stored, and stored ones that wait for the agent.
    forks: Vec<fork::Planned>,
    waiting_forks: Vec<fork::Planned>,
    /// What clients want of an agent that is being brought back, and what they want of the one that is there, by the id
    /// under which it was asked.
    waiting_calls: Vec<Forward>,
    passed_on: HashMap<(ClientId, RequestId), RequestId>,
    /// What an agent that is being brought back wants to know to have been taken.
    unsettled: Vec<RequestId>,
    aliases: Aliases,
    unsaved: Unsaved,
    unworded: Unworded,
    due: Due,
    /// Whom to answer when all is stored, besides those who take part.
    owed: Vec<Owed>,
    /// Whether the agent has to hear of a person's title when it is stored.
    retitled: bool,
    /// What to do when all is stored.
    effects: Vec<Effect>,
    groups: Groups,
    /// Room for what comes of one step, so that not every chunk has to make some.
    room: Step,
    losses: Losses,
    last_active: Instant,
    /// The last change that the store has taken.
    stored: u64,
    ends: Option<End>,
}

/// Where things stand among what is said in one step.
struct StepMarks {
    /// Before all that changed.
    before: Marks,
    /// Where the turn ended, else at the end.
    ended: Marks,
}

/// What has to be written besides changes of the transcript.
#[derive(Debug, Clone, Copy, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each of them is due or not by itself")]
struct Due {
    /// The session's row.
    row: bool,
    /// What is kept beside the transcript.
    kept: bool,
    /// What people decided.
    answers: bool,
    /// Under which other names messages were told.
    aliases: bool,
    /// All of it must be safe from a power cut.
    durable: bool,
}

/// What the agent wants to know.
#[derive(Debug)]
struct Asked {
    /// Its own id for the question.
    id: RequestId,
    method: String,
    params: Object,
    /// Ours, by whom was asked.
    clients: HashMap<ClientId, RequestId>,
    /// Whether it is put to one client and its answer is passed on whatever it is.
    forwarded: bool,
}

/// An agent on its way back.
#[derive(Debug)]
struct Starting {
    since: Instant,
    /// When it last said something.
    heard: Instant,
    /// Whether it may tell old stories.
    replays: bool,
    bound: Option<Bound>,
}

/// Why a session's task ends.
#[derive(Debug)]
enum End {
    /// It cannot be stored.
    Failed(RpcError),
    /// Nobody needs it now.
    Unused,
    /// It was deleted.
    Deleted,
    /// The server ends.
    Stopped(Vec<oneshot::Sender<()>>),
}

impl Actor {
    async fn run(mut self) {
        while let Some(first) = self.inbox.recv().await {
            self.settle_pace();
            let mut bytes = first.weight();
            self.take(first);
            while bytes < DRAIN
                && self.ends.is_none()
                && let Ok(next) = self.inbox.try_recv()
            {
                bytes += next.weight();
                self.take(next);
            }
            self.tell_held();
            if let Err(failed) = self.store().await {
                self.fail(&failed);
                break;
            }
            self.flush();
            self.let_go();
            // Before the agent hears of anything that is not in the forks.
            self.forked();
            self.act();
            self.show();
            self.pump_all();
            if self.due.aliases
                && let Err(failed) = self.store().await
            {
                self.fail(&failed);
                break;
            }
            if self.ends.is_some() {
                break;
            }
        }
        self.leave().await;
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Lines(lines, _) => self.lines(&lines),
            Message::Join { client, id, from } => self.join(client, id, &from),
            Message::Seated(client) => self.seated(client),
            Message::Drained(client) => self.drained(client),
            Message::Left(client) => self.left(client),
            Message::Close { client, id } => self.close(&client, &id),
            Message::Prompt { client, id, params } => self.prompt(&client, id, params),
            Message::TakeBack { client, id } => self.take_back(client, &id),
            Message::Unhold { client, id, prompt } => self.unhold(&client, &id, prompt),
            Message::Cancel => self.step(Input::Cancelled),
            Message::Title { client, id, title } => self.set_title(&client, id, title),
            Message::Archive { client, id, archived } => self.archive(&client, id, archived),
            Message::Delete { client, id } => self.delete(&client, &id),
            Message::Fork(request) => self.fork(&request),
            Message::Attach(client) => {
                self.hub.note_peer(&self.id, &client.peer);
                self.attach(&client);
            }
            Message::Say { client, content, answer } => self.speak(&client, content, answer),
            Message::Forward { client, id, method, params } => {
                self.forward(client, id, method, params);
            }
            Message::Answered { question, by, answer } => self.answered(question, by, answer),
            Message::AgentAsks { id, method, params } => self.agent_asks(id, method, params),
            Message::AgentUnasks(id) => self.agent_unasks(&id),
            Message::AgentNotes(line) => self.agent_notes(&line),
            Message::AgentAnswered(call, reply) => self.agent_answered(call, reply),
            Message::AgentReady(bound) => self.agent_ready(bound),
            Message::AgentGone(error) => self.agent_gone(&error),
            Message::Quiet => self.quiet(),
            Message::InfoDue => self.info_due(),
            Message::Terminal(event) => self.terminal(event),
            Message::Served(id, reply) => {
                if let Some(bound) = &self.agent {
                    bound.agent.answer(&id, &reply);
                }
            }
            Message::Look { message, reply } => self.lookers.push((message, reply)),
            Message::Tick => self.tick(),
            Message::End(done) => self.end(done),
        }
    }

    /// Lets the session take one thing.
    fn step(&mut self, input: Input) {
        let mut step = std::mem::take(&mut self.room);
        self.session.step(input, &mut fresh, &mut step);
        let before = self.marks_for(&step);
        let marks = self.took(&mut step, before);
        self.effects(step, &marks);
    }

    /// Notes what changed, and puts it into words for all who listen. `before` is where they were before the step.
    fn took(&mut self, step: &mut Step, before: Marks) -> StepMarks {
        for Inserted { prompt, by, message, content } in step.inserted.drain(..) {
            // Who did not send it in so many words is told what it says.
            if let Some(seat) = self.seats.get_mut(&by).filter(|_| !self.unasked.contains(&prompt)) {
                seat.listener.sent(&message, &content);
            }
        }
        let mut ended = None;
        let ended_after = step.ended_after;
        for (place, change) in step.changes.drain(..).enumerate() {
            if ended_after == Some(place) {
                ended = Some(self.groups.marks());
            }
            self.unsaved.note(&change);
            self.unworded.note(&change);
            self.changed(&change);
            self.tell(&change, None, None);
        }
        StepMarks { before, ended: ended.unwrap_or_else(|| self.marks_for(step)) }
    }

    /// Where things stand now, if anything of a step is going to be put there.
    fn marks_for(&self, step: &Step) -> Marks {
        if step.effects.is_empty() { Marks::default() } else { self.groups.marks() }
    }

    /// What a step wants done: clients hear of it with what changed, the rest waits until that is stored.
    fn effects(&mut self, mut step: Step, marks: &StepMarks) {
        self.due.kept |= std::mem::take(&mut step.upkeep);
        self.due.durable |= std::mem::take(&mut step.durable);
        step.ended_after = None;
        for refused in step.refused.drain(..) {
            tracing::warn!(session = %self.id, "an update was not taken: {refused}");
        }
        for effect in step.effects.drain(..) {
            match effect {
                Effect::Settle { prompt, by, outcome } => self.settle(prompt, by, &outcome, marks),
                Effect::Ask(question, client) => self.ask(question, client),
                Effect::Withdraw(question, client) => self.withdraw(question, client),
                Effect::HeldChanged => self.held_changed = true,
                Effect::Reply(question, Decision::Result(ref result)) => {
                    self.decided(question, result);
                    self.effects.push(effect);
                }
                Effect::Send(_)
                | Effect::Recall(_)
                | Effect::Interrupt
                | Effect::Reply(..)
                | Effect::NeedAgent
                | Effect::Release => self.effects.push(effect),
            }
        }
        self.room = step;
    }

    /// Shows those who want to know what was said.
    fn show(&mut self) {
        if self.lookers.is_empty() {
            return;
        }
        let transcript = self.session.transcript();
        let is_there = |message: &Option<MessageId>| {
            message
                .as_ref()
                .is_none_or(|id| transcript.get(&EntryId::Message(Role::User, id.clone())).is_some())
        };
        for (_, reply) in self.lookers.extract_if(.., |(message, _)| is_there(message)) {
            let _ = reply.send(transcript.clone());
        }
        // Who waits for what never comes, and does so no more, is forgotten.
        self.lookers.retain(|(_, reply)| !reply.is_closed());
    }

    fn agent_dialect(&self) -> Dialect {
        self.agent.as_ref().map_or(self.decoder.dialect(), |bound| bound.agent.dialect)
    }

    fn bound(&self) -> Option<(&Arc<Agent>, &SessionId)> {
        self.agent.as_ref().map(|bound| (&bound.agent, &bound.session))
    }

    /// Time passed: a session that nobody needs leaves its place.
    fn tick(&mut self) {
        let idle = self.hub.idle();
        let background = self.session.is_busy() || self.reports_background();
        if self.seats.is_empty()
            && !background
            && self.starting.is_none()
            && self.waiting_forks.is_empty()
            && self.bursts.is_empty()
            && self.last_active.elapsed() >= idle
        {
            self.ends = Some(End::Unused);
        }
    }

    /// Whether the agent said that something goes on without a turn.
    fn reports_background(&self) -> bool {
        let state = self.session.transcript().state();
        let count =
            state.and_then(|state| state.fields.get("backgroundTasks")).map(parlor_json::Json::as_str);
        count.is_some_and(|tasks| !matches!(tasks, "0" | "[]" | "null" | "false"))
    }

    fn end(&mut self, done: oneshot::Sender<()>) {
        self.flush_info();
        match &mut self.ends {
            Some(End::Stopped(all)) => all.push(done),
            Some(End::Failed(_) | End::Unused | End::Deleted) | None => {
                self.ends = Some(End::Stopped(vec![done]));
            }
        }
    }

    /// The task ends. What the session has is stored; the agent may forget it.
    async fn leave(mut self) {
        if !self.waiting_forks.is_empty() {
            self.go_on_with_forks(Some(&crate::hub::no_session(&self.id)));
        }
        if matches!(self.ends, Some(End::Unused)) && !self.hub.forget(&self.id, &mut self.inbox) {
            // Somebody came at the last moment.
            self.ends = None;
            return Box::pin(self.run()).await;
        }
        if matches!(self.ends, Some(End::Unused)) {
            let mut late = Vec::new();
            while let Some(message) = self.inbox.recv().await {
                late.push(message);
            }
            self.hub.send_again(&self.id, late);
        }
        if matches!(self.ends, Some(End::Deleted | End::Failed(_)) | None) {
            self.hub.forget_now(&self.id);
        }
        let refused = match &self.ends {
            Some(End::Failed(error)) => Some(error.clone()),
            Some(End::Deleted) => Some(crate::hub::no_session(&self.id)),
            Some(End::Unused | End::Stopped(_)) | None => None,
        };
        if let Some(error) = refused {
            self.refuse_calls(&error);
            if matches!(self.ends, Some(End::Deleted)) {
                self.tell_those_behind(&error);
            }
            // What came meanwhile is answered as well.
            self.inbox.close();
            while let Some(message) = self.inbox.recv().await {
                message.refuse(&error);
            }
        }
        // With the server, its agents end as well.
        if let Some(bound) = self.agent.take().filter(|_| !matches!(self.ends, Some(End::Stopped(_)))) {
            match self.ends {
                Some(End::Deleted) => bound.discard(),
                Some(_) | None => bound.release(&self.hub, &self.id),
            }
        }
        if let Some(End::Stopped(all)) = self.ends {
            for done in all {
                let _ = done.send(());
            }
        }
    }
}

impl Message {
    /// How much work a message is, in bytes.
    fn weight(&self) -> usize {
        if let Self::Lines(lines, _) = self { lines.len() } else { 256 }
    }

    /// Answers a request that nobody will look at.
    pub(crate) fn refuse(&self, error: &RpcError) {
        if let Some((client, id)) = self.asked() {
            client.outbox.push(crate::json::error(id, error).into());
        }
    }

    /// Who waits for an answer to this, and to which request.
    pub(crate) fn asked(&self) -> Option<(&Arc<Client>, &RequestId)> {
        match self {
            Self::Fork(request) => Some((&request.client, &request.id)),
            Self::Say { client, answer: Some((id, _)), .. } => Some((client, id)),
            Self::Join { client, id, .. }
            | Self::Close { client, id }
            | Self::Prompt { client, id, .. }
            | Self::Unhold { client, id, .. }
            | Self::Title { client, id, .. }
            | Self::Archive { client, id, .. }
            | Self::Delete { client, id }
            | Self::Forward { client, id: Some(id), .. }
            | Self::AgentAnswered(AgentCall::Forwarded(Forwarded { client, id, .. }), _) => {
                Some((client, id))
            }
            Self::Attach(_)
            | Self::Say { answer: None, .. }
            | Self::Seated(_)
            | Self::Drained(_)
            | Self::Left(_)
            | Self::TakeBack { .. }
            | Self::Cancel
            | Self::Forward { id: None, .. }
            | Self::Answered { .. }
            | Self::Lines(..)
            | Self::AgentAsks { .. }
            | Self::AgentUnasks(_)
            | Self::AgentNotes(_)
            | Self::AgentAnswered(AgentCall::Prompt(_), _)
            | Self::AgentReady(_)
            | Self::AgentGone(_)
            | Self::Quiet
            | Self::InfoDue
            | Self::Terminal(_)
            | Self::Served(..)
            | Self::Look { .. }
            | Self::Tick
            | Self::End(_) => None,
        }
    }
}

/// An id that no session has.
fn fresh() -> MessageId {
    MessageId::from(uuid::Uuid::now_v7().simple().to_string().as_str())
}

/// Now, in milliseconds since 1970.
pub(crate) fn now() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

/// How long an agent has to be silent until its old stories are over, and how long that may take.
pub(crate) const SILENCE: Duration = Duration::from_millis(200);
pub(crate) const MOST_SILENCE: Duration = Duration::from_secs(10);
