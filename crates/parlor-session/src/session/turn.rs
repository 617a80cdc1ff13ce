//! The turns of a session: starts them with queued prompts, and ends them.

use super::echo::Echoes;
use super::peer_requests::Reply;
use super::steering::steer_mark;
use super::{
    Effect, Inserted, PromptId, PromptMode, PromptOutcome, PromptTiming, Session, Step, TurnEnd, blocks,
};
use crate::{Activity, EntryId, EventKind, MessageId, Patch, Role, State, Target, Update, Upsert};

impl Session {
    /// Ends the turn with a state, reported by the agent or set without it. Unless the turn completed, an event is
    /// recorded before.
    pub(super) fn end_turn(
        &mut self,
        state: &State,
        is_reported_by_agent: bool,
        new_id: &mut dyn FnMut() -> MessageId,
        out: &mut Step,
    ) {
        self.close_tool_calls(out);
        // A prompt that was withdrawn after its turn started is cancelled with the turn.
        let withdrawn = self.prompts.running_withdrawn_by().map(|by| self.decider(by));
        let by = self.cancelling.take().or(withdrawn);
        if self.is_running() {
            let running = self.prompts.turn().or_else(|| self.prompts.open.running());
            let prompt = running.and_then(|open| open.message().cloned());
            let event = match (self.hooks.turn_end)(state) {
                TurnEnd::Completed => None,
                TurnEnd::Failed(error) => Some(EventKind::TurnFailed { prompt, error }),
                TurnEnd::Refused => Some(EventKind::TurnRefused { prompt }),
                TurnEnd::Cancelled => {
                    Some(EventKind::TurnCancelled { prompt, by, unanswered: !is_reported_by_agent })
                }
            };
            event.into_iter().for_each(|event| self.record(event, new_id, out));
        }
        self.push(Update::State(state.clone()), out);
        self.echoes.on_turn_end();
    }

    /// Sets the state for an agent that reports none.
    pub(super) fn set_activity(&mut self, activity: Activity, out: &mut Step) {
        if *self.activity() != activity {
            let state = State::new(activity);
            self.push(Update::State(state), out);
        }
    }

    /// After a peer request ended: an agent that reports no states is running again.
    pub(super) fn resume_after_request(&mut self, out: &mut Step) {
        if self.peer_requests.is_empty() && self.agent == Some(PromptMode::Serial) {
            let runs = self.prompts.open.running().is_some();
            if *self.activity() == Activity::RequiresAction {
                self.set_activity(if runs { Activity::Running } else { Activity::Idle }, out);
            }
        }
    }

    /// At the end of a turn or of the agent: releases updates that were held back as possible repetitions.
    pub(super) fn release_held_back(&mut self, new_id: &mut dyn FnMut() -> MessageId, out: &mut Step) {
        let held_back = self.envelopes.end();
        self.apply_without_envelopes(held_back, new_id, out);
        self.decide_candidate(new_id, out);
        self.close_echo();
        let left = self.echoes.take_unfinished();
        self.apply_all(left, new_id, out);
    }

    /// Inserts the prompts that the agent accepted and for which it never gave message ids, at the end of the turn.
    pub(super) fn insert_accepted(&mut self, new_id: &mut dyn FnMut() -> MessageId, out: &mut Step) {
        for prompt in self.prompts.open.accepted() {
            self.insert(prompt, None, new_id, out);
        }
    }

    /// Handles a state that the agent reports.
    pub(super) fn on_agent_state(
        &mut self,
        state: &State,
        new_id: &mut dyn FnMut() -> MessageId,
        out: &mut Step,
    ) {
        let is_idle = state.activity == Activity::Idle;
        if is_idle {
            self.release_held_back(new_id, out);
            self.insert_accepted(new_id, out);
        } else if *self.activity() == Activity::Idle {
            self.turn_began = self.transcript.seq();
        }
        if is_idle {
            self.end_turn(state, true, new_id, out);
        } else {
            self.push(Update::State(state.clone()), out);
        }
        self.prompts.on_state(state, out);
        if is_idle {
            self.advance(new_id, out);
        }
    }

