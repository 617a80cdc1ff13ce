//! The WebSocket of a page: one per tab, opened with a ticket.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequest, Query, Request};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use futures_util::{SinkExt, StreamExt};
use serde::Deserialize;
use tokio::net::TcpStream;
use tokio::time::{Instant, Interval, interval_at, sleep_until, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};

use super::access::Refusal;
use super::connection_limit::ConnectionGuard;
use super::http::{AppState, ConnInfo};
use super::sign_in;
use super::websocket::Handshake;
use crate::browsers::SignedIn;
use crate::hub::Hub;

/// The most bytes of a message of a tab: a prompt with its attachments.
const MAX_MESSAGE: usize = 24 << 20;

/// How long a tab may take to read a message.
const SEND_TIMEOUT: Duration = Duration::from_secs(20);

/// How long closing a connection may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// How often the server sends a tab a sign of life, also for scripts, which do not see pings.
const BEAT_EVERY: Duration = Duration::from_secs(15);

/// A message without an effect.
const BEAT: &str = "{}";

const NO_TICKET: Refusal =
    (StatusCode::FORBIDDEN, "A WebSocket of the page needs a ticket that was not used before.\n");

const OTHER_PAGE: Refusal = (StatusCode::FORBIDDEN, "Only the server's own page may open this WebSocket.\n");

/// The server's state, for extractors of the page's routes.
#[derive(Clone)]
pub(super) struct PageAccess(pub(super) Arc<AppState>);

/// A request for a WebSocket that has a ticket of the browser which sends it.
#[derive(Debug)]
pub struct PageUpgrade {
    handshake: Handshake,
    connection: TabConnection,
}

/// The WebSocket of a tab. It is closed when the server stops or the browser is signed out.
#[derive(Debug)]
pub struct PageSocket {
    stream: WebSocketStream<TcpStream>,
    connection: TabConnection,
    beat: Interval,
    last_received: Instant,
}

struct TabConnection {
    browser: SignedIn,
    hub: Arc<Hub>,
    guard: Arc<ConnectionGuard>,
    silence: Duration,
}

/// The tab is gone or does not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the tab is gone")]
pub struct TabGone;

#[derive(Deserialize)]
struct TicketQuery {
    ticket: String,
}

impl std::fmt::Debug for TabConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TabConnection").field("browser", &self.browser).finish_non_exhaustive()
    }
}

impl<S: Sync> FromRequest<S> for PageUpgrade {
    type Rejection = Response;

    async fn from_request(mut request: Request, _: &S) -> Result<Self, Response> {
        let extensions = request.extensions();
        let (Some(PageAccess(state)), Some(info), Some(browser)) = (
            extensions.get::<PageAccess>().cloned(),
            extensions.get::<ConnInfo>().cloned(),
            extensions.get::<SignedIn>().cloned(),
        ) else {
            return Err(StatusCode::INTERNAL_SERVER_ERROR.into_response());
        };
        if !sign_in::is_same_origin(request.headers()) {
            return Err(OTHER_PAGE.into_response());
        }
        let ticket = Query::<TicketQuery>::try_from_uri(request.uri()).ok();
        let holder = ticket.and_then(|query| state.hub.browsers().redeem(&query.ticket, sign_in::now()));
        if holder.is_none_or(|holder| holder.id != browser.id) {
            return Err(NO_TICKET.into_response());
        }
        let handshake = Handshake::accept(&mut request).map_err(IntoResponse::into_response)?;
        let (hub, silence) = (Arc::clone(&state.hub), state.limits.silence);
        let connection = TabConnection { browser, hub, guard: info.guard, silence };
        Ok(Self { handshake, connection })
    }
}

impl PageUpgrade {
    /// Responds, and then runs `serve` with the WebSocket.
    pub fn open<F>(self, serve: impl FnOnce(PageSocket) -> F + Send + 'static) -> Response
    where
        F: Future<Output = ()> + Send,
    {
        let Self { handshake, connection } = self;
        let response = handshake.response();
        tokio::spawn(async move {
            let Some(upgraded) = handshake.upgraded().await else { return };
            let config = WebSocketConfig::default()
                .max_message_size(Some(MAX_MESSAGE))
                .max_frame_size(Some(MAX_MESSAGE));
            let (stream, received) = upgraded.into_parts();
            let stream =
                WebSocketStream::from_partially_read(stream, received, Role::Server, Some(config)).await;
            let now = Instant::now();
            let beat = interval_at(now + BEAT_EVERY, BEAT_EVERY);
            serve(PageSocket { stream, connection, beat, last_received: now }).await;
        });
        response
    }
}

impl PageSocket {
    /// The browser of the tab.
    pub fn browser(&self) -> &SignedIn {
        &self.connection.browser
    }

    /// The next message; `None` when the connection has to end. Dropping the future loses nothing.
    pub async fn receive(&mut self) -> Option<String> {
        let TabConnection { browser, hub, guard, silence } = &self.connection;
        let mut signed_out = std::pin::pin!(hub.browsers().signed_out(&browser.id));
        loop {
            let received = tokio::select! {
                received = self.stream.next() => received,
                () = sleep_until(self.last_received + *silence) => return None,
                () = &mut signed_out => return None,
                () = guard.closing() => return None,
                _ = self.beat.tick() => {
                    let beat = async {
                        self.stream.send(Message::Ping(bytes::Bytes::new())).await?;
                        self.stream.send(Message::text(BEAT)).await
                    };
                    timeout(SEND_TIMEOUT, beat).await.ok()?.ok()?;
                    continue;
                }
            };
            self.last_received = Instant::now();
            match received? {
                Ok(Message::Text(text)) => return Some(text.to_string()),
                Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_)) => {}
                Ok(Message::Binary(_) | Message::Close(_)) => return None,
                Err(error) => {
                    tracing::debug!(%error, "the WebSocket of a tab ended");
                    return None;
                }
            }
        }
    }

    /// Sends a message.
    pub async fn send(&mut self, text: &str) -> Result<(), TabGone> {
        let sending = timeout(SEND_TIMEOUT, self.stream.send(Message::text(text)));
        tokio::select! {
            sent = sending => sent.map_err(|_| TabGone)?.map_err(|_| TabGone),
            () = self.connection.guard.aborted() => Err(TabGone),
        }
    }

    /// Closes the connection.
    pub async fn close(mut self) {
        let frame = CloseFrame { code: CloseCode::Away, reason: "".into() };
        let _ = timeout(CLOSE_TIMEOUT, self.stream.close(Some(frame))).await;
    }
}
