//! What a runtime does with calls, driven from the outside, with time that stands still unless somebody waits.

#![expect(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod board;

mod batches;
mod caches;
mod chains;
mod contracts;
mod history;
mod hostile;
mod lives;
mod queues;
mod records;
mod reloads;
mod sizes;
mod stores;
mod tasks;
mod times;
mod toolboxes;
