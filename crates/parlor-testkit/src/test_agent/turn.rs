//! Runs the steps of a turn.

use std::env;
use std::io::{self, Write};
use std::mem;
use std::process;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use parlor_json::{Json, ObjectWriter, string_literal};
use parlor_wire::{RequestId, RpcError, write};

use super::commands::{COMMANDS, Step};
use super::encode::{self, Block, Encoder, Role, update};
use super::json;
use super::server::{Agent, ClientInfo};
use super::session::{Event, Job, Next, Session, Work};
use super::{capabilities, store};
use crate::script::{self, Part};

/// Why a turn ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    Done,
    Cancelled,
    Refused,
    Failed { code: i64, message: String },
}

/// A running turn.
pub(super) struct Turn {
    pub(super) agent: Arc<Agent>,
    pub(super) session: Arc<Session>,
    pub(super) client: Arc<ClientInfo>,
    pub(super) encoder: Encoder,
    pub(super) sender: Sender<Event>,
    pub(super) events: Receiver<Event>,
    /// The blocks of the prompt.
    pub(super) content: Vec<Json>,
    /// The id of the user's message.
    user: String,
    /// Steps to run after the turn, each with its delay.
    delayed: Vec<(Duration, Vec<Step>)>,
    pub(super) input_words: u64,
    pub(super) output_words: u64,
}

impl End {
    /// The stop reason in v2.
    pub(super) const fn stop_reason(&self) -> &'static str {
        match self {
            Self::Done => "end_turn",
            Self::Cancelled => "cancelled",
            Self::Refused => "refusal",
            Self::Failed { .. } => "error",
        }
    }
}

/// Runs a job and the queued ones, until the session is idle.
pub(super) fn work(agent: &Arc<Agent>, session: &Arc<Session>, client: &Arc<ClientInfo>, job: Job) {
    let mut job = job;
    loop {
        let (mut turn, work) = Turn::new(agent, session, client, job);
        let answer = turn.run(work);
        agent.save(session);
        let next = session.lock().next();
        // Sent only now, so that a client that receives it finds the session idle.
        if let Some(answer) = answer {
            agent.out.line(&answer);
        }
        turn.run_delayed();
        match next {
            Next::Job(next) => job = next,
            Next::Idle(closing) => {
                closing.iter().for_each(|request| agent.respond(request, "{}"));
                agent.out.flush();
                return;
            }
        }
        agent.out.flush();
    }
}

/// Runs steps outside a turn: v1 only has turns of prompts, so the session is not busy.
pub(super) fn run_outside_turn(
    agent: &Arc<Agent>,
    session: &Arc<Session>,
    client: &Arc<ClientInfo>,
    steps: Vec<Step>,
) {
    let (sender, events) = mpsc::channel();
    let (mut turn, work) =
        Turn::new(agent, session, client, Job { work: Work::Unprompted(steps), sender, events });
    turn.run(work);
    agent.save(session);
    agent.out.flush();
}

impl Turn {
    fn new(agent: &Arc<Agent>, session: &Arc<Session>, client: &Arc<ClientInfo>, job: Job) -> (Self, Work) {
        let turn = Self {
            agent: Arc::clone(agent),
            session: Arc::clone(session),
            client: Arc::clone(client),
            encoder: client.encoder,
            sender: job.sender,
            events: job.events,
            content: Vec::new(),
            user: agent.new_id(),
            delayed: Vec::new(),
            input_words: 0,
            output_words: 0,
        };
        (turn, job.work)
    }

    /// Runs the work. Returns the response that ends a v1 turn.
    fn run(&mut self, work: Work) -> Option<String> {
        let (request, parts) = match work {
            Work::Unprompted(steps) => (None, steps.into_iter().map(Part::Step).collect()),
            Work::Prompt { request, content } => {
                self.content = content;
                let text = self.texts().join("\n");
                self.input_words = text.split_whitespace().count() as u64;
                self.insert(&request);
                (Some(request), script::parts(&text, COMMANDS))
            }
        };
        self.state("running");
        self.agent.save(&self.session);
        let end = parts.into_iter().try_for_each(|part| {
            let done = self.part(part);
            self.agent.out.flush();
            done.and_then(|()| self.check())
        });
        let end = end.err().unwrap_or(End::Done);
        if let Some(idle) = self.encoder.idle(&end, &self.usage()) {
            self.update(&idle);
            return None;
        }
        Some(self.end_of_v1_turn(&request?, &end))
    }

