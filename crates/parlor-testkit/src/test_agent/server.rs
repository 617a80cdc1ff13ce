//! The state that threads share, and the loop that reads lines.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use parlor_json::{Json, Object, ObjectWriter};
use parlor_wire::{
    Batches, Body, CANCEL_REQUEST, Incoming, LineDecoder, Malformed, Message, Outcome, OutgoingRequests,
    RequestId, RpcError, cancel_target, code, write,
};

use super::encode::Encoder;
use super::json;
use super::output::Output;
use super::session::{Event, Session, Work};
use super::store::Store;
use super::{Options, failed, turn};

/// The most open requests to the client.
const MAX_CLIENT_REQUESTS: usize = 10_000;
/// How long turns may take to end when the client has disconnected.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(200);

/// The state that threads share.
#[derive(Debug)]
pub(super) struct Agent {
    pub(super) options: Options,
    pub(super) out: Output,
    pub(super) store: Store,
    /// Whether the user has logged in.
    pub(super) is_logged_in: AtomicBool,
    /// `None` before `initialize`.
    pub(super) client: Mutex<Option<Arc<ClientInfo>>>,
    sessions: Mutex<BTreeMap<String, Arc<Session>>>,
    client_requests: Mutex<OutgoingRequests<Sender<Event>>>,
    /// The sessions that are being closed.
    closing: Mutex<BTreeSet<String>>,
    /// Random per process, so that ids of different processes differ.
    tag: u64,
    ids: AtomicU64,
    /// The number of running turns.
    running_turns: Mutex<usize>,
    turn_ended: Condvar,
}

/// The client of the connection.
#[derive(Debug)]
pub(super) struct ClientInfo {
    pub(super) encoder: Encoder,
    pub(super) capabilities: Object,
}

/// Serves a client on standard input and output until it closes its end.
pub(super) fn serve(options: Options) -> io::Result<()> {
    let store = Store::open(options.state.as_deref())
        .map_err(|error| failed("cannot use the folder of --state", &error))?;
    let agent = Arc::new(Agent {
        options,
        out: Output::default(),
        store,
        is_logged_in: AtomicBool::new(false),
        client: Mutex::default(),
        sessions: Mutex::default(),
        client_requests: Mutex::new(OutgoingRequests::new(MAX_CLIENT_REQUESTS)),
        closing: Mutex::default(),
        tag: random(),
        ids: AtomicU64::new(1),
        running_turns: Mutex::new(0),
        turn_ended: Condvar::new(),
    });
    let (mut lines, mut buffer) = (LineDecoder::default(), vec![0; 64 * 1024]);
    let mut stdin = io::stdin().lock();
    loop {
        let read = match stdin.read(&mut buffer) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(failed("cannot read the input", &error)),
        };
        if read == 0 {
            lines.finish();
        } else {
            lines.extend(&buffer[..read]);
        }
        while let Some(frame) = lines.next_line() {
            agent.on_line(frame.parse(agent.batches()));
        }
        if read == 0 {
            agent.end();
            return Ok(());
        }
        agent.out.flush();
    }
}

impl Agent {
    fn on_line(self: &Arc<Self>, line: Result<Incoming<'_>, Malformed>) {
        match line {
            Ok(Incoming::One(message)) => self.on_message(&message),
            Ok(Incoming::Batch(messages)) => {
                for message in messages {
                    match message {
                        Ok(message) => self.on_message(&message),
                        Err(malformed) => self.on_malformed(&malformed),
                    }
                }
            }
            Err(malformed) => self.on_malformed(&malformed),
        }
    }

    fn on_malformed(&self, malformed: &Malformed) {
        if let Some(answer) = malformed.response() {
            self.out.line(&answer);
        }
    }

    fn on_message(self: &Arc<Self>, message: &Message<'_>) {
        let params = message.params().and_then(|params| Object::parse(params).ok()).unwrap_or_default();
        match &message.body {
            Body::Request { id, method, .. } => {
                if let Err(error) = self.on_request(id, method, &params) {
                    self.respond_error(id, &error);
                }
            }
            Body::Notification { method, .. } => match method.as_ref() {
                "session/cancel" => {
                    let session = params.get_string("sessionId").and_then(|id| self.session(&id));
                    if let Some(session) = session {
                        self.cancel(&session);
                    }
                }
                CANCEL_REQUEST => {
                    if let Some(request) = cancel_target(message.params()) {
                        self.withdraw(&request);
                    }
                }
                _ => {}
            },
            Body::Response { id, outcome } => {
                // Responses without a request, or of a turn that has ended, are ignored.
                if let Some(turn) = self.client_requests().complete(id) {
                    let answer = match outcome {
                        Outcome::Result(result) => Ok(Json::from(*result)),
                        Outcome::Error(error) => Err(RpcError::from_raw(*error)),
                    };
                    let _ = turn.send(Event::Response(id.clone(), answer));
                }
            }
        }
    }

