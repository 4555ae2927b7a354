//! A program and its descendants, on Unix.

use std::collections::HashSet;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, getpgrp, getpid, kill_process_group, test_kill_process_group};
use tokio::process::Child;

use super::table::{self, ProcessRow};

/// Processes that belong to a program, as far as they were seen.
///
/// These are the root and its descendants, members of a process group that one of them leads or led,
/// processes with the marker, and processes seen earlier: a known process stays in the tree when its parent
/// exits.
#[derive(Clone, Debug)]
pub(in crate::process) struct ProcessTree {
    /// Root process; `None` when it has exited, because its id may be reused.
    root: Option<u32>,
    groups: HashSet<u32>,
    members: Vec<ProcessRow>,
    /// Processes that got SIGTERM, with their start time; each gets it once.
    terminated: HashSet<(u32, u64)>,
    /// Environment variable that marks further members, as `NAME=value`.
    marker: Option<Box<[u8]>>,
}

impl ProcessTree {
    /// Creates the tree of a child process. Only its id is needed here.
    pub(in crate::process) fn of_child(program: u32, _child: &Child) -> Self {
        Self::rooted_at(program)
    }

    /// Creates the tree of a process group leader.
    pub(in crate::process) fn rooted_at(program: u32) -> Self {
        Self {
            root: Some(program),
            groups: HashSet::from([program]),
            members: Vec::new(),
            terminated: HashSet::new(),
            marker: None,
        }
    }

    /// Adds the processes that have an environment variable. This finds descendants with sessions of their own
    /// after their parents have exited.
    pub(in crate::process) fn with_marker(self, name: &str, value: &str) -> Self {
        Self { marker: Some(format!("{name}={value}").into_bytes().into()), ..self }
    }

    /// Creates the tree of all descendants of this process, in which `program` leads a process group. This
    /// process is not part of it.
    pub(in crate::process) fn descendants_of_self(program: u32) -> Self {
        Self { root: Some(std::process::id()), ..Self::rooted_at(program) }
    }

    /// Scans the process table and returns the running processes; if it cannot be read, those seen last, and
    /// at least the root.
    pub(in crate::process) fn refresh(&mut self) -> Vec<u32> {
        let seen = table::read_all().map(|rows| self.update(&rows));
        // The id of an empty group may be reused. The table is not enough to decide: a program that keeps
        // forking and exiting is never seen, but its group is never empty.
        self.groups.retain(|&group| !is_group_empty(group));
        let unlisted_root = seen.is_err().then_some(self.root).flatten();
        let pids: HashSet<u32> = self.members.iter().map(|member| member.pid).chain(unlisted_root).collect();
        pids.into_iter().filter(|&pid| pid != std::process::id()).collect()
    }

    /// Sends SIGTERM to all processes that have not got it yet.
    pub(in crate::process) fn terminate(&mut self) {
        self.refresh();
        for member in &self.members {
            if self.terminated.insert((member.pid, member.start_time)) {
                send(*member, Signal::TERM);
            }
        }
    }

    /// Sends SIGKILL to all processes.
    pub(in crate::process) fn kill(&mut self) {
        self.refresh();
        // A group is killed atomically, so that no member can escape by forking.
        for &group in &self.groups {
            if let Some(group) = signal_target(group)
                && group != getpgrp()
            {
                // The group may be empty.
                let _ = kill_process_group(group, Signal::KILL);
            }
        }
        for member in &self.members {
            send(*member, Signal::KILL);
        }
    }

    fn update(&mut self, rows: &[ProcessRow]) {
        let known: HashSet<(u32, u64)> =
            self.members.iter().map(|member| (member.pid, member.start_time)).collect();
        let is_member = |row: &ProcessRow| {
            Some(row.pid) == self.root
                || self.groups.contains(&row.group)
                || known.contains(&(row.pid, row.start_time))
                || self.marker.as_deref().is_some_and(|marker| table::has_variable(row.pid, marker))
        };
        let mut member_pids: HashSet<u32> =
            rows.iter().filter(|row| is_member(row)).map(|row| row.pid).collect();
        // A row may precede that of its parent, so iterate to a fixed point.
        loop {
            let n_before = member_pids.len();
            member_pids.extend(
                rows.iter()
                    .filter(|row| member_pids.contains(&row.parent))
                    .map(|row| row.pid)
                    .collect::<Vec<_>>(),
            );
            if member_pids.len() == n_before {
                break;
            }
        }
        self.root = self.root.filter(|root| member_pids.contains(root));
        let own = std::process::id();
        self.members =
            rows.iter().filter(|row| member_pids.contains(&row.pid) && row.pid != own).copied().collect();
        self.groups.extend(self.members.iter().filter(|row| row.group == row.pid).map(|row| row.group));
        let running: HashSet<(u32, u64)> = self.members.iter().map(|row| (row.pid, row.start_time)).collect();
        self.terminated.retain(|terminated| running.contains(terminated));
    }
}

