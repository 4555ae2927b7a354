//! The client role: a connection to one server of either protocol era.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ::http::HeaderMap;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::time;

use crate::connection::{Connection, ConnectionLimits, InboundHandler, InboundRequest, OutgoingRequest};
use crate::era::{LogLevel, Revision, meta};
use crate::http;
use crate::http::client::HttpOptions;
use crate::http::headers::{self, HeaderParameter};
use crate::link::{Link, MessageTrace, TransportError};
use crate::message::{Id, Notification, RpcError};
use crate::pending_request::{PendingRequest, RequestError};
use pegboard_json::RawJson;

mod input_rounds;
mod negotiation;

pub use crate::era::Era;
pub use input_rounds::next_round_params;
pub use negotiation::HandshakeError;

/// Identity, capabilities and timeouts of a client.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Name and version of the client: an `Implementation` object.
    pub info: RawJson,
    /// Client capabilities, as sent in the handshake.
    pub capabilities: RawJson,
    /// The server's era, if known from an earlier connection; `None` probes for it.
    pub era: Option<Era>,
    /// Time to wait for an answer to the stateless probe before `initialize` is sent as well.
    pub probe_timeout: Duration,
    /// Time limit of the whole handshake.
    pub handshake_timeout: Duration,
    /// Limits of the connection.
    pub limits: ConnectionLimits,
    /// Server name under which all messages are traced; `None` disables tracing.
    pub trace_name: Option<Arc<str>>,
}

impl ClientOptions {
    /// Creates the options of a client without capabilities.
    pub fn new(name: &str, version: &str) -> Self {
        Self {
            info: RawJson::of(&serde_json::json!({"name": name, "version": version})),
            capabilities: RawJson::empty_object(),
            era: None,
            probe_timeout: Duration::from_secs(10),
            handshake_timeout: Duration::from_mins(1),
            limits: ConnectionLimits::default(),
            trace_name: None,
        }
    }
}

/// Server information from the handshake.
#[derive(Clone, Debug)]
pub struct ServerDescription {
    /// The negotiated protocol revision.
    pub revision: Revision,
    /// Name and version, if the server sent them.
    pub info: Option<RawJson>,
    /// Server capabilities.
    pub capabilities: RawJson,
    /// Instructions for the model.
    pub instructions: Option<String>,
}

/// Per-request options beyond the parameters.
#[derive(Clone, Debug, Default)]
pub struct RequestOptions {
    /// Extra HTTP headers, for example the credentials of one user; ignored by transports without headers.
    pub headers: HeaderMap,
    /// Client capabilities for this request, if they differ; stateless era only.
    pub capabilities: Option<RawJson>,
    /// Minimum level of log messages to receive; stateless era only.
    pub log_level: Option<LogLevel>,
}

/// A connection to an MCP server. Clones share the connection.
#[derive(Clone)]
pub struct McpClient {
    connection: Connection,
    handler: Arc<dyn InboundHandler>,
    options: Arc<ClientOptions>,
    server: Arc<ServerDescription>,
    /// The negotiated revision, as JSON.
    revision: RawJson,
    /// Arguments mirrored in headers, by tool name.
    header_parameters: Arc<Mutex<HashMap<String, Arc<[HeaderParameter]>>>>,
}

impl McpClient {
    /// Negotiates the era, performs the handshake and returns the connected client. Requests of the server go
    /// to `handler`.
    pub async fn connect(
        link: Link,
        handler: Arc<dyn InboundHandler>,
        options: ClientOptions,
    ) -> Result<Self, HandshakeError> {
        let responder = Arc::new(PingResponder(Arc::clone(&handler)));
        let trace = MessageTrace::of(options.trace_name.as_ref());
        let connection = Connection::open_traced(link, responder, options.limits, trace);
        let server =
            time::timeout(options.handshake_timeout, Box::pin(negotiation::negotiate(&connection, &options)))
                .await
                .unwrap_or(Err(HandshakeError::TimedOut(options.handshake_timeout)))?;
        Ok(Self {
            connection,
            handler,
            options: Arc::new(options),
            revision: RawJson::of(&server.revision),
            server: Arc::new(server),
            header_parameters: Arc::default(),
        })
    }

    /// Connects to a server by URL: streamable HTTP first, HTTP+SSE if the server only supports that.
    pub async fn connect_http(
        http: HttpOptions,
        handler: Arc<dyn InboundHandler>,
        options: ClientOptions,
    ) -> Result<Self, HandshakeError> {
        let link = http::client::connect(http.clone())?;
        match Self::connect(link, Arc::clone(&handler), options.clone()).await {
            Err(HandshakeError::Transport(TransportError::Status { status: 400 | 404 | 405, .. })) => {
                let options = ClientOptions { era: Some(Era::Session), ..options };
                Self::connect(http::legacy_client::connect(http)?, handler, options).await
            }
            connected => connected,
        }
    }

    /// Returns the server information from the handshake.
    pub fn server(&self) -> &ServerDescription {
        &self.server
    }

    /// Returns the era of the connection.
    pub fn era(&self) -> Era {
        self.server.revision.era()
    }

