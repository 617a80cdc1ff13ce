//! Sessions of subagents: those that this session owns, and this session as one that another owns.
//!
//! The agent announces a subagent in its owner's session, and then sends the updates of the subagent under an id of its own.
//! The owner gives it a session with its own machine, which is bound to the same agent process for as long as the owner is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parlor_dialect::{Decoder, Dialect, LossKind};
use parlor_json::{Json, JsonStr, Object};
use parlor_session::session::{ClientId, Input, Scope};
use parlor_session::{EntryId, ReplayCursor, SessionId, Slot, TITLE, Target, Update, Upsert};
use parlor_wire::{RequestId, RpcError, code};

use super::requests::cancelled_state;
use super::subscriber::Subscriber;
use super::{Pending, SessionEnd, SessionMachine};
use crate::rows::{SessionRow, Write};
use crate::session_data::SessionData;
use crate::stored::SUBAGENTS;
use crate::{AgentEpoch, ClientCall, ClientInfo, Frame, FrameKind, Outgoing};

/// How many subagents a session may have. Updates of others are refused.
pub const MAX_SUBAGENTS: usize = 256;

/// Why a subagent is not cancelled.
const CANCEL_REFUSED: &str = "the agent does not permit to cancel this subagent: cancel its owner";

/// Something for the session of a subagent.
#[derive(Debug, Clone)]
pub struct SubagentOutput {
    /// The session.
    pub session: SessionId,
    /// What is done with it.
    pub command: SubagentCommand,
}

/// What a session does with the session of a subagent that it owns, once its changes are stored.
#[derive(Debug, Clone)]
pub enum SubagentCommand {
    /// Binds it to its agent session, which the agent process of this epoch has open.
    Bind {
        /// The epoch of the owner.
        epoch: AgentEpoch,
        /// The agent's id for it.
        agent_session: SessionId,
        /// Whether it was bound before: what the agent sent under this id until now is a replay.
        is_bound_again: bool,
    },
    /// Passes on what the owner knows of it.
    Describe(Box<SubagentInfo>),
    /// Attaches a client of the owner.
    Follow {
        /// The client.
        client: ClientId,
        /// What the client is sent.
        follow: Follow,
    },
    /// Detaches a client that only follows the owner.
    Leave(ClientId),
    /// The owner is not bound to the agent any more.
    Unbind(RpcError),
}

impl SubagentCommand {
    /// Whether it attaches or detaches a client, and is done when the client was sent the changes of the owner.
    pub fn is_of_client(&self) -> bool {
        matches!(self, Self::Follow { .. } | Self::Leave(_))
    }

    /// Whether this is done even if the changes of the owner were not stored: it reveals none of them, and the owner does not
    /// repeat it.
    pub(super) fn is_due_if_not_stored(&self) -> bool {
        match self {
            Self::Unbind(_) | Self::Leave(_) => true,
            Self::Bind { .. } | Self::Describe(_) | Self::Follow { .. } => false,
        }
    }
}

/// What a client of the owner is sent of a subagent's session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Follow {
    /// Everything, from the beginning or from now on.
    Updates {
        /// Whether it is sent what is already there.
        from_start: bool,
    },
    /// Only requests, as those of a session that it knows: the client does not know of subagents.
    Requests {
        /// The session that it knows.
        shown_in: SessionId,
    },
}

/// What the owner of a subagent's session knows of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SubagentInfo {
    /// Its title.
    pub title: Option<JsonStr>,
    /// Its working directory.
    pub cwd: Option<String>,
    /// Whether clients may cancel its work.
    pub can_cancel: bool,
    /// Its state, if the agent reports it only to the owner.
    pub state: Option<Json>,
}

/// What the owner of a session does with it.
#[derive(Debug)]
pub enum OwnerEvent {
    /// The owner knows this of the session.
    Described(Box<SubagentInfo>),
    /// The owner is not bound to the agent any more.
    Unbound(RpcError),
    /// The owner is about to be deleted, and this session with it.
    Deleted,
}

/// The subagents of a session.
#[derive(Debug, Default)]
pub(super) struct Subagents {
    known: Vec<Subagent>,
    /// The rows of those that are not stored yet.
    new_rows: Vec<SessionRow>,
    is_dirty: bool,
    /// The sessions of subagents that clients follow because they are attached to this one.
    followed: BTreeMap<ClientId, BTreeSet<SessionId>>,
}

