//! What tests with real processes share.

#![allow(dead_code, reason = "each test takes what it needs")]

use std::env;
use std::ffi::OsString;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use parlor_server::process::{Command, Watcher};

/// Longer than anything takes on a machine that is busy. Only a test that fails waits so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A watcher whose helper is this test program, in which only the test called `as_watcher` runs.
pub(crate) fn watcher() -> Watcher {
    let args = ["--exact", "as_watcher", "--ignored", "--nocapture", "watch-agents"].map(OsString::from);
    Watcher::start_with(&env::current_exe().unwrap(), &args).unwrap()
}

/// What `as_watcher` does.
pub(crate) fn watch() {
    if env::args().any(|arg| arg == "watch-agents") {
        parlor_server::process::watch::watch(std::io::stdin().lock());
    }
}

pub(crate) fn environment() -> Vec<(OsString, OsString)> {
    vec![("PATH".into(), env::var_os("PATH").unwrap())]
}

/// A script for the shell, run in `cwd`.
pub(crate) fn shell(script: &str, cwd: &Path) -> Command {
    Command {
        program: "sh".into(),
        args: vec!["-c".into(), script.into()],
        env: environment(),
        cwd: cwd.into(),
    }
}

/// Whether a process runs. One that has ended and was not reaped does not.
pub(crate) fn is_alive(pid: u32) -> bool {
    let output = std::process::Command::new("ps")
        .args(["-o", "stat=", "-p", &pid.to_string()])
        .stderr(Stdio::null())
        .output()
        .unwrap();
    let state = String::from_utf8_lossy(&output.stdout);
    !state.trim().is_empty() && !state.trim().starts_with('Z')
}

/// Waits until a condition holds.
pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !holds().await {
        assert!(start.elapsed() < PATIENCE, "still waiting until {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The result of something that must not take for ever.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("still waiting for {what}"))
}

/// Starts a process that cannot be found: it left the group and has no mark. It holds the streams that it was given.
/// The script goes on when it runs; the file `hidden` has its process id.
pub(crate) const HIDE: &str = "
env -i setsid sh -c 'echo $$ > hiding; mv hiding hidden; exec sleep 60' &
while [ ! -e hidden ]; do sleep 0.01; done
";

/// Ends the process that [`HIDE`] started in `folder`.
pub(crate) fn end_hidden(folder: &Path) {
    let pid = std::fs::read_to_string(folder.join("hidden")).unwrap();
    assert!(std::process::Command::new("kill").arg(pid.trim()).status().unwrap().success());
}
