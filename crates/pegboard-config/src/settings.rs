//! Settings as written, where they differ from the resolved ones that the runtime uses.

mod mcp;
mod rest;

pub use mcp::{IncompleteServer, McpServerSettings, ServerType};
pub use rest::{InvalidRestTool, RestToolSettings};
