use std::path::Path;
use std::sync::Arc;

use parlor_dialect::Dialect;
use parlor_json::{Json, Object};
use parlor_session::SessionId;

use crate::connection::Shared;
use crate::driver::{Command, Purpose};
use crate::replica::{ConnectionToken, Replay};
use crate::subscriptions::JoinTarget;
use crate::{Connection, Error, Losses, Notification, Notifications, PeerRequests, Session, Version};

/// How many sessions a list may have, and in how many pages. A longer one is an error.
const MAX_LISTED: usize = 100_000;
const MAX_PAGES: usize = 10_000;

/// A connection to an agent or a parlor server. Clones share it; it closes with the last of them and of their sessions.
///
/// ```
/// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/agent.rs")); }
/// # use example::*;
/// # run(async {
/// # let client = connect().await;
/// let session = client.new_session("/tmp".as_ref()).await?;
/// session.prompt("Hello!").await?.await?;
/// session.set_title("A greeting").await?;
/// // Any client can load it later.
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
    shared: Shared,
    peer: Arc<Peer>,
}

/// What the peer reported of itself.
#[derive(Debug)]
struct Peer {
    version: Version,
    info: Object,
}

/// A session in the list of an agent or a server.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionInfo {
    /// Its id.
    pub id: SessionId,
    /// Its title.
    pub title: Option<String>,
    /// Its working directory.
    pub cwd: String,
    /// When it last changed.
    pub updated_at: Option<String>,
    /// All members, as the peer sent them.
    pub fields: Object,
}

/// A change of the list of sessions, after [`Client::subscribe_list`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListUpdate {
    /// The sessions that are new or changed.
    pub changed: Vec<SessionInfo>,
    /// The sessions that are deleted or archived.
    pub removed: Vec<SessionId>,
    /// Whether there were too many changes to send: the list has to be requested again.
    pub list_again: bool,
}

impl ListUpdate {
    /// The change that a notification reports; `None` if it is another one.
    ///
    /// ```
    /// use parlor_client::{Json, ListUpdate, Notification};
    ///
    /// let params = Json::parse(r#"{"sessions":[{"sessionId":"a","cwd":"/"}],"removed":["b"]}"#).unwrap();
    /// let update = ListUpdate::of(&Notification::new("_parlor/list/update", Some(params))).unwrap();
    /// assert_eq!((update.changed[0].cwd.as_str(), update.removed.len(), update.list_again), ("/", 1, false));
    /// ```
    pub fn of(notification: &Notification) -> Option<Self> {
        if notification.method != "_parlor/list/update" {
            return None;
        }
        let params = notification.params.as_ref()?.to_object()?;
        let changed = params.get_array("sessions").unwrap_or_default();
        let removed = params.get_array("removed").unwrap_or_default();
        Some(Self {
            changed: changed.into_iter().filter_map(|raw| SessionInfo::decode(raw.to_object()?)).collect(),
            removed: removed.into_iter().filter_map(|id| Some(id.to_json_str()?.into())).collect(),
            list_again: params.get_bool("listAgain").unwrap_or(false),
        })
    }
}

/// The metadata of requests for the sessions of all agents of a parlor server.
fn of_all_agents() -> Object {
    Object::new().with("_meta", Object::new().with("parlor/agent", "*").to_json())
}

impl Client {
    /// Initializes the protocol on a connection.
    pub(crate) async fn initialize(
        (connection, shared): (Connection, Shared),
        params: &Object,
        version: Version,
    ) -> Result<Self, Error> {
        let info = connection.call("initialize", params).await?;
        tracing::debug!(parent: shared.subscriptions.connection.span(), "initialized");
        Ok(Self { connection, shared, peer: Arc::new(Peer { version, info }) })
    }

    /// The peer's response to `initialize`, in version 2 of the protocol.
    pub fn info(&self) -> &Object {
        &self.peer.info
    }

    /// The version of the protocol that the peer uses.
    pub fn version(&self) -> Version {
        self.peer.version
    }

    /// Creates a session with a working directory.
    pub async fn new_session(&self, cwd: &Path) -> Result<Session, Error> {
        let params = session_params(None, cwd);
        let response = self.connection.request("session/new", &params, Purpose::NewSession).await?;
        let replica = response.session.ok_or(Error::Protocol("the new session has no id"))?;
        Ok(Session::new(self.clone(), replica))
    }

    /// Subscribes to a session without its history.
    pub async fn join(&self, id: &SessionId, cwd: &Path) -> Result<Session, Error> {
        self.subscribe(JoinTarget::Id(id.clone()), cwd, Replay::Nothing).await
    }

    /// Subscribes to a session and loads its history. The transcript stays as it was until all of it has arrived, also if the
    /// peer refuses. While one load of a session is in flight, another one fails with [`Error::Busy`].
    pub async fn load(&self, id: &SessionId, cwd: &Path) -> Result<Session, Error> {
        self.subscribe(JoinTarget::Id(id.clone()), cwd, Replay::All).await
    }

