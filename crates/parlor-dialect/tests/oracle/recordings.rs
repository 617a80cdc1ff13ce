//! What real peers said, in every other dialect.

use parlor_dialect::{Dialect, Recorded, Side, Translator};

use crate::check::Checker;
use crate::common::recordings;

#[test]
fn every_recording_is_valid_in_every_other_dialect() {
    let mut found = Vec::new();
    for (name, from, text) in recordings() {
        for to in Dialect::ALL.into_iter().filter(|to| *to != from) {
            let mut translator = Translator::record(from, to);
            let (mut before, mut after) = (Checker::new(from), Checker::new(to));
            for line in text.lines().filter_map(Recorded::read) {
                let by = line.from.unwrap_or(Side::Agent);
                let wrong: Vec<_> = before.line(by, line.message);
                let Ok(said) = translator.line(by, line.message) else {
                    found.push(format!("refused {}", line.message));
                    continue;
                };
                for said in said.lines {
                    let faults = after.line(said.by, &said.text);
                    found.extend(faults.into_iter().map(|fault| {
                        format!(
                            "{name} {from}->{to} src {:?} {}: {}\n{}",
                            wrong.iter().map(|f| &f.problem).collect::<Vec<_>>(),
                            fault.name,
                            fault.problem,
                            fault.line.chars().take(300).collect::<String>()
                        )
                    }));
                }
            }
            println!("{name} {to} {:?} {:?}", before.counts, after.counts);
        }
    }
    println!("{}", found.len());
    assert!(found.is_empty(), "{}", found.join("\n\n"));
}
