use std::fmt::Write as _;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use parlor_process::Reaper;
use parlor_server::config::{
    AgentConfig, Agents, Config, ConfigError, ConfigFile, ConfigSource, DefaultAgent, InstalledAgent,
    LoadedConfig, ServerConfig,
};
use parlor_server::data_dir::{self, DataDir, Lock};
use parlor_server::hub::{self, ClientRole, Hub, HubOptions, LIVE_SESSIONS};
use parlor_server::transport::{Limits, ListenError, Listeners};
use parlor_store::{MemoryStore, SqliteStore, Store};
use tokio::sync::watch;

use crate::background_server::StartupError;
use crate::command_error::CommandError;
use crate::commands::open;
use crate::commands::status::RunningTurn;
use crate::key_settings;
use crate::path_options::PathOptions;
use crate::signals::{self, RestartSignal, StopSignals};
use crate::{logging, output, port_holder, runtime};

/// Run the server
///
/// Listens on a Unix socket and a TCP port. Sessions are stored in the data directory and continue without clients. Agents are
/// started when a session needs them. Ctrl-C stops the server and names the turns that it interrupts; sessions stay stored. A
/// second Ctrl-C ends it at once.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Serve {
    #[command(flatten)]
    paths: PathOptions,
    /// Listen for WebSocket clients on this address; port 0 selects a free port [default: 127.0.0.1:7667]
    #[arg(long, value_name = "ADDR", conflicts_with = "socket_only")]
    listen: Option<SocketAddr>,
    /// Allow an address that other machines can reach
    #[arg(long, conflicts_with = "socket_only")]
    allow_remote: bool,
    /// Listen on the Unix socket only
    #[arg(long)]
    socket_only: bool,
    /// Run for the command that starts this server: stop when it is not used, use another port if the default one is taken,
    /// and report an error as one JSON object
    #[arg(long, hide = true)]
    background: bool,
    /// Use this known agent for clients that select none; or add an agent, of which the first one is the default. Repeatable
    #[arg(long = "agent", value_name = "NAME[=COMMAND]", value_parser = agent)]
    agents: Vec<AgentOption>,
    /// Store sessions in `sqlite:PATH` or `memory:` [default: parlor.db in the data directory]
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Evict an idle session from memory after this time
    #[arg(long, value_name = "SECONDS", default_value_t = 600, hide = true)]
    idle: u64,
    /// Keep at most this many sessions in memory
    #[arg(long, value_name = "NUMBER", default_value_t = LIVE_SESSIONS, hide = true)]
    live_sessions: usize,
}

const EXAMPLES: &str = "Examples:
  parlor serve
  parlor serve --agent claude
  parlor serve --agent 'mine=my-agent --acp' --listen 127.0.0.1:7700";

/// How long tasks may run after the server has stopped.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(100);

/// The value of `--agent`.
#[derive(Clone)]
enum AgentOption {
    /// A known agent.
    Name(String),
    /// A new agent.
    New(Box<AgentConfig>),
}

fn agent(flag: &str) -> Result<AgentOption, String> {
    if !flag.contains('=') && !flag.contains(char::is_whitespace) && !flag.is_empty() {
        return Ok(AgentOption::Name(flag.to_owned()));
    }
    let agent = AgentConfig::from_flag(flag).map_err(|error| error.to_string())?;
    Ok(AgentOption::New(Box::new(agent)))
}

/// Merges the agents of the command line and of the configuration.
fn merge_agents(options: Vec<AgentOption>, config: &Config) -> Result<Agents, CommandError> {
    let later = options.iter().skip(1);
    if let Some(AgentOption::Name(name)) =
        later.into_iter().find(|option| matches!(option, AgentOption::Name(_)))
    {
        return Err(CommandError::bad_input(format_args!(
            "--agent {name} has no effect: it is not the first one"
        ))
        .hint("the first --agent is the default; the others add agents, as NAME=COMMAND"));
    }
    let (new, default) = split_agents(options);
    let agents = Agents::new(new, config).map_err(CommandError::config)?;
    default.iter().try_fold(agents, |agents, name| agents.with_default(name)).map_err(CommandError::config)
}

/// The configuration of a server that runs, with the options that are stronger than it.
struct ServedConfig {
    file: ConfigFile,
    /// The path of the data directory.
    data: PathBuf,
    agents: Vec<AgentOption>,
    /// The settings of the server that it started with.
    in_force: ServerConfig,
    /// The settings that options of the command line replace.
    overridden: Vec<&'static str>,
}

impl ConfigSource for ServedConfig {
    fn path(&self) -> &Path {
        self.file.path()
    }

