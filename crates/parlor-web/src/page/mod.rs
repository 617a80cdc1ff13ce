//! The page: the list of sessions and the conversation of one.

mod action;
mod archive;
mod clients;
mod compress;
mod conversation;
mod directories;
mod feed;
mod hub_client;
mod inbox;
mod keys;
mod layout;
mod list_feed;
mod media;
mod new_session;
mod perform;
mod prompt;
mod regions;
mod search;
mod session_row;
mod side;
mod tab;
mod to_tab;

use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, HeaderName, StatusCode, Uri, header};
use axum::middleware;
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use jiff::Timestamp;
use maud::Markup;
use parlor_client::{Client, Snapshot};
use parlor_server::browsers::SignedIn;
use parlor_server::hub::{ClientRole, Hub};
use parlor_server::transport::{Page, PageUpgrade};
use parlor_session::{Entry, SessionId};
use serde::Deserialize;

use self::feed::Feeds;
use self::hub_client::HubConnector;
use self::layout::Frame;
use self::list_feed::{ListFeed, ListUnavailable, ListView};
use self::new_session::AgentChoiceRow;
use self::search::{ResultsPlace, SearchResults};
use self::session_row::SessionRow;
use self::side::ShownPage;
use crate::export::Export;

/// What the page may load and do: its own style sheet, script and media, and connections to its own server.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; media-src 'self'; connect-src 'self'; \
    form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// The page of a server.
pub fn page(hub: Arc<Hub>) -> Page {
    let assets = Router::new()
        .route(
            "/assets/page.js",
            get(async |uri: Uri, headers: HeaderMap| compress::SCRIPT.response(&uri, &headers)),
        )
        .route(
            "/assets/icon.svg",
            get(async |uri: Uri, headers: HeaderMap| compress::ICON.response(&uri, &headers)),
        )
        .route(
            "/assets/page.css",
            get(async |uri: Uri, headers: HeaderMap| compress::STYLE.response(&uri, &headers)),
        );
    Page { routes: routes(hub), assets, signed_out }
}

/// The page for a browser that is not signed in.
fn signed_out(status: StatusCode, reason: &str) -> Response {
    respond(status, layout::signed_out(reason))
}

/// What a browser that may only watch is told instead of the inbox and the form of a new session.
const OBSERVER: &str = "This browser may only watch. `parlor open` signs in one that may act.";

/// What the routes and the tabs share.
struct PageState {
    feeds: Feeds,
    lists: Arc<ListFeed>,
    hub: Arc<Hub>,
}

fn routes(hub: Arc<Hub>) -> Router {
    Router::new()
        .route("/", get(index))
        .route("/s/{id}", get(session))
        .route("/s/{id}/media/{place}", get(session_media))
        .route("/s/{id}/export", get(session_export))
        .route("/live", get(live))
        .route("/inbox", get(inbox))
        .route("/archived", get(archived))
        .route("/search", get(search))
        .route("/new", get(new))
        .route("/complete", get(complete))
        .route("/keys", get(keys))
        .layer(middleware::from_fn(compress::compress))
        .with_state(Arc::new(PageState {
            feeds: Feeds::default(),
            lists: ListFeed::new(Arc::clone(&hub)),
            hub,
        }))
}

/// The WebSocket of a tab.
async fn live(State(state): State<Arc<PageState>>, upgrade: PageUpgrade) -> Response {
    upgrade.open(move |socket| tab::serve(state, socket))
}

async fn index(State(state): State<Arc<PageState>>, Extension(browser): Extension<SignedIn>) -> Response {
    let view = match state.lists.view().await {
        Ok(view) => view,
        Err(ListUnavailable) => return unavailable(),
    };
    let frame = Frame { view: &view, browser: &browser, place: ShownPage::List, query: "" };
    match new_form(&state, &view, browser.role, None).await {
        Ok(main) => respond(StatusCode::OK, layout::page("Sessions", &frame, &main, &Markup::default())),
        Err(error) => failed(&error),
    }
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
    let frame = Frame { view: &view, browser: &browser, place: ShownPage::Session(&id), query: "" };
    // Loading a page changes nothing: the session is attached as a driver when the script connects.
    match Feeds::open(&state, &id, None).await {
        Ok(Some(feed)) => {
            let connection = HubConnector::new(browser.role).connection(&state.hub);
            let agents = AgentChoiceRow::list(&connection).await.unwrap_or_default();
            let installed = agents.iter().filter(|agent| agent.is_installed());
            let agents: Vec<&str> = installed.map(AgentChoiceRow::name).collect();
            let (main, aside) = conversation::conversation(&feed, browser.role, &agents);
            respond(StatusCode::OK, layout::page(&feed.title(), &frame, &main, &aside))
        }
        Ok(None) => {
            let main = layout::message("No such session", "It may have been deleted.");
            respond(StatusCode::NOT_FOUND, layout::page("No such session", &frame, &main, &Markup::default()))
        }
        Err(error) => failed(&error),
    }
}