    /// Sends a `session/update` with these params and the session's id, without checking them.
    fn raw(&self, params: &str) {
        let id = string_literal(self.session.id.as_str());
        let params = params.replace("SESSION", id.trim_matches('"'));
        let rest = params.trim().strip_prefix('{').unwrap_or_default();
        // The params may be those of another session, such as one of a subagent.
        let names_session = rest.trim_start().starts_with(r#""sessionId""#);
        let session = if names_session { String::new() } else { format!(r#""sessionId":{id},"#) };
        self.agent
            .out
            .line(&format!(r#"{{"jsonrpc":"2.0","method":"session/update","params":{{{session}{rest}}}"#));
    }

    /// Inserts the prompt into the session. In v2, responds to the request and sends the message.
    fn insert(&mut self, request: &RequestId) {
        let content: Vec<Block> = self.content.iter().map(store::block).collect();
        for block in &content {
            self.session.lock().saved.append(Role::User, &self.user, block.clone());
        }
        if self.encoder.is_v1() {
            return;
        }
        let is_draft = self.encoder.dialect == parlor_dialect::Dialect::Draft;
        let text =
            if is_draft { ObjectWriter::new() } else { ObjectWriter::new().str("messageId", &self.user) };
        self.agent.respond(request, &text.finish());
        let as_sent = json::list(self.content.iter().map(Json::as_str));
        self.update(&update("user_message").str("messageId", &self.user).raw("content", &as_sent).finish());
    }

    fn end_of_v1_turn(&self, request: &RequestId, end: &End) -> String {
        if let End::Failed { code, message } = end {
            return write::error_response(request, &RpcError::new(*code, message.as_str()));
        }
        let result =
            ObjectWriter::new().str("stopReason", end.stop_reason()).raw("usage", &self.usage()).finish();
        write::response(request, json::value(result).raw())
    }

    fn part(&mut self, part: Part<Step>) -> Result<(), End> {
        match part {
            Part::Step(step) => self.step(step),
            Part::Misused(usage) => self.send_message(&format!("Usage: {usage}")),
            Part::Chat(text) => self.default_answer(&text),
        }
    }

    fn step(&mut self, step: Step) -> Result<(), End> {
        match step {
            Step::Help => self.send_message(&format!("One command per line:\n{}", script::list(COMMANDS)))?,
            Step::Say(text) => self.send_message(&text)?,
            Step::Think(text) => self.send_text(Role::Thought, &self.agent.new_id(), &text)?,
            Step::Tool(title) => self.tool(&title),
            Step::Ask(title) => self.permission(&title, true)?,
            Step::AskOpen(title) => self.permission(&title, false)?,
            Step::Elicit => self.elicit()?,
            Step::Title(title) => {
                self.session.lock().saved.title = (!title.is_empty()).then(|| title.clone());
                self.update(&encode::title(&title));
            }
            Step::Meta(meta) => match Json::parse(meta) {
                Ok(meta) => self.update(&update("session_info_update").raw("_meta", meta.as_str()).finish()),
                Err(error) => self.send_message(&error.to_string())?,
            },
            Step::Plan(entries) => self.plan(&entries)?,
            Step::Unplan if self.encoder.is_v1() => {
                self.send_message("A v1 agent cannot remove its plan.")?;
            }
            Step::Unplan => self.update(&Encoder::plan_removed()),
            Step::Terminal(command) => self.terminal(&command)?,
            Step::Read(path) => self.read(&path)?,
            Step::Write { path, text } => self.write(&path, &text)?,
            Step::Redact { clear } => self.redact(clear)?,
            Step::Later { after, text } => self.delayed.push((after, vec![Step::Say(text)])),
            Step::Background(count) => {
                let updates = (1..=count).map(|n| Step::Say(format!("Background update {n} of {count}.")));
                self.delayed.push((Duration::ZERO, updates.collect()));
            }
            Step::Stream(stream) => self.stream(&stream)?,
            Step::Stamp(stamp) => self.stamp(&stamp)?,
            Step::Big(size) => self.big(size),
            Step::Image => self.image(),
            Step::Link => self.link(),
            Step::Sleep(time) => self.wait(Instant::now() + time)?,
            Step::AwaitSteering => self.await_steering()?,
            Step::Usage => self.context(),
            Step::Commands => self.update(&capabilities::commands(self.encoder)),
            Step::Mode(mode) => self.mode(&mode)?,
            Step::SameId(text) => self.same_id(&text)?,
            Step::Two(text) => {
                self.send_message(&text)?;
                self.send_message(&text)?;
            }
            Step::EchoUser if self.encoder.is_v1() => {
                for block in self.content.clone() {
                    self.update(&self.encoder.chunk(Role::User, &self.user, block.as_str()));
                }
            }
            Step::EchoUser => self.send_message("A v2 agent always sends the prompt back.")?,
            Step::Fail { code, text } => return Err(End::Failed { code, message: text }),
            Step::Refuse => return Err(End::Refused),
            Step::Crash { code } => {
                self.agent.out.flush();
                let _ = writeln!(io::stderr(), "{}: crashing as asked", self.agent.options.name);
                process::exit(code);
            }
            Step::CrashSilently => process::exit(1),
            Step::Hang => self.hang()?,
            Step::Garbage => {
                self.agent.out.line("this line is not JSON {");
                self.agent.out.line(r#"{"jsonrpc":"2.0","method":7}"#);
            }
            Step::Raw(params) => self.raw(&params),
            // A closed standard error is no failure of the turn.
            Step::Stderr(text) => drop(writeln!(io::stderr(), "{text}")),
            Step::Env(name) => match env::var_os(&name) {
                Some(value) => self.send_message(&format!("{name}={}", value.to_string_lossy()))?,
                None => self.send_message(&format!("{name} is not set"))?,
            },
            Step::Pid => self.send_message(&process::id().to_string())?,
            Step::Child { own_session } => self.child(own_session)?,
            Step::Ext(method) => self.extension(&method)?,
            Step::Whoami => self.send_message(&self.whoami())?,
        }
        Ok(())
    }

    /// Runs the delayed steps, in a thread of its own because the turn has ended.
    fn run_delayed(&mut self) {
        let mut delayed = mem::take(&mut self.delayed);
        if delayed.is_empty() {
            return;
        }
        delayed.sort_by_key(|(due, _)| *due);
        let (agent, session) = (Arc::clone(&self.agent), Arc::clone(&self.session));
        let (client, start) = (Arc::clone(&self.client), Instant::now());
        thread::spawn(move || {
            for (due, steps) in delayed {
                thread::sleep((start + due).saturating_duration_since(Instant::now()));
                // Fails if the session was closed or its queue is full.
                let _ = agent.submit(&session, &client, Work::Unprompted(steps));
            }
        });
    }

    /// Fails if the turn was cancelled.
    pub(super) fn check(&self) -> Result<(), End> {
        loop {
            match self.events.try_recv() {
                Ok(Event::Cancel) => return Err(End::Cancelled),
                Ok(Event::Response(..) | Event::Output(_) | Event::Steered(_)) => {}
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => return Ok(()),
            }
        }
    }

    /// Waits, and fails if the turn is cancelled.
    pub(super) fn wait(&self, until: Instant) -> Result<(), End> {
        self.agent.out.flush();
        loop {
            match self.events.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(Event::Cancel) => return Err(End::Cancelled),
                Ok(Event::Response(..) | Event::Output(_) | Event::Steered(_)) => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return Ok(()),
            }
        }
    }

    /// Waits for a prompt that steers this turn, and sends its text.
    fn await_steering(&mut self) -> Result<(), End> {
        self.agent.out.flush();
        loop {
            match self.events.recv() {
                Ok(Event::Cancel) | Err(_) => return Err(End::Cancelled),
                Ok(Event::Response(..) | Event::Output(_)) => {}
                Ok(Event::Steered(content)) => {
                    let texts = content.iter().filter_map(|block| block.to_object()?.get_string("text"));
                    return self.send_message(&format!("Steered: {}", texts.collect::<Vec<_>>().join(" ")));
                }
            }
        }
    }

    /// Sends an update of the session.
    pub(super) fn update(&self, update: &str) {
        self.agent.update(&self.session.id, update);
    }

    /// Sends the state, in a dialect with states.
    pub(super) fn state(&self, state: &str) {
        if let Some(update) = self.encoder.state(state) {
            self.update(&update);
        }
    }

    fn usage(&self) -> String {
        let (input, output) = (self.input_words, self.output_words);
        ObjectWriter::new()
            .u64("totalTokens", input + output)
            .u64("inputTokens", input)
            .u64("outputTokens", output)
            .finish()
    }

    /// Returns the text blocks of the prompt that contain commands.
    fn texts(&self) -> Vec<String> {
        self.blocks().filter_map(|(_, text)| text.filter(|text| !script::is_conversation(text))).collect()
    }

    /// Returns the types of the other blocks of the prompt.
    pub(super) fn other_blocks(&self) -> Vec<String> {
        let other = self.blocks().filter_map(|(type_, text)| match text {
            None => Some(type_),
            Some(text) => script::is_conversation(&text).then(|| "conversation".to_owned()),
        });
        other.collect()
    }

    /// Returns the type of each block of the prompt, and the text of text blocks.
    fn blocks(&self) -> impl Iterator<Item = (String, Option<String>)> {
        self.content.iter().filter_map(|block| {
            let block = block.to_object()?;
            let type_ = block.get_string("type")?;
            let text = if type_ == "text" { Some(block.get_string("text")?) } else { None };
            Some((type_, text))
        })
    }
}
