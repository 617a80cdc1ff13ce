//! Collects the rows to write, and handles a batch that the store rejects.

use parlor_dialect::live;
use parlor_json::Object;
use parlor_session::Update;
use parlor_wire::{RequestId, RpcError, code};

use super::search_index::TurnPhase;
use super::{SessionEnd, SessionMachine};
use crate::rows::{Batch, SessionRow, Write};
use crate::stored::{ALIASES, OPENED, SIDE_STATE};
use crate::{AgentCall, AgentCommand, ClientInfo, Delivery, Frame, Output};

impl SessionMachine {
    /// A person has seen the session up to a change.
    pub(super) fn on_seen(&mut self, client: &ClientInfo, id: &RequestId, seq: u64) {
        let seen = Some(seq.min(self.session.transcript().seq()));
        if seen > self.rows.data.summary.seen_seq {
            self.rows.data.summary.seen_seq = seen;
            self.rows.dirty.seen = true;
        }
        self.respond(client, id, &Object::default());
    }

    /// The batch of everything that changed since the last one.
    pub(super) fn batch(&mut self) -> Batch {
        let writes = self.writes();
        let durable = std::mem::take(&mut self.rows.dirty.durable);
        Batch { writes, durable }
    }

    fn writes(&mut self) -> Vec<Write> {
        if !matches!(self.end, Some(SessionEnd::Deleted)) {
            return self.changes();
        }
        // The session of a subagent is deleted with its owner. If that fails, both are still there, and its turn has ended.
        // Forks that were made in this batch outlive the session.
        let is_owned = self.is_owned();
        let mut writes = if is_owned || self.has_new_forks() { self.changes() } else { Vec::new() };
        if !is_owned {
            self.rows.dirty.durable = true;
            let sessions = self.subagents.sessions().chain([&self.id]);
            let literal = |session: &parlor_session::SessionId| session.as_json().as_literal().to_owned();
            writes.extend(sessions.map(|session| Write::Delete { session: literal(session) }));
        }
        writes.extend(deleted_agent_session(&self.rows.row));
        writes.extend(self.subagents.agent_sessions().map(deleted_session));
        writes
    }

    /// The rows of everything that changed.
    fn changes(&mut self) -> Vec<Write> {
        let session = self.id.as_json().as_literal().to_owned();
        let mut writes: Vec<_> = self.rows.take_row(self.now).into_iter().collect();
        if std::mem::take(&mut self.rows.dirty.side_state) {
            // It may be written before the first change, and the store numbers from 1.
            let seq = self.session.transcript().seq().max(1);
            let body = Some(self.session.side_state().to_json().as_str().to_owned());
            writes.push(Write::Slot { session: session.clone(), name: SIDE_STATE.to_owned(), seq, body });
        }
        if std::mem::take(&mut self.rows.dirty.opened) {
            let seq = self.session.transcript().seq().max(1);
            let body = Some(self.agent.open_result.text());
            writes.push(Write::Slot { session: session.clone(), name: OPENED.to_owned(), seq, body });
        }
        if std::mem::take(&mut self.rows.dirty.aliases) {
            let seq = self.session.transcript().seq().max(1);
            let body = Some(self.aliases.to_json());
            writes.push(Write::Slot { session: session.clone(), name: ALIASES.to_owned(), seq, body });
        }
        writes.extend(self.rows.take_entries(&session, self.session.transcript()));
        let turn = match (&self.end, self.rows.row.busy) {
            (Some(_), _) => TurnPhase::Ended,
            (None, true) => TurnPhase::Running,
            (None, false) => TurnPhase::Idle,
        };
        writes.extend(self.index_backlog.take(&session, self.session.transcript(), turn, self.now.wall.0));
        writes.extend(self.subagents.take_writes(&session, self.session.transcript().seq()));
        writes.extend(self.fork_writes());
        writes
    }

    /// The batch of an output was not stored. Returns the output that is released instead: it shows and acknowledges no change
    /// that was not stored, answers each open request with an error, and ends the session. The next client that opens it gets
    /// the last stored state.
    pub fn on_store_failed(&mut self, mut output: Output, reason: &str) -> Output {
        let message = format!("the session cannot be stored: {reason}");
        let data = Object::new().with("reason", SESSION_CLOSED);
        let error = RpcError::new(code::INTERNAL_ERROR, message).with_data(data.to_json());
        tracing::error!(session = %self.id, reason, "the session cannot be stored and is closed");
        let state = live::failed_state(&error);
        let transcript = parlor_session::Transcript::default();
        let encode_context =
            live::EncodeContext { from: self.decoder.dialect(), transcript: &transcript, meta_before: None };
        let unsent = std::mem::take(&mut output.sends).into_iter();
        self.output.sends = unsent.filter_map(|send| send.if_not_stored(&error)).collect();
        let ids = &mut self.ids;
        for subscriber in self.subscribers.values_mut() {
            let mut frames = Vec::new();
            let unsent = subscriber.take_unsent(self.rows.stored_batches);
            self.output.sends.extend(unsent.into_iter().filter_map(|unsent| unsent.if_not_stored(&error)));
            let update = Update::State(state.clone());
            for update in
                subscriber.encoder.encode(&update, encode_context, &mut || ids.new_id(), &mut self.losses)
            {
                frames.push(Frame::updates(live::update_line(&self.id, &update, None)));
            }
            for request in subscriber.take_open_requests() {
                frames.push(Frame::error(&request.id, &error));
            }
            frames.extend(self.prompts.of(subscriber.client.id).map(|(_, id)| Frame::error(id, &error)));
            self.output
                .sends
                .extend(frames.into_iter().map(|frame| Delivery::new(subscriber.client.id, frame)));
        }
        for ending in self.closing.responses.drain(..) {
            self.output.sends.push(Delivery::new(ending.client, Frame::error(&ending.id, &error)));
        }
        for (client, frame) in self.unattached_responses.drain(..) {
            if let Some(id) = frame.response_to() {
                self.output.sends.push(Delivery::new(client, Frame::error(id, &error)));
            }
        }
        // The agent is sent nothing that is not stored, and no calls of clients.
        for (epoch, command) in std::mem::take(&mut output.agent) {
            if command.is_due_if_not_stored() {
                self.output.agent.push((epoch, command));
            } else if let AgentCommand::Call { call: AgentCall::Forwarded(call), .. } = &command {
                self.output.sends.push(Delivery::new(call.client, Frame::error(&call.id, &error)));
            }
        }
        self.notify_agent("session/cancel");
        self.refuse_forks(output.forks, &error);
        // A server that is stopping continues to stop.
        if !matches!(self.end, Some(SessionEnd::Stopped)) {
            self.end = Some(SessionEnd::Failed(error));
        }
        let mut released = std::mem::take(&mut self.output);
        released.subagents = output.subagents;
        released.subagents.retain(|one| one.command.is_due_if_not_stored());
        released.losses = output.losses;
        released.relayed = output.relayed;
        released.seq = self.rows.stored_seq;
        released
    }
}

/// The reason in the errors of a session that is closed because it cannot be stored: its clients are not attached any more.
const SESSION_CLOSED: &str = "session_closed";

/// Marks the agent's session of a deleted session as deleted: its agent may still list it.
pub fn deleted_agent_session(row: &SessionRow) -> Option<Write> {
    row.agent_session.as_deref().map(deleted_session)
}

fn deleted_session(agent_session: &str) -> Write {
    Write::Value { key: deleted_key(agent_session), value: Some("true".to_owned()) }
}

/// The key of the value that marks an agent's session as deleted.
pub fn deleted_key(agent_session: &str) -> String {
    format!("deleted {agent_session}")
}
