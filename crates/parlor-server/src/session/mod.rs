//! One task for each live session, which owns it.
//!
//! It takes all that is ready, lets the session step through it, hands what changed to the store, and only then tells
//! anybody: clients what changed, the agent what it is to do. Nothing here waits for a client or an agent.

mod agent;
mod aliases;
mod calls;
pub(crate) mod fork;
mod forward;
mod join;
mod keep;
mod open;
mod restore;
mod seat;
mod shell;
mod tell;
mod title;
mod words;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parlor_dialect::live::{AgentLine, Stream};
use parlor_dialect::{Decoder, Dialect, LossKind, Losses, live};
use parlor_engine::{
    AgentCommand, AgentEpoch, AgentLink, Delivery, Frame, IdGen, InfoThrottle, Now, SessionConfig, Timer,
};
use parlor_json::{Json, JsonStr, Object};
use parlor_session::session::{
    Answer, ClientId, Effect, Held, Input, Inserted, PromptId, QuestionId, Scope, Session, Step, TurnEnd,
};
use parlor_session::{EntryId, MessageId, Naming, Role, SessionId, Transcript, Unsaved, Update};
use parlor_store::SessionRow;
use parlor_wire::{RequestId, RpcError, code};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use crate::agent::{Reply, Tie};
use crate::client::Client;
use crate::hub::Shared;
use crate::resident::Share;
use crate::services::budget::{FileRequest, FileShare};
use crate::services::terminals::{TerminalEvent, Terminals};

pub(crate) use self::agent::UNPLACED;
use self::aliases::Aliases;
use self::forward::Forward;
pub(crate) use self::forward::Forwarded;
pub(crate) use self::join::From;
use self::join::Leaving;
pub(crate) use self::open::start;
pub(crate) use self::restore::Bound;
use self::restore::RefusedSettings;
use self::seat::Seat;
use self::tell::{Groups, Marks};
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
    /// A client wants to take part, and may say where the session works; the answer tells it what it missed.
    Join { client: Arc<Client>, id: RequestId, from: From, cwd: Option<String> },
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
    /// A client withdraws a queued prompt of anybody's.
    WithdrawPrompt { client: Arc<Client>, id: RequestId, prompt: PromptId },
    /// The turn is not wanted any more.
    Cancel { by: ClientId, scope: Scope },
    /// A person gives the session a title, or takes it away.
    Title { client: Arc<Client>, id: RequestId, title: Option<JsonStr> },
    /// A client asks what the session does.
    Status { client: Arc<Client>, id: RequestId },
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
    /// A frame for these clients, if they take part; which they were is said when they were told.
    Relay { frame: Frame, clients: Vec<ClientId>, told: oneshot::Sender<Vec<ClientId>> },
    /// Something of an agent, in one of its incarnations.
    Agent(AgentEpoch, AgentMessage),
    /// The agent's session is restored, or cannot be.
    AgentReady(Box<Result<Bound, RpcError>>),
    /// A timer that the session set has run out.
    Timer(Timer),
    /// Something happened to a terminal that parlor runs for the agent.
    Terminal(TerminalEvent),
    /// Somebody wants to know what was said, once this message is there.
    Look { message: Option<MessageId>, reply: oneshot::Sender<Transcript> },
    /// Time has passed.
    Tick,
    /// The server ends. Whoever holds the other end learns when all is stored.
    End(oneshot::Sender<()>),
}

/// A number that no incarnation of an agent had.
pub(crate) fn next_epoch() -> AgentEpoch {
    static LAST: AtomicU64 = AtomicU64::new(0);
    AgentEpoch(LAST.fetch_add(1, Ordering::Relaxed) + 1)
}

/// Where the messages of one incarnation of an agent go.
#[derive(Debug, Clone)]
pub(crate) struct Link {
    pub(crate) inbox: Inbox,
    pub(crate) epoch: AgentEpoch,
    /// Whether that is a session, and not something that receives for one that is not there yet.
    pub(crate) is_session: bool,
}

