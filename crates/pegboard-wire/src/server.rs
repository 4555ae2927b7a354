//! The server role: one service for clients of both eras.
//!
//! A [`McpService`] answers requests and is independent of the era. `session` serves it to clients that open
//! with `initialize`, `stateless` to those with self-contained requests; one connection may carry both.

use std::borrow::Borrow;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt, ready};
use tokio::sync::broadcast;

use crate::connection::{Connection, ConnectionLimits, ConnectionRole};
use crate::era::{Era, LogLevel, Revision, meta};
use crate::http::headers::HeaderParameter;
use crate::http::received_headers::ReceivedHeaders;
#[cfg(feature = "http-server")]
use crate::http::server::streams::SessionStreams;
use crate::message::{Notification, RpcError};
use crate::random;
use crate::state_signer::StateSigner;
use crate::transport::{TransportError, TransportHandle};
use pegboard_json::RawJson;

mod input_requests;
pub(crate) mod notification_stream;
mod peer;
mod received_meta;
mod response_memory;
pub(crate) mod session;
mod shared_descriptions;
pub(crate) mod stateless;
mod subscription;

pub use input_requests::ClientCapability;
pub use peer::Peer;
pub use received_meta::ForwardedMeta;
#[cfg(feature = "http-server")]
pub(crate) use response_memory::ArrivingRequest;
pub use response_memory::{ResponseMemory, ResponseMemoryFull};

use shared_descriptions::SharedDescriptions;

/// The implementation of an MCP server, independent of era and transport.
pub trait McpService: Send + Sync + 'static {
    /// Describes the service in terms of a revision.
    fn describe(&self, revision: Revision) -> ServiceDescription;

    /// Returns only the name and version, which every stateless answer includes.
    fn info(&self) -> RawJson {
        self.describe(Revision::NEWEST_STATELESS).info
    }

    /// Describes the service to one client, for services that differ by client.
    fn describe_for(&self, revision: Revision, _client: &ClientDescription) -> ServiceDescription {
        self.describe(revision)
    }

    /// Completes when the service can be described to a client. The handshake waits for it.
    fn prepare(&self, _revision: Revision, _client: &ClientDescription) -> BoxFuture<'static, ()> {
        ready(()).boxed()
    }

    /// Returns the time for which a client may keep the description of the service.
    fn description_ttl(&self, _client: &ClientDescription) -> Duration {
        Duration::ZERO
    }

    /// Returns extra `_meta` of the handshake answer for a client.
    fn extra_meta(&self, _client: &ClientDescription) -> Option<RawJson> {
        None
    }

    /// Answers a request. Dropping the future cancels the work.
    fn call(&self, request: ServerRequest) -> BoxFuture<'static, Result<ServiceReply, RpcError>>;

    /// Called when a client with a session sends a notification.
    fn on_notification(&self, _session: &ClientSessionId, _notification: Notification) {}

    /// Called when a client without a session subscribes to changes of these resources. Its stream counts as
    /// a session of its own, which ends with it.
    fn on_resources_watched(
        &self,
        _stream: &ClientSessionId,
        _resources: &[String],
    ) -> BoxFuture<'static, ()> {
        ready(()).boxed()
    }

    /// Called when a session has ended: its connection is closed and it has no request in progress.
    fn on_session_ended(&self, _session: &ClientSessionId) {}

    /// Subscribes to changes of the service; `None` if it never changes.
    fn changes(&self) -> Option<broadcast::Receiver<ServiceChange>> {
        None
    }

    /// Returns the arguments of a tool that must be mirrored in headers.
    fn header_parameters(&self, _tool: &str) -> Vec<HeaderParameter> {
        Vec::new()
    }
}

/// Name, capabilities and instructions of a service.
#[derive(Clone, Debug)]
pub struct ServiceDescription {
    /// Name and version: an `Implementation` object.
    pub info: RawJson,
    /// Capabilities, in terms of the revision.
    pub capabilities: RawJson,
    /// Instructions for the model.
    pub instructions: Option<String>,
}

/// A request to a service.
#[derive(Debug)]
pub struct ServerRequest {
    /// The method name.
    pub method: Arc<str>,
    /// The parameters; `{}` if absent.
    pub params: RawJson,
    /// The client's protocol revision.
    pub revision: Revision,
    /// The session; `None` in the stateless era.
    pub session: Option<ClientSessionId>,
    /// The client.
    pub client: Arc<ClientDescription>,
    /// The part of `_meta` that concerns others than this service.
    pub forwarded_meta: ForwardedMeta,
    /// The client's responses to an earlier [`ServiceReply::InputRequired`], by name.
    pub input_responses: Option<RawJson>,
    /// The state sent with an earlier [`ServiceReply::InputRequired`].
    pub state: Option<Bytes>,
    /// HTTP headers of the request; empty for transports without headers.
    pub headers: ReceivedHeaders,
    /// The client, for notifications and requests while this request is in progress.
    pub peer: Peer,
}

/// The id of a client session; over HTTP its `Mcp-Session-Id`. It does not authenticate, but it names the
/// session to its transport, so it is not shown to other clients.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClientSessionId(Arc<str>);

impl ClientSessionId {
    pub(crate) fn random() -> Self {
        Self(format!("{:032x}", u128::from_be_bytes(random::bytes())).into())
    }

    /// Returns the id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for ClientSessionId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// Client information from the handshake or from `_meta`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientDescription {
    /// Name and version, if the client sent them.
    pub info: Option<RawJson>,
    /// Client capabilities.
    pub capabilities: RawJson,
}

