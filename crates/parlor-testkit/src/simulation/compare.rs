//! Compares what a client knows of a session with what is stored.

use parlor_dialect::live::{EncodeContext, UpdateEncoder};
use parlor_dialect::{Dialect, Fold, Losses, view};
use parlor_session::{Entry, EntryId, MessageId, ReplayCursor, Role, SessionId, Slot, Transcript};
use serde_json::Value;

use super::Invariant;
use super::client::{Person, What};
use super::replica::Replica;
use super::tokens::tokens_in;
use super::world::World;

impl World {
    /// Everything is delivered and read: every subscriber knows what is stored.
    pub(super) fn check_replicas(&mut self) {
        let mut problem = None;
        let mut counts = Vec::new();
        for (key, shell) in &self.shells {
            let Some(stored) = self.disk.open(key.as_json().as_literal()) else { continue };
            for client in shell.machine.subscribers() {
                let Some(connection) = self.connections.get(&client) else { continue };
                let person = &self.people[connection.person];
                let Some(replica) = person.replicas.get(key) else { continue };
                if !replica.is_attached() || !replica.is_continued(shell.tag_for(client)) {
                    continue;
                }
                let own = connection.made.values().filter_map(|made| {
                    let (What::Prompt(token) | What::Steer(token)) = made.what else { return None };
                    Some(token)
                });
                let own: Vec<_> = own.collect();
                let dialect = stored_dialect(&stored.row);
                counts.push(match (person.plan.dialect, replica.floor) {
                    (_, u64::MAX) => "replicas of unknown beginning",
                    (Dialect::V1, 0) => "replicas compared, v1",
                    (Dialect::V2, 0) => "replicas compared, v2",
                    (Dialect::Draft, 0) => "replicas compared, draft",
                    (Dialect::V1, _) => "replicas compared in part, v1",
                    (Dialect::V2, _) => "replicas compared in part, v2",
                    (Dialect::Draft, _) => "replicas compared in part, draft",
                });
                let found = match person.plan.dialect {
                    Dialect::V1 => v1_differs(key, dialect, &stored.transcript, person, replica, &own),
                    Dialect::V2 | Dialect::Draft => v2_differs(&stored.transcript, person, replica),
                };
                if let Some(found) = found {
                    problem =
                        Some(format!("client {} does not know {key} as it is stored: {found}", client.0));
                }
                let held = shell.machine.session().queued_prompts();
                let queue = replica.queue.as_ref().and_then(Value::as_array);
                let received: Option<Vec<_>> =
                    queue.map(|queue| queue.iter().filter_map(|held| held["id"].as_u64()).collect());
                let is: Vec<_> = held.iter().map(|held| held.id.0).collect();
                if person.plan.is_driver && received.clone().unwrap_or_default() != is {
                    problem = Some(format!(
                        "client {} received the queue {received:?} of {key}, which is {is:?}",
                        client.0
                    ));
                }
            }
        }
        counts.into_iter().for_each(|what| self.count(what));
        if let Some(problem) = problem {
            self.fail(Invariant::Replicas, problem);
        }
    }
}

fn stored_dialect(row: &parlor_engine::rows::SessionRow) -> Dialect {
    parlor_engine::SessionData::of(row).agent_dialect.unwrap_or(Dialect::V1)
}

