//! The process table of the system. All code that differs between systems is here.

#[cfg(target_os = "linux")]
use std::fs;
#[cfg(target_os = "linux")]
use std::io::Read;
#[cfg(target_os = "linux")]
use std::os::unix::fs::MetadataExt;

use rustix::process::{Pid, Signal, kill_process};

/// The environment variable that identifies the descendants of an agent, also after they left its process group.
pub(crate) const ENV_TAG: &str = "PARLOR_AGENT_TAG";

/// One process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) pid: i32,
    pub(crate) parent: i32,
    pub(crate) group: i32,
    /// The start time as the system writes it. With the pid it identifies one process uniquely.
    pub(crate) start: String,
    /// Whether it has ended and has not been reaped.
    pub(crate) dead: bool,
    /// The value of [`ENV_TAG`] in the environment it was started with, where that can be read.
    pub(crate) tag: Option<String>,
}

impl Row {
    /// Whether the process has this tag. Agents of a parlor that is itself an agent have several.
    pub(crate) fn has_tag(&self, tag: &str) -> bool {
        self.tag.as_ref().is_some_and(|tags| tags.split(':').any(|own| own == tag))
    }

    /// Whether the same process still exists, in the same group.
    pub(crate) fn is_still_there(&self) -> bool {
        row(self.pid).is_some_and(|now| now.start == self.start && now.group == self.group)
    }

    /// Signals this process, but never another one that was given its pid.
    pub(crate) fn signal(&self, signal: Signal) {
        let Some(pid) = Pid::from_raw(self.pid).filter(|pid| !pid.is_init()) else { return };
        #[cfg(target_os = "linux")]
        if let Ok(handle) = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) {
            // The handle refers to the process that has the pid now, which may not be this one.
            if row(self.pid).is_some_and(|now| now.start == self.start && now.tag == self.tag) {
                let _ = rustix::process::pidfd_send_signal(handle, signal);
            }
            return;
        }
        if self.is_still_there() {
            let _ = kill_process(pid, signal);
        }
    }
}

/// All visible processes.
#[cfg(target_os = "linux")]
pub(crate) fn rows() -> Vec<Row> {
    let Ok(folder) = fs::read_dir("/proc") else { return Vec::new() };
    folder.flatten().filter_map(|entry| row(entry.file_name().to_str()?.parse().ok()?)).collect()
}

/// One process.
#[cfg(target_os = "linux")]
pub(crate) fn row(pid: i32) -> Option<Row> {
    /// More than the limit of the system for arguments and environment together.
    const MAX_ENVIRONMENT: u64 = 8 << 20;

    let folder = format!("/proc/{pid}");
    let stat = fs::read(format!("{folder}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    // The name before the last parenthesis may contain spaces and parentheses.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse().ok();
    let mut environment = Vec::new();
    if fs::metadata(&folder).ok()?.uid() == rustix::process::geteuid().as_raw()
        && let Ok(file) = fs::File::open(format!("{folder}/environ"))
    {
        // A process whose environment cannot be read counts as one without a tag.
        let _ = file.take(MAX_ENVIRONMENT).read_to_end(&mut environment);
    }
    let tag = environment
        .split(|byte| *byte == 0)
        .find_map(|variable| variable.strip_prefix(ENV_TAG.as_bytes())?.strip_prefix(b"="))
        .map(|tag| String::from_utf8_lossy(tag).into_owned());
    Some(Row {
        pid,
        parent: number(1)?,
        group: number(2)?,
        start: (*fields.get(19)?).to_owned(),
        dead: matches!(*fields.first()?, "Z" | "X"),
        tag,
    })
}

/// All visible processes, without their tags: their environment cannot be read.
#[cfg(not(target_os = "linux"))]
pub(crate) fn rows() -> Vec<Row> {
    listed(&["-ax"])
}

/// One process.
#[cfg(not(target_os = "linux"))]
pub(crate) fn row(pid: i32) -> Option<Row> {
    listed(&["-p", &pid.to_string()]).pop()
}

/// The processes that `ps` lists for a selection.
#[cfg(any(not(target_os = "linux"), test))]
fn listed(selection: &[&str]) -> Vec<Row> {
    let output = std::process::Command::new("/bin/ps")
        .args(selection)
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
        tag: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn me() -> i32 {
        i32::try_from(std::process::id()).unwrap()
    }

    #[test]
    fn the_table_contains_this_process_with_its_parent() {
        let rows = rows();
        let own = rows.iter().find(|row| row.pid == me()).unwrap();
        assert_eq!(own.parent, rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get()));
        assert!(!own.dead);
        assert!(own.is_still_there());
        let other = Row { start: "another time".to_owned(), ..own.clone() };
        assert!(!other.is_still_there(), "a process that was given the pid later is another one");
    }

    #[test]
    fn the_table_contains_the_group_of_a_process() {
        // The group of the tests may be outside of this pid namespace, where it has no id.
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
    fn the_table_of_ps_agrees_with_the_table_of_the_system() {
        let own = row(me()).unwrap();
        let listed = listed(&["-p", &me().to_string()]).pop().unwrap();
        assert_eq!((listed.pid, listed.parent, listed.group), (own.pid, own.parent, own.group));
        assert_eq!(listed.dead, own.dead);
        assert!(!listed.start.is_empty());
    }

    #[test]
    fn a_line_of_ps_is_parsed() {
        let row = listed_row("  412   1   410 Zs   Mon Jul  7 10:11:12 2025").unwrap();
        let start = "Mon Jul 7 10:11:12 2025".to_owned();
        assert_eq!(row, Row { pid: 412, parent: 1, group: 410, start, dead: true, tag: None });
        assert_eq!(listed_row("PID PPID PGID"), None);
    }

    #[test]
    fn a_process_below_nested_parlors_has_the_tags_of_all() {
        let row = Row { tag: Some("a:b".to_owned()), ..listed_row("2 1 2 S now").unwrap() };
        assert!(row.has_tag("a") && row.has_tag("b"));
        assert!(!row.has_tag("a:b") && !row.has_tag(""));
    }
}
