//! The connections: one for the list, the inbox and the search, and one for the open session.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use parlor_client::{
    Agent, Client, Connector, DuringTurn, Error, Hello, Json, JsonRef, ListUpdate, MessageId, Object,
    PeerRequest, PeerRequests, RequestsUpdate, Session, SessionId, Version, code,
};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;

use super::prompt::prompt;
use crate::clean::Clean;
use crate::conversation::Replica;
use crate::event::{AgentInfo, Call, Event, Hit, Opened};
use crate::request::Request;
use crate::sessions::SessionRow;

/// How many entries of a session are loaded first, and how many with each further page.
const TAIL_ENTRIES: usize = 200;

/// The pauses between attempts to connect.
const RETRIES: [Duration; 6] = [
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
    Duration::from_secs(10),
];

/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// How long requests in flight are waited for when the client ends.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// How many hits a search returns.
const MAX_HITS: u64 = 50;

/// What the client connects to.
#[derive(Debug, Clone)]
pub enum Target {
    /// The Unix socket of a local server.
    Socket {
        /// The socket.
        path: PathBuf,
        /// The environment for agents.
        env: Vec<(String, String)>,
    },
    /// A server at a `ws://` or `wss://` address.
    Url {
        /// The address.
        url: String,
        /// The access token.
        token: Option<String>,
    },
    /// An agent without a server: a program and its arguments.
    Command {
        /// The program and its arguments.
        command: Vec<String>,
        /// The working directory.
        cwd: String,
    },
}

impl Target {
    /// The server, for people.
    fn name(&self) -> String {
        match self {
            Self::Socket { path, .. } => path.display().to_string(),
            Self::Url { url, .. } => url.clone(),
            Self::Command { command, .. } => command.join(" "),
        }
    }

    async fn connect(&self, agent: Option<&str>, cwd: &Path) -> Result<Client, Error> {
        let modes = Json::parse(r#"{"form":{},"url":{}}"#).expect("it is JSON");
        let connector = Connector::new("parlor terminal client", env!("CARGO_PKG_VERSION"))
            .capability("elicitation", modes);
        let connecting = async {
            match self {
                Self::Socket { path, env } => {
                    let hello = Hello {
                        agent: agent.map(|agent| Agent::Name(agent.to_owned())),
                        env: env.clone(),
                        cwd: Some(cwd.to_owned()),
                        ..Hello::new()
                    };
                    connector.only(Version::V2).socket(path, &hello).await.map(|(client, _)| client)
                }
                Self::Url { url, token } => {
                    let url = with_agent(url, agent);
                    connector.only(Version::V2).url(&url, token.as_deref()).await
                }
                Self::Command { command, .. } => {
                    let (program, args) =
                        command.split_first().ok_or(Error::Protocol("the command is empty"))?;
                    let make = || {
                        let mut command = tokio::process::Command::new(program);
                        // Its standard error would be drawn over the screen.
                        command.args(args).current_dir(cwd).stderr(std::process::Stdio::null());
                        command
                    };
                    connector.spawn_with(make).await
                }
            }
        };
        tokio::time::timeout(CONNECT_TIMEOUT, connecting).await.unwrap_or_else(|_| {
            Err(Error::Refused(format!("no answer within {} s", CONNECT_TIMEOUT.as_secs())))
        })
    }
}

/// A server's address with the choice of an agent.
fn with_agent(url: &str, agent: Option<&str>) -> String {
    let Some(agent) = agent else { return url.to_owned() };
    let escaped: String =
        agent
            .bytes()
            .map(|byte| {
                if byte.is_ascii_alphanumeric() {
                    char::from(byte).to_string()
                } else {
                    format!("%{byte:02X}")
                }
            })
            .collect();
    let separator = if url.contains('?') { '&' } else { '?' };
    format!("{url}{separator}agent={escaped}")
}

/// The open session with its connection.
#[derive(Debug)]
struct OpenSession {
    client: Client,
    session: Session,
    cwd: String,
    tasks: Vec<JoinHandle<()>>,
}

/// What tasks share.
#[derive(Debug, Default)]
struct Shared {
    control: Option<Client>,
    open: Option<OpenSession>,
    /// Prompts that the server has not accepted, with their keys: they are sent again after a reconnection.
    in_flight: Vec<(SessionId, String, String)>,
    /// Requests that an agent sent directly, by the ids that they have here.
    direct: HashMap<String, PeerRequest>,
    next_direct: u64,
    /// The last request to open a session: an earlier one that is answered later has no effect.
    last_ticket: u64,
}

/// Runs requests and reports what arrives.
pub(super) struct Backend {
    context: Context,
    tasks: Vec<JoinHandle<()>>,
    /// Requests that are waited for before the client ends.
    calls: Vec<JoinHandle<()>>,
}

/// What every task needs.
#[derive(Clone)]
struct Context {
    target: Arc<Target>,
    events: mpsc::Sender<Event>,
    shared: Arc<Mutex<Shared>>,
    reconnect: Arc<Notify>,
}

impl Backend {
    /// Connects in the background. An agent without a server is started before this returns.
    pub(super) async fn start(target: Target, events: mpsc::Sender<Event>) -> Result<Self, String> {
        let context = Context {
            target: Arc::new(target),
            events,
            shared: Arc::default(),
            reconnect: Arc::new(Notify::new()),
        };
        let mut backend = Self { context: context.clone(), tasks: Vec::new(), calls: Vec::new() };
        if let Target::Command { cwd, .. } = &*context.target {
            context.start_agent(cwd).await?;
        } else {
            backend.tasks.push(tokio::spawn(context.follow_server()));
        }
        Ok(backend)
    }

