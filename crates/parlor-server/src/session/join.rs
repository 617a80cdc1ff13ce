//! Clients that come, fall behind, catch up and go.

use std::sync::Arc;

use parlor_dialect::Dialect;
use parlor_dialect::live::{self, Telling};
use parlor_json::{Json, Object};
use parlor_session::session::{Client as Part, ClientId, Input};
use parlor_session::{EntryId, MessageId, Reading, Role, Slot, Target, Update, Upsert};
use parlor_wire::{RequestId, RpcError, code};

use super::seat::{Answer, Pace, Seat};
use super::{Actor, Message, fresh};
use crate::client::Client;
use crate::json;

/// How much is said in one line at most, unless one block is longer.
const LINE: usize = 1 << 20;

/// An update that changes nothing.
const NOTHING_NEW: &str = r#"{"sessionUpdate":"session_info_update"}"#;

/// From where a client wants to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum From {
    /// Everything, of a session that has just begun: its id comes first.
    New,
    /// Nothing that was, of a session that has just begun as a fork, and what is to be noted in the answer.
    Forked(Vec<(&'static str, Json)>),
    /// Everything.
    Start,
    /// Nothing that was.
    Now,
    /// What came after a change.
    After(u64),
    /// A message and what came after it.
    Message(MessageId),
}

impl Actor {
    pub(super) fn join(&mut self, client: Arc<Client>, id: RequestId, from: &From) {
        // One that is gone has left all its sessions already.
        if client.outbox.is_closed() {
            return;
        }
        if self.leaving.contains(&client.id) {
            // It hears first that it left.
            let (me, from) = (self.me.clone(), from.clone());
            tokio::spawn(async move { me.send(Message::Join { client, id, from }).await });
            return;
        }
        let transcript = self.session.transcript();
        let seq = transcript.seq();
        let since = match from {
            From::New | From::Start => 0,
            From::Now | From::Forked(_) => seq,
            From::After(after) => *after,
            From::Message(message) => {
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
                    client.outbox.push(json::error(&id, &error.with_data(data.to_json())).into());
                    return;
                };
                entry.created() - 1
            }
        };
        if since > seq {
            let error =
                RpcError::new(code::INVALID_PARAMS, format!("the session has {seq} changes, not {since}"));
            client.outbox.push(json::error(&id, &error).into());
            return;
        }
        if client.drives() {
            self.hub.note_peer(&self.id, &client.peer);
        }
        let mut answer = Answer {
            id,
            is_new: matches!(from, From::New | From::Forked(_)),
            is_blank: matches!(from, From::Now | From::Forked(_)),
            notes: if let From::Forked(notes) = from { notes.clone() } else { Vec::new() },
        };
        if *from == From::Now
            && let Some(seat) = self.seats.get_mut(&client.id)
        {
            match seat.go_on(answer, self.stored, seq) {
                None => return,
                Some(back) => answer = back,
            }
        }
        // Who is there already takes another seat. It is still owed its answers, and has its questions.
        let owed = self.seats.remove(&client.id).map(|mut seat| seat.unsaid(0));
        let upto = if *from == From::New { 0 } else { seq };
        // Options and modes stand in the answer.
        let reading = Reading::new(since, upto).without(&[Slot::Options, Slot::Mode]);
        let mut seat = Seat::new(client, reading, Some(answer));
        for (line, _) in owed.into_iter().flatten() {
            seat.say(line, 0, seq);
        }
        self.seats.insert(seat.client.id, seat);
    }

    /// A client takes part without having asked for what was.
    pub(super) fn attach(&mut self, client: &Arc<Client>) {
        // One that is gone has left all its sessions already.
        if client.outbox.is_closed() {
            return;
        }
        if !self.seats.contains_key(&client.id) {
            let seq = self.session.transcript().seq();
            let seat = Seat::new(Arc::clone(client), Reading::new(seq, seq), None);
            self.seats.insert(client.id, seat);
        }
        self.take_part(client.id);
    }

    /// The client was told what it missed.
    pub(super) fn seated(&mut self, client: ClientId) {
        let took_part = self.session.takes_part(client);
        self.take_part(client);
        if took_part
            && self.seats.get(&client).is_some_and(|seat| seat.client.drives())
            && !self.session.held().is_empty()
        {
            self.tell_held_to(client);
        }
    }

    fn take_part(&mut self, client: ClientId) {
        let Some(seat) = self.seats.get(&client).filter(|_| !self.session.takes_part(client)) else { return };
        let part = Part {
            drives: seat.client.drives(),
            waits: seat.client.dialect() == Dialect::V1,
            elicits: seat.client.elicits(None),
        };
        self.step(Input::Joined(client, part));
        if part.drives && !self.session.held().is_empty() {
            self.tell_held_to(client);
        }
    }

    pub(super) fn left(&mut self, client: ClientId) {
        self.unseat(client);
    }

    fn unseat(&mut self, client: ClientId) {
        if self.seats.remove(&client).is_some() {
            self.step(Input::Left(client));
            self.prompts.retain(|_, (by, _)| *by != client);
        }
    }

    pub(super) fn close(&mut self, client: &Arc<Client>, id: &RequestId) {
        self.step(Input::Closed(client.id));
        if self.seats.contains_key(&client.id) {
            self.say(client.id, json::response(id, &Object::default()));
            self.leaving.push(client.id);
        } else {
            client.outbox.push(json::response(id, &Object::default()).into());
        }
        self.prompts.retain(|_, (by, _)| *by != client.id);
    }

    /// Lets those go who closed the session, after they were told all that is stored.
    pub(super) fn let_go(&mut self) {
        for client in std::mem::take(&mut self.leaving) {
            if let Some(mut seat) = self.seats.remove(&client) {
                let due = seat.due(u64::MAX);
                seat.client.outbox.push(due.into());
            }
        }
    }

    /// Before anything is said: who does not keep up reads at its own pace.
    pub(super) fn settle_pace(&mut self) {
        let seq = self.session.transcript().seq();
        for seat in self.seats.values_mut() {
            if seat.is_live() && !seat.client.outbox.has_room() {
                seat.pace = Pace::Behind { reading: Reading::new(seq, seq), answer: None, waiting: false };
            }
        }
    }

    pub(super) fn drained(&mut self, client: ClientId) {
        if let Some(Seat { pace: Pace::Behind { waiting, .. }, .. }) = self.seats.get_mut(&client) {
            *waiting = false;
        }
    }

    /// Lets everybody who is behind read as much as there is room for.
    pub(super) fn pump_all(&mut self) {
        let behind: Vec<_> =
            self.seats.iter().filter(|(_, seat)| !seat.is_live()).map(|(id, _)| *id).collect();
        behind.into_iter().for_each(|client| self.pump(client));
    }

    fn pump(&mut self, id: ClientId) {
        let mut aliases = Vec::new();
        self.read_on(id, &mut aliases);
        for (alias, update) in aliases {
            self.alias(alias, &update);
        }
    }

    /// Lets a client read as much as there is room for. What it is told under other names is noted.
    fn read_on(&mut self, id: ClientId, aliases: &mut Vec<(MessageId, Update)>) {
        let transcript = self.session.transcript();
        let from = self.decoder.dialect();
        let Some(seat) = self.seats.get_mut(&id) else { return };
        let wants_seq = seat.client.terms().is_some_and(|terms| terms.wants_seq);
        loop {
            let Seat { client, listener, pace, .. } = &mut *seat;
            let Pace::Behind { reading, answer, waiting } = pace else { return };
            if !client.outbox.has_room() {
                if !*waiting {
                    *waiting = true;
                    let (outbox, me) = (client.outbox.clone(), self.me.clone());
                    tokio::spawn(async move {
                        outbox.drained().await;
                        let _ = me.send(Message::Drained(id)).await;
                    });
                }
                return;
            }
            let telling = Telling { from, transcript, meta_before: None };
            if let Some(update) = reading.next(transcript, LINE) {
                let mut lines = String::new();
                let mut alias = None;
                let mut mint = || alias.get_or_insert_with(fresh).clone();
                for said in listener.tell(&update, telling, &mut mint, &mut self.losses) {
                    lines.push_str(&live::update_line(&self.id, &said, None));
                }
                client.outbox.push(lines.into());
                aliases.extend(alias.map(|alias| (alias, update)));
                continue;
            }
            let told = reading.upto();
            let mut in_answer: &[Slot] = &[];
            if let Some(request) = answer.take() {
                if request.is_new {
                    in_answer = &[Slot::Options, Slot::Mode];
                }
                let line = answer_line(&self.id, &request, client, listener, told, transcript, from);
                client.outbox.push(line.into());
                // The session's own queue is full only if it is about to be emptied.
                let me = self.me.clone();
                tokio::spawn(async move { me.send(Message::Seated(id)).await });
            } else if wants_seq {
                // Only now it has all up to this change.
                client.outbox.push(live::update_line(&self.id, NOTHING_NEW, Some(told)).into());
            }
            if told == transcript.seq() {
                seat.pace = Pace::Live;
            } else {
                *reading = Reading::new(told, transcript.seq()).without(in_answer);
            }
            let due = seat.due(told);
            seat.client.outbox.push(due.into());
        }
    }
}

