//! The roots of all clients that share an instance.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{join_all, select_all};
use pegboard_core::client::{ClientSession, InputRequest};
use pegboard_json::RawJson;
use tokio::sync::{OnceCell, watch};
use tokio::time;

/// Time limit for the roots of each client.
const ROOTS_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit of a client's first call for a server that is to ask for the roots.
const TOLD_TIMEOUT: Duration = Duration::from_secs(2);
/// Time for a server to use the roots, before the client's first call.
const ROOTS_GRACE: Duration = Duration::from_millis(50);
/// Maximum number of roots of all clients.
const MAX_ROOTS: usize = 1_000;

/// Roots of the clients that use an instance.
#[derive(Default)]
pub(super) struct RootsUnion {
    clients: watch::Sender<RootedClients>,
    /// Version of the clients when the server last asked, if it has.
    told: watch::Sender<Option<u64>>,
}

#[derive(Default)]
struct RootedClients {
    /// Number of clients that have been added and removed.
    version: u64,
    /// Clients by the version that they were added with.
    by_version: BTreeMap<u64, Arc<dyn ClientSession>>,
}

/// Part of a client in a union of roots, until dropped.
pub(super) struct UnionMember {
    union: Arc<RootsUnion>,
    version: u64,
    is_told: OnceCell<()>,
}

impl RootsUnion {
    /// Adds a client; returns `None` if it has no roots.
    pub(super) fn add(self: &Arc<Self>, client: Arc<dyn ClientSession>) -> Option<UnionMember> {
        client.capabilities().get("roots")?;
        let mut version = 0;
        self.clients.send_modify(|clients| {
            clients.version += 1;
            version = clients.version;
            clients.by_version.insert(version, client);
        });
        Some(UnionMember { union: Arc::clone(self), version, is_told: OnceCell::new() })
    }

    /// Asks every client for its roots, and returns them all.
    pub(super) async fn list(&self) -> RawJson {
        let (version, clients) = {
            let clients = self.clients.borrow();
            (clients.version, clients.by_version.values().cloned().collect::<Vec<_>>())
        };
        let request = || InputRequest { method: "roots/list".to_owned(), params: RawJson::empty_object() };
        let asking = clients.iter().map(|client| time::timeout(ROOTS_TIMEOUT, client.ask(request())));
        let answers = join_all(asking).await;
        let (mut roots, mut uris) = (Vec::new(), HashSet::new());
        // A client that does not answer has no roots.
        for answer in answers.into_iter().flatten().flatten() {
            let listed = answer.get("roots").into_iter().flat_map(|roots| roots.items().collect::<Vec<_>>());
            let new = listed.filter(|root| {
                let uri = root.get("uri");
                uri.as_ref().and_then(RawJson::text).is_some_and(|uri| uris.insert(uri.into_owned()))
            });
            roots.extend(new.take(MAX_ROOTS - roots.len()));
        }
        self.told.send_replace(Some(version));
        RawJson::of(&serde_json::json!({ "roots": roots }))
    }

    /// Returns a watcher of changes.
    pub(super) fn watch_changes(&self) -> UnionChanges {
        UnionChanges(self.clients.subscribe())
    }
}

/// Changes of a union: of its clients, and of their roots.
pub(super) struct UnionChanges(watch::Receiver<RootedClients>);

impl UnionChanges {
    /// Waits for a change.
    pub(super) async fn next(&mut self) {
        let mut changes = {
            let clients = self.0.borrow_and_update();
            clients.by_version.values().map(|client| client.roots_changes()).collect::<Vec<_>>()
        };
        let in_client = changes.iter_mut().map(|changes| {
            changes.mark_unchanged();
            async move {
                if changes.changed().await.is_err() {
                    // The client is about to be removed.
                    std::future::pending::<()>().await;
                }
            }
            .boxed()
        });
        let in_client = in_client.chain([std::future::pending().boxed()]).collect::<Vec<_>>();
        tokio::select! {
            // The sender lives as long as the instance.
            _ = self.0.changed() => {}
            _ = select_all(in_client) => {}
        }
    }
}

impl UnionMember {
    /// Waits, in bounded time, until the server knows the roots of this client, if it is one that asks.
    pub(super) async fn told(&self) {
        let mut told = self.union.told.subscribe();
        if told.borrow().is_none() {
            return;
        }
        let telling = async {
            let is_told = told.wait_for(|told| told.is_some_and(|version| version >= self.version));
            if time::timeout(TOLD_TIMEOUT, is_told).await.is_ok() {
                time::sleep(ROOTS_GRACE).await;
            }
        };
        self.is_told.get_or_init(|| telling).await;
    }
}

impl Drop for UnionMember {
    fn drop(&mut self) {
        self.union.clients.send_modify(|clients| {
            clients.version += 1;
            clients.by_version.remove(&self.version);
        });
    }
}
