//! The environment of a benchmark: a directory, an agent and servers.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parlor_server::data_dir::DataDir;
use parlor_testkit::programs::{self, Profile};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};

use super::client::{Client, Program};
use super::measure::child_with;
use crate::failure::Failure;

/// A program with part of parlor's functions, for comparison.
const CONDUCTOR: &str = "agent-client-protocol-conductor";

/// The time until a server must listen.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(20);

/// The state that all scenarios share.
pub(crate) struct Bench {
    /// The program of the test agent, the same for all servers.
    test_agent: &'static str,
    /// The program whose servers are measured at present.
    measured: PathBuf,
    /// The protocol versions of the clients and of the agent.
    pub(crate) client: Version,
    pub(crate) agent: Version,
    /// Whether only a tenth of the load is used.
    pub(crate) quick: bool,
    /// Whether the conductor is available.
    pub(crate) conductor: bool,
    folder: PathBuf,
    servers: AtomicU32,
}

/// A version of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Version {
    #[value(name = "v1", alias = "1")]
    V1,
    #[value(name = "v2", alias = "2")]
    V2,
}

/// A program to start and to connect to.
pub(crate) struct Peer {
    pub(crate) command: Command,
    /// The protocol version of the connection.
    pub(crate) version: Version,
}

/// A program whose servers are measured.
#[derive(Debug, Clone)]
pub(crate) struct Binary {
    pub(crate) path: PathBuf,
    /// The version that it prints.
    pub(crate) version: String,
}

/// A server with a data directory of its own.
pub(crate) struct Server {
    pub(crate) data: PathBuf,
    child: Child,
    test_agent: &'static str,
}

/// The store of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Store {
    Sqlite,
    Memory,
}

/// The clients of a bare relay; the first one prompts the agent.
pub(crate) struct Relay {
    pub(crate) clients: Vec<Client>,
    /// Dropped last: the relay ends when the first client disconnects.
    program: Program,
}

/// The sockets of a bare relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sockets {
    Unix,
    Tcp,
}