    /// Subscribes to a session of a parlor server and loads its latest entries, at least one and at most this many.
    pub async fn load_tail(&self, id: &SessionId, cwd: &Path, entries: usize) -> Result<Session, Error> {
        self.subscribe(JoinTarget::Id(id.clone()), cwd, Replay::Tail(entries.max(1))).await
    }

    /// Subscribes to a session whose connection was lost, and receives what was missed: a parlor server replays that, any
    /// other peer the whole history. Nothing is applied twice.
    ///
    /// The returned handle and the lost one share a transcript. Updates that the lost connection may still deliver are
    /// ignored.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/agent.rs")); }
    /// # use example::*;
    /// # run(async {
    /// # let server = Server::builder(Example).start().await.unwrap();
    /// # let connect = async || {
    /// #     let (read, write) = tokio::io::split(server.connect());
    /// #     parlor_client::Connector::new("example", "1.0").over(read, write).await
    /// # };
    /// let client = connect().await?;
    /// let session = client.new_session("/tmp".as_ref()).await?;
    /// session.prompt("Hello!").await?.await?;
    /// client.disconnect().await;
    ///
    /// let client = connect().await?;
    /// let session = client.rejoin(&session, "/tmp".as_ref()).await?;
    /// session.prompt("Still there?").await?.await?;
    /// assert_eq!(session.transcript().entries().len(), 4);
    /// # Ok(())
    /// # });
    /// ```
    pub async fn rejoin(&self, lost: &Session, cwd: &Path) -> Result<Session, Error> {
        let replica = lost.replica();
        if replica.is_owned_by(self.token()) {
            return Ok(Session::new(self.clone(), Arc::clone(replica)));
        }
        let subscribe = |replay| self.subscribe(JoinTarget::Replica(Arc::clone(replica)), cwd, replay);
        // Version 1 has no partial replay.
        if self.version() != Version::V1 && replica.is_resumable() {
            match subscribe(Replay::Missed).await {
                // The session may have been replaced, or the server be another.
                Err(Error::Rpc(error)) if error.code() == parlor_wire::code::INVALID_PARAMS => {}
                outcome => return outcome,
            }
        }
        subscribe(Replay::All).await
    }

    async fn subscribe(&self, target: JoinTarget, cwd: &Path, replay: Replay) -> Result<Session, Error> {
        let params = session_params(Some(target.id()), cwd);
        let response = self.connection.join(params, target, replay).await?;
        let replica = response.session.ok_or(Error::Protocol("the response has no session"))?;
        Ok(Session::new(self.clone(), replica))
    }

    /// A handle of a session that this connection is subscribed to already, because the response to a [call](Self::call) named
    /// it, or that is only to be [deleted](Session::delete) and the like. Sends nothing. The handle gets no updates if the
    /// connection is closed or tracks 10,000 sessions already.
    pub fn session(&self, id: &SessionId) -> Session {
        Session::new(self.clone(), self.shared.subscriptions.track(id))
    }

    /// The sessions of the peer, of all pages, the latest first.
    pub async fn list(&self, cwd: Option<&Path>) -> Result<Vec<SessionInfo>, Error> {
        let mut params = Object::default();
        if let Some(cwd) = cwd {
            params.set("cwd", &*cwd.to_string_lossy());
        }
        self.list_pages(params).await
    }

    /// The sessions of all agents of a parlor server, the latest first.
    pub async fn list_all_agents(&self) -> Result<Vec<SessionInfo>, Error> {
        self.list_pages(of_all_agents()).await
    }

    /// Subscribes to the list of sessions of all agents: a parlor server sends changes as
    /// [notifications](Self::notifications), which [`ListUpdate::of`] decodes. A client that subscribes first and then lists
    /// misses nothing.
    pub async fn subscribe_list(&self) -> Result<(), Error> {
        self.call("_parlor/list/subscribe", &of_all_agents()).await.map(drop)
    }

    /// The sessions of all agents of a parlor server, archived ones included: they have `archived: true`.
    pub async fn list_with_archived(&self) -> Result<Vec<SessionInfo>, Error> {
        self.list_pages(of_all_agents().with("archived", "include")).await
    }

    /// The same as [`list_with_archived`](Self::list_with_archived), with the sessions of subagents.
    pub async fn list_with_subagents(&self) -> Result<Vec<SessionInfo>, Error> {
        let mut params = of_all_agents().with("archived", "include");
        params.set_nested("_meta", "parlor/subagents", true);
        self.list_pages(params).await
    }

    /// The same as [`subscribe_list`](Self::subscribe_list), with archived sessions.
    pub async fn subscribe_list_with_archived(&self) -> Result<(), Error> {
        self.call("_parlor/list/subscribe", &of_all_agents().with("archived", "include")).await.map(drop)
    }

