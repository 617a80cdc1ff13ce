//! Servers, each with a directory of its own.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;

use parlor_dialect::Dialect;
use rustix::process::Signal;
use tempfile::TempDir;

use crate::client::{Client, ClientBuilder};
use crate::output::CommandOutput;
use crate::process::{exit_status, is_alive, send_signal};
use crate::programs;
use crate::transport::TransportKind;
use crate::wait::wait_until;

/// The agents of [`TestDir::with_test_agents`]: version 1, version 1 without message ids, version 2, and the draft.
pub const TEST_AGENTS: [&str; 4] = ["v1", "anonymous", "v2", "draft"];

/// What else can change what parlor does is not for a test to inherit.
const VARIABLES: [&str; 8] = [
    "XDG_DATA_HOME",
    "XDG_CONFIG_HOME",
    "PARLOR_CONFIG",
    "PARLOR_DATA_DIR",
    "PARLOR_LOG",
    "PARLOR_TOKEN",
    "NO_COLOR",
    "CLICOLOR_FORCE",
];

/// The programs of agents that parlor would use if they are installed.
const AGENT_PROGRAMS: [&str; 6] = ["claude-agent-acp", "codex-acp", "gemini", "opencode", "kimi", "goose"];

/// The variable `PATH` without the directories of this machine's agents.
fn path_without_agents() -> OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let has_agent =
        |directory: &PathBuf| AGENT_PROGRAMS.iter().any(|program| directory.join(program).exists());
    let directories = std::env::split_paths(&path).filter(|directory| !has_agent(directory));
    std::env::join_paths(directories).expect("they are from PATH")
}

/// The directory of one test, for one parlor: its data, its configuration, a home directory, a working directory and
/// room for files. It is removed, and a server that a command started in it is stopped, when nobody has it any more.
#[derive(Debug, Clone)]
pub struct TestDir {
    shared: Arc<Shared>,
    /// More arguments of its servers.
    arguments: Vec<String>,
}

#[derive(Debug)]
struct Shared {
    dir: TempDir,
    /// The parlor that is tested.
    program: String,
}

/// A running server. It is killed when the test is done with it; its agents end with it.
#[derive(Debug)]
pub struct Server {
    dir: TestDir,
    process: Option<Child>,
    /// The address of its HTTP listener, if it has one.
    address: Option<String>,
}

impl TestDir {
    /// A new directory for this parlor.
    pub fn new(program: &str) -> Self {
        let dir = TempDir::new().expect("a temporary directory");
        for name in ["home", "work"] {
            fs::create_dir(dir.path().join(name)).expect("a directory in a new one");
        }
        let shared = Arc::new(Shared { dir, program: program.to_owned() });
        Self { shared, arguments: Vec::new() }
    }

    /// The same with a configuration file. In it, `TEST_DIR` stands for this directory and `TEST_AGENT` for the program of the
    /// test agent.
    #[must_use]
    pub fn with_config(mut self, config: &str) -> Self {
        let mut config = config.replace("TEST_DIR", self.path().to_str().expect("its name is text"));
        if config.contains("TEST_AGENT") {
            config = config.replace("TEST_AGENT", programs::test_agent());
        }
        fs::write(self.config(), config).expect("the configuration can be written");
        if self.arguments.first().is_none_or(|first| first != "--config") {
            let file = self.config().to_str().expect("its name is text").to_owned();
            self.arguments.splice(0..0, ["--config".to_owned(), file]);
        }
        self
    }

