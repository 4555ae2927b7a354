//! Servers shared between toolboxes.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use pegboard_core::id::ServerName;
use pegboard_core::owner::Principals;
use pegboard_core::settings::mcp::{InvalidMcpServer, McpTarget, RemoteEndpoint, ResolvedMcpServer};
use pegboard_wire::http::client::{LazyHttpClient, RequestAuthorizer};

use super::connect::Connector;
use super::login::ServerLogin;
use super::remote::{HttpConnector, SseConnector, WebSocketConnector};
use super::stdio::StdioConnector;
use super::{McpServer, SharedServer};
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
    principals: Principals,
    servers: Mutex<HashMap<String, Weak<SharedServer>>>,
    http_client: LazyHttpClient,
}

/// Options for all servers of a pool.
#[derive(Clone, Debug, Default)]
pub struct PoolOptions {
    /// Command that runs as the supervisor of programs; `None` for this process itself.
    pub supervisor: Option<SupervisorCommand>,
    /// Logins at servers; `None` sends the configured headers only.
    pub logins: Option<Arc<dyn ServerLogins>>,
}

/// Logins at servers over HTTP.
pub trait ServerLogins: Send + Sync + 'static {
    /// Returns the source of the `Authorization` header of a server; `None` if there can be no login.
    fn authorizer(
        &self,
        server: &ServerName,
        endpoint: &RemoteEndpoint,
    ) -> Option<Arc<dyn RequestAuthorizer>>;

    /// Begins a login at a server, which goes on if the returned futures are dropped.
    fn begin_login(
        &self,
        server: &ServerName,
        endpoint: &RemoteEndpoint,
    ) -> BoxFuture<'static, Result<StartedLogin, String>>;
}

/// A login that waits for its user.
pub struct StartedLogin {
    /// URL that the user opens.
    pub url: String,
    /// Completes with the login.
    pub done: BoxFuture<'static, Result<(), String>>,
}

impl fmt::Debug for dyn ServerLogins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerLogins")
    }
}

impl ServerPool {
    /// Creates a pool.
    pub fn new(options: PoolOptions) -> Self {
        Self { options, ..Self::default() }
    }

    /// Sets the record of the principals that share the servers. Once there are several, errors of calls do not tell
    /// what a server wrote to stderr.
    #[must_use]
    pub fn shared_by(mut self, principals: Principals) -> Self {
        self.principals = principals;
        self
    }

    /// Returns the server for these settings. It starts on first use.
    pub fn server(&self, settings: ResolvedMcpServer) -> Result<McpServer, InvalidMcpServer> {
        let key = pool_key(&settings);
        let mut servers = self.servers.lock();
        servers.retain(|_, server| server.strong_count() > 0);
        if let Some(server) = servers.get(&key).and_then(Weak::upgrade).and_then(McpServer::try_acquire) {
            return Ok(server);
        }
        let connector = self.connector(&settings)?;
        let server = McpServer::shared_by(self.principals.clone(), settings, connector);
        servers.insert(key, Arc::downgrade(&server.shared));
        Ok(server)
    }

    fn login(&self, settings: &ResolvedMcpServer, address: &RemoteEndpoint) -> Option<ServerLogin> {
        let logins = Arc::clone(self.options.logins.as_ref()?);
        let authorizer = logins.authorizer(&settings.name, address)?;
        Some(ServerLogin { logins, authorizer, server: settings.name.clone(), endpoint: address.clone() })
    }

    /// Returns a connector for these settings, for connections outside of the pool.
    pub fn connector(&self, settings: &ResolvedMcpServer) -> Result<Arc<dyn Connector>, InvalidMcpServer> {
        Ok(match &settings.target {
            McpTarget::Program(program) => {
                let connector = StdioConnector::new(program);
                Arc::new(match &self.options.supervisor {
                    Some(supervisor) => connector.with_supervisor(supervisor.clone()),
                    None => connector,
                })
            }
            McpTarget::WebSocket(address) => Arc::new(WebSocketConnector::new(address)?),
            McpTarget::Http(address) => Arc::new(
                HttpConnector::with_client(address, &self.http_client)?
                    .with_login(self.login(settings, address)),
            ),
            McpTarget::Sse(address) => Arc::new(
                SseConnector::with_client(address, &self.http_client)?
                    .with_login(self.login(settings, address)),
            ),
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
        roots,
        era,
        health_probe,
        start_timeout,
        first_start_timeout,
        idle_stop,
        health_interval,
        restart,
        message_limits,
    } = settings;
    let fingerprint = settings.fingerprint();
    // The name is the only free text in it, and it contains no space.
    format!(
        "{name} {fingerprint} {is_shared} {roots:?} {era:?} {health_probe:?} {start_timeout:?} {first_start_timeout:?} {idle_stop:?} \
         {health_interval:?} {restart:?} {message_limits:?}"
    )
}
