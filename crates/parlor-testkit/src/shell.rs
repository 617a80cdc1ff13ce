//! Supervised shell scripts, with a reaper process that is the test program itself.

use std::env;
use std::ffi::OsString;
use std::path::Path;

use parlor_process::{Command, Reaper};

/// Starts a reaper whose process is this test program, which then runs only the test `as_reaper`.
pub fn reaper() -> Reaper {
    let args = ["--exact", "as_reaper", "--ignored", "--nocapture", "watch-agents"].map(OsString::from);
    Reaper::start_with(&env::current_exe().unwrap(), &args).unwrap()
}

/// Runs the reaper process.
pub fn run_reaper() {
    if env::args().any(|arg| arg == "watch-agents") {
        parlor_process::reaper_process::run(std::io::stdin().lock());
    }
}

/// The environment of a script: `PATH`.
pub fn environment() -> Vec<(OsString, OsString)> {
    vec![("PATH".into(), env::var_os("PATH").unwrap())]
}

/// Creates the command that runs a shell script in `cwd`.
pub fn shell(script: &str, cwd: &Path) -> Command {
    Command {
        program: "sh".into(),
        args: vec!["-c".into(), script.into()],
        env: environment(),
        cwd: cwd.into(),
    }
}

/// Starts a process that cannot be found, because it has left the group and has no tag, and that holds the streams of the
/// script. The file `hidden` has its pid.
pub const HIDE: &str = "
env -i setsid sh -c 'echo $$ > hiding; mv hiding hidden; exec sleep 60' &
while [ ! -e hidden ]; do sleep 0.01; done
";

/// Ends the process that [`HIDE`] started in `folder`.
pub fn end_hidden(folder: &Path) {
    let pid = std::fs::read_to_string(folder.join("hidden")).unwrap();
    assert!(std::process::Command::new("kill").arg(pid.trim()).status().unwrap().success());
}
