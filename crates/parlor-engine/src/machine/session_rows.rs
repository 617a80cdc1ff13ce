//! The session's row and its typed data, and which rows have to be written with the next batch.

use core::time::Duration;

use parlor_dialect::{event, live};
use parlor_json::JsonStr;
use parlor_session::session::TITLE_MARK;
use parlor_session::{Change, DirtyParts, Row, Slot, Target, Transcript, Update};

use crate::Now;
use crate::rows::{SessionRow, Write};
use crate::session_data::SessionData;

/// How often a session's last activity is written when nothing else of its row changed.
const ACTIVITY: Duration = Duration::from_secs(1);

/// What the store has of a session, and what it has yet to get.
#[derive(Debug)]
pub(super) struct SessionRows {
    pub(super) row: SessionRow,
    /// The typed form of `row.data`.
    pub(super) data: SessionData,
    pub(super) dirty: DirtyFlags,
    /// The entries and slots that changed.
    entries: DirtyParts,
    /// The row as it was last written, unless it has to be written in any case.
    last_written: Option<SessionRow>,
    written_at: Duration,
    /// When an entry or a slot was last written.
    last_active: Duration,
    /// The last change that the store has.
    pub(super) stored_seq: u64,
    /// How many batches the store has, also empty ones.
    pub(super) stored_batches: u64,
}

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

impl SessionRows {
    pub(super) fn new(row: SessionRow, now: Duration) -> Self {
        Self {
            data: SessionData::of(&row),
            row,
            dirty: DirtyFlags::default(),
            entries: DirtyParts::default(),
            last_written: None,
            written_at: Duration::ZERO,
            last_active: now,
            stored_seq: 0,
            stored_batches: 0,
        }
    }

    /// Has the session's data written with its row.
    pub(super) fn on_data_changed(&mut self) {
        self.row.data = self.data.to_text();
        self.dirty.row = true;
    }

