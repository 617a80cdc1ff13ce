//! Opens agent sessions: performs the actions of an [`Opening`], and passes events to it.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parlor_engine::Now;
use parlor_engine::opening::{
    AgentSession, Opening, OpeningAction, OpeningError, OpeningEvent, OpeningOutput, OpeningPlan,
    StartupLimit,
};
use parlor_json::JsonStr;
use parlor_session::UnixMillis;
use parlor_wire::{RequestId, RpcError, code};
use tokio::sync::mpsc;

use super::opened::{AgentSessionGuard, BoundAgent, channel, event_of};
use super::session_cache::PendingCreate;
use super::{Agent, CancelToken, Origin, Startup};
use crate::session::{AgentMessage, Route, SessionMessage, next_epoch, now};

/// Opens one agent session.
pub(crate) struct Opener {
    agent: Arc<Agent>,
    opening: Opening,
    startup: Startup,
    /// The start of the opening's monotonic time.
    started: Instant,
    deadline: Option<Duration>,
    /// The client's request for which a session is created.
    origin: Option<Origin>,
    route: Route,
    messages: mpsc::Receiver<SessionMessage>,
    guard: Option<AgentSessionGuard>,
    call: Option<OpenCall>,
    /// An action that takes time and ends with an event.
    pending: Option<Pin<Box<dyn Future<Output = OpeningEvent> + Send>>>,
    /// Delays lists of the agent's sessions while it creates one.
    creating: Option<PendingCreate>,
    outcome: Option<Result<AgentSession, OpeningError>>,
}

/// The call that opens the session; dropping it before the response cancels it.
struct OpenCall {
    agent: Arc<Agent>,
    id: RequestId,
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        self.agent.abandon_call(&self.id);
    }
}

impl Opener {
    /// Starts to open a session. The first request is sent before this returns.
    pub(crate) fn start(
        agent: &Arc<Agent>,
        plan: OpeningPlan,
        startup: Startup,
        origin: Option<Origin>,
    ) -> Self {
        let started = Instant::now();
        let until = startup.until.saturating_duration_since(started);
        let limit = StartupLimit { timeout: startup.timeout, until };
        let (opening, output) = Opening::start(plan, &agent.info, limit);
        let (route, messages) = channel(next_epoch());
        let mut opener = Self {
            agent: Arc::clone(agent),
            opening,
            startup,
            started,
            deadline: None,
            origin,
            route,
            messages,
            guard: None,
            call: None,
            pending: None,
            creating: None,
            outcome: None,
        };
        opener.run(output);
        opener
    }

    /// Waits until the session is open or cannot be opened. Dropping the future cancels the opening.
    pub(crate) async fn opened(mut self, mut cancel: Option<CancelToken>) -> Result<BoundAgent, RpcError> {
        let outcome = loop {
            match self.outcome.take() {
                Some(outcome) => break outcome,
                None => self.next_event(&mut cancel).await.into_iter().for_each(|event| self.handle(event)),
            }
        };
        // A call that timed out is cancelled before its agent is stopped.
        self.call = None;
        let session = outcome.map_err(|error| match error {
            OpeningError::Rpc(error) => error,
            OpeningError::Late(method) => self.agent.timeout_error(method, self.startup.timeout),
        })?;
        let guard = self.guard.ok_or_else(|| self.agent.error())?;
        Ok(BoundAgent::new(guard, session, self.messages))
    }

    async fn next_event(&mut self, cancel: &mut Option<CancelToken>) -> Option<OpeningEvent> {
        let deadline = self.deadline.map(|deadline| self.started + deadline);
        tokio::select! {
            biased;
            message = self.messages.recv() => event_of(message?),
            event = wait(self.pending.as_mut()) => {
                self.pending = None;
                Some(event)
            }
            () = wait(cancel.as_mut().map(|cancel| Box::pin(cancel.cancelled()))) => {
                *cancel = None;
                Some(OpeningEvent::Cancelled)
            }
            () = wait(deadline.map(|deadline| Box::pin(tokio::time::sleep_until(deadline.into())))) => {
                Some(OpeningEvent::Timeout { awaits_person: self.agent.has_requests() })
            }
        }
    }

    fn handle(&mut self, event: OpeningEvent) {
        let now = Now { monotonic: self.started.elapsed(), wall: UnixMillis(now()) };
        let output = self.opening.handle(event, now);
        self.run(output);
    }

    fn run(&mut self, OpeningOutput { actions, deadline }: OpeningOutput) {
        self.deadline = deadline;
        for action in actions {
            if let Some(event) = self.run_action(action) {
                self.handle(event);
            }
        }
    }

