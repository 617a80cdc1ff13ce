//! Where a benchmark runs: a folder of its own, an agent, a server.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use parlor_server::data_dir::DataDir;
use rustix::process::{Pid, Signal, kill_process};

use crate::failure::Failure;

/// A program that does part of what parlor does, to compare with.
const CONDUCTOR: &str = "agent-client-protocol-conductor";

/// How long a server may take to be there.
const PATIENCE: Duration = Duration::from_secs(20);

/// What all scenarios share.
pub(crate) struct Bench {
    exe: PathBuf,
    /// The version that clients speak, and the one that the agent speaks.
    pub(crate) client: Version,
    pub(crate) agent: Version,
    /// Whether only a tenth of the work is done.
    pub(crate) quick: bool,
    /// Whether there is a conductor to compare with.
    pub(crate) conductor: bool,
    folder: PathBuf,
    servers: Cell<u32>,
}

/// A version of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Version {
    #[value(name = "v1", alias = "1")]
    V1,
    #[value(name = "v2", alias = "2")]
    V2,
}

/// A program that is about to be started and talked to.
pub(crate) struct Peer {
    pub(crate) command: Command,
    /// The version that it is talked to in.
    pub(crate) version: Version,
}

/// A server with a data directory of its own.
pub(crate) struct Server {
    pub(crate) data: PathBuf,
    child: Child,
}

impl Bench {
    /// `within` is where the folder of the benchmark is made.
    pub(crate) fn new(within: &Path, client: Version, agent: Version, quick: bool) -> Result<Self, Failure> {
        let exe = std::env::current_exe().map_err(Failure::failed)?;
        let folder = within.join(format!("parlor-bench-{}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(cannot("make", &folder))?;
        // The settings of whoever runs this must make no difference.
        let config = folder.join("config.toml");
        std::fs::write(&config, "").map_err(cannot("write", &config))?;
        let path = std::env::var_os("PATH").unwrap_or_default();
        let conductor = std::env::split_paths(&path).any(|folder| folder.join(CONDUCTOR).is_file());
        Ok(Self { exe, client, agent, quick, conductor, folder, servers: Cell::new(0) })
    }

    /// So much, or a tenth of it.
    pub(crate) fn load(&self, full: u32) -> u32 {
        if self.quick { full / 10 } else { full }
    }

    /// The agent itself. Nobody translates there, so it speaks the client's version.
    pub(crate) fn direct(&self) -> Peer {
        let agent = self.agent_of(self.client);
        let mut command = Command::new(&agent[0]);
        command.args(&agent[1..]);
        Peer { command, version: self.client }
    }

    /// The agent behind as many processes as with parlor, which only copy: the least that being between costs.
    pub(crate) fn relayed(&self) -> Peer {
        let mut command = Command::new("sh");
        command.args(["-c", r#"cat | cat | "$0" "$@" | cat | cat"#]).args(self.agent_of(self.client));
        Peer { command, version: self.client }
    }

    /// A server behind `parlor acp`, as an editor has it.
    pub(crate) fn acp(&self, server: &Server) -> Peer {
        let mut command = Command::new(&self.exe);
        command.arg("acp").arg("--data").arg(&server.data);
        Peer { command, version: self.client }
    }

    /// The agent behind the conductor, which speaks version 1, if there is one.
    pub(crate) fn conducted(&self) -> Option<Peer> {
        let mut command = Command::new(CONDUCTOR);
        command.arg("agent").arg(self.agent_of(Version::V1).join(" "));
        self.conductor.then_some(Peer { command, version: Version::V1 })
    }

    /// The command of an agent that speaks a version.
    fn agent_of(&self, version: Version) -> [String; 4] {
        let version = match version {
            Version::V1 => "1",
            Version::V2 => "2",
        };
        let exe = self.exe.to_string_lossy().into_owned();
        [&exe, "test-agent", "--version", version].map(str::to_owned)
    }

    /// Starts a server that has no sessions.
    pub(crate) fn server(&self) -> Result<Server, Failure> {
        self.servers.set(self.servers.get() + 1);
        let data = self.folder.join(format!("data-{}", self.servers.get()));
        self.server_at(data)
    }

    /// Starts a server with the sessions of one that has ended.
    pub(crate) fn server_at(&self, data: PathBuf) -> Result<Server, Failure> {
        let agent: Vec<_> = self.agent_of(self.agent).iter().map(|word| format!("'{word}'")).collect();
        let child = Command::new(&self.exe)
            .args(["serve", "--socket-only", "--data"])
            .arg(&data)
            .arg("--config")
            .arg(self.folder.join("config.toml"))
            .arg("--agent")
            .arg(format!("bench={}", agent.join(" ")))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn()
            .map_err(|error| Failure::failed(format_args!("cannot start a server: {error}")))?;
        let server = Server { data, child };
        let begun = Instant::now();
        while std::os::unix::net::UnixStream::connect(server.socket()).is_err() {
            if begun.elapsed() > PATIENCE {
                return Err(Failure::failed("the server does not start"));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(server)
    }
}

impl Peer {
    /// Its command, with streams to talk to it.
    pub(crate) fn piped(mut self) -> Command {
        self.command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        self.command
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Server {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn socket(&self) -> PathBuf {
        DataDir::open(&self.data).map_or_else(|_| self.data.join("parlor.sock"), |data| data.socket())
    }

    /// Ends it as an operator would, and hands back where its sessions are.
    pub(crate) fn stop(mut self) -> PathBuf {
        self.end();
        self.data.clone()
    }

    fn end(&mut self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.end();
        }
    }
}

impl Version {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V2 => "v2",
        }
    }
}

fn cannot(what: &str, path: &Path) -> impl FnOnce(std::io::Error) -> Failure {
    move |error| Failure::failed(format_args!("cannot {what} {}: {error}", path.display()))
}
