//! Raw JSON: validated once, then inspected and passed through without parsing into a tree.
//!
//! - [`RawJson`]: one value as the bytes it was written in;
//! - [`canonical`]: canonical form of a value;
//! - [`duplicate_key`], [`duplicate_member`]: detection of duplicate keys;
//! - [`scan`]: scanning JSON text without building a tree.

mod canonical;
mod cursor;
mod duplicate_keys;
mod indent;
mod raw;
pub mod scan;
mod single_line;
mod splice;

pub use canonical::canonical;
pub use duplicate_keys::{duplicate_key, duplicate_member};
pub use raw::RawJson;
pub use scan::{MAX_DEPTH, Malformed};
