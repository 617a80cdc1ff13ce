//! The Unix socket, for programs of the same user.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parlor_wire::InputLine;
use tokio::net::{UnixListener, UnixStream};

use super::connection_limit::{ConnectionGuard, ConnectionLimit};
use super::hello::{Hello, Welcome, to_options};
use super::line_connection::{Bounds, LineConnection, LineInput};
use super::listen::{ListenError, pause_after};
use super::unix_socket::UnixSocket;
use crate::data_dir::Lock;
use crate::hub::{ClientRole, ConnectOptions, Hub, TransportKind};
use crate::send_queue::SocketHalf;

/// Accepts connections at a Unix socket.
#[derive(Debug)]
pub(super) struct UnixSocketListener(UnixListener);

impl UnixSocketListener {
    /// Creates the socket, in a directory that only this user can enter. A socket that is there already is replaced: whoever
    /// has the lock knows that no other server listens at it.
    pub(super) fn open(path: &Path, _lock: &Lock) -> Result<Self, ListenError> {
        Self::listen(path).map_err(|error| ListenError::Socket { path: path.to_owned(), error })
    }

    fn listen(path: &Path) -> io::Result<Self> {
        match fs::symlink_metadata(path) {
            Ok(found) if found.file_type().is_socket() => fs::remove_file(path)?,
            Ok(_) => {
                let message = "a file that is not a socket exists there: remove it";
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, Permissions::from_mode(0o600))?;
        Ok(Self(listener))
    }

    /// Accepts connections for as long as it is polled.
    pub(super) async fn serve(&self, hub: &Arc<Hub>, limit: &ConnectionLimit, drain_timeout: Duration) {
        loop {
            match self.0.accept().await {
                Ok((stream, _)) => match limit.try_acquire_local() {
                    Some(guard) => {
                        let hub = Arc::clone(hub);
                        tokio::spawn(async move {
                            if let Err(error) = serve_connection(stream, &hub, guard, drain_timeout).await {
                                tracing::debug!(%error, "a connection failed before its first message");
                            }
                        });
                    }
                    None => {
                        // It fits into the socket's buffer; a client that does not get it sees that the connection is closed.
                        let full = Welcome::reject("the server has too many connections");
                        let _ = stream.try_write(full.to_line().as_bytes());
                    }
                },
                Err(error) => pause_after("the Unix socket", &error).await,
            }
        }
    }
}

async fn serve_connection(
    stream: UnixStream,
    hub: &Arc<Hub>,
    guard: ConnectionGuard,
    drain_timeout: Duration,
) -> io::Result<()> {
    let socket = UnixSocket::new(stream)?;
    let mut input = LineInput::new(socket.clone());
    let first_line = tokio::select! {
        line = read_first_line(&mut input, hub) => line?,
        () = guard.closing() => return Ok(()),
    };
    let connection = match first_line {
        FirstLine::Nothing => return Ok(()),
        FirstLine::Message(connection) => *connection,
        FirstLine::Hello(Ok(options)) => {
            let welcome = Welcome::accept(env!("CARGO_PKG_VERSION"), std::process::id());
            socket.write_all(welcome.to_line().as_bytes()).await?;
            LineConnection::new(hub, *options)
        }
        FirstLine::Hello(Err(why)) => {
            return socket.write_all(Welcome::reject(why).to_line().as_bytes()).await;
        }
    };
    let bounds = Bounds { guard: Some(guard), drain_timeout: Some(drain_timeout) };
    connection.run_on_socket(input, SocketHalf::Unix(socket), bounds).await;
    Ok(())
}

/// The first line of a client.
enum FirstLine {
    Nothing,
    Hello(Result<Box<ConnectOptions>, String>),
    Message(Box<LineConnection>),
}

/// Waits for the first line, which is a hello or already a message.
async fn read_first_line(input: &mut LineInput<UnixSocket>, hub: &Arc<Hub>) -> io::Result<FirstLine> {
    loop {
        if let Some(line) = input.lines.next_line() {
            let hello = match &line {
                InputLine::Blank => continue,
                InputLine::Line(text) => Hello::read(text),
                InputLine::TooLong { .. } | InputLine::NotUtf8 { .. } => None,
            };
            if let Some(hello) = hello {
                return Ok(FirstLine::Hello(hello.and_then(to_options).map(Box::new)));
            }
            let mut connection = LineConnection::new(hub, default_options());
            connection.handle_line(line).await;
            return Ok(FirstLine::Message(Box::new(connection)));
        }
        if !input.fill().await? {
            return Ok(FirstLine::Nothing);
        }
    }
}

/// A client that sent no hello.
fn default_options() -> ConnectOptions {
    ConnectOptions::new(TransportKind::Unix, ClientRole::Driver)
}
