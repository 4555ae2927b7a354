//! End-to-end tests of the gateway with real processes.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a panic is a test failure")]

mod actor;
mod stage;

mod agents;
mod bytes;
mod clients;
mod configurations;
mod contract;
mod discovery;
mod guards;
mod lives;
mod load;
mod openapi;
mod questions;
mod reloads;
mod rest;
mod tasks;
mod toolboxes;
