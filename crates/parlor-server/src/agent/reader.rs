//! Reads the messages of an agent and routes each to its session, caller or client.

use std::sync::{Arc, LazyLock};

use memchr::memmem::Finder;
use parlor_dialect::live::{self, AgentUpdate};
use parlor_engine::Frame;
use parlor_json::{Json, JsonRef, Object};
use parlor_session::SessionId;
use parlor_wire::{
    Batches, Body, CANCEL_REQUEST, Incoming, InputLine, LineDecoder, Message as Rpc, Outcome, RequestId,
    RpcError, cancel_target, code, parse,
};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::Semaphore;

use super::sessionless::{self, DeliveryOrder};
use super::{Agent, EvictedSession, MAX_EARLY_UPDATES, PendingCall, Routes};
use crate::connection::register_batch;
use crate::fields;
use crate::lock;
use crate::session::{AgentMessage, Route, SessionCall, SessionMessage};

/// How many bytes are read at once.
const BUFFER: usize = 64 << 10;

/// How many batches of updates may wait in the mailboxes of sessions. An agent that is faster than its sessions is not read
/// meanwhile, so that its output waits in its pipe.
const MAX_BATCHES: usize = 32;

/// Finds the kind of the updates that announce subagents in a line. In a text, its last quote would be escaped. Every line is
/// searched.
static SUBAGENT_UPDATE: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new(r#""subagent_update""#));

fn announces_subagent(line: &str) -> bool {
    SUBAGENT_UPDATE.find(line.as_bytes()).is_some()
}

/// Reads the output of an agent to its end.
pub(super) async fn read(agent: Arc<Agent>, mut stream: impl AsyncRead + Unpin) {
    let mut lines = LineDecoder::default();
    let mut buffer = vec![0; BUFFER];
    let mut batch = UpdateBatch::new();
    loop {
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => break,
            Ok(count) => {
                lines.extend(&buffer[..count]);
                batch.lines.reserve(count);
            }
        }
        while let Some(frame) = lines.next_line() {
            on_line(&agent, frame, &mut batch).await;
        }
        batch.send(&agent).await;
    }
    lines.finish();
    while let Some(frame) = lines.next_line() {
        on_line(&agent, frame, &mut batch).await;
    }
    batch.send(&agent).await;
    agent.on_ended().await;
}

/// Consecutive updates for one session, which are sent together. Most lines of an agent are for the same session as the line
/// before, and start with the same characters up to its id.
pub(super) struct UpdateBatch {
    /// The agent session and the receiver of its updates.
    to: Option<(SessionId, Route)>,
    /// The start of all updates for that session.
    prefix: String,
    lines: String,
    permits: Arc<Semaphore>,
    pub(super) order: DeliveryOrder,
}

impl UpdateBatch {
    fn new() -> Self {
        let permits = Arc::new(Semaphore::new(MAX_BATCHES));
        let order = DeliveryOrder::default();
        Self { to: None, prefix: String::new(), lines: String::new(), permits, order }
    }

    async fn send(&mut self, agent: &Agent) {
        let lines = std::mem::take(&mut self.lines);
        let Some((session, route)) = self.to.as_ref().filter(|_| !lines.is_empty()) else { return };
        let permit = Arc::clone(&self.permits).acquire_owned().await.ok();
        self.order.on_sent_to(route);
        let sent = route.send(AgentMessage::Updates(lines, permit)).await;
        let Err(AgentMessage::Updates(unsent, permit)) = sent else { return };
        // The session was evicted. It may have been loaded again, or is loaded for these updates.
        match find_receiver(agent, session, &unsent, |route| !route.mailbox.is_closed()) {
            Receiver::Session(route) => drop(route.send(AgentMessage::Updates(unsent, permit)).await),
            Receiver::Unloaded(session) => session.deliver(unsent).await,
            Receiver::None => {}
        }
        self.to = None;
    }

    fn add(&mut self, line: &str) {
        self.lines.push_str(line);
        self.lines.push('\n');
    }
}

