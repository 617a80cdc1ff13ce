//! Searching without an index: everything is looked at, and judged as the index of the other store would.

use super::contents::{Contents, Found};
use crate::words::words;
use crate::{Hit, Search, SessionRow, TITLE, check};

pub(super) fn search<'a>(
    search: &Search,
    rows: impl Iterator<Item = &'a SessionRow>,
    contents: &Contents,
    row_of: impl Fn(&str) -> Option<&'a SessionRow>,
    offset: usize,
    limit: usize,
) -> Vec<Hit> {
    let titles: Vec<_> = rows.filter_map(title).collect();
    let all: Vec<&Found> = contents.found().chain(&titles).collect();
    let found: Vec<_> = all.iter().copied().filter(|found| search.query.finds_words(&found.words)).collect();
    let judge = Judge::new(search, &all);
    let mut judged: Vec<_> = found
        .into_iter()
        .filter(|found| row_of(&found.place.0).is_some_and(|row| matches(search, row, found)))
        .map(|found| (judge.worth(found), found))
        .collect();
    judged.sort_by(|(a, first), (b, second)| {
        b.total_cmp(a).then(second.at.cmp(&first.at)).then_with(|| first.place.cmp(&second.place))
    });
    judged.into_iter().skip(offset).take(limit).map(|(_, found)| hit(found)).collect()
}

fn title(row: &SessionRow) -> Option<Found> {
    let words: Vec<_> = words(&check::title(row)?).collect();
    let place = (row.id.clone(), 0);
    (!words.is_empty()).then(|| Found { place, kind: TITLE.to_owned(), at: row.active_at, words })
}

fn matches(search: &Search, row: &SessionRow, found: &Found) -> bool {
    search.kind.as_ref().is_none_or(|kind| *kind == found.kind)
        && search.session.as_ref().is_none_or(|session| *session == row.id)
        && search.agent.as_ref().is_none_or(|agent| *agent == row.agent)
        && search.cwd.as_ref().is_none_or(|cwd| *cwd == row.cwd)
        && search.since.is_none_or(|since| found.at >= since)
}

fn hit(found: &Found) -> Hit {
    let (session, created) = found.place.clone();
    Hit { session, created: (created > 0).then_some(created), kind: found.kind.clone(), at: found.at }
}

/// Okapi BM25, as SQLite does it.
struct Judge<'a> {
    search: &'a Search,
    average_length: f64,
    /// How much each term is worth: those that few have are worth more.
    weights: Vec<f64>,
}

impl<'a> Judge<'a> {
    fn new(search: &'a Search, all: &[&Found]) -> Self {
        let total: usize = all.iter().map(|found| found.words.len()).sum();
        let count = number(all.len());
        let weights = search.query.wanted().iter().map(|term| {
            let have = number(all.iter().filter(|found| term.places(&found.words).next().is_some()).count());
            ((count - have + 0.5) / (have + 0.5)).ln().max(1e-6)
        });
        Self { search, average_length: number(total) / count.max(1.0), weights: weights.collect() }
    }

    fn worth(&self, found: &Found) -> f64 {
        let length = number(found.words.len()) / self.average_length;
        let terms = self.search.query.wanted().iter().zip(&self.weights);
        terms
            .map(|(term, weight)| {
                let often = number(term.places(&found.words).count());
                weight * often * 2.2 / (often + 1.2 * (0.25 + 0.75 * length))
            })
            .sum()
    }
}

/// There are never so many that a float could not count them.
#[expect(clippy::cast_precision_loss, reason = "numbers of things in memory are small")]
fn number(count: usize) -> f64 {
    count as f64
}
