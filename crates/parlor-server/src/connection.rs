//! What a client asks, and who answers.

mod adopt;
mod begin;
mod list;
mod search;
mod title;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use parlor_dialect::Dialect;
use parlor_engine::{ClientCall, Event, ForkKind, ForkRequest, Frame, ReplayFrom};
use parlor_json::{Json, JsonStr, Object};
use parlor_session::SessionId;
use parlor_session::session::{Answer, PromptId, Scope};
use parlor_wire::{
    Batches, Body, CANCEL_REQUEST, Incoming, InputLine, Malformed, Message as Rpc, Outcome, RequestId,
    RpcError, cancel_target, code, parse,
};

use tokio::sync::{Semaphore, oneshot, watch};

use crate::agent::{Cancel, note_mcp_servers};
use crate::client::{Asker, Client};
use crate::hub::Shared;
use crate::json;
use crate::send_queue::SendQueue;
use crate::session::{Message, Refusable};

/// How many sessions one connection may take part in.
const MAX_SESSIONS: usize = 10_000;

/// How many requests of one connection may be answered aside, while it says more.
const MAX_ASIDE: usize = 256;

/// How many sessions are waited for before something is sent to the agent about none.
const MAX_TOUCHED: usize = 64;

/// A client that is connected.
pub(crate) struct Connection {
    hub: Arc<Shared>,
    client: Arc<Client>,
    /// The sessions that it asked something of.
    sessions: Arc<Mutex<HashSet<SessionId>>>,
    aside: Arc<Semaphore>,
    /// The requests that are answered aside, to be cancelled.
    open: Arc<Mutex<HashMap<RequestId, watch::Sender<bool>>>>,
    /// The end of what waits for a session that has to be opened, and of what waits for the agent; `None` is the agent's.
    lanes: HashMap<Option<SessionId>, oneshot::Receiver<()>>,
    /// The sessions that something was sent to since something was sent to the agent about none.
    touched: Vec<SessionId>,
}

impl Connection {
    pub(crate) fn new(hub: Arc<Shared>, client: Arc<Client>) -> Self {
        Self {
            hub,
            client,
            sessions: Arc::default(),
            aside: Arc::new(Semaphore::new(MAX_ASIDE)),
            open: Arc::default(),
            lanes: HashMap::new(),
            touched: Vec::new(),
        }
    }

