//! The agents that `parlor agents install` has put into the data directory.
//!
//! `agents/NAME/agent.json` names the version that is used, whose files are in `agents/NAME/VERSION`. The file is replaced last, so an
//! agent is either installed as a whole or not at all.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::AgentConfig;

/// The name of the file that describes an installed agent.
pub const MANIFEST: &str = "agent.json";

/// The longest [`MANIFEST`] that is read, in bytes.
const MAX_MANIFEST: u64 = 64 << 10;

/// How many installed agents are read.
const MAX_INSTALLED: usize = 256;

/// An installed agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstalledAgent {
    /// The name by which clients choose it.
    pub name: String,
    /// Its id in the registry that it was installed from.
    pub id: String,
    /// The installed version.
    pub version: String,
    /// The kind of distribution: `npx`, `uvx` or `binary`.
    pub distribution: String,
    /// The package with its version, or the address of the archive.
    pub package: String,
    /// The program as a path from the directory of the version. A second path is the script that the first one executes.
    pub program: Vec<String>,
    /// The arguments of the program.
    #[serde(default)]
    pub args: Vec<String>,
    /// Variables that are set in its environment.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// The directory of the version, which is not stored: the data directory may be moved.
    #[serde(skip)]
    pub directory: PathBuf,
}

impl InstalledAgent {
    /// Reads all installed agents, sorted by name. Directories without a valid manifest are skipped: installing them was
    /// interrupted, or they are being removed. This blocks.
    pub fn read_all(agents_dir: &Path) -> Vec<Self> {
        let Ok(entries) = fs::read_dir(agents_dir) else { return Vec::new() };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut installed: Vec<_> =
            names.filter_map(|name| Self::read(agents_dir, &name)).take(MAX_INSTALLED).collect();
        installed.sort_by(|a, b| a.name.cmp(&b.name));
        installed
    }

    /// Reads an installed agent. This blocks.
    pub fn read(agents_dir: &Path, name: &str) -> Option<Self> {
        let directory = agents_dir.join(name);
        let mut text = String::new();
        let file = File::open(directory.join(MANIFEST)).ok()?;
        // The owner of the file chooses the programs that are started.
        if file.metadata().ok()?.uid() != rustix::process::geteuid().as_raw() {
            return None;
        }
        let length = file.take(MAX_MANIFEST + 1).read_to_string(&mut text).ok()?;
        let manifest: Self = serde_json::from_str(&text).ok().filter(|_| length as u64 <= MAX_MANIFEST)?;
        let is_valid = manifest.name == name
            && is_inside(&manifest.version)
            && !manifest.program.is_empty()
            && manifest.program.iter().all(|path| is_inside(path));
        let installed = Self { directory: directory.join(&manifest.version), ..manifest };
        (is_valid && installed.files().all(|file| file.exists())).then_some(installed)
    }

    fn files(&self) -> impl Iterator<Item = PathBuf> {
        self.program.iter().map(|path| self.directory.join(path))
    }

    /// The program with its absolute path, and its arguments.
    pub fn command(&self) -> Vec<String> {
        let files = self.files().map(|file| file.to_string_lossy().into_owned());
        files.chain(self.args.iter().cloned()).collect()
    }

    /// The configuration of the agent.
    pub fn agent(&self) -> AgentConfig {
        AgentConfig { env: self.env.clone(), ..AgentConfig::new(&self.name, self.command()) }
    }
}

/// Whether a path of a manifest stays in the directory that it starts from.
fn is_inside(path: &str) -> bool {
    !path.is_empty() && Path::new(path).components().all(|part| matches!(part, Component::Normal(_)))
}
