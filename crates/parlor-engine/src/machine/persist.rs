//! Collects the rows to write, and handles a batch that the store rejects.

use core::time::Duration;

use parlor_dialect::settings::Settings;
use parlor_dialect::{event, live};
use parlor_json::{Json, JsonStr, Object};
use parlor_session::session::{ClientId, Input, PeerRequestId, TITLE_MARK};
use parlor_session::{Change, Decider, Row, Slot, Target, Update};
use parlor_wire::{RequestId, RpcError, code};

use super::search_index::TurnPhase;
use super::{SessionEnd, SessionMachine};
use crate::opening::RefusedSetting;
use crate::rows::{Batch, SessionRow, Write};
use crate::stored::{ALIASES, OPENED, SIDE_STATE};
use crate::{AgentCall, AgentCommand, ClientInfo, Delivery, Frame, Output};

/// How often a session's last activity is written when nothing else of its row changed.
const ACTIVITY: Duration = Duration::from_secs(1);

/// Which rows have to be written besides changed entries.
#[derive(Debug, Clone, Copy, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each of them is due or not by itself")]
pub(super) struct DirtyFlags {
    /// The session's row.
    pub(super) row: bool,
    /// What a person has seen, which is part of the row and no activity of the session.
    pub(super) seen: bool,
    /// The state beside the transcript.
    pub(super) side_state: bool,
    /// The aliases of messages.
    pub(super) aliases: bool,
    /// The agent's response when it opened the session.
    pub(super) opened: bool,
    /// All of it must be safe from a power cut.
    pub(super) durable: bool,
}

impl SessionMachine {
    /// Clears refused settings that the agent now reports. Only the agent's own updates count.
    pub(super) fn on_settings_reported(&mut self, update: &Update) {
        let Some(refused) = &self.refused_settings else { return };
        let mut said = Settings::default();
        said.report(update);
        let is_it = |one: &&RefusedSetting| said.get(&one.setting).as_ref() == Some(&one.value);
        let settings: Vec<_> = refused.settings.iter().filter(is_it).map(|one| one.setting.clone()).collect();
        settings.iter().for_each(|setting| self.on_setting_chosen(setting));
    }

    /// Updates the list row after an applied change.
    pub(super) fn update_row(&mut self, change: &Change) {
        match &change.update {
            Update::State(state) => {
                let busy = state.activity.is_busy();
                if busy != self.row.busy {
                    self.row.busy = busy;
                    let summary = &mut self.data.summary;
                    summary.has_failed = !busy && event::has_failed(state);
                    if busy {
                        summary.turn_usage.on_turn_started(self.now.wall.0);
                    } else {
                        summary.last_turn_ended_at = Some(self.now.wall.0);
                        summary.last_turn_seq = Some(change.seq);
                        let counts_session = live::counts_session(state);
                        summary.turn_usage.on_turn_ended(state, counts_session, self.now.wall.0);
                    }
                    self.on_data_changed();
                }
            }
            Update::Upsert { target: Target::Slot(Slot::Info), upsert } => {
                if let Some(time) = upsert.fields.get("updatedAt") {
                    self.set_updated_at(time.to_json_str());
                }
                let info = self.session.transcript().slot(Slot::Info);
                let title = info.and_then(|info| info.fields.get_json_str("title"));
                let mark = info.and_then(|info| info.meta.as_ref()?.get_json_str(TITLE_MARK));
                let is_made = mark.is_some_and(|mark| mark.inner() == "made");
                let was_made = self.row.title.is_none();
                if crate::title(&self.row) != title || was_made != (is_made || title.is_none()) {
                    self.data.set_title(&mut self.row, title.as_ref(), is_made);
                    self.on_data_changed();
                }
            }
            Update::Upsert { target: Target::Slot(Slot::Usage), .. } => {
                self.data.summary.set_usage(self.session.transcript(), self.now.wall.0);
            }
            Update::Upsert { target: Target::Slot(Slot::Mode | Slot::Model | Slot::Options), .. } => {
                if self.data.summary.set_settings(self.session.transcript()) {
                    self.on_data_changed();
                }
            }
            Update::Upsert { target: Target::Slot(_), .. } => {}
            // This is later than the time that the agent gave.
            Update::Upsert { target: Target::Entry(_), .. }
            | Update::Append { .. }
            | Update::Output { .. }
            | Update::Remove { .. }
            | Update::Note { .. } => {
                if self.data.agent_updated_at.is_some() {
                    self.set_updated_at(None);
                }
            }
        }
    }

