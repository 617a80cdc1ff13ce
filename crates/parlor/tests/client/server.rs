//! A server of its own for each test.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use parlor_testkit::programs;
use tempfile::TempDir;

pub(crate) const PARLOR: &str = env!("CARGO_BIN_EXE_parlor");

pub(crate) struct Server {
    process: Child,
    home: TempDir,
    url: String,
}

impl Server {
    /// A server with the test agent.
    pub(crate) fn start() -> Self {
        Self::with(&["--agent", &format!("test={}", programs::test_agent())])
    }

    /// A server with the test agent in version 1, which takes one prompt at a time.
    pub(crate) fn with_old_agent() -> Self {
        Self::with(&["--agent", &format!("old={} --version 1", programs::test_agent())])
    }

    fn with(args: &[&str]) -> Self {
        let home = TempDir::new().unwrap();
        let mut process = Command::new(PARLOR)
            .args(["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(home.path().join("data"))
            .args(args)
            .env("HOME", home.path())
            .env_remove("PARLOR_TOKEN")
            .env_remove("PARLOR_CONFIG")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines().map(Result::unwrap);
        let lines: Vec<_> = lines.take_while(|line| !line.contains("Ctrl-C")).collect();
        let url = lines.iter().find_map(|line| Some(line.split_once("ws://")?.1)).unwrap();
        let url = format!("ws://{}", url.trim());
        Self { process, home, url }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    fn data(&self) -> PathBuf {
        self.home.path().join("data")
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.data().join("parlor.sock")
    }

    pub(crate) fn url(&self) -> String {
        self.url.clone()
    }

    pub(crate) fn token(&self) -> String {
        fs::read_to_string(self.data().join("token")).unwrap().trim().to_owned()
    }

    /// A command that uses this server.
    pub(crate) fn command(&self, args: &[&str]) -> tokio::process::Command {
        let mut command = tokio::process::Command::new(PARLOR);
        command.args(args).arg("--data").arg(self.data()).env("HOME", self.home.path());
        command
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.process);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.process.wait();
    }
}
