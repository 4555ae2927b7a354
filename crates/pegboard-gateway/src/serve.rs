//! A gateway over stdio and over HTTP.

use axum::Router;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, any_service};
use pegboard_wire::http::server::{HttpServerOptions, endpoint};
use pegboard_wire::http::{self, legacy_server};
use pegboard_wire::link::InputLimits;
use pegboard_wire::server::Server;
use pegboard_wire::stdio::lines;
use pegboard_wire::websocket;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;

use crate::gateway::{Gateway, ProfileError};

/// Serves the client on the other end of standard input and output, until it leaves.
///
/// ```no_run
/// # async fn serve(gateway: pegboard_gateway::Gateway) -> Result<(), pegboard_gateway::ProfileError> {
/// pegboard_gateway::serve::stdio(&gateway, Some("flat")).await
/// # }
/// ```
pub async fn stdio(gateway: &Gateway, profile: Option<&str>) -> Result<(), ProfileError> {
    over(gateway, profile, tokio::io::stdin(), tokio::io::stdout()).await
}

/// Serves the client on the other end of two byte streams, until it leaves.
pub async fn over<R, W>(
    gateway: &Gateway,
    profile: Option<&str>,
    reader: R,
    writer: W,
) -> Result<(), ProfileError>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let server = gateway.server(profile)?;
    let (link, pump) = lines(reader, writer, InputLimits::server());
    server.serve(link).await;
    // What was said last is still on its way out.
    let _ = pump.await;
    Ok(())
}

/// Serves all profiles on a listener, until the listener fails.
///
/// ```no_run
/// # async fn serve(gateway: pegboard_gateway::Gateway) -> std::io::Result<()> {
/// use pegboard_gateway::serve;
/// use pegboard_wire::http::server::HttpServerOptions;
///
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:7332").await?;
/// serve::http(&gateway, listener, &HttpServerOptions::default()).await
/// # }
/// ```
pub async fn http(
    gateway: &Gateway,
    listener: TcpListener,
    options: &HttpServerOptions,
) -> std::io::Result<()> {
    let application = router(gateway, None, options).map_err(std::io::Error::other)?;
    http::server::serve(listener, application).await
}

/// All profiles by their paths.
///
/// `/mcp` is the `usual` one, or else what the settings say, and `/mcp/{profile}` each other; beside every one of them are
/// `…/ws` for WebSocket, and `…/sse` with `…/message` for clients of the first revision.
pub fn router(
    gateway: &Gateway,
    usual: Option<&str>,
    options: &HttpServerOptions,
) -> Result<Router, ProfileError> {
    let mut router = transports("/mcp", &gateway.server(usual)?, options);
    for (name, server) in gateway.named_servers() {
        router = router.merge(transports(&format!("/mcp/{name}"), &server, options));
    }
    let gateway = gateway.clone();
    Ok(router.route(
        "/mcp/{*profile}",
        any(async move |Path(profile): Path<String>| -> Response {
            (StatusCode::NOT_FOUND, gateway.unknown(&profile).to_string()).into_response()
        }),
    ))
}

/// Every transport of one profile.
fn transports(base: &str, server: &Server, options: &HttpServerOptions) -> Router {
    let streamable = endpoint(server.clone(), options.clone());
    let socket = websocket::server::endpoint(server.clone(), options.clone());
    Router::new()
        .route(base, any_service(streamable))
        .route(&format!("{base}/ws"), any_service(socket))
        .nest(base, legacy_server::endpoint(server.clone(), base, options.clone()))
}
