//! Checks of directories and of files with tokens.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use parlor_server::data_dir::DataDir;

use super::Check;
use crate::output::{short_path, size};

/// Checks the environment variables that determine the directories.
pub(super) fn home() -> Check {
    let name = "home";
    let relative = ["XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"].into_iter().find(|name| {
        std::env::var_os(name).is_some_and(|value| !value.is_empty() && !Path::new(&value).is_absolute())
    });
    match (std::env::var_os("HOME").filter(|home| Path::new(home).is_dir()), relative) {
        (_, Some(variable)) => Check::warn(
            name,
            format!("{variable} is not an absolute path and is ignored"),
            "set it to an absolute path",
        ),
        (None, _) => Check::warn(name, "HOME is not a directory", "set the paths with --data and --config"),
        (Some(home), None) => Check::ok(name, home.to_string_lossy()),
    }
}

/// Checks the data directory.
pub(super) fn directory(path: &Path) -> Check {
    let name = "data directory";
    let shown = short_path(&path.display().to_string());
    let found = match DataDir::open_existing(path).map(|_| fs::metadata(path)) {
        Ok(Ok(found)) => found,
        Ok(Err(_)) => {
            return Check::warn(name, format!("{shown} does not exist"), "the first server creates it");
        }
        Err(_) if path.is_file() => {
            let message = format!("{shown} is not a directory");
            return Check::fail(name, message, "move the file away, or use another directory with --data");
        }
        Err(error) => return Check::fail(name, error.to_string(), "use another directory with --data"),
    };
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Check::fail(
            name,
            format!("{shown} belongs to another user"),
            "use another directory with --data",
        );
    }
    match found.mode() & 0o777 {
        0o700 => Check::ok(name, shown),
        mode => Check::warn(
            name,
            format!("{shown} has mode {mode:04o}: other users can read it"),
            format!("chmod 700 {shown}; the next server does this as well"),
        ),
    }
}

/// Free space below which sessions may soon not be stored.
const LOW_SPACE: u64 = 100_000_000;

/// Free space below which sessions cannot be stored.
const NO_SPACE: u64 = 1_000_000;

/// Checks the free space of the disk with the data directory; `None` if it is unknown.
pub(super) fn disk(path: &Path) -> Option<Check> {
    let disk = rustix::fs::statvfs(path).ok()?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    let message = format!("{} free", size(free));
    let hint = "delete or move files: without space no session can be stored, and turns fail";
    Some(match free {
        0..NO_SPACE => Check::fail("disk", format!("full: {message}"), hint),
        NO_SPACE..LOW_SPACE => Check::warn("disk", message, hint),
        LOW_SPACE.. => Check::ok("disk", message),
    })
}

/// Checks a file with a token, if it exists.
pub(super) fn token(data: &DataDir, file: &'static str) -> Option<Check> {
    let path = data.path().join(file);
    let shown = short_path(&path.display().to_string());
    let mode = mode_of(&path)?;
    if mode & 0o077 != 0 {
        let message = format!("{shown} has mode {mode:04o}: other users can read it and control the agents");
        return Some(Check::fail(
            "token",
            message,
            "delete the file and restart the server, which creates a new token",
        ));
    }
    match fs::read_to_string(&path) {
        Err(error) => {
            Some(Check::fail("token", format!("{shown}: {error}"), "delete the file and restart the server"))
        }
        Ok(text) if text.trim().is_empty() => {
            Some(Check::fail("token", format!("{shown} is empty"), "delete the file and restart the server"))
        }
        Ok(_) => Some(Check::ok("token", shown)),
    }
}

/// The permissions of a file.
pub(super) fn mode_of(path: &Path) -> Option<u32> {
    fs::metadata(path).ok().map(|found| found.mode() & 0o777)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::commands::doctor::Verdict;

    #[test]
    fn a_disk_without_space_fails_the_check() {
        // The file system of `/proc` has no space.
        let full = disk(Path::new("/proc")).unwrap();
        assert!(full.verdict == Verdict::Fail && full.message == "full: 0 kB free", "{}", full.message);
        let temporary = disk(&std::env::temp_dir()).unwrap();
        assert!(temporary.message.ends_with("B free"), "{}", temporary.message);
        assert!(disk(Path::new("/nonexistent")).is_none());
    }
}
