use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use futures_core::Stream;
use parlor_dialect::live;
use parlor_json::{JsonRef, JsonStr, Object};
use parlor_session::{SessionId, ToolCallId};
use parlor_wire::{RequestId, RpcError, code};
use tokio::sync::{Notify, mpsc, watch};

use crate::PermissionOptionKind;
use crate::driver::Command;
use crate::replica::Position;

/// A request from the agent, such as one for permission. Dropping it declines it.
///
/// ```
/// use parlor_client::{PermissionOptionKind, StopReason};
///
/// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/agent.rs")); }
/// # use example::*;
/// # run(async {
/// # let client = connect().await;
/// # let session = client.new_session("/tmp".as_ref()).await?;
/// let mut requests = client.requests();
/// tokio::spawn(async move {
///     while let Some(request) = requests.next().await {
///         let mut options = request.options().into_iter();
///         match options.find(|option| option.kind == PermissionOptionKind::AllowOnce) {
///             Some(option) => request.select(&option).await,
///             None => request.decline().await,
///         }
///     }
/// });
/// let outcome = session.prompt("delete the notes").await?.await?;
/// assert_eq!(outcome.stop_reason, Some(StopReason::EndTurn));
/// # Ok(())
/// # });
/// ```
#[derive(Debug)]
pub struct PeerRequest {
    id: RequestId,
    method: String,
    params: Object,
    commands: mpsc::WeakSender<Command>,
    /// Whether the request was cancelled. `None` after the response.
    cancelled: Option<watch::Receiver<bool>>,
    abandoned: Arc<Notify>,
    /// The last change of its session when the request arrived.
    position: Option<Position>,
}

/// A stream of requests from the agent. Each request goes to one of these streams; while there is none, requests are declined
/// at once, and when the last one is dropped, those in the queue are.
///
/// It ends when the connection is closed, and does not keep it open. [`PeerRequest`] has an example.
#[derive(Debug)]
pub struct PeerRequests {
    requests: Arc<Requests>,
}

/// Requests that wait for a consumer.
#[derive(Debug, Default)]
pub(crate) struct Requests(Mutex<RequestQueue>);

#[derive(Debug, Default)]
struct RequestQueue {
    requests: VecDeque<PeerRequest>,
    consumers: usize,
    /// The tasks that wait for a request.
    wakers: Vec<Waker>,
    is_closed: bool,
}

/// One of the options of a permission request.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PermissionOption {
    /// Its id.
    pub id: JsonStr,
    /// Its name for people; the id if it has none.
    pub name: String,
    /// What selecting it means.
    pub kind: PermissionOptionKind,
}

impl Requests {
    fn queue(&self) -> MutexGuard<'_, RequestQueue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a request if there is a consumer; otherwise drops it and returns false.
    pub(crate) fn push(&self, request: PeerRequest) -> bool {
        let mut queue = self.queue();
        if queue.consumers == 0 {
            return false;
        }
        queue.requests.push_back(request);
        queue.wake();
        true
    }

    /// Removes a request that was cancelled, if it is still in the queue.
    pub(crate) fn remove(&self, id: &RequestId) {
        let mut queue = self.queue();
        let index = queue.requests.iter().position(|request| request.id == *id);
        let removed = index.and_then(|index| queue.requests.remove(index));
        drop(queue);
        drop(removed);
    }

    /// Ends the streams: the connection is closed, and what is in the queue cannot be answered.
    pub(crate) fn close(&self) {
        let mut queue = self.queue();
        queue.is_closed = true;
        let unanswered = std::mem::take(&mut queue.requests);
        queue.wake();
        drop(queue);
        drop(unanswered);
    }
}

impl RequestQueue {
    fn wake(&mut self) {
        self.wakers.drain(..).for_each(Waker::wake);
    }
}

impl PeerRequests {
    pub(crate) fn new(requests: Arc<Requests>) -> Self {
        requests.queue().consumers += 1;
        Self { requests }
    }

    /// The next request; `None` when the connection is closed. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<PeerRequest> {
        std::future::poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }
}

