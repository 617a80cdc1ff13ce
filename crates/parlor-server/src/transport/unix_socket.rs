//! A Unix socket that is watched for room to write only while it is full.
//!
//! Whenever the peer of a Unix socket reads, the system reports the socket as writable, although it was so all the time. To
//! tokio's own type each report means that a thread wakes up.

use std::io::{self, IoSlice, Read, Write};
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, Interest, ReadBuf};

/// The delay before a retry where readiness cannot be watched.
const RETRY: Duration = Duration::from_millis(10);

/// One end of a connection. Clones are the same end; it is closed with the last of them.
#[derive(Debug, Clone)]
pub(crate) struct UnixSocket(Arc<AsyncFd<UnixStream>>);

impl UnixSocket {
    pub(crate) fn new(stream: tokio::net::UnixStream) -> io::Result<Self> {
        Ok(Self(Arc::new(watch(stream.into_std()?, Interest::READABLE)?)))
    }

    /// Writes as much as there is room for, without waiting.
    pub(crate) fn try_write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.get_ref().write_vectored(slices)
    }

    /// Waits until there is room, or for a while if that cannot be known.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        // The same descriptor cannot be watched twice.
        match self.0.get_ref().try_clone() {
            Ok(stream) => watch(stream, Interest::WRITABLE)?.writable().await?.retain_ready(),
            // Too many files are open, which must not end this connection.
            Err(_) => tokio::time::sleep(RETRY).await,
        }
        Ok(())
    }

    /// Writes all of it.
    pub(crate) async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.0.get_ref().write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable().await?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl AsyncRead for UnixSocket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut guard = ready!(self.0.poll_read_ready(context))?;
            let unfilled = buffer.initialize_unfilled();
            // An error of the guard's means that it was not readable after all.
            if let Ok(read) = guard.try_io(|stream| stream.get_ref().read(unfilled)) {
                buffer.advance(read?);
                return Poll::Ready(Ok(()));
            }
        }
    }
}

#[expect(
    deprecated,
    reason = "it is sound for a type that owns its descriptor, and its replacement is unsafe"
)]
fn watch(stream: UnixStream, interest: Interest) -> io::Result<AsyncFd<UnixStream>> {
    AsyncFd::with_interest(stream, interest)
}
