//! `parlor agents available`, `install`, `update` and `remove`.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use parlor_json::Object;
use parlor_server::config::{AgentConfig, InstalledAgent, Preset};
use serde::Serialize;

use crate::agent_choice::BUILT_IN;
use crate::agents_install::{
    Distribution, Installation, Installer, Progress, Registry, RegistryAgent, is_newer, size,
};
use crate::command_error::CommandError;
use crate::commands::{setup, status};
use crate::output::{self, DIM, GREEN, YELLOW, short_path};
use crate::path_options::PathOptions;
use crate::render::safe;
use crate::signals::StopSignals;
use crate::table::{Cell, Table};
use crate::{runtime, server};

use super::{KnownAgent, from_config, from_server};

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
        match self.running_server()? {
            Some(socket) => Ok(status::query(&socket)?.programs()),
            None => Ok(Vec::new()),
        }
    }

    /// The socket of the server, if it is running.
    fn running_server(&self) -> Result<Option<PathBuf>, CommandError> {
        let socket = self.paths.existing_data_dir()?.map(|data| data.socket());
        Ok(socket.filter(|socket| server::is_running(socket)))
    }

    /// Has the server stop the processes that run from the files of an installed agent. Fails while one of its turns is running, unless
    /// it is forced.
    fn stop(&self, agent: &InstalledAgent, is_forced: bool) -> Result<(), CommandError> {
        let Some(socket) = self.running_server()? else { return Ok(()) };
        let directory = agent.directory.parent().unwrap_or(&agent.directory);
        let is_running = || -> Result<bool, CommandError> {
            Ok(self.running_programs()?.iter().any(|program| program.starts_with(directory)))
        };
        if !is_running()? {
            return Ok(());
        }
        let params = Object::new().with("agent", agent.name.as_str()).with("force", is_forced);
        server::call_with(&socket, "_parlor/agents/stop", &params)?;
        // An agent with another name may use the same program.
        if is_running()? {
            let name = &agent.name;
            return Err(CommandError::failed(format_args!("the program of agent '{name}' is still running")));
        }
        Ok(())
    }

    /// Prints on standard error which agent new sessions use now, or how to choose one. An error is printed as well and changes nothing
    /// about what the command has done.
    fn report_default(&self) {
        if let Err(error) = self.print_default() {
            error.report();
        }
    }

    fn print_default(&self) -> Result<(), CommandError> {
        // It can have settings of an agent that was removed.
        let config = self.paths.config()?;
        let known = match self.running_server()? {
            Some(socket) => from_server(&socket)?,
            // It fails if `default_agent` is not known any more.
            None => from_config(&config).unwrap_or_default(),
        };
        let path = std::env::var_os("PATH").unwrap_or_default();
        let is_usable = |agent: &&KnownAgent| agent.config.is_installed(&path);
        let name = |agent: &KnownAgent| safe(&agent.config.name);
        if let Some(default) = known.iter().find(|agent| agent.is_default).filter(is_usable).map(name) {
            print_stderr!("{default} is the default agent");
            return Ok(());
        }
        let others: Vec<_> =
            known.iter().filter(is_usable).map(name).filter(|name| name != BUILT_IN).collect();
        match (config.default_agent, config.path) {
            (Some(missing), Some(file)) => {
                let file = safe(&short_path(&file.display().to_string()));
                let missing = safe(&missing);
                print_stderr!(
                    "{YELLOW}default_agent in {file} is {missing}, which is not installed{YELLOW:#}"
                );
            }
            _ => {
                let names = others.join(", ");
                print_stderr!(
                    "{YELLOW}several agents are installed and none is the default: {names}{YELLOW:#}"
                );
            }
        }
        match others.first() {
            Some(other) => {
                print_stderr!("  hint: `parlor setup --agent {other} --yes` makes {other} the default");
            }
            None => print_stderr!("  hint: `parlor setup` installs an agent and makes it the default"),
        }
        Ok(())
    }
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
/// archives whose checksum is verified. Each agent is started once: one that does not start is not installed. A session uses an installed
/// agent rather than one in `PATH`; a `command` in config.toml is stronger. A running server uses it without a restart.
#[derive(Args)]
#[command(after_help = INSTALL_EXAMPLES)]
pub(crate) struct Install {
    /// The names of the agents, as `parlor agents available` prints them
    #[arg(id = "available_agent", required = true, value_name = "NAME")]
    names: Vec<String>,
    /// Install again what is installed already
    #[arg(long)]
    force: bool,
    /// Install an agent also if it does not start
    #[arg(long)]
    no_test: bool,
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
/// Sessions stay, and so do the files that an agent has elsewhere, such as its login. The server stops its processes.
#[derive(Args)]
#[command(after_help = REMOVE_EXAMPLES)]
pub(crate) struct Remove {
    /// The names of the agents
    #[arg(id = "installed_agent", required = true, value_name = "NAME")]
    names: Vec<String>,
    /// Remove an agent also while one of its turns is running, which fails then
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
            let installed = self.options.paths.installed_agents();
            for installed in
                installed.iter().filter(|installed| agents.iter().any(|agent| agent.name() == installed.name))
            {
                self.options.stop(installed, false).map_err(|error| {
                    error
                        .into_failed()
                        .hint("`parlor status` shows it; install the agent again when it has ended")
                })?;
            }
        }
        let is_current = |agent: &RegistryAgent, installed: &InstalledAgent| {
            !is_forced && installed.version == agent.version
        };
        let (exit_code, is_any_installed) = install_all(&self.options, &agents, !self.no_test, is_current)?;
        if is_any_installed && !self.options.json {
            self.options.report_default();
        }
        Ok(exit_code)
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
        install_all(&self.options, &agents, true, is_current).map(|(exit_code, _)| exit_code)
    }
}

