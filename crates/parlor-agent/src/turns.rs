//! Runs the turns of a session, one at a time.

use std::sync::Arc;

use crate::wire_text::update;
use parlor_json::{Object, ObjectWriter};
use parlor_session::{Content, MessageId};
use parlor_wire::{RequestId, RpcError, code};
use tracing::Instrument;

use crate::connection::lock;
use crate::host::{Host, PANICKED, cancelled_error};
use crate::session::{Session, new_id, state_update};
use crate::session_state::{RunningTurn, SessionState};
use crate::{Agent, StopReason, Turn, TurnError};

/// How many prompts may be queued in a session.
const MAX_PROMPTS: usize = 64;

/// How a turn ended.
enum TurnEnd {
    Stopped(StopReason),
    Failed(TurnError),
    Cancelled,
}

impl<A: Agent> Host<A> {
    /// Queues a prompt, and starts it if no turn runs.
    pub(crate) async fn on_prompt(self: &Arc<Self>, id: &RequestId, params: &Object) {
        let Some(session) = self.session_of(params) else {
            let error = RpcError::new(code::INVALID_PARAMS, "`sessionId` names no open session");
            return self.respond(id, Err(error)).await;
        };
        let Some(content) = params.get("prompt").and_then(|list| Content::parse(list.raw()).ok()) else {
            let error = RpcError::new(code::INVALID_PARAMS, "`prompt` must be a list of content blocks");
            return self.respond(id, Err(error)).await;
        };
        let is_queued = {
            let mut prompts = lock(&session.prompts);
            let has_room = prompts.queued.len() < MAX_PROMPTS;
            if has_room {
                prompts.queued.push_back((id.clone(), content));
                if !std::mem::replace(&mut prompts.is_running, true) {
                    let span = session.span.clone();
                    tokio::spawn(Arc::clone(self).run_prompts(Arc::clone(&session)).instrument(span));
                }
            }
            has_room
        };
        if !is_queued {
            let message = format!("{MAX_PROMPTS} prompts are queued in this session already");
            self.respond(id, Err(RpcError::new(code::INTERNAL_ERROR, message))).await;
        }
    }

    /// Runs the queued prompts of a session until there are none.
    async fn run_prompts(self: Arc<Self>, session: Arc<SessionState>) {
        loop {
            let (id, content, handle, running) = {
                let mut prompts = lock(&session.prompts);
                let Some((id, content)) = prompts.queued.pop_front() else {
                    prompts.running_turn = None;
                    prompts.is_running = false;
                    return;
                };
                let handle = self.handle(&session, true);
                let running = RunningTurn::new(&handle);
                prompts.running_turn = Some(running.clone());
                (id, content, handle, running)
            };
            let message = new_id();
            let span = tracing::info_span!("turn", message_id = %message);
            self.run_turn(&id, &message, content, &handle, &running).instrument(span).await;
        }
    }

    async fn run_turn(
        self: &Arc<Self>,
        id: &RequestId,
        message: &str,
        prompt: Content,
        handle: &Session,
        running: &RunningTurn,
    ) {
        self.respond(id, Ok(ObjectWriter::new().str("messageId", message).finish())).await;
        let turn = Turn { session: handle.clone(), message: MessageId::from(message), prompt };
        handle.send_raw_update(&state_update("running")).await;
        tracing::debug!("turn started");
        let agent = Arc::clone(&self.agent);
        // In a task of its own, so that a panic ends the turn and nothing else.
        let mut task = tokio::spawn(async move { agent.prompt(turn).await }.in_current_span());
        let end = tokio::select! {
            biased;
            () = running.cancelled() => {
                task.abort();
                let _ = task.await;
                TurnEnd::Cancelled
            }
            result = &mut task => match result {
                Ok(Ok(stop_reason)) => TurnEnd::Stopped(stop_reason),
                Ok(Err(error)) => TurnEnd::Failed(error),
                Err(_) => TurnEnd::Failed(TurnError::new(PANICKED)),
            },
        };
        end_turn(handle, &end).await;
    }

    /// Cancels the turn of a session, and its queued prompts.
    pub(crate) async fn cancel_turns(&self, session: &SessionState) {
        let queued = {
            let mut prompts = lock(&session.prompts);
            prompts.running_turn.iter().for_each(RunningTurn::cancel);
            std::mem::take(&mut prompts.queued)
        };
        for (id, _) in queued {
            self.respond(&id, Err(cancelled_error())).await;
        }
    }
}

/// Sends the end of a turn.
async fn end_turn(handle: &Session, end: &TurnEnd) {
    let idle = update("state_update").str("state", "idle");
    let (idle, open_calls) = match end {
        TurnEnd::Stopped(reason) => {
            tracing::debug!(stop_reason = %reason, "turn ended");
            (idle.str("stopReason", &reason.as_str()), "failed")
        }
        TurnEnd::Cancelled => {
            tracing::debug!("turn cancelled");
            (idle.str("stopReason", &StopReason::Cancelled.as_str()), "cancelled")
        }
        TurnEnd::Failed(error) => {
            tracing::warn!(%error, "turn failed");
            (idle.str("stopReason", "error").raw("error", error.to_rpc().to_json().as_str()), "failed")
        }
    };
    handle.end_turn(idle, open_calls).await;
}
