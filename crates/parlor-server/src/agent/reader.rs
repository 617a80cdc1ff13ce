//! What an agent says, sorted by whom it concerns.

use std::sync::Arc;

use parlor_dialect::live::{self, AgentUpdate};
use parlor_engine::Frame;
use parlor_json::{Json, Object};
use parlor_session::SessionId;
use parlor_wire::{
    Batches, Body, CANCEL_REQUEST, Incoming, InputLine, LineDecoder, Message as Rpc, Outcome, RequestId,
    RpcError, cancel_target, code, parse,
};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::Semaphore;

use super::sessionless::{self, Order};
use super::{Agent, Home, MAX_ORPHANS, Waiting, lock};
use crate::connection::batch;
use crate::json;
use crate::session::{AgentCall, AgentMessage, Link};

/// How much is read at once.
const BUFFER: usize = 64 << 10;

/// How many deliveries may be on their way to sessions. An agent that is faster than its sessions is read no further:
/// what it says is then kept in its own pipe, and not here.
const DELIVERIES: usize = 32;

/// Reads all that an agent says, until it says nothing more.
pub(super) async fn read(agent: Arc<Agent>, mut stream: impl AsyncRead + Unpin) {
    let mut lines = LineDecoder::default();
    let mut buffer = vec![0; BUFFER];
    let mut mail = Mail::new();
    loop {
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => break,
            Ok(count) => lines.extend(&buffer[..count]),
        }
        while let Some(frame) = lines.next_line() {
            heard(&agent, frame, &mut mail).await;
        }
        mail.send(&agent).await;
    }
    lines.finish();
    while let Some(frame) = lines.next_line() {
        heard(&agent, frame, &mut mail).await;
    }
    mail.send(&agent).await;
    agent.ended().await;
}

/// Updates of one session on their way to it. Most lines of an agent are about the session that the one before was
/// about, and begin with the same characters up to its id.
pub(super) struct Mail {
    to: Option<Link>,
    /// How the lines about that session begin.
    prefix: String,
    lines: String,
    deliveries: Arc<Semaphore>,
    pub(super) order: Order,
}

impl Mail {
    fn new() -> Self {
        let deliveries = Arc::new(Semaphore::new(DELIVERIES));
        let order = Order::default();
        Self { to: None, prefix: String::new(), lines: String::new(), deliveries, order }
    }

    async fn send(&mut self, agent: &Agent) {
        let lines = std::mem::take(&mut self.lines);
        let Some(link) = self.to.as_ref().filter(|_| !lines.is_empty()) else { return };
        let place = Arc::clone(&self.deliveries).acquire_owned().await.ok();
        self.order.sent_to(link);
        let sent = link.send(AgentMessage::Lines(lines, place)).await;
        let Err(AgentMessage::Lines(back, place)) = sent else { return };
        // The session has left its place. It may have another by now, or take one later.
        self.to = None;
        let first = back.lines().next().and_then(AgentUpdate::read).and_then(|update| update.session());
        let Some(session) = first else { return };
        let other = lock(&agent.links).sessions.get(&session).filter(|link| !link.inbox.is_closed()).cloned();
        match (other, home(agent, &session)) {
            (Some(other), _) => drop(other.send(AgentMessage::Lines(back, place)).await),
            (None, Some(home)) => home.deliver(back).await,
            (None, None) => back.lines().for_each(|line| orphan(agent, session.clone(), line)),
        }
    }

    fn add(&mut self, line: &str) {
        self.lines.push_str(line);
        self.lines.push('\n');
    }
}

async fn heard(agent: &Arc<Agent>, frame: InputLine<'_>, mail: &mut Mail) {
    let line = match frame.line() {
        Ok(line) => line,
        Err(malformed) => {
            tracing::warn!(agent = agent.about.name, "a line of the agent cannot be read: {malformed}");
            return;
        }
    };
    if mail.to.is_some() && line.starts_with(&mail.prefix) {
        mail.add(line);
        return;
    }
    if let Some(update) = AgentUpdate::read(line)
        && let Some(session) = update.session()
    {
        mail.send(agent).await;
        let inbox = lock(&agent.links).sessions.get(&session).cloned();
        match (inbox, home(agent, &session)) {
            (Some(inbox), _) => {
                mail.to = Some(inbox);
                update.prefix(line).clone_into(&mut mail.prefix);
                mail.add(line);
            }
            (None, home) => {
                mail.to = None;
                match home {
                    Some(home) => home.deliver(format!("{line}\n")).await,
                    None => orphan(agent, session, line),
                }
            }
        }
        return;
    }
    // Everything else is in order with the updates before it.
    mail.send(agent).await;
    mail.to = None;
    match parse(line, Batches::Accept) {
        Ok(Incoming::One(message)) => said(agent, &message, mail).await,
        Ok(Incoming::Batch(messages)) => {
            for malformed in messages.iter().filter_map(|message| message.as_ref().err()) {
                tracing::warn!(agent = agent.about.name, "{malformed}");
            }
            if batch(&agent.stdin, &messages) {
                for message in messages.iter().flatten() {
                    said(agent, message, mail).await;
                }
            }
        }
        Err(malformed) => {
            tracing::warn!(agent = agent.about.name, "a line of the agent is no message: {malformed}");
            Frame::malformed(&malformed).into_iter().for_each(|answer| agent.stdin.push(answer));
        }
    }
}

