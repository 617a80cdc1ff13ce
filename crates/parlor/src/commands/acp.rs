use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{ChildStderr, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use clap::Args;
use parlor_dialect::Dialect;
use parlor_server::config::{AgentConfig, Agents};
use parlor_server::data_dir::DataDir;
use parlor_server::hub::{AgentChoice, Hub, LIVE_SESSIONS, Options, Peer, Role, TransportKind};
use parlor_server::process::Reaper;
use parlor_server::transport::hello::{Agent, Hello};
use parlor_server::transport::{Ended, join, standard_input, standard_output, stdio};
use parlor_store::{MemoryStore, SqliteStore, Store};

use crate::failure::Failure;
use crate::server::answers;
use crate::setup::{self, Common, StopSignals};

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

/// How much is kept of what a server says that does not start.
const MAX_SAID: u64 = 64 << 10;

/// How long somebody else may have the data directory without a server that answers.
const PATIENCE: Duration = Duration::from_secs(20);

/// After how long it is said that the server still starts, as it does while it converts a large database.
const SILENCE: Duration = Duration::from_secs(2);

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
        // From here on there are processes to clean up.
        let mut stop_signals = StopSignals::catch();
        setup::survive_file_size_limit();
        let exe = std::env::current_exe().map_err(Failure::failed)?;
        let reaper = Reaper::start(&exe).map_err(Failure::failed)?;
        let idle = Duration::from_secs(3600);
        // A server's data is nobody's business here either.
        let private = self.common.data_dir().into_iter().collect();
        let options = Options { store, agents, reaper, idle, live_sessions: LIVE_SESSIONS, private };
        let hub = Hub::new(options).await.map_err(Failure::failed)?;
        let peer = Peer {
            transport: TransportKind::Stdio,
            role: Role::Driver,
            agent: self.agent.map(AgentChoice::Named),
            dialect: self.dialect,
            env: environment(),
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

/// What of the environment can be told.
pub(crate) fn environment() -> Vec<(String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

/// Starts a server for this data directory, unless one runs. Who loses a race joins the winner; where the last one is
/// still about to end, another is started after it. One that was started is waited for as long as it lives.
pub(crate) fn ensure_server(data: &DataDir, common: &Common) -> Result<(), Failure> {
    let begun = Instant::now();
    let mut server: Option<Receiver<String>> = None;
    let mut lost: Option<Instant> = None;
    let mut is_told = false;
    let mut pause = Duration::from_millis(50);
    let said = loop {
        if answers(&data.socket()) {
            if let Some(config) =
                common.config.as_ref().filter(|config| server.is_none() && !data.uses_config(config))
            {
                let problem = format!(
                    "--config {} has no effect: a server with another configuration runs",
                    config.display()
                );
                return Err(Failure::bad_input(problem)
                    .hint("stop it first, or name another data directory with --data"));
            }
            // It goes on without us; its complaints go to its log.
            return Ok(());
        }
        if !is_told && begun.elapsed() > SILENCE {
            is_told = true;
            let _ = writeln!(anstream::stderr(), "the server is still starting; this waits for it");
        }
        let ended = match &server {
            Some(ended) => ended,
            None => server.insert(start_server(data, common)?),
        };
        if let Ok(last) = ended.try_recv() {
            let lost = lost.get_or_insert_with(Instant::now);
            // One that ended by itself in peace was asked to, and says nothing.
            if !last.contains("another server") || lost.elapsed() > PATIENCE {
                break last;
            }
            server = None;
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_secs(1));
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    Err(Failure::failed(format_args!("the server does not start: {}", said.trim()))
        .hint(format_args!("look into {}", data.path().join("log").display())))
}

/// Starts a server apart from this process. If it ends, what it has said comes out of the channel.
fn start_server(data: &DataDir, common: &Common) -> Result<Receiver<String>, Failure> {
    let exe = std::env::current_exe().map_err(Failure::failed)?;
    let mut command = Command::new(exe);
    command.arg("detach").arg("--").arg("serve").arg("--socket-only").arg("--data").arg(data.path());
    // It runs elsewhere, where a path from here would mean something else.
    let named = std::env::var_os("PARLOR_CONFIG").filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(config) = common.config.clone().or(named) {
        command.arg("--config").arg(std::path::absolute(config).map_err(Failure::bad_input)?);
    }
    command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let failed = |error| Failure::failed(format_args!("cannot start a server: {error}"));
    let mut detach = command.spawn().map_err(failed)?;
    let stderr = detach.stderr.take();
    // It has ended as soon as the server runs. The server has its standard error from it, and so its end is the server's.
    detach.wait().map_err(failed)?;
    let (sender, ended) = mpsc::channel();
    std::thread::spawn(move || sender.send(stderr.map(all_of).unwrap_or_default()));
    Ok(ended)
}

/// What is said until the end. Only its beginning is kept.
fn all_of(stderr: ChildStderr) -> String {
    let mut said = Vec::new();
    let mut stderr = stderr;
    let _ = (&mut stderr).take(MAX_SAID).read_to_end(&mut said);
    let _ = std::io::copy(&mut stderr, &mut std::io::sink());
    let said = String::from_utf8_lossy(&said);
    let lines: Vec<_> = said.lines().collect();
    lines.join("; ")
}
