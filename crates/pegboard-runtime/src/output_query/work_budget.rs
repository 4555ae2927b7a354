//! Work budget of a page.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Time limit for producing a page. The remaining work is left to the next page.
///
/// Pages are produced on blocking threads, so the system clock is used, not Tokio's.
#[derive(Clone, Debug, Default)]
pub struct WorkBudget {
    until: Option<Instant>,
    is_cancelled: Arc<AtomicBool>,
}

impl WorkBudget {
    /// A budget without limit.
    pub fn unlimited() -> Self {
        Self::default()
    }

    /// A budget that expires after a duration.
    pub fn within(limit: Duration) -> Self {
        Self { until: Instant::now().checked_add(limit), ..Self::default() }
    }

    /// Returns a guard that cancels the work when dropped.
    pub fn guard(&self) -> WorkGuard {
        WorkGuard(Arc::clone(&self.is_cancelled))
    }

    /// Returns `true` if the work should stop.
    pub(super) fn is_exhausted(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed) || self.until.is_some_and(|until| Instant::now() >= until)
    }
}

/// Guard that cancels the work when dropped.
#[derive(Debug)]
pub struct WorkGuard(Arc<AtomicBool>);

impl Drop for WorkGuard {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