    async fn list_pages(&self, mut params: Object) -> Result<Vec<SessionInfo>, Error> {
        let mut listed = Vec::new();
        for _ in 0..MAX_PAGES {
            let page = self.call("session/list", &params).await?;
            let sessions = page.get_array("sessions");
            let sessions = sessions.ok_or(Error::Protocol("the list has no sessions"))?;
            listed.extend(sessions.into_iter().filter_map(|raw| SessionInfo::decode(raw.to_object()?)));
            match page.get("nextCursor").filter(|next| !next.is_null()) {
                Some(next) if listed.len() < MAX_LISTED => params.set("cursor", next.clone()),
                Some(_) => break,
                None => return Ok(listed),
            }
        }
        Err(Error::Protocol("the list has too many pages or sessions"))
    }

    /// The requests that the agent sends from here on. To be called before the first prompt: while no such stream exists,
    /// requests are declined at once, and only other clients of the session can answer them.
    pub fn requests(&self) -> PeerRequests {
        PeerRequests::new(Arc::clone(&self.shared.requests))
    }

    /// The notifications that arrive from here on and are not session updates, such as those of protocol extensions.
    pub fn notifications(&self) -> Notifications {
        self.connection.notifications()
    }

    /// The messages of this connection that could not be decoded or delivered, or not be expressed in the peer's version of
    /// the protocol. [`Session::losses`] has the updates of one session.
    pub fn losses(&self) -> Losses {
        self.shared.losses.read()
    }

    /// Sends any request, in version 2 of the protocol, and waits for the result. Dropping the future cancels the request.
    ///
    /// ```
    /// use parlor_client::{Object, code};
    ///
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/agent.rs")); }
    /// # use example::*;
    /// # run(async {
    /// # let client = connect().await;
    /// let page = client.call("session/list", &Object::default()).await?;
    /// assert_eq!(page.get("sessions").unwrap().as_str(), "[]");
    /// let unknown = client.call("_example/unknown", &Object::default()).await.unwrap_err();
    /// assert_eq!(unknown.code(), Some(code::METHOD_NOT_FOUND));
    /// # Ok(())
    /// # });
    /// ```
    pub async fn call(&self, method: &str, params: &Object) -> Result<Object, Error> {
        self.connection.call(method, params).await
    }

    /// Sends any notification, in version 2 of the protocol.
    pub async fn notify(&self, method: &str, params: &Object) -> Result<(), Error> {
        let command = Command::Notify { method: method.to_owned(), params: params.clone() };
        self.connection.send(command).await
    }

    /// Closes the connection, also for all clones. Transcripts can still be read, and sessions
    /// [rejoined](Self::rejoin) on another connection.
    pub async fn disconnect(&self) {
        self.connection.close();
        self.closed().await;
    }

    /// Waits until the connection is closed.
    pub async fn closed(&self) {
        self.connection.closed().await;
    }

    pub(crate) fn token(&self) -> &ConnectionToken {
        &self.shared.subscriptions.connection
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }
}

impl SessionInfo {
    fn decode(fields: Object) -> Option<Self> {
        Some(Self {
            id: fields.get_json_str("sessionId")?.into(),
            title: fields.get_string("title"),
            cwd: fields.get_string("cwd").unwrap_or_default(),
            updated_at: fields.get_string("updatedAt"),
            fields,
        })
    }
}

/// The session that a response names.
pub(crate) fn session_in(result: &Object) -> Result<SessionId, Error> {
    let id = result.get_json_str("sessionId");
    id.map(SessionId::from).ok_or(Error::Protocol("the session has no id"))
}

/// The params of requests that open a session.
fn session_params(session: Option<&SessionId>, cwd: &Path) -> Object {
    let mut params = Object::default();
    if let Some(session) = session {
        params.set("sessionId", session.as_json());
    }
    params.set("cwd", &*cwd.to_string_lossy());
    params.set("mcpServers", Json::array::<Json>([]));
    params
}

/// The params of `initialize`, in version 2 of the protocol.
pub(crate) fn initialize_params(name: &str, version: &str, capabilities: &Object) -> Object {
    // Sessions of subagents are opened like others; the server sends their requests in the sessions that own them.
    let meta =
        Object::new().with("parlor/seq", true).with("parlor/events", true).with("parlor/subagents", false);
    Object::new()
        .with("protocolVersion", 2_u64)
        .with("info", Object::new().with("name", name).with("version", version))
        .with("capabilities", capabilities.to_json())
        .with("_meta", meta)
}

impl Version {
    pub(crate) fn dialect(self) -> Dialect {
        match self {
            Self::V1 => Dialect::V1,
            Self::V2 => Dialect::V2,
        }
    }
}
