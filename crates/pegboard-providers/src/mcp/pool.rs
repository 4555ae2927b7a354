//! Servers shared between toolboxes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::SystemTime;

use futures_util::future::{BoxFuture, FutureExt};
use parking_lot::Mutex;
use pegboard_core::call::CallContext;
use pegboard_core::error::CallError;
use pegboard_core::provider::{
    ProcessInfo, Provider, ProviderRequest, ProviderUpdate, ServerOffering, ServerState, ToolKind,
};
use pegboard_core::server_log::ServerLog;
use pegboard_core::settings::mcp::{InvalidMcpServer, McpTarget, ResolvedMcpServer};
use pegboard_core::store::CatalogueStore;
use pegboard_json::RawJson;
use tokio::sync::{broadcast, watch};

use super::connect::Connector;
use super::remote::{HttpConnector, SharedHttpClient, SseConnector, WebSocketConnector};
use super::stdio::StdioConnector;
use super::{Health, McpServer};
use crate::process::SupervisorCommand;

/// Creates servers from settings. Equal settings lead to the same server for as long as a handle to it
/// exists.
///
/// ```
/// use std::sync::Arc;
///
/// use pegboard_core::id::ServerName;
/// use pegboard_core::settings::mcp::{McpTarget, RemoteEndpoint, ResolvedMcpServer};
/// use pegboard_providers::mcp::{PoolOptions, ServerPool};
///
/// let pool = ServerPool::new(PoolOptions::default());
/// let target = McpTarget::Http(RemoteEndpoint::new("https://example.org/mcp"));
/// let settings = ResolvedMcpServer::new(ServerName::new("example").unwrap(), target);
/// let (one, other) = (pool.server(settings.clone()).unwrap(), pool.server(settings).unwrap());
/// assert!(one.is_same(&other));
/// ```
#[derive(Default)]
pub struct ServerPool {
    options: PoolOptions,
    servers: Mutex<HashMap<String, Weak<PooledServer>>>,
    http_client: SharedHttpClient,
}

/// Options for all servers of a pool.
#[derive(Clone, Debug, Default)]
pub struct PoolOptions {
    /// Command that runs as the supervisor of programs; `None` for this process itself.
    pub supervisor: Option<SupervisorCommand>,
}

/// A server with the number of its handles.
struct PooledServer {
    server: McpServer,
    n_holders: AtomicUsize,
    is_listing_cached: AtomicBool,
}

/// A handle to a server of a pool. The server is shut down when the last handle is released or dropped.
pub struct SharedServer {
    shared: Arc<PooledServer>,
    is_held: AtomicBool,
}

impl ServerPool {
    /// Creates a pool.
    pub fn new(options: PoolOptions) -> Self {
        Self { options, ..Self::default() }
    }

    /// Returns the server for these settings. It starts on first use.
    pub fn server(&self, settings: ResolvedMcpServer) -> Result<SharedServer, InvalidMcpServer> {
        let key = pool_key(&settings);
        let mut servers = self.servers.lock();
        servers.retain(|_, server| server.strong_count() > 0);
        if let Some(shared) = servers.get(&key).and_then(Weak::upgrade).and_then(SharedServer::try_acquire) {
            return Ok(shared);
        }
        let connector = self.connector_for(&settings)?;
        let server = McpServer::new(settings, connector);
        let (n_holders, is_listing_cached) = (AtomicUsize::new(1), AtomicBool::new(false));
        let shared = Arc::new(PooledServer { server, n_holders, is_listing_cached });
        servers.insert(key, Arc::downgrade(&shared));
        Ok(SharedServer { shared, is_held: AtomicBool::new(true) })
    }

