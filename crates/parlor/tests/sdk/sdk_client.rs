//! A client made with the SDK.

mod v1;
mod v2;

use std::io;
use std::pin::Pin;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};

use agent_client_protocol::{Error, Lines};
use futures_util::{Sink, SinkExt, Stream, StreamExt};
use parlor_testkit::server::Server;
use parlor_testkit::wait::{TIMEOUT, within_timeout};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

use crate::client_view::ClientView;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    One,
    Two,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    Stdio,
    WebSocket,
}

/// A client, and what it has received.
pub(crate) struct SdkClient {
    version: Version,
    commands: mpsc::UnboundedSender<ClientCommand>,
    view: watch::Receiver<ClientView>,
    connection: JoinHandle<Result<(), Error>>,
    /// The process of `parlor acp`, for the stdio transport.
    _process: Option<Child>,
}

/// A started turn, and how many had ended before.
pub(crate) struct Turn {
    answer: oneshot::Receiver<Result<String, Error>>,
    idles: usize,
}

/// A request that the client sends; the answer is the relevant text of the response.
struct ClientCommand {
    action: Action,
    answer: oneshot::Sender<Result<String, Error>>,
}

enum Action {
    New,
    Join(String),
    Prompt(String, String),
    Cancel(String),
    List,
}

type Wire = Lines<
    Pin<Box<dyn Sink<String, Error = io::Error> + Send>>,
    Pin<Box<dyn Stream<Item = io::Result<String>> + Send>>,
>;

/// The shared view of a client.
type SharedView = Arc<Mutex<watch::Sender<ClientView>>>;

impl Version {
    pub(crate) fn other(self) -> Self {
        match self {
            Self::One => Self::Two,
            Self::Two => Self::One,
        }
    }
}

impl Transport {
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Stdio => Self::WebSocket,
            Self::WebSocket => Self::Stdio,
        }
    }
}

impl SdkClient {
    pub(crate) async fn connect(
        server: &Server,
        agent: &str,
        version: Version,
        transport: Transport,
    ) -> Self {
        let (wire, process) = match transport {
            Transport::Stdio => {
                let (wire, process) = stdio(server, agent);
                (wire, Some(process))
            }
            Transport::WebSocket => (websocket(server, agent).await, None),
        };
        let (show, view) = watch::channel(ClientView::default());
        let show = Arc::new(Mutex::new(show));
        #[expect(clippy::disallowed_methods, reason = "a test sends a bounded number of commands")]
        let (commands, requests) = mpsc::unbounded_channel();
        let connection = match version {
            Version::One => tokio::spawn(v1::speak(wire, show, requests)),
            Version::Two => tokio::spawn(v2::speak(wire, show, requests)),
        };
        Self { version, commands, view, connection, _process: process }
    }

    pub(crate) fn view(&self) -> ClientView {
        self.view.borrow().clone()
    }

    /// Waits until the condition holds.
    pub(crate) async fn until(&mut self, holds: impl Fn(&ClientView) -> bool) {
        let waited = tokio::time::timeout(TIMEOUT, self.view.wait_for(|view| holds(view))).await;
        let is_reached = matches!(waited, Ok(Ok(_)));
        drop(waited);
        assert!(is_reached, "this is not what was waited for: {:#?}", self.view());
    }

    fn send(&self, action: Action) -> oneshot::Receiver<Result<String, Error>> {
        let (answer, answered) = oneshot::channel();
        // If the connection is closed, waiting for the answer fails.
        let _ = self.commands.send(ClientCommand { action, answer });
        answered
    }

    async fn ask(&self, action: Action) -> String {
        answer(self.send(action)).await
    }

    pub(crate) async fn new_session(&self) -> String {
        self.ask(Action::New).await
    }

    /// Attaches to a session with a full replay.
    pub(crate) async fn join(&self, session: &str) {
        self.ask(Action::Join(session.to_owned())).await;
    }

    pub(crate) async fn list(&self) -> String {
        self.ask(Action::List).await
    }

    pub(crate) async fn cancel(&self, session: &str) {
        self.ask(Action::Cancel(session.to_owned())).await;
    }

    pub(crate) async fn begin_turn(&mut self, session: &str, text: &str) -> Turn {
        // The end of an earlier turn must not be taken for the end of this one.
        self.until(|view| !view.running).await;
        let idles = self.view().idles.len();
        Turn { answer: self.send(Action::Prompt(session.to_owned(), text.to_owned())), idles }
    }

    /// Waits for the end of a turn, and returns its stop reason.
    pub(crate) async fn end_turn(&mut self, turn: Turn) -> String {
        let answer = answer(turn.answer).await;
        match self.version {
            Version::One => answer,
            // The response says only that the prompt was accepted.
            Version::Two => {
                self.until(|view| view.idles.len() > turn.idles).await;
                self.view().idles.last().cloned().unwrap_or_default()
            }
        }
    }

    pub(crate) async fn turn(&mut self, session: &str, text: &str) -> String {
        let turn = self.begin_turn(session, text).await;
        self.end_turn(turn).await
    }

    /// Disconnects. The SDK must have accepted everything that it received.
    pub(crate) async fn leave(self) {
        drop(self.commands);
        within_timeout(self.connection).await.unwrap().unwrap();
    }
}

async fn answer(answer: oneshot::Receiver<Result<String, Error>>) -> String {
    within_timeout(answer).await.expect("the connection is open").unwrap()
}

/// Connects through `parlor acp`, as an editor does.
fn stdio(server: &Server, agent: &str) -> (Wire, Child) {
    let mut child = Command::from(server.dir().command(&["acp", "--agent", agent]))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let write = child.stdin.take().unwrap();
    let read = BufReader::new(child.stdout.take().unwrap()).lines();
    let sink = futures_util::sink::unfold(write, async |mut write, mut line: String| {
        line.push('\n');
        write.write_all(line.as_bytes()).await?;
        write.flush().await?;
        Ok(write)
    });
    let stream = futures_util::stream::unfold(read, async |mut read| {
        Some((read.next_line().await.transpose()?, read))
    });
    (Lines::new(Box::pin(sink), Box::pin(stream)), child)
}

async fn websocket(server: &Server, agent: &str) -> Wire {
    let mut request = format!("{}?agent={agent}", server.url()).into_client_request().unwrap();
    let bearer = format!("Bearer {}", server.token()).parse().unwrap();
    request.headers_mut().insert("Authorization", bearer);
    let (socket, _) = tokio_tungstenite::connect_async(request).await.unwrap();
    let (sink, stream) = socket.split();
    let sink = sink.with(async |line: String| Ok(Message::text(line))).sink_map_err(broken);
    let stream = stream.filter_map(async |message| match message {
        Ok(Message::Text(text)) => Some(Ok(text.to_string())),
        Ok(_) => None,
        Err(error) => Some(Err(broken(error))),
    });
    Lines::new(Box::pin(sink), Box::pin(stream))
}

fn broken(error: tokio_tungstenite::tungstenite::Error) -> io::Error {
    io::Error::other(error)
}

fn show(show: &SharedView, change: impl FnOnce(&mut ClientView)) {
    show.lock().unwrap_or_else(PoisonError::into_inner).send_modify(change);
}

/// The JSON name of a value.
fn name(value: &impl serde::Serialize) -> String {
    serde_json::to_value(value).unwrap().as_str().unwrap_or_default().to_owned()
}
