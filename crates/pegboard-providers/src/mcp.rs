//! MCP servers as providers of tools.
//!
//! A [`McpServer`] is one server with a supervisor task that starts it on first use, monitors it, restarts it
//! when it is lost and shuts it down. A [`Connector`] establishes the connection: [`StdioConnector`],
//! [`HttpConnector`], [`SseConnector`], [`WebSocketConnector`] or [`PipeConnector`]. A [`ServerPool`] creates
//! servers from settings and shares those with equal settings.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use futures_util::future::{BoxFuture, FutureExt};
use parking_lot::Mutex;
use pegboard_core::call::CallContext;
use pegboard_core::error::CallError;
use pegboard_core::handler::Handler;
use pegboard_core::owner::Principals;
use pegboard_core::provider::{
    ProcessInfo, Provider, ProviderRequest, ProviderUpdate, ServerOffering, ServerState, ToolKind,
};
use pegboard_core::server_log::ServerLog;
use pegboard_core::settings::mcp::ResolvedMcpServer;
use pegboard_core::store::CatalogueStore;
use pegboard_json::RawJson;
use tokio::sync::{broadcast, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{self, Instant};
use tokio_util::sync::DropGuard;

pub use connect::{Backend, Connector, ConnectorError, EstablishedConnection, HandshakeOptions};
pub use pipe::PipeConnector;
pub use pool::{PoolOptions, ServerLogins, ServerPool, StartedLogin};
pub use remote::{HttpConnector, SseConnector, WebSocketConnector};
pub use stdio::StdioConnector;

use handle::{CloseReason, ServerHandle, ServerPhase};
use instances::InstanceRouter;
use listing::LiveListing;
use listing_cache::ListingCache;
use supervisor::ServerSupervisor;

mod backoff;
mod call;
mod connect;
mod era_lists;
mod eras;
mod handle;
mod in_flight;
mod input_tasks;
mod instance_group;
mod instances;
mod instructions;
mod isolation;
mod list;
mod listen;
mod listing;
mod listing_cache;
mod login;
mod pipe;
mod pool;
mod probe;
mod remote;
mod request;
mod roots;
mod runner_hint;
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
/// Time beyond the timeout of a start after which opening a server is given up.
const OPEN_GRACE: Duration = Duration::from_secs(5);

/// A handle to an MCP server. The server is shut down when its last handle is, and stopped without waiting when
/// that is dropped.
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
    shared: Arc<SharedServer>,
    /// `false` once this handle has been shut down.
    is_held: AtomicBool,
}

/// State of a server that all handles share.
struct SharedServer {
    handle: Arc<ServerHandle>,
    listing: LiveListing,
    connector: Arc<dyn Connector>,
    /// Present until the server is used for the first time.
    supervisor: Mutex<Option<ServerSupervisor>>,
    instances: Arc<InstanceRouter>,
    is_listing_cached: AtomicBool,
    /// Task that saves the listing, if there is a store for it.
    listing_writer: Mutex<Option<JoinHandle<()>>>,
    /// Number of handles that have not been shut down.
    n_holders: AtomicUsize,
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
        Self::shared_by(Principals::default(), settings, connector)
    }

    /// Creates a server that these principals share.
    pub(crate) fn shared_by(
        principals: Principals,
        settings: ResolvedMcpServer,
        connector: Arc<dyn Connector>,
    ) -> Self {
        let handle = Arc::new(ServerHandle::new(settings, principals));
        let instances = Arc::new(InstanceRouter::new(Arc::clone(&handle), Arc::clone(&connector)));
        let listing = LiveListing::published(&handle, Arc::clone(&instances) as _);
        let supervisor = ServerSupervisor::new(Arc::clone(&handle), Arc::clone(&connector), listing.clone());
        let shared = Arc::new(SharedServer {
            listing,
            connector,
            supervisor: Mutex::new(Some(supervisor)),
            instances,
            is_listing_cached: AtomicBool::new(false),
            listing_writer: Mutex::default(),
            n_holders: AtomicUsize::new(1),
            _stop_guard: handle.stop.clone().drop_guard(),
            handle,
        });
        Self { shared, is_held: AtomicBool::new(true) }
    }

    /// Returns another handle, unless the last one has been released.
    fn try_acquire(shared: Arc<SharedServer>) -> Option<Self> {
        let one_more = |n_holders| (n_holders > 0).then_some(n_holders + 1);
        shared.n_holders.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        Some(Self { shared, is_held: AtomicBool::new(true) })
    }

    /// Releases the handle; returns `true` if it was the last one.
    fn release(&self) -> bool {
        self.is_held.swap(false, Ordering::Relaxed)
            && self.shared.n_holders.fetch_sub(1, Ordering::Relaxed) == 1
    }

    /// Returns `true` if both are handles to the same server.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Publishes the last known listing from `store` until the server has been listed, and saves every later
    /// listing there. `now` is the current wall-clock time.
    ///
    /// This does not start the server; the first use of the listing does. Only the first call for a server has
    /// an effect. The work is done in the background; the future completes when the last known listing is
    /// published.
    pub fn cache_listing(
        &self,
        store: Arc<dyn CatalogueStore>,
        now: SystemTime,
    ) -> impl Future<Output = ()> + Send + use<> {
        let (published, is_published) = oneshot::channel::<()>();
        if !self.shared.is_listing_cached.swap(true, Ordering::Relaxed) {
            let SharedServer { handle, listing, instances, .. } = &*self.shared;
            self.shared.spawn_supervisor();
            let (server, fingerprint) = (handle.settings.name.clone(), handle.settings.fingerprint());
            let cache = ListingCache { server, fingerprint, store, clock: (now, Instant::now()) };
            let (listing, stop) = (listing.clone(), handle.stop.clone());
            let handler = Arc::clone(instances) as Arc<dyn Handler>;
            // The task ends when the server is dropped or shut down.
            let listing_writer = tokio::spawn(async move {
                let mut listings = listing.offering();
                if let Some(last_known) = cache.load(&handler).await {
                    listing.publish_snapshot(last_known);
                }
                if listing.is_fresh() {
                    listings.mark_changed();
                }
                // The listing must not outlive the server.
                drop((published, listing, handler));
                cache.save_changes(listings, stop).await;
            });
            *self.shared.listing_writer.lock() = Some(listing_writer);
        }
        async move {
            // The sender is dropped without a message.
            let _ = is_published.await;
        }
    }

    /// Returns the settings of the server.
    pub fn settings(&self) -> &ResolvedMcpServer {
        &self.shared.handle.settings
    }

    /// Probes the server. An unresponsive server is restarted.
    pub async fn probe(&self) -> Health {
        let Some(live) = self.shared.handle.connection() else { return Health::NotRunning };
        if probe::is_responsive(live.client(), self.settings().health_probe).await {
            return Health::Responsive;
        }
        live.request_close(CloseReason::Unresponsive);
        Health::Unresponsive
    }
}