    /// Tries to connect at once.
    pub(super) fn reconnect(&self) {
        self.context.reconnect.notify_one();
    }

    /// Disconnects. Turns go on, and requests of agents stay open.
    pub(super) async fn stop(&mut self) {
        let calls = futures_util::future::join_all(self.calls.drain(..));
        let _ = tokio::time::timeout(STOP_TIMEOUT, calls).await;
        let (control, open) = {
            let mut shared = self.context.shared();
            (shared.control.take(), shared.open.take())
        };
        // Requests that are dropped before would be declined.
        if let Some(open) = &open {
            open.client.disconnect().await;
        }
        if let Some(control) = control {
            control.disconnect().await;
        }
        self.tasks.drain(..).for_each(|task| task.abort());
    }

    /// Runs a request in the background.
    pub(super) fn send(&mut self, call: Call) {
        // A prompt is answered when the agent accepts it, which may take long.
        let is_short =
            !matches!(call, Call::Prompt { .. } | Call::New { .. } | Call::Open { .. } | Call::Search { .. });
        if let Call::Open { ticket, .. } | Call::New { ticket, .. } = call {
            self.context.shared().last_ticket = ticket;
        }
        let context = self.context.clone();
        let task = tokio::spawn(async move { context.run(call).await });
        self.calls.retain(|call| !call.is_finished());
        if is_short {
            self.calls.push(task);
        }
    }
}

impl Context {
    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn event(&self, event: Event) {
        let _ = self.events.send(event).await;
    }

    fn control(&self) -> Result<Client, Error> {
        self.shared().control.clone().ok_or(Error::Disconnected)
    }

    fn session(&self) -> Result<(Session, String), Error> {
        let shared = self.shared();
        let open = shared.open.as_ref().ok_or(Error::Disconnected)?;
        Ok((open.session.clone(), open.cwd.clone()))
    }

    /// Follows the list of sessions and the inbox, and connects again when the connection is lost.
    async fn follow_server(self) {
        let mut attempts = 0;
        loop {
            let failure = match self.target.connect(None, Path::new("/")).await {
                Ok(client) => {
                    attempts = 0;
                    let ended = self.follow(&client).await;
                    self.shared().control = None;
                    client.disconnect().await;
                    ended.err().unwrap_or(Error::Disconnected)
                }
                Err(error) => error,
            };
            let pause = RETRIES[attempts.min(RETRIES.len() - 1)];
            attempts += 1;
            let retry_at = Timestamp::now() + pause;
            let (server, reason) = (self.target.name(), reason(&failure));
            self.event(Event::Disconnected { server, reason, retry_at }).await;
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.reconnect.notified() => {}
            }
        }
    }

