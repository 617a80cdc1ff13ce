//! Files that are written whole or not at all.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::command_error::CommandError;

/// Writes a file. It appears under its name when it is complete: a full disk or a kill leaves an existing file unchanged, and no
/// new one. An existing file is replaced only if that is asked for. What is not a regular file, such as a pipe, is written to
/// directly.
pub(crate) fn write(path: &Path, text: &str, replace: bool) -> Result<(), CommandError> {
    let existing = fs::symlink_metadata(path).ok();
    let result = match existing {
        Some(existing) if existing.is_dir() => {
            return Err(CommandError::bad_input(format_args!("{} is a directory", path.display())));
        }
        Some(_) if is_special(path) => {
            File::options().write(true).open(path).and_then(|mut file| file.write_all(text.as_bytes()))
        }
        Some(_) if !replace => {
            return Err(CommandError::bad_input(format_args!("{} exists", path.display()))
                .hint("--force replaces it"));
        }
        // A link stays a link: the file that it names is replaced.
        Some(_) => fs::canonicalize(path).and_then(|path| write_and_rename(&path, text)),
        None => write_and_rename(path, text),
    };
    result.map_err(|error| CommandError::failed(format_args!("cannot write {}: {error}", path.display())))
}

/// Whether a path names something other than a regular file or directory.
fn is_special(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| !file.is_file() && !file.is_dir())
}

fn write_and_rename(path: &Path, text: &str) -> io::Result<()> {
    let unfinished = unfinished_path(path)?;
    let written = File::options().write(true).create_new(true).open(&unfinished).and_then(|mut file| {
        // An existing file keeps its permissions.
        if let Ok(existing) = fs::metadata(path) {
            file.set_permissions(existing.permissions())?;
        }
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&unfinished, path)
    });
    if written.is_err() {
        // Nothing is left if it was not created.
        let _ = fs::remove_file(&unfinished);
    }
    written
}

/// The name under which a file is written, in the same directory.
fn unfinished_path(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or_else(|| io::Error::other("it has no file name"))?;
    let mut unfinished = std::ffi::OsString::from(".");
    unfinished.push(name);
    unfinished.push(format!(".{}.part", std::process::id()));
    Ok(path.with_file_name(unfinished))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_existing_file_is_replaced_only_if_that_is_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.md");
        write(&path, "one", false).unwrap();
        let error = write(&path, "two", false).unwrap_err();
        assert!(
            error.to_string().ends_with("x.md exists") && error.hint_text() == Some("--force replaces it")
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), "one");
        write(&path, "two", true).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no unfinished file is left");
    }

    #[test]
    fn a_link_stays_a_link_and_a_directory_is_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        fs::write(&file, "one").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        write(&link, "two", true).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&file).unwrap(), "two");
        assert!(write(dir.path(), "x", true).unwrap_err().to_string().ends_with("is a directory"));
        assert!(
            write(&dir.path().join("no/such"), "x", false).unwrap_err().to_string().contains("cannot write")
        );
    }

    #[test]
    fn a_full_disk_leaves_no_file_and_the_existing_one() {
        // A device that is always full; the write goes to it directly.
        let full = Path::new("/dev/full");
        if full.exists() {
            let error = write(full, "x", false).unwrap_err();
            assert!(error.to_string().contains("No space left"), "{error}");
        }
        // A directory that cannot be written.
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x".repeat(300));
        assert!(write(&path, "x", false).is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
