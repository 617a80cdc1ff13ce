//! The journal: what is done and not yet in the database.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parlor_store::{Batch, ErrorKind, SqliteOptions, SqliteStore, Store, Write};
use rusqlite::Connection;
use tempfile::{TempDir, tempdir};

use super::common::{
    all, append, copy, delete, entry, files_of, hold, indexed_entry, one, session, snapshot, try_batch,
    try_write, value, write,
};

fn journal_of(path: &Path) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(".journal");
    path.into()
}

/// A store with a session and an entry, of which the database knows.
fn with_entry(dir: &TempDir, options: &SqliteOptions) -> (PathBuf, SqliteStore) {
    let path = dir.path().join("db");
    let store = SqliteStore::open_with(&path, options).unwrap();
    write(&store, vec![session("s"), entry("s", 1, 1, "h", "")]);
    store.fold().unwrap();
    (path, store)
}

/// The bytes of a journal up to its last record.
fn records(path: &Path) -> Vec<u8> {
    let mut bytes = fs::read(journal_of(path)).unwrap();
    while bytes.last() == Some(&0) {
        bytes.pop();
    }
    bytes
}

#[test]
fn a_batch_is_done_before_it_is_folded_into_the_database() {
    let dir = tempdir().unwrap();
    let (path, store) = with_entry(&dir, &SqliteOptions::default());
    let conn = Connection::open(&path).unwrap();
    let text = || -> String {
        conn.query_row("SELECT coalesce(group_concat(text, ''), '') FROM segments", [], |row| row.get(0))
            .unwrap()
    };
    // A lock on the database keeps nobody from writing.
    let other = hold(&path);
    for n in 0..100 {
        write(&store, vec![append("s", 1, n + 2, "x")]);
    }
    assert_eq!(text(), "");
    other.execute_batch("COMMIT").unwrap();
    let begun = Instant::now();
    while text().len() < 100 {
        assert!(begun.elapsed() < Duration::from_secs(20), "{}", text());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn many_appends_to_an_entry_are_folded_into_one_row() {
    let dir = tempdir().unwrap();
    let (path, store) = with_entry(&dir, &SqliteOptions::default());
    let other = hold(&path);
    write(&store, vec![entry("s", 2, 2, "h", "")]);
    for n in 0..50 {
        write(&store, vec![append("s", 1, 3 + n, "a"), append("s", 2, 3 + n, "b")]);
    }
    other.execute_batch("COMMIT").unwrap();
    store.fold().unwrap();
    for (created, text) in [(1, "a"), (2, "b")] {
        let entry = one(&store, "s", created);
        assert_eq!((entry.seq, entry.content), (52, text.repeat(50)));
    }
    let rows: i64 = other.query_row("SELECT count(*) FROM segments", [], |row| row.get(0)).unwrap();
    assert_eq!(rows, 2);
}

#[test]
fn the_journal_of_a_killed_process_is_folded_by_the_next_writer_or_reader() {
    for only_reads in [false, true] {
        let dir = tempdir().unwrap();
        let (path, store) = with_entry(&dir, &SqliteOptions::default());
        let held = hold(&path);
        write(&store, vec![append("s", 1, 2, "left")]);
        write(&store, indexed_entry("s", 3, "some words").into());
        write(&store, vec![value("k", Some("v")), session("t")]);
        let left = files_of(&path);
        drop((held, store));
        let path = left.path().join("db");
        assert!(!records(&path).is_empty());
        let open = if only_reads { SqliteStore::open_read_only } else { SqliteStore::open };
        let store = open(&path).unwrap();
        let entries = all(&store, "s");
        assert_eq!(entries.iter().map(|entry| &*entry.content).collect::<Vec<_>>(), ["left", "some words"]);
        assert_eq!(super::common::hits(&store, "words"), [("s".to_owned(), 3)]);
        assert_eq!(store.value("k").unwrap().as_deref(), Some("v"));
        assert!(store.session("t").unwrap().is_some());
        drop(store);
        assert!(!journal_of(&path).exists());
        // Nothing is folded twice.
        let store = SqliteStore::open(&path).unwrap();
        assert_eq!(one(&store, "s", 1).content, "left");
        write(&store, vec![append("s", 1, 4, "!")]);
        assert_eq!(one(&store, "s", 1).content, "left!");
    }
}

#[test]
fn a_power_cut_keeps_durable_batches_and_leaves_whole_batches() {
    let dir = tempdir().unwrap();
    let (path, store) = with_entry(&dir, &SqliteOptions::default());
    let held = hold(&path);
    write(&store, vec![append("s", 1, 2, "a")]);
    try_batch(&store, Batch { writes: vec![append("s", 1, 3, "b")], durable: true }).unwrap();
    let synced = records(&path).len();
    for n in 0..3 {
        write(&store, vec![append("s", 1, n + 4, "c"), append("s", 1, n + 4, "d")]);
    }
    let left = files_of(&path);
    let bytes = records(&left.path().join("db"));
    drop((held, store));
    assert!(bytes.len() > synced);
    let mut texts = Vec::new();
    for cut in synced..=bytes.len() {
        let dir = tempdir().unwrap();
        let path = dir.path().join("db");
        for file in ["db", "db-wal"] {
            fs::copy(left.path().join(file), dir.path().join(file)).unwrap();
        }
        fs::write(journal_of(&path), &bytes[..cut]).unwrap();
        texts.push(one(&SqliteStore::open(&path).unwrap(), "s", 1).content);
        assert_eq!(damaged(&path), []);
    }
    texts.dedup();
    assert_eq!(texts, ["ab", "abcd", "abcdcd", "abcdcdcd"]);
}

/// A database whose journal has synced batches that were not folded.
fn with_synced_journal() -> (TempDir, PathBuf) {
    let dir = tempdir().unwrap();
    let (path, store) = with_entry(&dir, &SqliteOptions::default());
    let held = hold(&path);
    for n in 0..4 {
        try_batch(&store, Batch { writes: vec![append("s", 1, n + 2, "text")], durable: true }).unwrap();
    }
    let left = files_of(&path);
    drop(held);
    let path = left.path().join("db");
    (left, path)
}

/// Where each record of a journal begins, and where the last one ends.
fn boundaries(bytes: &[u8]) -> Vec<usize> {
    let mut places = vec![20];
    while let Some(length) = bytes.get(places[places.len() - 1]..).and_then(|rest| rest.first_chunk()) {
        let length = usize::try_from(u32::from_le_bytes(*length)).unwrap();
        places.push(places[places.len() - 1] + 16 + length);
    }
    places
}

/// A copy of a database with this journal.
fn with_journal(left: &Path, bytes: &[u8]) -> (TempDir, PathBuf) {
    let dir = tempdir().unwrap();
    let path = dir.path().join("db");
    for end in ["", "-wal"] {
        fs::copy(beside(left, end), beside(&path, end)).unwrap();
    }
    fs::write(journal_of(&path), bytes).unwrap();
    (dir, path)
}

fn beside(path: &Path, end: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(end);
    path.into()
}

/// The damaged journals that are kept, and what is said of them.
fn damaged(path: &Path) -> Vec<(PathBuf, String)> {
    let mut found: Vec<_> =
        fs::read_dir(path.parent().unwrap()).unwrap().map(|file| file.unwrap().path()).collect();
    found.retain(|path| path.to_str().unwrap().contains("damaged"));
    found.sort();
    let errors = SqliteStore::damaged_journals(path).unwrap();
    assert!(errors.iter().all(|error| error.kind == ErrorKind::DamagedJournal), "{errors:?}");
    assert_eq!(errors.len(), found.len());
    found.into_iter().zip(errors.into_iter().map(|error| error.message)).collect()
}

#[test]
fn a_damaged_record_is_reported_and_the_journal_is_kept() {
    let (_left, left) = with_synced_journal();
    let bytes = records(&left);
    let places = boundaries(&bytes);
    assert_eq!(places.len(), 6, "one record that is folded and four that are not");
    for only_reads in [false, true] {
        for n in 0..4 {
            let (start, next) = (places[n + 1], places[n + 2]);
            // The length, the checksum, the synced position, the batch, the end.
            for place in [start, start + 3, start + 4, start + 8, start + 20, next - 2, next - 1] {
                let mut bytes = bytes.clone();
                bytes[place] ^= 4;
                let (_dir, path) = with_journal(&left, &bytes);
                let open = if only_reads { SqliteStore::open_read_only } else { SqliteStore::open };
                let store = open(&path).unwrap();
                assert_eq!(one(&store, "s", 1).content, "text".repeat(n), "{place}");
                let [(kept, message)] = &damaged(&path)[..] else { panic!("{:?}", damaged(&path)) };
                assert!(fs::read(kept).unwrap() == bytes);
                let name = kept.file_name().unwrap().to_str().unwrap();
                assert_eq!(name, "db.journal.damaged-1");
                let part = format!("{name}: the record at byte {start} is damaged");
                assert!(message.contains(&part), "{message}");
                let lost = ["3 whole records", "2 whole records", "1 whole record ", ""][n];
                assert!(message.contains(lost), "{message}");
                drop(store);
                // Work goes on, and the rest does not come back.
                let store = SqliteStore::open(&path).unwrap();
                write(&store, vec![append("s", 1, 9, "more")]);
                assert_eq!(one(&store, "s", 1).content, "text".repeat(n) + "more");
                drop(store);
                assert!(!journal_of(&path).exists());
                assert_eq!(damaged(&path).len(), 1);
            }
        }
    }
}

#[test]
fn a_journal_that_ends_in_the_middle_of_its_last_record_is_not_damaged() {
    let (_left, left) = with_synced_journal();
    let bytes = records(&left);
    let places = boundaries(&bytes);
    for cut in places[4]..places[5] {
        for zeros in [0, 1000] {
            let mut bytes = bytes[..cut].to_vec();
            bytes.resize(cut + zeros, 0);
            let (_dir, path) = with_journal(&left, &bytes);
            let store = SqliteStore::open(&path).unwrap();
            assert_eq!(one(&store, "s", 1).content, "text".repeat(3), "{cut} {zeros}");
            assert_eq!(damaged(&path), []);
        }
    }
}

#[test]
fn a_file_that_is_not_a_journal_is_kept() {
    let (_left, left) = with_synced_journal();
    let (_dir, path) = with_journal(&left, b"this is not a journal at all");
    assert_eq!(one(&SqliteStore::open(&path).unwrap(), "s", 1).content, "");
    let [(kept, message)] = &damaged(&path)[..] else { panic!() };
    assert!(message.contains("its header is damaged"), "{message}");
    assert_eq!(fs::read(kept).unwrap(), b"this is not a journal at all");
}

#[test]
fn a_journal_of_a_later_version_is_rejected_and_not_changed() {
    let (_left, path) = with_synced_journal();
    let mut bytes = b"prlrjrn\x7f\0\0\0\0\0\0\0\0".to_vec();
    // The CRC-32 of these.
    bytes.extend(0x6598_1326_u32.to_le_bytes());
    fs::write(journal_of(&path), &bytes).unwrap();
    for result in [SqliteStore::open(&path), SqliteStore::open_read_only(&path)] {
        let error = result.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Newer, "{error}");
        assert!(error.message.contains("db.journal: it has version 127"), "{error}");
    }
    assert_eq!(fs::read(journal_of(&path)).unwrap(), bytes);
}

#[test]
fn four_damaged_journals_are_kept_and_the_oldest_is_replaced() {
    let (_left, path) = with_synced_journal();
    for n in 0..6 {
        fs::write(journal_of(&path), format!("no journal {n}")).unwrap();
        drop(SqliteStore::open(&path).unwrap());
        // Files that are made at once may have the same age.
        for (age, (kept, _)) in (0..).zip(damaged(&path)) {
            let text = fs::read_to_string(&kept).unwrap();
            let made: u64 = text.strip_prefix("no journal ").unwrap().parse().unwrap();
            let time = std::time::UNIX_EPOCH + Duration::from_secs(1000 + made);
            fs::File::options().write(true).open(&kept).unwrap().set_modified(time).unwrap();
            assert!(age < 4);
        }
    }
    let mut texts: Vec<_> =
        damaged(&path).into_iter().map(|(kept, _)| fs::read_to_string(kept).unwrap()).collect();
    texts.sort();
    assert_eq!(texts, (2..6).map(|n| format!("no journal {n}")).collect::<Vec<_>>());
}

#[test]
fn a_journal_is_not_folded_into_an_older_copy_of_the_database() {
    let dir = tempdir().unwrap();
    let (path, store) = with_entry(&dir, &SqliteOptions::default());
    let older = snapshot(&path);
    write(&store, vec![append("s", 1, 2, "a")]);
    drop(store);
    let store = SqliteStore::open(&path).unwrap();
    assert_eq!(all(&store, "s").len(), 1);
    for n in 0..3 {
        try_batch(&store, Batch { writes: vec![append("s", 1, n + 3, "b")], durable: true })
            .unwrap_or_else(|error| panic!("{error}"));
    }
    // Journals are emptied: this one begins behind what the older copy knows of.
    let left = snapshot(&path);
    drop(store);
    fs::copy(left.path().join("db.journal"), older.path().join("db.journal")).unwrap();
    let older = older.path().join("db");
    assert_eq!(one(&SqliteStore::open(&older).unwrap(), "s", 1).content, "");
    assert_eq!(damaged(&older).len(), 1);
}

#[test]
fn a_new_database_ignores_an_old_journal() {
    let (_left, path) = with_synced_journal();
    fs::remove_file(&path).unwrap();
    fs::remove_file(path.with_file_name("db-wal")).unwrap();
    let store = SqliteStore::open(&path).unwrap();
    assert_eq!(store.session("s").unwrap(), None);
}

#[test]
fn a_full_disk_fails_journal_writes_until_there_is_space() {
    let dir = tempdir().unwrap();
    let is_full = Arc::new(AtomicBool::new(false));
    let options = SqliteOptions { is_full: Arc::clone(&is_full), ..SqliteOptions::default() };
    let (path, store) = with_entry(&dir, &options);
    let held = hold(&path);
    write(&store, vec![append("s", 1, 2, "a")]);
    is_full.store(true, Ordering::SeqCst);
    drop(held);
    for n in 0..3 {
        let error = try_write(&store, vec![append("s", 1, n + 3, "refused")]).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Full);
    }
    // What is done can be read although it cannot be folded, by this process, again and again.
    for _ in 0..3 {
        let entry = one(&store, "s", 1);
        assert_eq!((entry.seq, &*entry.content), (2, "a"));
    }
    // Nothing more is taken, by either way.
    for writes in [vec![value("k", Some("v"))], vec![delete("s")], vec![copy("s", "s", &[(1, 9)])]] {
        assert_eq!(try_write(&store, writes).unwrap_err().kind, ErrorKind::Full);
    }
    is_full.store(false, Ordering::SeqCst);
    write(&store, vec![append("s", 1, 6, "b")]);
    assert_eq!(one(&store, "s", 1).content, "ab");
    drop(store);
    assert_eq!(one(&SqliteStore::open(&path).unwrap(), "s", 1).content, "ab");
}

