//! Integration tests of the stores.

#![expect(clippy::unwrap_used, reason = "a panic is a test failure")]

mod behaviour;
mod database;
mod numbered_outputs;
