//! An agent and all that came from it.

use std::collections::HashSet;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::table::{self, Row};

/// The group of a process that was started here, and those of its descendants that left it.
#[derive(Debug, Clone)]
pub(super) struct Family {
    /// The process that was started; its number is the group's. None while it is not known.
    leader: Option<Pid>,
    mark: String,
    group: Proof,
    /// Descendants that were seen outside of the group, where nothing marks them.
    strays: Vec<Row>,
}

/// How it is known that the group with the leader's number is the one that was started here.
#[derive(Debug, Clone)]
enum Proof {
    /// The leader is a child of this process that has not been reaped: nobody else can get the number.
    Unreaped,
    /// The leader started at this time, or a member carries the mark.
    Seen { start: Option<String> },
}

/// How long to wait for processes that were killed. One that hangs in the kernel may never go.
const KILLED: Duration = Duration::from_secs(2);

impl Family {
    /// The family of a child of this process that has not been reaped.
    pub(super) fn of_child(leader: u32, mark: &str) -> Self {
        Self { group: Proof::Unreaped, ..Self::seen(i32::try_from(leader).unwrap_or(0), mark) }
    }

    /// The family of a process that is alive now and is no child of this one. Zero stands for a leader that is not
    /// known.
    pub(super) fn seen(leader: i32, mark: &str) -> Self {
        // To signal "group 1" is to signal everybody.
        let leader = Pid::from_raw(leader.max(0)).filter(|pid| !pid.is_init());
        let start = leader.and_then(|leader| table::row(number(leader))).map(|row| row.start);
        Self { leader, mark: mark.to_owned(), group: Proof::Seen { start }, strays: Vec::new() }
    }

    /// The leader is no longer known to be an unreaped child.
    pub(super) fn lose_leader(&mut self) {
        self.group = Proof::Seen { start: None };
    }

    /// Signals the group. Only for a leader that has not been reaped.
    pub(super) fn signal_group(&self, signal: Signal) {
        if let (Some(leader), Proof::Unreaped) = (self.leader, &self.group) {
            // The one error that is possible is that all of its members are gone.
            let _ = kill_process_group(leader, signal);
        }
    }

    /// Looks who has left the group, where this cannot be found out once the leader is gone.
    pub(super) fn remember(&mut self) {
        if !cfg!(target_os = "linux") {
            self.members(&table::rows());
        }
    }

    /// Who is alive: of the group, and outside of it. The leader of a group whose leader must still be reaped is not
    /// among them once it has ended.
    fn members(&mut self, rows: &[Row]) -> Members {
        let mut members = Members::default();
        for row in rows.iter().filter(|row| !row.dead) {
            if self.leader.is_some_and(|leader| row.group == number(leader)) {
                members.group.push(row.clone());
            } else if row.carries(&self.mark) {
                members.strays.push(row.clone());
            }
        }
        if !cfg!(target_os = "linux") {
            self.follow(rows);
            members.strays.clone_from(&self.strays);
        }
        members.proof = self.proof(rows, &members.group);
        if members.proof.is_none() {
            members.group.clear();
        }
        members
    }

    /// Keeps those strays that are alive and adds those that descend from the leader now.
    fn follow(&mut self, rows: &[Row]) {
        self.strays.retain(|stray| rows.iter().any(|row| row.start == stray.start && row.pid == stray.pid));
        let Some(leader) = self.leader.map(number) else { return };
        let mut family: HashSet<i32> = self.strays.iter().map(|row| row.pid).chain([leader]).collect();
        // A parent may be listed after its children, so look until nobody is added.
        loop {
            let found: Vec<_> = rows
                .iter()
                .filter(|row| family.contains(&row.parent) && !family.contains(&row.pid))
                .collect();
            if found.is_empty() {
                return;
            }
            for row in found {
                family.insert(row.pid);
                if row.group != leader && !row.dead {
                    self.strays.push(row.clone());
                }
            }
        }
    }

    /// Why the group may be signalled.
    fn proof(&self, rows: &[Row], group: &[Row]) -> Option<GroupProof> {
        let start = match &self.group {
            Proof::Unreaped => return Some(GroupProof::Unreaped),
            Proof::Seen { start } => start.as_ref(),
        };
        let leader = rows.iter().find(|row| Some(row.pid) == self.leader.map(number));
        let same_leader = leader.filter(|row| Some(&row.start) == start);
        let marked = group.iter().find(|row| row.carries(&self.mark));
        match (same_leader.or(marked), leader) {
            (Some(row), _) => Some(GroupProof::Row(row.clone())),
            // Where nothing is marked: a number is not given away while there is a group of that number.
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
        members.strays.iter().for_each(|row| row.signal(signal));
    }
}

#[derive(Debug, Default)]
struct Members {
    group: Vec<Row>,
    proof: Option<GroupProof>,
    strays: Vec<Row>,
}

#[derive(Debug)]
enum GroupProof {
    Unreaped,
    /// While this process is there, the group is ours.
    Row(Row),
}

/// Ends all that is alive of the families: SIGTERM, and SIGKILL for what is alive after `grace`. Leaders that are
/// unreaped children must have ended before. Blocks until nothing is left. Says which processes would not go.
pub(super) fn end(families: &mut [Family], grace: Duration) -> Vec<i32> {
    if !grace.is_zero() && signal_all(families, Signal::TERM, grace).is_empty() {
        return Vec::new();
    }
    signal_all(families, Signal::KILL, KILLED)
}

/// Signals all members and waits until they are gone, but not longer than `time`. Those who are left are returned.
fn signal_all(families: &mut [Family], signal: Signal, time: Duration) -> Vec<i32> {
    let until = Instant::now() + time;
    let mut signalled: HashSet<i32> = HashSet::new();
    let mut pause = Duration::from_millis(2);
    let mut looks_without = 0;
    loop {
        let rows = table::rows();
        let mut left = Vec::new();
        for family in &mut *families {
            let members = family.members(&rows);
            let pids: Vec<_> = members.group.iter().chain(&members.strays).map(|row| row.pid).collect();
            // Who was started after the signal gets it as well.
            if pids.iter().any(|pid| !signalled.contains(pid)) {
                family.signal(&members, signal);
            }
            signalled.extend(&pids);
            left.extend(pids);
        }
        // A process that is just starting another program shows no environment for a moment, so one look is not
        // enough.
        looks_without = if left.is_empty() { looks_without + 1 } else { 0 };
        if looks_without == 2 || Instant::now() >= until {
            return left;
        }
        thread::sleep(pause.min(until.saturating_duration_since(Instant::now())));
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

fn number(pid: Pid) -> i32 {
    pid.as_raw_nonzero().get()
}
