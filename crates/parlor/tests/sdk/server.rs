//! A server of its own for each test, with the test agent and the SDK's agents behind it.

use std::env;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use parlor_testkit::programs;
use tempfile::TempDir;

use crate::agent;

pub(crate) const PARLOR: &str = env!("CARGO_BIN_EXE_parlor");

/// A running server. It is killed when the test is done with it, and its watcher ends its agents.
pub(crate) struct Server {
    child: Child,
    dir: TempDir,
    pub(crate) url: String,
}

impl Server {
    pub(crate) fn start() -> Self {
        let dir = TempDir::new().unwrap();
        let mut command = Command::new(PARLOR);
        command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(dir.path());
        for version in ["1", "2"] {
            command.args([
                "--agent",
                &format!("test-v{version}={} --version {version}", programs::test_agent()),
            ]);
        }
        let me = env::current_exe().unwrap();
        for name in [agent::V1, agent::V2] {
            command.args(["--agent", &format!("{name}={}", agent::command(&me, name))]);
        }
        for name in ["XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"] {
            command.env(name, dir.path());
        }
        let mut child =
            command.env_remove("PARLOR_CONFIG").stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut url = None;
        for line in BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok) {
            url = url.or_else(|| Some(line.trim().strip_prefix("acp ")?.trim().to_owned()));
            if line.contains("Stop with Ctrl-C") {
                break;
            }
        }
        Self { child, dir, url: url.expect("the server says where it is") }
    }

    pub(crate) fn data(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn token(&self) -> String {
        std::fs::read_to_string(self.data().join("token")).unwrap().trim().to_owned()
    }
}

/// A test that fails leaves no server either.
impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
