//! Validations that take long run on threads of their own, a few at a time, so that other calls do not wait for them.

use std::sync::Arc;

use pegboard_core::error::{CallError, Executed};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

/// Maximum number of validations at once.
const MAX_AT_ONCE: usize = 2;

/// Threads for costly validations.
#[derive(Debug)]
pub(crate) struct ValidationThreads(Arc<Semaphore>);

impl Default for ValidationThreads {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_AT_ONCE)))
    }
}

impl ValidationThreads {
    /// Runs a validation, before or after the tool is `executed`. One that has begun ends, even if its call is
    /// cancelled, and counts until then.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        tasks: &TaskTracker,
        executed: Executed,
        validate: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, CallError> {
        let slot = Arc::clone(&self.0).acquire_owned().await.expect("the semaphore is never closed");
        let validation = tasks.spawn_blocking(move || {
            let validated = validate();
            drop(slot);
            validated
        });
        // It does not panic, and is not started any more once the event loop ends.
        validation
            .await
            .map_err(|_| CallError::Canceled { reason: "the runtime is shutting down".to_owned(), executed })
    }
}
