//! One live session: its conversation, the clients that are attached to it, and its agent.
//!
//! [`SessionMachine::handle`] takes events and returns an [`Output`]. It does no I/O. The caller (`SessionTask`) stores the
//! batch of the output and reports whether that worked: after `on_stored` it releases the rest of the output, after
//! `on_store_failed` it releases what that returns.

mod agent_link;
mod agent_state;
mod aliases;
mod attach;
mod broadcast;
mod fork;
mod forward;
mod peer_requests;
mod persist;
mod presence;
mod prompt_requests;
mod prompts;
mod queue_feed;
mod requests;
mod search_index;
mod services;
mod session_rows;
mod settings;
mod steering;
mod subagents;
mod subscriber;
mod times;
mod title;

use core::fmt;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use parlor_dialect::live::{AgentLine, ChunkTemplate};
use parlor_dialect::{Decoder, Dialect, LossKind, Losses, live};
use parlor_json::{JsonStr, Object};
use parlor_session::session::{
    ClientId, Effect, Input, Inserted, PeerRequestId, PromptId, Session, Step, TurnEnd,
};
use parlor_session::turns::user_message;
use parlor_session::{IdSource, Role, SessionId, Transcript, Update};
use parlor_wire::{RequestId, RpcError, code};

pub use self::fork::{FORK, ForkContext, ForkStart};
pub use self::peer_requests::cannot_ask;
pub use self::persist::{deleted_agent_session, deleted_key};
pub use self::steering::STEER;
pub use self::subagents::{Follow, MAX_SUBAGENTS, OwnerEvent, SubagentCommand, SubagentInfo, SubagentOutput};

use self::agent_state::AgentState;
use self::aliases::Aliases;
use self::attach::Closing;
use self::broadcast::{BroadcastBuffers, BufferOffsets};
use self::forward::WaitingCall;
use self::peer_requests::PeerRequests;
use self::presence::Presence;
use self::prompt_requests::PromptRequests;
use self::queue_feed::QueueFeed;
use self::search_index::IndexBacklog;
use self::session_rows::SessionRows;
use self::subagents::Subagents;
use self::subscriber::Subscriber;
use crate::rows::SessionRow;
use crate::stored::StoredSession;
use crate::{
    AgentCommand, AgentEpoch, AgentEvent, AgentLink, AgentSessionEnd, ClientCall, ClientInfo,
    ClientRequestId, Event, Frame, IdGen, InfoThrottle, Now, Output, QueueSizes, SessionConfig, Timer,
};

/// One live session.
pub struct SessionMachine {
    id: SessionId,
    session: Session,
    rows: SessionRows,
    index_backlog: IndexBacklog,
    agent: AgentState,
    decoder: Decoder,
    /// How the agent spelled its last chunk.
    chunk_template: Option<Box<ChunkTemplate>>,
    /// Delays updates of title and metadata that the agent sends too fast.
    throttle: InfoThrottle,
    /// Whether a person has set a title that the agent was not sent.
    is_title_unsent: bool,
    subscribers: BTreeMap<ClientId, Subscriber>,
    closing: Closing,
    presence: Presence,
    prompts: PromptRequests,
    queue: QueueFeed,
    requests: PeerRequests,
    forks: fork::Forks,
    /// Calls of clients that wait for the agent to be restored.
    waiting_calls: Vec<WaitingCall>,
    aliases: Aliases,
    subagents: Subagents,
    /// Whether clients may cancel the turn, in the session of a subagent.
    can_cancel: bool,
    config: SessionConfig,
    ids: IdGen,
    /// The time of the events that are being handled.
    now: Now,
    /// What is handled before any other event.
    pending: VecDeque<Pending>,
    /// Effects that are decided when all events of the batch are handled.
    effects: Vec<Effect>,
    buffers: BroadcastBuffers,
    /// Responses to clients that are not attached.
    unattached_responses: Vec<(ClientId, Frame)>,
    losses: Losses,
    output: Output,
    /// The step that is used again for every update, so that its lists keep their capacity.
    scratch: Step,
    end: Option<SessionEnd>,
}

