//! What was deleted or replaced is not on the disk any more.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use parlor_store::{SessionRow, SqliteStore, Store, Write};
use rusqlite::Connection;
use tempfile::tempdir;

use super::common::{
    append, copy, delete, entry, head, hits, hold, index, indexed_entry, row, session, slot, snapshot, value,
    write,
};

/// The files of a database that have these bytes.
fn files_with(path: &Path, text: &str) -> Vec<String> {
    let dir = path.parent().unwrap();
    let mut found = Vec::new();
    for file in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let Ok(bytes) = fs::read(file.path()) else { continue };
        if bytes.windows(text.len()).any(|window| window == text.as_bytes()) {
            found.push(file.file_name().to_string_lossy().into_owned());
        }
    }
    found
}

/// Waits until no file has these bytes; the log is cut a moment after what was written.
fn is_erased(path: &Path, text: &str) {
    let begun = Instant::now();
    loop {
        let found = files_with(path, text);
        if found.is_empty() {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{text} is in {found:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The words that the index has, of all texts.
fn terms(path: &Path) -> Vec<String> {
    let conn = Connection::open(path).unwrap();
    conn.execute_batch("CREATE VIRTUAL TABLE temp.terms USING fts5vocab(main, word_index, row)").unwrap();
    let mut terms = conn.prepare("SELECT term FROM terms").unwrap();
    terms.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

fn titled(id: &str, title: &str) -> Write {
    Write::Session(SessionRow { title: Some(format!("\"{title}\"")), ..row(id) })
}

/// Other sessions, so that there is an index of some size around what is looked for.
fn fill(store: &dyn Store) {
    write(store, vec![session("other")]);
    for n in 1..=300 {
        let text = format!("apple banana{n} quince{} zebra", n % 7);
        write(store, indexed_entry("other", n, &text).into());
    }
}

#[test]
fn removed_index_documents_are_erased_from_all_files() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("db");
    let store = SqliteStore::open(&path).unwrap();
    fill(&store);
    write(&store, vec![titled("s", "about qorvanite")]);
    write(&store, indexed_entry("s", 1, "the qhunterword is xaffron77").into());
    write(&store, indexed_entry("s", 2, "the qdeletedword of all").into());
    write(&store, indexed_entry("s", 3, &format!("a long one {}", "qlongword ".repeat(30_000))).into());
    write(&store, vec![slot("s", "n", 4, Some("qslotword")), value("k", Some("qvalueword"))]);
    write(&store, vec![head("s", 1, 5, "qheadword"), append("s", 1, 5, " and qmoreword")]);
    fill(&store);
    for word in ["qorvanite", "qhunterword", "qdeletedword", "qlongword"] {
        assert_eq!(hits(&store, word).len(), 1, "{word}");
        assert!(!files_with(&path, &word[1..]).is_empty(), "{word}");
    }

    // Replaced, cleared, renamed.
    write(&store, vec![entry("s", 1, 6, "h", "[redacted]"), index("s", 1, 6, "[redacted]")]);
    write(&store, vec![entry("s", 3, 7, "h", "")]);
    write(&store, vec![titled("s", "something else"), slot("s", "n", 8, Some("b")), value("k", None)]);
    for word in [
        "qorvanite",
        "qhunterword",
        "xaffron77",
        "qlongword",
        "qslotword",
        "qvalueword",
        "qheadword",
        "qmoreword",
    ] {
        assert_eq!(hits(&store, word), [], "{word}");
        // The index writes a word without the letters that it has in common with the one before.
        is_erased(&path, &word[1..]);
    }
    assert_eq!(hits(&store, "qdeletedword").len(), 1);

    // Deleted as a whole.
    write(&store, vec![delete("s")]);
    for word in ["qdeletedword", "redacted", "something else"] {
        assert_eq!(hits(&store, word), [], "{word}");
        is_erased(&path, &word[1..]);
    }
    let left: Vec<_> = terms(&path).into_iter().filter(|term| term.starts_with(['q', 'x', 'r'])).collect();
    assert!(left.iter().all(|term| term.starts_with("quince")), "{left:?}");
    assert_eq!(hits(&store, "quince3").len(), 43, "the others are found as before");
    assert_eq!(hits(&store, "banana7 zebra").len(), 1);
}

#[test]
fn an_index_document_is_kept_until_the_last_fork_is_deleted() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("db");
    let store = SqliteStore::open(&path).unwrap();
    write(&store, vec![session("s"), session("t")]);
    write(&store, indexed_entry("s", 1, "the qsharedword").into());
    write(&store, vec![copy("s", "t", &[(1, 1)])]);
    write(&store, vec![entry("s", 1, 2, "h", "[redacted]")]);
    assert_eq!(hits(&store, "qsharedword"), [("t".to_owned(), 1)]);
    write(&store, vec![delete("t")]);
    assert_eq!(hits(&store, "qsharedword"), []);
    is_erased(&path, "sharedword");
}

#[test]
fn an_entry_that_grew_after_it_was_indexed_is_removed_from_the_index() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("db");
    let store = SqliteStore::open(&path).unwrap();
    write(&store, vec![session("s")]);
    write(&store, indexed_entry("s", 1, "qfirst").into());
    write(&store, vec![append("s", 1, 2, " qsecond")]);
    write(&store, vec![index("s", 1, 2, "qfirst qsecond")]);
    write(&store, vec![append("s", 1, 3, " qthird"), head("s", 1, 3, "another head")]);
    write(&store, vec![entry("s", 1, 4, "h", "")]);
    for word in ["qfirst", "qsecond", "qthird"] {
        assert_eq!(hits(&store, word), []);
    }
    assert_eq!(terms(&path), [""; 0]);
    let conn = Connection::open(&path).unwrap();
    conn.execute_batch("INSERT INTO word_index (word_index) VALUES ('integrity-check')").unwrap();
}

#[test]
fn the_wal_of_a_killed_server_is_truncated_by_the_next() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("db");
    let store = SqliteStore::open(&path).unwrap();
    write(&store, vec![session("s"), entry("s", 1, 1, "h", "qkilledword")]);
    write(&store, vec![entry("s", 1, 2, "h", "")]);
    let killed = snapshot(&path);
    drop(store);
    let path = killed.path().join("db");
    assert!(!files_with(&path, "qkilledword").is_empty());
    let _store = SqliteStore::open(&path).unwrap();
    is_erased(&path, "qkilledword");
}

#[test]
fn a_long_read_delays_the_truncation_and_does_not_block_writers() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("db");
    let store = SqliteStore::open(&path).unwrap();
    write(&store, vec![session("s"), entry("s", 1, 1, "h", "qslowword")]);
    store.fold().unwrap();
    let reader = Connection::open(&path).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM sessions;").unwrap();
    write(&store, vec![entry("s", 1, 2, "h", "")]);
    std::thread::sleep(Duration::from_millis(1500));
    let begun = Instant::now();
    write(&store, vec![entry("s", 2, 3, "h", "")]);
    assert!(begun.elapsed() < Duration::from_secs(2));
    assert!(!files_with(&path, "qslowword").is_empty());
    reader.execute_batch("COMMIT").unwrap();
    is_erased(&path, "qslowword");
}

