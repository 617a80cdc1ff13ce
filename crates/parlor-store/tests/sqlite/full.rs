//! A disk without room.

use std::path::Path;
use std::sync::mpsc;

use parlor_store::{Batch, ErrorKind, SqliteOptions, SqliteStore, Store as _};
use tempfile::tempdir;

use super::common::{all, append, delete, entry, one, session, try_write, value, write};

/// A store with room for about a MiB.
fn small(path: &Path) -> SqliteStore {
    let options = SqliteOptions { max_pages: Some(300), no_journal: true, ..SqliteOptions::default() };
    SqliteStore::open_with(path, &options).unwrap()
}

#[test]
fn a_full_disk_is_reported_and_no_batch_is_partly_written() {
    let dir = tempdir().unwrap();
    let store = small(&dir.path().join("db"));
    write(&store, vec![session("s"), session("old"), entry("old", 1, 1, "h", &"o".repeat(300_000))]);
    write(&store, vec![entry("s", 1, 1, "h", "begin")]);
    let piece = "p".repeat(10_000);
    let mut text = "begin".to_owned();
    let mut seq = 1;
    let error = loop {
        seq += 1;
        let writes = vec![value("seq", Some(&seq.to_string())), append("s", 1, seq, &piece)];
        match try_write(&store, writes) {
            Ok(()) => text += &piece,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind, ErrorKind::Full);
    let check = |store: &SqliteStore, seq: u64, text: &str| {
        assert_eq!(store.value("seq").unwrap(), Some(seq.to_string()));
        let entry = one(store, "s", 1);
        assert!((entry.seq, entry.content.as_str()) == (seq, text));
    };
    check(&store, seq - 1, &text);
    // What needs no room works, what needs some fails again.
    write(&store, vec![value("small", Some("x"))]);
    assert_eq!(try_write(&store, vec![append("s", 1, seq, &piece)]).unwrap_err().kind, ErrorKind::Full);
    // Room is made.
    write(&store, vec![delete("old")]);
    write(&store, vec![value("seq", Some(&seq.to_string())), append("s", 1, seq, &piece)]);
    check(&store, seq, &(text + &piece));
}

#[test]
fn a_batch_that_frees_space_does_not_fail_with_others() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("db");
    let store = small(&path);
    write(&store, vec![session("s"), session("old"), entry("old", 1, 1, "h", &"o".repeat(800_000))]);
    let (go, wait) = mpsc::channel::<()>();
    // The store's thread is held up, so that what comes meanwhile becomes one group.
    let held_up = Batch { writes: vec![delete("nobody")], durable: false };
    store.write(held_up, Box::new(move |_| wait.recv().unwrap()));
    let (sender, results) = mpsc::channel();
    let long = "l".repeat(600_000);
    for writes in [
        vec![value("before", Some("x"))],
        vec![entry("s", 1, 1, "h", &long)],
        vec![entry("s", 2, 2, "h", "short")],
        vec![delete("old")],
        vec![entry("s", 3, 3, "h", &long)],
    ] {
        let sender = sender.clone();
        let done = move |result: Result<(), parlor_store::StoreError>| {
            sender.send(result.map_err(|error| error.kind)).unwrap();
        };
        store.write(Batch { writes, durable: false }, Box::new(done));
    }
    go.send(()).unwrap();
    drop(sender);
    let results: Vec<_> = results.iter().collect();
    assert_eq!(results, [Ok(()), Err(ErrorKind::Full), Ok(()), Ok(()), Ok(())]);
    drop(store);
    let store = SqliteStore::open(&path).unwrap();
    let created: Vec<_> = all(&store, "s").iter().map(|entry| entry.created).collect();
    assert_eq!(created, [2, 3]);
    assert_eq!(store.value("before").unwrap().as_deref(), Some("x"));
}
