//! Runs programs.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Stdio;

use parlor_agent::{ToolKind, Turn, TurnError};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncReadExt;
use tokio::process::{Child, ChildStdout, Command};

use super::text::say;

/// How many bytes of output are sent. A command that writes more is killed.
const MAX_OUTPUT: usize = 1 << 20;

/// A running command. Dropping it kills the command and its child processes, which happens when the turn is cancelled.
struct Running {
    child: Child,
    output: ChildStdout,
}

/// Runs a shell command in the working directory of the session, and sends its output.
pub(super) async fn run(turn: &Turn, command: &str) -> Result<(), TurnError> {
    let call = turn.tool_call(command).kind(ToolKind::Execute).start().await;
    let mut running = match Running::start(command, turn.cwd()) {
        Ok(running) => running,
        Err(error) => {
            call.fail().await;
            say(turn, &format!("The command cannot be started: {error}")).await;
            return Ok(());
        }
    };
    let terminal = turn.create_terminal(command).await;
    call.send_terminal(&terminal).await;
    let mut buffer = vec![0; 8192];
    let mut room = MAX_OUTPUT;
    loop {
        let count = running.output.read(&mut buffer).await?;
        if count == 0 {
            break;
        }
        terminal.send_output(&buffer[..count.min(room)]).await;
        if count > room {
            drop(running);
            terminal.exit_by_signal("SIGKILL").await;
            call.fail().await;
            say(turn, "The command was killed, because its output exceeds 1 MiB.").await;
            return Ok(());
        }
        room -= count;
    }
    let status = running.child.wait().await?;
    match status.code() {
        Some(code) => terminal.exit(code).await,
        None => terminal.exit_by_signal(&format!("signal {}", status.signal().unwrap_or_default())).await,
    }
    if status.success() {
        call.complete().await;
    } else {
        call.fail().await;
    }
    Ok(())
}

impl Running {
    fn start(command: &str, cwd: &Path) -> io::Result<Self> {
        let mut child = Command::new("sh")
            .arg("-c")
            // One stream, so that the output is in order.
            .arg(format!("exec 2>&1\n{command}"))
            .current_dir(cwd)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            // A process group of its own, which can be killed with all child processes.
            .process_group(0)
            .spawn()?;
        let output = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(Self { child, output })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A command that was waited for has no id.
        let pid = self.child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        if let Some(pid) = pid {
            // It may have ended meanwhile.
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}