    /// Inserts a prompt in the transcript, under the agent's id if it has one; returns its message if there is room.
    pub(super) fn insert(
        &mut self,
        prompt: PromptId,
        named: Option<&MessageId>,
        new_id: &mut dyn FnMut() -> MessageId,
        out: &mut Step,
    ) -> Option<MessageId> {
        let found = self.prompts.open.get(prompt).filter(|open| !open.is_inserted())?;
        let (by, sent, pattern) = (found.prompt.by, found.prompt.content.clone(), found.pattern.clone());
        let timing = found.prompt.timing;
        let content = blocks(&sent);
        let mut entry = EntryId::Message(Role::User, named.cloned().unwrap_or_else(&mut *new_id));
        if let (Some(named), EntryId::Message(_, id)) = (named, &mut entry) {
            if self.id_map.resolve(Role::User, named, &self.transcript).is_some() {
                // A prompt is always a message of its own, even if the agent reuses an id.
                *id = new_id();
                self.id_map.add_alias(Role::User, named.clone(), id);
                out.side_state_dirty = true;
            } else {
                let Self { id_map, transcript, turn_began, .. } = self;
                out.side_state_dirty |=
                    id_map.map_entry(&mut entry, transcript, false, *turn_began, |_| false, new_id);
            }
        }
        let EntryId::Message(_, message) = &entry else { return None };
        let message = message.clone();
        let meta = steer_mark(timing);
        let upsert = Upsert { content: Patch::Value(content), meta, ..Upsert::default() };
        let change_index = out.changes.len();
        match self.transcript.push_at(Update::Upsert { target: Target::Entry(entry), upsert }, self.now) {
            Ok(change) => out.changes.push(change),
            Err(error) => {
                out.rejected.push(error);
                self.prompts.fail(prompt, &PromptOutcome::NoRoom(error), &self.clients, out);
                return None;
            }
        }
        if timing != PromptTiming::InTurn {
            self.close_echo();
        }
        self.echoes.expect(&message, named.is_some(), pattern);
        out.inserted.push(Inserted { prompt, by, message: message.clone(), content: sent, change_index });
        self.on_prompt_inserted(prompt, message.clone(), out);
        Some(message)
    }

    /// Sends queued prompts, or requests an agent for them.
    pub(super) fn advance(&mut self, new_id: &mut dyn FnMut() -> MessageId, out: &mut Step) {
        if self.has_early_updates {
            return;
        }
        let Some(mode) = self.agent else {
            if self.prompts.first_queued().is_some() && self.drivers().next().is_some() {
                out.effects.push(Effect::StartAgent);
            }
            return;
        };
        self.prompts.send_in_turn(self.has_turn_to_steer(), self.transcript.seq(), out);
        match mode {
            PromptMode::Queued => {
                let is_idle = !self.activity().is_busy();
                self.prompts.send_all(self.transcript.seq(), is_idle, out);
            }
            PromptMode::Serial => {
                if self.prompts.open.running().is_some() {
                    return;
                }
                if self.prompts.first_queued().is_some() {
                    let held_back = self.envelopes.begin_turn();
                    self.apply_without_envelopes(held_back, new_id, out);
                }
                let began = self.transcript.seq();
                while let Some(next) = self.prompts.first_queued() {
                    if self.insert(next, None, new_id, out).is_some() {
                        self.turn_began = began;
                        self.set_activity(Activity::Running, out);
                        let sent =
                            self.prompts.open.get(next).map(|open| Effect::SendPrompt(open.prompt.clone()));
                        out.effects.extend(sent);
                        break;
                    }
                }
                if self.prompts.open.running().is_some() && !self.peer_requests.is_empty() {
                    self.set_activity(Activity::RequiresAction, out);
                }
            }
        }
    }

    pub(super) fn on_turn_ended(
        &mut self,
        prompt: PromptId,
        state: &State,
        new_id: &mut dyn FnMut() -> MessageId,
        out: &mut Step,
    ) {
        if self.prompts.turn().is_none_or(|turn| turn.id != prompt) {
            return;
        }
        self.release_held_back(new_id, out);
        self.insert_accepted(new_id, out);
        self.cancel_peer_requests(out);
        self.end_turn(state, true, new_id, out);
        self.prompts.on_state(state, out);
        out.side_state_dirty = true;
        self.advance(new_id, out);
    }

    pub(super) fn on_agent_lost(
        &mut self,
        state: &State,
        new_id: &mut dyn FnMut() -> MessageId,
        out: &mut Step,
    ) {
        self.release_held_back(new_id, out);
        let was_ready = self.agent.take().is_some() && !std::mem::take(&mut self.has_early_updates);
        self.echoes = Echoes::default();
        self.peer_requests.end_all(&Reply::AgentLost, out);
        let changes = out.changes.len();
        if self.activity().is_busy() || self.prompts.open.running().is_some() {
            self.end_tool_calls(out);
            self.end_turn(state, false, new_id, out);
        }
        self.cancelling = None;
        let is_reported = out.changes.len() > changes;
        self.prompts.on_state(state, out);
        self.prompts.on_agent_lost(out);
        if !was_ready {
            self.prompts.on_agent_start_failed();
        }
        out.side_state_dirty = true;
        // The prompt may be what crashes the agents. Prompts queued after it get another agent.
        if let Some(prompt) = self.prompts.take_exhausted() {
            if !is_reported {
                if let TurnEnd::Failed(error) = (self.hooks.turn_end)(state) {
                    self.record(EventKind::TurnFailed { prompt: None, error }, new_id, out);
                }
                self.push(Update::State(state.clone()), out);
            }
            self.prompts.fail(prompt, &PromptOutcome::Failed(state.clone()), &self.clients, out);
        }
        self.advance(new_id, out);
    }
}
