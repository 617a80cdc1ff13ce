//! Seqs of the parts of an entry or slot, so that a subscriber is sent only the parts that it lacks.

use parlor_json::{JsonStr, Object};

use crate::{Body, MetaPatch, Patch, Upsert};

/// The last change of each part of one entry or slot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Revisions {
    /// The last change to the fields.
    pub(crate) fields: u64,
    /// The last change to the metadata.
    pub(crate) meta: u64,
    /// Fields that had a value and were removed. A subscriber that has the value must be sent the removal.
    pub(crate) cleared: Vec<JsonStr>,
    /// Seqs of the items of content.
    pub(crate) content: SeqRuns,
    /// Seqs of the bytes of output.
    pub(crate) output: SeqRuns,
}

/// The seqs of the items of a list, in ascending order.
///
/// A list is replaced as a whole or grows at its end. Consecutive items with consecutive seqs are one run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SeqRuns {
    /// The change that last replaced the list; all items before the first run have its seq.
    replaced: u64,
    runs: Vec<Run>,
}

/// From `start` on, each item has the next seq.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    start: u32,
    seq: u64,
}

impl Revisions {
    /// Tracks an upsert that is about to be applied to `body`.
    pub(crate) fn on_upsert(&mut self, body: &Body, upsert: &Upsert, seq: u64) {
        let has = |name: &JsonStr| body.fields.get_key(name).is_some();
        if upsert.whole {
            let is_removed = |name: &&JsonStr| upsert.fields.get_key(name).is_none();
            self.clear(body.fields.iter().map(|(name, _)| name).filter(is_removed).cloned());
        }
        // An entry that is created again changes, even if the upsert is empty.
        if upsert.whole || !upsert.fields.is_empty() || body.removed {
            self.fields = seq;
            let nulls = upsert.fields.iter().filter(|(name, value)| value.is_null() && has(name));
            self.clear(nulls.map(|(name, _)| name.clone()));
            self.retain_cleared(&upsert.fields);
        }
        if upsert.whole || upsert.meta != MetaPatch::Keep {
            self.meta = seq;
        }
        if upsert.whole || upsert.content != Patch::Omitted {
            self.content.on_replaced(seq);
        }
        if upsert.whole || upsert.output != Patch::Omitted {
            self.output.on_replaced(seq);
        }
    }

    /// The revisions of a removed entry. An entry that is created again under its id has none of its old parts.
    pub(crate) fn removed(body: &Body, revisions: &Self, seq: u64) -> Self {
        let mut revisions =
            Self { fields: seq, meta: seq, cleared: revisions.cleared.clone(), ..Self::default() };
        revisions.clear(body.fields.iter().map(|(name, _)| name.clone()));
        revisions.content.on_replaced(seq);
        revisions.output.on_replaced(seq);
        revisions
    }

    fn clear(&mut self, names: impl Iterator<Item = JsonStr>) {
        for name in names {
            if !self.cleared.contains(&name) {
                self.cleared.push(name);
            }
        }
    }

    fn retain_cleared(&mut self, fields: &Object) {
        if !self.cleared.is_empty() {
            self.cleared.retain(|name| fields.get_key(name).is_none_or(parlor_json::Json::is_null));
        }
    }

    /// The fields for a subscriber that may have any of them: removed fields are null.
    pub(crate) fn fields_with_cleared(&self, body: &Body) -> Object {
        let mut fields = body.fields.clone();
        for name in &self.cleared {
            fields.set(name.clone(), parlor_json::Json::null());
        }
        fields
    }
}

impl SeqRuns {
    /// Tracks a replacement of the list.
    pub(crate) fn on_replaced(&mut self, seq: u64) {
        self.replaced = seq;
        self.runs.clear();
    }

    /// The change that last replaced the list.
    pub(crate) fn replaced_at(&self) -> u64 {
        self.replaced
    }

    /// Tracks an item that is appended at index `end`.
    pub(crate) fn on_appended(&mut self, end: usize, seq: u64) {
        let start = u32::try_from(end).expect("lists are limited to 32-bit indexes");
        if let Some(last) = self.runs.last()
            && last.seq_at(start) == seq
        {
            return;
        }
        self.runs.push(Run { start, seq });
    }

    /// Tracks a chunk that is appended at offset `end`: all of it has one seq.
    pub(crate) fn on_chunk_appended(&mut self, end: usize, seq: u64) {
        let start = u32::try_from(end).expect("lists are limited to 32-bit indexes");
        self.runs.push(Run { start, seq });
    }

    /// The offset of the first chunk after change `seq` in a list of `len`; see [`Self::first_after`].
    pub(crate) fn first_chunk_after(&self, seq: u64, len: usize) -> usize {
        if self.replaced > seq {
            return 0;
        }
        let later = self.runs.partition_point(|run| run.seq <= seq);
        self.runs.get(later).map_or(len, |run| run.start as usize)
    }

    /// The index of the first item after change `seq` in a list of `len` that was not replaced since.
    pub(crate) fn first_after(&self, seq: u64, len: usize) -> usize {
        if self.replaced > seq {
            return 0;
        }
        let later = self.runs.partition_point(|run| run.seq <= seq);
        let end = self.runs.get(later).map_or(len, |run| run.start as usize);
        let Some(run) = later.checked_sub(1).map(|before| self.runs[before]) else { return end };
        let within = run.start as usize + usize::try_from(seq - run.seq + 1).unwrap_or(usize::MAX);
        within.min(end)
    }

    /// The runs of a list of `len`: start, end, seq of the first item.
    pub(crate) fn runs(&self, len: usize) -> impl Iterator<Item = (usize, usize, u64)> + '_ {
        let ends = self.runs.iter().skip(1).map(|run| run.start as usize).chain([len]);
        self.runs.iter().zip(ends).map(|(run, end)| (run.start as usize, end, run.seq))
    }

    /// The number of items that came with the last replacement.
    pub(crate) fn base(&self, len: usize) -> usize {
        self.runs.first().map_or(len, |run| run.start as usize)
    }
}

impl Run {
    fn seq_at(self, index: u32) -> u64 {
        self.seq + u64::from(index - self.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_item_has_the_seq_of_its_change() {
        let mut seqs = SeqRuns::default();
        seqs.on_replaced(3);
        // Two items have seq 3, the next three 5, 6 and 7, the last 20.
        for (index, seq) in [(2, 5), (3, 6), (4, 7), (5, 20)] {
            seqs.on_appended(index, seq);
        }
        for (seq, first) in
            [(2, 0), (3, 2), (4, 2), (5, 3), (6, 4), (7, 5), (8, 5), (19, 5), (20, 6), (99, 6)]
        {
            assert_eq!(seqs.first_after(seq, 6), first, "after {seq}");
        }
        assert_eq!(seqs.runs(6).collect::<Vec<_>>(), [(2, 5, 5), (5, 6, 20)]);
        assert_eq!(seqs.base(6), 2);
    }

    #[test]
    fn a_chunk_has_one_seq() {
        let mut seqs = SeqRuns::default();
        for (index, seq) in [(0, 5), (10, 6), (11, 7)] {
            seqs.on_chunk_appended(index, seq);
        }
        for (seq, first) in [(4, 0), (5, 10), (6, 11), (7, 30), (8, 30)] {
            assert_eq!(seqs.first_chunk_after(seq, 30), first, "after {seq}");
        }
    }

    #[test]
    fn consecutive_chunks_are_one_run() {
        let mut seqs = SeqRuns::default();
        (0..1000).for_each(|index| seqs.on_appended(index, 7 + index as u64));
        assert_eq!(seqs.runs.len(), 1);
    }
}
