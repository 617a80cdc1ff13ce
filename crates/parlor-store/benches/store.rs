//! Benchmarks of commits, forks, lists, searches and reading a session.
//!
//! Run with `cargo bench -p parlor-store`, or with `-- search` and the like for one of them. The files are created in
//! the directory for temporary files; `TMPDIR` selects another disk.

#![allow(clippy::print_stdout, missing_docs, reason = "a benchmark prints what it measured")]

#[path = "../tests/common/mod.rs"]
mod common;

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use common::{all, append, copy, entry, indexed_entry, row, session, try_batch, write};
use parlor_store::{Batch, Cursor, Filter, Query, Search, SessionRow, SqliteStore, Store, Write};

const SESSIONS: usize = 100_000;
const ENTRIES: u64 = 10_000;
const APPENDS: u64 = 1_000_000;
const PIECE: &str = r#"{"type":"text","text":"some words of a message"}"#;

fn main() {
    // Cargo also runs benchmarks as tests, where nothing is measured.
    if std::env::args().any(|arg| arg == "--test") {
        return;
    }
    // The names of benchmarks as arguments select them.
    let chosen: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    for (name, measure) in [
        ("commits", commits as fn()),
        ("stream", stream),
        ("fork", fork),
        ("forks", forks),
        ("lists", lists),
        ("long", long),
        ("search", search),
    ] {
        if chosen.is_empty() || chosen.iter().any(|chosen| chosen == name) {
            measure();
        }
    }
}

fn opened(dir: &tempfile::TempDir) -> SqliteStore {
    SqliteStore::open(&dir.path().join("db")).unwrap()
}

fn dir() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// Prints the best, the median and the worst of the runs.
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