    /// Has the session's data written with its row.
    pub(super) fn on_data_changed(&mut self) {
        self.row.data = self.data.to_text();
        self.dirty.row = true;
    }

    /// A person has seen the session up to a change.
    pub(super) fn on_seen(&mut self, client: &ClientInfo, id: &RequestId, seq: u64) {
        let seen = Some(seq.min(self.session.transcript().seq()));
        if seen > self.data.summary.seen_seq {
            self.data.summary.seen_seq = seen;
            self.dirty.seen = true;
        }
        self.respond(client, id, &Object::default());
    }

    fn set_updated_at(&mut self, time: Option<JsonStr>) {
        self.data.agent_updated_at = time;
        self.on_data_changed();
    }

    /// Records a person's decision, durably, before the agent gets it.
    pub(super) fn record_decision(&mut self, peer_request: PeerRequestId, by: ClientId, result: &Json) {
        let Some(request) = self.requests.get(&peer_request) else { return };
        let by = match (&request.decided_by, self.subscribers.get(&by)) {
            (Some(decider), _) => decider.clone(),
            (None, Some(subscriber)) => subscriber.client.decider(),
            (None, None) => Decider { client: by, name: None },
        };
        let decision = event::decision(&request.method, &request.params, result, by);
        self.step(Input::EventOccurred(decision));
        self.dirty.durable = true;
    }

    /// The batch of everything that changed since the last one.
    pub(super) fn batch(&mut self) -> Batch {
        let writes = self.writes();
        let durable = std::mem::take(&mut self.dirty.durable);
        Batch { writes, durable }
    }

    fn writes(&mut self) -> Vec<Write> {
        let is_deleted = matches!(self.end, Some(SessionEnd::Deleted));
        // Forks that were made in this batch outlive the session.
        let mut writes = if is_deleted && !self.has_new_forks() { Vec::new() } else { self.changes() };
        if is_deleted {
            self.dirty.durable = true;
            writes.push(Write::Delete { session: self.id.as_json().as_literal().to_owned() });
            writes.extend(deleted_agent_session(&self.row));
        }
        writes
    }

