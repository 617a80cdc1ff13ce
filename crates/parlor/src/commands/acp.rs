use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use parlor_dialect::Dialect;
use parlor_process::Reaper;
use parlor_server::config::{AgentConfig, Agents};
use parlor_server::data_dir::DataDir;
use parlor_server::hub::{
    AgentChoice, ClientRole, ConnectOptions, Hub, HubOptions, LIVE_SESSIONS, TransportKind,
};
use parlor_server::transport::hello::{Agent, Hello};
use parlor_server::transport::{
    Ended, RECONNECT_TIMEOUT, ServerConnector, relay, standard_input, standard_output, stdio,
};
use parlor_store::{MemoryStore, SqliteStore, Store};
use tokio::net::UnixStream;

use crate::agent_choice;
use crate::background_server;
use crate::command_error::CommandError;
use crate::path_options::PathOptions;
use crate::runtime;
use crate::server::client_environment;
use crate::signals::{self, StopSignals};

/// Speak ACP on standard input and output, for editors
///
/// An editor starts this command as its agent. It connects to the local server, which is started if it is not running. The
/// session continues when the editor exits, and can be loaded again. If the server is restarted or killed, the command connects
/// again, and the editor's sessions continue.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Acp {
    #[command(flatten)]
    paths: PathOptions,
    /// Use this agent, by name [default: the server's]
    #[arg(long, value_name = "NAME", conflicts_with = "command")]
    agent: Option<String>,
    /// Use no server: run the agent from this process, with sessions in memory unless --data is given
    #[arg(long)]
    direct: bool,
    /// Select the variant of protocol version 2
    #[arg(long, value_name = "v2|draft")]
    dialect: Option<Dialect>,
    /// Give up if no server accepts a connection for this time
    #[arg(long, value_name = "SECONDS", default_value_t = RECONNECT_TIMEOUT.as_secs(), hide = true)]
    reconnect_timeout: u64,
    /// Use the agent that this command starts
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

const EXAMPLES: &str = "Examples:
  parlor acp --agent claude
  parlor acp -- my-agent --acp
  parlor acp --direct --agent gemini";

const ON_TERMINAL: &str = "\
`parlor acp` is for editors, which start it as their agent. It waits for
messages of the Agent Client Protocol, one JSON-RPC message per line; Ctrl-D
ends it. To send a prompt from a terminal:
  parlor prompt --new TEXT";

/// How long a session without clients stays in memory with `--direct`.
const IDLE_TIMEOUT: Duration = Duration::from_secs(3600);

