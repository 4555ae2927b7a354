//! A program and everything it started, on Unix.

use std::collections::HashSet;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, getpgrp, getpid, kill_process_group, test_kill_process_group};
use tokio::process::Child;

use super::table::{self, Row};

/// Processes that belong together, as far as was seen.
///
/// They are the root and all below it, what is in a group that one of them leads or led, and what was one of them when
/// it was last looked at: who is found once is not lost when its parent ends.
#[derive(Clone, Debug)]
pub(in crate::process) struct Tree {
    /// Whom everyone is below; `None` when it is gone, for its number may be given to another.
    root: Option<u32>,
    groups: HashSet<u32>,
    members: Vec<Row>,
    /// Who was told to terminate, and when it began; nobody is told twice.
    told: HashSet<(u32, u64)>,
}

impl Tree {
    /// A child of this process and everything below it. Its number is all that is needed here.
    pub(in crate::process) fn of_child(program: u32, _child: &Child) -> Self {
        Self::of(program)
    }

    /// A program that leads a process group, and everything below it.
    pub(in crate::process) fn of(program: u32) -> Self {
        Self {
            root: Some(program),
            groups: HashSet::from([program]),
            members: Vec::new(),
            told: HashSet::new(),
        }
    }

    /// Everything below this process, where `program` leads a process group. This process is not one of them.
    pub(in crate::process) fn below_this(program: u32) -> Self {
        Self { root: Some(std::process::id()), ..Self::of(program) }
    }

    /// Looks again, and gives what runs. If nothing can be seen it is what ran the last time, and at least the root.
    pub(in crate::process) fn look(&mut self) -> Vec<u32> {
        let seen = table::read().map(|rows| self.update(&rows));
        // Its number may be given to others. To look is not enough: who starts another and ends, again and again, is
        // never seen, but its group is never empty.
        self.groups.retain(|&group| !is_empty(group));
        let unseen = seen.is_err().then_some(self.root).flatten();
        let pids: HashSet<u32> = self.members.iter().map(|member| member.pid).chain(unseen).collect();
        pids.into_iter().filter(|&pid| pid != std::process::id()).collect()
    }

    /// Tells everyone to terminate who was not told yet.
    pub(in crate::process) fn terminate(&mut self) {
        self.look();
        for member in &self.members {
            if self.told.insert((member.pid, member.began)) {
                send(*member, Signal::TERM);
            }
        }
    }

    /// Kills everyone.
    pub(in crate::process) fn kill(&mut self) {
        self.look();
        // A group is killed in one go, so that nobody in it can get away by becoming somebody else.
        for &group in &self.groups {
            if let Some(group) = signalled(group)
                && group != getpgrp()
            {
                // It may be empty.
                let _ = kill_process_group(group, Signal::KILL);
            }
        }
        for member in &self.members {
            send(*member, Signal::KILL);
        }
    }

    fn update(&mut self, rows: &[Row]) {
        let known: HashSet<(u32, u64)> =
            self.members.iter().map(|member| (member.pid, member.began)).collect();
        let is_member = |row: &Row| {
            Some(row.pid) == self.root
                || self.groups.contains(&row.group)
                || known.contains(&(row.pid, row.began))
        };
        let mut inside: HashSet<u32> = rows.iter().filter(|row| is_member(row)).map(|row| row.pid).collect();
        // A row may come before that of its parent, so once through is not enough.
        loop {
            let n_before = inside.len();
            inside.extend(
                rows.iter().filter(|row| inside.contains(&row.parent)).map(|row| row.pid).collect::<Vec<_>>(),
            );
            if inside.len() == n_before {
                break;
            }
        }
        self.root = self.root.filter(|root| inside.contains(root));
        let own = std::process::id();
        self.members =
            rows.iter().filter(|row| inside.contains(&row.pid) && row.pid != own).copied().collect();
        self.groups.extend(self.members.iter().filter(|row| row.group == row.pid).map(|row| row.group));
        let running: HashSet<(u32, u64)> = self.members.iter().map(|row| (row.pid, row.began)).collect();
        self.told.retain(|told| running.contains(told));
    }
}

/// Whether nobody is in a process group at this moment.
fn is_empty(group: u32) -> bool {
    signalled(group).is_none_or(|group| test_kill_process_group(group) == Err(Errno::SRCH))
}

/// Sends a signal to this very process and not to another that got its number.
#[cfg(target_os = "linux")]
fn send(member: Row, signal: Signal) {
    use rustix::process::{PidfdFlags, kill_process, pidfd_open, pidfd_send_signal};

    let Some(pid) = signalled(member.pid) else { return };
    let handle = pidfd_open(pid, PidfdFlags::empty());
    // From here on the handle means one process, and this says which.
    if let Ok(row) = table::read_one(member.pid)
        && row.is_none_or(|row| row.began != member.began)
    {
        return;
    }
    // Who is gone by now needs no signal, and who may not be signalled is found left running.
    let _ = match handle {
        Ok(handle) => pidfd_send_signal(handle, signal),
        // An old kernel, or no descriptor is free.
        Err(_) => kill_process(pid, signal),
    };
}

#[cfg(not(target_os = "linux"))]
fn send(member: Row, signal: Signal) {
    if let Some(pid) = signalled(member.pid) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// Who may be signalled: neither this process, nor the first one, whose number as a group means everybody.
fn signalled(number: u32) -> Option<Pid> {
    let pid = Pid::from_raw(i32::try_from(number).ok()?)?;
    (number > 1 && pid != getpid()).then_some(pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(pid: u32, parent: u32, group: u32) -> Row {
        Row { pid, parent, group, began: 1 }
    }

    fn pids(tree: &Tree) -> Vec<u32> {
        tree.members.iter().map(|member| member.pid).collect()
    }

    #[test]
    fn a_tree_has_everything_below_in_any_order_and_the_group() {
        let mut tree = Tree::of(900_010);
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
    fn who_was_seen_once_is_not_lost_when_its_parent_ends() {
        let mut tree = Tree::of(900_010);
        tree.update(&[
            row(900_010, 1, 900_010),
            row(900_011, 900_010, 900_011),
            row(900_012, 900_011, 900_011),
        ]);
        // The leader of a session is gone, and left behind one that was seen and one that was not.
        tree.update(&[row(900_012, 1, 900_011), row(900_013, 1, 900_011)]);
        assert_eq!(pids(&tree), [900_012, 900_013]);
        let another = Row { began: 2, ..row(900_012, 1, 900_000) };
        tree.update(&[another]);
        assert_eq!(pids(&tree), [0; 0], "a number that was given to another");
    }

    #[test]
    fn neither_this_process_nor_everybody_is_ever_signalled() {
        let mut tree = Tree::below_this(900_010);
        let own = std::process::id();
        tree.update(&[row(own, 1, own), row(900_010, own, 900_010)]);
        assert_eq!(pids(&tree), [900_010]);
        for number in [0, 1, own, u32::MAX] {
            assert_eq!(signalled(number), None, "{number}");
        }
    }
}
