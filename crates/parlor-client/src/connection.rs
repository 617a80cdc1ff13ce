use std::path::Path;
use std::sync::Arc;

use parlor_dialect::{Dialect, Translator};
use parlor_json::Object;
use parlor_wire::hello::{Hello, Welcome};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::{Notify, mpsc, oneshot, watch};

use crate::Error;
use crate::driver::{Answer, Command, Driver, Purpose, Reply};
use crate::losses::LossLog;
use crate::peer_request::Requests;
use crate::replica::Replay;
use crate::sessions::{Joined, Sessions};
use crate::transport::Transport;

/// How many commands wait for the connection.
const COMMANDS: usize = 64;

/// The longest answer to a greeting.
const WELCOME_LIMIT: u64 = 64 << 10;

/// A connection to a server of parlor's on which the protocol has not begun. Clones share it; it ends with the last of
/// them.
///
/// A server answers some calls without it, such as `_parlor/status`, `_parlor/agents` and `_parlor/search`. Who begins may
/// have an agent started; who only wants to know something should not.
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
    /// Wakes the connection's task when somebody does not wait any more.
    given_up: Arc<Notify>,
    /// Ends the connection when it is told to, and when nobody has it any more: also if no command is taken.
    leave: Arc<watch::Sender<bool>>,
    gone: watch::Receiver<bool>,
}

/// What a connection hears by itself.
#[derive(Debug)]
pub(crate) struct ConnectionState {
    pub(crate) requests: Arc<Requests>,
    pub(crate) sessions: Sessions,
    pub(crate) losses: LossLog,
}

/// An answer that somebody waits for.
struct Waiting<'a> {
    answer: oneshot::Receiver<Result<Answer, Error>>,
    is_over: bool,
    given_up: &'a Notify,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            // Closed first, so that it is seen to be by who is woken.
            self.answer.close();
            self.given_up.notify_one();
        }
    }
}

impl Connection {
    /// Connects to the Unix socket of a server of parlor's, and greets.
    pub async fn socket(path: &Path, hello: &Hello) -> Result<(Self, Welcome), Error> {
        let (transport, welcome) = greet(path, hello).await?;
        Ok((Self::start(transport, Dialect::V2).0, welcome))
    }

    /// Asks, and waits for the answer. A call that is dropped before takes back what was asked.
    pub async fn call(&self, method: &str, params: &Object) -> Result<Object, Error> {
        self.ask(method, params, Purpose::Call).await.map(|answer| answer.result)
    }

    /// Waits until the connection is gone.
    pub async fn closed(&self) {
        let _ = self.gone.clone().wait_for(|gone| *gone).await;
    }

    /// Ends the connection, whoever has it.
    pub(crate) fn leave(&self) {
        self.leave.send_replace(true);
    }

    /// Puts a task in front of a transport. An agent of version 1 is translated.
    pub(crate) fn start(transport: Transport, dialect: Dialect) -> (Self, ConnectionState) {
        let (commands, receiver) = mpsc::channel(COMMANDS);
        let (leave, left) = watch::channel(false);
        let (requests, losses) = (Arc::new(Requests::default()), LossLog::default());
        let (gone_sender, gone) = watch::channel(false);
        let given_up = Arc::new(Notify::new());
        let sessions = Sessions::default();
        let translator = (dialect != Dialect::V2).then(|| Translator::relay(dialect, Dialect::V2));
        let driver = Driver::new(
            transport,
            translator,
            (receiver, commands.downgrade()),
            Arc::clone(&given_up),
            sessions.clone(),
            (Arc::clone(&requests), losses.clone()),
            (left, gone_sender),
        );
        tokio::spawn(driver.run());
        (
            Self { commands, given_up, leave: Arc::new(leave), gone },
            ConnectionState { requests, sessions, losses },
        )
    }

    /// Asks for a purpose.
    pub(crate) async fn ask(&self, method: &str, params: &Object, purpose: Purpose) -> Result<Answer, Error> {
        let (method, params) = (method.to_owned(), params.clone());
        self.answer(|reply| Command::Ask { method, params, purpose, reply }).await
    }

    /// Joins a session.
    pub(crate) async fn join(&self, params: Object, joined: Joined, replay: Replay) -> Result<Answer, Error> {
        self.answer(|reply| Command::Join { params, joined, replay, reply }).await
    }

    /// The answer to a command.
    async fn answer(&self, command: impl FnOnce(Reply) -> Command) -> Result<Answer, Error> {
        let (reply, answer) = oneshot::channel();
        self.send(command(reply)).await?;
        let mut waiting = Waiting { answer, is_over: false, given_up: &self.given_up };
        let outcome = (&mut waiting.answer).await;
        waiting.is_over = true;
        outcome.unwrap_or(Err(Error::Disconnected))
    }

    pub(crate) async fn send(&self, command: Command) -> Result<(), Error> {
        self.commands.send(command).await.map_err(|_| Error::Disconnected)
    }
}

/// Connects to the Unix socket of a server and says hello.
pub(crate) async fn greet(path: &Path, hello: &Hello) -> Result<(Transport, Welcome), Error> {
    let stream = UnixStream::connect(path).await.map_err(Error::Connect)?;
    let (read, mut write) = stream.into_split();
    let mut read = BufReader::new(read);
    write.write_all(hello.to_line().as_bytes()).await.map_err(|_| Error::Disconnected)?;
    let mut line = String::new();
    let read_line = (&mut read).take(WELCOME_LIMIT).read_line(&mut line).await;
    if !read_line.is_ok_and(|length| length > 0) {
        return Err(Error::Disconnected);
    }
    let welcome: Welcome = serde_json::from_str(&line)
        .map_err(|error| Error::Refused(format!("its greeting cannot be read: {error}")))?;
    match welcome.error {
        Some(why) => Err(Error::Refused(why)),
        None => Ok((Transport::over(read, write).0, welcome)),
    }
}
