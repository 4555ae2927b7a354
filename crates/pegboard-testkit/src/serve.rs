//! A server on all HTTP transports at once: `/mcp` streamable HTTP, `/ws` WebSocket, `/legacy/sse` HTTP+SSE.

use axum::Router;
use pegboard_wire::http::server::HttpServerOptions;
use pegboard_wire::server::ServiceServer;
use pegboard_wire::{http, websocket};

/// Returns a router with all transports of one server.
pub fn all_transports(server: &ServiceServer, options: &HttpServerOptions) -> Router {
    Router::new()
        .nest_service("/mcp", http::server::endpoint(server.clone(), options.clone()))
        .nest_service("/ws", websocket::server::endpoint(server.clone(), options.clone()))
        .nest_service("/legacy", http::legacy_server::endpoint(server.clone(), "/legacy", options.clone()))
}
