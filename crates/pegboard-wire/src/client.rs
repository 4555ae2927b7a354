//! The client role: a connection to one server of either protocol era.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ::http::HeaderMap;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::time;

use crate::connection::{
    Connection, ConnectionLimits, InboundHandler, InboundRequest, OutgoingRequest, ProgressToken,
};
use crate::era::{LogLevel, Revision, meta};
#[cfg(feature = "http-client")]
use crate::http;
#[cfg(feature = "http-client")]
use crate::http::client::HttpOptions;
use crate::http::headers::{self, HeaderParameter, MirroredHeaders};
use crate::http::resend::ResendSafety;
use crate::message::outgoing::{EncodedRequest, OutgoingMeta};
use crate::message::{Id, Notification, RpcError};
use crate::pending_request::{PendingRequest, RequestError};
use crate::transport::{MessageTrace, TransportError, TransportHandle};
use pegboard_json::RawJson;

mod input_rounds;
mod negotiation;

pub use crate::era::Era;
pub use input_rounds::{TooManyInputRequests, input_requests, next_round_params};
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
    /// Era to use with a server that supports both; ignored if the era is known.
    pub preferred_era: Era,
    /// Time to wait for an answer in the preferred era before the other one is tried as well.
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
            preferred_era: Era::Stateless,
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
    /// The server was out of reach when it was asked for the preferred era, and may have it all the same.
    pub may_have_preferred_era: bool,
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
    /// Fields of `_meta`, if the parameters have none. Those that the protocol defines are left out.
    pub meta: Option<RawJson>,
    /// Requests progress notifications. Their token has no meaning.
    pub has_progress: bool,
}

/// A connection to an MCP server. Clones share the connection.
#[derive(Clone)]
pub struct McpClient {
    connection: Connection,
    handler: Arc<dyn InboundHandler>,
    options: Arc<ClientOptions>,
    server: Arc<ServerDescription>,
    /// Fields of `_meta` that every stateless request has, encoded.
    fixed_meta: Arc<[u8]>,
    /// Arguments mirrored in headers, by tool name.
    header_parameters: Arc<Mutex<HashMap<String, Arc<[HeaderParameter]>>>>,
}

impl McpClient {
    /// Negotiates the era, performs the handshake and returns the connected client. Requests of the server go
    /// to `handler`.
    pub async fn connect(
        transport: TransportHandle,
        handler: Arc<dyn InboundHandler>,
        options: ClientOptions,
    ) -> Result<Self, HandshakeError> {
        let responder = Arc::new(PingResponder(Arc::clone(&handler)));
        let trace = MessageTrace::of(options.trace_name.as_ref());
        let connection = Connection::open_traced(transport, responder, options.limits, trace);
        let server =
            time::timeout(options.handshake_timeout, Box::pin(negotiation::negotiate(&connection, &options)))
                .await
                .unwrap_or(Err(HandshakeError::TimedOut(options.handshake_timeout)))?;
        let fixed_meta = fixed_meta(server.revision, &options.info);
        Ok(Self {
            connection,
            handler,
            options: Arc::new(options),
            fixed_meta,
            server: Arc::new(server),
            header_parameters: Arc::default(),
        })
    }

    /// Connects to a server by URL: streamable HTTP first, HTTP+SSE if the server only supports that.
    #[cfg(feature = "http-client")]
    pub async fn connect_http(
        http: HttpOptions,
        handler: Arc<dyn InboundHandler>,
        options: ClientOptions,
    ) -> Result<Self, HandshakeError> {
        let transport = http::client::connect(http.clone())?;
        match Self::connect(transport, Arc::clone(&handler), options.clone()).await {
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
    pub fn request(
        &self,
        method: &str,
        params: Option<RawJson>,
        options: RequestOptions,
    ) -> impl Future<Output = Result<PendingRequest, RequestError>> + use<'_> {
        let id = self.connection.reserve_id();
        let era = self.era();
        let RequestOptions { headers, capabilities, log_level, meta: custom, has_progress } = options;
        let own = params.as_ref().and_then(|params| params.get("_meta"));
        let params = if own.is_some() { params.map(|params| params.without("_meta")) } else { params };
        let given = own.or(custom);
        let progress_token = match given.as_ref().and_then(|given| given.get("progressToken")) {
            Some(token) => ProgressToken::Given(token),
            None if has_progress => ProgressToken::RequestId,
            None => ProgressToken::None,
        };
        let mut meta = OutgoingMeta {
            has_progress: !matches!(progress_token, ProgressToken::None),
            given: given.as_ref(),
            hidden: &meta::PROTOCOL_FIELDS,
            ..OutgoingMeta::default()
        };
        let mut mirrored_headers = None;
        let encoded = match era {
            Era::Session => EncodedRequest::new(id, method, params.as_ref(), &meta),
            Era::Stateless => {
                let mirrored = self.mirrored_parameters(method, params.as_ref());
                let revision = self.server.revision;
                mirrored_headers =
                    Some(MirroredHeaders::of(revision, method, params.as_ref(), mirrored.as_deref()));
                let capabilities = capabilities.as_ref().unwrap_or(&self.options.capabilities);
                let level = log_level.map(LogLevel::as_json);
                let fields = [
                    (meta::CLIENT_CAPABILITIES, capabilities),
                    (meta::LOG_LEVEL, level.as_ref().unwrap_or(capabilities)),
                ];
                meta.fixed = &self.fixed_meta;
                // A level that the caller has set stays.
                let n_fields = if level.is_some() { 2 } else { 1 };
                meta.fields = &fields[..n_fields];
                meta.hidden = &meta::PROTOCOL_FIELDS[..3 + n_fields];
                EncodedRequest::new(id, method, params.as_ref(), &meta)
            }
        };
        let resend = ResendSafety::of(method);
        let request =
            OutgoingRequest { id, method, encoded, progress_token, era, headers, mirrored_headers, resend };
        self.connection.send_request(request, None)
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

    fn mirrored_parameters(&self, method: &str, params: Option<&RawJson>) -> Option<Arc<[HeaderParameter]>> {
        let known = self.header_parameters.lock();
        if method != "tools/call" || known.is_empty() {
            return None;
        }
        let tool = params?.get("name");
        tool.as_ref().and_then(RawJson::text).and_then(|name| known.get(&*name).cloned())
    }
}

/// Encodes the fields of `_meta` that every stateless request has.
fn fixed_meta(revision: Revision, info: &RawJson) -> Arc<[u8]> {
    let (revision_key, info_key) = (meta::PROTOCOL_VERSION, meta::CLIENT_INFO);
    format!(r#""{revision_key}":"{}","{info_key}":{}"#, revision.as_str(), info.as_str()).into_bytes().into()
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
