use std::path::Path;
use std::sync::Arc;

use parlor_dialect::{Dialect, Translator};
use parlor_json::Object;
use parlor_wire::hello::{Hello, Welcome};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::{Notify, broadcast, mpsc, oneshot, watch};
use tracing::Instrument;

use crate::Error;
use crate::driver::{Command, Driver, Purpose, Reply, Response};
use crate::losses::LossLog;
use crate::notifications::{Notification, Notifications};
use crate::peer_request::Requests;
use crate::replica::Replay;
use crate::subscriptions::{JoinTarget, Subscriptions};
use crate::transport::Transport;

/// How many commands wait for the connection's task.
const MAX_COMMANDS: usize = 64;

/// How many notifications wait for each stream of them.
const MAX_NOTIFICATIONS: usize = 1024;

/// The size limit of a server's response to a hello.
const MAX_WELCOME: u64 = 64 << 10;

/// A connection to a parlor server on which the protocol has not been initialized. Clones share it; it closes with the last
/// of them.
///
/// A server answers some calls without initialization, such as `_parlor/status`, `_parlor/agents` and `_parlor/search`.
/// Initialization may start an agent, which a client that only queries the server does not need.
///
/// ```no_run
/// use parlor_client::{Connection, Hello, Object};
///
/// # async fn example() -> Result<(), parlor_client::Error> {
/// let (server, welcome) = Connection::socket("/data/parlor.sock".as_ref(), &Hello::new()).await?;
/// let status = server.call("_parlor/status", &Object::default()).await?;
/// println!("process {:?} has {:?} clients", welcome.pid, status.get("clients"));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Connection {
    commands: mpsc::Sender<Command>,
    /// Wakes the connection's task when the future of a call or a peer request was dropped.
    abandoned: Arc<Notify>,
    /// Closes the connection when it is set, and when its last clone is dropped: also while no command is taken.
    close: Arc<watch::Sender<bool>>,
    closed: watch::Receiver<bool>,
    /// Weak, so that streams of notifications end with the connection.
    notifications: broadcast::WeakSender<Notification>,
    losses: LossLog,
}

/// What a connection's task shares with its clients.
#[derive(Debug, Clone)]
pub(crate) struct Shared {
    pub(crate) requests: Arc<Requests>,
    pub(crate) subscriptions: Subscriptions,
    pub(crate) losses: LossLog,
}

/// A call that waits for its response.
struct PendingCall<'a> {
    response: oneshot::Receiver<Result<Response, Error>>,
    is_done: bool,
    abandoned: &'a Notify,
}

impl Drop for PendingCall<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            // Closed first, so that the connection's task sees it when it is woken.
            self.response.close();
            self.abandoned.notify_one();
        }
    }
}

impl Connection {
    /// Connects to the Unix socket of a parlor server.
    pub async fn socket(path: &Path, hello: &Hello) -> Result<(Self, Welcome), Error> {
        let (transport, welcome) = open_socket(path, hello).await?;
        Ok((Self::start(transport, Dialect::V2).0, welcome))
    }

