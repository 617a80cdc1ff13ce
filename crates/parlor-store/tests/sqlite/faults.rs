//! What goes wrong between the journal and the database.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use parlor_store::{Batch, ErrorKind, SqliteOptions, SqliteStore, Store as _, Write};
use proptest::prelude::*;
use tempfile::{TempDir, tempdir};

use super::common::{
    append, delete, entry, files_of, hold, one, session, snapshot, try_batch, try_write, value, write,
};

fn beside(path: &Path, end: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(end);
    path.into()
}

/// A store with sessions `s` and `t`, each with an entry that the store knows of.
fn two_sessions(dir: &TempDir, options: &SqliteOptions) -> (PathBuf, SqliteStore) {
    let path = dir.path().join("db");
    let store = SqliteStore::open_with(&path, options).unwrap();
    for id in ["s", "t"] {
        write(&store, vec![session(id), entry(id, 1, 1, "h", "")]);
    }
    store.fold().unwrap();
    (path, store)
}

/// Makes the database fail with something other than a constraint when `bad` is written.
fn break_inserts_of_bad(conn: &rusqlite::Connection) {
    conn.execute_batch(
        "CREATE TRIGGER broken BEFORE INSERT ON segments WHEN NEW.text LIKE '%bad%'
         BEGIN SELECT json('{'); END",
    )
    .unwrap();
}

fn durable(writes: Vec<Write>) -> Batch {
    Batch { writes, durable: true }
}

#[test]
fn a_rejected_batch_is_kept_in_a_file_and_does_not_block_others() {
    let dir = tempdir().unwrap();
    let (path, store) = two_sessions(&dir, &SqliteOptions::default());
    let held = hold(&path);
    break_inserts_of_bad(&held);
    write(&store, vec![append("t", 1, 2, "a")]);
    write(&store, vec![append("s", 1, 2, "bad text"), append("s", 1, 2, " and more")]);
    write(&store, vec![append("t", 1, 3, "b")]);
    held.execute_batch("COMMIT").unwrap();
    store.fold().unwrap();
    assert_eq!(one(&store, "t", 1).content, "ab");
    assert_eq!(one(&store, "s", 1).content, "");
    let rejected = fs::read_to_string(beside(&path, ".rejected")).unwrap();
    assert!(rejected.contains("bad text") && rejected.contains("malformed JSON"), "{rejected}");
    assert!(!rejected.contains("\"a\""), "{rejected}");
    // The next one is told.
    assert_eq!(try_write(&store, vec![append("s", 1, 3, "bad again")]).unwrap_err().kind, ErrorKind::Io);
    write(&store, vec![append("t", 1, 4, "c")]);
    write(&store, vec![append("s", 1, 4, "good")]);
    assert_eq!((&*one(&store, "t", 1).content, &*one(&store, "s", 1).content), ("abc", "good"));
}

#[test]
fn a_store_opens_although_the_database_rejects_a_batch_of_the_journal() {
    for only_reads in [false, true] {
        let dir = tempdir().unwrap();
        let (path, store) = two_sessions(&dir, &SqliteOptions::default());
        let held = hold(&path);
        write(&store, vec![append("t", 1, 2, "a")]);
        write(&store, vec![append("s", 1, 2, "bad")]);
        write(&store, vec![append("t", 1, 3, "b")]);
        let left = files_of(&path);
        drop((held, store));
        let path = left.path().join("db");
        break_inserts_of_bad(&rusqlite::Connection::open(&path).unwrap());
        let open = if only_reads { SqliteStore::open_read_only } else { SqliteStore::open };
        let store = open(&path).unwrap();
        assert_eq!((&*one(&store, "t", 1).content, &*one(&store, "s", 1).content), ("ab", ""));
        assert!(fs::read_to_string(beside(&path, ".rejected")).unwrap().contains("\"bad\""));
    }
}

#[test]
fn batches_are_read_on_a_full_disk_until_the_database_rejects_one() {
    let dir = tempdir().unwrap();
    let is_full = Arc::new(AtomicBool::new(false));
    let (path, store) =
        two_sessions(&dir, &SqliteOptions { is_full: Arc::clone(&is_full), ..SqliteOptions::default() });
    let held = hold(&path);
    break_inserts_of_bad(&held);
    write(&store, vec![append("t", 1, 2, "a")]);
    write(&store, vec![append("s", 1, 2, "bad")]);
    is_full.store(true, Ordering::SeqCst);
    held.execute_batch("COMMIT").unwrap();
    assert_eq!(store.fold().unwrap_err().kind, ErrorKind::Full);
    assert_eq!(one(&store, "t", 1).content, "a");
    // It is done, and not rejected yet.
    assert_eq!(one(&store, "s", 1).content, "bad");
    is_full.store(false, Ordering::SeqCst);
    write(&store, vec![append("t", 1, 3, "b")]);
    assert_eq!(one(&store, "t", 1).content, "ab");
    assert_eq!(one(&store, "s", 1).content, "");
    assert!(fs::read_to_string(beside(&path, ".rejected")).unwrap().contains("\"bad\""));
}

