//! What `parlor doctor` looks at.

use std::fs::{self, File, TryLockError};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use parlor_json::JsonStr;
use parlor_server::config::{AgentConfig, Agents, Config, PRESETS, program_at};
use parlor_server::data_dir::DataDir;
use parlor_server::probe::probe;
use parlor_server::process::Watcher;
use parlor_store::{Filter, SqliteStore, Store};

use crate::commands::acp;
use crate::commands::doctor::Check;
use crate::commands::status;
use crate::failure::Failure;
use crate::output::{count, short_path};
use crate::server;
use crate::setup::{self, Common};

/// How long the default agent may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// Looks at everything.
pub(crate) fn all(common: &Common) -> Result<Vec<Check>, Failure> {
    let mut checks = vec![home()];
    let path = common.data_dir()?;
    checks.push(directory(&path));
    if let Some(data) = DataDir::look(&path) {
        checks.push(database(&data));
        checks.extend(["token", "token.read"].into_iter().filter_map(|name| token(&data, name)));
        checks.push(running(&data));
    }
    match Config::load(common.config.clone(), std::env::var_os("PARLOR_CONFIG")) {
        Ok(config) => {
            checks.push(match &config.path {
                Some(path) => Check::ok("configuration", short_path(&path.display().to_string())),
                None => Check::ok("configuration", "none, which is fine"),
            });
            checks.extend(agents(&config)?);
        }
        Err(error) => {
            let hint = error.hint.clone().unwrap_or_default();
            checks.push(Check::fail("configuration", error.to_string(), hint));
        }
    }
    Ok(checks)
}

fn home() -> Check {
    let name = "home";
    let relative = ["XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"].into_iter().find(|name| {
        std::env::var_os(name).is_some_and(|value| !value.is_empty() && !Path::new(&value).is_absolute())
    });
    match (std::env::var_os("HOME").filter(|home| Path::new(home).is_dir()), relative) {
        (_, Some(variable)) => Check::warn(
            name,
            format!("{variable} is no absolute path and does not count"),
            "write the whole path",
        ),
        (None, _) => {
            Check::warn(name, "HOME names no directory", "name the directories with --data and --config")
        }
        (Some(home), None) => Check::ok(name, home.to_string_lossy()),
    }
}

fn directory(path: &Path) -> Check {
    let name = "data directory";
    let shown = short_path(&path.display().to_string());
    let Ok(found) = fs::metadata(path) else {
        return Check::warn(name, format!("{shown} is not there"), "the first server makes it");
    };
    if !found.is_dir() {
        return Check::fail(
            name,
            format!("{shown} is no directory"),
            "move it away, or choose another with --data",
        );
    }
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Check::fail(name, format!("{shown} belongs to another user"), "choose another with --data");
    }
    match found.mode() & 0o777 {
        0o700 => Check::ok(name, shown),
        mode => Check::warn(
            name,
            format!("{shown} has mode {mode:04o}: others may look into it"),
            "the next server closes it; until then: chmod 700",
        ),
    }
}

fn database(data: &DataDir) -> Check {
    let name = "database";
    let path = data.database();
    let shown = short_path(&path.display().to_string());
    if !path.exists() {
        return Check::ok(name, "not there yet");
    }
    let opened = SqliteStore::open_read_only(&path).and_then(|store| {
        let version = store.format_version()?;
        let sessions = store.sessions(&Filter::default(), None, 100_000)?.len();
        Ok((version, sessions))
    });
    match opened {
        Err(error) => Check::fail(
            name,
            format!("{shown}: {error}"),
            "if there is no backup, move the file away: the next server begins a new one",
        ),
        Ok((version, sessions)) => match mode_of(&path) {
            Some(mode) if mode & 0o077 != 0 => {
                Check::fail(name, format!("{shown} has mode {mode:04o}: others may read it"), "chmod 600")
            }
            Some(_) | None => {
                Check::ok(name, format!("{}, format version {version}", count(sessions, "session")))
            }
        },
    }
}

fn token(data: &DataDir, file: &'static str) -> Option<Check> {
    let path = data.path().join(file);
    let shown = short_path(&path.display().to_string());
    let mode = mode_of(&path)?;
    if mode & 0o077 != 0 {
        let message = format!("{shown} has mode {mode:04o}: who can read it can drive the agents");
        return Some(Check::fail(
            "token",
            message,
            "delete it and start the server again, which makes a new one",
        ));
    }
    match fs::read_to_string(&path) {
        Err(error) => {
            Some(Check::fail("token", format!("{shown}: {error}"), "delete it and start the server again"))
        }
        Ok(text) if text.trim().is_empty() => {
            Some(Check::fail("token", format!("{shown} is empty"), "delete it and start the server again"))
        }
        Ok(_) => Some(Check::ok("token", shown)),
    }
}

