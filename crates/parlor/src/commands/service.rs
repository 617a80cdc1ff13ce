use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use parlor_server::config::program_at;

use crate::command_error::CommandError;
use crate::output::{self, short_path};
use crate::path_options::PathOptions;

/// Write or remove a systemd user unit for the server
///
/// The unit starts the server when you log in. Prints the commands that put this into effect.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Service {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Write the unit
    #[command(after_help = EXAMPLES)]
    Install(Install),
    /// Remove the unit
    #[command(after_help = EXAMPLES)]
    Uninstall,
}

#[derive(Args)]
struct Install {
    #[command(flatten)]
    paths: PathOptions,
}

const EXAMPLES: &str = "Examples:
  parlor service install
  parlor service install --config ~/parlor.toml
  parlor service uninstall";

/// The name of the unit.
const UNIT: &str = "parlor.service";

impl Service {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        require_systemd()?;
        let directory = unit_directory()?;
        match self.action {
            Action::Install(install) => install_unit(&directory, &install.paths)?,
            Action::Uninstall => uninstall_unit(&directory)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn require_systemd() -> Result<(), CommandError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if program_at("systemctl", &path).is_some() {
        return Ok(());
    }
    Err(CommandError::failed("this system has no systemd: there is no program 'systemctl' in PATH")
        .hint("have your service manager run `parlor serve`, or do without: commands start a server if none is running"))
}

/// The directory of the user's own units.
fn unit_directory() -> Result<PathBuf, CommandError> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let config = absolute("XDG_CONFIG_HOME").or_else(|| absolute("HOME").map(|home| home.join(".config")));
    let config = config.ok_or_else(|| CommandError::failed("there is no home directory: HOME is not set"))?;
    Ok(config.join("systemd").join("user"))
}

fn install_unit(directory: &Path, paths: &PathOptions) -> Result<(), CommandError> {
    // An invalid configuration is reported now, not by a server that does not start.
    paths.config()?;
    let path = directory.join(UNIT);
    let unit = unit(paths)?;
    fs::create_dir_all(directory)
        .and_then(|()| fs::write(&path, &unit))
        .map_err(|error| CommandError::failed(format_args!("cannot write {}: {error}", path.display())))?;
    let shown = short_path(&path.display().to_string());
    output::print(|out| {
        writeln!(out, "wrote {shown}:\n")?;
        unit.lines().try_for_each(|line| writeln!(out, "  {line}"))?;
        writeln!(out, "\nStart it now and at every login:\n")?;
        writeln!(out, "  systemctl --user daemon-reload")?;
        writeln!(out, "  systemctl --user enable --now parlor\n")?;
        writeln!(out, "A server that runs already has to be stopped first: parlor stop")?;
        writeln!(out, "To have it run without a login: loginctl enable-linger")
    })
}

/// The text of the unit.
fn unit(paths: &PathOptions) -> Result<String, CommandError> {
    let from_env = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let exe = std::env::current_exe().map_err(CommandError::failed)?;
    let mut command = format!("{} serve", quoted(&exe)?);
    for (option, path) in [
        ("--data", paths.data.clone().or_else(|| from_env("PARLOR_DATA_DIR"))),
        ("--config", paths.config.clone().or_else(|| from_env("PARLOR_CONFIG"))),
    ] {
        if let Some(path) = path {
            let path = std::path::absolute(path).map_err(CommandError::bad_input)?;
            command = format!("{command} {option} {}", quoted(&path)?);
        }
    }
    // Agents are searched for in PATH, and that of systemd is short.
    let search_path = std::env::var("PATH").unwrap_or_default();
    // The data and the configuration are where they are for the commands of this shell.
    let mut environment = format!("Environment=\"PATH={}\"\n", escaped(&search_path));
    for name in ["XDG_DATA_HOME", "XDG_CONFIG_HOME"] {
        if let Some(path) = from_env(name).filter(|path| path.is_absolute()) {
            let _ = writeln!(environment, "Environment=\"{name}={}\"", escaped(unit_text(&path)?));
        }
    }
    Ok(format!(
        "[Unit]\n\
         Description=parlor, a session server for coding agents\n\
         \n\
         [Service]\n\
         ExecStart={command}\n\
         {environment}\
         Restart=on-failure\n\
         \n\
         [Install]\n\
         WantedBy=default.target\n"
    ))
}

/// A path as a quoted word of a command of systemd.
fn quoted(path: &Path) -> Result<String, CommandError> {
    Ok(format!("\"{}\"", escaped(unit_text(path)?).replace('$', "$$")))
}

/// The text of a path, if a unit can contain it.
fn unit_text(path: &Path) -> Result<&str, CommandError> {
    let is_text = |text: &&str| !text.chars().any(char::is_control);
    path.to_str().filter(is_text).ok_or_else(|| {
        CommandError::bad_input(format_args!("the path {} cannot be written to a unit", path.display()))
    })
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%")
}

fn uninstall_unit(directory: &Path) -> Result<(), CommandError> {
    let path = directory.join(UNIT);
    let shown = short_path(&path.display().to_string());
    match fs::remove_file(&path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return output::print(|out| writeln!(out, "no service is installed: {shown} does not exist"));
        }
        Err(error) => {
            return Err(CommandError::failed(format_args!("cannot remove {}: {error}", path.display())));
        }
    }
    // What `systemctl enable` created.
    let _ = fs::remove_file(directory.join("default.target.wants").join(UNIT));
    output::print(|out| {
        writeln!(out, "removed {shown}\n\nStop the running service:\n")?;
        writeln!(out, "  systemctl --user stop parlor\n  systemctl --user daemon-reload")
    })
}
