//! Status line of a gateway.

use rustix::process::{Pid, Signal, kill_process};
use tokio::time;

use crate::TEST_TIMEOUT;
use crate::program::Program;
use crate::server::Backend;

/// Resources of an idle gateway.
#[derive(Debug)]
pub(super) struct Status {
    pub(super) n_callers: usize,
    pub(super) n_tasks: usize,
    pub(super) resident_kib: usize,
}

/// Waits until no call is in flight in the gateway or its servers.
pub(super) async fn settled(program: &mut Program, backend: &Backend) -> Status {
    let pid = program.child.id().unwrap();
    let settling = async {
        loop {
            kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::USR1).unwrap();
            let line = program.wait_for_line("Status").await;
            let numbers: Vec<usize> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
            let [n_calls, n_suspended, n_callers, n_tasks] = numbers[..] else { panic!("{line}") };
            if n_calls + n_suspended + backend.n_in_flight() == 0 {
                return Status { n_callers, n_tasks, resident_kib: resident_kib(pid) };
            }
            tokio::task::yield_now().await;
        }
    };
    time::timeout(TEST_TIMEOUT, settling).await.expect("everything ends")
}

fn resident_kib(pid: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