/// Where a session is at home that the agent was let go of.
fn home(agent: &Agent, session: &SessionId) -> Option<Home> {
    lock(&agent.links).released.get(session).cloned()
}

fn orphan(agent: &Agent, session: SessionId, line: &str) {
    let mut links = lock(&agent.links);
    // What was said about sessions that nobody asks for makes room.
    while links.orphan_bytes + line.len() + 1 > MAX_ORPHANS {
        let Some(other) = links.orphans.keys().find(|other| **other != session).cloned() else {
            tracing::warn!(agent = agent.about.name, %session, "an update of an unknown session is dropped");
            return;
        };
        tracing::warn!(agent = agent.about.name, session = %other, "updates of an unknown session are dropped");
        let dropped = links.orphans.remove(&other).map_or(0, |lines| lines.len());
        links.orphan_bytes -= dropped;
    }
    links.orphan_bytes += line.len() + 1;
    let lines = links.orphans.entry(session).or_default();
    lines.push_str(line);
    lines.push('\n');
}

async fn said(agent: &Arc<Agent>, message: &Rpc<'_>, mail: &mut Mail) {
    match &message.body {
        Body::Response { id, outcome } => {
            let reply = match outcome {
                Outcome::Result(result) => Ok(Json::from(*result)),
                Outcome::Error(error) => Err(Json::from(*error)),
            };
            let waiting = lock(&agent.asked).complete(id);
            match waiting {
                Some(Waiting::Caller(caller, _)) => drop(caller.send(reply)),
                Some(Waiting::Session(link, call)) => {
                    if let Err(answer) = link.send(AgentMessage::Answered(call, reply)).await {
                        answer.refuse(&RpcError::new(code::INTERNAL_ERROR, "the session was closed"));
                    }
                }
                Some(Waiting::Opening(link, _)) => {
                    let _ = link.send(AgentMessage::Answered(AgentCall::Restore, reply)).await;
                }
                None => {
                    tracing::debug!(agent = agent.about.name, "an answer to nothing: {}", id.as_literal());
                }
            }
        }
        Body::Request { id, method, params } => {
            let params = json::object(*params);
            request(agent, id.clone(), method.to_string(), params, mail).await;
        }
        Body::Notification { method, params } => notification(agent, message, method, *params, mail).await,
    }
}

async fn request(agent: &Arc<Agent>, id: RequestId, method: String, params: Object, mail: &mut Mail) {
    let session = json::session_of(&params);
    if session.is_none() {
        return sessionless::request(agent, id, &method, params, &mut mail.order).await;
    }
    let inbox = session.and_then(|session| lock(&agent.links).sessions.get(&session).cloned());
    let refused = |id: &RequestId| {
        let error = RpcError::new(code::METHOD_NOT_FOUND, format!("nobody here answers {method}"));
        agent.answer(id, &Err(error.to_json()));
    };
    match inbox {
        Some(inbox) => {
            let asked = AgentMessage::Asks { id: id.clone(), method: method.clone(), params };
            if inbox.send(asked).await.is_err() {
                refused(&id);
            }
        }
        None => refused(&id),
    }
}

async fn notification(
    agent: &Arc<Agent>,
    message: &Rpc<'_>,
    method: &str,
    params: Option<parlor_json::JsonRef<'_>>,
    mail: &mut Mail,
) {
    if method == CANCEL_REQUEST {
        let Some(id) = cancel_target(params) else { return };
        if sessionless::cancel(agent, &id, &mut mail.order).await {
            return;
        }
        let inboxes: Vec<_> = lock(&agent.links).sessions.values().cloned().collect();
        for inbox in inboxes {
            let _ = inbox.send(AgentMessage::Unasks(id.clone())).await;
        }
        return;
    }
    if method == "session/update" {
        // One that could not be read in one pass.
        let Ok((session, _)) = live::update_of(params) else {
            tracing::warn!(agent = agent.about.name, "an update without a session");
            return;
        };
        let inbox = lock(&agent.links).sessions.get(&session).cloned();
        match inbox {
            Some(inbox) => {
                mail.order.sent_to(&inbox);
                let _ = inbox.send(AgentMessage::Lines(format!("{}\n", message.text()), None)).await;
            }
            None => match home(agent, &session) {
                Some(home) => home.deliver(format!("{}\n", message.text())).await,
                None => orphan(agent, session, message.text()),
            },
        }
        return;
    }
    let session = json::session_of(&json::object(params));
    if session.as_ref().is_some_and(|session| home(agent, session).is_some()) {
        tracing::debug!(agent = agent.about.name, method, "said of a session that it was let go of");
        return;
    }
    let inbox = session.and_then(|session| lock(&agent.links).sessions.get(&session).cloned());
    if let Some(inbox) = inbox {
        mail.order.sent_to(&inbox);
        let _ = inbox.send(AgentMessage::Notes(message.text().to_owned())).await;
        return;
    }
    sessionless::notification(agent, message, &mut mail.order).await;
}
