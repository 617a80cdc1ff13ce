//! The options `--data` and `--config`, which most commands have.

use std::path::{Path, PathBuf};

use clap::Args;
use parlor_server::config::{Config, ConfigError, ConfigFile, InstalledAgent, Preset};
use parlor_server::data_dir::{self, DataDir};

use crate::command_error::CommandError;
use crate::key_settings;
use crate::server;

/// The paths of the data directory and of the configuration.
#[derive(Args, Clone)]
pub(crate) struct PathOptions {
    /// Use this data directory [default: `PARLOR_DATA_DIR`, else parlor in the XDG data directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Use this configuration file [default: `PARLOR_CONFIG`, else parlor/config.toml in the XDG config directory]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// The option `--data` of commands that read no configuration.
#[derive(Args)]
pub(crate) struct DataOption {
    /// Use this data directory [default: `PARLOR_DATA_DIR`, else parlor in the XDG data directory]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

impl From<DataOption> for PathOptions {
    fn from(option: DataOption) -> Self {
        Self { data: option.data, config: None }
    }
}

impl PathOptions {
    pub(crate) fn data_dir(&self) -> Result<PathBuf, CommandError> {
        data_dir::path(self.data.clone(), std::env::var_os("PARLOR_DATA_DIR"))
            .map_err(CommandError::server_unavailable)
    }

    /// Opens the data directory and creates it if it does not exist.
    pub(crate) fn open_data_dir(&self) -> Result<DataDir, CommandError> {
        DataDir::open(&self.data_dir()?).map_err(CommandError::server_unavailable)
    }

    /// Opens the data directory, if it exists, without changing it. A configuration that its running server does not use is an error.
    pub(crate) fn existing_data_dir(&self) -> Result<Option<DataDir>, CommandError> {
        if self.config.is_some() {
            // A file that does not exist is an error also for commands that do not use it.
            self.config_file()?.map(|file| file.read()).transpose().map_err(CommandError::config)?;
        }
        let data = DataDir::open_existing(&self.data_dir()?).map_err(|error| {
            CommandError::server_unavailable(error)
                .hint("`parlor doctor` checks the directory; --data selects another one")
        })?;
        let served = data.as_ref().filter(|data| self.config.is_some() && server::is_running(&data.socket()));
        if let Some(data) = served {
            self.check_used(data)?;
        }
        Ok(data)
    }

    /// Rejects `--config` if the running server uses another configuration.
    pub(crate) fn check_used(&self, data: &DataDir) -> Result<(), CommandError> {
        let Some(config) = self.config.as_ref().filter(|config| !data.uses_config(config)) else {
            return Ok(());
        };
        let message = format!(
            "--config {} has no effect: the running server uses another configuration",
            config.display()
        );
        Err(CommandError::bad_input(message)
            .hint("`parlor stop` stops the server; --data selects another data directory"))
    }

    /// The configuration file, which may be missing, by its absolute path.
    pub(crate) fn config_file(&self) -> Result<Option<ConfigFile>, CommandError> {
        let named = self.config.clone().map(std::path::absolute).transpose();
        let named = named.map_err(CommandError::bad_input)?;
        Ok(ConfigFile::find(named, std::env::var_os("PARLOR_CONFIG")))
    }

    pub(crate) fn config(&self) -> Result<Config, CommandError> {
        self.load_config().map_err(CommandError::config)
    }

    /// Reads the configuration and checks all of it.
    pub(crate) fn load_config(&self) -> Result<Config, ConfigError> {
        self.load_config_with(self.installed_agents())
    }

    /// Reads the configuration as if these agents were installed.
    pub(crate) fn load_config_with(&self, installed: Vec<InstalledAgent>) -> Result<Config, ConfigError> {
        let env = std::env::var_os("PARLOR_CONFIG");
        Config::load(self.config.clone(), env, installed).and_then(key_settings::check)
    }

    /// The directory of the installed agents, which may not exist.
    pub(crate) fn agents_dir(&self) -> Result<PathBuf, CommandError> {
        Ok(data_dir::agents(&self.data_dir()?))
    }

    /// The name that sessions have of an agent that the user names: that of the preset, if it is the id of a preset and no agent of
    /// the configuration.
    pub(crate) fn agent_name(&self, name: &str) -> String {
        let is_configured =
            || self.config().is_ok_and(|config| config.agents.iter().any(|agent| agent.name == name));
        let canonical = Preset::canonical_name(name);
        if canonical != name && is_configured() { name.to_owned() } else { canonical.to_owned() }
    }

    /// The agents that are installed in the data directory.
    pub(crate) fn installed_agents(&self) -> Vec<InstalledAgent> {
        self.agents_dir().map(|directory| InstalledAgent::read_all(&directory)).unwrap_or_default()
    }
}

/// Resolves a directory of the command line to the form in which sessions store it: absolute, without links and `..`. A path
/// that does not exist is only made absolute.
pub(crate) fn canonical_directory(path: &Path) -> Result<PathBuf, CommandError> {
    std::fs::canonicalize(path).or_else(|_| std::path::absolute(path)).map_err(CommandError::bad_input)
}
