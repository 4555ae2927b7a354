//! Where tools come from.
//!
//! - [`mcp`]: MCP servers, wherever they are;
//! - [`process`]: programs that are started, watched and ended with everything they started themselves.

pub mod mcp;
pub mod process;
