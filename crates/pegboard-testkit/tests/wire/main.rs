//! Our client against our server, over every transport and in both eras, and both against what nobody should send.

#![expect(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod eras;
mod framing;
mod hostile;
mod http_server;
mod order;
mod support;
