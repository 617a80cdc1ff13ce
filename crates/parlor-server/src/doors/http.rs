//! The door for everything else: HTTP, with a WebSocket at `/acp`.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router, middleware};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use parlor_dialect::Dialect;
use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use uuid::Uuid;

use super::access::Access;
use super::guests::{Guest, Guests};
use super::websocket::{self, Handshake};
use super::{DoorError, Limits, pause_after};
use crate::data_dir::Tokens;
use crate::hub::{AgentChoice, Door, Hub, Peer, Role};

/// Where the HTTP door listens, and to whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpOptions {
    /// The address; port 0 is any that is free.
    pub listen: SocketAddr,
    /// Whether it may be one that other machines reach.
    pub allow_remote: bool,
    /// Pages that may connect besides the server's own, such as `https://example.com`.
    pub origins: Vec<String>,
    /// Names by which the server is reached besides `localhost`, with or without a port.
    pub hosts: Vec<String>,
}

/// An address that is listened to.
#[derive(Debug)]
pub(super) struct HttpDoor {
    listener: TcpListener,
    access: Access,
    limits: Limits,
}

/// How long and how many at once those who find no place are told so.
const TURNING_AWAY: Duration = Duration::from_secs(1);
const TURNED_AWAY_AT_ONCE: usize = 64;

/// The most bytes of a request's line and headers.
const HEADERS: usize = 32 << 10;

const TOO_LONG: (StatusCode, &str) =
    (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "The headers are longer than 32 KiB.\n");

const NO_PLACE: (StatusCode, &str) =
    (StatusCode::SERVICE_UNAVAILABLE, "The server has too many connections\n");

const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nContent-Length: 36\r\n\
    Connection: close\r\n\r\nThe server has too many connections\n";

const NO_DATE: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nContent-Length: 41\r\n\
    Connection: close\r\n\r\nThe clock of this machine is before 1970\n";

/// What all requests share.
struct House {
    hub: Arc<Hub>,
    access: Access,
    limits: Limits,
}

/// The connection that a request comes by.
#[derive(Clone)]
struct Visit {
    guest: Arc<Guest>,
    at: SocketAddr,
}

/// What the query of `/acp` may say.
#[derive(Deserialize)]
struct Wishes {
    agent: Option<String>,
    dialect: Option<String>,
}

impl HttpDoor {
    pub(super) async fn open(
        options: &HttpOptions,
        tokens: Tokens,
        limits: Limits,
    ) -> Result<Self, DoorError> {
        let listen = options.listen;
        if !options.allow_remote && !listen.ip().to_canonical().is_loopback() {
            return Err(DoorError::Remote(listen));
        }
        let listener =
            TcpListener::bind(listen).await.map_err(|error| DoorError::Listen { listen, error })?;
        let access = Access { tokens, hosts: options.hosts.clone(), origins: options.origins.clone() };
        Ok(Self { listener, access, limits })
    }

    pub(super) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Lets clients in for as long as it is polled.
    pub(super) async fn serve(self, hub: Arc<Hub>, guests: &Guests) {
        let Self { listener, access, limits } = self;
        let header_time = limits.header_time;
        let house = Arc::new(House { hub, access, limits });
        let router = Router::new()
            .route("/", get(front))
            .route("/health", get(async || "ok"))
            .route("/acp", get(acp))
            .fallback(async || (StatusCode::NOT_FOUND, "There is nothing here.\n"))
            .layer(middleware::from_fn_with_state(Arc::clone(&house), check))
            .with_state(house);
        let turning_away = Arc::new(Semaphore::new(TURNED_AWAY_AT_ONCE));
        loop {
            let (stream, _) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    pause_after("the HTTP port", &error).await;
                    continue;
                }
            };
            // Small messages are not to wait for an acknowledgement of the one before.
            let _ = stream.set_nodelay(true);
            // The library dates its answers, and panics if it cannot.
            let is_datable = is_datable(SystemTime::now());
            let why = if is_datable { FULL } else { NO_DATE };
            let guest = if is_datable { guests.unauthenticated() } else { None };
            match (guest, stream.local_addr()) {
                (Some(guest), Ok(at)) => {
                    let visit = Visit { guest, at };
                    tokio::spawn(receive(stream, router.clone(), visit, header_time));
                }
                (Some(_), Err(_)) => {}
                (None, _) => {
                    if let Ok(turn) = Arc::clone(&turning_away).try_acquire_owned() {
                        tokio::spawn(async move {
                            let _ = tokio::time::timeout(TURNING_AWAY, turn_away(stream, why)).await;
                            drop(turn);
                        });
                    }
                }
            }
        }
    }
}