/// Returns `true` if a process group has no members.
fn is_group_empty(group: u32) -> bool {
    signal_target(group).is_none_or(|group| test_kill_process_group(group) == Err(Errno::SRCH))
}

/// Sends a signal to exactly this process, not to one that reuses its id.
#[cfg(target_os = "linux")]
fn send(member: ProcessRow, signal: Signal) {
    use rustix::process::{PidfdFlags, kill_process, pidfd_open, pidfd_send_signal};

    let Some(pid) = signal_target(member.pid) else { return };
    let handle = pidfd_open(pid, PidfdFlags::empty());
    // The handle is bound to one process; make sure it is the right one.
    if let Ok(row) = table::read_one(member.pid)
        && row.is_none_or(|row| row.start_time != member.start_time)
    {
        return;
    }
    // An exited process needs no signal, and one that may not be signalled is reported as still running.
    let _ = match handle {
        Ok(handle) => pidfd_send_signal(handle, signal),
        // An old kernel, or no file descriptor is free.
        Err(_) => kill_process(pid, signal),
    };
}

#[cfg(not(target_os = "linux"))]
fn send(member: ProcessRow, signal: Signal) {
    if let Some(pid) = signal_target(member.pid) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// Returns the id as a signal target, unless it is this process or init: as a group, 1 means all processes.
fn signal_target(number: u32) -> Option<Pid> {
    let pid = Pid::from_raw(i32::try_from(number).ok()?)?;
    (number > 1 && pid != getpid()).then_some(pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(pid: u32, parent: u32, group: u32) -> ProcessRow {
        ProcessRow { pid, parent, group, start_time: 1 }
    }

    fn pids(tree: &ProcessTree) -> Vec<u32> {
        tree.members.iter().map(|member| member.pid).collect()
    }

    #[test]
    fn a_tree_holds_all_descendants_in_any_order_and_the_process_group() {
        let mut tree = ProcessTree::rooted_at(900_010);
        tree.update(&[
            row(900_004, 900_003, 900_003),
            row(900_003, 900_010, 900_003),
            row(900_010, 900_000, 900_010),
            row(900_000, 1, 900_000),
            row(900_020, 1, 900_010),
            row(900_021, 1, 900_021),
        ]);
        assert_eq!(pids(&tree), [900_004, 900_003, 900_010, 900_020]);
    }

    #[test]
    fn a_known_process_stays_in_the_tree_when_its_parent_exits() {
        let mut tree = ProcessTree::rooted_at(900_010);
        tree.update(&[
            row(900_010, 1, 900_010),
            row(900_011, 900_010, 900_011),
            row(900_012, 900_011, 900_011),
        ]);
        // The session leader has exited and left one known and one unknown process.
        tree.update(&[row(900_012, 1, 900_011), row(900_013, 1, 900_011)]);
        assert_eq!(pids(&tree), [900_012, 900_013]);
        let another = ProcessRow { start_time: 2, ..row(900_012, 1, 900_000) };
        tree.update(&[another]);
        assert_eq!(pids(&tree), [0; 0], "a reused id");
    }

    #[test]
    fn this_process_and_init_are_never_signalled() {
        let mut tree = ProcessTree::descendants_of_self(900_010);
        let own = std::process::id();
        tree.update(&[row(own, 1, own), row(900_010, own, 900_010)]);
        assert_eq!(pids(&tree), [900_010]);
        for number in [0, 1, own, u32::MAX] {
            assert_eq!(signal_target(number), None, "{number}");
        }
    }
}
