//! WebSocket, both roles: one text message for each message, subprotocol `mcp`.

pub mod client;
mod pump;
pub mod server;
