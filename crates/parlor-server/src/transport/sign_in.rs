//! Browsers over HTTP: links that sign in, cookies, and tickets for connections.
//!
//! A cookie is sent to all ports of its host, and other programs of this machine listen on ports of `localhost`. So the page has a
//! host of its own, `parlor.localhost`, and browsers are signed in there or on a host that is configured, and nowhere else.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use parlor_session::SessionId;
use parlor_view::address::session_path;
use serde::Deserialize;

use super::access::{PAGE_HOST, Refusal, only, split_port};
use super::http::{AppState, ConnInfo};
use crate::browsers::SignedIn;
use crate::data_dir::DataDirError;

/// How long a browser keeps its cookie, in seconds. The server decides how long it is valid.
const COOKIE_AGE: u32 = 400 * 24 * 60 * 60;

const BAD_LINK: Refusal = (
    StatusCode::FORBIDDEN,
    "This link was used or is older than 10 minutes. `parlor open` opens the page with a new one.\n",
);

pub(super) const NOT_SIGNED_IN: Refusal = (
    StatusCode::UNAUTHORIZED,
    "This browser is not signed in. `parlor open` opens the page and signs it in.\n",
);

const OTHER_PAGE: Refusal = (StatusCode::FORBIDDEN, "Only the server's own page may send this request.\n");

/// The routes of this file.
pub(super) fn routes() -> Router<Arc<AppState>> {
    Router::new()
        .route("/sign-in", get(sign_in))
        .route("/sign-out", post(sign_out))
        .route("/ticket", post(ticket))
}

#[derive(Deserialize)]
struct SignInQuery {
    code: String,
    /// The session that the page shows first.
    session: Option<String>,
}

/// Signs a browser in and shows it the page. A browser may open a link twice, for a preview, so one that is signed in already is
/// shown the page, too.
async fn sign_in(
    State(state): State<Arc<AppState>>,
    Extension(info): Extension<ConnInfo>,
    headers: HeaderMap,
    uri: Uri,
    query: Result<Query<SignInQuery>, QueryRejection>,
) -> Response {
    if let Some(elsewhere) = page_address(&state, &headers, &uri, &info) {
        return (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, elsewhere)]).into_response();
    }
    let Ok(Query(SignInQuery { code, session })) = query else { return refuse(&state, &headers, BAD_LINK) };
    let name = headers.get(header::USER_AGENT).and_then(|name| name.to_str().ok()).unwrap_or("a browser");
    let (hub, name) = (Arc::clone(&state.hub), name.to_owned());
    let cookie = blocking(move || hub.browsers().sign_in(&code, &name, now())).await;
    let cookie = match cookie {
        Ok(cookie) => cookie,
        Err(error) => {
            tracing::error!(%error, "cannot store a browser that signs in");
            let message = "The server cannot store that this browser is signed in; see `parlor logs`.\n";
            return (StatusCode::INTERNAL_SERVER_ERROR, message).into_response();
        }
    };
    if cookie.is_none() && signed_in(&state, &headers, &info).is_none() {
        return refuse(&state, &headers, BAD_LINK);
    }
    let page =
        session.map_or_else(|| "/".to_owned(), |session| session_path(&SessionId::from(session.as_str())));
    let mut response = (StatusCode::SEE_OTHER, [(header::LOCATION, page)]).into_response();
    if let Some(cookie) = cookie {
        set_cookie(&mut response, &info, &cookie, COOKIE_AGE, is_secure(&headers));
    }
    response
}

/// Refuses the request of a browser that is not signed in: as a page if it asks for one.
pub(super) fn refuse(state: &AppState, headers: &HeaderMap, refusal: Refusal) -> Response {
    let accepts_html = headers
        .get(header::ACCEPT)
        .and_then(|accept| accept.to_str().ok())
        .is_some_and(|accept| accept.contains("text/html"));
    match state.signed_out {
        Some(signed_out) if accepts_html => signed_out(refusal.0, refusal.1),
        _ => refusal.into_response(),
    }
}

async fn sign_out(
    State(state): State<Arc<AppState>>,
    Extension(info): Extension<ConnInfo>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let browser = acting(&state, &headers, &info)?;
    let hub = Arc::clone(&state.hub);
    let mut response = match blocking(move || hub.browsers().sign_out(&browser.id)).await {
        Ok(_) => (StatusCode::SEE_OTHER, [(header::LOCATION, "/")]).into_response(),
        Err(error) => {
            tracing::error!(%error, "cannot store that a browser was signed out");
            let message = "This browser is signed out until the server restarts. The server cannot store it; see `parlor logs`.\n";
            (StatusCode::INTERNAL_SERVER_ERROR, message).into_response()
        }
    };
    set_cookie(&mut response, &info, "", 0, is_secure(&headers));
    Ok(response)
}

/// Gives a page a ticket for one WebSocket.
async fn ticket(
    State(state): State<Arc<AppState>>,
    Extension(info): Extension<ConnInfo>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let browser = acting(&state, &headers, &info)?;
    match state.hub.browsers().new_ticket(&browser.id, now()) {
        Ok(ticket) => Ok(ticket.into_response()),
        Err(error) => {
            tracing::error!(%error, "cannot create a ticket");
            Ok(StatusCode::INTERNAL_SERVER_ERROR.into_response())
        }
    }
}

