//! Stores that are gone with the process.
//!
//! Each is a handful of maps behind a lock that is never held across an await. Finding and keeping take time that
//! grows with the logarithm of what is kept.

mod cache;
mod catalogue;
mod history;
mod outputs;
mod sessions;
mod shelf;
mod slots;
mod traces;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use self::cache::Cache;
pub use self::catalogue::Catalogue;
pub use self::history::History;
pub use self::outputs::Outputs;
pub use self::sessions::Sessions;
pub use self::slots::Slots;
pub use self::traces::Traces;

/// What a store keeps, for as long as one thing is done to it.
fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing can panic while the lock is held and the indexes do not match.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