    /// Reports what the server sends until the connection is lost.
    async fn follow(&self, client: &Client) -> Result<(), Error> {
        let mut notifications = client.notifications();
        self.shared().control = Some(client.clone());
        self.event(Event::Connected { server: self.target.name() }).await;
        client.subscribe_list().await?;
        let agents = client.call("_parlor/agents", &Object::default()).await?;
        self.event(Event::Agents(agents_in(&agents))).await;
        self.send_list(client).await?;
        // An observer may not see requests.
        match client.subscribe_requests().await {
            Ok(()) | Err(Error::Rpc(_)) => {}
            Err(error) => return Err(error),
        }
        while let Some(notification) = notifications.next().await {
            if let Some(update) = ListUpdate::of(&notification) {
                if update.list_again {
                    self.send_list(client).await?;
                } else {
                    let rows = update.changed.iter().map(SessionRow::of).collect();
                    self.event(Event::ListChanged(rows, update.removed)).await;
                }
            } else if let Some(update) = RequestsUpdate::of(&notification) {
                let opened = update.opened.iter().map(Request::of_open).collect();
                self.event(Event::Requests(opened, update.closed)).await;
            }
        }
        Ok(())
    }

    async fn send_list(&self, client: &Client) -> Result<(), Error> {
        let rows = client.list_all_agents().await?.iter().map(SessionRow::of).collect();
        self.event(Event::List(rows)).await;
        Ok(())
    }

    /// Starts an agent without a server and creates its session.
    async fn start_agent(&self, cwd: &str) -> Result<(), String> {
        let client = self.target.connect(None, Path::new(cwd)).await;
        let client = client.map_err(|error| format!("cannot start {}: {error}", self.target.name()))?;
        let requests = client.requests();
        let session = client.new_session(Path::new(cwd)).await;
        let session = session.map_err(|error| format!("the agent created no session: {error}"))?;
        self.event(Event::Connected { server: self.target.name() }).await;
        self.adopt(0, client, session, cwd.to_owned(), requests, false).await;
        Ok(())
    }

    /// Makes a session the open one: reports its changes, and closes the connection of the one before.
    async fn adopt(
        &self,
        ticket: u64,
        client: Client,
        session: Session,
        cwd: String,
        requests: PeerRequests,
        is_reloaded: bool,
    ) {
        if self.shared().last_ticket != ticket {
            // Requests that are dropped before would be declined.
            client.disconnect().await;
            return;
        }
        let mut changes = session.changes();
        let events = self.events.clone();
        let follow = tokio::spawn(async move {
            while changes.next().await.is_ok() {
                if events.send(Event::Changed).await.is_err() {
                    return;
                }
            }
            let _ = events.send(Event::SessionLost).await;
        });
        let hold = tokio::spawn(self.clone().hold_requests(requests, session.clone(), cwd.clone()));
        let opened = Opened {
            ticket,
            id: session.id().clone(),
            cwd: cwd.clone(),
            older: session.older_cursor(),
            older_messages: session.older_messages(),
            replica: Replica::Live(session.clone()),
            is_reloaded,
        };
        let before =
            self.shared().open.replace(OpenSession { client, session, cwd, tasks: vec![follow, hold] });
        self.event(Event::Opened(Box::new(opened))).await;
        if let Some(before) = before {
            before.client.disconnect().await;
            before.tasks.iter().for_each(JoinHandle::abort);
        }
    }

    /// Keeps requests of the agent open: they are answered by their ids at the server, or here if there is no server. Dropping them
    /// would decline them.
    async fn hold_requests(self, mut requests: PeerRequests, session: Session, cwd: String) {
        let is_direct = matches!(*self.target, Target::Command { .. });
        while let Some(mut request) = requests.next().await {
            if !is_direct {
                tokio::spawn(async move { request.cancelled().await });
                continue;
            }
            let id = {
                let mut shared = self.shared();
                shared.next_direct += 1;
                format!("d{}", shared.next_direct)
            };
            let shown = Request::of_peer(id.clone(), &request, &session.transcript(), &cwd, Timestamp::now());
            self.shared().direct.insert(id.clone(), request);
            self.event(Event::Requests(vec![shown], Vec::new())).await;
        }
    }

