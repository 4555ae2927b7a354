//! What a gateway says of itself when it is asked.

use rustix::process::{Pid, Signal, kill_process};
use tokio::time;

use super::server::Backend;
use crate::load::resident_kib;
use crate::stage::LONG;

/// What is left in a gateway that has nothing to do.
#[derive(Debug)]
pub(super) struct Status {
    pub(super) n_callers: usize,
    pub(super) n_tasks: usize,
    pub(super) resident_kib: usize,
}

/// Waits until nothing is under way, neither in the gateway nor behind it.
pub(super) async fn settled(pid: u32, says: impl AsyncFn() -> String, backend: &Backend) -> Status {
    let settling = async {
        loop {
            kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::USR1).unwrap();
            let said = says().await;
            let line = said.lines().last().unwrap();
            let numbers: Vec<usize> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
            let [n_calls, n_parked, n_callers, n_tasks] = numbers[..] else { panic!("{line}") };
            if n_calls + n_parked + backend.n_under_way() == 0 {
                return Status { n_callers, n_tasks, resident_kib: resident_kib(pid) };
            }
            tokio::task::yield_now().await;
        }
    };
    time::timeout(LONG, settling).await.expect("everything ends")
}
