//! Which change brought what, so that somebody who has seen some changes can be told only the rest.

use parlor_json::{JsonStr, Object};

use crate::{Body, MetaPatch, Patch, Upsert};

/// When the parts of one target changed last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Revisions {
    /// The last change to the fields.
    pub(crate) fields: u64,
    /// The last change to the metadata.
    pub(crate) meta: u64,
    /// Fields that once had a value and have none now. Who has the value must be told.
    pub(crate) cleared: Vec<JsonStr>,
    /// The items of content.
    pub(crate) content: SeqRuns,
    /// The bytes of output.
    pub(crate) output: SeqRuns,
}

/// The numbers of the changes that brought the parts of a list, which grow towards its end.
///
/// A list is replaced as a whole or grows at its end. Items that came one after another without anything between
/// them cost nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SeqRuns {
    /// The change that last replaced the list; everything before the first run came with it.
    replaced: u64,
    runs: Vec<Run>,
}

/// From `place` on, each step came with the next change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    place: u32,
    seq: u64,
}

impl Revisions {
    /// An upsert is about to be taken by a body that is still as it was.
    pub(crate) fn upserted(&mut self, body: &Body, upsert: &Upsert, seq: u64) {
        let has = |name: &JsonStr| body.fields.get_key(name).is_some();
        if upsert.whole {
            let gone = |name: &&JsonStr| upsert.fields.get_key(name).is_none();
            self.clear(body.fields.iter().map(|(name, _)| name).filter(gone).cloned());
        }
        // That something is back is news as well, whatever is said of it.
        if upsert.whole || !upsert.fields.is_empty() || body.removed {
            self.fields = seq;
            let nulls = upsert.fields.iter().filter(|(name, value)| value.is_null() && has(name));
            self.clear(nulls.map(|(name, _)| name.clone()));
            self.said(&upsert.fields);
        }
        if upsert.whole || upsert.meta != MetaPatch::Keep {
            self.meta = seq;
        }
        if upsert.whole || upsert.content != Patch::Omitted {
            self.content.replaced(seq);
        }
        if upsert.whole || upsert.output != Patch::Omitted {
            self.output.replaced(seq);
        }
    }

    /// All of it is gone. What comes back under its name has nothing of what it was.
    pub(crate) fn removed(body: &Body, news: &Self, seq: u64) -> Self {
        let mut news = Self { fields: seq, meta: seq, cleared: news.cleared.clone(), ..Self::default() };
        news.clear(body.fields.iter().map(|(name, _)| name.clone()));
        news.content.replaced(seq);
        news.output.replaced(seq);
        news
    }

    fn clear(&mut self, names: impl Iterator<Item = JsonStr>) {
        for name in names {
            if !self.cleared.contains(&name) {
                self.cleared.push(name);
            }
        }
    }

    fn said(&mut self, fields: &Object) {
        if !self.cleared.is_empty() {
            self.cleared.retain(|name| fields.get_key(name).is_none_or(parlor_json::Json::is_null));
        }
    }

    /// The fields for somebody who may have any of them: those that are gone are named as null.
    pub(crate) fn fields_with_cleared(&self, body: &Body) -> Object {
        let mut fields = body.fields.clone();
        for name in &self.cleared {
            fields.set(name.clone(), parlor_json::Json::null());
        }
        fields
    }
}

impl SeqRuns {
    /// The whole list is another one.
    pub(crate) fn replaced(&mut self, seq: u64) {
        self.replaced = seq;
        self.runs.clear();
    }

    /// The change that last replaced the list.
    pub(crate) fn replaced_at(&self) -> u64 {
        self.replaced
    }

    /// Something came at the end, which was at `place`.
    pub(crate) fn grew(&mut self, place: usize, seq: u64) {
        let place = u32::try_from(place).expect("lists are limited to what fits into 32 bits");
        if let Some(last) = self.runs.last()
            && last.at(place) == seq
        {
            return;
        }
        self.runs.push(Run { place, seq });
    }

    /// A chunk came at the end, which was at `place`: all of it belongs to one change, however long it is.
    pub(crate) fn grew_by_chunk(&mut self, place: usize, seq: u64) {
        let place = u32::try_from(place).expect("lists are limited to what fits into 32 bits");
        self.runs.push(Run { place, seq });
    }

    /// Where the chunks begin that came after change `seq`, in a list of `len`; see [`Self::first_after`].
    pub(crate) fn first_chunk_after(&self, seq: u64, len: usize) -> usize {
        if self.replaced > seq {
            return 0;
        }
        let later = self.runs.partition_point(|run| run.seq <= seq);
        self.runs.get(later).map_or(len, |run| run.place as usize)
    }

    /// Where the part begins that came after change `seq`, in a list of `len`; the list was not replaced since.
    pub(crate) fn first_after(&self, seq: u64, len: usize) -> usize {
        if self.replaced > seq {
            return 0;
        }
        let later = self.runs.partition_point(|run| run.seq <= seq);
        let end = self.runs.get(later).map_or(len, |run| run.place as usize);
        let Some(run) = later.checked_sub(1).map(|before| self.runs[before]) else { return end };
        let within = run.place as usize + usize::try_from(seq - run.seq + 1).unwrap_or(usize::MAX);
        within.min(end)
    }

    /// The runs, each with where it ends in a list of `len`: from, to, the number of the first.
    pub(crate) fn runs(&self, len: usize) -> impl Iterator<Item = (usize, usize, u64)> + '_ {
        let ends = self.runs.iter().skip(1).map(|run| run.place as usize).chain([len]);
        self.runs.iter().zip(ends).map(|(run, end)| (run.place as usize, end, run.seq))
    }

    /// How much of the list came with its replacement.
    pub(crate) fn base(&self, len: usize) -> usize {
        self.runs.first().map_or(len, |run| run.place as usize)
    }
}

impl Run {
    fn at(self, place: u32) -> u64 {
        self.seq + u64::from(place - self.place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_item_is_known_by_the_change_that_brought_it() {
        let mut numbers = SeqRuns::default();
        numbers.replaced(3);
        // Two items came with change 3, then one each with 5, 6, 7, and one with 20.
        for (place, seq) in [(2, 5), (3, 6), (4, 7), (5, 20)] {
            numbers.grew(place, seq);
        }
        for (seq, first) in
            [(2, 0), (3, 2), (4, 2), (5, 3), (6, 4), (7, 5), (8, 5), (19, 5), (20, 6), (99, 6)]
        {
            assert_eq!(numbers.first_after(seq, 6), first, "after {seq}");
        }
        assert_eq!(numbers.runs(6).collect::<Vec<_>>(), [(2, 5, 5), (5, 6, 20)]);
        assert_eq!(numbers.base(6), 2);
    }

    #[test]
    fn a_chunk_belongs_to_one_change() {
        let mut numbers = SeqRuns::default();
        for (place, seq) in [(0, 5), (10, 6), (11, 7)] {
            numbers.grew_by_chunk(place, seq);
        }
        for (seq, first) in [(4, 0), (5, 10), (6, 11), (7, 30), (8, 30)] {
            assert_eq!(numbers.first_chunk_after(seq, 30), first, "after {seq}");
        }
    }

    #[test]
    fn a_stream_is_one_run() {
        let mut numbers = SeqRuns::default();
        (0..1000).for_each(|place| numbers.grew(place, 7 + place as u64));
        assert_eq!(numbers.runs.len(), 1);
    }
}
