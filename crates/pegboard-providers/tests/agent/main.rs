//! Agents with scripted models.

#![expect(clippy::unwrap_used, reason = "a panic is a test failure")]

mod harness;

mod builtins;
mod inputs;
mod limits;
mod outputs;
mod reports;
mod routers;
mod sampling;
mod trees;