#[test]
fn moved_rows_leave_no_deleted_text() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("db");
    let store = SqliteStore::open(&path).unwrap();
    let ids: Vec<_> = (0..20).map(|n| format!("session {n}")).collect();
    ids.iter().for_each(|id| write(&store, vec![session(id)]));
    let secret = |session: usize, created: u64| format!("qsecret{session}x{created}y");
    for created in 1..=60 {
        for (n, id) in ids.iter().enumerate() {
            let text = secret(n, created);
            write(&store, indexed_entry(id, created, &text).into());
            // Those before grow, in between the others.
            let earlier = (created * 7 + n as u64) % created + 1;
            write(&store, vec![append(id, earlier, 1000 + created, &"more ".repeat(n * 20))]);
        }
    }
    for created in 1..=60 {
        for id in &ids {
            write(&store, vec![entry(id, created, 2000 + created, "h", "")]);
        }
    }
    assert_eq!(hits(&store, "qsecret0x1y"), []);
    assert_eq!(terms(&path), [""; 0]);
    is_erased(&path, "secret");
}

/// Makes the database reject batches with `qbad` in a text.
fn reject_bad(conn: &Connection) {
    conn.execute_batch(
        "CREATE TRIGGER broken BEFORE INSERT ON segments WHEN NEW.text LIKE '%qbad%'
         BEGIN SELECT json('{'); END",
    )
    .unwrap();
}

