//! Subagents of simulated agents, and their sessions.

use std::collections::BTreeMap;

use parlor_dialect::Dialect;
use parlor_dialect::settings::Settings;
use parlor_engine::{
    AgentEpoch, ClientCall, Event, Follow, OwnerEvent, SessionMachine, SubagentCommand, SubagentOutput,
};
use parlor_json::Object;
use parlor_session::SessionId;
use parlor_session::session::ClientId;

use super::Invariant;
use super::agent::{AgentSession, AgentSessionKey, Receiver};
use super::invariants::tokens_of;
use super::jobs::Restored;
use super::shell::{Message, gone};
use super::tokens::tokens_in;
use super::world::World;

/// How many subagents an agent has in one session.
const MAX_SUBAGENTS: usize = 2;

/// How following the session of a subagent changes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum FollowChange {
    /// The client is sent all of the session, or what happens from now on.
    Begins {
        from_start: bool,
    },
    /// The client still has to be sent the end of what it followed before: the session knows where it begins then.
    BeginsLater,
    Ends,
}

/// The clients that begin or stop to follow the session of a subagent with these events.
pub(super) fn follow_changes(machine: &SessionMachine, events: &[Event]) -> BTreeMap<ClientId, FollowChange> {
    let mut changes = BTreeMap::new();
    for event in events {
        let Event::Client { client, call, .. } = event else { continue };
        if let ClientCall::FollowOwner(follow) = call {
            let change = if machine.subscribers().any(|other| other == client.id) {
                FollowChange::BeginsLater
            } else {
                FollowChange::Begins { from_start: *follow == Follow::Updates { from_start: true } }
            };
            changes.insert(client.id, change);
        } else if let ClientCall::LeaveOwner = call {
            changes.insert(client.id, FollowChange::Ends);
        }
    }
    changes
}

impl World {
    /// The session that owns an agent session, if it is that of a subagent.
    fn owner_of(&self, place: &AgentSessionKey) -> Option<AgentSessionKey> {
        let session = self.session_of(place)?.owner.clone()?;
        Some(AgentSessionKey { process: place.process, session })
    }

    pub(super) fn is_subagent(&self, place: &AgentSessionKey) -> bool {
        self.owner_of(place).is_some()
    }

    /// An agent announces a subagent, or describes one.
    pub(super) fn announce(&mut self, place: &AgentSessionKey) {
        let sessions = &self.processes[place.process].sessions;
        let own = sessions.iter().filter(|(_, session)| session.owner.as_ref() == Some(&place.session));
        let own: Vec<_> = own.map(|(name, _)| name.clone()).collect();
        let is_bound = self.session_of(place).is_some_and(|one| matches!(one.receiver, Receiver::Session(_)));
        if !is_bound {
            return;
        }
        let name =
            match self.random.pick(&own).filter(|_| own.len() >= MAX_SUBAGENTS || self.random.percent(50)) {
                Some(name) => name,
                None => {
                    self.count("subagents announced");
                    let mut names = (0..).map(|number| format!("{}-s{number}", place.session));
                    let sessions = &self.processes[place.process].sessions;
                    let name = names.find(|name| !sessions.contains_key(name)).unwrap_or_default();
                    let receiver = Receiver::Intake { epoch: self.new_epoch(), early: Vec::new() };
                    let owner = Some(place.session.clone());
                    let session = AgentSession { receiver, owner, ..AgentSession::default() };
                    self.processes[place.process].sessions.insert(name.clone(), session);
                    name
                }
            };
        let cancel = if self.random.percent(50) { "{}" } else { "null" };
        let title = self.tokens.next();
        self.say(
            place,
            &[format!(
                r#"{{"sessionUpdate":"subagent_update","sessionId":"{name}","title":"{title}","capabilities":{{"cancel":{cancel}}}}}"#
            )],
        );
    }

    /// A subagent works, without prompts.
    pub(super) fn subagent_acts(&mut self, place: &AgentSessionKey) {
        let Some(session) = self.session_mut(place) else { return };
        let is_running = session.is_running;
        if !is_running {
            session.is_running = true;
            self.report_subagent(place, "running", None);
        } else if self.random.percent(20) {
            self.end_turn(place);
        }
        self.output(place);
    }

