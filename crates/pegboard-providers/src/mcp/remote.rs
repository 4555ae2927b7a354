//! Connections to servers with a URL.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use http::{HeaderMap, HeaderName, HeaderValue};
use pegboard_wire::client::Era;
use pegboard_wire::http::client::{HttpOptions, LazyHttpClient, connect};
use pegboard_wire::http::legacy_client;
use pegboard_wire::transport::TransportError;
use pegboard_wire::{client, websocket};
use reqwest::Url;

use super::connect::{Connector, ConnectorError, EstablishedConnection, HandshakeOptions};
use super::login::ServerLogin;
use super::pool::StartedLogin;
use pegboard_core::settings::mcp::{InvalidMcpServer, RemoteEndpoint};
use pegboard_core::settings::messages::MessageLimits;

/// Time limit for establishing a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Connector for streamable HTTP, with a fallback to the legacy HTTP+SSE transport.
///
/// ```
/// use pegboard_core::settings::mcp::RemoteEndpoint;
/// use pegboard_providers::mcp::HttpConnector;
///
/// assert!(HttpConnector::new(&RemoteEndpoint::new("https://example.org/mcp")).is_ok());
/// assert!(HttpConnector::new(&RemoteEndpoint::new("example.org")).is_err());
/// ```
#[derive(Debug)]
pub struct HttpConnector {
    options: HttpOptions,
    login: Option<ServerLogin>,
    /// The server has turned out to use the legacy transport.
    is_legacy: AtomicBool,
}

impl HttpConnector {
    /// Creates a connector with its own HTTP client.
    pub fn new(address: &RemoteEndpoint) -> Result<Self, InvalidMcpServer> {
        Self::with_client(address, &LazyHttpClient::default())
    }

    /// Creates a connector with a shared HTTP client.
    pub(super) fn with_client(
        address: &RemoteEndpoint,
        http_client: &LazyHttpClient,
    ) -> Result<Self, InvalidMcpServer> {
        let options = http_options(address, http_client)?;
        Ok(Self { options, login: None, is_legacy: AtomicBool::new(false) })
    }

    /// Sets the login at the server.
    #[must_use]
    pub(super) fn with_login(mut self, login: Option<ServerLogin>) -> Self {
        self.options.authorizer = login.as_ref().map(|login| Arc::clone(&login.authorizer));
        self.login = login;
        self
    }

    async fn connect_with_fallback(
        &self,
        handshake: HandshakeOptions,
    ) -> Result<EstablishedConnection, ConnectorError> {
        forget_login(&self.options);
        if self.is_legacy.load(Ordering::Relaxed) {
            let connected = connect_legacy(&self.options, handshake).await;
            // The server may have been replaced by a newer one.
            self.is_legacy.store(connected.is_ok(), Ordering::Relaxed);
            return connected;
        }
        let http_options = limited(&self.options, handshake.message_limits);
        let HandshakeOptions { receiver, options, .. } = handshake.clone();
        match client::McpClient::connect(connect(http_options)?, receiver, options).await {
            Err(client::HandshakeError::Transport(TransportError::Status {
                status: 400 | 404 | 405,
                ..
            })) => {
                let connected = connect_legacy(&self.options, handshake).await?;
                self.is_legacy.store(true, Ordering::Relaxed);
                Ok(connected)
            }
            connected => Ok(connected?.into()),
        }
    }
}

impl Connector for HttpConnector {
    fn connect(
        &self,
        handshake: HandshakeOptions,
    ) -> BoxFuture<'_, Result<EstablishedConnection, ConnectorError>> {
        self.connect_with_fallback(handshake).boxed()
    }

    fn begin_login(&self) -> Option<BoxFuture<'static, Result<StartedLogin, String>>> {
        self.login.as_ref().map(ServerLogin::begin)
    }
}

/// Connector for the legacy HTTP+SSE transport; the URL is that of the event stream.
///
/// ```
/// use pegboard_core::settings::mcp::RemoteEndpoint;
/// use pegboard_providers::mcp::SseConnector;
///
/// assert!(SseConnector::new(&RemoteEndpoint::new("http://127.0.0.1:8000/sse")).is_ok());
/// ```
#[derive(Debug)]
pub struct SseConnector {
    options: HttpOptions,
    login: Option<ServerLogin>,
}

impl SseConnector {
    /// Creates a connector with its own HTTP client.
    pub fn new(address: &RemoteEndpoint) -> Result<Self, InvalidMcpServer> {
        Self::with_client(address, &LazyHttpClient::default())
    }