#[derive(Debug)]
struct Subagent {
    agent_session: SessionId,
    session: SessionId,
    is_bound: bool,
    was_bound: bool,
    /// Whether the agent has it: it announced it, or restored its owner.
    is_present: bool,
    /// What its session was last sent.
    described: Option<SubagentInfo>,
}

impl Subagents {
    pub(super) fn restored(stored: Option<&Object>) -> Self {
        let subagent = |(theirs, ours): (&JsonStr, &Json)| Subagent {
            agent_session: theirs.clone().into(),
            session: ours.to_json_str().unwrap_or_else(|| JsonStr::new("")).into(),
            is_bound: false,
            was_bound: true,
            is_present: false,
            described: None,
        };
        let known = stored.map(|stored| stored.iter().map(subagent).collect()).unwrap_or_default();
        Self { known, ..Self::default() }
    }

    fn to_text(&self) -> String {
        let pairs = self
            .known
            .iter()
            .map(|one| (one.agent_session.as_json().clone(), Json::from(one.session.as_json())));
        pairs.collect::<Object>().text()
    }

    /// Our session for the agent's id of a subagent.
    fn find(&self, theirs: &SessionId) -> Option<&SessionId> {
        self.known.iter().find(|one| one.agent_session == *theirs).map(|one| &one.session)
    }

    pub(super) fn sessions(&self) -> impl Iterator<Item = &SessionId> {
        self.known.iter().map(|one| &one.session)
    }

    /// The agent's ids of its subagents, as JSON literals.
    pub(super) fn agent_sessions(&self) -> impl Iterator<Item = &str> {
        self.known.iter().map(|one| one.agent_session.as_json().as_literal())
    }

    /// The writes of what is not stored.
    pub(super) fn take_writes(&mut self, session: &str, seq: u64) -> Vec<Write> {
        let mut writes: Vec<_> = self.new_rows.drain(..).map(Write::Session).collect();
        if std::mem::take(&mut self.is_dirty) {
            let (session, name) = (session.to_owned(), SUBAGENTS.to_owned());
            writes.push(Write::Slot { session, name, seq: seq.max(1), body: Some(self.to_text()) });
        }
        writes
    }

    /// The agent has restored the session, with its history.
    pub(super) fn on_restored(&mut self) {
        self.known.iter_mut().for_each(|one| one.is_present = true);
    }
}

impl SessionMachine {
    /// Whether this is the session of a subagent.
    pub fn is_owned(&self) -> bool {
        self.rows.row.owner.is_some()
    }

    /// The subagents' sessions that are bound to the agent.
    pub fn bound_subagents(&self) -> impl Iterator<Item = &SessionId> {
        self.subagents.known.iter().filter(|one| one.is_bound).map(|one| &one.session)
    }

    /// Gives a subagent that the agent announces a session. Returns `false` if there are too many.
    pub(super) fn on_announced(&mut self, update: &Update) -> bool {
        let Update::Upsert { target: Target::Entry(EntryId::Subagent(theirs)), upsert } = update else {
            return true;
        };
        if let Some(known) = self.subagents.known.iter_mut().find(|one| one.agent_session == *theirs) {
            known.is_present = true;
            return true;
        }
        // An agent may name any of its sessions, also this one.
        let is_other =
            |link: &crate::AgentLink| link.session == *theirs || link.sessions.find(theirs).is_some();
        if self.agent.link().is_some_and(is_other)
            || self.subagents.known.iter().any(|one| one.session == *theirs)
        {
            return true;
        }
        if self.subagents.known.len() >= MAX_SUBAGENTS {
            self.losses.add(LossKind::UpdateRefused);
            tracing::warn!(session = %self.id, subagent = %theirs, "the session has {MAX_SUBAGENTS} subagents: another one is refused");
            return false;
        }
        let session = self.ids.new_session_id();
        let data = SessionData {
            agent_dialect: Some(self.decoder.dialect()),
            command: self.rows.data.command.clone(),
            ..SessionData::default()
        };
        let now = self.now.wall.0;
        self.subagents.new_rows.push(SessionRow {
            id: session.as_json().as_literal().to_owned(),
            agent: self.rows.row.agent.clone(),
            agent_session: Some(theirs.as_json().as_literal().to_owned()),
            cwd: upsert.fields.get_string("cwd").unwrap_or_else(|| self.rows.row.cwd.clone()),
            title: upsert.fields.get_json_str(TITLE).map(|title| title.as_literal().to_owned()),
            parent: None,
            owner: Some(self.rows.row.id.clone()),
            created_at: now,
            active_at: now,
            archived: false,
            busy: false,
            data: data.to_text(),
        });
        self.subagents.is_dirty = true;
        self.subagents.known.push(Subagent {
            agent_session: theirs.clone(),
            session,
            is_bound: false,
            was_bound: false,
            is_present: true,
            described: None,
        });
        true
    }

