//! The data directory of a server, and the lock that reserves it for one server.

use std::ffi::OsString;
use std::fmt::{self, Write as _};
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read, Seek, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

#[cfg(feature = "config")]
use etcetera::BaseStrategy;

/// An existing data directory that belongs to this user and that others cannot enter.
#[derive(Debug, Clone)]
pub struct DataDir(PathBuf);

/// Reserves a data directory for this server, until the last clone is dropped.
#[derive(Debug, Clone)]
pub struct Lock {
    file: Arc<File>,
    path: PathBuf,
}

impl Lock {
    /// Whether the directory still contains this lock. If it was deleted, writes are lost, and another server may use its path.
    pub fn is_in_place(&self) -> bool {
        let files = self.file.metadata().and_then(|locked| Ok((locked, fs::metadata(&self.path)?)));
        match files {
            Ok((locked, found)) => (locked.dev(), locked.ino()) == (found.dev(), found.ino()),
            // Other errors of the disk do not mean that it was deleted.
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        }
    }
}

/// The tokens with which clients authenticate over HTTP.
#[derive(Clone, PartialEq, Eq)]
pub struct Tokens {
    /// The token of drivers.
    pub driver: String,
    /// The token of observers, if there are any.
    pub observer: Option<String>,
}

impl Tokens {
    /// Accepts only this token, for drivers. `None` if it contains characters that cannot be sent.
    pub fn only(driver: &str) -> Option<Self> {
        is_token(driver).then(|| Self { driver: driver.to_owned(), observer: None })
    }
}

/// The minimal number of characters of a token.
const MIN_TOKEN: usize = 16;

/// Why a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// A file operation failed.
    #[error("cannot {operation} {}: {error}", path.display())]
    Io {
        /// The operation, as a verb.
        operation: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The error of the system.
        #[source]
        error: io::Error,
    },
    /// The file or directory belongs to another user, who could read and change it.
    #[error("{} belongs to another user: choose another directory with --data", .0.display())]
    NotOurs(PathBuf),
    /// Another server uses the directory.
    #[error("another server{} uses {}", pid.map(|pid| format!(" (process {pid})")).unwrap_or_default(), path.display())]
    Locked {
        /// The directory.
        path: PathBuf,
        /// The process of the other server, if it has written its id yet.
        pid: Option<u32>,
    },
    /// A token contains characters that cannot be sent in a header.
    #[error("the token in {} may only contain letters, digits and -._~", .0.display())]
    BadToken(PathBuf),
    /// A token is so short that it could be guessed.
    #[error("the token in {} is shorter than {MIN_TOKEN} characters", .0.display())]
    ShortToken(PathBuf),
    /// The data directory and the temporary directory are both too long for the path of a socket.
    #[error("cannot place the socket: {} is longer than {SOCKET_PATH_LIMIT} bytes (choose a shorter directory with --data)", .0.display())]
    SocketTooLong(PathBuf),
    /// There is no home directory for the default data directory.
    #[error("there is no home directory: choose a data directory with --data")]
    NoHome,
}

/// The maximal length of the path of a socket. The limit of the system is 104 or 108 bytes.
const SOCKET_PATH_LIMIT: usize = 100;

#[cfg(feature = "config")]
/// The path of the data directory: that of the command line, else of `PARLOR_DATA_DIR`, else `parlor` in the user's data
/// directory.
pub fn path(flag: Option<PathBuf>, env: Option<OsString>) -> Result<PathBuf, DataDirError> {
    let named = flag.or_else(|| env.filter(|value| !value.is_empty()).map(PathBuf::from));
    let chosen = match named {
        Some(path) => path,
        None => {
            etcetera::base_strategy::Xdg::new().map_err(|_| DataDirError::NoHome)?.data_dir().join("parlor")
        }
    };
    std::path::absolute(&chosen).map_err(io_error("resolve", &chosen))
}

/// The directory of the installed agents in a data directory. It may not exist.
pub fn agents(data_dir: &Path) -> PathBuf {
    data_dir.join("agents")
}

impl DataDir {
    /// Creates the directory if it does not exist, and restricts access to this user.
    pub fn open(path: &Path) -> Result<Self, DataDirError> {
        let path = std::path::absolute(path).map_err(io_error("resolve", path))?;
        DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(io_error("create", &path))?;
        restrict_access(&path)?;
        Ok(Self(path))
    }

