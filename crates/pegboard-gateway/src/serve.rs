//! Serves a gateway over stdio and HTTP.

use std::collections::HashMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Request};
use axum::handler::Handler;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, any, any_service};
use parking_lot::Mutex;
use pegboard_wire::http::server::{HttpServerOptions, endpoint};
use pegboard_wire::http::{self, legacy_server};
use pegboard_wire::link::InputLimits;
use pegboard_wire::server::ServiceServer;
use pegboard_wire::stdio::line_transport;
use pegboard_wire::websocket;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;

use crate::gateway::{Gateway, ProfileError};
use crate::profile_service::ProfileService;

/// Serves one client over stdin and stdout until it disconnects.
///
/// ```no_run
/// # async fn serve(gateway: pegboard_gateway::Gateway) -> Result<(), pegboard_gateway::ProfileError> {
/// pegboard_gateway::serve::stdio(&gateway, Some("flat")).await
/// # }
/// ```
pub async fn stdio(gateway: &Gateway, profile: Option<&str>) -> Result<(), ProfileError> {
    streams(gateway, profile, tokio::io::stdin(), tokio::io::stdout()).await
}

/// Serves one client over a pair of byte streams until it disconnects.
pub async fn streams<R, W>(
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
    let (link, pump) = line_transport(reader, writer, InputLimits::server());
    server.serve(link).await;
    // Flush pending output.
    let _ = pump.await;
    Ok(())
}

/// Serves all profiles on a listener until the listener fails.
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

/// Returns the routes of all profiles.
///
/// `/mcp` is the `default_profile`, or the default of the settings, and `/mcp/{profile}` is each named one.
/// Beside each are `…/ws` for WebSocket, and `…/sse` with `…/message` for the HTTP+SSE transport of revision
/// 2024-11-05.
pub fn router(
    gateway: &Gateway,
    default_profile: Option<&str>,
    options: &HttpServerOptions,
) -> Result<Router, ProfileError> {
    let router = transports("/mcp", &gateway.server(default_profile)?, options);
    let profiles = Arc::new(ProfileRoutes {
        gateway: gateway.clone(),
        options: options.clone(),
        routes: Mutex::default(),
    });
    Ok(router.route(
        "/mcp/{*path}",
        any(async move |Path(path): Path<String>, request: Request| profiles.dispatch(&path, request).await),
    ))
}

/// Dynamic routes of the named profiles, which may change on reload.
struct ProfileRoutes {
    gateway: Gateway,
    options: HttpServerOptions,
    /// Routers in use, each with the service that it was built for.
    routes: Mutex<HashMap<String, (Arc<ProfileService>, MethodRouter)>>,
}

impl ProfileRoutes {
    /// Dispatches a request to the profile in its path.
    async fn dispatch(&self, path: &str, request: Request) -> Response {
        let profile = path.split('/').next().unwrap_or_default();
        match self.route(profile) {
            Some(route) => route.call(request, ()).await,
            None => (StatusCode::NOT_FOUND, self.gateway.unknown_profile(path).to_string()).into_response(),
        }
    }

    fn route(&self, profile: &str) -> Option<MethodRouter> {
        let mut routes = self.routes.lock();
        let Some(service) = self.gateway.service(profile) else {
            routes.remove(profile);
            return None;
        };
        if let Some((routed, route)) = routes.get(profile)
            && Arc::ptr_eq(routed, &service)
        {
            return Some(route.clone());
        }
        let server = ServiceServer::new(Arc::clone(&service) as _);
        let gateway = self.gateway.clone();
        let transports =
            transports(&format!("/mcp/{profile}"), &server, &self.options).fallback(async move |uri: Uri| {
                let path = uri.path().strip_prefix("/mcp/").unwrap_or_default();
                (StatusCode::NOT_FOUND, gateway.unknown_profile(path).to_string())
            });
        let route = any_service(transports);
        routes.insert(profile.to_owned(), (service, route.clone()));
        Some(route)
    }
}

/// Returns the routes of all transports of one profile.
fn transports(base: &str, server: &ServiceServer, options: &HttpServerOptions) -> Router {
    let streamable = endpoint(server.clone(), options.clone());
    let socket = websocket::server::endpoint(server.clone(), options.clone());
    Router::new()
        .route(base, any_service(streamable))
        .route(&format!("{base}/ws"), any_service(socket))
        .nest(base, legacy_server::endpoint(server.clone(), base, options.clone()))
}
