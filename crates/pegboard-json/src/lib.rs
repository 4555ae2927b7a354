//! JSON that passes through as it came: checked once, then only looked into.
//!
//! - [`RawJson`]: one value as the bytes it was written in;
//! - [`canonical`]: one spelling for values that mean the same;
//! - [`twin_name`], [`twin_member`]: members that share a name;
//! - [`scan`]: how text is walked through without building a tree.

mod canonical;
mod indent;
mod raw;
pub mod scan;
mod splice;
mod twins;
mod walk;

pub use canonical::canonical;
pub use raw::RawJson;
pub use scan::{MAX_DEPTH, Malformed};
pub use twins::{twin_member, twin_name};
