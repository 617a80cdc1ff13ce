//! HTTP, with a WebSocket at `/acp`.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
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
use super::connection_limit::{ConnectionGuard, ConnectionLimit};
use super::listen::{Limits, ListenError, pause_after};
use super::page_socket::PageAccess;
use super::sign_in;
use super::websocket::{self, Handshake};
use crate::data_dir::Tokens;
use crate::hub::{AgentChoice, ClientRole, ConnectOptions, Hub, TransportKind};

/// The address of the HTTP listener, and who may connect to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpOptions {
    /// The address; port 0 is any that is free.
    pub listen: SocketAddr,
    /// Whether other machines may reach the address.
    pub allow_remote: bool,
    /// Origins of pages that may connect besides the server's own, such as `https://example.com`.
    pub origins: Vec<String>,
    /// Host names of the server besides `localhost`, with or without a port.
    pub hosts: Vec<String>,
}

/// Accepts connections at a TCP address.
#[derive(Debug)]
pub(super) struct HttpListener {
    listener: TcpListener,
    access: Access,
    limits: Limits,
    page: Option<Page>,
}

/// What browsers get over HTTP.
#[derive(Debug)]
pub struct Page {
    /// The routes for browsers that are signed in. Their requests have the [browser](crate::browsers::SignedIn) as an extension.
    pub routes: Router,
    /// The routes for all browsers: the style sheet and the script.
    pub assets: Router,
    /// The page for a browser that is not signed in, with a status and the reason.
    pub signed_out: SignedOutPage,
}

/// Renders the page for a browser that is not signed in.
pub type SignedOutPage = fn(StatusCode, &str) -> Response;

/// How long rejecting a connection may take.
const REJECT_TIMEOUT: Duration = Duration::from_secs(1);

/// How many connections are rejected with an answer at a time.
const MAX_REJECTING: usize = 64;

/// The most bytes of a request's line and headers.
const HEADERS: usize = 32 << 10;

const TOO_LONG: (StatusCode, &str) =
    (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "The headers are longer than 32 KiB.\n");

const TOO_MANY: (StatusCode, &str) =
    (StatusCode::SERVICE_UNAVAILABLE, "The server has too many connections\n");

const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nContent-Length: 36\r\n\
    Connection: close\r\n\r\nThe server has too many connections\n";

const NO_DATE: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nContent-Length: 41\r\n\
    Connection: close\r\n\r\nThe clock of this machine is before 1970\n";

/// The state that all requests share.
pub(super) struct AppState {
    pub(super) hub: Arc<Hub>,
    pub(super) access: Access,
    pub(super) limits: Limits,
    pub(super) signed_out: Option<SignedOutPage>,
}

/// The connection of a request.
#[derive(Clone)]
pub(super) struct ConnInfo {
    pub(super) guard: Arc<ConnectionGuard>,
    /// Our address.
    pub(super) local_address: SocketAddr,
}

/// The headers of all responses that have no others: browsers neither run, frame, guess nor store
/// anything of them, and send no referrer to other sites.
static SAFE_HEADERS: [(HeaderName, &str); 6] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// The query of `/acp`.
#[derive(Deserialize)]
struct ConnectQuery {
    agent: Option<String>,
    dialect: Option<String>,
}

impl HttpListener {
    pub(super) async fn open(
        options: &HttpOptions,
        tokens: Tokens,
        limits: Limits,
    ) -> Result<Self, ListenError> {
        let listen = options.listen;
        if !options.allow_remote && !listen.ip().to_canonical().is_loopback() {
            return Err(ListenError::Remote(listen));
        }
        let listener =
            TcpListener::bind(listen).await.map_err(|error| ListenError::Listen { listen, error })?;
        let access = Access { tokens, hosts: options.hosts.clone(), origins: options.origins.clone() };
        Ok(Self { listener, access, limits, page: None })
    }

    /// Serves a page.
    pub(super) fn set_page(&mut self, page: Page) {
        self.page = Some(page);
    }

    pub(super) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Accepts connections for as long as it is polled.
    pub(super) async fn serve(self, hub: Arc<Hub>, limit: &ConnectionLimit) {
        let Self { listener, access, limits, page } = self;
        let header_time = limits.header_time;
        let state =
            Arc::new(AppState { hub, access, limits, signed_out: page.as_ref().map(|page| page.signed_out) });
        let mut router = Router::new()
            .route("/health", get(async || "ok"))
            .route("/acp", get(connect))
            .merge(sign_in::routes())
            .with_state(Arc::clone(&state));
        router = match page {
            Some(page) => {
                let check = middleware::from_fn_with_state(Arc::clone(&state), check_browser);
                router.merge(page.routes.layer(check)).merge(page.assets)
            }
            None => router.route("/", get(index)),
        };
        let router = router
            .fallback(async || (StatusCode::NOT_FOUND, "Not found.\n"))
            .layer(middleware::from_fn_with_state(state, check_access))
            .layer(middleware::map_response(add_safe_headers));
        let rejecting = Arc::new(Semaphore::new(MAX_REJECTING));
        loop {
            let (stream, _) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    pause_after("the HTTP port", &error).await;
                    continue;
                }
            };
            // A small message must not wait for the acknowledgement of the one before.
            let _ = stream.set_nodelay(true);
            // The library adds a date to its responses, and panics if there is none.
            let is_datable = is_datable(SystemTime::now());
            let reason = if is_datable { FULL } else { NO_DATE };
            let guard = if is_datable { limit.try_acquire_unauthenticated() } else { None };
            match (guard, stream.local_addr()) {
                (Some(guard), Ok(local_address)) => {
                    let info = ConnInfo { guard, local_address };
                    tokio::spawn(serve_connection(stream, router.clone(), info, header_time));
                }
                (Some(_), Err(_)) => {}
                (None, _) => {
                    if let Ok(permit) = Arc::clone(&rejecting).try_acquire_owned() {
                        tokio::spawn(async move {
                            let _ = tokio::time::timeout(REJECT_TIMEOUT, reject(stream, reason)).await;
                            drop(permit);
                        });
                    }
                }
            }
        }
    }
}

