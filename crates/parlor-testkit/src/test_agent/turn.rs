//! Running the steps of a turn.

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
use super::json;
use super::say::{self, Block, Role, Voice, update};
use super::server::{Agent, Peer};
use super::session::{Event, Job, Next, Session, Work};
use super::{offer, store};
use crate::script::{self, Part};

/// Why a turn ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    Done,
    Cancelled,
    Refused,
    Failed { code: i64, message: String },
}

/// A turn that goes on.
pub(super) struct Turn {
    pub(super) agent: Arc<Agent>,
    pub(super) session: Arc<Session>,
    pub(super) peer: Arc<Peer>,
    pub(super) voice: Voice,
    pub(super) sender: Sender<Event>,
    pub(super) events: Receiver<Event>,
    /// The blocks of the prompt.
    pub(super) content: Vec<Json>,
    /// The id of the user's message.
    user: String,
    /// What is to be done after the turn.
    later: Vec<(Duration, Vec<Step>)>,
    pub(super) input_words: u64,
    pub(super) output_words: u64,
}

impl End {
    /// What a client is told.
    pub(super) const fn stop_reason(&self) -> &'static str {
        match self {
            Self::Done => "end_turn",
            Self::Cancelled => "cancelled",
            Self::Refused => "refusal",
            Self::Failed { .. } => "error",
        }
    }
}

/// Does a job and what waits behind it, until the session is idle.
pub(super) fn work(agent: &Arc<Agent>, session: &Arc<Session>, peer: &Arc<Peer>, job: Job) {
    let mut job = job;
    loop {
        let (mut turn, work) = Turn::new(agent, session, peer, job);
        let answer = turn.run(work);
        agent.save(session);
        let next = session.lock().next();
        // Only now, so that a client that hears it finds the session idle.
        if let Some(answer) = answer {
            agent.out.line(&answer);
        }
        turn.go_on_later();
        match next {
            Next::Job(next) => job = next,
            Next::Idle(closing) => {
                closing.iter().for_each(|request| agent.answer(request, "{}"));
                agent.out.flush();
                return;
            }
        }
        agent.out.flush();
    }
}

/// Does something that is not a turn: v1 has none but those of prompts, so the session does not count as busy.
pub(super) fn aside(agent: &Arc<Agent>, session: &Arc<Session>, peer: &Arc<Peer>, steps: Vec<Step>) {
    let (sender, events) = mpsc::channel();
    let (mut turn, work) = Turn::new(agent, session, peer, Job { work: Work::Own(steps), sender, events });
    turn.run(work);
    agent.save(session);
    agent.out.flush();
}

impl Turn {
    fn new(agent: &Arc<Agent>, session: &Arc<Session>, peer: &Arc<Peer>, job: Job) -> (Self, Work) {
        let turn = Self {
            agent: Arc::clone(agent),
            session: Arc::clone(session),
            peer: Arc::clone(peer),
            voice: peer.voice,
            sender: job.sender,
            events: job.events,
            content: Vec::new(),
            user: agent.fresh_id(),
            later: Vec::new(),
            input_words: 0,
            output_words: 0,
        };
        (turn, job.work)
    }

    /// Does the work; gives the line that ends it, if the dialect has one.
    fn run(&mut self, work: Work) -> Option<String> {
        let (request, parts) = match work {
            Work::Own(steps) => (None, steps.into_iter().map(Part::Step).collect()),
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
        if let Some(idle) = self.voice.idle(&end, &self.usage()) {
            self.update(&idle);
            return None;
        }
        Some(self.end_of_v1_turn(&request?, &end))
    }

    /// Sends a notification of updates whose params are these and the session's id, whatever they are.
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

    /// Takes the prompt into the conversation. v2 tells the client so.
    fn insert(&mut self, request: &RequestId) {
        let content: Vec<Block> = self.content.iter().map(store::block).collect();
        for block in &content {
            self.session.lock().saved.keep(Role::User, &self.user, block.clone());
        }
        if self.voice.is_v1() {
            return;
        }
        let is_draft = self.voice.dialect == parlor_dialect::Dialect::Draft;
        let text =
            if is_draft { ObjectWriter::new() } else { ObjectWriter::new().str("messageId", &self.user) };
        self.agent.answer(request, &text.finish());
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
            Part::Misused(usage) => self.say(&format!("It is used like this: {usage}")),
            Part::Chat(words) => self.chat(&words),
        }
    }

