//! The system's list of processes. All that differs between systems is here.

#[cfg(target_os = "linux")]
use std::fs;
#[cfg(target_os = "linux")]
use std::io::Read;
#[cfg(target_os = "linux")]
use std::os::unix::fs::MetadataExt;

use rustix::process::{Pid, Signal, kill_process};

/// The variable by which processes that came from an agent are known, also after they left its group.
pub(super) const MARK: &str = "PARLOR_AGENT_MARK";

/// One process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) pid: i32,
    pub(super) parent: i32,
    pub(super) group: i32,
    /// When it started, as the system writes it. With the pid it names one process for ever.
    pub(super) start: String,
    /// It has ended, and its parent has not looked yet.
    pub(super) dead: bool,
    /// The value of [`MARK`] in the environment it was started with, where that can be read.
    pub(super) mark: Option<String>,
}

impl Row {
    /// Whether the process carries `mark`. An agent that runs a parlor has two marks, and so on.
    pub(super) fn carries(&self, mark: &str) -> bool {
        self.mark.as_ref().is_some_and(|marks| marks.split(':').any(|own| own == mark))
    }

    /// Whether this is still the same process, in the same group.
    pub(super) fn is_still_there(&self) -> bool {
        row(self.pid).is_some_and(|now| now.start == self.start && now.group == self.group)
    }

    /// Signals this process and no other that got its number.
    pub(super) fn signal(&self, signal: Signal) {
        let Some(pid) = Pid::from_raw(self.pid).filter(|pid| !pid.is_init()) else { return };
        #[cfg(target_os = "linux")]
        if let Ok(handle) = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) {
            // The handle is of whoever has the number now. If that is still our process, then so is the handle's.
            if row(self.pid).is_some_and(|now| now.start == self.start && now.mark == self.mark) {
                let _ = rustix::process::pidfd_send_signal(handle, signal);
            }
            return;
        }
        if self.is_still_there() {
            let _ = kill_process(pid, signal);
        }
    }
}

/// All processes that can be seen.
#[cfg(target_os = "linux")]
pub(super) fn rows() -> Vec<Row> {
    let Ok(folder) = fs::read_dir("/proc") else { return Vec::new() };
    folder.flatten().filter_map(|entry| row(entry.file_name().to_str()?.parse().ok()?)).collect()
}

/// One process.
#[cfg(target_os = "linux")]
pub(super) fn row(pid: i32) -> Option<Row> {
    /// More than the system lets a program have for arguments and environment together.
    const MOST: u64 = 8 << 20;

    let folder = format!("/proc/{pid}");
    let stat = fs::read(format!("{folder}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    // The name before the last parenthesis may hold anything, spaces and parentheses too.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let number = |place: usize| fields.get(place)?.parse().ok();
    let mut environment = Vec::new();
    if fs::metadata(&folder).ok()?.uid() == rustix::process::geteuid().as_raw()
        && let Ok(file) = fs::File::open(format!("{folder}/environ"))
    {
        // What cannot be read carries no mark.
        let _ = file.take(MOST).read_to_end(&mut environment);
    }
    let mark = environment
        .split(|byte| *byte == 0)
        .find_map(|variable| variable.strip_prefix(MARK.as_bytes())?.strip_prefix(b"="))
        .map(|mark| String::from_utf8_lossy(mark).into_owned());
    Some(Row {
        pid,
        parent: number(1)?,
        group: number(2)?,
        start: (*fields.get(19)?).to_owned(),
        dead: matches!(*fields.first()?, "Z" | "X"),
        mark,
    })
}

/// All processes that can be seen. Their environment cannot.
#[cfg(not(target_os = "linux"))]
pub(super) fn rows() -> Vec<Row> {
    listed(&["-ax"])
}

/// One process.
#[cfg(not(target_os = "linux"))]
pub(super) fn row(pid: i32) -> Option<Row> {
    listed(&["-p", &pid.to_string()]).pop()
}

/// What `ps` says about the processes that `which` selects.
#[cfg(any(not(target_os = "linux"), test))]
fn listed(which: &[&str]) -> Vec<Row> {
    let output = std::process::Command::new("/bin/ps")
        .args(which)
        .args(["-o", "pid=,ppid=,pgid=,stat=,lstart="])
        .env("LC_ALL", "C")
        .stdin(std::process::Stdio::null())
        .output();
    let Ok(output) = output else { return Vec::new() };
    String::from_utf8_lossy(&output.stdout).lines().filter_map(listed_row).collect()
}

#[cfg(any(not(target_os = "linux"), test))]
fn listed_row(line: &str) -> Option<Row> {
    let mut words = line.split_ascii_whitespace();
    Some(Row {
        pid: words.next()?.parse().ok()?,
        parent: words.next()?.parse().ok()?,
        group: words.next()?.parse().ok()?,
        dead: words.next()?.starts_with('Z'),
        start: words.collect::<Vec<_>>().join(" "),
        mark: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn me() -> i32 {
        i32::try_from(std::process::id()).unwrap()
    }

    #[test]
    fn the_list_has_this_process_and_its_parent() {
        let rows = rows();
        let own = rows.iter().find(|row| row.pid == me()).unwrap();
        assert_eq!(own.parent, rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get()));
        assert!(!own.dead);
        assert!(own.is_still_there());
        let other = Row { start: "another time".to_owned(), ..own.clone() };
        assert!(!other.is_still_there(), "a process that got the number later is another one");
    }

    #[test]
    fn the_list_has_the_group_of_a_process() {
        // The group of the tests may be outside of this process namespace, where it has no number.
        let mut command = std::process::Command::new("sleep");
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command.arg("60").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let listed = row(pid).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((listed.parent, listed.group), (me(), pid));
    }

    #[test]
    fn both_ways_to_read_the_list_agree() {
        let own = row(me()).unwrap();
        let listed = listed(&["-p", &me().to_string()]).pop().unwrap();
        assert_eq!((listed.pid, listed.parent, listed.group), (own.pid, own.parent, own.group));
        assert_eq!(listed.dead, own.dead);
        assert!(!listed.start.is_empty());
    }

    #[test]
    fn lines_of_the_list_are_read() {
        let row = listed_row("  412   1   410 Zs   Mon Jul  7 10:11:12 2025").unwrap();
        let start = "Mon Jul 7 10:11:12 2025".to_owned();
        assert_eq!(row, Row { pid: 412, parent: 1, group: 410, start, dead: true, mark: None });
        assert_eq!(listed_row("PID PPID PGID"), None);
    }

    #[test]
    fn marks_of_parlors_in_parlors_are_all_carried() {
        let row = Row { mark: Some("a:b".to_owned()), ..listed_row("2 1 2 S now").unwrap() };
        assert!(row.carries("a") && row.carries("b"));
        assert!(!row.carries("a:b") && !row.carries(""));
    }
}
