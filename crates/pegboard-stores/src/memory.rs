//! In-memory stores, which do not outlive the process.
//!
//! Each is a handful of maps behind a lock that is never held across an await. Lookup and insertion take
//! logarithmic time.

mod cache;
mod catalogue;
mod history;
mod outputs;
mod sessions;
mod slots;
mod traces;
mod ttl_map;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use self::cache::MemoryCache;
pub use self::catalogue::MemoryCatalogue;
pub use self::history::MemoryHistory;
pub use self::outputs::MemoryOutputs;
pub use self::sessions::MemorySessions;
pub use self::slots::MemorySlots;
pub use self::traces::MemoryTraces;

/// Locks the state of a store for one operation.
fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    // No panic is possible while the lock is held and the indexes are inconsistent.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