    /// The same with a configuration file that has the [`TEST_AGENTS`] and these lines.
    #[must_use]
    pub fn with_test_agents(self, more: &str) -> Self {
        let agents = [
            ("v1", r#""--version", "1""#, ""),
            ("anonymous", r#""--version", "1", "--no-message-ids""#, ""),
            ("v2", r#""--version", "2""#, ""),
            ("draft", r#""--version", "2""#, "dialect = \"draft\"\n"),
        ];
        let agents = agents.map(|(name, options, rest)| {
            format!("[agents.{name}]\ncommand = [\"TEST_AGENT\", {options}]\n{rest}")
        });
        self.with_config(&(agents.concat() + more))
    }

    /// The same with one more agent on the command line of its servers.
    #[must_use]
    pub fn agent(self, name: &str, command: &str) -> Self {
        self.argument("--agent").argument(&format!("{name}={command}"))
    }

    /// The same with one more argument for its servers.
    #[must_use]
    pub fn argument(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.shared.dir.path()
    }

    /// The data directory.
    pub fn data(&self) -> PathBuf {
        self.path().join("data")
    }

    /// The configuration file, which need not be there.
    pub fn config(&self) -> PathBuf {
        self.path().join("config.toml")
    }

    /// The directory in which commands run.
    pub fn work(&self) -> PathBuf {
        self.path().join("work")
    }

    /// The Unix socket of a server.
    pub fn socket(&self) -> PathBuf {
        self.data().join("parlor.sock")
    }

    /// A command of parlor with this data directory, which knows nothing of the machine's own directories and settings.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.shared.program);
        self.isolate(&mut command);
        command.args(args).env("PARLOR_DATA_DIR", self.data());
        command
    }

    fn isolate(&self, command: &mut Command) {
        for name in VARIABLES {
            command.env_remove(name);
        }
        command.env("HOME", self.path().join("home")).env("XDG_RUNTIME_DIR", self.path());
        command.env("PATH", path_without_agents());
        // No test asks on the terminal from which the tests were started.
        command.env("PARLOR_TTY", "");
        command.current_dir(self.work());
    }

    /// `parlor acp` with this data directory and configuration.
    pub fn acp(&self) -> Command {
        let mut command = self.command(&["acp", "--data"]);
        command.arg(self.data()).arg("--config").arg(self.config());
        command
    }

    /// Runs a command without input.
    pub fn run(&self, args: &[&str]) -> CommandOutput {
        self.run_with(args, "")
    }

    /// Runs a command with this standard input.
    pub fn run_with(&self, args: &[&str], input: &str) -> CommandOutput {
        let mut command = self.command(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("parlor can be run");
        // A command that ends early does not read all of it.
        let _ = child.stdin.take().expect("it is a pipe").write_all(input.as_bytes());
        child.wait_with_output().expect("it is a child").into()
    }

    /// Starts a server, and waits until it is ready.
    pub fn serve(&self) -> Server {
        self.serve_with(Command::new(&self.shared.program))
    }

    /// Starts a server with a command that ends up being parlor, whatever else it does before.
    pub fn serve_with(&self, mut command: Command) -> Server {
        self.isolate(&mut command);
        command.args(["serve", "--data"]).arg(self.data());
        if !self.arguments.iter().any(|argument| argument == "--socket-only" || argument == "--listen") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        command.args(&self.arguments).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("parlor can be run");
        let stdout = process.stdout.take().expect("it is a pipe");
        let mut server = Server { dir: self.clone(), process: Some(process), address: None };
        let mut is_ready = false;
        // All of the greeting is read: a server whose reader goes away in the middle of it could not finish it.
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            let acp = line.split_once("ws://").map(|(_, rest)| rest.trim_end_matches("/acp").to_owned());
            if acp.is_some() {
                server.address = acp;
            }
            is_ready |= line.starts_with("parlor ") && line.ends_with(" is ready");
            if line.contains("Ctrl-C stops the server") {
                assert!(is_ready, "the output ends without a line that the server is ready");
                return server;
            }
        }
        panic!("the server did not start: {:?}", server.process.as_mut().map(exit_status));
    }

    /// The process of the server that has the data directory, if one runs.
    pub fn server_pid(&self) -> Option<u32> {
        UnixStream::connect(self.socket()).ok()?;
        fs::read_to_string(self.data().join("lock")).ok()?.trim().parse().ok()
    }

    /// Stops the server that has the data directory, whoever started it, and waits until it has ended.
    pub fn stop_server(&self) {
        if let Some(pid) = self.server_pid() {
            send_signal(pid, Signal::TERM);
            wait_until("the server ends", || !is_alive(pid));
        }
    }
}

/// A test that fails leaves no server either.
impl Drop for Shared {
    fn drop(&mut self) {
        let data = self.dir.path().join("data");
        if UnixStream::connect(data.join("parlor.sock")).is_err() {
            return;
        }
        let pid = fs::read_to_string(data.join("lock")).ok().and_then(|pid| pid.trim().parse().ok());
        if let Some(pid) = pid {
            send_signal(pid, Signal::KILL);
        }
    }
}

impl Server {
    /// The directory of its test.
    pub fn dir(&self) -> &TestDir {
        &self.dir
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.process.as_ref().expect("the server runs").id()
    }

    /// Its Unix socket.
    pub fn socket(&self) -> PathBuf {
        self.dir.socket()
    }

    /// The address of its HTTP listener.
    pub fn address(&self) -> &str {
        self.address.as_deref().expect("the server listens on a port")
    }

    /// Where clients connect by WebSocket.
    pub fn url(&self) -> String {
        format!("ws://{}/acp", self.address())
    }

    /// The token of drivers.
    pub fn token(&self) -> String {
        self.read("token")
    }

    /// The token of observers.
    pub fn observer_token(&self) -> String {
        self.read("token.read")
    }

    fn read(&self, name: &str) -> String {
        let text = fs::read_to_string(self.dir.data().join(name));
        text.expect("a file of the data directory").trim().to_owned()
    }

    /// Asks it to end, and waits until it has.
    pub fn stop(&mut self) -> ExitStatus {
        let mut process = self.process.take().expect("the server runs");
        send_signal(process.id(), Signal::TERM);
        exit_status(&mut process)
    }

    /// Kills it, as a crash would.
    pub fn kill(&mut self) {
        let mut process = self.process.take().expect("the server runs");
        process.kill().expect("it is a child");
        process.wait().expect("it is a child");
    }

    /// Stops it and starts another one in its place.
    pub fn restart(&mut self) {
        assert!(self.stop().success());
        *self = self.dir.serve();
    }

    /// Kills it and starts another one in its place.
    pub fn crash(&mut self) {
        self.kill();
        *self = self.dir.serve();
    }

    /// A client that has initialized its connection.
    pub fn client(&self, transport: TransportKind, dialect: Dialect, agent: &str) -> Client {
        ClientBuilder::new(transport, dialect, agent).connect(self)
    }

    /// The transcript of a session as a client gets it that was never there before.
    pub fn stored_transcript(&self, session: &str) -> Vec<String> {
        let mut client = self.client(TransportKind::Unix, Dialect::V2, "v2");
        client.load(session);
        client.transcript(session)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            // It may have ended by itself.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
