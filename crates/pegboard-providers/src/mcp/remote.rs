//! Ways to servers that have an address.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use http::{HeaderMap, HeaderName, HeaderValue};
use pegboard_wire::client::Era;
use pegboard_wire::http::client::{HttpOptions, connect, shared_client};
use pegboard_wire::http::legacy_client;
use pegboard_wire::link::{InputLimits, TransportError};
use pegboard_wire::{client, websocket};
use reqwest::{Client, Url};

use super::connect::{Connect, ConnectError, Connected, Introduction};
use pegboard_core::settings::mcp::{Address, InvalidSettings};

/// How long it may take to reach a server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A server behind streamable HTTP, or behind HTTP+SSE if it is that old.
///
/// ```
/// use pegboard_core::settings::mcp::Address;
/// use pegboard_providers::mcp::Http;
///
/// assert!(Http::new(&Address::new("https://example.org/mcp")).is_ok());
/// assert!(Http::new(&Address::new("example.org")).is_err());
/// ```
#[derive(Debug)]
pub struct Http {
    options: HttpOptions,
    /// Whether the server turned out to be that old.
    is_old: AtomicBool,
}

impl Http {
    /// The way to a server.
    pub fn new(address: &Address) -> Result<Self, InvalidSettings> {
        Self::over(address, &Connections::default())
    }

    /// The way to a server, over connections that others use too.
    pub(super) fn over(address: &Address, connections: &Connections) -> Result<Self, InvalidSettings> {
        Ok(Self { options: options(address, connections)?, is_old: AtomicBool::new(false) })
    }

    async fn reach(&self, introduction: Introduction) -> Result<Connected, ConnectError> {
        if self.is_old.load(Ordering::Relaxed) {
            let reached = reach_old(&self.options, introduction).await;
            // It may have been replaced by a newer one.
            self.is_old.store(reached.is_ok(), Ordering::Relaxed);
            return reached;
        }
        let Introduction { receiver, options, .. } = introduction.clone();
        match client::Client::connect(connect(self.options.clone())?, receiver, options).await {
            Err(client::ConnectError::Transport(TransportError::Status {
                status: 400 | 404 | 405, ..
            })) => {
                let reached = reach_old(&self.options, introduction).await?;
                self.is_old.store(true, Ordering::Relaxed);
                Ok(reached)
            }
            connected => Ok(connected?.into()),
        }
    }
}

impl Connect for Http {
    fn connect(&self, introduction: Introduction) -> BoxFuture<'_, Result<Connected, ConnectError>> {
        self.reach(introduction).boxed()
    }
}

/// A server behind HTTP+SSE; the address is that of its stream.
///
/// ```
/// use pegboard_core::settings::mcp::Address;
/// use pegboard_providers::mcp::Sse;
///
/// assert!(Sse::new(&Address::new("http://127.0.0.1:8000/sse")).is_ok());
/// ```
#[derive(Debug)]
pub struct Sse(HttpOptions);

impl Sse {
    /// The way to a server.
    pub fn new(address: &Address) -> Result<Self, InvalidSettings> {
        Self::over(address, &Connections::default())
    }

    /// The way to a server, over connections that others use too.
    pub(super) fn over(address: &Address, connections: &Connections) -> Result<Self, InvalidSettings> {
        options(address, connections).map(Self)
    }
}

impl Connect for Sse {
    fn connect(&self, introduction: Introduction) -> BoxFuture<'_, Result<Connected, ConnectError>> {
        reach_old(&self.0, introduction).boxed()
    }
}

/// A server at the other end of a WebSocket.
///
/// ```
/// use pegboard_core::settings::mcp::Address;
/// use pegboard_providers::mcp::WebSocket;
///
/// assert!(WebSocket::new(&Address::new("wss://example.org/mcp")).is_ok());
/// assert!(WebSocket::new(&Address::new("https://example.org/mcp")).is_err());
/// ```
#[derive(Debug)]
pub struct WebSocket {
    url: Url,
    headers: HeaderMap,
}

impl WebSocket {
    /// The way to a server.
    pub fn new(address: &Address) -> Result<Self, InvalidSettings> {
        let url = parsed(&address.url, ["ws", "wss"], "wss://example.org/mcp")?;
        Ok(Self { url, headers: headers(address)? })
    }
}

impl Connect for WebSocket {
    fn connect(&self, introduction: Introduction) -> BoxFuture<'_, Result<Connected, ConnectError>> {
        async move {
            let link =
                websocket::client::connect(&self.url, self.headers.clone(), InputLimits::client()).await?;
            Ok(introduction.over(link).await?.into())
        }
        .boxed()
    }
}

async fn reach_old(options: &HttpOptions, introduction: Introduction) -> Result<Connected, ConnectError> {
    let link = legacy_client::connect(options.clone())?;
    Ok(introduction.speaking(Era::Session).over(link).await?.into())
}

/// What speaks HTTP, made at its first use: reading the system's certificates takes a while.
#[derive(Default)]
pub(super) struct Connections(OnceLock<Option<Client>>);

impl Connections {
    /// Without one each link makes its own, which says why it cannot.
    fn client(&self) -> Option<Client> {
        self.0.get_or_init(|| shared_client(CONNECT_TIMEOUT).ok()).clone()
    }
}

fn options(address: &Address, connections: &Connections) -> Result<HttpOptions, InvalidSettings> {
    let url = parsed(&address.url, ["http", "https"], "https://example.org/mcp")?;
    Ok(HttpOptions {
        headers: headers(address)?,
        connect_timeout: CONNECT_TIMEOUT,
        client: connections.client(),
        ..HttpOptions::new(url)
    })
}

fn parsed(url: &str, schemes: [&str; 2], example: &'static str) -> Result<Url, InvalidSettings> {
    let bad = |problem: String| InvalidSettings::BadUrl { problem, example };
    let url = Url::parse(url).map_err(|error| bad(error.to_string()))?;
    if !schemes.contains(&url.scheme()) || !url.has_host() {
        return Err(bad(format!("it must begin with {}:// or {}://", schemes[0], schemes[1])));
    }
    Ok(url)
}

/// The headers, marked so that nobody prints their values.
fn headers(address: &Address) -> Result<HeaderMap, InvalidSettings> {
    let mut headers = HeaderMap::new();
    for (name, secret) in &address.headers {
        let bad = |part| InvalidSettings::BadHeader { name: name.escape_debug().to_string(), part };
        let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad("name"))?;
        let mut value = HeaderValue::from_str(secret.reveal()).map_err(|_| bad("value"))?;
        value.set_sensitive(true);
        headers.insert(key, value);
    }
    Ok(headers)
}
