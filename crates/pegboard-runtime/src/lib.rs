//! The tool runtime: catalogue, call pipeline, sessions and observability.
//!
//! A [`Runtime`] holds all tools; a [`Caller`] makes calls. From the outside in:
//!
//! - [`catalogue`]: the tool catalogue and name resolution, with [`names`], [`filter`] and [`search`];
//! - [`toolbox`]: groups of servers that are opened together; [`drain`] tracks their use;
//! - [`CallBuilder`] starts a call; `call` is its lifecycle: record, admit, then the layers of `pipeline`
//!   (output limit, cache, queue, timeout, execute);
//! - [`queue`] and [`queues`]: concurrency limits and fair scheduling;
//! - [`output_query`]: paged reading of stored outputs;
//! - [`requests`]: requests to servers other than tool calls;
//! - [`suspended`]: calls that continue while their caller is away;
//! - [`sessions`]: the session and workspace of a call;
//! - [`trace`]: trace records of calls made in sessions; [`trace_id`] identifies a call after its end; `call_log` writes
//!   both to the call log;
//! - [`optree`]: the operation tree of a session;
//! - [`event`]: the event bus, with [`log`], [`metrics`] and [`spans`] as its consumers.

mod batch;
mod call;
mod call_log;
mod caller;
pub mod catalogue;
mod chains;
mod costly_validation;
pub mod drain;
pub mod event;
pub mod filter;
pub mod log;
pub mod metrics;
pub mod names;
pub mod optree;
pub mod output_query;
mod outputs;
mod pipeline;
pub mod queue;
pub mod queues;
pub mod random;
mod runtime;
pub mod search;
pub mod sessions;
pub mod spans;
mod store_timeout;
pub mod toolbox;
pub mod trace;
pub mod trace_id;
pub mod wall_clock;

pub use batch::BatchItem;
pub use call::registry::{CallId, CallStarted, CallState, CallStatus, MAX_CALLS, MAX_CALLS_PER_CALLER};
pub use call::{CallBuilder, requests, suspended};
pub use call_log::logged_operation;
pub use caller::{Caller, CallerOptions, OutputRetention, ServerAffinity, SessionMode};
pub use chains::ChainRun;
pub use runtime::{
    PlanChanges, PreparedPlan, RedactedSecrets, Runtime, RuntimeBuilder, RuntimePlan, StartError,
};
