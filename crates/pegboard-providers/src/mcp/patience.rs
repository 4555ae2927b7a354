//! How long to wait before a server is started again.

use std::time::Duration;

/// The delays before one start after another, in seconds; the last one counts from then on.
const DELAYS: [u64; 7] = [0, 1, 2, 5, 10, 30, 60];

/// How long a server must have run for its earlier troubles to be forgotten.
const SUSTAINED: Duration = Duration::from_mins(1);

/// After so many starts in a row that came to nothing a server counts as one that keeps failing.
pub(super) const MAX_FAILED: u32 = 5;

/// Remembers how often a server was started in vain, or went away soon.
#[derive(Debug, Default)]
pub(super) struct Patience {
    /// How many delays were waited for since the last sustained run.
    n_waited: usize,
    /// How many starts in a row came to nothing.
    n_failed: u32,
}

impl Patience {
    /// How many starts in a row came to nothing.
    pub(super) fn n_failed(&self) -> u32 {
        self.n_failed
    }

    /// The server was started.
    pub(super) fn started(&mut self) {
        self.n_failed = 0;
    }

    /// A start came to nothing: how long until the next. That start was itself the one without a delay.
    pub(super) fn failed(&mut self) -> Duration {
        self.n_failed = self.n_failed.saturating_add(1);
        self.n_waited = self.n_waited.max(1);
        self.next()
    }

    /// The server ran for so long, however that ended.
    pub(super) fn ran(&mut self, uptime: Duration) {
        if uptime >= SUSTAINED {
            self.n_waited = 0;
        }
    }

    /// The server went away: how long until it is started again.
    pub(super) fn lost(&mut self) -> Duration {
        self.next()
    }

    fn next(&mut self) -> Duration {
        let delay = DELAYS[self.n_waited.min(DELAYS.len() - 1)];
        self.n_waited = self.n_waited.saturating_add(1);
        Duration::from_secs(delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_start_in_vain_is_followed_by_a_longer_wait() {
        let mut patience = Patience::default();
        let waits: Vec<u64> = (0..8).map(|_| patience.failed().as_secs()).collect();
        assert_eq!((waits, patience.n_failed()), (vec![1, 2, 5, 10, 30, 60, 60, 60], 8));
    }

    #[test]
    fn a_server_that_ran_for_a_while_is_started_again_at_once() {
        let mut patience = Patience::default();
        patience.ran(Duration::from_secs(59));
        assert_eq!(
            [patience.lost(), patience.failed(), patience.failed()].map(|wait| wait.as_secs()),
            [0, 1, 2]
        );
        patience.started();
        assert_eq!((patience.n_failed(), patience.lost().as_secs()), (0, 5));
        patience.ran(SUSTAINED);
        assert_eq!(patience.lost().as_secs(), 0);
    }
}
