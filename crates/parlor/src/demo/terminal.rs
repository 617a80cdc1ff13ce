//! Runs shell commands.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Stdio;

use parlor_agent::{Failure, Turn};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncReadExt;
use tokio::process::{Child, ChildStdout, Command};

use super::messages::say;

/// The maximum output of a command. A command that writes more is killed.
const MAX_OUTPUT: usize = 1 << 20;

/// A running command. Dropping it, as on cancellation of the turn, kills its process group.
struct RunningCommand {
    child: Child,
    output: ChildStdout,
}

/// Runs a shell command in the working directory of the session, and streams its output.
pub(super) async fn run(turn: &Turn, command: &str) -> Result<(), Failure> {
    let call = turn.tool(command).kind("execute").start().await;
    let mut running = match RunningCommand::start(command, turn.cwd()) {
        Ok(running) => running,
        Err(error) => {
            call.fail().await;
            say(turn, &format!("The command cannot be started: {error}")).await;
            return Ok(());
        }
    };
    let terminal = turn.terminal(command).await;
    call.terminal(&terminal).await;
    let mut buffer = vec![0; 8192];
    let mut room = MAX_OUTPUT;
    loop {
        let count = running.output.read(&mut buffer).await?;
        if count == 0 {
            break;
        }
        terminal.output(&buffer[..count.min(room)]).await;
        if count > room {
            drop(running);
            terminal.killed("SIGKILL").await;
            call.fail().await;
            say(turn, "The command was killed, because its output exceeds 1 MiB.").await;
            return Ok(());
        }
        room -= count;
    }
    let status = running.child.wait().await?;
    match status.code() {
        Some(code) => terminal.exit(code).await,
        None => terminal.killed(&format!("signal {}", status.signal().unwrap_or_default())).await,
    }
    if status.success() {
        call.complete().await;
    } else {
        call.fail().await;
    }
    Ok(())
}

impl RunningCommand {
    fn start(command: &str, cwd: &Path) -> io::Result<Self> {
        let mut child = Command::new("sh")
            .arg("-c")
            // Both streams share one pipe, which keeps the order of the output.
            .arg(format!("exec 2>&1\n{command}"))
            .current_dir(cwd)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            // Its own process group, so that its child processes can be killed as well.
            .process_group(0)
            .spawn()?;
        let output = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(Self { child, output })
    }
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        // There is no id if the process has exited and was waited for.
        let pid = self.child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        if let Some(pid) = pid {
            // This fails if the processes have exited.
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}
