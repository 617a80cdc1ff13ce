//! The connections: one for the list, the inbox and the search, and one for the open session.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use parlor_client::{
    Client, DuringTurn, Error, JsonRef, ListUpdate, Object, PeerRequest, PeerRequests, RequestsUpdate,
    Session, SessionId, code,
};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;

use super::target::Target;
use crate::conversation::Replica;
use crate::event::{AgentInfo, Call, Event, Failure, Opened, SessionCall};
use crate::request::Request;
use crate::sessions::SessionRow;

/// How many entries of a session are loaded first, and how many with each further page.
pub(super) const TAIL_ENTRIES: usize = 200;

/// The pauses between attempts to connect.
const RETRIES: [Duration; 6] = [
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
    Duration::from_secs(10),
];

/// How long requests in flight are waited for when the client ends.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// How many requests an agent without a server can have open. More are declined.
const MAX_DIRECT_REQUESTS: usize = 64;

/// The open session with its connection.
#[derive(Debug)]
struct OpenSession {
    client: Client,
    session: Session,
    cwd: String,
    tasks: Vec<JoinHandle<()>>,
}

/// A prompt that was sent.
#[derive(Debug, Clone)]
pub(super) struct SentPrompt {
    pub(super) session: SessionId,
    pub(super) text: String,
    pub(super) key: String,
    pub(super) during_turn: DuringTurn,
}

/// The end of a request that an agent sent directly.
#[derive(Debug)]
pub(super) enum DirectAnswer {
    Result(Object),
    /// Its turn was cancelled.
    Cancelled,
}

/// The state that tasks share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    control: Option<Client>,
    open: Option<OpenSession>,
    /// Prompts whose connection was lost before they were accepted: they are sent again with their keys.
    pub(super) unconfirmed: Vec<SentPrompt>,
    /// Requests that an agent sent directly, by the ids that they have here.
    pub(super) direct: HashMap<String, oneshot::Sender<DirectAnswer>>,
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

