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

pub use self::cache::MemoryCache;
pub use self::catalogue::MemoryCatalogue;
pub use self::history::MemoryHistory;
pub use self::outputs::MemoryOutputs;
pub use self::sessions::MemorySessions;
pub use self::slots::MemorySlots;
pub use self::traces::MemoryTraces;
