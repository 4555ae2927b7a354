//! WebSocket transport of both roles: one text frame per message, subprotocol `mcp`.

#[cfg(feature = "http-client")]
pub mod client;
#[cfg(feature = "http-server")]
mod message_input;
mod pump;
#[cfg(feature = "http-server")]
pub mod server;