/// Why a session is not live any more.
#[derive(Debug, Clone)]
pub enum SessionEnd {
    /// It could not be stored.
    Failed(RpcError),
    /// Nobody uses it.
    Unused,
    /// It is deleted with this batch, or its owner is about to be.
    Deleted,
    /// The server stops.
    Stopped,
}

/// Something that the session handles with its next events.
enum Pending {
    /// An event that came earlier.
    Event(Event),
    /// A client was sent everything that it missed, and its response. `is_resumed`: it resumed after a change.
    CaughtUp { client: ClientId, is_resumed: bool },
}

/// Offsets in the broadcast buffers at points of one step.
#[derive(Default)]
struct StepOffsets {
    /// Before all changes.
    before: BufferOffsets,
    /// Before the messages that prompts became.
    inserted: Vec<(PromptId, BufferOffsets)>,
    /// Where the turn ended, else at the end.
    ended: BufferOffsets,
}

impl SessionMachine {
    /// A session as the store has it. One that was stored in the middle of a turn ends that turn: call
    /// [`handle`](Self::handle) to get what has to be stored for that.
    pub fn new(stored: StoredSession, config: SessionConfig, ids: IdGen, now: Now) -> Self {
        let StoredSession { row, transcript, side_state, aliases, opened, subagents } = stored;
        let id = SessionId::from(JsonStr::from_literal(&row.id).unwrap_or_else(|| JsonStr::new(&row.id)));
        let rows = SessionRows::new(row, now.monotonic);
        let was_busy = rows.row.busy;
        let index_backlog =
            if was_busy { IndexBacklog::of_last_turn(&transcript) } else { IndexBacklog::default() };
        let session = Session::new(transcript, live::HOOKS, side_state.as_ref());
        let mut machine = Self {
            id,
            index_backlog,
            agent: AgentState::new(opened.unwrap_or_default()),
            decoder: Decoder::new(rows.data.agent_dialect.unwrap_or(Dialect::V1)),
            chunk_template: None,
            throttle: InfoThrottle::new(now.monotonic),
            is_title_unsent: false,
            subscribers: BTreeMap::new(),
            closing: Closing::default(),
            presence: Presence::default(),
            prompts: PromptRequests::new(session.last_prompt()),
            queue: QueueFeed::new(session.queued_prompts()),
            requests: PeerRequests::default(),
            forks: fork::Forks::default(),
            waiting_calls: Vec::new(),
            aliases: Aliases::restored(aliases.as_deref()),
            subagents: Subagents::restored(subagents.as_ref()),
            can_cancel: false,
            session,
            rows,
            config,
            ids,
            now,
            pending: VecDeque::new(),
            effects: Vec::new(),
            buffers: BroadcastBuffers::default(),
            unattached_responses: Vec::new(),
            losses: Losses::default(),
            output: Output::default(),
            scratch: Step::default(),
            end: None,
        };
        if was_busy {
            let error = RpcError::new(code::INTERNAL_ERROR, "parlor was stopped in the middle of the turn");
            machine.step(Input::AgentLost(live::failed_state(&error)));
            // No turn is running after a restart, even if the last state says so.
            machine.rows.dirty.row |= std::mem::take(&mut machine.rows.row.busy);
        }
        machine
    }

    /// The session's id.
    pub fn id(&self) -> &SessionId {
        &self.id
    }

    /// The session's row, as it is or will be stored.
    pub fn row(&self) -> &SessionRow {
        &self.rows.row
    }

    /// The conversation.
    pub fn transcript(&self) -> &Transcript {
        self.session.transcript()
    }

    /// The conversation with its prompts and requests.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The epoch of the current agent session, or of the last one.
    pub fn epoch(&self) -> AgentEpoch {
        self.agent.epoch
    }

