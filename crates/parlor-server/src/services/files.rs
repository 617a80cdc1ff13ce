//! `fs/read_text_file` and `fs/write_text_file`, on the disk. The functions block.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use parlor_json::{Json, Object, string_literal};
use parlor_wire::{RpcError, code};
use rustix::fs::{AtFlags, Mode, OFlags};
use uuid::Uuid;

use super::access::{FilePlace, FileRefused, FileScope};
use super::params;

/// The longest file that is read or written.
pub const MAX_FILE: u64 = 64 << 20;

/// The longest answer, as JSON: an agent for which more than 64 MiB waits is cut off.
const MAX_ANSWER: usize = (64 << 20) - (512 << 10);

/// How many bytes a request will have in memory, about. A file that is not served is not looked at.
pub(crate) fn length(method: &str, params: &Object, scope: &FileScope) -> u64 {
    if method == "fs/write_text_file" {
        return params.text_len() as u64;
    }
    let place = params::path(params, "path").and_then(|path| placed("read", &path, scope));
    let file = place.ok().and_then(|place| place.stat().ok().flatten());
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
        // Some agents count from zero; both mean the first line.
        lines(&text, line.unwrap_or(1).saturating_sub(1), limit.unwrap_or(u64::MAX))
    };
    let content = string_literal(content);
    // It may be long, and is not needed any more.
    drop(text);
    if content.len() > MAX_ANSWER {
        let shown = path.display();
        let message = format!("`{shown}` is too long as JSON: read it in parts, with `line` and `limit`");
        return Err(RpcError::new(code::INTERNAL_ERROR, message));
    }
    let mut result = String::with_capacity(content.len() + 16);
    result.extend([r#"{"content":"#, &content, "}"]);
    drop(content);
    Ok(Json::parse(result).expect("a string literal is JSON"))
}

/// Writes a text file; it is created if it does not exist, folders are not. Whoever reads it meanwhile sees the old text
/// or the new one, where the system allows it.
pub fn write(params: &Object, scope: &FileScope) -> Result<Json, RpcError> {
    let path = params::path(params, "path")?;
    let content = params::text(params, "content")?;
    if content.len() as u64 > MAX_FILE {
        return Err(too_long(&path));
    }
    let place = placed("write", &path, scope)?;
    write_text(&place, content.as_bytes()).map_err(|error| failed("write", &path, &error))?;
    Ok(Object::default().to_json())
}

/// Looks whether a file that somebody else reads or writes may be, whether it is there or not.
pub fn check(params: &Object, scope: &FileScope) -> Result<(), RpcError> {
    let path = params::path(params, "path")?;
    served(scope)?;
    scope.check(&path).map_err(|refused| not_served("reach", &path, &refused))
}

/// The place of a file that may be read or written.
fn placed(what: &str, path: &Path, scope: &FileScope) -> Result<FilePlace, RpcError> {
    served(scope)?;
    scope.place(path).map_err(|refused| not_served(what, path, &refused))
}

fn served(scope: &FileScope) -> Result<(), RpcError> {
    if scope.is_off() {
        return Err(RpcError::new(code::METHOD_NOT_FOUND, "this agent is served no files (fs = \"off\")"));
    }
    Ok(())
}

fn not_served(what: &str, path: &Path, refused: &FileRefused) -> RpcError {
    let reason = match refused {
        FileRefused::Io(error) => return failed(what, path, error),
        FileRefused::Outside => "outside",
        FileRefused::Private => "private",
        FileRefused::Unresolved => "unresolved",
    };
    let mut data = Object::default();
    data.set("path", params::string(&path.display().to_string()));
    data.set("reason", params::string(reason));
    params::invalid(format!("cannot {what} `{}`: {refused}", path.display())).with_data(data.to_json())
}

fn read_text(path: &Path, scope: &FileScope) -> Result<String, RpcError> {
    let error = |error| failed("read", path, &error);
    let file = placed("read", path, scope)?.open(OFlags::RDONLY).map_err(error)?;
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

fn write_text(place: &FilePlace, content: &[u8]) -> io::Result<()> {
    // Renaming would also replace a file that may not be written, so opening it is the test, and the way back.
    let mut file = match place.open(OFlags::WRONLY) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return create(place, content),
        Err(error) => return Err(error),
    };
    match replace(place, &file.metadata()?, content) {
        Ok(()) => Ok(()),
        Err(NotReplaced) => {
            file.set_len(0)?;
            file.write_all(content)
        }
    }
}

/// A file that does not exist.
fn create(place: &FilePlace, content: &[u8]) -> io::Result<()> {
    let scratch = Scratch::beside(place)?;
    scratch.fill(content)?;
    scratch.become_file()
}

/// The file could not be replaced as a whole, and is as it was.
struct NotReplaced;

impl From<io::Error> for NotReplaced {
    fn from(_: io::Error) -> Self {
        Self
    }
}

fn replace(place: &FilePlace, before: &fs::Metadata, content: &[u8]) -> Result<(), NotReplaced> {
    let scratch = Scratch::beside(place)?;
    let after = scratch.file.metadata()?;
    // Other names of the same file must still be names of it, and it must still be its owner's.
    if before.nlink() > 1 || before.uid() != after.uid() || before.gid() != after.gid() {
        return Err(NotReplaced);
    }
    scratch.file.set_permissions(before.permissions())?;
    scratch.fill(content)?;
    Ok(scratch.become_file()?)
}

/// A file that is to take the place of another. It is removed if it does not get there.
struct Scratch<'a> {
    file: File,
    name: String,
    place: &'a FilePlace,
}

impl<'a> Scratch<'a> {
    fn beside(place: &'a FilePlace) -> io::Result<Self> {
        let name = format!(".parlor-{}", Uuid::new_v4());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&place.directory, &name, flags, Mode::from_raw_mode(0o666))?;
        Ok(Self { file: file.into(), name, place })
    }

    fn fill(&self, content: &[u8]) -> io::Result<()> {
        (&self.file).write_all(content)?;
        self.file.sync_data()
    }

    fn become_file(&self) -> io::Result<()> {
        let FilePlace { directory, name } = self.place;
        Ok(rustix::fs::renameat(directory, &self.name, directory, name)?)
    }
}

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        // After a rename there is none of this name.
        let _ = rustix::fs::unlinkat(&self.place.directory, &self.name, AtFlags::empty());
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::access::FileAccess;

    #[test]
    fn only_what_is_served_is_measured() {
        let home = tempfile::tempdir().unwrap();
        let work = home.path().join("work");
        fs::create_dir(&work).unwrap();
        fs::write(work.join("in"), "inside").unwrap();
        fs::write(home.path().join("out"), "outside").unwrap();
        std::os::unix::fs::symlink("../out", work.join("link")).unwrap();
        let scope = FileScope::new(FileAccess::Workspace, vec![work.clone()], Vec::new());
        for (path, bytes) in [("work/in", 6), ("work/none", 0), ("out", 0), ("work/link", 0)] {
            let mut params = Object::default();
            params.set("path", params::string(home.path().join(path).to_str().unwrap()));
            assert_eq!(length("fs/read_text_file", &params, &scope), bytes, "{path}");
        }
    }
}
