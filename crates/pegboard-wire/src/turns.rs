//! Turns of requests that arrive in a crowd: few of them begin in each pass of the scheduler, so that other work goes on.

use std::future::Future;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task;

/// Maximum number of requests that a thread begins before it looks at other work again.
pub(crate) const MAX_TURNS: usize = 32;

thread_local! {
    static TURNS: Arc<Semaphore> = Arc::new(Semaphore::new(MAX_TURNS));
}

/// The turn of a request. It must be dropped when the request has been polled for the first time, and must not be held
/// while anything is awaited.
#[derive(Debug)]
pub(crate) struct Turn {
    _permit: OwnedSemaphorePermit,
}

/// Waits for the turn of a request. Those that wait on one thread get it in the order in which they came.
pub(crate) fn take_turn() -> impl Future<Output = Turn> + Send + 'static {
    let turns = TURNS.with(Arc::clone);
    async move {
        let permit = turns.acquire_owned().await.expect("it is never closed");
        // Whatever is ready by now goes first.
        task::yield_now().await;
        Turn { _permit: permit }
    }
}
