//! Runs the fixture (`stdio`, `http PORT`) or the explorer (`client URL`).

use std::net::Ipv4Addr;
use std::sync::Arc;

use pegboard_testkit::fixture::Fixture;
use pegboard_testkit::{explorer, serve};
use pegboard_wire::http::server::HttpServerOptions;
use pegboard_wire::server::Server;
use pegboard_wire::stdio::{LineLimits, lines};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let server = Server::new(Arc::new(Fixture::new()));
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["stdio"] => {
            let (link, pump) = lines(tokio::io::stdin(), tokio::io::stdout(), LineLimits::server());
            server.serve(link).await;
            let _ = pump.await;
            Ok(())
        }
        ["http", port] => {
            let port = port.parse().map_err(std::io::Error::other)?;
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
            println!("http://{}/mcp", listener.local_addr()?);
            axum::serve(listener, serve::everywhere(&server, &HttpServerOptions::default())).await
        }
        ["client", url] => {
            let context = std::env::var("MCP_CONFORMANCE_CONTEXT").unwrap_or_default();
            let context = serde_json::from_str(&context).unwrap_or_default();
            explorer::explore(url, &context).await.map_err(std::io::Error::other)
        }
        ["client-scenarios"] => {
            for scenario in explorer::SCENARIOS {
                println!("{scenario}");
            }
            Ok(())
        }
        _ => Err(std::io::Error::other("usage: stdio | http PORT | client URL | client-scenarios")),
    }
}