    /// Runs a request and reports its outcome.
    async fn run(&self, call: Call) {
        let outcome = match call {
            Call::Open { ticket, id, cwd } => {
                if let Err(error) = self.open(ticket, &id, cwd).await {
                    self.event(Event::OpenFailed { ticket, reason: reason(&error) }).await;
                }
                Ok(())
            }
            Call::New { ticket, agent, cwd, prompt } => {
                if let Err(error) = self.create(ticket, agent.as_deref(), cwd, prompt).await {
                    self.event(Event::OpenFailed { ticket, reason: reason(&error) }).await;
                }
                Ok(())
            }
            Call::Prompt { text, key, during_turn } => {
                self.prompt(text, key, during_turn).await;
                Ok(())
            }
            Call::Cancel => match self.session() {
                Ok((session, _)) => session.cancel_turn().await,
                Err(error) => Err(error),
            },
            Call::Withdraw(id) => {
                self.session_call("_parlor/withdraw", |params| params.with("id", id)).await.map(drop)
            }
            Call::Answer { id, result } => self.answer(&id, result).await,
            Call::Fork { at, agent, note } => {
                let with = |mut params: Object| {
                    if let Some(at) = &at {
                        params.set("messageId", at.as_json());
                    }
                    if let Some(agent) = agent {
                        params.set("_meta", Object::new().with("parlor/agent", agent));
                    }
                    params
                };
                self.fork("session/fork", with, note).await
            }
            Call::EditPrompt { message, text, note } => {
                let with = |params: Object, cwd: &str, info: &Object| {
                    let prompt = prompt(&text, Path::new(cwd), info);
                    params.with("messageId", message.as_json()).with("prompt", prompt.content().clone())
                };
                match self.session() {
                    Ok((session, cwd)) => {
                        let info = session.client().info().clone();
                        self.fork("_parlor/edit", |params| with(params, &cwd, &info), note).await
                    }
                    Err(error) => Err(error),
                }
            }
            Call::Regenerate { message, note } => {
                self.fork("_parlor/regenerate", |params| params.with("messageId", message.as_json()), note)
                    .await
            }
            Call::SetOption { option, value, note } => {
                let set = self.session_call("session/set_config_option", |params| {
                    params.with("configId", option).with("value", value)
                });
                match set.await {
                    Ok(_) => {
                        self.event(Event::Note(note)).await;
                        Ok(())
                    }
                    Err(error) => Err(error),
                }
            }
            Call::SetTitle(id, title) => {
                self.control_call("_parlor/title", &id, |params| params.with("title", title)).await
            }
            Call::Archive(id) => {
                self.control_call("_parlor/archive", &id, |params| params.with("archived", true)).await
            }
            Call::Delete(id) => self.control_call("session/delete", &id, |params| params).await,
            // A number after the last change counts as the last one.
            Call::Seen(id) => {
                self.control_call("_parlor/seen", &id, |params| params.with("seq", u64::from(u32::MAX))).await
            }
            Call::Older(before) => {
                self.older(&before).await;
                Ok(())
            }
            Call::Search { generation, query, cwd, session } => {
                self.search(generation, query, cwd, session).await;
                Ok(())
            }
        };
        if let Err(error) = outcome {
            self.event(Event::Failed(reason(&error))).await;
        }
    }

    /// Opens a session on a connection of its own, or continues the one whose connection was lost.
    async fn open(&self, ticket: u64, id: &SessionId, cwd: String) -> Result<(), Error> {
        let client = self.target.connect(None, Path::new(&cwd)).await?;
        let requests = client.requests();
        let lost =
            self.shared().open.as_ref().map(|open| open.session.clone()).filter(|open| open.id() == id);
        let (session, is_reloaded) = match lost {
            Some(lost) => {
                let before = lost.reloads();
                let session = client.rejoin(&lost, Path::new(&cwd)).await?;
                let is_reloaded = session.reloads() != before;
                (session, is_reloaded)
            }
            None => (client.load_tail(id, Path::new(&cwd), TAIL_ENTRIES).await?, false),
        };
        self.adopt(ticket, client, session, cwd, requests, is_reloaded).await;
        let in_flight: Vec<_> = {
            let mut shared = self.shared();
            let (again, rest) =
                std::mem::take(&mut shared.in_flight).into_iter().partition(|(session, ..)| session == id);
            shared.in_flight = rest;
            again
        };
        for (_, text, key) in in_flight {
            let context = self.clone();
            tokio::spawn(async move { context.prompt(text, key, DuringTurn::Queue).await });
        }
        Ok(())
    }