async fn on_line(agent: &Arc<Agent>, frame: InputLine<'_>, batch: &mut UpdateBatch) {
    let line = match frame.line() {
        Ok(line) => line,
        Err(malformed) => {
            tracing::warn!(agent = agent.info.name, "skipping a line of the agent: {malformed}");
            return;
        }
    };
    let line = &*agent.check_login_in(agent.sandbox.paths.line_from_agent(line));
    if batch.to.is_some() && line.starts_with(&batch.prefix) && !announces_subagent(line) {
        batch.add(line);
        return;
    }
    if let Some(update) = AgentUpdate::read(line)
        && let Some(session) = update.session()
    {
        batch.send(agent).await;
        batch.to = None;
        match find_receiver(agent, &session, line, |_| true) {
            Receiver::Session(route) => {
                batch.to = Some((session, route));
                update.prefix(line).clone_into(&mut batch.prefix);
                batch.add(line);
                if announces_subagent(line) {
                    on_subagent_update(agent, line, batch).await;
                }
            }
            Receiver::Unloaded(session) => session.deliver(format!("{line}\n")).await,
            Receiver::None => {}
        }
        return;
    }
    // Any other message stays in order with the updates before it.
    batch.send(agent).await;
    batch.to = None;
    match parse(line, Batches::Accept) {
        Ok(Incoming::One(message)) => on_message(agent, &message, batch).await,
        Ok(Incoming::Batch(messages)) => {
            for malformed in messages.iter().filter_map(|message| message.as_ref().err()) {
                tracing::warn!(agent = agent.info.name, "{malformed}");
            }
            if register_batch(&agent.stdin, &messages) {
                for message in messages.iter().flatten() {
                    on_message(agent, message, batch).await;
                }
            }
        }
        Err(malformed) => {
            tracing::warn!(agent = agent.info.name, "a line of the agent is not a message: {malformed}");
            Frame::malformed(&malformed).into_iter().for_each(|answer| agent.stdin.push(answer));
        }
    }
}

/// Waits until a session has handled the announcement of a subagent: the messages that follow it are for the session of the
/// subagent.
async fn on_subagent_update(agent: &Agent, line: &str, batch: &mut UpdateBatch) {
    batch.send(agent).await;
    let Some((_, route)) = batch.to.as_ref().filter(|(_, route)| route.is_session) else { return };
    let params = Json::parse(line).ok().and_then(|line| line.to_object()?.get_object("params"));
    let update = params.and_then(|params| params.get_object("update"));
    let subagent = update.and_then(|update| fields::session_of(&update));
    if subagent.is_none_or(|subagent| route_to(agent, &subagent).is_some()) {
        return;
    }
    let (barrier, handled) = SessionMessage::barrier();
    if route.mailbox.send(barrier).await.is_ok() {
        // A session that has ended does not handle it.
        let _ = handled.await;
    }
}

/// The receiver of a session's messages.
fn route_to(agent: &Agent, session: &SessionId) -> Option<Route> {
    lock(&agent.routes).sessions.get(session).cloned()
}

fn unloaded_session(agent: &Agent, session: &SessionId) -> Option<EvictedSession> {
    lock(&agent.routes).evicted.get(session).cloned()
}

/// The receiver of updates.
enum Receiver {
    /// A live session, or one that is being opened.
    Session(Route),
    /// A session that is loaded for the updates.
    Unloaded(EvictedSession),
    /// No session yet: the updates are kept as early updates.
    None,
}

/// Finds the receiver of updates, or keeps them as early updates.
///
/// Both happen under one lock: a session that is linked meanwhile would not get updates that are kept after that.
fn find_receiver(
    agent: &Agent,
    session: &SessionId,
    lines: &str,
    is_usable: impl FnOnce(&&Route) -> bool,
) -> Receiver {
    let mut routes = lock(&agent.routes);
    if let Some(route) = routes.sessions.get(session).filter(is_usable) {
        return Receiver::Session(route.clone());
    }
    if let Some(evicted) = routes.evicted.get(session) {
        return Receiver::Unloaded(evicted.clone());
    }
    lines.lines().for_each(|line| keep_early_update(agent, &mut routes, session, line));
    Receiver::None
}

fn keep_early_update(agent: &Agent, routes: &mut Routes, session: &SessionId, line: &str) {
    // Early updates of other sessions make room.
    while routes.early_bytes + line.len() + 1 > MAX_EARLY_UPDATES {
        let Some(other) = routes.early_updates.keys().find(|other| *other != session).cloned() else {
            tracing::warn!(agent = agent.info.name, %session, "dropping an early update: too many wait for the response that creates their session");
            return;
        };
        tracing::warn!(agent = agent.info.name, session = %other, "dropping early updates: their session was not created");
        let dropped = routes.early_updates.remove(&other).map_or(0, |lines| lines.len());
        routes.early_bytes -= dropped;
    }
    routes.early_bytes += line.len() + 1;
    let lines = routes.early_updates.entry(session.clone()).or_default();
    lines.push_str(line);
    lines.push('\n');
}