/// The browser that sends a request which changes something: it is signed in, and the request is of the server's own page.
fn acting(state: &AppState, headers: &HeaderMap, info: &ConnInfo) -> Result<SignedIn, Refusal> {
    if !is_same_origin(headers) {
        return Err(OTHER_PAGE);
    }
    signed_in(state, headers, info).ok_or(NOT_SIGNED_IN)
}

/// Runs code that waits for the disk where it delays no connection.
async fn blocking<T: Send + 'static>(
    call: impl FnOnce() -> Result<T, DataDirError> + Send + 'static,
) -> Result<T, DataDirError> {
    match tokio::task::spawn_blocking(call).await {
        Ok(result) => result,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// Stores when browsers were last used, without waiting for it.
fn store_in_background(state: &AppState) {
    if !state.hub.browsers().is_dirty() {
        return;
    }
    let hub = Arc::clone(&state.hub);
    tokio::task::spawn_blocking(move || {
        if let Err(error) = hub.browsers().store() {
            tracing::warn!(%error, "cannot store when a browser was last used");
        }
    });
}

/// The browser that sends a request, if it is signed in.
pub(super) fn signed_in(state: &AppState, headers: &HeaderMap, info: &ConnInfo) -> Option<SignedIn> {
    let name = cookie_name(info);
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|cookies| cookies.to_str().ok());
    let mut cookies =
        cookies.flat_map(|cookies| cookies.split(';')).filter_map(|cookie| cookie.trim().split_once('='));
    let found = cookies.find_map(
        |(known, value)| if known == name { state.hub.browsers().find(value, now()) } else { None },
    );
    store_in_background(state);
    found
}

/// Whether a request is of a page with the same origin as the address of the request. A request without an origin is not.
pub(super) fn is_same_origin(headers: &HeaderMap) -> bool {
    let origin = only(headers, &header::ORIGIN).ok().flatten();
    let host = only(headers, &header::HOST).ok().flatten();
    let origin =
        origin.and_then(|origin| origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://")));
    let is_same_site = headers.get("sec-fetch-site").is_none_or(|site| site == "same-origin");
    is_same_site
        && origin.is_some()
        && origin.map(str::to_ascii_lowercase) == host.map(str::to_ascii_lowercase)
}

/// Where the page is, if the request names a local host on which browsers are not signed in.
fn page_address(state: &AppState, headers: &HeaderMap, uri: &Uri, info: &ConnInfo) -> Option<String> {
    let host = only(headers, &header::HOST).ok().flatten()?;
    let is_page = split_port(host).is_some_and(|(name, _)| name.eq_ignore_ascii_case(PAGE_HOST));
    if is_page || state.access.is_configured(host) {
        return None;
    }
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    Some(format!("http://{PAGE_HOST}:{}{path}", info.local_address.port()))
}

/// The name of the cookie: servers on several ports share a host.
fn cookie_name(info: &ConnInfo) -> String {
    format!("parlor-{}", info.local_address.port())
}

/// Sets a cookie that no script can read, that requests of other sites do not have, and that has no domain, so that only this host
/// gets it.
fn set_cookie(response: &mut Response, info: &ConnInfo, value: &str, age: u32, is_secure: bool) {
    let secure = if is_secure { "; Secure" } else { "" };
    let cookie =
        format!("{}={value}; Path=/; Max-Age={age}; HttpOnly; SameSite=Lax{secure}", cookie_name(info));
    if let Ok(cookie) = HeaderValue::try_from(cookie) {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
}

/// Whether the browser uses TLS, as a proxy reports it.
fn is_secure(headers: &HeaderMap) -> bool {
    headers.get("x-forwarded-proto").is_some_and(|scheme| scheme == "https")
}

pub(super) fn now() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_requests_of_the_own_page_have_the_same_origin() {
        let check = |list: &[(&str, &str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in list {
                headers.append(
                    header::HeaderName::try_from(*name).unwrap(),
                    HeaderValue::from_str(value).unwrap(),
                );
            }
            is_same_origin(&headers)
        };
        let host = ("host", "parlor.localhost:7667");
        assert!(check(&[host, ("origin", "http://parlor.localhost:7667")]));
        assert!(check(&[
            host,
            ("origin", "http://Parlor.localhost:7667"),
            ("sec-fetch-site", "same-origin")
        ]));
        assert!(check(&[("host", "parlor.example"), ("origin", "https://parlor.example")]));
        assert!(!check(&[host]));
        assert!(!check(&[host, ("origin", "null")]));
        assert!(!check(&[host, ("origin", "http://localhost:7667")]));
        assert!(!check(&[host, ("origin", "http://parlor.localhost:3000")]));
        assert!(!check(&[
            host,
            ("origin", "http://parlor.localhost:7667"),
            ("sec-fetch-site", "cross-site")
        ]));
        assert!(!check(&[
            host,
            ("origin", "http://parlor.localhost:7667"),
            ("origin", "http://evil.example")
        ]));
        assert!(!check(&[("origin", "http://parlor.localhost:7667")]));
    }
}