#[test]
fn an_entry_with_the_most_segments_still_grows() {
    let dir = tempdir().unwrap();
    let (path, store) = two_sessions(&dir, &SqliteOptions::default());
    write(&store, vec![append("s", 1, 2, "a")]);
    assert_eq!(one(&store, "s", 1).content, "a");
    drop(store);
    let conn = rusqlite::Connection::open(&path).unwrap();
    conn.execute_batch(
        "INSERT INTO segments (key, seq, closed, text)
         SELECT (key >> 20 << 20) | 0xfffff, 2, 1, 'b' FROM segments WHERE text = 'a'",
    )
    .unwrap();
    drop(conn);
    let store = SqliteStore::open(&path).unwrap();
    for (n, text) in (3..).zip(["c", "d", &"e".repeat(20_000), "f"]) {
        write(&store, vec![append("s", 1, n, text)]);
    }
    let grown = one(&store, "s", 1);
    assert_eq!(grown.content, format!("abcd{}f", "e".repeat(20_000)));
    assert_eq!(grown.seq, 6);
}

#[test]
fn a_power_cut_that_undoes_a_direct_write_undoes_later_batches_too() {
    let dir = tempdir().unwrap();
    let (path, store) = two_sessions(&dir, &SqliteOptions::default());
    write(&store, vec![append("s", 1, 2, "a")]);
    drop(store);
    let store = SqliteStore::open(&path).unwrap();
    let before = snapshot(&path);
    // The first write to an entry after a start goes to the database, the next to the journal.
    write(&store, vec![append("s", 1, 3, "b")]);
    let held = hold(&path);
    write(&store, vec![append("s", 1, 4, "c")]);
    fs::copy(beside(&path, ".journal"), before.path().join("db.journal")).unwrap();
    drop((held, store));
    let text = one(&SqliteStore::open(&before.path().join("db")).unwrap(), "s", 1).content;
    assert!("abc".starts_with(&text), "{text}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    /// A power cut leaves the database and its log as they were at some time since the log was last synced, and the
    /// journal as it was at the end.
    #[test]
    fn a_power_cut_leaves_a_prefix_with_all_durable_batches(
        steps in prop::collection::vec((any::<bool>(), prop::bool::weighted(0.2)), 4..16),
    ) {
        let dir = tempdir().unwrap();
        let path = dir.path().join("db");
        let store = SqliteStore::open(&path).unwrap();
        try_batch(&store, durable(vec![session("s"), entry("s", 1, 1, "h", "")])).unwrap();
        let (mut text, mut kept) = (String::new(), 0);
        let mut states = Vec::new();
        // A direct write that was not synced.
        let mut is_log_dirty = true;
        let base = |path: &Path| fs::read(beside(path, ".journal")).unwrap()[..20].to_vec();
        let mut journal = base(&path);
        for (seq, (is_direct, is_durable)) in (2..).zip(steps) {
            states.push(snapshot(&path));
            let letter = char::from(b'a' + u8::try_from(seq % 26).unwrap()).to_string();
            let mut writes = vec![append("s", 1, seq, &letter)];
            if is_direct {
                writes.push(Write::Delete { session: "nobody".into() });
            }
            try_batch(&store, Batch { writes, durable: is_durable }).unwrap();
            text += &letter;
            if is_durable {
                kept = text.len();
            }
            if is_durable && (is_direct || is_log_dirty) || base(&path) != journal {
                states.clear();
                journal = base(&path);
            }
            is_log_dirty = !is_durable && (is_log_dirty || is_direct);
        }
        let last = snapshot(&path);
        if base(&path) != journal {
            states.clear();
        }
        drop(store);
        for state in states {
            fs::copy(last.path().join("db.journal"), state.path().join("db.journal")).unwrap();
            let found = one(&SqliteStore::open(&state.path().join("db")).unwrap(), "s", 1).content;
            prop_assert!(text.starts_with(&found) && found.len() >= kept, "{found} of {text}, {kept} durable");
        }
    }
}

#[test]
fn after_a_failed_sync_nothing_is_durable_until_the_journal_is_emptied() {
    let dir = tempdir().unwrap();
    let fails_sync = Arc::new(AtomicBool::new(false));
    let (path, store) = two_sessions(
        &dir,
        &SqliteOptions { fails_sync: Arc::clone(&fails_sync), ..SqliteOptions::default() },
    );
    let held = hold(&path);
    fails_sync.store(true, Ordering::SeqCst);
    let error = try_batch(&store, durable(vec![append("s", 1, 2, "first,")])).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Io);
    fails_sync.store(false, Ordering::SeqCst);
    // Syncing again would not write what the failed sync has lost.
    try_batch(&store, durable(vec![append("s", 1, 3, "second,")])).unwrap_err();
    write(&store, vec![append("s", 1, 4, "third,")]);
    held.execute_batch("COMMIT").unwrap();
    let begun = Instant::now();
    let mut seq = 5;
    while try_batch(&store, durable(vec![value("n", Some("1")), append("s", 1, seq, ".")])).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(5));
        seq += 1;
    }
    let journal = fs::read(beside(&path, ".journal")).unwrap();
    assert!(!journal.windows(6).any(|window| window == b"third,"));
    assert!(one(&store, "s", 1).content.starts_with("first,second,third,"));
}

