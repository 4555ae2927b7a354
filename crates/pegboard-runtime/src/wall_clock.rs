//! Wall-clock time that follows Tokio's clock, so that tests can pause it.

use std::time::SystemTime;

use tokio::time::Instant;

/// A wall clock. The system time is read once; from then on it advances monotonically.
#[derive(Clone, Copy, Debug)]
pub struct WallClock {
    began: SystemTime,
    since: Instant,
}

impl WallClock {
    /// Creates a clock that shows the system time.
    pub fn start() -> Self {
        Self::starting_at(SystemTime::now())
    }

    /// Creates a clock that shows this time now.
    pub fn starting_at(began: SystemTime) -> Self {
        Self { began, since: Instant::now() }
    }

    /// Returns the wall-clock time of an instant, before or after the clock was created.
    pub fn at(&self, moment: Instant) -> SystemTime {
        match moment.checked_duration_since(self.since) {
            Some(after) => self.began + after,
            None => self.began.checked_sub(self.since - moment).unwrap_or(self.began),
        }
    }

    /// Returns the current time.
    pub fn now(&self) -> SystemTime {
        self.began + self.since.elapsed()
    }
}