    /// Opens the directory for reading, without changing it; `None` if it does not exist.
    pub fn open_existing(path: &Path) -> Result<Option<Self>, DataDirError> {
        match fs::read_dir(path) {
            Ok(_) => Ok(Some(Self(path.to_owned()))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(io_error("read", path)(error)),
        }
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The path of the database.
    pub fn database(&self) -> PathBuf {
        self.0.join("parlor.db")
    }

    /// The path of the file with the port of the HTTP listener, which exists while a server runs.
    pub fn port_file(&self) -> PathBuf {
        self.0.join("port")
    }

    /// The directory of the installed agents, which may not exist.
    pub fn agents(&self) -> PathBuf {
        agents(&self.0)
    }

    /// The directory for logs, which is created if it does not exist.
    pub fn log(&self) -> Result<PathBuf, DataDirError> {
        let path = self.0.join("log");
        DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(io_error("create", &path))?;
        Ok(path)
    }

    /// Reserves the directory for this process.
    pub fn lock(&self) -> Result<Lock, DataDirError> {
        let path = self.0.join("lock");
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(io_error("open", &path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut pid = String::new();
                // The other server may not have written its pid yet.
                let _ = file.read_to_string(&mut pid);
                return Err(DataDirError::Locked { path: self.0.clone(), pid: pid.trim().parse().ok() });
            }
            Err(TryLockError::Error(error)) => return Err(io_error("lock", &path)(error)),
        }
        file.set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{}", std::process::id()))
            .map_err(io_error("write", &path))?;
        Ok(Lock { file: Arc::new(file), path })
    }

    /// The process of the server that has locked the directory: `None` if there is no server, `Some(None)` if the server has
    /// not written its process id yet.
    pub fn lock_holder(&self) -> Option<Option<u32>> {
        let mut file = File::open(self.0.join("lock")).ok()?;
        if !matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)) {
            return None;
        }
        let mut pid = String::new();
        let _ = file.read_to_string(&mut pid);
        Some(pid.trim().parse().ok())
    }

    /// The time at which the directory was last locked.
    pub fn locked_at(&self) -> Option<SystemTime> {
        fs::metadata(self.0.join("lock")).and_then(|file| file.modified()).ok()
    }

    /// Reads the tokens, or creates them. `env` (`PARLOR_TOKEN`) replaces the driver's token.
    pub fn tokens(&self, _lock: &Lock, env: Option<String>) -> Result<Tokens, DataDirError> {
        let driver = match env.filter(|token| !token.is_empty()) {
            Some(token) => check_token(&token, Path::new("PARLOR_TOKEN")).map(|()| token)?,
            None => token_in(&self.0.join("token"))?,
        };
        Ok(Tokens { driver, observer: Some(token_in(&self.0.join("token.read"))?) })
    }

    /// Stores the path of the configuration file that the server of this directory uses.
    pub fn write_config_path(&self, _lock: &Lock, config: Option<&Path>) -> Result<(), DataDirError> {
        let path = config.map(|path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()));
        let path = path.unwrap_or_default();
        replace(&self.0.join("config"), path.as_os_str().as_encoded_bytes())
    }

    /// Whether the server of this directory uses this configuration file.
    pub fn uses_config(&self, config: &Path) -> bool {
        let used = fs::read(self.0.join("config")).unwrap_or_default();
        fs::canonicalize(config).is_ok_and(|path| path.as_os_str().as_encoded_bytes() == used)
    }

    /// The path of the socket of this directory's server.
    pub fn socket(&self) -> PathBuf {
        match fs::read(self.0.join("socket")) {
            Ok(elsewhere) => PathBuf::from(OsString::from_vec(elsewhere)),
            Err(_) => self.0.join("parlor.sock"),
        }
    }

    /// Chooses the path of the socket: in the directory or, if that path is too long, in `runtime` (`XDG_RUNTIME_DIR`) or a
    /// private directory in `temp`. A path outside is stored in the directory.
    pub fn place_socket(
        &self,
        _lock: &Lock,
        runtime: Option<PathBuf>,
        temp: &Path,
    ) -> Result<PathBuf, DataDirError> {
        let pointer = self.0.join("socket");
        let inside = self.0.join("parlor.sock");
        if fits(&inside) {
            remove(&pointer)?;
            return Ok(inside);
        }
        let mut hasher = DefaultHasher::new();
        self.0.hash(&mut hasher);
        let hash = hasher.finish();
        let in_runtime = runtime
            .filter(|directory| directory.is_absolute() && is_private(directory))
            .map(|directory| directory.join(format!("parlor-{hash:016x}.sock")))
            .filter(|socket| fits(socket));
        let socket = match in_runtime {
            Some(socket) => socket,
            None => {
                let uid = rustix::process::geteuid().as_raw();
                let directory = temp.join(format!("parlor-{uid}-{hash:016x}"));
                let socket = directory.join("parlor.sock");
                if !fits(&socket) {
                    return Err(DataDirError::SocketTooLong(socket));
                }
                make_private(&directory)?;
                socket
            }
        };
        replace(&pointer, socket.as_os_str().as_bytes())?;
        Ok(socket)
    }
}

