//! How much there is on the disk after much was written.

use std::fs;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use parlor_store::{Batch, SqliteStore, Store as _};
use rusqlite::Connection;
use tempfile::tempdir;

use super::common::{all, append, copy, entry, hits, indexed_entry, session, write};

fn segments(path: &Path) -> i64 {
    let conn = Connection::open(path).unwrap();
    conn.query_row("SELECT count(*) FROM segments", [], |row| row.get(0)).unwrap()
}

#[test]
fn many_small_appends_give_few_rows() {
    const APPENDS: u64 = 100_000;
    let dir = tempdir().unwrap();
    let path = dir.path().join("db");
    let store = SqliteStore::open(&path).unwrap();
    write(&store, vec![session("s"), entry("s", 1, 1, "h", "")]);
    let mut text = String::new();
    for first in (0..APPENDS).step_by(20) {
        let pieces: Vec<_> =
            (first..first + 20).map(|n| format!(r#"{{"type":"text","text":"word {n:06} "}}"#)).collect();
        text += &pieces.concat();
        let writes = pieces.iter().zip(first + 2..).map(|(piece, seq)| append("s", 1, seq, piece)).collect();
        store.write(Batch { writes, durable: false }, Box::new(|result| result.unwrap()));
    }
    drop(store);
    let rows = segments(&path);
    assert!(rows < 1000, "{rows} rows");
    let size = fs::metadata(&path).unwrap().len();
    assert!(size < text.len() as u64 * 12 / 10, "{size} bytes for {} bytes of text", text.len());
    let entries = all(&SqliteStore::open(&path).unwrap(), "s");
    assert!(entries[0].content == text);
    assert_eq!(entries[0].seq, APPENDS + 1);
}

#[test]
fn alternating_appends_to_entries_give_few_rows() {
    // More than the writer remembers, so that it has to look again and again.
    const ENTRIES: u64 = 9000;
    let dir = tempdir().unwrap();
    let path = dir.path().join("db");
    let store = SqliteStore::open(&path).unwrap();
    write(&store, vec![session("s")]);
    write(&store, (1..=ENTRIES).map(|n| entry("s", n, n, "", "")).collect());
    // Only some of them grow long.
    for round in 1..=1200 {
        write(&store, (1..=5).map(|n| append("s", n, ENTRIES + round, "piece ")).collect());
        if round % 400 == 0 {
            write(&store, (1..=ENTRIES).map(|n| append("s", n, ENTRIES + round, "")).collect());
        }
    }
    let conn = Connection::open(&path).unwrap();
    let most: i64 = conn
        .query_row("SELECT max(c) FROM (SELECT count(*) AS c FROM segments GROUP BY key >> 20)", [], |row| {
            row.get(0)
        })
        .unwrap();
    assert!(most <= 520, "{most} rows");
    let entries = all(&store, "s");
    assert!(entries[..5].iter().all(|entry| entry.content == "piece ".repeat(1200)));
}

#[test]
fn an_append_in_a_fork_copies_only_that_entry() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("db");
    let store = SqliteStore::open(&path).unwrap();
    write(&store, vec![session("s"), session("t")]);
    write(&store, (1..=100).map(|n| entry("s", n, n, "h", "text")).collect());
    let pairs: Vec<_> = (1..=100).map(|n| (n, n)).collect();
    write(&store, vec![copy("s", "t", &pairs)]);
    assert_eq!(segments(&path), 100);
    write(&store, vec![append("t", 100, 101, "x")]);
    assert_eq!(all(&store, "t").len(), 100);
    assert_eq!(segments(&path), 102);
}

#[test]
fn a_fork_adds_nothing_to_the_index() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("db");
    let store = SqliteStore::open(&path).unwrap();
    write(&store, vec![session("s")]);
    write(&store, (1..=100).flat_map(|n| indexed_entry("s", n, "some words")).collect());
    let pairs: Vec<_> = (1..=100).map(|n| (n, n)).collect();
    for fork in 0..10 {
        let id = fork.to_string();
        write(&store, vec![session(&id), copy("s", &id, &pairs)]);
    }
    let conn = Connection::open(&path).unwrap();
    let count = |table: &str| -> i64 {
        conn.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
    };
    assert_eq!((count("words"), count("word_index_docsize"), count("families")), (100, 100, 11));
    assert_eq!(hits(&store, "words").len(), 100);
}

#[test]
fn merged_segments_are_not_rewritten() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("db");
    let mut first = None;
    for round in 0..3 {
        // Opened again, so that the writer has to find out what is there.
        let store = SqliteStore::open(&path).unwrap();
        if round == 0 {
            write(&store, vec![session("s"), entry("s", 1, 1, "h", "")]);
        }
        (0..700).for_each(|n| write(&store, vec![append("s", 1, round * 700 + n + 2, "piece ")]));
        store.fold().unwrap();
        let conn = Connection::open(&path).unwrap();
        let length: i64 = conn
            .query_row("SELECT octet_length(text) FROM segments ORDER BY key LIMIT 1", [], |row| row.get(0))
            .unwrap();
        assert!(length > 1000);
        assert_eq!(*first.get_or_insert(length), length, "it was written again");
    }
}

#[test]
fn the_wal_is_limited_while_others_read() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("db");
    let store = SqliteStore::open(&path).unwrap();
    write(&store, vec![session("s"), entry("s", 1, 1, "h", "start")]);
    let piece = "p".repeat(1 << 20);
    let log = dir.path().join("db-wal");
    let longest = thread::scope(|scope| {
        let (stop, stopped) = mpsc::channel::<()>();
        let path = &path;
        let reader = scope.spawn(move || {
            // One of them begins to read before the other ends, so that there is always someone who reads.
            let readers = [Connection::open(path).unwrap(), Connection::open(path).unwrap()];
            let begin = "BEGIN; SELECT count(*) FROM sessions;";
            readers[0].execute_batch(begin).unwrap();
            for n in 1.. {
                readers[n % 2].execute_batch(begin).unwrap();
                thread::sleep(Duration::from_millis(1));
                readers[(n + 1) % 2].execute_batch("COMMIT").unwrap();
                if stopped.try_recv().is_ok() {
                    break;
                }
            }
        });
        let mut longest = 0;
        for n in 0..200 {
            write(&store, vec![entry("s", 1, n + 2, "h", &piece)]);
            longest = longest.max(fs::metadata(&log).unwrap().len());
        }
        stop.send(()).unwrap();
        reader.join().unwrap();
        longest
    });
    assert!(longest < 100 << 20, "{longest} bytes");
}
