//! Integration tests of the test peers, and of the wire layer against them.

#![expect(clippy::unwrap_used, reason = "a panic is a test failure")]

mod hostile;
mod model_server;
mod rmcp;
mod wire;
