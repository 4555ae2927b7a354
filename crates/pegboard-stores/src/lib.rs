//! Stores of state: in memory, and in SQLite on disk.
//!
//! The traits are in [`pegboard_core::store`]:
//!
//! - [`sqlite`]: one [`Database`](sqlite::Database) implements all of them, in a file that several processes may
//!   share or in memory;
//! - [`memory`]: the cache and the queue slots in memory, without a detour through a thread;
//! - [`limits`]: capacity limits, the same for both.
//!
//! Expired entries are invisible to readers at once, and are removed at the next write. No store reads a
//! clock: the caller passes the current time.

pub mod limits;
pub mod memory;
pub mod sqlite;
