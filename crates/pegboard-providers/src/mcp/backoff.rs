//! Backoff between the starts of a server.

use std::time::Duration;

/// Delays before consecutive starts, in seconds; the last one repeats.
const DELAYS: [u64; 7] = [0, 1, 2, 5, 10, 30, 60];

/// Uptime after which the backoff is reset.
const RESET_AFTER: Duration = Duration::from_mins(1);

/// Number of consecutive failed starts that opens the circuit.
pub(super) const CIRCUIT_OPEN_THRESHOLD: u32 = 5;

/// Backoff state of one server.
#[derive(Debug, Default)]
pub(super) struct RestartBackoff {
    /// Number of delays since the last sustained run.
    n_delays: usize,
    /// Number of consecutive failed starts.
    n_failed: u32,
}

impl RestartBackoff {
    /// Returns the number of consecutive failed starts.
    pub(super) fn n_failed(&self) -> u32 {
        self.n_failed
    }

    /// Records a successful start.
    pub(super) fn record_start(&mut self) {
        self.n_failed = 0;
    }

    /// Records a failed start and returns the delay before the next. The failed start itself was the one
    /// without a delay.
    pub(super) fn next_delay_after_failure(&mut self) -> Duration {
        self.n_failed = self.n_failed.saturating_add(1);
        self.n_delays = self.n_delays.max(1);
        self.next_delay()
    }

    /// Records the uptime of a connection, however it ended.
    pub(super) fn record_uptime(&mut self, uptime: Duration) {
        if uptime >= RESET_AFTER {
            self.n_delays = 0;
        }
    }

    /// Returns the delay before the restart of a lost server.
    pub(super) fn next_delay_after_loss(&mut self) -> Duration {
        self.next_delay()
    }

    fn next_delay(&mut self) -> Duration {
        let delay = DELAYS[self.n_delays.min(DELAYS.len() - 1)];
        self.n_delays = self.n_delays.saturating_add(1);
        Duration::from_secs(delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_grows_with_every_failed_start() {
        let mut backoff = RestartBackoff::default();
        let delays: Vec<u64> = (0..8).map(|_| backoff.next_delay_after_failure().as_secs()).collect();
        assert_eq!((delays, backoff.n_failed()), (vec![1, 2, 5, 10, 30, 60, 60, 60], 8));
    }

    #[test]
    fn a_sustained_run_resets_the_backoff() {
        let mut backoff = RestartBackoff::default();
        backoff.record_uptime(Duration::from_secs(59));
        assert_eq!(
            [
                backoff.next_delay_after_loss(),
                backoff.next_delay_after_failure(),
                backoff.next_delay_after_failure()
            ]
            .map(|delay| delay.as_secs()),
            [0, 1, 2]
        );
        backoff.record_start();
        assert_eq!((backoff.n_failed(), backoff.next_delay_after_loss().as_secs()), (0, 5));
        backoff.record_uptime(RESET_AFTER);
        assert_eq!(backoff.next_delay_after_loss().as_secs(), 0);
    }
}
