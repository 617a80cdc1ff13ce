use std::ffi::OsStr;
use std::io::{self, BufRead, Write};
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Instant;

use clap::Args;
use parlor_process::Reaper;
use parlor_server::config::{AgentConfig, Agents, Config, Preset, default_path, set_default_agent};
use parlor_server::probe::{ProbedAgent, probe};
use parlor_server::stored;

use crate::agent_choice::BUILT_IN;
use crate::agents_install::{Registry, RegistryAgent};
use crate::command_error::CommandError;
use crate::commands::doctor::INITIALIZE_TIMEOUT;
use crate::editors::Editor;
use crate::offline_sessions::OfflineSessions;
use crate::output::{self, BOLD, DIM, GREEN, RED, YELLOW, short_path};
use crate::path_options::PathOptions;
use crate::render::safe;
use crate::runtime;
use crate::server::client_environment;
use crate::tty::{self, Tty};

/// Choose the default agent and connect editors
///
/// Lists the agents on this machine, writes the chosen one to config.toml as `default_agent`, tests the agent, offers to log in and
/// prints the settings for editors. Asks on a terminal; without one, nothing is changed unless `--yes` is given. It can be run again
/// at any time.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Setup {
    #[command(flatten)]
    paths: PathOptions,
    /// Make this agent the default
    #[arg(long, value_name = "NAME", conflicts_with = "editor")]
    agent: Option<String>,
    /// Do not ask: write the configuration, and do not log in
    #[arg(short, long, conflicts_with = "editor")]
    yes: bool,
    /// Only print the settings of this editor: zed, jetbrains, neovim, emacs or vscode
    #[arg(long, value_name = "NAME", hide_possible_values = true)]
    editor: Option<Editor>,
}

const EXAMPLES: &str = "Examples:
  parlor setup
  parlor setup --agent claude --yes
  parlor setup --editor zed";

/// What is printed if a person installs no agent.
const NO_AGENT: &str =
    "No agent is installed: the demo agent is used until `parlor agents install NAME` installs another one.";

/// An agent of this machine.
struct FoundAgent<'a> {
    config: &'a AgentConfig,
    is_installed: bool,
    is_logged_in: Option<bool>,
}

impl FoundAgent<'_> {
    fn state(&self) -> &'static str {
        match (self.is_installed, self.is_logged_in) {
            (false, _) => "not installed",
            (true, None) => "installed",
            (true, Some(true)) => "installed, logged in",
            (true, Some(false)) => "installed, not logged in",
        }
    }
}