    /// Performs an action. Returns the event that it ends with, if it ends at once.
    fn run_action(&mut self, action: OpeningAction) -> Option<OpeningEvent> {
        let agent = Arc::clone(&self.agent);
        match action {
            OpeningAction::AwaitClosed(session) => {
                self.pending = Some(Box::pin(async move {
                    agent.wait_closed(&session).await;
                    OpeningEvent::Closed { open_since: agent.open_since(&session) }
                }));
            }
            OpeningAction::SetRoute { session, epoch, drops_early } => {
                if drops_early {
                    agent.drop_early_updates(&session);
                }
                let epoch = epoch.unwrap_or_else(next_epoch);
                (self.route, self.messages) = channel(epoch);
                return Some(match agent.set_route(&session, &self.route) {
                    Ok(()) => {
                        self.guard = Some(AgentSessionGuard { agent, session, epoch });
                        OpeningEvent::RouteSet
                    }
                    Err(error) => OpeningEvent::RouteFailed(error),
                });
            }
            OpeningAction::RemoveRoute => {
                self.guard = None;
                self.messages.close();
                while let Ok(message) = self.messages.try_recv() {
                    if let SessionMessage::Agent(_, AgentMessage::Request { id, .. }) = message {
                        let error = RpcError::new(code::INTERNAL_ERROR, "the session was not opened");
                        agent.answer(&id, &Err(error.to_json()));
                    }
                }
                (self.route, self.messages) = channel(next_epoch());
            }
            OpeningAction::Call { method, params, creates } => {
                if creates {
                    self.creating = Some(agent.pending_creates.start());
                }
                match agent.call_to_open(&self.route, self.origin.take(), method, &params) {
                    Ok(id) => self.call = Some(OpenCall { agent, id }),
                    Err(error) => return Some(OpeningEvent::CallFailed(RpcError::from_raw(error.raw()))),
                }
            }
            OpeningAction::CancelCall => {
                self.call.as_ref().into_iter().for_each(|call| agent.cancel_call(&call.id));
            }
            OpeningAction::List => {
                let until = self.startup.until;
                self.pending = Some(Box::pin(async move {
                    let rows = agent.list_sessions(until).await;
                    let id = |row: parlor_store::SessionRow| JsonStr::from_literal(&row.id).map(Into::into);
                    OpeningEvent::Listed(rows.map(|rows| rows.into_iter().filter_map(id).collect()))
                }));
            }
            OpeningAction::Reject { id, error } => agent.answer(&id, &Err(error.to_json())),
            OpeningAction::Done(session) => self.outcome = Some(Ok(*session)),
            OpeningAction::Failed(error) => self.outcome = Some(Err(error)),
        }
        None
    }
}

