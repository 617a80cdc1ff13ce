//! The agents that can be installed: a file in the format of the registry of the Agent Client Protocol.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use parlor_server::config::{Config, Preset};
use serde::Deserialize;

use crate::command_error::CommandError;

/// The registry that is part of this program.
const EMBEDDED: &str = include_str!("registry.json");

/// The longest registry that is read, in bytes.
const MAX_REGISTRY: u64 = 16 << 20;

/// The longest id or version, in bytes. They are names of directories.
const MAX_NAME: usize = 64;

/// A registry: the embedded one, with the agents of a file of the user before it.
#[derive(Debug)]
pub(crate) struct Registry {
    agents: Vec<RegistryAgent>,
}

/// An agent of a registry.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct RegistryAgent {
    pub(crate) id: String,
    /// The name of the product.
    #[serde(rename = "name")]
    pub(crate) title: String,
    pub(crate) version: String,
    pub(crate) description: String,
    distribution: Distributions,
}

/// The ways to install an agent. Those that parlor does not know are ignored.
#[derive(Debug, Clone, Deserialize)]
struct Distributions {
    npx: Option<Package>,
    uvx: Option<Package>,
    #[serde(default)]
    binary: BTreeMap<String, Archive>,
}

/// A package of npm or Python.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Package {
    /// The name, with or without a version.
    #[serde(rename = "package")]
    pub(crate) spec: String,
    /// The program of the package, if it has several.
    pub(crate) cmd: Option<String>,
    #[serde(default)]
    pub(crate) args: Vec<String>,
    #[serde(default)]
    pub(crate) env: BTreeMap<String, String>,
}

/// An archive for one platform.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Archive {
    #[serde(rename = "archive")]
    pub(crate) url: String,
    /// The path of the program in the archive.
    pub(crate) cmd: String,
    #[serde(default)]
    pub(crate) args: Vec<String>,
    #[serde(default)]
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) sha256: Option<String>,
}

/// How an agent is installed on this platform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Distribution<'a> {
    Npm(&'a Package),
    Python(&'a Package),
    /// An archive with its SHA-256, which it must have.
    Archive(&'a Archive, &'a str),
}

impl Distribution<'_> {
    /// The name in the registry.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Npm(_) => "npx",
            Self::Python(_) => "uvx",
            Self::Archive(..) => "binary",
        }
    }

    pub(crate) fn args(&self) -> &[String] {
        match self {
            Self::Npm(package) | Self::Python(package) => &package.args,
            Self::Archive(archive, _) => &archive.args,
        }
    }

    pub(crate) fn env(&self) -> &BTreeMap<String, String> {
        match self {
            Self::Npm(package) | Self::Python(package) => &package.env,
            Self::Archive(archive, _) => &archive.env,
        }
    }
}

#[derive(Deserialize)]
struct RegistryFile {
    agents: Vec<RegistryAgent>,
}

impl Registry {
    /// The embedded registry.
    pub(crate) fn embedded() -> Self {
        let file: RegistryFile = serde_json::from_str(EMBEDDED).expect("tests parse it");
        Self { agents: file.agents }
    }

    /// The embedded registry, with the agents of a file before it: that of the command line, else of the configuration.
    pub(crate) fn load(flag: Option<&Path>, config: &Config) -> Result<Self, CommandError> {
        let embedded = Self::embedded();
        let Some(path) = flag.or(config.agent_registry.as_deref()) else { return Ok(embedded) };
        let mut agents = read(path)?;
        let names: Vec<String> = agents.iter().map(|agent| agent.name().to_owned()).collect();
        agents.extend(
            embedded.agents.into_iter().filter(|agent| names.iter().all(|name| name != agent.name())),
        );
        Ok(Self { agents })
    }

    /// All agents, in the order of the file.
    pub(crate) fn agents(&self) -> &[RegistryAgent] {
        &self.agents
    }

    /// The agent with this name or id.
    pub(crate) fn get(&self, name: &str) -> Option<&RegistryAgent> {
        let name = Preset::canonical_name(name);
        self.agents.iter().find(|agent| agent.name() == name)
    }
}