fn not_installed(name: &str) -> CommandError {
    CommandError::bad_input(format_args!("agent '{name}' is not installed by parlor"))
}

/// Installs agents one after the other. An agent that fails does not keep the others from being installed. Returns the exit code, and
/// whether one of them is installed now.
fn install_all(
    options: &RegistryOptions,
    agents: &[&RegistryAgent],
    is_tested: bool,
    is_current: impl Fn(&RegistryAgent, &InstalledAgent) -> bool,
) -> Result<(ExitCode, bool), CommandError> {
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
        let test = async |new: &InstalledAgent| {
            if is_tested { test(options, new, installed.as_ref()).await } else { Ok(()) }
        };
        match runtime.block_on(installer.install(agent, test)) {
            Ok(installation) => {
                options.remove_old_versions(&installer, &installation.agent);
                let previous = installed
                    .map(|installed| installed.version)
                    .filter(|previous| *previous != agent.version);
                if !options.json {
                    print_installed(agent, previous.as_deref(), &installation)?;
                }
                outcomes.push(Outcome::done(agent, previous, &installation));
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
    Ok((exit_code, outcomes.iter().any(|outcome| outcome.status != "failed")))
}

/// Starts an agent whose files are in place, with its settings of the configuration, and waits for its response to `initialize`. An
/// agent that requires a login answers it.
async fn test(
    options: &RegistryOptions,
    agent: &InstalledAgent,
    previous: Option<&InstalledAgent>,
) -> Result<(), CommandError> {
    let InstalledAgent { name, version, .. } = agent;
    let configured = options.paths.load_config_with(vec![agent.clone()]).ok();
    let is_same = |other: &AgentConfig| other.name == *name && other.command == agent.command();
    let configured = configured.and_then(|config| config.agents.into_iter().find(is_same));
    let config = configured.unwrap_or_else(|| agent.agent());
    let mut stop = StopSignals::catch();
    let test = async {
        tokio::select! {
            tested = setup::test(&config) => tested.map(drop).map_err(|error| {
                let error = error.context(format_args!("{name} {version} does not start and was not installed"));
                match previous {
                    Some(previous) => error.hint(format_args!("version {} stays installed", previous.version)),
                    None => error.hint("install it again when the cause is removed; --no-test installs it without starting it"),
                }
            }),
            () = stop.wait() => Err(CommandError::interrupted(format_args!("interrupted; {name} was not installed"))),
        }
    };
    Progress::default().show(&format!("starting {name} {version}"), test).await
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
        for agent in &agents {
            let Err(error) = options.stop(agent, self.force) else { continue };
            if !self.force {
                return Err(error
                    .into_failed()
                    .hint("`parlor status` shows it; --force removes the agent anyway, and the turn fails"));
            }
            error.report();
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
        } else {
            options.report_default();
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
