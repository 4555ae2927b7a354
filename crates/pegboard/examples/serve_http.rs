//! An MCP server over HTTP whose tools may change while it runs. Prints its address.

#![expect(clippy::unused_async, reason = "tools are async functions")]

use pegboard::gateway::serve;
use pegboard::prelude::*;
use pegboard::wire::http::server::HttpServerOptions;
use tokio::net::TcpListener;

/// Greet a person.
#[tool(read_only)]
async fn greet(name: String) -> Result<String> {
    Ok(format!("Hello, {name}!"))
}

#[tokio::main]
async fn main() -> Result<()> {
    let registry = ToolRegistry::new();
    let runtime =
        Runtime::builder().toolbox("hello", "Greetings").provide("words", registry.clone()).start().await?;
    // The runtime has started already: clients would be notified of the change.
    registry.with(tools![greet])?;
    let gateway = Gateway::new(&runtime, &serde_json::from_value(json!({"expose": "flat"}))?)?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("http://{}/mcp", listener.local_addr()?);
    Ok(serve::http(&gateway, listener, &HttpServerOptions::default()).await?)
}
