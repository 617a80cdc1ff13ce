//! A client that uses `parlor-client` and keeps the whole transcript, as applications do.

use std::time::{Duration, Instant};

use futures_util::FutureExt;
use parlor_client::{Client, Connector, Error, Hello, JsonStr, Object, Session, SessionId, Update, Updates};
use tokio::process::{Child, Command};
use tokio::runtime::Runtime;

use super::environment::{Bench, Peer, Server, Version};
use super::received::Received;
use crate::failure::Failure;

/// A client on one connection; it reads only while one of its methods runs.
pub(crate) struct LibraryClient {
    runtime: Runtime,
    client: Client,
    session: Option<(Session, Updates)>,
    /// The counts of received chunks.
    pub(crate) received: Received,
    /// The program that it started, if any.
    child: Option<Child>,
}

/// The working directory of all sessions.
const HERE: &str = "/";

impl LibraryClient {
    /// Starts a program and connects to its standard streams.
    pub(crate) fn start(peer: Peer) -> Result<Self, Failure> {
        let runtime = super::runtime()?;
        let (client, child) = runtime.block_on(async {
            let connector = connector(peer.version);
            let mut child = Command::from(peer.piped())
                .spawn()
                .map_err(|error| Failure::failed(format_args!("cannot start what is measured: {error}")))?;
            let (Some(write), Some(read)) = (child.stdin.take(), child.stdout.take()) else {
                return Err(Failure::failed("a process has no standard streams"));
            };
            let client = connector.over(read, write).await.map_err(|error| refused(&error))?;
            Ok((client, child))
        })?;
        Ok(Self { runtime, client, session: None, received: Received::default(), child: Some(child) })
    }

    /// Connects to a server's Unix socket.
    pub(crate) fn socket(bench: &Bench, server: &Server) -> Result<Self, Failure> {
        let runtime = super::runtime()?;
        let connector = connector(bench.client);
        let connected = runtime.block_on(connector.socket(&server.socket(), &Hello::new()));
        let (client, _) = connected.map_err(|error| refused(&error))?;
        Ok(Self { runtime, client, session: None, received: Received::default(), child: None })
    }

    /// Creates a session.
    pub(crate) fn begin(&mut self) -> Result<SessionId, Failure> {
        let begun =
            self.runtime.block_on(self.client.new_session(HERE.as_ref())).map_err(|error| refused(&error))?;
        let id = begun.id().clone();
        let updates = begun.updates();
        self.session = Some((begun, updates));
        Ok(id)
    }

    /// Attaches to the session of another client, reads its replay and returns the duration.
    pub(crate) fn join(&mut self, session: &SessionId) -> Result<Duration, Failure> {
        let begun = Instant::now();
        let joined = self
            .runtime
            .block_on(self.client.load(session, HERE.as_ref()))
            .map_err(|error| refused(&error))?;
        let took = begun.elapsed();
        let mut updates = joined.updates_since(0);
        while let Some(update) = updates.next().now_or_never().flatten() {
            self.received.update(&update);
        }
        self.session = Some((joined, updates));
        Ok(took)
    }

    /// Forks a session at its end without attaching to the fork, and returns the duration.
    pub(crate) fn fork(&self, session: &SessionId) -> Result<Duration, Failure> {
        let mut params = Object::default();
        params.set("sessionId", session.as_json());
        params.set("cwd", JsonStr::new(HERE));
        let begun = Instant::now();
        self.runtime.block_on(self.client.call("session/fork", &params)).map_err(|error| refused(&error))?;
        Ok(begun.elapsed())
    }

    /// Sends a prompt, reads all updates until the turn ends and returns the duration.
    pub(crate) fn turn(&mut self, prompt: &str) -> Result<Duration, Failure> {
        let Self { runtime, session, received, .. } = self;
        let (session, updates) = session.as_mut().ok_or_else(no_session)?;
        runtime.block_on(async {
            let begun = Instant::now();
            let turn = session.prompt(prompt).await.map_err(|error| refused(&error))?;
            loop {
                let update = updates.next().await.ok_or_else(|| refused(&Error::Disconnected))?;
                received.update(&update);
                if matches!(update, Update::State(_)) && turn.outcome().now_or_never().is_some() {
                    return Ok(begun.elapsed());
                }
            }
        })
    }

    /// Reads until the session is idle.
    pub(crate) fn until_idle(&mut self) -> Result<(), Failure> {
        let Self { runtime, session, received, .. } = self;
        let (session, updates) = session.as_mut().ok_or_else(no_session)?;
        runtime.block_on(session.idle()).map_err(|error| refused(&error))?;
        while let Some(update) = updates.next().now_or_never().flatten() {
            received.update(&update);
        }
        Ok(())
    }
}

/// A program that it started ends when its input is closed.
impl Drop for LibraryClient {
    fn drop(&mut self) {
        self.runtime.block_on(async {
            self.client.disconnect().await;
            if let Some(child) = &mut self.child {
                let _ = child.wait().await;
            }
        });
    }
}

fn connector(version: Version) -> Connector {
    Connector::new("bench", "1").only(match version {
        Version::V1 => parlor_client::Version::V1,
        Version::V2 => parlor_client::Version::V2,
    })
}

fn refused(error: &Error) -> Failure {
    Failure::failed(format_args!("the benchmark is refused: {error}"))
}

fn no_session() -> Failure {
    Failure::failed("there is no session")
}
