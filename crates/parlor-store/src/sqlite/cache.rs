//! The writer's cache of database rows.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::ops::Range;

use super::content::Tail;

/// Rows that the writer has read or written; cleared whenever something was rolled back.
#[derive(Default)]
pub(super) struct WriterCache {
    /// The keys of sessions.
    pub(super) sessions: RecentMap<String, i64>,
    /// The tails of contents that belong to one entry alone, by its session and the change that created it.
    pub(super) tails: RecentMap<(i64, i64), Tail>,
    /// Reserved numbers for new contents.
    pub(super) contents: Range<i64>,
}

/// The number of recent items that are kept at least.
const GENERATION: usize = 4096;

/// A map that drops items that were not used recently: when the new generation is full, it becomes the old one, and
/// the old one is dropped.
pub(super) struct RecentMap<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
}

impl<K: Eq + Hash, V> RecentMap<K, V> {
    /// Removes an item; a caller that goes on using it inserts it again.
    pub(super) fn take<Q>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let young = self.young.remove(key);
        // Removed from both generations, because an item that was written again would otherwise reappear in its old
        // state.
        let old = self.old.remove(key);
        young.or(old)
    }

    /// Returns an item and moves it to the new generation.
    pub(super) fn get<Q>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ToOwned<Owned = K> + ?Sized,
        V: Copy,
    {
        if let Some(value) = self.young.get(key) {
            return Some(*value);
        }
        let value = self.old.remove(key)?;
        self.put(key.to_owned(), value);
        Some(value)
    }

    /// Removes all items whose key does not satisfy the predicate.
    pub(super) fn retain(&mut self, is_kept: impl Fn(&K) -> bool) {
        self.young.retain(|key, _| is_kept(key));
        self.old.retain(|key, _| is_kept(key));
    }

    pub(super) fn put(&mut self, key: K, value: V) {
        if self.young.len() >= GENERATION {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, value);
    }
}

impl<K, V> Default for RecentMap<K, V> {
    fn default() -> Self {
        Self { young: HashMap::new(), old: HashMap::new() }
    }
}