/// The handles that every task has.
#[derive(Clone)]
pub(super) struct Context {
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
        let is_short = !matches!(
            call,
            Call::InSession(_, SessionCall::Prompt { .. })
                | Call::New { .. }
                | Call::Open { .. }
                | Call::Search { .. }
        );
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
    pub(super) fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) async fn event(&self, event: Event) {
        let _ = self.events.send(event).await;
    }

    pub(super) fn control(&self) -> Result<Client, Error> {
        self.shared().control.clone().ok_or(Error::Disconnected)
    }

    pub(super) fn is_direct(&self) -> bool {
        matches!(*self.target, Target::Command { .. })
    }

    /// The open session with its working directory, if it is the one that a request is for.
    pub(super) fn session(&self, id: &SessionId) -> Result<(Session, String), Error> {
        let shared = self.shared();
        let open = shared.open.as_ref().ok_or(Error::Disconnected)?;
        if open.session.id() != id {
            return Err(Error::Refused("another session was opened meanwhile".to_owned()));
        }
        Ok((open.session.clone(), open.cwd.clone()))
    }

    /// Follows the list of sessions and the inbox, and connects again when the connection is lost. Ends if the first connection
    /// is refused for a reason that does not pass by itself.
    async fn follow_server(self) {
        let mut attempts = 0;
        let mut has_connected = false;
        loop {
            let failure = match self.target.connect(None, Path::new("/")).await {
                Err(error) if !has_connected && is_permanent(&error) => {
                    let (server, reason) = (self.target.name(), reason(&error));
                    return self.event(Event::Refused { server, reason }).await;
                }
                Ok(client) => {
                    (attempts, has_connected) = (0, true);
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
            let is_down = is_down(&failure);
            self.event(Event::Disconnected { server, reason, is_down, retry_at }).await;
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
        self.event(Event::Connected).await;
        client.subscribe_list_with_archived().await?;
        self.send_agents().await?;
        // Archived sessions may be many, and are not shown at first.
        let rows = client.list_all_agents().await?.iter().map(SessionRow::of).collect();
        self.event(Event::List(rows)).await;
        match client.subscribe_requests().await {
            Ok(()) => {
                let open = client.open_requests().await?;
                self.event(Event::AllRequests(open.iter().map(Request::of_open).collect())).await;
            }
            // An observer may not see requests.
            Err(Error::Rpc(_)) => {}
            Err(error) => return Err(error),
        }
        self.send_list(client).await?;
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
        let rows = client.list_with_archived().await?.iter().map(SessionRow::of).collect();
        self.event(Event::List(rows)).await;
        Ok(())
    }

    /// Reports the agents of the server.
    pub(super) async fn send_agents(&self) -> Result<(), Error> {
        let agents = self.control()?.call("_parlor/agents", &Object::default()).await?;
        self.event(Event::Agents(agents_in(&agents))).await;
        Ok(())
    }

    /// Starts an agent without a server and creates its session.
    async fn start_agent(&self, cwd: &str) -> Result<(), String> {
        let client = self.target.connect(None, Path::new(cwd)).await;
        let client = client.map_err(|error| format!("cannot start {}: {error}", self.target.name()))?;
        let requests = client.requests();
        let session = client.new_session(Path::new(cwd)).await;
        let session = session.map_err(|error| format!("the agent created no session: {error}"))?;
        self.event(Event::Connected).await;
        self.adopt(0, client, session, cwd.to_owned(), requests, false).await;
        Ok(())
    }

    /// Makes a session the open one: reports its changes, and closes the connection of the one before. Returns false if another
    /// session was requested meanwhile.
    async fn adopt(
        &self,
        ticket: u64,
        client: Client,
        session: Session,
        cwd: String,
        requests: PeerRequests,
        is_reloaded: bool,
    ) -> bool {
        if self.shared().last_ticket != ticket {
            // Requests that are dropped before would be declined.
            client.disconnect().await;
            return false;
        }
        let mut changes = session.changes();
        let events = self.events.clone();
        let follow = tokio::spawn(async move {
            while changes.next().await.is_ok() {
                if events.send(Event::Changed).await.is_err() {
                    return;
                }
            }
            let _ = events.send(Event::SessionLost { ticket }).await;
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
            // Ending is not a loss.
            before.tasks.iter().for_each(JoinHandle::abort);
            before.client.disconnect().await;
        }
        true
    }

    /// Keeps requests of the agent open: they are answered by their ids at the server, or here if there is no server. Dropping them
    /// would decline them.
    async fn hold_requests(self, mut requests: PeerRequests, session: Session, cwd: String) {
        while let Some(mut request) = requests.next().await {
            if !self.is_direct() {
                tokio::spawn(async move { request.cancelled().await });
                continue;
            }
            let (sender, answer) = oneshot::channel();
            let id = {
                let mut shared = self.shared();
                if shared.direct.len() >= MAX_DIRECT_REQUESTS {
                    continue;
                }
                shared.next_direct += 1;
                let id = format!("d{}", shared.next_direct);
                shared.direct.insert(id.clone(), sender);
                id
            };
            let agent = agent_name(session.client().info());
            let transcript = session.transcript();
            let shown = Request::of_peer(id.clone(), &request, &transcript, (&agent, &cwd), Timestamp::now());
            drop(transcript);
            self.event(Event::Requests(vec![shown], Vec::new())).await;
            tokio::spawn(self.clone().answer_directly(id, request, answer));
        }
    }

    /// Answers a request of an agent without a server as soon as a person has, unless the agent withdraws it before.
    async fn answer_directly(
        self,
        id: String,
        mut request: PeerRequest,
        answer: oneshot::Receiver<DirectAnswer>,
    ) {
        tokio::select! {
            answer = answer => match answer {
                Ok(DirectAnswer::Result(result)) => request.respond(result).await,
                Ok(DirectAnswer::Cancelled) | Err(_) => request.cancel().await,
            },
            _ = request.cancelled() => {}
        }
        self.shared().direct.remove(&id);
        self.event(Event::Requests(Vec::new(), vec![id])).await;
    }

    /// Opens a session on a connection of its own, or continues the one whose connection was lost.
    pub(super) async fn open(&self, ticket: u64, id: &SessionId, cwd: String) -> Result<(), Error> {
        let client = self.target.connect(None, Path::new(&cwd)).await?;
        let requests = client.requests();
        let lost = self.session(id).ok();
        let (session, is_reloaded) = match lost {
            Some((lost, _)) => {
                let before = lost.reloads();
                let session = client.rejoin(&lost, Path::new(&cwd)).await?;
                let is_reloaded = session.reloads() != before;
                (session, is_reloaded)
            }
            None => (client.load_tail(id, Path::new(&cwd), TAIL_ENTRIES).await?, false),
        };
        if !self.adopt(ticket, client, session, cwd, requests, is_reloaded).await {
            return Ok(());
        }
        let again: Vec<_> =
            self.shared().unconfirmed.extract_if(.., |prompt| prompt.session == *id).collect();
        for prompt in again {
            let context = self.clone();
            tokio::spawn(async move { context.prompt(prompt).await });
        }
        Ok(())
    }

    /// Creates a session and sends its first prompt. The prompt is for this session, also if another one was requested meanwhile.
    pub(super) async fn create(
        &self,
        ticket: u64,
        agent: Option<&str>,
        cwd: String,
        text: String,
    ) -> Result<(), Error> {
        let client = self.target.connect(agent, Path::new(&cwd)).await?;
        let requests = client.requests();
        let session = client.new_session(Path::new(&cwd)).await?;
        let key = format!("first-{}", session.id());
        let prompt = SentPrompt { session: session.id().clone(), text, key, during_turn: DuringTurn::Queue };
        if self.shared().last_ticket != ticket {
            let sent = self.prompt_session(&session, &cwd, &prompt).await;
            client.disconnect().await;
            return sent;
        }
        self.adopt(ticket, client, session, cwd, requests, false).await;
        self.prompt(prompt).await;
        Ok(())
    }
}

/// The name that an agent gives itself in `initialize`.
fn agent_name(info: &Object) -> String {
    let info = info.get_object("info").unwrap_or_default();
    let mut names = ["title", "name"].into_iter().filter_map(|member| info.get_string(member));
    names.find(|name| !name.trim().is_empty()).unwrap_or_else(|| "agent".to_owned())
}

fn agents_in(result: &Object) -> Vec<AgentInfo> {
    let agents = result.get_array("agents").unwrap_or_default();
    let agent = |raw: JsonRef<'_>| {
        let agent = raw.to_object()?;
        Some(AgentInfo {
            name: agent.get_string("name")?,
            is_installed: agent.get_bool("installed").unwrap_or(true),
            is_default: agent.get_bool("default").unwrap_or(false),
            is_logged_in: agent.get_bool("loggedIn"),
        })
    };
    agents.into_iter().filter_map(agent).collect()
}

/// Why a prompt was not accepted.
pub(super) fn failure(error: &Error) -> Failure {
    Failure { reason: reason(error), needs_login: error.code() == Some(code::AUTH_REQUIRED) }
}

/// Whether nothing listens where the server should be.
fn is_down(error: &Error) -> bool {
    use std::io::ErrorKind;
    let Error::Connect(error) = error else { return false };
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused)
}

/// Whether another attempt to connect would fail in the same way: the server refuses this client, or its address is wrong.
fn is_permanent(error: &Error) -> bool {
    use std::io::ErrorKind as Kind;
    match error {
        // What is left has no stable kind of its own, such as a name that no host has, or is about permissions and certificates.
        Error::Connect(error) => !matches!(
            error.kind(),
            Kind::NotFound
                | Kind::ConnectionRefused
                | Kind::ConnectionReset
                | Kind::ConnectionAborted
                | Kind::NotConnected
                | Kind::BrokenPipe
                | Kind::UnexpectedEof
                | Kind::TimedOut
                | Kind::WouldBlock
                | Kind::Interrupted
                | Kind::HostUnreachable
                | Kind::NetworkUnreachable
                | Kind::NetworkDown
                | Kind::AddrNotAvailable
                | Kind::ResourceBusy
        ),
        Error::Refused(_) | Error::Protocol(_) | Error::Rpc(_) => true,
        Error::Unavailable(_) | Error::Disconnected | Error::Busy | _ => false,
    }
}

/// Why a request failed, for people.
pub(super) fn reason(error: &Error) -> String {
    match error {
        Error::Connect(error) if error.kind() == std::io::ErrorKind::NotFound => {
            "no server is running".to_owned()
        }
        Error::Connect(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
            "connection refused".to_owned()
        }
        Error::Connect(error) => error.to_string(),
        Error::Disconnected => "the connection was lost".to_owned(),
        Error::Refused(reason) | Error::Unavailable(reason) => reason.clone(),
        Error::Rpc(_) | Error::Protocol(_) | Error::Busy | _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;

    #[test]
    fn an_agent_has_the_name_that_it_gives_itself() {
        let info = |text: &str| parlor_client::Json::parse(text).unwrap().to_object().unwrap();
        assert_eq!(agent_name(&info(r#"{"info":{"name":"kimi","title":"Kimi Code"}}"#)), "Kimi Code");
        assert_eq!(agent_name(&info(r#"{"info":{"name":"kimi","title":" "}}"#)), "kimi");
        assert_eq!(agent_name(&info("{}")), "agent");
    }

    #[test]
    fn the_client_gives_up_only_if_another_attempt_would_fail_in_the_same_way() {
        let connect = |kind| Error::Connect(std::io::Error::from(kind));
        for error in [
            Error::Refused("401 Unauthorized".to_owned()),
            connect(ErrorKind::PermissionDenied),
            connect(ErrorKind::InvalidData),
            Error::Connect(std::io::Error::other("no such host")),
        ] {
            assert!(is_permanent(&error), "{error:?}");
        }
        for error in [
            connect(ErrorKind::ConnectionRefused),
            connect(ErrorKind::NotFound),
            connect(ErrorKind::TimedOut),
            connect(ErrorKind::NetworkUnreachable),
            Error::Unavailable("503 Service Unavailable".to_owned()),
            Error::Disconnected,
        ] {
            assert!(!is_permanent(&error), "{error:?}");
        }
    }
}