/// How the replica of a client of version 2 differs from what is stored.
fn v2_differs(stored: &Transcript, person: &Person, replica: &Replica) -> Option<String> {
    let is_shown = |entry: &&Entry| {
        let is_event = matches!(entry.id(), EntryId::Event(_));
        !entry.body().removed && (person.plan.wants_events || !is_event)
    };
    let entries = stored.entries().iter().filter(is_shown);
    let expected: Vec<_> = entries.filter(|entry| entry.created() > replica.floor).map(shown).collect();
    let is_known = |entry: &&Entry| {
        let found = stored.get(entry.id()).filter(|_| !matches!(entry.id(), EntryId::Note(_)));
        found.is_none_or(|found| found.created() > replica.floor)
    };
    let own = replica.transcript().entries().iter().filter(is_shown).filter(is_known);
    let own: Vec<_> = own.filter(|entry| !is_notice(entry)).map(shown).collect();
    if replica.floor == u64::MAX {
        return None;
    }
    if own != expected {
        let place = own.iter().zip(&expected).position(|(own, expected)| own != expected);
        let place = place.unwrap_or_else(|| own.len().min(expected.len()));
        return Some(format!(
            "entry {place} of {} (after change {}) is\n{:?}\nand not\n{:?}",
            expected.len(),
            replica.floor,
            own.get(place),
            expected.get(place)
        ));
    }
    if replica.floor > 0 {
        return None;
    }
    let (own, expected) = (slots(replica.transcript()), slots(stored));
    (own != expected).then(|| format!("it knows\n{own:?}\nand not\n{expected:?}"))
}

/// An entry with its id, in a form that does not depend on how its content came.
fn shown(entry: &Entry) -> (String, Value) {
    let id = name_of(entry);
    let mut value: Value = serde_json::from_str(view::entry(entry).as_str()).unwrap_or_default();
    let content = entry.body().content.joined().to_json();
    if let Some(member) = value.get_mut("content") {
        *member = serde_json::from_str(content.as_str()).unwrap_or_default();
    }
    let is_empty = |value: &Value| value.as_array().is_some_and(Vec::is_empty);
    if value.get("content").is_some_and(is_empty) {
        value.as_object_mut().map(|object| object.remove("content"));
    }
    if value.get("_meta").is_some_and(|meta| meta.as_object().is_some_and(serde_json::Map::is_empty)) {
        value.as_object_mut().map(|object| object.remove("_meta"));
    }
    (id, value)
}

/// The id of an entry. Those of notes are numbers of changes, which are different for each who counts them.
pub(super) fn name_of(entry: &Entry) -> String {
    if let EntryId::Note(_) = entry.id() { "note".to_owned() } else { format!("{:?}", entry.id()) }
}

