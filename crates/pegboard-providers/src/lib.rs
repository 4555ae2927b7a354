//! Where tools come from.
//!
//! - [`process`]: programs that are started, watched and ended with everything they started themselves.

pub mod process;
