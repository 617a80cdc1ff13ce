use std::path::Path;
use std::sync::Arc;

use parlor_dialect::Dialect;
use parlor_json::{Json, JsonStr, Object, string_literal};
use parlor_session::SessionId;

use crate::connection::Heard;
use crate::driver::{Command, Purpose};
use crate::known::{Owner, Replay};
use crate::losses::{Ledger, Losses};
use crate::question::{Desk, Questions};
use crate::sessions::{Joined, Sessions};
use crate::{Connection, Error, Session};

/// How many sessions a list may have, and in how many pages. A longer one is an error.
const MAX_LISTED: usize = 100_000;
const MAX_PAGES: usize = 10_000;

/// A connection to an agent, or to a server of parlor's. Clones share it; it ends with the last of them.
///
/// ```
/// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/agent.rs")); }
/// # use example::*;
/// # run(async {
/// # let client = connect().await;
/// let session = client.new_session("/tmp".as_ref()).await?;
/// session.prompt("Hello!").await?.end().await?;
/// session.set_title("A greeting").await?;
/// // Anybody can join it later, and is told all of it.
/// let listed = client.list(None).await?.remove(0);
/// assert_eq!(listed.title.as_deref(), Some("A greeting"));
/// let loaded = client.load(&listed.id, "/tmp".as_ref()).await?;
/// assert_eq!(loaded.transcript().entries().len(), 2);
/// # Ok(())
/// # });
/// ```
#[derive(Debug, Clone)]
pub struct Client {
    connection: Connection,
    desk: Arc<Desk>,
    sessions: Sessions,
    ledger: Ledger,
    info: Arc<Info>,
}

/// Who the other side is.
#[derive(Debug)]
struct Info {
    dialect: Dialect,
    answer: Object,
}

/// A session that could be joined.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Listed {
    /// Its id.
    pub id: SessionId,
    /// Its title.
    pub title: Option<String>,
    /// Where it works.
    pub cwd: String,
    /// When something last happened in it.
    pub updated_at: Option<String>,
    /// All that is said of it.
    pub all: Object,
}

impl Client {
    /// Says who is there.
    pub(crate) async fn begin(
        (connection, heard): (Connection, Heard),
        params: &Object,
        dialect: Dialect,
    ) -> Result<Self, Error> {
        let answer = connection.call("initialize", params).await?;
        let info = Arc::new(Info { dialect, answer });
        let Heard { desk, sessions, ledger } = heard;
        Ok(Self { connection, desk, sessions, ledger, info })
    }

    /// What the other side said of itself, in the words of version 2.
    pub fn info(&self) -> &Object {
        &self.info.answer
    }

    /// The protocol version that the other side speaks.
    pub fn version(&self) -> u16 {
        self.info.dialect.version()
    }

    /// Begins a session that works in a directory.
    pub async fn new_session(&self, cwd: &Path) -> Result<Session, Error> {
        let answer = self.connection.ask("session/new", &place(None, cwd), Purpose::Begin).await?;
        let shared = answer.session.ok_or(Error::Odd("a session without an id"))?;
        Ok(Session::new(self.clone(), shared))
    }

    /// Joins a session, and is told what comes from here on and nothing that was.
    pub async fn join(&self, id: &SessionId, cwd: &Path) -> Result<Session, Error> {
        self.join_as(Joined::Named(id.clone()), cwd, Replay::Nothing).await
    }

    /// Joins a session and is told all of it. Until then it is known as it was: a load that is refused changes nothing. One
    /// session is loaded once at a time, else it is [`Error::Busy`].
    pub async fn load(&self, id: &SessionId, cwd: &Path) -> Result<Session, Error> {
        self.join_as(Joined::Named(id.clone()), cwd, Replay::All).await
    }

    /// Goes on with a session whose connection was lost, where it was lost. Nothing is told twice: a server of parlor's
    /// is asked for what came meanwhile, any other for all of it anew.
    ///
    /// The session is one with the lost one: both show what is told from here on. What the lost connection may still say
    /// of it does not count any more.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/agent.rs")); }
    /// # use example::*;
    /// # run(async {
    /// # let server = Server::of(Example).start().await.unwrap();
    /// # let connect = async || {
    /// #     let (read, write) = tokio::io::split(server.connect());
    /// #     parlor_client::Connector::new("example", "1.0").over(read, write).await
    /// # };
    /// let client = connect().await?;
    /// let session = client.new_session("/tmp".as_ref()).await?;
    /// session.prompt("Hello!").await?.end().await?;
    /// client.disconnect().await;
    ///
    /// let again = connect().await?;
    /// let session = again.rejoin(&session, "/tmp".as_ref()).await?;
    /// session.prompt("Still there?").await?.end().await?;
    /// assert_eq!(session.transcript().entries().len(), 4);
    /// # Ok(())
    /// # });
    /// ```
    pub async fn rejoin(&self, lost: &Session, cwd: &Path) -> Result<Session, Error> {
        let shared = lost.shared();
        if shared.is_told_by(self.owner()) {
            return Ok(Session::new(self.clone(), Arc::clone(shared)));
        }
        let join = |replay| self.join_as(Joined::Lost(Arc::clone(shared)), cwd, replay);
        // Version 1 knows no place to go on from.
        if self.info.dialect != Dialect::V1 && shared.is_numbered() {
            match join(Replay::Missed).await {
                // The session may have been made anew, or its server be another.
                Err(Error::Rpc(error)) if error.code() == parlor_wire::code::INVALID_PARAMS => {}
                outcome => return outcome,
            }
        }
        join(Replay::All).await
    }

