//! Clients that attach, fall behind, catch up and detach.

use std::sync::Arc;

use parlor_dialect::live::{self, EncodeContext};
use parlor_dialect::{Dialect, Losses};
use parlor_json::{ArrayWriter, Json, Object};
use parlor_session::session::{Client as SessionClient, ClientId, Input};
use parlor_session::{
    Entry, EntryId, MessageId, ReplayCursor, Role, Slot, Target, Transcript, Update, Upsert, is_numbered,
};
use parlor_wire::{RequestId, RpcError, code};

use super::broadcast::BufferOffsets;
use super::requests::cancelled_state;
use super::subscriber::{AttachRequest, FramePosition, Subscriber, SubscriberState};
use super::times::{created_at, with_time};
use super::{Pending, SessionMachine};
use crate::{AgentCommand, ClientInfo, Delivery, Event, Frame, IdGen, Outgoing, ReplayFrom};

/// An update that changes nothing.
const NOTHING_NEW: &str = r#"{"sessionUpdate":"session_info_update"}"#;

/// A request that is answered when a turn that was cancelled has ended.
#[derive(Debug)]
pub(super) struct DeferredResponse {
    pub(super) client: ClientId,
    pub(super) id: RequestId,
    /// Whether the client is detached after it.
    closes: bool,
}

/// Responses and calls that wait for the end of a cancelled turn.
#[derive(Debug, Default)]
pub(super) struct Closing {
    /// Requests that are answered then.
    pub(super) responses: Vec<DeferredResponse>,
    /// Calls of clients that close the session and are not detached yet.
    pub(super) deferred: Vec<Event>,
    /// Whether the agent is released then.
    pub(super) releases: bool,
}

impl SessionMachine {
    pub(super) fn attach(
        &mut self,
        client: Arc<ClientInfo>,
        id: RequestId,
        from: &ReplayFrom,
        cwd: Option<String>,
        members: Object,
    ) {
        // Its backlog was dropped: it is disconnected at the end of this batch, and attaches again with its next connection.
        if self.subscribers.get(&client.id).is_some_and(Subscriber::overflows) {
            return;
        }
        let transcript = self.session.transcript();
        let seq = transcript.seq();
        let since = match from {
            ReplayFrom::New | ReplayFrom::Start | ReplayFrom::Tail(_) => 0,
            ReplayFrom::Now | ReplayFrom::Forked(_) => seq,
            ReplayFrom::After(after) => *after,
            ReplayFrom::Message(message) => {
                let message = self.resolve_alias(message.clone());
                let roles = [Role::User, Role::Agent, Role::Thought];
                let found = roles
                    .into_iter()
                    .find_map(|role| transcript.get(&EntryId::Message(role, message.clone())));
                let Some(entry) = found else {
                    let mut data = Object::default();
                    data.set("messageId", message.as_json());
                    data.set("reason", "unknown");
                    let error =
                        RpcError::new(code::INVALID_PARAMS, "there is no such message in the session");
                    self.send_unattached(client.id, Frame::error(&id, &error.with_data(data.to_json())));
                    return;
                };
                entry.created() - 1
            }
        };
        if since > seq {
            let message = format!(
                "`seq` {since} is after the session's last change ({seq}): load the session from the start"
            );
            let error = RpcError::new(code::INVALID_PARAMS, message);
            self.send_unattached(client.id, Frame::error(&id, &error));
            return;
        }
        let tail = match from {
            ReplayFrom::Tail(entries) => first_of_last(transcript, *entries),
            ReplayFrom::New
            | ReplayFrom::Forked(_)
            | ReplayFrom::Start
            | ReplayFrom::Now
            | ReplayFrom::After(_)
            | ReplayFrom::Message(_) => None,
        };
        if let Some(cwd) = cwd.filter(|_| client.is_driver) {
            self.set_cwd(cwd);
        }
        let notes = match (from, tail) {
            (ReplayFrom::Forked(notes), _) => notes.clone(),
            (_, Some(first)) => {
                let older =
                    self.session.transcript().entries().iter().take_while(|entry| entry.created() < first);
                let messages = older.filter(|entry| is_numbered(entry)).count();
                vec![(OLDER, Json::from(first)), (OLDER_MESSAGES, Json::from(messages))]
            }
            (_, None) => Vec::new(),
        };
        let answer = AttachRequest {
            id,
            is_new: matches!(from, ReplayFrom::New | ReplayFrom::Forked(_)),
            is_blank: matches!(from, ReplayFrom::Now | ReplayFrom::Forked(_)),
            is_resumed: matches!(from, ReplayFrom::After(_)),
            notes,
            members,
        };
        // One that was sent only requests of a subagent gets another subscription.
        let subscriber =
            self.subscribers.get_mut(&client.id).filter(|subscriber| subscriber.shown_in.is_none());
        if *from == ReplayFrom::Now
            && let Some(subscriber) = subscriber
        {
            subscriber.follows_owner = false;
            if let Some(answer) = subscriber.reattach(answer) {
                self.answer_live(client.id, &answer);
            }
            return;
        }
        // A client that is already attached gets a new subscription; unsent responses and open requests carry over.
        let mut before = self.subscribers.remove(&client.id);
        let mut answers = before.as_mut().map(Subscriber::take_open_requests).unwrap_or_default();
        answers.push(answer);
        let stored_batches = self.rows.stored_batches;
        let unsent = before.map(|mut subscriber| subscriber.take_unsent(stored_batches));
        let upto = if *from == ReplayFrom::New { 0 } else { seq };
        // Options and modes stand in the answer.
        let cursor = match tail {
            Some(first) => ReplayCursor::tail(first, upto),
            None => ReplayCursor::new(since, upto),
        };
        let cursor = cursor.without(&[Slot::Options, Slot::Mode, Slot::Model]);
        let mut subscriber = Subscriber::new(client, cursor, answers, self.config.limits);
        subscriber.since = tail.map_or(since, |first| first - 1);
        if matches!(from, ReplayFrom::After(_)) {
            subscriber.encoder.resume_after(self.session.transcript(), since);
        }
        for Delivery { what, is_stored, .. } in unsent.into_iter().flatten() {
            let batch = stored_batches + u64::from(!is_stored);
            subscriber.send(what, 0, FramePosition { seq, batch });
        }
        self.subscribers.insert(subscriber.client.id, subscriber);
    }

