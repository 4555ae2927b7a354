//! WebSocket transport of both roles: one text frame per message, subprotocol `mcp`.

#[cfg(feature = "http-client")]
pub mod client;
mod pump;
#[cfg(feature = "http-server")]
pub mod server;