impl ClientDescription {
    /// Returns the size of the description in bytes.
    pub(crate) fn n_bytes(&self) -> usize {
        self.info.as_ref().map_or(0, |info| info.as_bytes().len()) + self.capabilities.as_bytes().len()
    }
}

/// The answer of a service to a request.
#[derive(Clone, Debug, PartialEq)]
pub enum ServiceReply {
    /// The result.
    Result(RawJson),
    /// Input requests for the client, by name; the request is retried with the responses.
    InputRequired {
        /// Input requests such as `elicitation/create`, as `{"name": {"method": …, "params": …}}`.
        input_requests: RawJson,
        /// State to return with the responses. It is signed, but readable by the client: put no secret in it.
        state: Option<Bytes>,
    },
}

impl From<RawJson> for ServiceReply {
    fn from(result: RawJson) -> Self {
        Self::Result(result)
    }
}

/// A change that clients are notified of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceChange {
    /// The list of tools.
    Tools,
    /// The list of prompts.
    Prompts,
    /// The list of resources.
    Resources,
    /// The content of one resource.
    Resource {
        /// Its URI.
        uri: String,
        /// Parameters of the notification as a server sent them; the URI replaces theirs.
        params: Option<RawJson>,
    },
    /// A log message that belongs to no request, in protocol form. Sent only to clients with a session.
    Log(RawJson),
    /// The user has completed a URL elicitation; parameters in protocol form. Sent only to clients with a
    /// session that support URL elicitation.
    ElicitationComplete(RawJson),
    /// A notification that the protocol does not define. Sent only to clients with a session.
    Custom {
        /// Its method.
        method: Arc<str>,
        /// Its parameters.
        params: Option<RawJson>,
    },
    /// The status of one task.
    Task {
        /// The task id.
        id: String,
        /// The current task, in the form for its client.
        state: RawJson,
    },
}

/// A service with its server settings, ready to serve connections.
#[derive(Clone)]
pub struct ServiceServer {
    pub(crate) service: Arc<dyn McpService>,
    pub(crate) signer: StateSigner,
    pub(crate) limits: ConnectionLimits,
    /// The only era served; `None` for both.
    only_era: Option<Era>,
    /// The `_meta` that names the service, for results of the stateless era.
    info_meta: Arc<OnceLock<RawJson>>,
    /// Descriptions of clients with a session.
    clients: Arc<SharedDescriptions>,
    /// Memory for results that clients have not read.
    pub(crate) response_memory: ResponseMemory,
}

impl ServiceServer {
    /// Lifetime of signed state: the time a stateless client has to answer input requests.
    const STATE_LIFETIME: Duration = Duration::from_hours(1);
    /// Time that requests may keep running after the client has closed its input.
    const LINGER: Duration = Duration::from_secs(5);

    /// Maximum number of concurrent requests of one client.
    pub const MAX_REQUESTS: usize = 2_000;

    /// Creates a server for `service`, with a random key for signed state.
    pub fn new(service: Arc<dyn McpService>) -> Self {
        let limits = ConnectionLimits {
            role: ConnectionRole::Server { linger: Self::LINGER },
            max_inbound: Self::MAX_REQUESTS,
            ..ConnectionLimits::default()
        };
        let signer = StateSigner::random(Self::STATE_LIFETIME);
        let response_memory = ResponseMemory::default();
        let (info_meta, clients) = (Arc::default(), Arc::default());
        Self { service, signer, limits, only_era: None, info_meta, clients, response_memory }
    }

    /// Signs state with a key shared by other processes.
    #[must_use]
    pub fn with_signer(mut self, signer: StateSigner) -> Self {
        self.signer = signer;
        self
    }

    /// Shares the memory for results that clients have not read.
    #[must_use]
    pub fn with_response_memory(mut self, memory: ResponseMemory) -> Self {
        self.response_memory = memory;
        self
    }

    /// Serves clients of one era only.
    #[must_use]
    pub fn serving_only(mut self, era: Era) -> Self {
        self.only_era = Some(era);
        self
    }

    /// Returns the `_meta` that names the service.
    pub(crate) fn info_meta(&self) -> &RawJson {
        self.info_meta.get_or_init(|| RawJson::object(&[(meta::SERVER_INFO, &self.service.info())]))
    }

    /// Returns the era in which a request is served, given the one it claims.
    pub(crate) fn era(&self, claimed: Era) -> Era {
        self.only_era.unwrap_or(claimed)
    }

    /// Serves one client until the connection closes.
    pub async fn serve(&self, transport: TransportHandle) -> TransportError {
        self.open(transport).closed().await
    }

    /// Opens a connection that serves one client for as long as it lives.
    pub fn open(&self, transport: TransportHandle) -> Connection {
        self.open_session(transport, ClientSessionId::random())
    }

    /// Opens the connection of a session over HTTP.
    #[cfg(feature = "http-server")]
    pub(crate) fn open_http_session(
        self: &Arc<Self>,
        streams: Arc<SessionStreams>,
        id: ClientSessionId,
    ) -> (Connection, Arc<session::ServerSession>) {
        session::open_http(self, streams, id)
    }

    /// Opens a connection under the session id that the transport uses.
    pub(crate) fn open_session(&self, transport: TransportHandle, id: ClientSessionId) -> Connection {
        session::open(self, transport, id)
    }
}

/// Minimum level of log messages for a client with a session that has set none.
const DEFAULT_LOG_LEVEL: LogLevel = LogLevel::Info;
