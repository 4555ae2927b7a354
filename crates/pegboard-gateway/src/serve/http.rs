//! Serves all profiles over HTTP and WebSocket.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Request};
use axum::handler::Handler;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, any_service};
use foldhash::HashMap;
use parking_lot::Mutex;
use pegboard_wire::http::received_headers::NamedHeaders;
use pegboard_wire::http::server::{
    DirectRoutes, HttpApplication, HttpServerEndpoint, HttpServerOptions, ServedConnection,
    check_host_and_origin,
};
use pegboard_wire::http::{self, legacy_server};
use pegboard_wire::server::ServiceServer;
use pegboard_wire::websocket;
use tokio::net::TcpListener;

use crate::gateway::{Gateway, ProfileError};
use crate::profile_service::ProfileService;

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
    let application = application(gateway, None, options).map_err(std::io::Error::other)?;
    http::server::serve(listener, application).await
}

/// Returns the application that serves all profiles.
///
/// `/mcp` is the `default_profile`, or the default of the settings, and `/mcp/{profile}` is each named one.
/// Beside each are `…/ws` for WebSocket, and `…/sse` with `…/message` for the HTTP+SSE transport of revision
/// 2024-11-05.
pub fn application(
    gateway: &Gateway,
    default_profile: Option<&str>,
    options: &HttpServerOptions,
) -> Result<HttpApplication, ProfileError> {
    // All transports of a gateway share it.
    let response_memory = gateway.response_memory().clone();
    let options = HttpServerOptions { response_memory, ..options.clone() };
    let default = ProfileRoute::new("/mcp", &gateway.server(default_profile)?, &options);
    let router = default.router.clone();
    let profiles = Arc::new(ProfileRoutes {
        gateway: gateway.clone(),
        options,
        default: default.endpoint,
        named: Mutex::default(),
    });
    let dispatcher = Arc::clone(&profiles);
    let router = router.route(
        "/mcp/{*path}",
        any(async move |Path(path): Path<String>, request: Request| {
            dispatcher.dispatch(&path, request).await
        }),
    );
    Ok(HttpApplication::new(profiles, router))
}

/// The routes of all profiles. The named ones may change on reload.
struct ProfileRoutes {
    gateway: Gateway,
    options: HttpServerOptions,
    default: HttpServerEndpoint,
    /// Routes in use, each with the service that it was built for.
    named: Mutex<HashMap<String, (Arc<ProfileService>, ProfileRoute)>>,
}

impl DirectRoutes for ProfileRoutes {
    fn find(
        &self,
        uri: &Uri,
        _headers: &dyn NamedHeaders,
        _connection: &ServedConnection,
    ) -> Option<HttpServerEndpoint> {
        match uri.path().strip_prefix("/mcp")? {
            "" => Some(self.default.clone()),
            path => self.with_route(path.strip_prefix('/')?, |route| route.endpoint.clone()),
        }
    }
}

impl ProfileRoutes {
    /// Dispatches a request to the profile in its path.
    async fn dispatch(&self, path: &str, request: Request) -> Response {
        // The answer to a wrong path lists all profiles.
        if let Err(rejection) = check_host_and_origin(request.headers(), request.uri(), &self.options) {
            return rejection.into_response();
        }
        let profile = path.split('/').next().unwrap_or_default();
        match self.with_route(profile, |route| any_service(route.router.clone())) {
            Some(route) => route.call(request, ()).await,
            None => (StatusCode::NOT_FOUND, self.gateway.unknown_profile(path).to_string()).into_response(),
        }
    }

    /// Looks at the route of a profile; `None` if there is no such profile.
    fn with_route<T>(&self, profile: &str, look: impl FnOnce(&ProfileRoute) -> T) -> Option<T> {
        let mut named = self.named.lock();
        let Some(service) = self.gateway.service(profile) else {
            named.remove(profile);
            return None;
        };
        if let Some((routed, route)) = named.get(profile)
            && Arc::ptr_eq(routed, &service)
        {
            return Some(look(route));
        }
        let server = ServiceServer::new(Arc::clone(&service) as _);
        let gateway = self.gateway.clone();
        let mut route = ProfileRoute::new(&format!("/mcp/{profile}"), &server, &self.options);
        route.router = route.router.fallback(async move |uri: Uri| {
            let path = uri.path().strip_prefix("/mcp/").unwrap_or_default();
            (StatusCode::NOT_FOUND, gateway.unknown_profile(path).to_string())
        });
        let found = look(&route);
        named.insert(profile.to_owned(), (service, route));
        Some(found)
    }
}

/// The endpoint of one profile for streamable HTTP, and a router for all transports.
struct ProfileRoute {
    endpoint: HttpServerEndpoint,
    router: Router,
}

impl ProfileRoute {
    fn new(base: &str, server: &ServiceServer, options: &HttpServerOptions) -> Self {
        let endpoint = HttpServerEndpoint::new(server.clone(), options.clone());
        let socket = websocket::server::endpoint(server.clone(), options.clone());
        let router = Router::new()
            .route(base, any_service(endpoint.router()))
            .route(&format!("{base}/ws"), any_service(socket))
            .nest(base, legacy_server::endpoint(server.clone(), base, options.clone()));
        Self { endpoint, router }
    }
}