#[test]
fn a_store_that_is_closed_on_a_full_disk_keeps_its_journal() {
    let dir = tempdir().unwrap();
    let is_full = Arc::new(AtomicBool::new(false));
    let options = SqliteOptions { is_full: Arc::clone(&is_full), ..SqliteOptions::default() };
    let (path, store) = with_entry(&dir, &options);
    let held = hold(&path);
    write(&store, vec![append("s", 1, 2, "a")]);
    is_full.store(true, Ordering::SeqCst);
    drop(held);
    drop(store);
    assert!(journal_of(&path).exists());
    assert_eq!(one(&SqliteStore::open(&path).unwrap(), "s", 1).content, "a");
}

#[test]
fn a_session_that_another_process_deleted_does_not_affect_others() {
    let dir = tempdir().unwrap();
    let (path, store) = with_entry(&dir, &SqliteOptions::default());
    write(&store, vec![session("t"), entry("t", 1, 1, "h", "")]);
    store.fold().unwrap();
    let other = hold(&path);
    other.execute_batch("DELETE FROM sessions WHERE id = 's'").unwrap();
    write(&store, vec![append("t", 1, 2, "a")]);
    write(&store, vec![append("s", 1, 2, "lost")]);
    write(&store, vec![append("t", 1, 3, "b")]);
    other.execute_batch("COMMIT").unwrap();
    store.fold().unwrap();
    assert_eq!(one(&store, "t", 1).content, "ab");
    // What is written from now on is checked again.
    assert_eq!(try_write(&store, vec![append("s", 1, 3, "x")]).unwrap_err().kind, ErrorKind::Invalid);
    write(&store, vec![append("t", 1, 4, "c")]);
    assert_eq!(one(&store, "t", 1).content, "abc");
}