    fn step(&mut self, step: Step) -> Result<(), End> {
        match step {
            Step::Help => self.say(&format!("One command a line:\n{}", script::list(COMMANDS)))?,
            Step::Say(text) => self.say(&text)?,
            Step::Think(text) => self.speak(Role::Thought, &self.agent.fresh_id(), &text)?,
            Step::Tool(title) => self.tool(&title),
            Step::Ask(title) => self.permission(&title, true)?,
            Step::AskOpen(title) => self.permission(&title, false)?,
            Step::Elicit => self.elicit()?,
            Step::Title(title) => {
                self.session.lock().saved.title = (!title.is_empty()).then(|| title.clone());
                self.update(&say::title(&title));
            }
            Step::Meta(meta) => match Json::parse(meta) {
                Ok(meta) => self.update(&update("session_info_update").raw("_meta", meta.as_str()).finish()),
                Err(error) => self.say(&error.to_string())?,
            },
            Step::Plan(entries) => self.plan(&entries)?,
            Step::Unplan if self.voice.is_v1() => self.say("A v1 agent cannot remove its plan.")?,
            Step::Unplan => self.update(&Voice::plan_removed()),
            Step::Terminal(command) => self.terminal(&command)?,
            Step::Read(path) => self.read(&path)?,
            Step::Write { path, text } => self.write(&path, &text)?,
            Step::Redact { clear } => self.redact(clear)?,
            Step::Later { after, text } => self.later.push((after, vec![Step::Say(text)])),
            Step::Background(count) => {
                let updates = (1..=count).map(|n| Step::Say(format!("Background update {n} of {count}.")));
                self.later.push((Duration::ZERO, updates.collect()));
            }
            Step::Stream(stream) => self.stream(&stream)?,
            Step::Stamp(stamp) => self.stamp(&stamp)?,
            Step::Big(size) => self.big(size),
            Step::Image => self.image(),
            Step::Link => self.link(),
            Step::Sleep(time) => self.wait(Instant::now() + time)?,
            Step::AwaitSteering => self.await_steering()?,
            Step::Usage => self.context(),
            Step::Commands => self.update(&offer::commands(self.voice)),
            Step::Mode(mode) => self.mode(&mode)?,
            Step::SameId(text) => self.same_id(&text)?,
            Step::Two(text) => {
                self.say(&text)?;
                self.say(&text)?;
            }
            Step::EchoUser if self.voice.is_v1() => {
                for block in self.content.clone() {
                    self.update(&self.voice.chunk(Role::User, &self.user, block.as_str()));
                }
            }
            Step::EchoUser => self.say("A v2 agent always sends the prompt back.")?,
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
            // Nobody has to read what is written there.
            Step::Stderr(text) => drop(writeln!(io::stderr(), "{text}")),
            Step::Env(name) => match env::var_os(&name) {
                Some(value) => self.say(&format!("{name}={}", value.to_string_lossy()))?,
                None => self.say(&format!("{name} is not set"))?,
            },
            Step::Pid => self.say(&process::id().to_string())?,
            Step::Child { own_session } => self.child(own_session)?,
            Step::Ext(method) => self.extension(&method)?,
            Step::Whoami => self.say(&self.whoami())?,
        }
        Ok(())
    }

    /// Does what was put off, in a thread of its own because the turn has ended.
    fn go_on_later(&mut self) {
        let mut later = mem::take(&mut self.later);
        if later.is_empty() {
            return;
        }
        later.sort_by_key(|(due, _)| *due);
        let (agent, session) = (Arc::clone(&self.agent), Arc::clone(&self.session));
        let (peer, start) = (Arc::clone(&self.peer), Instant::now());
        thread::spawn(move || {
            for (due, steps) in later {
                thread::sleep((start + due).saturating_duration_since(Instant::now()));
                // A session that was closed or has too much to do goes without.
                let _ = agent.submit(&session, &peer, Work::Own(steps));
            }
        });
    }

    /// Whether the turn was cancelled meanwhile.
    pub(super) fn check(&self) -> Result<(), End> {
        loop {
            match self.events.try_recv() {
                Ok(Event::Cancel) => return Err(End::Cancelled),
                Ok(Event::Answer(..) | Event::Output(_) | Event::Steered(_)) => {}
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => return Ok(()),
            }
        }
    }

    /// Waits, unless the turn is cancelled.
    pub(super) fn wait(&self, until: Instant) -> Result<(), End> {
        self.agent.out.flush();
        loop {
            match self.events.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(Event::Cancel) => return Err(End::Cancelled),
                Ok(Event::Answer(..) | Event::Output(_) | Event::Steered(_)) => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return Ok(()),
            }
        }
    }

    /// Waits for a prompt in this turn, and says it.
    fn await_steering(&mut self) -> Result<(), End> {
        self.agent.out.flush();
        loop {
            match self.events.recv() {
                Ok(Event::Cancel) | Err(_) => return Err(End::Cancelled),
                Ok(Event::Answer(..) | Event::Output(_)) => {}
                Ok(Event::Steered(content)) => {
                    let texts = content.iter().filter_map(|block| block.to_object()?.get_string("text"));
                    return self.say(&format!("Steered: {}", texts.collect::<Vec<_>>().join(" ")));
                }
            }
        }
    }

    /// Sends an update of the session.
    pub(super) fn update(&self, update: &str) {
        self.agent.update(&self.session.id, update);
    }

    /// Sends the state, where the dialect has states.
    pub(super) fn state(&self, state: &str) {
        if let Some(update) = self.voice.state(state) {
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

    /// The texts of the prompt that are its script.
    fn texts(&self) -> Vec<String> {
        self.blocks().filter_map(|(_, text)| text.filter(|text| !script::is_conversation(text))).collect()
    }

    /// The types of the prompt's blocks that are not its script.
    pub(super) fn other_blocks(&self) -> Vec<String> {
        let other = self.blocks().filter_map(|(type_, text)| match text {
            None => Some(type_),
            Some(text) => script::is_conversation(&text).then(|| "conversation".to_owned()),
        });
        other.collect()
    }

    /// The types of the prompt's blocks, and the texts of those that are text.
    fn blocks(&self) -> impl Iterator<Item = (String, Option<String>)> {
        self.content.iter().filter_map(|block| {
            let block = block.to_object()?;
            let type_ = block.get_string("type")?;
            let text = if type_ == "text" { Some(block.get_string("text")?) } else { None };
            Some((type_, text))
        })
    }
}
