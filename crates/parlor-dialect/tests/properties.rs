//! What holds for any sequence of updates in any dialect.

mod common;

use parlor_dialect::{Dialect, Fold, LineProblem, view};
use std::collections::BTreeMap;

use parlor_session::{Entry, ReplayCursor, Row, Slot, Transcript, Unsaved, Update};
use proptest::prelude::*;
use serde_json::{Value, json};

use common::{dialect, updates};

fn fold(dialect: Dialect, updates: &[Value]) -> Fold {
    let mut fold = Fold::new(dialect);
    updates.iter().for_each(|update| drop(fold.line(&update.to_string())));
    fold
}

/// What a transcript says, however its text is cut into blocks and whatever its numbers are.
fn said(transcript: &Transcript) -> String {
    let entry = |entry: &Entry| {
        let body = entry.body();
        let id = format!("{:?}", entry.id());
        let id = if id.starts_with("Note") { "note" } else { &id };
        let content = body.content.joined().to_json();
        format!(
            "{id} {:?} {content:?} {:?} {:?} {}",
            sorted(&body.fields),
            body.output,
            body.meta.as_ref().map(sorted),
            body.removed
        )
    };
    let entries: Vec<_> = transcript.entries().iter().map(entry).collect();
    let slot = |slot: &Slot| {
        let body = transcript.slot(*slot);
        body.map(|body| format!("{:?} {:?}", sorted(&body.fields), body.meta.as_ref().map(sorted)))
    };
    let slots: Vec<_> = Slot::ALL.iter().map(slot).collect();
    format!("{entries:#?} {slots:#?} {:?}", transcript.state())
}

/// The members of an object, by name: a patch does not say where they stand.
fn sorted(object: &parlor_json::Object) -> Vec<String> {
    let mut members: Vec<_> =
        object.iter().map(|(name, value)| format!("{name}={}", value.as_str())).collect();
    members.sort();
    members
}

/// A store that keeps rows and understands none of them.
#[derive(Default)]
struct Rows {
    entries: BTreeMap<u64, (u64, String, String)>,
    slots: BTreeMap<&'static str, (u64, String)>,
}

impl Rows {
    fn write(&mut self, rows: Vec<Row>) {
        for row in rows {
            match row {
                Row::Entry { created, seq, head, content } => {
                    let kept = self.entries.entry(created).or_default();
                    let content = content.unwrap_or_else(|| kept.2.clone());
                    *kept = (seq, head, content);
                }
                Row::Append { created, seq, content } => {
                    let kept = self.entries.get_mut(&created).unwrap();
                    kept.0 = seq;
                    kept.2.push_str(&content);
                }
                Row::Slot { name, seq, body } => drop(self.slots.insert(name, (seq, body))),
            }
        }
    }

    fn read(&self) -> Transcript {
        let mut transcript = Transcript::default();
        for (created, (seq, head, content)) in &self.entries {
            transcript.restore_entry(*created, *seq, head, content, 0).unwrap();
        }
        self.slots.iter().for_each(|(name, (seq, body))| transcript.restore_slot(name, *seq, body).unwrap());
        transcript
    }
}

fn all_of(mut reading: ReplayCursor, transcript: &Transcript, bytes: usize) -> Vec<Update> {
    std::iter::from_fn(|| reading.next(transcript, bytes)).collect()
}