async fn on_message(agent: &Arc<Agent>, message: &Rpc<'_>, batch: &mut UpdateBatch) {
    match &message.body {
        Body::Response { id, outcome } => {
            let mut reply = match outcome {
                Outcome::Result(result) => Ok(Json::from(*result)),
                Outcome::Error(error) => Err(Json::from(*error)),
            };
            let call = lock(&agent.calls).complete(id);
            if let Some(call) = &call {
                agent.check_login(call, &mut reply);
            }
            match call {
                Some(PendingCall::Caller(caller, _)) => drop(caller.send(reply)),
                Some(PendingCall::Session(route, call)) => {
                    if let Err(unsent) = route.send(AgentMessage::Response(call, reply)).await {
                        unsent.reject(&RpcError::new(code::INTERNAL_ERROR, "the session was closed"));
                    }
                }
                Some(PendingCall::Opening(route, _)) => {
                    let _ = route.send(AgentMessage::Response(SessionCall::Restore, reply)).await;
                }
                None => {
                    tracing::debug!(
                        agent = agent.info.name,
                        "ignoring a response without a request: {}",
                        id.as_literal()
                    );
                }
            }
        }
        Body::Request { id, method, params } => {
            let params = params.and_then(JsonRef::to_object).unwrap_or_default();
            on_request(agent, id.clone(), method.to_string(), params, batch).await;
        }
        Body::Notification { method, params } => {
            on_notification(agent, message, method, *params, batch).await;
        }
    }
}

async fn on_request(
    agent: &Arc<Agent>,
    id: RequestId,
    method: String,
    params: Object,
    batch: &mut UpdateBatch,
) {
    let Some(session) = fields::session_of(&params) else {
        return sessionless::request(agent, id, &method, params, &mut batch.order).await;
    };
    let is_sent = match route_to(agent, &session) {
        Some(route) => {
            let request = AgentMessage::Request { id: id.clone(), method: method.clone(), params };
            route.send(request).await.is_ok()
        }
        None => false,
    };
    if !is_sent {
        let error = RpcError::new(code::METHOD_NOT_FOUND, format!("method not found: {method}"));
        agent.answer(&id, &Err(error.to_json()));
    }
}

async fn on_notification(
    agent: &Arc<Agent>,
    message: &Rpc<'_>,
    method: &str,
    params: Option<JsonRef<'_>>,
    batch: &mut UpdateBatch,
) {
    if method == CANCEL_REQUEST {
        let Some(id) = cancel_target(params) else { return };
        if sessionless::cancel(agent, &id, &mut batch.order).await {
            return;
        }
        let mailboxes: Vec<_> = lock(&agent.routes).sessions.values().cloned().collect();
        for mailbox in mailboxes {
            let _ = mailbox.send(AgentMessage::RequestCancelled(id.clone())).await;
        }
        return;
    }
    if method == "session/update" {
        // An update that the fast path could not read.
        let Ok((session, _)) = live::update_of(params) else {
            tracing::warn!(agent = agent.info.name, "ignoring an update without a session");
            return;
        };
        match find_receiver(agent, &session, message.text(), |_| true) {
            Receiver::Session(route) => {
                batch.to = Some((session, route));
                batch.add(message.text());
                batch.send(agent).await;
                if announces_subagent(message.text()) {
                    on_subagent_update(agent, message.text(), batch).await;
                }
                batch.to = None;
            }
            Receiver::Unloaded(session) => session.deliver(format!("{}\n", message.text())).await,
            Receiver::None => {}
        }
        return;
    }
    let members = params.and_then(JsonRef::to_object).unwrap_or_default();
    // Real agents send it with the prefix of an extension.
    if matches!(method, "auth/status_update" | "_auth/status_update") {
        agent.on_login_status(&members);
    }
    let session = fields::session_of(&members);
    if session.as_ref().is_some_and(|session| unloaded_session(agent, session).is_some()) {
        tracing::debug!(agent = agent.info.name, method, "ignoring a notification for an evicted session");
        return;
    }
    if let Some(route) = session.and_then(|session| route_to(agent, &session)) {
        batch.order.on_sent_to(&route);
        let _ = route.send(AgentMessage::Notification(message.text().to_owned())).await;
        return;
    }
    sessionless::notification(agent, message, &mut batch.order).await;
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use parlor_dialect::Dialect;
    use tokio::sync::mpsc;

    use super::*;
    use crate::session::next_epoch;

    #[tokio::test]
    async fn an_update_that_arrives_while_its_session_is_linked_reaches_the_session() {
        let (agent, _peer) = Agent::for_tests(Dialect::V2);
        for number in 0..3000 {
            let session = SessionId::from(format!("s{number}").as_str());
            let (mailbox, mut messages) = mpsc::channel(8);
            let route = Route { mailbox, epoch: next_epoch(), is_session: true };
            let barrier = Barrier::new(2);
            let receiver = thread::scope(|scope| {
                let reader = scope.spawn(|| {
                    barrier.wait();
                    find_receiver(&agent, &session, "{}", |_| true)
                });
                barrier.wait();
                agent.set_route(&session, &route).unwrap();
                reader.join().unwrap()
            });
            let is_kept = matches!(receiver, Receiver::None);
            assert_eq!(
                messages.try_recv().is_ok(),
                is_kept,
                "kept updates are in the mailbox, others follow"
            );
        }
    }
}
