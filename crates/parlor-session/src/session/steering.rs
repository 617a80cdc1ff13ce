//! Prompts that the agent takes into its running turn.

use parlor_json::Object;

use super::prompts::{Open, Prompts};
use super::{Effect, PromptId, PromptMode, PromptOutcome, PromptState, Session, Step};
use crate::turns::Candidate;
use crate::{Activity, Entry, MessageId, MetaPatch, State};

/// The metadata key of a user message that was inserted in a running turn.
pub const STEER_MARK: &str = "parlor/steer";

/// When the agent is to get a prompt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PromptTiming {
    /// After the prompts that wait.
    #[default]
    InOrder,
    /// Before the prompts that wait to be sent, in the order of arrival with others of these.
    Next,
    /// In the running turn. If that ends before the agent has the prompt, as [`Next`](Self::Next).
    InTurn,
}

impl Session {
    /// Whether a turn is running that can take a prompt: it was not cancelled, and it can end.
    pub fn has_turn_to_steer(&self) -> bool {
        self.has_turn() && self.is_wanted_turn_running()
    }

    /// Whether a turn is running that can end. The turn of a serial agent ends with the response to its prompt: without one, a
    /// request of the agent makes the session busy but is not a turn.
    fn has_turn(&self) -> bool {
        match self.agent {
            Some(PromptMode::Serial) => self.prompts.turn().is_some(),
            Some(PromptMode::Queued) | None => self.activity().is_busy(),
        }
    }

    /// Whether the agent was asked to take a prompt into its turn, and it is not in the transcript.
    pub fn is_being_steered(&self, prompt: PromptId) -> bool {
        let found = self.prompts.open.get(prompt);
        found.is_some_and(|open| open.prompt.timing == PromptTiming::InTurn && open.is_with_agent())
    }

    /// Inserts a prompt that the agent has taken into its turn.
    pub(super) fn on_steered(
        &mut self,
        prompt: PromptId,
        new_id: &mut dyn FnMut() -> MessageId,
        out: &mut Step,
    ) {
        let is_over = !self.has_turn();
        let is_serial = self.agent == Some(PromptMode::Serial);
        self.prompts.on_accepted(prompt, Object::default());
        if self.candidate.as_ref().is_some_and(|candidate| candidate.is_ended_by_response(prompt)) {
            self.decide_candidate(new_id, out);
        }
        let is_awaited = |candidate: &Candidate| is_serial || candidate.repeats(prompt);
        if self.candidate.as_ref().is_some_and(is_awaited) && !is_over {
            // The rest of the message comes before the end of the turn, and the prompt is inserted with it or after it.
            return;
        }
        if is_serial {
            self.insert_accepted(new_id, out);
        } else {
            self.insert(prompt, None, new_id, out);
        }
        self.review_candidate(new_id, out);
        if is_over {
            self.end_late(prompt, out);
            self.advance(new_id, out);
        }
    }

    /// Ends a prompt that a serial agent took after the turn had ended: no other end will come.
    pub(super) fn end_if_late(&mut self, prompt: PromptId, out: &mut Step) {
        let is_steered =
            self.prompts.open.get(prompt).is_some_and(|open| open.prompt.timing == PromptTiming::InTurn);
        if is_steered && self.agent == Some(PromptMode::Serial) && !self.has_turn() {
            self.end_late(prompt, out);
        }
    }

    /// Ends a prompt with the turn that ended before. If a request came in between, how that ended is no longer known.
    fn end_late(&mut self, prompt: PromptId, out: &mut Step) {
        let last = self.transcript.state().filter(|state| state.activity == Activity::Idle).cloned();
        self.prompts.end(prompt, &last.unwrap_or_else(|| State::new(Activity::Idle)), out);
    }

    /// Handles a prompt that the agent did not take into its turn, which had ended: it is queued, unless it was withdrawn.
    pub(super) fn on_not_steered(
        &mut self,
        prompt: PromptId,
        new_id: &mut dyn FnMut() -> MessageId,
        out: &mut Step,
    ) {
        let Some(open) = self.prompts.open.get_mut(prompt) else { return };
        if open.is_inserted() {
            // The agent has repeated it as a message, so it has the prompt, whatever it responds.
            return self.on_steered(prompt, new_id, out);
        }
        match open.withdrawn {
            Some(by) => {
                let outcome = PromptOutcome::Withdrawn { by: Some(by) };
                self.prompts.fail(prompt, &outcome, &self.clients, out);
            }
            None => open.queue_again(),
        }
        self.review_candidate(new_id, out);
        self.advance(new_id, out);
    }
}

impl Prompts {
    /// Sends the prompts for the running turn to the agent. Without a turn, they are the next prompts.
    pub(super) fn send_in_turn(&mut self, is_running: bool, seq: u64, out: &mut Step) {
        let is_due = |open: &&mut Open| {
            open.state == PromptState::Queued && open.prompt.timing == PromptTiming::InTurn
        };
        for open in self.open.all.iter_mut().filter(is_due) {
            if is_running {
                open.state = PromptState::Sent;
                open.sent_after = seq;
                out.effects.push(Effect::Steer(open.prompt.clone()));
            } else {
                open.prompt.timing = PromptTiming::Next;
            }
        }
    }

    /// The prompt that started the running turn.
    pub(super) fn turn(&self) -> Option<&Open> {
        let mut turn = self.open.all.iter().rev().filter(|open| open.is_inserted());
        turn.find(|open| open.prompt.timing != PromptTiming::InTurn)
    }
}

/// Whether a user message was inserted in a running turn.
pub fn is_steered(message: &Entry) -> bool {
    message.body().meta.as_ref().is_some_and(|meta| meta.get_bool(STEER_MARK) == Some(true))
}

/// The metadata of the message of a prompt with this timing.
pub(super) fn steer_mark(timing: PromptTiming) -> MetaPatch {
    match timing {
        PromptTiming::InTurn => MetaPatch::MergeKeys(Object::new().with(STEER_MARK, true)),
        PromptTiming::InOrder | PromptTiming::Next => MetaPatch::default(),
    }
}
