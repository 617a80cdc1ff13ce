//! Processes that tests start, stop and look at.

use std::process::{Child, Command, ExitStatus};

use rustix::process::{Pid, Signal, kill_process};

use crate::wait::wait_until;

/// Whether a process runs. One that has ended and was not waited for does not.
pub fn is_alive(pid: u32) -> bool {
    let output = Command::new("ps").args(["-o", "stat=", "-p", &pid.to_string()]).output();
    let output = output.expect("there is a ps");
    let state = String::from_utf8_lossy(&output.stdout);
    !state.trim().is_empty() && !state.trim_start().starts_with('Z')
}

/// Sends a signal to a process, which may have ended.
pub fn send_signal(pid: u32, signal: Signal) {
    let _ = kill_process(to_pid(pid), signal);
}

/// The number of a process as the system's calls take it.
pub fn to_pid(pid: u32) -> Pid {
    i32::try_from(pid).ok().and_then(Pid::from_raw).expect("the number of a process is positive")
}

/// Waits until a process has ended.
#[track_caller]
pub fn exit_status(process: &mut Child) -> ExitStatus {
    let mut status = None;
    wait_until("the process ends", || {
        status = process.try_wait().expect("the process is a child");
        status.is_some()
    });
    status.expect("it has ended")
}
