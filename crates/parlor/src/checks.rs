//! What `parlor doctor` looks at.

use std::fs::{self, File, TryLockError};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use parlor_dialect::LossKind;
use parlor_json::JsonStr;
use parlor_server::config::{AgentConfig, Agents, Config, PRESETS, program_at};
use parlor_server::data_dir::DataDir;
use parlor_server::probe::probe;
use parlor_server::process::Reaper;
use parlor_server::stored;
use parlor_store::{Cursor, ErrorKind, Filter, SessionRow, SqliteStore, Store, StoreError};

use crate::command_error::CommandError;
use crate::commands::acp;
use crate::commands::doctor::Check;
use crate::commands::status;
use crate::offline_sessions::session_id;
use crate::output::{count, short_path};
use crate::server;
use crate::setup::{self, PathOptions};

/// How long the default agent may take to answer.
const INITIALIZE_TIMEOUT: Duration = Duration::from_secs(20);

/// How many of the latest sessions are read, and about how many of the others, unless all are.
const SAMPLE: usize = 100;

/// How many sessions that cannot be read are named.
const SHOWN: usize = 5;

/// Looks at everything.
pub(crate) fn all(paths: &PathOptions, full: bool) -> Result<Vec<Check>, CommandError> {
    let mut checks = vec![home()];
    let path = paths.data_dir()?;
    checks.push(directory(&path));
    // What cannot be read has failed already.
    if let Ok(Some(data)) = DataDir::open_existing(&path) {
        checks.extend(database(&data, full));
        checks.extend(["token", "token.read"].into_iter().filter_map(|name| token(&data, name)));
        checks.extend(running(&data));
    }
    match Config::load(paths.config.clone(), std::env::var_os("PARLOR_CONFIG")) {
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
    let found = match DataDir::open_existing(path).map(|_| fs::metadata(path)) {
        Ok(Ok(found)) => found,
        Ok(Err(_)) => return Check::warn(name, format!("{shown} is not there"), "the first server makes it"),
        Err(_) if path.is_file() => {
            let message = format!("{shown} is no directory");
            return Check::fail(name, message, "move it away, or choose another with --data");
        }
        Err(error) => return Check::fail(name, error.to_string(), "choose another with --data"),
    };
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

fn database(data: &DataDir, full: bool) -> Vec<Check> {
    let name = "database";
    let path = data.database();
    let shown = short_path(&path.display().to_string());
    if let Ok(false) = path.try_exists() {
        return vec![Check::ok(name, "not there yet")];
    }
    let opened = SqliteStore::open_read_only(&path);
    // A journal that turns out to be damaged is kept, so that it is found now and later.
    let mut checks = journals(&path);
    let store = match opened {
        Ok(store) => store,
        Err(error) => {
            checks.insert(0, unreadable(&shown, &error));
            return checks;
        }
    };
    let looked = store.format_version().and_then(|version| Ok((version, store.damage(full)?)));
    let file = match looked {
        Err(error) => unreadable(&shown, &error),
        Ok((_, damage)) if !damage.is_empty() => damaged(&shown, &damage.join("; ")),
        Ok((version, _)) => match mode_of(&path) {
            Some(mode) if mode & 0o077 != 0 => {
                Check::fail(name, format!("{shown} has mode {mode:04o}: others may read it"), "chmod 600")
            }
            Some(_) | None => Check::ok(name, format!("{shown}, format version {version}")),
        },
    };
    checks.insert(0, file);
    checks.push(sessions(&store, full));
    checks
}

/// Damaged journals of the database, which are kept until somebody deletes them.
fn journals(database: &Path) -> Vec<Check> {
    let hint = "the changes in it that could not be read are lost, the others are in the database; delete the file \
                when you do not need it";
    let errors = SqliteStore::damaged_journals(database).unwrap_or_else(|error| vec![error]);
    errors.into_iter().map(|error| Check::fail("journal", error.message, hint)).collect()
}

/// Says what to do about a database that cannot be read: it must not be given up for what passes.
fn unreadable(shown: &str, error: &StoreError) -> Check {
    let name = "database";
    let message = format!("{shown}: {error}");
    match error.kind {
        ErrorKind::Format => damaged(shown, error),
        ErrorKind::Outdated => Check::warn(name, message, "`parlor serve` upgrades it"),
        ErrorKind::Newer => {
            Check::fail(name, message, "use the version of parlor that wrote it, or a later one")
        }
        ErrorKind::DamagedJournal => Check::fail(
            name,
            message,
            "stop the server: the next one keeps the journal and goes on without it",
        ),
        ErrorKind::Full | ErrorKind::Io | ErrorKind::Busy | ErrorKind::Invalid | ErrorKind::Closed | _ => {
            Check::fail(name, message, "")
        }
    }
}

fn damaged(path: &str, error: &dyn std::fmt::Display) -> Check {
    let hint = "if there is no backup, move the file away: the next server begins a new one";
    Check::fail("database", format!("{path}: {error}"), hint)
}

/// Reads sessions as a server would.
fn sessions(store: &SqliteStore, full: bool) -> Check {
    let name = "sessions";
    let hint = "they are left as they are; `parlor rm` deletes one";
    let rows = match all_sessions(store) {
        Ok(rows) => rows,
        Err(error) => return Check::fail(name, error.to_string(), ""),
    };
    // Those at the beginning are the latest, the others are chosen evenly.
    let step = if full { 1 } else { rows.len().saturating_sub(SAMPLE).div_ceil(SAMPLE).max(1) };
    let sample = rows.iter().enumerate().filter(|(n, _)| *n < SAMPLE || n % step == 0).map(|(_, row)| row);
    let (mut read, mut unreadable) = (0, Vec::new());
    for row in sample {
        match stored::open(store, &row.id) {
            // One that was deleted meanwhile.
            Ok(_) => read += 1,
            Err(error) => unreadable.push(format!("{}: {error}", session_id(row))),
        }
    }
    if !unreadable.is_empty() {
        let all = unreadable.len();
        unreadable.truncate(SHOWN);
        let what = count(all, "session");
        return Check::fail(name, format!("{what} cannot be read: {}", unreadable.join("; ")), hint);
    }
    let all = count(rows.len(), "session");
    if read < rows.len() {
        return Check::ok(name, format!("read {read} of {all}; --full reads every one"));
    }
    Check::ok(name, format!("read {all}"))
}

fn all_sessions(store: &SqliteStore) -> Result<Vec<SessionRow>, StoreError> {
    const PAGE: usize = 1000;
    let mut rows: Vec<SessionRow> = Vec::new();
    loop {
        let after = rows.last().map(|row| Cursor { active_at: row.active_at, id: row.id.clone() });
        let page = store.sessions(&Filter::default(), after.as_ref(), PAGE)?;
        if page.is_empty() {
            return Ok(rows);
        }
        rows.extend(page);
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

fn running(data: &DataDir) -> Vec<Check> {
    let name = "server";
    let socket = data.socket();
    if !server::is_running(&socket) {
        return vec![stopped(data, &socket)];
    }
    let server = match status::ask(&socket) {
        Ok(server) => server,
        Err(failure) => return vec![Check::fail(name, failure.to_string(), "stop it and start it again")],
    };
    let process = if server.version == env!("CARGO_PKG_VERSION") {
        Check::ok(name, format!("runs as process {}", server.pid))
    } else {
        let message = format!(
            "process {} is parlor {}, this is {}",
            server.pid,
            server.version,
            env!("CARGO_PKG_VERSION")
        );
        Check::warn(name, message, "stop it; the next command starts one of this version")
    };
    let mut checks = vec![process];
    checks.extend(losses(&server));
    checks
}

/// What clients of the running server could not be told, and what it refused of agents, by kind.
fn losses(server: &status::Server) -> Vec<Check> {
    let (refused, untold): (Vec<_>, Vec<_>) =
        server.losses_by_kind().into_iter().partition(|loss| loss.kind == LossKind::UpdateRefused.name());
    let text = |losses: &[status::LossCount]| {
        let kinds: Vec<_> =
            losses.iter().map(|loss| format!("{} {}: {}", loss.count, loss.kind, loss.meaning)).collect();
        format!("since the server started: {}", kinds.join(" "))
    };
    let mut checks = Vec::new();
    if !untold.is_empty() {
        checks.push(Check::ok("losses", text(&untold)));
    }
    if !refused.is_empty() {
        let hint =
            "the agent is at fault; `parlor status` names the sessions, the server's log says what is wrong";
        checks.push(Check::warn("refused updates", text(&refused), hint));
    }
    checks
}

fn stopped(data: &DataDir, socket: &Path) -> Check {
    let name = "server";
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

fn agents(config: &Config) -> Result<Vec<Check>, CommandError> {
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
    checks.push(default_agent_check(known.default_agent())?);
    Ok(checks)
}

/// Starts the default agent and ends it again.
fn default_agent_check(agent: &AgentConfig) -> Result<Check, CommandError> {
    let name = "default agent";
    let exe = std::env::current_exe().map_err(CommandError::failed)?;
    let cwd = std::env::current_dir().unwrap_or_else(|_| "/".into());
    let runtime = setup::runtime()?;
    let answered = runtime.block_on(async {
        let reaper = Reaper::start(&exe).map_err(CommandError::failed)?;
        let answered = probe(agent, &acp::environment(), &cwd, &reaper, INITIALIZE_TIMEOUT).await;
        reaper.close().await;
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
