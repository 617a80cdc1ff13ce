//! Downloads, verifies and unpacks an archive.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

use parlor_server::http_client::{DownloadError, download};
use ring::digest::{self, SHA256};

use super::progress::{Progress, size};
use super::registry::Archive;
use super::{InstalledProgram, cannot, write_problem};
use crate::command_error::CommandError;

/// The longest archive that is downloaded, in bytes.
const MAX_ARCHIVE: u64 = 2 << 30;

/// How many bytes an archive may have when it is unpacked.
const MAX_UNPACKED: u64 = 8 << 30;

/// How many files and directories an archive may have.
const MAX_ENTRIES: usize = 100_000;

/// How many bytes are copied before other work, such as a signal, gets its turn.
const PART: usize = 1 << 20;

/// What an archive may have.
#[derive(Debug, Clone, Copy)]
struct Limits {
    bytes: u64,
    entries: usize,
}

/// Downloads an archive into `scratch`, verifies it and unpacks it into `directory`.
pub(super) async fn install(
    archive: &Archive,
    sha256: &str,
    directory: &Path,
    scratch: &Path,
    progress: &Progress,
) -> Result<InstalledProgram, CommandError> {
    let format = Format::of(&archive.url)?;
    let program = inside(&archive.cmd)
        .ok_or_else(|| cannot(format_args!("'{}' is not a path in the archive", archive.cmd)))?;
    let file = scratch.join("archive");
    fetch(&archive.url, sha256, &file, progress).await?;
    let limits = Limits { bytes: MAX_UNPACKED, entries: MAX_ENTRIES };
    let broken = |error: UnpackError| match error {
        UnpackError::Write(error) => write_error(&error),
        UnpackError::Archive(reason) => {
            CommandError::failed(format_args!("the archive {} {reason}", archive.url))
        }
    };
    let mut unpacker = Unpacker::new(directory, limits);
    let source = File::open(&file).map_err(|error| write_error(&error))?;
    match format {
        Format::TarGz => {
            let reader = flate2::read::MultiGzDecoder::new(BufReader::new(source));
            unpacker.tar(reader).await.map_err(broken)?;
        }
        Format::Tar => unpacker.tar(BufReader::new(source)).await.map_err(broken)?,
        Format::Zip => unpacker.zip(BufReader::new(source)).await.map_err(broken)?,
        Format::Program => unpacker.file(&program, true, source).await.map_err(broken)?,
    }
    let program = unpacker.find(&program).ok_or_else(|| {
        CommandError::failed(format_args!("the archive {} has no file '{}'", archive.url, archive.cmd))
    })?;
    make_executable(&directory.join(&program)).map_err(|error| write_error(&error))?;
    Ok(InstalledProgram::new(archive.url.clone(), program))
}

/// How an archive is packed.
#[derive(Debug, PartialEq, Eq)]
enum Format {
    TarGz,
    Tar,
    Zip,
    /// Not at all: it is the program.
    Program,
}

/// Formats that are not supported.
const UNSUPPORTED: [&str; 13] =
    [".bz2", ".tbz2", ".xz", ".txz", ".zst", ".7z", ".gz", ".dmg", ".pkg", ".deb", ".rpm", ".exe", ".msi"];

impl Format {
    /// The format by the name of the file in an address.
    fn of(url: &str) -> Result<Self, CommandError> {
        let path = url.split(['?', '#']).next().unwrap_or(url).to_ascii_lowercase();
        let ends = |suffixes: &[&str]| suffixes.iter().any(|suffix| path.ends_with(suffix));
        if ends(&[".tar.gz", ".tgz"]) {
            Ok(Self::TarGz)
        } else if ends(&[".tar"]) {
            Ok(Self::Tar)
        } else if ends(&[".zip"]) {
            Ok(Self::Zip)
        } else if ends(&UNSUPPORTED) {
            Err(CommandError::failed(format_args!(
                "cannot unpack {url}: parlor unpacks .tar.gz, .tgz, .tar and .zip"
            )))
        } else {
            Ok(Self::Program)
        }
    }
}