    /// Creates a connector with a shared HTTP client.
    pub(super) fn with_client(
        address: &RemoteEndpoint,
        http_client: &LazyHttpClient,
    ) -> Result<Self, InvalidMcpServer> {
        http_options(address, http_client).map(|options| Self { options, login: None })
    }

    /// Sets the login at the server.
    #[must_use]
    pub(super) fn with_login(mut self, login: Option<ServerLogin>) -> Self {
        self.options.authorizer = login.as_ref().map(|login| Arc::clone(&login.authorizer));
        self.login = login;
        self
    }
}

impl Connector for SseConnector {
    fn connect(
        &self,
        handshake: HandshakeOptions,
    ) -> BoxFuture<'_, Result<EstablishedConnection, ConnectorError>> {
        forget_login(&self.options);
        connect_legacy(&self.options, handshake).boxed()
    }

    fn begin_login(&self) -> Option<BoxFuture<'static, Result<StartedLogin, String>>> {
        self.login.as_ref().map(ServerLogin::begin)
    }
}

/// Connector for a WebSocket.
///
/// ```
/// use pegboard_core::settings::mcp::RemoteEndpoint;
/// use pegboard_providers::mcp::WebSocketConnector;
///
/// assert!(WebSocketConnector::new(&RemoteEndpoint::new("wss://example.org/mcp")).is_ok());
/// assert!(WebSocketConnector::new(&RemoteEndpoint::new("https://example.org/mcp")).is_err());
/// ```
#[derive(Debug)]
pub struct WebSocketConnector {
    url: Url,
    headers: HeaderMap,
}

impl WebSocketConnector {
    /// Creates a connector.
    pub fn new(address: &RemoteEndpoint) -> Result<Self, InvalidMcpServer> {
        let url = parse_url(&address.url, ["ws", "wss"], "wss://example.org/mcp")?;
        Ok(Self { url, headers: headers(address)? })
    }
}

impl Connector for WebSocketConnector {
    fn connect(
        &self,
        handshake: HandshakeOptions,
    ) -> BoxFuture<'_, Result<EstablishedConnection, ConnectorError>> {
        async move {
            let transport =
                websocket::client::connect(&self.url, self.headers.clone(), handshake.input_limits()).await?;
            Ok(handshake.connect_over(transport).await?.into())
        }
        .boxed()
    }
}

async fn connect_legacy(
    options: &HttpOptions,
    handshake: HandshakeOptions,
) -> Result<EstablishedConnection, ConnectorError> {
    let transport = legacy_client::connect(limited(options, handshake.message_limits))?;
    Ok(handshake.with_era(Era::Session).connect_over(transport).await?.into())
}

/// Reads the login again with the first request of a connection.
fn forget_login(options: &HttpOptions) {
    if let Some(authorizer) = &options.authorizer {
        authorizer.forget();
    }
}

/// Returns the options with limits of messages from the server.
fn limited(options: &HttpOptions, limits: MessageLimits) -> HttpOptions {
    HttpOptions { max_body: limits.max_bytes, max_depth: limits.max_depth, ..options.clone() }
}

fn http_options(
    address: &RemoteEndpoint,
    http_client: &LazyHttpClient,
) -> Result<HttpOptions, InvalidMcpServer> {
    let url = parse_url(&address.url, ["http", "https"], "https://example.org/mcp")?;
    Ok(HttpOptions {
        headers: headers(address)?,
        connect_timeout: CONNECT_TIMEOUT,
        client: http_client.clone(),
        ..HttpOptions::new(url)
    })
}

fn parse_url(url: &str, schemes: [&str; 2], example: &'static str) -> Result<Url, InvalidMcpServer> {
    let invalid = |problem: String| InvalidMcpServer::BadUrl { problem, example };
    let url = Url::parse(url).map_err(|error| invalid(error.to_string()))?;
    if !schemes.contains(&url.scheme()) || !url.has_host() {
        return Err(invalid(format!("it must start with {}:// or {}://", schemes[0], schemes[1])));
    }
    Ok(url)
}

/// Returns the headers, marked as sensitive so that their values are not printed.
fn headers(address: &RemoteEndpoint) -> Result<HeaderMap, InvalidMcpServer> {
    let mut headers = HeaderMap::new();
    for (name, secret) in &address.headers {
        let invalid = |part| InvalidMcpServer::BadHeader { name: name.escape_debug().to_string(), part };
        let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid("name"))?;
        let mut value = HeaderValue::from_str(secret.reveal()).map_err(|_| invalid("value"))?;
        value.set_sensitive(true);
        headers.insert(key, value);
    }
    Ok(headers)
}