#[test]
fn rejected_batches_of_a_deleted_session_are_erased() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("db");
    let store = SqliteStore::open(&path).unwrap();
    let ids = [r#""s""#, r#""s2""#, r#""t""#];
    for id in ids {
        write(&store, vec![session(id), entry(id, 1, 1, "h", "")]);
    }
    store.fold().unwrap();
    let held = hold(&path);
    reject_bad(&held);
    for (n, id) in ids.into_iter().enumerate() {
        write(&store, vec![append(id, 1, 2, &format!("qbad text of the {n}th"))]);
        // A text that names another session is none of it.
        write(&store, vec![append(id, 1, 3, &format!("qbad {:?} {}", ids[0], ids[0]))]);
    }
    held.execute_batch("COMMIT").unwrap();
    drop(held);
    write(&store, vec![delete(r#""nobody""#)]);
    let rejected = dir.path().join("db.rejected");
    let lines = || fs::read_to_string(&rejected).unwrap().lines().count();
    assert_eq!(lines(), 6);
    write(&store, vec![delete(ids[0])]);
    assert_eq!(lines(), 4);
    is_erased(&path, "the 0th");
    assert_eq!(files_with(&path, "the 1th"), ["db.rejected"]);
    write(&store, vec![delete(ids[2]), delete(ids[1])]);
    assert!(!rejected.exists());
    let mut files: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
    files.sort();
    assert_eq!(files, ["db", "db-shm", "db-wal", "db.journal"]);
}

#[test]
fn a_session_is_deleted_although_a_rejected_batch_was_written_in_part() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("db");
    let store = SqliteStore::open(&path).unwrap();
    write(&store, vec![session("s"), session("t")]);
    let rejected = dir.path().join("db.rejected");
    // The disk was full in the middle of a character.
    let torn = b"\"reason\" [Append { session: \"t\", content: \"na\xc3";
    fs::write(&rejected, [&b"\"reason\" [Append { session: \"s\" }]\n"[..], torn].concat()).unwrap();
    write(&store, vec![delete("s")]);
    assert_eq!(fs::read(&rejected).unwrap(), torn);
    write(&store, vec![delete("t")]);
    assert!(!rejected.exists());
}

#[test]
fn a_batch_of_a_session_that_another_process_deleted_is_dropped() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("db");
    let store = SqliteStore::open(&path).unwrap();
    for id in ["s", "t"] {
        write(&store, vec![session(id), entry(id, 1, 1, "h", "")]);
    }
    store.fold().unwrap();
    let held = hold(&path);
    reject_bad(&held);
    held.execute_batch("DELETE FROM sessions WHERE id = 's'").unwrap();
    write(&store, vec![append("s", 1, 2, "qdeleted text")]);
    write(&store, vec![append("t", 1, 2, "qbad text")]);
    // A session that nobody deleted: the database rejects it from the start.
    write(&store, vec![session("u"), entry("u", 1, 1, "h", "qbad beginning")]);
    write(&store, vec![append("u", 1, 2, "qnext text")]);
    held.execute_batch("COMMIT").unwrap();
    drop(held);
    store.fold().unwrap();
    assert_eq!(store.session("u").unwrap(), None);
    for text in ["qbad text", "qbad beginning", "qnext text"] {
        assert!(files_with(&path, text).contains(&"db.rejected".to_owned()), "{text}");
    }
    is_erased(&path, "qdeleted text");
}

#[test]
fn a_damaged_journal_is_deleted_with_a_session_in_it() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("db");
    drop(SqliteStore::open(&path).unwrap());
    for id in ["one", "other"] {
        fs::write(dir.path().join("db.journal"), format!("no journal of {id}-session")).unwrap();
        drop(SqliteStore::open(&path).unwrap());
    }
    let store = SqliteStore::open(&path).unwrap();
    assert_eq!(SqliteStore::damaged_journals(&path).unwrap().len(), 2);
    write(&store, vec![session("one-session"), delete("one-session")]);
    assert_eq!(files_with(&path, "one-session"), Vec::<String>::new());
    assert_eq!(files_with(&path, "other-session"), ["db.journal.damaged-2"]);
}