    /// The agent, while the session has one.
    pub fn agent(&self) -> Option<&AgentLink> {
        self.agent.link()
    }

    /// The clients that are attached.
    pub fn subscribers(&self) -> impl Iterator<Item = ClientId> {
        self.subscribers.keys().copied()
    }

    /// Whether events wait that the session itself made: call [`handle`](Self::handle), also without events.
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Whether forks wait for the agent.
    pub fn has_waiting_forks(&self) -> bool {
        self.forks.has_waiting()
    }

    /// The open requests that any driver may answer.
    pub fn open_requests(&self) -> impl Iterator<Item = PeerRequestId> {
        self.requests.for_drivers().map(|(id, _)| id)
    }

    /// How much waits in the session.
    pub fn queues(&self) -> QueueSizes {
        QueueSizes {
            deferred_calls: self.closing.deferred.len(),
            waiting_calls: self.waiting_calls.len(),
            waiting_forks: self.forks.waiting(),
            queued_prompts: self.session.queued_prompts().len(),
            pending_events: self.pending.len(),
            peer_requests: self.requests.len(),
            prompt_requests: self.prompts.len(),
            unsent_bytes: self.subscribers.values().map(Subscriber::unsent_bytes).max().unwrap_or_default(),
        }
    }

    /// Whether a client was sent a request of the agent that is still open.
    pub fn is_asking(&self, request: ClientRequestId, client: ClientId) -> bool {
        self.requests.is_asking(request, client)
    }

    /// Why the session is not live any more, once it is not.
    pub fn end(&self) -> Option<&SessionEnd> {
        self.end.as_ref()
    }

    /// What becomes of the agent session, once the session is not live any more.
    pub fn agent_session_end(&self) -> AgentSessionEnd {
        match &self.end {
            Some(SessionEnd::Stopped) => AgentSessionEnd::Keep,
            _ if self.is_owned() => AgentSessionEnd::Unbind,
            Some(SessionEnd::Deleted) => AgentSessionEnd::Discard,
            Some(SessionEnd::Failed(_) | SessionEnd::Unused) | None => AgentSessionEnd::Release,
        }
    }

    /// Handles events that happened together. `has_room` says of a client whether its send queue can take more.
    pub fn handle(
        &mut self,
        events: impl IntoIterator<Item = Event>,
        now: Now,
        has_room: &dyn Fn(ClientId) -> bool,
    ) -> Output {
        self.now = now;
        self.update_lag(has_room);
        let pending = std::mem::take(&mut self.pending);
        for next in pending.into_iter().chain(events.into_iter().map(Pending::Event)) {
            match next {
                next if self.end.is_some() => self.pending.push_back(next),
                Pending::Event(event) => self.on_event(event),
                Pending::CaughtUp { client, is_resumed } => self.on_caught_up(client, is_resumed),
            }
        }
        // Before the agent is sent anything that is not in the forks.
        self.decide_forks();
        self.decide_effects();
        self.send_queue_changes();
        self.send_attached_clients();
        // Some of them may be detached when they were sent the rest.
        let limited = self.clients_of_requests();
        self.flush();
        self.detach_closed();
        self.replay_all();
        self.drop_updates_for(&limited);
        self.command_subagents();
        self.report_open_requests();
        let batch = self.batch();
        Output { batch, ..self.take_output() }
    }

    fn take_output(&mut self) -> Output {
        let losses = std::mem::take(&mut self.losses);
        let mut output = std::mem::take(&mut self.output);
        output.losses.push((self.id.clone(), losses));
        output.seq = self.session.transcript().seq();
        output
    }

    /// The batch of an output is stored.
    pub fn on_stored(&mut self, seq: u64) {
        self.rows.stored_seq = seq;
        self.rows.stored_batches += 1;
        self.forks.on_stored();
    }

    /// Keeps a session live that was about to be evicted, because a client or its agent called it.
    pub fn stay(&mut self) {
        self.end = None;
    }