#[test]
fn a_panic_during_a_fold_loses_nothing() {
    let dir = tempdir().unwrap();
    let panics = Arc::new(AtomicBool::new(false));
    let (path, store) =
        two_sessions(&dir, &SqliteOptions { panics: Arc::clone(&panics), ..SqliteOptions::default() });
    write(&store, vec![append("s", 1, 2, "a")]);
    panics.store(true, Ordering::SeqCst);
    // It hits this fold, or the store's thread if that is faster.
    drop(catch_unwind(AssertUnwindSafe(|| store.fold())));
    assert!(!panics.load(Ordering::SeqCst));
    assert_eq!(one(&store, "s", 1).content, "a");
    drop(store);
    assert_eq!(one(&SqliteStore::open(&path).unwrap(), "s", 1).content, "a");
}

#[test]
fn queued_batches_fail_when_the_leader_panics() {
    let dir = tempdir().unwrap();
    let panics = Arc::new(AtomicBool::new(false));
    let (path, store) =
        two_sessions(&dir, &SqliteOptions { panics: Arc::clone(&panics), ..SqliteOptions::default() });
    write(&store, vec![append("s", 1, 2, "a")]);
    assert_eq!(one(&store, "s", 1).content, "a");
    panics.store(true, Ordering::SeqCst);
    let batch = Batch { writes: vec![append("s", 1, 3, "b")], durable: false };
    catch_unwind(AssertUnwindSafe(|| store.write(batch, Box::new(drop)))).unwrap_err();
    assert_eq!(try_write(&store, vec![append("s", 1, 3, "c")]).unwrap_err().kind, ErrorKind::Closed);
    assert_eq!(one(&store, "s", 1).content, "a");
    let (sender, ended) = mpsc::channel();
    std::thread::spawn(move || {
        drop(store);
        sender.send(()).unwrap();
    });
    ended.recv_timeout(Duration::from_secs(20)).unwrap();
    assert_eq!(one(&SqliteStore::open(&path).unwrap(), "s", 1).content, "a");
}

#[test]
fn a_batch_that_cannot_be_appended_goes_to_the_database() {
    let dir = tempdir().unwrap();
    let fails_append = Arc::new(AtomicBool::new(false));
    let (path, store) = two_sessions(
        &dir,
        &SqliteOptions { fails_append: Arc::clone(&fails_append), ..SqliteOptions::default() },
    );
    fails_append.store(true, Ordering::SeqCst);
    write(&store, vec![append("s", 1, 2, "first,")]);
    assert_eq!(one(&store, "s", 1).content, "first,");
    write(&store, vec![append("s", 1, 3, "second,")]);
    let journal = fs::read(beside(&path, ".journal")).unwrap();
    assert!(!journal.windows(6).any(|window| window == b"first," || window == b"second"));
    fails_append.store(false, Ordering::SeqCst);
    let held = hold(&path);
    write(&store, vec![append("s", 1, 4, "third")]);
    let left = files_of(&path);
    drop((held, store));
    let text = one(&SqliteStore::open(&left.path().join("db")).unwrap(), "s", 1).content;
    assert_eq!(text, "first,second,third");
}

#[test]
fn batches_wait_only_once_for_the_lock_of_another_process() {
    let dir = tempdir().unwrap();
    let patience = Duration::from_millis(500);
    let options = SqliteOptions { lock_timeout: Some(patience), ..SqliteOptions::default() };
    let (path, store) = two_sessions(&dir, &options);
    let held = hold(&path);
    let begun = Instant::now();
    let (sender, results) = mpsc::channel();
    // These go to the database at once.
    for _ in 0..40 {
        let sender = sender.clone();
        let batch = Batch { writes: vec![Write::Delete { session: "nobody".to_owned() }], durable: false };
        store.write(batch, Box::new(move |result| sender.send(result).unwrap()));
    }
    for _ in 0..40 {
        assert_eq!(results.recv().unwrap().unwrap_err().kind, ErrorKind::Busy);
    }
    assert!(begun.elapsed() >= patience);
    // Those that come later are told at once, also if they come one by one.
    for _ in 0..10 {
        assert_eq!(try_write(&store, vec![delete("nobody")]).unwrap_err().kind, ErrorKind::Busy);
    }
    let time = begun.elapsed();
    assert!(time < patience * 8, "{time:?}");
    // When the lock is free, all is as before.
    drop(held);
    write(&store, vec![delete("nobody")]);
    let held = hold(&path);
    let begun = Instant::now();
    assert_eq!(try_write(&store, vec![delete("nobody")]).unwrap_err().kind, ErrorKind::Busy);
    assert!(begun.elapsed() >= patience);
    drop(held);
}
