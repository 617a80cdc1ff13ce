//! A process and all its descendants.

use std::collections::HashSet;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::table::{self, Row};

/// The process group of a process that was started here, and the descendants that left the group.
#[derive(Debug, Clone)]
pub(crate) struct ProcessTree {
    /// The process that was started, whose pid is also the group's id; `None` while it is not known.
    leader: Option<Pid>,
    tag: String,
    group: Proof,
    /// Descendants that left the group, on systems where tags cannot be read.
    detached: Vec<Row>,
}

/// Evidence that the group with the leader's pid is the one that was started here.
#[derive(Debug, Clone)]
enum Proof {
    /// The leader is a child of this process that has not been reaped, so its pid cannot be reused.
    Unreaped,
    /// The leader started at this time, or a member of the group has the tag.
    Seen { start: Option<String> },
}

/// How long killed processes are waited for: one that hangs in the kernel may never end.
const KILL_TIMEOUT: Duration = Duration::from_secs(2);

impl ProcessTree {
    /// Creates the tree of a child of this process that has not been reaped.
    pub(crate) fn of_child(leader: u32, tag: &str) -> Self {
        Self { group: Proof::Unreaped, ..Self::seen(i32::try_from(leader).unwrap_or(0), tag) }
    }

    /// Creates the tree of a process that is alive and not a child of this one. The leader is zero if it is not known.
    pub(crate) fn seen(leader: i32, tag: &str) -> Self {
        // Signalling "group 1" would signal every process.
        let leader = Pid::from_raw(leader.max(0)).filter(|pid| !pid.is_init());
        let start = leader.and_then(|leader| table::row(raw(leader))).map(|row| row.start);
        Self { leader, tag: tag.to_owned(), group: Proof::Seen { start }, detached: Vec::new() }
    }

    /// Records that the leader may have been reaped.
    pub(crate) fn lose_leader(&mut self) {
        self.group = Proof::Seen { start: None };
    }

    /// Signals the group, if its leader has not been reaped.
    pub(crate) fn signal_group(&self, signal: Signal) {
        if let (Some(leader), Proof::Unreaped) = (self.leader, &self.group) {
            // The only possible error is that all members have ended.
            let _ = kill_process_group(leader, signal);
        }
    }

    /// Records the descendants that left the group, on systems where they cannot be found once the leader has ended.
    pub(crate) fn note_detached(&mut self) {
        if !cfg!(target_os = "linux") {
            self.members(&table::rows());
        }
    }

    /// The members that are alive, in the group and outside of it. An ended leader that has not been reaped is not included.
    fn members(&mut self, rows: &[Row]) -> Members {
        let mut members = Members::default();
        for row in rows.iter().filter(|row| !row.dead) {
            if self.leader.is_some_and(|leader| row.group == raw(leader)) {
                members.group.push(row.clone());
            } else if row.has_tag(&self.tag) {
                members.detached.push(row.clone());
            }
        }
        if !cfg!(target_os = "linux") {
            self.follow(rows);
            members.detached.clone_from(&self.detached);
        }
        members.proof = self.proof(rows, &members.group);
        if members.proof.is_none() {
            members.group.clear();
        }
        members
    }

    /// Drops the detached descendants that have ended, and adds those that descend from the leader now.
    fn follow(&mut self, rows: &[Row]) {
        let is_alive = |old: &Row| rows.iter().any(|row| row.start == old.start && row.pid == old.pid);
        self.detached.retain(is_alive);
        let Some(leader) = self.leader.map(raw) else { return };
        let mut tree: HashSet<i32> = self.detached.iter().map(|row| row.pid).chain([leader]).collect();
        // A parent may be listed after its children, so repeat until no process is added.
        loop {
            let found: Vec<_> =
                rows.iter().filter(|row| tree.contains(&row.parent) && !tree.contains(&row.pid)).collect();
            if found.is_empty() {
                return;
            }
            for row in found {
                tree.insert(row.pid);
                if row.group != leader && !row.dead {
                    self.detached.push(row.clone());
                }
            }
        }
    }

    /// Evidence that the group may be signalled.
    fn proof(&self, rows: &[Row], group: &[Row]) -> Option<GroupProof> {
        let start = match &self.group {
            Proof::Unreaped => return Some(GroupProof::Unreaped),
            Proof::Seen { start } => start.as_ref(),
        };
        let leader = rows.iter().find(|row| Some(row.pid) == self.leader.map(raw));
        let same_leader = leader.filter(|row| Some(&row.start) == start);
        let tagged = group.iter().find(|row| row.has_tag(&self.tag));
        match (same_leader.or(tagged), leader) {
            (Some(row), _) => Some(GroupProof::Row(row.clone())),
            // Without tags: a pid is not reused while a group has it as its id.
            (None, None) if !cfg!(target_os = "linux") && start.is_some() => {
                group.first().cloned().map(GroupProof::Row)
            }
            (None, _) => None,
        }
    }

    fn signal(&self, members: &Members, signal: Signal) {
        let ours = match &members.proof {
            Some(GroupProof::Unreaped) => true,
            Some(GroupProof::Row(row)) => row.is_still_there(),
            None => false,
        };
        if let Some(leader) = self.leader.filter(|_| ours && !members.group.is_empty()) {
            let _ = kill_process_group(leader, signal);
        }
        members.detached.iter().for_each(|row| row.signal(signal));
    }
}

#[derive(Debug, Default)]
struct Members {
    group: Vec<Row>,
    proof: Option<GroupProof>,
    detached: Vec<Row>,
}

#[derive(Debug)]
enum GroupProof {
    Unreaped,
    /// The group is ours while this process exists.
    Row(Row),
}

/// Ends all members of the trees: SIGTERM, and SIGKILL for those that are alive after `grace`. Leaders that are unreaped
/// children must have ended before. Blocks until all have ended, and returns the pids of those that did not.
pub(crate) fn end(trees: &mut [ProcessTree], grace: Duration) -> Vec<i32> {
    if !grace.is_zero() && signal_all(trees, Signal::TERM, grace).is_empty() {
        return Vec::new();
    }
    signal_all(trees, Signal::KILL, KILL_TIMEOUT)
}

/// Signals all members and waits up to `timeout` until they have ended. Returns the pids of those that have not.
fn signal_all(trees: &mut [ProcessTree], signal: Signal, timeout: Duration) -> Vec<i32> {
    let until = Instant::now() + timeout;
    let mut signalled: HashSet<i32> = HashSet::new();
    let mut pause = Duration::from_millis(2);
    let mut empty_looks = 0;
    loop {
        let rows = table::rows();
        let mut left = Vec::new();
        for tree in &mut *trees {
            let members = tree.members(&rows);
            let pids: Vec<_> = members.group.iter().chain(&members.detached).map(|row| row.pid).collect();
            // Processes that were started after the signal are signalled as well.
            if pids.iter().any(|pid| !signalled.contains(pid)) {
                tree.signal(&members, signal);
            }
            signalled.extend(&pids);
            left.extend(pids);
        }
        // The environment of a process that is executing another program is empty for a moment, so one look is not enough.
        empty_looks = if left.is_empty() { empty_looks + 1 } else { 0 };
        if empty_looks == 2 || Instant::now() >= until {
            return left;
        }
        thread::sleep(pause.min(until.saturating_duration_since(Instant::now())));
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

fn raw(pid: Pid) -> i32 {
    pid.as_raw_nonzero().get()
}