#[test]
fn a_reader_sees_all_batches_that_are_done() {
    let dir = tempdir().unwrap();
    let (path, store) = with_entry(&dir, &SqliteOptions::default());
    let reader = SqliteStore::open_read_only(&path).unwrap();
    let begun = Instant::now();
    // Longer than it takes until the journal is emptied.
    for n in 0.. {
        if begun.elapsed() > Duration::from_millis(2500) {
            break;
        }
        let writes = vec![append("s", 1, n + 2, "x"), value("n", Some(&n.to_string()))];
        try_batch(&store, Batch { writes, durable: n % 7 == 0 }).unwrap();
        if n % 5 == 0 {
            assert_eq!(reader.value("n").unwrap(), Some(n.to_string()));
        }
        if n % 50 == 0 {
            assert_eq!(SqliteStore::open_read_only(&path).unwrap().value("n").unwrap(), Some(n.to_string()));
        }
    }
}

#[test]
fn a_reader_reports_a_process_that_does_not_fold_its_journal() {
    let dir = tempdir().unwrap();
    let (path, store) = with_entry(&dir, &SqliteOptions::default());
    let reader = SqliteStore::open_read_only(&path).unwrap();
    let held = hold(&path);
    write(&store, vec![append("s", 1, 2, "x")]);
    let error = reader.session("s").unwrap_err();
    assert!(error.kind == ErrorKind::Busy && error.message.contains("another process"), "{error}");
    drop(held);
    assert_eq!(one(&reader, "s", 1).content, "x");
}