    /// The rows of everything that changed.
    fn changes(&mut self) -> Vec<Write> {
        let session = self.id.as_json().as_literal().to_owned();
        let mut writes = Vec::new();
        if !self.dirty_rows.is_empty() {
            self.last_active = self.now.monotonic;
            if self.now.monotonic.saturating_sub(self.row_written) >= ACTIVITY {
                self.dirty.row = true;
                self.row_stored = None;
            }
        }
        let (is_active, is_seen) =
            (std::mem::take(&mut self.dirty.row), std::mem::take(&mut self.dirty.seen));
        if is_active || is_seen {
            // The usage and the time of the last prompt are written with the next row.
            self.row.data = self.data.to_text();
        }
        if (is_active || is_seen) && self.row_stored.as_ref() != Some(&self.row) {
            self.row_written = self.now.monotonic;
            if is_active {
                // Lists are sorted by it, so it never decreases, even if the clock does.
                self.row.active_at = self.now.wall.0.max(self.row.active_at);
            }
            self.row_stored = Some(self.row.clone());
            writes.push(Write::Session(self.row.clone()));
        }
        if std::mem::take(&mut self.dirty.side_state) {
            // It may be written before the first change, and the store numbers from 1.
            let seq = self.session.transcript().seq().max(1);
            let body = Some(self.session.side_state().to_json().as_str().to_owned());
            writes.push(Write::Slot { session: session.clone(), name: SIDE_STATE.to_owned(), seq, body });
        }
        if std::mem::take(&mut self.dirty.opened) {
            let seq = self.session.transcript().seq().max(1);
            let body = Some(self.open_result.text());
            writes.push(Write::Slot { session: session.clone(), name: OPENED.to_owned(), seq, body });
        }
        if std::mem::take(&mut self.dirty.aliases) {
            let seq = self.session.transcript().seq().max(1);
            let body = Some(self.aliases.to_json());
            writes.push(Write::Slot { session: session.clone(), name: ALIASES.to_owned(), seq, body });
        }
        for row in self.dirty_rows.take_rows(self.session.transcript()) {
            let session = session.clone();
            writes.push(match row {
                Row::Entry { created, seq, head, content } => {
                    Write::Entry { session, created, seq, head, content }
                }
                Row::Append { created, seq, content } => Write::Append { session, created, seq, content },
                Row::Slot { name, seq, body } => {
                    Write::Slot { session, name: name.to_owned(), seq, body: Some(body) }
                }
            });
        }
        let turn = match (&self.end, self.row.busy) {
            (Some(_), _) => TurnPhase::Ended,
            (None, true) => TurnPhase::Running,
            (None, false) => TurnPhase::Idle,
        };
        writes.extend(self.index_backlog.take(&session, self.session.transcript(), turn, self.now.wall.0));
        writes.extend(self.fork_writes());
        writes
    }

    /// The batch of an output was not stored. Returns the output that is released instead: it shows and acknowledges no change
    /// that was not stored, answers each open request with an error, and ends the session. The next client that opens it gets
    /// the last stored state.
    pub fn on_store_failed(&mut self, mut output: Output, reason: &str) -> Output {
        let message = format!("the session cannot be stored: {reason}");
        let error = RpcError::new(code::INTERNAL_ERROR, message);
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
            for (frame, is_stored) in subscriber.take_unsent(self.stored) {
                let send = Delivery { is_stored, ..Delivery::new(subscriber.client.id, frame) };
                self.output.sends.extend(send.if_not_stored(&error));
            }
            let update = Update::State(state.clone());
            for update in
                subscriber.encoder.encode(&update, encode_context, &mut || ids.new_id(), &mut self.losses)
            {
                frames.push(Frame::updates(live::update_line(&self.id, &update, None)));
            }
            for request in subscriber.take_open_requests() {
                frames.push(Frame::error(&request.id, &error));
            }
            for (by, id) in self.prompts.values() {
                if *by == subscriber.client.id {
                    frames.push(Frame::error(id, &error));
                }
            }
            self.output
                .sends
                .extend(frames.into_iter().map(|frame| Delivery::new(subscriber.client.id, frame)));
        }
        for ending in self.closing.responses.drain(..) {
            self.output.sends.push(Delivery::new(ending.client, Frame::error(&ending.id, &error)));
        }
        for owed in self.unattached_responses.drain(..) {
            if let Some(id) = owed.1.response_to() {
                self.output.sends.push(Delivery::new(owed.0, Frame::error(id, &error)));
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
        released.losses = output.losses;
        released.relayed = output.relayed;
        released.seq = self.stored;
        released
    }
}

/// Marks the agent's session of a deleted session as deleted: its agent may still list it.
pub fn deleted_agent_session(row: &SessionRow) -> Option<Write> {
    let id = row.agent_session.as_deref()?;
    Some(Write::Value { key: deleted_key(id), value: Some("true".to_owned()) })
}

/// The key of the value that marks an agent's session as deleted.
pub fn deleted_key(agent_session: &str) -> String {
    format!("deleted {agent_session}")
}
