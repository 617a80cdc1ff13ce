//! The line below a turn on a terminal: how long it took, what it changed and cost.

use std::collections::BTreeMap;
use std::time::Duration;

use parlor_json::Object;
use parlor_session::{EntryId, Slot, Transcript};
use parlor_view::tool_call::ToolDetails;

use crate::output::{count, elapsed};
use parlor_view::money::money;

/// What a turn has cost so far, by the last `usage_update` of its session.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Cost {
    amount: f64,
    currency: String,
}

impl Cost {
    /// The cost of a session.
    pub(crate) fn of(transcript: &Transcript) -> Option<Self> {
        let cost: Object = transcript.slot(Slot::Usage)?.fields.get_object("cost")?;
        let amount = cost.get("amount")?.as_str().parse().ok()?;
        Some(Self { amount, currency: cost.get_string("currency")? })
    }

    /// The cost since an earlier one.
    fn since(&self, before: Option<&Self>) -> Option<String> {
        let before = before.filter(|before| before.currency == self.currency);
        let amount = self.amount - before.map_or(0.0, |before| before.amount);
        (amount > 0.0).then(|| money(&self.currency, amount))
    }
}

/// Describes a turn with these entries, in a session with this cost before and after it.
pub(crate) fn facts(
    turn: &Transcript,
    cwd: &str,
    time: Duration,
    (before, after): (Option<&Cost>, Option<&Cost>),
) -> String {
    let mut files: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for entry in turn.entries().iter().filter(|entry| !entry.body().removed) {
        if !matches!(entry.id(), EntryId::ToolCall(_)) {
            continue;
        }
        for diff in ToolDetails::of_entry(entry, cwd).diffs() {
            let (added, removed) = diff.counts();
            let file = files.entry(diff.path.clone()).or_default();
            *file = (file.0 + added, file.1 + removed);
        }
    }
    let millis = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    let mut parts = vec![elapsed(0, millis)];
    if !files.is_empty() {
        let (added, removed) = files.values().fold((0, 0), |sum, file| (sum.0 + file.0, sum.1 + file.1));
        parts.push(format!("{} +{added} -{removed}", count(files.len(), "file")));
    }
    parts.extend(after.and_then(|after| after.since(before)));
    parts.join(" · ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_turn_has_added_to_the_cost_counts() {
        let cost = |amount, currency: &str| Cost { amount, currency: currency.to_owned() };
        let before = cost(1.5, "USD");
        assert_eq!(cost(1.75, "USD").since(Some(&before)).as_deref(), Some("$0.25"));
        assert_eq!(cost(1.5, "USD").since(Some(&before)), None);
        assert_eq!(cost(1.75, "USD").since(None).as_deref(), Some("$1.75"));
        let line = facts(
            &Transcript::default(),
            "/",
            Duration::from_secs(190),
            (Some(&before), Some(&cost(1.75, "USD"))),
        );
        assert_eq!(line, "3:10 · $0.25");
    }
}
