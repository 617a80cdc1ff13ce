use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use parlor_dialect::Dialect;
use parlor_process::Reaper;
use parlor_server::config::{AgentConfig, Agents};
use parlor_server::data_dir::DataDir;
use parlor_server::hub::{AgentChoice, Hub, LIVE_SESSIONS, Options, Peer, Role, TransportKind};
use parlor_server::transport::hello::{Agent, Hello};
use parlor_server::transport::{Ended, join, standard_input, standard_output, stdio};
use parlor_store::{MemoryStore, SqliteStore, Store};

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
/// session continues when the editor exits, and can be loaded again.
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
    /// Use the agent that this command starts
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

const EXAMPLES: &str = "Examples:
  parlor acp --agent claude
  parlor acp -- my-agent --acp
  parlor acp --direct --agent gemini";

const ON_TERMINAL: &str = "\
`parlor acp` is for editors, which start it as their agent. It waits for messages of the Agent Client Protocol, one JSON-RPC
message per line; Ctrl-D ends it. `parlor prompt --new TEXT` sends a prompt from a terminal.";

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

    /// Relays lines between the editor and the server.
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
        let ended = join(&data.socket(), hello, standard_input(), standard_output()).await;
        match ended
            .map_err(|error| CommandError::failed(format_args!("cannot connect to the server: {error}")))?
        {
            Ended::ByEditor => Ok(ExitCode::SUCCESS),
            Ended::ByServer => Err(CommandError::failed("the server closed the connection")),
            Ended::Refused(reason) => {
                Err(CommandError::failed(format_args!("the server rejected the connection: {reason}")))
            }
        }
    }

    /// Serves the editor from this process.
    async fn run_direct(self) -> Result<ExitCode, CommandError> {
        let config = self.paths.config()?;
        let from_command =
            (!self.command.is_empty()).then(|| AgentConfig::new(&self.command[0], self.command.clone()));
        let agents =
            Agents::new(from_command.into_iter().collect(), &config).map_err(CommandError::bad_input)?;
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
        let options = Options { store, agents, reaper, idle, live_sessions: LIVE_SESSIONS, private };
        let hub = Hub::new(options).await.map_err(CommandError::failed)?;
        let peer = Peer {
            transport: TransportKind::Stdio,
            role: Role::Driver,
            agent: self.agent.map(AgentChoice::Named),
            dialect: self.dialect,
            env: client_environment(),
            cwd: std::env::current_dir().ok(),
        };
        tokio::select! {
            _ = stdio(&hub, peer) => {}
            () = stop_signals.wait() => {}
        }
        hub.stop().await;
        Ok(ExitCode::SUCCESS)
    }
}
