//! Cancels turns and prompts, and ends what was cancelled.

use super::{Decider, Effect, EntryId, MessageId, PromptId, PromptMode, Reply, Session, Step};
use crate::{Entry, Target, Update};

/// The turn and prompts that were cancelled and that the agent has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cancelled {
    /// The turn, by a number that is unique among the session's cancelled turns.
    turn: Option<u64>,
    /// The prompts that the agent was sent.
    prompts: Vec<PromptId>,
}

impl Cancelled {
    /// Whether there is neither a turn nor a prompt.
    pub fn is_empty(&self) -> bool {
        self.turn.is_none() && self.prompts.is_empty()
    }

    /// The intersection with another one.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let prompts = self.prompts.iter().copied().filter(|prompt| other.prompts.contains(prompt));
        Self { turn: self.turn.filter(|_| self.turn == other.turn), prompts: prompts.collect() }
    }

    /// Whether there are only prompts.
    pub fn has_no_turn(&self) -> bool {
        self.turn.is_none()
    }
}

/// Which prompts are withdrawn when a turn is cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// All that are not in the transcript.
    Session,
    /// Those of the client that cancels.
    Turn,
    /// None.
    Prompt,
}

impl Session {
    /// Whether the agent has not ended a turn or prompt that was cancelled.
    pub fn is_cancelling(&self) -> bool {
        self.cancelling.is_some() || !self.prompts.withdrawn().is_empty()
    }

    /// The turn and prompts that were cancelled and that the agent has not ended.
    pub fn cancelled(&self) -> Cancelled {
        Cancelled {
            turn: self.cancelling.is_some().then_some(self.cancels),
            prompts: self.prompts.withdrawn(),
        }
    }

    /// Whether a turn is running that was not cancelled and whose prompt was not withdrawn.
    pub fn is_wanted_turn_running(&self) -> bool {
        self.is_running() && self.cancelling.is_none() && !self.prompts.is_withdrawn_running()
    }

    pub(super) fn cancel(&mut self, by: Decider, scope: Scope, out: &mut Step) {
        // An agent may have started a prompt without reporting it, or may not support cancelling a queued prompt.
        let is_busy = self.activity().is_busy() || self.prompts.any_with_agent();
        self.prompts.withdraw_all(by.client, scope, out);
        if self.is_running() && self.cancelling.is_none() {
            self.cancelling = Some(by);
            self.cancels += 1;
        }
        // Sent first, so that the agent does not continue its turn when the cancelled requests are answered.
        if is_busy {
            out.effects.push(Effect::CancelTurn);
        }
        self.cancel_peer_requests(out);
        self.resume_after_request(out);
        if !self.is_running() {
            // No turn was cancelled, so that no end of a turn resets this.
            self.cancelling = None;
            self.close_tool_calls(out);
        }
    }

    pub(super) fn cancel_peer_requests(&mut self, out: &mut Step) {
        self.unpermitted_calls.extend(self.peer_requests.tool_calls().map(EntryId::ToolCall));
        self.peer_requests.end_all(&Reply::Cancelled, out);
    }

    /// Marks tool calls as cancelled that will not continue: those whose permission request was cancelled, and with a
    /// serial agent all of a cancelled turn.
    pub(super) fn close_tool_calls(&mut self, out: &mut Step) {
        let mut cancelled = std::mem::take(&mut self.unpermitted_calls);
        if self.cancelling.is_some() && self.agent == Some(PromptMode::Serial) {
            let turn = self.transcript.entries().iter().rev();
            let turn = turn.take_while(|entry| entry.created() > self.turn_began);
            let calls = turn.filter(|entry| matches!(entry.id(), EntryId::ToolCall(_)));
            cancelled.extend(calls.map(|entry| entry.id().clone()));
        }
        for entry in cancelled {
            let body = self.transcript.get(&entry).map(Entry::body).filter(|body| !body.removed);
            if let Some(upsert) = body.and_then(|body| (self.hooks.mark_cancelled)(body)) {
                self.push(Update::Upsert { target: Target::Entry(entry), upsert }, out);
            }
        }
    }

    /// Sends the prompts again that the agent dropped with a cancelled turn. It drops them one by one: they are sent in order,
    /// after it has accepted or dropped the last of them.
    pub(super) fn send_dropped_again(&mut self, new_id: &mut dyn FnMut() -> MessageId, out: &mut Step) {
        if self.agent.is_some() && !self.prompts.any_spared() {
            self.advance(new_id, out);
        }
    }

    /// Marks unfinished tool calls of a lost agent as failed, or as cancelled if their turn was.
    pub(super) fn end_tool_calls(&mut self, out: &mut Step) {
        let end = if self.cancelling.is_some() { self.hooks.mark_cancelled } else { self.hooks.mark_failed };
        let entries = self.transcript.entries().iter();
        let open: Vec<_> = entries
            .filter(|entry| matches!(entry.id(), EntryId::ToolCall(_)) && !entry.body().removed)
            .filter_map(|entry| Some((entry.id().clone(), end(entry.body())?)))
            .collect();
        for (entry, upsert) in open {
            self.push(Update::Upsert { target: Target::Entry(entry), upsert }, out);
        }
    }
}
