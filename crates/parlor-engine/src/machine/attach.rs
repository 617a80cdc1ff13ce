//! Clients that come, fall behind, catch up and go.

use std::sync::Arc;

use parlor_dialect::live::{self, Telling};
use parlor_dialect::{Dialect, Losses};
use parlor_json::Object;
use parlor_session::session::{Client as Part, ClientId, Input};
use parlor_session::{EntryId, MessageId, Reading, Role, Slot, Target, Update, Upsert};
use parlor_wire::{RequestId, RpcError, code};

use super::broadcast::Marks;
use super::requests::cancelled_state;
use super::subscriber::{Answer, Pace, Seat};
use super::{Pending, SessionMachine};
use crate::{AgentCommand, ClientInfo, Delivery, Event, Frame, IdGen, Outgoing, ReplayFrom, json};

/// An update that changes nothing.
const NOTHING_NEW: &str = r#"{"sessionUpdate":"session_info_update"}"#;

/// A request that is answered when a turn that was cancelled has ended.
#[derive(Debug)]
pub(super) struct Ending {
    pub(super) client: ClientId,
    pub(super) id: RequestId,
    /// Whether the client is told nothing more of the session after that.
    closes: bool,
}

/// What waits for the end of a turn that was cancelled.
#[derive(Debug, Default)]
pub(super) struct Leaving {
    /// Requests that are answered then.
    pub(super) endings: Vec<Ending>,
    /// What clients say that closed the session and were not told so yet.
    pub(super) deferred: Vec<Event>,
    /// Whether the agent is released then.
    pub(super) releases: bool,
}

impl SessionMachine {
    pub(super) fn join(
        &mut self,
        client: Arc<ClientInfo>,
        id: RequestId,
        from: &ReplayFrom,
        cwd: Option<String>,
    ) {
        let transcript = self.session.transcript();
        let seq = transcript.seq();
        let since = match from {
            ReplayFrom::New | ReplayFrom::Start => 0,
            ReplayFrom::Now | ReplayFrom::Forked(_) => seq,
            ReplayFrom::After(after) => *after,
            ReplayFrom::Message(message) => {
                let message = self.unaliased(message.clone());
                let roles = [Role::User, Role::Agent, Role::Thought];
                let found = roles
                    .into_iter()
                    .find_map(|role| transcript.get(&EntryId::Message(role, message.clone())));
                let Some(entry) = found else {
                    let mut data = Object::default();
                    data.set("messageId", message.as_json());
                    data.set("reason", json::string("unknown"));
                    let error =
                        RpcError::new(code::INVALID_PARAMS, "there is no such message in the session");
                    self.send_to(client.id, Frame::error(&id, &error.with_data(data.to_json())));
                    return;
                };
                entry.created() - 1
            }
        };
        if since > seq {
            let error =
                RpcError::new(code::INVALID_PARAMS, format!("the session has {seq} changes, not {since}"));
            self.send_to(client.id, Frame::error(&id, &error));
            return;
        }
        if let Some(cwd) = cwd.filter(|_| client.is_driver) {
            self.is_placed(cwd);
        }
        let answer = Answer {
            id,
            is_new: matches!(from, ReplayFrom::New | ReplayFrom::Forked(_)),
            is_blank: matches!(from, ReplayFrom::Now | ReplayFrom::Forked(_)),
            is_resumed: matches!(from, ReplayFrom::After(_)),
            notes: if let ReplayFrom::Forked(notes) = from { notes.clone() } else { Vec::new() },
        };
        if *from == ReplayFrom::Now
            && let Some(seat) = self.seats.get_mut(&client.id)
        {
            if let Some(answer) = seat.go_on(answer) {
                self.answer_live(client.id, &answer);
            }
            return;
        }
        // Who is there already takes another seat. It is still owed its answers, and has its questions.
        let mut before = self.seats.remove(&client.id);
        let mut answers = before.as_mut().map(Seat::asked).unwrap_or_default();
        answers.push(answer);
        let owed = before.map(|mut seat| seat.unsaid(0));
        let upto = if *from == ReplayFrom::New { 0 } else { seq };
        // Options and modes stand in the answer.
        let reading = Reading::new(since, upto).without(&[Slot::Options, Slot::Mode, Slot::Model]);
        let mut seat = Seat::new(client, reading, answers, self.config.limits);
        for (frame, _) in owed.into_iter().flatten() {
            seat.say(frame, 0, seq);
        }
        self.seats.insert(seat.client.id, seat);
    }

