//! A client as people have it: it holds its session with `parlor-client`, and knows all of it at any time.

use std::time::{Duration, Instant};

use futures_util::FutureExt;
use parlor_client::{Client, Connector, Error, Hello, JsonStr, News, Object, Session, SessionId, Update};
use tokio::process::{Child, Command};
use tokio::runtime::Runtime;

use super::heard::Heard;
use super::place::{Bench, Peer, Server, Version};
use crate::failure::Failure;

/// A client on one connection. It reads only while something is asked of it.
pub(crate) struct Holder {
    runtime: Runtime,
    client: Client,
    session: Option<(Session, News)>,
    /// What it made of the news of its sessions.
    pub(crate) heard: Heard,
    /// What it talks to, if it started that itself.
    child: Option<Child>,
}

/// Where all sessions work.
const HERE: &str = "/";

impl Holder {
    /// Starts a program and talks to it.
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
        Ok(Self { runtime, client, session: None, heard: Heard::default(), child: Some(child) })
    }

    /// Talks to a server's socket.
    pub(crate) fn socket(bench: &Bench, server: &Server) -> Result<Self, Failure> {
        let runtime = super::runtime()?;
        let connector = connector(bench.client);
        let connected = runtime.block_on(connector.socket(&server.socket(), &Hello::new()));
        let (client, _) = connected.map_err(|error| refused(&error))?;
        Ok(Self { runtime, client, session: None, heard: Heard::default(), child: None })
    }

    /// Begins a session.
    pub(crate) fn begin(&mut self) -> Result<SessionId, Failure> {
        let begun =
            self.runtime.block_on(self.client.new_session(HERE.as_ref())).map_err(|error| refused(&error))?;
        let id = begun.id().clone();
        let news = begun.news();
        self.session = Some((begun, news));
        Ok(id)
    }

    /// Joins the session of another client and is told all of it. Says how long that took.
    pub(crate) fn join(&mut self, session: &SessionId) -> Result<Duration, Failure> {
        let begun = Instant::now();
        let joined = self
            .runtime
            .block_on(self.client.load(session, HERE.as_ref()))
            .map_err(|error| refused(&error))?;
        let took = begun.elapsed();
        let mut news = joined.news_since(0);
        while let Some(update) = news.ready() {
            self.heard.news(&update);
        }
        self.session = Some((joined, news));
        Ok(took)
    }

    /// Forks a session at its end, and does not look at the fork. Says how long that took.
    pub(crate) fn fork(&self, session: &SessionId) -> Result<Duration, Failure> {
        let mut params = Object::default();
        params.set("sessionId", session.as_json());
        params.set("cwd", &JsonStr::new(HERE));
        let begun = Instant::now();
        self.runtime.block_on(self.client.call("session/fork", &params)).map_err(|error| refused(&error))?;
        Ok(begun.elapsed())
    }

    /// Has the agent do something and reads all news until the turn is over. Says how long that took.
    pub(crate) fn turn(&mut self, prompt: &str) -> Result<Duration, Failure> {
        let Self { runtime, session, heard, .. } = self;
        let (session, news) = session.as_mut().ok_or_else(no_session)?;
        runtime.block_on(async {
            let begun = Instant::now();
            let turn = session.prompt(prompt).await.map_err(|error| refused(&error))?;
            loop {
                let update = news.next().await.ok_or_else(|| refused(&Error::Gone))?;
                heard.news(&update);
                if matches!(update, Update::State(_)) && turn.end().now_or_never().is_some() {
                    return Ok(begun.elapsed());
                }
            }
        })
    }

    /// Reads until the session is idle, if it is not.
    pub(crate) fn until_idle(&mut self) -> Result<(), Failure> {
        let Self { runtime, session, heard, .. } = self;
        let (session, news) = session.as_mut().ok_or_else(no_session)?;
        runtime.block_on(session.idle()).map_err(|error| refused(&error))?;
        while let Some(update) = news.ready() {
            heard.news(&update);
        }
        Ok(())
    }
}

/// What it started ends when its input does.
impl Drop for Holder {
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
