//! The standard streams of this process, for the one client that started it.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;

use super::line_connection::{Bounds, LineConnection, LineInput};
use crate::hub::{ConnectOptions, Hub};

/// Serves the client at the standard streams until it sends no more and has all responses. Fails if a stream does.
///
/// Reading standard input cannot always be interrupted, so `main` has to end the process afterwards without waiting for its
/// runtime.
pub async fn stdio(hub: &Arc<Hub>, options: ConnectOptions) -> io::Result<()> {
    streams(hub, options, standard_input(), standard_output()).await
}

/// Standard input. A pipe or a socket, as editors make them, is read without a thread that waits for it and would have to
/// be woken for each read.
pub fn standard_input() -> Box<dyn AsyncRead + Send + Unpin> {
    match kind(io::stdin().as_fd()) {
        Ok(Kind::Pipe(pipe)) => {
            pipe::Receiver::from_owned_fd(pipe).map_or_else(|_| stdin(), |pipe| Box::new(pipe))
        }
        Ok(Kind::Socket(socket)) => socket_of(socket).map_or_else(|_| stdin(), |socket| Box::new(socket)),
        Ok(Kind::Other) | Err(_) => stdin(),
    }
}

/// Standard output; see [`standard_input`].
pub fn standard_output() -> Box<dyn AsyncWrite + Send + Unpin> {
    match kind(io::stdout().as_fd()) {
        Ok(Kind::Pipe(pipe)) => {
            pipe::Sender::from_owned_fd(pipe).map_or_else(|_| stdout(), |pipe| Box::new(pipe))
        }
        Ok(Kind::Socket(socket)) => socket_of(socket).map_or_else(|_| stdout(), |socket| Box::new(socket)),
        Ok(Kind::Other) | Err(_) => stdout(),
    }
}

/// The type of a standard stream.
enum Kind {
    Pipe(OwnedFd),
    Socket(OwnedFd),
    Other,
}

fn kind(stream: BorrowedFd<'_>) -> io::Result<Kind> {
    let file = File::from(stream.try_clone_to_owned()?);
    let kind = file.metadata()?.file_type();
    Ok(match () {
        () if kind.is_fifo() => Kind::Pipe(file.into()),
        () if kind.is_socket() => Kind::Socket(file.into()),
        () => Kind::Other,
    })
}

fn socket_of(socket: OwnedFd) -> io::Result<UnixStream> {
    let socket = std::os::unix::net::UnixStream::from(socket);
    // One of another family is left to the fallback: editors do not make them.
    socket.local_addr()?;
    socket.set_nonblocking(true)?;
    UnixStream::from_std(socket)
}

fn stdin() -> Box<dyn AsyncRead + Send + Unpin> {
    Box::new(tokio::io::stdin())
}

fn stdout() -> Box<dyn AsyncWrite + Send + Unpin> {
    Box::new(tokio::io::stdout())
}

/// Serves one client over any two streams. Fails if one of them does.
pub async fn streams<R, W>(hub: &Arc<Hub>, options: ConnectOptions, read: R, write: W) -> io::Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    LineConnection::new(hub, options).run(LineInput::new(read), write, Bounds::default()).await
}