    /// Reports the state of a subagent: version 1 has only the owner's session for it.
    pub(super) fn report_subagent(&mut self, place: &AgentSessionKey, state: &str, reason: Option<&str>) {
        let Some(owner) = self.owner_of(place) else { return };
        if self.processes[place.process].dialect() != Dialect::V1 {
            return self.say_state(place, state, reason);
        }
        let reason = reason.map(|reason| format!(r#","stopReason":"{reason}""#)).unwrap_or_default();
        let name = &place.session;
        let update = format!(
            r#"{{"sessionUpdate":"subagent_update","sessionId":"{name}","state":{{"state":"{state}"{reason}}}}}"#
        );
        self.say(&owner, &[update]);
    }

    /// Notes what is said in the session of a subagent.
    pub(super) fn note_subagent_text(&mut self, place: &AgentSessionKey, lines: &str) {
        if self.is_subagent(place) {
            self.subagent_texts.extend(tokens_in(lines).map(|token| (token, place.session.clone())));
        }
    }

    /// Carries out what a session does with those of its subagents.
    pub(super) fn run_subagents(&mut self, key: &SessionId, outputs: Vec<SubagentOutput>) {
        for SubagentOutput { session, command } in outputs {
            self.note(|| format!("  {key} to subagent {session}: {command:?}"));
            let message = match command {
                SubagentCommand::Bind { epoch, agent_session, is_bound_again } => {
                    self.bind_subagent(key, epoch, &session, &agent_session, is_bound_again);
                    continue;
                }
                SubagentCommand::Describe(info) => Message::Event(Event::Owner(OwnerEvent::Described(info))),
                SubagentCommand::Follow { client, follow } => {
                    Message::Call(client, ClientCall::FollowOwner(follow))
                }
                SubagentCommand::Leave(client) => Message::Call(client, ClientCall::LeaveOwner),
                SubagentCommand::Unbind(error) => Message::Event(Event::Owner(OwnerEvent::Unbound(error))),
            };
            self.send_live(&session, message);
        }
    }

    fn send_live(&mut self, key: &SessionId, message: Message) {
        if let Some(shell) = self.shells.get_mut(key) {
            shell.inbox.push_back(message);
        }
    }

    fn bind_subagent(
        &mut self,
        owner: &SessionId,
        epoch: AgentEpoch,
        key: &SessionId,
        agent_session: &SessionId,
        is_bound_again: bool,
    ) {
        if self.is_stopping && !self.shells.contains_key(key) {
            return;
        }
        let tie = self.shells.get(owner).and_then(|shell| shell.ties.get(&epoch)).cloned();
        let Some(tie) = tie.filter(|tie| self.processes[tie.process].is_alive) else { return };
        let name = agent_session.as_json().to_text().into_owned();
        let epoch = self.new_epoch();
        let process = &mut self.processes[tie.process];
        let session = process.sessions.entry(name.clone()).or_default();
        let early = match std::mem::take(&mut session.receiver) {
            Receiver::Intake { early, .. } if !is_bound_again => early,
            Receiver::Intake { .. } | Receiver::Session(_) | Receiver::Nobody => Vec::new(),
        };
        session.owner = Some(tie.session);
        session.home = None;
        session.requests.values_mut().for_each(|request| {
            request.is_excused |= is_bound_again;
            request.epoch = epoch;
        });
        session.receiver = Receiver::Intake { epoch, early };
        let place = AgentSessionKey { process: tie.process, session: name };
        let (result, settings) = (Object::default(), Settings::default());
        let restored =
            Restored { place, epoch, without_history: false, lost: None, result, settings, refused: None };
        self.count(if is_bound_again { "subagents bound again" } else { "subagents bound" });
        if self.shells.contains_key(key) {
            return self.send_live(key, Message::AgentReady(Ok(restored)));
        }
        match self.disk.open(key.as_json().as_literal()) {
            // An owner is about to be deleted, and this session with it.
            Some(stored) if self.disk.owners(&stored.row).iter().any(|owner| self.is_deleting(owner)) => {}
            Some(stored) => self.start(stored, vec![Message::Started(restored, None)]),
            None => self.fail(Invariant::StoredFirst, format!("subagent {key} is bound and not stored")),
        }
    }

    pub(super) fn is_deleting(&self, key: &SessionId) -> bool {
        self.shells.get(key).is_some_and(|shell| shell.is_deleting)
    }

    /// Ends the live sessions of subagents and of their subagents, before the session that owns them is deleted.
    pub(super) fn end_subagents(&mut self, key: &SessionId) {
        let Some(shell) = self.shells.get_mut(key) else { return };
        shell.is_deleting = true;
        let shells = self.shells.iter().map(|(id, shell)| (id, self.disk.owners(shell.machine.row())));
        let mut below: Vec<_> = shells.filter(|(_, owners)| owners.contains(key)).collect();
        below.sort_by_key(|(_, owners)| std::cmp::Reverse(owners.len()));
        for subagent in below.into_iter().map(|(id, _)| id.clone()).collect::<Vec<_>>() {
            self.send_live(&subagent, Message::Event(Event::Owner(OwnerEvent::Deleted)));
            // The owner waits for it.
            while let Some(shell) = self.shells.get(&subagent) {
                if shell.in_flight.is_some() {
                    self.commit();
                    self.sync();
                } else {
                    self.run_session(&subagent, usize::MAX);
                }
            }
        }
    }

    /// Unbinds the sessions of subagents when a session ends.
    pub(super) fn unbind_subagents(&mut self, key: &SessionId) {
        let Some(shell) = self.shells.get(key) else { return };
        for subagent in shell.machine.bound_subagents().cloned().collect::<Vec<_>>() {
            self.send_live(&subagent, Message::Event(Event::Owner(OwnerEvent::Unbound(gone()))));
        }
    }

    /// What is said in the session of a subagent is in no other session.
    pub(super) fn check_subagents(&mut self) {
        for id in self.disk.sessions(false) {
            let Some(stored) = self.disk.open(&id) else { continue };
            let own = stored.row.owner.as_ref().and(stored.row.agent_session.as_deref());
            let own = own.map(|own| own.trim_matches('"').to_owned());
            for token in tokens_of(&stored.transcript) {
                if let Some(said_in) = self.subagent_texts.get(&token)
                    && own.as_ref() != Some(said_in)
                {
                    let message = format!("«{token}» of subagent {said_in} is in {id}");
                    return self.fail(Invariant::StoredState, message);
                }
                if own.is_some() && !self.subagent_texts.contains_key(&token) {
                    return self.fail(Invariant::StoredState, format!("«{token}» is in subagent {id}"));
                }
            }
        }
    }
}
