//! What the writer remembers of the database.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::ops::Range;

use super::content::Tail;

/// What the writer knows without asking the database. All of it can be asked for again, so that it is forgotten
/// whenever something was undone.
#[derive(Default)]
pub(super) struct Known {
    /// The keys of sessions.
    pub(super) sessions: Recent<String, i64>,
    /// The ends of contents that belong to one entry alone, by its session and the change that made it.
    pub(super) tails: Recent<(i64, i64), Tail>,
    /// Numbers for new contents that were set aside.
    pub(super) contents: Range<i64>,
}

/// How many things of a kind are remembered at least, if there were as many.
const ENOUGH: usize = 4096;

/// A map that forgets what was not used for long: when the young ones are many, they become the old ones, and the
/// old ones go.
pub(super) struct Recent<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
}

impl<K: Eq + Hash, V> Recent<K, V> {
    /// Takes something out. Who goes on using it puts it in again.
    pub(super) fn take<Q>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let young = self.young.remove(key);
        // Looked for in both, because what was written again while it was old would come back.
        let old = self.old.remove(key);
        young.or(old)
    }

    /// Looks something up, which makes it young again.
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

    /// Keeps only what has such a key.
    pub(super) fn retain(&mut self, is_kept: impl Fn(&K) -> bool) {
        self.young.retain(|key, _| is_kept(key));
        self.old.retain(|key, _| is_kept(key));
    }

    pub(super) fn put(&mut self, key: K, value: V) {
        if self.young.len() >= ENOUGH {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, value);
    }
}

impl<K, V> Default for Recent<K, V> {
    fn default() -> Self {
        Self { young: HashMap::new(), old: HashMap::new() }
    }
}