#[test]
fn a_write_that_waits_for_the_database_does_not_block_reads() {
    let dir = tempdir().unwrap();
    let (path, store) = with_entry(&dir, &SqliteOptions::default());
    let held = hold(&path);
    std::thread::scope(|scope| {
        let deleting = scope.spawn(|| write(&store, vec![delete("nobody")]));
        let begun = Instant::now();
        assert_eq!(one(&store, "s", 1).content, "");
        assert!(begun.elapsed() < Duration::from_secs(2));
        drop(held);
        deleting.join().unwrap();
    });
}

#[test]
fn a_long_journal_is_emptied() {
    let dir = tempdir().unwrap();
    let (path, store) = with_entry(&dir, &SqliteOptions::default());
    let piece = "p".repeat(200_000);
    for n in 0..800 {
        store.write(
            Batch { writes: vec![append("s", 1, n + 2, &piece)], durable: false },
            Box::new(|result| result.unwrap()),
        );
        let length = fs::metadata(journal_of(&path)).unwrap().len();
        assert!(length < 120 << 20, "{length} bytes");
    }
    write(&store, Vec::new());
    assert_eq!(one(&store, "s", 1).content.len(), 800 * piece.len());
}

#[test]
fn batches_of_many_threads_are_all_stored() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("db");
    let store = SqliteStore::open(&path).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..6_u64 {
            let store = &store;
            scope.spawn(move || {
                let id = format!("s{thread}");
                write(store, vec![session(&id), entry(&id, 1, 1, "h", "")]);
                for n in 0..200 {
                    let mut writes = vec![append(&id, 1, n + 2, &format!("{n},"))];
                    if n % 40 == thread {
                        // These go to the database at once.
                        writes.push(Write::Delete { session: "nobody".to_owned() });
                    }
                    try_batch(store, Batch { writes, durable: n % 10 == thread }).unwrap();
                    if n % 25 == 0 {
                        assert_eq!(one(store, &id, 1).seq, n + 2);
                    }
                }
            });
        }
    });
    let left = snapshot(&path);
    for path in [path, left.path().join("db")] {
        let reader = SqliteStore::open_read_only(&path).unwrap();
        let text: String = (0..200).map(|n| format!("{n},")).collect();
        for thread in 0..6 {
            assert_eq!(one(&reader, &format!("s{thread}"), 1).content, text);
        }
    }
}
