//! The page: the list of sessions and the conversation of one.

#[allow(dead_code, reason = "the form of a new session will use it")]
mod hub_client;
mod inbox;
mod layout;
#[allow(dead_code, reason = "the socket of tabs will use it")]
mod list_feed;
mod media;
mod reader;
mod session_row;
#[allow(dead_code, reason = "the socket of tabs will use it")]
mod side;

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{HeaderName, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use maud::{Markup, html};
use parlor_server::browsers::SignedIn;
use parlor_server::hub::{Hub, Role};
use parlor_session::{MessageNumbers, SessionId};

use self::layout::Frame;
use self::list_feed::{ListFeed, ListUnavailable};
use self::reader::{Reader, SessionView};
use self::session_row::SessionRow;
use self::side::Place;
use crate::assets;
use crate::render::content_block::MediaSource;
use crate::render::{EntryContext, entry};

/// What the page may load and do: its own style sheet, script and media, and connections to its own server.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; media-src 'self'; connect-src 'self'; \
    form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// What a browser that may only watch is told instead of the inbox and the form of a new session.
const OBSERVER: &str = "This browser may only watch. `parlor open` signs in one that may act.";

/// What the routes share.
struct PageState {
    reader: Reader,
    lists: Arc<ListFeed>,
}

/// The routes of the page, for browsers that are signed in.
pub fn router(hub: Arc<Hub>) -> Router {
    Router::new()
        .route("/", get(index))
        .route("/s/{id}", get(session))
        .route("/s/{id}/media/{place}", get(session_media))
        .route("/assets/page.js", get(async || asset("text/javascript", assets::SCRIPT)))
        .route("/assets/page.css", get(async || asset("text/css", assets::STYLE)))
        .route("/inbox", get(inbox))
        .with_state(Arc::new(PageState { reader: Reader::new(Arc::clone(&hub)), lists: ListFeed::new(hub) }))
}

fn asset(kind: &'static str, text: &'static str) -> impl IntoResponse {
    let kind = format!("{kind}; charset=utf-8");
    ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-cache".to_owned())], text)
}

async fn index(State(state): State<Arc<PageState>>, Extension(browser): Extension<SignedIn>) -> Response {
    let view = match state.lists.view().await {
        Ok(view) => view,
        Err(ListUnavailable) => return unavailable(),
    };
    let frame = Frame { view: &view, role: browser.role, place: Place::List, query: "" };
    let main = layout::message("Sessions", "Select a session.");
    respond(StatusCode::OK, layout::page("Sessions", &frame, &main))
}

async fn session(
    State(state): State<Arc<PageState>>,
    Extension(browser): Extension<SignedIn>,
    Path(id): Path<String>,
) -> Response {
    let id = SessionId::from(id.as_str());
    let view = match state.lists.view().await {
        Ok(view) => view,
        Err(ListUnavailable) => return unavailable(),
    };
    let frame = Frame { view: &view, role: browser.role, place: Place::Session(&id), query: "" };
    let Some(row) = view.row(&id) else {
        let main = layout::message("No such session", "It may have been deleted.");
        return respond(StatusCode::NOT_FOUND, layout::page("No such session", &frame, &main));
    };
    match state.reader.session(row).await {
        Ok(session) => {
            let main = layout::conversation(row, &entries(row, &session), session.has_older);
            respond(StatusCode::OK, layout::page(&row.title, &frame, &main))
        }
        Err(error) => failed(&error),
    }
}

async fn inbox(State(state): State<Arc<PageState>>, Extension(browser): Extension<SignedIn>) -> Response {
    let view = match state.lists.view().await {
        Ok(view) => view,
        Err(ListUnavailable) => return unavailable(),
    };
    let frame = Frame { view: &view, role: browser.role, place: Place::Inbox, query: "" };
    let main = match browser.role {
        Role::Driver => inbox::page(&maud::PreEscaped(view.inbox.to_string())),
        Role::Observer => layout::message("Inbox", OBSERVER),
    };
    respond(StatusCode::OK, layout::page("Inbox", &frame, &main))
}

/// An image or a sound of a session.
async fn session_media(
    State(state): State<Arc<PageState>>,
    Path((id, place)): Path<(String, String)>,
) -> Response {
    let id = SessionId::from(id.as_str());
    let list = match state.lists.view().await {
        Ok(list) => list,
        Err(ListUnavailable) => return unavailable(),
    };
    let Some(row) = list.row(&id) else { return StatusCode::NOT_FOUND.into_response() };
    let view = state.reader.session(row).await;
    match view {
        Ok(view) => match media::find(&view.transcript, &place) {
            Some((mime, bytes)) => ([(header::CONTENT_TYPE, mime)], bytes).into_response(),
            None => StatusCode::NOT_FOUND.into_response(),
        },
        Err(error) => failed(&error),
    }
}

/// The elements of a session's entries.
fn entries(row: &SessionRow, view: &SessionView) -> Markup {
    let transcript = &*view.transcript;
    let numbers = MessageNumbers::after(view.older_messages, transcript);
    let media = format!("{}/media/", side::address(&row.id));
    html! {
        @for one in transcript.entries() {
            @let context = EntryContext {
                transcript,
                agent: &row.agent,
                cwd: &row.cwd,
                media: MediaSource::Served(&media),
                number: numbers.number_of(one),
                created_at: None,
                is_waiting: false,
            };
            @if let Some(element) = entry(one, &context) { (element) }
        }
    }
}

fn respond(status: StatusCode, page: Markup) -> Response {
    let headers: [(HeaderName, &str); 2] = [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ];
    (status, headers, Html(page.into_string())).into_response()
}

fn unavailable() -> Response {
    let message = "The server cannot list its sessions; `parlor logs` says why.\n";
    (StatusCode::SERVICE_UNAVAILABLE, message).into_response()
}

fn failed(error: &parlor_client::Error) -> Response {
    tracing::error!(%error, "cannot read sessions for the page");
    let message = "The server cannot read its sessions; `parlor logs` says why.\n";
    (StatusCode::SERVICE_UNAVAILABLE, message).into_response()
}
