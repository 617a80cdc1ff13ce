//! `parlor agents available`, `install`, `update` and `remove`.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use parlor_server::config::{InstalledAgent, Preset};
use serde::Serialize;

use crate::agents_install::{
    Distribution, Installation, Installer, Progress, Registry, RegistryAgent, is_newer, size,
};
use crate::command_error::CommandError;
use crate::commands::{setup, status};
use crate::output::{self, DIM, GREEN, YELLOW};
use crate::path_options::PathOptions;
use crate::render::safe;
use crate::signals::StopSignals;
use crate::table::{Cell, Table};
use crate::{runtime, server};

/// The options of all commands that change or list what is installed.
#[derive(Args)]
struct RegistryOptions {
    #[command(flatten)]
    paths: PathOptions,
    /// Prefer the agents of this file to those that parlor knows [default: `agent_registry` of the configuration]
    #[arg(long, value_name = "FILE")]
    registry: Option<PathBuf>,
    /// Print a list of objects as JSON
    #[arg(long)]
    json: bool,
}

impl RegistryOptions {
    fn registry(&self) -> Result<Registry, CommandError> {
        Registry::load(self.registry.as_deref(), &self.paths.config()?)
    }

    fn installer(&self) -> Result<Installer, CommandError> {
        let data = self.paths.open_data_dir()?;
        Installer::open(&data.agents(), || print_stderr!("waiting for another `parlor agents` command"))
    }

    /// Removes versions that are not used any more. Without a server that answers, they stay until the next time.
    fn remove_old_versions(&self, installer: &Installer, agent: &InstalledAgent) {
        if let Ok(running) = self.running_programs() {
            installer.remove_old_versions(agent, &running);
        }
    }

    /// The programs of the agents that the server runs.
    fn running_programs(&self) -> Result<Vec<PathBuf>, CommandError> {
        let socket = self.paths.existing_data_dir()?.map(|data| data.socket());
        match socket.filter(|socket| server::is_running(socket)) {
            Some(socket) => Ok(status::query(&socket)?.programs()),
            None => Ok(Vec::new()),
        }
    }
}

/// Fails if one of these programs, which run, is part of an installed agent.
fn refuse_running(
    agent: &InstalledAgent,
    running: &[PathBuf],
    consequence: &str,
) -> Result<(), CommandError> {
    let directory = agent.directory.parent().unwrap_or(&agent.directory);
    if running.iter().any(|program| program.starts_with(directory)) {
        return Err(CommandError::failed(format_args!("agent '{}' is running", agent.name))
            .hint(format_args!("`parlor status` shows its sessions; {consequence}")));
    }
    Ok(())
}

/// The agents of the registry with these names.
fn find<'a>(registry: &'a Registry, names: &[String]) -> Result<Vec<&'a RegistryAgent>, CommandError> {
    let mut found: Vec<&RegistryAgent> = Vec::new();
    for name in names {
        let agent = registry.get(name).ok_or_else(|| unknown(name, registry))?;
        if found.iter().all(|other| other.id != agent.id) {
            found.push(agent);
        }
    }
    Ok(found)
}

fn unknown(name: &str, registry: &Registry) -> CommandError {
    let failure =
        CommandError::bad_input(format_args!("parlor does not know how to install an agent '{name}'"));
    if let Some(install) = Preset::named(Preset::canonical_name(name)).and_then(|preset| preset.install) {
        return failure.hint(format_args!("run: {install}"));
    }
    let names: Vec<_> = registry.agents().iter().map(RegistryAgent::name).collect();
    failure.hint(format_args!("it knows {}; --registry FILE adds others", names.join(", ")))
}

