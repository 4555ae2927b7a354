//! Agents, against models that follow a script.

#![expect(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod stage;

mod builtins;
mod inputs;
mod limits;
mod outputs;
mod reports;
mod routers;
mod sampling;
mod trees;
