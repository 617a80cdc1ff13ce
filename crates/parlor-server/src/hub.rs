//! The place where clients, sessions and agents meet.

use std::path::PathBuf;
use std::sync::Arc;

use parlor_dialect::Dialect;
use parlor_wire::Frame;

use crate::outbox::{Outbox, OutboxReader, outbox};

/// Who connects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// By which door it came.
    pub door: Door,
    /// What it may do.
    pub role: Role,
    /// Which agent it wants; the default one if it names none.
    pub agent: Option<AgentChoice>,
    /// The dialect of a client that asks for protocol version 2.
    pub dialect: Option<Dialect>,
    /// The variables of its environment, for agents that are started on its behalf.
    pub env: Vec<(String, String)>,
    /// Where it works.
    pub cwd: Option<PathBuf>,
}

/// How a client came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Door {
    /// The standard streams of this process.
    Stdio,
    /// The Unix socket.
    Unix,
    /// HTTP.
    WebSocket,
}

/// What a client may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Everything.
    Driver,
    /// Watch.
    Observer,
}

/// Which agent a client wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentChoice {
    /// One that is configured.
    Named(String),
    /// The program and its arguments.
    Command(Vec<String>),
}

/// All of a server but its doors.
#[derive(Debug, Default)]
pub struct Hub {}

/// One client's way in.
#[derive(Debug)]
pub struct Connection {
    outbox: Outbox,
}

impl Hub {
    /// A client connects. What it is to be told comes out of the reader; when the connection is dropped, the client is
    /// gone.
    pub fn connect(self: &Arc<Self>, _peer: Peer) -> (Connection, OutboxReader) {
        let (outbox, reader) = outbox();
        (Connection { outbox }, reader)
    }
}

impl Connection {
    /// The client said something. Waits while there is too much to do.
    #[expect(clippy::unused_async, reason = "a session may make it wait")]
    pub async fn said(&mut self, frame: Frame<'_>) {
        if let Ok(line) = frame.line() {
            self.outbox.push(format!("{line}\n").into());
        }
    }
}