/// Reads a file of at most `limit` bytes that belongs to this user; `None` if there is none.
#[cfg(feature = "http")]
pub(crate) fn read_private(path: &Path, limit: u64) -> Result<Option<String>, DataDirError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io_error("read", path)(error)),
    };
    let owner = file.metadata().map_err(io_error("inspect", path))?.uid();
    if owner != rustix::process::geteuid().as_raw() {
        return Err(DataDirError::NotOurs(path.to_owned()));
    }
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes).map_err(io_error("read", path))?;
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

/// Replaces a file, which only this user may read, atomically. Also a power cut does not undo it. This blocks.
pub(crate) fn replace(path: &Path, text: &[u8]) -> Result<(), DataDirError> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    remove(&new)?;
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)
        .and_then(|mut file| file.write_all(text).and_then(|()| file.sync_all()))
        .map_err(io_error("write", &new))?;
    fs::rename(&new, path).map_err(io_error("replace", path))?;
    // The new name is an entry of the directory.
    let directory = path.parent().unwrap_or(Path::new("/"));
    File::open(directory).and_then(|directory| directory.sync_all()).map_err(io_error("sync", directory))
}

/// Removes a file, if it exists.
pub(crate) fn remove(path: &Path) -> Result<(), DataDirError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io_error("remove", path)(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Whether a directory was created for a socket.
pub(crate) fn is_socket_dir(path: &Path) -> bool {
    let uid = rustix::process::geteuid().as_raw();
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&format!("parlor-{uid}-")))
}

pub(crate) fn io_error(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DataDirError {
    let path = path.to_owned();
    move |error| DataDirError::Io { operation, path, error }
}

fn restrict_access(path: &Path) -> Result<(), DataDirError> {
    let metadata = fs::metadata(path).map_err(io_error("inspect", path))?;
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(DataDirError::NotOurs(path.to_owned()));
    }
    if metadata.mode() & 0o777 != 0o700 {
        fs::set_permissions(path, Permissions::from_mode(0o700))
            .map_err(io_error("restrict access to", path))?;
    }
    Ok(())
}

/// Creates a directory in a shared one, where another user may have placed a link, which is not followed.
fn make_private(path: &Path) -> Result<(), DataDirError> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        created => created.map_err(io_error("create", path))?,
    }
    let metadata = fs::symlink_metadata(path).map_err(io_error("inspect", path))?;
    if !metadata.is_dir() {
        return Err(DataDirError::NotOurs(path.to_owned()));
    }
    restrict_access(path)
}

fn is_private(path: &Path) -> bool {
    let ours = rustix::process::geteuid().as_raw();
    fs::metadata(path)
        .is_ok_and(|found| found.is_dir() && found.uid() == ours && found.mode() & 0o777 == 0o700)
}

fn fits(socket: &Path) -> bool {
    socket.as_os_str().len() <= SOCKET_PATH_LIMIT
}

fn token_in(path: &Path) -> Result<String, DataDirError> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let token = random_token().map_err(io_error("create", path))?;
            replace(path, format!("{token}\n").as_bytes())?;
            return Ok(token);
        }
        Err(error) => return Err(io_error("read", path)(error)),
    };
    // The owner of the file knows the token and can change it.
    let owner = file.metadata().map_err(io_error("inspect", path))?.uid();
    if owner != rustix::process::geteuid().as_raw() {
        return Err(DataDirError::NotOurs(path.to_owned()));
    }
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(io_error("read", path))?;
    let token = text.trim();
    check_token(token, path)?;
    file.set_permissions(Permissions::from_mode(0o600)).map_err(io_error("restrict access to", path))?;
    Ok(token.to_owned())
}

/// Checks a token; `source` is the file or variable that it comes from.
fn check_token(token: &str, source: &Path) -> Result<(), DataDirError> {
    if !is_token(token) {
        return Err(DataDirError::BadToken(source.to_owned()));
    }
    if token.len() < MIN_TOKEN {
        return Err(DataDirError::ShortToken(source.to_owned()));
    }
    Ok(())
}

/// Whether a token can be sent in a header and in the name of a WebSocket subprotocol.
fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte))
}

fn random_token() -> io::Result<String> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes.iter().fold(String::with_capacity(64), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    }))
}

/// Keeps tokens out of logs.
impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tokens")
    }
}
