//! Properties of any sequence of updates in any dialect.

mod common;

use std::collections::BTreeMap;

use parlor_dialect::{Decoder, Dialect, Fold, LineProblem};
use parlor_json::Json;
use parlor_session::{DirtyParts, Entry, MessageId, ReplayCursor, Row, Slot, Transcript, Update};
use proptest::prelude::*;
use serde_json::{Value, json};

use common::{dialect, updates};

fn fold(dialect: Dialect, updates: &[Value]) -> Fold {
    let mut fold = Fold::new(dialect);
    updates.iter().for_each(|update| drop(fold.line(&update.to_string())));
    fold
}

/// A transcript as text, without the boundaries of its blocks and its seqs.
fn text_of(transcript: &Transcript) -> String {
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

/// The members of an object, sorted by name: a patch does not define their order.
fn sorted(object: &parlor_json::Object) -> Vec<String> {
    let mut members: Vec<_> =
        object.iter().map(|(name, value)| format!("{name}={}", value.as_str())).collect();
    members.sort();
    members
}

/// A store in memory, for which rows are opaque.
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
                    let row = self.entries.entry(created).or_default();
                    let content = content.unwrap_or_else(|| row.2.clone());
                    *row = (seq, head, content);
                }
                Row::Append { created, seq, content } => {
                    let row = self.entries.get_mut(&created).unwrap();
                    row.0 = seq;
                    row.2.push_str(&content);
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

fn replay(mut cursor: ReplayCursor, transcript: &Transcript, bytes: usize) -> Vec<Update> {
    std::iter::from_fn(|| cursor.next(transcript, bytes)).collect()
}

proptest! {
    #[test]
    fn a_replay_interleaved_with_changes_ends_with_the_same_transcript(
        dialect in dialect(), updates in updates(), steps in prop::collection::vec((1..6_usize, 0..6_usize), 1..20),
        bytes in prop_oneof![Just(1_usize), Just(60), Just(1 << 20)]
    ) {
        // The session may change between any two replayed updates.
        let mut fold = Fold::new(dialect);
        let mut replica = Transcript::default();
        let mut cursor = ReplayCursor::new(0, 0);
        let mut steps = steps.iter().cycle();
        let mut rest = &updates[..];
        loop {
            let (changes, reads) = steps.next().unwrap();
            let (now, later) = rest.split_at((*changes).min(rest.len()));
            now.iter().for_each(|update| drop(fold.line(&update.to_string())));
            rest = later;
            for _ in 0..*reads + usize::from(rest.is_empty()) {
                match cursor.next(fold.transcript(), bytes) {
                    Some(update) => drop(replica.push(update).unwrap()),
                    None => cursor = ReplayCursor::new(cursor.through(), fold.transcript().seq()),
                }
            }
            if rest.is_empty() && cursor.through() == fold.transcript().seq()
                && cursor.clone().next(fold.transcript(), bytes).is_none() {
                break;
            }
        }
        prop_assert_eq!(text_of(&replica), text_of(fold.transcript()));
    }

    #[test]
    fn a_restored_transcript_equals_the_stored_one_and_replays_the_same(
        dialect in dialect(), updates in updates(), batches in prop::collection::vec(1..8_usize, 1..20)
    ) {
        let (mut decoder, mut live) = (Decoder::new(dialect), Transcript::default());
        let (mut dirty, mut rows, mut ids) = (DirtyParts::default(), Rows::default(), 0);
        let mut sizes = batches.iter().cycle();
        let mut rest = &updates[..];
        while !rest.is_empty() {
            let (batch, later) = rest.split_at((*sizes.next().unwrap()).min(rest.len()));
            for update in batch {
                let mut new_id = || {
                    ids += 1;
                    MessageId::from(format!("new{ids}").as_str())
                };
                let raw = Json::parse(update.to_string()).unwrap();
                let Ok(decoded) = decoder.decode(raw.raw(), &mut new_id) else { continue };
                if let Ok(change) = live.push(decoded.update) {
                    decoder.on_applied(&change, decoded.id_source);
                    dirty.on_applied(&change);
                }
            }
            rows.write(dirty.take_rows(&live));
            prop_assert!(dirty.is_empty());
            rest = later;
        }
        let restored = rows.read();
        prop_assert_eq!(&restored, &live);
        for since in 0..=live.seq() {
            for through in [since, live.seq()] {
                let cursor = ReplayCursor::new(since, through);
                prop_assert_eq!(
                    replay(cursor.clone(), &restored, 60), replay(cursor, &live, 60), "{}..{}", since, through
                );
            }
        }
    }

    #[test]
    fn the_seq_increases_by_one_for_each_applied_update_and_not_for_a_rejected_one(
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
        parlor_dialect::view::transcript(fold.transcript());
    }
}
