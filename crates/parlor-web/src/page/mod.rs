//! The page: the list of sessions and the conversation of one.

mod layout;
mod media;
mod reader;
mod session_row;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderName, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use maud::{Markup, html};
use parlor_server::hub::Hub;
use parlor_server::transport::Page;
use parlor_session::{MessageNumbers, SessionId};

use self::reader::{Reader, SessionView};
use self::session_row::SessionRow;
use crate::assets;
use crate::render::content_block::MediaSource;
use crate::render::{EntryContext, entry};

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

fn routes(hub: Arc<Hub>) -> Router {
    Router::new()
        .route("/", get(index))
        .route("/s/{id}", get(session))
        .route("/s/{id}/media/{place}", get(session_media))
        .with_state(Arc::new(Reader::new(hub)))
}

fn asset(kind: &'static str, text: &'static str) -> impl IntoResponse {
    let kind = format!("{kind}; charset=utf-8");
    ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-cache".to_owned())], text)
}

async fn index(State(reader): State<Arc<Reader>>) -> Response {
    match reader.list().await {
        Ok(list) => {
            respond(StatusCode::OK, layout::page("Sessions", &list, None, &layout::no_session(&list)))
        }
        Err(error) => failed(&error),
    }
}

async fn session(State(reader): State<Arc<Reader>>, Path(id): Path<String>) -> Response {
    let id = SessionId::from(id.as_str());
    let list = match reader.list().await {
        Ok(list) => list,
        Err(error) => return failed(&error),
    };
    let Some(row) = list.iter().find(|row| row.id == id) else {
        let main = layout::message("No such session", "It may have been deleted.");
        return respond(StatusCode::NOT_FOUND, layout::page("No such session", &list, None, &main));
    };
    match reader.session(row).await {
        Ok(view) => {
            let main = layout::conversation(row, &entries(row, &view), view.has_older);
            respond(StatusCode::OK, layout::page(&row.title, &list, Some(&id), &main))
        }
        Err(error) => failed(&error),
    }
}

/// An image or a sound of a session.
async fn session_media(
    State(reader): State<Arc<Reader>>,
    Path((id, place)): Path<(String, String)>,
) -> Response {
    let id = SessionId::from(id.as_str());
    let view = match reader.find(&id).await {
        Ok(Some(row)) => reader.session(&row).await,
        Ok(None) => return StatusCode::NOT_FOUND.into_response(),
        Err(error) => return failed(&error),
    };
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
    let media = format!("{}/media/", layout::address(&row.id));
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

fn failed(error: &parlor_client::Error) -> Response {
    tracing::error!(%error, "cannot read sessions for the page");
    let message = "The server cannot read its sessions; `parlor logs` says why.\n";
    (StatusCode::SERVICE_UNAVAILABLE, message).into_response()
}
