//! Reads through connections of their own, so that readers do not wait for the writer.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::journal::Unfolded;
use super::journal_file::{self, JournalFile};
use super::pending::Pending;
use super::writer::Writer;
use super::{content, schema, shared};
use crate::{EntryRow, ErrorKind, SlotRow, SqliteOptions, StoreError};

/// The number of idle connections that are kept; more are opened for concurrent reads.
const MAX_IDLE: usize = 4;

/// The time to wait for another process to fold its journal, which it does at once if it can.
const FOLD_TIMEOUT: Duration = Duration::from_secs(5);

/// The time to wait for another process to fold its journal while the disk is full.
const FULL_TIMEOUT: Duration = Duration::from_millis(500);

/// The space that folding a journal needs: some pages of the write-ahead log.
const FOLD_ROOM: u64 = 64 << 10;

/// The time for which a journal of another process may appear damaged while that process writes to it.
const DAMAGE_GRACE: Duration = Duration::from_secs(1);

/// A pool of connections that only read.
pub(super) struct Readers {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
}

impl Readers {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, idle: Mutex::default() }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads from one snapshot of the database that has all commits so far.
    pub(super) fn read<T>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let conn = idle.map_or_else(|| schema::open_reader(&self.path), Ok)?;
        let transaction = conn.unchecked_transaction()?;
        let result = read(&transaction)?;
        transaction.finish()?;
        // A connection is not reused after an error.
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MAX_IDLE {
            idle.push(conn);
        }
        Ok(result)
    }

    /// Waits until all batches that another process has done are in the database; folds the journal if that process
    /// was killed.
    pub(super) fn wait_for_fold(&self) -> Result<(), StoreError> {
        let begun = Instant::now();
        let mut done = None;
        let mut damaged_since = None;
        loop {
            let folded = self.read(folded)?;
            match done {
                Some(done) if folded >= done => return Ok(()),
                Some(_) => {}
                None => match journal_file::read_shared(&self.path, folded)? {
                    Unfolded { damage: Some(damage), .. } => {
                        // Another process may be writing to it at this moment.
                        if damaged_since.get_or_insert_with(Instant::now).elapsed() > DAMAGE_GRACE {
                            return Err(StoreError::new(ErrorKind::DamagedJournal, damage.to_string()));
                        }
                    }
                    Unfolded { batches, .. } if batches.is_empty() => return Ok(()),
                    Unfolded { end, .. } => done = Some(end),
                },
            }
            if let Some(mut journal) = JournalFile::try_open(&self.path)? {
                return self.fold_left(&mut journal);
            }
            if begun.elapsed() > FULL_TIMEOUT && !has_room(&self.path) {
                let message = "the last changes are moved to the database when there is space again";
                return Err(StoreError::new(ErrorKind::Full, message));
            }
            if begun.elapsed() > FOLD_TIMEOUT {
                let message = "another process has not moved its journal to the database";
                return Err(StoreError::new(ErrorKind::Busy, message));
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn fold_left(&self, journal: &mut JournalFile) -> Result<(), StoreError> {
        let folded = schema::open_writer(&self.path).and_then(|conn| {
            let mut writer = Writer::new(conn, &self.path, &SqliteOptions::default());
            shared::fold_left(&mut writer, journal)
        });
        folded.map_err(|error| {
            let what = "fold of the journal of a killed process failed";
            StoreError { message: format!("{what}: {}", error.message), ..error }
        })?;
        journal.remove();
        Ok(())
    }

    /// Closes the idle connections.
    pub(super) fn close(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// Whether the disk has room for a fold; true if that is unknown.
fn has_room(database: &Path) -> bool {
    let directory = database.parent().unwrap_or(database);
    rustix::fs::statvfs(directory)
        .map_or(true, |disk| disk.f_bavail.saturating_mul(disk.f_frsize) >= FOLD_ROOM)
}

/// Converts a seq for comparisons; one beyond the range of the database is larger than all in it.
fn bound(seq: u64) -> i64 {
    i64::try_from(seq).unwrap_or(i64::MAX)
}

pub(super) fn slots(
    conn: &Connection,
    pending: &Pending,
    session: &str,
    since: u64,
) -> Result<Vec<SlotRow>, StoreError> {
    let mut slots = conn.prepare_cached(
        "SELECT name, seq, body FROM slots
         WHERE session = (SELECT key FROM sessions WHERE id = ?) AND seq > ? ORDER BY name",
    )?;
    let rows = slots.query_map(params![session, bound(since)], |row| {
        Ok(SlotRow { name: row.get(0)?, seq: row.get(1)?, body: row.get(2)? })
    })?;
    let mut rows = rows.collect::<Result<Vec<_>, _>>()?;
    let changed = pending.slots(session);
    if !changed.is_empty() {
        rows.retain(|row| !changed.contains_key(&*row.name));
        rows.extend(changed.into_values().flatten().filter(|row| row.seq > since));
        rows.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    }
    Ok(rows)
}

pub(super) fn entries(
    conn: &Connection,
    pending: &Pending,
    session: &str,
    since: u64,
    after: u64,
    bytes: usize,
) -> Result<Vec<EntryRow>, StoreError> {
    let mut changed = pending.entries(session, after);
    let mut heads = conn.prepare_cached(HEADS)?;
    let mut rows = heads.query(params![session, bound(after), bound(since)])?;
    let mut page = Page { entries: Vec::new(), room: None, bytes };
    while let Some(row) = rows.next()? {
        let created = row.get(0)?;
        // Entries before it that are new, or have no other change after `since`.
        while let Some(first) = changed.first_entry().filter(|first| *first.key() < created) {
            let (created, change) = first.remove_entry();
            if !page.push_changed(change.apply(created, stored(conn, session, created)?), since) {
                return Ok(page.entries);
            }
        }
        let goes_on = match changed.remove(&created) {
            Some(change) => {
                let stored = entry(conn, row, None)?.map(|(entry, _)| entry);
                page.push_changed(change.apply(created, stored), since)
            }
            None => entry(conn, row, page.room)?.is_some_and(|(entry, size)| page.push(entry, size)),
        };
        if !goes_on {
            return Ok(page.entries);
        }
    }
    for (created, change) in changed {
        if !page.push_changed(change.apply(created, stored(conn, session, created)?), since) {
            break;
        }
    }
    Ok(page.entries)
}

/// Selects entries. The last segment of every entry is joined, because only it has the seq of the last append. The seq
/// of a copied part does not count.
const HEADS: &str = "SELECT created, max(seq, coalesce(appended, 0)) AS last, content, inherited, head FROM (
         SELECT created, seq, content, inherited, head,
                CASE WHEN inherited IS NOT NULL THEN
                    (SELECT s.seq FROM segments AS s
                     WHERE s.key BETWEEN e.content << 20 AND e.content << 20 | 0xfffff
                     ORDER BY s.key DESC LIMIT 1)
                END AS appended
         FROM entries AS e
         WHERE session = (SELECT key FROM sessions WHERE id = ?) AND created > ?
     ) WHERE last > ? ORDER BY created";

/// Entries that are read together.
struct Page {
    entries: Vec<EntryRow>,
    /// The number of bytes that further entries may have; `None` before the first one.
    room: Option<usize>,
    bytes: usize,
}

impl Page {
    /// Adds an entry, which has room; returns whether there may be room for another.
    fn push(&mut self, entry: EntryRow, size: usize) -> bool {
        self.entries.push(entry);
        let room = self.room.unwrap_or(self.bytes).checked_sub(size);
        self.room = room;
        room.is_some()
    }

    /// Adds an entry with pending changes, if it changed after `since`; returns whether there may be room for another.
    fn push_changed(&mut self, entry: Option<EntryRow>, since: u64) -> bool {
        let Some(entry) = entry.filter(|entry| entry.seq > since) else { return true };
        let size = entry.head.len() + entry.content.len();
        self.room.is_none_or(|room| size <= room) && self.push(entry, size)
    }
}

/// Reads one entry.
fn stored(conn: &Connection, session: &str, created: u64) -> Result<Option<EntryRow>, StoreError> {
    let mut heads = conn.prepare_cached(HEADS)?;
    let mut rows = heads.query(params![session, bound(created.saturating_sub(1)), 0])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    if row.get::<_, u64>(0)? != created {
        return Ok(None);
    }
    Ok(entry(conn, row, None)?.map(|(entry, _)| entry))
}

/// Reads an entry and its size in bytes; returns `None` if it is larger than `room`. The first entry of a page has no
/// `room` and is read whatever its size.
fn entry(
    conn: &Connection,
    row: &Row<'_>,
    room: Option<usize>,
) -> Result<Option<(EntryRow, usize)>, StoreError> {
    let head: String = row.get(4)?;
    let mut content = String::new();
    let mut segments =
        conn.prepare_cached("SELECT text FROM segments WHERE key BETWEEN ? AND ? ORDER BY key")?;
    let mut texts = segments.query(content::keys(row.get(2)?))?;
    let too_long = |content: &String| room.is_some_and(|room| head.len() + content.len() > room);
    while let Some(text) = texts.next()? {
        content.push_str(text.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?);
        if too_long(&content) {
            return Ok(None);
        }
    }
    if too_long(&content) {
        return Ok(None);
    }
    let inherited = row.get::<_, Option<usize>>(3)?.unwrap_or(content.len());
    let size = head.len() + content.len();
    let entry = EntryRow { created: row.get(0)?, seq: row.get(1)?, head, content, inherited };
    Ok(Some((entry, size)))
}

pub(super) fn value(conn: &Connection, pending: &Pending, key: &str) -> Result<Option<String>, StoreError> {
    if let Some(value) = pending.value(key) {
        return Ok(value.clone());
    }
    let mut value = conn.prepare_cached("SELECT value FROM loose_values WHERE key = ?")?;
    Ok(value.query_row([key], |row| row.get(0)).optional()?)
}

/// Returns the position up to which the journal is folded.
pub(super) fn folded(conn: &Connection) -> Result<u64, StoreError> {
    Ok(conn.prepare_cached("SELECT folded FROM journal")?.query_row([], |row| row.get(0))?)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_without_space_has_no_room() {
        // The file system of `/proc` has no space.
        assert!(!has_room(Path::new("/proc/parlor.db")));
        assert!(has_room(&std::env::temp_dir().join("parlor.db")));
        assert!(has_room(Path::new("/nonexistent/parlor.db")), "it is unknown");
    }
}