/// Waits for a future, for ever if there is none.
async fn wait<T>(future: Option<impl Future<Output = T> + Unpin>) -> T {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use parlor_dialect::Dialect;
    use parlor_json::{Json, Object};
    use parlor_session::SessionId;
    use parlor_store::MemoryStore;
    use tokio::io::{
        AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf,
    };

    use super::super::EvictedSession;
    use super::*;
    use crate::hub::Hub;
    use crate::session;
    use crate::stored::session_for_tests;

    /// The agent's end of a connection.
    struct Peer {
        requests: Lines<BufReader<ReadHalf<DuplexStream>>>,
        write: WriteHalf<DuplexStream>,
    }

    impl Peer {
        fn new(stream: DuplexStream) -> Self {
            let (read, write) = tokio::io::split(stream);
            Self { requests: BufReader::new(read).lines(), write }
        }

        async fn next(&mut self) -> Object {
            let line = self.requests.next_line().await.unwrap().unwrap();
            Json::parse(line).unwrap().to_object().unwrap_or_default()
        }

        /// Reads the next message, which has this method.
        async fn expect(&mut self, method: &str) -> Object {
            let message = self.next().await;
            assert_eq!(message.get_string("method").as_deref(), Some(method), "{message:?}");
            message
        }

        async fn send(&mut self, message: &str) {
            self.write.write_all(format!("{message}\n").as_bytes()).await.unwrap();
        }

        async fn respond(&mut self, request: &Object, response: &str) {
            let id = request.get("id").unwrap().as_str();
            self.send(&format!(r#"{{"jsonrpc":"2.0","id":{id},{response}}}"#)).await;
        }
    }

    fn agent() -> (Arc<Agent>, Peer) {
        let (agent, stream) = Agent::for_tests(Dialect::V2);
        (agent, Peer::new(stream))
    }

    fn create(agent: &Arc<Agent>, timeout: Duration) -> Opener {
        let plan = OpeningPlan::Create { params: Object::default() };
        Opener::start(agent, plan, Startup::new(timeout), None)
    }

    const LONG: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn a_session_is_created_and_gets_its_early_updates() {
        let (agent, mut peer) = agent();
        let opener = create(&agent, LONG);
        let request = peer.expect("session/new").await;
        let update = r#"{"sessionUpdate":"session_info_update","title":"early"}"#;
        peer.send(parlor_dialect::live::update_line(&"s".into(), update, None).trim_end()).await;
        peer.respond(&request, r#""result":{"sessionId":"s","x":1}"#).await;
        let mut opened = opener.opened(None).await.unwrap();
        assert_eq!(opened.guard.session, "s".into());
        assert_eq!(opened.session.result.to_json().as_str(), r#"{"x":1}"#);
        let first = opened.early.messages.recv().await;
        assert!(
            matches!(&first, Some(SessionMessage::Agent(_, AgentMessage::Updates(lines, _))) if lines.contains("early"))
        );
    }

    #[tokio::test]
    async fn an_agent_that_dies_before_its_response_ends_the_opening_at_once() {
        let (agent, mut peer) = agent();
        let opener = create(&agent, LONG);
        peer.expect("session/new").await;
        drop(peer);
        let error = opener.opened(None).await.unwrap_err();
        assert!(error.message().contains("ended"), "{error:?}");
    }

    #[tokio::test]
    async fn a_request_that_is_late_is_cancelled() {
        let (agent, mut peer) = agent();
        let opener = create(&agent, Duration::from_millis(20));
        let request = peer.expect("session/new").await;
        let error = opener.opened(None).await.unwrap_err();
        assert!(error.message().contains("did not answer session/new within 0.02 s"), "{error:?}");
        let cancel = peer.expect("$/cancel_request").await;
        let params = cancel.get_object("params").unwrap();
        assert_eq!(params.get("requestId"), request.get("id"));
    }

    #[tokio::test]
    async fn a_client_that_cancels_gets_the_response_of_the_agent() {
        let (agent, mut peer) = agent();
        let (sender, cancel) = CancelToken::new();
        let opened = tokio::spawn(create(&agent, LONG).opened(Some(cancel)));
        let request = peer.expect("session/new").await;
        sender.send_replace(true);
        peer.expect("$/cancel_request").await;
        peer.respond(&request, r#""error":{"code":-32800,"message":"stopped"}"#).await;
        let error = opened.await.unwrap().unwrap_err();
        assert_eq!((error.code(), error.message()), (code::REQUEST_CANCELLED, "stopped"));
    }

    #[tokio::test]
    async fn an_adoption_that_a_client_cancels_ends_at_once_and_rejects_requests_of_the_agent() {
        let (agent, mut peer) = agent();
        let (sender, cancel) = CancelToken::new();
        let plan = OpeningPlan::Adopt { session: "s".into(), params: Object::default(), is_listed: true };
        let opened = tokio::spawn(Opener::start(&agent, plan, Startup::new(LONG), None).opened(Some(cancel)));
        let request = peer.expect("session/resume").await;
        peer.send(r#"{"jsonrpc":"2.0","id":9,"method":"x","params":{"sessionId":"s"}}"#).await;
        let rejected = peer.next().await;
        assert_eq!(rejected.get("id").map(Json::as_str), Some("9"));
        sender.send_replace(true);
        let error = opened.await.unwrap().unwrap_err();
        assert_eq!(error.code(), code::REQUEST_CANCELLED);
        let cancelled = peer.expect("$/cancel_request").await;
        assert_eq!(cancelled.get_object("params").unwrap().get("requestId"), request.get("id"));
        assert_eq!(agent.sessions(), 0);
    }

    #[tokio::test]
    async fn a_session_released_late_does_not_remove_the_route_of_a_newer_epoch() {
        let (agent, _peer) = agent();
        let opened = BoundAgent::for_tests(&agent, "s");
        let late = next_epoch();
        let unloaded = |epoch| EvictedSession {
            hub: std::sync::Weak::new(),
            session: "ours".into(),
            epoch,
            is_open: true,
        };
        assert!(!agent.release(&"s".into(), unloaded(late)));
        assert_eq!((agent.sessions(), agent.open_since(&"s".into())), (1, None));
        let epoch = opened.guard.epoch;
        assert!(agent.release(&"s".into(), unloaded(epoch)));
        assert_eq!((agent.sessions(), agent.open_since(&"s".into())), (0, Some(epoch)));
    }

    #[tokio::test]
    async fn a_closed_session_is_not_remembered_as_closing() {
        let (agent, mut peer) = agent();
        for n in 0..20 {
            let session = SessionId::from(format!("s{n}").as_str());
            agent.close_session(&session);
            let request = peer.expect("session/close").await;
            peer.respond(&request, r#""result":{}"#).await;
            while agent.is_closing(&session) {
                tokio::task::yield_now().await;
            }
        }
        assert_eq!(agent.closings(), 1);
    }

    #[tokio::test]
    async fn a_response_for_an_older_epoch_does_not_reach_the_newer_one() {
        let hub = Hub::for_tests(Arc::new(MemoryStore::default())).await;
        let (agent, mut peer) = agent();
        let old = next_epoch();
        let begun = BoundAgent::for_tests(&agent, "s");
        let new = begun.guard.epoch;
        let mailbox = session::start(hub.shared(), session_for_tests("ours"), Some(begun), None);
        let served = |text: &str| AgentMessage::Served(RequestId::from(7), Ok(Json::from(text)), None);
        let gone = AgentMessage::Gone(RpcError::new(code::INTERNAL_ERROR, "it ended"));
        for (epoch, message) in [(old, served("late")), (old, gone), (new, served("in time"))] {
            mailbox.send(SessionMessage::Agent(epoch, message)).await.unwrap();
        }
        let response = peer.next().await;
        let member = |name| response.get(name).map(Json::as_str);
        assert_eq!((member("id"), member("result")), (Some("7"), Some(r#""in time""#)));
    }
}
