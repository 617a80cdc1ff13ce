use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use parlor_server::data_dir::DataDir;
use parlor_store::Filter;
use serde::{Deserialize, Serialize};

use crate::command_error::CommandError;
use crate::commands::agents::ListedServer;
use crate::offline_sessions::{LatestScope, OfflineSessions, session_id};
use crate::open_request;
use crate::output::{self, BOLD, DIM, GREEN, PLAIN, YELLOW, short_path, span, span_since};
use crate::path_options::PathOptions;
use crate::server;
use crate::session_list::{ListedSession, ListedState, LiveState};
use crate::table::{Cell, Table, terminal_width, write_labelled};

/// Print the state of the server
///
/// Lists the sessions that run, need a person, or failed, and the running agents. The exit code is 1 if no server is running.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Status {
    #[command(flatten)]
    paths: PathOptions,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "Examples:
  parlor status
  parlor status --json | jq .pid";

/// Among how many of the latest sessions those are looked for that failed.
const LATEST: usize = 50;

/// The result of `_parlor/status`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ServerStatus {
    pub(crate) version: String,
    pub(crate) pid: u32,
    uptime_seconds: u64,
    pub(crate) clients: u64,
    live_sessions: usize,
    agents: Vec<RunningAgent>,
    /// The MCP servers that agents get from the configuration.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    mcp_servers: Vec<ListedServer>,
    /// Losses by session.
    #[serde(default)]
    pub(crate) losses: Vec<SessionLosses>,
    /// The turns that are running; `None` if the server does not report them.
    pub(crate) turns: Option<Vec<RunningTurn>>,
    /// After how many seconds without clients and turns the server stops.
    #[serde(skip_serializing_if = "Option::is_none")]
    idle_timeout_seconds: Option<u64>,
    /// The configuration that the server watches.
    #[serde(skip_serializing_if = "Option::is_none")]
    config: Option<ConfigStatus>,
}

/// The configuration file of a server.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ConfigStatus {
    path: String,
    /// Whether there is no such file.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    missing: bool,
    /// Why the present file is not in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ConfigProblem>,
    /// Settings that take effect after a restart.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    needs_restart: Vec<String>,
}

/// What is wrong with a configuration file.
#[derive(Debug, Serialize, Deserialize)]
struct ConfigProblem {
    /// The file with the line or table.
    location: String,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

/// A turn that is running.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunningTurn {
    pub(crate) session_id: String,
    pub(crate) title: Option<String>,
    /// The name of the session for people.
    pub(crate) name: Option<String>,
    pub(crate) agent: String,
}

