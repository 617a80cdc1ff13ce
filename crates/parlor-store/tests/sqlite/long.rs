//! Long messages: what they cost those who have nothing to do with them.

use std::path::Path;
use std::time::{Duration, Instant};

use parlor_store::SqliteStore;
use rusqlite::Connection;
use tempfile::tempdir;

use super::common::{all, append, entry, one, session, write};

/// The longest segment, in bytes.
fn longest(path: &Path) -> usize {
    let conn = Connection::open(path).unwrap();
    conn.query_row("SELECT max(octet_length(text)) FROM segments", [], |row| row.get(0)).unwrap()
}

#[test]
fn a_long_message_does_not_slow_down_other_sessions() {
    let dir = tempdir().unwrap();
    let store = SqliteStore::open(&dir.path().join("db")).unwrap();
    write(&store, vec![session("s"), session("other")]);
    let mut seq = 0;
    // Messages are made, grow and are read, as in turns, right after another session got a message.
    let mut turns = |other: &str| -> Duration {
        seq += 1;
        write(&store, vec![entry("other", seq, seq, "h", other)]);
        // The log is moved to the database in between, which is not what is measured.
        write(&store, Vec::new());
        let begun = Instant::now();
        for _ in 0..10 {
            seq += 1;
            write(&store, vec![entry("s", seq, seq, "h", "asked")]);
            write(&store, vec![append("s", seq, seq, "answered")]);
            assert_eq!(one(&store, "s", seq).content, "askedanswered");
        }
        begun.elapsed()
    };
    let mut best = |other: &str| (0..5).map(|_| turns(other)).min().unwrap();
    let before = best("short");
    // A store that reads the long text on its way to the others takes a hundred times as long.
    let after = best(&"l".repeat(8 << 20));
    assert!(after < before * 8, "{before:?} before, {after:?} after");
}

#[test]
fn no_segment_is_longer_than_64_kib() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("db");
    let store = SqliteStore::open(&path).unwrap();
    // Of three bytes a character, so that a segment has to end between two of them.
    let long = "€".repeat(100_000);
    write(&store, vec![session("s"), entry("s", 1, 1, "h", &long), append("s", 1, 2, &long)]);
    assert!(all(&store, "s")[0].content == long.repeat(2));
    assert!(longest(&path) <= 64 << 10);
    // Pieces that are put together as late as possible.
    let piece = "p".repeat((16 << 10) - 1);
    write(&store, vec![entry("s", 3, 3, "h", "")]);
    (0..20).for_each(|n| write(&store, vec![append("s", 3, 4 + n, &piece)]));
    assert!(one(&store, "s", 3).content == piece.repeat(20));
    assert!(longest(&path) <= 64 << 10);
}
