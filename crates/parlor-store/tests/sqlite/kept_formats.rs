//! Databases that were written in each format and are kept in `tests/data`, as a killed process leaves them.
//!
//! A change of the format adds a directory and leaves the others unchanged; CONTRIBUTING.md describes it.

use std::fs;
use std::path::{Path, PathBuf};

use parlor_store::{Filter, SessionRow, SlotRow, SqliteStore, Store, Write};
use tempfile::tempdir;

use super::common::{
    all, append, copy, delete, entry, files_of, hits, hold, index, one, row, session, slot, value, write,
};

/// The files of a kept database: the database, its write-ahead log and its journal.
const FILES: [&str; 3] = ["db", "db-wal", "db.journal"];

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

/// Returns the directories of all kept databases with their format versions.
fn kept() -> Vec<(u32, PathBuf)> {
    let mut kept: Vec<_> = fs::read_dir(data())
        .unwrap()
        .map(|dir| {
            let path = dir.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            (name.strip_prefix("format-").expect("a directory is named format-N").parse().unwrap(), path)
        })
        .collect();
    kept.sort();
    kept
}

fn copy_files(from: &Path, to: &Path) {
    for file in FILES {
        fs::copy(from.join(file), to.join(file)).unwrap();
    }
}

fn text(number: u64) -> String {
    format!("message {number} about the migration of databases\n")
}

/// Writes rows of all kinds to the database; the last batches are only in the write-ahead log and in the journal.
fn fill(path: &Path) -> (SqliteStore, rusqlite::Connection) {
    let first = SessionRow {
        title: Some(r#""A title""#.to_owned()),
        archived: true,
        data: r#"{"agentDialect":"v2"}"#.to_owned(),
        ..row("first")
    };
    let store = SqliteStore::open(path).unwrap();
    write(&store, vec![Write::Session(first), session("deleted"), value("key", Some("value"))]);
    write(&store, vec![slot("first", "state", 1, Some(r#"{"a":1}"#))]);
    for seq in 1..=20 {
        write(
            &store,
            vec![entry("first", seq, seq, "head", &text(seq)), index("first", seq, seq, &text(seq))],
        );
    }
    write(&store, vec![session("fork"), copy("first", "fork", &[(1, 1), (2, 2)])]);
    drop(store);

    let store = SqliteStore::open(path).unwrap();
    write(&store, vec![append("first", 20, 21, "more"), append("fork", 2, 3, "only in the fork")]);
    write(&store, vec![delete("deleted")]);
    let held = hold(path);
    write(&store, vec![append("first", 20, 22, " from the journal"), slot("first", "state", 22, Some("{}"))]);
    write(&store, vec![entry("fork", 4, 4, "head", "also from the journal")]);
    (store, held)
}

fn check(store: &dyn Store) {
    let sessions = store.sessions(&Filter::default(), None, 10).unwrap();
    assert_eq!(sessions.iter().map(|row| row.id.as_str()).collect::<Vec<_>>(), ["first", "fork"]);
    assert_eq!(sessions[0].title.as_deref(), Some(r#""A title""#));
    assert!(sessions[0].archived && !sessions[1].archived);
    assert_eq!(sessions[0].data, r#"{"agentDialect":"v2"}"#);
    assert_eq!(store.value("key").unwrap().as_deref(), Some("value"));
    let state = SlotRow { name: "state".to_owned(), seq: 22, body: "{}".to_owned() };
    assert_eq!(store.slots("first", 0).unwrap(), [state]);

    let entries = all(store, "first");
    assert_eq!(entries.len(), 20);
    for (entry, seq) in entries.iter().zip(1..).take(19) {
        assert_eq!((entry.created, entry.seq, &entry.content), (seq, seq, &text(seq)));
        assert_eq!((entry.head.as_str(), entry.inherited), ("head", 0));
    }
    let last = one(store, "first", 20);
    assert_eq!((last.seq, last.content), (22, text(20) + "more from the journal"));

    let entries = all(store, "fork");
    assert_eq!(entries.iter().map(|entry| entry.seq).collect::<Vec<_>>(), [1, 3, 4]);
    assert_eq!(entries[0].content, text(1));
    assert_eq!(entries[1].content, text(2) + "only in the fork");
    assert_eq!((entries[0].inherited, entries[1].inherited), (text(1).len(), text(2).len()));
    assert_eq!(entries[2].content, "also from the journal");
}

/// Checks the search index of a format that has one; sessions of earlier formats are listed as unindexed.
fn check_index(store: &dyn Store) {
    assert_eq!(store.unindexed(10).unwrap(), [""; 0]);
    assert_eq!(hits(store, "title"), [("first".to_owned(), 0)]);
    assert_eq!(hits(store, r#""message 7""#), [("first".to_owned(), 7)]);
    assert_eq!(hits(store, "migration").len(), 20);
}

#[test]
fn databases_of_all_formats_are_opened_with_their_journals() {
    let present = {
        let dir = tempdir().unwrap();
        SqliteStore::open(&dir.path().join("db")).unwrap().format_version().unwrap()
    };
    let kept = kept();
    assert_eq!(
        kept.last().map(|(version, _)| *version),
        Some(present),
        "no database of the present format is kept"
    );
    for (version, source) in kept {
        let dir = tempdir().unwrap();
        let path = dir.path().join("db");
        copy_files(&source, dir.path());
        if version == present {
            let reader = SqliteStore::open_read_only(&path).unwrap();
            check(&reader);
            drop(reader);
            // The reader has folded the journal: the writer starts from the kept files again.
            copy_files(&source, dir.path());
            drop(fs::remove_file(dir.path().join("db-shm")));
        }
        let store = SqliteStore::open(&path).unwrap();
        assert_eq!(store.format_version().unwrap(), present);
        assert_eq!(SqliteStore::damaged_journals(&path).unwrap(), []);
        assert_eq!(store.damage(true).unwrap(), [""; 0]);
        check(&store);
        if version >= 4 {
            check_index(&store);
        }
        write(&store, vec![append("first", 1, 23, "!")]);
        drop(store);
        let store = SqliteStore::open(&path).unwrap();
        assert_eq!(one(&store, "first", 1).content, text(1) + "!");
    }
}

#[test]
#[ignore = "writes tests/data/format-N for the present format; run it once after a change of the format"]
fn keep_a_database_of_the_present_format() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("db");
    let (store, held) = fill(&path);
    let files = files_of(&path);
    drop(held);
    let target = data().join(format!("format-{}", store.format_version().unwrap()));
    fs::create_dir_all(&target).unwrap();
    for file in FILES {
        let mut bytes = fs::read(files.path().join(file)).unwrap();
        if file == "db.journal" {
            // The file grows by zeros, which are not part of its records.
            bytes.truncate(bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
        }
        fs::write(target.join(file), bytes).unwrap();
    }
}
