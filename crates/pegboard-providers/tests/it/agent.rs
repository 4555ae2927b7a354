//! Agents with scripted models.

mod harness;

mod builtins;
mod inputs;
mod limits;
mod outputs;
mod reports;
mod routers;
mod trees;