    /// Creates a session and sends its first prompt.
    async fn create(
        &self,
        ticket: u64,
        agent: Option<&str>,
        cwd: String,
        prompt: String,
    ) -> Result<(), Error> {
        let client = self.target.connect(agent, Path::new(&cwd)).await?;
        let requests = client.requests();
        let session = client.new_session(Path::new(&cwd)).await?;
        let key = format!("first-{}", session.id());
        self.adopt(ticket, client, session, cwd, requests, false).await;
        self.prompt(prompt, key, DuringTurn::Queue).await;
        Ok(())
    }

    /// Sends a prompt and waits until it is accepted.
    async fn prompt(&self, text: String, key: String, during_turn: DuringTurn) {
        let sent = match self.session() {
            Ok((session, cwd)) => {
                let content = prompt(&text, Path::new(&cwd), session.client().info());
                let content = content.key(key.as_str()).during_turn(during_turn);
                let sent = session.prompt(content).await.map(drop);
                sent.map_err(|error| (error, Some(session.id().clone())))
            }
            Err(error) => Err((error, None)),
        };
        match sent {
            Ok(()) => self.event(Event::PromptAccepted).await,
            // It is sent again with its key when the connection is back.
            Err((Error::Disconnected, Some(session))) => self.shared().in_flight.push((session, text, key)),
            Err((error, _)) if error.code() == Some(code::REQUEST_CANCELLED) => {
                self.event(Event::PromptAccepted).await;
            }
            Err((error, _)) => self.event(Event::PromptFailed { text, reason: reason(&error) }).await,
        }
    }

    async fn answer(&self, id: &str, result: Object) -> Result<(), Error> {
        let direct = self.shared().direct.remove(id);
        if let Some(request) = direct {
            request.respond(result).await;
            self.event(Event::Requests(Vec::new(), vec![id.to_owned()])).await;
            return Ok(());
        }
        if !self.control()?.answer(id, result).await? {
            self.event(Event::Note("The request was answered or withdrawn already".to_owned())).await;
        }
        Ok(())
    }

    async fn session_call(&self, method: &str, with: impl FnOnce(Object) -> Object) -> Result<Object, Error> {
        let (session, _) = self.session()?;
        let params = with(Object::new().with("sessionId", session.id().as_json()));
        session.client().call(method, &params).await
    }

    async fn control_call(
        &self,
        method: &str,
        id: &SessionId,
        with: impl FnOnce(Object) -> Object,
    ) -> Result<(), Error> {
        let params = with(Object::new().with("sessionId", id.as_json()));
        self.control()?.call(method, &params).await.map(drop)
    }

    /// Forks the open session and reports the new one.
    async fn fork(
        &self,
        method: &str,
        with: impl FnOnce(Object) -> Object,
        note: String,
    ) -> Result<(), Error> {
        let (session, cwd) = self.session()?;
        let params = with(Object::new().with("sessionId", session.id().as_json()));
        // The response attaches the connection: that of the open session is kept free of it.
        let result = self.control()?.call(method, &params).await?;
        let id = result.get_json_str("sessionId").ok_or(Error::Protocol("the fork has no id"))?;
        self.event(Event::Forked { id: id.into(), cwd, note }).await;
        Ok(())
    }

    async fn older(&self, before: &Json) {
        let loaded = match self.session() {
            Ok((session, _)) => {
                session.older(before, TAIL_ENTRIES).await.map(|page| (session.id().clone(), page))
            }
            Err(error) => Err(error),
        };
        match loaded {
            Ok((session, page)) => {
                self.event(Event::Older { session, page: Box::new(page.transcript), before: page.before })
                    .await;
            }
            Err(_) => self.event(Event::OlderFailed).await,
        }
    }

    async fn search(&self, generation: u64, query: String, cwd: Option<String>, session: Option<SessionId>) {
        let started = std::time::Instant::now();
        let mut params = Object::new().with("query", query).with("limit", MAX_HITS);
        if let Some(cwd) = cwd {
            params.set("cwd", cwd);
        }
        if let Some(session) = session {
            params.set("sessionId", session.as_json());
        }
        let found = match self.control() {
            Ok(client) => client.call("_parlor/search", &params).await,
            Err(error) => Err(error),
        };
        let millis = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let hits = found.map(|result| {
            let hits = result.get_array("hits").unwrap_or_default();
            let mut hits: Vec<_> = hits.into_iter().filter_map(hit).collect();
            group_by_session(&mut hits);
            hits
        });
        self.event(Event::Hits { generation, hits: hits.map_err(|error| reason(&error)), millis }).await;
    }
}