    /// Returns the underlying connection.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Sends a request and returns it as pending.
    pub async fn request(
        &self,
        method: &str,
        params: Option<RawJson>,
        options: RequestOptions,
    ) -> Result<PendingRequest, RequestError> {
        let id = self.connection.reserve_id();
        let era = self.era();
        let own = params.as_ref().and_then(|params| params.get("_meta"));
        let progress_token = own.as_ref().and_then(|own| own.get("progressToken"));
        let own_token = progress_token.as_ref().map(|_| RawJson::of(&id));
        let token = ("progressToken", own_token.as_ref());
        let (params, headers) = match era {
            Era::Session => {
                let params = match (params, own) {
                    (Some(params), Some(own)) => Some(without_stateless_meta(&params, &own, token)),
                    (params, _) => params,
                };
                (params, options.headers)
            }
            Era::Stateless => {
                let params = params.unwrap_or_else(RawJson::empty_object);
                let mirrored = self.mirrored_parameters(method, &params);
                let mut headers =
                    headers::for_request(self.server.revision, method, Some(&params), &mirrored);
                headers.extend(options.headers);
                let own = own.unwrap_or_else(RawJson::empty_object);
                let own = self.stateless_meta(&own, token, options.capabilities.as_ref(), options.log_level);
                (Some(params.with("_meta", &own)), headers)
            }
        };
        let request = OutgoingRequest { id, method, params, progress_token, era, headers };
        self.connection.send_request(request, None).await
    }

    /// Sends a request, answers its input requests and returns the final result.
    pub async fn call(&self, method: &str, params: Option<RawJson>) -> Result<RawJson, RequestError> {
        input_rounds::call(self, method, params).await
    }

    /// Sends a notification.
    pub async fn notify(&self, method: &str, params: Option<RawJson>) -> Result<(), TransportError> {
        self.connection.notify(Notification::new(method, params), None).await
    }

    /// Splits the tools of a `tools/list` result into usable ones and the reasons for those that are left
    /// out. Remembers which arguments are mirrored in headers.
    pub fn register_tools(&self, list: &RawJson) -> (Vec<RawJson>, Vec<String>) {
        let (mut usable, mut skipped) = (Vec::new(), Vec::new());
        let tools = list.get("tools").map(|tools| tools.items().collect::<Vec<_>>()).unwrap_or_default();
        for tool in tools {
            let name = tool
                .get("name")
                .and_then(|name| name.text().map(std::borrow::Cow::into_owned))
                .unwrap_or_default();
            match headers::header_parameters(tool.get("inputSchema").as_ref()) {
                Ok(parameters) => {
                    let mut known = self.header_parameters.lock();
                    if parameters.is_empty() {
                        known.remove(&name);
                    } else {
                        known.insert(name, parameters.into());
                    }
                    usable.push(tool);
                }
                Err(problem) => skipped.push(format!("tool '{name}' is skipped: {problem}")),
            }
        }
        (usable, skipped)
    }

    /// Returns the `_meta` of a stateless request.
    fn stateless_meta(
        &self,
        own: &RawJson,
        (token_name, token): (&str, Option<&RawJson>),
        capabilities: Option<&RawJson>,
        log_level: Option<LogLevel>,
    ) -> RawJson {
        let capabilities = capabilities.unwrap_or(&self.options.capabilities);
        let log_level = log_level.map(|level| RawJson::of(&level));
        let changes = [
            (meta::PROTOCOL_VERSION, Some(&self.revision)),
            (meta::CLIENT_INFO, Some(&self.options.info)),
            (meta::CLIENT_CAPABILITIES, Some(capabilities)),
            (token_name, token),
            (meta::LOG_LEVEL, log_level.as_ref()),
        ];
        // A level that the caller has set stays.
        own.with_all(if log_level.is_some() { &changes } else { &changes[..4] })
    }

    fn mirrored_parameters(&self, method: &str, params: &RawJson) -> Arc<[HeaderParameter]> {
        let known = self.header_parameters.lock();
        if method != "tools/call" || known.is_empty() {
            return Arc::default();
        }
        let tool = params.get("name");
        tool.as_ref().and_then(RawJson::text).and_then(|name| known.get(&*name).cloned()).unwrap_or_default()
    }
}

/// Removes the `_meta` keys that would make a server of both eras treat the request as stateless, and sets the
/// progress token.
fn without_stateless_meta(params: &RawJson, own: &RawJson, token: (&str, Option<&RawJson>)) -> RawJson {
    let changed = own.with_all(&[
        (meta::PROTOCOL_VERSION, None),
        (meta::CLIENT_INFO, None),
        (meta::CLIENT_CAPABILITIES, None),
        (meta::LOG_LEVEL, None),
        token,
    ]);
    if changed == *own { params.clone() } else { params.with("_meta", &changed) }
}

/// Answers pings and passes everything else to the inner handler.
struct PingResponder(Arc<dyn InboundHandler>);

impl InboundHandler for PingResponder {
    fn request(&self, inbound: InboundRequest) -> BoxFuture<'static, Result<RawJson, RpcError>> {
        if &*inbound.request.method == "ping" {
            return std::future::ready(Ok(RawJson::empty_object())).boxed();
        }
        self.0.request(inbound)
    }

    fn notification(&self, notification: Notification, related_request: Option<Id>) {
        self.0.notification(notification, related_request);
    }
}
