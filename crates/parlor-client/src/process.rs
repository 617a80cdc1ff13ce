//! Agents that run as child processes.

use std::time::Duration;

use parlor_process::{Process, Reaper};
use tokio::process::Command;
use tokio::time::sleep;

use crate::Error;
use crate::transport::{Tasks, Transport};

/// How long a process may run after its standard input was closed.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);

/// How long it then has between SIGTERM and SIGKILL.
const TERM_TIMEOUT: Duration = Duration::from_millis(500);

/// Starts a process in a process group of its own, and ends it and its descendants with the connection.
pub(crate) fn spawn(command: Command) -> Result<Transport, Error> {
    let mut process = Process::start_with(command, &Reaper::disabled()).map_err(Error::Connect)?;
    let (Some(write), Some(read)) = (process.take_stdin(), process.take_stdout()) else {
        return Err(Error::Protocol("the process has no standard streams"));
    };
    let (transport, tasks) = Transport::over("process", read, write);
    tokio::spawn(supervise(process, tasks));
    Ok(transport)
}

/// Stops a process that does not exit after its input was closed, and closes the connection when it has exited.
async fn supervise(process: Process, Tasks { reader, written }: Tasks) {
    let exited = process.wait();
    tokio::pin!(exited);
    tokio::select! {
        _ = &mut exited => {}
        _ = written => {
            process.end(EXIT_TIMEOUT, TERM_TIMEOUT);
            exited.await;
        }
    }
    // A descendant that was not found may have the streams open. It does not count as the agent.
    sleep(EXIT_TIMEOUT).await;
    reader.abort();
}
