//! A data directory of its own for a test, with and without a server.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use parlor_testkit::programs;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Where a test works.
pub(crate) struct Place {
    directory: TempDir,
    server: Option<Child>,
}

impl Place {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        for name in ["home", "work"] {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        Self { directory, server: None }
    }

    /// One with a server.
    pub(crate) fn served() -> Self {
        let mut place = Self::new();
        place.serve(&[]);
        place
    }

    /// One with a server whose agent has faults on request.
    pub(crate) fn with_test_agent() -> Self {
        let mut place = Self::new();
        place.serve(&["--agent", &format!("test={}", programs::test_agent())]);
        place
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.path().join("data")
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.path().join("work")
    }

    /// Starts a server.
    pub(crate) fn serve(&mut self, args: &[&str]) {
        let mut command = self.command(&["serve", "--listen", "127.0.0.1:0"]);
        let child = command.args(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        self.server = Some(child);
        let socket = self.data().join("parlor.sock");
        until(|| std::os::unix::net::UnixStream::connect(&socket).is_ok());
    }

    /// Stops the server, also one that a command started.
    pub(crate) fn stop(&mut self) {
        if let Some(pid) = self.server_pid() {
            signal(pid, rustix::process::Signal::TERM);
            until(|| !self.data().join("parlor.sock").exists());
        }
        if let Some(mut server) = self.server.take() {
            server.wait().unwrap();
        }
    }

    /// Kills the server.
    pub(crate) fn kill(&mut self) {
        let mut server = self.server.take().unwrap();
        server.kill().unwrap();
        server.wait().unwrap();
    }

    /// The process of the server that has the data directory.
    pub(crate) fn server_pid(&self) -> Option<i32> {
        let socket = self.data().join("parlor.sock");
        std::os::unix::net::UnixStream::connect(socket).ok()?;
        fs::read_to_string(self.data().join("lock")).ok()?.trim().parse().ok()
    }

    /// A command that does not know the machine's own directories.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_parlor"));
        command.args(args).current_dir(self.work());
        for name in [
            "XDG_DATA_HOME",
            "XDG_CONFIG_HOME",
            "PARLOR_CONFIG",
            "PARLOR_TOKEN",
            "NO_COLOR",
            "CLICOLOR_FORCE",
        ] {
            command.env_remove(name);
        }
        command.env("HOME", self.path().join("home")).env("PARLOR_DATA_DIR", self.data());
        command
    }

    /// Runs a command.
    pub(crate) fn run(&self, args: &[&str]) -> Said {
        self.run_with(args, "")
    }

    pub(crate) fn run_with(&self, args: &[&str], input: &str) -> Said {
        let mut child = self
            .command(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        Said::from(child.wait_with_output().unwrap())
    }

    /// Says something in a new session and gives its id.
    pub(crate) fn begin(&self, text: &str) -> String {
        let said = self.run(&["prompt", "--new", "--yes", "--json", text]).done();
        said.json()["sessionId"].as_str().unwrap().to_owned()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(pid) = self.server_pid() {
            signal(pid, rustix::process::Signal::TERM);
        }
        if let Some(mut server) = self.server.take() {
            let _ = server.wait();
        }
    }
}

/// An editor at `parlor acp`, which speaks version 1.
pub(crate) struct Editor {
    child: Child,
    input: std::process::ChildStdin,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Editor {
    pub(crate) fn start(place: &Place) -> Self {
        let mut child = place
            .command(&["acp"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut editor = Self { child, input, lines };
        editor.say(&json!({ "id": 1, "method": "initialize", "params": { "protocolVersion": 1 } }));
        editor.until(|line| line["id"] == 1);
        editor
    }

    fn say(&mut self, line: &Value) {
        let mut line = line.clone();
        line["jsonrpc"] = json!("2.0");
        writeln!(self.input, "{line}").unwrap();
    }

    fn until(&mut self, is_it: impl Fn(&Value) -> bool) -> Value {
        loop {
            let line = self.lines.next().expect("another line").unwrap();
            let line: Value = serde_json::from_str(&line).unwrap();
            if is_it(&line) {
                return line;
            }
        }
    }

    pub(crate) fn load(&mut self, session: &str) {
        let params = json!({ "sessionId": session, "cwd": "/", "mcpServers": [] });
        self.say(&json!({ "id": 2, "method": "session/load", "params": params }));
        let answer = self.until(|line| line["id"] == 2 && line.get("method").is_none());
        assert!(answer.get("error").is_none(), "{answer}");
    }

    /// Sends a prompt in a session and waits for the end of its turn.
    pub(crate) fn prompt(&mut self, session: &str, text: &str) {
        let params = json!({ "sessionId": session, "prompt": [{ "type": "text", "text": text }] });
        self.say(&json!({ "id": 3, "method": "session/prompt", "params": params }));
        let answer = self.until(|line| line["id"] == 3 && line.get("method").is_none());
        assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    }

    /// Allows what is asked under this title, once it is.
    pub(crate) fn allow(&mut self, title: &str) {
        let asked = self.until(|line| {
            line["method"] == "session/request_permission" && line["params"]["toolCall"]["title"] == title
        });
        let outcome = json!({ "outcome": "selected", "optionId": "allow-once" });
        self.say(&json!({ "id": asked["id"], "result": { "outcome": outcome } }));
    }
}

impl Drop for Editor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a command said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) code: Option<i32>,
}

impl Said {
    /// It did what it was asked to.
    #[track_caller]
    pub(crate) fn done(self) -> Self {
        self.ended(0)
    }

    #[track_caller]
    pub(crate) fn ended(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}", self.out))
    }

    /// It speaks plainly, as into a pipe.
    #[track_caller]
    pub(crate) fn plain(self) -> Self {
        let is_plain = |c: char| !c.is_control() || c == '\n';
        assert!(self.out.chars().all(is_plain), "{self:#?}");
        self
    }
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self { out: text(&output.stdout), err: text(&output.stderr), code: output.status.code() }
    }
}

pub(crate) fn signal(pid: i32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    let _ = rustix::process::kill_process(pid, signal);
}

/// Waits until something is so.
#[track_caller]
pub(crate) fn until(mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(30), "it takes too long");
        std::thread::sleep(Duration::from_millis(10));
    }
}
