//! A disk that hangs: reads go on while a write to the database or the journal does not return.

use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use parlor_store::{
    Batch, Cursor, Filter, Gate, Hold, Query, Search, SessionRow, SqliteOptions, SqliteStore, Store, Write,
};
use tempfile::{TempDir, tempdir};

use super::common::{
    append, copy, delete, entry, head, hits_of, hold, index, indexed_entry, row, session, slot, value, write,
};

/// A store whose disk can hang.
struct Stalled {
    store: Arc<SqliteStore>,
    journal: Arc<Gate>,
    database: Arc<Gate>,
    path: PathBuf,
    _dir: TempDir,
}

impl Stalled {
    /// Opens a store with batches that are in the database.
    fn new(batches: Vec<Vec<Write>>) -> Self {
        let dir = tempdir().unwrap();
        let path = dir.path().join("db");
        let options = SqliteOptions::default();
        let (journal, database) = (Arc::clone(&options.journal_gate), Arc::clone(&options.database_gate));
        let store = Arc::new(SqliteStore::open_with(&path, &options).unwrap());
        for batch in batches {
            write(&*store, batch);
        }
        store.fold().unwrap();
        Self { store, journal, database, path, _dir: dir }
    }

    /// Writes batches, which are done, and waits until the write that folds them hangs.
    fn stall(&self, batches: Vec<Vec<Write>>) -> Hold {
        let hold = self.database.hold(1);
        for batch in batches {
            write(&*self.store, batch);
        }
        within_timeout(move || {
            hold.wait();
            hold
        })
    }

    /// Reads while a write hangs.
    fn read<T: Send + 'static>(&self, read: impl FnOnce(&SqliteStore) -> T + Send + 'static) -> T {
        let store = Arc::clone(&self.store);
        within_timeout(move || read(&store))
    }
}

/// Runs a call that must end although the disk hangs.
fn within_timeout<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, result) = mpsc::channel();
    thread::spawn(move || drop(sender.send(call())));
    result.recv_timeout(Duration::from_secs(20)).expect("the call does not wait for the disk")
}

/// Everything that a store returns about the sessions `a` to `d`.
fn everything(store: &SqliteStore) -> String {
    let mut found = String::new();
    let mut add = |part: String| {
        found += &part;
        found.push('\n');
    };
    for key in ["k", "new", "gone"] {
        add(format!("{key}: {:?}", store.value(key)));
    }
    let filters = [
        Filter::default(),
        Filter { archived: Some(false), ..Filter::default() },
        Filter { archived: Some(true), ..Filter::default() },
        Filter { busy: Some(true), ..Filter::default() },
        Filter { cwd: Some("/".to_owned()), ..Filter::default() },
        Filter { owned: true, agent: Some("agent".to_owned()), ..Filter::default() },
    ];
    for filter in filters {
        for limit in 1..4 {
            let mut after: Option<Cursor> = None;
            loop {
                let page = store.sessions(&filter, after.as_ref(), limit).unwrap();
                assert!(page.len() <= limit);
                add(format!("{filter:?} {limit}: {page:?}"));
                let Some(last) = page.last() else { break };
                after = Some(Cursor { active_at: last.active_at, id: last.id.clone() });
            }
        }
    }
    for id in ["a", "b", "c", "d"] {
        add(format!("{id}: {:?}", store.session(id)));
        for since in 0..12 {
            add(format!("slots of {id} since {since}: {:?}", store.slots(id, since)));
            for bytes in [0, 10, 30, usize::MAX] {
                let mut after = 0;
                loop {
                    let page = store.entries(id, since, after, bytes).unwrap();
                    add(format!("entries of {id} since {since} after {after}, {bytes} bytes: {page:?}"));
                    let Some(last) = page.last() else { break };
                    after = last.created;
                }
            }
        }
    }
    found
}

/// Rows of every kind, in the database.
fn stored() -> Vec<Vec<Write>> {
    let archived = Write::Session(SessionRow { archived: true, active_at: 7, ..row("c") });
    vec![
        vec![session("a"), session("b"), archived, value("k", Some("1")), value("gone", Some("1"))],
        vec![slot("a", "one", 1, Some("x")), slot("a", "two", 2, Some("y")), slot("b", "one", 1, Some("x"))],
        (1..=6).map(|n| entry("a", n, n, &format!("head {n}"), &format!("text {n}"))).collect(),
        vec![copy("a", "b", &[(1, 1), (2, 2), (3, 3)])],
        // The store does not remember copied entries, and an append to one would not go to the journal.
        vec![head("b", 1, 1, "h")],
    ]
}

/// Batches that go to the journal, and change, add and remove rows.
fn changes() -> Vec<Vec<Write>> {
    let owned = Write::Session(SessionRow { owner: Some("a".to_owned()), active_at: 9, ..row("d") });
    let busy = Write::Session(SessionRow { busy: true, active_at: 5, ..row("a") });
    let restored = Write::Session(SessionRow { archived: false, cwd: "/elsewhere".to_owned(), ..row("c") });
    vec![
        vec![value("k", Some("2")), value("new", Some("1")), value("gone", None)],
        vec![busy, owned, slot("d", "one", 1, Some("x"))],
        vec![slot("a", "one", 9, None), slot("a", "two", 8, Some("z")), slot("a", "zero", 9, Some("0"))],
        // More text, a new head, new content, and all of them.
        vec![append("a", 2, 8, " more"), append("a", 2, 9, " and more")],
        vec![head("a", 3, 9, "new head")],
        vec![entry("a", 4, 9, "newer head", "new content")],
        vec![entry("a", 5, 10, "h", "new"), append("a", 5, 11, " content"), head("a", 5, 9, "other head")],
        // New entries, with an earlier seq and without content.
        vec![entry("a", 7, 9, "seventh", "text"), head("a", 9, 10, "ninth"), append("a", 9, 11, "text")],
        vec![head("d", 1, 1, "first"), append("d", 1, 2, "text")],
        // Entries that share their content.
        vec![append("b", 1, 4, " more"), entry("b", 2, 5, "h", "own"), head("b", 3, 6, "new head")],
        vec![restored],
    ]
}

