//! The page: the list of sessions and the conversation of one.

mod action;
mod conversation;
mod feed;
mod layout;
mod media;
mod perform;
mod prompt;
mod reader;
mod regions;
mod session_row;
mod tab;
mod to_tab;

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{HeaderName, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use maud::Markup;
use parlor_server::browsers::SignedIn;
use parlor_server::hub::{Hub, Role};
use parlor_server::transport::{Page, PageUpgrade};
use parlor_session::SessionId;

use self::feed::Feeds;
use self::reader::Reader;
use crate::assets;

/// What the page may load and do: its own style sheet, script and media, and connections to its own server.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; media-src 'self'; connect-src 'self'; \
    form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// The page of a server.
pub fn page(hub: Arc<Hub>) -> Page {
    let assets = Router::new()
        .route("/assets/page.js", get(async || asset("text/javascript", assets::SCRIPT)))
        .route("/assets/icon.svg", get(async || asset("image/svg+xml", assets::ICON)))
        .route("/assets/page.css", get(async || asset("text/css", assets::STYLE)));
    Page { routes: routes(hub), assets, signed_out }
}

/// The page for a browser that is not signed in.
fn signed_out(status: StatusCode, reason: &str) -> Response {
    respond(status, layout::signed_out(reason))
}

/// What all requests and tabs share.
#[derive(Debug)]
struct PageState {
    reader: Reader,
    feeds: Feeds,
}

fn routes(hub: Arc<Hub>) -> Router {
    let state = Arc::new(PageState { reader: Reader::new(hub), feeds: Feeds::default() });
    Router::new()
        .route("/", get(index))
        .route("/s/{id}", get(session))
        .route("/s/{id}/media/{place}", get(session_media))
        .route("/live", get(live))
        .with_state(state)
}

/// The WebSocket of a tab.
async fn live(State(state): State<Arc<PageState>>, upgrade: PageUpgrade) -> Response {
    upgrade.open(move |socket| tab::serve(state, socket))
}

fn asset(kind: &'static str, text: &'static str) -> impl IntoResponse {
    let kind = format!("{kind}; charset=utf-8");
    ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-cache".to_owned())], text)
}

async fn index(State(state): State<Arc<PageState>>) -> Response {
    match state.reader.list().await {
        Ok(list) => {
            let main = layout::no_session(&list);
            respond(StatusCode::OK, layout::page("Sessions", &list, None, &main, &Markup::default()))
        }
        Err(error) => failed(&error),
    }
}

async fn session(
    State(state): State<Arc<PageState>>,
    Extension(browser): Extension<SignedIn>,
    Path(id): Path<String>,
) -> Response {
    let id = SessionId::from(id.as_str());
    // Loading a page changes nothing: the session is attached as a driver when the script connects.
    let (list, feed, agents) =
        tokio::join!(state.reader.list(), Feeds::open(&state, &id, Role::Observer), state.reader.agents());
    let list = match list {
        Ok(list) => list,
        Err(error) => return failed(&error),
    };
    match feed {
        Ok(Some(feed)) => {
            let (main, aside) = conversation::conversation(&feed, browser.role, &agents.unwrap_or_default());
            respond(StatusCode::OK, layout::page(&feed.row.title, &list, Some(&id), &main, &aside))
        }
        Ok(None) => {
            let main = layout::message("No such session", "It may have been deleted.");
            let page = layout::page("No such session", &list, None, &main, &Markup::default());
            respond(StatusCode::NOT_FOUND, page)
        }
        Err(error) => failed(&error),
    }
}

/// An image or a sound of a session.
async fn session_media(
    State(state): State<Arc<PageState>>,
    Path((id, place)): Path<(String, String)>,
) -> Response {
    let feed = match Feeds::open(&state, &SessionId::from(id.as_str()), Role::Observer).await {
        Ok(Some(feed)) => feed,
        Ok(None) => return StatusCode::NOT_FOUND.into_response(),
        Err(error) => return failed(&error),
    };
    match feed.media(&place).await {
        Ok(Some((mime, bytes))) => ([(header::CONTENT_TYPE, mime)], bytes).into_response(),
        Ok(None) => StatusCode::NOT_FOUND.into_response(),
        Err(error) => failed(&error),
    }
}

fn respond(status: StatusCode, page: Markup) -> Response {
    let headers: [(HeaderName, &str); 2] = [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ];
    (status, headers, Html(page.into_string())).into_response()
}

fn failed(error: &parlor_client::Error) -> Response {
    tracing::error!(%error, "cannot read sessions for the page");
    let message = "The server cannot read its sessions; `parlor logs` says why.\n";
    (StatusCode::SERVICE_UNAVAILABLE, message).into_response()
}
