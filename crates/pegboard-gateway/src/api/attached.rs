//! The way in which a gateway was started, and the clients over stdio that are attached to it.

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Serialize;

/// The way in which a gateway was started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "mode")]
pub enum GatewayMode {
    /// By a user or a service manager, for all clients.
    #[default]
    Foreground,
    /// By a client, for itself alone.
    Stdio,
    /// By a client, in the background, for all clients of the configuration.
    Background {
        /// The client: name and id of its process.
        client: String,
        /// Time without clients after which it exits; `None` for never.
        #[serde(skip_serializing_if = "Option::is_none")]
        idle_timeout_ms: Option<u64>,
    },
}

/// Credential that HTTP clients send to a gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", rename_all_fields = "camelCase", tag = "kind")]
pub enum ClientCredential {
    /// None is needed.
    #[default]
    None,
    /// The token in a file.
    TokenFile {
        /// Path of the file.
        path: PathBuf,
    },
    /// One of the tokens in these environment variables of the gateway.
    Variables {
        /// Names of the variables.
        names: Vec<String>,
    },
}

/// A client over stdio that is attached to a gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AttachedClient {
    /// Name and id of the process that started `pegboard serve --stdio`.
    pub program: String,
    /// Process id of `pegboard serve --stdio`.
    pub pid: u32,
    /// Version of Pegboard that it runs.
    pub version: String,
    /// Profile; `None` for the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Time at which it connected, in milliseconds since 1970.
    pub connected_at: u64,
    /// Variables of the configuration with other values than in the gateway.
    pub differing_variables: Vec<String>,
}

/// Clients over stdio that are attached to a gateway. Clones share the list.
///
/// ```
/// use pegboard_gateway::api::{AttachedClient, AttachedClients};
///
/// let clients = AttachedClients::default();
/// let guard = clients.add(AttachedClient { pid: 7, ..AttachedClient::default() });
/// assert_eq!(clients.list()[0].pid, 7);
/// drop(guard);
/// assert!(clients.list().is_empty());
/// ```
#[derive(Clone, Debug, Default)]
pub struct AttachedClients(Arc<Mutex<AttachedList>>);

#[derive(Debug, Default)]
struct AttachedList {
    next: u64,
    clients: Vec<(u64, AttachedClient)>,
}

/// Membership of a client in the list; dropping it removes the client.
#[derive(Debug)]
pub struct AttachedGuard {
    list: AttachedClients,
    number: u64,
}

impl AttachedClients {
    /// Returns the clients, in the order in which they connected.
    pub fn list(&self) -> Vec<AttachedClient> {
        self.0.lock().clients.iter().map(|(_, client)| client.clone()).collect()
    }

    /// Adds a client until the guard is dropped.
    #[must_use]
    pub fn add(&self, client: AttachedClient) -> AttachedGuard {
        let mut list = self.0.lock();
        let number = list.next;
        list.next += 1;
        list.clients.push((number, client));
        AttachedGuard { list: self.clone(), number }
    }
}

impl Drop for AttachedGuard {
    fn drop(&mut self) {
        self.list.0.lock().clients.retain(|(number, _)| *number != self.number);
    }
}
