//! Integration tests of the runtime.

#![expect(clippy::unwrap_used, reason = "a panic is a test failure")]

mod calls;
mod catalogue;
mod log;
mod metrics;
mod names;
mod optree;
mod output_query;
mod queue;
mod queue_order;
mod queue_schedules;
mod search;
mod sessions;
