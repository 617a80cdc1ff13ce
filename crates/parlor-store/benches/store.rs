//! What a server waits for: commits, forks, lists, and reading a session back.
//!
//! Run with `cargo bench -p parlor-store`. The files are made in the directory for temporary ones; `TMPDIR` names
//! another disk.

#![allow(clippy::print_stdout, missing_docs, reason = "a benchmark prints what it measured")]

#[path = "../tests/common/mod.rs"]
mod common;

use std::time::{Duration, Instant};

use common::{all, append, copy, entry, row, session, try_batch, write};
use parlor_store::{Batch, Cursor, Filter, SessionRow, SqliteStore, Store, Write};

const SESSIONS: usize = 100_000;
const ENTRIES: u64 = 10_000;
const APPENDS: u64 = 1_000_000;
const PIECE: &str = r#"{"type":"text","text":"some words of a message"}"#;

fn main() {
    // Cargo hands a benchmark that is run as a test no reason to measure.
    if std::env::args().any(|arg| arg == "--test") {
        return;
    }
    commits();
    stream();
    fork();
    lists();
}

fn opened(dir: &tempfile::TempDir) -> SqliteStore {
    SqliteStore::open(&dir.path().join("db")).unwrap()
}

fn dir() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// Prints the best, the median and the worst of some runs.
fn measure(name: &str, runs: u64, mut work: impl FnMut(u64)) {
    let mut times: Vec<Duration> = (0..runs)
        .map(|n| {
            let start = Instant::now();
            work(n);
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    let [best, median, worst] = [0, times.len() / 2, times.len() - 1].map(|place| times[place]);
    println!("{name:<60} best {best:>9.1?}  median {median:>9.1?}  worst {worst:>9.1?}");
}

fn commits() {
    let dir = dir();
    let store = opened(&dir);
    write(&store, vec![session("s"), entry("s", 1, 1, "h", "")]);
    for (name, durable, runs) in [("one append, waited for", false, 20_000), ("the same, durable", true, 500)]
    {
        measure(name, runs, |n| {
            try_batch(&store, Batch { writes: vec![append("s", 1, n + 2, PIECE)], durable }).unwrap();
        });
    }
    measure("a session's row, waited for", 5000, |n| {
        let row = SessionRow { active_at: i64::try_from(n).unwrap(), ..row("s") };
        write(&store, vec![Write::Session(row)]);
    });
}

fn stream() {
    let dir = dir();
    let path = dir.path().join("db");
    let store = opened(&dir);
    write(&store, vec![session("s"), entry("s", 1, 1, "h", "")]);
    measure("1,000,000 batches of one append, not waited for", 1, |_| {
        for n in 0..APPENDS {
            let batch = Batch { writes: vec![append("s", 1, n + 2, PIECE)], durable: false };
            store.write(batch, Box::new(|result| result.unwrap()));
        }
        write(&store, Vec::new());
    });
    measure("reading them", 5, |_| {
        assert_eq!(all(&store, "s")[0].content.len() as u64, APPENDS * PIECE.len() as u64);
    });
    drop(store);
    let size = std::fs::metadata(path).unwrap().len();
    println!("{size} bytes on the disk for {} bytes of text", APPENDS * PIECE.len() as u64);
}

fn fork() {
    let dir = dir();
    let store = opened(&dir);
    write(&store, vec![session("s")]);
    write(&store, (1..=ENTRIES).map(|n| entry("s", n, n, &"h".repeat(100), &PIECE.repeat(10))).collect());
    let pairs: Vec<_> = (1..=ENTRIES).map(|n| (n, n)).collect();
    measure("copying 10,000 entries", 50, |n| {
        let id = n.to_string();
        write(&store, vec![session(&id), copy("s", &id, &pairs)]);
    });
    measure("reading 10,000 entries", 10, |_| assert_eq!(all(&store, "s").len() as u64, ENTRIES));
    measure("reading the last of them by its number", 10, |_| {
        assert_eq!(store.entries("s", ENTRIES - 1, 0, usize::MAX).unwrap().len(), 1);
    });
    write(&store, pairs.iter().map(|(created, _)| append("0", *created, ENTRIES + 1, PIECE)).collect());
    measure("deleting a session of 10,000 entries", 10, |n| {
        write(&store, vec![Write::Delete { session: n.to_string() }]);
    });
}

fn lists() {
    let dir = dir();
    let store = opened(&dir);
    let rows: Vec<_> = (0..SESSIONS).map(many).map(Write::Session).collect();
    rows.chunks(1000).for_each(|rows| write(&store, rows.to_vec()));
    let text = |text: &str| Some(text.to_owned());
    let none = Filter::default;
    for (name, filter) in [
        ("all", none()),
        ("one agent", Filter { agent: text("agent 1"), ..none() }),
        ("one agent that nobody uses", Filter { agent: text("nobody"), ..none() }),
        ("one directory", Filter { cwd: text("/home/someone/project 17"), ..none() }),
        (
            "agent and directory that never meet",
            Filter { agent: text("agent 1"), cwd: text("/large"), ..none() },
        ),
        ("put away", Filter { archived: Some(true), ..none() }),
        ("not put away, which is rare", Filter { archived: Some(false), ..none() }),
        ("one agent, not put away", Filter { agent: text("agent 1"), archived: Some(false), ..none() }),
        ("busy", Filter { busy: Some(true), ..none() }),
        ("busy of one agent", Filter { agent: text("agent 1"), busy: Some(true), ..none() }),
        ("not busy", Filter { busy: Some(false), ..none() }),
        ("one by its id at the agent", Filter { agent_session: text("\"777\""), ..none() }),
    ] {
        let after = Cursor { active_at: 50_000, id: "5".to_owned() };
        measure(&format!("50 of 100,000 sessions: {name}"), 50, |_| {
            assert!(store.sessions(&filter, None, 50).unwrap().len() <= 50);
        });
        measure("  from the middle", 50, |_| {
            assert!(store.sessions(&filter, Some(&after), 50).unwrap().len() <= 50);
        });
    }
}

/// Most are put away, few are busy, and the second agent never works in the large directory.
fn many(n: usize) -> SessionRow {
    let large = n.is_multiple_of(2);
    SessionRow {
        agent: format!("agent {}", n % 2),
        cwd: if large { "/large".to_owned() } else { format!("/home/someone/project {}", n % 100) },
        agent_session: Some(format!("\"{n}\"")),
        title: Some("\"a title of some words\"".to_owned()),
        active_at: i64::try_from(n).unwrap(),
        archived: n % 1000 != 1,
        busy: n.is_multiple_of(5000),
        data: "d".repeat(300),
        ..row(&format!("\"sess_{n:020}\""))
    }
}