impl Acp {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        if std::io::stdin().is_terminal() {
            print_stderr!("{ON_TERMINAL}");
        }
        let (runtime, result);
        if self.direct {
            runtime = runtime::multi_threaded()?;
            result = runtime.block_on(self.run_direct());
        } else {
            let data = background_server::ensure_running(&self.paths)?;
            if self.agent.is_none() && self.command.is_empty() {
                agent_choice::print_notice(&data.socket())?;
            }
            runtime = runtime::single_threaded()?;
            result = runtime.block_on(self.relay(&data));
        }
        // A blocked read of standard input cannot be interrupted.
        runtime.shutdown_background();
        result
    }

    /// Relays lines between the editor and the server, and to the next one when the server is gone.
    async fn relay(self, data: &DataDir) -> Result<ExitCode, CommandError> {
        let agent = match (&self.agent, &self.command[..]) {
            (Some(name), _) => Some(Agent::Name(name.clone())),
            (None, []) => None,
            (None, command) => Some(Agent::Command(command.to_vec())),
        };
        let hello = Hello {
            agent,
            dialect: self.dialect.map(|dialect| dialect.name().to_owned()),
            env: client_environment(),
            cwd: std::env::current_dir().ok(),
            ..Hello::new()
        };
        let mut connector = LocalServer { paths: self.paths, data };
        let (input, output) = (standard_input(), standard_output());
        let timeout = Duration::from_secs(self.reconnect_timeout);
        let ended = relay(&mut connector, &hello, input, output, timeout).await;
        match ended.map_err(|error| {
            CommandError::server_unavailable(format_args!("cannot connect to the server: {error}"))
        })? {
            Ended::ByEditor => Ok(ExitCode::SUCCESS),
            Ended::ByServer(reason) => {
                Err(CommandError::server_unavailable(format_args!("the server is gone, and {reason}"))
                    .hint("`parlor doctor` checks the server; `parlor logs` may say why it ended"))
            }
            Ended::Refused(reason) => Err(CommandError::server_unavailable(format_args!(
                "the server rejected the connection: {reason}"
            ))),
        }
    }

    /// Serves the editor from this process.
    async fn run_direct(self) -> Result<ExitCode, CommandError> {
        let config = self.paths.config()?;
        let from_command =
            (!self.command.is_empty()).then(|| AgentConfig::new(&self.command[0], self.command.clone()));
        let mut agents =
            Agents::new(from_command.into_iter().collect(), &config).map_err(CommandError::config)?;
        if let Some(data) = &self.paths.data {
            agents = agents.with_data_dir(data);
        }
        let (store, _lock): (Arc<dyn Store>, _) = match &self.paths.data {
            None => (Arc::new(MemoryStore::default()), None),
            Some(path) => {
                let data = DataDir::open(path).map_err(CommandError::failed)?;
                let lock = data.lock().map_err(|error| CommandError::lock(&error))?;
                (Arc::new(SqliteStore::open(&data.database()).map_err(CommandError::failed)?), Some(lock))
            }
        };
        // From here on the process has to clean up before it exits.
        let mut stop_signals = StopSignals::catch();
        signals::ignore_file_size_signal();
        let exe = std::env::current_exe().map_err(CommandError::failed)?;
        let reaper = Reaper::start(&exe).map_err(CommandError::failed)?;
        let idle = IDLE_TIMEOUT;
        // Agents may not read the data of a server either.
        let private = self.paths.data_dir().into_iter().collect();
        let live_sessions = LIVE_SESSIONS;
        let options = HubOptions { store, agents, config: None, reaper, idle, live_sessions, private };
        let hub = Hub::new(options).await.map_err(CommandError::failed)?;
        let options = ConnectOptions {
            agent: self.agent.map(AgentChoice::Named),
            dialect: self.dialect,
            env: client_environment(),
            cwd: std::env::current_dir().ok(),
            ..ConnectOptions::new(TransportKind::Stdio, ClientRole::Driver)
        };
        tokio::select! {
            _ = stdio(&hub, options) => {}
            () = stop_signals.wait() => {}
        }
        hub.stop().await;
        Ok(ExitCode::SUCCESS)
    }
}

/// Connects to the server of a data directory.
struct LocalServer<'a> {
    paths: PathOptions,
    data: &'a DataDir,
}

/// How long the data directory must have been unlocked before a server is started: one that restarts locks it again at once.
const UNLOCKED_TIME: Duration = Duration::from_secs(1);

/// How often a server that stops or starts is tried.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

impl ServerConnector for LocalServer<'_> {
    async fn connect(&mut self, may_start: bool) -> Result<UnixStream, String> {
        let socket = self.data.socket();
        let mut unlocked_since: Option<Instant> = None;
        loop {
            match UnixStream::connect(&socket).await {
                Ok(stream) => return Ok(stream),
                Err(error) if !may_start => return Err(error.to_string()),
                Err(_) => {}
            }
            if self.data.lock_holder().is_some() {
                unlocked_since = None;
            } else if unlocked_since.get_or_insert_with(Instant::now).elapsed() >= UNLOCKED_TIME {
                break;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        let paths = self.paths.clone();
        let running = tokio::task::spawn_blocking(move || background_server::ensure_running(&paths));
        let running = running.await.map_err(|error| error.to_string())?;
        running.map_err(|error| error.to_string())?;
        UnixStream::connect(&socket).await.map_err(|error| error.to_string())
    }

    fn notice(&mut self, message: &str) {
        print_stderr!("parlor acp: {message}");
    }
}
