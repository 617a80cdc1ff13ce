//! One running agent, as sessions see it.

mod lists;
mod reader;
mod registry;
mod start;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use parlor_dialect::Dialect;
use parlor_json::{Json, Object};
use parlor_session::SessionId;
use parlor_wire::{Asked, RequestId, RpcError, cancel_line, code, write};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc::error::SendError;
use tokio::sync::{oneshot, watch};

use crate::client::Client;
use crate::hub::Shared;
use crate::json;
use crate::outbox::{Outbox, OutboxReader, outbox};
use crate::process::Process;
use crate::session::{AgentCall, Inbox, Message};

pub(crate) use self::lists::{Beginnings, Lists};
pub(crate) use self::registry::Registry;
pub(crate) use self::start::start;

/// How many requests to one agent may be without an answer.
const MAX_ASKED: usize = 10_000;

/// How many bytes of updates are kept for sessions that nobody here knows yet.
const MAX_ORPHANS: usize = 1 << 20;

/// How many sessions are remembered that an agent was let go of. What it says of others is not heard until they need it
/// again.
const MAX_RELEASED: usize = 10_000;

/// What an agent answered: a result, or an error as it said it.
pub(crate) type Reply = Result<Json, Json>;

/// A running agent.
#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) name: String,
    pub(crate) dialect: Dialect,
    /// What it said when it began.
    pub(crate) info: Object,
    stdin: Outbox,
    asked: Mutex<Asked<Waiting>>,
    links: Mutex<Links>,
    /// The sessions that are being begun.
    pub(crate) beginnings: Beginnings,
    /// The clients that asked for this agent.
    clients: Mutex<Vec<Weak<Client>>>,
    /// Why it is gone, once it is.
    gone: watch::Sender<Option<RpcError>>,
    process: Option<Process>,
}

/// Who waits for an answer.
#[derive(Debug)]
enum Waiting {
    /// Somebody who does nothing else meanwhile.
    Caller(oneshot::Sender<Reply>),
    /// A session, which hears of it in the order of all else that the agent says.
    Session(Inbox, AgentCall),
}

/// Which session is whose.
#[derive(Debug, Default)]
struct Links {
    sessions: HashMap<SessionId, Inbox>,
    /// What was said about sessions before the answer that names them.
    orphans: HashMap<SessionId, String>,
    orphan_bytes: usize,
    /// Sessions that the agent was let go of, which it may still speak of.
    released: HashMap<SessionId, Home>,
}

/// A session that is not at work with the agent.
#[derive(Debug, Clone)]
pub(crate) struct Home {
    pub(crate) hub: Weak<Shared>,
    pub(crate) session: SessionId,
}

impl Links {
    /// Takes what was said about a session that nobody here knew.
    fn take_orphans(&mut self, session: &SessionId) -> Option<String> {
        let lines = self.orphans.remove(session)?;
        self.orphan_bytes -= lines.len();
        Some(lines)
    }
}

impl Home {
    /// Says in the session what the agent said, for which it is taken out of the store if it has to be.
    async fn deliver(&self, lines: String) {
        let Some(hub) = self.hub.upgrade() else { return };
        if let Err(error) = hub.send(&self.session, Message::Lines(lines, None)).await {
            tracing::info!(session = %self.session, "what the agent said is lost: {}", error.message());
        }
    }
}

