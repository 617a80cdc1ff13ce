//! Sessions that go on from a point of another.
//!
//! A fork is stored together with what changed here, so that it is the conversation of one moment. Only then its agent
//! is looked after: one that can fork by itself is asked to, and every other is given the conversation with the first
//! prompt.

use std::sync::Arc;

use parlor_dialect::live::Listener;
use parlor_dialect::settings::Settings;
use parlor_dialect::{Dialect, Losses, live};
use parlor_engine::opening::OpeningPlan;
use parlor_engine::{AgentEpoch, Capability, Frame};
use parlor_json::{Json, JsonStr, Object};
use parlor_session::session::{AgentsPoint, Fork, NotForked, Point};
use parlor_session::{MessageId, Row, SessionId};
use parlor_store::{Copied, SessionRow, Write};
use parlor_wire::{RequestId, RpcError, code};

use super::{Actor, Bound, From, Message, UNPLACED, now, restore};
use crate::agent::{History, Opener, Startup};
use crate::client::Client;
use crate::config::AgentConfig;
use crate::hub::Shared;
use crate::json;
use crate::stored::{self, KEPT, OPENED};

/// How many forks may wait for the agent to be brought back. One more goes without it.
const MAX_WAITING: usize = 64;

/// A client wants the conversation to go on elsewhere.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) client: Arc<Client>,
    pub(crate) id: RequestId,
    pub(crate) params: Object,
    pub(crate) why: Why,
}

/// What the client wants of a fork.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// The fork itself.
    Fork,
    /// To say something else in place of a prompt.
    Edit,
    /// To ask the same again.
    Regenerate,
}

/// A fork on its way.
pub(super) struct Planned {
    client: Arc<Client>,
    /// The request, which is answered when the fork is there.
    id: RequestId,
    row: SessionRow,
    /// What is written of it, until it is.
    writes: Vec<Write>,
    /// What the agent is asked, if it can fork by itself.
    native: Option<Native>,
    /// The answer, unless the agent has more to say.
    answer: Object,
    /// What is said in the new session at once.
    prompt: Option<Json>,
    is_stored: bool,
}

/// A fork that is made once it is stored.
pub(crate) struct Start {
    planned: Planned,
    /// The params with which an incarnation of the agent is asked to fork.
    native: Option<(AgentEpoch, Object)>,
    /// Why the agent does not fork by itself, if it could have.
    error: Option<RpcError>,
}

/// What an agent is asked that can fork by itself.
struct Native {
    params: Object,
    /// The session at the agent that is forked.
    session: SessionId,
    /// The last change, if it is forked at its end: what comes later is not to be in it.
    end: Option<u64>,
}

/// How the agent of a fork knows the conversation.
enum How {
    /// It has forked by itself.
    Native(Box<Bound>),
    /// It is given the conversation with the first prompt; it may have failed to fork by itself.
    Transcript(Option<RpcError>),
}

impl Actor {
    pub(super) fn fork(&mut self, request: &Request) {
        match self.plan(request) {
            Ok(planned) => {
                self.forks.push(planned);
                self.due.durable = true;
            }
            Err(error) => self.send_to(request.client.id, Frame::error(&request.id, &error)),
        }
    }

    fn plan(&self, request: &Request) -> Result<Planned, RpcError> {
        let Request { client, id, params, why } = request;
        let message = message_of(params)?.map(|message| self.unaliased(message));
        let point = match (why, &message) {
            (Why::Fork, None) => Point::End,
            (Why::Fork, Some(message)) => Point::After(message.clone()),
            (Why::Edit | Why::Regenerate, Some(message)) => Point::BeforePrompt(message.clone()),
            (Why::Edit | Why::Regenerate, None) => {
                return Err(RpcError::new(code::INVALID_PARAMS, "`messageId` must be a string"));
            }
        };
        let fork = self.session.fork(&point).map_err(|why| not_forked(message.as_ref(), why))?;
        let prompt = match why {
            Why::Fork => None,
            Why::Edit => Some(self.edited(params, message.as_ref(), &fork)?),
            Why::Regenerate => Some(again(message.as_ref(), &fork)?),
        };
        let mut row = self.row_of_fork(client, params, *why, message.as_ref())?;
        stored::set_title(&mut row, fork.title.as_ref(), fork.is_title_made);
        let native = self.native(&fork, &row, params);
        let answer = self.answer_to_fork(client, &row, &fork);
        let writes = self.writes_of_fork(&row, fork);
        Ok(Planned {
            client: Arc::clone(client),
            id: id.clone(),
            row,
            writes,
            native,
            answer,
            prompt,
            is_stored: false,
        })
    }

