//! How much work one page is worth.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a page may be worked on. What is left is for the next page.
///
/// Reading happens on a thread of its own, where time is that of the machine.
#[derive(Clone, Debug, Default)]
pub struct Effort {
    until: Option<Instant>,
    given_up: Arc<AtomicBool>,
}

impl Effort {
    /// As long as it takes.
    pub fn unlimited() -> Self {
        Self::default()
    }

    /// So long at most, from now on.
    pub fn within(limit: Duration) -> Self {
        Self { until: Instant::now().checked_add(limit), ..Self::default() }
    }

    /// Gives up as soon as the guard is dropped.
    pub fn guard(&self) -> GiveUp {
        GiveUp(Arc::clone(&self.given_up))
    }

    /// Whether it is time to stop.
    pub(super) fn is_over(&self) -> bool {
        self.given_up.load(Ordering::Relaxed) || self.until.is_some_and(|until| Instant::now() >= until)
    }
}

/// Somebody waits for the page as long as this is there.
#[derive(Debug)]
pub struct GiveUp(Arc<AtomicBool>);

impl Drop for GiveUp {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