impl Bench {
    /// Creates the directory of the benchmark in `within`.
    pub(crate) fn new(
        within: &Path,
        measured: &Binary,
        client: Version,
        agent: Version,
        quick: bool,
    ) -> Result<Self, Failure> {
        let folder = within.join(format!("parlor-bench-{}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(cannot("make", &folder))?;
        // The user's configuration must not affect the results.
        let config = folder.join("config.toml");
        std::fs::write(&config, "").map_err(cannot("write", &config))?;
        let path = std::env::var_os("PATH").unwrap_or_default();
        let conductor = std::env::split_paths(&path).any(|folder| folder.join(CONDUCTOR).is_file());
        allow_many_files();
        let test_agent = programs::test_agent();
        Ok(Self {
            test_agent,
            measured: measured.path.clone(),
            client,
            agent,
            quick,
            conductor,
            folder,
            servers: AtomicU32::new(0),
        })
    }

    /// Selects the program of the servers that are started from now on.
    pub(crate) fn measure(&mut self, binary: &Binary) {
        self.measured.clone_from(&binary.path);
    }

    /// Returns the load, or a tenth of it with `--quick`.
    pub(crate) fn load(&self, full: u32) -> u32 {
        if self.quick { full / 10 } else { full }
    }

    /// Returns the agent itself, in the client's version, because nothing translates.
    pub(crate) fn direct(&self) -> Peer {
        let agent = self.agent_of(self.client);
        let mut command = Command::new(&agent[0]);
        command.args(&agent[1..]);
        Peer { command, version: self.client }
    }

    /// Returns the agent behind as many processes as with parlor that only copy bytes: the minimal cost of a relay.
    pub(crate) fn relayed(&self) -> Peer {
        let mut command = Command::new("sh");
        command.args(["-c", r#"cat | cat | "$0" "$@" | cat | cat"#]).args(self.agent_of(self.client));
        Peer { command, version: self.client }
    }

    /// Returns a server behind `parlor acp`, as an editor uses it.
    pub(crate) fn acp(&self, server: &Server) -> Peer {
        let mut command = Command::new(&self.measured);
        command.arg("acp").arg("--data").arg(&server.data);
        Peer { command, version: self.client }
    }

    /// Returns the agent behind the conductor, in version 1, if it is available.
    pub(crate) fn conducted(&self) -> Option<Peer> {
        let mut command = Command::new(CONDUCTOR);
        command.arg("agent").arg(self.agent_of(Version::V1).join(" "));
        self.conductor.then_some(Peer { command, version: Version::V1 })
    }

    /// Returns the command of an agent for a version.
    fn agent_of(&self, version: Version) -> [String; 3] {
        let version = match version {
            Version::V1 => "1",
            Version::V2 => "2",
        };
        [self.test_agent, "--version", version].map(str::to_owned)
    }

    /// Starts a bare relay for this many clients.
    pub(crate) fn relay(&self, sockets: Sockets, clients: u32) -> Result<Relay, Failure> {
        let trouble = |error: std::io::Error| Failure::failed(format_args!("cannot start a relay: {error}"));
        let path = self.folder.join("relay.sock");
        let (listener, address) = match sockets {
            Sockets::Unix => {
                let _ = std::fs::remove_file(&path);
                (OwnedFd::from(UnixListener::bind(&path).map_err(trouble)?), None)
            }
            Sockets::Tcp => {
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(trouble)?;
                let address = listener.local_addr().map_err(trouble)?;
                (OwnedFd::from(listener), Some(address))
            }
        };
        let exe = std::env::current_exe().map_err(trouble)?;
        let child = Command::new(exe)
            .args(["bench", "--relay", &clients.to_string(), "--"])
            .args(self.agent_of(self.client))
            .stdin(listener)
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn()
            .map_err(trouble)?;
        let mut relay = Relay { clients: Vec::new(), program: Program(child) };
        for _ in 0..clients {
            relay.clients.push(match address {
                Some(address) => {
                    let stream = TcpStream::connect(address).map_err(trouble)?;
                    stream.set_nodelay(true).map_err(trouble)?;
                    Client::lines_on_tcp(stream, self.client)?
                }
                None => Client::lines_on_unix(UnixStream::connect(&path).map_err(trouble)?, self.client)?,
            });
        }
        Ok(relay)
    }

    /// Starts a server without sessions.
    pub(crate) fn server(&self) -> Result<Server, Failure> {
        self.server_with(Store::Sqlite, &[])
    }

    /// Starts a server without sessions, with further arguments.
    pub(crate) fn server_with(&self, store: Store, args: &[&str]) -> Result<Server, Failure> {
        let number = self.servers.fetch_add(1, Ordering::Relaxed);
        let data = self.folder.join(format!("data-{number}"));
        let store: &[&str] = match store {
            Store::Sqlite => &[],
            Store::Memory => &["--store", "memory:"],
        };
        self.start(data, &[store, args].concat())
    }

    /// Starts a server with the sessions of a stopped one.
    pub(crate) fn server_at(&self, data: PathBuf) -> Result<Server, Failure> {
        self.start(data, &[])
    }

    fn start(&self, data: PathBuf, args: &[&str]) -> Result<Server, Failure> {
        let agent: Vec<_> = self.agent_of(self.agent).iter().map(|word| format!("'{word}'")).collect();
        let child = Command::new(&self.measured)
            .args(["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(&data)
            .arg("--config")
            .arg(self.folder.join("config.toml"))
            .arg("--agent")
            .arg(format!("bench={}", agent.join(" ")))
            .args(args)
            .env_remove("PARLOR_TOKEN")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn()
            .map_err(|error| {
                Failure::failed(format_args!("cannot start {}: {error}", self.measured.display()))
            })?;
        let mut server = Server { data, child, test_agent: self.test_agent };
        let begun = Instant::now();
        // The port is written after the socket is there.
        while server.address().is_err() || UnixStream::connect(server.socket()).is_err() {
            if let Ok(Some(status)) = server.child.try_wait() {
                return Err(Failure::failed(format_args!("the server ended while it started: {status}")));
            }
            if begun.elapsed() > STARTUP_TIMEOUT {
                return Err(Failure::failed(format_args!(
                    "the server did not listen within {} s",
                    STARTUP_TIMEOUT.as_secs()
                )));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(server)
    }
}

impl Binary {
    /// Checks whether a program can be measured.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let bad = |why: &dyn std::fmt::Display| {
            Failure::bad_input(format_args!("cannot measure {}: {why}", path.display()))
        };
        let path = path.canonicalize().map_err(|error| bad(&error))?;
        let output = Command::new(&path).arg("--version").stdin(Stdio::null()).output();
        let output = output.map_err(|error| bad(&error))?;
        if !output.status.success() {
            return Err(bad(&format_args!("--version ends with {}", output.status)));
        }
        let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        Ok(Self { path, version })
    }

    /// Returns the program of this workspace, built in the profile of this program.
    pub(crate) fn built() -> Result<Self, Failure> {
        // Built alone as users build it, because a build of all packages would add features.
        let path = match Profile::current() {
            Profile::Dev => programs::find("parlor", "parlor").map(PathBuf::from),
            Profile::Release => programs::build("parlor", "parlor", Profile::Release),
        };
        Self::open(&path.map_err(Failure::failed)?)
    }
}

impl Relay {
    pub(crate) fn pid(&self) -> u32 {
        self.program.0.id()
    }
}

impl Peer {
    /// Returns its command with piped standard streams.
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

    /// Returns the id of its agent process, which all sessions share.
    pub(crate) fn agent_pid(&self) -> Option<u32> {
        child_with(self.pid(), self.test_agent)
    }

    /// Returns the address for WebSocket clients.
    pub(crate) fn address(&self) -> Result<SocketAddr, Failure> {
        let port = self.file("port")?.parse().map_err(|_| Failure::failed("the server names no port"))?;
        Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
    }

    /// Returns the token for WebSocket clients.
    pub(crate) fn token(&self) -> Result<String, Failure> {
        self.file("token")
    }

    fn file(&self, name: &str) -> Result<String, Failure> {
        let path = self.data.join(name);
        let text = std::fs::read_to_string(&path).map_err(cannot("read", &path))?;
        Ok(text.trim().to_owned())
    }

    /// Stops the server as an operator would, and returns its data directory.
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

/// Raises the limit of open files for a thousand clients, here and in the servers, which inherit it.
fn allow_many_files() {
    let limit = getrlimit(Resource::Nofile);
    // If that is not allowed, a scenario that needs more files fails with its error.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}
