//! Starts the terminal client.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use jiff::tz::TimeZone;
use parlor_server::config::Background;
use parlor_tui::shell::{self, ShellError, Target};
use parlor_tui::theme::{Colors, Theme};
use parlor_tui::{Detached, Start, TerminalOptions};
use terminal_colorsaurus::{QueryOptions, ThemeMode};

use crate::agent_choice;
use crate::background_server;
use crate::command_error::CommandError;
use crate::key_settings;
use crate::offline_sessions::OfflineSessions;
use crate::path_options::{self, PathOptions};
use crate::render::safe;
use crate::runtime;
use crate::server::client_environment;

/// The environment variable with the access token of a server.
const TOKEN_VARIABLE: &str = "PARLOR_TOKEN";

/// What to check if a server at an address cannot be used.
const SERVER_HINT: &str = "`parlor status` on that machine prints the address and the data directory, whose file `token` has the value \
                           of PARLOR_TOKEN";

/// The option `--server` of commands that open the terminal client.
#[derive(Args)]
pub(crate) struct ServerOption {
    /// Connect to the server at this ws:// or wss:// address, with the token in `PARLOR_TOKEN` [default: the local server]
    #[arg(long, value_name = "URL")]
    pub(crate) server: Option<String>,
}

/// Whether the client can use standard input and output.
pub(crate) fn has_terminal() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// Opens the latest session of this directory, or a new one if there is none.
pub(crate) fn open_latest() -> Result<ExitCode, CommandError> {
    let paths = PathOptions { data: None, config: None };
    run(&paths, &ServerOption { server: None }, Start::Latest, None, None)
}

/// Runs the client with a server until it is detached.
pub(crate) fn run(
    paths: &PathOptions,
    server: &ServerOption,
    start: Start,
    agent: Option<String>,
    cwd: Option<PathBuf>,
) -> Result<ExitCode, CommandError> {
    let mut options = match (&server.server, cwd) {
        (None, cwd) => options(paths, start, agent, cwd)?,
        // The directory is one of the server's machine, which checks it.
        (Some(_), Some(cwd)) if !cwd.is_absolute() => {
            let message = format!(
                "--cwd {} is not absolute: with --server it is a directory of that machine",
                cwd.display()
            );
            return Err(CommandError::bad_input(message));
        }
        (Some(_), cwd) => {
            let options = options(paths, start, agent, None)?;
            let cwd = cwd.map_or_else(|| options.cwd.clone(), |cwd| cwd.to_string_lossy().into_owned());
            TerminalOptions { cwd, ..options }
        }
    };
    let target = match &server.server {
        Some(url) => {
            let token = std::env::var(TOKEN_VARIABLE).ok().filter(|token| !token.is_empty());
            Target::Url { url: address(url)?, token }
        }
        None => {
            let data = background_server::ensure_running(paths)?;
            if let Some(agent) = &options.agent {
                agent_choice::check_usable(&data.socket(), agent)?;
            }
            options.login = login_command(paths);
            options.serve = Some(serve_command(paths));
            Target::Socket { path: data.socket(), env: client_environment() }
        }
    };
    if let Some(detached) = run_target(options, target)? {
        print_detached(paths, server, &detached);
    }
    Ok(ExitCode::SUCCESS)
}

/// Says that the session continues, and how to return to it.
fn print_detached(paths: &PathOptions, server: &ServerOption, detached: &Detached) {
    let id = detached.session.to_string();
    let sessions = server.server.is_none().then(|| OfflineSessions::open(paths)).and_then(Result::ok);
    let id = safe(&sessions.map_or_else(|| id.clone(), |sessions| sessions.short_id(&id)));
    let continues = if detached.is_busy { "; the turn continues" } else { "" };
    let server = server.server.as_ref().map(|url| format!("--server {} ", safe(url))).unwrap_or_default();
    print_stderr!("detached from {id}{continues}. `parlor attach {server}{id}` returns");
}

/// Runs the client with an agent and without a server.
pub(crate) fn run_agent(paths: &PathOptions, command: Vec<String>) -> Result<ExitCode, CommandError> {
    let options = options(paths, Start::Direct, None, None)?;
    let target = Target::Command { command, cwd: options.cwd.clone() };
    run_target(options, target).map(|_| ExitCode::SUCCESS)
}

fn run_target(options: TerminalOptions, target: Target) -> Result<Option<Detached>, CommandError> {
    // Transcripts are read between updates, so that they are never copied.
    let runtime = runtime::single_threaded()?;
    let unavailable = match &target {
        Target::Socket { .. } => CommandError::server_unavailable,
        Target::Url { .. } => |error| CommandError::server_unavailable(error).hint(SERVER_HINT),
        Target::Command { .. } => CommandError::agent_unavailable,
    };
    let result = runtime.block_on(shell::run(options, target));
    runtime.shutdown_background();
    result.map_err(|error| match error {
        ShellError::Start(_) => unavailable(error),
        ShellError::Terminal(_) => CommandError::failed(error),
    })
}

