//! A bare relay: a process that copies each line of an agent to many sockets and does nothing else.
//!
//! It is the minimal cost of any server between one agent and many clients.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};

/// Runs an agent for this many clients, which connect to the listener on standard input. The first client prompts the
/// agent; all receive the agent's output.
pub(crate) fn run(clients: u32, agent: &[String]) -> io::Result<()> {
    let Some((program, args)) = agent.split_first() else { return Err(io::ErrorKind::InvalidInput.into()) };
    let listener = io::stdin().as_fd().try_clone_to_owned()?;
    let mut clients = accept(listener, clients)?;
    let mut child = Command::new(program).args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let (Some(mut to_agent), Some(mut from_agent)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(io::ErrorKind::BrokenPipe.into());
    };
    if let Some(first) = clients.first() {
        let mut first = first.try_clone()?;
        // The agent ends with this process, because its input is closed. `io::copy` would use splice, which waits for
        // more than one line.
        std::thread::spawn(move || {
            let mut buffer = vec![0; 64 << 10];
            loop {
                match first.read(&mut buffer) {
                    Ok(0) | Err(_) => return,
                    Ok(count) if to_agent.write_all(&buffer[..count]).is_err() => return,
                    Ok(_) => {}
                }
            }
        });
    }
    let mut buffer = vec![0; 64 << 10];
    let mut filled = 0;
    loop {
        let count = from_agent.read(&mut buffer[filled..])?;
        if count == 0 {
            child.wait()?;
            return Ok(());
        }
        filled += count;
        let whole = buffer[..filled].iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        // Nothing is sent to a disconnected client.
        clients.retain_mut(|client| client.write_all(&buffer[..whole]).is_ok());
        buffer.copy_within(whole..filled, 0);
        filled -= whole;
        if filled == buffer.len() {
            buffer.resize(filled * 2, 0);
        }
    }
}

fn accept(listener: OwnedFd, clients: u32) -> io::Result<Vec<File>> {
    let unix = UnixListener::from(listener);
    if unix.local_addr().is_ok() {
        return (0..clients).map(|_| Ok(OwnedFd::from(unix.accept()?.0).into())).collect();
    }
    let tcp = TcpListener::from(OwnedFd::from(unix));
    let one = |_| {
        let (stream, _) = tcp.accept()?;
        stream.set_nodelay(true)?;
        Ok(OwnedFd::from(stream).into())
    };
    (0..clients).map(one).collect()
}