impl RunningTurn {
    /// Its session with its name and agent, for people.
    pub(crate) fn describe(&self) -> String {
        let id: String = self.session_id.chars().take(8).collect();
        let name = self.name.as_deref().unwrap_or("(no prompt yet)").replace('\n', " ");
        crate::render::safe(&format!("{id}  {name} ({})", self.agent))
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SessionLosses {
    session_id: String,
    losses: Vec<LossCount>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct LossCount {
    #[serde(rename = "loss")]
    pub(crate) kind: String,
    pub(crate) count: u64,
    pub(crate) meaning: String,
}

impl ServerStatus {
    /// Why the configuration file is not in force.
    pub(crate) fn config_problem(&self) -> Option<String> {
        let ConfigProblem { location, message, .. } = self.config.as_ref()?.error.as_ref()?;
        Some(format!("{}: {message}", short_path(location)))
    }

    /// The programs of the running agents.
    pub(crate) fn programs(&self) -> Vec<PathBuf> {
        self.agents.iter().filter_map(|agent| agent.program.as_ref().map(PathBuf::from)).collect()
    }

    /// The losses of all sessions, added up by kind.
    pub(crate) fn losses_by_kind(&self) -> Vec<LossCount> {
        let mut kinds = BTreeMap::<&str, LossCount>::new();
        for loss in self.losses.iter().flat_map(|session| &session.losses) {
            let all = kinds.entry(&loss.kind).or_insert_with(|| LossCount { count: 0, ..loss.clone() });
            all.count = all.count.saturating_add(loss.count);
        }
        kinds.into_values().collect()
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct RunningAgent {
    name: String,
    pid: Option<u32>,
    sessions: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    program: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StatusReport {
    running: bool,
    data: String,
    socket: Option<String>,
    address: Option<String>,
    #[serde(flatten)]
    server: Option<ServerStatus>,
    /// The sessions of a running server that are not idle.
    sessions: Vec<ActiveSession>,
}

/// A session that runs, needs a person, or failed.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ActiveSession {
    #[serde(flatten)]
    listed: ListedSession,
    /// What it waits for.
    waits_for: Option<String>,
    #[serde(skip)]
    waits_since: Option<i64>,
}

impl Status {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        let path = self.paths.data_dir()?;
        let data = self.paths.existing_data_dir()?;
        let socket = data.as_ref().map(DataDir::socket).filter(|socket| server::is_running(socket));
        let server = socket.as_deref().map(query).transpose()?;
        let running = server.is_some();
        let sessions = match &server {
            Some(server) => self.active_sessions(server.turns.as_deref().unwrap_or_default())?,
            None => Vec::new(),
        };
        let report = StatusReport {
            sessions,
            running,
            data: path.display().to_string(),
            socket: socket.map(|socket| socket.display().to_string()),
            address: data.filter(|_| running).and_then(|data| address(&data)),
            server,
        };
        if self.json {
            output::print_json(&report)?;
        } else {
            output::print(|out| write(&report, out))?;
        }
        Ok(if running { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// All sessions that run or need a person, and those of the latest that failed.
    fn active_sessions(&self, turns: &[RunningTurn]) -> Result<Vec<ActiveSession>, CommandError> {
        let live = LiveState::query(&self.paths)?;
        let sessions = OfflineSessions::open(&self.paths)?;
        let filter = Filter { archived: Some(false), ..Filter::default() };
        let mut rows = sessions.sessions(&filter, LATEST)?;
        let running = turns.iter().map(|turn| turn.session_id.as_str());
        let waiting = live.waiting().map(|request| request.session.to_string());
        let ids: BTreeSet<String> = running.map(str::to_owned).chain(waiting).collect();
        for id in ids {
            if rows.iter().all(|row| session_id(row) != id) {
                // It may have been deleted meanwhile.
                rows.extend(sessions.find(&id, LatestScope::All));
            }
        }
        rows.sort_by_key(|row| std::cmp::Reverse(row.active_at));
        let mut active = Vec::new();
        for row in rows {
            let listed = ListedSession::new(&sessions, &row, &live)?;
            if listed.state == ListedState::Idle {
                continue;
            }
            let request = live.requests_of(&listed.session_id).first();
            active.push(ActiveSession {
                waits_for: request.map(open_request::summary),
                waits_since: request.and_then(open_request::opened_at),
                listed,
            });
        }
        Ok(active)
    }
}

/// Requests the status of a server.
pub(crate) fn query(socket: &Path) -> Result<ServerStatus, CommandError> {
    query_within(socket, server::ANSWER_TIMEOUT)
}

/// Requests the status of a server that may not answer.
pub(crate) fn query_within(socket: &Path, timeout: Duration) -> Result<ServerStatus, CommandError> {
    let mut answer = server::call(socket, "_parlor/status", timeout)?;
    // This connection is not counted.
    if let Some(clients) = answer.get("clients").and_then(|clients| clients.as_str().parse::<u64>().ok()) {
        let others = parlor_json::Json::parse(clients.saturating_sub(1).to_string());
        answer.set("clients", others.expect("a number is JSON"));
    }
    serde_json::from_str(answer.to_json().as_str())
        .map_err(|error| CommandError::failed(format_args!("cannot parse the server's status: {error}")))
}

/// The URL on which the server listens for HTTP.
fn address(data: &DataDir) -> Option<String> {
    let port = std::fs::read_to_string(data.port_file()).ok()?;
    let port: u16 = port.trim().parse().ok()?;
    Some(format!("http://127.0.0.1:{port}/"))
}

fn write(report: &StatusReport, out: &mut dyn std::io::Write) -> std::io::Result<()> {
    let Some(server) = &report.server else {
        let width = terminal_width();
        let data = short_path(&report.data);
        write_labelled(out, width, "○ no server is running for ", &data, PLAIN)?;
        let hint = "`parlor serve` starts one; `parlor acp` and `parlor prompt` start one in the background";
        return write_labelled(out, width, "  hint: ", hint, PLAIN);
    };
    let safe = crate::render::safe;
    let width = terminal_width();
    let heading = format!("{GREEN}●{GREEN:#} {BOLD}parlor {}{BOLD:#} ", safe(&server.version));
    let running = format!("runs as process {} for {}", server.pid, span(server.uptime_seconds));
    write_labelled(out, width, &heading, &running, PLAIN)?;
    let mut field =
        |name: &str, text: &str| write_labelled(out, width, &format!("  {name:<9} "), &safe(text), PLAIN);
    field("data", &short_path(&report.data))?;
    if let Some(socket) = &report.socket {
        field("socket", &short_path(socket))?;
    }
    if let Some(address) = &report.address {
        // The name for which browsers are signed in.
        let page = address.replace("//127.0.0.1:", "//parlor.localhost:");
        field("web", &format!("{page} (`parlor open` opens it)"))?;
    }
    if let Some(config) = &server.config {
        write_config(config, out)?;
    }
    let mut field =
        |name: &str, text: &str| write_labelled(out, width, &format!("  {name:<9} "), &safe(text), PLAIN);
    field("clients", &server.clients.to_string())?;
    field("sessions", &format!("{} in memory", server.live_sessions))?;
    if let Some(seconds) = server.idle_timeout_seconds {
        field("stops", &format!("after {} without clients and turns", span(seconds)))?;
    }
    for turn in server.turns.iter().flatten() {
        field("running", &turn.describe())?;
    }
    if !server.mcp_servers.is_empty() {
        let servers: Vec<_> = server.mcp_servers.iter().map(ListedServer::describe).collect();
        field("mcp", &servers.join(", "))?;
    }
    for session in &server.losses {
        let kinds: Vec<_> =
            session.losses.iter().map(|loss| format!("{} {}", loss.count, loss.kind)).collect();
        field("losses", &format!("{}: {}", session.session_id, kinds.join(", ")))?;
    }
    if server.agents.is_empty() {
        field("agents", "none running; a session that needs its agent starts it")?;
    } else {
        field("agents", &format!("{} running", server.agents.len()))?;
    }
    if !report.sessions.is_empty() {
        writeln!(out)?;
        write_sessions(&report.sessions, out)?;
    }
    if server.agents.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    let mut table = Table::new(&["AGENT", "PROCESS", "SESSIONS"]);
    for agent in &server.agents {
        let pid = agent.pid.map(|pid| pid.to_string()).unwrap_or_default();
        table.row([agent.name.as_str().into(), pid.into(), agent.sessions.to_string().into()]);
    }
    table.write(out)
}

fn write_config(config: &ConfigStatus, out: &mut dyn std::io::Write) -> std::io::Result<()> {
    let safe = crate::render::safe;
    let path = safe(&short_path(&config.path));
    let width = terminal_width();
    let file = if config.missing { format!("none ({path} does not exist)") } else { path };
    write_labelled(out, width, "  config    ", &file, PLAIN)?;
    let below = " ".repeat(12);
    if let Some(ConfigProblem { location, message, hint }) = &config.error {
        let invalid = format!("{below}{YELLOW}invalid; the configuration before it is in force{YELLOW:#}: ");
        let problem = format!("{}: {}", safe(&short_path(location)), safe(message));
        write_labelled(out, width, &invalid, &problem, PLAIN)?;
        if let Some(hint) = hint {
            write_labelled(out, width, &below, &safe(hint), DIM)?;
        }
    }
    for setting in &config.needs_restart {
        let text = format!("{} takes effect after `parlor restart`", safe(setting));
        write_labelled(out, width, &below, &text, PLAIN)?;
    }
    Ok(())
}

fn write_sessions(sessions: &[ActiveSession], out: &mut dyn std::io::Write) -> std::io::Result<()> {
    let mut table = Table::new(&["SESSION", "~TITLE", "STATE", "~WAITS FOR"]);
    table.drop_if_narrow(&["WAITS FOR", "STATE"]);
    let now = output::now();
    for session in sessions {
        let listed = &session.listed;
        let id: String = listed.session_id.chars().take(8).collect();
        let state = match terminal_width() {
            Some(_) => Cell::styled(&listed.state_text(now), listed.state.mark().1),
            None => listed.state.word().into(),
        };
        let since = session.waits_since.map(|since| format!(", for {}", span_since(since, now)));
        let waits_for = session.waits_for.as_ref().map(|wait| format!("{wait}{}", since.unwrap_or_default()));
        let title = listed.name().unwrap_or("(no prompt yet)");
        table.row([id.into(), title.into(), state, waits_for.unwrap_or_default().into()]);
    }
    table.write(out)
}
