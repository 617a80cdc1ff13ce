//! The file of the journal.

use std::ffi::OsString;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use super::damaged;
use super::journal::{self, HEADER, Header, RECORD};
use crate::{ErrorKind, Gate, SqliteOptions, StoreError};

/// The time to wait for another process that has the journal locked; a reader locks it only briefly.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// The number of zeros by which the file grows, because a sync that does not change the length of the file is faster.
const GROWTH: u64 = 256 << 10;

/// The length of the file after it is emptied.
const RETAINED: u64 = 1 << 20;

/// Returns the path of the journal of a database; `-journal` is a name that SQLite uses.
pub(super) fn path_of(database: &Path) -> PathBuf {
    let mut path = OsString::from(database);
    path.push(".journal");
    path.into()
}

/// The journal, locked by this process.
pub(super) struct JournalFile {
    file: Arc<File>,
    database: PathBuf,
    path: PathBuf,
    base: u64,
    end: u64,
    /// The length of the file.
    length: u64,
    /// The offset after which the file has only zeros.
    written: u64,
    /// The offset up to which a failed append has written; 0 for none.
    failed_end: u64,
    /// Whether records can be appended: false before the file was first emptied, and after that failed.
    has_header: bool,
    /// Simulates a full disk in tests.
    is_full: Arc<AtomicBool>,
    /// Simulates failing appends in tests.
    fails_append: Arc<AtomicBool>,
    /// Simulates a disk that hangs in tests.
    gate: Arc<Gate>,
}

