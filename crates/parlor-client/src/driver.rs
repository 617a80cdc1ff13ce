//! The task of a connection: it reads what arrives, and writes what clients send.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parlor_dialect::live::{self, AgentUpdate};
use parlor_dialect::{Dialect, Side, Translator};
use parlor_json::{Json, JsonRef, JsonStr, Members, Object};
use parlor_session::SessionId;
use parlor_wire::{
    Batches, Body, CANCEL_REQUEST, Incoming, Outcome, OutgoingRequests, RequestId, RpcError, cancel_line,
    cancel_target, code, parse, write,
};
use tokio::sync::{Notify, broadcast, mpsc, oneshot, watch};

use crate::Error;
use crate::client::session_in;
use crate::connection::Shared;
use crate::notifications::Notification;
use crate::peer_request::{PeerRequest, declined};
use crate::replica::{Position, Replay, SessionReplica, SubscriptionStatus};
use crate::subscriptions::JoinTarget;
use crate::transport::{MAX_LINES_PER_READ, Received, Transport};

/// How many requests may be in flight.
const MAX_IN_FLIGHT: usize = 1000;

/// How many lines wait for the transport before no more commands are taken.
const MAX_QUEUED: usize = 256;

/// How many lines wait for the transport before nothing more is read: a peer that sends requests and reads no responses has
/// to wait.
const MAX_QUEUED_RESPONSES: usize = 4096;

/// How long queued lines are written after the last client is dropped.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// How many requests of the peer may be without a response. One more is declined.
const MAX_PEER_REQUESTS: usize = 1000;

/// What a client asks of the task.
#[derive(Debug)]
pub(crate) enum Command {
    Request {
        method: String,
        params: Object,
        purpose: Purpose,
        reply: Reply,
    },
    /// Joins a session. The task adds the replay to the params.
    Join {
        params: Object,
        target: JoinTarget,
        replay: Replay,
        reply: Reply,
    },
    Notify {
        method: String,
        params: Object,
    },
    Respond {
        id: RequestId,
        result: Result<Object, RpcError>,
        /// Kept until here, because a request whose receiver is dropped is declined.
        cancelled: watch::Receiver<bool>,
    },
    /// Cancels the prompts of a session that have no response.
    WithdrawPrompts(SessionId),
}

/// What a request is for: its response takes effect where it stands among the updates.
#[derive(Debug)]
pub(crate) enum Purpose {
    /// Anything.
    Call,
    /// To create a session, which the response names.
    NewSession,
    /// To subscribe to a session.
    Join(Arc<SessionReplica>),
    /// To prompt.
    Prompt(Arc<SessionReplica>),
    /// To end the subscription, whatever the response is.
    Close(Arc<SessionReplica>),
    /// To delete a session.
    Delete(Arc<SessionReplica>),
}

/// Where a response goes.
pub(crate) type Reply = oneshot::Sender<Result<Response, Error>>;

/// A successful response.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) result: Object,
    /// The session that it is about.
    pub(crate) session: Option<Arc<SessionReplica>>,
    /// The last change of the session when the response arrived.
    pub(crate) position: Position,
    /// Whether it accepts a prompt whose turn is the next to end.
    pub(crate) is_next: bool,
}

/// A request in flight.
struct Request {
    reply: Reply,
    purpose: Purpose,
    is_cancelled: bool,
}

enum Event {
    Received(Option<Vec<Received>>),
    Command(Option<Command>),
    Abandoned,
    CloseRequested,
}

pub(crate) struct Driver {
    transport: Transport,
    /// Translates between version 2, which clients use, and that of the peer.
    translator: Option<Translator>,
    commands: mpsc::Receiver<Command>,
    command_sender: mpsc::WeakSender<Command>,
    abandoned: Arc<Notify>,
    send_queue: VecDeque<String>,
    in_flight: OutgoingRequests<Request>,
    shared: Shared,
    notifications: broadcast::Sender<Notification>,
    /// The session of the last update, until its changes are announced.
    updated: Option<Arc<SessionReplica>>,
    /// The requests of the peer that have no response, with what tells their handlers that they were cancelled.
    peer_requests: HashMap<RequestId, watch::Sender<bool>>,
    close_requested: watch::Receiver<bool>,
    closed: watch::Sender<bool>,
}