impl Link {
    /// Sends a message; gives it back if nobody receives any more.
    pub(crate) async fn send(&self, message: AgentMessage) -> Result<(), AgentMessage> {
        match self.inbox.send(Message::Agent(self.epoch, message)).await {
            Err(mpsc::error::SendError(Message::Agent(_, back))) => Err(back),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

/// Something that an agent says to a session, or that is done for the agent there.
#[derive(Debug)]
pub(crate) enum AgentMessage {
    /// Lines of the agent, each an update of this session, and their place among what is on its way.
    Lines(String, Option<OwnedSemaphorePermit>),
    /// The agent asks.
    Asks { id: RequestId, method: String, params: Object },
    /// A file that the agent asked for is one that it may have, and a client's to serve.
    FileAllowed { id: RequestId, method: String, params: Object, request: FileRequest },
    /// The agent takes back what it asked.
    Unasks(RequestId),
    /// The agent says something that is no update.
    Notes(String),
    /// The agent answered.
    Answered(AgentCall, Reply),
    /// The agent could not be asked.
    Failed(parlor_engine::AgentCall, Json),
    /// The agent is gone.
    Gone(RpcError),
    /// Parlor answered what the agent asked.
    Served(RequestId, Reply, Option<FileShare>),
}

impl AgentMessage {
    /// Answers a request that nobody will look at.
    pub(crate) fn refuse(&self, error: &RpcError) {
        if let Self::Answered(AgentCall::Forwarded(Forwarded { connection, call }), _) = self
            && let Some(client) = connection.upgrade()
        {
            client.queue.push(Frame::error(&call.id, error));
        }
    }
}

/// What an agent was asked for.
#[derive(Debug)]
pub(crate) enum AgentCall {
    /// To begin or restore a session, which has no part in it yet.
    Restore,
    /// To take a prompt.
    Prompt(PromptId),
    /// Something for a client.
    Forwarded(Forwarded),
    /// To take a title.
    SetTitle,
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
    row_written: Duration,
    /// The time that the agent gave as the last activity, while lists show it.
    agents_time: Option<JsonStr>,
    decoder: Decoder,
    /// What the agent says about the session faster than it is told.
    throttle: InfoThrottle,
    /// When its task began, from which it counts time.
    started: Instant,
    /// The time of what is being taken.
    now: Now,
    ids: IdGen,
    config: SessionConfig,
    /// The timers that were set.
    timers: Vec<(Duration, Timer)>,
    /// How the agent said its last chunk.
    stream: Option<Stream>,
    agent: Option<AgentLink>,
    /// The agent sessions that this session has, or had until what it wants of them is done.
    ties: HashMap<AgentEpoch, Tie>,
    /// What agents are wanted to do once all is stored.
    commands: Vec<(AgentEpoch, AgentCommand)>,
    /// The incarnation of the agent that is there, or was there last.
    epoch: AgentEpoch,
    /// Since when the agent's session is being restored.
    starting: Option<Duration>,
    /// What the agent did not accept again of what was chosen, until it is told to who sends a prompt.
    refused_settings: Option<RefusedSettings>,
    /// Whether the agent has to be given the conversation with the next prompt.
    hand_over: bool,
    /// The prompt with which it was given the conversation, until its turn is over.
    handed: Option<PromptId>,
    terminals: Option<Terminals>,
    /// Requests for files that wait at a client, by the agent's ids: they count until they are answered.
    file_requests: HashMap<RequestId, FileRequest>,
    seats: BTreeMap<ClientId, Seat>,
    /// The clients that asked something of the session.
    clients: HashMap<ClientId, Weak<Client>>,
    /// What clients are sent once all is stored.
    sends: Vec<Delivery>,
    /// The ids under which clients were sent requests.
    requests: HashMap<(ClientId, QuestionId), RequestId>,
    leaving: Leaving,
    /// What the session takes before what is in its inbox.
    pending: VecDeque<Message>,
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
    /// Who wants to know what was said, and after which message.
    lookers: Vec<(Option<MessageId>, oneshot::Sender<Transcript>)>,
    /// Forks that were asked for, those that are made once all is stored, and stored ones that wait for the agent.
    forks: Vec<fork::Planned>,
    fork_starts: Vec<fork::Start>,
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
    owed: Vec<(ClientId, Frame)>,
    /// Whether the agent has to hear of a person's title when it is stored.
    retitled: bool,
    /// Who waits for lines to be told to clients, and to which.
    relayed: Vec<(oneshot::Sender<Vec<ClientId>>, Vec<ClientId>)>,
    /// What its agent said of the session when it opened it, beside modes, models, options and commands.
    opened: Object,
    /// What to do when all is stored.
    effects: Vec<Effect>,
    groups: Groups,
    /// Room for what comes of one step, so that not every chunk has to make some.
    room: Step,
    losses: Losses,
    last_active: Duration,
    /// What it takes in memory.
    share: Share,
    /// The last change that the store has taken.
    stored: u64,
    ends: Option<End>,
}

/// Where things stand among what is said in one step.
struct StepMarks {
    /// Before all that changed.
    before: Marks,
    /// Before the messages that prompts became.
    inserted: Vec<(PromptId, Marks)>,
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
    /// Under which other names messages were told.
    aliases: bool,
    /// What the agent said when it opened the session.
    opened: bool,
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
    /// Who was asked.
    clients: HashSet<ClientId>,
    /// Whether it is put to one client and its answer is passed on whatever it is.
    forwarded: bool,
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
        while let Some(first) = self.next().await {
            self.now = self.read_clocks();
            self.settle_pace();
            let mut bytes = first.weight();
            self.take_one(first).await;
            while bytes < DRAIN
                && self.ends.is_none()
                && let Some(next) = self.pending.pop_front().or_else(|| self.inbox.try_recv().ok())
            {
                bytes += next.weight();
                self.take_one(next).await;
            }
            self.finish_batch();
            if let Err(failed) = self.store().await {
                self.fail(&failed);
                break;
            }
            self.release_output();
            if self.ends.is_some() {
                break;
            }
        }
        self.leave().await;
    }

    /// All that was ready is taken: decides what comes of it.
    fn finish_batch(&mut self) {
        // Before the agent is sent anything that is not in the forks.
        self.decide_forks();
        self.act();
        self.tell_held();
        self.flush();
        self.let_go();
        self.pump_all();
    }

    /// Waits for something to do.
    async fn next(&mut self) -> Option<Message> {
        match self.pending.pop_front() {
            Some(message) => Some(message),
            None => self.inbox.recv().await,
        }
    }

    async fn take_one(&mut self, message: Message) {
        if let Message::AgentReady(restored) = message {
            self.agent_ready(*restored).await;
        } else {
            self.take(message);
        }
    }

    fn take(&mut self, message: Message) {
        if let Some(client) = message.client() {
            self.register_client(client, message.notes_peer());
        }
        // Who closes the session is told so before anything else comes of what it says.
        if message.sender().is_some_and(|client| self.is_leaving(client)) {
            if self.leaving.deferred.len() < INBOX {
                self.leaving.deferred.push(message);
            } else {
                let error =
                    RpcError::new(code::INTERNAL_ERROR, "too much waits for the session to be closed");
                message.refuse(&error);
            }
            return;
        }
        match message {
            Message::Agent(epoch, message) if epoch < self.epoch => {
                // It is not about the agent that is there now.
                let error = RpcError::new(code::INTERNAL_ERROR, "the agent that was asked is gone");
                message.refuse(&error);
            }
            Message::Agent(_, message) => self.take_from_agent(message),
            // It is received where the agent can be waited for.
            Message::AgentReady(_) => {}
            Message::Join { client, id, from, cwd } => self.join(client.info(), id, &from, cwd),
            Message::Seated(client) => self.seated(client),
            Message::Drained(client) => self.drained(client),
            Message::Left(client) => {
                self.clients.remove(&client);
                self.requests.retain(|(by, _), _| *by != client);
                self.left(client);
            }
            Message::Close { client, id } => self.close(&client.info(), id),
            Message::Prompt { client, id, params } => self.prompt(&client.info(), id, params),
            Message::TakeBack { client, id } => self.take_back(client, &id),
            Message::WithdrawPrompt { client, id, prompt } => {
                self.withdraw_prompt(&client.info(), &id, prompt);
            }
            Message::Cancel { by, scope } => self.step(Input::Cancelled { by, scope }),
            Message::Title { client, id, title } => self.set_title(&client.info(), &id, title),
            Message::Status { client, id } => self.status(&client.info(), &id),
            Message::Archive { client, id, archived } => self.archive(&client.info(), id, archived),
            Message::Delete { client, id } => self.delete(&client.info(), &id),
            Message::Fork(request) => self.fork(&request),
            Message::Attach(client) => self.attach(&client.info()),
            Message::Say { client, content, answer } => self.speak(&client.info(), content, answer),
            Message::Forward { client, id, method, params } => {
                self.forward(client.info(), id, method, params);
            }
            Message::Answered { question, by, answer } => {
                self.requests.remove(&(by, question));
                self.answered(question, by, answer);
            }
            Message::Relay { frame, clients, told } => self.relay(&frame, &clients, told),
            Message::Timer(Timer::Cancel(epoch, cancelled)) => self.cancel_overdue(epoch, &cancelled),
            Message::Timer(Timer::Throttle) => self.info_due(),
            Message::Terminal(event) => self.terminal(event),
            Message::Look { message, reply } => self.lookers.push((message, reply)),
            Message::Tick => self.tick(),
            Message::End(done) => self.end(done),
        }
    }

    fn take_from_agent(&mut self, message: AgentMessage) {
        match message {
            AgentMessage::Lines(lines, _) => self.lines(&lines),
            AgentMessage::Asks { id, method, params } => self.agent_asks(id, method, params),
            AgentMessage::FileAllowed { id, method, params, request } => {
                self.file_requests.insert(id.clone(), request);
                self.file_allowed(id, method, params);
            }
            AgentMessage::Unasks(id) => self.agent_unasks(&id),
            AgentMessage::Notes(line) => self.agent_notes(&line),
            AgentMessage::Answered(call, reply) => {
                if let Some(call) = self.finish_call(call) {
                    self.agent_answered(call, reply);
                }
            }
            AgentMessage::Failed(call, error) => self.agent_answered(call, Err(error)),
            AgentMessage::Gone(error) => self.agent_gone(&error),
            AgentMessage::Served(id, reply, share) => self.served(&id, &reply, share),
        }
    }

    /// Lets the session take one thing.
    fn step(&mut self, input: Input) {
        let mut step = std::mem::take(&mut self.room);
        let ids = &mut self.ids;
        self.session.step(input, self.now.wall, &mut || ids.new_id(), &mut step);
        let before = self.marks_for(&step);
        let marks = self.took(&mut step, before, None);
        self.effects(step, &marks);
    }

    /// Takes what the agent said, with the line in which it did.
    fn step_said(&mut self, update: Update, naming: Naming, line: Option<&AgentLine<'_>>) {
        self.on_settings_reported(&update);
        let mut step = std::mem::take(&mut self.room);
        let ids = &mut self.ids;
        let input = Input::Said(update, naming);
        self.session.step(input, self.now.wall, &mut || ids.new_id(), &mut step);
        let before = self.marks_for(&step);
        let marks = self.took(&mut step, before, Some((naming, line)));
        self.effects(step, &marks);
    }

    /// Notes what changed, and puts it into words for all who listen: the one way that every change takes. `before` is
    /// where they were before the step, `said` how the agent said what changed, if it did.
    fn took(
        &mut self,
        step: &mut Step,
        before: Marks,
        said: Option<(Naming, Option<&AgentLine<'_>>)>,
    ) -> StepMarks {
        let mut places = Vec::new();
        for Inserted { prompt, by, message, content, place } in step.inserted.drain(..) {
            // Who did not send it in so many words is told what it says.
            if let Some(seat) = self.seats.get_mut(&by).filter(|_| !self.unasked.contains(&prompt)) {
                seat.listener.sent(&message, &content);
            }
            places.push((place, prompt));
        }
        let mut inserted = Vec::new();
        let mut ended = None;
        let ended_after = step.ended_after;
        for (place, change) in step.changes.drain(..).enumerate() {
            if ended_after == Some(place) {
                ended = Some(self.groups.marks());
            }
            let here = places.iter().filter(|(at, _)| *at == place);
            inserted.extend(here.map(|(_, prompt)| (*prompt, self.groups.marks())));
            if let Some((naming, _)) = said {
                self.decoder.took(&change, naming);
            }
            self.unsaved.note(&change);
            self.unworded.note(&change, self.session.transcript());
            self.changed(&change);
            self.tell(&change, said.and_then(|(_, line)| line));
        }
        StepMarks { before, inserted, ended: ended.unwrap_or_else(|| self.marks_for(step)) }
    }

    /// Where things stand now, if anything of a step is going to be put there.
    fn marks_for(&self, step: &Step) -> Marks {
        let is_needed = !step.effects.is_empty() || !self.leaving.endings.is_empty();
        if is_needed { self.groups.marks() } else { Marks::default() }
    }

    /// What a step wants done: clients hear of it with what changed, the rest waits until that is stored.
    fn effects(&mut self, mut step: Step, marks: &StepMarks) {
        self.due.kept |= std::mem::take(&mut step.upkeep);
        self.due.durable |= std::mem::take(&mut step.durable);
        step.ended_after = None;
        for (prompt, state) in step.ended.drain(..) {
            self.turn_ended(prompt, (live::WORDS.ended)(&state) == TurnEnd::Completed);
        }
        for refused in step.refused.drain(..) {
            self.losses.add(LossKind::UpdateRefused);
            tracing::warn!(session = %self.id, "an update was not taken: {refused}");
        }
        for effect in step.effects.drain(..) {
            match effect {
                Effect::Settle { prompt, by, outcome } => self.settle(prompt, by, &outcome, marks),
                Effect::Ask(question, client) => self.ask(question, client),
                Effect::Withdraw(question, client) => self.withdraw(question, client),
                Effect::HeldChanged => self.held_changed = true,
                Effect::Decided { question, by, result } => self.decided(question, by, &result),
                Effect::Send(_)
                | Effect::Recall(_)
                | Effect::Interrupt
                | Effect::Reply(..)
                | Effect::NeedAgent => self.effects.push(effect),
            }
        }
        self.room = step;
        self.answer_endings(&marks.ended);
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
        self.agent.as_ref().map_or(self.decoder.dialect(), |link| link.agent.dialect)
    }

    /// Wants something of the agent that the session has.
    fn command(&mut self, command: AgentCommand) {
        if let Some(link) = &self.agent {
            self.commands.push((link.epoch, command));
        }
    }

    /// Answers a request of the agent.
    fn respond(&mut self, id: RequestId, reply: Reply) {
        self.command(AgentCommand::Respond { id, reply });
    }

    /// Notifies the agent of something about its session.
    fn notify_agent(&mut self, method: &str) {
        if let Some(link) = &self.agent {
            let params = Self::params_for(&link.session);
            self.command(AgentCommand::Notify { method: method.to_owned(), params });
        }
    }

    /// Time passed: a session that nobody needs leaves its place.
    fn tick(&mut self) {
        let can_come_back = self.agent.as_ref().is_none_or(|link| link.agent.restores());
        let idle = self.hub.idle(can_come_back);
        let background = self.session.is_busy() || self.reports_background();
        if self.seats.is_empty()
            && !background
            && self.starting.is_none()
            && self.waiting_forks.is_empty()
            && self.throttle.is_empty()
            && self.pending.is_empty()
            && self.now.monotonic.saturating_sub(self.last_active) >= idle
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
        self.deliver();
        self.go_on_with_forks(Some(&crate::hub::no_session(&self.id)));
        self.start_forks();
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
                self.hub.losses().forget(&self.id);
                self.tell_those_behind(&error);
            }
            self.deliver();
            // What came meanwhile is answered as well.
            self.pending
                .drain(..)
                .chain(self.leaving.deferred.drain(..))
                .for_each(|message| message.refuse(&error));
            self.inbox.close();
            while let Some(message) = self.inbox.recv().await {
                message.refuse(&error);
            }
        }
        if matches!(self.ends, Some(End::Deleted)) && self.agent.is_none() {
            self.delete_at_agent();
        }
        // With the server, its agents end as well.
        self.run_commands();
        let tie = self.agent.take().and_then(|link| self.ties.remove(&link.epoch));
        if let Some(tie) = tie.filter(|_| !matches!(self.ends, Some(End::Stopped(_)))) {
            match self.ends {
                Some(End::Deleted) => tie.discard(),
                Some(_) | None => tie.release(&self.hub, &self.id),
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
        if let Self::Agent(_, AgentMessage::Lines(lines, _)) = self { lines.len() } else { 256 }
    }

    /// Answers a request that nobody will look at.
    pub(crate) fn refuse(&self, error: &RpcError) {
        if let Self::Agent(_, message) = self {
            message.refuse(error);
        } else if let Some(request) = self.refusable() {
            request.refuse(error);
        }
    }

    /// The request that this is, if it is one, to be refused in case it reaches nobody.
    pub(crate) fn refusable(&self) -> Option<Refusable> {
        let (client, id) = self.asked()?;
        let ends = matches!(self, Self::Close { .. } | Self::Delete { .. });
        Some(Refusable { client: Arc::clone(client), id: id.clone(), ends })
    }

    /// The client that asks or says this.
    fn client(&self) -> Option<&Arc<Client>> {
        if let Self::Attach(client) | Self::Say { client, .. } | Self::Forward { client, .. } = self {
            return Some(client);
        }
        self.asked().map(|(client, _)| client)
    }

    /// Whether who says this is the one for whom the session's agent works from now on.
    fn notes_peer(&self) -> bool {
        if let Self::Join { client, .. } = self {
            return client.drives();
        }
        matches!(self, Self::Attach(_) | Self::Prompt { .. } | Self::Say { .. })
    }

    /// The client that says this, if it does so as one that takes part.
    fn sender(&self) -> Option<ClientId> {
        self.client().map(|client| client.id)
    }

    /// Who waits for an answer to this, and to which request.
    pub(crate) fn asked(&self) -> Option<(&Arc<Client>, &RequestId)> {
        match self {
            Self::Fork(request) => Some((&request.client, &request.id)),
            Self::Say { client, answer: Some((id, _)), .. }
            | Self::Join { client, id, .. }
            | Self::Close { client, id }
            | Self::Prompt { client, id, .. }
            | Self::WithdrawPrompt { client, id, .. }
            | Self::Title { client, id, .. }
            | Self::Status { client, id }
            | Self::Archive { client, id, .. }
            | Self::Delete { client, id }
            | Self::Forward { client, id: Some(id), .. } => Some((client, id)),
            Self::Agent(..)
            | Self::Attach(_)
            | Self::Say { answer: None, .. }
            | Self::Seated(_)
            | Self::Drained(_)
            | Self::Left(_)
            | Self::TakeBack { .. }
            | Self::Cancel { .. }
            | Self::Forward { id: None, .. }
            | Self::Answered { .. }
            | Self::Relay { .. }
            | Self::AgentReady(_)
            | Self::Timer(_)
            | Self::Terminal(_)
            | Self::Look { .. }
            | Self::Tick
            | Self::End(_) => None,
        }
    }
}

/// A request that may have to be refused.
#[derive(Debug)]
pub(crate) struct Refusable {
    pub(crate) client: Arc<Client>,
    pub(crate) id: RequestId,
    /// Whether it closes or deletes a session.
    pub(crate) ends: bool,
}

impl Refusable {
    /// Answers with the error. A session that does not exist need not be closed or deleted: that is done.
    pub(crate) fn refuse(&self, error: &RpcError) {
        let line = if self.ends && error.code() == code::RESOURCE_NOT_FOUND {
            Frame::response(&self.id, &Object::default())
        } else {
            Frame::error(&self.id, error)
        };
        self.client.queue.push(line);
    }
}

/// An id that nothing has.
fn new_id() -> MessageId {
    MessageId::from(uuid::Uuid::new_v4().simple().to_string().as_str())
}

/// Now, in milliseconds since 1970.
pub(crate) fn now() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}
