//! Databases that an earlier version wrote.

use std::fs;
use std::path::Path;

use parlor_store::{ErrorKind, IndexDocument, SqliteStore, Store, Write};
use rusqlite::Connection;
use tempfile::tempdir;

use super::common::{all, append, copy, delete, entry, hits, one, session, write};

/// A database of format version 2 with a segment of 1 MiB, and words that were removed from its index.
fn version_2(path: &Path) {
    version_1(path);
    let conn = Connection::open(path).unwrap();
    conn.execute_batch(include_str!("../../src/sqlite/migrations/2.sql")).unwrap();
    conn.execute_batch(
        r#"
        PRAGMA user_version = 2;
        DELETE FROM unindexed;
        INSERT INTO entries VALUES (1, 3, 4, 3, 0, 'h');
        INSERT INTO segments VALUES (3, 0, 3, 1, 'begin '), (3, 7, 4, 0, ' end');
        INSERT INTO word_index (rowid, text) VALUES (1, 'shared words'), (2, 'xsecretword'), (-1, 'old title');
        INSERT INTO words VALUES (1, 1, 1, 'user', 1), (2, 1, 2, 'user', 1), (-1, 1, 0, 'title', 1);
        DELETE FROM word_index WHERE rowid = 2;
        DELETE FROM words WHERE content = 2;
        UPDATE contents SET next = 4;
        "#,
    )
    .unwrap();
    conn.execute("INSERT INTO segments VALUES (3, 4, 3, 1, ?)", [long()]).unwrap();
    conn.execute_batch(
        "CREATE TABLE gone (text); INSERT INTO gone VALUES ('xanothersecret'); DROP TABLE gone",
    )
    .unwrap();
}

/// A text whose characters do not end at round places.
fn long() -> String {
    format!("a{}", "€".repeat(300_000))
}

/// A database of format version 1: a session with a title and two entries, and one that shares the first of them.
fn version_1(path: &Path) {
    let conn = Connection::open(path).unwrap();
    conn.execute_batch("PRAGMA journal_mode = wal").unwrap();
    conn.execute_batch(include_str!("../../src/sqlite/migrations/1.sql")).unwrap();
    conn.execute_batch(
        r#"
        PRAGMA application_id = 0x70726c72;
        PRAGMA user_version = 1;
        INSERT INTO sessions VALUES
            (1, 'old', 'agent', NULL, '/', '"Old title"', NULL, 1, ~1, 0, 0, ''),
            (2, 'fork', 'agent', NULL, '/', NULL, 'old', 2, ~2, 0, 0, '');
        INSERT INTO entries VALUES (1, 1, 1, 1, 0, 'h'), (1, 2, 2, 2, 0, 'h'), (2, 1, 1, 1, NULL, 'h');
        INSERT INTO shared VALUES (1, 2);
        INSERT INTO segments VALUES (1, 0, 1, 0, 'shared words'), (2, 0, 2, 0, 'second thing');
        UPDATE contents SET next = 3;
        "#,
    )
    .unwrap();
}

/// Hands in the words of all entries of a session, as who knows the texts does after an upgrade.
fn index(store: &dyn Store, id: &str) {
    let mut writes = Vec::new();
    for entry in all(store, id) {
        let words = Some(IndexDocument { kind: "user".into(), at: 1, text: entry.content });
        let (session, created, seq) = (id.to_owned(), entry.created, entry.seq);
        writes.push(Write::Index { session, created, seq, document: words, only_missing: true });
    }
    writes.push(Write::Indexed { session: id.to_owned() });
    write(store, writes);
}

fn at(session: &str, created: u64) -> (String, u64) {
    (session.to_owned(), created)
}

#[test]
fn a_database_of_version_1_is_read_and_searched_after_migration() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("db");
    version_1(&path);
    let error = SqliteStore::open_read_only(&path).unwrap_err();
    assert!(error.kind == ErrorKind::Outdated && error.message.contains("version 1"), "{error}");

    let store = SqliteStore::open(&path).unwrap();
    assert_eq!(all(&store, "old").len(), 2);
    assert_eq!(store.unindexed(10).unwrap(), ["fork", "old"]);
    assert_eq!(store.unindexed(1).unwrap(), ["fork"]);
    let reader = SqliteStore::open_read_only(&path).unwrap();
    assert_eq!(all(&reader, "fork")[0].content, "shared words");

    index(&store, "fork");
    assert_eq!(store.unindexed(10).unwrap(), ["old"]);
    drop(store);
    let store = SqliteStore::open(&path).unwrap();
    assert_eq!(store.unindexed(10).unwrap(), ["old"]);
    assert_eq!(hits(&store, "title"), []);
    index(&store, "old");
    assert_eq!(store.unindexed(10).unwrap(), [""; 0]);
    assert_eq!(hits(&store, "title"), [at("old", 0)]);
    assert_eq!(hits(&store, "second"), [at("old", 2)]);
    assert_eq!(hits(&store, "words"), [at("fork", 1)], "what is shared is found once");
    assert_eq!(hits(&reader, "words").len(), 1);
}

#[test]
fn contents_shared_in_version_1_are_still_shared() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("db");
    version_1(&path);
    let store = SqliteStore::open(&path).unwrap();
    index(&store, "old");
    write(&store, vec![session("new"), copy("fork", "new", &[(1, 5)])]);
    write(&store, vec![delete("old")]);
    assert_eq!(hits(&store, "words"), [at("fork", 1)]);
    assert_eq!(store.unindexed(10).unwrap(), ["fork"]);
    write(&store, vec![delete("fork")]);
    assert_eq!(hits(&store, "words"), [at("new", 5)]);
    assert_eq!(store.unindexed(10).unwrap(), [""; 0]);
}

#[test]
fn migration_splits_long_segments_and_erases_removed_words() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("db");
    version_2(&path);
    let has = |text: &str| fs::read(&path).unwrap().windows(text.len()).any(|part| part == text.as_bytes());
    assert!(has("secretword") && has("anothersecret"));
    let store = SqliteStore::open(&path).unwrap();
    assert!(!has("secretword") && !has("anothersecret"));

    let entries = all(&store, "old");
    assert_eq!(entries.iter().map(|entry| entry.seq).collect::<Vec<_>>(), [1, 2, 4]);
    let whole = format!("begin {} end", long());
    assert!(entries[2].content == whole);
    let conn = Connection::open(&path).unwrap();
    let longest: usize =
        conn.query_row("SELECT max(octet_length(text)) FROM segments", [], |row| row.get(0)).unwrap();
    assert!(longest <= 64 << 10, "{longest}");
    // It goes on as one that was written in this format.
    write(&store, vec![append("old", 3, 5, "!"), entry("old", 6, 6, "h", "new")]);
    assert!(one(&store, "old", 3).content == whole + "!");
    assert_eq!(one(&store, "old", 6).content, "new");

    // All is handed in again.
    assert_eq!(store.unindexed(10).unwrap(), ["fork", "old"]);
    assert_eq!(hits(&store, "words"), []);
    index(&store, "fork");
    index(&store, "old");
    assert_eq!(hits(&store, "words"), [at("fork", 1)]);
    assert_eq!(hits(&store, "title"), [at("old", 0)]);
    let check = "INSERT INTO word_index (word_index) VALUES ('integrity-check'); PRAGMA integrity_check";
    conn.execute_batch(check).unwrap();
}