impl Driver {
    pub(crate) fn new(
        transport: Transport,
        translator: Option<Translator>,
        (commands, command_sender): (mpsc::Receiver<Command>, mpsc::WeakSender<Command>),
        abandoned: Arc<Notify>,
        shared: Shared,
        notifications: broadcast::Sender<Notification>,
        (close_requested, closed): (watch::Receiver<bool>, watch::Sender<bool>),
    ) -> Self {
        Self {
            transport,
            translator,
            commands,
            command_sender,
            abandoned,
            send_queue: VecDeque::new(),
            in_flight: OutgoingRequests::new(MAX_IN_FLIGHT),
            shared,
            notifications,
            updated: None,
            peer_requests: HashMap::new(),
            close_requested,
            closed,
        }
    }

    pub(crate) async fn run(mut self) {
        tracing::debug!("opened");
        loop {
            let queued = self.send_queue.len();
            let event = tokio::select! {
                received = self.transport.incoming.recv(), if queued + MAX_LINES_PER_READ <= MAX_QUEUED_RESPONSES => {
                    Event::Received(received)
                }
                permit = self.transport.outgoing.reserve(), if queued > 0 => {
                    let Ok(permit) = permit else { break };
                    if let Some(line) = self.send_queue.pop_front() {
                        permit.send(line);
                    }
                    continue;
                }
                command = self.commands.recv(), if queued < MAX_QUEUED => Event::Command(command),
                () = self.abandoned.notified() => Event::Abandoned,
                _ = self.close_requested.wait_for(|close| *close) => Event::CloseRequested,
            };
            match event {
                Event::Received(Some(received)) => {
                    received.into_iter().for_each(|received| self.on_received(received));
                    self.announce();
                }
                Event::Received(None) => break,
                Event::Command(Some(command)) => self.on_command(command),
                Event::Abandoned => self.on_abandoned(),
                Event::Command(None) | Event::CloseRequested => {
                    self.commands.close();
                    while let Ok(command) = self.commands.try_recv() {
                        self.on_command(command);
                    }
                    self.on_abandoned();
                    let _ = tokio::time::timeout(DRAIN_TIMEOUT, self.drain()).await;
                    break;
                }
            }
        }
        tracing::debug!("closed");
        self.closed.send_replace(true);
        self.shared.requests.close();
        for (_, request) in self.in_flight.drain() {
            let _ = request.reply.send(Err(Error::Disconnected));
        }
        self.shared.subscriptions.disconnect();
    }

    /// Writes the queued lines.
    async fn drain(&mut self) {
        for line in self.send_queue.drain(..) {
            let _ = self.transport.outgoing.send(line).await;
        }
    }

    fn on_command(&mut self, command: Command) {
        match command {
            // The caller has dropped the future already.
            Command::Request { reply, .. } | Command::Join { reply, .. } if reply.is_closed() => {}
            Command::Request { method, params, purpose, reply } => {
                self.send_request(&method, &params, purpose, reply);
            }
            Command::Join { mut params, target, replay, reply } => {
                match self.shared.subscriptions.begin_join(target, replay) {
                    Ok((session, from)) => {
                        if let Some(from) = from {
                            params.set("replayFrom", from);
                        }
                        self.send_request("session/resume", &params, Purpose::Join(session), reply);
                    }
                    Err(error) => drop(reply.send(Err(error))),
                }
            }
            Command::Notify { method, params } => {
                self.send(&write::notification(&method, Some(params.to_json().raw())));
            }
            // Another request may have its id by now.
            Command::Respond { cancelled, .. } if *cancelled.borrow() => {}
            Command::Respond { id, result, cancelled } => {
                self.respond(&id, result);
                drop(cancelled);
            }
            Command::WithdrawPrompts(session) => self.cancel_requests(
                |request| matches!(&request.purpose, Purpose::Prompt(prompted) if *prompted.id() == session),
            ),
        }
    }

