//! `fs/read_text_file` and `fs/write_text_file`, on the disk. The functions block.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use parlor_json::{Json, Object};
use parlor_wire::{RpcError, code};
use uuid::Uuid;

use super::params;

/// The longest file that is read or written.
pub const MAX_FILE: u64 = 64 << 20;

/// Reads a text file, or `limit` lines of it from `line` on, which counts from 1. Line ends stay as they are.
pub fn read(params: &Object) -> Result<Json, RpcError> {
    let path = params::path(params, "path")?;
    let line = params::number(params, "line")?;
    let limit = params::number(params, "limit")?;
    let text = read_text(&path)?;
    let content = if line.is_none() && limit.is_none() {
        &text
    } else {
        // Some agents count from zero; both mean the first line.
        lines(&text, line.unwrap_or(1).saturating_sub(1), limit.unwrap_or(u64::MAX))
    };
    let mut result = Object::default();
    result.set("content", params::string(content));
    Ok(result.to_json())
}

/// Writes a text file; it is created if it does not exist, folders are not. Whoever reads it meanwhile sees the old text
/// or the new one, where the system allows it.
pub fn write(params: &Object) -> Result<Json, RpcError> {
    let path = params::path(params, "path")?;
    let content = params::text(params, "content")?;
    if content.len() as u64 > MAX_FILE {
        return Err(too_long(&path));
    }
    write_text(&path, content.as_bytes()).map_err(|error| failed("write", &path, &error))?;
    Ok(Object::default().to_json())
}

fn read_text(path: &Path) -> Result<String, RpcError> {
    let error = |error| failed("read", path, &error);
    // Before it is opened: to open a pipe is to wait for somebody who writes.
    regular(&fs::metadata(path).map_err(error)?).map_err(error)?;
    let file = File::open(path).map_err(error)?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(error)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(too_long(path));
    }
    String::from_utf8(bytes).map_err(|error| {
        let place = error.utf8_error().valid_up_to();
        params::invalid(format!("`{}` is not a text file: byte {place} is not UTF-8", path.display()))
    })
}

/// `limit` lines after the first `skipped`.
fn lines(text: &str, skipped: u64, limit: u64) -> &str {
    let from = after_lines(text, skipped);
    &text[from..][..after_lines(&text[from..], limit)]
}

/// Where a text goes on after `count` lines.
fn after_lines(text: &str, count: u64) -> usize {
    let Some(last) = count.checked_sub(1) else { return 0 };
    let last = usize::try_from(last).unwrap_or(usize::MAX);
    text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').nth(last).map_or(text.len(), |(at, _)| at + 1)
}

fn write_text(path: &Path, content: &[u8]) -> io::Result<()> {
    let target = match path.canonicalize() {
        Ok(target) => target,
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        // A link to a file that does not exist yet. Renaming would replace the link.
        Err(_) if path.is_symlink() => return File::create(path)?.write_all(content),
        Err(_) => return create(path, content),
    };
    let before = fs::metadata(&target)?;
    regular(&before)?;
    // Renaming would also replace a file that may not be written, so opening it is the test, and the way back.
    let mut file = OpenOptions::new().write(true).open(&target)?;
    match replace(&target, &before, content) {
        Ok(()) => Ok(()),
        Err(NotReplaced) => {
            file.set_len(0)?;
            file.write_all(content)
        }
    }
}

/// A file that does not exist.
fn create(path: &Path, content: &[u8]) -> io::Result<()> {
    let scratch = Scratch::beside(path)?;
    scratch.fill(content)?;
    scratch.become_file(path)
}

/// The file could not be replaced as a whole, and is as it was.
struct NotReplaced;

impl From<io::Error> for NotReplaced {
    fn from(_: io::Error) -> Self {
        Self
    }
}

fn replace(target: &Path, before: &fs::Metadata, content: &[u8]) -> Result<(), NotReplaced> {
    let scratch = Scratch::beside(target)?;
    let after = scratch.file.metadata()?;
    // Other names of the same file must still be names of it, and it must still be its owner's.
    if before.nlink() > 1 || before.uid() != after.uid() || before.gid() != after.gid() {
        return Err(NotReplaced);
    }
    scratch.file.set_permissions(before.permissions())?;
    scratch.fill(content)?;
    Ok(scratch.become_file(target)?)
}

/// A file that is to take the place of another. It is removed if it does not get there.
struct Scratch {
    file: File,
    path: PathBuf,
}

impl Scratch {
    fn beside(path: &Path) -> io::Result<Self> {
        let folder = path.parent().ok_or(io::ErrorKind::IsADirectory)?;
        let path = folder.join(format!(".parlor-{}", Uuid::now_v7()));
        Ok(Self { file: OpenOptions::new().write(true).create_new(true).open(&path)?, path })
    }

    fn fill(&self, content: &[u8]) -> io::Result<()> {
        (&self.file).write_all(content)?;
        self.file.sync_data()
    }

    fn become_file(&self, path: &Path) -> io::Result<()> {
        fs::rename(&self.path, path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // After a rename there is none of this name.
        let _ = fs::remove_file(&self.path);
    }
}

fn regular(metadata: &fs::Metadata) -> io::Result<()> {
    if metadata.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if metadata.is_file() { Ok(()) } else { Err(io::Error::other("not a regular file")) }
}

fn failed(what: &str, path: &Path, error: &io::Error) -> RpcError {
    let shown = path.display().to_string();
    if error.kind() == io::ErrorKind::NotFound {
        return params::not_found(format!("`{shown}` does not exist"), "path", &shown);
    }
    params::refused(error, format!("cannot {what} `{shown}`: {error}"))
}

fn too_long(path: &Path) -> RpcError {
    let most = MAX_FILE >> 20;
    RpcError::new(code::INTERNAL_ERROR, format!("`{}` is longer than {most} MiB", path.display()))
}
