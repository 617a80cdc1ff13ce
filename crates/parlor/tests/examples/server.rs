//! A server of its own for each test.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

pub(crate) const PARLOR: &str = env!("CARGO_BIN_EXE_parlor");

pub(crate) struct Server {
    process: Child,
    data: TempDir,
}

impl Server {
    /// A server with one agent.
    pub(crate) fn start(name: &str, agent: &[String]) -> Self {
        let data = TempDir::new().unwrap();
        let mut process = Command::new(PARLOR)
            .args(["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(data.path())
            .args(["--agent", &format!("{name}={}", agent.join(" "))])
            .env("XDG_CONFIG_HOME", data.path())
            .env("XDG_RUNTIME_DIR", data.path())
            .env_remove("PARLOR_CONFIG")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines().map_while(Result::ok);
        assert!(lines.any(|line| line.contains("Ctrl-C")), "the server is ready");
        Self { process, data }
    }

    pub(crate) fn data(&self) -> &Path {
        self.data.path()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.process);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.process.wait();
    }
}