    fn send_request(&mut self, method: &str, params: &Object, purpose: Purpose, reply: Reply) {
        if matches!(purpose, Purpose::NewSession) && self.shared.subscriptions.is_full() {
            return drop(reply.send(Err(Error::Busy)));
        }
        match self.in_flight.register(Request { reply, purpose, is_cancelled: false }) {
            Ok(id) => self.send(&write::request(&id, method, Some(params.to_json().raw()))),
            Err(full) => self.on_response(full.rejected, Err(Error::Busy)),
        }
    }

    /// Whether a response in flight may name a session.
    fn may_name_session(in_flight: &mut OutgoingRequests<Request>) -> bool {
        in_flight
            .iter_mut()
            .any(|(_, request)| matches!(request.purpose, Purpose::Call | Purpose::NewSession))
    }

    /// Applies a response to its session, and hands it to the caller.
    fn on_response(&mut self, request: Request, outcome: Result<Object, Error>) {
        // Updates that arrived before the response are visible before it.
        self.announce();
        let subscriptions = &self.shared.subscriptions;
        let connection = &subscriptions.connection;
        let mut is_next = false;
        let session = match (request.purpose, &outcome) {
            (Purpose::Call | Purpose::NewSession, Err(_)) => None,
            // The connection is subscribed to a session that a response names.
            (Purpose::Call, Ok(result)) => session_in(result).ok().map(|id| subscriptions.track(&id)),
            (Purpose::NewSession, Ok(result)) => session_in(result).ok().map(|id| {
                let session = subscriptions.track(&id);
                session.complete_join(connection, result);
                session
            }),
            (Purpose::Join(session), Ok(result)) => {
                session.complete_join(connection, result);
                Some(session)
            }
            (Purpose::Join(session), Err(_)) => {
                session.fail_join(connection);
                Some(session)
            }
            (Purpose::Prompt(session), outcome) => {
                is_next = outcome.is_ok() && session.on_prompt_accepted();
                Some(session)
            }
            (Purpose::Close(session), _) => {
                session.unsubscribe(connection, SubscriptionStatus::Closed);
                Some(session)
            }
            (Purpose::Delete(session), outcome) => {
                // It may have been deleted already.
                let code = outcome.as_ref().err().and_then(Error::code);
                if outcome.is_ok() || code == Some(code::RESOURCE_NOT_FOUND) {
                    session.unsubscribe(connection, SubscriptionStatus::Closed);
                }
                Some(session)
            }
        };
        if let Some(session) = session.as_ref().filter(|session| !session.is_owned_by(connection)) {
            subscriptions.forget(session);
        }
        if !Self::may_name_session(&mut self.in_flight) {
            subscriptions.drop_early();
        }
        let start = Position { epoch: 0, seq: 0 };
        let position = session.as_ref().map_or(start, |session| session.position());
        let _ = request.reply.send(outcome.map(|result| Response { result, session, position, is_next }));
    }

    /// Cancels requests whose callers dropped the future, and declines peer requests that were dropped.
    fn on_abandoned(&mut self) {
        self.cancel_requests(|request| request.reply.is_closed());
        let dropped = self.peer_requests.iter().filter(|(_, cancelled)| cancelled.is_closed());
        for id in dropped.map(|(id, _)| id.clone()).collect::<Vec<_>>() {
            self.respond(&id, Err(declined()));
        }
    }