proptest! {
    #[test]
    fn a_reader_at_its_own_pace_ends_with_the_same_transcript(
        dialect in dialect(), updates in updates(), steps in prop::collection::vec((1..6_usize, 0..6_usize), 1..20),
        bytes in prop_oneof![Just(1_usize), Just(60), Just(1 << 20)]
    ) {
        // Between any two updates that the reader takes, the session may change.
        let mut fold = Fold::new(dialect);
        let mut reader = Transcript::default();
        let mut reading = ReplayCursor::new(0, 0);
        let mut steps = steps.iter().cycle();
        let mut rest = &updates[..];
        loop {
            let (changes, reads) = steps.next().unwrap();
            let (now, later) = rest.split_at((*changes).min(rest.len()));
            now.iter().for_each(|update| drop(fold.line(&update.to_string())));
            rest = later;
            for _ in 0..*reads + usize::from(rest.is_empty()) {
                match reading.next(fold.transcript(), bytes) {
                    Some(update) => drop(reader.push(update).unwrap()),
                    None => reading = ReplayCursor::new(reading.upto(), fold.transcript().seq()),
                }
            }
            if rest.is_empty() && reading.upto() == fold.transcript().seq()
                && reading.clone().next(fold.transcript(), bytes).is_none() {
                break;
            }
        }
        prop_assert_eq!(said(&reader), said(fold.transcript()));
    }

    #[test]
    fn what_was_kept_is_what_was_said_and_is_numbered_the_same(
        dialect in dialect(), updates in updates(), batches in prop::collection::vec(1..8_usize, 1..20)
    ) {
        let mut fold = Fold::new(dialect);
        let (mut unsaved, mut rows) = (Unsaved::default(), Rows::default());
        let mut live = Transcript::default();
        let mut sizes = batches.iter().cycle();
        let mut rest = &updates[..];
        while !rest.is_empty() {
            let (batch, later) = rest.split_at((*sizes.next().unwrap()).min(rest.len()));
            for update in batch {
                drop(fold.line(&update.to_string()));
                // Replaying a fold's changes one by one, so that each can be noted.
                for change in fold.transcript().changes_since(live.seq()) {
                    live.apply(&change).unwrap();
                    unsaved.note(&change);
                }
            }
            rows.write(unsaved.take(&live));
            prop_assert!(unsaved.is_empty());
            rest = later;
        }
        let kept = rows.read();
        prop_assert_eq!(&kept, &live);
        for since in 0..=live.seq() {
            for upto in [since, live.seq()] {
                let reading = ReplayCursor::new(since, upto);
                prop_assert_eq!(all_of(reading.clone(), &kept, 60), all_of(reading, &live, 60), "{}..{}", since, upto);
            }
        }
    }

    #[test]
    fn changes_since_n_applied_to_the_state_at_n_give_the_state_now(
        dialect in dialect(), updates in updates(), cut in any::<prop::sample::Index>()
    ) {
        let cut = cut.index(updates.len() + 1);
        let then = fold(dialect, &updates[..cut]).transcript().clone();
        let now = fold(dialect, &updates);
        let mut caught_up = then.clone();
        for change in now.transcript().changes_since(then.seq()) {
            caught_up.apply(&change).unwrap();
        }
        prop_assert_eq!(&caught_up, now.transcript());
    }

    #[test]
    fn one_by_one_and_in_any_batches_are_the_same(
        dialect in dialect(), updates in updates(), batches in prop::collection::vec(1..8_usize, 1..20)
    ) {
        // A second transcript that hears of changes only in batches, as one that reads slowly does.
        let mut fold = Fold::new(dialect);
        let mut follower = Transcript::default();
        let mut sizes = batches.iter().cycle();
        let mut rest = &updates[..];
        while !rest.is_empty() {
            let (batch, later) = rest.split_at((*sizes.next().unwrap()).min(rest.len()));
            batch.iter().for_each(|update| drop(fold.line(&update.to_string())));
            let news: Vec<_> = fold.transcript().changes_since(follower.seq()).collect();
            news.iter().for_each(|change| follower.apply(change).unwrap());
            rest = later;
        }
        prop_assert_eq!(&follower, fold.transcript());
    }

    #[test]
    fn replaying_the_snapshot_gives_the_same_state(dialect in dialect(), updates in updates()) {
        let fold = fold(dialect, &updates);
        let mut again = Transcript::default();
        fold.transcript().changes_since(0).for_each(|change| again.apply(&change).unwrap());
        prop_assert_eq!(&again, fold.transcript());
        prop_assert_eq!(view::transcript(&again), view::transcript(fold.transcript()));
    }

    #[test]
    fn the_counter_moves_by_one_for_each_update_taken_and_not_for_one_refused(
        dialect in dialect(), updates in updates()
    ) {
        let mut fold = Fold::new(dialect);
        for update in &updates {
            let before = fold.transcript().clone();
            match fold.line(&update.to_string()) {
                Ok(()) | Err(LineProblem::Ignored(_)) => prop_assert_eq!(fold.transcript().seq(), before.seq() + 1),
                Err(_) => prop_assert_eq!(fold.transcript(), &before),
            }
        }
    }

    #[test]
    fn a_line_means_the_same_however_it_is_written(dialect in dialect(), updates in updates()) {
        // Compact lines are read in one pass; these are not: members in another order, white space, a batch
        // where the dialect takes one.
        let (open, close) = if dialect == Dialect::V1 { ("", "") } else { ("[ ", " ]") };
        let bare = fold(dialect, &updates);
        let (mut compact, mut odd) = (Fold::new(dialect), Fold::new(dialect));
        for update in &updates {
            let params = json!({ "sessionId": "s", "update": update });
            drop(compact.line(&format!(r#"{{"jsonrpc":"2.0","method":"session/update","params":{params}}}"#)));
            let odd_line = format!(
                r#"{open}{{ "params" : {params}, "x": 1, "method" : "session/update","jsonrpc":"2.0" }}{close}"#
            );
            drop(odd.line(&odd_line));
        }
        prop_assert_eq!(bare.transcript(), compact.transcript());
        prop_assert_eq!(bare.transcript(), odd.transcript());
    }

    #[test]
    fn no_line_panics(dialect in dialect(), updates in updates(), damage in prop::collection::vec((any::<prop::sample::Index>(), ".?"), 1..5)) {
        let mut fold = Fold::new(dialect);
        for update in &updates {
            let mut line: Vec<char> = update.to_string().chars().collect();
            for (place, text) in &damage {
                let place = place.index(line.len());
                line.splice(place..=place, text.chars());
            }
            drop(fold.line(&line.into_iter().collect::<String>()));
        }
        view::transcript(fold.transcript());
    }
}
