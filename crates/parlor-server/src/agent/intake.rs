//! What an agent says of a session before the session itself receives it: while it is begun, forked or restored.

use std::sync::Arc;
use std::time::Instant;

use parlor_dialect::Decoder;
use parlor_dialect::live::{self, AgentUpdate};
use parlor_dialect::settings::{Choice, Settings};
use parlor_engine::AgentEpoch;
use parlor_json::{Json, Object};
use parlor_session::{MessageId, SessionId, Target, Update};
use parlor_wire::{RpcError, code};
use tokio::sync::mpsc;

use super::replay::{History, Told, Verdict};
use super::{Agent, MAX_ORPHANS as MAX_EARLY, Reply, Startup};
use crate::json;
use crate::session::{AgentCall, AgentMessage, INBOX, Link, MOST_SILENCE, Message, SILENCE, next_epoch};

/// How many requests and notifications of an agent are kept for a session that is not there yet.
const MAX_KEPT: usize = 100;

/// An agent's session that belongs to one of ours. It does so until this is dropped.
#[derive(Debug)]
pub(crate) struct Tie {
    pub(crate) agent: Arc<Agent>,
    pub(crate) session: SessionId,
    pub(crate) epoch: AgentEpoch,
}

impl Drop for Tie {
    fn drop(&mut self) {
        self.agent.unlink(&self.session, self.epoch);
    }
}

/// Receives what an agent says of a session until the session does.
#[derive(Debug)]
pub(crate) struct Intake {
    tie: Tie,
    link: Link,
    messages: mpsc::Receiver<Message>,
    startup: Startup,
    /// What is for the session when it is there.
    kept: Vec<Message>,
    kept_bytes: usize,
    replay: Replay,
    /// The last state in what was before, if it says that the session is busy: only that one can still be true.
    busy_state: Option<String>,
    /// Whether the last state that is kept says that the session is busy.
    is_busy: bool,
    decoder: Decoder,
    /// The mode, the model and the options in force, as far as the agent said.
    settings: Settings,
    /// The last ones that it told of the past, which need not be in force.
    past: Settings,
    heard: Instant,
}

/// Whether what an agent tells of a session was before.
#[derive(Debug)]
enum Replay {
    /// It is new.
    Over,
    /// It was before.
    Running,
    /// It was before if it begins as the conversation does.
    Possible(Told),
}

/// What an agent said of a session after it was linked and before the session took over.
#[derive(Debug)]
pub(crate) struct Rest {
    pub(crate) kept: Vec<Message>,
    pub(crate) messages: mpsc::Receiver<Message>,
}

/// A setting that an agent did not accept again.
#[derive(Debug)]
pub(crate) struct RefusedSetting {
    pub(crate) choice: Choice,
    pub(crate) error: Json,
}

impl Intake {
    /// Receives what the agent says of this session from now on, first what it has said already. Fails if the session is in
    /// use.
    pub(crate) fn open(agent: &Arc<Agent>, session: &SessionId, startup: Startup) -> Result<Self, RpcError> {
        Self::with_epoch(agent, session, startup, next_epoch())
    }

    /// The same for a session that the agent still has open, with these settings: what it said meanwhile counts.
    pub(crate) fn reopen(
        agent: &Arc<Agent>,
        session: &SessionId,
        startup: Startup,
        epoch: AgentEpoch,
        in_force: Settings,
    ) -> Result<Self, RpcError> {
        let intake = Self::with_epoch(agent, session, startup, epoch)?;
        Ok(Self { settings: in_force, ..intake })
    }

    fn with_epoch(
        agent: &Arc<Agent>,
        session: &SessionId,
        startup: Startup,
        epoch: AgentEpoch,
    ) -> Result<Self, RpcError> {
        let (inbox, messages) = mpsc::channel(INBOX);
        let link = Link { inbox, epoch, is_session: false };
        agent.link(session, &link)?;
        Ok(Self {
            tie: Tie { agent: Arc::clone(agent), session: session.clone(), epoch },
            link,
            messages,
            startup,
            kept: Vec::new(),
            kept_bytes: 0,
            replay: Replay::Over,
            busy_state: None,
            is_busy: false,
            decoder: Decoder::new(agent.about.dialect),
            settings: Settings::default(),
            past: Settings::default(),
            heard: Instant::now(),
        })
    }

    /// From here on until it is quiet, the agent tells what was before.
    pub(crate) fn expect_replay(&mut self) {
        self.replay = Replay::Running;
    }

    /// From here on until it is quiet, the agent may tell this history, and need not.
    pub(crate) fn expect_replay_of(&mut self, history: &Arc<History>) {
        if !history.is_empty() {
            self.replay = Replay::Possible(Told::new(Arc::clone(history), false));
        }
    }

