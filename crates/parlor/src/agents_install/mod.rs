//! Installs agents into the data directory: `agents/NAME/VERSION`, and `agents/NAME/agent.json`, which is replaced last.
//!
//! [`Registry`] (what can be installed) -> [`Installer`] (the lock, a temporary directory, the manifest) -> `npm`, `python` or `archive`
//! (the files) -> [`InstalledAgent`], which the server reads.
//!
//! **Invariant:** the directory of a version has its name only when it is complete. Whatever else is in `agents/NAME` was left by an
//! installation that was killed, or is an old version that was in use; the next installation removes it.

mod archive;
mod npm;
mod progress;
mod python;
mod registry;
mod tool;

use std::fmt::Display;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use parlor_process::Reaper;
use parlor_server::config::{InstalledAgent, MANIFEST};

pub(crate) use self::progress::{Progress, size};
pub(crate) use self::registry::{Distribution, Registry, RegistryAgent, is_newer};
use crate::command_error::CommandError;
use crate::signals::StopSignals;

/// What the names of temporary directories begin with.
const TEMPORARY: &str = ".new-";

/// The program of an agent that was installed into a directory.
pub(super) struct InstalledProgram {
    /// The package with its version, or the address of the archive.
    package: String,
    /// The program, and the script that it executes, as paths from the directory.
    program: Vec<PathBuf>,
}

impl InstalledProgram {
    fn new(package: String, program: PathBuf) -> Self {
        Self { package, program: vec![program] }
    }
}

/// The error for an entry of a registry that cannot be used.
fn cannot(reason: impl Display) -> CommandError {
    CommandError::bad_input(format_args!("invalid entry in the registry: {reason}"))
}

/// Why a file could not be written, for people.
fn write_problem(error: &io::Error) -> String {
    let is_full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    if is_full { "no space left on the disk".to_owned() } else { error.to_string() }
}

/// An agent that was installed now.
pub(crate) struct Installation {
    pub(crate) agent: InstalledAgent,
    /// The bytes of its files.
    pub(crate) bytes: u64,
    pub(crate) time: Duration,
}

/// Changes the installed agents. Other processes that want to wait until it is dropped.
pub(crate) struct Installer {
    agents_dir: PathBuf,
    _lock: File,
}

impl Installer {
    /// Locks the directory of the agents, which is created if it does not exist, and removes what a killed installation left.
    /// `waiting` is called if another process has the lock.
    pub(crate) fn open(agents_dir: &Path, waiting: impl FnOnce()) -> Result<Self, CommandError> {
        let failed = |error: io::Error| {
            CommandError::failed(format_args!("cannot use the directory {}: {error}", agents_dir.display()))
        };
        DirBuilder::new().recursive(true).mode(0o700).create(agents_dir).map_err(failed)?;
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(agents_dir.join("lock"))
            .map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                waiting();
                lock.lock().map_err(failed)?;
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let installer = Self { agents_dir: agents_dir.to_owned(), _lock: lock };
        installer.remove_temporary();
        Ok(installer)
    }

    /// The installed agent with this name.
    pub(crate) fn installed(&self, name: &str) -> Option<InstalledAgent> {
        InstalledAgent::read(&self.agents_dir, name)
    }

    /// Installs an agent of the registry, if `test` succeeds with its files in place. Nothing is changed if it fails: the agent is
    /// not listed before, and an earlier version stays installed.
    pub(crate) async fn install(
        &self,
        agent: &RegistryAgent,
        test: impl AsyncFnOnce(&InstalledAgent) -> Result<(), CommandError>,
    ) -> Result<Installation, CommandError> {
        let started = Instant::now();
        let name = agent.name();
        let distribution = agent.distribution()?;
        let directory = self.agents_dir.join(name);
        let temporary = directory.join(format!("{TEMPORARY}{}", std::process::id()));
        let files = temporary.join("files");
        let failed = |error: io::Error| {
            let place = directory.display();
            CommandError::failed(format_args!(
                "cannot install {name} into {place}: {}",
                write_problem(&error)
            ))
        };
        let had_directory = directory.exists();
        DirBuilder::new().recursive(true).mode(0o700).create(&files).map_err(failed)?;
        let install = async {
            let program = self.fill(agent, &distribution, &files, &temporary).await?;
            let time = started.elapsed();
            let manifest = manifest(agent, &distribution, program, &directory);
            let bytes = bytes_of(&files);
            let replaced = temporary.join("replaced");
            move_if_exists(&manifest.directory, &replaced).map_err(failed)?;
            let activated = async {
                fs::rename(&files, &manifest.directory).map_err(failed)?;
                test(&manifest).await?;
                self.activate(&manifest, &temporary).map_err(failed)
            };
            if let Err(error) = activated.await {
                let _ = move_if_exists(&manifest.directory, &files);
                let _ = move_if_exists(&replaced, &manifest.directory);
                return Err(error);
            }
            Ok(Installation { agent: manifest, bytes, time })
        };
        let done = install.await;
        let _ = fs::remove_dir_all(&temporary);
        if done.is_err() && !had_directory {
            let _ = fs::remove_dir(&directory);
        }
        done
    }