    /// Responds with entries before those that a client has, the last ones first that fit into a line.
    pub(super) fn on_older(&mut self, client: &ClientInfo, id: &RequestId, before: u64, entries: usize) {
        let transcript = self.session.transcript();
        let through = transcript.seq();
        let first = first_before(transcript, before, entries);
        let mut result = Object::default();
        // Not the subscriber's own encoder, which knows what its client was sent.
        let mut encoder = live::UpdateEncoder::new(client.dialect, &client.initialize);
        // From the last entry backwards, so that a page that is too long keeps the entries next to those that the client has.
        let mut pages: Vec<String> = Vec::new();
        let (mut end, mut bytes) = (before, 0);
        while end > first && (pages.is_empty() || bytes < self.config.limits.line_bytes / 2) {
            let entry = first_before(self.session.transcript(), end, 1);
            let cursor = ReplayCursor::range(entry, end, through);
            let page = self.encode_entries(&mut encoder, cursor, client.wants_times);
            bytes += page.iter().map(String::len).sum::<usize>();
            pages.splice(0..0, page);
            end = entry;
        }
        let mut updates = ArrayWriter::with_capacity(bytes + pages.len());
        pages.iter().for_each(|update| updates.push(update));
        result.set("updates", updates.into_json());
        if first_before(self.session.transcript(), end, 1) < end {
            result.set("before", end);
        }
        self.respond(client, id, &result);
    }