fn read(path: &Path) -> Result<Vec<RegistryAgent>, CommandError> {
    let failed = |reason: &dyn std::fmt::Display| {
        CommandError::bad_input(format_args!("cannot read the registry {}: {reason}", path.display()))
    };
    let mut text = String::new();
    let file = File::open(path).map_err(|error| failed(&error))?;
    let length = file.take(MAX_REGISTRY + 1).read_to_string(&mut text).map_err(|error| failed(&error))?;
    if length as u64 > MAX_REGISTRY {
        return Err(failed(&"it is longer than 16 MiB"));
    }
    let format = |reason: &dyn std::fmt::Display| {
        failed(reason)
            .hint("it must have the format of the registry of the Agent Client Protocol: `agents` is a list of objects with `id`, `name`, `version`, `description` and `distribution`")
    };
    let file: RegistryFile = serde_json::from_str(&text).map_err(|error| format(&error))?;
    for agent in &file.agents {
        agent.check().map_err(|reason| format(&reason))?;
    }
    Ok(file.agents)
}

impl RegistryAgent {
    /// parlor's name of the agent.
    pub(crate) fn name(&self) -> &str {
        Preset::canonical_name(&self.id)
    }

    /// Checks what becomes a part of a path.
    fn check(&self) -> Result<(), String> {
        for (what, text) in [("id", &self.id), ("version", &self.version)] {
            let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.+".contains(&byte);
            let starts_well = text.starts_with(|c: char| c.is_ascii_alphanumeric());
            if !starts_well || text.len() > MAX_NAME || !text.bytes().all(is_allowed) {
                return Err(format!("invalid {what} '{text}' of an agent"));
            }
        }
        Ok(())
    }

    /// How the agent is installed on this platform: an archive with a checksum needs nothing else, so it is preferred.
    pub(crate) fn distribution(&self) -> Result<Distribution<'_>, CommandError> {
        self.distribution_on(&platform())
    }

    fn distribution_on(&self, platform: &str) -> Result<Distribution<'_>, CommandError> {
        let archive = self.distribution.binary.get(platform);
        if let Some((archive, sha256)) =
            archive.and_then(|archive| Some((archive, archive.sha256.as_deref()?)))
        {
            return Ok(Distribution::Archive(archive, sha256));
        }
        let Distributions { npx, uvx, binary } = &self.distribution;
        if let Some(package) = npx {
            return Ok(Distribution::Npm(package));
        }
        if let Some(package) = uvx {
            return Ok(Distribution::Python(package));
        }
        let name = self.name();
        Err(match archive {
            Some(_) => CommandError::failed(format_args!(
                "cannot install {name}: the registry has no sha256 of its archive, so that the archive cannot be verified"
            ))
            .hint(format_args!("install it as its developers describe, and add [agents.{name}] to config.toml")),
            None if binary.is_empty() => {
                CommandError::failed(format_args!("cannot install {name}: the registry has no way that parlor knows"))
            }
            None => CommandError::failed(format_args!("cannot install {name}: the registry has no archive for {platform}"))
                .hint(format_args!("it has archives for {}", binary.keys().cloned().collect::<Vec<_>>().join(", "))),
        })
    }
}

/// The name of this platform in a registry.
fn platform() -> String {
    let system = if cfg!(target_os = "macos") { "darwin" } else { std::env::consts::OS };
    format!("{system}-{}", std::env::consts::ARCH)
}