/// Install agents into the data directory
///
/// Installs the versions that parlor knows: packages of npm without running their scripts, Python packages in an environment of their own, and
/// archives whose checksum is verified. A session uses an installed agent rather than one in `PATH`; a `command` in config.toml is
/// stronger. A running server uses it without a restart.
#[derive(Args)]
#[command(after_help = INSTALL_EXAMPLES)]
pub(crate) struct Install {
    /// The names of the agents, as `parlor agents available` prints them
    #[arg(id = "available_agent", required = true, value_name = "NAME")]
    names: Vec<String>,
    /// Install again what is installed already
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    options: RegistryOptions,
}

const INSTALL_EXAMPLES: &str = "Examples:
  parlor agents install claude
  parlor agents install codex gemini
  parlor agents install my-agent --registry registry.json";

/// Update the agents that `parlor agents install` installed
///
/// Without names, updates all. Processes that run continue with the version that they were started from.
#[derive(Args)]
#[command(after_help = UPDATE_EXAMPLES)]
pub(crate) struct Update {
    /// The names of the agents
    #[arg(id = "installed_agent", value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    options: RegistryOptions,
}

const UPDATE_EXAMPLES: &str = "Examples:
  parlor agents update
  parlor agents update claude";

/// Remove agents that `parlor agents install` installed
///
/// Sessions stay, and so do the files that an agent has elsewhere, such as its login.
#[derive(Args)]
#[command(after_help = REMOVE_EXAMPLES)]
pub(crate) struct Remove {
    /// The names of the agents
    #[arg(id = "installed_agent", required = true, value_name = "NAME")]
    names: Vec<String>,
    /// Remove an agent also while it runs
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    paths: PathOptions,
    /// Print a list of objects as JSON
    #[arg(long)]
    json: bool,
}

const REMOVE_EXAMPLES: &str = "Examples:
  parlor agents remove gemini
  parlor agents remove claude --force";

/// List the agents that can be installed
///
/// The list is part of parlor, so that it needs no network. A file in the format of the registry of the Agent Client Protocol adds others.
#[derive(Args)]
#[command(after_help = AVAILABLE_EXAMPLES)]
pub(crate) struct Available {
    #[command(flatten)]
    options: RegistryOptions,
}

const AVAILABLE_EXAMPLES: &str = "Examples:
  parlor agents available
  parlor agents available --registry registry.json --json";

/// What happened to an agent.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Outcome<'a> {
    name: &'a str,
    version: &'a str,
    /// `installed`, `updated`, `current`, `removed` or `failed`.
    status: &'static str,
    /// The version before.
    #[serde(skip_serializing_if = "Option::is_none")]
    previous: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl<'a> Outcome<'a> {
    fn new(name: &'a str, version: &'a str, status: &'static str) -> Self {
        Self { name, version, status, previous: None, command: None, bytes: None, error: None }
    }

    fn current(agent: &'a RegistryAgent, installed: &InstalledAgent) -> Self {
        Self { command: Some(installed.command()), ..Self::new(agent.name(), &agent.version, "current") }
    }

    fn done(agent: &'a RegistryAgent, previous: Option<String>, installation: &Installation) -> Self {
        let status = if previous.is_some() { "updated" } else { "installed" };
        Self {
            previous,
            command: Some(installation.agent.command()),
            bytes: Some(installation.bytes),
            ..Self::new(agent.name(), &agent.version, status)
        }
    }
}

impl Install {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        let registry = self.options.registry()?;
        let agents = find(&registry, &self.names)?;
        let is_forced = self.force;
        if is_forced {
            let running = self.options.running_programs()?;
            let installed = self.options.paths.installed_agents();
            for installed in
                installed.iter().filter(|installed| agents.iter().any(|agent| agent.name() == installed.name))
            {
                refuse_running(
                    installed,
                    &running,
                    "it can be installed again when it has ended, as after `parlor stop`",
                )?;
            }
        }
        let is_current = |agent: &RegistryAgent, installed: &InstalledAgent| {
            !is_forced && installed.version == agent.version
        };
        install_all(&self.options, &agents, is_current)
    }
}

