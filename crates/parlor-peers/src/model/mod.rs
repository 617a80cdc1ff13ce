//! A stand-in for the models of real agents: an HTTP server that answers requests as a test has told it to, and keeps them.
//!
//! It has the APIs that the agents call: Anthropic messages, `OpenAI` responses and chat completions, and Gemini. A test says what
//! the model answers to prompts that contain a word ([`Model::reply`]). A reply can stop in the middle until the test lets it
//! continue ([`Hold`]), so that nothing depends on how fast the agents are. [`Model::requests`] has everything that the model
//! was given: it proves what an agent knows.

mod anthropic;
mod chat;
mod gemini;
mod request;
mod responses;

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;

pub use request::{Api, ModelRequest};

/// The largest request that is read.
const MAX_REQUEST: usize = 32 * 1024 * 1024;

/// How many requests are kept; a test that makes more has a loop that does not end.
const MAX_REQUESTS: usize = 10_000;

/// The text of a reply to a request without tools: agents make these for titles and summaries.
const AUXILIARY_TEXT: &str = "Stand-in title";

/// The text of a reply to a prompt that the test said nothing about.
const DEFAULT_TEXT: &str = "The stand-in model has no reply to this.";

/// A running stand-in model. It ends when it is dropped.
#[derive(Debug)]
pub struct Model {
    address: SocketAddr,
    shared: Arc<Shared>,
    runtime: Option<Runtime>,
}

#[derive(Debug, Default)]
struct Shared {
    replies: Mutex<HashMap<String, Reply>>,
    requests: Mutex<Vec<ModelRequest>>,
    other: Mutex<Vec<String>>,
}

/// What the model answers to a prompt.
#[derive(Debug, Clone)]
pub struct Reply {
    thinking: Option<String>,
    body: ReplyBody,
    pace: Duration,
    hold: Option<watch::Receiver<bool>>,
}

#[derive(Debug, Clone)]
enum ReplyBody {
    Text(Vec<String>),
    Tool { name: String, arguments: Value, then: String },
    Error { status: u16, message: String },
}

/// Keeps a reply after its first part until the test lets it continue.
#[derive(Debug)]
pub struct Hold(watch::Sender<bool>);

impl Hold {
    /// Lets the reply continue.
    pub fn release(&self) {
        self.0.send_replace(true);
    }
}

impl Reply {
    fn new(body: ReplyBody) -> Self {
        Self { thinking: None, body, pace: Duration::ZERO, hold: None }
    }

    /// A text, streamed in these parts.
    pub fn text(parts: &[&str]) -> Self {
        Self::new(ReplyBody::Text(parts.iter().map(|&part| part.to_owned()).collect()))
    }

    /// A call of a tool, and the text when the model has its result. In the responses API, `NAMESPACE.NAME` is a tool of a namespace.
    pub fn tool(name: &str, arguments: Value, then: &str) -> Self {
        Self::new(ReplyBody::Tool { name: name.to_owned(), arguments, then: then.to_owned() })
    }

    /// An HTTP error.
    pub fn error(status: u16, message: &str) -> Self {
        Self::new(ReplyBody::Error { status, message: message.to_owned() })
    }

    /// The same after these thoughts.
    #[must_use]
    pub fn thinking(mut self, text: &str) -> Self {
        self.thinking = Some(text.to_owned());
        self
    }

    /// The same with a pause before each part of the text.
    #[must_use]
    pub fn pace(mut self, pause: Duration) -> Self {
        self.pace = pause;
        self
    }

    /// The same, but after the first part of the text it waits until it is released.
    #[must_use]
    pub fn held(mut self) -> (Self, Hold) {
        let (sender, receiver) = watch::channel(false);
        self.hold = Some(receiver);
        (self, Hold(sender))
    }
}

/// What one response consists of, the same for all APIs.
#[derive(Debug, Clone)]
struct Answer {
    thinking: Option<String>,
    body: AnswerBody,
}

#[derive(Debug, Clone)]
enum AnswerBody {
    Text(Vec<String>),
    Tool { name: String, arguments: Value },
}

impl Answer {
    fn text(parts: Vec<String>) -> Self {
        Self { thinking: None, body: AnswerBody::Text(parts) }
    }
}

/// A part of a streamed response.
#[derive(Debug)]
struct Event {
    name: Option<&'static str>,
    data: Value,
    /// Whether it is a part of the text, in front of which a reply pauses.
    is_text: bool,
}

impl Event {
    fn new(name: Option<&'static str>, data: Value) -> Self {
        Self { name, data, is_text: false }
    }

    fn text(name: Option<&'static str>, data: Value) -> Self {
        Self { name, data, is_text: true }
    }

    fn encode(&self) -> Bytes {
        let data = self.data.as_str().map_or_else(|| self.data.to_string(), str::to_owned);
        let name = self.name.map(|name| format!("event: {name}\n")).unwrap_or_default();
        Bytes::from(format!("{name}data: {data}\n\n"))
    }
}

