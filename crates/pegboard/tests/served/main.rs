//! The gateway as clients meet it: the program itself, with servers that are programs.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test says what it expects by failing")]

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