    /// Encodes what a cursor replays.
    fn encode_entries(
        &mut self,
        encoder: &mut live::UpdateEncoder,
        mut cursor: ReplayCursor,
        wants_times: bool,
    ) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            let transcript = self.session.transcript();
            let Some(update) = cursor.next(transcript, self.config.limits.line_bytes) else { return lines };
            let encode_context =
                EncodeContext { from: self.decoder.dialect(), transcript, meta_before: None };
            let (mut alias, ids) = (None, &mut self.ids);
            let mut new_alias = || alias.get_or_insert_with(|| ids.new_id()).clone();
            let at = created_at(&update, transcript).filter(|_| wants_times);
            let encoded = encoder.encode(&update, encode_context, &mut new_alias, &mut self.losses);
            lines.extend(encoded.into_iter().map(|encoded| with_time(encoded, at)));
            if let Some(alias) = alias {
                self.add_alias(alias, &update);
            }
        }
    }

    /// Answers an attach request of a live client, after everything that it was sent so far.
    fn answer_live(&mut self, client: ClientId, request: &AttachRequest) {
        let transcript = self.session.transcript();
        let encode_context = EncodeContext { from: self.decoder.dialect(), transcript, meta_before: None };
        let Some(subscriber) = self.subscribers.get_mut(&client) else { return };
        let frames = answer_frames(
            &self.id,
            request,
            &subscriber.client,
            &mut subscriber.encoder,
            transcript.seq(),
            encode_context,
            &self.agent.open_result,
            &mut self.losses,
            &mut self.ids,
        );
        frames.into_iter().for_each(|frame| self.send(client, frame));
        self.pending.push_back(Pending::CaughtUp { client, is_resumed: false });
    }

    /// Attaches a client without a replay, unless it is attached.
    pub(super) fn follow(&mut self, client: &Arc<ClientInfo>, is_connected: bool) {
        if !is_connected {
            return;
        }
        if !self.subscribers.contains_key(&client.id) {
            let seq = self.session.transcript().seq();
            let mut subscriber = Subscriber::new(
                Arc::clone(client),
                ReplayCursor::new(seq, seq),
                Vec::new(),
                self.config.limits,
            );
            subscriber.since = seq;
            self.subscribers.insert(client.id, subscriber);
        }
        self.subscribe(client.id);
    }

    /// A client was sent its replay and the response. One that resumed may know prompts that are not queued any more.
    pub(super) fn on_caught_up(&mut self, client: ClientId, is_resumed: bool) {
        self.subscribe(client);
        self.presence.receivers.push(client);
        if self.subscribers.get(&client).is_some_and(|subscriber| subscriber.client.is_driver) {
            self.queue.on_attached(client, is_resumed);
        }
    }

    pub(super) fn subscribe(&mut self, client: ClientId) {
        // A client that closed the session before it caught up does not become a subscriber again.
        if self.session.is_attached(client) || self.is_closing(client) {
            return;
        }
        let Some(subscriber) = self.subscribers.get(&client) else { return };
        let session_client = SessionClient {
            name: subscriber.client.decider().name,
            is_driver: subscriber.client.is_driver,
            waits_for_turn_end: subscriber.client.dialect == Dialect::V1,
            can_elicit: subscriber.client.elicits(None),
        };
        let is_driver = session_client.is_driver;
        self.command(AgentCommand::AddClient(client));
        self.step(Input::Attached(client, session_client));
        self.presence.has_changed = true;
        if is_driver {
            self.queue.on_attached(client, false);
        }
    }

    pub(super) fn on_disconnected(&mut self, client: ClientId) {
        // A call that waited for the end of a turn must not attach the client again.
        for pending in &mut self.pending {
            if let Pending::Event(Event::Client { client: sender, is_connected, .. }) = pending
                && sender.id == client
            {
                *is_connected = false;
            }
        }
        self.remove_subscriber(client);
    }

    fn remove_subscriber(&mut self, client: ClientId) {
        self.closing.deferred.retain(|event| !event.is_of(client));
        if self.subscribers.remove(&client).is_some() {
            self.answer_without_client(client);
            self.step(Input::Detached(client));
            self.presence.has_changed = true;
            self.prompts.remove_client(client);
        }
    }

    /// A client closes the session. It is sent the end of the turn, then the response; the turn goes on for the others.
    pub(super) fn on_close(&mut self, client: &Arc<ClientInfo>, id: RequestId) {
        // Only its owner closes the session of a subagent.
        if self.is_owned() {
            self.cancel_requests_of(client.id);
            return self.on_detach(client, id);
        }
        self.answer_without_client(client.id);
        self.step(Input::Closed(client.id));
        self.presence.has_changed = true;
        if self.session.has_no_clients() {
            self.closing.releases = true;
            return self.respond_after_turn(client, id, true);
        }
        if self.session.is_running() {
            self.send_cancelled(client.id);
        }
        let ended = self.buffers.offsets();
        self.respond_deferred(DeferredResponse { client: client.id, id, closes: true }, &ended);
    }

    /// A client detaches. As after a lost connection, its prompts stay and the turn goes on, also without any client; its
    /// requests are answered.
    pub(super) fn on_detach(&mut self, client: &Arc<ClientInfo>, id: RequestId) {
        self.cancel_requests_of(client.id);
        self.answer_without_client(client.id);
        self.step(Input::Detached(client.id));
        self.presence.has_changed = true;
        self.leave_prompts(client);
        let ended = self.buffers.offsets();
        self.respond_deferred(DeferredResponse { client: client.id, id, closes: true }, &ended);
    }

    /// Sends one client the end of a turn that goes on for the others.
    fn send_cancelled(&mut self, client: ClientId) {
        let transcript = self.session.transcript();
        let encode_context = EncodeContext { from: self.decoder.dialect(), transcript, meta_before: None };
        let Some(subscriber) = self.subscribers.get_mut(&client) else { return };
        let idle = Update::State(cancelled_state());
        let ids = &mut self.ids;
        let updates =
            subscriber.encoder.encode(&idle, encode_context, &mut || ids.new_id(), &mut self.losses);
        let lines: String = updates.iter().map(|update| live::update_line(&self.id, update, None)).collect();
        self.send(client, Frame::updates(lines));
    }

    /// Answers a request when the turn that it cancels has ended.
    pub(super) fn respond_after_turn(&mut self, client: &Arc<ClientInfo>, id: RequestId, closes: bool) {
        self.closing.responses.push(DeferredResponse { client: client.id, id, closes });
        let ended = self.buffers.offsets();
        self.respond_at_turn_end(&ended);
    }

    /// Sends the responses that wait for the end of a cancelled turn, if it has ended.
    pub(super) fn respond_at_turn_end(&mut self, ended: &BufferOffsets) {
        if self.closing.responses.is_empty() || self.session.is_cancelling() {
            return;
        }
        for response in std::mem::take(&mut self.closing.responses) {
            // A client that catches up would see the next turn run, and not the end of this one.
            let is_behind =
                self.subscribers.get(&response.client).is_some_and(|subscriber| !subscriber.is_live());
            if response.closes && is_behind && self.session.is_running() {
                self.send_cancelled(response.client);
            }
            self.respond_deferred(response, ended);
        }
    }

    fn respond_deferred(&mut self, response: DeferredResponse, ended: &BufferOffsets) {
        let DeferredResponse { client, id, closes } = response;
        let line = Frame::response(&id, &Object::default());
        if !self.subscribers.contains_key(&client) {
            self.unattached_responses.push((client, line));
            self.resume_deferred(client);
        } else if closes {
            self.withdraw_prompts(client);
            self.send_last(client, line, Some(ended));
        } else {
            self.send_at(client, line, Some(ended));
        }
    }

    /// Whether a client closes the session and is not detached yet.
    pub(super) fn is_closing(&self, client: ClientId) -> bool {
        self.closing.responses.iter().any(|response| response.closes && response.client == client)
            || self.subscribers.get(&client).is_some_and(|subscriber| subscriber.closes_after().is_some())
    }

    /// Detaches the clients that closed the session and were sent the response.
    pub(super) fn detach_closed(&mut self) {
        let gone = |subscriber: &Subscriber| subscriber.is_live() && subscriber.closes_after().is_some();
        let gone: Vec<_> =
            self.subscribers.iter().filter(|(_, subscriber)| gone(subscriber)).map(|(id, _)| *id).collect();
        gone.into_iter().for_each(|client| self.detach(client));
    }

    /// Detaches a client that closed the session. Its calls since then are handled next.
    fn detach(&mut self, client: ClientId) {
        self.subscribers.remove(&client);
        self.answer_without_client(client);
        self.prompts.remove_client(client);
        self.resume_deferred(client);
    }

    /// Handles the calls that a client made after it closed the session: it has the response to the close now.
    fn resume_deferred(&mut self, client: ClientId) {
        let deferred = self.closing.deferred.extract_if(.., |event| event.is_of(client));
        self.pending.extend(deferred.map(Pending::Event));
    }

    /// Before anything is sent: a subscriber that does not keep up catches up at its own pace.
    pub(super) fn update_lag(&mut self, has_room: &dyn Fn(ClientId) -> bool) {
        let seq = self.session.transcript().seq();
        for subscriber in self.subscribers.values_mut() {
            subscriber.credit =
                if has_room(subscriber.client.id) { self.config.limits.catch_up_bytes } else { 0 };
            if subscriber.is_live() && subscriber.credit == 0 {
                subscriber.state = SubscriberState::CatchingUp {
                    cursor: ReplayCursor::new(seq, seq),
                    answers: Vec::new(),
                    waiting: false,
                };
            }
        }
    }

    pub(super) fn on_drained(&mut self, client: ClientId) {
        if let Some(Subscriber { state: SubscriberState::CatchingUp { waiting, .. }, .. }) =
            self.subscribers.get_mut(&client)
        {
            *waiting = false;
        }
    }

    /// Sends the subscribers that catch up as much as their queues have room for.
    pub(super) fn replay_all(&mut self) {
        let behind: Vec<_> = self
            .subscribers
            .iter()
            .filter(|(_, subscriber)| !subscriber.is_live())
            .map(|(id, _)| *id)
            .collect();
        behind.into_iter().for_each(|client| self.replay_to(client));
    }

    fn replay_to(&mut self, id: ClientId) {
        while let Some((alias, update)) = self.replay_until_alias(id) {
            self.add_alias(alias, &update);
        }
    }

    /// Sends a client as much as there is room for, up to the first update that has a new alias. Returns the alias and
    /// the update that it is for.
    fn replay_until_alias(&mut self, id: ClientId) -> Option<(MessageId, Update)> {
        let transcript = self.session.transcript();
        let from = self.decoder.dialect();
        let subscriber = self.subscribers.get_mut(&id)?;
        if subscriber.overflows() {
            self.output.sends.push(Delivery::new(id, Outgoing::Disconnect));
            return None;
        }
        let wants_seq = subscriber.client.wants_seq;
        let leaves_after = subscriber.closes_after();
        // The updates of the replay that were encoded since the last frame.
        let mut lines = String::new();
        loop {
            let Subscriber { client, encoder, state, credit, .. } = &mut *subscriber;
            let SubscriberState::CatchingUp { cursor, answers, waiting } = state else { return None };
            if *credit == 0 {
                self.output.sends.extend(replayed(id, &mut lines));
                if !*waiting {
                    *waiting = true;
                    self.output.sends.push(Delivery::new(id, Outgoing::AwaitDrain));
                }
                return None;
            }
            let encode_context = EncodeContext { from, transcript, meta_before: None };
            if let Some(update) = cursor.next(transcript, self.config.limits.line_bytes) {
                let before = lines.len();
                let mut alias = None;
                let ids = &mut self.ids;
                let mut new_alias = || alias.get_or_insert_with(|| ids.new_id()).clone();
                let at = created_at(&update, transcript).filter(|_| client.wants_times);
                for encoded in encoder.encode(&update, encode_context, &mut new_alias, &mut self.losses) {
                    live::push_update_line(&mut lines, &self.id, &with_time(encoded, at));
                }
                *credit = credit.saturating_sub(lines.len() - before);
                if let Some(alias) = alias {
                    self.output.sends.extend(replayed(id, &mut lines));
                    return Some((alias, update));
                }
                continue;
            }
            self.output.sends.extend(replayed(id, &mut lines));
            let through = cursor.through();
            let is_stored = through <= self.rows.stored_seq;
            let mut in_answer: &[Slot] = &[];
            let requests = std::mem::take(answers);
            for request in &requests {
                if request.is_new {
                    in_answer = &[Slot::Options, Slot::Mode, Slot::Model];
                }
                let encode_context = EncodeContext { from, transcript, meta_before: None };
                let frames = answer_frames(
                    &self.id,
                    request,
                    client,
                    encoder,
                    through,
                    encode_context,
                    &self.agent.open_result,
                    &mut self.losses,
                    &mut self.ids,
                );
                self.output.sends.extend(
                    frames.into_iter().map(|frame| Delivery { is_stored, ..Delivery::new(id, frame) }),
                );
            }
            if !requests.is_empty() {
                let is_resumed = requests.iter().any(|request| request.is_resumed);
                self.pending.push_back(Pending::CaughtUp { client: id, is_resumed });
            }
            let upto = leaves_after.unwrap_or(transcript.seq());
            if leaves_after.is_some_and(|last| through >= last) {
                self.output.sends.extend(subscriber.take_remaining(self.rows.stored_batches));
                self.detach(id);
                return None;
            }
            if through == upto {
                subscriber.state = SubscriberState::Live;
            } else {
                *cursor = ReplayCursor::new(through, upto).without(in_answer);
            }
            let due = subscriber.take_due(through, self.rows.stored_batches);
            let has_updates = due.iter().any(|delivery| delivery.what.is_update());
            self.output.sends.extend(due);
            if wants_seq && (requests.is_empty() || has_updates) {
                // Only now it has everything up to this change; frames for this client alone have no seq.
                let line = live::update_line(&self.id, NOTHING_NEW, Some(through));
                self.output.sends.push(Delivery::new(id, Frame::updates(line)));
            }
        }
    }
}

