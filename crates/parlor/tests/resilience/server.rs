//! Servers with one agent, and their memory use.

use std::fs;
use std::process::Command;

use parlor_testkit::programs;
use parlor_testkit::server::{Server, TestDir};
use parlor_testkit::wait::wait_until;

use crate::client::Client;

/// The program under test.
pub(crate) const PARLOR: &str = env!("CARGO_BIN_EXE_parlor");

/// A directory for servers without agents.
pub(crate) fn test_dir() -> TestDir {
    TestDir::new(PARLOR).argument("--socket-only")
}

/// A directory for servers with the test agent, whose sessions outlive its process. Its arguments name the directory, so
/// that its processes can be identified.
pub(crate) fn with_test_agent(options: &str) -> TestDir {
    let dir = test_dir();
    let command = format!("{} --state {} {options}", programs::test_agent(), agent_state(&dir));
    dir.agent("test", &command)
}

/// Where the test agent stores its sessions.
pub(crate) fn agent_state(dir: &TestDir) -> String {
    dir.path().join("agent-state").display().to_string()
}

/// Waits until no process of the agents of this test is left.
pub(crate) fn wait_for_no_agent(dir: &TestDir) {
    let state = agent_state(dir);
    wait_until("no agent is left", || {
        let output = Command::new("ps").args(["-axo", "stat=,args="]).output().unwrap();
        let is_agent = |line: &str| {
            line.contains("test-agent")
                && line.contains(&state)
                && !line.contains(" serve ")
                && !line.starts_with('Z')
        };
        !String::from_utf8_lossy(&output.stdout).lines().any(is_agent)
    });
}

/// A client of the default agent.
pub(crate) fn connect(server: &Server) -> Client {
    Client::connect(&server.socket(), None).unwrap()
}

/// A client of the given agent.
pub(crate) fn connect_to(server: &Server, agent: &str) -> Client {
    Client::connect(&server.socket(), Some(agent)).unwrap()
}

/// Limits the size of the server's files, as if the disk were full; `None` removes the limit.
#[cfg(target_os = "linux")]
pub(crate) fn limit_files(server: &Server, bytes: Option<u64>) {
    use parlor_testkit::process::to_pid;
    use rustix::process::{Resource, Rlimit, prlimit};
    let limit = Rlimit { current: bytes, maximum: None };
    prlimit(Some(to_pid(server.pid())), Resource::Fsize, limit).unwrap();
}

/// The peak memory of a server, in bytes.
pub(crate) fn peak_memory(server: &Server) -> Option<u64> {
    status(server, "VmHWM:")
}

/// The current memory of a server, in bytes.
pub(crate) fn memory(server: &Server) -> Option<u64> {
    status(server, "VmRSS:")
}

/// The pages of files that a server has in memory, in bytes: mostly its program, which is much larger without optimisation.
pub(crate) fn file_memory(server: &Server) -> Option<u64> {
    status(server, "RssFile:")
}

fn status(server: &Server, name: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
}

/// Prints measurements, for runs with `--nocapture`.
#[expect(clippy::print_stderr, reason = "figures are for people")]
pub(crate) fn figures(text: &str) {
    eprintln!("{text}");
}