    fn row_of_fork(
        &self,
        client: &Client,
        params: &Object,
        why: Why,
        message: Option<&MessageId>,
    ) -> Result<SessionRow, RpcError> {
        let given = params.get("cwd").filter(|cwd| !cwd.is_null() && why == Why::Fork);
        let cwd = match given.map(|_| json::absolute(params, "cwd")) {
            None => self.row.cwd.clone(),
            Some(Some(cwd)) => cwd,
            Some(None) => {
                return Err(RpcError::new(code::INVALID_PARAMS, "`cwd` must be an absolute path"));
            }
        };
        let mut data = json::object(Json::parse(self.row.data.clone()).ok().as_ref().map(Json::raw));
        // A client that names servers says how the new session is made; else it is made as this one was.
        // Version 1 wants a list in any case, so that an empty one says nothing there.
        let names_servers = params.get("mcpServers").is_some_and(|servers| {
            !servers.is_null() && (client.dialect() != Dialect::V1 || servers.as_str() != "[]")
        });
        if why == Why::Fork && names_servers {
            let mut given = params.clone();
            for name in ["sessionId", "messageId", "cwd", "_meta"] {
                given.remove(name);
            }
            data.set("params", given.to_json());
            data.set("dialect", json::string(client.dialect().name()));
        }
        if given.is_some() {
            data.remove(UNPLACED);
        }
        match message {
            Some(message) => data.set("forkedAt", message.as_json()),
            None => drop(data.remove("forkedAt")),
        }
        let id = SessionId::from(uuid::Uuid::new_v4().to_string().as_str());
        let now = now();
        Ok(SessionRow {
            id: id.as_json().as_literal().to_owned(),
            agent: self.row.agent.clone(),
            agent_session: None,
            cwd,
            title: None,
            parent: Some(self.row.id.clone()),
            created_at: now,
            active_at: now,
            archived: false,
            busy: false,
            data: data.to_json().as_str().to_owned(),
        })
    }

    /// What the agent is asked to do, if it can do it: for that it has to know all of the conversation.
    fn native(&self, fork: &Fork, row: &SessionRow, asked: &Object) -> Option<Native> {
        let agents = JsonStr::from_literal(self.row.agent_session.as_deref()?)?;
        if !self.knows_conversation() || self.waiting_forks.len() >= MAX_WAITING {
            return None;
        }
        let (offer, message) = match &fork.agents {
            AgentsPoint::End => (Capability::Fork, None),
            AgentsPoint::After(message) => (Capability::ForkAtMessage, Some(message)),
            AgentsPoint::Start | AgentsPoint::Nameless => return None,
        };
        let (dialect, offers) = match &self.agent {
            Some(link) => (link.agent.dialect, link.agent.has(offer)),
            None => {
                let known = self.hub.registry().remembered(&self.hub.config_of(&self.row)?)?;
                (known.dialect, offer.is_in(known.dialect, &known.info))
            }
        };
        if !offers {
            return None;
        }
        let data = json::object(Json::parse(row.data.clone()).ok().as_ref().map(Json::raw));
        let mut params = json::member(&data, "params").unwrap_or_default();
        let from = json::text(&data, "dialect").and_then(|name| name.parse().ok()).unwrap_or(Dialect::V2);
        params.set("sessionId", &agents);
        params.set("cwd", json::string(&row.cwd));
        let mut losses = Losses::default();
        let request = live::request_to_agent("session/fork", &params, from, dialect, None, &mut losses);
        let (_, mut params) = request.ok()?;
        if let Some(fork) = JsonStr::from_literal(&row.id) {
            self.hub.losses().count(&fork.into(), losses);
        }
        if let Some(message) = message {
            params.set("messageId", message.as_json());
        }
        if let Some(meta) = agents_meta(asked) {
            params.set("_meta", meta.to_json());
        }
        let end = message.is_none().then(|| self.session.transcript().seq());
        Some(Native { params, session: agents.into(), end })
    }