    /// Connects over two byte streams to a parlor server that is at their other end.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// use parlor_client::{Connection, Error, Object};
    ///
    /// let (ours, theirs) = tokio::io::duplex(1024);
    /// drop(theirs);
    /// let (read, write) = tokio::io::split(ours);
    /// let called = Connection::over(read, write).call("_parlor/status", &Object::default()).await;
    /// assert!(matches!(called, Err(Error::Disconnected)));
    /// # });
    /// ```
    pub fn over<R, W>(read: R, write: W) -> Self
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        Self::start(Transport::over("stream", read, write).0, Dialect::V2).0
    }

    /// Sends a request and waits for the result. Dropping the future cancels the request.
    pub async fn call(&self, method: &str, params: &Object) -> Result<Object, Error> {
        self.request(method, params, Purpose::Call).await.map(|response| response.result)
    }

    /// The notifications that arrive from here on and are not session updates.
    pub fn notifications(&self) -> Notifications {
        let sender = self.notifications.upgrade();
        Notifications::new(sender.as_ref().map(broadcast::Sender::subscribe), self.losses.clone())
    }

    /// Waits until the connection is closed.
    pub async fn closed(&self) {
        let _ = self.closed.clone().wait_for(|closed| *closed).await;
    }

    /// Closes the connection for all clones.
    pub(crate) fn close(&self) {
        self.close.send_replace(true);
    }

    /// Starts the task of a connection. A peer of version 1 is translated.
    pub(crate) fn start(transport: Transport, dialect: Dialect) -> (Self, Shared) {
        let span = tracing::info_span!("connection", transport = transport.kind, version = dialect.version());
        let (commands, receiver) = mpsc::channel(MAX_COMMANDS);
        let (close, close_requested) = watch::channel(false);
        let (closed_sender, closed) = watch::channel(false);
        let sender = broadcast::Sender::new(MAX_NOTIFICATIONS);
        let notifications = sender.downgrade();
        let abandoned = Arc::new(Notify::new());
        let shared = Shared {
            requests: Arc::default(),
            subscriptions: Subscriptions::new(span.clone()),
            losses: LossLog::default(),
        };
        let driver = Driver::new(
            transport,
            (dialect != Dialect::V2).then(|| Translator::relay(dialect, Dialect::V2)),
            (receiver, commands.downgrade()),
            Arc::clone(&abandoned),
            shared.clone(),
            sender,
            (close_requested, closed_sender),
        );
        tokio::spawn(driver.run().instrument(span));
        let losses = shared.losses.clone();
        (Self { commands, abandoned, close: Arc::new(close), closed, notifications, losses }, shared)
    }

    /// Sends a request, the response to which takes effect as `purpose` says.
    pub(crate) async fn request(
        &self,
        method: &str,
        params: &Object,
        purpose: Purpose,
    ) -> Result<Response, Error> {
        let (method, params) = (method.to_owned(), params.clone());
        self.response(|reply| Command::Request { method, params, purpose, reply }).await
    }

    /// Joins a session.
    pub(crate) async fn join(
        &self,
        params: Object,
        target: JoinTarget,
        replay: Replay,
    ) -> Result<Response, Error> {
        self.response(|reply| Command::Join { params, target, replay, reply }).await
    }

    async fn response(&self, command: impl FnOnce(Reply) -> Command) -> Result<Response, Error> {
        let (reply, response) = oneshot::channel();
        self.send(command(reply)).await?;
        let mut call = PendingCall { response, is_done: false, abandoned: &self.abandoned };
        let outcome = (&mut call.response).await;
        call.is_done = true;
        outcome.unwrap_or(Err(Error::Disconnected))
    }

    pub(crate) async fn send(&self, command: Command) -> Result<(), Error> {
        self.commands.send(command).await.map_err(|_| Error::Disconnected)
    }
}

/// Connects to the Unix socket of a server and exchanges hello and welcome.
pub(crate) async fn open_socket(path: &Path, hello: &Hello) -> Result<(Transport, Welcome), Error> {
    let stream = UnixStream::connect(path).await.map_err(Error::Connect)?;
    let (read, mut write) = stream.into_split();
    let mut read = BufReader::new(read);
    write.write_all(hello.to_line().as_bytes()).await.map_err(|_| Error::Disconnected)?;
    let mut line = String::new();
    let read_line = (&mut read).take(MAX_WELCOME).read_line(&mut line).await;
    if !read_line.is_ok_and(|length| length > 0) {
        return Err(Error::Disconnected);
    }
    let welcome: Welcome = serde_json::from_str(&line)
        .map_err(|error| Error::Refused(format!("its welcome cannot be decoded: {error}")))?;
    match welcome.error {
        Some(reason) => Err(Error::Refused(reason)),
        None => Ok((Transport::over("socket", read, write).0, welcome)),
    }
}
