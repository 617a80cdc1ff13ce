//! When the entries of a session were created.

use std::collections::HashMap;

use jiff::Timestamp;
use parlor_session::{Entry, EntryId, Transcript};

use super::super::created_at;

/// The times of entries that the server sent, and those at which others appeared.
#[derive(Debug, Default)]
pub(super) struct EntryTimes {
    times: HashMap<EntryId, Timestamp>,
    /// The last entry whose time is known, by the change that created it.
    last: u64,
    is_loaded: bool,
}

impl EntryTimes {
    /// Takes the times of new entries. Those that are there at the first call are old: without a time of the server they have none.
    pub(super) fn update(&mut self, transcript: &Transcript, now: Timestamp) {
        let new = transcript.entries().iter().rev().take_while(|entry| entry.created() > self.last);
        for entry in new {
            let at = created_at(entry).or_else(|| self.is_loaded.then_some(now));
            if let Some(at) = at {
                self.times.entry(entry.id().clone()).or_insert(at);
            }
        }
        self.last = transcript.entries().last().map_or(0, Entry::created);
        self.is_loaded = true;
    }

    /// Prepares for a transcript that was loaded again, whose changes have other numbers.
    pub(super) fn reload(&mut self) {
        self.last = 0;
    }

    pub(super) fn of(&self, entry: &Entry) -> Option<Timestamp> {
        self.times.get(entry.id()).copied()
    }
}

#[cfg(test)]
mod tests {
    use parlor_dialect::{Dialect, Fold};

    use super::*;

    #[test]
    fn entries_have_the_time_of_the_server_or_that_at_which_they_appeared() {
        let mut fold = Fold::of_session(Dialect::V2, "s".into());
        let said = |id: &str, meta: &str| {
            format!(r#"{{"sessionUpdate":"agent_message","messageId":"{id}","content":[]{meta}}}"#)
        };
        let time = |text: &str| text.parse::<Timestamp>().unwrap();
        let mut times = EntryTimes::default();
        fold.line(&said("old", r#","_meta":{"parlor/at":1772582400000}"#)).unwrap();
        fold.line(&said("unknown", "")).unwrap();
        times.update(fold.transcript(), time("2026-03-04T12:00:00Z"));
        fold.line(&said("new", "")).unwrap();
        times.update(fold.transcript(), time("2026-03-04T12:01:00Z"));
        // A later change of its metadata does not change when it was created.
        fold.line(&said("old", r#","_meta":null"#)).unwrap();
        times.update(fold.transcript(), time("2026-03-04T12:02:00Z"));
        times.reload();
        times.update(fold.transcript(), time("2026-03-04T12:03:00Z"));
        let shown: Vec<_> = fold.transcript().entries().iter().map(|entry| times.of(entry)).collect();
        assert_eq!(shown[0], Some(time("2026-03-04T00:00:00Z")));
        assert_eq!(shown[2], Some(time("2026-03-04T12:01:00Z")));
    }
}
