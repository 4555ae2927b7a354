//! How calls are carried out.
//!
//! - [`event`]: everything that happens, as one stream;
//! - [`catalogue`]: which tools there are, and how one is found;
//! - [`names`]: the names that models and clients see;
//! - [`filter`]: which tools of a server may be seen and called;
//! - [`queue`]: how many calls run at once, and who goes next;
//! - [`sessions`]: which session and workspace a call belongs to;
//! - [`trace`]: what was done, written down for later;
//! - [`redact`]: what is blotted out before anybody reads it.
//! - [`optree`]: what happened in a session, and what it used;
//! - [`queue`]: how many calls run at once, and who goes next.
//! - [`reading`]: stored outputs, read piece by piece.
//! - [`search`]: tools by what they are about.
//! - [`metrics`], [`log`] and [`spans`]: what happened, in numbers, in words, and as part of a trace.

pub mod event;
pub mod catalogue;
pub mod filter;
pub mod log;
pub mod metrics;
pub mod names;
pub mod optree;
pub mod queue;
pub mod redact;
pub mod sessions;
pub mod trace;
pub mod reading;
pub mod search;
pub mod spans;