impl Setup {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        let exe = std::env::current_exe().map_err(CommandError::failed)?;
        let exe = exe.to_string_lossy();
        if let Some(editor) = self.editor {
            output::print(|out| writeln!(out, "{}", editor.snippet(&exe)))?;
            return Ok(ExitCode::SUCCESS);
        }
        let config = self.paths.config()?;
        let agents = Agents::new(Vec::new(), &config).map_err(CommandError::config)?;
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = self.find(&agents, &path);
        if let Some(name) = &self.agent {
            check(&found, &agents, name)?;
        }
        let tty = Tty::open().filter(|_| !self.yes);
        output::print(|out| write_agents(&found, out))?;
        let installed: Vec<_> = found.iter().filter(|agent| agent.is_installed).collect();
        if installed.is_empty() && self.agent.is_none() {
            if let Some(name) = tty.as_ref().map(ask_install).transpose()?.flatten() {
                if !self.run_command(&["agents", "install", &name])? {
                    return Err(CommandError::failed(format_args!("agent '{name}' was not installed")));
                }
                drop(found);
                return Self { agent: Some(name), ..self }.run();
            }
            output::print(|out| write_editors(&Editor::installed(&path), &exe, out))?;
            if tty.is_some() {
                return output::print(|out| writeln!(out, "{NO_AGENT}")).map(|()| ExitCode::SUCCESS);
            }
            return Err(CommandError::failed("no agent is installed")
                .hint("install one of those above, then run `parlor setup` again; `parlor prompt` uses the demo agent until then"));
        }
        let current = agents.default_agent(&path).agent().ok().filter(|agent| agent.name != BUILT_IN);
        let chosen = match (&self.agent, &tty) {
            (Some(name), _) => agents.get(name),
            (None, Some(tty)) => Some(ask_agent(tty, &installed, current)?),
            (None, None) => current,
        };
        let Some(chosen) = chosen else {
            return Err(CommandError::bad_input("several agents are installed and none is selected").hint(
                format_args!("`parlor setup --agent {} --yes` selects one", installed[0].config.name),
            ));
        };
        if tty.is_none() && !self.yes {
            output::print(|out| writeln!(out, "\nNothing was changed: there is no terminal to ask."))?;
            print_stderr!("  hint: `parlor setup --agent {} --yes` writes config.toml", safe(&chosen.name));
        } else {
            Self::write_default(&config, &chosen.name)?;
        }
        let mut exit_code = ExitCode::SUCCESS;
        match runtime::multi_threaded()?.block_on(test(chosen)) {
            Ok((probed, seconds)) => {
                output::print(|out| {
                    writeln!(out, "{GREEN}ok{GREEN:#}  {} answers in {seconds:.1} s", safe(&chosen.name))
                })?;
                if let Some(tty) = &tty {
                    self.offer_logins(tty, &found, chosen, &probed)?;
                }
            }
            Err(error) => exit_code = error.report(),
        }
        output::print(|out| write_editors(&Editor::installed(&path), &exe, out))?;
        Ok(exit_code)
    }

    /// The agents that can be the default, the installed ones first.
    fn find<'a>(&self, agents: &'a Agents, path: &OsStr) -> Vec<FoundAgent<'a>> {
        // The login state is optional: errors of the store are reported by `parlor doctor`.
        let sessions = OfflineSessions::open(&self.paths).ok();
        let store = sessions.as_ref().and_then(OfflineSessions::store);
        let offered = agents.all().iter().filter(|agent| agent.name != BUILT_IN);
        let mut found: Vec<_> = offered
            .map(|config| FoundAgent {
                config,
                is_installed: config.is_installed(path),
                is_logged_in: store.and_then(|store| stored::login_state(store, config).ok()?),
            })
            .collect();
        found.sort_by_key(|agent| !agent.is_installed);
        found
    }

    fn write_default(config: &Config, name: &str) -> Result<(), CommandError> {
        let file = config_file(config)?;
        let shown = safe(&short_path(&file.display().to_string()));
        if config.default_agent.as_deref() == Some(name) {
            return output::print(|out| writeln!(out, "  {shown} has default_agent = \"{name}\" already"));
        }
        set_default_agent(&file, name).map_err(CommandError::failed)?;
        output::print(|out| writeln!(out, "  wrote default_agent = \"{}\" to {shown}", safe(name)))
    }

    /// Offers to log in to the chosen agent, unless it is known to be logged in, and to others that are known not to be.
    fn offer_logins(
        &self,
        tty: &Tty,
        found: &[FoundAgent<'_>],
        chosen: &AgentConfig,
        probed: &ProbedAgent,
    ) -> Result<(), CommandError> {
        let has_methods = probed.info.get_array("authMethods").is_some_and(|methods| !methods.is_empty());
        for agent in found.iter().filter(|agent| agent.is_installed) {
            let is_chosen = agent.config.name == chosen.name;
            let state =
                if is_chosen { probed.is_logged_in.or(agent.is_logged_in) } else { agent.is_logged_in };
            let is_offered = match state {
                Some(is_logged_in) => !is_logged_in,
                None => is_chosen && has_methods,
            };
            if !is_offered {
                continue;
            }
            let name = &agent.config.name;
            if confirm(tty, &format!("Log in to {} now? [y/N]: ", safe(name)))? {
                self.log_in(name)?;
            } else {
                output::print(|out| writeln!(out, "  later: parlor login {}", safe(name)))?;
            }
        }
        Ok(())
    }

    fn log_in(&self, agent: &str) -> Result<(), CommandError> {
        if !self.run_command(&["login", agent])? {
            output::print(|out| writeln!(out, "  try it again: parlor login {}", safe(agent)))?;
        }
        Ok(())
    }

    /// Runs another command of parlor as a process of its own, which may use the terminal as it likes. Returns whether it succeeded.
    fn run_command(&self, args: &[&str]) -> Result<bool, CommandError> {
        let mut command = Command::new(std::env::current_exe().map_err(CommandError::failed)?);
        command.args(args);
        for (option, value) in [("--data", &self.paths.data), ("--config", &self.paths.config)] {
            if let Some(value) = value {
                command.arg(option).arg(value);
            }
        }
        Ok(command.status().map_err(CommandError::failed)?.success())
    }
}