    fn answer_to_fork(&self, client: &Client, row: &SessionRow, fork: &Fork) -> Object {
        let mut answer = Object::default();
        answer.set("sessionId", json::json(row.id.clone()));
        let initialize = client.terms().map(|terms| terms.initialize.clone()).unwrap_or_default();
        let mut listener = Listener::new(client.dialect(), &initialize);
        let mut losses = Losses::default();
        answer.add_missing(&listener.session_fields(self.session.transcript(), &mut losses));
        if let Some(fork) = JsonStr::from_literal(&row.id) {
            self.hub.losses().count(&fork.into(), losses);
        }
        answer.add_missing(&self.opened_for_fork());
        json::note(&mut answer, "parlor/seq", json::json(fork.entries.len().max(1).to_string()));
        json::note(&mut answer, "parlor/state", json::string("idle"));
        let how = if fork.entries.is_empty() { "empty" } else { "transcript" };
        json::note(&mut answer, FORK, json::string(how));
        answer
    }

    /// What is said in place of a prompt.
    fn edited(&self, params: &Object, message: Option<&MessageId>, fork: &Fork) -> Result<Json, RpcError> {
        if fork.prompt.as_ref().map(|(prompt, _)| prompt) != message {
            return Err(bad_message(message, "not_a_prompt", "only what a person said can be edited"));
        }
        let prompt = params.get("prompt").cloned().unwrap_or_else(Json::null);
        self.check_prompt(&prompt)?;
        Ok(prompt)
    }

    /// What the agent said of this session that holds for a fork as well, until its agent says something of it.
    fn opened_for_fork(&self) -> Object {
        let mut opened = self.opened.clone();
        opened.remove("_meta");
        opened
    }

    fn writes_of_fork(&self, row: &SessionRow, fork: Fork) -> Vec<Write> {
        let session = || row.id.clone();
        let last = fork.entries.len().max(1) as u64;
        let entries = fork.entries.into_iter();
        let entries = entries.map(|moved| Copied { from: moved.from, to: moved.to, head: moved.head });
        let mut writes = vec![
            Write::Session(row.clone()),
            Write::Copy { from: self.row.id.clone(), to: session(), entries: entries.collect() },
        ];
        for slot in fork.slots {
            if let Row::Slot { name, seq, body } = slot {
                writes.push(Write::Slot { session: session(), name: name.to_owned(), seq, body: Some(body) });
            }
        }
        let opened = self.opened_for_fork();
        if !opened.is_empty() {
            let body = Some(opened.to_json().as_str().to_owned());
            writes.push(Write::Slot { session: session(), name: OPENED.to_owned(), seq: last, body });
        }
        if !fork.kept.is_empty() {
            let body = Some(fork.kept.to_json().as_str().to_owned());
            writes.push(Write::Slot { session: session(), name: KEPT.to_owned(), seq: last, body });
        }
        writes
    }

    /// Whether there are forks that have yet to be stored.
    pub(super) fn has_new_forks(&self) -> bool {
        let starting = self.fork_starts.iter().map(|start| &start.planned);
        starting.chain(&self.waiting_forks).any(|planned| !planned.writes.is_empty())
    }

    /// What has to be written for forks, after all that changed here.
    pub(super) fn fork_writes(&mut self) -> Vec<Write> {
        let starting = self.fork_starts.iter_mut().map(|start| &mut start.planned);
        let planned = starting.chain(&mut self.waiting_forks);
        planned.flat_map(|planned| std::mem::take(&mut planned.writes)).collect()
    }

