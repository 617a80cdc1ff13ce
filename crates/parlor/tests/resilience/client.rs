//! A client on the Unix socket, made with `parlor-client`.

use std::path::Path;

use parlor_client::{
    Activity, Agent, Connector, EntryId, Error, Hello, MessageId, Object, Prompt, Role, Session, SessionId,
    SessionInfo, State, Transcript, Turn, Version,
};
use parlor_json::Json;
use parlor_testkit::wait::TIMEOUT;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// A client that is attached to one session at a time. It reads only while one of its methods runs.
pub(crate) struct Client {
    runtime: Runtime,
    connection: parlor_client::Client,
    session: Option<Session>,
}

/// What a client has received of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Snapshot {
    pub(crate) messages: Vec<Message>,
    /// The last state.
    pub(crate) state: Option<State>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) id: MessageId,
    pub(crate) role: Role,
    pub(crate) text: String,
}

impl Client {
    /// Connects with the given agent, or with the server's default.
    pub(crate) fn connect(socket: &Path, agent: Option<&str>) -> Result<Self, Error> {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let agent = agent.map(|name| Agent::Name(name.to_owned()));
        let hello = Hello { agent, ..Hello::new() };
        let connector = Connector::new("test", "1").only(Version::V2);
        let connected = runtime.block_on(async { timeout(TIMEOUT, connector.socket(socket, &hello)).await });
        let (connection, _) = connected.expect("the server answers")?;
        Ok(Self { runtime, connection, session: None })
    }

    pub(crate) fn session(&self) -> &Session {
        self.session.as_ref().expect("there is a session")
    }

    /// Reads until the future completes.
    pub(crate) fn wait<T>(&self, what: impl Future<Output = T>) -> T {
        self.runtime.block_on(async { timeout(TIMEOUT, what).await.expect("it must happen") })
    }

    /// Creates a session.
    pub(crate) fn new_session(&mut self) -> Result<SessionId, Error> {
        let session = self.wait(self.connection.new_session("/".as_ref()))?;
        Ok(self.session.insert(session).id().clone())
    }

    /// Attaches to a session with a full replay.
    pub(crate) fn join(&mut self, session: &SessionId) {
        self.try_join(session).unwrap();
    }

    pub(crate) fn try_join(&mut self, session: &SessionId) -> Result<(), Error> {
        self.session = Some(self.wait(self.connection.load(session, "/".as_ref()))?);
        Ok(())
    }

    /// Forks the session at its end, and attaches to the fork.
    pub(crate) fn fork(&mut self) {
        self.session = Some(self.wait(self.session().fork(None, "/".as_ref())).unwrap());
    }

    /// Sends a search request.
    pub(crate) fn search(&self, query: &str) {
        let mut params = Object::default();
        params.set("query", Json::parse(format!("\"{query}\"")).unwrap());
        self.wait(self.connection.call("_parlor/search", &params)).unwrap();
    }

    /// Sends a prompt, and waits until it is accepted.
    pub(crate) fn prompt(&self, text: &str) -> Result<Turn, Error> {
        self.wait(self.session().prompt(text))
    }

    /// Sends a prompt without waiting.
    pub(crate) fn send(&self, prompt: Prompt) -> JoinHandle<Result<Turn, Error>> {
        let session = self.session().clone();
        self.runtime.spawn(async move { session.prompt(prompt).await })
    }

    /// Sends a prompt and reads until its turn has ended: the last state.
    pub(crate) fn turn(&self, text: &str) -> State {
        let turn = self.prompt(text).unwrap();
        self.wait(turn.outcome()).unwrap().state
    }

    /// How many clients the server has.
    pub(crate) fn count(&self) -> String {
        self.status("clients")
    }

    /// How many sessions the server has in memory.
    pub(crate) fn live_sessions(&self) -> String {
        self.status("liveSessions")
    }

    fn status(&self, name: &str) -> String {
        let status = self.wait(self.connection.call("_parlor/status", &Object::default())).unwrap();
        status.get(name).unwrap().as_str().to_owned()
    }

    /// Lists the sessions.
    pub(crate) fn list(&self) -> Vec<SessionInfo> {
        self.wait(self.connection.list(None)).unwrap()
    }

    /// Reads until the condition holds.
    pub(crate) fn until(&self, holds: impl Fn(&Transcript) -> bool) {
        let mut updates = self.session().updates();
        self.wait(async {
            while !holds(&self.session().transcript()) {
                assert!(updates.next().await.is_some(), "the server is connected");
            }
        });
    }

    /// Reads until the running turn has ended: the last state.
    pub(crate) fn until_idle(&self) -> State {
        self.wait(self.session().idle()).unwrap()
    }

    /// Reads the remaining output of a server that was killed.
    pub(crate) fn read_rest(&self) {
        self.wait(self.connection.closed());
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let transcript = self.session().transcript();
        Snapshot { messages: messages(&transcript).collect(), state: transcript.state().cloned() }
    }

    /// The text of all messages of the agent, concatenated.
    pub(crate) fn agent_text(&self) -> String {
        agent_text(&self.session().transcript())
    }
}

impl Snapshot {
    pub(crate) fn message(&self, id: &MessageId) -> Option<&Message> {
        self.messages.iter().find(|message| message.id == *id)
    }

    pub(crate) fn is(&self, activity: &Activity) -> bool {
        self.state.as_ref().is_some_and(|state| state.activity == *activity)
    }
}

fn messages(transcript: &Transcript) -> impl Iterator<Item = Message> {
    transcript.entries().iter().filter_map(|entry| {
        let EntryId::Message(role, id) = entry.id() else { return None };
        Some(Message { id: id.clone(), role: *role, text: entry.body().content.to_text() })
    })
}

/// The text of all messages of the agent, concatenated.
pub(crate) fn agent_text(transcript: &Transcript) -> String {
    messages(transcript).filter(|message| message.role == Role::Agent).map(|message| message.text).collect()
}

/// Why a turn ended.
pub(crate) fn reason(state: &State) -> String {
    state.stop_reason.as_ref().map(|reason| reason.to_text().into_owned()).unwrap_or_default()
}
