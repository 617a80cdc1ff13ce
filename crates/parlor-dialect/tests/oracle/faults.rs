//! The faults of the translator that a test finds, equal ones reported once.

use std::collections::BTreeMap;

use parlor_dialect::Dialect;

use crate::check::Fault;

/// The faults that a test found.
#[derive(Default)]
pub(crate) struct Found {
    /// By what they are, the number of the others that are alike, and the first one.
    kinds: BTreeMap<String, (usize, String)>,
}

impl Found {
    /// Adds a fault of a translation of `input`.
    pub(crate) fn add(&mut self, from: Dialect, to: Dialect, input: &str, fault: &Fault) {
        let what = format!("{from} -> {to}, {}: {}", fault.name, without_values(&fault.problem));
        let example = || format!("  of   {}\n  said {}", cut(input), cut(&fault.line));
        self.kinds.entry(what).and_modify(|(others, _)| *others += 1).or_insert_with(|| (0, example()));
    }

    /// Fails if there is any.
    #[track_caller]
    pub(crate) fn assert_none(&self) {
        assert_eq!(self.shown(), "");
    }

    /// One fault of each kind.
    pub(crate) fn shown(&self) -> String {
        let show = |(what, (others, example)): (&String, &(usize, String))| {
            format!("{what} (and {others} more)\n{example}\n\n")
        };
        self.kinds.iter().map(show).collect()
    }
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