/// The configuration file: the one that was read, else the one that would be read.
fn config_file(config: &Config) -> Result<PathBuf, CommandError> {
    config.path.clone().or_else(default_path).ok_or_else(|| {
        CommandError::failed("cannot find the home directory").hint("--config FILE names the file to write")
    })
}

/// Checks that an agent exists and is installed.
fn check(found: &[FoundAgent<'_>], agents: &Agents, name: &str) -> Result<(), CommandError> {
    let Some(agent) = agents.get(name) else {
        let names: Vec<_> = agents.all().iter().map(|agent| agent.name.as_str()).collect();
        return Err(CommandError::bad_input(format_args!("unknown agent '{name}'"))
            .hint(format_args!("known agents: {}", names.join(", "))));
    };
    let is_installed = found.iter().any(|other| other.config.name == agent.name && other.is_installed);
    if is_installed || agent.name == BUILT_IN {
        return Ok(());
    }
    let failure = CommandError::bad_input(format_args!("agent '{name}' is not installed"));
    Err(match Preset::named(name).and_then(|preset| preset.install) {
        Some(install) => failure.hint(format_args!("install it: {install}")),
        None => failure,
    })
}

fn write_agents(found: &[FoundAgent<'_>], out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{BOLD}Agents on this machine{BOLD:#}")?;
    let width = found.iter().map(|agent| agent.config.name.chars().count()).max().unwrap_or(0);
    for (index, agent) in found.iter().enumerate() {
        let number = if agent.is_installed { (index + 1).to_string() } else { String::new() };
        let name = safe(&agent.config.name);
        let style = match (agent.is_installed, agent.is_logged_in) {
            (false, _) => DIM,
            (true, Some(false)) => YELLOW,
            (true, None | Some(true)) => GREEN,
        };
        write!(out, "{number:>3}  {name:<width$}  {style}{}{style:#}", agent.state())?;
        let install = Preset::named(&agent.config.name).and_then(|preset| preset.install);
        match install.filter(|_| !agent.is_installed) {
            Some(install) => writeln!(out, "   {DIM}{install}{DIM:#}")?,
            None => writeln!(out)?,
        }
    }
    writeln!(out, "     {BUILT_IN:<width$}  {DIM}built in, used while no other agent is installed{DIM:#}")
}

/// Asks for the agent to install; an empty line selects none.
fn ask_install(tty: &Tty) -> Result<Option<String>, CommandError> {
    let failed = |error: io::Error| CommandError::failed(format_args!("cannot use the terminal: {error}"));
    let registry = Registry::embedded();
    let mut lines = tty.reader().map_err(failed)?.lines();
    loop {
        tty.write(|out| write!(out, "Install an agent now (its name, or Enter for none): "))
            .map_err(failed)?;
        let line = lines.next().transpose().map_err(failed)?.unwrap_or_default();
        match line.trim() {
            "" => return Ok(None),
            name => match registry.get(name) {
                Some(agent) => return Ok(Some(agent.name().to_owned())),
                None => {
                    let names: Vec<_> = registry.agents().iter().map(RegistryAgent::name).collect();
                    let problem =
                        format!("parlor cannot install '{}': type one of {}", safe(name), names.join(", "));
                    tty.write(|out| writeln!(out, "  {RED}{problem}{RED:#}")).map_err(failed)?;
                }
            },
        }
    }
}

/// Asks for the default agent; an empty line selects the present one, or the first.
fn ask_agent<'a>(
    tty: &Tty,
    installed: &[&FoundAgent<'a>],
    current: Option<&AgentConfig>,
) -> Result<&'a AgentConfig, CommandError> {
    let failed = |error: io::Error| CommandError::failed(format_args!("cannot use the terminal: {error}"));
    let is_current =
        |agent: &&FoundAgent<'a>| current.is_some_and(|current| current.name == agent.config.name);
    let default = installed.iter().position(is_current).unwrap_or(0);
    let mut lines = tty.reader().map_err(failed)?.lines();
    loop {
        tty.write(|out| write!(out, "Default agent [{}]: ", default + 1)).map_err(failed)?;
        let Some(line) = lines.next().transpose().map_err(failed)? else {
            return Err(CommandError::failed("no agent was selected; nothing was changed"));
        };
        let typed = line.trim();
        let chosen = match typed.parse::<usize>() {
            _ if typed.is_empty() => installed.get(default),
            Ok(number) => number.checked_sub(1).and_then(|index| installed.get(index)),
            Err(_) => installed.iter().find(|agent| agent.config.name == typed),
        };
        if let Some(agent) = chosen {
            return Ok(agent.config);
        }
        let names: Vec<_> = installed.iter().map(|agent| safe(&agent.config.name)).collect();
        let problem = tty::number_problem(typed, installed.len(), &names);
        tty.write(|out| writeln!(out, "  {RED}{problem}{RED:#}")).map_err(failed)?;
    }
}

fn confirm(tty: &Tty, question: &str) -> Result<bool, CommandError> {
    let failed = |error: io::Error| CommandError::failed(format_args!("cannot use the terminal: {error}"));
    tty.write(|out| write!(out, "{question}")).map_err(failed)?;
    let line = tty.reader().map_err(failed)?.lines().next().transpose().map_err(failed)?;
    Ok(line.is_some_and(|line| matches!(line.trim(), "y" | "Y" | "yes")))
}

/// Starts an agent and waits for its response to `initialize`; also returns how many seconds that took.
pub(super) async fn test(agent: &AgentConfig) -> Result<(ProbedAgent, f64), CommandError> {
    let exe = std::env::current_exe().map_err(CommandError::failed)?;
    let cwd = std::env::current_dir().unwrap_or_else(|_| "/".into());
    let started = Instant::now();
    let reaper = Reaper::start(&exe).map_err(CommandError::failed)?;
    let response = probe(agent, &client_environment(), &cwd, &reaper, INITIALIZE_TIMEOUT).await;
    let seconds = started.elapsed().as_secs_f64();
    reaper.close().await;
    let probed =
        response.map_err(|error| CommandError::client(&parlor_client::Error::Rpc(error)).into_failed())?;
    Ok((probed, seconds))
}

fn write_editors(installed: &[Editor], exe: &str, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out)?;
    let (first, rest) = installed.split_first().unwrap_or((&Editor::Zed, &[]));
    if !installed.is_empty() {
        let titles: Vec<_> = installed.iter().map(|editor| editor.title()).collect();
        writeln!(out, "Editors found: {}", titles.join(", "))?;
    }
    writeln!(out, "{BOLD}{}{BOLD:#}: {}", first.title(), first.place())?;
    for line in first.snippet(exe).lines() {
        writeln!(out, "  {line}")?;
    }
    for editor in rest {
        writeln!(out, "{BOLD}{}{BOLD:#}: see `parlor setup --editor {}`", editor.title(), editor.name())?;
    }
    let others = [Editor::Zed, Editor::Jetbrains, Editor::Neovim, Editor::Emacs, Editor::VsCode];
    let others = others.iter().filter(|editor| *editor != first && !rest.contains(editor));
    let others: Vec<_> = others.map(|editor| editor.name()).collect();
    if !others.is_empty() {
        writeln!(out, "Others: parlor setup --editor {}", others.join("|"))?;
    }
    writeln!(out, "\n`parlor prompt TEXT...` sends a prompt, `parlor doctor` checks the installation.")
}