    /// Cancels requests in flight, each of them once.
    fn cancel_requests(&mut self, is_meant: impl Fn(&Request) -> bool) {
        let mut lines = Vec::new();
        for (id, request) in self.in_flight.iter_mut() {
            if !request.is_cancelled && is_meant(request) {
                request.is_cancelled = true;
                lines.push(cancel_line(&id));
            }
        }
        lines.iter().for_each(|line| self.send(line));
    }

    fn respond(&mut self, id: &RequestId, result: Result<Object, RpcError>) {
        if self.peer_requests.remove(id).is_none() {
            return;
        }
        let line = match result {
            Ok(result) => write::response(id, result.to_json().raw()),
            Err(error) => write::error_response(id, &error),
        };
        self.send(&line);
    }

    /// Sends a line of version 2.
    fn send(&mut self, line: &str) {
        self.translate(Side::Client, line);
    }

    fn on_received(&mut self, received: Received) {
        match received {
            Received::Line(line) => self.translate(Side::Agent, &line),
            Received::Undecodable(problem) => self.shared.losses.record(problem),
            Received::TooLong => {
                self.shared.losses.record("a message that exceeds the size limit");
                // It may have been the response to any request.
                for (_, request) in self.in_flight.drain() {
                    self.on_response(request, Err(Error::TooLong));
                }
            }
        }
    }

    /// Translates a line of one side, if the peer has another version, and passes on what comes of it.
    fn translate(&mut self, by: Side, line: &str) {
        let Some(translator) = &mut self.translator else {
            return self.pass(by, line);
        };
        let losses = &self.shared.losses;
        let translation = match translator.line(by, line) {
            Ok(translation) => translation,
            Err(problem) => return losses.record(problem.to_string()),
        };
        translation.losses.iter().for_each(|loss| losses.record(loss.kind.meaning().trim()));
        translation.problems.iter().for_each(|problem| losses.record(problem.to_string()));
        let lines: Vec<_> =
            translation.lines.into_iter().map(|said| (said.by, said.text.into_owned())).collect();
        for (by, line) in lines {
            self.pass(by, &line);
        }
    }

    fn pass(&mut self, by: Side, line: &str) {
        match by {
            Side::Client => self.send_queue.push_back(line.to_owned()),
            Side::Agent => self.on_line(line, Dialect::V2.batches()),
        }
    }

    /// Handles a line of version 2.
    fn on_line(&mut self, line: &str, batches: Batches) {
        // Nearly all lines are updates of one form, which are decoded once.
        if let Some(update) = AgentUpdate::read(line)
            && let Some(id) = update.session()
        {
            let meta = update.meta();
            return self.on_update(&id, meta, line, Some(update));
        }
        let message = match parse(line, batches) {
            Ok(Incoming::One(message)) => message,
            Ok(Incoming::Batch(_)) => {
                let items = JsonRef::parse(line).ok().and_then(JsonRef::elements).unwrap_or_default();
                // A batch in a batch is refused.
                return items.into_iter().for_each(|item| self.on_line(item.as_str(), Batches::Refuse));
            }
            Err(malformed) => return self.shared.losses.record(malformed.to_string()),
        };
        match message.body {
            Body::Notification { method, params } if method == "session/update" => {
                let params = params.and_then(|params| Members::of(params).ok()).unwrap_or_default();
                match params.get("sessionId").and_then(JsonStr::from_raw) {
                    Some(id) => self.on_update(&id.into(), params.get("_meta"), line, None),
                    None => self.shared.losses.record("a session update without a session"),
                }
            }
            Body::Notification { method, params } if method == CANCEL_REQUEST => {
                cancel_target(params).iter().for_each(|id| self.cancel_peer_request(id));
            }
            Body::Notification { method, params } => self.on_notification(&method, params),
            Body::Request { id, method, params } => self.on_peer_request(&id, &method, params),
            Body::Response { id, outcome } => {
                let Some(request) = self.in_flight.complete(&id) else {
                    return self.shared.losses.record("a response without a request");
                };
                let outcome = match outcome {
                    // Many peers respond with null where the result is empty.
                    Outcome::Result(result) if result.is_null() => Ok(Object::default()),
                    Outcome::Result(result) => {
                        Object::parse(result).map_err(|_| Error::Protocol("the result is not an object"))
                    }
                    Outcome::Error(error) => Err(Error::Rpc(RpcError::from_raw(error))),
                };
                self.on_response(request, outcome);
            }
        }
    }

