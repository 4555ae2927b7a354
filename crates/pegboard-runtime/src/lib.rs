//! How calls are carried out.
//!
//! - [`queue`]: how many calls run at once, and who goes next.

pub mod queue;
