//! Forks: sessions that continue from a point of another.
//!
//! A fork is stored in the same batch as the changes of its parent, so that it is a consistent snapshot. Then the server gives
//! the agent the conversation: it asks an agent that can fork to do so, and sends any other agent the transcript with the
//! first prompt. A handoff is a fork that another agent continues: it always gets the transcript, and nothing of the old
//! agent's settings and session.

use parlor_dialect::live::UpdateEncoder;
use parlor_dialect::settings::Settings;
use parlor_dialect::{Dialect, Losses, live};
use parlor_json::{Json, JsonStr, Object};
use parlor_session::session::{AgentForkPoint, ClientId, Fork, ForkError, Point};
use parlor_session::{MessageId, Row, SessionId, Transcript, is_numbered};
use parlor_wire::{RequestId, RpcError, code};

use super::SessionMachine;
use crate::opening::wanted_settings;
use crate::rows::{CopiedEntry, SessionRow, Write};
use crate::session_data::{EarlierAgent, SessionData};
use crate::stored::{OPENED, SIDE_STATE};
use crate::summary::SessionSummary;
use crate::{
    AgentEpoch, AgentProfile, CachedAgentInfo, Capability, ClientInfo, ForkKind, ForkRequest, Frame,
    HandoffAgent, fields,
};

/// The forks of a session that are planned or wait for the agent.
#[derive(Debug, Default)]
pub(super) struct Forks {
    /// Those that clients requested in this batch.
    planned: Vec<PlannedFork>,
    /// Those that wait for the agent.
    waiting: Vec<PlannedFork>,
}

impl Forks {
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// How many wait for the agent.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The batch is stored.
    pub(super) fn on_stored(&mut self) {
        self.waiting.iter_mut().for_each(|planned| planned.start.is_stored = true);
    }
}

/// A fork that is planned or waits for the agent.
#[derive(Debug)]
struct PlannedFork {
    start: ForkStart,
    /// The native fork, if the agent can make it.
    native: Option<Native>,
}

/// A stored fork, for which the server next opens an agent session.
#[derive(Debug)]
pub struct ForkStart {
    /// The client that requested it.
    pub client: ClientId,
    /// The request, which is answered when the fork exists.
    pub id: RequestId,
    /// The new session.
    pub row: SessionRow,
    /// The result of the request; used if the agent does not fork.
    pub answer: Object,
    /// The first prompt of the new session.
    pub prompt: Option<Json>,
    /// How its agent gets the conversation.
    pub agent: ForkContext,
    /// The rows of the fork, until they are in a batch.
    writes: Vec<Write>,
    is_stored: bool,
}

#[cfg(test)]
impl ForkStart {
    pub(crate) fn for_tests(
        client: ClientId,
        id: RequestId,
        row: SessionRow,
        answer: Object,
        prompt: Option<Json>,
        agent: ForkContext,
    ) -> Self {
        Self { client, id, row, answer, prompt, agent, writes: Vec::new(), is_stored: true }
    }
}

/// How the agent of a fork gets the conversation.
#[derive(Debug)]
pub enum ForkContext {
    /// The agent of this epoch is asked to fork.
    Native {
        /// The epoch.
        epoch: AgentEpoch,
        /// The params of `session/fork`.
        params: Object,
        /// The settings that the fork must have.
        settings: Box<Settings>,
    },
    /// The server sends it the transcript with the first prompt. The error says why the agent did not fork, if it could have.
    Transcript(Option<RpcError>),
}

/// A fork that the agent makes.
#[derive(Debug)]
struct Native {
    params: Object,
    /// The session at the agent that is forked.
    session: SessionId,
    /// The last change, for a fork at the end: if the session has changed since, the agent would fork too much.
    end: Option<u64>,
}