    /// Decides how the agents of forks get the conversation: by a native fork, for which one that is not there is brought
    /// back, or with the first prompt.
    pub(super) fn decide_forks(&mut self) {
        for planned in std::mem::take(&mut self.forks) {
            if planned.native.is_some() && self.agent.is_none() {
                self.waiting_forks.push(planned);
                self.start_agent();
            } else {
                self.decide_fork(planned, None);
            }
        }
    }

    /// Forks that waited for the agent go on, with it or without.
    pub(super) fn go_on_with_forks(&mut self, error: Option<&RpcError>) {
        for planned in std::mem::take(&mut self.waiting_forks) {
            self.decide_fork(planned, error);
        }
    }

    fn decide_fork(&mut self, mut planned: Planned, error: Option<&RpcError>) {
        let error = error.cloned().filter(|_| planned.native.is_some());
        // The agent may have begun anew since, or have gone on: then it would fork something else.
        let is_the_same = |native: &Native| {
            let seq = self.session.transcript().seq();
            let same_session = self.agent.as_ref().is_some_and(|link| link.session == native.session);
            same_session && self.knows_conversation() && native.end.is_none_or(|end| end == seq)
        };
        let native = planned.native.take().filter(is_the_same);
        let native = self.agent.as_ref().zip(native).map(|(link, native)| (link.epoch, native.params));
        self.fork_starts.push(Start { planned, native, error });
    }

    /// Forks that could not be stored are not there; those that were stored before go on.
    pub(super) fn refuse_forks(&mut self, error: &RpcError) {
        self.go_on_with_forks(Some(error));
        let starts = std::mem::take(&mut self.fork_starts);
        let planned = self.forks.drain(..).collect::<Vec<_>>();
        let (stored, lost): (Vec<_>, Vec<_>) = starts.into_iter().partition(|start| start.planned.is_stored);
        self.fork_starts = stored;
        for planned in lost.into_iter().map(|start| start.planned).chain(planned) {
            self.send_to(planned.client.id, Frame::error(&planned.id, error));
        }
    }

    /// Makes the forks that are stored now.
    pub(super) fn start_forks(&mut self) {
        self.waiting_forks.iter_mut().for_each(|planned| planned.is_stored = true);
        for start in std::mem::take(&mut self.fork_starts) {
            self.start_fork(start);
        }
    }

    fn start_fork(&self, Start { planned, native, error }: Start) {
        let hub = Arc::clone(&self.hub);
        let config = hub.config_of(&self.row);
        let timeout = config.unwrap_or_else(|| AgentConfig::new("", Vec::new())).startup_timeout;
        let opener = native.and_then(|(epoch, mut params)| {
            let agent = &self.ties.get(&epoch)?.agent;
            if let Some(session) = JsonStr::from_literal(&planned.row.id) {
                agent.name_session(&mut params, &session.into());
            }
            let wanted = restore::wanted(&self.data(), &Settings::of(self.session.transcript()));
            let plan = OpeningPlan::Fork { params, wanted, history: History::of(&self.session) };
            Some(Opener::start(agent, plan, Startup::new(timeout), None))
        });
        let agent = self.row.agent.clone();
        tokio::spawn(async move {
            let how = match opener {
                Some(opener) => match opener.opened(None).await {
                    Ok(opened) => How::Native(Box::new(opened.into())),
                    Err(error) => {
                        tracing::info!(agent, "the agent could not fork: {}", error.message());
                        How::Transcript(Some(error))
                    }
                },
                None => How::Transcript(error),
            };
            tell(&hub, planned, how).await;
        });
    }
}

/// How the answer says what the agent knows.
const FORK: &str = "parlor/fork";

/// The message that params name; a null names none.
fn message_of(params: &Object) -> Result<Option<MessageId>, RpcError> {
    match params.get("messageId").filter(|message| !message.is_null()) {
        None => Ok(None),
        Some(_) => match json::literal(params, "messageId") {
            Some(message) => Ok(Some(message.into())),
            None => Err(RpcError::new(code::INVALID_PARAMS, "`messageId` must be a string")),
        },
    }
}