/// Serves the requests of one connection, up to one that becomes a WebSocket.
async fn receive(stream: TcpStream, router: Router, visit: Visit, header_time: Duration) {
    let guest = Arc::clone(&visit.guest);
    let service = TowerToHyperService::new(router.layer(Extension(visit)));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(header_time)
        .max_buf_size(HEADERS)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = guest.evicted() => Ok(()),
        () = guest.closing() => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                ended = connection => ended,
                () = guest.cut() => Ok(()),
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended");
    }
}

/// Says that there is no place, and waits until it was heard: what is closed with a request unread is forgotten.
async fn turn_away(mut stream: TcpStream, why: &[u8]) -> io::Result<()> {
    stream.write_all(why).await?;
    stream.shutdown().await?;
    let mut rest = [0; 1024];
    while stream.read(&mut rest).await? > 0 {}
    Ok(())
}

async fn check(
    State(house): State<Arc<House>>,
    Extension(visit): Extension<Visit>,
    request: Request,
    next: Next,
) -> Response {
    // The buffer may hold more than its limit when it comes at once.
    if head_length(&request) > HEADERS {
        return TOO_LONG.into_response();
    }
    match house.access.check(request.headers(), request.uri(), visit.at) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    }
}

/// How many bytes the request's line and headers had, about: spaces are not known any more.
fn head_length(request: &Request) -> usize {
    let line = request.method().as_str().len() + request.uri().to_string().len() + "  HTTP/1.1\r\n".len();
    let headers = request.headers().iter();
    let headers = headers.map(|(name, value)| name.as_str().len() + value.len() + ": \r\n".len());
    line + headers.sum::<usize>() + "\r\n".len()
}

async fn front(Extension(visit): Extension<Visit>) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let at = visit.at;
    format!(
        "parlor {version}: a session server for agents that speak the Agent Client Protocol.\n\n\
         Connect a WebSocket to ws://{at}/acp, one message a frame, with the header\n\
         'Authorization: Bearer TOKEN' or the subprotocol 'parlor.token.TOKEN'.\n\
         A server of parlor's has the token in the file 'token' of its data directory; the one in 'token.read' only lets\n\
         you watch.\n\
         '?agent=NAME' chooses an agent, '?dialect=draft' the draft of protocol version 2.\n\n\
         An editor starts 'parlor acp' instead and needs no token.\n"
    )
}

async fn acp(
    State(house): State<Arc<House>>,
    Extension(visit): Extension<Visit>,
    headers: HeaderMap,
    wishes: Result<Query<Wishes>, QueryRejection>,
    mut request: Request,
) -> Response {
    let admitted = match house.access.admit(&headers) {
        Ok(admitted) => admitted,
        Err(refusal) => {
            let how = [(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"parlor\""))];
            return (how, refusal).into_response();
        }
    };
    let peer = match wishes
        .map_err(|error| error.body_text())
        .and_then(|Query(wishes)| wishes.peer(admitted.role))
    {
        Ok(peer) => peer,
        Err(why) => return (StatusCode::BAD_REQUEST, format!("{why}\n")).into_response(),
    };
    let handshake = match Handshake::accept(&mut request) {
        Ok(handshake) => handshake,
        Err(refusal) => return refusal.into_response(),
    };
    if !visit.guest.authenticate() {
        return NO_PLACE.into_response();
    }
    let mut response = handshake.response(admitted.protocol);
    if let Ok(id) = HeaderValue::try_from(Uuid::new_v4().to_string()) {
        response.headers_mut().insert("acp-connection-id", id);
    }
    tokio::spawn(async move {
        if let Some(upgraded) = handshake.upgraded().await {
            websocket::serve(upgraded, Arc::clone(&house.hub), peer, visit.guest, house.limits).await;
        }
    });
    response
}

impl Wishes {
    fn peer(self, role: Role) -> Result<Peer, String> {
        let dialect = self.dialect.as_deref().map(str::parse::<Dialect>).transpose();
        Ok(Peer {
            door: Door::WebSocket,
            role,
            agent: self.agent.map(AgentChoice::Named),
            dialect: dialect.map_err(|error| error.to_string())?,
            env: Vec::new(),
            cwd: None,
        })
    }
}

/// Whether HTTP has a date for a time. A clock that was never set may show one that it has none for.
fn is_datable(now: SystemTime) -> bool {
    now >= SystemTime::UNIX_EPOCH
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_before_1970_has_no_date() {
        assert!(is_datable(SystemTime::UNIX_EPOCH));
        assert!(!is_datable(SystemTime::UNIX_EPOCH - Duration::from_millis(1)));
        assert_eq!(crate::stored::time(-1).unwrap().as_str(), r#""1969-12-31T23:59:59.999Z""#);
    }
}
