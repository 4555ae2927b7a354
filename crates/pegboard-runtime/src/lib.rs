//! How calls are carried out.
//!
//! A [`Runtime`] has every tool there is; a [`Caller`] makes calls. From the outside in:
//!
//! - [`catalogue`]: which tools there are, and how one is found; [`names`], [`filter`] and [`search`] serve it;
//! - [`toolbox`]: servers under one name, opened together; [`usage`] says who uses one;
//! - `carry`: one call from its start to its end: record, admit, then the rings of `pipeline`:
//!   cap, cache, queue, timeout, execute;
//! - [`queue`] and [`queues`]: how many calls run at once, and who goes next;
//! - [`reading`]: answers that were too large to hand over, read back piece by piece;
//! - [`requests`]: what servers do beside calls of their tools;
//! - [`park`]: calls that go on while nobody waits for them;
//! - [`sessions`]: which session and workspace a call belongs to;
//! - [`trace`]: what was done, written down for later; [`trace_id`] finds one call again;
//! - [`optree`]: all that happened in a session;
//! - [`event`]: everything that happens, as one stream, which [`log`], [`metrics`] and [`spans`] read;

mod batch;
mod caller;
mod callers;
mod calls;
mod carry;
pub mod catalogue;
mod chains;
mod clock;
mod contract;
mod diary;
pub mod event;
pub mod filter;
mod flight;
mod history;
mod lease;
pub mod log;
pub mod metrics;
pub mod names;
pub mod optree;
mod outputs;
pub mod park;
mod pipeline;
pub mod queue;
pub mod queues;
pub mod reading;
pub mod requests;
mod runtime;
pub mod search;
mod select;
pub mod sessions;
pub mod spans;
pub mod toolbox;
pub mod trace;
pub mod trace_id;
pub mod usage;
pub mod wall;

pub use caller::{Caller, CallerOptions, Leaves, Memory};
pub use calls::{Begun, CallId, CallState, CallStatus, MAX_CALLS, MAX_CALLS_EACH};
pub use chains::ChainRun;
pub use runtime::{Builder, Changes, Plan, Prepared, Runtime, StartError};
