//! The agent's connection to the sessions: outgoing lines, and requests that wait for their responses.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use parlor_json::{Json, Object};
use parlor_server::hub::Hub;
use parlor_session::{MessageId, SessionId, Transcript};
use parlor_wire::{OutgoingRequests, RequestId, RpcError, cancel_line, write};
use tokio::sync::{mpsc, oneshot};

use crate::RequestError;

/// How many lines wait until the hub reads them. When there are more, the sender waits.
pub(crate) const MAX_LINES: usize = 256;

/// How many requests of the agent may be without a response.
pub(crate) const MAX_REQUESTS: usize = 1000;

/// The hub, once it has been created.
pub(crate) type HubCell = Arc<OnceLock<Weak<Hub>>>;

/// Receives the response to a request.
type ResponseSender = oneshot::Sender<Result<Object, RpcError>>;

/// The agent's connection to the sessions.
pub(crate) struct AgentConnection {
    lines: mpsc::Sender<String>,
    /// The requests without a response; `None` when the connection is closed.
    requests: Mutex<Option<OutgoingRequests<ResponseSender>>>,
    hub: HubCell,
}

/// A request without a response. Dropping it cancels the request.
struct RequestGuard {
    connection: Arc<AgentConnection>,
    id: RequestId,
}

impl AgentConnection {
    /// Creates a connection, and the receiver of its lines.
    pub(crate) fn new(hub: &HubCell) -> (Arc<Self>, mpsc::Receiver<String>) {
        let (lines, receiver) = mpsc::channel(MAX_LINES);
        let requests = Mutex::new(Some(OutgoingRequests::new(MAX_REQUESTS)));
        (Arc::new(Self { lines, requests, hub: Arc::clone(hub) }), receiver)
    }

    /// Sends a line with its line end. It is dropped if the hub is gone.
    pub(crate) async fn send_line(&self, line: String) {
        let _ = self.lines.send(line).await;
    }

    /// Sends a message without a line end.
    pub(crate) async fn send_message(&self, mut line: String) {
        line.push('\n');
        self.send_line(line).await;
    }

    /// Sends a request to the session, and waits for the response.
    pub(crate) async fn request(
        self: &Arc<Self>,
        method: &str,
        params: String,
    ) -> Result<Object, RequestError> {
        let (sender, response) = oneshot::channel();
        let params = Json::parse(params).expect("params are written as JSON");
        let id = {
            let mut requests = lock(&self.requests);
            let requests = requests.as_mut().ok_or(RequestError::SessionClosed)?;
            requests.register(sender).map_err(|_| RequestError::TooManyRequests)?
        };
        let _guard = RequestGuard { connection: Arc::clone(self), id: id.clone() };
        self.send_message(write::request(&id, method, Some(params.raw()))).await;
        match response.await {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(error)) => Err(RequestError::from_response(method, error)),
            Err(_) => Err(RequestError::SessionClosed),
        }
    }

    /// Handles the response to a request.
    pub(crate) fn on_response(&self, id: &RequestId, response: Result<Object, RpcError>) {
        if let Some(sender) = lock(&self.requests).as_mut().and_then(|requests| requests.complete(id)) {
            // The request may have been dropped just now.
            let _ = sender.send(response);
        }
    }

    /// Fails all requests, and later ones.
    pub(crate) fn close(&self) {
        *lock(&self.requests) = None;
    }

    /// The transcript of a session, once it contains this message.
    pub(crate) async fn transcript(
        &self,
        session: &SessionId,
        message: Option<MessageId>,
    ) -> Option<Transcript> {
        let hub = self.hub.get().and_then(Weak::upgrade)?;
        hub.transcript(session, message).await
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        let mut requests = lock(&self.connection.requests);
        let is_open = requests.as_mut().is_some_and(|requests| requests.complete(&self.id).is_some());
        drop(requests);
        if let Ok(runtime) = tokio::runtime::Handle::try_current()
            && is_open
        {
            let (connection, cancel) = (Arc::clone(&self.connection), cancel_line(&self.id));
            runtime.spawn(async move { connection.send_message(cancel).await });
        }
    }
}

/// Locks a mutex. Its data is valid also after a panic: no update of it can panic halfway.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
