//! A server of its own for each test.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use parlor_dialect::Dialect;
use parlor_testkit::programs;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tempfile::TempDir;

use crate::client::{Client, Guest};
use crate::doors::Door;

/// How long something may take that must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) const PARLOR: &str = env!("CARGO_BIN_EXE_parlor");

/// The agents that every server has, by what they speak.
pub(crate) const AGENTS: [&str; 4] = ["v1", "anonymous", "v2", "draft"];

/// A running server and the directory of its test. Both go with it.
pub(crate) struct Server {
    process: Option<Child>,
    /// The address of its HTTP door.
    pub(crate) address: String,
    home: Home,
}

/// A directory for a test: the data of a server, its configuration, and room for files.
pub(crate) struct Home(TempDir);

impl Home {
    /// A directory with a configuration that has all agents, and these lines.
    pub(crate) fn new(more: &str) -> Self {
        let home = Self(TempDir::new().unwrap());
        let mut config = String::new();
        for (name, options, rest) in [
            ("v1", vec!["--version", "1"], ""),
            ("anonymous", vec!["--version", "1", "--no-message-ids"], ""),
            ("v2", vec!["--version", "2"], ""),
            ("draft", vec!["--version", "2"], "dialect = \"draft\"\n"),
        ] {
            config.push_str(&agent(name, &options));
            config.push_str(rest);
        }
        config.push_str(&more.replace("HOME", home.path().to_str().unwrap()));
        let config = config.replace("TEST_AGENT", programs::test_agent());
        fs::write(home.config(), config).unwrap();
        home
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.path().join("config.toml")
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.path().join("data")
    }

    /// The process that has the data directory.
    pub(crate) fn pid(&self) -> Option<u32> {
        fs::read_to_string(self.data().join("lock")).ok()?.trim().parse().ok()
    }
}

impl Server {
    /// A server with all agents.
    pub(crate) fn start() -> Self {
        Self::with("")
    }

    /// A server with all agents and more lines in its configuration. `TEST_AGENT` and `HOME` stand for the program of the
    /// test agent and the directory of the test.
    pub(crate) fn with(config: &str) -> Self {
        let mut server = Self { process: None, address: String::new(), home: Home::new(config) };
        server.run();
        server
    }

    fn run(&mut self) {
        let mut process = Command::new(PARLOR)
            .args(["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(self.home.data())
            .arg("--config")
            .arg(self.home.config())
            .env_remove("PARLOR_TOKEN")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        self.process = Some(process);
        let first = lines.next().expect("the server says that it is ready").unwrap();
        assert!(first.starts_with("parlor ") && first.ends_with(" is ready"), "{first}");
        let greeting: Vec<_> =
            lines.map(Result::unwrap).take_while(|line| !line.contains("Ctrl-C")).collect();
        let acp = greeting.iter().find_map(|line| Some(line.split_once("ws://")?.1.trim_end_matches("/acp")));
        acp.expect("the server says where it listens").clone_into(&mut self.address);
    }

    pub(crate) fn home(&self) -> &Home {
        &self.home
    }

    /// A client that has said hello.
    pub(crate) fn client(&self, door: Door, dialect: Dialect, agent: &str) -> Client {
        Guest::new(door, dialect, agent).join(self)
    }

    /// Asks the server to end and waits for it.
    pub(crate) fn stop(&mut self) -> ExitStatus {
        let mut process = self.process.take().expect("the server runs");
        kill_process(Pid::from_child(&process), Signal::TERM).unwrap();
        ends(&mut process)
    }

    /// Ends the server and starts another one in its place.
    pub(crate) fn restart(&mut self) {
        assert!(self.stop().success());
        self.run();
    }

    /// Kills the server, as a crash would, and starts another one in its place.
    pub(crate) fn crash(&mut self) {
        let mut process = self.process.take().expect("the server runs");
        process.kill().unwrap();
        process.wait().unwrap();
        self.run();
    }

    /// What a session is, told to somebody who was never there.
    pub(crate) fn truth(&self, session: &str) -> Vec<String> {
        let mut client = self.client(Door::Unix, Dialect::V2, "v2");
        client.load(session);
        client.transcript(session)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            // It may have ended by itself. Its agents end with it.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// A test agent in the configuration.
fn agent(name: &str, options: &[&str]) -> String {
    let command = [&["TEST_AGENT"], options].concat();
    let words: Vec<_> = command.iter().map(|word| format!("{word:?}")).collect();
    format!("[agents.{name}]\ncommand = [{}]\n", words.join(", "))
}

/// Waits until a process has ended.
pub(crate) fn ends(process: &mut Child) -> ExitStatus {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = process.try_wait().unwrap() {
            return status;
        }
        assert!(Instant::now() < deadline, "the process does not end");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Whether a process runs that is not this one's child; one that ended and is not yet buried does not.
pub(crate) fn is_alive(pid: Pid) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    let is_dead = status.is_ok_and(|status| status.contains(") Z "));
    !is_dead && test_kill_process(pid).is_ok()
}
