//! The time of one call, which stands still while its caller is asked something.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{self, Instant};

/// The time of one call.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    state: Mutex<State>,
    /// Woken when the last open question is answered.
    resumed: Notify,
    /// Woken at the first question.
    asked: Notify,
}

#[derive(Debug, Default)]
struct State {
    n_open: u32,
    stopped_since: Option<Instant>,
    elapsed: Elapsed,
    was_stopped: bool,
}

/// What has happened to the time so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Elapsed {
    /// For how long it stood still, in all.
    pub(crate) stopped: Duration,
    /// When the tool last said how far it is.
    pub(crate) progress: Option<Instant>,
    /// Until when it may take, being kept as a task.
    pub(crate) kept_until: Option<Instant>,
}

impl Clock {
    /// Lets the time stand still until the guard is dropped.
    pub(crate) fn stop(&self) -> Stopped<'_> {
        let mut state = self.state();
        state.n_open += 1;
        state.stopped_since.get_or_insert_with(Instant::now);
        state.was_stopped = true;
        drop(state);
        self.asked.notify_waiters();
        Stopped(self)
    }

    /// Notes that the tool has said how far it is.
    pub(crate) fn progress(&self) {
        self.state().elapsed.progress = Some(Instant::now());
    }

    /// Notes that the call is kept as a task until then, however long it may take otherwise.
    pub(crate) fn keep_until(&self, end: Instant) {
        self.state().elapsed.kept_until = Some(end);
    }

    /// Whether the caller was asked anything.
    pub(crate) fn was_stopped(&self) -> bool {
        self.state().was_stopped
    }

    /// Whether the caller is being asked something.
    pub(crate) fn is_stopped(&self) -> bool {
        self.state().stopped_since.is_some()
    }

    /// Waits until the caller is asked something. Ends with the call at the latest, which drops whoever waits.
    pub(crate) async fn stopped(&self) {
        let asked = self.asked.notified();
        if !self.was_stopped() {
            asked.await;
        }
    }

    /// What has happened to the time so far, with how long it stands still already.
    pub(crate) fn elapsed(&self) -> Elapsed {
        let state = self.state();
        let so_far = state.stopped_since.map(|since| since.elapsed()).unwrap_or_default();
        Elapsed { stopped: state.elapsed.stopped + so_far, ..state.elapsed }
    }

    /// Waits until it is later than `due` says, which is asked again whenever the time stood still.
    pub(crate) async fn passes(&self, due: impl Fn(Elapsed) -> Instant) {
        loop {
            let resumed = self.resumed.notified();
            let (elapsed, is_stopped) = {
                let state = self.state();
                (state.elapsed, state.n_open > 0)
            };
            let due = due(elapsed);
            if is_stopped {
                // A question has a limit of its own.
                resumed.await;
            } else if due <= Instant::now() {
                return;
            } else {
                time::sleep_until(due).await;
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing can panic while the lock is held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The time stands still as long as this is there.
pub(crate) struct Stopped<'c>(&'c Clock);

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.n_open -= 1;
        if state.n_open == 0
            && let Some(since) = state.stopped_since.take()
        {
            let now = Instant::now();
            state.elapsed.stopped += now - since;
            // The time that a notice gave did not run either.
            if let Some(progress) = &mut state.elapsed.progress {
                *progress += now - since.max(*progress);
            }
            drop(state);
            self.0.resumed.notify_waiters();
        }
    }
}
