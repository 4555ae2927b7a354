//! Integration tests of the MCP wire layer.

#![expect(clippy::unwrap_used, reason = "a panic is a test failure")]

mod client_transports;
mod envelope;
