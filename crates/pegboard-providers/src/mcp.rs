//! MCP servers as providers of tools.
//!
//! A [`McpServer`] is one server with a supervisor task that starts it on first use, monitors it, restarts it
//! when it is lost and shuts it down. A [`Connector`] establishes the connection: [`StdioConnector`],
//! [`HttpConnector`], [`SseConnector`], [`WebSocketConnector`] or [`PipeConnector`]. A [`ServerPool`] creates
//! servers from settings and shares those with equal settings.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::{BoxFuture, FutureExt};
use parking_lot::Mutex;
use pegboard_core::call::CallContext;
use pegboard_core::error::CallError;
use pegboard_core::handler::Handler;
use pegboard_core::provider::{
    ProcessInfo, Provider, ProviderRequest, ProviderUpdate, ServerOffering, ServerState, ToolKind,
};
use pegboard_core::server_log::ServerLog;
use pegboard_core::settings::mcp::ResolvedMcpServer;
use pegboard_core::store::CatalogueStore;
use pegboard_json::RawJson;
use tokio::sync::{broadcast, watch};
use tokio::task::JoinHandle;
use tokio::time::{self, Instant};
use tokio_util::sync::DropGuard;

pub use connect::{Backend, Connector, ConnectorError, EstablishedConnection, HandshakeOptions};
pub use pipe::PipeConnector;
pub use pool::{PoolOptions, ServerPool, SharedServer};
pub use remote::{HttpConnector, SseConnector, WebSocketConnector};
pub use stdio::StdioConnector;

use call::ServerCaller;
use handle::{CloseReason, ServerHandle, ServerPhase};
use instances::InstanceRouter;
use listing::LiveListing;
use listing_cache::ListingCache;
use supervisor::ServerSupervisor;

mod backoff;
mod call;
mod connect;
mod handle;
mod in_flight;
mod instances;
mod instructions;
mod list;
mod listen;
mod listing;
mod listing_cache;
mod pipe;
mod pool;
mod probe;
mod remote;
mod request;
mod stdio;
mod subscriptions;
mod supervisor;
mod tasks;
mod tool;
mod updates;
mod url_elicitation;

/// Maximum length of a server's own text in a reported failure.
const MAX_REASON_BYTES: usize = 2_000;

/// Time limit for shutting down a server.
const SHUT_DOWN_TIMEOUT: Duration = Duration::from_secs(12);

/// Time limit for saving the last listing during shutdown.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// An MCP server. Dropping it stops the server without waiting.
///
/// ```
/// use std::sync::Arc;
///
/// use pegboard_core::id::ServerName;
/// use pegboard_core::provider::{Provider, ServerState};
/// use pegboard_core::settings::mcp::{McpTarget, RemoteEndpoint, ResolvedMcpServer};
/// use pegboard_providers::mcp::{HttpConnector, McpServer};
///
/// let endpoint = RemoteEndpoint::new("https://example.org/mcp");
/// let settings = ResolvedMcpServer::new(ServerName::new("example").unwrap(), McpTarget::Http(endpoint.clone()));
/// let server = McpServer::new(settings, Arc::new(HttpConnector::new(&endpoint).unwrap()));
/// assert_eq!(*server.state().borrow(), ServerState::Idle);
/// ```
pub struct McpServer {
    handle: Arc<ServerHandle>,
    listing: LiveListing,
    connector: Arc<dyn Connector>,
    /// Present until the server is used for the first time.
    supervisor: Mutex<Option<ServerSupervisor>>,
    /// Routes calls to instances; `None` for a server that is itself dedicated to one session.
    instances: Option<Arc<InstanceRouter>>,
    /// Task that saves the listing, if there is a store for it.
    listing_writer: Mutex<Option<JoinHandle<()>>>,
    _stop_guard: DropGuard,
}

/// Result of a liveness probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// The server responds.
    Responsive,
    /// The server does not respond and is restarted.
    Unresponsive,
    /// The server is not running.
    NotRunning,
}

impl McpServer {
    /// Creates a server that is reached through `connector`. It starts on first use.
    pub fn new(settings: ResolvedMcpServer, connector: Arc<dyn Connector>) -> Self {
        let handle = Arc::new(ServerHandle::new(settings));
        let instances = Arc::new(InstanceRouter::new(Arc::clone(&handle), Arc::clone(&connector)));
        let handler = Arc::clone(&instances) as Arc<dyn Handler>;
        Self { instances: Some(instances), ..Self::with_handle(handle, connector, handler) }
    }

    /// Creates an instance of the server `base` for one session. Its updates go to the subscribers of `base`.
    fn dedicated_to_session(base: &ServerHandle, connector: Arc<dyn Connector>) -> Self {
        let mut handle = ServerHandle::new(base.settings.clone());
        handle.updates = base.updates.for_one_session();
        let handle = Arc::new(handle);
        let handler = Arc::new(ServerCaller(Arc::clone(&handle)));
        Self::with_handle(handle, connector.dedicated().unwrap_or(connector), handler)
    }

