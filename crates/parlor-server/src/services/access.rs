//! Decides which files an agent may access through parlor.
//!
//! A path is resolved first. Then its directory is opened from the root, one component at a time and without following links,
//! and each directory on the way is compared, by device and inode, with those that are allowed and those that are private.
//! Replacing a component by a link meanwhile makes the open fail; once the directory is open, its path does not matter.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};

/// The files that an agent may access through parlor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileAccess {
    /// Those in the session's directories.
    #[default]
    Workspace,
    /// All but private files.
    All,
    /// None.
    Off,
}

/// The files that the agent of one session may access.
#[derive(Debug, Clone)]
pub struct FileScope {
    access: FileAccess,
    /// The session's directories.
    directories: Vec<PathBuf>,
    /// Files and directories that are never served, besides those of the system.
    private: Vec<PathBuf>,
}

/// Directories that represent processes and devices as files.
const SYSTEM: [&str; 3] = ["/proc", "/sys", "/dev"];

/// How many links in the last component of a path are followed.
const MAX_LINKS: usize = 40;

/// The flags to open a directory for lookups in it, for which it need not be readable.
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

/// Identifies a file independently of its paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileIdentity {
    device: u64,
    inode: u64,
}

/// A file name in an open directory that the agent may access.
#[derive(Debug)]
pub(super) struct FileLocation {
    pub(super) directory: File,
    pub(super) name: OsString,
}

impl FileScope {
    /// Allows access to the files in `directories`, or all files, except `private` ones.
    pub fn new(access: FileAccess, directories: Vec<PathBuf>, private: Vec<PathBuf>) -> Self {
        Self { access, directories, private }
    }

    pub(super) fn is_off(&self) -> bool {
        self.access == FileAccess::Off
    }

    /// Locates a file that exists or can be created.
    pub(super) fn locate(&self, path: &Path) -> Result<FileLocation, FileRefused> {
        let mut path = path.to_owned();
        for _ in 0..MAX_LINKS {
            let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
                // A path without a last component is that of a directory.
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
                    return Ok(FileLocation { directory: self.directory(&parent)?, name });
                }
            }
        }
        Err(rustix::io::Errno::LOOP.into())
    }

    /// Checks a path for a client that accesses the file itself. The client may resolve `..` as the system does, or by removing
    /// the component before it; both results must be allowed, also for a file that does not exist.
    pub(super) fn check(&self, path: &Path) -> Result<(), FileRefused> {
        let goes_up = path.components().any(|component| component == Component::ParentDir);
        match self.locate(path) {
            Ok(_) if goes_up => self.check(&without_parents(path)),
            Ok(_) => Ok(()),
            Err(FileRefused::Io(error)) if is_missing(&error) && !goes_up && !is_dangling(path) => Ok(()),
            Err(FileRefused::Io(error)) if is_missing(&error) => Err(FileRefused::Unresolved),
            Err(refused) => Err(refused),
        }
    }

    /// Opens a directory by its resolved path, if it is an allowed directory or inside of one.
    fn directory(&self, path: &Path) -> Result<File, FileRefused> {
        let flags = SEARCH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let private: Vec<_> = self.private_files().collect();
        let roots: Vec<_> = self.directories.iter().filter_map(|path| FileIdentity::at(path)).collect();
        let mut is_inside = self.access == FileAccess::All;
        let mut directory = File::from(rustix::fs::open("/", flags, Mode::empty())?);
        let mut check = |directory: &File| {
            let directory = FileIdentity::of(&directory.metadata()?);
            is_inside |= roots.contains(&directory);
            if private.contains(&directory) { Err(FileRefused::Private) } else { Ok(is_inside) }
        };
        let mut is_served = check(&directory)?;
        for component in path.components() {
            match component {
                Component::Normal(name) => {
                    directory = match rustix::fs::openat(&directory, name, flags, Mode::empty()) {
                        Ok(directory) => directory.into(),
                        Err(error) if is_served => return Err(error.into()),
                        Err(_) => return Err(FileRefused::Outside),
                    };
                    is_served = check(&directory)?;
                }
                Component::RootDir | Component::CurDir => {}
                // A resolved path has none.
                Component::ParentDir | Component::Prefix(_) => {
                    return Err(FileRefused::Io(io::ErrorKind::InvalidInput.into()));
                }
            }
        }
        if is_served { Ok(directory) } else { Err(FileRefused::Outside) }
    }

    /// The error for a path that cannot be resolved, which does not reveal whether files outside exist.
    fn missing(&self, path: &Path, error: io::Error) -> FileRefused {
        let existing = path.ancestors().find_map(|path| path.canonicalize().ok());
        match existing.map(|existing| self.directory(&existing)) {
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

/// Whether the error means that the path does not exist.
fn is_missing(error: &io::Error) -> bool {
    let errors = [rustix::io::Errno::NOENT, rustix::io::Errno::NOTDIR, rustix::io::Errno::LOOP];
    errors.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// Whether the first component of a path that cannot be resolved exists: it is a dangling link, or below a file.
fn is_dangling(path: &Path) -> bool {
    let unresolved = path.ancestors().take_while(|path| path.canonicalize().is_err()).last();
    // A path that was created meanwhile has not been checked.
    unresolved.is_none_or(|first| {
        let is_file = first.parent().is_some_and(|parent| !parent.is_dir());
        is_file
            || !matches!(fs::symlink_metadata(first), Err(error) if error.kind() == io::ErrorKind::NotFound)
    })
}

/// Removes each `..` with the component before it, as many editors do.
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

impl FileLocation {
    /// The status of the file, without following a link; `None` if it does not exist.
    pub(super) fn stat(&self) -> Result<Option<Stat>, io::Error> {
        match rustix::fs::statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(file) => Ok(Some(file)),
            Err(rustix::io::Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens an existing regular file, without following a link and without blocking.
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
        // The file may have been replaced since the check.
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