/// The point at which an agent is asked to fork.
#[derive(Debug, Clone, Copy)]
enum NativePoint<'a> {
    /// The end of its session.
    End,
    /// A message, in the member `messageId`.
    Message(&'a MessageId),
    /// A message, in `_meta.jetbrains.air.fork`.
    AirMessage(&'a MessageId),
}

impl SessionMachine {
    pub(super) fn on_fork(&mut self, client: &ClientInfo, request: &ForkRequest) {
        match self.plan_fork(client, request) {
            Ok(planned) => {
                self.forks.planned.push(planned);
                self.rows.dirty.durable = true;
            }
            Err(error) => self.send_unattached(client.id, Frame::error(&request.id, &error)),
        }
    }

    fn plan_fork(&mut self, client: &ClientInfo, request: &ForkRequest) -> Result<PlannedFork, RpcError> {
        let ForkRequest { id, params, kind, known_agent, handoff } = request;
        let handoff = handoff.as_ref().filter(|agent| !self.is_own_agent(agent));
        let message = message_of(params)?.map(|message| self.resolve_alias(message));
        let point = match (kind, &message) {
            (ForkKind::Fork, None) => Point::End,
            (ForkKind::Fork, Some(message)) => Point::After(message.clone()),
            (ForkKind::Edit | ForkKind::Regenerate, Some(message)) => Point::BeforePrompt(message.clone()),
            (ForkKind::Edit | ForkKind::Regenerate, None) => {
                return Err(RpcError::new(code::INVALID_PARAMS, "`messageId` is required"));
            }
        };
        let mut fork = self.session.fork(&point).map_err(|why| not_forked(message.as_ref(), why))?;
        if handoff.is_some() {
            fork.slots.retain(|slot| matches!(slot, Row::Slot { name, .. } if *name == INFO));
        }
        let prompt = match kind {
            ForkKind::Fork => None,
            ForkKind::Edit => Some(self.edited_prompt(params, message.as_ref(), &fork)?),
            ForkKind::Regenerate => Some(regenerated_prompt(message.as_ref(), &fork)?),
        };
        let mut row = self.row_of_fork(client, params, *kind, message.as_ref())?;
        if let Some(agent) = handoff {
            assign_agent(&mut row, agent);
        }
        let mut data = SessionData::of(&row);
        data.earlier_agents = self.agents_of_fork(&fork, handoff.is_some());
        data.set_title(&mut row, fork.title.as_ref(), fork.is_title_generated);
        data.summary = data.summary.of_fork();
        data.forked_counts = Some((fork.entries.len() as u64, fork.messages as u64));
        row.data = data.to_text();
        let is_handoff = handoff.is_some();
        let native = if is_handoff { None } else { self.native(&fork, &row, params, known_agent.as_ref()) };
        let answer = self.answer_to_fork(client, &row, &fork, is_handoff);
        let writes = self.writes_of_fork(&row, fork, is_handoff);
        let start = ForkStart {
            client: client.id,
            id: id.clone(),
            row,
            answer,
            prompt,
            agent: ForkContext::Transcript(None),
            writes,
            is_stored: false,
        };
        Ok(PlannedFork { start, native })
    }

    /// Whether an agent is the one that the session has. One that was given as a command is not configured by name.
    fn is_own_agent(&self, agent: &HandoffAgent) -> bool {
        agent.name == self.rows.row.agent && self.rows.data.command.is_none()
    }

    /// The agents other than its own that wrote the messages of a fork.
    fn agents_of_fork(&self, fork: &Fork, is_handoff: bool) -> Vec<EarlierAgent> {
        let transcript = self.session.transcript();
        let entries = transcript.entries();
        let last = fork.entries.last().map_or(0, |entry| entry.from);
        let copied = entries.iter().take_while(|entry| entry.created() <= last);
        let messages = copied.filter(|entry| is_numbered(entry)).count();
        let mut agents = EarlierAgent::in_fork(&self.rows.data.earlier_agents, messages);
        if is_handoff && agents.last().map_or(0, |agent| agent.messages) < messages {
            agents.push(EarlierAgent { name: self.rows.row.agent.clone(), messages });
        }
        agents
    }

    fn row_of_fork(
        &mut self,
        client: &ClientInfo,
        params: &Object,
        kind: ForkKind,
        message: Option<&MessageId>,
    ) -> Result<SessionRow, RpcError> {
        let given = params.get("cwd").filter(|cwd| !cwd.is_null() && kind == ForkKind::Fork);
        let cwd = match given.map(|_| fields::absolute(params, "cwd")) {
            None => self.rows.row.cwd.clone(),
            Some(Some(cwd)) => cwd,
            Some(None) => {
                return Err(RpcError::new(code::INVALID_PARAMS, "`cwd` must be an absolute path"));
            }
        };
        let mut data = self.rows.data.clone();
        // A client that names MCP servers defines how the new session is created; else it is created as this one was.
        // v1 requires the list, so an empty one means nothing there.
        let names_servers = params.get("mcpServers").is_some_and(|servers| {
            !servers.is_null() && (client.dialect != Dialect::V1 || servers.as_str() != "[]")
        });
        if kind == ForkKind::Fork && names_servers {
            let mut given = params.clone();
            for name in ["sessionId", "messageId", "cwd", "_meta"] {
                given.remove(name);
            }
            data.params = given;
            data.params_dialect = Some(client.dialect);
        }
        if given.is_some() {
            data.is_cwd_unconfirmed = false;
        }
        data.forked_at = message.map(|message| message.as_json().clone());
        let id = self.ids.new_session_id();
        let now = self.now.wall.0;
        Ok(SessionRow {
            id: id.as_json().as_literal().to_owned(),
            agent: self.rows.row.agent.clone(),
            agent_session: None,
            cwd,
            title: None,
            parent: Some(self.rows.row.id.clone()),
            owner: None,
            created_at: now,
            active_at: now,
            archived: false,
            busy: false,
            data: data.to_text(),
        })
    }

    /// The native fork, if the agent can make it: it has to know all of the conversation.
    fn native(
        &mut self,
        fork: &Fork,
        row: &SessionRow,
        client_params: &Object,
        known: Option<&CachedAgentInfo>,
    ) -> Option<Native> {
        let agents = JsonStr::from_literal(self.rows.row.agent_session.as_deref()?)?;
        if !self.agent.knows_conversation() {
            return None;
        }
        let (dialect, initialize) = match self.agent.link() {
            Some(link) => (link.agent.dialect, &link.agent.initialize),
            None => known.map(|known| (known.dialect, &known.initialize))?,
        };
        let point = native_point(&fork.agent_point, dialect, initialize)?;
        let data = SessionData::of(row);
        let from = data.params_dialect();
        let mut params = data.params;
        params.set("sessionId", &agents);
        params.set("cwd", &row.cwd);
        let mut losses = Losses::default();
        let request = live::request_to_agent("session/fork", &params, from, dialect, None, &mut losses);
        let (_, mut params) = request.ok()?;
        if let Some(fork) = JsonStr::from_literal(&row.id) {
            self.output.losses.push((fork.into(), losses));
        }
        let mut meta = agents_meta(client_params);
        match point {
            NativePoint::End => {}
            NativePoint::Message(message) => params.set("messageId", message.as_json()),
            NativePoint::AirMessage(message) => meta.merge_deep(&air_fork(message)),
        }
        if !meta.is_empty() {
            params.set("_meta", meta.to_json());
        }
        let end = matches!(point, NativePoint::End).then(|| self.session.transcript().seq());
        Some(Native { params, session: agents.into(), end })
    }

    fn answer_to_fork(
        &mut self,
        client: &ClientInfo,
        row: &SessionRow,
        fork: &Fork,
        is_handoff: bool,
    ) -> Object {
        let mut answer = Object::default();
        answer.set("sessionId", Json::parse(&row.id).unwrap_or_default());
        let mut encoder = UpdateEncoder::new(client.dialect, &client.initialize);
        let mut losses = Losses::default();
        // The settings of the next agent are not known yet.
        let unknown = Transcript::default();
        let transcript = if is_handoff { &unknown } else { self.session.transcript() };
        answer.add_missing(&encoder.session_fields(transcript, &mut losses));
        if let Some(fork) = JsonStr::from_literal(&row.id) {
            self.output.losses.push((fork.into(), losses));
        }
        if !is_handoff {
            answer.add_missing(&self.opened_for_fork());
        }
        answer.set_nested("_meta", "parlor/seq", fork.entries.len().max(1));
        answer.set_nested("_meta", "parlor/state", "idle");
        let how = if fork.entries.is_empty() { "empty" } else { "transcript" };
        answer.set_nested("_meta", FORK, how);
        answer
    }

    /// The prompt of an edit, which replaces an earlier one.
    fn edited_prompt(
        &self,
        params: &Object,
        message: Option<&MessageId>,
        fork: &Fork,
    ) -> Result<Json, RpcError> {
        if fork.prompt.as_ref().map(|(prompt, _)| prompt) != message {
            let text = "only a prompt can be edited: this message is not one";
            return Err(bad_message(message, "not_a_prompt", text));
        }
        let prompt = params.get("prompt").cloned().unwrap_or_else(Json::null);
        self.check_prompt(&prompt)?;
        Ok(prompt)
    }

    /// The part of the agent's opening response that holds for a fork as well.
    fn opened_for_fork(&self) -> Object {
        let mut opened = self.agent.open_result.clone();
        opened.remove("_meta");
        opened
    }

    fn writes_of_fork(&self, row: &SessionRow, fork: Fork, is_handoff: bool) -> Vec<Write> {
        let session = || row.id.clone();
        let last = fork.entries.len().max(1) as u64;
        let entries = fork.entries.into_iter();
        let entries = entries.map(|moved| CopiedEntry { from: moved.from, to: moved.to, head: moved.head });
        let mut writes = vec![
            Write::Session(row.clone()),
            Write::Copy { from: self.rows.row.id.clone(), to: session(), entries: entries.collect() },
        ];
        for slot in fork.slots {
            if let Row::Slot { name, seq, body } = slot {
                writes.push(Write::Slot { session: session(), name: name.to_owned(), seq, body: Some(body) });
            }
        }
        let opened = self.opened_for_fork();
        if !opened.is_empty() && !is_handoff {
            let body = Some(opened.text());
            writes.push(Write::Slot { session: session(), name: OPENED.to_owned(), seq: last, body });
        }
        if !fork.side_state.is_empty() {
            let body = Some(fork.side_state.text());
            writes.push(Write::Slot { session: session(), name: SIDE_STATE.to_owned(), seq: last, body });
        }
        writes
    }

    /// Whether there are forks that have yet to be stored.
    pub(super) fn has_new_forks(&self) -> bool {
        let waiting = self.forks.waiting.iter().map(|planned| &planned.start);
        self.output.forks.iter().chain(waiting).any(|start| !start.writes.is_empty())
    }

    /// The rows of new forks, which are written after the changes of this session.
    pub(super) fn fork_writes(&mut self) -> Vec<Write> {
        let waiting = self.forks.waiting.iter_mut().map(|planned| &mut planned.start);
        let starts = self.output.forks.iter_mut().chain(waiting);
        starts.flat_map(|start| std::mem::take(&mut start.writes)).collect()
    }

    /// Decides how the agents of forks get the conversation: by a native fork, for which an agent that is not there is
    /// restored, or with the first prompt.
    pub(super) fn decide_forks(&mut self) {
        for mut planned in std::mem::take(&mut self.forks.planned) {
            let has_room = self.forks.waiting.len() < self.config.limits.waiting_forks;
            planned.native.take_if(|_| !self.agent.is_bound() && !has_room);
            if planned.native.is_some() && !self.agent.is_bound() {
                self.forks.waiting.push(planned);
                self.start_agent();
            } else {
                self.decide_fork(planned, None);
            }
        }
    }

    /// Continues the forks that waited for the agent. With an error, their agents get the transcript.
    pub(super) fn resume_forks(&mut self, error: Option<&RpcError>) {
        for planned in std::mem::take(&mut self.forks.waiting) {
            self.decide_fork(planned, error);
        }
    }

    fn decide_fork(&mut self, planned: PlannedFork, error: Option<&RpcError>) {
        let PlannedFork { mut start, native } = planned;
        let error = error.cloned().filter(|_| native.is_some());
        // If the agent has lost its history or the session has changed since, the agent would fork another conversation.
        let is_the_same = |native: &Native| {
            let seq = self.session.transcript().seq();
            let same_session = self.agent.link().is_some_and(|link| link.session == native.session);
            same_session && self.agent.knows_conversation() && native.end.is_none_or(|end| end == seq)
        };
        let native = native.filter(is_the_same);
        start.agent = match self.agent.link().zip(native) {
            Some((link, native)) => {
                let in_force = Settings::of(self.session.transcript());
                let settings = Box::new(wanted_settings(&self.rows.data, &in_force));
                ForkContext::Native { epoch: link.epoch, params: native.params, settings }
            }
            None => ForkContext::Transcript(error),
        };
        self.output.forks.push(start);
    }

    /// Answers the requests for forks that were not stored with the error. Forks that were stored before continue.
    pub(super) fn refuse_forks(&mut self, starts: Vec<ForkStart>, error: &RpcError) {
        self.output.forks.extend(starts);
        self.resume_forks(Some(error));
        let planned = std::mem::take(&mut self.forks.planned);
        let starts = std::mem::take(&mut self.output.forks);
        let (stored, lost): (Vec<_>, Vec<_>) = starts.into_iter().partition(|start| start.is_stored);
        self.output.forks = stored;
        for start in lost.into_iter().chain(planned.into_iter().map(|planned| planned.start)) {
            self.send_unattached(start.client, Frame::error(&start.id, error));
        }
    }
}

/// The metadata key of the response that says how the agent got the conversation.
pub const FORK: &str = "parlor/fork";

/// The slot of the title and the metadata.
const INFO: &str = "info";

/// Makes a fork one of another agent: it has neither the session nor the settings of the old one.
fn assign_agent(row: &mut SessionRow, agent: &HandoffAgent) {
    let data = SessionData::of(row);
    let data = SessionData {
        command: None,
        agent_dialect: agent.dialect.or(data.agent_dialect),
        refused_settings: None,
        needs_context: false,
        context_entries: None,
        summary: SessionSummary::default(),
        ..data
    };
    row.agent.clone_from(&agent.name);
    row.agent_session = None;
    row.data = data.to_text();
}

/// The message that params name, in `messageId` or as [`air_fork`] does; a null names none.
fn message_of(params: &Object) -> Result<Option<MessageId>, RpcError> {
    match params.get("messageId").filter(|message| !message.is_null()) {
        None => Ok(air_message(params)),
        Some(_) => match params.get_json_str("messageId") {
            Some(message) => Ok(Some(message.into())),
            None => Err(RpcError::new(code::INVALID_PARAMS, "`messageId` must be a string")),
        },
    }
}

/// Why there is no fork, for a client.
fn not_forked(message: Option<&MessageId>, why: ForkError) -> RpcError {
    let (reason, text) = match why {
        ForkError::Unknown => ("unknown", "there is no such message in the session"),
        ForkError::BeingWritten => {
            ("being_written", "the agent is still writing this message: try again when the turn has ended")
        }
        ForkError::NoPrompt => ("no_prompt", "there is no prompt at or before this message"),
    };
    bad_message(message, reason, text)
}

fn bad_message(message: Option<&MessageId>, reason: &str, text: &str) -> RpcError {
    let mut data = Object::default();
    if let Some(message) = message {
        data.set("messageId", message.as_json());
    }
    data.set("reason", reason);
    RpcError::new(code::INVALID_PARAMS, text).with_data(data.to_json())
}

/// The prompt that a regenerate sends again.
fn regenerated_prompt(message: Option<&MessageId>, fork: &Fork) -> Result<Json, RpcError> {
    let content = fork.prompt.as_ref().map(|(_, content)| content.clone());
    content
        .filter(|content| content.as_str() != "[]")
        .ok_or_else(|| bad_message(message, "empty", "the prompt is empty and cannot be sent again"))
}

/// How an agent with this response to `initialize` can fork at exactly this point, if it can.
fn native_point<'a>(
    point: &'a AgentForkPoint,
    dialect: Dialect,
    initialize: &Object,
) -> Option<NativePoint<'a>> {
    let has = |capability: Capability| capability.is_in(dialect, initialize);
    match point {
        AgentForkPoint::End if has(Capability::Fork) => Some(NativePoint::End),
        AgentForkPoint::After(message) if has(Capability::ForkAtMessage) => {
            Some(NativePoint::Message(&message.id))
        }
        AgentForkPoint::After(message) if has(Capability::Fork) => {
            let profile = AgentProfile::of(dialect, initialize)?;
            profile.forks_exactly(message).then_some(NativePoint::AirMessage(&message.id))
        }
        AgentForkPoint::End
        | AgentForkPoint::After(_)
        | AgentForkPoint::Start
        | AgentForkPoint::WithoutId => None,
    }
}

