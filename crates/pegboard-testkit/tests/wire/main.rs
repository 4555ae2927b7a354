//! Our client against our server, over every transport and in both eras, and both against invalid input.

#![expect(clippy::unwrap_used, reason = "a panic is a test failure")]

mod eras;
mod framing;
mod hostile;
mod http_server;
mod order;
mod support;
