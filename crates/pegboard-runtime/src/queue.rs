//! Concurrency limits with fair scheduling.
//!
//! A queue has a number of slots. When all are in use, callers wait: the highest priority goes first, and
//! priority grows with waiting time, which prevents starvation. Within a priority, sessions take turns, and
//! within a session the order is first in, first out.

use std::time::Duration;

pub use self::slots::{Acquire, Queue, QueueSlot};

mod scheduler;
mod slots;

/// Synchronization primitives of the queue; its tests substitute others to explore interleavings.
mod sync {
    pub(super) use parking_lot::{Mutex, MutexGuard};

    pub(super) use tokio::time::{Sleep, sleep};
}

/// Options of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueOptions {
    /// Maximum number of concurrent calls; `None` if unlimited.
    pub max_concurrency: Option<usize>,
    /// Maximum number of waiting calls; further ones are refused immediately.
    pub max_waiting: usize,
    /// Maximum waiting time; `None` if unlimited.
    pub wait_timeout: Option<Duration>,
    /// Waiting time after which the priority rises by one level.
    pub ageing: Duration,
}

impl Default for QueueOptions {
    /// A queue without limits.
    fn default() -> Self {
        Self {
            max_concurrency: None,
            max_waiting: 10_000,
            wait_timeout: None,
            ageing: Duration::from_secs(5),
        }
    }
}

impl QueueOptions {
    /// Options for a queue with a number of slots, at least one.
    pub fn of(max_concurrency: usize) -> Self {
        Self { max_concurrency: Some(max_concurrency.max(1)), ..Self::default() }
    }
}

/// Priority of a call, from −10 to 10.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(i8);

impl Priority {
    /// Creates a priority, clamping `level` to the valid range.
    pub fn new(level: i8) -> Self {
        Self(level.clamp(-10, 10))
    }

    /// Returns the level.
    pub fn level(self) -> i8 {
        self.0
    }
}

/// Identifies a session for fair scheduling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionKey(pub u64);

/// Error of acquiring a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    /// The maximum number of calls is already waiting.
    #[error("the queue is full: {waiting} calls are waiting")]
    Full {
        /// Number of waiting calls.
        waiting: usize,
    },
    /// No slot became free within the maximum waiting time.
    #[error("no slot became free within {0:?}")]
    TimedOut(Duration),
}

/// Wait statistics of an acquired slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotWait {
    /// Waiting time; `None` if a slot was free.
    pub waited: Option<Duration>,
    /// Initial position in the queue, from 1; 0 if a slot was free.
    pub position: usize,
}

/// Load of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueDepth {
    /// Number of slots; `None` if unlimited.
    pub capacity: Option<usize>,
    /// Number of slots in use.
    pub in_use: usize,
    /// Number of waiting calls.
    pub waiting: usize,
}
