//! Helpers for tests of stores.
#![allow(dead_code, reason = "each test uses some of it")]

use std::fs;
use std::path::Path;
use std::sync::mpsc;

use parlor_store::{
    Batch, CopiedEntry, EntryRow, ErrorKind, IndexDocument, Query, Search, SessionRow, Store, StoreError,
    Write,
};

/// Writes a batch and waits for what comes of it.
pub(crate) fn try_batch(store: &dyn Store, batch: Batch) -> Result<(), StoreError> {
    let (sender, result) = mpsc::channel();
    store.write(batch, Box::new(move |result| sender.send(result).unwrap()));
    result.recv().unwrap()
}

pub(crate) fn try_write(store: &dyn Store, writes: Vec<Write>) -> Result<(), StoreError> {
    try_batch(store, Batch { writes, durable: false })
}

pub(crate) fn write(store: &dyn Store, writes: Vec<Write>) {
    try_write(store, writes).unwrap();
}

/// Writes what must be refused as invalid.
pub(crate) fn refused(store: &dyn Store, writes: Vec<Write>) {
    assert_eq!(try_write(store, writes).unwrap_err().kind, ErrorKind::Invalid);
}

pub(crate) fn row(id: &str) -> SessionRow {
    SessionRow {
        id: id.to_owned(),
        agent: "agent".to_owned(),
        agent_session: None,
        cwd: "/".to_owned(),
        title: None,
        parent: None,
        owner: None,
        created_at: 1,
        active_at: 1,
        archived: false,
        busy: false,
        data: String::new(),
    }
}

pub(crate) fn session(id: &str) -> Write {
    Write::Session(row(id))
}

pub(crate) fn slot(session: &str, name: &str, seq: u64, body: Option<&str>) -> Write {
    Write::Slot { session: session.to_owned(), name: name.to_owned(), seq, body: body.map(str::to_owned) }
}

/// An entry with content.
pub(crate) fn entry(session: &str, created: u64, seq: u64, head: &str, content: &str) -> Write {
    let (session, head) = (session.to_owned(), head.to_owned());
    Write::Entry { session, created, seq, head, content: Some(content.to_owned()) }
}

/// A new head, or an entry without content.
pub(crate) fn head(session: &str, created: u64, seq: u64, head: &str) -> Write {
    let (session, head) = (session.to_owned(), head.to_owned());
    Write::Entry { session, created, seq, head, content: None }
}

pub(crate) fn append(session: &str, created: u64, seq: u64, content: &str) -> Write {
    Write::Append { session: session.to_owned(), created, seq, content: content.to_owned() }
}

/// The words of an entry, said at a time that is the change.
pub(crate) fn index(session: &str, created: u64, seq: u64, text: &str) -> Write {
    let words =
        IndexDocument { kind: "user".to_owned(), at: i64::try_from(seq).unwrap(), text: text.to_owned() };
    let session = session.to_owned();
    Write::Index { session, created, seq, document: Some(words), only_missing: false }
}

/// An entry with the words of its content.
pub(crate) fn indexed_entry(session: &str, created: u64, text: &str) -> [Write; 2] {
    [entry(session, created, created, "h", text), index(session, created, created, text)]
}

/// Where a query finds something: sessions and entries, with 0 for a title, in their order.
pub(crate) fn hits(store: &dyn Store, query: &str) -> Vec<(String, u64)> {
    let search = Search { query: Query::parse(query), ..Search::default() };
    hits_of(store, &search)
}

pub(crate) fn hits_of(store: &dyn Store, search: &Search) -> Vec<(String, u64)> {
    let hits = store.search(search, 0, usize::MAX).unwrap();
    let mut places: Vec<_> = hits.into_iter().map(|hit| (hit.session, hit.created.unwrap_or(0))).collect();
    places.sort_unstable();
    places
}

/// A copy of entries, each with the same head.
pub(crate) fn copy(from: &str, to: &str, entries: &[(u64, u64)]) -> Write {
    let entries = entries.iter().map(|&(from, to)| CopiedEntry { from, to, head: None }).collect();
    Write::Copy { from: from.to_owned(), to: to.to_owned(), entries }
}

pub(crate) fn delete(session: &str) -> Write {
    Write::Delete { session: session.to_owned() }
}

pub(crate) fn value(key: &str, value: Option<&str>) -> Write {
    Write::Value { key: key.to_owned(), value: value.map(str::to_owned) }
}

/// All entries of a session.
pub(crate) fn all(store: &dyn Store, session: &str) -> Vec<EntryRow> {
    store.entries(session, 0, 0, usize::MAX).unwrap()
}

/// The one entry of a session that was made by a change.
pub(crate) fn one(store: &dyn Store, session: &str, created: u64) -> EntryRow {
    let mut entries = store.entries(session, 0, created - 1, 0).unwrap();
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0].created, created);
    entries.remove(0)
}

/// What is hard to keep: nothing, escapes of what is no character, characters of all lengths, signs that mean
/// something to databases.
pub(crate) const HARD: &[&str] = &[
    "",
    r#""\u0000""#,
    r#""\ud83d""#,
    r#""\ude00\ud83d""#,
    "\u{1}",
    "\"😀é\"",
    "' OR 1=1 --",
    "%_*?[a]",
    "A",
    "a",
];

/// Keeps the database from being written to until this is dropped, so that nothing is folded.
pub(crate) fn hold(path: &Path) -> rusqlite::Connection {
    let conn = rusqlite::Connection::open(path).unwrap();
    conn.busy_timeout(std::time::Duration::from_secs(20)).unwrap();
    conn.execute_batch("BEGIN IMMEDIATE").unwrap();
    conn
}

/// The files of a database as they are at this moment, in another directory: what a process that is killed leaves. It
/// is [held](hold) meanwhile.
pub(crate) fn files_of(path: &Path) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let name = path.file_name().unwrap().to_str().unwrap();
    for end in [".journal", "", "-wal"] {
        fs::copy(path.with_file_name(format!("{name}{end}")), dir.path().join(format!("db{end}"))).unwrap();
    }
    dir
}

/// What a process leaves that is killed at this moment.
pub(crate) fn snapshot(path: &Path) -> tempfile::TempDir {
    let _held = hold(path);
    files_of(path)
}
