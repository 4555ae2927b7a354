//! WebSocket transport of both roles: one text frame per message, subprotocol `mcp`.

pub mod client;
mod pump;
pub mod server;
