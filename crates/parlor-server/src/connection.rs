//! What a client asks, and who answers.

mod adopt;
mod begin;
mod list;
mod search;
mod title;

use std::collections::HashSet;
use std::sync::Arc;

use parlor_dialect::Dialect;
use parlor_json::{Json, Object};
use parlor_session::SessionId;
use parlor_session::session::{Answer, PromptId};
use parlor_wire::{
    Batches, Body, CANCEL_REQUEST, Frame, Incoming, Message as Rpc, Outcome, RequestId, RpcError,
    cancel_target, code, parse,
};

use tokio::sync::Semaphore;

use crate::client::Client;
use crate::hub::Shared;
use crate::json;
use crate::session::fork::{Request, Why};
use crate::session::{From, Message};

/// How many sessions one connection may take part in.
const MAX_SESSIONS: usize = 10_000;

/// How many requests of one connection may be answered aside, while it says more.
const MAX_ASIDE: usize = 256;

/// A client that is connected.
pub(crate) struct Connection {
    hub: Arc<Shared>,
    client: Arc<Client>,
    /// The sessions that it asked something of.
    sessions: HashSet<SessionId>,
    aside: Arc<Semaphore>,
}

impl Connection {
    pub(crate) fn new(hub: Arc<Shared>, client: Arc<Client>) -> Self {
        Self { hub, client, sessions: HashSet::new(), aside: Arc::new(Semaphore::new(MAX_ASIDE)) }
    }

    /// Answers what may take long, such as an agent's answer, while the client says more.
    fn aside(&self, answer: impl Future<Output = ()> + Send + 'static) -> Result<(), RpcError> {
        let place = Arc::clone(&self.aside).try_acquire_owned().map_err(|_| {
            let message = format!("{MAX_ASIDE} requests wait for their answers already: try again later");
            RpcError::new(code::INTERNAL_ERROR, message)
        })?;
        tokio::spawn(async move {
            answer.await;
            drop(place);
        });
        Ok(())
    }

    pub(crate) async fn said(&mut self, frame: Frame<'_>) {
        let batches = self.client.terms().map_or(Batches::Accept, |terms| terms.dialect.batches());
        if frame == Frame::Blank {
            return;
        }
        match frame.line().and_then(|line| parse(line, batches)) {
            Ok(Incoming::One(message)) => self.message(&message).await,
            Ok(Incoming::Batch(messages)) => {
                for message in messages {
                    match message {
                        Ok(message) => self.message(&message).await,
                        Err(malformed) => self.malformed(&malformed),
                    }
                }
            }
            Err(malformed) => self.malformed(&malformed),
        }
    }

    fn malformed(&self, malformed: &parlor_wire::Malformed) {
        if let Some(answer) = malformed.answer() {
            self.client.outbox.push(format!("{answer}\n").into());
        }
    }

    async fn message(&mut self, message: &Rpc<'_>) {
        match &message.body {
            Body::Request { id, method, params } => {
                let params = json::object(*params);
                if let Err(error) = self.request(id, method, params).await {
                    self.refuse(id, &error);
                }
            }
            Body::Notification { method, params } => self.notification(method, *params).await,
            Body::Response { id, outcome } => {
                let Some(question) = self.client.answered(id) else { return };
                let answer = match outcome {
                    Outcome::Result(result) => Answer::Result(Json::from(*result)),
                    Outcome::Error(error) => Answer::Error(Json::from(*error)),
                };
                let answered = Message::Answered { question: question.about, by: self.client.id, answer };
                let _ = question.session.send(answered).await;
            }
        }
    }

    fn refuse(&self, id: &RequestId, error: &RpcError) {
        self.client.outbox.push(json::error(id, error).into());
    }

    async fn notification(&mut self, method: &str, params: Option<&serde_json::value::RawValue>) {
        if method == CANCEL_REQUEST {
            let Some(id) = cancel_target(params) else { return };
            // One that is not in memory has nothing that could be taken back.
            let live: Vec<_> =
                self.sessions.iter().filter(|session| self.hub.is_live(session)).cloned().collect();
            for session in live {
                let _ =
                    self.reach(&session, Message::TakeBack { client: self.client.id, id: id.clone() }).await;
            }
            return;
        }
        let params = json::object(params);
        let Some(session) = json::session_of(&params) else { return };
        if !self.client.drives() || self.client.terms().is_none() {
            return;
        }
        let message = match method {
            "session/cancel" => Message::Cancel,
            _ => Message::Forward {
                client: Arc::clone(&self.client),
                id: None,
                method: method.to_owned(),
                params,
            },
        };
        if let Err(error) = self.reach(&session, message).await {
            tracing::debug!(%session, "a notification reaches nobody: {}", error.message());
        }
    }

