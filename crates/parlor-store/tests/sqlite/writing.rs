//! The writer: groups, and what a `done` may do.

use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use parlor_store::{Batch, ErrorKind, SqliteStore, Store as _};
use rusqlite::Connection;
use tempfile::tempdir;

use super::common::{all, append, delete, entry, one, session, try_write, write};

/// Holds up the store's thread, so that what comes meanwhile becomes one group.
fn hold_up(store: &SqliteStore) -> mpsc::Sender<()> {
    let (go, wait) = mpsc::channel::<()>();
    let batch = Batch { writes: vec![delete("nobody")], durable: false };
    store.write(batch, Box::new(move |_| wait.recv().unwrap()));
    go
}

#[test]
fn an_invalid_batch_in_a_group_fails_alone() {
    let dir = tempdir().unwrap();
    let store = SqliteStore::open(&dir.path().join("db")).unwrap();
    write(&store, vec![session("s"), entry("s", 1, 1, "h", "")]);
    let go = hold_up(&store);
    let (sender, results) = mpsc::channel();
    for n in 0..10_u64 {
        let sender = sender.clone();
        let mut writes = vec![append("s", 1, n + 2, &n.to_string()), session(&n.to_string())];
        if n % 3 == 1 {
            writes.push(append("s", 7, 7, "no such entry"));
        }
        store.write(
            Batch { writes, durable: n == 5 },
            Box::new(move |result| sender.send((n, result.map_err(|error| error.kind))).unwrap()),
        );
    }
    go.send(()).unwrap();
    for expected in 0..10 {
        let (n, result) = results.recv().unwrap();
        assert_eq!(n, expected);
        let bad = n % 3 == 1;
        assert_eq!(result, if bad { Err(ErrorKind::Invalid) } else { Ok(()) });
        assert_eq!(store.session(&n.to_string()).unwrap().is_some(), !bad);
    }
    assert_eq!(one(&store, "s", 1).content, "0235689");
}

#[test]
fn a_done_callback_may_write_when_the_queue_is_full() {
    let dir = tempdir().unwrap();
    let store = Arc::new(SqliteStore::open(&dir.path().join("db")).unwrap());
    let (sender, results) = mpsc::channel();
    let inner = Arc::downgrade(&store);
    store.write(
        Batch::default(),
        Box::new(move |_| {
            let store = inner.upgrade().unwrap();
            for n in 0..2000 {
                let batch = Batch { writes: vec![session(&n.to_string())], durable: false };
                let sender = sender.clone();
                store.write(batch, Box::new(move |result| sender.send(result).unwrap()));
            }
        }),
    );
    assert_eq!(results.iter().flatten().count(), 2000);
}

#[test]
fn a_done_callback_that_panics_does_not_stop_the_store() {
    let dir = tempdir().unwrap();
    let store = SqliteStore::open(&dir.path().join("db")).unwrap();
    store.write(Batch::default(), Box::new(|_| panic!("on purpose")));
    write(&store, vec![session("s")]);
    assert!(store.session("s").unwrap().is_some());
}

#[test]
fn a_writer_waits_when_the_queue_is_full() {
    let dir = tempdir().unwrap();
    let store = SqliteStore::open(&dir.path().join("db")).unwrap();
    let go = hold_up(&store);
    std::thread::scope(|scope| {
        let (sender, progress) = mpsc::channel();
        let store = &store;
        scope.spawn(move || {
            for n in 0..5000 {
                store.write(Batch::default(), Box::new(|_| ()));
                sender.send(n).unwrap();
            }
        });
        let mut handed_in = 0;
        while let Ok(n) = progress.recv_timeout(Duration::from_millis(300)) {
            handed_in = n;
        }
        assert!((100..4000).contains(&handed_in), "{handed_in} batches were let in");
        go.send(()).unwrap();
        assert_eq!(progress.iter().last(), Some(4999));
    });
}

#[test]
fn a_store_recovers_from_a_disk_error() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("db");
    let store = SqliteStore::open(&path).unwrap();
    write(&store, vec![session("s"), entry("s", 1, 1, "h", "a")]);
    // Another process holds the lock for longer than the writer waits.
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    write(&store, vec![append("s", 1, 2, "b")]);
    let start = Instant::now();
    // What is done can be read although it cannot be folded, and nothing more is taken.
    assert_eq!(store.fold().unwrap_err().kind, ErrorKind::Busy);
    assert_eq!(one(&store, "s", 1).content, "ab");
    assert_eq!(try_write(&store, vec![append("s", 1, 3, "c")]).unwrap_err().kind, ErrorKind::Busy);
    assert!(start.elapsed() < Duration::from_secs(30));
    other.execute_batch("COMMIT").unwrap();
    assert_eq!(one(&store, "s", 1).content, "ab");
    write(&store, vec![append("s", 1, 3, "d")]);
    assert_eq!(one(&store, "s", 1).content, "abd");
}

#[test]
fn deleting_removes_contents_without_entries() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("db");
    let store = SqliteStore::open(&path).unwrap();
    let conn = Connection::open(&path).unwrap();
    let count = |table: &str| -> i64 {
        conn.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
    };
    let copied = super::common::copy;
    write(
        &store,
        vec![session("a"), entry("a", 1, 1, "h", "x"), entry("a", 2, 2, "h", "y"), append("a", 2, 3, "z")],
    );
    write(&store, vec![session("b"), copied("a", "b", &[(1, 1)])]);
    // What is copied is not written a second time.
    assert_eq!((count("entries"), count("segments")), (3, 3));
    write(&store, vec![delete("a")]);
    assert_eq!((count("entries"), count("segments")), (1, 1));
    write(&store, vec![session("c"), copied("b", "c", &[(1, 1)]), entry("b", 1, 2, "h", "mine")]);
    assert_eq!((count("entries"), count("segments")), (2, 2));
    write(&store, vec![entry("c", 1, 2, "h", ""), delete("b")]);
    assert_eq!((count("entries"), count("segments")), (1, 0));
    write(&store, vec![delete("c")]);
    assert_eq!((count("entries"), count("sessions")), (0, 0));
    assert!(all(&store, "c").is_empty());
}
