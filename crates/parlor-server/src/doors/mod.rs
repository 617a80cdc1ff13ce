//! The ways in: a Unix socket, HTTP, and the standard streams of this process.
//!
//! A door knows how bytes become lines and who may come in. What the lines mean is for the [hub](crate::hub).

mod access;
mod guests;
pub mod hello;
mod http;
mod join;
mod lines;
mod owed;
mod stdio;
mod unix;
pub(crate) mod unix_socket;
mod websocket;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parlor_wire::DEFAULT_LINE_LIMIT;
use tokio::sync::watch;

use self::guests::Guests;
use self::http::HttpDoor;
use self::unix::UnixDoor;
use crate::data_dir::{self, DataDir, DataDirError, Lock, Tokens};
use crate::hub::Hub;

pub use self::http::HttpOptions;
pub use self::join::{Ended, join};
pub use self::stdio::{standard_input, standard_output, stdio, streams};

/// The doors of a server, open. What waits at them is let in by [`serve`](Doors::serve).
#[derive(Debug)]
pub struct Doors {
    unix: UnixDoor,
    http: Option<HttpDoor>,
    address: Option<SocketAddr>,
    limits: Limits,
    signs: Signs,
}

/// An HTTP port by itself, for a server without a data directory.
#[derive(Debug)]
pub struct Port {
    door: HttpDoor,
    address: SocketAddr,
    limits: Limits,
}

/// How much and how long doors put up with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// How many connections over HTTP there may be that have shown a token.
    pub connections: u32,
    /// How many connections over HTTP there may be that have not shown a token yet.
    pub unauthenticated_connections: u32,
    /// How many connections through the Unix socket there may be.
    pub local_connections: u32,
    /// How many bytes a WebSocket message may have.
    pub message_bytes: usize,
    /// How often a WebSocket client is pinged.
    pub ping_every: Duration,
    /// How long a WebSocket client may be silent, pongs included.
    pub silence: Duration,
    /// How long the headers of a request may take.
    pub header_time: Duration,
    /// How long connections may go on when the server stops, or when a client says no more and waits for answers.
    pub grace: Duration,
}

/// Why a door does not open.
#[derive(Debug)]
pub enum DoorError {
    /// The address can be reached by other machines, and nobody said that they may.
    Remote(SocketAddr),
    /// The address cannot be listened to.
    Listen {
        /// The address.
        listen: SocketAddr,
        /// What the system said.
        error: io::Error,
    },
    /// The socket cannot be made.
    Socket {
        /// Where it was to be.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The data directory does not do.
    Data(DataDirError),
}

/// The files by which others find the doors. They go when the doors close, while the directory is still ours.
#[derive(Debug)]
struct Signs {
    socket: PathBuf,
    data: DataDir,
    _lock: Lock,
}

impl Doors {
    /// Opens the Unix socket and, if asked for, the HTTP port, and leaves word in the data directory where they are.
    pub async fn open(
        data: &DataDir,
        lock: &Lock,
        tokens: Tokens,
        http: Option<&HttpOptions>,
        limits: Limits,
    ) -> Result<Self, DoorError> {
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let socket = data.place_socket(lock, runtime, &std::env::temp_dir())?;
        let unix = UnixDoor::open(&socket, lock)?;
        let signs = Signs { socket, data: data.clone(), _lock: lock.clone() };
        let http = match http {
            Some(options) => Some(HttpDoor::open(options, tokens, limits).await?),
            None => None,
        };
        let address = match &http {
            Some(door) => Some(door.address().map_err(data_dir::io_error("look at", &data.port_file()))?),
            None => None,
        };
        match address {
            Some(address) => {
                data_dir::replace(&data.port_file(), format!("{}\n", address.port()).as_bytes())?;
            }
            None => data_dir::remove(&data.port_file())?,
        }
        Ok(Self { unix, http, address, limits, signs })
    }

    /// The address of the HTTP door, with the port that was chosen.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// The Unix socket.
    pub fn socket(&self) -> &Path {
        &self.signs.socket
    }

    /// Lets clients in until `stop` is true or its sender is gone. Then nobody comes in any more, connections end when
    /// what is ready for them has been written, and after [`Limits::grace`] in any case.
    pub async fn serve(self, hub: Arc<Hub>, mut stop: watch::Receiver<bool>) {
        let Self { unix, http, limits, signs, .. } = self;
        let guests = Guests::new(&limits);
        let http = async {
            match http {
                Some(door) => door.serve(Arc::clone(&hub), &guests).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = unix.serve(&hub, &guests, limits.grace) => {}
            () = http => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
        drop(unix);
        drop(signs);
        guests.close(limits.grace).await;
    }
}

impl Port {
    /// Opens the port. What waits at it is let in by [`serve`](Self::serve).
    pub async fn open(options: &HttpOptions, tokens: Tokens, limits: Limits) -> Result<Self, DoorError> {
        let door = HttpDoor::open(options, tokens, limits).await?;
        let address = door.address().map_err(|error| DoorError::Listen { listen: options.listen, error })?;
        Ok(Self { door, address, limits })
    }

    /// The address, with the port that was chosen.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Lets clients in until `stop` is true or its sender is gone, and lets them go as [`Doors::serve`] does.
    pub async fn serve(self, hub: Arc<Hub>, mut stop: watch::Receiver<bool>) {
        let guests = Guests::new(&self.limits);
        tokio::select! {
            () = self.door.serve(hub, &guests) => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
        guests.close(self.limits.grace).await;
    }
}

/// Waits a little when nobody can be let in, which happens when there are too many open files.
async fn pause_after(door: &str, error: &io::Error) {
    tracing::warn!(%error, "cannot accept a connection at {door}");
    tokio::time::sleep(Duration::from_millis(100)).await;
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1024,
            unauthenticated_connections: 64,
            local_connections: 1024,
            message_bytes: DEFAULT_LINE_LIMIT,
            ping_every: Duration::from_secs(30),
            silence: Duration::from_secs(60),
            header_time: Duration::from_secs(10),
            grace: Duration::from_secs(5),
        }
    }
}

impl Drop for Signs {
    fn drop(&mut self) {
        for path in [self.socket.clone(), self.data.port_file(), self.data.path().join("socket")] {
            if let Err(error) = data_dir::remove(&path) {
                tracing::warn!(%error, "a file of a closed door stays");
            }
        }
        // A socket that had to go elsewhere may have got a directory of its own.
        if let Some(directory) = self.socket.parent().filter(|parent| data_dir::is_for_a_socket(parent)) {
            let _ = std::fs::remove_dir(directory);
        }
    }
}

impl From<DataDirError> for DoorError {
    fn from(error: DataDirError) -> Self {
        Self::Data(error)
    }
}

impl fmt::Display for DoorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Remote(listen) => write!(
                f,
                "{listen} can be reached from other machines: if that is meant, add --allow-remote \
                 (or allow_remote = true under [server] in config.toml)"
            ),
            Self::Listen { listen, error } => write!(f, "cannot listen on {listen}: {error}"),
            Self::Socket { path, error } => write!(f, "cannot make the socket {}: {error}", path.display()),
            Self::Data(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for DoorError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Listen { error, .. } | Self::Socket { error, .. } => Some(error),
            Self::Data(error) => error.source(),
            Self::Remote(_) => None,
        }
    }
}