/// Measures a fork by the length of the session and by the number of earlier forks.
fn forks() {
    for entries in [100_u64, 1000, 10_000, 100_000] {
        // Limits the number of rows: each fork has a row for each of its entries.
        let most_others = (10_000_000 / entries).min(1000);
        for others in [0, most_others] {
            let dir = dir();
            let store = opened(&dir);
            write(&store, vec![session("s")]);
            for n in 1..=entries {
                write(&store, indexed_entry("s", n, PIECE).into());
            }
            let pairs: Vec<_> = (1..=entries).map(|n| (n, n)).collect();
            let fork = |id: &str| write(&store, vec![session(id), copy("s", id, &pairs)]);
            (0..others).for_each(|n| fork(&format!("other {n}")));
            measure(&format!("fork of {entries} entries, {others} forks there"), 10, |n| {
                fork(&n.to_string());
            });
            measure("  deleting one of them", 5, |n| {
                write(&store, vec![Write::Delete { session: n.to_string() }]);
            });
            measure("  deleting the first, in which all is found", 1, |_| {
                write(&store, vec![Write::Delete { session: "s".to_owned() }]);
            });
        }
    }
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
        ("archived", Filter { archived: Some(true), ..none() }),
        ("not archived, which is rare", Filter { archived: Some(false), ..none() }),
        ("one agent, not archived", Filter { agent: text("agent 1"), archived: Some(false), ..none() }),
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

/// Most sessions are archived, few are busy, and the second agent has no session in the large directory.
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

/// Measures a long message, for its writer and for others: 50 MB of text, and a screenshot as agents send it.
fn long() {
    let dir = dir();
    let store = opened(&dir);
    write(&store, vec![session("s"), session("long"), entry("s", 1, 1, "h", "")]);
    let screenshot =
        format!(r#"{{"type":"image","mimeType":"image/png","data":"{}"}}"#, "iVBORw0K".repeat(500_000));
    let text = PIECE.repeat(50_000_000 / PIECE.len());
    let mut seq = 1;
    let mut others = |name: &str| {
        measure(&format!("  a message of another session, {name}"), 2000, |_| {
            seq += 1;
            write(&store, vec![entry("s", seq, seq, "h", PIECE), append("s", seq, seq, PIECE)]);
        });
        measure("  reading it", 200, |_| {
            assert_eq!(store.entries("s", 0, seq - 1, usize::MAX).unwrap().len(), 1);
        });
    };
    others("before");
    for (name, content, runs) in [("a screenshot of 4 MB", &screenshot, 20), ("a message of 50 MB", &text, 3)]
    {
        let mut created = runs * 1000;
        measure(&format!("{name}, written at once"), runs, |_| {
            created += 1;
            write(&store, vec![entry("long", created, created, "h", content)]);
        });
        others("after that");
        measure("  reading the long one", runs, |_| {
            assert_eq!(store.entries("long", 0, created - 1, 0).unwrap()[0].content.len(), content.len());
        });
        measure("  replacing it", runs, |_| {
            write(&store, vec![entry("long", created, created, "h", "redacted")]);
            write(&store, vec![entry("long", created, created, "h", content)]);
        });
    }
    measure("a message of 50 MB, in pieces of 4 KiB", 1, |_| {
        write(&store, vec![entry("long", 1, 1, "h", "")]);
        for piece in text.as_bytes().chunks(4096) {
            let piece = std::str::from_utf8(piece).unwrap();
            let batch = Batch { writes: vec![append("long", 1, 2, piece)], durable: false };
            store.write(batch, Box::new(|result| result.unwrap()));
        }
        write(&store, Vec::new());
    });
    others("after that");
    measure("deleting the session of long ones", 1, |_| {
        write(&store, vec![Write::Delete { session: "long".to_owned() }]);
    });
}

/// The number of different words besides those that are searched for.
const VOCABULARY: u64 = 20_000;

/// Measures a search by the size of the database.
fn search() {
    let dir = dir();
    let path = dir.path().join("db");
    let store = opened(&dir);
    let mut told = 0;
    let mut bytes = 0;
    for messages in [10_000_u64, 100_000, 1_000_000] {
        let begun = Instant::now();
        for first in (told + 1..=messages).step_by(100) {
            let id = format!("\"session {}\"", first / 100);
            let row = SessionRow { agent: format!("agent {}", first / 100 % 10), ..row(&id) };
            let texts: Vec<_> = (first..first + 100).map(message).collect();
            bytes += texts.iter().map(String::len).sum::<usize>();
            let indexed_entry =
                texts.iter().zip(1..).flat_map(|(text, created)| indexed_entry(&id, created, text));
            write(&store, std::iter::once(Write::Session(row)).chain(indexed_entry).collect());
        }
        told = messages;
        let size = std::fs::metadata(&path).unwrap().len();
        println!("{messages} messages of {bytes} bytes in {:.1?}, {size} bytes on the disk", begun.elapsed());
        for (name, query) in [
            ("two words, 1 in 50 has both", "alpha beta"),
            ("two words, 1 in 5000 has both", "gamma delta"),
            ("a phrase", "\"alpha beta\""),
            ("one word, 1 in 50", "alpha"),
            ("the beginning of a word", "al*"),
            ("one word and not another", "alpha -gamma"),
            ("a word that all have", "common"),
            ("a word that nobody indexed_entry", "nothing"),
        ] {
            let everywhere = Search { query: Query::parse(query), ..Search::default() };
            let agent = Search { agent: Some("agent 3".to_owned()), ..everywhere.clone() };
            for (search, filter) in [(everywhere, ""), (agent, ", of one agent")] {
                let matches = store.search(&search, 0, usize::MAX).unwrap().len();
                measure(&format!("  {name}{filter}: {matches} matches"), 20, |_| {
                    assert!(store.search(&search, 0, 20).unwrap().len() <= 20);
                });
            }
        }
    }
}

/// Returns a message of about 40 words, most of them rare.
fn message(n: u64) -> String {
    let mut text = String::from("common");
    let mut seed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for place in 0..40 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        match place {
            7 if n.is_multiple_of(50) => text += " alpha beta",
            9 if n % 5000 == 1 => text += " gamma and delta",
            _ => write!(text, " word{}", (seed >> 33) % VOCABULARY).unwrap(),
        }
    }
    text
}
