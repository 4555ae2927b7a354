//! What a server may do, and what nobody else notices of it.
//!
//! Every case is a gateway with two servers: one decent, one that misbehaves in one way. [`case`] holds what must be
//! true of all of them.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod addresses;
mod case;
mod crowd;
mod host;
mod killed;
mod processes;
mod programs;
