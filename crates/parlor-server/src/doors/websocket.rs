//! A client that speaks in WebSocket frames, one message each.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, close_code};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use parlor_engine::Frame;
use parlor_wire::{InputLine, write};
use tokio::time::{Instant, interval_at, timeout};

use super::Limits;
use super::guests::Guest;
use crate::hub::{Connection, Hub, Peer};
use crate::send_queue::SendQueueReader;

/// How long saying goodbye may take.
const GOODBYE: Duration = Duration::from_secs(1);

/// Serves one client until it has gone, or the hub or the server ends it.
pub(super) async fn converse(
    socket: WebSocket,
    hub: Arc<Hub>,
    peer: Peer,
    guest: Arc<Guest>,
    limits: Limits,
) {
    let (mut connection, mut queue) = hub.connect(peer);
    let (mut sink, mut stream) = socket.split();
    let goodbye = tokio::select! {
        goodbye = listen(&mut stream, &mut connection, limits.silence) => goodbye,
        goodbye = tell(&mut sink, &mut queue, &guest, limits.ping_every) => goodbye,
        () = guest.cut() => None,
    };
    drop(connection);
    let ending = async {
        if let Some((code, reason)) = goodbye {
            let _ = sink.send(Message::Close(Some(CloseFrame { code, reason: reason.into() }))).await;
        }
        // The answer to the peer's own goodbye, if that came first, is sent by this.
        let _ = sink.close().await;
        while let Some(Ok(_)) = stream.next().await {}
    };
    let _ = timeout(GOODBYE, ending).await;
}

/// The code and the reason to close with; none if the peer is gone already.
type Goodbye = Option<(u16, &'static str)>;

/// Hears the client. The time counts only while we listen, because a peer is not to blame for what we make it wait.
async fn listen(
    stream: &mut SplitStream<WebSocket>,
    connection: &mut Connection,
    silence: Duration,
) -> Goodbye {
    loop {
        let Ok(heard) = timeout(silence, stream.next()).await else {
            tracing::debug!("a client answers no pings and counts as gone");
            return None;
        };
        match heard {
            Some(Ok(Message::Text(text))) => say(connection, &text).await,
            Some(Ok(Message::Binary(bytes))) => match std::str::from_utf8(&bytes) {
                Ok(text) => say(connection, text).await,
                Err(_) => return Some((close_code::UNSUPPORTED, "messages are text")),
            },
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
            Some(Ok(Message::Close(_))) | None => return None,
            Some(Err(error)) => return Some(blame(&error)),
        }
    }
}

async fn say(connection: &mut Connection, text: &str) {
    let line = write::one_line(text);
    let is_blank = line.bytes().all(|byte| matches!(byte, b' ' | b'\t'));
    connection.said(if is_blank { InputLine::Blank } else { InputLine::Line(&line) }).await;
}

/// Sends the client what waits for it, all that is ready with one flush.
async fn tell(
    sink: &mut SplitSink<WebSocket, Message>,
    queue: &mut SendQueueReader,
    guest: &Guest,
    ping_every: Duration,
) -> Goodbye {
    let mut ping = interval_at(Instant::now() + ping_every, ping_every);
    let mut closing = std::pin::pin!(guest.closing());
    loop {
        let sent = tokio::select! {
            biased;
            _ = ping.tick() => sink.send(Message::Ping(Bytes::new())).await,
            ready = queue.next() => match ready {
                Some(ready) => tell_all(sink, &ready).await,
                None => return Some((close_code::NORMAL, "")),
            },
            () = &mut closing => return Some((close_code::AWAY, "the server stops")),
        };
        if sent.is_err() {
            return None;
        }
    }
}

async fn tell_all(sink: &mut SplitSink<WebSocket, Message>, ready: &[Frame]) -> Result<(), axum::Error> {
    for line in ready.iter().flat_map(Frame::lines) {
        // The bytes are shared with all other clients that are sent the same.
        let Ok(text) = Utf8Bytes::try_from(line) else { continue };
        sink.feed(Message::Text(text)).await?;
    }
    sink.flush().await
}

/// What a client did wrong, by the words of the library: its types are not to be had through axum.
fn blame(error: &axum::Error) -> (u16, &'static str) {
    tracing::debug!(%error, "a client is cut off");
    let words = error.to_string().to_ascii_lowercase();
    if words.contains("too long") {
        (close_code::SIZE, "the message is too long")
    } else if words.contains("utf-8") {
        (close_code::INVALID, "the message is not text")
    } else {
        (close_code::PROTOCOL, "")
    }
}