    /// The same in a fork that nobody has prompted yet.
    pub(crate) fn expect_replay_in_fork(&mut self, history: &Arc<History>) {
        self.replay = Replay::Possible(Told::new(Arc::clone(history), true));
    }

    /// Asks the agent about the session. An agent that goes on telling what was before has more time.
    pub(crate) async fn call(&mut self, method: &str, params: &Object) -> Reply {
        let answered = self.answer_to(method, params).await;
        answered.unwrap_or_else(|error| Err(json::error_object(&error)))
    }

    /// The agent's answer to a request about the session; fails if there is none.
    async fn answer_to(&mut self, method: &str, params: &Object) -> Result<Reply, RpcError> {
        let agent = Arc::clone(&self.tie.agent);
        let id = match agent.call_for(&self.link, AgentCall::Restore, method, params) {
            Ok(id) => id,
            Err(error) => return Err(RpcError::from_raw(error.raw())),
        };
        loop {
            let until = match self.replay {
                Replay::Over => self.startup.until,
                Replay::Running | Replay::Possible(_) => {
                    self.startup.until.max(self.heard + self.startup.timeout)
                }
            };
            match tokio::time::timeout_at(until.into(), self.messages.recv()).await {
                Ok(Some(Message::Agent(_, AgentMessage::Answered(AgentCall::Restore, reply)))) => {
                    return Ok(reply);
                }
                Ok(Some(Message::Agent(_, AgentMessage::Gone(error)))) => return Err(error),
                Ok(Some(message)) => self.take(message),
                Ok(None) => return Err(agent.error()),
                Err(_) => {
                    agent.forget_call(&id);
                    return Err(agent.late(method, self.startup.timeout, Some(&self.tie.session)));
                }
            }
        }
    }

    /// Waits until the agent has been silent for a while, if it may be telling what was before.
    pub(crate) async fn quiet(&mut self) -> Result<(), RpcError> {
        let since = Instant::now();
        while !matches!(self.replay, Replay::Over) {
            let until = (Instant::now() + SILENCE).min(since + MOST_SILENCE);
            match tokio::time::timeout_at(until.into(), self.messages.recv()).await {
                Ok(Some(Message::Agent(_, AgentMessage::Gone(error)))) => return Err(error),
                Ok(Some(message)) => self.take(message),
                Ok(None) => return Err(self.tie.agent.error()),
                Err(_) => break,
            }
        }
        self.settle(Told::at_silence);
        self.replay = Replay::Over;
        Ok(())
    }

    /// Keeps what a response says of the settings in force, and leaves the rest in it.
    pub(crate) fn learn(&mut self, result: &mut Object) {
        self.settings.take_from(result);
    }

    /// Has the agent choose what was chosen before, and says what it did not accept. An agent that does not answer has
    /// accepted or refused nothing: then this fails.
    pub(crate) async fn choose(&mut self, wanted: &Settings) -> Result<Vec<RefusedSetting>, RpcError> {
        // What was before may have taken longer to tell than the agent has to start.
        self.startup.until = self.startup.until.max(Instant::now() + self.startup.timeout);
        let mut refused = Vec::new();
        let chosen = wanted.chosen();
        if chosen.is_empty() {
            // The session knows of none: those of the past are better than nothing.
            self.settings.add_missing(std::mem::take(&mut self.past));
        }
        for setting in chosen {
            // What it answered before this one may show how it is asked for this one.
            let choice = wanted.choice(&setting, self.tie.agent.about.dialect, &self.settings);
            let Some(choice) = choice.filter(|choice| self.settings.is_missing(choice)) else { continue };
            let Some((method, mut params)) = choice.request.clone() else {
                let message = format!("the agent has no request that sets the {}", choice.what);
                let error = json::error_object(&RpcError::new(code::METHOD_NOT_FOUND, message));
                refused.push(RefusedSetting { choice, error });
                continue;
            };
            params.set("sessionId", self.tie.session.as_json());
            match self.answer_to(method, &params).await? {
                Ok(result) => self.settings.chose(&choice, &json::object(Some(result.raw()))),
                Err(_) if self.tie.agent.is_gone() => return Err(self.tie.agent.error()),
                Err(error) => refused.push(RefusedSetting { choice, error }),
            }
        }
        Ok(refused)
    }

    /// Hands over to the session: what is in force, and what it has to take first.
    pub(crate) fn finish(mut self) -> (Tie, Settings, Rest) {
        self.settle(Told::at_silence);
        let Self { tie, messages, kept, settings, .. } = self;
        (tie, settings, Rest { kept, messages })
    }

