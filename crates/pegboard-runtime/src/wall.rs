//! The time of day, which runs with the clock that tests can stop.

use std::time::SystemTime;

use tokio::time::Instant;

/// The time of day. It is read once; from then on it runs evenly, whatever happens to the system's clock.
#[derive(Clone, Copy, Debug)]
pub struct WallClock {
    began: SystemTime,
    since: Instant,
}

impl WallClock {
    /// The time of day from now on.
    pub fn start() -> Self {
        Self::starting_at(SystemTime::now())
    }

    /// A clock that shows this time now.
    pub fn starting_at(began: SystemTime) -> Self {
        Self { began, since: Instant::now() }
    }

    /// What time it was at a moment, before the clock was started or since.
    pub fn at(&self, moment: Instant) -> SystemTime {
        match moment.checked_duration_since(self.since) {
            Some(after) => self.began + after,
            None => self.began.checked_sub(self.since - moment).unwrap_or(self.began),
        }
    }

    /// What time it is.
    pub fn now(&self) -> SystemTime {
        self.began + self.since.elapsed()
    }
}