    /// Answers a request for the session of a client that was told all changes, after what it was told so far.
    fn answer_live(&mut self, client: ClientId, request: &Answer) {
        let transcript = self.session.transcript();
        let telling = Telling { from: self.decoder.dialect(), transcript, meta_before: None };
        let Some(seat) = self.seats.get_mut(&client) else { return };
        let frames = answer_frames(
            &self.id,
            request,
            &seat.client,
            &mut seat.listener,
            transcript.seq(),
            telling,
            &self.opened,
            &mut self.losses,
            &mut self.ids,
        );
        frames.into_iter().for_each(|frame| self.say(client, frame));
        self.pending.push_back(Pending::CaughtUp { client, is_resumed: false });
    }

    /// A client takes part without having asked for what was.
    pub(super) fn attach(&mut self, client: &Arc<ClientInfo>, is_connected: bool) {
        if !is_connected {
            return;
        }
        if !self.seats.contains_key(&client.id) {
            let seq = self.session.transcript().seq();
            let seat = Seat::new(Arc::clone(client), Reading::new(seq, seq), Vec::new(), self.config.limits);
            self.seats.insert(client.id, seat);
        }
        self.take_part(client.id);
    }

    /// The client was told what it missed. One that resumed may know prompts that do not wait any more.
    pub(super) fn seated(&mut self, client: ClientId, is_resumed: bool) {
        self.take_part(client);
        if self.seats.get(&client).is_some_and(|seat| seat.client.is_driver) {
            self.held_wanted.push((client, is_resumed));
        }
    }

    fn take_part(&mut self, client: ClientId) {
        // One that closed the session before it was told what it missed does not come back.
        if self.session.takes_part(client) || self.is_leaving(client) {
            return;
        }
        let Some(seat) = self.seats.get(&client) else { return };
        let part = Part {
            name: seat.client.decider().name,
            drives: seat.client.is_driver,
            waits: seat.client.dialect == Dialect::V1,
            elicits: seat.client.elicits(None),
        };
        let drives = part.drives;
        self.command(AgentCommand::AddClient(client));
        self.step(Input::Joined(client, part));
        if drives {
            self.held_wanted.push((client, false));
        }
    }

    pub(super) fn left(&mut self, client: ClientId) {
        self.unseat(client);
    }

    fn unseat(&mut self, client: ClientId) {
        self.leaving.deferred.retain(|event| !event.is_of(client));
        if self.seats.remove(&client).is_some() {
            self.answer_without(client);
            self.step(Input::Left(client));
            self.prompts.retain(|_, (by, _)| *by != client);
        }
    }

    /// A client closes the session: it is answered when it has been told the end of the turn, which goes on for others.
    pub(super) fn close(&mut self, client: &Arc<ClientInfo>, id: RequestId) {
        self.answer_without(client.id);
        self.step(Input::Closed(client.id));
        if self.session.is_deserted() {
            self.leaving.releases = true;
            return self.answer_after_turn(client, id, true);
        }
        if self.session.is_running() {
            self.tell_cancelled(client.id);
        }
        let ended = self.groups.marks();
        self.answer_ending(Ending { client: client.id, id, closes: true }, &ended);
    }

    /// Tells one client that the turn is cancelled, which goes on for the others.
    fn tell_cancelled(&mut self, client: ClientId) {
        let transcript = self.session.transcript();
        let telling = Telling { from: self.decoder.dialect(), transcript, meta_before: None };
        let Some(seat) = self.seats.get_mut(&client) else { return };
        let idle = Update::State(cancelled_state());
        let ids = &mut self.ids;
        let updates = seat.listener.tell(&idle, telling, &mut || ids.new_id(), &mut self.losses);
        let lines: String = updates.iter().map(|update| live::update_line(&self.id, update, None)).collect();
        self.say(client, Frame::updates(lines));
    }

