//! Where state lives: memory, and SQLite on disk.
//!
//! The traits are in [`pegboard_core::store`]; each has two implementations that behave alike:
//!
//! - [`memory`]: gone with the process, one type for each trait;
//! - [`sqlite`]: a file that several processes may share, one [`Database`](sqlite::Database) for all seven traits;
//! - [`limits`]: how much a store may keep, the same for both.
//!
//! What has expired is gone for readers at once, and leaves the store at its next write. Nothing in here reads a
//! clock: whoever asks says what time it is.

pub mod limits;
pub mod memory;
pub mod sqlite;
mod trace_text;

use pegboard_core::store::StoreError;

/// A handle can only stand for a session that is there: otherwise two callers could each believe that theirs won.
fn no_such_session() -> StoreError {
    let reason = "there is no such session to bind the handle to; create it first".to_owned();
    StoreError::Failed { reason }
}