/// The path of [`air_fork`] in the metadata of `session/fork`.
const AIR_PATH: [&str; 3] = ["jetbrains", "air", "fork"];

/// Metadata of `session/fork` that names a message, for agents that accept it there.
fn air_fork(message: &MessageId) -> Object {
    let fork = Object::new().with("version", 1_u64).with("messageId", message.as_json());
    AIR_PATH.iter().rev().fold(fork, |inner, name| Object::new().with(*name, inner.to_json()))
}

/// The message that the metadata of a client's `session/fork` names, as [`air_fork`] does.
fn air_message(params: &Object) -> Option<MessageId> {
    let meta = params.get_object("_meta")?;
    let fork = AIR_PATH.iter().try_fold(meta, |outer, name| outer.get_object(name))?;
    (fork.get_u64("version") == Some(1)).then(|| fork.get_json_str("messageId").map(Into::into))?
}

/// The metadata of a request that is for the agent, without the message of [`air_message`]: the agent may have another id
/// for it.
fn agents_meta(params: &Object) -> Object {
    let meta = params.get_object("_meta").unwrap_or_default();
    let mut agents = Object::default();
    for (name, value) in meta.iter().filter(|(name, _)| !name.to_text().starts_with("parlor/")) {
        agents.set(name.clone(), value.clone());
    }
    if air_message(params).is_some() {
        let [outer, middle, inner] = AIR_PATH;
        let mut jetbrains = agents.get_object(outer).unwrap_or_default();
        jetbrains.remove_nested(middle, inner);
        agents.set(outer, jetbrains.to_json());
        if jetbrains.is_empty() {
            agents.remove(outer);
        }
    }
    agents
}
