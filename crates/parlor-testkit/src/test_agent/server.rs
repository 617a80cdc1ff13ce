//! The agent: what its threads share, and the loop that reads lines.

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

use super::json;
use super::output::Output;
use super::say::Voice;
use super::session::{Event, Session, Work};
use super::store::Store;
use super::{Options, failed, turn};

/// How many questions to the client may be open.
const MAX_ASKED: usize = 10_000;
/// How long turns may take to end when the client is gone.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(200);

/// What all threads share.
#[derive(Debug)]
pub(super) struct Agent {
    pub(super) options: Options,
    pub(super) out: Output,
    pub(super) store: Store,
    /// Whether the user has logged in.
    pub(super) is_logged_in: AtomicBool,
    /// The client, once it said hello.
    pub(super) peer: Mutex<Option<Arc<Peer>>>,
    sessions: Mutex<BTreeMap<String, Arc<Session>>>,
    asked: Mutex<OutgoingRequests<Sender<Event>>>,
    /// The sessions that are being closed.
    closing: Mutex<BTreeSet<String>>,
    /// Differs from process to process, so that ids do not come back.
    tag: u64,
    ids: AtomicU64,
    /// How many threads do turns, and the sign that one has ended.
    working: Mutex<usize>,
    ended: Condvar,
}

/// The client of the connection.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) voice: Voice,
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
        peer: Mutex::default(),
        sessions: Mutex::default(),
        asked: Mutex::new(OutgoingRequests::new(MAX_ASKED)),
        closing: Mutex::default(),
        tag: random(),
        ids: AtomicU64::new(1),
        working: Mutex::new(0),
        ended: Condvar::new(),
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
            agent.line(frame.parse(agent.batches()));
        }
        if read == 0 {
            agent.end();
            return Ok(());
        }
        agent.out.flush();
    }
}

impl Agent {
    fn line(self: &Arc<Self>, line: Result<Incoming<'_>, Malformed>) {
        match line {
            Ok(Incoming::One(message)) => self.message(&message),
            Ok(Incoming::Batch(messages)) => {
                for message in messages {
                    match message {
                        Ok(message) => self.message(&message),
                        Err(malformed) => self.complain(&malformed),
                    }
                }
            }
            Err(malformed) => self.complain(&malformed),
        }
    }

    fn complain(&self, malformed: &Malformed) {
        if let Some(answer) = malformed.response() {
            self.out.line(&answer);
        }
    }

