//! Opening: what is there stays, and what is not ours is left alone.

use std::fs;

use parlor_store::{ErrorKind, SqliteStore, Store};
use rusqlite::Connection;
use tempfile::tempdir;

use super::common::{all, append, copy, entry, row, session, slot, try_write, value, write};

#[test]
fn all_rows_are_read_after_reopening() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("db");
    let store = SqliteStore::open(&path).unwrap();
    write(&store, vec![session("s"), session("t"), slot("s", "n", 1, Some("b")), value("k", Some("v"))]);
    write(&store, vec![entry("s", 2, 2, "h", "a"), append("s", 2, 3, "b"), copy("s", "t", &[(2, 1)])]);
    let state = |store: &SqliteStore| {
        (store.session("s"), store.slots("s", 0), all(store, "s"), all(store, "t"), store.value("k"))
    };
    let before = state(&store);
    drop(store);
    let store = SqliteStore::open(&path).unwrap();
    assert_eq!(state(&store), before);
    // What is shared is still known to be, and new content gets a place of its own.
    write(&store, vec![append("t", 1, 2, "c"), entry("t", 3, 3, "h", "d")]);
    drop(store);
    let store = SqliteStore::open(&path).unwrap();
    assert_eq!(all(&store, "s"), before.2);
    let texts: Vec<_> = all(&store, "t").into_iter().map(|entry| (entry.content, entry.inherited)).collect();
    assert_eq!(texts, [("abc".to_owned(), 2), ("d".to_owned(), 0)]);
}

#[test]
fn a_later_format_is_rejected_and_not_changed() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("db");
    drop(SqliteStore::open(&path).unwrap());
    let conn = Connection::open(&path).unwrap();
    conn.pragma_update(None, "user_version", 4711).unwrap();
    drop(conn);
    let before = fs::read(&path).unwrap();
    for result in [SqliteStore::open(&path), SqliteStore::open_read_only(&path)] {
        let error = result.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Newer);
        assert!(error.message.contains("version 4711") && error.message.contains("up to 5"), "{error}");
    }
    assert!(fs::read(&path).unwrap() == before);
}

#[test]
fn a_file_of_another_program_is_rejected_and_not_changed() {
    let dir = tempdir().unwrap();
    let text = dir.path().join("text");
    fs::write(&text, "no database at all, and long enough to be looked at. ".repeat(100)).unwrap();
    let tables = dir.path().join("tables");
    Connection::open(&tables).unwrap().execute_batch("CREATE TABLE t (a)").unwrap();
    let marked = dir.path().join("marked");
    Connection::open(&marked).unwrap().pragma_update(None, "application_id", 7).unwrap();
    for path in [text, tables, marked] {
        let before = fs::read(&path).unwrap();
        assert_eq!(SqliteStore::open(&path).unwrap_err().kind, ErrorKind::Format, "{}", path.display());
        assert_eq!(SqliteStore::open_read_only(&path).unwrap_err().kind, ErrorKind::Format);
        assert!(fs::read(&path).unwrap() == before);
    }
}

#[test]
fn a_damaged_database_is_reported() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("db");
    let store = SqliteStore::open(&path).unwrap();
    write(&store, (0..500).map(|n| session(&n.to_string())).collect());
    drop(store);
    let mut bytes = fs::read(&path).unwrap();
    // The first page stays, so that the file still looks like ours.
    bytes[4096..].fill(0x5a);
    fs::write(&path, bytes).unwrap();
    for result in [SqliteStore::open(&path), SqliteStore::open_read_only(&path)] {
        assert_eq!(result.unwrap_err().kind, ErrorKind::Format);
    }
}

#[test]
fn a_path_that_cannot_be_created_is_an_io_error() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("missing").join("db");
    assert_eq!(SqliteStore::open(&path).unwrap_err().kind, ErrorKind::Io);
    assert_eq!(SqliteStore::open_read_only(&path).unwrap_err().kind, ErrorKind::Io);
    // Reading makes no file.
    assert_eq!(SqliteStore::open_read_only(&dir.path().join("db")).unwrap_err().kind, ErrorKind::Io);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn an_empty_file_cannot_be_opened_for_reading() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("db");
    fs::write(&path, "").unwrap();
    assert_eq!(SqliteStore::open_read_only(&path).unwrap_err().kind, ErrorKind::Outdated);
    write(&SqliteStore::open(&path).unwrap(), vec![session("s")]);
    assert!(SqliteStore::open_read_only(&path).unwrap().session("s").unwrap().is_some());
}

#[test]
fn a_read_only_store_sees_writes_of_another_store() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("db");
    let writer = SqliteStore::open(&path).unwrap();
    let reader = SqliteStore::open_read_only(&path).unwrap();
    assert_eq!(reader.session("s").unwrap(), None);
    write(&writer, vec![session("s")]);
    assert_eq!(reader.session("s").unwrap(), Some(row("s")));
    assert_eq!(try_write(&reader, vec![session("t")]).unwrap_err().kind, ErrorKind::Invalid);
    drop(writer);
    assert_eq!(reader.session("s").unwrap(), Some(row("s")));
}

#[test]
fn a_second_writer_is_rejected() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("db");
    let first = SqliteStore::open(&path).unwrap();
    let error = SqliteStore::open(&path).unwrap_err();
    assert!(error.kind == ErrorKind::Busy && error.message.contains("another process"), "{error}");
    write(&first, vec![session("s")]);
    drop(first);
    assert!(SqliteStore::open(&path).unwrap().session("s").unwrap().is_some());
}

#[cfg(unix)]
#[test]
fn only_the_owner_can_read_the_files() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempdir().unwrap();
    let path = dir.path().join("db");
    let store = SqliteStore::open(&path).unwrap();
    write(&store, vec![session("s")]);
    let files: Vec<_> = fs::read_dir(dir.path()).unwrap().map(Result::unwrap).collect();
    assert_eq!(files.len(), 4);
    for file in files {
        let mode = file.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", file.path().display());
    }
}
