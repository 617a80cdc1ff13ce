//! Lists that are read page by page while sessions change.

use std::collections::{BTreeMap, BTreeSet};

use parlor_server::agent_sessions;
use parlor_store::{Batch, Cursor, Filter, MemoryStore, SessionRow, Store, Write};
use proptest::prelude::*;

/// A change between two pages.
#[derive(Debug, Clone)]
enum Change {
    /// A session of the server has activity.
    Touched(usize),
    /// A session is created.
    Begun,
    /// A session is deleted.
    Deleted(usize),
    /// A session that only its agent has is adopted.
    Adopted(usize),
    /// The clock is set back.
    Clock(i64),
}

fn changes() -> impl Strategy<Value = Change> {
    prop_oneof![
        4 => (0..40_usize).prop_map(Change::Touched),
        2 => Just(Change::Begun),
        1 => (0..40_usize).prop_map(Change::Deleted),
        1 => (0..40_usize).prop_map(Change::Adopted),
        1 => (-50..50_i64).prop_map(Change::Clock),
    ]
}

fn row(id: &str, active_at: i64) -> SessionRow {
    SessionRow {
        id: format!("\"{id}\""),
        agent: "a".to_owned(),
        agent_session: None,
        cwd: "/".to_owned(),
        title: None,
        parent: None,
        owner: None,
        created_at: 1,
        active_at,
        archived: false,
        busy: false,
        data: "{}".to_owned(),
    }
}

struct World {
    store: MemoryStore,
    own: Vec<SessionRow>,
    known: Vec<SessionRow>,
    now: i64,
    begun: usize,
    /// The sessions that changed since the first page.
    touched: BTreeSet<String>,
}

impl World {
    fn new(own: &[i64], known: &[i64]) -> Self {
        let mut world = Self {
            store: MemoryStore::default(),
            own: Vec::new(),
            known: Vec::new(),
            now: 100,
            begun: 0,
            touched: BTreeSet::new(),
        };
        for (n, at) in own.iter().enumerate() {
            world.put(row(&format!("own{n}"), *at));
        }
        world.known = known.iter().enumerate().map(|(n, at)| row(&format!("known{n}"), *at)).collect();
        world.known.sort_by(|a, b| (b.active_at, &a.id).cmp(&(a.active_at, &b.id)));
        world
    }

    fn write(&self, write: Write) {
        self.store.write(Batch { writes: vec![write], durable: false }, Box::new(|done| done.unwrap()));
    }

    fn put(&mut self, row: SessionRow) {
        self.write(Write::Session(row.clone()));
        self.own.retain(|other| other.id != row.id);
        self.own.push(row);
    }

    fn apply(&mut self, change: &Change) {
        self.now += 1;
        match change {
            Change::Touched(n) => {
                let Some(mut row) = self.own.get(*n % self.own.len().max(1)).cloned() else { return };
                // As a session's task does it.
                row.active_at = self.now.max(row.active_at);
                self.touched.insert(row.id.clone());
                self.put(row);
            }
            Change::Begun => {
                self.begun += 1;
                let row = row(&format!("new{}", self.begun), self.now);
                self.touched.insert(row.id.clone());
                self.put(row);
            }
            Change::Deleted(n) => {
                if self.own.is_empty() {
                    return;
                }
                let row = self.own.remove(*n % self.own.len());
                self.touched.insert(row.id.clone());
                // As a session's task does it: its agent may still list it.
                agent_sessions::deleted_agent_session(&row).into_iter().for_each(|write| self.write(write));
                self.write(Write::Delete { session: row.id });
            }
            Change::Adopted(n) => {
                let Some(mut row) = self.known.get(*n % self.known.len().max(1)).cloned() else { return };
                row.agent_session = Some(row.id.clone());
                row.active_at = self.now.max(row.active_at);
                self.touched.insert(row.id.clone());
                self.put(row);
            }
            Change::Clock(by) => self.now += by,
        }
    }
}

proptest! {
    #[test]
    fn an_unchanged_session_is_listed_once_and_any_other_at_most_once(
        own in prop::collection::vec(0..60_i64, 0..20),
        known in prop::collection::vec(0..60_i64, 0..20),
        size in 1..7_usize,
        pages in prop::collection::vec(prop::collection::vec(changes(), 0..4), 0..20),
    ) {
        let mut world = World::new(&own, &known);
        let there: BTreeSet<String> =
            world.own.iter().chain(&world.known).map(|row| row.id.clone()).collect();
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        let mut after = None;
        let mut last_place = None;
        for n in 0.. {
            let page = agent_sessions::page(&world.store, &world.known, &Filter::default(), after.as_ref(), size).unwrap();
            for row in &page {
                *seen.entry(row.id.clone()).or_default() += 1;
                let place = (std::cmp::Reverse(row.active_at), row.id.clone());
                prop_assert!(last_place.as_ref().is_none_or(|last| *last < place), "it is in order");
                last_place = Some(place);
            }
            if page.len() < size {
                break;
            }
            after = page.last().map(|row| Cursor { active_at: row.active_at, id: row.id.clone() });
            pages.get(n).into_iter().flatten().for_each(|happens| world.apply(happens));
        }
        for id in there.difference(&world.touched) {
            prop_assert_eq!(seen.get(id), Some(&1), "{} was there all the time", id);
        }
        for (id, times) in &seen {
            prop_assert_eq!(*times, 1, "{} is listed once", id);
        }
    }
}