    fn read(&self) -> Result<Option<String>, ConfigError> {
        self.file.read()
    }

    fn installed(&self) -> Vec<InstalledAgent> {
        InstalledAgent::read_all(&data_dir::agents(&self.data))
    }

    fn parse(&self, text: Option<&str>, installed: Vec<InstalledAgent>) -> Result<LoadedConfig, ConfigError> {
        let config = parse_config(Some(&self.file), text, installed)?;
        let (agents, default) = split_agents(self.agents.clone());
        let agents = Agents::new(agents, &config)?;
        let agents = default.iter().try_fold(agents, |agents, name| agents.with_default(name))?;
        let agents = agents.with_data_dir(&self.data);
        let mut needs_restart = self.in_force.differences(&config.server);
        needs_restart.retain(|setting| !self.overridden.contains(setting));
        let needs_restart = needs_restart.into_iter().map(str::to_owned).collect();
        Ok(LoadedConfig { agents, notify: config.notify, needs_restart })
    }
}

/// Parses the configuration and checks all of it.
fn parse_config(
    file: Option<&ConfigFile>,
    text: Option<&str>,
    installed: Vec<InstalledAgent>,
) -> Result<Config, ConfigError> {
    match file {
        Some(file) => file.parse(text, installed).and_then(key_settings::check),
        None => Ok(Config { installed, ..Config::default() }),
    }
}

/// The settings that options of the command line replace.
fn overridden(has_listen: bool, socket_only: bool) -> Vec<&'static str> {
    let all = [(has_listen, "server.listen"), (socket_only, "server.socket_only")];
    all.into_iter().filter_map(|(is_given, name)| is_given.then_some(name)).collect()
}

/// The agents that `--agent` adds, and the known one that it makes the default.
fn split_agents(options: Vec<AgentOption>) -> (Vec<AgentConfig>, Option<String>) {
    let (mut new, mut default) = (Vec::new(), None);
    for option in options {
        match option {
            AgentOption::Name(name) => default = Some(name),
            AgentOption::New(agent) => new.push(*agent),
        }
    }
    (new, default)
}

