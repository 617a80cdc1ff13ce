//! Databases that an earlier version wrote.

use std::path::Path;

use parlor_store::{ErrorKind, Query, Search, SqliteStore, Store, Words, Write};
use rusqlite::Connection;
use tempfile::tempdir;

use super::common::{all, copy, delete, places, session, write};

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
        let words = Some(Words { kind: "user".into(), at: 1, text: entry.content });
        let (session, created, seq) = (id.to_owned(), entry.created, entry.seq);
        writes.push(Write::Words { session, created, seq, words, only_missing: true });
    }
    writes.push(Write::Indexed { session: id.to_owned() });
    write(store, writes);
}

fn at(session: &str, created: u64) -> (String, u64) {
    (session.to_owned(), created)
}

#[test]
fn a_database_of_version_1_can_be_read_as_it_is_and_searched_after_an_upgrade() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("db");
    version_1(&path);
    let reader = SqliteStore::open_read_only(&path).unwrap();
    assert_eq!(reader.format_version().unwrap(), 1);
    assert_eq!(all(&reader, "fork")[0].content, "shared words");
    let search = Search { query: Query::parse("words"), ..Search::default() };
    let error = reader.search(&search, 0, 1).unwrap_err();
    assert!(error.kind == ErrorKind::Format && error.message.contains("version 1"), "{error}");

    let store = SqliteStore::open(&path).unwrap();
    assert_eq!(all(&store, "old").len(), 2);
    assert_eq!(store.unindexed(10).unwrap(), ["fork", "old"]);
    assert_eq!(store.unindexed(1).unwrap(), ["fork"]);
    // The same reader can search as soon as somebody else has made it possible.
    assert_eq!(reader.search(&search, 0, 1).unwrap(), []);

    index(&store, "fork");
    assert_eq!(store.unindexed(10).unwrap(), ["old"]);
    drop(store);
    let store = SqliteStore::open(&path).unwrap();
    assert_eq!(store.unindexed(10).unwrap(), ["old"]);
    assert_eq!(places(&store, "title"), []);
    index(&store, "old");
    assert_eq!(store.unindexed(10).unwrap(), [""; 0]);
    assert_eq!(places(&store, "title"), [at("old", 0)]);
    assert_eq!(places(&store, "second"), [at("old", 2)]);
    assert_eq!(places(&store, "words"), [at("fork", 1)], "what is shared is found once");
    assert_eq!(reader.search(&search, 0, 9).unwrap().len(), 1);
}

#[test]
fn what_was_shared_before_is_known_to_be() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("db");
    version_1(&path);
    let store = SqliteStore::open(&path).unwrap();
    index(&store, "old");
    write(&store, vec![session("new"), copy("fork", "new", &[(1, 5)])]);
    write(&store, vec![delete("old")]);
    assert_eq!(places(&store, "words"), [at("fork", 1)]);
    assert_eq!(store.unindexed(10).unwrap(), ["fork"]);
    write(&store, vec![delete("fork")]);
    assert_eq!(places(&store, "words"), [at("new", 5)]);
    assert_eq!(store.unindexed(10).unwrap(), [""; 0]);
}
