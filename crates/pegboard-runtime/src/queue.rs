//! How many calls run at once, and who goes next.
//!
//! A queue has a number of slots. Who finds none free waits: the highest priority goes first, and whoever waits
//! gains priority with time, so that nobody starves. Within a priority sessions take turns, and within a session
//! the first to come is the first to go.

use std::time::Duration;

pub use self::slots::{Acquire, Queue, Slot};

mod slots;
mod turns;

/// What a queue locks and waits with; its tests put others in their place, to try all kinds of orders of events.
mod sync {
    pub(super) use std::sync::{Mutex, MutexGuard};

    pub(super) use tokio::time::{Sleep, sleep};
}

/// How a queue behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How many calls run at once; `None` for as many as come.
    pub max_concurrency: Option<usize>,
    /// How many may wait; more are refused at once.
    pub max_waiting: usize,
    /// How long one may wait; `None` for as long as the caller does.
    pub wait_timeout: Option<Duration>,
    /// After how long a waiter counts as one priority higher.
    pub ageing: Duration,
}

impl Default for Settings {
    /// A queue without a limit.
    fn default() -> Self {
        Self {
            max_concurrency: None,
            max_waiting: 10_000,
            wait_timeout: None,
            ageing: Duration::from_secs(5),
        }
    }
}

impl Settings {
    /// A queue of so many slots, at least one.
    pub fn of(max_concurrency: usize) -> Self {
        Self { max_concurrency: Some(max_concurrency.max(1)), ..Self::default() }
    }
}

/// How urgent a call is, from −10 to 10.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(i8);

impl Priority {
    /// The priority nearest to `level`.
    pub fn new(level: i8) -> Self {
        Self(level.clamp(-10, 10))
    }

    /// The level.
    pub fn level(self) -> i8 {
        self.0
    }
}

/// Whose turn it is to be, among those of one priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionKey(pub u64);

/// Why there is no slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    /// Too many wait already.
    #[error("the queue is full: {waiting} calls wait already")]
    Full {
        /// How many wait.
        waiting: usize,
    },
    /// No slot became free in time.
    #[error("no slot became free within {0:?}")]
    TimedOut(Duration),
}

/// How a slot was had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// How long it took; `None` if there was a free one.
    pub waited: Option<Duration>,
    /// The place in the queue at the beginning, from 1; 0 if there was a free one.
    pub place: usize,
}

/// How busy a queue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depth {
    /// How many calls may run at once; `None` for as many as come.
    pub capacity: Option<usize>,
    /// How many run.
    pub in_use: usize,
    /// How many wait.
    pub waiting: usize,
}