impl Serve {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        // Determined now: the file may be replaced, by another version, while the server runs.
        let exe = std::env::current_exe().map_err(CommandError::failed)?;
        let runtime = runtime::multi_threaded()?;
        let is_background = self.background;
        let result = runtime.block_on(self.serve(&exe));
        runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
        match result {
            Err(error) => {
                tracing::error!("the server ends: {error}");
                if !is_background {
                    return Err(error);
                }
                print_stderr!("{}", output::to_json(&StartupError::new(&error)));
                Ok(ExitCode::FAILURE)
            }
            Ok(ServerEnd::Restart) => {
                // This process becomes the new server, so that it keeps its terminal and its supervisor.
                let error = Command::new(exe).args(std::env::args_os().skip(1)).exec();
                Err(CommandError::failed(format_args!("cannot restart: {error}")))
            }
            Ok(ServerEnd::Stop | ServerEnd::Deleted) => Ok(ExitCode::SUCCESS),
        }
    }

    async fn serve(self, exe: &Path) -> Result<ServerEnd, CommandError> {
        let file = self.paths.config_file()?;
        let text = file.as_ref().map(ConfigFile::read).transpose().map_err(CommandError::config)?.flatten();
        let installed = self.paths.installed_agents();
        let config = parse_config(file.as_ref(), text.as_deref(), installed).map_err(CommandError::config)?;
        let data = self.paths.open_data_dir()?;
        let lock = data.lock().map_err(|error| CommandError::lock(&error))?;
        logging::init(&data)?;
        let agents = merge_agents(self.agents.clone(), &config)?.with_data_dir(data.path());
        let default = default_agent(&agents);
        // The store is opened before the server listens, because commands that find a server also read the store.
        let store = store(self.store.as_deref(), &data)?;
        data.write_config_path(&lock, config.path.as_deref()).map_err(CommandError::server_unavailable)?;
        let tokens = data
            .tokens(&lock, std::env::var("PARLOR_TOKEN").ok())
            .map_err(CommandError::server_unavailable)?;
        let mut http = config.server.http();
        if let Some(listen) = self.listen {
            http.listen = listen;
        }
        http.allow_remote |= self.allow_remote;
        let may_use_any_port = self.background && http.listen == ServerConfig::default().listen;
        let mut http = (!self.socket_only && !config.server.socket_only).then_some(http);
        // From here on the process has to clean up before it exits.
        let (mut stop_signals, mut restart_signal) = (StopSignals::catch(), RestartSignal::catch());
        signals::ignore_file_size_signal();
        let reaper = Reaper::start(exe).map_err(CommandError::failed)?;
        let idle = Duration::from_secs(self.idle);
        // `Hub::new` ends the turns that the previous server left running, before the server listens.
        let private = private(&data, self.store.as_deref());
        let has_listen = self.listen.is_some();
        let source = file.map(|file| ServedConfig {
            file,
            data: data.path().to_owned(),
            agents: self.agents,
            in_force: config.server.clone(),
            overridden: overridden(has_listen, self.socket_only),
        });
        let config_source = source.map(|source| (Box::new(source) as Box<dyn ConfigSource>, text));
        let live_sessions = self.live_sessions;
        let options =
            HubOptions { store, agents, config: config_source, reaper, idle, live_sessions, private };
        let hub = Hub::new(options).await.map_err(CommandError::server_unavailable)?;
        if let Err(error) = hub.browsers().load(&data.path().join("browsers")) {
            hub.stop().await;
            return Err(CommandError::server_unavailable(error));
        }
        let limits = Limits::default();
        let mut listeners = Listeners::open(&data, &lock, tokens.clone(), http.as_ref(), limits).await;
        if let (Err(error), Some(http)) = (&listeners, http.as_mut().filter(|_| may_use_any_port))
            && is_in_use(error)
        {
            http.listen.set_port(0);
            listeners = Listeners::open(&data, &lock, tokens, Some(http), limits).await;
        }
        let mut listeners = match listeners {
            Ok(listeners) => listeners,
            Err(error) => {
                hub.stop().await;
                return Err(listen_error(&error));
            }
        };
        listeners.set_page(parlor_web::page::page(Arc::clone(&hub)));
        if let Some(address) = listeners.address() {
            hub.set_page_address(open::address(address.port()));
        }
        hub.set_notify(config.notify.clone());
        // Nobody reads the output of a server in the background; `parlor open` makes links.
        let now = jiff::Timestamp::now().as_millisecond();
        let code = if self.background { None } else { hub.browsers().new_link(ClientRole::Driver, now).ok() };
        print_addresses(&listeners, &data, &default, code.as_deref());

        let (stop, stopping) = watch::channel(false);
        let watched = lock.clone();
        let idle_timeout = Some(config.server.idle_timeout).filter(|seconds| self.background && *seconds > 0);
        let running = Arc::clone(&hub);
        let stopped = tokio::spawn(async move {
            let end = tokio::select! {
                () = stop_signals.wait() => ServerEnd::Stop,
                () = restart_signal.wait() => ServerEnd::Restart,
                () = wait_until_idle(&running, idle_timeout) => ServerEnd::Stop,
                () = wait_until_deleted(&watched) => ServerEnd::Deleted,
            };
            signals::exit_on_interrupt();
            print_interrupted(&running).await;
            let _ = stop.send(true);
            end
        });
        listeners.serve(Arc::clone(&hub), stopping).await;
        hub.stop().await;
        drop(lock);
        let end = stopped.await.unwrap_or(ServerEnd::Stop);
        if matches!(end, ServerEnd::Deleted) {
            let message = format!("the data directory {} was deleted or moved", data.path().display());
            return Err(CommandError::failed(message).hint("later changes are lost; start the server again"));
        }
        if matches!(end, ServerEnd::Stop) && !self.background {
            print_stderr!("stopped the server");
        }
        Ok(end)
    }
}

/// The default agent of new sessions, for people.
fn default_agent(agents: &Agents) -> String {
    let path = std::env::var_os("PATH").unwrap_or_default();
    match agents.default_agent(&path) {
        DefaultAgent::Configured(agent) | DefaultAgent::OnlyInstalled(agent) => agent.name.clone(),
        DefaultAgent::BuiltIn(agent) => format!("{} (no other agent is installed)", agent.name),
        DefaultAgent::Ambiguous(installed) => {
            let names: Vec<_> = installed.iter().map(|agent| agent.name.as_str()).collect();
            format!("none by default; clients select one of {}", names.join(", "))
        }
    }
}

/// Why a server ends.
enum ServerEnd {
    /// By a signal, or because it was not used.
    Stop,
    /// To start again.
    Restart,
    /// Its data directory was deleted.
    Deleted,
}

/// How long finding out which turns are running may delay the end of the server.
const TURNS_TIMEOUT: Duration = Duration::from_secs(1);

