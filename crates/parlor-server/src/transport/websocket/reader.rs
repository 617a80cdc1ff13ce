//! Messages of a client, and the answers that the protocol has for some of them.

use std::io::{self, Read, Write};

use bytes::{Buf, Bytes, BytesMut};
use tokio::net::tcp::OwnedReadHalf;
use tokio::task::coop;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message, WebSocket};

use crate::send_queue::RawSender;

/// How many bytes are read at once.
const READ: usize = 16 << 10;

/// How many of these bytes the library is given at once: it zeroes its buffer for each read.
const LIBRARY_READ: usize = 4 << 10;

/// Reads messages. Pings and a close are answered through the send queue.
#[derive(Debug)]
pub(super) struct MessageReader(WebSocket<Channel>);

/// The stream that the library reads from and writes to without blocking.
#[derive(Debug)]
struct Channel {
    read: OwnedReadHalf,
    /// Bytes that were read and that the library has not consumed.
    received: BytesMut,
    sender: RawSender,
}

impl MessageReader {
    /// Reads messages of at most `limit` bytes, the first of which may have been received in part.
    pub(super) fn new(read: OwnedReadHalf, received: &Bytes, sender: RawSender, limit: usize) -> Self {
        let config = WebSocketConfig::default()
            .read_buffer_size(LIBRARY_READ)
            .max_message_size(Some(limit))
            .max_frame_size(Some(limit));
        let channel = Channel { read, received: BytesMut::from(&received[..]), sender };
        Self(WebSocket::from_raw_socket(channel, Role::Server, Some(config)))
    }

    /// Waits for a message.
    pub(super) async fn next(&mut self) -> Result<Message, Error> {
        loop {
            coop::consume_budget().await;
            match self.0.read() {
                Err(Error::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.0.get_ref().read.readable().await?;
                }
                read => return read,
            }
        }
    }

    /// Says goodbye, or answers that of the client. Either is sent through the queue.
    pub(super) fn close(&mut self, frame: Option<CloseFrame>) {
        // An error is that the connection is closed already.
        let _ = self.0.close(frame);
    }
}

impl Read for Channel {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.received.is_empty() {
            self.received.reserve(READ);
            self.read.try_read_buf(&mut self.received)?;
        }
        let length = buffer.len().min(self.received.len());
        self.received.copy_to_slice(&mut buffer[..length]);
        Ok(length)
    }
}

impl Write for Channel {
    fn write(&mut self, frames: &[u8]) -> io::Result<usize> {
        self.sender.send(Bytes::copy_from_slice(frames));
        Ok(frames.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
