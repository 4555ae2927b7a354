//! Behaviour shared by all engines.

#![expect(clippy::unwrap_used, reason = "a panic is a test failure")]

mod agreement;
mod cache;
mod catalogue;
mod engine;
mod history;
mod outputs;
mod sessions;
mod slots;
mod traces;