    fn take(&mut self, message: Message) {
        self.heard = Instant::now();
        if let Message::Agent(_, AgentMessage::Lines(lines, _)) = message {
            let mut left = String::new();
            lines.split_inclusive('\n').for_each(|line| self.sift(line, &mut left));
            self.keep(left);
            return;
        }
        // Who asks goes on with the session.
        self.settle(Told::end);
        if self.kept.len() < MAX_KEPT {
            self.kept.push(message);
        } else if let Message::Agent(_, AgentMessage::Asks { id, .. }) = message {
            let error = RpcError::new(code::INTERNAL_ERROR, "too many requests before the session is there");
            self.tie.agent.answer(&id, &Err(json::error_object(&error)));
        } else {
            tracing::warn!(
                agent = self.tie.agent.about.name,
                "a message before the session is there is dropped"
            );
        }
    }

    /// Keeps lines for the session.
    fn keep(&mut self, lines: String) {
        if self.kept_bytes + lines.len() > MAX_EARLY {
            tracing::warn!(
                agent = self.tie.agent.about.name,
                "updates before the session is there are dropped"
            );
        } else if !lines.is_empty() {
            self.kept_bytes += lines.len();
            self.kept.push(Message::Agent(self.tie.epoch, AgentMessage::Lines(lines, None)));
        }
    }

    /// Adds to `left` what a line leaves for the session: settings are kept here until they are chosen again, and what was
    /// before is there already.
    fn sift(&mut self, line: &str, left: &mut String) {
        let mut no_id = || MessageId::from("");
        let text = line.trim_end_matches('\n');
        let decoded = match AgentUpdate::read(text) {
            Some(read) => read.decode(&self.decoder, &mut no_id),
            None => {
                let Ok(message) = Json::parse(text) else { return };
                let params = json::object(Some(message.raw())).get("params").cloned();
                let Ok((_, update)) = live::update_of(params.as_ref().map(Json::raw)) else { return };
                self.decoder.decode(update, &mut no_id)
            }
        };
        let Ok(decoded) = decoded else {
            if !matches!(self.replay, Replay::Running) {
                left.push_str(line);
            }
            return;
        };
        // A mode of the past need not be the one in force. An agent inside this process leaves the past to the session.
        let is_past = !matches!(self.replay, Replay::Over) && !self.tie.agent.about.is_embedded;
        let settings = if is_past { &mut self.past } else { &mut self.settings };
        if settings.report(&decoded.update) {
            return;
        }
        if matches!(decoded.update, Update::Upsert { target: Target::Slot(_), .. }) {
            left.push_str(line);
            return;
        }
        match &mut self.replay {
            Replay::Over => left.push_str(line),
            Replay::Running => {
                if let Update::State(state) = &decoded.update {
                    self.sift_state(line, state.activity.is_busy(), left);
                }
            }
            Replay::Possible(told) => {
                told.hold(line, &decoded.update);
                let verdict = match told.hears(&decoded) {
                    Verdict::Unknown if told.held_bytes > MAX_EARLY => told.at_silence(),
                    verdict @ (Verdict::Unknown | Verdict::Replay | Verdict::New) => verdict,
                };
                self.decide(verdict, left);
            }
        }
    }

    /// A state among what was before. Turns that have ended are history; that a session rests which does is no news.
    fn sift_state(&mut self, line: &str, is_busy: bool, left: &mut String) {
        self.busy_state = is_busy.then(|| line.to_owned());
        if !is_busy && std::mem::take(&mut self.is_busy) {
            left.push_str(line);
        }
    }

    /// Adds to `left` what is left of what was held, now that it is known whether it was before.
    fn decide(&mut self, verdict: Verdict, left: &mut String) {
        let next = match verdict {
            Verdict::Unknown => return,
            Verdict::Replay => Replay::Running,
            Verdict::New => Replay::Over,
        };
        let Replay::Possible(told) = std::mem::replace(&mut self.replay, next) else { return };
        for held in told.held {
            match (verdict, held.is_busy) {
                (Verdict::New, _) => left.push_str(&held.line),
                (Verdict::Replay | Verdict::Unknown, Some(is_busy)) => {
                    self.sift_state(&held.line, is_busy, left);
                }
                (Verdict::Replay | Verdict::Unknown, None) => {}
            }
        }
    }

