//! `fs/read_text_file` and `fs/write_text_file`. All functions block.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use parlor_json::{Json, Object, ObjectWriter, string_literal};
use parlor_wire::{RpcError, code};
use rustix::fs::{AtFlags, Mode, OFlags};
use uuid::Uuid;

use super::access::{FileLocation, FileRefused, FileScope};
use super::params;

/// The maximal size of a file that is read or written, in bytes.
pub const MAX_FILE: u64 = 64 << 20;

/// The maximal size of a response as JSON: an agent whose send queue exceeds 64 MiB is disconnected.
const MAX_RESPONSE: usize = (64 << 20) - (512 << 10);

/// The approximate number of bytes that a request takes in memory. Files that the agent may not access are not looked at.
pub(crate) fn length(method: &str, params: &Object, scope: &FileScope) -> u64 {
    if method == "fs/write_text_file" {
        return params.text_len() as u64;
    }
    let location = params::path(params, "path").and_then(|path| locate("read", &path, scope));
    let file = location.ok().and_then(|location| location.stat().ok().flatten());
    file.and_then(|file| u64::try_from(file.st_size).ok()).unwrap_or(0)
}

/// Reads a text file, or `limit` lines of it from `line` on, which counts from 1. Line ends stay as they are.
pub fn read(params: &Object, scope: &FileScope) -> Result<Json, RpcError> {
    let path = params::path(params, "path")?;
    let line = params::number(params, "line")?;
    let limit = params::number(params, "limit")?;
    let text = read_text(&path, scope)?;
    let content = if line.is_none() && limit.is_none() {
        &text
    } else {
        // Some agents count from zero: 0 and 1 are both the first line.
        lines(&text, line.unwrap_or(1).saturating_sub(1), limit.unwrap_or(u64::MAX))
    };
    let content = string_literal(content);
    // Freed early, because it may be long.
    drop(text);
    if content.len() > MAX_RESPONSE {
        let shown = path.display();
        let message = format!("`{shown}` is too long as JSON: read it in parts, with `line` and `limit`");
        return Err(RpcError::new(code::INTERNAL_ERROR, message));
    }
    let result = ObjectWriter::with_capacity(content.len() + 16).raw("content", &content);
    drop(content);
    Ok(result.into_json())
}

/// Writes a text file, which is created if it does not exist (directories are not). The file is replaced atomically where
/// that is possible.
pub fn write(params: &Object, scope: &FileScope) -> Result<Json, RpcError> {
    let path = params::path(params, "path")?;
    let content = params::text(params, "content")?;
    if content.len() as u64 > MAX_FILE {
        return Err(too_long(&path));
    }
    let location = locate("write", &path, scope)?;
    write_text(&location, content.as_bytes()).map_err(|error| failed("write", &path, &error))?;
    Ok(Object::default().to_json())
}

/// Checks whether the agent may access a file that a client reads or writes, whether it exists or not.
pub fn check(params: &Object, scope: &FileScope) -> Result<(), RpcError> {
    let path = params::path(params, "path")?;
    check_enabled(scope)?;
    scope.check(&path).map_err(|refused| refusal("access", &path, &refused))
}

/// Locates a file that the agent may access.
fn locate(operation: &str, path: &Path, scope: &FileScope) -> Result<FileLocation, RpcError> {
    check_enabled(scope)?;
    scope.locate(path).map_err(|refused| refusal(operation, path, &refused))
}

fn check_enabled(scope: &FileScope) -> Result<(), RpcError> {
    if scope.is_off() {
        return Err(RpcError::new(
            code::METHOD_NOT_FOUND,
            "file access is disabled for this agent (fs = \"off\" in config.toml)",
        ));
    }
    Ok(())
}

fn refusal(operation: &str, path: &Path, refused: &FileRefused) -> RpcError {
    let reason = match refused {
        FileRefused::Io(error) => return failed(operation, path, error),
        FileRefused::Outside => "outside",
        FileRefused::Private => "private",
        FileRefused::Unresolved => "unresolved",
    };
    let mut data = Object::default();
    data.set("path", path.display().to_string());
    data.set("reason", reason);
    params::invalid(format!("cannot {operation} `{}`: {refused}", path.display())).with_data(data.to_json())
}

fn read_text(path: &Path, scope: &FileScope) -> Result<String, RpcError> {
    let error = |error| failed("read", path, &error);
    let file = locate("read", path, scope)?.open(OFlags::RDONLY).map_err(error)?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(error)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(too_long(path));
    }
    String::from_utf8(bytes).map_err(|error| {
        let offset = error.utf8_error().valid_up_to();
        params::invalid(format!("`{}` is not a text file: byte {offset} is not UTF-8", path.display()))
    })
}

