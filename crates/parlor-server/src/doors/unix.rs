//! The door for programs of the same user: a Unix socket.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parlor_wire::InputLine;
use tokio::net::{UnixListener, UnixStream};

use super::guests::{Guest, Guests};
use super::hello::{Hello, Welcome, to_peer};
use super::lines::{Bounds, Conversation, Incoming};
use super::unix_socket::UnixSocket;
use super::{DoorError, pause_after};
use crate::data_dir::Lock;
use crate::hub::{Door, Hub, Peer, Role};
use crate::send_queue::SocketHalf;

/// A socket that is listened to.
#[derive(Debug)]
pub(super) struct UnixDoor(UnixListener);

impl UnixDoor {
    /// Makes the socket, in a directory that is closed to others. What a server that is dead left there is replaced:
    /// with the lock in our hands, no living one can have made it.
    pub(super) fn open(path: &Path, _lock: &Lock) -> Result<Self, DoorError> {
        Self::listen(path).map_err(|error| DoorError::Socket { path: path.to_owned(), error })
    }

    fn listen(path: &Path) -> io::Result<Self> {
        match fs::symlink_metadata(path) {
            Ok(found) if found.file_type().is_socket() => fs::remove_file(path)?,
            Ok(_) => return Err(io::Error::new(io::ErrorKind::AlreadyExists, "it is there, and no socket")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, Permissions::from_mode(0o600))?;
        Ok(Self(listener))
    }

    /// Lets clients in for as long as it is polled.
    pub(super) async fn serve(&self, hub: &Arc<Hub>, guests: &Guests, patience: Duration) {
        loop {
            match self.0.accept().await {
                Ok((stream, _)) => match guests.local() {
                    Some(guest) => {
                        let hub = Arc::clone(hub);
                        tokio::spawn(async move {
                            if let Err(error) = receive(stream, &hub, guest, patience).await {
                                tracing::debug!(%error, "a client left before it had said hello");
                            }
                        });
                    }
                    None => {
                        // It fits into the socket's buffer, and a client that does not get it sees the end.
                        let full = Welcome::refused("the server has too many connections");
                        let _ = stream.try_write(full.to_line().as_bytes());
                    }
                },
                Err(error) => pause_after("the Unix socket", &error).await,
            }
        }
    }
}

async fn receive(stream: UnixStream, hub: &Arc<Hub>, guest: Guest, patience: Duration) -> io::Result<()> {
    let socket = UnixSocket::new(stream)?;
    let mut incoming = Incoming::new(socket.clone());
    let first = tokio::select! {
        first = first_words(&mut incoming, hub) => first?,
        () = guest.closing() => return Ok(()),
    };
    let conversation = match first {
        First::Nothing => return Ok(()),
        First::Message(conversation) => *conversation,
        First::Hello(Ok(peer)) => {
            let welcome = Welcome::come_in(env!("CARGO_PKG_VERSION"), std::process::id());
            socket.write_all(welcome.to_line().as_bytes()).await?;
            Conversation::begin(hub, *peer)
        }
        First::Hello(Err(why)) => return socket.write_all(Welcome::refused(why).to_line().as_bytes()).await,
    };
    let bounds = Bounds { guest: Some(guest), patience: Some(patience) };
    conversation.go_on_at(incoming, SocketHalf::Unix(socket), bounds).await;
    Ok(())
}

enum First {
    Nothing,
    Hello(Result<Box<Peer>, String>),
    Message(Box<Conversation>),
}

async fn first_words(incoming: &mut Incoming<UnixSocket>, hub: &Arc<Hub>) -> io::Result<First> {
    loop {
        if let Some(frame) = incoming.lines.next_line() {
            let hello = match &frame {
                InputLine::Blank => continue,
                InputLine::Line(line) => Hello::read(line),
                InputLine::TooLong { .. } | InputLine::NotUtf8 { .. } => None,
            };
            if let Some(hello) = hello {
                return Ok(First::Hello(hello.and_then(to_peer).map(Box::new)));
            }
            let mut conversation = Conversation::begin(hub, nobody_in_particular());
            conversation.said(frame).await;
            return Ok(First::Message(Box::new(conversation)));
        }
        if !incoming.fill().await? {
            return Ok(First::Nothing);
        }
    }
}

fn nobody_in_particular() -> Peer {
    Peer {
        door: Door::Unix,
        role: Role::Driver,
        agent: None,
        dialect: None,
        env: Vec::new(),
        cwd: None::<PathBuf>,
    }
}