    /// Applies an update. Early updates are kept; those of sessions that nobody requested are not, such as the last ones of a
    /// session that was closed.
    fn on_update(
        &mut self,
        id: &SessionId,
        meta: Option<JsonRef<'_>>,
        line: &str,
        update: Option<AgentUpdate<'_>>,
    ) {
        if self.updated.as_ref().is_none_or(|session| session.id() != id) {
            self.announce();
            self.updated = self.shared.subscriptions.find(id, || Self::may_name_session(&mut self.in_flight));
        }
        let Some(session) = &self.updated else { return };
        let connection = &self.shared.subscriptions.connection;
        let seq = meta.and_then(|meta| Members::of(meta).ok()?.get("parlor/seq")?.as_u64());
        session.apply(connection, line, update, seq);
        if self.translator.is_some()
            && let Some(state) = noted_state(line)
        {
            session.note_state(connection, &state);
        }
    }

    /// Wakes those that wait for changes of the session that was updated.
    fn announce(&mut self) {
        if let Some(session) = self.updated.take() {
            session.announce(&self.shared.subscriptions.connection);
        }
    }

    fn on_notification(&mut self, method: &str, params: Option<JsonRef<'_>>) {
        // Updates that arrived before the notification are visible before it.
        self.announce();
        let notification = Notification { method: method.to_owned(), params: params.map(Json::from) };
        if self.notifications.send(notification).is_err() {
            self.shared.losses.record(format!("a notification without a reader: {method}"));
        }
    }

    /// The peer wants no response any more.
    fn cancel_peer_request(&mut self, id: &RequestId) {
        if let Some(cancelled) = self.peer_requests.remove(id) {
            self.shared.requests.remove(id);
            cancelled.send_replace(true);
        }
    }

    fn on_peer_request(&mut self, id: &RequestId, method: &str, params: Option<JsonRef<'_>>) {
        // Updates that arrived before the request are visible before it.
        self.announce();
        let params = params.and_then(JsonRef::to_object).unwrap_or_default();
        // A request replaces an open one with the same id: there can be only one response.
        self.cancel_peer_request(id);
        let (sender, cancelled) = watch::channel(false);
        let is_full = self.peer_requests.len() >= MAX_PEER_REQUESTS;
        self.peer_requests.insert(id.clone(), sender);
        let session = params.get_json_str("sessionId");
        let session = session.and_then(|id| self.shared.subscriptions.find(&id.into(), || false));
        let request = PeerRequest::new(
            id.clone(),
            method.to_owned(),
            params,
            self.command_sender.clone(),
            cancelled,
            Arc::clone(&self.abandoned),
            session.map(|session| session.position()),
        );
        if is_full || !self.shared.requests.push(request) {
            self.respond(id, Err(declined()));
        }
    }
}

/// The state that a parlor server notes for clients of version 1, which have no state updates.
fn noted_state(line: &str) -> Option<String> {
    const NAME: &str = "parlor/state";
    if !line.contains(NAME) {
        return None;
    }
    let Ok(Incoming::One(message)) = parse(line, Dialect::V2.batches()) else { return None };
    let Body::Notification { params, .. } = &message.body else { return None };
    let (_, update) = live::update_of(*params).ok()?;
    let meta = Members::of(update).ok()?.get("_meta")?;
    Some(Members::of(meta).ok()?.get(NAME)?.as_str().to_owned())
}