/// The answer to a client that was told what it missed. What a client that wanted no history still has to know comes
/// before it.
fn answer_line(
    session: &parlor_session::SessionId,
    request: &Answer,
    client: &Client,
    listener: &mut live::Listener,
    told: u64,
    transcript: &parlor_session::Transcript,
    from: Dialect,
) -> String {
    let mut losses = parlor_dialect::Losses::default();
    let mut result = listener.session_fields(transcript, &mut losses);
    json::note(&mut result, "parlor/seq", json::json(told.to_string()));
    json::note(&mut result, "parlor/state", (&live::state_name(transcript)).into());
    for (name, value) in &request.notes {
        json::note(&mut result, name, value.clone());
    }
    let mut lines = String::new();
    // A client that is told what was hears of the commands there.
    let commands = transcript.slot(Slot::Commands).filter(|_| request.is_blank);
    if client.dialect() == Dialect::V1
        && let Some(commands) = commands
    {
        let upsert = Upsert { whole: true, fields: commands.fields.clone(), ..Upsert::default() };
        let update = Update::Upsert { target: Target::Slot(Slot::Commands), upsert };
        let telling = Telling { from, transcript, meta_before: None };
        for said in listener.tell(&update, telling, &mut fresh, &mut losses) {
            lines.push_str(&live::update_line(session, &said, None));
        }
    } else if let Some(list) = commands.and_then(|slot| slot.fields.get("availableCommands")) {
        result.set("availableCommands", live::commands_for(list, client.dialect(), &mut losses));
    }
    if request.is_new {
        let mut named = Object::default();
        named.set("sessionId", session.as_json());
        named.add_missing(&result);
        return json::response(&request.id, &named) + &lines;
    }
    lines.push_str(&json::response(&request.id, &result));
    lines
}
