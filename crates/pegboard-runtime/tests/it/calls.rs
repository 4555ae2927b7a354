//! End-to-end tests of the runtime, with paused time.

mod fixtures;

mod batches;
mod caches;
mod call_log;
mod chains;
mod hostile;
mod lifecycle;
mod names;
mod queues;
mod records;
mod reloads;
mod session_calls;
mod sizes;
mod stores;
mod tasks;
mod times;
mod toolboxes;
