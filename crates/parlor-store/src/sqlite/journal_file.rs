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
use crate::{ErrorKind, Options, StoreError};

/// How long to wait for another process that has the journal: one that reads has it for a moment.
const PATIENCE: Duration = Duration::from_secs(5);

/// The file grows by so many zeros at a time: a sync that need not write the file's length is faster.
const STEP: u64 = 256 << 10;

/// How much of the file stays when it is emptied.
const KEPT: u64 = 1 << 20;

/// The path of the journal of a database. `-journal` is a name that SQLite uses.
pub(super) fn path_of(database: &Path) -> PathBuf {
    let mut path = OsString::from(database);
    path.push(".journal");
    path.into()
}

/// The journal, held by one process.
pub(super) struct JournalFile {
    file: Arc<File>,
    database: PathBuf,
    path: PathBuf,
    base: u64,
    end: u64,
    /// How long the file is.
    length: u64,
    /// Behind this, the file has only zeros.
    written: u64,
    /// Up to here, the file has what an append that failed has written; 0 for nothing.
    rest: u64,
    /// Whether records can be appended: not before it was emptied for the first time, nor if that failed.
    has_header: bool,
    /// Whether a test wants the disk to be full.
    is_full: Arc<AtomicBool>,
    /// Whether a test wants appends to fail.
    fails_append: Arc<AtomicBool>,
}

impl JournalFile {
    /// Opens the journal of a database, makes it if there is none, and locks it.
    pub(super) fn open(database: &Path, options: &Options) -> Result<Self, StoreError> {
        let path = path_of(database);
        let begun = Instant::now();
        loop {
            if let Some(file) = lock(&path, true).map_err(|error| failed(&path, &error))? {
                let length = file.metadata()?.len();
                if length == 0 {
                    // Its name must be on the disk before it keeps anything that outlives a power cut.
                    sync_dir(&path)?;
                }
                let (is_full, fails_append) =
                    (Arc::clone(&options.is_full), Arc::clone(&options.fails_append));
                return Ok(Self { is_full, fails_append, ..Self::new(file, database, length) });
            }
            if begun.elapsed() > PATIENCE {
                let message = format!("{}: another process writes to the database", path.display());
                return Err(StoreError::new(ErrorKind::Busy, message));
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Locks the journal of a database if there is one and no other process has it.
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
            rest: 0,
            is_full: Arc::default(),
            fails_append: Arc::default(),
        }
    }

    pub(super) fn file(&self) -> Arc<File> {
        Arc::clone(&self.file)
    }

    /// The position behind the last record.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// How many bytes of records there are.
    pub(super) fn used(&self) -> u64 {
        self.end - self.base
    }

    /// What comes after a position.
    pub(super) fn unfolded(&self, folded: u64) -> Result<journal::Unfolded, StoreError> {
        unfolded(&self.file, &self.path, folded)
    }

    /// Appends records. If it fails, nothing of them is left.
    pub(super) fn append(&mut self, records: &[u8]) -> Result<(), StoreError> {
        super::check_room(&self.is_full)?;
        if !self.has_header {
            self.reset(self.end)?;
        }
        self.clear_rest().map_err(|error| failed(&self.path, &error))?;
        let at = HEADER as u64 + self.used();
        let end = at + records.len() as u64;
        if end > self.length {
            let length = end.next_multiple_of(STEP);
            let zeros = vec![0; usize::try_from(length - self.length).unwrap_or(0)];
            // Without the room for it, there may be enough for the records.
            if self.file.write_all_at(&zeros, self.length).is_ok() {
                self.length = length;
            }
        }
        let written = self.file.write_all_at(records, at);
        let written = written.and_then(|()| super::check_disk(&self.fails_append).map_err(io::Error::other));
        if let Err(error) = written {
            self.written = self.written.max(end);
            self.rest = end;
            // If this fails, it is tried again before something is appended.
            let _ = self.clear_rest();
            return Err(failed(&self.path, &error));
        }
        self.length = self.length.max(end);
        self.written = self.written.max(end);
        self.end += records.len() as u64;
        Ok(())
    }

    /// Removes what an append that failed has written: there may be whole records.
    fn clear_rest(&mut self) -> io::Result<()> {
        let at = HEADER as u64 + self.used();
        if self.rest > at {
            if self.file.set_len(at).is_ok() {
                self.length = at;
            } else {
                let zeros = vec![0; usize::try_from(self.rest - at).unwrap_or(0)];
                self.file.write_all_at(&zeros, at)?;
            }
        }
        self.rest = 0;
        Ok(())
    }

    /// Leaves zeros in place of records up to a position: what belongs there is in the database.
    pub(super) fn skip_to(&mut self, position: u64) {
        self.end = position;
    }

    /// Empties it: all of its records are folded, and safe from a power cut. The next one has this position.
    pub(super) fn reset(&mut self, base: u64) -> Result<(), StoreError> {
        (self.base, self.end, self.has_header) = (base, base, false);
        let reset = (|| {
            // The header goes first, and comes last.
            let zeros = vec![0; usize::try_from(self.written.min(KEPT)).unwrap_or(0)];
            self.file.write_all_at(&zeros, 0)?;
            if self.length > KEPT {
                self.file.set_len(KEPT)?;
                self.length = KEPT;
            }
            self.file.write_all_at(&journal::header(base), 0)
        })();
        reset.map_err(|error| failed(&self.path, &error))?;
        (self.written, self.rest, self.has_header) = (HEADER as u64, 0, true);
        self.length = self.length.max(HEADER as u64);
        Ok(())
    }

    /// Keeps the file under another name, because it is damaged, and begins an empty one. Returns the name.
    pub(super) fn set_aside(&mut self) -> Result<PathBuf, StoreError> {
        let set_aside = damaged::keep(&self.database).and_then(|kept| {
            let file = lock(&self.path, true)?.ok_or_else(|| {
                io::Error::new(io::ErrorKind::WouldBlock, "another process has just made one")
            })?;
            sync_dir(&self.path)?;
            Ok((kept, file))
        });
        let (kept, file) = set_aside.map_err(|error| {
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

/// What a journal that another process may write to has after a position.
pub(super) fn look(database: &Path, folded: u64) -> Result<journal::Unfolded, StoreError> {
    let path = path_of(database);
    let nothing = journal::Unfolded::nothing(folded);
    let file = match File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(nothing),
        file => file.map_err(|error| failed(&path, &error))?,
    };
    // There is nothing most of the time, which is seen without reading all.
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

/// Sees to it that the name of a file outlives a power cut.
pub(super) fn sync_dir(path: &Path) -> io::Result<()> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(dir)?.sync_all()
}

/// Opens and locks the file that has this path; `None` if another process has it.
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
        // Who had it before may have deleted it.
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