/// The metadata key of a response with the cursor for entries before the replayed ones.
const OLDER: &str = "parlor/older";

/// The metadata key of a response with the number of messages before the replayed entries, so that clients can number the
/// others.
const OLDER_MESSAGES: &str = "parlor/olderMessages";

/// The first of the last `count` entries, by the change that created it; `None` if there are no others.
fn first_of_last(transcript: &Transcript, count: usize) -> Option<u64> {
    let entries = transcript.entries();
    let skipped = entries.len().checked_sub(count.max(1)).filter(|skipped| *skipped > 0)?;
    Some(entries[skipped].created())
}

/// The first of the `count` entries before an entry, each by the change that created it; `end` itself if there are none.
fn first_before(transcript: &Transcript, end: u64, count: usize) -> u64 {
    let entries = transcript.entries();
    let index = entries.partition_point(|entry| entry.created() < end);
    entries[index.saturating_sub(count)..index].first().map_or(end, Entry::created)
}

/// One frame with the updates of a replay that were encoded so far, if there are any.
fn replayed(to: ClientId, lines: &mut String) -> Option<Delivery> {
    (!lines.is_empty()).then(|| Delivery::new(to, Frame::updates(std::mem::take(lines))))
}

#[expect(clippy::too_many_arguments, reason = "they are what the answer is made of")]
/// The response to a client that was sent its replay. A client without a replay is sent the commands of the agent
/// before it.
fn answer_frames(
    session: &parlor_session::SessionId,
    request: &AttachRequest,
    client: &ClientInfo,
    encoder: &mut live::UpdateEncoder,
    through: u64,
    encode_context: EncodeContext<'_>,
    opened: &Object,
    losses: &mut Losses,
    ids: &mut IdGen,
) -> Vec<Frame> {
    let transcript = encode_context.transcript;
    let mut result = request.members.clone();
    result.add_missing(&encoder.session_fields(transcript, losses));
    result.add_missing(opened);
    result.set_nested("_meta", "parlor/seq", through);
    result.set_nested("_meta", "parlor/state", live::state_name(transcript));
    for (name, value) in &request.notes {
        result.set_nested("_meta", name, value.clone());
    }
    let mut lines = String::new();
    // In a replay, the commands are part of it.
    let commands = transcript.slot(Slot::Commands).filter(|_| request.is_blank);
    if client.dialect == Dialect::V1
        && let Some(commands) = commands
    {
        let upsert = Upsert { whole: true, fields: commands.fields.clone(), ..Upsert::default() };
        let update = Update::Upsert { target: Target::Slot(Slot::Commands), upsert };
        for encoded in encoder.encode(&update, encode_context, &mut || ids.new_id(), losses) {
            lines.push_str(&live::update_line(session, &encoded, None));
        }
    } else if let Some(list) = commands.and_then(|slot| slot.fields.get("availableCommands")) {
        result.set("availableCommands", live::commands_for(list, client.dialect, losses));
    }
    if request.is_new {
        let mut named = Object::default();
        named.set("sessionId", session.as_json());
        named.add_missing(&result);
        return vec![Frame::response(&request.id, &named), Frame::updates(lines)];
    }
    vec![Frame::updates(lines), Frame::response(&request.id, &result)]
}