/// `limit` lines after the first `skipped`.
fn lines(text: &str, skipped: u64, limit: u64) -> &str {
    let from = after_lines(text, skipped);
    &text[from..][..after_lines(&text[from..], limit)]
}

/// The offset after `count` lines.
fn after_lines(text: &str, count: u64) -> usize {
    let Some(last) = count.checked_sub(1) else { return 0 };
    let last = usize::try_from(last).unwrap_or(usize::MAX);
    text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').nth(last).map_or(text.len(), |(at, _)| at + 1)
}

fn write_text(location: &FileLocation, content: &[u8]) -> io::Result<()> {
    // Opening checks the permission to write, which renaming does not, and is the fallback if renaming is not possible.
    let mut file = match location.open(OFlags::WRONLY) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return create(location, content),
        Err(error) => return Err(error),
    };
    match replace(location, &file.metadata()?, content) {
        Ok(()) => Ok(()),
        Err(NotReplaced) => {
            file.set_len(0)?;
            file.write_all(content)
        }
    }
}

/// Creates a file.
fn create(location: &FileLocation, content: &[u8]) -> io::Result<()> {
    let temp = TempFile::beside(location)?;
    temp.fill(content)?;
    temp.rename()
}

/// The file cannot be replaced atomically, and is unchanged.
struct NotReplaced;

impl From<io::Error> for NotReplaced {
    fn from(_: io::Error) -> Self {
        Self
    }
}

fn replace(location: &FileLocation, before: &fs::Metadata, content: &[u8]) -> Result<(), NotReplaced> {
    let temp = TempFile::beside(location)?;
    let after = temp.file.metadata()?;
    // Hard links and the owner of the file must be kept.
    if before.nlink() > 1 || before.uid() != after.uid() || before.gid() != after.gid() {
        return Err(NotReplaced);
    }
    temp.file.set_permissions(before.permissions())?;
    temp.fill(content)?;
    Ok(temp.rename()?)
}

/// A temporary file that replaces another one; removed on drop if it has not.
struct TempFile<'a> {
    file: File,
    name: String,
    location: &'a FileLocation,
}

impl<'a> TempFile<'a> {
    fn beside(location: &'a FileLocation) -> io::Result<Self> {
        let name = format!(".parlor-{}", Uuid::new_v4());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&location.directory, &name, flags, Mode::from_raw_mode(0o666))?;
        Ok(Self { file: file.into(), name, location })
    }

    fn fill(&self, content: &[u8]) -> io::Result<()> {
        (&self.file).write_all(content)?;
        self.file.sync_data()
    }

    fn rename(&self) -> io::Result<()> {
        let FileLocation { directory, name } = self.location;
        Ok(rustix::fs::renameat(directory, &self.name, directory, name)?)
    }
}

impl Drop for TempFile<'_> {
    fn drop(&mut self) {
        // Fails after a rename.
        let _ = rustix::fs::unlinkat(&self.location.directory, &self.name, AtFlags::empty());
    }
}

fn failed(operation: &str, path: &Path, error: &io::Error) -> RpcError {
    let shown = path.display().to_string();
    if error.kind() == io::ErrorKind::NotFound {
        return params::not_found(format!("`{shown}` does not exist"), "path", &shown);
    }
    params::io_error(error, format!("cannot {operation} `{shown}`: {error}"))
}

fn too_long(path: &Path) -> RpcError {
    let limit = MAX_FILE >> 20;
    RpcError::new(code::INTERNAL_ERROR, format!("`{}` is longer than {limit} MiB", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::access::FileAccess;

    #[test]
    fn only_files_that_the_agent_may_access_are_measured() {
        let home = tempfile::tempdir().unwrap();
        let work = home.path().join("work");
        fs::create_dir(&work).unwrap();
        fs::write(work.join("in"), "inside").unwrap();
        fs::write(home.path().join("out"), "outside").unwrap();
        std::os::unix::fs::symlink("../out", work.join("link")).unwrap();
        let scope = FileScope::new(FileAccess::Workspace, vec![work.clone()], Vec::new());
        for (path, bytes) in [("work/in", 6), ("work/none", 0), ("out", 0), ("work/link", 0)] {
            let mut params = Object::default();
            params.set("path", home.path().join(path).to_str().unwrap());
            assert_eq!(length("fs/read_text_file", &params, &scope), bytes, "{path}");
        }
    }
}
