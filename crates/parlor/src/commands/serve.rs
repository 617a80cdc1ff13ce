use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use parlor_server::config::AgentConfig;
use parlor_server::data_dir::{DataDir, Lock};
use parlor_server::hub::{Hub, LIVE_SESSIONS, Options};
use parlor_server::process::Reaper;
use parlor_server::transport::{Limits, Listeners};
use parlor_store::{MemoryStore, SqliteStore, Store};
use tokio::sync::watch;

use crate::command_error::CommandError;
use crate::setup::{self, PathOptions, StopSignals};

/// Run the server: sessions, agents, a Unix socket and a port for clients
///
/// Sessions are kept in the data directory and go on without clients. Agents are started when they are needed; without
/// any configured there is the built-in demo agent. Stop it with Ctrl-C: nothing that was said is lost.
#[derive(Args)]
pub(crate) struct Serve {
    #[command(flatten)]
    paths: PathOptions,
    /// Where to listen for WebSocket clients; port 0 chooses a free one [default: 127.0.0.1:7667]
    #[arg(long, value_name = "ADDR", conflicts_with = "socket_only")]
    listen: Option<SocketAddr>,
    /// Listen also on addresses that other machines can reach
    #[arg(long)]
    allow_remote: bool,
    /// Listen on the Unix socket only
    #[arg(long)]
    socket_only: bool,
    /// An agent that clients can ask for; the first one is the default. Repeatable
    #[arg(long = "agent", value_name = "NAME=COMMAND", value_parser = agent)]
    agents: Vec<AgentConfig>,
    /// Where to keep sessions: `sqlite:PATH` or `memory:` [default: parlor.db in the data directory]
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Keep a session that nobody uses in memory for this long
    #[arg(long, value_name = "SECONDS", default_value_t = 600, hide = true)]
    idle: u64,
    /// Keep at most this many sessions in memory
    #[arg(long, value_name = "NUMBER", default_value_t = LIVE_SESSIONS, hide = true)]
    live_sessions: usize,
}

fn agent(flag: &str) -> Result<AgentConfig, String> {
    AgentConfig::from_flag(flag).map_err(|error| error.to_string())
}

impl Serve {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        let runtime = setup::runtime()?;
        let done = runtime.block_on(self.serve());
        runtime.shutdown_timeout(Duration::from_millis(100));
        done.map(|()| ExitCode::SUCCESS)
    }

    async fn serve(self) -> Result<(), CommandError> {
        let config = self.paths.config()?;
        let data = DataDir::open(&self.paths.data_dir()?).map_err(CommandError::failed)?;
        let lock = data.lock().map_err(CommandError::failed)?;
        setup::init_logging(&data)?;
        let agents =
            parlor_server::config::Agents::new(self.agents, &config).map_err(CommandError::bad_input)?;
        let default = agents.default_agent().name.clone();
        // Before the server listens: commands that find it may read the store themselves.
        let store = store(self.store.as_deref(), &data)?;
        data.write_config_path(&lock, config.path.as_deref()).map_err(CommandError::failed)?;
        let tokens = data.tokens(&lock, std::env::var("PARLOR_TOKEN").ok()).map_err(CommandError::failed)?;
        let mut http = config.server.http();
        if let Some(listen) = self.listen {
            http.listen = listen;
        }
        http.allow_remote |= self.allow_remote;
        let http = (!self.socket_only).then_some(http);
        // From here on there are processes and files to clean up.
        let mut stop_signals = StopSignals::catch();
        setup::ignore_file_size_signal();
        let exe = std::env::current_exe().map_err(CommandError::failed)?;
        let reaper = Reaper::start(&exe).map_err(CommandError::failed)?;
        let idle = Duration::from_secs(self.idle);
        // Turns that the last server left running have ended before the server listens.
        let private = private(&data, self.store.as_deref());
        let options = Options { store, agents, reaper, idle, live_sessions: self.live_sessions, private };
        let hub = Hub::new(options).await.map_err(CommandError::failed)?;
        let listeners = match Listeners::open(&data, &lock, tokens, http.as_ref(), Limits::default()).await {
            Ok(listeners) => listeners,
            Err(error) => {
                hub.stop().await;
                return Err(CommandError::failed(error));
            }
        };
        greet(&listeners, &data, &default);

        let (stop, stopping) = watch::channel(false);
        let lock_file = lock.clone();
        let ending = tokio::spawn(async move {
            let why = tokio::select! {
                () = stop_signals.wait() => Ok(()),
                () = deleted(&lock_file) => Err(()),
            };
            let _ = stop.send(true);
            why
        });
        listeners.serve(Arc::clone(&hub), stopping).await;
        hub.stop().await;
        drop(lock);
        match ending.await {
            Ok(Err(())) => {
                let message = format!("the data directory {} was deleted or moved", data.path().display());
                Err(CommandError::failed(message)
                    .hint("what happened since then is lost; start the server again"))
            }
            Ok(Ok(())) | Err(_) => Ok(()),
        }
    }
}

/// How often a server looks whether its directory is still there.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Waits until the data directory is gone.
async fn deleted(lock: &Lock) {
    while lock.is_in_place() {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    tracing::error!("the data directory was deleted or moved: the server stops");
}

/// What no agent is to read or write: the data directory, and a database elsewhere.
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
                let failure = CommandError::bad_input(format_args!("there is no store '{url}'"));
                return Err(failure.hint("write it as sqlite:PATH or memory:"));
            }
        },
    };
    let store = SqliteStore::open(&path)
        .map_err(|error| CommandError::failed(format_args!("{}: {error}", path.display())))?;
    Ok(Arc::new(store))
}

/// Says where the server is. Programs that start it read this line by line; whether anybody reads it is not the
/// server's business.
fn greet(listeners: &Listeners, data: &DataDir, agent: &str) {
    let mut said = format!("parlor {} is ready\n", env!("CARGO_PKG_VERSION"));
    let mut line = |name: &str, value: &dyn std::fmt::Display| {
        let _ = writeln!(said, "  {name:<8} {value}");
    };
    if let Some(address) = listeners.address() {
        line("web", &format_args!("http://{address}/"));
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
    said.push_str("An editor joins with the command `parlor acp`. Stop with Ctrl-C.\n");
    let mut stdout = std::io::stdout().lock();
    let _ = std::io::Write::write_all(&mut stdout, said.as_bytes())
        .and_then(|()| std::io::Write::flush(&mut stdout));
}