/// Downloads a file and compares its checksum.
async fn fetch(url: &str, sha256: &str, file: &Path, progress: &Progress) -> Result<(), CommandError> {
    if !url.starts_with("https://") && !url.starts_with("http://") {
        return Err(cannot(format_args!("'{url}' is not an https:// address")));
    }
    let mut out =
        OpenOptions::new().write(true).create_new(true).open(file).map_err(|error| write_error(&error))?;
    let mut digest = digest::Context::new(&SHA256);
    let mut received = 0;
    let too_long =
        || io::Error::new(io::ErrorKind::FileTooLarge, format!("it is larger than {}", size(MAX_ARCHIVE)));
    let done = download(url, |part, length| {
        received += part.len() as u64;
        if received > MAX_ARCHIVE || length.is_some_and(|length| length > MAX_ARCHIVE) {
            return Err(too_long());
        }
        progress.set(received, length);
        digest.update(part);
        out.write_all(part)
    });
    match done.await {
        Ok(()) => {}
        Err(DownloadError::Sink(error)) if error.kind() != io::ErrorKind::FileTooLarge => {
            return Err(write_error(&error));
        }
        Err(error) => {
            let failure = CommandError::failed(format_args!("cannot download {url}: {error}"));
            let is_offline = matches!(error, DownloadError::Connection(_) | DownloadError::TimedOut);
            return Err(if is_offline {
                failure.hint("check the network; installed agents work without it")
            } else {
                failure
            });
        }
    }
    let found = digest.finish();
    let found: String = found.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    if found.eq_ignore_ascii_case(sha256) {
        return Ok(());
    }
    Err(CommandError::failed(format_args!("the archive {url} does not have the checksum of the registry"))
        .details(vec![format!("expected sha256 {sha256}"), format!("received sha256 {found}")])
        .hint("it was changed after the registry was written, or on its way; nothing was installed"))
}

fn write_error(error: &io::Error) -> CommandError {
    CommandError::failed(format_args!("cannot write the archive: {}", write_problem(error)))
}

fn make_executable(file: &Path) -> io::Result<()> {
    fs::set_permissions(file, std::os::unix::fs::PermissionsExt::from_mode(0o755))
}

/// Why an archive was not unpacked.
#[derive(Debug)]
enum UnpackError {
    /// A file could not be written.
    Write(io::Error),
    /// The archive is damaged or not accepted; the reason is a verb phrase.
    Archive(String),
}

fn rejected(reason: impl Into<String>) -> UnpackError {
    UnpackError::Archive(reason.into())
}

fn damaged(error: &dyn std::fmt::Display) -> UnpackError {
    rejected(format!("is damaged: {error}"))
}

/// The relative path that stays in the directory that it starts from; `None` if there is none.
fn inside(path: &str) -> Option<PathBuf> {
    let mut clean = PathBuf::new();
    for part in Path::new(path).components() {
        match part {
            Component::Normal(name) => clean.push(name),
            Component::CurDir => {}
            Component::Prefix(_) | Component::RootDir | Component::ParentDir => return None,
        }
    }
    (!clean.as_os_str().is_empty() && !path.contains(['\\', '\0'])).then_some(clean)
}

/// Writes the files of an archive below a directory. Links and special files are rejected, so that no entry can lead outside.
struct Unpacker<'a> {
    directory: &'a Path,
    limits: Limits,
    entries: usize,
    bytes: u64,
    files: BTreeSet<PathBuf>,
}

impl<'a> Unpacker<'a> {
    fn new(directory: &'a Path, limits: Limits) -> Self {
        Self { directory, limits, entries: 0, bytes: 0, files: BTreeSet::new() }
    }

    async fn tar(&mut self, reader: impl Read) -> Result<(), UnpackError> {
        let mut archive = tar::Archive::new(reader);
        for entry in archive.entries().map_err(|error| damaged(&error))? {
            let entry = entry.map_err(|error| damaged(&error))?;
            let kind = entry.header().entry_type();
            if kind.is_pax_global_extensions() {
                continue;
            }
            let path = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            if kind.is_dir() {
                self.directory(&path)?;
            } else if kind.is_file() {
                let path = self.entry(&path)?;
                let is_executable = entry.header().mode().is_ok_and(|mode| mode & 0o111 != 0);
                self.file(&path, is_executable, entry).await?;
            } else {
                return Err(rejected(format!(
                    "has a link or a special file, '{path}', which parlor does not unpack"
                )));
            }
        }
        // The end of a compressed archive is checked only if it is read.
        let rest = io::copy(&mut archive.into_inner().take(PART as u64), &mut io::sink());
        rest.map(drop).map_err(|error| damaged(&error))
    }