    /// Replaces the agent's ids of sessions in an update.
    pub(super) fn map_sessions(&self, update: &mut Update) {
        parlor_dialect::live::map_sessions(update, |theirs| {
            let known = self.subagents.find(theirs).cloned();
            known.or_else(|| self.agent.link()?.sessions.find(theirs))
        });
    }

    /// Commands the sessions of subagents after a batch: binds those that the agent has, describes them, and attaches and
    /// detaches the clients of this session.
    pub(super) fn command_subagents(&mut self) {
        if self.subagents.known.is_empty() || self.end.is_some() {
            return;
        }
        if let Some(link) = self.agent.link() {
            let reports_state = link.agent.dialect == Dialect::V1;
            let transcript = self.session.transcript();
            for one in self.subagents.known.iter_mut().filter(|one| one.is_present) {
                let mut push = |command| {
                    let session = one.session.clone();
                    self.output.subagents.push(SubagentOutput { session, command });
                };
                if !one.is_bound {
                    let agent_session = one.agent_session.clone();
                    push(SubagentCommand::Bind {
                        epoch: link.epoch,
                        agent_session,
                        is_bound_again: one.was_bound,
                    });
                    (one.is_bound, one.was_bound, one.described) = (true, true, None);
                }
                let entry = transcript.get(&EntryId::Subagent(one.session.clone()));
                let fields = entry.map(|entry| &entry.body().fields);
                let info = fields.map(|fields| SubagentInfo::of(fields, reports_state)).unwrap_or_default();
                if one.described.as_ref() != Some(&info) {
                    push(SubagentCommand::Describe(Box::new(info.clone())));
                    one.described = Some(info);
                }
            }
        }
        self.command_followers();
    }

    /// Attaches clients of this session to the sessions of its subagents. A client is attached when it was sent the
    /// announcement, and gets all of a session whose announcement it was sent.
    fn command_followers(&mut self) {
        let (outputs, transcript) = (&mut self.output.subagents, self.session.transcript());
        let Subagents { known, followed, .. } = &mut self.subagents;
        followed.retain(|client, sessions| {
            let is_attached = self.subscribers.contains_key(client);
            if !is_attached {
                outputs.extend(
                    std::mem::take(sessions)
                        .into_iter()
                        .map(|session| SubagentOutput { session, command: SubagentCommand::Leave(*client) }),
                );
            }
            is_attached
        });
        for (client, subscriber) in self.subscribers.iter().filter(|(_, subscriber)| subscriber.is_live()) {
            let Some(shown_in) = subscriber.shown_in.as_ref().or(Some(&self.id)) else { continue };
            let sessions = followed.entry(*client).or_default();
            for one in known.iter().filter(|one| one.is_bound && !sessions.contains(&one.session)) {
                let entry = transcript.get(&EntryId::Subagent(one.session.clone()));
                let is_announced = entry.is_some_and(|entry| entry.created() > subscriber.since);
                let follow = if subscriber.shown_in.is_none() && subscriber.client.follows_subagents {
                    Follow::Updates { from_start: is_announced }
                } else if subscriber.client.is_driver && !subscriber.client.follows_subagents {
                    Follow::Requests { shown_in: shown_in.clone() }
                } else {
                    continue;
                };
                outputs.push(SubagentOutput {
                    session: one.session.clone(),
                    command: SubagentCommand::Follow { client: *client, follow },
                });
            }
            sessions.extend(known.iter().filter(|one| one.is_bound).map(|one| one.session.clone()));
        }
    }

