//! Closing: what was handed in is written.

use std::sync::{Arc, mpsc};

use parlor_store::{Batch, ErrorKind, SqliteStore, Store as _};
use tempfile::tempdir;

use super::common::{all, append, entry, session, try_write, write};

#[test]
fn dropping_the_store_writes_accepted_batches() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("db");
    let store = SqliteStore::open(&path).unwrap();
    write(&store, vec![session("s"), entry("s", 1, 1, "h", "")]);
    let (sender, done) = mpsc::channel();
    for n in 0..2000 {
        let sender = sender.clone();
        let batch = Batch { writes: vec![append("s", 1, n + 2, "x")], durable: false };
        store.write(batch, Box::new(move |result| sender.send(result).unwrap()));
    }
    drop((store, sender));
    // All were told before the drop was over.
    let results: Vec<_> = done.try_iter().collect();
    assert_eq!(results.len(), 2000);
    assert!(results.iter().all(Result::is_ok));
    assert_eq!(all(&SqliteStore::open(&path).unwrap(), "s")[0].content.len(), 2000);
}

#[test]
fn closing_leaves_only_the_database_file() {
    let dir = tempdir().unwrap();
    let store = SqliteStore::open(&dir.path().join("db")).unwrap();
    write(&store, vec![session("s")]);
    assert!(store.session("s").unwrap().is_some());
    drop(store);
    let files: Vec<_> =
        std::fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(files, ["db"]);
}

#[test]
fn a_closed_store_can_be_read_and_releases_the_write_lock() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("db");
    let store = SqliteStore::open(&path).unwrap();
    write(&store, vec![session("s"), entry("s", 1, 1, "h", "")]);
    let (sender, done) = mpsc::channel();
    for n in 0..100 {
        let sender = sender.clone();
        let batch = Batch { writes: vec![append("s", 1, n + 2, "x")], durable: n % 10 == 0 };
        store.write(batch, Box::new(move |result| sender.send(result).unwrap()));
    }
    store.close();
    assert_eq!(done.try_iter().flatten().count(), 100);
    assert_eq!(try_write(&store, vec![append("s", 1, 200, "x")]).unwrap_err().kind, ErrorKind::Closed);
    assert_eq!(all(&store, "s")[0].content.len(), 100);
    let next = SqliteStore::open(&path).unwrap();
    write(&next, vec![append("s", 1, 200, "y")]);
    assert_eq!(all(&next, "s")[0].content.len(), 101);
    // It has no more to do.
    store.close();
}

#[test]
fn a_done_callback_may_own_the_last_reference_to_the_store() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("db");
    let store = Arc::new(SqliteStore::open(&path).unwrap());
    let (sender, done) = mpsc::channel();
    let (go, wait) = mpsc::channel();
    let held = Arc::clone(&store);
    let first = Box::new(move |_| {
        wait.recv().unwrap();
        drop(held);
    });
    // A durable one is written by a thread of the store's.
    store.write(Batch { writes: vec![session("s")], durable: true }, first);
    let second = Box::new(move |result| sender.send(result).unwrap());
    store.write(Batch { writes: vec![session("t")], durable: false }, second);
    drop(store);
    go.send(()).unwrap();
    // What was handed in is written even so.
    done.recv().unwrap().unwrap();
}