    async fn request(&mut self, id: &RequestId, method: &str, params: Object) -> Result<(), RpcError> {
        if method == "initialize" {
            return self.initialize(id, &params).await;
        }
        // Who only wants to know how the server is need not begin, which may start an agent.
        match method {
            "_parlor/status" => return list::status(&self.hub, &self.client, id).await,
            "_parlor/search" => return search::search(&self.hub, &self.client, id, params).await,
            "_parlor/agents" => {
                list::agents(&self.hub, &self.client, id);
                return Ok(());
            }
            _ => {}
        }
        let Some(terms) = self.client.terms() else {
            return Err(RpcError::new(code::INVALID_REQUEST, "`initialize` comes first"));
        };
        let dialect = terms.dialect;
        let client = || Arc::clone(&self.client);
        match method {
            "session/list" => {
                let (hub, client, id) = (Arc::clone(&self.hub), client(), id.clone());
                return self.aside(async move { list::list(&hub, &client, &id, &params).await });
            }
            "session/load" | "session/resume" => {
                let from = from(method, &params, dialect)?;
                let session = session(&params)?;
                let join = |from| Message::Join { client: client(), id: id.clone(), from };
                // Taking one over may take long, and is not waited for here.
                if !self.hub.is_here(&session).await? {
                    self.may_act()?;
                    return self.adopt(id, params, session, join(from));
                }
                return self.reach(&session, join(from)).await;
            }
            _ => {}
        }
        self.may_act()?;
        match method {
            "session/new" => {
                let (hub, client, id) = (Arc::clone(&self.hub), client(), id.clone());
                let sid = SessionId::from(uuid::Uuid::now_v7().to_string().as_str());
                self.touch(&sid)?;
                self.aside(async move { begin::new_session(&hub, &client, &id, params, sid).await })
            }
            _ => match (json::session_of(&params), to_session(method, params.clone(), client(), id)?) {
                (
                    Some(session),
                    message @ (Message::Close { .. } | Message::Unhold { .. } | Message::Forward { .. }),
                ) => self.reach(&session, message).await,
                (Some(session), message) => self.reach_any(id, session, message).await,
                (None, Message::Forward { method, .. }) => {
                    let (hub, client, id) = (Arc::clone(&self.hub), client(), id.clone());
                    self.aside(async move { begin::for_agent(&hub, &client, &id, &method, &params).await })
                }
                (None, _) => session(&params).map(drop),
            },
        }
    }

    /// An observer may watch and nothing else.
    fn may_act(&self) -> Result<(), RpcError> {
        if self.client.drives() {
            return Ok(());
        }
        let mut data = Object::default();
        data.set("reason", json::string("observer"));
        let error = RpcError::new(code::INVALID_REQUEST, "this token may watch and nothing else");
        Err(error.with_data(data.to_json()))
    }

    /// Hands a message to a session; one that is known to be an agent's alone is taken over first.
    async fn reach_any(
        &mut self,
        id: &RequestId,
        session: SessionId,
        message: Message,
    ) -> Result<(), RpcError> {
        if adopt::is_foreign(&self.hub, &session).await? {
            return self.adopt(id, Object::default(), session, message);
        }
        self.reach(&session, message).await
    }

    /// Hands a message to a session that nobody here knows, if an agent does.
    fn adopt(
        &mut self,
        id: &RequestId,
        params: Object,
        session: SessionId,
        message: Message,
    ) -> Result<(), RpcError> {
        self.touch(&session)?;
        let (hub, client, id) = (Arc::clone(&self.hub), Arc::clone(&self.client), id.clone());
        self.aside(async move { adopt::hand_over(&hub, &client, &id, &params, &session, message).await })
    }

    async fn reach(&mut self, session: &SessionId, message: Message) -> Result<(), RpcError> {
        self.touch(session)?;
        let sent = self.hub.send(session, message).await;
        if sent.is_err() {
            self.sessions.remove(session);
        }
        sent
    }