impl Update {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        let registry = self.options.registry()?;
        let installed = self.options.paths.installed_agents();
        let mut agents = Vec::new();
        if self.names.is_empty() {
            agents.extend(installed.iter().filter_map(|installed| registry.get(&installed.name)));
        }
        for name in &self.names {
            let canonical = Preset::canonical_name(name);
            if installed.iter().all(|installed| installed.name != canonical) {
                return Err(not_installed(name).hint(format_args!("run: parlor agents install {name}")));
            }
            agents.push(registry.get(name).ok_or_else(|| unknown(name, &registry))?);
        }
        if agents.is_empty() && !self.options.json {
            return output::print(|out| writeln!(out, "no agent is installed by parlor"))
                .map(|()| ExitCode::SUCCESS);
        }
        let is_current =
            |agent: &RegistryAgent, installed: &InstalledAgent| !is_newer(&agent.version, &installed.version);
        install_all(&self.options, &agents, is_current)
    }
}

fn not_installed(name: &str) -> CommandError {
    CommandError::bad_input(format_args!("agent '{name}' is not installed by parlor"))
}

/// Installs agents one after the other. An agent that fails does not keep the others from being installed.
fn install_all(
    options: &RegistryOptions,
    agents: &[&RegistryAgent],
    is_current: impl Fn(&RegistryAgent, &InstalledAgent) -> bool,
) -> Result<ExitCode, CommandError> {
    let installer = options.installer()?;
    let runtime = runtime::multi_threaded()?;
    let mut exit_code = ExitCode::SUCCESS;
    let mut outcomes = Vec::new();
    let mut is_interrupted = false;
    for agent in agents {
        let installed = installer.installed(agent.name());
        if let Some(installed) = installed.as_ref().filter(|installed| is_current(agent, installed)) {
            if !options.json {
                output::print(|out| {
                    writeln!(out, "{} {} is installed already", agent.name(), safe(&installed.version))
                })?;
            }
            // A version that was in use during its update may not be any more.
            options.remove_old_versions(&installer, installed);
            outcomes.push(Outcome::current(agent, installed));
            continue;
        }
        match runtime.block_on(installer.install(agent)) {
            Ok(installation) => {
                options.remove_old_versions(&installer, &installation.agent);
                let previous = installed
                    .map(|installed| installed.version)
                    .filter(|previous| *previous != agent.version);
                if !options.json {
                    print_installed(agent, previous.as_deref(), &installation)?;
                }
                let mut outcome = Outcome::done(agent, previous, &installation);
                if let Err(error) = runtime.block_on(test(&installation.agent)) {
                    exit_code = error.report();
                    is_interrupted = error.is_interrupted();
                    outcome.error = Some(error.to_string());
                }
                outcomes.push(outcome);
            }
            Err(error) => {
                exit_code = error.report();
                let failed = Outcome::new(agent.name(), &agent.version, "failed");
                outcomes.push(Outcome { error: Some(error.to_string()), ..failed });
                is_interrupted = error.is_interrupted();
            }
        }
        if is_interrupted {
            break;
        }
    }
    if options.json {
        output::print_json(&outcomes)?;
    }
    Ok(exit_code)
}

/// Starts an agent that was installed, and waits for its response to `initialize`.
async fn test(agent: &InstalledAgent) -> Result<(), CommandError> {
    let name = &agent.name;
    let config = agent.agent();
    let mut stop = StopSignals::catch();
    let test = async {
        tokio::select! {
            tested = setup::test(&config) => tested.map(drop).map_err(|error| {
                error
                    .context(format_args!("{name} is installed and does not start"))
                    .hint(format_args!("`parlor agents remove {name}` removes it"))
            }),
            () = stop.wait() => Err(CommandError::interrupted(format_args!("interrupted; {name} is installed"))),
        }
    };
    Progress::default().show(&format!("starting {name} {}", agent.version), test).await
}