fn mode_of(path: &Path) -> Option<u32> {
    fs::metadata(path).ok().map(|found| found.mode() & 0o777)
}

fn running(data: &DataDir) -> Check {
    let name = "server";
    let socket = data.socket();
    if server::answers(&socket) {
        return match status::ask(&socket) {
            Err(failure) => Check::fail(name, failure.to_string(), "stop it and start it again"),
            Ok(server) if server.version != env!("CARGO_PKG_VERSION") => Check::warn(
                name,
                format!(
                    "process {} is parlor {}, this is {}",
                    server.pid,
                    server.version,
                    env!("CARGO_PKG_VERSION")
                ),
                "stop it; the next command starts one of this version",
            ),
            Ok(server) => Check::ok(name, format!("runs as process {}", server.pid)),
        };
    }
    if is_locked(data) {
        let message = "a server has the directory and does not answer";
        return Check::fail(
            name,
            message,
            format!("its process is named in {}", data.path().join("lock").display()),
        );
    }
    if socket.exists() {
        let message = "none runs; one that was killed left its socket behind";
        return Check::warn(name, message, "the next server replaces it");
    }
    Check::ok(name, "none runs")
}

fn is_locked(data: &DataDir) -> bool {
    let Ok(file) = File::open(data.path().join("lock")) else { return false };
    matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
}

fn agents(config: &Config) -> Result<Vec<Check>, Failure> {
    let known = match Agents::new(Vec::new(), config) {
        Ok(known) => known,
        Err(error) => {
            let hint = error.hint.clone().unwrap_or_default();
            return Ok(vec![Check::fail("agents", error.to_string(), hint)]);
        }
    };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |agent: &AgentConfig| {
        agent.command.first().is_some_and(|program| program_at(program, &path).is_some())
    };
    let mut checks = Vec::new();
    let installed: Vec<_> =
        known.all().iter().filter(|agent| is_there(agent)).map(|agent| agent.name.as_str()).collect();
    checks.push(Check::ok("agents", format!("installed: {}", installed.join(", "))));
    for agent in config.agents.iter().filter(|agent| !is_there(agent)) {
        let program = agent.command.first().map_or("", String::as_str);
        let preset =
            PRESETS.iter().find(|preset| preset.name == agent.name).and_then(|preset| preset.install);
        let hint = preset.unwrap_or("install it, or write its path into the configuration");
        checks.push(Check::warn("agents", format!("{}: there is no {program}", agent.name), hint));
    }
    checks.push(try_out(known.default_agent())?);
    Ok(checks)
}

/// Starts the default agent and ends it again.
fn try_out(agent: &AgentConfig) -> Result<Check, Failure> {
    let name = "default agent";
    let exe = std::env::current_exe().map_err(Failure::failed)?;
    let cwd = std::env::current_dir().unwrap_or_else(|_| "/".into());
    let runtime = setup::runtime()?;
    let answered = runtime.block_on(async {
        let watcher = Watcher::start(&exe).map_err(Failure::failed)?;
        let answered = probe(agent, &acp::environment(), &cwd, &watcher, PATIENCE).await;
        watcher.close().await;
        Ok(answered)
    })?;
    Ok(match answered {
        Err(error) => {
            let hint =
                PRESETS.iter().find(|preset| preset.name == agent.name).and_then(|preset| preset.install);
            let fallback = format!("try its command by hand: {}", agent.command.join(" "));
            Check::fail(
                name,
                error.message(),
                hint.map_or(fallback, |install| format!("is it installed? {install}")),
            )
        }
        Ok(answered) => {
            let info = ["agentInfo", "info"].into_iter().find_map(|member| answered.info.get(member));
            let info = info.and_then(|info| parlor_json::Object::parse(info.raw()).ok()).unwrap_or_default();
            let said = |field: &str| info.get(field).and_then(|value| JsonStr::from_raw(value.raw()));
            let title =
                said("title").or_else(|| said("name")).map(|title| format!(" ({title})")).unwrap_or_default();
            Check::ok(name, format!("{}{title} answers, in {}", agent.name, answered.dialect))
        }
    })
}