impl JournalFile {
    /// Opens the journal of a database, creates it if it does not exist, and locks it.
    pub(super) fn open(database: &Path, options: &SqliteOptions) -> Result<Self, StoreError> {
        let path = path_of(database);
        let begun = Instant::now();
        loop {
            if let Some(file) = lock(&path, true).map_err(|error| failed(&path, &error))? {
                let length = file.metadata()?.len();
                if length == 0 {
                    // The directory entry must be on the disk before the file has durable batches.
                    sync_dir(&path)?;
                }
                return Ok(Self {
                    is_full: Arc::clone(&options.is_full),
                    fails_append: Arc::clone(&options.fails_append),
                    gate: Arc::clone(&options.journal_gate),
                    ..Self::new(file, database, length)
                });
            }
            if begun.elapsed() > LOCK_TIMEOUT {
                let message = format!("{}: another process writes to the database", path.display());
                return Err(StoreError::new(ErrorKind::Busy, message));
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Opens and locks the journal of a database, if it exists and no other process has it locked.
    pub(super) fn try_open(database: &Path) -> Result<Option<Self>, StoreError> {
        let path = path_of(database);
        let file = match lock(&path, false) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(|error| failed(&path, &error))?,
        };
        let Some(file) = file else { return Ok(None) };
        let length = file.metadata()?.len();
        Ok(Some(Self::new(file, database, length)))
    }

    fn new(file: File, database: &Path, length: u64) -> Self {
        let file = Arc::new(file);
        Self {
            file,
            database: database.to_owned(),
            path: path_of(database),
            base: 0,
            end: 0,
            length,
            written: length,
            has_header: false,
            failed_end: 0,
            is_full: Arc::default(),
            fails_append: Arc::default(),
            gate: Arc::default(),
        }
    }

    pub(super) fn file(&self) -> Arc<File> {
        Arc::clone(&self.file)
    }

    /// Returns the position after the last record.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Returns the length of all records in bytes.
    pub(super) fn used(&self) -> u64 {
        self.end - self.base
    }

    /// Returns the batches after a position.
    pub(super) fn unfolded(&self, folded: u64) -> Result<journal::Unfolded, StoreError> {
        unfolded(&self.file, &self.path, folded)
    }

    /// Appends records; if that fails, none of them remains.
    pub(super) fn append(&mut self, records: &[u8]) -> Result<(), StoreError> {
        super::check_room(&self.is_full)?;
        self.gate.pass();
        if !self.has_header {
            self.reset(self.end)?;
        }
        self.clear_failed_append().map_err(|error| failed(&self.path, &error))?;
        let at = HEADER as u64 + self.used();
        let end = at + records.len() as u64;
        if end > self.length {
            let length = end.next_multiple_of(GROWTH);
            let zeros = vec![0; usize::try_from(length - self.length).unwrap_or(0)];
            // The disk may have space for the records even if it has none for the zeros.
            if self.file.write_all_at(&zeros, self.length).is_ok() {
                self.length = length;
            }
        }
        let written = self.file.write_all_at(records, at);
        let written = written.and_then(|()| super::check_disk(&self.fails_append).map_err(io::Error::other));
        if let Err(error) = written {
            self.written = self.written.max(end);
            self.failed_end = end;
            // If this fails, the next append tries it again.
            let _ = self.clear_failed_append();
            return Err(failed(&self.path, &error));
        }
        self.length = self.length.max(end);
        self.written = self.written.max(end);
        self.end += records.len() as u64;
        Ok(())
    }

    /// Overwrites what a failed append has written, which may be complete records.
    fn clear_failed_append(&mut self) -> io::Result<()> {
        let at = HEADER as u64 + self.used();
        if self.failed_end > at {
            if self.file.set_len(at).is_ok() {
                self.length = at;
            } else {
                let zeros = vec![0; usize::try_from(self.failed_end - at).unwrap_or(0)];
                self.file.write_all_at(&zeros, at)?;
            }
        }
        self.failed_end = 0;
        Ok(())
    }

    /// Leaves zeros up to a position whose batches are in the database.
    pub(super) fn skip_to(&mut self, position: u64) {
        self.end = position;
    }

    /// Empties the journal after all records are folded and synced; the next record has this position.
    pub(super) fn reset(&mut self, base: u64) -> Result<(), StoreError> {
        (self.base, self.end, self.has_header) = (base, base, false);
        let reset = (|| {
            // The header is removed first and written last.
            let zeros = vec![0; usize::try_from(self.written.min(RETAINED)).unwrap_or(0)];
            self.file.write_all_at(&zeros, 0)?;
            if self.length > RETAINED {
                self.file.set_len(RETAINED)?;
                self.length = RETAINED;
            }
            self.file.write_all_at(&journal::header(base), 0)
        })();
        reset.map_err(|error| failed(&self.path, &error))?;
        (self.written, self.failed_end, self.has_header) = (HEADER as u64, 0, true);
        self.length = self.length.max(HEADER as u64);
        Ok(())
    }

    /// Renames a damaged journal, starts an empty one, and returns the new name.
    pub(super) fn quarantine(&mut self) -> Result<PathBuf, StoreError> {
        let quarantine = damaged::keep(&self.database).and_then(|kept| {
            let file = lock(&self.path, true)?.ok_or_else(|| {
                io::Error::new(io::ErrorKind::WouldBlock, "another process has just made one")
            })?;
            sync_dir(&self.path)?;
            Ok((kept, file))
        });
        let (kept, file) = quarantine.map_err(|error| {
            let failed = failed(&self.path, &error);
            let message =
                format!("the damaged journal cannot be kept under another name: {}", failed.message);
            StoreError { message, ..failed }
        })?;
        (self.file, self.length, self.written, self.has_header) = (Arc::new(file), 0, 0, false);
        Ok(kept)
    }

    /// Deletes the file.
    pub(super) fn remove(&self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Returns the batches after a position in a journal to which another process may write.
pub(super) fn read_shared(database: &Path, folded: u64) -> Result<journal::Unfolded, StoreError> {
    let path = path_of(database);
    let nothing = journal::Unfolded::nothing(folded);
    let file = match File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(nothing),
        file => file.map_err(|error| failed(&path, &error))?,
    };
    // The journal is empty most of the time, which its first bytes tell.
    let mut header = [0; HEADER];
    let is_read = file.read_exact_at(&mut header, 0).is_ok();
    if is_read && let Ok(Header::Base(base)) = journal::read_header(&header) {
        let mut next = [0; RECORD];
        let at = folded.saturating_sub(base).saturating_add(HEADER as u64);
        if file.read_exact_at(&mut next, at).is_err() || !journal::may_begin(&next) {
            return Ok(nothing);
        }
    }
    unfolded(&file, &path, folded)
}

fn unfolded(mut file: &File, path: &Path, folded: u64) -> Result<journal::Unfolded, StoreError> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(|error| failed(path, &error))?;
    journal::unfolded(&bytes, folded)
        .map_err(|later| StoreError::new(ErrorKind::Newer, format!("{}: {later}", path.display())))
}

/// Syncs the directory entry of a file.
pub(super) fn sync_dir(path: &Path) -> io::Result<()> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(dir)?.sync_all()
}

/// Opens and locks the file at this path; returns `None` if another process has it locked.
fn lock(path: &Path, create: bool) -> io::Result<Option<File>> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(create).mode(0o600);
    loop {
        let file = options.open(path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        // The process that had it locked may have deleted it.
        match std::fs::metadata(path) {
            Ok(found) if found.ino() == file.metadata()?.ino() => return Ok(Some(file)),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(_) | Err(_) => {}
        }
    }
}

pub(super) fn failed(path: &Path, error: &io::Error) -> StoreError {
    let kind = io::Error::from(error.kind());
    StoreError { message: format!("{}: {error}", path.display()), ..kind.into() }
}