fn print_installed(
    agent: &RegistryAgent,
    previous: Option<&str>,
    installation: &Installation,
) -> Result<(), CommandError> {
    let (name, version) = (agent.name(), &agent.version);
    let about = format!("{}, {} s", size(installation.bytes), installation.time.as_secs());
    output::print(|out| match previous {
        Some(previous) => writeln!(out, "updated {name} from {} to {version} ({about})", safe(previous)),
        None => writeln!(out, "installed {name} {version} ({about})"),
    })?;
    if previous.is_none() && std::io::stderr().is_terminal() {
        print_stderr!(
            "{DIM}  `parlor login {name}` logs in; `parlor prompt --new --agent {name} TEXT...` sends a prompt{DIM:#}"
        );
    }
    Ok(())
}

impl Remove {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        let options = RegistryOptions { paths: self.paths, registry: None, json: self.json };
        let installed = options.paths.installed_agents();
        let mut agents: Vec<&InstalledAgent> = Vec::new();
        for name in &self.names {
            let canonical = Preset::canonical_name(name);
            let found = installed.iter().find(|agent| agent.name == canonical).ok_or_else(|| {
                not_installed(name).hint("`parlor agents` shows which agents are installed, and where")
            })?;
            if agents.iter().all(|other| other.name != found.name) {
                agents.push(found);
            }
        }
        let installer = options.installer()?;
        if !self.force {
            let running = options.running_programs()?;
            for agent in &agents {
                refuse_running(
                    agent,
                    &running,
                    "--force removes it anyway, and its sessions fail when they need its files",
                )?;
            }
        }
        for agent in &agents {
            installer.remove(agent)?;
            if !options.json {
                output::print(|out| writeln!(out, "removed {} {}", agent.name, safe(&agent.version)))?;
            }
        }
        if options.json {
            let removed: Vec<_> =
                agents.iter().map(|agent| Outcome::new(&agent.name, &agent.version, "removed")).collect();
            output::print_json(&removed)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// An agent that can be installed.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AvailableAgent<'a> {
    name: &'a str,
    id: &'a str,
    title: &'a str,
    version: &'a str,
    description: &'a str,
    /// `npx`, `uvx` or `binary`; `None` if it cannot be installed on this machine.
    distribution: Option<&'static str>,
    /// What is installed: a package with its version, or an archive.
    package: Option<&'a str>,
    /// The version that is installed by parlor.
    installed: Option<&'a str>,
}

impl Available {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        let registry = self.options.registry()?;
        let installed = self.options.paths.installed_agents();
        let agents = registry.agents().iter().map(|agent| {
            let distribution = agent.distribution().ok();
            AvailableAgent {
                name: agent.name(),
                id: &agent.id,
                title: &agent.title,
                version: &agent.version,
                description: &agent.description,
                distribution: distribution.as_ref().map(Distribution::kind),
                package: distribution.map(|distribution| match distribution {
                    Distribution::Npm(package) | Distribution::Python(package) => package.spec.as_str(),
                    Distribution::Archive(archive, _) => archive.url.as_str(),
                }),
                installed: installed
                    .iter()
                    .find(|installed| installed.name == agent.name())
                    .map(|installed| installed.version.as_str()),
            }
        });
        let agents: Vec<_> = agents.collect();
        if self.options.json {
            output::print_json(&agents)?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut table = Table::new(&["NAME", "VERSION", "INSTALLED", "BY", "~DESCRIPTION"]);
        table.drop_if_narrow(&["BY", "DESCRIPTION"]);
        for agent in &agents {
            let by = match agent.distribution {
                Some("npx") => "npm",
                Some("uvx") => "uv or pip",
                Some(_) => "archive",
                None => "not here",
            };
            let installed = match agent.installed {
                Some(version) if is_newer(agent.version, version) => Cell::styled(version, YELLOW),
                Some(version) => Cell::styled(version, GREEN),
                None => "".into(),
            };
            table.row([
                agent.name.into(),
                agent.version.into(),
                installed,
                by.into(),
                agent.description.into(),
            ]);
        }
        output::print(|out| table.write(out))?;
        Ok(ExitCode::SUCCESS)
    }
}