    fn message(self: &Arc<Self>, message: &Message<'_>) {
        let params = message.params().and_then(|params| Object::parse(params).ok()).unwrap_or_default();
        match &message.body {
            Body::Request { id, method, .. } => {
                if let Err(error) = self.request(id, method, &params) {
                    self.refuse(id, &error);
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
                        self.take_back(&request);
                    }
                }
                _ => {}
            },
            Body::Response { id, outcome } => {
                // An answer to nothing, or to a turn that has ended, is nobody's.
                if let Some(turn) = self.asked().complete(id) {
                    let answer = match outcome {
                        Outcome::Result(result) => Ok(Json::from(*result)),
                        Outcome::Error(error) => Err(RpcError::from_raw(*error)),
                    };
                    let _ = turn.send(Event::Answer(id.clone(), answer));
                }
            }
        }
    }

    /// Hands work to a session, where it waits if it must and may.
    pub(super) fn submit(
        self: &Arc<Self>,
        session: &Arc<Session>,
        peer: &Arc<Peer>,
        work: Work,
    ) -> Result<(), RpcError> {
        let work = match work {
            Work::Own(steps) if peer.voice.is_v1() => {
                turn::aside(self, session, peer, steps);
                return Ok(());
            }
            work @ (Work::Own(_) | Work::Prompt { .. }) => work,
        };
        let Some(job) = session.lock().submit(work, !peer.voice.is_v1())? else { return Ok(()) };
        let (agent, session, peer) = (Arc::clone(self), Arc::clone(session), Arc::clone(peer));
        *lock(&self.working) += 1;
        thread::spawn(move || {
            turn::work(&agent, &session, &peer, job);
            *lock(&agent.working) -= 1;
            agent.ended.notify_all();
        });
        Ok(())
    }

    /// Ends the turn of a session, and the prompts that wait for theirs.
    pub(super) fn cancel(&self, session: &Session) {
        let mut state = session.lock();
        // First those that wait, so that the end of the turn is the end of it all.
        for request in state.take_held() {
            self.refuse(&request, &RpcError::new(code::REQUEST_CANCELLED, "cancelled before its turn"));
        }
        state.stop();
    }

    fn take_back(&self, request: &RequestId) {
        for session in self.sessions().values() {
            let mut state = session.lock();
            if state.take_back(request) {
                self.refuse(request, &RpcError::new(code::REQUEST_CANCELLED, "taken back before its turn"));
            } else if state.answers(request) && self.peer().is_ok_and(|peer| peer.voice.is_v1()) {
                state.stop();
            }
        }
    }

    /// Ends all turns, but does not wait long for them: the client is gone.
    fn end(&self) {
        let sessions: Vec<_> = self.sessions().values().cloned().collect();
        for session in sessions {
            // Prompts that are held get no answer: to write one could take as long as nobody reads.
            let mut state = session.lock();
            state.take_held();
            state.stop();
        }
        let working = lock(&self.working);
        let _ = self.ended.wait_timeout_while(working, DRAIN_TIMEOUT, |working| *working > 0);
        self.out.flush_if_free();
    }

    /// Answers a request.
    pub(super) fn answer(&self, request: &RequestId, result: &str) {
        self.out.line(&write::response(request, json::value(result.to_owned()).raw()));
    }

    fn refuse(&self, request: &RequestId, error: &RpcError) {
        self.out.line(&write::error_response(request, error));
    }

    /// Sends an update of a session.
    pub(super) fn update(&self, session: &str, update: &str) {
        self.out.line(&update_line(session, update));
    }

    /// Keeps a session as it is now.
    pub(super) fn save(&self, session: &Session) {
        let state = session.lock();
        // A session that cannot be kept is still good for as long as the agent runs.
        if !state.is_deleted {
            let _ = self.store.put(&state.saved);
        }
    }

    /// The client, or the error for one that has not said hello.
    pub(super) fn peer(&self) -> Result<Arc<Peer>, RpcError> {
        let missing = || RpcError::new(code::INVALID_REQUEST, "`initialize` comes first");
        lock(&self.peer).clone().ok_or_else(missing)
    }

    fn batches(&self) -> Batches {
        self.peer().map_or(Batches::Refuse, |peer| peer.voice.dialect.batches())
    }

    /// The open sessions.
    pub(super) fn sessions(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Session>>> {
        lock(&self.sessions)
    }

    /// The sessions that are being closed.
    pub(super) fn closing(&self) -> MutexGuard<'_, BTreeSet<String>> {
        lock(&self.closing)
    }

    /// An open session.
    pub(super) fn session(&self, id: &str) -> Option<Arc<Session>> {
        self.sessions().get(id).cloned()
    }

    /// The questions to the client that have no answer yet.
    pub(super) fn asked(&self) -> MutexGuard<'_, OutgoingRequests<Sender<Event>>> {
        lock(&self.asked)
    }

    /// An id that no message, tool call or terminal of any session has.
    pub(super) fn fresh_id(&self) -> String {
        format!("{:08x}-{}", self.tag & 0xffff_ffff, self.ids.fetch_add(1, Ordering::Relaxed))
    }
}

impl Peer {
    /// Whether the client can do something, named by the way to it in its capabilities.
    pub(super) fn offers(&self, way: &[&str]) -> bool {
        let Some((last, way)) = way.split_last() else { return false };
        let holder = way.iter().try_fold(self.capabilities.clone(), |object, name| object.get_object(name));
        holder.and_then(|holder| holder.get(last).map(|value| !matches!(value.as_str(), "null" | "false")))
            == Some(true)
    }
}

/// The line that sends an update.
pub(super) fn update_line(session: &str, update: &str) -> String {
    let params = ObjectWriter::new().str("sessionId", session).raw("update", update).finish();
    write::notification("session/update", Some(json::value(params).raw()))
}

/// A number that differs from time to time. Ids need no more, and the standard library has no other source.
pub(super) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
