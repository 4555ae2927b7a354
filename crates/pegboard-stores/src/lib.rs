//! Stores of state: in memory, and in SQLite on disk.
//!
//! The traits are in [`pegboard_core::store`]; each has two implementations with the same behaviour:
//!
//! - [`memory`]: in memory, one type per trait;
//! - [`sqlite`]: in a file that several processes may share, one [`Database`](sqlite::Database) for all seven traits;
//! - [`limits`]: capacity limits, the same for both.
//!
//! Expired entries are invisible to readers at once, and are removed at the next write. No store reads a
//! clock: the caller passes the current time.

pub mod limits;
pub mod memory;
pub mod sqlite;
mod stored_trace;

use pegboard_core::store::StoreError;

/// The error for binding a handle to an unknown session: otherwise two callers could each believe that theirs
/// won.
fn no_such_session() -> StoreError {
    let reason = "cannot bind the handle: the session does not exist".to_owned();
    StoreError::Failed { reason }
}