    fn with_handle(
        handle: Arc<ServerHandle>,
        connector: Arc<dyn Connector>,
        handler: Arc<dyn Handler>,
    ) -> Self {
        let listing = LiveListing::new(&handle, handler);
        let supervisor = ServerSupervisor::new(Arc::clone(&handle), Arc::clone(&connector), listing.clone());
        let stop = handle.stop.clone().drop_guard();
        let (supervisor, listing_writer) = (Mutex::new(Some(supervisor)), Mutex::default());
        Self { handle, listing, connector, supervisor, instances: None, listing_writer, _stop_guard: stop }
    }

    /// Publishes the last known listing from `store` until the server has been listed, and saves every later
    /// listing there. `now` is the current wall-clock time.
    ///
    /// This does not start the server; the first use of the listing does.
    pub async fn cache_listing(&self, store: Arc<dyn CatalogueStore>, now: SystemTime) {
        self.spawn_supervisor();
        let ResolvedMcpServer { name, .. } = self.settings();
        let (server, fingerprint) = (name.clone(), self.settings().fingerprint());
        let cache = ListingCache { server, fingerprint, store, clock: (now, Instant::now()) };
        let mut listings = self.listing.offering();
        if let Some(last_known) = cache.load(self.listing.handler()).await {
            self.listing.publish_snapshot(last_known);
        }
        if self.listing.is_fresh() {
            listings.mark_changed();
        }
        // The task ends when the server is dropped or shut down.
        let listing_writer = tokio::spawn(cache.save_changes(listings, self.handle.stop.clone()));
        if let Some(previous) = self.listing_writer.lock().replace(listing_writer) {
            previous.abort();
        }
    }

    /// Returns the settings of the server.
    pub fn settings(&self) -> &ResolvedMcpServer {
        &self.handle.settings
    }

    /// Probes the server. An unresponsive server is restarted.
    pub async fn probe(&self) -> Health {
        let Some(live) = self.handle.connection() else { return Health::NotRunning };
        if probe::is_responsive(live.client(), self.handle.settings.health_probe).await {
            return Health::Responsive;
        }
        live.request_close(CloseReason::Unresponsive);
        Health::Unresponsive
    }

    /// Starts the supervisor task, unless it has been started.
    fn spawn_supervisor(&self) {
        if let Some(supervisor) = self.take_supervisor() {
            // The task ends when the server is dropped or shut down.
            tokio::spawn(supervisor.run());
        }
    }

    fn take_supervisor(&self) -> Option<ServerSupervisor> {
        self.supervisor.lock().take()
    }

    /// Waits for pending saves, at most [`FLUSH_TIMEOUT`].
    async fn flush_listing(&self) {
        let listing_writer = self.listing_writer.lock().take();
        if let Some(listing_writer) = listing_writer
            && time::timeout(FLUSH_TIMEOUT, listing_writer).await.is_err()
        {
            tracing::warn!(server = %self.handle.settings.name, "The listing of an MCP server was not saved in time.");
        }
    }
}

impl Provider for McpServer {
    fn kind(&self) -> ToolKind {
        ToolKind::Mcp
    }

    fn offering(&self) -> watch::Receiver<Arc<ServerOffering>> {
        self.listing.offering()
    }

    fn state(&self) -> watch::Receiver<ServerState> {
        self.handle.state()
    }

    /// Returns the information of the shared instance, not that of dedicated ones.
    fn process_info(&self) -> ProcessInfo {
        ProcessInfo { pid: self.connector.pid(), ..self.handle.process_info() }
    }

    fn open(&self) -> BoxFuture<'_, Result<(), CallError>> {
        async move {
            self.spawn_supervisor();
            self.handle.ready().await.map(drop)
        }
        .boxed()
    }

    fn request<'a>(
        &'a self,
        request: &'a ProviderRequest,
        context: &'a CallContext,
    ) -> BoxFuture<'a, Result<RawJson, CallError>> {
        async move {
            self.spawn_supervisor();
            match &self.instances {
                Some(instances) => instances.request(request, context).await,
                None => ServerCaller(Arc::clone(&self.handle)).request(request, context).await,
            }
        }
        .boxed()
    }

    fn updates(&self) -> broadcast::Receiver<ProviderUpdate> {
        self.handle.updates.subscribe()
    }

    fn log(&self) -> ServerLog {
        self.handle.updates.log().clone()
    }

    fn shut_down(&self) -> BoxFuture<'_, ()> {
        async move {
            self.handle.stop.cancel();
            self.flush_listing().await;
            let instances = async {
                if let Some(instances) = &self.instances {
                    instances.shut_down().await;
                }
            };
            if self.take_supervisor().is_some() {
                self.handle.set_phase(ServerPhase::Stopped);
                return instances.await;
            }
            let ended = async { tokio::join!(self.handle.ended.cancelled(), instances) };
            if time::timeout(SHUT_DOWN_TIMEOUT, ended).await.is_err() {
                tracing::warn!(server = %self.handle.settings.name, "MCP server did not shut down in time.");
            }
        }
        .boxed()
    }
}
