//! The ways into a server, all with the same two ends: something to say lines to, and lines that are heard.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;

use futures_util::{SinkExt, StreamExt};
use parlor_dialect::Dialect;
use serde_json::json;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_tungstenite::connect_async;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

use crate::client::Guest;
use crate::server::{Home, PARLOR, Server};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Door {
    Stdio,
    Unix,
    Web,
}

pub(crate) const DOORS: [Door; 3] = [Door::Stdio, Door::Unix, Door::Web];

/// The end of a connection that is spoken into. The connection ends with it.
pub(crate) enum Mouth {
    Stdio { process: Child, input: Option<ChildStdin> },
    Unix(UnixStream),
    Web(Option<UnboundedSender<String>>),
}

/// What is heard.
pub(crate) type Ears = Receiver<String>;

pub(crate) fn open(server: &Server, guest: &Guest) -> (Mouth, Ears) {
    match guest.door {
        Door::Stdio => {
            let mut command = acp(server.home());
            command.args(["--agent", &guest.agent]);
            if guest.dialect == Dialect::Draft {
                command.args(["--dialect", "draft"]);
            }
            stdio(command)
        }
        Door::Unix => unix(server, guest),
        Door::Web => web(server, guest),
    }
}

/// `parlor acp` for a data directory.
pub(crate) fn acp(home: &Home) -> Command {
    let mut command = Command::new(PARLOR);
    command.arg("acp").arg("--data").arg(home.data()).arg("--config").arg(home.config());
    command
}

/// A client whose standard streams are those of a command.
pub(crate) fn stdio(mut command: Command) -> (Mouth, Ears) {
    let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let ears = listen(process.stdout.take().unwrap());
    let input = process.stdin.take();
    (Mouth::Stdio { process, input }, ears)
}

fn unix(server: &Server, guest: &Guest) -> (Mouth, Ears) {
    let mut stream = UnixStream::connect(server.home().data().join("parlor.sock")).unwrap();
    let hello = json!({ "parlor": 1, "agent": { "name": guest.agent } });
    writeln!(stream, "{hello}").unwrap();
    let ears = listen(stream.try_clone().unwrap());
    assert!(ears.recv_timeout(crate::server::PATIENCE).unwrap().contains("\"pid\""), "a welcome");
    (Mouth::Unix(stream), ears)
}

fn listen(stream: impl Read + Send + 'static) -> Ears {
    let (sender, ears) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    ears
}

fn web(server: &Server, guest: &Guest) -> (Mouth, Ears) {
    let file = if guest.observes { "token.read" } else { "token" };
    let token = fs::read_to_string(server.home().data().join(file)).unwrap();
    let url = format!("ws://{}/acp?agent={}", server.address, guest.agent);
    let (mouth, said) = unbounded_channel();
    let (heard, ears) = mpsc::channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(frames(&url, token.trim(), said, heard));
    });
    (Mouth::Web(Some(mouth)), ears)
}

/// Carries lines as frames, until nobody speaks or listens any more.
async fn frames(url: &str, token: &str, mut said: UnboundedReceiver<String>, heard: mpsc::Sender<String>) {
    let mut request = url.into_client_request().unwrap();
    request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    let (mut socket, _) = connect_async(request).await.unwrap();
    loop {
        tokio::select! {
            line = said.recv() => match line {
                Some(line) => socket.send(Message::text(line)).await.unwrap(),
                None => return,
            },
            frame = socket.next() => match frame {
                Some(Ok(Message::Text(text))) => {
                    if heard.send(text.to_string()).is_err() {
                        return;
                    }
                }
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                Some(Ok(_) | Err(_)) | None => return,
            },
        }
    }
}

impl Mouth {
    pub(crate) fn say(&mut self, line: &str) {
        match self {
            Self::Stdio { input, .. } => {
                writeln!(input.as_mut().expect("the input is open"), "{line}").unwrap();
            }
            Self::Unix(stream) => writeln!(stream, "{line}").unwrap(),
            Self::Web(mouth) => mouth.as_ref().expect("the socket is open").send(line.to_owned()).unwrap(),
        }
    }

    /// Says no more. A command is waited for: its exit code.
    pub(crate) fn shut(&mut self) -> Option<i32> {
        match self {
            Self::Stdio { process, input } => {
                *input = None;
                return crate::server::ends(process).code();
            }
            Self::Unix(stream) => stream.shutdown(Shutdown::Write).unwrap(),
            Self::Web(mouth) => *mouth = None,
        }
        None
    }
}

impl Drop for Mouth {
    fn drop(&mut self) {
        match self {
            Self::Stdio { process, .. } => {
                // It may have ended by itself.
                let _ = process.kill();
                let _ = process.wait();
            }
            Self::Unix(stream) => drop(stream.shutdown(Shutdown::Both)),
            Self::Web(mouth) => *mouth = None,
        }
    }
}
