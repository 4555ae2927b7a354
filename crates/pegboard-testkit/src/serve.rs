//! A service on every HTTP transport at once: `/mcp` streamable, `/ws` WebSocket, `/legacy/sse` HTTP+SSE.

use axum::Router;
use pegboard_wire::http::server::HttpServerOptions;
use pegboard_wire::server::Server;
use pegboard_wire::{http, websocket};

/// All transports of one server.
pub fn everywhere(server: &Server, options: &HttpServerOptions) -> Router {
    Router::new()
        .nest_service("/mcp", http::server::endpoint(server.clone(), options.clone()))
        .nest_service("/ws", websocket::server::endpoint(server.clone(), options.clone()))
        .nest_service("/legacy", http::legacy_server::endpoint(server.clone(), "/legacy", options.clone()))
}
