//! Fault injection: a faulty server must not affect others.
//!
//! Every case is a gateway with two servers: one healthy, one with a single fault. [`case`] checks the common
//! invariants.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a panic is a test failure")]

mod addresses;
mod case;
mod gateway;
mod hanging;
mod killed;
mod processes;
mod programs;
mod reliability_page;