/// Serves the requests of one connection, up to one that becomes a WebSocket.
async fn serve_connection(stream: TcpStream, router: Router, info: ConnInfo, header_time: Duration) {
    let guard = Arc::clone(&info.guard);
    let service = TowerToHyperService::new(router.layer(Extension(info)));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(header_time)
        .max_buf_size(HEADERS)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = guard.evicted() => Ok(()),
        () = guard.closing() => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                ended = connection => ended,
                () = guard.aborted() => Ok(()),
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended");
    }
}

/// Sends a response and waits until the client has closed: what is sent before a close with an unread request is lost.
async fn reject(mut stream: TcpStream, reason: &[u8]) -> io::Result<()> {
    stream.write_all(reason).await?;
    stream.shutdown().await?;
    let mut rest = [0; 1024];
    while stream.read(&mut rest).await? > 0 {}
    Ok(())
}

async fn check_access(
    State(state): State<Arc<AppState>>,
    Extension(info): Extension<ConnInfo>,
    request: Request,
    next: Next,
) -> Response {
    // The buffer may hold more than its limit if all of it arrives at once.
    if head_length(&request) > HEADERS {
        return TOO_LONG.into_response();
    }
    match state.access.check(request.headers(), request.uri(), info.local_address) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    }
}

/// Lets browsers that are signed in get the page. Others get a page that says how to sign in.
async fn check_browser(
    State(state): State<Arc<AppState>>,
    Extension(info): Extension<ConnInfo>,
    mut request: Request,
    next: Next,
) -> Response {
    match sign_in::signed_in(&state, request.headers(), &info) {
        Some(browser) => {
            // A connection of a browser that is signed in is no longer one that may be closed to make room.
            if !info.guard.authenticate() {
                return TOO_MANY.into_response();
            }
            request.extensions_mut().insert(browser);
            request.extensions_mut().insert(PageAccess(state));
            next.run(request).await
        }
        None => sign_in::refuse(&state, request.headers(), sign_in::NOT_SIGNED_IN),
    }
}

async fn add_safe_headers(mut response: Response) -> Response {
    for (name, value) in &SAFE_HEADERS {
        response.headers_mut().entry(name.clone()).or_insert(HeaderValue::from_static(value));
    }
    response
}

/// About how many bytes the request's line and headers had: how many spaces there were is not known.
fn head_length(request: &Request) -> usize {
    let line = request.method().as_str().len() + request.uri().to_string().len() + "  HTTP/1.1\r\n".len();
    let headers = request.headers().iter();
    let headers = headers.map(|(name, value)| name.as_str().len() + value.len() + ": \r\n".len());
    line + headers.sum::<usize>() + "\r\n".len()
}

async fn index(Extension(info): Extension<ConnInfo>) -> String {
    index_text(&info)
}

fn index_text(info: &ConnInfo) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let at = info.local_address;
    format!(
        "parlor {version}: a session server for agents that speak the Agent Client Protocol.\n\n\
         Connect a WebSocket to ws://{at}/acp, one message a frame, with the header 'Authorization: Bearer TOKEN'.\n\
         The token is in the file 'token' of the data directory; the one in 'token.read' only allows to watch.\n\
         `parlor open` opens the page in a browser and signs it in.\n\n\
         '?agent=NAME' chooses an agent, '?dialect=draft' the draft of protocol version 2.\n\n\
         An editor starts 'parlor acp' instead and needs no token.\n"
    )
}

/// Makes the connection a WebSocket, for a client that shows a token.
async fn connect(
    State(state): State<Arc<AppState>>,
    Extension(info): Extension<ConnInfo>,
    headers: HeaderMap,
    query: Result<Query<ConnectQuery>, QueryRejection>,
    mut request: Request,
) -> Response {
    let role = match state.access.admit(&headers) {
        Ok(role) => role,
        Err(refusal) => {
            let challenge = [(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"parlor\""))];
            return (challenge, refusal).into_response();
        }
    };
    let options = match query.map_err(|error| error.body_text()).and_then(|Query(query)| query.options(role))
    {
        Ok(options) => options,
        Err(error) => return (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
    };
    let handshake = match Handshake::accept(&mut request) {
        Ok(handshake) => handshake,
        Err(refusal) => return refusal.into_response(),
    };
    if !info.guard.authenticate() {
        return TOO_MANY.into_response();
    }
    let mut response = handshake.response();
    if let Ok(id) = HeaderValue::try_from(Uuid::new_v4().to_string()) {
        response.headers_mut().insert("acp-connection-id", id);
    }
    tokio::spawn(async move {
        if let Some(upgraded) = handshake.upgraded().await {
            websocket::serve(upgraded, Arc::clone(&state.hub), options, info.guard, state.limits).await;
        }
    });
    response
}

impl ConnectQuery {
    fn options(self, role: ClientRole) -> Result<ConnectOptions, String> {
        let dialect = self.dialect.as_deref().map(str::parse::<Dialect>).transpose();
        Ok(ConnectOptions {
            agent: self.agent.map(AgentChoice::Named),
            dialect: dialect.map_err(|error| error.to_string())?,
            ..ConnectOptions::new(TransportKind::WebSocket, role)
        })
    }
}

/// Whether a time can be an HTTP date. That of a clock that was never set may not.
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