impl Stream for PeerRequests {
    type Item = PeerRequest;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<PeerRequest>> {
        let mut queue = self.requests.queue();
        if let Some(request) = queue.requests.pop_front() {
            return Poll::Ready(Some(request));
        }
        if queue.is_closed {
            return Poll::Ready(None);
        }
        if !queue.wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
            queue.wakers.push(cx.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for PeerRequests {
    fn drop(&mut self) {
        let mut queue = self.requests.queue();
        queue.consumers -= 1;
        let unanswered =
            if queue.consumers == 0 { std::mem::take(&mut queue.requests) } else { VecDeque::new() };
        drop(queue);
        // Each is declined as it is dropped.
        drop(unanswered);
    }
}

impl PermissionOption {
    /// The options in the params of a permission request. Those without an id are left out.
    ///
    /// ```
    /// use parlor_client::{Json, Object, PermissionOption, PermissionOptionKind};
    ///
    /// let params = Json::parse(r#"{"options":[{"optionId":"y","name":"Yes","kind":"allow_once"},{"name":"No"}]}"#);
    /// let options = PermissionOption::all_in(&Object::parse(params.unwrap().raw()).unwrap());
    /// assert_eq!(options.len(), 1);
    /// assert_eq!(options[0].kind, PermissionOptionKind::AllowOnce);
    /// ```
    pub fn all_in(params: &Object) -> Vec<Self> {
        let list = params.get_array("options");
        let option = |raw: JsonRef<'_>| {
            let option = raw.to_object()?;
            let id = option.get_json_str("optionId")?;
            let name = option.get_string("name").unwrap_or_else(|| id.to_text().into_owned());
            let kind = option.get_json_str("kind").unwrap_or_else(|| JsonStr::new(""));
            let kind = PermissionOptionKind::from(&kind);
            Some(Self { id, name, kind })
        };
        list.unwrap_or_default().into_iter().filter_map(option).collect()
    }
}

impl PeerRequest {
    pub(crate) fn new(
        id: RequestId,
        method: String,
        params: Object,
        commands: mpsc::WeakSender<Command>,
        cancelled: watch::Receiver<bool>,
        abandoned: Arc<Notify>,
        position: Option<Position>,
    ) -> Self {
        Self { id, method, params, commands, cancelled: Some(cancelled), abandoned, position }
    }

    pub(crate) fn position(&self) -> Option<Position> {
        self.position
    }

    /// The method, such as `session/request_permission`.
    pub fn method(&self) -> &str {
        &self.method
    }

    /// The params, in version 2 of the protocol.
    pub fn params(&self) -> &Object {
        &self.params
    }

    /// The session that it is about.
    pub fn session(&self) -> Option<SessionId> {
        self.params.get_json_str("sessionId").map(SessionId::from)
    }

    /// The title of the request, or else of the tool call or other subject that it is about.
    pub fn title(&self) -> Option<String> {
        title_in(&self.params)
    }

    /// The tool call that it is about, which the session's transcript has.
    pub fn tool_call_id(&self) -> Option<ToolCallId> {
        let subject = self.params.get_object("subject").unwrap_or_default();
        let call = self.params.get_object("toolCall").or_else(|| subject.get_object("toolCall"));
        call.unwrap_or(subject).get_json_str("toolCallId").map(ToolCallId::from)
    }

    /// The options of a permission request.
    pub fn options(&self) -> Vec<PermissionOption> {
        PermissionOption::all_in(&self.params)
    }

    /// Responds with one of the options.
    pub async fn select(self, option: &PermissionOption) {
        let outcome = Object::new().with("outcome", "selected").with("optionId", &option.id);
        self.respond(Object::new().with("outcome", outcome)).await;
    }

    /// Responds that the user selected nothing. Most agents end the turn then.
    pub async fn cancel(self) {
        let cancelled = live::cancelled_answer(&self.method);
        self.respond(cancelled.to_object().unwrap_or_default()).await;
    }

    /// Responds with a result as the protocol has it.
    pub async fn respond(mut self, result: Object) {
        self.send(Ok(result)).await;
    }

    /// Responds that this client does not handle the request. A server may ask other clients.
    pub async fn decline(mut self) {
        self.send(Err(declined())).await;
    }

    /// Responds that this client cannot answer, and that the server keeps the request open for other clients, also for such that
    /// are not attached to the session. For an agent it is the same as [`decline`](Self::decline).
    pub async fn leave_open(mut self) {
        let data = Object::new().with("reason", live::LEFT_OPEN);
        self.send(Err(declined().with_data(data.to_json()))).await;
    }

    /// Waits until no response is wanted because another client responded or the agent cancelled the request. Returns false if
    /// the connection is closed.
    pub async fn cancelled(&mut self) -> bool {
        match &mut self.cancelled {
            Some(cancelled) => cancelled.wait_for(|cancelled| *cancelled).await.is_ok(),
            None => false,
        }
    }

    async fn send(&mut self, result: Result<Object, RpcError>) {
        let (Some(commands), Some(cancelled)) = (self.commands.upgrade(), self.cancelled.clone()) else {
            return;
        };
        if let Ok(permit) = commands.reserve().await {
            self.cancelled = None;
            permit.send(Command::Respond { id: self.id.clone(), result, cancelled });
        }
    }
}

impl Drop for PeerRequest {
    fn drop(&mut self) {
        // The receiver goes first, so that the connection's task sees that it is gone.
        if self.cancelled.take().is_some() {
            self.abandoned.notify_one();
        }
    }
}

/// The title in the params of a request.
pub(crate) fn title_in(params: &Object) -> Option<String> {
    let title = |holder: &Object| holder.get_string("title");
    let subject = params.get_object("subject").unwrap_or_default();
    title(params)
        .or_else(|| title(&params.get_object("toolCall")?))
        .or_else(|| title(&subject))
        .or_else(|| title(&subject.get_object("toolCall")?))
}

/// The error response to requests that nobody handles.
pub(crate) fn declined() -> RpcError {
    RpcError::new(code::METHOD_NOT_FOUND, "this client does not handle the request")
}