    async fn zip(&mut self, reader: impl Read + Seek) -> Result<(), UnpackError> {
        let mut archive = zip::ZipArchive::new(reader).map_err(|error| damaged(&error))?;
        for index in 0..archive.len() {
            let entry = archive.by_index(index).map_err(|error| damaged(&error))?;
            let path = entry.name().map_err(|error| damaged(&error))?.into_owned();
            let mode = entry.unix_mode();
            // The kind of file is in the upper bits of the mode, if the archive has modes.
            let is_special = mode.is_some_and(|mode| !matches!(mode & 0o170_000, 0 | 0o100_000 | 0o040_000));
            if is_special {
                return Err(rejected(format!(
                    "has a link or a special file, '{path}', which parlor does not unpack"
                )));
            }
            if entry.is_dir() {
                self.directory(&path)?;
            } else {
                let path = self.entry(&path)?;
                self.file(&path, mode.is_some_and(|mode| mode & 0o111 != 0), entry).await?;
            }
        }
        Ok(())
    }

    /// Counts an entry and returns its path.
    fn entry(&mut self, path: &str) -> Result<PathBuf, UnpackError> {
        self.entries += 1;
        if self.entries > self.limits.entries {
            return Err(rejected(format!("has more than {} files", self.limits.entries)));
        }
        inside(path).ok_or_else(|| rejected(format!("has a file outside its directory, '{path}'")))
    }

    fn directory(&mut self, path: &str) -> Result<(), UnpackError> {
        // The directory itself, which some archives begin with.
        if Path::new(path).components().all(|part| part == Component::CurDir) {
            return Ok(());
        }
        let path = self.entry(path)?;
        fs::create_dir_all(self.directory.join(path)).map_err(UnpackError::Write)
    }

