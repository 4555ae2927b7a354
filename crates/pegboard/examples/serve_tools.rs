//! An MCP server over stdio with a tool of its own. Register it with a client as the command of a server.

#![expect(clippy::unused_async, reason = "tools are async functions")]

use pegboard::prelude::*;

/// Convert a temperature to Fahrenheit.
#[tool(read_only)]
async fn fahrenheit(
    /// Degrees Celsius
    celsius: f64,
) -> Result<f64> {
    Ok(celsius * 9.0 / 5.0 + 32.0)
}

#[tokio::main]
async fn main() -> Result<()> {
    pegboard::serve(tools![fahrenheit]).await
}