async fn inbox(State(state): State<Arc<PageState>>, Extension(browser): Extension<SignedIn>) -> Response {
    let view = match state.lists.view().await {
        Ok(view) => view,
        Err(ListUnavailable) => return unavailable(),
    };
    let frame = Frame { view: &view, browser: &browser, place: ShownPage::Inbox, query: "" };
    let main = match browser.role {
        ClientRole::Driver => inbox::page(&maud::PreEscaped(view.inbox.to_string())),
        ClientRole::Observer => layout::message("Inbox", OBSERVER),
    };
    respond(StatusCode::OK, layout::page("Inbox", &frame, &main, &Markup::default()))
}

async fn archived(State(state): State<Arc<PageState>>, Extension(browser): Extension<SignedIn>) -> Response {
    let view = match state.lists.view().await {
        Ok(view) => view,
        Err(ListUnavailable) => return unavailable(),
    };
    let frame = Frame { view: &view, browser: &browser, place: ShownPage::Other, query: "" };
    let main = archive::page(&maud::PreEscaped(view.archived.to_string()));
    respond(StatusCode::OK, layout::page("Archived sessions", &frame, &main, &Markup::default()))
}

#[derive(Deserialize)]
struct SearchQuery {
    #[serde(default)]
    q: String,
    /// `hits` for the results without the page around them.
    part: Option<String>,
}

async fn search(
    State(state): State<Arc<PageState>>,
    Extension(browser): Extension<SignedIn>,
    Query(query): Query<SearchQuery>,
) -> Response {
    let view = match state.lists.view().await {
        Ok(view) => view,
        Err(ListUnavailable) => return unavailable(),
    };
    let connection = HubConnector::new(ClientRole::Observer).connection(&state.hub);
    let is_part = query.part.as_deref() == Some("hits");
    let place = if is_part { ResultsPlace::Side } else { ResultsPlace::Page };
    let results = match SearchResults::find(&view, &connection, &query.q).await {
        Ok(results) => results.html(place, Timestamp::now()),
        Err(error) => return failed(&error),
    };
    if is_part {
        return respond(StatusCode::OK, results);
    }
    let frame = Frame { view: &view, browser: &browser, place: ShownPage::Search, query: &query.q };
    respond(
        StatusCode::OK,
        layout::page("Search", &frame, &search::page(&query.q, &results), &Markup::default()),
    )
}

#[derive(Deserialize)]
struct NewQuery {
    dir: Option<String>,
}

async fn new(
    State(state): State<Arc<PageState>>,
    Extension(browser): Extension<SignedIn>,
    Query(query): Query<NewQuery>,
) -> Response {
    let view = match state.lists.view().await {
        Ok(view) => view,
        Err(ListUnavailable) => return unavailable(),
    };
    let main = match new_form(&state, &view, browser.role, query.dir).await {
        Ok(main) => main,
        Err(error) => return failed(&error),
    };
    let frame = Frame { view: &view, browser: &browser, place: ShownPage::Other, query: "" };
    respond(StatusCode::OK, layout::page("New session", &frame, &main, &Markup::default()))
}

/// The form of a new session, for a browser that may create one.
async fn new_form(
    state: &PageState,
    view: &ListView,
    role: ClientRole,
    directory: Option<String>,
) -> Result<Markup, parlor_client::Error> {
    if role == ClientRole::Observer {
        return Ok(layout::message("Sessions", OBSERVER));
    }
    let connection = HubConnector::new(ClientRole::Driver).connection(&state.hub);
    let agents = AgentChoiceRow::list(&connection).await?;
    let last = directory.as_deref().or_else(|| view.rows.first().map(|row| row.cwd.as_str()));
    Ok(new_session::page(&agents, &new_session::first_directory(last), view.rows.is_empty()))
}

#[derive(Deserialize)]
struct CompleteQuery {
    dir: String,
}