    /// Answers a request when the turn that it cancels has ended.
    pub(super) fn answer_after_turn(&mut self, client: &Arc<ClientInfo>, id: RequestId, closes: bool) {
        self.leaving.endings.push(Ending { client: client.id, id, closes });
        let ended = self.groups.marks();
        self.answer_endings(&ended);
    }

    /// Answers those who wait for the end of a turn that was cancelled, if it has ended.
    pub(super) fn answer_endings(&mut self, ended: &Marks) {
        if self.leaving.endings.is_empty() || self.session.is_cancelling() {
            return;
        }
        for ending in std::mem::take(&mut self.leaving.endings) {
            // Who closes and is behind is told that the next turn runs if that has begun, and not of the end of this one.
            let is_behind = self.seats.get(&ending.client).is_some_and(|seat| !seat.is_live());
            if ending.closes && is_behind && self.session.is_running() {
                self.tell_cancelled(ending.client);
            }
            self.answer_ending(ending, ended);
        }
    }

    fn answer_ending(&mut self, ending: Ending, ended: &Marks) {
        let Ending { client, id, closes } = ending;
        let line = Frame::response(&id, &Object::default());
        if !self.seats.contains_key(&client) {
            self.owed.push((client, line));
            self.resume_deferred(client);
        } else if closes {
            self.withdraw_prompts(client);
            self.say_last(client, line, Some(ended));
        } else {
            self.say_at(client, line, Some(ended));
        }
    }

    /// Whether a client has closed the session and has yet to be told so.
    pub(super) fn is_leaving(&self, client: ClientId) -> bool {
        self.leaving.endings.iter().any(|ending| ending.closes && ending.client == client)
            || self.seats.get(&client).is_some_and(|seat| seat.leaves_after().is_some())
    }

    /// Lets those go who closed the session and were told so.
    pub(super) fn let_go(&mut self) {
        let gone = |seat: &Seat| seat.is_live() && seat.leaves_after().is_some();
        let gone: Vec<_> = self.seats.iter().filter(|(_, seat)| gone(seat)).map(|(id, _)| *id).collect();
        gone.into_iter().for_each(|client| self.go(client));
    }

    /// A client that closed the session has been told all. What it has said since then is heard now.
    fn go(&mut self, client: ClientId) {
        self.seats.remove(&client);
        self.answer_without(client);
        self.prompts.retain(|_, (by, _)| *by != client);
        self.resume_deferred(client);
    }

    /// A client is told that the session is closed: its calls since then are handled next.
    fn resume_deferred(&mut self, client: ClientId) {
        let deferred = self.leaving.deferred.extract_if(.., |event| event.is_of(client));
        self.pending.extend(deferred.map(Pending::Event));
    }

    /// Before anything is sent: a subscriber that does not keep up catches up at its own pace.
    pub(super) fn settle_pace(&mut self, has_room: &dyn Fn(ClientId) -> bool) {
        let seq = self.session.transcript().seq();
        for seat in self.seats.values_mut() {
            seat.credit = if has_room(seat.client.id) { self.config.limits.catch_up_bytes } else { 0 };
            if seat.is_live() && seat.credit == 0 {
                seat.pace =
                    Pace::Behind { reading: Reading::new(seq, seq), answers: Vec::new(), waiting: false };
            }
        }
    }

    pub(super) fn drained(&mut self, client: ClientId) {
        if let Some(Seat { pace: Pace::Behind { waiting, .. }, .. }) = self.seats.get_mut(&client) {
            *waiting = false;
        }
    }

    /// Sends those who are behind as much as there is room for.
    pub(super) fn pump_all(&mut self) {
        let behind: Vec<_> =
            self.seats.iter().filter(|(_, seat)| !seat.is_live()).map(|(id, _)| *id).collect();
        behind.into_iter().for_each(|client| self.pump(client));
    }

    fn pump(&mut self, id: ClientId) {
        while let Some((alias, update)) = self.read_on(id) {
            self.alias(alias, &update);
        }
    }

