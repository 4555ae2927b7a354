//! The queue as its users see it: slots to wait for, to hold and to give back.

use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use super::sync::{Mutex, MutexGuard, Sleep, sleep};
use super::turns::{State, Ticket};
use super::{Depth, Priority, QueueError, SessionKey, Settings, Wait};

/// A queue. Clones are the same queue.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use pegboard_runtime::queue::{Priority, Queue, SessionKey, Settings};
///
/// let queue = Queue::new(Settings::of(1));
/// let first = queue.acquire(SessionKey(1), Priority::default()).await.unwrap();
/// let waiting = queue.acquire(SessionKey(2), Priority::new(5));
/// drop(first);
/// assert_eq!(waiting.await.unwrap().wait().place, 1);
/// # });
/// ```
#[derive(Clone, Debug)]
pub struct Queue(Arc<Shared>);

impl Queue {
    /// A queue that nobody uses yet.
    pub fn new(settings: Settings) -> Self {
        Self(Arc::new(Shared { state: Mutex::new(State::new(settings)) }))
    }

    /// A slot, now or when it is this one's turn. The place in the queue is taken at once; dropping gives it up.
    pub fn acquire(&self, session: SessionKey, priority: Priority) -> Acquire {
        let mut state = self.0.state();
        if let Some(wait) = state.take() {
            return Acquire(Some(Acquiring::Had(Slot { shared: Arc::clone(&self.0), wait })));
        }
        let entered = state.enter(session, priority);
        drop(state);
        Acquire(Some(match entered {
            Ok((ticket, place, limit)) => {
                let mut waiting = Waiting { shared: Arc::clone(&self.0), ticket, place, limit: None };
                // Outside a runtime this panics, and gives the place up again.
                waiting.limit = limit.map(|limit| (limit, Box::pin(sleep(limit))));
                Acquiring::Waiting(waiting)
            }
            Err(error) => Acquiring::Refused(error),
        }))
    }

    /// Changes the queue while it is in use: more slots are given out at once, fewer as they come back.
    pub fn resize(&self, settings: Settings) {
        let woken = self.0.state().resize(settings);
        for waker in woken {
            waker.wake();
        }
    }

    /// How busy the queue is.
    pub fn depth(&self) -> Depth {
        self.0.state().depth()
    }
}

/// Wakers are woken and dropped without the lock: either may run a task that takes it.
#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing can panic while the lock is held and the counts do not match.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to run one call. Dropping it lets the next one go.
#[derive(Debug)]
pub struct Slot {
    shared: Arc<Shared>,
    wait: Wait,
}

impl Slot {
    /// How it was had.
    pub fn wait(&self) -> Wait {
        self.wait
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let woken = self.shared.state().release();
        if let Some(waker) = woken {
            waker.wake();
        }
    }
}

/// A slot to come. Dropping it gives the place in the queue up.
#[derive(Debug)]
pub struct Acquire(Option<Acquiring>);

#[derive(Debug)]
enum Acquiring {
    Had(Slot),
    Refused(QueueError),
    Waiting(Waiting),
}

#[derive(Debug)]
struct Waiting {
    shared: Arc<Shared>,
    ticket: Ticket,
    place: usize,
    limit: Option<(Duration, Pin<Box<Sleep>>)>,
}

impl Acquire {
    /// The place in the queue at the beginning, from 1; `None` if there is nothing to wait for.
    pub fn place(&self) -> Option<usize> {
        match &self.0 {
            Some(Acquiring::Waiting(waiting)) => Some(waiting.place),
            Some(Acquiring::Had(_) | Acquiring::Refused(_)) | None => None,
        }
    }
}

impl Future for Acquire {
    type Output = Result<Slot, QueueError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.0.take() {
            Some(Acquiring::Had(slot)) => Poll::Ready(Ok(slot)),
            Some(Acquiring::Refused(error)) => Poll::Ready(Err(error)),
            Some(Acquiring::Waiting(mut waiting)) => {
                let polled = waiting.poll(context);
                if polled.is_pending() {
                    self.0 = Some(Acquiring::Waiting(waiting));
                }
                polled
            }
            None => panic!("a slot is acquired once"),
        }
    }
}

impl Waiting {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Slot, QueueError>> {
        let mut state = self.shared.state();
        if let Some(wait) = state.collect(self.ticket) {
            return Poll::Ready(Ok(Slot { shared: Arc::clone(&self.shared), wait }));
        }
        let replaced = state.watch(self.ticket, context.waker());
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

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        let given = state.collect(self.ticket);
        let left = state.leave(self.ticket);
        drop(state);
        drop(left);
        // If the slot was given in the meantime, it goes to the next.
        drop(given.map(|wait| Slot { shared: Arc::clone(&self.shared), wait }));
    }
}