fn is_notice(entry: &Entry) -> bool {
    let kind = entry.body().fields.get("sessionUpdate");
    matches!(entry.id(), EntryId::Note(_)) && kind.is_some_and(|kind| kind.as_str() == r#""notice""#)
}

/// Title, metadata, usage, commands and state.
fn slots(transcript: &Transcript) -> Vec<(&'static str, Value)> {
    let all: Value = serde_json::from_str(view::transcript(transcript).as_str()).unwrap_or_default();
    let mut info = all["info"].clone();
    if let Some(info) = info.as_object_mut() {
        info.retain(|name, value| name != "updatedAt" && !value.is_null());
        if info.get("_meta").is_some_and(|meta| meta.as_object().is_some_and(serde_json::Map::is_empty)) {
            info.remove("_meta");
        }
    }
    // Version 2 says of each command that it is one.
    let mut commands = all["commands"].clone();
    for command in commands.as_array_mut().into_iter().flatten() {
        command.as_object_mut().map(|command| command.remove("type"));
    }
    let usage = transcript.slot(Slot::Usage).map_or(Value::Null, |_| all["usage"].clone());
    vec![("info", info), ("usage", usage), ("commands", commands), ("state", all["state"].clone())]
}

/// How the replica of a client of version 1 differs from a replay of what is stored.
fn v1_differs(
    key: &SessionId,
    from: Dialect,
    stored: &Transcript,
    person: &Person,
    replica: &Replica,
    own: &[u64],
) -> Option<String> {
    if replica.floor == u64::MAX {
        return None;
    }
    let fresh = replayed(key, from, stored, person);
    let created = |id: &EntryId| stored.get(id).map_or(u64::MAX, Entry::created);
    let is_own = |tokens: &[u64]| tokens.iter().all(|token| own.contains(token));
    let mut expected = messages(&fresh);
    expected.retain(|(role, id, _)| created(&EntryId::Message(*role, id.clone())) > replica.floor);
    let mut received = messages(replica.transcript());
    // A client that attaches again without a replay keeps its subscription, and knows the aliases that it was sent before.
    let aliases = person.aliases.get(key);
    let original = |id: &MessageId| {
        aliases.and_then(|aliases| aliases.get(&*id.as_json().to_text())).unwrap_or(id).clone()
    };
    received.retain(|(role, id, _)| created(&EntryId::Message(*role, original(id))) > replica.floor);
    // A message of which nothing could be said at first appears later than it was made.
    let place = |(role, id, _): &(Role, MessageId, Vec<u64>)| created(&EntryId::Message(*role, id.clone()));
    received.sort_by_key(place);
    expected.sort_by_key(place);
    // It knows what it said itself.
    expected.retain(|(role, id, tokens)| {
        *role != Role::User
            || !is_own(tokens)
            || received.iter().any(|(of, other, _)| of == role && other == id)
    });
    if received != expected {
        return Some(format!("it received the messages\n{received:?}\nand not\n{expected:?}"));
    }
    let calls = |transcript: &Transcript| -> Vec<_> {
        let calls = transcript.entries().iter().filter(|entry| matches!(entry.id(), EntryId::ToolCall(_)));
        let calls = calls.filter(|entry| created(entry.id()) > replica.floor);
        calls
            .map(|entry| {
                (
                    format!("{:?}", entry.id()),
                    entry.body().fields.get("status").cloned(),
                    entry.body().fields.get("title").cloned(),
                )
            })
            .collect()
    };
    let (received, expected) = (calls(replica.transcript()), calls(&fresh));
    (received != expected).then(|| format!("it received the tool calls\n{received:?}\nand not\n{expected:?}"))
}

/// A session as a client of version 1 that loads it receives it.
fn replayed(key: &SessionId, from: Dialect, stored: &Transcript, person: &Person) -> Transcript {
    let mut encoder = UpdateEncoder::new(Dialect::V1, &person.plan.initialize());
    let mut fold = Fold::of_session(Dialect::V1, key.clone());
    let mut reading = ReplayCursor::new(0, stored.seq());
    let mut losses = Losses::default();
    while let Some(update) = reading.next(stored, usize::MAX >> 1) {
        let context = EncodeContext { from, transcript: stored, meta_before: None };
        for line in encoder.encode(&update, context, &mut || MessageId::from("unused"), &mut losses) {
            let _ = fold.line(&line);
        }
    }
    fold.transcript().clone()
}

/// The messages as a person sees them, with the marks of their texts: a message that was replaced stands under its own id.
fn messages(transcript: &Transcript) -> Vec<(Role, MessageId, Vec<u64>)> {
    let mut messages: Vec<(Role, MessageId, Vec<u64>)> = Vec::new();
    for entry in transcript.entries().iter().filter(|entry| !entry.body().removed) {
        let EntryId::Message(role, id) = entry.id() else { continue };
        let content = &entry.body().content;
        let first = content.iter().next().and_then(|item| item.extra.cloned());
        let extra: Value =
            first.and_then(|extra| serde_json::from_str(extra.as_str()).ok()).unwrap_or_default();
        let tokens = tokens_in(content.to_json().as_str()).collect();
        match extra["_meta"]["parlor/replaces"].as_str() {
            Some(replaced) => {
                let replaced = MessageId::from(replaced);
                match messages.iter_mut().find(|(of, other, _)| of == role && *other == replaced) {
                    Some(message) => message.2 = tokens,
                    None => messages.push((*role, replaced, tokens)),
                }
            }
            None => messages.push((*role, id.clone(), tokens)),
        }
    }
    messages.retain(|(_, _, tokens)| !tokens.is_empty());
    messages
}