/// Whether a version is newer than another one: numbers are compared as numbers, and a version with a suffix such as `-beta.1` is
/// older than the same one without.
pub(crate) fn is_newer(version: &str, than: &str) -> bool {
    fn key(version: &str) -> (Vec<u64>, bool, &str) {
        let version = version.split('+').next().unwrap_or_default();
        let (numbers, suffix) = version.split_once('-').unwrap_or((version, ""));
        let numbers = numbers.split('.').map(|number| number.parse().unwrap_or(0)).collect();
        (numbers, suffix.is_empty(), suffix)
    }
    key(version) > key(than)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(json: &str) -> RegistryAgent {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn the_embedded_registry_is_valid_and_has_every_agent_that_a_preset_says_can_be_installed() {
        let registry = Registry::embedded();
        for agent in registry.agents() {
            agent.check().unwrap();
            let distribution = agent.distribution_on("linux-x86_64").unwrap();
            let package = match distribution {
                Distribution::Npm(package) => package.spec.clone(),
                Distribution::Python(package) => package.spec.replace("==", "@"),
                Distribution::Archive(..) => panic!("{}: an archive has not been verified", agent.id),
            };
            assert!(package.ends_with(&format!("@{}", agent.version)), "{package} is pinned");
        }
        for preset in &parlor_server::config::PRESETS {
            let says = preset.install == Some(&format!("parlor agents install {}", preset.name));
            assert_eq!(registry.get(preset.name).is_some(), says, "{}", preset.name);
        }
        let names: std::collections::BTreeSet<_> =
            registry.agents().iter().map(RegistryAgent::name).collect();
        assert_eq!(names.len(), registry.agents().len(), "no agent is there twice");
    }

    #[test]
    fn presets_are_installed_in_the_versions_that_parlor_is_tested_with_and_the_documentation_names_their_packages()
     {
        let page = include_str!("../../../../docs/configuration.md");
        let tested = include_str!("../../../parlor-peers/src/install.rs");
        for agent in
            Registry::embedded().agents().iter().filter(|agent| Preset::named(agent.name()).is_some())
        {
            let Ok(Distribution::Npm(package)) = agent.distribution() else {
                panic!("{} is a package", agent.id)
            };
            let (name, version) = package.spec.rsplit_once('@').unwrap();
            assert!(tested.contains(&format!("(\"{name}\", \"{version}\")")), "{}", package.spec);
            let row = page.lines().find(|line| line.starts_with(&format!("| `{}` |", agent.name()))).unwrap();
            assert!(row.contains(&format!("`npm install -g {name}`")), "{row}");
        }
    }

    #[test]
    fn an_agent_is_found_by_its_name_and_by_its_id() {
        let registry = Registry::embedded();
        for name in ["claude", "claude-acp"] {
            assert_eq!(
                registry.get(name).map(|agent| (agent.name(), agent.id.as_str())),
                Some(("claude", "claude-acp"))
            );
        }
        assert!(registry.get("nobody").is_none());
    }

    #[test]
    fn an_archive_with_a_checksum_is_preferred_and_one_without_is_not_installed() {
        let both = agent(
            r#"{ "id": "a", "name": "A", "version": "1.0.0", "description": "", "distribution": {
                "npx": { "package": "a@1.0.0" },
                "binary": {
                    "linux-x86_64": { "archive": "https://a.example/a.tgz", "cmd": "./a", "sha256": "00" },
                    "linux-aarch64": { "archive": "https://a.example/a.tgz", "cmd": "./a" } } } }"#,
        );
        assert_eq!(both.distribution_on("linux-x86_64").unwrap().kind(), "binary");
        assert_eq!(both.distribution_on("linux-aarch64").unwrap().kind(), "npx");
        let unverified = agent(
            r#"{ "id": "a", "name": "A", "version": "1.0.0", "description": "", "distribution": {
                "binary": { "linux-x86_64": { "archive": "https://a.example/a.tgz", "cmd": "./a" } } } }"#,
        );
        let error = unverified.distribution_on("linux-x86_64").unwrap_err().to_string();
        assert!(error.contains("no sha256"), "{error}");
        let error = unverified.distribution_on("darwin-aarch64").unwrap_err();
        assert!(error.to_string().contains("no archive for darwin-aarch64"), "{error}");
        assert_eq!(error.hint_text(), Some("it has archives for linux-x86_64"));
    }

    #[test]
    fn ids_and_versions_that_are_not_names_of_directories_are_rejected() {
        for (id, version) in [("..", "1"), ("a/b", "1"), ("a", "../1"), ("", "1"), ("a", ".1"), ("-a", "1")] {
            let json = format!(
                r#"{{ "id": "{id}", "name": "A", "version": "{version}", "description": "", "distribution": {{}} }}"#
            );
            assert!(agent(&json).check().is_err(), "{id} {version}");
        }
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        for (newer, older) in
            [("1.10.0", "1.9.9"), ("2.0.0", "2.0.0-beta.1"), ("1.0.1", "1.0"), ("1.0.0-b", "1.0.0-a")]
        {
            assert!(is_newer(newer, older), "{newer} {older}");
            assert!(!is_newer(older, newer), "{newer} {older}");
        }
        assert!(!is_newer("1.0.0", "1.0.0+build"));
    }
}