    /// Updates the rows after an applied change, which the transcript already contains.
    pub(super) fn on_applied(&mut self, change: &Change, transcript: &Transcript, now: Now) {
        self.entries.on_applied(change);
        match &change.update {
            Update::State(state) => {
                let busy = state.activity.is_busy();
                if busy != self.row.busy {
                    self.row.busy = busy;
                    let summary = &mut self.data.summary;
                    summary.has_failed = !busy && event::has_failed(state);
                    if busy {
                        summary.turn_usage.on_turn_started(now.wall.0);
                    } else {
                        summary.last_turn_ended_at = Some(now.wall.0);
                        summary.last_turn_seq = Some(change.seq);
                        let counts_session = live::counts_session(state);
                        summary.turn_usage.on_turn_ended(state, counts_session, now.wall.0);
                    }
                    self.on_data_changed();
                }
            }
            Update::Upsert { target: Target::Slot(Slot::Info), upsert } => {
                if let Some(time) = upsert.fields.get("updatedAt") {
                    self.set_updated_at(time.to_json_str());
                }
                self.update_title(transcript);
            }
            Update::Upsert { target: Target::Slot(Slot::Usage), .. } => {
                self.data.summary.set_usage(transcript, now.wall.0);
            }
            Update::Upsert { target: Target::Slot(Slot::Mode | Slot::Model | Slot::Options), .. } => {
                if self.data.summary.set_settings(transcript) {
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

    fn update_title(&mut self, transcript: &Transcript) {
        let info = transcript.slot(Slot::Info);
        let title = info.and_then(|info| info.fields.get_json_str("title"));
        let mark = info.and_then(|info| info.meta.as_ref()?.get_json_str(TITLE_MARK));
        let is_generated = mark.is_some_and(|mark| mark.inner() == "made");
        let was_generated = self.row.title.is_none();
        if crate::title(&self.row) != title || was_generated != (is_generated || title.is_none()) {
            self.data.set_title(&mut self.row, title.as_ref(), is_generated);
            self.on_data_changed();
        }
    }

    fn set_updated_at(&mut self, time: Option<JsonStr>) {
        self.data.agent_updated_at = time;
        self.on_data_changed();
    }

    /// How long ago an entry or a slot was written.
    pub(super) fn idle_time(&self, now: Duration) -> Duration {
        now.saturating_sub(self.last_active)
    }

    /// The session's row, if it has to be written.
    pub(super) fn take_row(&mut self, now: Now) -> Option<Write> {
        if !self.entries.is_empty() {
            self.last_active = now.monotonic;
            if now.monotonic.saturating_sub(self.written_at) >= ACTIVITY {
                self.dirty.row = true;
                self.last_written = None;
            }
        }
        let is_active = std::mem::take(&mut self.dirty.row);
        let is_seen = std::mem::take(&mut self.dirty.seen);
        if !is_active && !is_seen {
            return None;
        }
        // The usage and the time of the last prompt are written with the next row.
        self.row.data = self.data.to_text();
        if self.last_written.as_ref() == Some(&self.row) {
            return None;
        }
        self.written_at = now.monotonic;
        if is_active {
            // Lists are sorted by it, so it never decreases, even if the clock does.
            self.row.active_at = now.wall.0.max(self.row.active_at);
        }
        self.last_written = Some(self.row.clone());
        Some(Write::Session(self.row.clone()))
    }

    /// The changed entries and slots.
    pub(super) fn take_entries(
        &mut self,
        session: &str,
        transcript: &Transcript,
    ) -> impl Iterator<Item = Write> {
        self.entries.take_rows(transcript).into_iter().map(move |row| {
            let session = session.to_owned();
            match row {
                Row::Entry { created, seq, head, content } => {
                    Write::Entry { session, created, seq, head, content }
                }
                Row::Append { created, seq, content } => Write::Append { session, created, seq, content },
                Row::Slot { name, seq, body } => {
                    Write::Slot { session, name: name.to_owned(), seq, body: Some(body) }
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use parlor_session::{EntryId, Role, UnixMillis, Upsert};

    use super::*;

    fn at(millis: u64) -> Now {
        let wall = UnixMillis(i64::try_from(millis).expect("a small number"));
        Now { monotonic: Duration::from_millis(millis), wall }
    }

    /// Applies a message to both, as the machine does.
    fn push(rows: &mut SessionRows, transcript: &mut Transcript, id: &str, now: Now) {
        let target = Target::Entry(EntryId::Message(Role::Agent, id.into()));
        let update = Update::Upsert { target, upsert: Upsert::default() };
        let change = transcript.push(update).expect("the update is valid");
        rows.on_applied(&change, transcript, now);
    }

    fn active_at(write: Option<Write>) -> Option<i64> {
        match write {
            Some(Write::Session(row)) => Some(row.active_at),
            Some(other) => panic!("not a session's row: {other:?}"),
            None => None,
        }
    }

    #[test]
    fn activity_is_written_at_most_once_a_second() {
        let (mut rows, mut transcript) =
            (SessionRows::new(SessionRow::default(), Duration::ZERO), Transcript::default());
        let mut written = Vec::new();
        for (index, millis) in [1000, 1400, 1999, 2000, 2500].into_iter().enumerate() {
            push(&mut rows, &mut transcript, &index.to_string(), at(millis));
            written.push(active_at(rows.take_row(at(millis))));
            assert_eq!(rows.take_entries("s", &transcript).count(), 1, "entries are always written");
        }
        assert_eq!(written, [Some(1000), None, None, Some(2000), None]);
        assert_eq!(rows.idle_time(Duration::from_millis(2600)), Duration::from_millis(100));
    }

    #[test]
    fn an_unchanged_row_is_not_written_again() {
        let mut rows = SessionRows::new(SessionRow::default(), Duration::ZERO);
        rows.on_data_changed();
        assert_eq!(active_at(rows.take_row(at(5))), Some(5));
        rows.on_data_changed();
        assert_eq!(active_at(rows.take_row(at(9))), None);
    }

    #[test]
    fn what_a_person_has_seen_is_not_activity_and_a_clock_that_goes_back_does_not_reorder_lists() {
        let mut rows = SessionRows::new(SessionRow { active_at: 7, ..SessionRow::default() }, Duration::ZERO);
        rows.data.summary.seen_seq = Some(1);
        rows.dirty.seen = true;
        assert_eq!(active_at(rows.take_row(at(50))), Some(7));
        rows.row.archived = true;
        rows.dirty.row = true;
        assert_eq!(active_at(rows.take_row(at(3))), Some(7));
    }
}