    /// The session ends for good: answers what is left without an answer, and writes nothing. `rest` are events that came
    /// meanwhile.
    pub fn finish(&mut self, rest: impl IntoIterator<Item = Event>) -> Output {
        let no_session = no_session(&self.id);
        self.resume_forks(Some(&no_session));
        let refused = match &self.end {
            Some(SessionEnd::Failed(error)) => Some(error.clone()),
            Some(SessionEnd::Deleted) => Some(no_session),
            Some(SessionEnd::Unused | SessionEnd::Stopped) | None => None,
        };
        if let Some(error) = refused {
            self.refuse_calls(&error);
            if matches!(self.end, Some(SessionEnd::Deleted)) {
                self.end_replays(&error);
            }
            let pending = std::mem::take(&mut self.pending).into_iter().filter_map(|pending| match pending {
                Pending::Event(event) => Some(event),
                Pending::CaughtUp { .. } => None,
            });
            let deferred = std::mem::take(&mut self.closing.deferred);
            for event in pending.chain(deferred).chain(rest) {
                self.refuse_event(&event, &error);
            }
        }
        self.take_output()
    }

    /// Answers a request that the session does not handle.
    fn refuse_event(&mut self, event: &Event, error: &RpcError) {
        match event {
            Event::Client { client, call, .. } => {
                let Some(request) = call.to_rejectable() else { return };
                self.send_unattached(client.id, request.response(error));
            }
            Event::Agent(_, AgentEvent::Response(crate::AgentCall::Forwarded(call), _)) => {
                self.send_unattached(call.client, Frame::error(&call.id, error));
            }
            Event::Agent(..)
            | Event::Drained(_)
            | Event::Disconnected(_)
            | Event::CancelRequest { .. }
            | Event::CancelTurn { .. }
            | Event::Answered { .. }
            | Event::Relay { .. }
            | Event::Started { .. }
            | Event::AgentReady(_)
            | Event::Owner(_)
            | Event::Timer(_)
            | Event::Terminal(_)
            | Event::Tick { .. }
            | Event::Stop => {}
        }
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Client { client, is_connected, call } => {
                // A client that closes the session gets the response before its later calls are handled.
                if self.is_closing(client.id) {
                    return self.defer(Event::Client { client, is_connected, call });
                }
                self.on_call(client, is_connected, call);
            }
            Event::Drained(client) => self.on_drained(client),
            Event::Disconnected(client) => self.on_disconnected(client),
            Event::CancelRequest { client, id } => self.cancel_client_request(client, &id),
            Event::CancelTurn { by, scope } if self.takes_cancel() => {
                self.step(Input::Cancelled { by, scope });
            }
            Event::CancelTurn { .. } => self.report_refused_cancel(),
            Event::Answered { request, by, answer } => self.on_answer(request, by, answer),
            Event::Relay { id, frame, clients } => self.on_relay(id, &frame, &clients),
            Event::Agent(epoch, event) if epoch < self.agent.epoch => {
                let error = RpcError::new(
                    code::INTERNAL_ERROR,
                    "the agent process that received the request has ended",
                );
                self.refuse_event(&Event::Agent(epoch, event), &error);
            }
            Event::Agent(
                epoch,
                AgentEvent::Request { id, method, .. } | AgentEvent::FileAllowed { id, method, .. },
            ) if !self.agent.is_bound() && method != live::SETTLED => {
                // The session released the agent before it got the request. The next agent must not get the answer.
                let error = RpcError::new(code::INTERNAL_ERROR, "the session has released the agent");
                let reply = Err(error.to_json());
                self.output.agent.push((epoch, AgentCommand::Respond { id, reply }));
            }
            Event::Agent(_, event) => self.on_agent_event(event),
            Event::Started { agent, replay } => self.on_started(*agent, replay),
            Event::AgentReady(restored) => self.on_agent_ready(restored.map(|restored| *restored)),
            Event::Owner(event) => self.on_owner(event),
            Event::Timer(Timer::Cancel(epoch, cancelled)) => self.on_cancel_timeout(epoch, &cancelled),
            Event::Timer(Timer::Throttle) => self.on_throttle_timer(),
            Event::Terminal(event) => self.on_terminal(event),
            Event::Tick { idle, idle_unrestorable } => self.on_tick(idle, idle_unrestorable),
            Event::Stop => {
                self.flush_info();
                self.end = Some(SessionEnd::Stopped);
            }
        }
    }

    fn on_call(&mut self, client: std::sync::Arc<ClientInfo>, is_connected: bool, call: ClientCall) {
        if let Some(error) = self.refused_by_owned(&call) {
            return self.refuse_owned(client.id, &call, &error);
        }
        match call {
            ClientCall::Attach { id, from, cwd, members } => {
                if is_connected {
                    self.attach(client, id, &from, cwd, members);
                }
            }
            // A fork and a deletion are calls of clients that need not be attached.
            ClientCall::Fork(request) => self.on_fork(&client, &request),
            ClientCall::Delete { id } => self.on_delete(&client, &id, is_connected),
            ClientCall::AnswerRequest { id, peer_request, result } => {
                self.on_answer_request(&client, &id, peer_request, &result);
            }
            ClientCall::Cancel { id, scope } => self.on_cancel(&client, &id, scope),
            ClientCall::Older { id, before, entries } => self.on_older(&client, &id, before, entries),
            ClientCall::Seen { id, seq } => self.on_seen(&client, &id, seq),
            ClientCall::SetTitle { id, title } => self.on_set_title(&client, &id, title),
            ClientCall::Status { id } => self.on_status(&client, &id),
            ClientCall::Archive { id, archived } => self.on_archive(&client, id, archived),
            ClientCall::Close { id } => self.on_close(&client, id),
            ClientCall::Detach { id } => self.on_detach(&client, id),
            ClientCall::Follow => self.follow(&client, is_connected),
            ClientCall::FollowOwner(follow) => self.follow_owner(&client, is_connected, follow),
            ClientCall::LeaveOwner => self.leave_owner(client.id),
            ClientCall::Prompt { id, params } => {
                self.follow(&client, is_connected);
                self.on_prompt(&client, id, params);
            }
            ClientCall::Steer { id, params } => {
                self.follow(&client, is_connected);
                self.on_steer(&client, id, params);
            }
            ClientCall::PromptWithoutRequest { content, answer } => {
                self.follow(&client, is_connected);
                self.on_prompt_without_request(&client, content, answer);
            }
            ClientCall::WithdrawPrompt { id, prompt } => {
                self.follow(&client, is_connected);
                self.on_withdraw_prompt(&client, &id, prompt);
            }
            ClientCall::Forward { id, method, params } => {
                self.follow(&client, is_connected);
                self.on_forward(client, id, method, params);
            }
        }
    }

    /// Keeps an event of a client that closes the session until that is done.
    fn defer(&mut self, event: Event) {
        if self.closing.deferred.len() < self.config.limits.deferred_calls {
            self.closing.deferred.push(event);
        } else {
            let error = RpcError::new(
                code::INTERNAL_ERROR,
                "too many requests wait until the session is closed: try again later",
            );
            self.refuse_event(&event, &error);
        }
    }

    fn on_agent_event(&mut self, event: AgentEvent) {
        match event {
            AgentEvent::Updates(lines) => self.on_updates(&lines),
            AgentEvent::Request { id, method, params } => self.on_agent_request(id, method, params),
            AgentEvent::FileAllowed { id, method, params } => self.on_file_allowed(id, method, params),
            AgentEvent::CancelRequest(id) => self.on_agent_cancels_request(&id),
            AgentEvent::Notification(line) => self.on_agent_notification(&line),
            AgentEvent::Response(call, reply) => self.on_agent_response(call, reply),
            AgentEvent::Gone(error) => self.on_agent_gone(&error),
        }
    }

    /// Lets the session take one input.
    fn step(&mut self, input: Input) {
        let mut step = std::mem::take(&mut self.scratch);
        let ids = &mut self.ids;
        self.session.step(input, self.now.wall, &mut || ids.new_id(), &mut step);
        let before = self.offsets_for(&step);
        let offsets = self.on_applied(&mut step, before, None);
        self.on_effects(step, &offsets);
    }

    /// Takes an update of the agent, with its line.
    fn step_update(&mut self, update: Update, id_source: IdSource, line: Option<&AgentLine<'_>>) {
        self.on_settings_reported(&update);
        let mut step = std::mem::take(&mut self.scratch);
        let ids = &mut self.ids;
        let user_message = user_message(&update).filter(|_| id_source == IdSource::Assigned).cloned();
        let input = Input::AgentUpdate(update, id_source);
        self.session.step(input, self.now.wall, &mut || ids.new_id(), &mut step);
        if let Some(id) = user_message.filter(|_| step.changes.is_empty() && step.rejected.is_empty()) {
            // It is held back, or repeats a prompt: also then the agent's message before it has ended.
            self.decoder.on_message_applied(Role::User, &id, id_source);
        }
        let before = self.offsets_for(&step);
        let offsets = self.on_applied(&mut step, before, Some((id_source, line)));
        self.on_effects(step, &offsets);
    }

    /// Passes every applied change to all that observe changes: the decoder, the rows to write, the search index, the list
    /// row and the broadcast. `before` has the offsets before the step. For an update of the agent, `source` says who
    /// assigned its id and has its line.
    fn on_applied(
        &mut self,
        step: &mut Step,
        before: BufferOffsets,
        source: Option<(IdSource, Option<&AgentLine<'_>>)>,
    ) -> StepOffsets {
        let mut insertions = Vec::new();
        for Inserted { prompt, by, message, content, change_index } in step.inserted.drain(..) {
            self.rows.data.summary.last_prompt_at = Some(self.now.wall.0);
            // A client that did not send the prompt in these words is sent the message.
            if let Some(subscriber) =
                self.subscribers.get_mut(&by).filter(|_| !self.prompts.is_without_request(prompt))
            {
                subscriber.encoder.sent(&message, &content);
            }
            insertions.push((change_index, prompt));
        }
        let mut inserted = Vec::new();
        let mut ended = None;
        let ended_after = step.ended_after;
        for (index, change) in step.changes.drain(..).enumerate() {
            if ended_after == Some(index) {
                ended = Some(self.buffers.offsets());
            }
            let here = insertions.iter().filter(|(before, _)| *before == index);
            inserted.extend(here.map(|(_, prompt)| (*prompt, self.buffers.offsets())));
            if let Some((id_source, _)) = source {
                self.decoder.on_applied(&change, id_source);
            }
            self.rows.on_applied(&change, self.session.transcript(), self.now);
            self.index_backlog.note(&change, self.session.transcript());
            self.broadcast(&change, source.and_then(|(_, line)| line));
        }
        StepOffsets { before, inserted, ended: ended.unwrap_or_else(|| self.offsets_for(step)) }
    }

    /// The offsets now, if anything of a step is going to be put there.
    fn offsets_for(&self, step: &Step) -> BufferOffsets {
        let is_needed = !step.effects.is_empty() || !self.closing.responses.is_empty();
        if is_needed { self.buffers.offsets() } else { BufferOffsets::default() }
    }

    /// Handles the effects of a step: responses and requests to clients take their place among the changes at once, the rest
    /// is decided at the end of the batch.
    fn on_effects(&mut self, mut step: Step, offsets: &StepOffsets) {
        self.rows.dirty.side_state |= std::mem::take(&mut step.side_state_dirty);
        self.rows.dirty.durable |= std::mem::take(&mut step.durable);
        step.ended_after = None;
        for (prompt, state) in step.ended.drain(..) {
            self.on_turn_ended(prompt, (live::HOOKS.turn_end)(&state) == TurnEnd::Completed);
        }
        for refused in step.rejected.drain(..) {
            self.losses.add(LossKind::UpdateRefused);
            tracing::warn!(session = %self.id, "an update was rejected: {refused}");
        }
        for effect in step.effects.drain(..) {
            match effect {
                Effect::RespondPrompt { prompt, by, outcome } => {
                    self.respond_prompt(prompt, by, &outcome, offsets);
                }
                Effect::SendRequest(peer_request, client) => self.send_request(peer_request, client),
                Effect::CancelClientRequest(peer_request, client) => {
                    self.cancel_request(peer_request, client);
                }
                Effect::QueueChanged => self.on_queue_changed(),
                Effect::RecordDecision { peer_request, by, result } => {
                    self.record_decision(peer_request, by, &result);
                }
                Effect::SendPrompt(_)
                | Effect::Steer(_)
                | Effect::CancelPrompt(_)
                | Effect::CancelTurn
                | Effect::RespondRequest(..)
                | Effect::StartAgent => self.effects.push(effect),
            }
        }
        self.scratch = step;
        self.respond_at_turn_end(&offsets.ended);
    }

    fn agent_dialect(&self) -> Dialect {
        self.agent.link().map_or(self.decoder.dialect(), |link| link.agent.dialect)
    }

    /// Has the agent do something, if the session has one.
    fn command(&mut self, command: AgentCommand) {
        if let Some(link) = self.agent.link() {
            self.output.agent.push((link.epoch, command));
        }
    }

    /// Answers a request of the agent.
    fn respond_to_agent(&mut self, id: RequestId, reply: Result<parlor_json::Json, parlor_json::Json>) {
        self.command(AgentCommand::Respond { id, reply });
    }

    /// Notifies the agent of something about its session.
    fn notify_agent(&mut self, method: &str) {
        if let Some(link) = self.agent.link() {
            let params = params_for(&link.session);
            self.command(AgentCommand::Notify { method: method.to_owned(), params });
        }
    }

    /// Evicts a session that has been idle for long enough.
    fn on_tick(&mut self, idle: Duration, idle_unrestorable: Duration) {
        let is_restorable = self.agent.link().is_none_or(|link| link.agent.restores());
        let idle = if is_restorable { idle } else { idle_unrestorable };
        // The agent may speak in the session of a subagent until its owner is released.
        let is_bound_subagent = self.is_owned() && self.agent.is_bound();
        let background = self.session.is_busy() || reports_background(self.session.transcript());
        if self.subscribers.is_empty()
            && !background
            && !is_bound_subagent
            && !self.agent.is_restoring()
            && !self.forks.has_waiting()
            && self.closing.responses.is_empty()
            && self.throttle.is_empty()
            && self.pending.is_empty()
            && self.rows.idle_time(self.now.monotonic) >= idle
        {
            self.end = Some(SessionEnd::Unused);
        }
    }
}

/// Whether the agent of a session reports work that goes on without a turn.
pub fn reports_background(transcript: &Transcript) -> bool {
    let tasks = transcript.state().and_then(|state| state.fields.get("backgroundTasks"));
    tasks.is_some_and(|tasks| !matches!(tasks.as_str(), "0" | "[]" | "null" | "false"))
}

impl fmt::Debug for SessionMachine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionMachine").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Params that name the agent's session.
fn params_for(session: &SessionId) -> Object {
    let mut params = Object::default();
    params.set("sessionId", session.as_json());
    params
}

/// The error for a session that does not exist.
pub fn no_session(id: &SessionId) -> RpcError {
    let mut data = Object::default();
    data.set("sessionId", id.as_json());
    RpcError::new(code::RESOURCE_NOT_FOUND, "there is no such session").with_data(data.to_json())
}