/// Prints the turns that the end of the server interrupts.
async fn print_interrupted(hub: &Hub) {
    let turns = tokio::time::timeout(TURNS_TIMEOUT, hub.running_turns()).await.unwrap_or_default();
    if turns.is_empty() {
        return;
    }
    print_stderr!("stopping; interrupts {} (Ctrl-C again ends at once):", output::count(turns.len(), "turn"));
    for turn in turns {
        tracing::warn!(session = turn.session, agent = turn.agent, "the server stops during a turn");
        let hub::RunningTurn { session: session_id, title, name, agent } = turn;
        let turn = RunningTurn { session_id, title, name, agent };
        print_stderr!("  {}", turn.describe());
    }
}

/// Waits until the server has not been used for this many seconds.
async fn wait_until_idle(hub: &Hub, timeout: Option<u32>) {
    let Some(seconds) = timeout else { return std::future::pending().await };
    hub.wait_until_idle(Duration::from_secs(seconds.into())).await;
    tracing::info!(seconds, "no client and no turn; the server stops");
}

fn is_in_use(error: &ListenError) -> bool {
    matches!(error, ListenError::Listen { error, .. } if error.kind() == ErrorKind::AddrInUse)
}

/// Names the process that uses the port, and the option that selects another one.
fn listen_error(error: &ListenError) -> CommandError {
    let listen = match error {
        ListenError::Listen { listen, .. } => listen,
        ListenError::Remote(_) => return CommandError::bad_input(error),
        ListenError::Socket { .. } | ListenError::Data(_) => return CommandError::server_unavailable(error),
    };
    if !is_in_use(error) {
        return CommandError::server_unavailable(error);
    }
    let holder = port_holder::find(listen.port()).map(|holder| format!(" by {holder}")).unwrap_or_default();
    let mut other = *listen;
    other.set_port(listen.port().checked_add(1).unwrap_or_default());
    CommandError::server_unavailable(format_args!("cannot listen on {listen}: in use{holder}"))
        .hint(format_args!("`parlor serve --listen {other}`, or `listen` under [server] in config.toml"))
}

/// How often the server checks whether its data directory still exists.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// Waits until the data directory is deleted or moved.
async fn wait_until_deleted(lock: &Lock) {
    while lock.is_in_place() {
        tokio::time::sleep(CHECK_INTERVAL).await;
    }
    tracing::error!("the data directory was deleted or moved; the server stops");
}

/// The paths that agents may not read or write: the data directory, and a database elsewhere.
fn private(data: &DataDir, store: Option<&str>) -> Vec<PathBuf> {
    let mut private = vec![data.path().to_owned()];
    if let Some(path) = store.and_then(|url| url.strip_prefix("sqlite:")) {
        private.extend(SqliteStore::files(Path::new(path)));
    }
    private
}

fn store(url: Option<&str>, data: &DataDir) -> Result<Arc<dyn Store>, CommandError> {
    let path = match url {
        None => data.database(),
        Some("memory:") => return Ok(Arc::new(MemoryStore::default())),
        Some(url) => match url.strip_prefix("sqlite:") {
            Some(path) => PathBuf::from(path),
            None => {
                let failure = CommandError::bad_input(format_args!("unknown store '{url}'"));
                return Err(failure.hint("use sqlite:PATH or memory:"));
            }
        },
    };
    let store = SqliteStore::open(&path)
        .map_err(|error| CommandError::failed(format_args!("cannot open {}: {error}", path.display())))?;
    Ok(Arc::new(store))
}

/// Prints the addresses of the server. Programs that start the server parse these lines. Write errors are ignored.
fn print_addresses(listeners: &Listeners, data: &DataDir, agent: &str, code: Option<&str>) {
    let mut text = format!("parlor {} is ready\n", env!("CARGO_PKG_VERSION"));
    let mut line = |name: &str, value: &dyn std::fmt::Display| {
        let _ = writeln!(text, "  {name:<8} {value}");
    };
    if let Some(address) = listeners.address() {
        match code {
            Some(code) => line("web", &open::link(address.port(), code)),
            None => line("web", &format_args!("http://{address}/")),
        }
        line("acp", &format_args!("ws://{address}/acp"));
        if std::env::var_os("PARLOR_TOKEN").is_some_and(|token| !token.is_empty()) {
            line("token", &"the value of PARLOR_TOKEN");
        } else {
            line("token", &data.path().join("token").display());
        }
    }
    line("socket", &listeners.socket().display());
    line("data", &data.path().display());
    line("agent", &agent);
    text.push_str("Editors connect with the command `parlor acp`. Ctrl-C stops the server.\n");
    let mut stdout = std::io::stdout().lock();
    let _ = std::io::Write::write_all(&mut stdout, text.as_bytes())
        .and_then(|()| std::io::Write::flush(&mut stdout));
}