    /// The session is not bound to the agent any more, and neither are those of its subagents.
    pub(super) fn unbind_subagents(&mut self, error: &RpcError) {
        for one in &mut self.subagents.known {
            one.is_present = false;
            if std::mem::take(&mut one.is_bound) {
                let (session, command) = (one.session.clone(), SubagentCommand::Unbind(error.clone()));
                self.output.subagents.push(SubagentOutput { session, command });
                for sessions in self.subagents.followed.values_mut() {
                    sessions.remove(&one.session);
                }
            }
        }
    }

    /// The owner of this session does something with it.
    pub(super) fn on_owner(&mut self, event: OwnerEvent) {
        match event {
            OwnerEvent::Described(info) => self.on_described(*info),
            OwnerEvent::Unbound(error) => self.on_agent_gone(&error),
            OwnerEvent::Deleted => {
                self.step(Input::AgentLost(cancelled_state()));
                self.end = Some(SessionEnd::Deleted);
            }
        }
    }

    fn on_described(&mut self, info: SubagentInfo) {
        let SubagentInfo { title, cwd, can_cancel, state } = info;
        self.can_cancel = can_cancel;
        if let Some(cwd) = cwd.filter(|cwd| *cwd != self.rows.row.cwd) {
            self.rows.row.cwd = cwd;
            self.rows.dirty.row = true;
        }
        let info = self.session.transcript().slot(Slot::Info);
        if let Some(title) = title
            .filter(|title| info.and_then(|info| info.fields.get_json_str(TITLE)).as_ref() != Some(title))
        {
            // The agent gave it, in the owner's session.
            let update = Upsert { fields: Object::new().with(TITLE, &title), ..Upsert::default() };
            self.apply_info(update, None);
        }
        let Some(mut state) = state.and_then(|state| state.to_object()) else { return };
        state.set("sessionUpdate", "state_update");
        let ids = &mut self.ids;
        let decoded = Decoder::new(Dialect::V2).decode(state.to_json().raw(), &mut || ids.new_id());
        if let Ok(decoded) = decoded {
            self.step_update(decoded.update, decoded.id_source, None);
        }
    }

    /// The error for a call that the session of a subagent does not take.
    pub(super) fn refused_by_owned(&self, call: &ClientCall) -> Option<RpcError> {
        let subject = match call {
            _ if !self.is_owned() => return None,
            ClientCall::Attach { .. }
            | ClientCall::Follow
            | ClientCall::FollowOwner(_)
            | ClientCall::LeaveOwner
            | ClientCall::Close { .. }
            | ClientCall::Detach { .. }
            | ClientCall::Cancel { .. }
            | ClientCall::AnswerRequest { .. }
            | ClientCall::Older { .. }
            | ClientCall::Seen { .. }
            | ClientCall::Status { .. } => return None,
            // The server ends commands in terminals that it runs.
            ClientCall::Forward { method, .. }
                if method == "terminal/cancel" && self.agent_dialect() == Dialect::V1 =>
            {
                return None;
            }
            ClientCall::Prompt { .. }
            | ClientCall::Steer { .. }
            | ClientCall::PromptWithoutRequest { .. } => "takes no prompts",
            ClientCall::WithdrawPrompt { .. } => "has no prompt queue",
            ClientCall::SetTitle { .. } => "gets its title from its agent",
            ClientCall::Archive { .. } | ClientCall::Delete { .. } => {
                "is archived and deleted with its owner"
            }
            ClientCall::Fork(_) => "cannot be forked",
            ClientCall::Forward { .. } => "cannot be changed",
        };
        let owner = self.rows.row.owner.as_deref().and_then(JsonStr::from_literal);
        let owner = owner.unwrap_or_else(|| JsonStr::new(""));
        let message = format!("the session of a subagent {subject}: use its owner {}", owner.to_text());
        let data = Object::new().with("reason", "subagent").with("owner", &owner);
        Some(RpcError::new(code::INVALID_REQUEST, message).with_data(data.to_json()))
    }

    /// Whether a client may cancel the turn of the session.
    pub(super) fn takes_cancel(&self) -> bool {
        !self.is_owned() || self.can_cancel
    }