/// Orders hits so that those of one session follow each other, the session with the best hit first.
fn group_by_session(hits: &mut [Hit]) {
    let mut order: Vec<SessionId> = Vec::new();
    for hit in hits.iter() {
        if !order.contains(&hit.session) {
            order.push(hit.session.clone());
        }
    }
    hits.sort_by_key(|hit| order.iter().position(|session| *session == hit.session));
}

fn hit(raw: JsonRef<'_>) -> Option<Hit> {
    let hit = raw.to_object()?;
    let text = |name: &str| Clean::line(&hit.get_string(name).unwrap_or_default());
    let raw_snippet = hit.get_string("snippet").unwrap_or_default();
    let snippet = Clean::line(&raw_snippet.replace('\n', " "));
    let pairs = hit.get_array("matches").unwrap_or_default();
    let pair = |raw: JsonRef<'_>| {
        let ends: Vec<usize> =
            raw.elements()?.into_iter().filter_map(|end| usize::try_from(end.as_u64()?).ok()).collect();
        Some((*ends.first()?, *ends.get(1)?))
    };
    // Positions count the characters of the original text.
    let is_same = snippet.as_str().chars().count() == raw_snippet.chars().count();
    let matches = if is_same { pairs.into_iter().filter_map(pair).collect() } else { Vec::new() };
    Some(Hit {
        session: hit.get_json_str("sessionId")?.into(),
        title: text("title"),
        agent: text("agent"),
        cwd: hit.get_string("cwd").unwrap_or_default(),
        message: hit.get_json_str("messageId").map(MessageId::from),
        tool_call: hit.get_string("toolCallId"),
        role: text("role"),
        at: hit.get_string("at").and_then(|at| at.parse().ok()),
        snippet,
        matches,
    })
}

fn agents_in(result: &Object) -> Vec<AgentInfo> {
    let agents = result.get_array("agents").unwrap_or_default();
    let agent = |raw: JsonRef<'_>| {
        let agent = raw.to_object()?;
        Some(AgentInfo {
            name: agent.get_string("name")?,
            is_installed: agent.get_bool("installed").unwrap_or(true),
            is_default: agent.get_bool("default").unwrap_or(false),
        })
    };
    agents.into_iter().filter_map(agent).collect()
}

/// Why a request failed, for people.
fn reason(error: &Error) -> String {
    match error {
        Error::Connect(error) if error.kind() == std::io::ErrorKind::NotFound => {
            "no server is running".to_owned()
        }
        Error::Connect(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
            "connection refused".to_owned()
        }
        Error::Connect(error) => error.to_string(),
        Error::Disconnected => "the connection was lost".to_owned(),
        Error::Refused(_) | Error::Rpc(_) | Error::Protocol(_) | Error::Busy | _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_chosen_in_the_address() {
        assert_eq!(with_agent("ws://host/acp", Some("my agent")), "ws://host/acp?agent=my%20agent");
        assert_eq!(
            with_agent("ws://host/acp?dialect=draft", Some("demo")),
            "ws://host/acp?dialect=draft&agent=demo"
        );
        assert_eq!(with_agent("ws://host/acp", None), "ws://host/acp");
    }

    #[test]
    fn hits_of_a_session_follow_each_other() {
        let json = |session: &str| {
            format!(r#"{{"sessionId":"{session}","snippet":"a b","matches":[[2,3]],"role":"agent"}}"#)
        };
        let read = |text: String| hit(Json::parse(text).unwrap().raw()).unwrap();
        let mut hits = vec![read(json("one")), read(json("two")), read(json("one"))];
        group_by_session(&mut hits);
        let order: Vec<_> = hits.iter().map(|hit| hit.session.to_string()).collect();
        assert_eq!(order, ["one", "one", "two"]);
        assert_eq!(hits[0].matches, [(2, 3)]);
    }
}
