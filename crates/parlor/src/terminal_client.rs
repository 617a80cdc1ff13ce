//! Starts the terminal client.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use jiff::tz::TimeZone;
use parlor_server::config::{Background, ClientConfig};
use parlor_tui::keys::KeyMap;
use parlor_tui::shell::{self, Target};
use parlor_tui::theme::{Colors, Theme};
use parlor_tui::{Options, Start};
use terminal_colorsaurus::{QueryOptions, ThemeMode};

use crate::agent_choice;
use crate::background_server;
use crate::command_error::CommandError;
use crate::path_options::{self, PathOptions};
use crate::runtime;
use crate::server::client_environment;

/// The environment variable with the access token of a server.
const TOKEN_VARIABLE: &str = "PARLOR_TOKEN";

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
    let options = options(paths, start, agent, cwd)?;
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
            Target::Socket { path: data.socket(), env: client_environment() }
        }
    };
    run_target(options, target)
}

/// Runs the client with an agent and without a server.
pub(crate) fn run_agent(paths: &PathOptions, command: Vec<String>) -> Result<ExitCode, CommandError> {
    let options = options(paths, Start::Direct, None, None)?;
    let target = Target::Command { command, cwd: options.cwd.clone() };
    run_target(options, target)
}

fn run_target(options: Options, target: Target) -> Result<ExitCode, CommandError> {
    // Transcripts are read between updates, so that they are never copied.
    let runtime = runtime::single_threaded()?;
    let result = runtime.block_on(shell::run(options, target));
    runtime.shutdown_background();
    result.map(|()| ExitCode::SUCCESS).map_err(CommandError::failed)
}

fn options(
    paths: &PathOptions,
    start: Start,
    agent: Option<String>,
    cwd: Option<PathBuf>,
) -> Result<Options, CommandError> {
    if !has_terminal() {
        return Err(CommandError::bad_input("the terminal client needs a terminal")
            .hint("`parlor prompt` and `parlor watch` work without one"));
    }
    let config = paths.config()?;
    let location = config.path.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
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
    Ok(Options {
        theme,
        keys: key_map(&config.client, &location)?,
        zone: TimeZone::system(),
        home: std::env::var("HOME").ok().filter(|home| home.len() > 1),
        cwd: cwd.to_string_lossy().into_owned(),
        agent,
        start,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    })
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

/// The default keys with those of the configuration.
fn key_map(config: &ClientConfig, location: &str) -> Result<KeyMap, CommandError> {
    let settings = config.keys.iter();
    let settings = settings.map(|key| (key.place.as_str(), key.action.as_str(), key.keys.as_str()));
    KeyMap::with_settings(settings).map_err(|(index, error)| {
        let line = config.keys.get(index).map_or(0, |key| key.line);
        CommandError::bad_input(format_args!("{location}:{line}: {error}"))
            .hint("F1 in the client shows all keys; docs/terminal.md lists the names of the actions")
    })
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
    use parlor_server::config::KeySetting;

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

    #[test]
    fn a_wrong_key_is_reported_with_its_line() {
        let setting = |action: &str, keys: &str, line| KeySetting {
            place: "messages".to_owned(),
            action: action.to_owned(),
            keys: keys.to_owned(),
            line,
        };
        let config = ClientConfig { keys: vec![setting("fork", "e", 7)], ..ClientConfig::default() };
        let error = key_map(&config, "config.toml").unwrap_err().to_string();
        assert_eq!(error, "config.toml:7: e is assigned twice in 'messages': to 'fork' and to 'edit'");
        // Two keys can be exchanged.
        let config = ClientConfig {
            keys: vec![setting("fork", "e", 1), setting("edit", "f", 2)],
            ..ClientConfig::default()
        };
        assert!(key_map(&config, "config.toml").is_ok());
    }
}