impl Drop for McpServer {
    fn drop(&mut self) {
        // The server stops with the last reference to it.
        self.release();
    }
}

impl SharedServer {
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

    /// Shuts down the server and its dedicated instances.
    async fn shut_down(&self) {
        self.handle.stop.cancel();
        self.flush_listing().await;
        if self.take_supervisor().is_some() {
            self.handle.set_phase(ServerPhase::Stopped);
            return self.instances.shut_down().await;
        }
        let ended = async { tokio::join!(self.handle.ended.cancelled(), self.instances.shut_down()) };
        if time::timeout(SHUT_DOWN_TIMEOUT, ended).await.is_err() {
            tracing::warn!(server = %self.handle.settings.name, "MCP server did not shut down in time.");
        }
    }
}

impl Provider for McpServer {
    fn kind(&self) -> ToolKind {
        ToolKind::Mcp
    }

    fn offering(&self) -> watch::Receiver<Arc<ServerOffering>> {
        self.shared.listing.offering()
    }

    fn state(&self) -> watch::Receiver<ServerState> {
        self.shared.handle.state()
    }

    /// Returns the information of the shared instance, and the number of others.
    fn process_info(&self) -> ProcessInfo {
        let n_further = u64::try_from(self.shared.instances.n_further()).unwrap_or(u64::MAX);
        ProcessInfo {
            pid: self.shared.connector.pid(),
            n_further_instances: Some(n_further).filter(|n_further| *n_further > 0),
            ..self.shared.handle.process_info()
        }
    }

    /// Longer than a start takes, which has its own timeout and a better message.
    fn open_timeout(&self) -> Duration {
        let settings = &self.shared.handle.settings;
        settings.effective_first_start_timeout().max(settings.start_timeout) + OPEN_GRACE
    }

    fn open(&self) -> BoxFuture<'_, Result<(), CallError>> {
        async move {
            self.shared.spawn_supervisor();
            self.shared.handle.ready().await.map(drop)
        }
        .boxed()
    }

    fn restart(&self) -> BoxFuture<'_, Result<bool, CallError>> {
        async move {
            self.shared.spawn_supervisor();
            self.shared.instances.restart().await.map(|()| true)
        }
        .boxed()
    }

    fn request<'a>(
        &'a self,
        request: &'a ProviderRequest,
        context: &'a CallContext,
    ) -> BoxFuture<'a, Result<RawJson, CallError>> {
        async move {
            self.shared.spawn_supervisor();
            self.shared.instances.request(request, context).await
        }
        .boxed()
    }

    fn updates(&self) -> broadcast::Receiver<ProviderUpdate> {
        self.shared.handle.updates.subscribe()
    }

    fn log(&self) -> ServerLog {
        self.shared.handle.updates.log().clone()
    }

    fn shut_down(&self) -> BoxFuture<'_, ()> {
        async move {
            if self.release() {
                self.shared.shut_down().await;
            }
        }
        .boxed()
    }
}
