//! Recordings of real peers, in every dialect.

use parlor_dialect::{Dialect, Recorded, Side, Translator};
use serde_json::Value;

use crate::check::{Checker, Counts, Fault};
use crate::common::recordings;
use crate::faults::Found;

#[test]
fn every_recording_is_valid_in_every_other_dialect() {
    let mut found = Found::default();
    let (mut counts, mut wrong_before) = (Counts::default(), 0);
    for (_, from, text) in recordings() {
        for to in Dialect::ALL.into_iter().filter(|to| *to != from) {
            let mut translator = Translator::record(from, to);
            let (mut before, mut after) = (Checker::new(from), Checker::new(to));
            for (by, line) in lines(&text) {
                // An invalid line need not become valid.
                let is_wrong = !before.line(by, line).is_empty();
                wrong_before += usize::from(is_wrong);
                match translator.line(by, line) {
                    Ok(said) => {
                        for said in &said.lines {
                            let faults = after.line(said.by, &said.text);
                            faults
                                .iter()
                                .filter(|_| !is_wrong)
                                .for_each(|fault| found.add(from, to, line, fault));
                        }
                    }
                    Err(problem) if !is_wrong => found.add(from, to, line, &Fault::refused(&problem)),
                    Err(_) => {}
                }
            }
            counts.add(&after.counts);
        }
    }
    assert_eq!(found.shown(), "");
    // Probes of how agents take what is wrong are all that is wrong in the recordings.
    assert_eq!((counts.checked > 4000, wrong_before), (true, 50), "{counts:?}");
}

#[test]
fn every_recording_is_the_same_in_its_own_dialect() {
    for (name, dialect, text) in recordings() {
        for mut translator in [Translator::record(dialect, dialect), Translator::relay(dialect, dialect)] {
            for (by, line) in lines(&text) {
                // A probe of how an agent takes what is no message is not for anybody.
                if serde_json::from_str::<Value>(line).is_err() {
                    assert!(translator.line(by, line).is_err(), "{name}: {line}");
                    continue;
                }
                let said =
                    translator.line(by, line).unwrap_or_else(|problem| panic!("{name}: {problem:?}: {line}"));
                let [only] = said.lines.as_slice() else { panic!("{name}: {:?}: {line}", said.lines) };
                assert_eq!((only.by, &*only.text), (by, line), "{name}");
                assert!(said.losses.is_empty() && said.problems.is_empty(), "{name}: {line}");
            }
        }
    }
}

/// The messages of a recording, with their senders.
fn lines(text: &str) -> impl Iterator<Item = (Side, &str)> {
    text.lines().filter_map(Recorded::read).map(|line| (line.from.unwrap_or(Side::Agent), line.message))
}
