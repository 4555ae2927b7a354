//! MCP servers as providers, against servers of this process.

#![expect(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod stage;
mod tasks;

mod calls;
mod extras;
mod hostile;
mod lists;
mod lives;
mod programs;
mod questions;
mod recall;
mod remote;
mod requests;
mod sessions;
mod traces;
mod whole;