impl Agent {
    /// An agent behind any two streams. Whoever makes it says who it is later.
    fn over<R, W>(
        name: &str,
        read: R,
        write: W,
        process: Option<Process>,
        begin: impl FnOnce(Outbox) -> (Dialect, Object),
    ) -> Arc<Self>
    where
        R: AsyncRead + Unpin + Send + 'static,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let (stdin, reader) = outbox();
        let (dialect, info) = begin(stdin.clone());
        let agent = Arc::new(Self {
            name: name.to_owned(),
            dialect,
            info,
            stdin,
            asked: Mutex::new(Asked::new(MAX_ASKED)),
            links: Mutex::default(),
            beginnings: Beginnings::default(),
            clients: Mutex::default(),
            gone: watch::Sender::new(None),
            process,
        });
        tokio::spawn(write_all(reader, write));
        tokio::spawn(reader::read(Arc::clone(&agent), read));
        agent
    }

    /// Asks the agent and waits for its answer. Who waits no more wants no answer any more.
    pub(crate) async fn call(&self, method: &str, params: &Object) -> Reply {
        let (sender, answer) = oneshot::channel();
        let id = self.ask(method, params, Waiting::Caller(sender))?;
        let _open = Open { agent: self, id };
        match answer.await {
            Ok(reply) => reply,
            Err(_) => Err(json::error_object(&self.error())),
        }
    }

    /// The same, up to a time.
    pub(crate) async fn call_until(&self, method: &str, params: &Object, until: Instant) -> Reply {
        let answer = tokio::time::timeout_at(until.into(), self.call(method, params)).await;
        answer.unwrap_or_else(|_| {
            let message = format!("the agent '{}' took too long", self.name);
            Err(json::error_object(&RpcError::new(code::INTERNAL_ERROR, message)))
        })
    }

    /// Asks the agent at once, before anything else is said to it. Whoever waits may do so later.
    pub(crate) fn call_now(&self, method: &str, params: &Object) -> Result<oneshot::Receiver<Reply>, Json> {
        let (sender, answer) = oneshot::channel();
        self.ask(method, params, Waiting::Caller(sender))?;
        Ok(answer)
    }

    /// Asks the agent; the answer goes to a session. Fails if too much was asked already.
    pub(crate) fn call_for(
        &self,
        session: &Inbox,
        call: AgentCall,
        method: &str,
        params: &Object,
    ) -> Result<RequestId, Json> {
        self.ask(method, params, Waiting::Session(session.clone(), call))
    }

    fn ask(&self, method: &str, params: &Object, waiting: Waiting) -> Result<RequestId, Json> {
        if self.is_gone() {
            return Err(json::error_object(&self.error()));
        }
        let mut asked = lock(&self.asked);
        let id = asked.ask(waiting).map_err(|full| {
            json::error_object(&RpcError::new(
                code::INTERNAL_ERROR,
                format!("the agent is overloaded: {full}"),
            ))
        })?;
        self.say(write::request(&id, method, Some(params.to_json().raw())));
        Ok(id)
    }

    /// Tells the agent that an answer is not wanted any more.
    pub(crate) fn take_back(&self, id: &RequestId) {
        let line = lock(&self.asked).cancel(id);
        line.into_iter().for_each(|line| self.say(line));
    }

    pub(crate) fn notify(&self, method: &str, params: &Object) {
        self.say(write::notification(method, Some(params.to_json().raw())));
    }

    pub(crate) fn answer(&self, id: &RequestId, reply: &Reply) {
        match reply {
            Ok(result) => self.say(write::response(id, result.raw())),
            Err(error) => self.say(write::error_response(id, &RpcError::from_raw(error.raw()))),
        }
    }

    fn say(&self, mut line: String) {
        line.push('\n');
        self.stdin.push(line.into());
    }

    /// From here on, what the agent says about its session goes to this inbox, first what it has said already.
    pub(crate) fn link(&self, session: &SessionId, inbox: &Inbox) {
        let mut links = lock(&self.links);
        if let Some(lines) = links.take_orphans(session) {
            // The inbox of a session that was just made is empty.
            let _ = inbox.try_send(Message::Lines(lines, None));
        }
        links.released.remove(session);
        links.sessions.insert(session.clone(), inbox.clone());
        drop(links);
        if self.is_gone() {
            let _ = inbox.try_send(Message::AgentGone(self.error()));
        }
    }

    /// Forgets what was said about a session that nobody here knew: it is about to be said again.
    pub(crate) fn forget_orphans(&self, session: &SessionId) {
        lock(&self.links).take_orphans(session);
    }

    pub(crate) fn unlink(&self, session: &SessionId) {
        lock(&self.links).sessions.remove(session);
    }

    /// A session needs the agent no more, for now. What is said of it goes where it is at home.
    pub(crate) fn release(&self, session: &SessionId, home: Home) {
        let mut links = lock(&self.links);
        links.sessions.remove(session);
        let lines = links.take_orphans(session);
        if let Some(lines) = lines {
            let home = home.clone();
            tokio::spawn(async move { home.deliver(lines).await });
        }
        if links.released.len() < MAX_RELEASED {
            links.released.insert(session.clone(), home);
        }
    }

    /// The sessions that it has for ours, as JSON writes their ids.
    pub(crate) fn linked(&self) -> HashSet<String> {
        lock(&self.links).sessions.keys().map(|id| id.as_json().as_literal().to_owned()).collect()
    }

    /// Whether no session uses it.
    pub(crate) fn is_unused(&self) -> bool {
        lock(&self.links).sessions.is_empty() && lock(&self.asked).is_empty()
    }

    /// How many sessions use it.
    pub(crate) fn sessions(&self) -> usize {
        lock(&self.links).sessions.len()
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Process::pid)
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.borrow().is_some()
    }

    /// Why it cannot be asked.
    pub(crate) fn error(&self) -> RpcError {
        let gone = || RpcError::new(code::INTERNAL_ERROR, "the agent is gone");
        self.gone.borrow().clone().unwrap_or_else(gone)
    }

    /// A client that is told what the agent says to nobody in particular.
    pub(crate) fn add_client(&self, client: &Arc<Client>) {
        let mut clients = lock(&self.clients);
        clients.retain(|other| other.strong_count() > 0);
        if !clients.iter().any(|other| other.as_ptr() == Arc::as_ptr(client)) {
            clients.push(Arc::downgrade(client));
        }
    }

    /// Says in the params of a request for a new session what it is called here. Only an agent inside this process is
    /// told: its sessions have the same names.
    pub(crate) fn name_session(&self, params: &mut Object, session: &SessionId) {
        if self.process.is_none() {
            json::note(params, "parlor/session", Json::from(session.as_json()));
        }
    }

    /// What the agent can do.
    pub(crate) fn offers(&self, what: Offer) -> bool {
        what.is_in(self.dialect, &self.info)
    }

    /// Ends the process and waits until nothing of it is left.
    pub(crate) async fn stop(&self) {
        self.stdin.close();
        if let Some(process) = &self.process {
            process.stop(start::GRACE).await;
        }
    }

    /// The agent says nothing more.
    async fn ended(&self) {
        let error = match &self.process {
            Some(process) => {
                let status = process.wait().await;
                let mut message = format!("the agent '{}' ended ({status})", self.name);
                let tail = process.stderr_tail();
                if let Some(last) = tail.lines().rev().find(|line| !line.trim().is_empty()) {
                    message.push_str(": ");
                    message.push_str(last.trim());
                }
                let mut data = Object::default();
                data.set("stderr", json::string(&tail));
                RpcError::new(code::INTERNAL_ERROR, message).with_data(data.to_json())
            }
            None => RpcError::new(code::INTERNAL_ERROR, format!("the agent '{}' ended", self.name)),
        };
        self.gone.send_replace(Some(error.clone()));
        self.stdin.close();
        let waiting: Vec<_> = lock(&self.asked).drain().collect();
        // Who waits alone learns of it by the end of the channel; a session that has a prompt here, by the message below.
        for (_, waiting) in waiting {
            if let Waiting::Session(inbox, call @ AgentCall::Forwarded { .. }) = waiting {
                let reply = Err(json::error_object(&error));
                if let Err(SendError(answer)) = inbox.send(Message::AgentAnswered(call, reply)).await {
                    answer.refuse(&error);
                }
            }
        }
        let sessions: Vec<_> = lock(&self.links).sessions.drain().collect();
        for (_, inbox) in sessions {
            let _ = inbox.send(Message::AgentGone(error.clone())).await;
        }
    }
}