    fn connector_for(&self, settings: &ResolvedMcpServer) -> Result<Arc<dyn Connector>, InvalidMcpServer> {
        Ok(match &settings.target {
            McpTarget::Program(program) => {
                let connector = StdioConnector::new(program);
                Arc::new(match &self.options.supervisor {
                    Some(supervisor) => connector.with_supervisor(supervisor.clone()),
                    None => connector,
                })
            }
            McpTarget::WebSocket(address) => Arc::new(WebSocketConnector::new(address)?),
            McpTarget::Http(address) => Arc::new(HttpConnector::with_client(address, &self.http_client)?),
            McpTarget::Sse(address) => Arc::new(SseConnector::with_client(address, &self.http_client)?),
            McpTarget::Embedded => return Err(InvalidMcpServer::Embedded { server: settings.name.clone() }),
        })
    }
}

/// Returns a key that differs for settings that need another server or another lifecycle.
fn pool_key(settings: &ResolvedMcpServer) -> String {
    let ResolvedMcpServer {
        name,
        target: _,
        is_enabled: _,
        is_shared,
        health_probe,
        start_timeout,
        idle_stop,
        health_interval,
        restart,
    } = settings;
    let fingerprint = settings.fingerprint();
    // The name is the only free text in it, and it contains no space.
    format!(
        "{name} {fingerprint} {is_shared} {health_probe:?} {start_timeout:?} {idle_stop:?} {health_interval:?} {restart:?}"
    )
}

impl SharedServer {
    /// Returns another handle, unless the last one has been released.
    fn try_acquire(shared: Arc<PooledServer>) -> Option<Self> {
        let one_more = |n_holders| (n_holders > 0).then_some(n_holders + 1);
        shared.n_holders.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        Some(Self { shared, is_held: AtomicBool::new(true) })
    }

    /// Returns `true` if both are handles to the same server.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Returns the settings of the server.
    pub fn settings(&self) -> &ResolvedMcpServer {
        self.shared.server.settings()
    }

    /// Probes the server. An unresponsive server is restarted.
    pub async fn probe(&self) -> Health {
        self.shared.server.probe().await
    }

    /// Publishes the last known listing until the server has been listed, and saves later ones; see
    /// [`McpServer::cache_listing`]. Only the first call for a server has an effect.
    pub async fn cache_listing(&self, store: Arc<dyn CatalogueStore>, now: SystemTime) {
        if !self.shared.is_listing_cached.swap(true, Ordering::Relaxed) {
            self.shared.server.cache_listing(store, now).await;
        }
    }

    /// Releases the handle; returns `true` if it was the last one.
    fn release(&self) -> bool {
        self.is_held.swap(false, Ordering::Relaxed)
            && self.shared.n_holders.fetch_sub(1, Ordering::Relaxed) == 1
    }
}

impl Drop for SharedServer {
    fn drop(&mut self) {
        // The server stops with the last reference to it.
        self.release();
    }
}

impl Provider for SharedServer {
    fn kind(&self) -> ToolKind {
        self.shared.server.kind()
    }

    fn offering(&self) -> watch::Receiver<Arc<ServerOffering>> {
        self.shared.server.offering()
    }

    fn state(&self) -> watch::Receiver<ServerState> {
        self.shared.server.state()
    }

    fn process_info(&self) -> ProcessInfo {
        self.shared.server.process_info()
    }

    fn open(&self) -> BoxFuture<'_, Result<(), CallError>> {
        self.shared.server.open()
    }

    fn request<'a>(
        &'a self,
        request: &'a ProviderRequest,
        context: &'a CallContext,
    ) -> BoxFuture<'a, Result<RawJson, CallError>> {
        self.shared.server.request(request, context)
    }

    fn updates(&self) -> broadcast::Receiver<ProviderUpdate> {
        self.shared.server.updates()
    }

    fn log(&self) -> ServerLog {
        self.shared.server.log()
    }

    fn shut_down(&self) -> BoxFuture<'_, ()> {
        async move {
            if self.release() {
                self.shared.server.shut_down().await;
            }
        }
        .boxed()
    }
}