    async fn file(
        &mut self,
        path: &Path,
        is_executable: bool,
        mut content: impl Read,
    ) -> Result<(), UnpackError> {
        let target = self.directory.join(path);
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent).map_err(UnpackError::Write)?;
        }
        let mode = if is_executable { 0o755 } else { 0o644 };
        let out = OpenOptions::new().write(true).create_new(true).mode(mode).open(&target);
        let mut out = match out {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(rejected(format!("has '{}' twice", path.display())));
            }
            out => out.map_err(UnpackError::Write)?,
        };
        let mut part = vec![0; PART];
        loop {
            let length = content.read(&mut part).map_err(|error| damaged(&error))?;
            if length == 0 {
                break;
            }
            self.bytes += length as u64;
            if self.bytes > self.limits.bytes {
                return Err(rejected(format!("has more than {} of files", size(self.limits.bytes))));
            }
            out.write_all(&part[..length]).map_err(UnpackError::Write)?;
            tokio::task::yield_now().await;
        }
        self.files.insert(path.to_owned());
        Ok(())
    }

    /// The file with this path, or else the one whose path ends with it, if there is one: many archives have one directory at the
    /// top.
    fn find(&self, path: &Path) -> Option<PathBuf> {
        if self.files.contains(path) {
            return Some(path.to_owned());
        }
        let mut found = self.files.iter().filter(|file| file.ends_with(path));
        found.next().filter(|_| found.next().is_none()).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { bytes: 1000, entries: 5 };

    /// A tar archive with these entries, whose paths are written as they are.
    fn tar(entries: &[(&str, tar::EntryType, &[u8])]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (path, kind, content) in entries {
            let mut header = tar::Header::new_ustar();
            header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
            header.set_entry_type(*kind);
            header.set_mode(0o4755);
            header.set_size(content.len() as u64);
            if kind.is_symlink() || kind.is_hard_link() {
                header.set_link_name("/etc/passwd").unwrap();
            }
            header.set_cksum();
            builder.append(&header, *content).unwrap();
        }
        builder.into_inner().unwrap()
    }

    async fn unpack_tar(bytes: &[u8]) -> (tempfile::TempDir, Result<BTreeSet<PathBuf>, String>) {
        let outer = tempfile::tempdir().unwrap();
        let directory = outer.path().join("files");
        fs::create_dir(&directory).unwrap();
        let mut unpacker = Unpacker::new(&directory, LIMITS);
        let done = unpacker.tar(bytes).await;
        let files = unpacker.files;
        let done = done.map(|()| files).map_err(|error| match error {
            UnpackError::Archive(reason) => reason,
            UnpackError::Write(error) => format!("write: {error}"),
        });
        (outer, done)
    }

    #[tokio::test]
    async fn files_are_unpacked_without_the_set_user_bit() {
        use tar::EntryType::{Directory, Regular};
        let bytes = tar(&[("./", Directory, b""), ("./a/", Directory, b""), ("./a/run", Regular, b"x")]);
        let (directory, files) = unpack_tar(&bytes).await;
        assert_eq!(files.unwrap(), BTreeSet::from([PathBuf::from("a/run")]));
        let found = fs::metadata(directory.path().join("files/a/run")).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::mode(&found.permissions());
        assert_eq!(mode & 0o7000, 0);
        assert_ne!(mode & 0o100, 0);
    }

    #[tokio::test]
    async fn no_entry_is_written_outside_the_directory() {
        use tar::EntryType::{Directory, Fifo, Link, Regular, Symlink};
        for (path, kind, reason) in [
            ("../evil", Regular, "outside"),
            ("a/../../evil", Regular, "outside"),
            ("/tmp/evil", Regular, "outside"),
            ("../evil", Directory, "outside"),
            ("link", Symlink, "a link or a special file, 'link'"),
            ("link", Link, "a link or a special file"),
            ("pipe", Fifo, "a link or a special file"),
        ] {
            let (directory, files) = unpack_tar(&tar(&[(path, kind, b"")])).await;
            let error = files.unwrap_err();
            assert!(error.contains(reason), "{path}: {error}");
            assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "{path}");
            assert_eq!(fs::read_dir(directory.path().join("files")).unwrap().count(), 0, "{path}");
        }
    }

    #[tokio::test]
    async fn an_archive_that_is_too_large_or_damaged_is_rejected() {
        use tar::EntryType::Regular;
        let large = vec![0; 1001];
        let (_directory, files) = unpack_tar(&tar(&[("a", Regular, &large)])).await;
        assert_eq!(files.unwrap_err(), "has more than 1 kB of files");
        let names: Vec<_> = (0..6).map(|number| format!("f{number}")).collect();
        let many: Vec<_> = names.iter().map(|name| (name.as_str(), Regular, &b""[..])).collect();
        let (_directory, files) = unpack_tar(&tar(&many)).await;
        assert_eq!(files.unwrap_err(), "has more than 5 files");
        let (_directory, files) = unpack_tar(&tar(&[("a", Regular, b"1"), ("./a", Regular, b"2")])).await;
        assert_eq!(files.unwrap_err(), "has 'a' twice");
        let whole = tar(&[("a", Regular, &[1; 900])]);
        let (_directory, files) = unpack_tar(&whole[..700]).await;
        assert!(files.unwrap_err().starts_with("is damaged"));
    }

    #[tokio::test]
    async fn a_zip_archive_has_the_same_checks() {
        use zip::write::SimpleFileOptions;
        let options = SimpleFileOptions::default().unix_permissions(0o755);
        let pack = |name: &str, is_link: bool| {
            let mut writer = zip::ZipWriter::new(io::Cursor::new(Vec::new()));
            if is_link {
                writer.add_symlink(name, "/etc/passwd", options).unwrap();
            } else {
                writer.start_file(name, options).unwrap();
                writer.write_all(b"x").unwrap();
            }
            writer.finish().unwrap()
        };
        for (name, is_link, reason) in [
            ("a/run", false, None),
            ("../evil", false, Some("outside")),
            ("/evil", false, Some("outside")),
            ("a\\..\\..\\evil", false, Some("outside")),
            ("link", true, Some("link")),
        ] {
            let outer = tempfile::tempdir().unwrap();
            let directory = outer.path().join("files");
            fs::create_dir(&directory).unwrap();
            let mut unpacker = Unpacker::new(&directory, LIMITS);
            let done = unpacker.zip(pack(name, is_link)).await;
            assert_eq!(fs::read_dir(outer.path()).unwrap().count(), 1, "{name}");
            match (done, reason) {
                (Ok(()), None) => assert_eq!(unpacker.find(Path::new("run")), Some("a/run".into())),
                (Err(UnpackError::Archive(error)), Some(reason)) => {
                    assert!(error.contains(reason), "{name}: {error}");
                }
                (done, _) => panic!("{name}: {done:?}"),
            }
        }
    }

    #[test]
    fn the_format_is_that_of_the_file_name() {
        for (url, format) in [
            ("https://x.example/a.tar.gz", Format::TarGz),
            ("https://x.example/A.TGZ?x=1", Format::TarGz),
            ("https://x.example/a.zip", Format::Zip),
            ("https://x.example/a.tar", Format::Tar),
            ("https://x.example/v1.2/agent-linux", Format::Program),
        ] {
            assert_eq!(Format::of(url).unwrap(), format, "{url}");
        }
        assert!(Format::of("https://x.example/a.tar.bz2").is_err());
    }
}
