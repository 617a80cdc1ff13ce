//! Listens for clients on a Unix socket and an HTTP port.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parlor_wire::DEFAULT_LINE_LIMIT;
use tokio::sync::watch;

use super::connection_limit::ConnectionLimit;
use super::http::{HttpListener, HttpOptions, Page};
use super::unix::UnixSocketListener;
use crate::data_dir::{self, DataDir, DataDirError, Lock, Tokens};
use crate::hub::Hub;

/// The listeners of a server. Connections are accepted by [`serve`](Listeners::serve).
#[derive(Debug)]
pub struct Listeners {
    unix: UnixSocketListener,
    http: Option<HttpListener>,
    address: Option<SocketAddr>,
    limits: Limits,
    files: RuntimeFiles,
}

/// An HTTP port by itself, for a server without a data directory.
#[derive(Debug)]
pub struct Port {
    listener: HttpListener,
    address: SocketAddr,
    limits: Limits,
}

/// Limits and timeouts of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// How many connections over HTTP may have shown a token.
    pub connections: u32,
    /// How many connections over HTTP may not have shown a token yet.
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
    /// How long a connection may last after the server was stopped, or after the client has sent its last request.
    pub grace: Duration,
}

/// Why the server cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Other machines can reach the address, which the configuration does not allow.
    #[error(
        "{0} can be reached from other machines: if that is intended, add --allow-remote \
         (or allow_remote = true under [server] in config.toml)"
    )]
    Remote(SocketAddr),
    /// Listening on the address failed.
    #[error("cannot listen on {listen}: {error}")]
    Listen {
        /// The address.
        listen: SocketAddr,
        /// The error of the system.
        #[source]
        error: io::Error,
    },
    /// Creating the Unix socket failed.
    #[error("cannot create the socket {}: {error}", path.display())]
    Socket {
        /// The path of the socket.
        path: PathBuf,
        /// The error of the system.
        #[source]
        error: io::Error,
    },
    /// The data directory cannot be used.
    #[error(transparent)]
    Data(#[from] DataDirError),
}

/// The files by which clients find the listeners. They are removed with the listeners, while the directory is still locked.
#[derive(Debug)]
struct RuntimeFiles {
    socket: PathBuf,
    data: DataDir,
    _lock: Lock,
}

impl Listeners {
    /// Opens the Unix socket and, if asked for, the HTTP port, and writes their addresses to the data directory.
    pub async fn open(
        data: &DataDir,
        lock: &Lock,
        tokens: Tokens,
        http: Option<&HttpOptions>,
        limits: Limits,
    ) -> Result<Self, ListenError> {
        // The socket comes last: a client that finds it may use it and read the port, so the port must be open and written by then.
        let http = match http {
            Some(options) => Some(HttpListener::open(options, tokens, limits).await?),
            None => None,
        };
        let address = match &http {
            Some(listener) => {
                Some(listener.address().map_err(data_dir::io_error("inspect", &data.port_file()))?)
            }
            None => None,
        };
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let socket = data.place_socket(lock, runtime, &std::env::temp_dir())?;
        match address {
            Some(address) => {
                data_dir::replace(&data.port_file(), format!("{}\n", address.port()).as_bytes())?;
            }
            None => data_dir::remove(&data.port_file())?,
        }
        let unix = UnixSocketListener::open(&socket, lock).inspect_err(|_| {
            let _ = data_dir::remove(&data.port_file());
        })?;
        let files = RuntimeFiles { socket, data: data.clone(), _lock: lock.clone() };
        Ok(Self { unix, http, address, limits, files })
    }

    /// The address of the HTTP listener, with the port that was chosen.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Serves a page over HTTP.
    pub fn set_page(&mut self, page: Page) {
        if let Some(http) = &mut self.http {
            http.set_page(page);
        }
    }

    /// The Unix socket.
    pub fn socket(&self) -> &Path {
        &self.files.socket
    }

    /// Accepts connections until `stop` is true or its sender is dropped. Then connections end when their queued frames have
    /// been written, and after [`Limits::grace`] in any case.
    pub async fn serve(self, hub: Arc<Hub>, mut stop: watch::Receiver<bool>) {
        let Self { unix, http, limits, files, .. } = self;
        let limit = ConnectionLimit::new(&limits);
        let http = async {
            match http {
                Some(listener) => listener.serve(Arc::clone(&hub), &limit).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = unix.serve(&hub, &limit, limits.grace) => {}
            () = http => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
        drop(unix);
        drop(files);
        limit.close(limits.grace).await;
    }
}

impl Port {
    /// Opens the port. Connections are accepted by [`serve`](Self::serve).
    pub async fn open(options: &HttpOptions, tokens: Tokens, limits: Limits) -> Result<Self, ListenError> {
        let listener = HttpListener::open(options, tokens, limits).await?;
        let address =
            listener.address().map_err(|error| ListenError::Listen { listen: options.listen, error })?;
        Ok(Self { listener, address, limits })
    }

    /// The address, with the port that was chosen.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts connections until `stop` is true or its sender is dropped, and ends them as [`Listeners::serve`] does.
    pub async fn serve(self, hub: Arc<Hub>, mut stop: watch::Receiver<bool>) {
        let limit = ConnectionLimit::new(&self.limits);
        tokio::select! {
            () = self.listener.serve(hub, &limit) => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
        limit.close(self.limits.grace).await;
    }
}

/// Waits a little when accepting failed, which happens when too many files are open.
pub(super) async fn pause_after(listener: &str, error: &io::Error) {
    tracing::warn!(%error, "cannot accept a connection at {listener}");
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

impl Drop for RuntimeFiles {
    fn drop(&mut self) {
        for path in [self.socket.clone(), self.data.port_file(), self.data.path().join("socket")] {
            if let Err(error) = data_dir::remove(&path) {
                tracing::warn!(%error, "failed to remove a runtime file");
            }
        }
        // A socket outside the data directory may have a directory of its own.
        if let Some(directory) = self.socket.parent().filter(|parent| data_dir::is_socket_dir(parent)) {
            let _ = std::fs::remove_dir(directory);
        }
    }
}
