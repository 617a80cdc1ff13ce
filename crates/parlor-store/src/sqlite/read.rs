//! Reads: connections of their own, so that nobody who reads waits for the writer.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::journal::Unfolded;
use super::journal_file::{self, JournalFile};
use super::writer::Writer;
use super::{content, schema, shared};
use crate::{EntryRow, ErrorKind, Options, SlotRow, StoreError};

/// How many connections are kept for the next reads. More are opened when more read at once.
const KEPT: usize = 4;

/// How long to wait for another process to fold its journal: it does so at once, if it can.
const PATIENCE: Duration = Duration::from_secs(5);

/// For how long a journal that another process has may look damaged.
const MOMENT: Duration = Duration::from_secs(1);

/// Connections that only read.
pub(super) struct Readers {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
}

impl Readers {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, idle: Mutex::default() }
    }

    /// Reads from one state of the database, that of all commits so far.
    pub(super) fn read<T>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let conn = idle.map_or_else(|| schema::open_reader(&self.path), Ok)?;
        let transaction = conn.unchecked_transaction()?;
        let result = read(&transaction)?;
        transaction.finish()?;
        // A connection that had an error is not used again.
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < KEPT {
            idle.push(conn);
        }
        Ok(result)
    }

    /// Waits until all that another process has done is in the database. If that process was killed, what it left in the
    /// journal is folded here.
    pub(super) fn settle(&self) -> Result<(), StoreError> {
        let begun = Instant::now();
        let mut done = None;
        let mut damaged_since = None;
        loop {
            let folded = self.read(folded)?;
            match done {
                Some(done) if folded >= done => return Ok(()),
                Some(_) => {}
                None => match journal_file::look(&self.path, folded)? {
                    Unfolded { damage: Some(damage), .. } => {
                        // Somebody may just be writing to it.
                        if damaged_since.get_or_insert_with(Instant::now).elapsed() > MOMENT {
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
            if begun.elapsed() > PATIENCE {
                let message = "another process has not moved its journal to the database";
                return Err(StoreError::new(ErrorKind::Busy, message));
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn fold_left(&self, journal: &mut JournalFile) -> Result<(), StoreError> {
        let folded = schema::open_writer(&self.path).and_then(|conn| {
            let mut writer = Writer::new(conn, &self.path, &Options::default());
            shared::fold_left(&mut writer, journal)
        });
        folded.map_err(|error| {
            let what = "what a process that was killed left in the journal cannot be moved to the database";
            StoreError { message: format!("{what}: {}", error.message), ..error }
        })?;
        journal.remove();
        Ok(())
    }

    /// Closes the connections that nobody uses.
    pub(super) fn close(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// A number to compare with: those that are too large for the database are larger than all that are in it.
fn bound(seq: u64) -> i64 {
    i64::try_from(seq).unwrap_or(i64::MAX)
}

pub(super) fn slots(conn: &Connection, session: &str, since: u64) -> Result<Vec<SlotRow>, StoreError> {
    let mut slots = conn.prepare_cached(
        "SELECT name, seq, body FROM slots
         WHERE session = (SELECT key FROM sessions WHERE id = ?) AND seq > ? ORDER BY name",
    )?;
    let rows = slots.query_map(params![session, bound(since)], |row| {
        Ok(SlotRow { name: row.get(0)?, seq: row.get(1)?, body: row.get(2)? })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

pub(super) fn entries(
    conn: &Connection,
    session: &str,
    since: u64,
    after: u64,
    bytes: usize,
) -> Result<Vec<EntryRow>, StoreError> {
    // The last segment is looked up in all entries, because only it knows of what was appended. Numbers that came with
    // a copy do not count.
    let mut heads = conn.prepare_cached(
        "SELECT created, max(seq, coalesce(appended, 0)) AS last, content, inherited, head FROM (
             SELECT created, seq, content, inherited, head,
                    CASE WHEN inherited IS NOT NULL THEN
                        (SELECT s.seq FROM segments AS s
                         WHERE s.key BETWEEN e.content << 20 AND e.content << 20 | 0xfffff
                         ORDER BY s.key DESC LIMIT 1)
                    END AS appended
             FROM entries AS e
             WHERE session = (SELECT key FROM sessions WHERE id = ?) AND created > ?
         ) WHERE last > ? ORDER BY created",
    )?;
    let mut rows = heads.query(params![session, bound(after), bound(since)])?;
    let mut entries = Vec::new();
    let mut room = None;
    while let Some(row) = rows.next()? {
        let Some((entry, size)) = entry(conn, row, room)? else { break };
        entries.push(entry);
        room = room.unwrap_or(bytes).checked_sub(size);
        if room.is_none() {
            break;
        }
    }
    Ok(entries)
}

/// Reads one entry and says how many bytes it has; `None` if these are more than there is room for. The first of a
/// page is read whatever its size, and has no `room`.
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

pub(super) fn value(conn: &Connection, key: &str) -> Result<Option<String>, StoreError> {
    let mut value = conn.prepare_cached("SELECT value FROM loose_values WHERE key = ?")?;
    Ok(value.query_row([key], |row| row.get(0)).optional()?)
}

/// The position up to which the journal is folded.
pub(super) fn folded(conn: &Connection) -> Result<u64, StoreError> {
    Ok(conn.prepare_cached("SELECT folded FROM journal")?.query_row([], |row| row.get(0))?)
}