    /// Answers what may take long, such as an agent's answer, while the client says more.
    fn aside<F: Future<Output = ()> + Send + 'static>(
        &self,
        id: Option<&RequestId>,
        answer: impl FnOnce(Cancel) -> F,
    ) -> Result<(), RpcError> {
        let place = Arc::clone(&self.aside).try_acquire_owned().map_err(|_| {
            let message = format!("{MAX_ASIDE} requests wait for their answers already: try again later");
            RpcError::new(code::INTERNAL_ERROR, message)
        })?;
        let (sender, cancel) = Cancel::new();
        let (open, id) = (Arc::clone(&self.open), id.cloned());
        if let Some(id) = &id {
            lock(&open).insert(id.clone(), sender);
        }
        let answer = answer(cancel);
        tokio::spawn(async move {
            answer.await;
            if let Some(id) = id {
                lock(&open).remove(&id);
            }
            drop(place);
        });
        Ok(())
    }

    /// Does something for a session that may have to be opened first, after all that waits for it already, while the
    /// client says more. What fails is answered.
    fn in_lane<F: Future<Output = Result<(), RpcError>> + Send + 'static>(
        &mut self,
        session: &SessionId,
        request: Option<Refusable>,
        job: impl FnOnce(Cancel) -> F,
    ) -> Result<(), RpcError> {
        self.touch(session)?;
        let (before, done) = self.lane(Some(session.clone()));
        let (hub, sessions, session) = (Arc::clone(&self.hub), Arc::clone(&self.sessions), session.clone());
        let id = request.as_ref().map(|request| request.id.clone());
        self.aside(id.as_ref(), |mut cancel| {
            let job = job(cancel.clone());
            async move {
                let waited = cancel.unless(async {
                    if let Some(before) = before {
                        let _ = before.await;
                    }
                });
                let has_room = match waited.await {
                    Ok(()) => hub.make_room().await,
                    Err(cancelled) => Err(cancelled),
                };
                let finished = match has_room {
                    Ok(()) => job.await,
                    Err(error) => Err(error),
                };
                drop(done);
                if let Err(error) = finished {
                    lock(&sessions).remove(&session);
                    match request {
                        Some(request) => request.refuse(&error),
                        None => {
                            tracing::debug!(%session, "a notification reaches nobody: {}", error.message());
                        }
                    }
                }
            }
        })
    }

    /// A place at the end of a lane, and the one before it.
    fn lane(&mut self, lane: Option<SessionId>) -> (Option<oneshot::Receiver<()>>, oneshot::Sender<()>) {
        self.drop_lanes();
        let (done, end) = oneshot::channel();
        (self.lanes.insert(lane, end), done)
    }

    /// Forgets the lanes in which nothing waits.
    fn drop_lanes(&mut self) {
        self.lanes.retain(|_, end| matches!(end.try_recv(), Err(oneshot::error::TryRecvError::Empty)));
    }

    pub(crate) async fn said(&mut self, frame: InputLine<'_>) {
        let batches = self.client.terms().map_or(Batches::Accept, |terms| terms.dialect.batches());
        if frame == InputLine::Blank {
            return;
        }
        match frame.line().and_then(|line| parse(line, batches)) {
            Ok(Incoming::One(message)) => self.message(&message).await,
            Ok(Incoming::Batch(messages)) => {
                if batch(&self.client.queue, &messages) {
                    for message in messages.iter().flatten() {
                        self.message(message).await;
                    }
                }
            }
            Err(malformed) => self.malformed(&malformed),
        }
    }

    fn malformed(&self, malformed: &parlor_wire::Malformed) {
        if let Some(answer) = Frame::malformed(malformed) {
            self.client.queue.push(answer);
        }
    }

    async fn message(&mut self, message: &Rpc<'_>) {
        match &message.body {
            Body::Request { id, method, params } => {
                let params = json::object(*params);
                if let Err(error) = self.request(id, method, params).await {
                    self.refuse(id, method, &error);
                }
            }
            Body::Notification { method, params } => self.notification(method, *params).await,
            Body::Response { id, outcome } => {
                let Some(asker) = self.client.answered(id) else { return };
                let answer = match outcome {
                    Outcome::Result(result) => Answer::Result(Json::from(*result)),
                    Outcome::Error(error) => Answer::Error(Json::from(*error)),
                };
                match asker {
                    Asker::Session(question) => {
                        let by = self.client.id;
                        let answered =
                            Message::Event(Event::Answered { question: question.about, by, answer });
                        let _ = question.session.send(answered).await;
                    }
                    Asker::Agent(request) => request.answered(&self.client, answer),
                }
            }
        }
    }

    fn refuse(&self, id: &RequestId, method: &str, error: &RpcError) {
        let ends = matches!(method, "session/close" | "session/delete");
        Refusable { client: Arc::clone(&self.client), id: id.clone(), ends }.refuse(error);
    }

    async fn notification(&mut self, method: &str, params: Option<parlor_json::JsonRef<'_>>) {
        if method == CANCEL_REQUEST {
            let Some(id) = cancel_target(params) else { return };
            if let Some(open) = lock(&self.open).get(&id) {
                open.send_replace(true);
            }
            // One that is not in memory has nothing that could be taken back.
            let sessions: Vec<_> = lock(&self.sessions).iter().cloned().collect();
            for session in sessions.into_iter().filter(|session| self.hub.is_live(session)) {
                let message = Event::CancelRequest { client: self.client.id, id: id.clone() };
                let _ = self.hub.send(&session, Message::Event(message)).await;
            }
            return;
        }
        let params = json::object(params);
        if !self.client.drives() || self.client.terms().is_none() {
            return;
        }
        let Some(session) = json::session_of(&params) else {
            if let Err(error) = self.for_agent(None, method.to_owned(), params).await {
                tracing::debug!(method, "a notification reaches nobody: {}", error.message());
            }
            return;
        };
        let message = match method {
            "session/cancel" => {
                let is_turn =
                    json::noted(&params, "parlor/scope").is_some_and(|scope| scope.as_str() == "\"turn\"");
                let scope = if is_turn { Scope::Turn } else { Scope::Session };
                Message::Event(Event::CancelTurn { by: self.client.id, scope })
            }
            _ => {
                let forward = ClientCall::Forward { id: None, method: method.to_owned(), params };
                Message::Call(Arc::clone(&self.client), forward)
            }
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
            "_parlor/losses" => return list::losses(&self.hub, &self.client, id, &session(&params)?).await,
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
        if matches!(method, "session/new" | "session/load" | "session/resume" | "session/fork") {
            check_directories(&params)?;
        }
        match method {
            "session/list" => {
                let (hub, client, request) = (Arc::clone(&self.hub), client(), id.clone());
                return self
                    .aside(Some(id), |_| async move { list::list(&hub, &client, &request, &params).await });
            }
            "session/status" => {
                let session = session(&params)?;
                return list::session_status(&self.hub, &self.client, id, &session).await;
            }
            "session/load" | "session/resume" => {
                let from = from(method, &params, dialect)?;
                let session = session(&params)?;
                let client = client();
                let cwd = json::absolute(&params, "cwd");
                let attach = ClientCall::Attach { id: id.clone(), from, cwd };
                let join = Message::Call(Arc::clone(&client), attach);
                note_mcp_servers(&self.client, &params);
                if self.is_ready(&session) {
                    return self.reach(&session, join).await;
                }
                // Opening one may take long, and is not waited for here.
                let (hub, may_act) = (Arc::clone(&self.hub), self.may_act());
                let target = session.clone();
                return self.in_lane(&session, join.refusable(), |cancel| async move {
                    if hub.is_here(&target).await? {
                        return hub.send(&target, join).await;
                    }
                    may_act?;
                    adopt::hand_over(&hub, &client, &params, &target, join, cancel).await
                });
            }
            _ => {}
        }
        self.may_act()?;
        if method == "session/fork" {
            note_mcp_servers(&self.client, &params);
        }
        match method {
            "session/new" => {
                let (hub, client, request) = (Arc::clone(&self.hub), client(), id.clone());
                let sid = SessionId::from(uuid::Uuid::new_v4().to_string().as_str());
                self.hub.make_room().await?;
                self.touch(&sid)?;
                self.aside(Some(id), |cancel| async move {
                    begin::new_session(&hub, &client, &request, params, sid, cancel).await;
                })
            }
            _ => match (json::session_of(&params), to_call(method, params.clone(), id)?) {
                (
                    Some(session),
                    call @ (ClientCall::Close { .. }
                    | ClientCall::WithdrawPrompt { .. }
                    | ClientCall::Forward { .. }),
                ) => self.reach(&session, Message::Call(client(), call)).await,
                (Some(session), call) => self.reach_any(&session, Message::Call(client(), call)).await,
                (None, ClientCall::Forward { method, .. }) => self.for_agent(Some(id), method, params).await,
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
        data.set("reason", "observer");
        let error = RpcError::new(code::INVALID_REQUEST, "this token may watch and nothing else");
        Err(error.with_data(data.to_json()))
    }

    /// Passes on what concerns the agent and no session, after all that the client said before. What it says later about
    /// sessions comes after it, unless the agent has to be started first.
    async fn for_agent(
        &mut self,
        id: Option<&RequestId>,
        method: String,
        params: Object,
    ) -> Result<(), RpcError> {
        let touched = std::mem::take(&mut self.touched);
        let (hub, client, request) = (Arc::clone(&self.hub), Arc::clone(&self.client), id.cloned());
        let said = async move || {
            for session in touched.into_iter().filter(|session| hub.is_live(session)) {
                let (sent, waiting) = oneshot::channel();
                let relay = Message::Relay { frame: Frame::updates(""), clients: Vec::new(), sent };
                if hub.send(&session, relay).await.is_ok() {
                    let _ = waiting.await;
                }
            }
        };
        let (hub, call) = (Arc::clone(&self.hub), begin::Call { client, id: request, method, params });
        self.drop_lanes();
        if !self.lanes.contains_key(&None)
            && let Some(agent) = begin::running(&hub, &call).await?
        {
            said().await;
            // Until it is asked, nothing else is read of the client.
            let (sent, is_sent) = oneshot::channel();
            self.aside(id, |cancel| call.pass_on(agent, cancel, sent))?;
            let _ = is_sent.await;
            return Ok(());
        }
        let (before, sent) = self.lane(None);
        self.aside(id, |mut cancel| async move {
            if let Some(before) = before {
                let _ = before.await;
            }
            said().await;
            match cancel.unless(begin::agent_of(&hub, &call)).await.flatten() {
                Ok(agent) => call.pass_on(agent, cancel, sent).await,
                Err(error) => call.answer(Err(error)),
            }
        })
    }

    /// Hands a message to a session; one that is known to be an agent's alone is taken over first.
    async fn reach_any(&mut self, session: &SessionId, message: Message) -> Result<(), RpcError> {
        if self.is_ready(session) {
            return self.reach(session, message).await;
        }
        let (hub, client, target) = (Arc::clone(&self.hub), Arc::clone(&self.client), session.clone());
        self.in_lane(session, message.refusable(), |cancel| async move {
            if adopt::is_foreign(&hub, &target).await? {
                return adopt::hand_over(&hub, &client, &Object::default(), &target, message, cancel).await;
            }
            hub.send(&target, message).await
        })
    }

    /// Whether a session can be sent something at once: it is open, and nothing waits for it.
    fn is_ready(&mut self, session: &SessionId) -> bool {
        self.drop_lanes();
        !self.lanes.contains_key(&Some(session.clone())) && self.hub.is_live(session)
    }

    async fn reach(&mut self, session: &SessionId, message: Message) -> Result<(), RpcError> {
        if !self.is_ready(session) {
            let (hub, target) = (Arc::clone(&self.hub), session.clone());
            return self
                .in_lane(session, message.refusable(), |_| async move { hub.send(&target, message).await });
        }
        if matches!(message, Message::Call(_, ClientCall::Fork(_))) {
            self.hub.make_room().await?;
        }
        self.touch(session)?;
        if !self.touched.contains(session) && self.touched.len() < MAX_TOUCHED {
            self.touched.push(session.clone());
        }
        let sent = self.hub.send(session, message).await;
        if sent.is_err() {
            lock(&self.sessions).remove(session);
        }
        sent
    }

    fn touch(&self, session: &SessionId) -> Result<(), RpcError> {
        let mut sessions = lock(&self.sessions);
        if sessions.len() >= MAX_SESSIONS && !sessions.contains(session) {
            let message = format!("one connection takes part in at most {MAX_SESSIONS} sessions");
            return Err(RpcError::new(code::INVALID_REQUEST, message));
        }
        sessions.insert(session.clone());
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
        let mut result = begin::initialized(&self.hub, &self.client, dialect).await?;
        // Who sent or withdrew a prompt is named by this number.
        json::note(&mut result, "parlor/client", Json::from(self.client.id.0));
        self.client.queue.push(Frame::response(id, &result));
        Ok(())
    }
}

/// Has the answers to the requests of a batch written together; whether there was room for that. If not, they are refused.
pub(crate) fn batch(queue: &SendQueue, messages: &[Result<Rpc<'_>, Malformed>]) -> bool {
    let requests = messages.iter().flatten().filter_map(|message| match &message.body {
        Body::Request { id, .. } => Some(id.clone()),
        Body::Notification { .. } | Body::Response { .. } => None,
    });
    let requests: Vec<_> = requests.collect();
    let bad = messages.iter().filter_map(|message| message.as_ref().err()).filter_map(Frame::malformed);
    let taken = queue.batch(requests.clone(), bad.collect());
    if taken.is_err() {
        let error =
            RpcError::new(code::INTERNAL_ERROR, "too many batches wait for their answers: try again later");
        let refused: Vec<_> = requests.iter().map(|id| Frame::error(id, &error)).collect();
        queue.push(Frame::batch(&refused));
    }
    taken.is_ok()
}

/// A client that is gone leaves all its sessions. They go on.
impl Drop for Connection {
    fn drop(&mut self) {
        self.client.queue.close();
        for asker in self.client.unanswered() {
            if let Asker::Agent(request) = asker {
                request.abandoned();
            }
        }
        self.hub.disconnected();
        let (hub, client) = (Arc::clone(&self.hub), self.client.id);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { hub.left(client).await });
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn session(params: &Object) -> Result<SessionId, RpcError> {
    json::session_of(params)
        .ok_or_else(|| RpcError::new(code::INVALID_PARAMS, "`sessionId` must be a string"))
}

/// A relative directory would be relative to where the server runs, which is the root as a rule.
fn check_directories(params: &Object) -> Result<(), RpcError> {
    let Some(list) = params.get("additionalDirectories").filter(|list| !list.is_null()) else {
        return Ok(());
    };
    let is_absolute = |path| JsonStr::from_raw(path).is_some_and(|path| path.to_text().starts_with('/'));
    let directories = list.elements();
    if directories.is_some_and(|directories| directories.into_iter().all(is_absolute)) {
        return Ok(());
    }
    Err(RpcError::new(code::INVALID_PARAMS, "`additionalDirectories` must be a list of absolute paths"))
}

/// The call to a session that a request of a driver is.
fn to_call(method: &str, params: Object, id: &RequestId) -> Result<ClientCall, RpcError> {
    let id = id.clone();
    let fork =
        |id, params, kind| ClientCall::Fork(Box::new(ForkRequest { id, params, kind, known_agent: None }));
    Ok(match method {
        "session/prompt" => ClientCall::Prompt { id, params },
        "session/close" => ClientCall::Close { id },
        "session/delete" => ClientCall::Delete { id },
        "session/fork" => fork(id, params, ForkKind::Fork),
        "_parlor/edit" => fork(id, params, ForkKind::Edit),
        "_parlor/regenerate" => fork(id, params, ForkKind::Regenerate),
        "session/set_title" | "_parlor/title" => {
            ClientCall::SetTitle { id, title: title::title(method, &params)? }
        }
        "session/archive" | "session/unarchive" | "_parlor/archive" => {
            ClientCall::Archive { id, archived: title::archived(method, &params)? }
        }
        "_parlor/withdraw" => {
            let prompt = params.get("id").and_then(|id| id.as_str().trim_matches('"').parse().ok());
            let prompt = prompt.ok_or_else(|| RpcError::new(code::INVALID_PARAMS, "`id` names a prompt"))?;
            ClientCall::WithdrawPrompt { id, prompt: PromptId(prompt) }
        }
        _ if method.starts_with("_parlor/") => {
            return Err(RpcError::new(code::METHOD_NOT_FOUND, format!("there is no method {method}")));
        }
        _ => ClientCall::Forward { id: Some(id), method: method.to_owned(), params },
    })
}

/// From where a client wants to be told of a session.
fn from(method: &str, params: &Object, dialect: Dialect) -> Result<ReplayFrom, RpcError> {
    if method == "session/load" {
        return Ok(ReplayFrom::Start);
    }
    let Some(cursor) = params.get("replayFrom").filter(|from| !from.is_null()) else {
        return Ok(ReplayFrom::Now);
    };
    let unsupported = || {
        let mut data = Object::default();
        data.set("replayFrom", cursor.clone());
        let known = "`replayFrom` is one of start, _parlor_after, _parlor_message";
        RpcError::new(code::INVALID_PARAMS, known).with_data(data.to_json())
    };
    if dialect == Dialect::V1 {
        return Ok(ReplayFrom::Now);
    }
    let cursor = cursor.to_object().unwrap_or_default();
    match cursor.get_string("type").as_deref() {
        Some("start") => Ok(ReplayFrom::Start),
        Some("_parlor_after") => {
            let seq = cursor.get("seq").and_then(|seq| seq.as_str().parse().ok());
            seq.map(ReplayFrom::After).ok_or_else(unsupported)
        }
        Some("_parlor_message") => {
            cursor.get_json_str("messageId").map(|id| ReplayFrom::Message(id.into())).ok_or_else(unsupported)
        }
        Some(_) | None => Err(unsupported()),
    }
}