    async fn join_as(&self, joined: Joined, cwd: &Path, replay: Replay) -> Result<Session, Error> {
        let params = place(Some(joined.id()), cwd);
        let answer = self.connection.join(params, joined, replay).await?;
        let shared = answer.session.ok_or(Error::Odd("an answer without a session"))?;
        Ok(Session::new(self.clone(), shared))
    }

    /// A session that this connection takes part in already, because the answer to a [call](Self::call) named it, or that
    /// only [`delete`](Session::delete) and the like are wanted of. Nothing is asked: what is known is what was told since
    /// it was named or asked for. Nobody tells of it if the connection is gone, or follows 10,000 that somebody has.
    pub fn session(&self, id: &SessionId) -> Session {
        Session::new(self.clone(), self.sessions.follow(id))
    }

    /// The sessions that could be joined, the latest first.
    pub async fn list(&self, cwd: Option<&Path>) -> Result<Vec<Listed>, Error> {
        let mut listed = Vec::new();
        let mut params = Object::default();
        if let Some(cwd) = cwd {
            params.set("cwd", JsonStr::new(&cwd.to_string_lossy()));
        }
        for _ in 0..MAX_PAGES {
            let page = self.call("session/list", &params).await?;
            let sessions = page.get_array("sessions");
            let sessions = sessions.ok_or(Error::Odd("a list without sessions"))?;
            let read = sessions.into_iter().filter_map(|session| Listed::read(Object::parse(session).ok()?));
            listed.extend(read);
            match page.get("nextCursor").filter(|next| !next.is_null()) {
                Some(next) if listed.len() < MAX_LISTED => params.set("cursor", next.clone()),
                Some(_) => break,
                None => return Ok(listed),
            }
        }
        Err(Error::Odd("a list without end"))
    }

    /// What the agent wants to know from here on. Who answers asks for it before the first prompt: while nobody has it,
    /// every question is declined at once, and only others who take part in the session can answer it. There is an example
    /// at [`Question`](crate::Question).
    pub fn questions(&self) -> Questions {
        Questions::new(Arc::clone(&self.desk))
    }

    /// What could not be read of what the other side said, and what could not be said to it in its version of the
    /// protocol. What is wrong with the updates of one session says [`Session::unread`].
    pub fn losses(&self) -> Losses {
        self.ledger.read()
    }

    /// Asks anything that the protocol has, in the words of version 2. A call that is dropped before its answer takes back
    /// what was asked.
    ///
    /// ```
    /// use parlor_client::Object;
    ///
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/agent.rs")); }
    /// # use example::*;
    /// # run(async {
    /// # let client = connect().await;
    /// let page = client.call("session/list", &Object::default()).await?;
    /// assert_eq!(page.get("sessions").unwrap().as_str(), "[]");
    /// let unknown = client.call("_example/unknown", &Object::default()).await.unwrap_err();
    /// assert_eq!(unknown.code(), Some(-32601));
    /// # Ok(())
    /// # });
    /// ```
    pub async fn call(&self, method: &str, params: &Object) -> Result<Object, Error> {
        self.connection.call(method, params).await
    }

    /// Says anything that wants no answer.
    pub async fn notify(&self, method: &str, params: &Object) -> Result<(), Error> {
        self.send(Command::Notify { method: method.to_owned(), params: params.clone() }).await
    }

    /// Ends the connection, also for all clones. Sessions that were followed can be looked at and
    /// [joined again](Self::rejoin) with another one.
    pub async fn disconnect(&self) {
        self.connection.leave();
        self.gone().await;
    }

    /// Waits until the connection is gone.
    pub async fn gone(&self) {
        self.connection.gone().await;
    }

    pub(crate) fn owner(&self) -> &Owner {
        &self.sessions.owner
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    pub(crate) async fn send(&self, command: Command) -> Result<(), Error> {
        self.connection.send(command).await
    }
}

impl Listed {
    fn read(all: Object) -> Option<Self> {
        let text = |name: &str| Some(JsonStr::from_raw(all.get(name)?.raw())?.to_text().into_owned());
        let id = JsonStr::from_raw(all.get("sessionId")?.raw())?.into();
        Some(Self {
            id,
            title: text("title"),
            cwd: text("cwd").unwrap_or_default(),
            updated_at: text("updatedAt"),
            all,
        })
    }
}

/// The session that an answer names.
pub(crate) fn session_in(answer: &Object) -> Result<SessionId, Error> {
    let id = answer.get("sessionId").and_then(|id| JsonStr::from_raw(id.raw()));
    id.map(SessionId::from).ok_or(Error::Odd("a session without an id"))
}

/// Where a session is and works.
fn place(session: Option<&SessionId>, cwd: &Path) -> Object {
    let mut params = Object::default();
    if let Some(session) = session {
        params.set("sessionId", session.as_json());
    }
    params.set("cwd", JsonStr::new(&cwd.to_string_lossy()));
    params.set("mcpServers", Json::parse("[]").expect("it is JSON"));
    params
}

/// What a client says of itself, in the words of version 2.
pub(crate) fn initialize(name: &str, version: &str, capabilities: &Object) -> Object {
    let text = format!(
        r#"{{"protocolVersion":2,"info":{{"name":{},"version":{}}},"capabilities":{},"_meta":{{"parlor/seq":true,"parlor/events":true}}}}"#,
        string_literal(name),
        string_literal(version),
        capabilities.to_json().as_str()
    );
    let json = Json::parse(text).expect("it is made of JSON");
    Object::parse(json.raw()).expect("it is an object")
}
