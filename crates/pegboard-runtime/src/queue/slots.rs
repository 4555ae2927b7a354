//! The queue as its users see it: acquiring, holding and releasing slots.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::scheduler::{QueueScheduler, WaiterKey};
use super::sync::{Mutex, MutexGuard, Sleep, sleep};
use super::{Priority, QueueDepth, QueueError, QueueOptions, SessionKey, SlotWait};

/// A queue. Clones share the queue.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use pegboard_runtime::queue::{Priority, Queue, SessionKey, QueueOptions};
///
/// let queue = Queue::new(QueueOptions::of(1));
/// let first = queue.acquire(SessionKey(1), Priority::default()).await.unwrap();
/// let waiting = queue.acquire(SessionKey(2), Priority::new(5));
/// drop(first);
/// assert_eq!(waiting.await.unwrap().wait().position, 1);
/// # });
/// ```
#[derive(Clone, Debug)]
pub struct Queue(Arc<QueueInner>);

impl Queue {
    /// Creates an empty queue.
    pub fn new(settings: QueueOptions) -> Self {
        Self(Arc::new(QueueInner { state: Mutex::new(QueueScheduler::new(settings)) }))
    }

    /// Acquires a slot. The position in the queue is taken immediately; dropping the future gives it up.
    pub fn acquire(&self, session: SessionKey, priority: Priority) -> Acquire {
        let mut state = self.0.state();
        if let Some(wait) = state.try_take() {
            return Acquire(Some(AcquireState::Ready(QueueSlot { shared: Arc::clone(&self.0), wait })));
        }
        let entered = state.enqueue(session, priority);
        drop(state);
        Acquire(Some(match entered {
            Ok((key, position, limit)) => {
                let mut waiting = QueuedWaiter { shared: Arc::clone(&self.0), key, position, limit: None };
                // Outside a Tokio runtime this panics, which drops the waiter and gives up its position.
                waiting.limit = limit.map(|limit| (limit, Box::pin(sleep(limit))));
                AcquireState::Waiting(waiting)
            }
            Err(error) => AcquireState::Refused(error),
        }))
    }

    /// Changes the options of a queue in use: additional slots are granted immediately, surplus ones
    /// disappear as they are released.
    pub fn resize(&self, settings: QueueOptions) {
        let woken = self.0.state().resize(settings);
        for waker in woken {
            waker.wake();
        }
    }

    /// Returns the current load.
    pub fn depth(&self) -> QueueDepth {
        self.0.state().depth()
    }
}

/// Wakers are woken and dropped outside the lock: either may run a task that takes it.
#[derive(Debug)]
struct QueueInner {
    state: Mutex<QueueScheduler>,
}

impl QueueInner {
    fn state(&self) -> MutexGuard<'_, QueueScheduler> {
        // No code panics while the lock is held and the counts are inconsistent.
        self.state.lock()
    }
}

/// The right to run one call. Dropping it grants the slot to the next waiter.
#[derive(Debug)]
pub struct QueueSlot {
    shared: Arc<QueueInner>,
    wait: SlotWait,
}

impl QueueSlot {
    /// Returns the wait statistics.
    pub fn wait(&self) -> SlotWait {
        self.wait
    }
}

impl Drop for QueueSlot {
    fn drop(&mut self) {
        let woken = self.shared.state().release();
        if let Some(waker) = woken {
            waker.wake();
        }
    }
}

/// Future of [`Queue::acquire`]. Dropping it gives up the position in the queue.
#[derive(Debug)]
pub struct Acquire(Option<AcquireState>);

#[derive(Debug)]
enum AcquireState {
    Ready(QueueSlot),
    Refused(QueueError),
    Waiting(QueuedWaiter),
}

#[derive(Debug)]
struct QueuedWaiter {
    shared: Arc<QueueInner>,
    key: WaiterKey,
    position: usize,
    limit: Option<(Duration, Pin<Box<Sleep>>)>,
}

impl Acquire {
    /// Returns the initial position in the queue, from 1; `None` if there is nothing to wait for.
    pub fn position(&self) -> Option<usize> {
        match &self.0 {
            Some(AcquireState::Waiting(waiting)) => Some(waiting.position),
            Some(AcquireState::Ready(_) | AcquireState::Refused(_)) | None => None,
        }
    }
}

impl Future for Acquire {
    type Output = Result<QueueSlot, QueueError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.0.take() {
            Some(AcquireState::Ready(slot)) => Poll::Ready(Ok(slot)),
            Some(AcquireState::Refused(error)) => Poll::Ready(Err(error)),
            Some(AcquireState::Waiting(mut waiting)) => {
                let polled = waiting.poll(context);
                if polled.is_pending() {
                    self.0 = Some(AcquireState::Waiting(waiting));
                }
                polled
            }
            None => panic!("`Acquire` polled after completion"),
        }
    }
}

impl QueuedWaiter {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<QueueSlot, QueueError>> {
        let mut state = self.shared.state();
        if let Some(wait) = state.take_granted(self.key) {
            return Poll::Ready(Ok(QueueSlot { shared: Arc::clone(&self.shared), wait }));
        }
        let replaced = state.register_waker(self.key, context.waker());
        drop(state);
        drop(replaced);
        if let Some((limit, sleep)) = &mut self.limit
            && sleep.as_mut().poll(context).is_ready()
        {
            return Poll::Ready(Err(QueueError::TimedOut(*limit)));
        }
        Poll::Pending
    }
}

impl Drop for QueuedWaiter {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        let granted = state.take_granted(self.key);
        let left = state.remove_waiter(self.key);
        drop(state);
        drop(left);
        // If a slot was granted in the meantime, it passes to the next waiter.
        drop(granted.map(|wait| QueueSlot { shared: Arc::clone(&self.shared), wait }));
    }
}
