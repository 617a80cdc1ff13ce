//! The directory that holds all that a server keeps, and the lock that makes it belong to one server.

use std::ffi::OsString;
use std::fmt::{self, Write as _};
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read, Seek, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use etcetera::BaseStrategy;

/// A data directory that exists, is ours, and is closed to others.
#[derive(Debug, Clone)]
pub struct DataDir(PathBuf);

/// As long as it or a clone of it lives, no other server uses the directory.
#[derive(Debug, Clone)]
pub struct Lock {
    file: Arc<File>,
    path: PathBuf,
}

impl Lock {
    /// Whether the directory is still there, with this lock in it. If it was deleted, what is written is lost, and another
    /// server may use its name.
    pub fn is_in_place(&self) -> bool {
        let places = self.file.metadata().and_then(|ours| Ok((ours, fs::metadata(&self.path)?)));
        match places {
            Ok((ours, there)) => (ours.dev(), ours.ino()) == (there.dev(), there.ino()),
            // Trouble with the disk does not mean that it is gone.
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        }
    }
}

/// What clients show over HTTP to be let in.
#[derive(Clone, PartialEq, Eq)]
pub struct Tokens {
    /// Lets a client do everything.
    pub driver: String,
    /// Lets a client watch; nobody only watches if there is none.
    pub observer: Option<String>,
}

impl Tokens {
    /// One that lets a client do everything. `None` if it holds what cannot be sent.
    pub fn only(driver: &str) -> Option<Self> {
        is_token(driver).then(|| Self { driver: driver.to_owned(), observer: None })
    }
}

/// How many characters a token has at least.
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

/// The longest path of a socket. The system's own limit is 104 bytes or 108, and its error for longer ones helps nobody.
const SOCKET_PATH_LIMIT: usize = 100;

/// The data directory's path: as the command line says, else the environment (`PARLOR_DATA_DIR`), else where programs
/// keep their data.
pub fn path(flag: Option<PathBuf>, env: Option<OsString>) -> Result<PathBuf, DataDirError> {
    let named = flag.or_else(|| env.filter(|value| !value.is_empty()).map(PathBuf::from));
    let chosen = match named {
        Some(path) => path,
        None => {
            etcetera::base_strategy::Xdg::new().map_err(|_| DataDirError::NoHome)?.data_dir().join("parlor")
        }
    };
    std::path::absolute(&chosen).map_err(io_error("find", &chosen))
}

impl DataDir {
    /// Makes the directory if it is not there, and closes it to others.
    pub fn open(path: &Path) -> Result<Self, DataDirError> {
        let path = std::path::absolute(path).map_err(io_error("find", path))?;
        DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(io_error("make", &path))?;
        close_to_others(&path)?;
        Ok(Self(path))
    }

    /// The directory as it is, for who only wants to look; nothing if it is not there, and an error if it cannot be read.
    pub fn look(path: &Path) -> Result<Option<Self>, DataDirError> {
        match fs::read_dir(path) {
            Ok(_) => Ok(Some(Self(path.to_owned()))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(io_error("read", path)(error)),
        }
    }

    /// The directory itself.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The database.
    pub fn database(&self) -> PathBuf {
        self.0.join("parlor.db")
    }

    /// The file that holds the port of the HTTP listener while a server runs.
    pub fn port_file(&self) -> PathBuf {
        self.0.join("port")
    }

    /// The directory for logs, which is made if it is not there.
    pub fn log(&self) -> Result<PathBuf, DataDirError> {
        let path = self.0.join("log");
        DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(io_error("make", &path))?;
        Ok(path)
    }

    /// Takes the directory for this process.
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
                // The other server may not have written it yet, and the answer is the same without.
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

    /// The tokens, which are made when they are not there. `PARLOR_TOKEN` stands for the driver's, if it is given.
    pub fn tokens(&self, _lock: &Lock, env: Option<String>) -> Result<Tokens, DataDirError> {
        let driver = match env.filter(|token| !token.is_empty()) {
            Some(token) => checked(&token, Path::new("PARLOR_TOKEN")).map(|()| token)?,
            None => token_in(&self.0.join("token"))?,
        };
        Ok(Tokens { driver, observer: Some(token_in(&self.0.join("token.read"))?) })
    }

    /// Notes which configuration file the server of this directory uses.
    pub fn note_config(&self, _lock: &Lock, config: Option<&Path>) -> Result<(), DataDirError> {
        let path = config.map(|path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()));
        let path = path.unwrap_or_default();
        replace(&self.0.join("config"), path.as_os_str().as_encoded_bytes())
    }

