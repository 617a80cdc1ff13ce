use std::io::{BufRead, BufReader};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use parlor_dialect::Dialect;
use parlor_server::config::{AgentConfig, Agents};
use parlor_server::data_dir::DataDir;
use parlor_server::doors::hello::{Agent, Hello};
use parlor_server::doors::{Ended, join, standard_input, standard_output, stdio};
use parlor_server::hub::{AgentChoice, Door, Hub, Options, Peer, Role};
use parlor_server::process::Watcher;
use parlor_store::{MemoryStore, SqliteStore, Store};

use crate::client::answers;
use crate::failure::Failure;
use crate::setup::{self, Common};

/// Speak ACP on standard input and output: what an editor starts in place of an agent
///
/// Joins the local server, and starts one if none runs. The session outlives the editor: when it is closed or crashes,
/// the agent goes on, and the session can be loaded again. `--direct` keeps everything in this one process instead.
#[derive(Args)]
pub(crate) struct Acp {
    #[command(flatten)]
    common: Common,
    /// The agent to talk to, by its name [default: the server's]
    #[arg(long, value_name = "NAME", conflicts_with = "command")]
    agent: Option<String>,
    /// Run all in this process, with sessions in memory unless --data is given
    #[arg(long)]
    direct: bool,
    /// How version 2 of the protocol is meant
    #[arg(long, value_name = "v2|draft")]
    dialect: Option<Dialect>,
    /// The agent to talk to, as a command
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// How long a server may take to be there.
const PATIENCE: Duration = Duration::from_secs(20);

impl Acp {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let runtime = if self.direct { setup::runtime()? } else { setup::small_runtime()? };
        let done =
            runtime.block_on(async { if self.direct { self.alone().await } else { self.joined().await } });
        // Reading standard input cannot always be interrupted.
        runtime.shutdown_background();
        done
    }

    async fn joined(self) -> Result<ExitCode, Failure> {
        let data = DataDir::open(&self.common.data_dir()?).map_err(Failure::failed)?;
        let agent = match (&self.agent, &self.command[..]) {
            (Some(name), _) => Some(Agent::Name(name.clone())),
            (None, []) => None,
            (None, command) => Some(Agent::Command(command.to_vec())),
        };
        let hello = Hello {
            agent,
            dialect: self.dialect.map(|dialect| dialect.name().to_owned()),
            env: environment(),
            cwd: std::env::current_dir().ok(),
            ..Hello::new()
        };
        ensure_server(&data, &self.common)?;
        let ended = join(&data.socket(), hello, standard_input(), standard_output()).await;
        match ended.map_err(|error| Failure::failed(format_args!("cannot join the server: {error}")))? {
            Ended::ByEditor => Ok(ExitCode::SUCCESS),
            Ended::ByServer => Err(Failure::failed("the server is gone")),
            Ended::Refused(why) => Err(Failure::failed(format_args!("the server refuses: {why}"))),
        }
    }

    async fn alone(self) -> Result<ExitCode, Failure> {
        let config = self.common.config()?;
        let named =
            (!self.command.is_empty()).then(|| AgentConfig::new(&self.command[0], self.command.clone()));
        let agents = Agents::new(named.into_iter().collect(), &config).map_err(Failure::bad_input)?;
        let (store, _lock): (Arc<dyn Store>, _) = match &self.common.data {
            None => (Arc::new(MemoryStore::default()), None),
            Some(path) => {
                let data = DataDir::open(path).map_err(Failure::failed)?;
                let lock = data.lock().map_err(Failure::failed)?;
                (Arc::new(SqliteStore::open(&data.database()).map_err(Failure::failed)?), Some(lock))
            }
        };
        let exe = std::env::current_exe().map_err(Failure::failed)?;
        let watcher = Watcher::start(&exe).map_err(Failure::failed)?;
        let idle = Duration::from_secs(3600);
        let hub = Hub::new(Options { store, agents, watcher, idle }).await.map_err(Failure::failed)?;
        let peer = Peer {
            door: Door::Stdio,
            role: Role::Driver,
            agent: self.agent.map(AgentChoice::Named),
            dialect: self.dialect,
            env: environment(),
            cwd: std::env::current_dir().ok(),
        };
        tokio::select! {
            () = stdio(&hub, peer) => {}
            () = setup::asked_to_stop() => {}
        }
        hub.stop().await;
        Ok(ExitCode::SUCCESS)
    }
}

/// What of the environment can be told.
pub(crate) fn environment() -> Vec<(String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

/// Starts a server for this data directory, unless one runs. Who loses a race joins the winner.
pub(crate) fn ensure_server(data: &DataDir, common: &Common) -> Result<(), Failure> {
    if answers(&data.socket()) {
        return Ok(());
    }
    let exe = std::env::current_exe().map_err(Failure::failed)?;
    let mut command = Command::new(exe);
    command.arg("serve").arg("--socket-only").arg("--data").arg(data.path());
    if let Some(config) = &common.config {
        command.arg("--config").arg(config);
    }
    command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    // It is not this editor's: a signal for the editor must not end it.
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let mut server =
        command.spawn().map_err(|error| Failure::failed(format_args!("cannot start a server: {error}")))?;
    let begun = Instant::now();
    let mut ended = None;
    while begun.elapsed() < PATIENCE {
        if answers(&data.socket()) {
            // It goes on without us; its complaints go to its log.
            drop(server.stderr.take());
            return Ok(());
        }
        if ended.is_none() {
            ended = server.try_wait().map_err(Failure::failed)?;
        }
        // One that ended may have lost a race against another that is about to be there.
        std::thread::sleep(Duration::from_millis(5));
        if ended.is_some_and(|status| !status.success()) && begun.elapsed() > Duration::from_secs(2) {
            break;
        }
    }
    let said = server
        .stderr
        .take()
        .map(|stderr| BufReader::new(stderr).lines().map_while(Result::ok).collect::<Vec<_>>());
    let said = said.filter(|_| ended.is_some()).unwrap_or_default().join("; ");
    Err(Failure::failed(format_args!("the server does not start: {said}"))
        .hint(format_args!("look into {}", data.path().join("log").display())))
}