fn options(
    paths: &PathOptions,
    start: Start,
    agent: Option<String>,
    cwd: Option<PathBuf>,
) -> Result<TerminalOptions, CommandError> {
    if !has_terminal() {
        return Err(CommandError::bad_input("the terminal client needs a terminal")
            .hint("`parlor prompt` and `parlor watch` work without one"));
    }
    let config = paths.config()?;
    let cwd = match cwd {
        Some(cwd) => path_options::canonical_directory(&cwd)
            .ok()
            .filter(|cwd| cwd.is_dir())
            .ok_or_else(|| CommandError::bad_input(format_args!("{} is not a directory", cwd.display())))?,
        None => path_options::canonical_directory(std::path::Path::new("."))?,
    };
    let mut theme = Theme::from_env(|name| std::env::var(name).ok());
    theme.is_ascii |= config.client.ascii;
    theme.is_light = match config.client.background {
        Some(background) => background == Background::Light,
        None => theme.colors != Colors::None && is_background_light(),
    };
    Ok(TerminalOptions {
        theme,
        keys: key_settings::key_map(&config).map_err(CommandError::config)?,
        zone: TimeZone::system(),
        home: crate::output::home(),
        cwd: cwd.to_string_lossy().into_owned(),
        agent,
        start,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        serve: None,
        login: Vec::new(),
    })
}

/// The command that logs in to an agent of the local server, without the agent's name.
fn login_command(paths: &PathOptions) -> Vec<String> {
    let Ok(program) = std::env::current_exe() else { return Vec::new() };
    let mut command = vec![program.to_string_lossy().into_owned(), "login".to_owned()];
    command.extend(path_arguments(paths));
    command
}

/// The command that starts the local server, as a person types it.
fn serve_command(paths: &PathOptions) -> String {
    let mut command = vec!["parlor".to_owned(), "serve".to_owned()];
    command.extend(path_arguments(paths));
    command.join(" ")
}

/// The paths that were given on the command line.
fn path_arguments(paths: &PathOptions) -> Vec<String> {
    let mut arguments = Vec::new();
    for (option, path) in [("--data", &paths.data), ("--config", &paths.config)] {
        if let Some(path) = path {
            arguments.extend([option.to_owned(), path.to_string_lossy().into_owned()]);
        }
    }
    arguments
}

/// How long a terminal has to say which background it has. One that cannot say it answers at once, too.
const BACKGROUND_TIMEOUT: Duration = Duration::from_millis(500);

/// Asks the terminal for its background; else `COLORFGBG` tells it, which some terminals set.
fn is_background_light() -> bool {
    let mut options = QueryOptions::default();
    options.timeout = BACKGROUND_TIMEOUT;
    match terminal_colorsaurus::theme_mode(options) {
        Ok(mode) => mode == ThemeMode::Light,
        Err(_) => std::env::var("COLORFGBG").is_ok_and(|colors| has_light_background(&colors)),
    }
}

/// Whether `COLORFGBG`, such as `0;15` or `0;default;15`, has one of the light colours as the last one.
fn has_light_background(colors: &str) -> bool {
    matches!(colors.rsplit(';').next(), Some("7" | "15"))
}

/// The address of a server, with the path of its WebSocket.
fn address(url: &str) -> Result<String, CommandError> {
    let rest = url.strip_prefix("ws://").or_else(|| url.strip_prefix("wss://"));
    let Some(rest) = rest.filter(|rest| !rest.is_empty()) else {
        return Err(CommandError::bad_input(format_args!("'{url}' is not a ws:// or wss:// address"))
            .hint("such as ws://127.0.0.1:7667"));
    };
    let has_path = rest.trim_end_matches('/').contains('/');
    Ok(if has_path { url.to_owned() } else { format!("{}/acp", url.trim_end_matches('/')) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_gets_the_path_of_the_websocket() {
        assert_eq!(address("ws://host:7667").unwrap(), "ws://host:7667/acp");
        assert_eq!(address("ws://host:7667/").unwrap(), "ws://host:7667/acp");
        assert_eq!(address("wss://host/other").unwrap(), "wss://host/other");
        assert!(address("http://host").is_err() && address("ws://").is_err());
    }

    #[test]
    fn the_last_colour_of_the_variable_is_the_background() {
        assert!(has_light_background("0;15") && has_light_background("0;default;7"));
        assert!(
            !has_light_background("15;0") && !has_light_background("") && !has_light_background("default")
        );
    }
}
