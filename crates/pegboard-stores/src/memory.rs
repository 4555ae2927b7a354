//! In-memory stores for what is on the path of a call, which do not outlive the process.
//!
//! Each is a handful of maps behind a lock that is never held across an await. Lookup and insertion take
//! logarithmic time. Everything else is kept in memory by
//! [`Database::in_memory`](crate::sqlite::Database::in_memory).

mod cache;
mod slots;
mod ttl_map;

pub use self::cache::MemoryCache;
pub use self::slots::MemorySlots;