    /// Nothing follows that could tell whether what was held was before.
    fn settle(&mut self, verdict: impl FnOnce(&Told) -> Verdict) {
        let mut left = String::new();
        if let Replay::Possible(told) = &self.replay
            && !told.held.is_empty()
        {
            let is_replay = verdict(told) == Verdict::Replay;
            self.decide(if is_replay { Verdict::Replay } else { Verdict::New }, &mut left);
        }
        if let Some(state) = self.busy_state.take() {
            left.push_str(&state);
            self.is_busy = true;
        }
        self.keep(left);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use parlor_dialect::Dialect;
    use parlor_session::Transcript;
    use parlor_store::{MemoryStore, SessionRow};
    use parlor_wire::RequestId;
    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

    use super::super::Home;
    use super::*;
    use crate::config::{AgentConfig, Agents, Config};
    use crate::hub::{Hub, LIVE_SESSIONS, Options};
    use crate::process::Watcher;
    use crate::session::{self, Bound};
    use crate::stored::StoredSession;

    fn agent() -> (Arc<Agent>, tokio::io::DuplexStream) {
        Agent::for_tests(Dialect::V1)
    }

    #[tokio::test]
    async fn a_session_that_let_go_late_does_not_take_the_link_of_the_one_that_came_after_it() {
        let (agent, _theirs) = agent();
        let startup = Startup::new(Duration::from_secs(30));
        let intake = Intake::open(&agent, &"s".into(), startup).unwrap();
        let late = next_epoch();
        let home = |epoch| Home { hub: std::sync::Weak::new(), session: "ours".into(), epoch, is_open: true };
        assert!(!agent.release(&"s".into(), home(late)));
        assert_eq!((agent.sessions(), agent.open_since(&"s".into())), (1, None));
        let epoch = intake.tie.epoch;
        assert!(agent.release(&"s".into(), home(epoch)));
        assert_eq!((agent.sessions(), agent.open_since(&"s".into())), (0, Some(epoch)));
    }

    #[tokio::test]
    async fn updates_that_are_too_long_to_be_kept_take_no_room() {
        let (agent, _theirs) = agent();
        let mut intake = Intake::open(&agent, &"s".into(), Startup::new(Duration::from_secs(30))).unwrap();
        for lines in ["x".repeat(MAX_EARLY + 1), "y".repeat(MAX_EARLY - 1), "zz".to_owned(), "z".to_owned()] {
            intake.keep(lines);
        }
        let (_, _, rest) = intake.finish();
        assert_eq!(rest.kept.len(), 2);
    }

    #[tokio::test]
    async fn sessions_that_are_closed_are_not_remembered_as_closing() {
        let (agent, theirs) = agent();
        let (read, mut write) = tokio::io::split(theirs);
        let mut told = BufReader::new(read).lines();
        for n in 0..20 {
            let session = SessionId::from(format!("s{n}").as_str());
            agent.close_session(&session);
            let line = Json::parse(told.next_line().await.unwrap().unwrap()).unwrap();
            let id = json::object(Some(line.raw())).get("id").unwrap().as_str().to_owned();
            let answer = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{}}}}\n");
            write.write_all(answer.as_bytes()).await.unwrap();
            while agent.is_closing(&session) {
                tokio::task::yield_now().await;
            }
        }
        assert_eq!(agent.closings(), 1);
    }

    #[tokio::test]
    async fn what_an_older_incarnation_of_an_agent_is_owed_does_not_reach_the_newer_one() {
        let config = AgentConfig::new("a", vec!["false".to_owned()]);
        let hub = Hub::new(Options {
            store: Arc::new(MemoryStore::default()),
            agents: Agents::new(vec![config], &Config::default()).unwrap(),
            watcher: Watcher::nobody(),
            idle: Duration::from_secs(60),
            live_sessions: LIVE_SESSIONS,
            private: Vec::new(),
        });
        let hub = hub.await.unwrap();
        let (agent, theirs) = agent();
        let old = next_epoch();
        let intake = Intake::open(&agent, &"s".into(), Startup::new(Duration::from_secs(30))).unwrap();
        let new = intake.tie.epoch;
        let row = SessionRow {
            id: r#""ours""#.to_owned(),
            agent: "a".to_owned(),
            agent_session: None,
            cwd: "/".to_owned(),
            title: None,
            parent: None,
            created_at: 1,
            active_at: 1,
            archived: false,
            busy: false,
            data: "{}".to_owned(),
        };
        let opened =
            StoredSession { row, transcript: Transcript::default(), kept: None, aliases: None, opened: None };
        let bound = Some((Bound::begun(intake), Object::default()));
        let inbox = session::start(hub.shared(), opened, bound, None);
        let served = |text: &str| AgentMessage::Served(RequestId::from(7), Ok(json::string(text)), None);
        let gone = AgentMessage::Gone(RpcError::new(code::INTERNAL_ERROR, "it ended"));
        for (epoch, message) in [(old, served("late")), (old, gone), (new, served("in time"))] {
            inbox.send(Message::Agent(epoch, message)).await.unwrap();
        }
        let mut told = BufReader::new(theirs).lines();
        let line = told.next_line().await.unwrap().unwrap();
        assert!(line.contains(r#""id":7"#) && line.contains("in time"), "{line}");
    }
}