    /// Puts the files of an agent into a directory. When this returns, no program that it started is running.
    async fn fill(
        &self,
        agent: &RegistryAgent,
        distribution: &Distribution<'_>,
        files: &Path,
        temporary: &Path,
    ) -> Result<InstalledProgram, CommandError> {
        let exe = std::env::current_exe().map_err(CommandError::failed)?;
        let reaper = Reaper::start(&exe).map_err(CommandError::failed)?;
        let mut stop = StopSignals::catch();
        let progress = Progress::default();
        let version = &agent.version;
        let install = async {
            match distribution {
                Distribution::Npm(package) => npm::install(package, version, files, &reaper).await,
                Distribution::Python(package) => python::install(package, version, files, &reaper).await,
                Distribution::Archive(archive, sha256) => {
                    archive::install(archive, sha256, files, temporary, &progress).await
                }
            }
        };
        let label = format!("installing {} {version}", agent.name());
        let done = progress.show(&label, async {
            tokio::select! {
                done = install => done,
                () = stop.wait() => Err(CommandError::interrupted("interrupted")),
            }
        });
        let done = done.await;
        reaper.close().await;
        done.map_err(|error| error.context(format_args!("cannot install {}", agent.name())))
    }

    /// Makes the files of a version, which are in their place, the installed ones.
    fn activate(&self, agent: &InstalledAgent, temporary: &Path) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(agent).map_err(io::Error::other)?;
        let new = temporary.join(MANIFEST);
        let mut file = File::create_new(&new)?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(new, self.agents_dir.join(&agent.name).join(MANIFEST))
    }

    /// Removes an agent.
    pub(crate) fn remove(&self, agent: &InstalledAgent) -> Result<(), CommandError> {
        let directory = self.agents_dir.join(&agent.name);
        // Without its manifest it is not installed any more, also if the rest cannot be removed.
        fs::remove_file(directory.join(MANIFEST)).and_then(|()| fs::remove_dir_all(&directory)).map_err(
            |error| CommandError::failed(format_args!("cannot remove {}: {error}", directory.display())),
        )
    }

    /// Removes the versions that are not installed any more, except those that contain one of these programs, which run.
    pub(crate) fn remove_old_versions(&self, agent: &InstalledAgent, running: &[PathBuf]) {
        let Ok(entries) = fs::read_dir(self.agents_dir.join(&agent.name)) else { return };
        for directory in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            let is_used =
                directory == agent.directory || running.iter().any(|program| program.starts_with(&directory));
            if directory.is_dir() && !is_used {
                let _ = fs::remove_dir_all(directory);
            }
        }
    }

    /// Removes what killed installations left. They had the lock, so none of it is in use.
    fn remove_temporary(&self) {
        let Ok(agents) = fs::read_dir(&self.agents_dir) else { return };
        for agent in agents.filter_map(|entry| Some(entry.ok()?.path())) {
            let Ok(entries) = fs::read_dir(&agent) else { continue };
            for entry in entries.filter_map(Result::ok) {
                if entry.file_name().to_string_lossy().starts_with(TEMPORARY) {
                    let _ = fs::remove_dir_all(entry.path());
                }
            }
            // It is empty if nothing was installed before; otherwise this fails.
            let _ = fs::remove_dir(&agent);
        }
    }
}

/// Moves a directory, if it exists.
fn move_if_exists(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn manifest(
    agent: &RegistryAgent,
    distribution: &Distribution<'_>,
    program: InstalledProgram,
    directory: &Path,
) -> InstalledAgent {
    InstalledAgent {
        name: agent.name().to_owned(),
        id: agent.id.clone(),
        version: agent.version.clone(),
        distribution: distribution.kind().to_owned(),
        package: program.package,
        program: program.program.iter().map(|path| path.to_string_lossy().into_owned()).collect(),
        args: distribution.args().to_vec(),
        env: distribution.env().clone(),
        directory: directory.join(&agent.version),
    }
}

/// The bytes of the files in a directory.
fn bytes_of(directory: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(directory) else { return 0 };
    let sizes = entries.filter_map(|entry| {
        let entry = entry.ok()?;
        let found = entry.metadata().ok()?;
        Some(if found.is_dir() { bytes_of(&entry.path()) } else { found.len() })
    });
    sizes.sum()
}