/// The directories that begin with what a person typed.
async fn complete(Extension(browser): Extension<SignedIn>, Query(query): Query<CompleteQuery>) -> Response {
    if browser.role == ClientRole::Observer {
        return (StatusCode::FORBIDDEN, OBSERVER).into_response();
    }
    let found = directories::complete(query.dir).await;
    let found = parlor_json::Json::array(found.iter().map(|path| parlor_json::Json::from(path.as_str())));
    ([(header::CONTENT_TYPE, "application/json")], found.as_str().to_owned()).into_response()
}

async fn keys(State(state): State<Arc<PageState>>, Extension(browser): Extension<SignedIn>) -> Response {
    let view = match state.lists.view().await {
        Ok(view) => view,
        Err(ListUnavailable) => return unavailable(),
    };
    let frame = Frame { view: &view, browser: &browser, place: ShownPage::Other, query: "" };
    respond(StatusCode::OK, layout::page("Keys", &frame, &keys::page(), &Markup::default()))
}

/// An image or a sound of a session.
async fn session_media(
    State(state): State<Arc<PageState>>,
    Path((id, place)): Path<(String, String)>,
) -> Response {
    let feed = match Feeds::open(&state, &SessionId::from(id.as_str()), None).await {
        Ok(Some(feed)) => feed,
        Ok(None) => return StatusCode::NOT_FOUND.into_response(),
        Err(error) => return failed(&error),
    };
    match feed.media(&place).await {
        Ok(Some(media)) => media.into_response(),
        Ok(None) => StatusCode::NOT_FOUND.into_response(),
        Err(error) => failed(&error),
    }
}

/// A whole session, to be kept as a file.
async fn session_export(State(state): State<Arc<PageState>>, Path(id): Path<String>) -> Response {
    let view = match state.lists.view().await {
        Ok(view) => view,
        Err(ListUnavailable) => return unavailable(),
    };
    match read_transcript(&state.hub, &view, &SessionId::from(id.as_str())).await {
        Ok(None) => StatusCode::NOT_FOUND.into_response(),
        Ok(Some((row, transcript))) => {
            let facts = [
                ("Session", row.id.to_string()),
                ("Agent", row.agent.clone()),
                ("Directory", row.cwd.clone()),
            ];
            let export = Export {
                title: &row.title,
                authors: &row.authors,
                cwd: &row.cwd,
                facts: &facts,
                transcript: &transcript,
            };
            let page = export.render(created_at);
            let name = format!("attachment; filename=\"{}.html\"", crate::render::text::percent_encoded(&id));
            ([(header::CONTENT_DISPOSITION, name)], Html(page.into_string())).into_response()
        }
        Err(error) => failed(&error),
    }
}

/// Reads a session as an observer that leaves at once.
async fn read_transcript(
    hub: &Arc<Hub>,
    view: &ListView,
    id: &SessionId,
) -> Result<Option<(SessionRow, Snapshot)>, parlor_client::Error> {
    let client = HubConnector::new(ClientRole::Observer).with_times().connect(hub).await?;
    let read = async {
        let Some(row) = row_of(&client, view, id).await? else { return Ok(None) };
        let session = client.load(&row.id, std::path::Path::new(&row.cwd)).await?;
        Ok(Some((row, session.transcript())))
    };
    let read = read.await;
    client.disconnect().await;
    read
}

/// A session as it is listed. The list that is followed may be older than the session, and has no subagents.
async fn row_of(
    client: &Client,
    view: &ListView,
    id: &SessionId,
) -> Result<Option<SessionRow>, parlor_client::Error> {
    if let Some(row) = view.row(id) {
        return Ok(Some(row.clone()));
    }
    let listed = client.list_with_subagents().await?;
    Ok(listed.iter().find(|listed| listed.id == *id).map(SessionRow::new))
}

/// When an entry was created, as far as the server said.
fn created_at(entry: &Entry) -> Option<Timestamp> {
    let at = entry.body().meta.as_ref()?.get("parlor/at")?;
    Timestamp::from_millisecond(at.as_str().parse().ok()?).ok()
}

fn respond(status: StatusCode, page: Markup) -> Response {
    let headers: [(HeaderName, &str); 2] = [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ];
    (status, headers, Html(page.into_string())).into_response()
}

fn unavailable() -> Response {
    let message = "The server cannot list its sessions; `parlor logs` says why.";
    respond(StatusCode::SERVICE_UNAVAILABLE, layout::problem("The sessions cannot be listed", message))
}

fn failed(error: &parlor_client::Error) -> Response {
    tracing::error!(%error, "cannot read sessions for the page");
    let message = "The server cannot read its sessions; `parlor logs` says why.";
    respond(StatusCode::SERVICE_UNAVAILABLE, layout::problem("The session cannot be read", message))
}
