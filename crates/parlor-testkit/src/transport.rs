//! The transports of a server, all with the same two ends: a writer and a reader of lines.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;

use futures_util::{SinkExt, StreamExt};
use parlor_dialect::Dialect;
use serde_json::json;
use tokio::sync::mpsc as async_mpsc;
use tokio_tungstenite::connect_async;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

use crate::client::ClientBuilder;
use crate::process::exit_status;
use crate::server::Server;
use crate::wait::TIMEOUT;

/// The most lines that wait for a WebSocket because the server does not read. More fail the test.
const MAX_UNSENT_LINES: usize = 100_000;

/// How a client connects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransportKind {
    /// The standard streams of `parlor acp`.
    Stdio,
    /// The Unix socket.
    Unix,
    /// A WebSocket.
    WebSocket,
}

/// The end of a connection that lines are written to. Dropping it closes the connection.
#[derive(Debug)]
pub enum Writer {
    /// The standard input of a process.
    Stdio {
        /// The process, which is killed with the connection.
        process: Child,
        /// Its standard input, until it is closed.
        input: Option<ChildStdin>,
    },
    /// A Unix socket.
    Unix(UnixStream),
    /// The lines for a WebSocket, until it is closed.
    WebSocket(Option<async_mpsc::Sender<String>>),
}

/// The lines that arrive.
pub type Reader = Receiver<String>;

impl TransportKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Stdio, Self::Unix, Self::WebSocket];
}

pub(crate) fn connect(server: &Server, client: &ClientBuilder) -> (Writer, Reader) {
    match client.transport {
        TransportKind::Stdio => {
            let mut command = server.dir().acp();
            command.args(["--agent", &client.agent]);
            if client.dialect == Dialect::Draft {
                command.args(["--dialect", "draft"]);
            }
            stdio(command)
        }
        TransportKind::Unix => unix(server, client),
        TransportKind::WebSocket => websocket(server, client),
    }
}

/// Starts a command and connects to its standard streams.
pub fn stdio(mut command: Command) -> (Writer, Reader) {
    let process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut process = process.expect("the command can be run");
    let reader = read_lines(process.stdout.take().expect("it is a pipe"));
    let input = process.stdin.take();
    (Writer::Stdio { process, input }, reader)
}

fn unix(server: &Server, client: &ClientBuilder) -> (Writer, Reader) {
    let mut stream = UnixStream::connect(server.dir().socket()).expect("the server listens on its socket");
    let hello = json!({ "parlor": 1, "agent": { "name": client.agent } });
    writeln!(stream, "{hello}").expect("the server reads");
    let reader = read_lines(stream.try_clone().expect("a socket can be cloned"));
    let welcome = reader.recv_timeout(TIMEOUT).expect("the server answers the hello");
    assert!(welcome.contains("\"pid\""), "{welcome}");
    (Writer::Unix(stream), reader)
}

fn read_lines(stream: impl Read + Send + 'static) -> Reader {
    let (sender, reader) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    reader
}

fn websocket(server: &Server, client: &ClientBuilder) -> (Writer, Reader) {
    let token = if client.is_observer { server.observer_token() } else { server.token() };
    let url = format!("{}?agent={}", server.url(), client.agent);
    let (writer, lines) = async_mpsc::channel(MAX_UNSENT_LINES);
    let (sender, reader) = mpsc::channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(relay(&url, &token, lines, sender));
    });
    (Writer::WebSocket(Some(writer)), reader)
}

/// Carries lines as frames until one side has closed.
async fn relay(
    url: &str,
    token: &str,
    mut lines: async_mpsc::Receiver<String>,
    received: mpsc::Sender<String>,
) {
    let mut request = url.into_client_request().expect("an address");
    request.headers_mut().insert("authorization", format!("Bearer {token}").parse().expect("a header"));
    let (mut socket, _) = connect_async(request).await.expect("the server accepts the connection");
    loop {
        tokio::select! {
            line = lines.recv() => match line {
                Some(line) => socket.send(Message::text(line)).await.expect("the server reads"),
                None => return,
            },
            frame = socket.next() => match frame {
                Some(Ok(Message::Text(text))) => {
                    if received.send(text.to_string()).is_err() {
                        return;
                    }
                }
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                Some(Ok(_) | Err(_)) | None => return,
            },
        }
    }
}

impl Writer {
    /// Writes a line.
    pub fn write(&mut self, line: &str) {
        match self {
            Self::Stdio { input, .. } => {
                writeln!(input.as_mut().expect("the input is open"), "{line}").expect("the process reads");
            }
            Self::Unix(stream) => writeln!(stream, "{line}").expect("the server reads"),
            Self::WebSocket(writer) => {
                let writer = writer.as_ref().expect("the socket is open");
                writer.try_send(line.to_owned()).expect("the connection is open and takes lines");
            }
        }
    }

    /// Closes this end. A process is waited for: its exit code.
    pub fn close(&mut self) -> Option<i32> {
        match self {
            Self::Stdio { process, input } => {
                *input = None;
                return exit_status(process).code();
            }
            Self::Unix(stream) => stream.shutdown(Shutdown::Write).expect("the socket is open"),
            Self::WebSocket(writer) => *writer = None,
        }
        None
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        match self {
            Self::Stdio { process, .. } => {
                // It may have ended by itself.
                let _ = process.kill();
                let _ = process.wait();
            }
            Self::Unix(stream) => drop(stream.shutdown(Shutdown::Both)),
            Self::WebSocket(writer) => *writer = None,
        }
    }
}