    /// Cancels the turn, or responds that the agent does not permit it.
    pub(super) fn on_cancel(&mut self, client: &ClientInfo, id: &RequestId, scope: Scope) {
        if self.takes_cancel() {
            self.step(Input::Cancelled { by: client.id, scope });
            return self.respond(client, id, &Object::default());
        }
        let data = Object::new().with("reason", "subagent");
        let error = RpcError::new(code::INVALID_REQUEST, CANCEL_REFUSED).with_data(data.to_json());
        self.send_unattached(client.id, Frame::error(id, &error));
    }

    /// Reports a `session/cancel` that has no effect, which has no response.
    pub(super) fn report_refused_cancel(&mut self) {
        let notice = Object::new().with("sessionUpdate", "notice").with("severity", "warning");
        self.broadcast_unstored(Update::Note { fields: notice.with("title", CANCEL_REFUSED) }, None);
    }

    /// Attaches a client that is attached to the owner, unless it is attached.
    pub(super) fn follow_owner(&mut self, client: &Arc<ClientInfo>, is_connected: bool, follow: Follow) {
        if !is_connected || self.subscribers.contains_key(&client.id) {
            return;
        }
        let seq = self.session.transcript().seq();
        let (since, shown_in) = match follow {
            Follow::Updates { from_start: true } => (0, None),
            Follow::Updates { from_start: false } => (seq, None),
            Follow::Requests { shown_in } => (seq, Some(shown_in)),
        };
        let cursor = ReplayCursor::new(since, seq);
        let mut subscriber = Subscriber::new(Arc::clone(client), cursor, Vec::new(), self.config.limits);
        (subscriber.since, subscriber.shown_in, subscriber.follows_owner) = (since, shown_in, true);
        self.subscribers.insert(client.id, subscriber);
        // It is sent open requests when it is live: until then they would count as what it cannot take.
        self.pending.push_back(Pending::CaughtUp { client: client.id, is_resumed: false });
    }

    /// Detaches a client that is attached only because it was attached to the owner.
    pub(super) fn leave_owner(&mut self, client: ClientId) {
        if self.subscribers.get(&client).is_none_or(|subscriber| !subscriber.follows_owner) {
            return;
        }
        self.cancel_requests_of(client);
        self.answer_without_client(client);
        self.step(Input::Detached(client));
        self.presence.has_changed = true;
        // It is detached when its requests are cancelled; there is no response.
        self.send_last(client, Frame::updates(""), None);
    }

    /// Cancels the requests of the agent at a client that stays connected.
    pub(super) fn cancel_requests_of(&mut self, client: ClientId) {
        let its: Vec<_> = self.requests.for_drivers().map(|(peer_request, _)| peer_request).collect();
        its.into_iter().for_each(|peer_request| self.cancel_request(peer_request, client));
    }

    /// The clients that are sent only requests.
    pub(super) fn clients_of_requests(&self) -> BTreeSet<ClientId> {
        let limited = self.subscribers.iter().filter(|(_, subscriber)| subscriber.shown_in.is_some());
        limited.map(|(client, _)| *client).collect()
    }

    /// Drops updates for clients that are sent only requests.
    pub(super) fn drop_updates_for(&mut self, limited: &BTreeSet<ClientId>) {
        if limited.is_empty() {
            return;
        }
        self.output.sends.retain(|send| {
            let Outgoing::Frame(frame) = &send.what else { return true };
            !matches!(frame.kind(), FrameKind::Updates | FrameKind::Notification)
                || !limited.contains(&send.to)
        });
    }

    /// Refuses a call to the session of a subagent.
    pub(super) fn refuse_owned(&mut self, client: ClientId, call: &ClientCall, error: &RpcError) {
        if let Some(id) = call.request() {
            self.send_unattached(client, Frame::error(id, error));
        }
    }
}

impl SubagentInfo {
    /// Reads the entry of a subagent.
    fn of(fields: &Object, reports_state: bool) -> Self {
        let capabilities = fields.get_object("capabilities").unwrap_or_default();
        Self {
            title: fields.get_json_str(TITLE),
            cwd: fields.get_string("cwd"),
            can_cancel: capabilities.get_object("cancel").is_some(),
            state: fields.get("state").filter(|state| reports_state && !state.is_null()).cloned(),
        }
    }
}
