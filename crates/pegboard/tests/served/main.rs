//! End-to-end tests of the gateway with real processes.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a panic is a test failure")]

mod harness;

mod agents;
mod bytes;
mod clients;
mod configurations;
mod contract;
mod discovery;
mod elicitation;
mod guards;
mod lifecycle;
mod live_table;
mod load;
mod logins;
mod openapi;
mod other_users;
mod reloads;
mod remote;
mod rest;
mod shared;
mod state;
mod tasks;
mod terminal;
mod threads;
mod toolboxes;