    /// Whether the server of this directory uses this configuration file.
    pub fn uses_config(&self, config: &Path) -> bool {
        let used = fs::read(self.0.join("config")).unwrap_or_default();
        fs::canonicalize(config).is_ok_and(|path| path.as_os_str().as_encoded_bytes() == used)
    }

    /// Where the socket of this directory's server is, for who wants to join it.
    pub fn socket(&self) -> PathBuf {
        match fs::read(self.0.join("socket")) {
            Ok(elsewhere) => PathBuf::from(OsString::from_vec(elsewhere)),
            Err(_) => self.0.join("parlor.sock"),
        }
    }

    /// Chooses where the socket goes and leaves word of it: in the directory, or, where that path is too long, in
    /// `runtime` (`XDG_RUNTIME_DIR`) or a directory of ours in `temp`.
    pub fn place_socket(
        &self,
        _lock: &Lock,
        runtime: Option<PathBuf>,
        temp: &Path,
    ) -> Result<PathBuf, DataDirError> {
        let word = self.0.join("socket");
        let here = self.0.join("parlor.sock");
        if fits(&here) {
            remove(&word)?;
            return Ok(here);
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
        replace(&word, socket.as_os_str().as_bytes())?;
        Ok(socket)
    }
}

/// Writes a file that only we may read, so that nobody ever sees half of it.
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
        .and_then(|mut file| file.write_all(text))
        .map_err(io_error("write", &new))?;
    fs::rename(&new, path).map_err(io_error("replace", path))
}

/// Removes a file, if it is there.
pub(crate) fn remove(path: &Path) -> Result<(), DataDirError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io_error("remove", path)(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Whether a directory was made for nothing but a socket.
pub(crate) fn is_for_a_socket(path: &Path) -> bool {
    let uid = rustix::process::geteuid().as_raw();
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&format!("parlor-{uid}-")))
}

pub(crate) fn io_error(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DataDirError {
    let path = path.to_owned();
    move |error| DataDirError::Io { operation, path, error }
}

fn close_to_others(path: &Path) -> Result<(), DataDirError> {
    let metadata = fs::metadata(path).map_err(io_error("look at", path))?;
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(DataDirError::NotOurs(path.to_owned()));
    }
    if metadata.mode() & 0o777 != 0o700 {
        fs::set_permissions(path, Permissions::from_mode(0o700)).map_err(io_error("close", path))?;
    }
    Ok(())
}

/// Makes a directory where everybody may: what stands there already may be a trap, so links are not followed.
fn make_private(path: &Path) -> Result<(), DataDirError> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => made.map_err(io_error("make", path))?,
    }
    let metadata = fs::symlink_metadata(path).map_err(io_error("look at", path))?;
    if !metadata.is_dir() {
        return Err(DataDirError::NotOurs(path.to_owned()));
    }
    close_to_others(path)
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
            let token = random_token().map_err(io_error("make", path))?;
            replace(path, format!("{token}\n").as_bytes())?;
            return Ok(token);
        }
        Err(error) => return Err(io_error("read", path)(error)),
    };
    // Whoever owns the file knows the token, and can change it.
    let owner = file.metadata().map_err(io_error("look at", path))?.uid();
    if owner != rustix::process::geteuid().as_raw() {
        return Err(DataDirError::NotOurs(path.to_owned()));
    }
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(io_error("read", path))?;
    let token = text.trim();
    checked(token, path)?;
    file.set_permissions(Permissions::from_mode(0o600)).map_err(io_error("close", path))?;
    Ok(token.to_owned())
}

/// Whether a token can be used. `place` is where it is.
fn checked(token: &str, place: &Path) -> Result<(), DataDirError> {
    if !is_token(token) {
        return Err(DataDirError::BadToken(place.to_owned()));
    }
    if token.len() < MIN_TOKEN {
        return Err(DataDirError::ShortToken(place.to_owned()));
    }
    Ok(())
}

/// What may stand in a header and in the name of a WebSocket subprotocol alike.
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

/// A token is not for logs.
impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tokens")
    }
}
