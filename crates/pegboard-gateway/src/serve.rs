//! A gateway over stdio and over HTTP.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::{Path, Request};
use axum::handler::Handler;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, any, any_service};
use pegboard_wire::http::server::{HttpServerOptions, endpoint};
use pegboard_wire::http::{self, legacy_server};
use pegboard_wire::link::InputLimits;
use pegboard_wire::server::Server;
use pegboard_wire::stdio::lines;
use pegboard_wire::websocket;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;

use crate::endpoint::Endpoint;
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
    let router = transports("/mcp", &gateway.server(usual)?, options);
    let doors =
        Arc::new(Doors { gateway: gateway.clone(), options: options.clone(), open: Mutex::default() });
    Ok(router.route(
        "/mcp/{*way}",
        any(async move |Path(way): Path<String>, request: Request| doors.enter(&way, request).await),
    ))
}

/// The ways to all profiles that clients may name, which may be others at any time.
struct Doors {
    gateway: Gateway,
    options: HttpServerOptions,
    /// Those that somebody has gone through, and what each leads to.
    open: Mutex<HashMap<String, (Arc<Endpoint>, MethodRouter)>>,
}

impl Doors {
    /// Leads a request to the profile that its path names.
    async fn enter(&self, way: &str, request: Request) -> Response {
        let profile = way.split('/').next().unwrap_or_default();
        match self.door(profile) {
            Some(door) => door.call(request, ()).await,
            None => (StatusCode::NOT_FOUND, self.gateway.unknown(way).to_string()).into_response(),
        }
    }

    fn door(&self, profile: &str) -> Option<MethodRouter> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(endpoint) = self.gateway.endpoint(profile) else {
            open.remove(profile);
            return None;
        };
        if let Some((leads_to, door)) = open.get(profile)
            && Arc::ptr_eq(leads_to, &endpoint)
        {
            return Some(door.clone());
        }
        let server = Server::new(Arc::clone(&endpoint) as _);
        let gateway = self.gateway.clone();
        let transports =
            transports(&format!("/mcp/{profile}"), &server, &self.options).fallback(async move |uri: Uri| {
                let way = uri.path().strip_prefix("/mcp/").unwrap_or_default();
                (StatusCode::NOT_FOUND, gateway.unknown(way).to_string())
            });
        let door = any_service(transports);
        open.insert(profile.to_owned(), (endpoint, door.clone()));
        Some(door)
    }
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
