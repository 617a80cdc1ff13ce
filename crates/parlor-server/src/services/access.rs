//! Which files an agent may read and write through parlor.
//!
//! A path is resolved first. Then its directory is opened from the root on, one name at a time and through no link, and each
//! directory on the way is compared with those that are allowed and those that are not, by what it is and not by its name.
//! Whoever changes a name to a link meanwhile makes that fail; once the directory is open, what its path means does not matter.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};

/// How far the files reach that an agent reads and writes through parlor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileAccess {
    /// The session's directories.
    #[default]
    Workspace,
    /// All but what is nobody's business.
    All,
    /// None.
    Off,
}

/// The files that one session's agent may read and write.
#[derive(Debug, Clone)]
pub struct FileScope {
    access: FileAccess,
    /// The session's directories.
    directories: Vec<PathBuf>,
    /// What is never served besides the system's own directories.
    private: Vec<PathBuf>,
}

/// Directories that show processes and devices as files.
const SYSTEM: [&str; 3] = ["/proc", "/sys", "/dev"];

/// How many links at the end of a path are followed.
const MAX_LINKS: usize = 40;

/// How a directory is opened to go on from it, for which it need not be readable.
#[cfg(target_os = "linux")]
const SEARCH: OFlags = OFlags::PATH;
#[cfg(not(target_os = "linux"))]
const SEARCH: OFlags = OFlags::RDONLY;

/// Why a file is not served.
#[derive(Debug, thiserror::Error)]
pub(super) enum FileRefused {
    #[error("it is outside the session's directories")]
    Outside,
    #[error("files of processes, devices and parlor itself are not served")]
    Private,
    /// Programs would resolve the path of the missing file differently.
    #[error("it does not exist, and its path contains `..` or a dangling link")]
    Unresolved,
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// What a file is, whatever its names are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileIdentity {
    device: u64,
    inode: u64,
}

/// A name in a directory that may be read and written.
#[derive(Debug)]
pub(super) struct FilePlace {
    pub(super) directory: File,
    pub(super) name: OsString,
}

impl FileScope {
    /// What is inside of these directories, or all, but nothing that is private.
    pub fn new(access: FileAccess, directories: Vec<PathBuf>, private: Vec<PathBuf>) -> Self {
        Self { access, directories, private }
    }

    pub(super) fn is_off(&self) -> bool {
        self.access == FileAccess::Off
    }

    /// Finds the place of a file that is there or can be made.
    pub(super) fn place(&self, path: &Path) -> Result<FilePlace, FileRefused> {
        let mut path = path.to_owned();
        for _ in 0..MAX_LINKS {
            let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
                // A path that ends like this is a directory's.
                self.directory(&path.canonicalize().map_err(|error| self.missing(&path, error))?)?;
                return Err(FileRefused::Io(io::ErrorKind::IsADirectory.into()));
            };
            let parent = parent.canonicalize().map_err(|error| self.missing(parent, error))?;
            let name = name.to_owned();
            match fs::read_link(parent.join(&name)) {
                Ok(target) => path = parent.join(target),
                Err(_) => {
                    let file = FileIdentity::at(&parent.join(&name));
                    if file.is_some_and(|file| self.private_files().any(|private| private == file)) {
                        return Err(FileRefused::Private);
                    }
                    return Ok(FilePlace { directory: self.directory(&parent)?, name });
                }
            }
        }
        Err(rustix::io::Errno::LOOP.into())
    }

    /// Looks whether somebody else may be given a path, who may follow it as the system does, or drop each name before
    /// `..` without looking. What is not there has to be inside both ways as well.
    pub(super) fn check(&self, path: &Path) -> Result<(), FileRefused> {
        let goes_up = path.components().any(|component| component == Component::ParentDir);
        match self.place(path) {
            Ok(_) if goes_up => self.check(&without_parents(path)),
            Ok(_) => Ok(()),
            Err(FileRefused::Io(error)) if is_missing(&error) && !goes_up && !leads_nowhere(path) => Ok(()),
            Err(FileRefused::Io(error)) if is_missing(&error) => Err(FileRefused::Unresolved),
            Err(refused) => Err(refused),
        }
    }

    /// Opens a directory by its resolved path, if it is one of those that are served or inside of one.
    fn directory(&self, path: &Path) -> Result<File, FileRefused> {
        let flags = SEARCH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let private: Vec<_> = self.private_files().collect();
        let roots: Vec<_> = self.directories.iter().filter_map(|path| FileIdentity::at(path)).collect();
        let mut is_inside = self.access == FileAccess::All;
        let mut directory = File::from(rustix::fs::open("/", flags, Mode::empty())?);
        let mut look = |directory: &File| {
            let directory = FileIdentity::of(&directory.metadata()?);
            is_inside |= roots.contains(&directory);
            if private.contains(&directory) { Err(FileRefused::Private) } else { Ok(is_inside) }
        };
        let mut is_served = look(&directory)?;
        for component in path.components() {
            match component {
                Component::Normal(name) => {
                    directory = match rustix::fs::openat(&directory, name, flags, Mode::empty()) {
                        Ok(directory) => directory.into(),
                        Err(error) if is_served => return Err(error.into()),
                        Err(_) => return Err(FileRefused::Outside),
                    };
                    is_served = look(&directory)?;
                }
                Component::RootDir | Component::CurDir => {}
                // It was resolved.
                Component::ParentDir | Component::Prefix(_) => {
                    return Err(FileRefused::Io(io::ErrorKind::InvalidInput.into()));
                }
            }
        }
        if is_served { Ok(directory) } else { Err(FileRefused::Outside) }
    }

    /// Why a path cannot be resolved. What is outside is not said to exist or not.
    fn missing(&self, path: &Path, error: io::Error) -> FileRefused {
        let there = path.ancestors().find_map(|path| path.canonicalize().ok());
        match there.map(|there| self.directory(&there)) {
            Some(Err(refused @ (FileRefused::Outside | FileRefused::Private))) => refused,
            Some(_) | None => FileRefused::Io(error),
        }
    }

    fn private_files(&self) -> impl Iterator<Item = FileIdentity> + '_ {
        SYSTEM
            .iter()
            .map(Path::new)
            .chain(self.private.iter().map(PathBuf::as_path))
            .filter_map(FileIdentity::at)
    }
}