impl Model {
    /// Starts a model on a free port of this machine.
    pub fn start() -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::default());
        let router = Router::new().fallback(handle).with_state(Arc::clone(&shared));
        runtime.spawn(async move { axum::serve(listener, router).await });
        Ok(Self { address, shared, runtime: Some(runtime) })
    }

    /// The address of its HTTP server, without a path.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Sets the reply to prompts that contain this word. If a prompt contains several, the last one counts.
    pub fn reply(&self, word: &str, reply: Reply) {
        lock(&self.shared.replies).insert(word.to_owned(), reply);
    }

    /// Sets a reply that stops after its first part; the hold lets it continue.
    pub fn reply_held(&self, word: &str, reply: Reply) -> Hold {
        let (reply, hold) = reply.held();
        self.reply(word, reply);
        hold
    }

    /// The requests so far, in order.
    pub fn requests(&self) -> Vec<ModelRequest> {
        lock(&self.shared.requests).clone()
    }

    /// The methods and paths of requests that are none of the APIs' for replies.
    pub fn other_requests(&self) -> Vec<String> {
        lock(&self.shared.other).clone()
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn handle(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path().to_owned();
    let Ok(body) = to_bytes(body, MAX_REQUEST).await else {
        return json_response(StatusCode::PAYLOAD_TOO_LARGE, &error_body("the request is too large"));
    };
    let Some(api) = (parts.method == Method::POST).then(|| Api::of_path(&path)).flatten() else {
        return handle_other(&shared, &parts.method, &path);
    };
    let Ok(body) = serde_json::from_slice::<Value>(&body) else {
        return json_response(StatusCode::BAD_REQUEST, &error_body("the request is not JSON"));
    };
    let request = ModelRequest::read(api, &path, &body);
    let reply = shared.reply_to(&request);
    {
        let mut requests = lock(&shared.requests);
        if requests.len() == MAX_REQUESTS {
            return json_response(StatusCode::TOO_MANY_REQUESTS, &error_body("too many requests"));
        }
        requests.push(request.clone());
    }
    respond(&request, reply)
}

/// Answers lists of models and counts of tokens; everything else is not found.
fn handle_other(shared: &Shared, method: &Method, path: &str) -> Response {
    lock(&shared.other).push(format!("{method} {path}"));
    if path.ends_with("/count_tokens") || path.ends_with(":countTokens") {
        return json_response(StatusCode::OK, &json!({ "input_tokens": 10, "totalTokens": 10 }));
    }
    if *method == Method::GET && path.ends_with("/models") {
        let model = json!({ "id": "stand-in", "object": "model", "type": "model", "display_name": "Stand-in",
            "created": 1, "created_at": "2026-01-01T00:00:00Z", "owned_by": "parlor", "context_length": 200_000 });
        return json_response(
            StatusCode::OK,
            &json!({ "object": "list", "data": [model], "has_more": false }),
        );
    }
    json_response(StatusCode::NOT_FOUND, &error_body(&format!("the stand-in model has no {path}")))
}

impl Shared {
    /// The reply of the word that occurs last in the prompt.
    fn reply_to(&self, request: &ModelRequest) -> Reply {
        if request.is_auxiliary() {
            return Reply::text(&[AUXILIARY_TEXT]);
        }
        let replies = lock(&self.replies);
        let found = replies.iter().filter_map(|(word, reply)| Some((request.prompt.rfind(word)?, reply)));
        let last = found.max_by_key(|&(at, _)| at).map(|(_, reply)| reply.clone());
        last.unwrap_or_else(|| Reply::text(&[DEFAULT_TEXT]))
    }
}

fn respond(request: &ModelRequest, reply: Reply) -> Response {
    let body = match reply.body {
        ReplyBody::Error { status, message } => {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            return json_response(status, &error_body(&message));
        }
        ReplyBody::Tool { then, .. } if request.has_tool_result => AnswerBody::Text(vec![then]),
        ReplyBody::Tool { name, arguments, .. } => AnswerBody::Tool { name, arguments },
        ReplyBody::Text(parts) => AnswerBody::Text(parts),
    };
    let thinking = if request.has_tool_result { None } else { reply.thinking };
    let answer = match &request.schema {
        Some(schema) if request.is_auxiliary() => Answer::text(vec![request::example(schema).to_string()]),
        _ => Answer { thinking, body },
    };
    let write = match request.api {
        Api::Anthropic => anthropic::write,
        Api::Responses => responses::write,
        Api::Chat => chat::write,
        Api::Gemini => gemini::write,
    };
    let (events, whole) = write(request, &answer);
    if !request.is_streamed {
        return json_response(StatusCode::OK, &whole);
    }
    let state = (events.into_iter(), reply.pace, reply.hold, false);
    let body = stream::unfold(state, async |(mut events, pace, mut hold, mut has_text)| {
        let event = events.next()?;
        if event.is_text {
            if has_text && let Some(hold) = hold.as_mut() {
                // If the test has dropped its end, it needs the rest no more.
                hold.wait_for(|is_released| *is_released).await.ok()?;
            }
            has_text = true;
            tokio::time::sleep(pace).await;
        }
        Some((Ok::<_, Infallible>(event.encode()), (events, pace, hold, has_text)))
    });
    let response = Response::builder().header(header::CONTENT_TYPE, "text/event-stream");
    response.body(Body::from_stream(body)).expect("the header is valid")
}

fn json_response(status: StatusCode, body: &Value) -> Response {
    let response = Response::builder().status(status).header(header::CONTENT_TYPE, "application/json");
    response.body(Body::from(body.to_string())).expect("the header is valid")
}

/// A new id for a part of a response.
fn unique(kind: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    // Other runs of an agent in the same directory have other ids.
    format!("{kind}_{:x}{:06}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// An error in a shape that the clients of all APIs read.
fn error_body(message: &str) -> Value {
    let error = json!({ "type": "invalid_request_error", "code": 400, "status": "INVALID_ARGUMENT", "message": message });
    json!({ "type": "error", "error": error })
}
