//! Searches without an index: reads everything and ranks it as the index of the SQLite store does.

use super::contents::{Contents, IndexedContent};
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
    let all: Vec<&IndexedContent> = contents.indexed().chain(&titles).collect();
    let indexed: Vec<_> =
        all.iter().copied().filter(|indexed| search.query.matches_words(&indexed.words)).collect();
    let judge = Ranker::new(search, &all);
    let mut judged: Vec<_> = indexed
        .into_iter()
        .filter(|indexed| {
            row_of(&indexed.entry.0).is_some_and(|row| search.includes(row, &indexed.kind, indexed.at))
        })
        .map(|indexed| (judge.rank(indexed), indexed))
        .collect();
    judged.sort_by(|(a, first), (b, second)| {
        b.total_cmp(a).then(second.at.cmp(&first.at)).then_with(|| first.entry.cmp(&second.entry))
    });
    judged.into_iter().skip(offset).take(limit).map(|(_, indexed)| hit(indexed)).collect()
}

fn title(row: &SessionRow) -> Option<IndexedContent> {
    let words: Vec<_> = words(&check::title(row)?).collect();
    let entry = (row.id.clone(), 0);
    (!words.is_empty()).then(|| IndexedContent { entry, kind: TITLE.to_owned(), at: row.active_at, words })
}

fn hit(indexed: &IndexedContent) -> Hit {
    let (session, created) = indexed.entry.clone();
    Hit { session, created: (created > 0).then_some(created), kind: indexed.kind.clone(), at: indexed.at }
}

/// Computes the rank of a hit with Okapi BM25, as SQLite does.
struct Ranker<'a> {
    search: &'a Search,
    average_length: f64,
    /// The weight of each term; rare terms weigh more.
    weights: Vec<f64>,
}

impl<'a> Ranker<'a> {
    fn new(search: &'a Search, all: &[&IndexedContent]) -> Self {
        let total: usize = all.iter().map(|indexed| indexed.words.len()).sum();
        let count = number(all.len());
        let weights = search.query.required().iter().map(|term| {
            let frequency =
                number(all.iter().filter(|indexed| term.positions(&indexed.words).next().is_some()).count());
            ((count - frequency + 0.5) / (frequency + 0.5)).ln().max(1e-6)
        });
        Self { search, average_length: number(total) / count.max(1.0), weights: weights.collect() }
    }

    fn rank(&self, indexed: &IndexedContent) -> f64 {
        let length = number(indexed.words.len()) / self.average_length;
        let terms = self.search.query.required().iter().zip(&self.weights);
        terms
            .map(|(term, weight)| {
                let count = number(term.positions(&indexed.words).count());
                weight * count * 2.2 / (count + 1.2 * (0.25 + 0.75 * length))
            })
            .sum()
    }
}

/// Converts a count that is always small enough for a float.
#[expect(clippy::cast_precision_loss, reason = "numbers of things in memory are small")]
fn number(count: usize) -> f64 {
    count as f64
}