/// Why there is no fork, for a client.
fn not_forked(message: Option<&MessageId>, why: NotForked) -> RpcError {
    let (reason, text) = match why {
        NotForked::Unknown => ("unknown", "there is no such message in the session"),
        NotForked::BeingWritten => ("being_written", "the agent is still writing this message"),
        NotForked::NoPrompt => ("no_prompt", "nobody said anything before this message"),
    };
    bad_message(message, reason, text)
}

fn bad_message(message: Option<&MessageId>, reason: &str, text: &str) -> RpcError {
    let mut data = Object::default();
    if let Some(message) = message {
        data.set("messageId", message.as_json());
    }
    data.set("reason", json::string(reason));
    RpcError::new(code::INVALID_PARAMS, text).with_data(data.to_json())
}

/// What is asked once more.
fn again(message: Option<&MessageId>, fork: &Fork) -> Result<Json, RpcError> {
    let content = fork.prompt.as_ref().map(|(_, content)| content.clone());
    content
        .filter(|content| content.as_str() != "[]")
        .ok_or_else(|| bad_message(message, "empty", "there is nothing left of the prompt"))
}

/// The metadata of a request that is for the agent.
fn agents_meta(params: &Object) -> Option<Object> {
    let meta = json::member(params, "_meta")?;
    let mut agents = Object::default();
    for (name, value) in meta.iter().filter(|(name, _)| !name.to_text().starts_with("parlor/")) {
        agents.set(name.clone(), value.clone());
    }
    (!agents.is_empty()).then_some(agents)
}

/// Answers who wanted the fork, lets it take part there, and says what is to be said.
async fn tell(hub: &Arc<Shared>, planned: Planned, how: How) {
    let Planned { client, id, row, answer, prompt, .. } = planned;
    let Some(session) = JsonStr::from_literal(&row.id).map(SessionId::from) else { return };
    let told = match how {
        How::Native(bound) => match hub.begin_fork(&session, *bound).await {
            Ok(None) => {
                hub.note_peer(&session, &client.peer);
                let from = From::Forked(vec![(FORK, json::string("native"))]);
                let join = Message::Join { client: Arc::clone(&client), id: id.clone(), from, cwd: None };
                match (hub.send(&session, join).await, prompt) {
                    (Ok(()), Some(content)) => {
                        hub.send(
                            &session,
                            Message::Say { client: Arc::clone(&client), content, answer: None },
                        )
                        .await
                    }
                    (joined, _) => joined,
                }
            }
            Ok(Some(bound)) => {
                // Somebody was quicker to open it, and it goes without this agent.
                bound.tie.discard();
                let why = RpcError::new(code::INTERNAL_ERROR, "the new session was opened meanwhile");
                tell_of_transcript(hub, &session, &client, &id, answer, prompt, Some(&why)).await
            }
            Err(error) => Err(error),
        },
        How::Transcript(error) => {
            tell_of_transcript(hub, &session, &client, &id, answer, prompt, error.as_ref()).await
        }
    };
    if let Err(error) = told {
        client.queue.push(Frame::error(&id, &error));
    }
}

/// The same for a fork whose agent is given the conversation. What is said there is stored before it is answered.
async fn tell_of_transcript(
    hub: &Arc<Shared>,
    session: &SessionId,
    client: &Arc<Client>,
    id: &RequestId,
    mut answer: Object,
    prompt: Option<Json>,
    error: Option<&RpcError>,
) -> Result<(), RpcError> {
    if let Some(error) = error {
        json::note(&mut answer, "parlor/forkFailed", json::string(error.message()));
    }
    let Some(content) = prompt else {
        hub.expect(session, client);
        client.queue.push(Frame::response(id, &answer));
        return Ok(());
    };
    let answer = Some((id.clone(), answer));
    hub.send(session, Message::Say { client: Arc::clone(client), content, answer }).await
}