    /// Sends a client as much as there is room for, up to the first update that has a new alias. Returns the alias and
    /// the update that it is for.
    fn read_on(&mut self, id: ClientId) -> Option<(MessageId, Update)> {
        let transcript = self.session.transcript();
        let from = self.decoder.dialect();
        let seat = self.seats.get_mut(&id)?;
        if seat.overflows() {
            self.output.sends.push(Delivery::new(id, Outgoing::Disconnect));
            return None;
        }
        let wants_seq = seat.client.wants_seq;
        let leaves_after = seat.leaves_after();
        loop {
            let Seat { client, listener, pace, credit, .. } = &mut *seat;
            let Pace::Behind { reading, answers, waiting } = pace else { return None };
            if *credit == 0 {
                if !*waiting {
                    *waiting = true;
                    self.output.sends.push(Delivery::new(id, Outgoing::AwaitDrain));
                }
                return None;
            }
            let telling = Telling { from, transcript, meta_before: None };
            if let Some(update) = reading.next(transcript, self.config.limits.line_bytes) {
                let mut lines = String::new();
                let mut alias = None;
                let ids = &mut self.ids;
                let mut mint = || alias.get_or_insert_with(|| ids.new_id()).clone();
                for said in listener.tell(&update, telling, &mut mint, &mut self.losses) {
                    lines.push_str(&live::update_line(&self.id, &said, None));
                }
                *credit = credit.saturating_sub(lines.len());
                self.output.sends.push(Delivery::new(id, Frame::updates(lines)));
                if let Some(alias) = alias {
                    return Some((alias, update));
                }
                continue;
            }
            let told = reading.upto();
            let is_stored = told <= self.stored;
            let mut in_answer: &[Slot] = &[];
            let requests = std::mem::take(answers);
            for request in &requests {
                if request.is_new {
                    in_answer = &[Slot::Options, Slot::Mode, Slot::Model];
                }
                let telling = Telling { from, transcript, meta_before: None };
                let frames = answer_frames(
                    &self.id,
                    request,
                    client,
                    listener,
                    told,
                    telling,
                    &self.opened,
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
            if leaves_after.is_some_and(|last| told >= last) {
                let last = seat.last();
                self.output
                    .sends
                    .extend(last.into_iter().map(|frame| Delivery { is_stored, ..Delivery::new(id, frame) }));
                self.go(id);
                return None;
            }
            if told == upto {
                seat.pace = Pace::Live;
            } else {
                *reading = Reading::new(told, upto).without(in_answer);
            }
            let due = seat.due(told);
            let has_updates = due.iter().any(Outgoing::is_update);
            self.output
                .sends
                .extend(due.into_iter().map(|frame| Delivery { is_stored, ..Delivery::new(id, frame) }));
            if wants_seq && (requests.is_empty() || has_updates) {
                // Only now it has all up to this change, and what was said to it alone has no number.
                let line = live::update_line(&self.id, NOTHING_NEW, Some(told));
                self.output.sends.push(Delivery::new(id, Frame::updates(line)));
            }
        }
    }
}

#[expect(clippy::too_many_arguments, reason = "they are what the answer is made of")]
/// The answer to a client that was told what it missed. What a client that wanted no history still has to know comes
/// before it.
fn answer_frames(
    session: &parlor_session::SessionId,
    request: &Answer,
    client: &ClientInfo,
    listener: &mut live::Listener,
    told: u64,
    telling: Telling<'_>,
    opened: &Object,
    losses: &mut Losses,
    ids: &mut IdGen,
) -> Vec<Frame> {
    let transcript = telling.transcript;
    let mut result = listener.session_fields(transcript, losses);
    result.add_missing(opened);
    json::note(&mut result, "parlor/seq", json::json(told.to_string()));
    json::note(&mut result, "parlor/state", (&live::state_name(transcript)).into());
    for (name, value) in &request.notes {
        json::note(&mut result, name, value.clone());
    }
    let mut lines = String::new();
    // A client that is told what was hears of the commands there.
    let commands = transcript.slot(Slot::Commands).filter(|_| request.is_blank);
    if client.dialect == Dialect::V1
        && let Some(commands) = commands
    {
        let upsert = Upsert { whole: true, fields: commands.fields.clone(), ..Upsert::default() };
        let update = Update::Upsert { target: Target::Slot(Slot::Commands), upsert };
        for said in listener.tell(&update, telling, &mut || ids.new_id(), losses) {
            lines.push_str(&live::update_line(session, &said, None));
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