#[test]
fn reads_see_all_batches_that_are_done_while_a_fold_hangs() {
    let place = Stalled::new(stored());
    let before = everything(&place.store);
    let hold = place.stall(changes());
    let during = place.read(everything);
    assert_ne!(during, before);
    drop(hold);
    place.store.fold().unwrap();
    assert_eq!(during, everything(&place.store));
}

#[test]
fn reads_see_batches_that_are_done_while_an_earlier_fold_hangs() {
    let place = Stalled::new(stored());
    let mut changes = changes();
    let later = changes.split_off(changes.len() / 2);
    let hold = place.stall(changes);
    for batch in later {
        write(&*place.store, batch);
    }
    let during = place.read(everything);
    drop(hold);
    place.store.fold().unwrap();
    assert_eq!(during, everything(&place.store));
}

/// The hits of several searches, each sorted: the order is that of the index only for what is in it.
fn hits(store: &SqliteStore) -> Vec<(String, Vec<(String, u64)>)> {
    let mut found = Vec::new();
    for query in ["common", "old", "new", "title", "word1", "word2", "word3", "changed", "fresh -changed"] {
        let all = Search { query: Query::parse(query), ..Search::default() };
        for search in [
            Search { session: Some("a".to_owned()), ..all.clone() },
            Search { cwd: Some("/elsewhere".to_owned()), ..all.clone() },
            Search { kind: Some("title".to_owned()), ..all.clone() },
            Search { since: Some(4), agent: Some("agent".to_owned()), ..all.clone() },
            all,
        ] {
            let hits = store.search(&search, 0, 100).unwrap();
            for n in 0..hits.len() {
                assert_eq!(store.search(&search, n, 1).unwrap(), hits[n..=n]);
            }
            found.push((format!("{search:?}"), hits_of(store, &search)));
        }
    }
    found
}

#[test]
fn searches_find_what_is_indexed_while_a_fold_hangs() {
    let titled =
        |id: &str, title: &str| Write::Session(SessionRow { title: Some(format!("\"{title}\"")), ..row(id) });
    let mut stored = vec![vec![titled("a", "old title"), session("b")]];
    stored.extend((1..=4).map(|n| indexed_entry("a", n, &format!("common word{n}")).to_vec()));
    let place = Stalled::new(stored);
    let before = hits(&place.store);
    let hold = place.stall(vec![
        vec![titled("a", "new title")],
        // Entries that are changed, cleared and new.
        vec![entry("a", 2, 5, "h", "x"), index("a", 2, 5, "common changed")],
        vec![entry("a", 3, 6, "h", "x")],
        indexed_entry("a", 7, "common fresh").to_vec(),
        indexed_entry("b", 8, "common fresh").to_vec(),
    ]);
    let during = place.read(hits);
    drop(hold);
    place.store.fold().unwrap();
    assert_ne!(during, before);
    assert_eq!(during, hits(&place.store));
}

#[test]
fn reads_go_on_while_an_append_to_the_journal_hangs() {
    let place = Stalled::new(stored());
    let hold = place.stall(changes());
    let journal = place.journal.hold(1);
    let (store, (sender, done)) = (Arc::clone(&place.store), mpsc::channel());
    let writing = thread::spawn(move || {
        let batch = Batch { writes: vec![value("k", Some("3"))], durable: false };
        store.write(batch, Box::new(move |result| sender.send(result).unwrap()));
    });
    let journal = within_timeout(move || {
        journal.wait();
        journal
    });
    let during = place.read(everything);
    assert!(done.try_recv().is_err(), "the batch is not done");
    drop((hold, journal));
    done.recv().unwrap().unwrap();
    writing.join().unwrap();
    assert_eq!(place.store.value("k").unwrap().as_deref(), Some("3"));
    write(&*place.store, vec![value("k", Some("2"))]);
    assert_eq!(during, everything(&place.store));
}

#[test]
fn reads_go_on_while_a_batch_that_goes_to_the_database_hangs() {
    let place = Stalled::new(stored());
    let before = everything(&place.store);
    let hold = place.database.hold(1);
    let (sender, done) = mpsc::channel();
    let batch = Batch { writes: vec![delete("a")], durable: true };
    place.store.write(batch, Box::new(move |result| sender.send(result).unwrap()));
    let hold = within_timeout(move || {
        hold.wait();
        hold
    });
    assert_eq!(place.read(everything), before);
    drop(hold);
    done.recv().unwrap().unwrap();
    assert_eq!(place.store.session("a").unwrap(), None);
}

#[test]
fn reads_go_on_while_another_process_has_the_database_locked() {
    let place = Stalled::new(stored());
    let held = hold(&place.path);
    for batch in changes() {
        write(&*place.store, batch);
    }
    let during = place.read(everything);
    held.execute_batch("COMMIT").unwrap();
    place.store.fold().unwrap();
    assert_eq!(during, everything(&place.store));
}
