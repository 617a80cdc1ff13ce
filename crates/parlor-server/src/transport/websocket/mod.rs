//! A client that sends and receives WebSocket messages.

mod encode;
mod handshake;
mod reader;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parlor_wire::{InputLine, write};
use tokio::time::{Instant, interval_at, timeout};
use tokio_tungstenite::tungstenite::error::CapacityError;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message};
use tracing::Instrument as _;

use self::encode::PING;
pub(super) use self::handshake::{Handshake, UpgradedStream};
use self::reader::MessageReader;
use super::Limits;
use super::connection_limit::ConnectionGuard;
use crate::hub::{ConnectOptions, Connection, Hub};
use crate::send_queue::{RawSender, SendQueueReader, SocketHalf, SocketWriter};

/// How long closing a connection may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Why the server closes a connection; `None` if the client closes it or is gone.
type Close = Option<(CloseCode, &'static str)>;

/// Serves a client until it is gone, or the hub or the server closes the connection.
pub(super) async fn serve(
    upgraded: UpgradedStream,
    hub: Arc<Hub>,
    options: ConnectOptions,
    guard: Arc<ConnectionGuard>,
    limits: Limits,
) {
    let (connection, queue) = hub.connect(options);
    let span = connection.span().clone();
    serve_connection(upgraded, connection, queue, guard, limits).instrument(span).await;
}

async fn serve_connection(
    upgraded: UpgradedStream,
    mut connection: Connection,
    queue: SendQueueReader,
    guard: Arc<ConnectionGuard>,
    limits: Limits,
) {
    let (read, write) = upgraded.stream.into_split();
    let mut writer = queue.write_to(SocketHalf::Tcp(write), Box::new(encode::encode));
    let sender = writer.raw_sender();
    let mut reader = MessageReader::new(read, &upgraded.received, sender.clone(), limits.message_bytes);
    let close = tokio::select! {
        close = receive(&mut reader, &mut connection, limits.silence) => close,
        close = send(&mut writer, &guard) => close,
        () = ping(&sender, limits.ping_every) => None,
        () = guard.aborted() => None,
    };
    drop(connection);
    // Nothing may follow the close frame.
    writer.discard_frames();
    reader.close(close.map(|(code, reason)| CloseFrame { code, reason: reason.into() }));
    let ending = async {
        if writer.drain().await.is_ok() {
            while reader.next().await.is_ok() {}
        }
    };
    let _ = timeout(CLOSE_TIMEOUT, ending).await;
}

/// Handles the client's messages. Its silence counts only while we wait for it, not while we handle a message.
async fn receive(reader: &mut MessageReader, connection: &mut Connection, silence: Duration) -> Close {
    loop {
        let Ok(received) = timeout(silence, reader.next()).await else {
            tracing::debug!("a client did not answer pings");
            return None;
        };
        match received {
            Ok(Message::Text(text)) => handle(connection, &text).await,
            Ok(Message::Binary(bytes)) => match std::str::from_utf8(&bytes) {
                Ok(text) => handle(connection, text).await,
                Err(_) => return Some((CloseCode::Unsupported, "messages are text")),
            },
            Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_)) => {}
            Ok(Message::Close(_)) => return None,
            Err(error) => return close_after(&error),
        }
    }
}

async fn handle(connection: &mut Connection, text: &str) {
    let line = write::one_line(text);
    let is_blank = line.bytes().all(|byte| matches!(byte, b' ' | b'\t'));
    connection.on_line(if is_blank { InputLine::Blank } else { InputLine::Line(&line) }).await;
}

/// Writes queued frames until the hub closes the queue, or until the queue is empty when the server stops.
async fn send(writer: &mut SocketWriter, guard: &ConnectionGuard) -> Close {
    let ended = tokio::select! {
        biased;
        ended = writer.run() => ended.map(|()| (CloseCode::Normal, "")),
        () = guard.closing() => writer.drain().await.map(|()| (CloseCode::Away, "the server is stopping")),
    };
    ended.ok()
}

async fn ping(sender: &RawSender, every: Duration) {
    let mut interval = interval_at(Instant::now() + every, every);
    loop {
        interval.tick().await;
        sender.send(Bytes::from_static(PING));
    }
}

/// How a connection is closed after an error.
fn close_after(error: &Error) -> Close {
    tracing::debug!(%error, "a WebSocket connection ended");
    if matches!(error, Error::Capacity(CapacityError::MessageTooLong { .. })) {
        Some((CloseCode::Size, "the message is too long"))
    } else if matches!(error, Error::Utf8(_)) {
        Some((CloseCode::Invalid, "the message is not text"))
    } else if matches!(error, Error::Protocol(_)) {
        Some((CloseCode::Protocol, ""))
    } else {
        None
    }
}
