//! What tests with real processes share.

#![allow(dead_code, reason = "each test takes what it needs")]

use std::env;
use std::ffi::OsString;
use std::path::Path;

use parlor_server::process::{Command, Watcher};
use parlor_testkit::wait::TIMEOUT;

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

/// The result of something that must not take for ever.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(TIMEOUT, future).await.unwrap_or_else(|_| panic!("still waiting for {what}"))
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
