//! The clock of one call, which is paused while its caller is asked for input.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::coop;
use tokio::time::{self, Instant};

/// The clock of one call.
#[derive(Debug, Default)]
pub(crate) struct CallClock {
    state: Mutex<ClockState>,
    /// Notified when the last pause ends.
    resumed: Notify,
    /// Notified at the first pause.
    paused: Notify,
}

#[derive(Debug, Default)]
struct ClockState {
    n_pauses: u32,
    paused_since: Option<Instant>,
    reading: ClockReading,
    was_paused: bool,
}

/// A reading of the clock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ClockReading {
    /// Total time paused.
    pub(crate) paused: Duration,
    /// Time of the last progress notification.
    pub(crate) progress: Option<Instant>,
    /// Deadline of a call that runs as a task; replaces its timeout.
    pub(crate) extended_until: Option<Instant>,
}

impl CallClock {
    /// Pauses the clock until the guard is dropped.
    pub(crate) fn pause(&self) -> ClockPause<'_> {
        let mut state = self.state.lock();
        state.n_pauses += 1;
        state.paused_since.get_or_insert_with(Instant::now);
        state.was_paused = true;
        drop(state);
        self.paused.notify_waiters();
        ClockPause(self)
    }

    /// Records a progress notification.
    pub(crate) fn record_progress(&self) {
        self.state.lock().reading.progress = Some(Instant::now());
    }

    /// Sets the deadline of a call that runs as a task.
    pub(crate) fn extend_until(&self, end: Instant) {
        self.state.lock().reading.extended_until = Some(end);
    }

    /// Returns `true` if the clock was ever paused.
    pub(crate) fn was_paused(&self) -> bool {
        self.state.lock().was_paused
    }

    /// Returns `true` while the clock is paused.
    pub(crate) fn is_paused(&self) -> bool {
        self.state.lock().paused_since.is_some()
    }

    /// Waits for the first pause. The wait ends with the call, which drops the future.
    pub(crate) async fn paused(&self) {
        let paused = self.paused.notified();
        if !self.was_paused() {
            paused.await;
        }
    }

    /// Returns the current reading, including a pause in progress.
    pub(crate) fn reading(&self) -> ClockReading {
        let state = self.state.lock();
        let so_far = state.paused_since.map(|since| since.elapsed()).unwrap_or_default();
        ClockReading { paused: state.reading.paused + so_far, ..state.reading }
    }

    /// Waits until the time returned by `due` has passed; `due` is evaluated again after every pause.
    ///
    /// It is polled beside a tool in the same task, which may have used up the budget of the task: a server
    /// that floods its caller must not stop the clock.
    pub(crate) async fn wait_until(&self, due: impl Fn(ClockReading) -> Instant) {
        loop {
            let resumed = self.resumed.notified();
            let (reading, is_paused) = {
                let state = self.state.lock();
                (state.reading, state.n_pauses > 0)
            };
            let due = due(reading);
            if is_paused {
                // The pause ends: waiting for input has a timeout of its own.
                coop::unconstrained(resumed).await;
            } else if due <= Instant::now() {
                return;
            } else {
                coop::unconstrained(time::sleep_until(due)).await;
            }
        }
    }
}

/// Guard that keeps the clock paused.
pub(crate) struct ClockPause<'c>(&'c CallClock);

impl Drop for ClockPause<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.n_pauses -= 1;
        if state.n_pauses == 0
            && let Some(since) = state.paused_since.take()
        {
            let now = Instant::now();
            state.reading.paused += now - since;
            // The extension granted by a progress notification is shifted by the pause, too.
            if let Some(progress) = &mut state.reading.progress {
                *progress += now - since.max(*progress);
            }
            drop(state);
            self.0.resumed.notify_waiters();
        }
    }
}