    /// Starts work in a session, or queues it during a turn of v2.
    pub(super) fn submit(
        self: &Arc<Self>,
        session: &Arc<Session>,
        client: &Arc<ClientInfo>,
        work: Work,
    ) -> Result<(), RpcError> {
        let work = match work {
            Work::Unprompted(steps) if client.encoder.is_v1() => {
                turn::run_outside_turn(self, session, client, steps);
                return Ok(());
            }
            work @ (Work::Unprompted(_) | Work::Prompt { .. }) => work,
        };
        let Some(job) = session.lock().submit(work, !client.encoder.is_v1())? else { return Ok(()) };
        let (agent, session, client) = (Arc::clone(self), Arc::clone(session), Arc::clone(client));
        *lock(&self.running_turns) += 1;
        thread::spawn(move || {
            turn::work(&agent, &session, &client, job);
            *lock(&agent.running_turns) -= 1;
            agent.turn_ended.notify_all();
        });
        Ok(())
    }

    /// Cancels the turn and the queued prompts of a session.
    pub(super) fn cancel(&self, session: &Session) {
        let mut state = session.lock();
        // Queued prompts first, so that the end of the turn is the last message about the session.
        for request in state.clear_queue() {
            self.respond_error(&request, &RpcError::new(code::REQUEST_CANCELLED, "cancelled while queued"));
        }
        state.stop();
    }

    fn withdraw(&self, request: &RequestId) {
        for session in self.sessions().values() {
            let mut state = session.lock();
            if state.withdraw(request) {
                self.respond_error(
                    request,
                    &RpcError::new(code::REQUEST_CANCELLED, "withdrawn from the queue"),
                );
            } else if state.answers(request) && self.client().is_ok_and(|client| client.encoder.is_v1()) {
                state.stop();
            }
        }
    }

    /// Cancels all turns, but does not wait long for them: the client has disconnected.
    fn end(&self) {
        let sessions: Vec<_> = self.sessions().values().cloned().collect();
        for session in sessions {
            // Queued prompts get no response: writing one blocks while the client does not read.
            let mut state = session.lock();
            state.clear_queue();
            state.stop();
        }
        let running = lock(&self.running_turns);
        let _ = self.turn_ended.wait_timeout_while(running, DRAIN_TIMEOUT, |running| *running > 0);
        self.out.flush_if_free();
    }

    /// Sends the result of a request.
    pub(super) fn respond(&self, request: &RequestId, result: &str) {
        self.out.line(&write::response(request, json::value(result.to_owned()).raw()));
    }

    fn respond_error(&self, request: &RequestId, error: &RpcError) {
        self.out.line(&write::error_response(request, error));
    }

    /// Sends an update of a session.
    pub(super) fn update(&self, session: &str, update: &str) {
        self.out.line(&update_line(session, update));
    }

    /// Stores a session.
    pub(super) fn save(&self, session: &Session) {
        let state = session.lock();
        // A session that cannot be stored stays usable in this process.
        if !state.is_deleted {
            let _ = self.store.put(&state.saved);
        }
    }

    /// Returns the client, or an error before `initialize`.
    pub(super) fn client(&self) -> Result<Arc<ClientInfo>, RpcError> {
        let missing = || RpcError::new(code::INVALID_REQUEST, "the first request must be `initialize`");
        lock(&self.client).clone().ok_or_else(missing)
    }

    fn batches(&self) -> Batches {
        self.client().map_or(Batches::Refuse, |client| client.encoder.dialect.batches())
    }

    /// Locks the open sessions.
    pub(super) fn sessions(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Session>>> {
        lock(&self.sessions)
    }

    /// The sessions that are being closed.
    pub(super) fn closing(&self) -> MutexGuard<'_, BTreeSet<String>> {
        lock(&self.closing)
    }

    /// Returns a session if it is open.
    pub(super) fn session(&self, id: &str) -> Option<Arc<Session>> {
        self.sessions().get(id).cloned()
    }

    /// Locks the requests to the client that have no response yet.
    pub(super) fn client_requests(&self) -> MutexGuard<'_, OutgoingRequests<Sender<Event>>> {
        lock(&self.client_requests)
    }

    /// Returns a new id for a message, tool call or terminal, unique across processes.
    pub(super) fn new_id(&self) -> String {
        format!("{:08x}-{}", self.tag & 0xffff_ffff, self.ids.fetch_add(1, Ordering::Relaxed))
    }
}

impl ClientInfo {
    /// Whether the client has a capability, given by its path.
    pub(super) fn has_capability(&self, path: &[&str]) -> bool {
        let Some((last, parents)) = path.split_last() else { return false };
        let holder =
            parents.iter().try_fold(self.capabilities.clone(), |object, name| object.get_object(name));
        holder.and_then(|holder| holder.get(last).map(|value| !matches!(value.as_str(), "null" | "false")))
            == Some(true)
    }
}

/// Encodes the notification of an update.
pub(super) fn update_line(session: &str, update: &str) -> String {
    let params = ObjectWriter::new().str("sessionId", session).raw("update", update).finish();
    write::notification("session/update", Some(json::value(params).raw()))
}

/// Returns a random number for ids, from the only source in the standard library.
pub(super) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
