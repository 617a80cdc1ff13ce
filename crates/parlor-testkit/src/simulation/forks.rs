//! What has to hold for forks.

use parlor_engine::rows::{Batch, Write};
use parlor_engine::stored::StoredSession;
use parlor_engine::{ClientCall, Event, ForkKind, FrameKind, Outgoing, Output, SessionData};
use parlor_session::session::ClientId;
use parlor_session::{Entry, EntryId, MessageId, Role, SessionId, Slot, Transcript};
use parlor_wire::RequestId;

use super::Invariant;
use super::compare::name_of;
use super::world::World;

/// What has to come of a request for a fork.
pub(super) enum ExpectedFork {
    /// The fork has all entries, so many: no turn runs.
    Whole(usize),
    /// The message is found: the client was sent it under this alias.
    Alias { client: ClientId, id: RequestId, alias: String },
}

impl World {
    /// What has to come of a request for a fork, if the session handles nothing else with it.
    pub(super) fn expected_fork(&self, key: &SessionId, events: &[Event]) -> Option<ExpectedFork> {
        let [Event::Client { client, call: ClientCall::Fork(request), .. }] = events else { return None };
        let machine = &self.shells.get(key)?.machine;
        if machine.has_pending() || machine.session().is_busy() || request.kind != ForkKind::Fork {
            return None;
        }
        let Some(alias) = request.params.get_string("messageId") else {
            return Some(ExpectedFork::Whole(machine.transcript().entries().len()));
        };
        let person = self.connections.get(&client.id)?.person;
        let message = self.people[person].aliases.get(key)?.get(&alias)?;
        is_there(machine.transcript(), message).then_some(())?;
        Some(ExpectedFork::Alias { client: client.id, id: request.id.clone(), alias })
    }

    /// A session has handled a request for a fork.
    pub(super) fn check_expected_fork(&mut self, key: &SessionId, expected: &ExpectedFork, output: &Output) {
        match expected {
            ExpectedFork::Whole(count) => {
                let copied = output.batch.writes.iter().find_map(|write| {
                    if let Write::Copy { entries, .. } = write { Some(entries.len()) } else { None }
                });
                if let Some(copied) = copied.filter(|copied| copied != count) {
                    let message = format!("a fork of {key} at its end has {copied} of {count} entries");
                    self.fail(Invariant::Forks, message);
                }
            }
            ExpectedFork::Alias { client, id, alias } => {
                self.count("forks at aliases");
                let is_unknown = output.sends.iter().any(|send| {
                    let Outgoing::Frame(frame) = &send.what else { return false };
                    let is_its = matches!(frame.kind(), FrameKind::Response { id: of, .. } if of == id);
                    send.to == *client && is_its && frame.as_str().contains(r#""reason":"unknown""#)
                });
                if is_unknown {
                    let message = format!(
                        "{key} does not know {alias}, under which client {} was sent a message",
                        client.0
                    );
                    self.fail(Invariant::Forks, message);
                }
            }
        }
    }

    /// A batch is stored that copies entries: a fork is the beginning of its parent, and ends where it was wanted.
    pub(super) fn check_forks(&mut self, batch: &Batch) {
        for write in &batch.writes {
            let Write::Copy { from, to, .. } = write else { continue };
            let (Some(parent), Some(fork)) = (self.disk.open(from), self.disk.open(to)) else { continue };
            if parent.row.agent != fork.row.agent {
                self.count("handoffs");
            }
            let problem = not_a_prefix(&parent.transcript, &fork.transcript);
            let problem = problem.or_else(|| ends_elsewhere(&parent.transcript, &fork));
            if let Some(problem) = problem.or_else(|| keeps_old_agent(&parent, &fork)) {
                self.fail(Invariant::Forks, format!("the fork {to} of {from}: {problem}"));
            }
        }
    }
}

fn is_there(transcript: &Transcript, message: &MessageId) -> bool {
    let roles = [Role::User, Role::Agent, Role::Thought];
    let mut found =
        roles.into_iter().filter_map(|role| transcript.get(&EntryId::Message(role, message.clone())));
    found.any(|entry| !entry.body().removed)
}

/// How a fork differs from the beginning of its parent. Plans that come and go in the batch that makes the fork may differ.
fn not_a_prefix(parent: &Transcript, fork: &Transcript) -> Option<String> {
    let shown = |entry: &Entry| (name_of(entry), entry.body().content.to_json().as_str().to_owned());
    let all: Vec<_> = parent.entries().iter().map(shown).collect();
    let own: Vec<_> = fork.entries().iter().map(shown).collect();
    if all.starts_with(&own) {
        return None;
    }
    let place = all.iter().zip(&own).position(|(theirs, ours)| theirs != ours).unwrap_or(all.len());
    Some(format!("entry {place} is {:?} and not {:?}", own.get(place), all.get(place)))
}

/// What a fork that another agent continues has of the old agent.
fn keeps_old_agent(parent: &StoredSession, fork: &StoredSession) -> Option<String> {
    if parent.row.agent == fork.row.agent {
        return None;
    }
    if let Some(session) = &fork.row.agent_session {
        return Some(format!("it was handed over with the agent session {session}"));
    }
    let slots = [Slot::Commands, Slot::Options, Slot::Mode, Slot::Model, Slot::Usage];
    let kept = slots.into_iter().find(|slot| fork.transcript.slot(*slot).is_some());
    kept.map(|slot| format!("it was handed over with {slot:?}"))
}

/// Whether a fork at a message ends elsewhere: neither with the message, nor before the prompt that it is of.
fn ends_elsewhere(parent: &Transcript, fork: &StoredSession) -> Option<String> {
    let message = MessageId::from(SessionData::of(&fork.row).forked_at?);
    let is_it = |entry: &Entry| matches!(entry.id(), EntryId::Message(_, id) if *id == message);
    let is_prompt = |entry: &Entry| matches!(entry.id(), EntryId::Message(Role::User, _));
    let (all, own) = (parent.entries(), fork.transcript.entries());
    // The agent may have given it another name in the same batch.
    let place = all.iter().rposition(is_it)?;
    let ends_with_it = own.last().is_some_and(is_it);
    let ends_before_prompt = all.get(own.len()..=place).is_some_and(|left| {
        left.first().is_some_and(is_prompt) && left.iter().filter(|entry| is_prompt(entry)).count() == 1
    });
    (!ends_with_it && !ends_before_prompt)
        .then(|| format!("it has {} entries, and the message {message} is entry {place}", own.len()))
}
