//! Faults of the translator that are known, so that the oracle can watch for new ones.
//!
//! An entry that no longer describes a fault makes the tests fail: take it out.

use std::collections::{BTreeMap, BTreeSet};

use parlor_dialect::Dialect;

use crate::check::Fault;

/// A fault that is known.
pub(crate) struct Known {
    pub(crate) from: &'static [Dialect],
    pub(crate) to: &'static [Dialect],
    /// The name of the line, as [`Fault::name`] has it.
    pub(crate) name: &'static str,
    /// Part of the problem.
    pub(crate) problem: &'static str,
}

/// What is wrong, and will be mended.
pub(crate) const KNOWN: &[Known] = &[];

/// The faults that a test found.
#[derive(Default)]
pub(crate) struct Found {
    known: BTreeSet<usize>,
    /// By what they are, the number of the others that are alike, and the first one.
    new: BTreeMap<String, (usize, String)>,
}

impl Found {
    /// Adds a fault of a translation of `input`.
    pub(crate) fn add(&mut self, from: Dialect, to: Dialect, input: &str, fault: &Fault) {
        if let Some(place) = place(from, to, fault) {
            self.known.insert(place);
            return;
        }
        let what = format!("{from} -> {to}, {}: {}", fault.name, without_values(&fault.problem));
        let example = || format!("  of   {}\n  said {}", cut(input), cut(&fault.line));
        self.new.entry(what).and_modify(|(others, _)| *others += 1).or_insert_with(|| (0, example()));
    }

    /// Fails if there are faults that are not known, or known ones between these dialects that are not there.
    pub(crate) fn assert(&self, from: Dialect, to: Dialect) {
        self.assert_nothing_new();
        for (place, known) in KNOWN.iter().enumerate() {
            let is_meant = known.from.contains(&from) && known.to.contains(&to);
            assert!(
                !is_meant || self.known.contains(&place),
                "{from} -> {to}, {}: {}: this fault is mended, take it off the list",
                known.name,
                known.problem
            );
        }
    }

    /// Fails if there are faults that are not known.
    pub(crate) fn assert_nothing_new(&self) {
        let show = |(what, (others, example)): (&String, &(usize, String))| {
            format!("{what} (and {others} more)\n{example}\n\n")
        };
        assert!(
            self.new.is_empty(),
            "{} faults\n\n{}",
            self.new.len(),
            self.new.iter().map(show).collect::<String>()
        );
    }
}

fn place(from: Dialect, to: Dialect, fault: &Fault) -> Option<usize> {
    KNOWN.iter().position(|known| {
        known.from.contains(&from)
            && known.to.contains(&to)
            && known.name == fault.name
            && fault.problem.contains(known.problem)
    })
}

/// A problem without the values that it happened to, so that those that are alike count as one.
fn without_values(problem: &str) -> String {
    let problems = problem.split("; ").map(|problem| problem.split(": said").next().unwrap_or_default());
    let problems: Vec<_> =
        problems.map(|problem| problem.replace(|c: char| c.is_ascii_digit(), "N")).collect();
    problems.join("; ")
}

fn cut(text: &str) -> String {
    if text.len() < 600 { text.to_owned() } else { text.chars().take(500).chain("...".chars()).collect() }
}
