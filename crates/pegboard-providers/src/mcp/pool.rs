//! Servers that several toolboxes share.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::SystemTime;

use futures_util::future::{BoxFuture, FutureExt};
use pegboard_core::call::CallContext;
use pegboard_core::error::CallError;
use pegboard_core::provider::{Offer, Particulars, Provider, Request, ServerState, ToolKind, Update};
use pegboard_core::server_log::ServerLog;
use pegboard_core::settings::mcp::{InvalidSettings, Settings, Target};
use pegboard_core::store::CatalogueStore;
use pegboard_json::RawJson;
use tokio::sync::{broadcast, watch};

use super::connect::Connect;
use super::remote::{Connections, Http, Sse, WebSocket};
use super::stdio::Stdio;
use super::{Health, Server};
use crate::process::Supervisor;

/// Makes servers from settings. The same settings lead to the same server for as long as somebody holds it.
///
/// ```
/// use std::sync::Arc;
///
/// use pegboard_core::id::ServerName;
/// use pegboard_core::settings::mcp::{Address, Settings, Target};
/// use pegboard_providers::mcp::{Pool, PoolOptions};
///
/// let pool = Pool::new(PoolOptions::default());
/// let address = Target::Http(Address::new("https://example.org/mcp"));
/// let settings = Settings::new(ServerName::new("example").unwrap(), address);
/// let (one, other) = (pool.server(settings.clone()).unwrap(), pool.server(settings).unwrap());
/// assert!(one.is_same(&other));
/// ```
#[derive(Default)]
pub struct Pool {
    options: PoolOptions,
    servers: Mutex<HashMap<String, Weak<Shared>>>,
    connections: Connections,
}

/// What all servers of a pool have in common.
#[derive(Clone, Debug, Default)]
pub struct PoolOptions {
    /// Who watches programs; `None` for this process itself.
    pub supervisor: Option<Supervisor>,
}

/// A server, and how many hold it.
struct Shared {
    server: Server,
    n_holders: AtomicUsize,
    is_recalled: AtomicBool,
}

/// A server of a pool. When the last lease of it is given up or dropped it is ended.
pub struct Lease {
    shared: Arc<Shared>,
    is_held: AtomicBool,
}

impl Pool {
    /// A pool of servers that have this in common.
    pub fn new(options: PoolOptions) -> Self {
        Self { options, ..Self::default() }
    }

    /// The server of these settings. It is started when somebody uses it.
    pub fn server(&self, settings: Settings) -> Result<Lease, InvalidSettings> {
        let key = key(&settings);
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        servers.retain(|_, server| server.strong_count() > 0);
        if let Some(lease) = servers.get(&key).and_then(Weak::upgrade).and_then(Lease::of) {
            return Ok(lease);
        }
        let connect = self.way_to(&settings)?;
        let server = Server::new(settings, connect);
        let (n_holders, is_recalled) = (AtomicUsize::new(1), AtomicBool::new(false));
        let shared = Arc::new(Shared { server, n_holders, is_recalled });
        servers.insert(key, Arc::downgrade(&shared));
        Ok(Lease { shared, is_held: AtomicBool::new(true) })
    }

    fn way_to(&self, settings: &Settings) -> Result<Arc<dyn Connect>, InvalidSettings> {
        Ok(match &settings.target {
            Target::Program(program) => {
                let way = Stdio::new(program);
                Arc::new(match &self.options.supervisor {
                    Some(supervisor) => way.supervised_by(supervisor.clone()),
                    None => way,
                })
            }
            Target::WebSocket(address) => Arc::new(WebSocket::new(address)?),
            Target::Http(address) => Arc::new(Http::over(address, &self.connections)?),
            Target::Sse(address) => Arc::new(Sse::over(address, &self.connections)?),
            Target::Embedded => return Err(InvalidSettings::Embedded { server: settings.name.clone() }),
        })
    }
}

/// Tells settings apart that want another server, or another life for it.
fn key(settings: &Settings) -> String {
    let Settings {
        name,
        target: _,
        is_enabled: _,
        is_shared,
        health_probe,
        start_timeout,
        idle_stop,
        health_interval,
        revival,
    } = settings;
    let fingerprint = settings.fingerprint();
    // Nothing in it but the name is a text of somebody else, and a name is one word.
    format!(
        "{name} {fingerprint} {is_shared} {health_probe:?} {start_timeout:?} {idle_stop:?} {health_interval:?} {revival:?}"
    )
}

impl Lease {
    /// One more lease of a server that somebody holds.
    fn of(shared: Arc<Shared>) -> Option<Self> {
        let one_more = |n_holders| (n_holders > 0).then_some(n_holders + 1);
        shared.n_holders.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        Some(Self { shared, is_held: AtomicBool::new(true) })
    }

    /// Whether both are of the same server.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// The settings that the server was made with.
    pub fn settings(&self) -> &Settings {
        self.shared.server.settings()
    }

    /// Finds out whether the server still answers. One that does not is started again.
    pub async fn probe(&self) -> Health {
        self.shared.server.probe().await
    }

    /// Offers what the server offered when it was last there, until it says itself what it offers; see
    /// [`Server::recall`]. One lease does it for all.
    pub async fn recall(&self, store: Arc<dyn CatalogueStore>, now: SystemTime) {
        if !self.shared.is_recalled.swap(true, Ordering::Relaxed) {
            self.shared.server.recall(store, now).await;
        }
    }

    /// Gives the lease up; `true` if it was the last one.
    fn give_up(&self) -> bool {
        self.is_held.swap(false, Ordering::Relaxed)
            && self.shared.n_holders.fetch_sub(1, Ordering::Relaxed) == 1
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // The server ends with the last reference to it.
        self.give_up();
    }
}

impl Provider for Lease {
    fn kind(&self) -> ToolKind {
        self.shared.server.kind()
    }

    fn offer(&self) -> watch::Receiver<Arc<Offer>> {
        self.shared.server.offer()
    }

    fn state(&self) -> watch::Receiver<ServerState> {
        self.shared.server.state()
    }

    fn particulars(&self) -> Particulars {
        self.shared.server.particulars()
    }

    fn open(&self) -> BoxFuture<'_, Result<(), CallError>> {
        self.shared.server.open()
    }

    fn request<'a>(
        &'a self,
        request: &'a Request,
        context: &'a CallContext,
    ) -> BoxFuture<'a, Result<RawJson, CallError>> {
        self.shared.server.request(request, context)
    }

    fn updates(&self) -> broadcast::Receiver<Update> {
        self.shared.server.updates()
    }

    fn log(&self) -> ServerLog {
        self.shared.server.log()
    }

    fn shut_down(&self) -> BoxFuture<'_, ()> {
        async move {
            if self.give_up() {
                self.shared.server.shut_down().await;
            }
        }
        .boxed()
    }
}
