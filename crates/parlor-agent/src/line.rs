//! How an agent speaks: lines to the sessions, and questions that wait for their answers.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use parlor_json::{Json, Object};
use parlor_server::hub::Hub;
use parlor_session::{MessageId, SessionId, Transcript};
use parlor_wire::{OutgoingRequests, RequestId, RpcError, cancel_line, code, write};
use tokio::sync::{mpsc, oneshot};

/// How many lines wait to be read by the hub. Who says more waits.
pub(crate) const LINES: usize = 256;

/// How many questions may be without an answer.
const MAX_ASKED: usize = 1000;

/// Where the hub is found once there is one.
pub(crate) type Home = Arc<OnceLock<Weak<Hub>>>;

/// What waits for the answer to a question.
type Reply = oneshot::Sender<Result<Object, RpcError>>;

/// An agent's way to the sessions.
pub(crate) struct Line {
    lines: mpsc::Sender<String>,
    /// The questions that are open; none once nobody is left who could answer.
    asked: Mutex<Option<OutgoingRequests<Reply>>>,
    home: Home,
}

/// A question that is open. Dropped before its answer came, it is taken back.
struct Open {
    line: Arc<Line>,
    id: RequestId,
}

impl Line {
    /// A line, and the end at which it is read.
    pub(crate) fn new(home: &Home) -> (Arc<Self>, mpsc::Receiver<String>) {
        let (lines, said) = mpsc::channel(LINES);
        let line =
            Self { lines, asked: Mutex::new(Some(OutgoingRequests::new(MAX_ASKED))), home: Arc::clone(home) };
        (Arc::new(line), said)
    }

    /// Says a line, which has its end. When the hub is gone nobody hears it.
    pub(crate) async fn say(&self, line: String) {
        let _ = self.lines.send(line).await;
    }

    /// Says a message, which has no end yet.
    pub(crate) async fn message(&self, mut line: String) {
        line.push('\n');
        self.say(line).await;
    }

    /// Asks the client.
    pub(crate) async fn ask(self: &Arc<Self>, method: &str, params: String) -> Result<Object, RpcError> {
        let gone = || RpcError::new(code::INTERNAL_ERROR, "nobody is there any more");
        let (reply, answer) = oneshot::channel();
        let params = Json::parse(params).map_err(|_| RpcError::new(code::INTERNAL_ERROR, "no params"))?;
        let too_many = || RpcError::new(code::INTERNAL_ERROR, "too many questions are open");
        let id = lock(&self.asked).as_mut().ok_or_else(gone)?.register(reply).map_err(|_| too_many())?;
        let _open = Open { line: Arc::clone(self), id: id.clone() };
        self.message(write::request(&id, method, Some(params.raw()))).await;
        answer.await.unwrap_or_else(|_| Err(gone()))
    }

    /// A question is answered.
    pub(crate) fn answered(&self, id: &RequestId, answer: Result<Object, RpcError>) {
        if let Some(reply) = lock(&self.asked).as_mut().and_then(|asked| asked.complete(id)) {
            // Who asked may have given up just now.
            let _ = reply.send(answer);
        }
    }

    /// Nobody is left who could answer.
    pub(crate) fn hang_up(&self) {
        *lock(&self.asked) = None;
    }

    /// What was said in a session, once this message is in it.
    pub(crate) async fn transcript(
        &self,
        session: &SessionId,
        message: Option<MessageId>,
    ) -> Option<Transcript> {
        self.hub()?.transcript(session, message).await
    }

    fn hub(&self) -> Option<Arc<Hub>> {
        self.home.get().and_then(Weak::upgrade)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let is_open = lock(&self.line.asked).as_mut().is_some_and(|asked| asked.complete(&self.id).is_some());
        if let Ok(runtime) = tokio::runtime::Handle::try_current()
            && is_open
        {
            let (line, taken_back) = (Arc::clone(&self.line), cancel_line(&self.id));
            runtime.spawn(async move { line.message(taken_back).await });
        }
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