    fn touch(&mut self, session: &SessionId) -> Result<(), RpcError> {
        if self.sessions.len() >= MAX_SESSIONS && !self.sessions.contains(session) {
            let message = format!("one connection takes part in at most {MAX_SESSIONS} sessions");
            return Err(RpcError::new(code::INVALID_REQUEST, message));
        }
        self.sessions.insert(session.clone());
        Ok(())
    }

    async fn initialize(&mut self, id: &RequestId, params: &Object) -> Result<(), RpcError> {
        let dialect = Dialect::negotiate(params.to_json().raw())
            .map_err(parlor_dialect::UnsupportedVersion::to_error)?;
        let dialect = match (dialect, self.client.peer.dialect) {
            (Dialect::V2, Some(Dialect::Draft)) => Dialect::Draft,
            (dialect, _) => dialect,
        };
        if !self.client.begins(dialect, params.clone()) {
            return Err(RpcError::new(code::INVALID_REQUEST, "`initialize` comes once"));
        }
        let result = begin::initialized(&self.hub, &self.client, dialect).await?;
        self.client.outbox.push(json::response(id, &result).into());
        Ok(())
    }
}

/// A client that is gone leaves all its sessions. They go on.
impl Drop for Connection {
    fn drop(&mut self) {
        self.client.outbox.close();
        self.hub.disconnected();
        let (hub, client) = (Arc::clone(&self.hub), self.client.id);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { hub.left(client).await });
        }
    }
}

fn session(params: &Object) -> Result<SessionId, RpcError> {
    json::session_of(params)
        .ok_or_else(|| RpcError::new(code::INVALID_PARAMS, "`sessionId` must be a string"))
}

/// What a request of a driver's means to the session that it is about.
fn to_session(
    method: &str,
    params: Object,
    client: Arc<Client>,
    id: &RequestId,
) -> Result<Message, RpcError> {
    let id = id.clone();
    Ok(match method {
        "session/prompt" => Message::Prompt { client, id, params },
        "session/close" => Message::Close { client, id },
        "session/delete" => Message::Delete { client, id },
        "session/fork" => Message::Fork(Box::new(Request { client, id, params, why: Why::Fork })),
        "_parlor/edit" => Message::Fork(Box::new(Request { client, id, params, why: Why::Edit })),
        "_parlor/regenerate" => Message::Fork(Box::new(Request { client, id, params, why: Why::Regenerate })),
        "session/set_title" | "_parlor/title" => {
            Message::Title { client, id, title: title::title(method, &params)? }
        }
        "session/archive" | "session/unarchive" | "_parlor/archive" => {
            Message::Archive { client, id, archived: title::archived(method, &params)? }
        }
        "_parlor/unhold" => {
            let prompt = params.get("id").and_then(|id| id.as_str().trim_matches('"').parse().ok());
            let prompt = prompt.ok_or_else(|| RpcError::new(code::INVALID_PARAMS, "`id` names a prompt"))?;
            Message::Unhold { client, id, prompt: PromptId(prompt) }
        }
        _ if method.starts_with("_parlor/") => {
            return Err(RpcError::new(code::METHOD_NOT_FOUND, format!("there is no method {method}")));
        }
        _ => Message::Forward { client, id: Some(id), method: method.to_owned(), params },
    })
}

/// From where a client wants to be told of a session.
fn from(method: &str, params: &Object, dialect: Dialect) -> Result<From, RpcError> {
    if method == "session/load" {
        return Ok(From::Start);
    }
    let Some(cursor) = params.get("replayFrom").filter(|from| !from.is_null()) else { return Ok(From::Now) };
    let unsupported = || {
        let mut data = Object::default();
        data.set("replayFrom", cursor.clone());
        let known = "`replayFrom` is one of start, _parlor_after, _parlor_message";
        RpcError::new(code::INVALID_PARAMS, known).with_data(data.to_json())
    };
    if dialect == Dialect::V1 {
        return Ok(From::Now);
    }
    let cursor = json::object(Some(cursor.raw()));
    match json::text(&cursor, "type").as_deref() {
        Some("start") => Ok(From::Start),
        Some("_parlor_after") => {
            let seq = cursor.get("seq").and_then(|seq| seq.as_str().parse().ok());
            seq.map(From::After).ok_or_else(unsupported)
        }
        Some("_parlor_message") => {
            json::literal(&cursor, "messageId").map(|id| From::Message(id.into())).ok_or_else(unsupported)
        }
        Some(_) | None => Err(unsupported()),
    }
}
