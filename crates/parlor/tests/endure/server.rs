//! A server of its own for each test.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use parlor_testkit::programs;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::client::Client;

/// How long anything may take that must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) const PARLOR: &str = env!("CARGO_BIN_EXE_parlor");

/// A directory with all that the servers of one test leave, and the names of its agents.
pub(crate) struct Place {
    dir: TempDir,
    agents: Vec<String>,
    options: Vec<String>,
}

/// A running server. It is killed when the test is done with it, and its watcher ends its agents.
pub(crate) struct Server {
    child: Child,
    socket: PathBuf,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { dir: TempDir::new().unwrap(), agents: Vec::new(), options: Vec::new() }
    }

    /// One more agent, by name and command.
    pub(crate) fn agent(mut self, name: &str, command: &str) -> Self {
        self.agents.push(format!("{name}={command}"));
        self
    }

    /// One more option of the servers.
    pub(crate) fn option(mut self, option: &str) -> Self {
        self.options.push(option.to_owned());
        self
    }

    /// The test agent, with sessions that outlive its process. Its arguments name the directory of this test, so that
    /// its processes can be told from others.
    pub(crate) fn test_agent(self, options: &str) -> Self {
        let state = self.path().join("agent-state");
        let command = format!("{} --state {} {options}", programs::test_agent(), state.display());
        self.agent("test", &command)
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.path().join("data")
    }

    /// Starts a server and waits until it is ready.
    pub(crate) fn serve(&self) -> Server {
        self.serve_with(&mut Command::new(PARLOR))
    }

    /// The same with a command that ends up being parlor, whatever else it does before.
    pub(crate) fn serve_with(&self, command: &mut Command) -> Server {
        command.args(["serve", "--socket-only", "--data"]).arg(self.data());
        for agent in &self.agents {
            command.args(["--agent", agent]);
        }
        command.args(&self.options);
        for name in ["XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"] {
            command.env(name, self.path());
        }
        let mut child = command
            .env_remove("PARLOR_CONFIG")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut socket = None;
        // All of the greeting is read: a server whose reader goes away in the middle of it could not finish it.
        for line in BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok) {
            socket = socket.or_else(|| Some(PathBuf::from(line.trim().strip_prefix("socket ")?.trim())));
            if line.contains("Stop with Ctrl-C") {
                break;
            }
        }
        let Some(socket) = socket else {
            let mut why = String::new();
            child.stderr.take().unwrap().read_to_string(&mut why).unwrap();
            panic!("the server did not start: {why}");
        };
        Server { child, socket }
    }

    /// Waits until no process of the agents of this test is left.
    pub(crate) fn wait_for_no_agent(&self) {
        let mark = self.path().join("agent-state").display().to_string();
        eventually("no agent is left", || {
            let output = Command::new("ps").args(["-axo", "stat=,args="]).output().unwrap();
            let agent = |line: &str| {
                line.contains("test-agent")
                    && line.contains(&mark)
                    && !line.contains(" serve ")
                    && !line.starts_with('Z')
            };
            !String::from_utf8_lossy(&output.stdout).lines().any(agent)
        });
    }
}

impl Server {
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(&self.socket, None).unwrap()
    }

    /// A client that asks for one of the agents.
    pub(crate) fn client_of(&self, agent: &str) -> Client {
        Client::connect(&self.socket, Some(agent)).unwrap()
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks it to end, and waits until it has. It must end well.
    pub(crate) fn stop(mut self) {
        kill_process(self.pid(), Signal::TERM).unwrap();
        let start = Instant::now();
        let status = loop {
            match self.child.try_wait().unwrap() {
                Some(status) => break status,
                None => assert!(start.elapsed() < PATIENCE, "the server does not end"),
            }
            thread::sleep(Duration::from_millis(5));
        };
        assert!(status.success(), "the server ended with {status}");
    }

    /// Lets its files grow to so many bytes and no further, as if the disk were full; or lifts the limit.
    #[cfg(target_os = "linux")]
    pub(crate) fn limit_files(&self, bytes: Option<u64>) {
        use rustix::process::{Resource, Rlimit, prlimit};
        prlimit(Some(self.pid()), Resource::Fsize, Rlimit { current: bytes, maximum: None }).unwrap();
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap()
    }

    /// The most memory that it ever had, in bytes.
    pub(crate) fn peak_memory(&self) -> Option<u64> {
        self.status("VmHWM:")
    }

    /// The memory that it has, in bytes.
    pub(crate) fn memory(&self) -> Option<u64> {
        self.status("VmRSS:")
    }

    fn status(&self, name: &str) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
    }
}

/// A test that fails leaves no server either.
impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "still waiting until {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Shows what was measured to people who run the tests with `--nocapture`.
#[expect(clippy::print_stderr, reason = "figures are for people")]
pub(crate) fn figures(text: &str) {
    eprintln!("{text}");
}