/// A request that somebody waits for.
struct Open<'a> {
    agent: &'a Agent,
    id: RequestId,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        let waiting = lock(&self.agent.asked).answered(&self.id);
        if waiting.is_some() {
            self.agent.say(cancel_line(&self.id));
        }
    }
}

/// What an agent may be able to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Offer {
    Load,
    Resume,
    Close,
    Delete,
    Fork,
    ForkAtMessage,
    Title,
    List,
    EmbeddedContext,
}

impl Offer {
    /// Whether an agent that said this of itself offers it.
    pub(crate) fn is_in(self, dialect: Dialect, info: &Object) -> bool {
        let has = |holder: &Object, name: &str| holder.get(name).is_some_and(|value| !value.is_null());
        let flag = |holder: &Object, name: &str| holder.get(name).is_some_and(|on| on.as_str() == "true");
        let forks_at_message =
            |session: &Object| json::member(session, "fork").is_some_and(|fork| flag(&fork, "atMessageId"));
        match dialect {
            Dialect::V1 => {
                let capabilities = json::member(info, "agentCapabilities").unwrap_or_default();
                let session = json::member(&capabilities, "sessionCapabilities").unwrap_or_default();
                let prompt = json::member(&capabilities, "promptCapabilities").unwrap_or_default();
                match self {
                    Self::Load => flag(&capabilities, "loadSession"),
                    Self::Resume => has(&session, "resume"),
                    Self::Close => has(&session, "close"),
                    Self::Delete => has(&session, "delete"),
                    Self::Fork => has(&session, "fork"),
                    Self::ForkAtMessage => forks_at_message(&session),
                    Self::Title => has(&session, "title"),
                    Self::List => has(&session, "list"),
                    Self::EmbeddedContext => flag(&prompt, "embeddedContext"),
                }
            }
            Dialect::V2 | Dialect::Draft => {
                let capabilities = json::member(info, "capabilities").unwrap_or_default();
                let session = json::member(&capabilities, "session").unwrap_or_default();
                let prompt = json::member(&session, "prompt").unwrap_or_default();
                match self {
                    Self::Load => false,
                    Self::Resume | Self::Close | Self::List => true,
                    Self::Delete => has(&session, "delete"),
                    Self::Fork => has(&session, "fork"),
                    Self::ForkAtMessage => forks_at_message(&session),
                    Self::Title => has(&session, "title"),
                    Self::EmbeddedContext => has(&prompt, "embeddedContext"),
                }
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes what is ready, all of it at once.
async fn write_all(mut reader: OutboxReader, mut write: impl AsyncWrite + Unpin) {
    while let Some(lines) = reader.next().await {
        let done = match &lines[..] {
            [one] => write.write_all(one.as_bytes()).await,
            several => write.write_all(several.concat().as_bytes()).await,
        };
        if done.is_err() || write.flush().await.is_err() {
            return;
        }
    }
    // The other half of a stream may be in use still.
    let _ = write.shutdown().await;
}