/// Whether a path cannot be followed to its end, whoever asks.
fn is_missing(error: &io::Error) -> bool {
    let ways = [rustix::io::Errno::NOENT, rustix::io::Errno::NOTDIR, rustix::io::Errno::LOOP];
    ways.iter().any(|way| error.raw_os_error() == Some(way.raw_os_error()))
}

/// Whether the first name of a path that cannot be followed is there: it is a link then, or no directory.
fn leads_nowhere(path: &Path) -> bool {
    let unresolved = path.ancestors().take_while(|path| path.canonicalize().is_err()).last();
    // One that was made meanwhile was not looked at.
    unresolved.is_none_or(|first| {
        let is_file = first.parent().is_some_and(|parent| !parent.is_dir());
        is_file
            || !matches!(fs::symlink_metadata(first), Err(error) if error.kind() == io::ErrorKind::NotFound)
    })
}

/// A path without `..` and the names before it, as many editors read it.
fn without_parents(path: &Path) -> PathBuf {
    let mut shorter = PathBuf::new();
    for component in path.components() {
        if component == Component::ParentDir {
            shorter.pop();
        } else {
            shorter.push(component);
        }
    }
    shorter
}

impl FilePlace {
    /// What is there, if anything is. A link is a link.
    pub(super) fn stat(&self) -> Result<Option<Stat>, io::Error> {
        match rustix::fs::statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(file) => Ok(Some(file)),
            Err(rustix::io::Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens the file that is there, through no link and without waiting.
    pub(super) fn open(&self, how: OFlags) -> io::Result<File> {
        let file = self.stat()?.ok_or(io::ErrorKind::NotFound)?;
        match FileType::from_raw_mode(file.st_mode) {
            FileType::RegularFile => {}
            FileType::Directory => return Err(io::ErrorKind::IsADirectory.into()),
            FileType::Symlink
            | FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => return Err(io::Error::other("not a regular file")),
        }
        let flags = how | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(&self.directory, &self.name, flags, Mode::empty())?);
        // It may be another than the one that was looked at.
        if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("not a regular file")) }
    }
}

impl FileIdentity {
    fn of(file: &fs::Metadata) -> Self {
        Self { device: file.dev(), inode: file.ino() }
    }

    fn at(path: &Path) -> Option<Self> {
        fs::metadata(path).ok().map(|file| Self::of(&file))
    }
}

impl From<rustix::io::Errno> for FileRefused {
    fn from(error: rustix::io::Errno) -> Self {
        Self::Io(error.into())
    }
}
