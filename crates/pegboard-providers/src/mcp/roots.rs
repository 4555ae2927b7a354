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

    /// Returns a watcher of changes. One that the server has not been told yet counts.
    pub(super) fn watch_changes(&self) -> UnionChanges {
        let mut clients = self.clients.subscribe();
        let version = clients.borrow_and_update().version;
        let is_behind = self.told.borrow().is_some_and(|told| told < version);
        UnionChanges { clients, of_clients: BTreeMap::new(), is_behind }
    }
}

/// Changes of a union: of its clients, and of their roots.
pub(super) struct UnionChanges {
    clients: watch::Receiver<RootedClients>,
    /// Changes to the roots of each client.
    of_clients: BTreeMap<u64, watch::Receiver<u64>>,
    /// A client came or left before the changes were watched, and after the server had asked.
    is_behind: bool,
}

impl UnionChanges {
    /// Waits for a change. None is lost between two calls.
    pub(super) async fn next(&mut self) {
        let Self { clients, of_clients, is_behind } = self;
        if std::mem::take(is_behind) {
            return;
        }
        {
            let clients = clients.borrow();
            of_clients.retain(|version, _| clients.by_version.contains_key(version));
            for (version, client) in &clients.by_version {
                of_clients.entry(*version).or_insert_with(|| client.roots_changes());
            }
        }
        let in_client = of_clients.values_mut().map(|changes| {
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
            _ = clients.changed() => {}
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

#[cfg(test)]
mod tests {
    use futures_util::future::{BoxFuture, ready};
    use pegboard_core::client::{AskError, Notice};
    use serde_json::json;

    use super::*;

    /// A client whose only root has its name.
    struct NamedClient(&'static str, watch::Sender<u64>);

    impl ClientSession for NamedClient {
        fn capabilities(&self) -> RawJson {
            RawJson::from(json!({"roots": {"listChanged": true}}))
        }

        fn ask(&self, _: InputRequest) -> BoxFuture<'_, Result<RawJson, AskError>> {
            ready(Ok(RawJson::from(json!({"roots": [{"uri": self.0}]})))).boxed()
        }

        fn notify(&self, _: Notice) {}

        fn roots_changes(&self) -> watch::Receiver<u64> {
            self.1.subscribe()
        }
    }

    fn client(name: &'static str) -> Arc<NamedClient> {
        Arc::new(NamedClient(name, watch::Sender::default()))
    }

    #[tokio::test]
    async fn no_change_is_lost_between_the_request_of_a_server_and_the_next_notification() {
        let union = Arc::new(RootsUnion::default());
        let ann = client("ann");
        let _ann = union.add(Arc::clone(&ann) as _);
        assert!(union.watch_changes().next().now_or_never().is_none(), "the server has not asked");
        assert_eq!(union.list().await.as_str(), r#"{"roots":[{"uri":"ann"}]}"#);
        // A client comes while the server starts, before its changes are watched.
        let bob = union.add(client("bob"));
        let mut changes = union.watch_changes();
        assert!(changes.next().now_or_never().is_some());
        assert!(changes.next().now_or_never().is_none());
        assert!(union.list().await.as_str().contains("bob"));
        let told = union.watch_changes().next().now_or_never();
        assert!(told.is_none(), "the server has asked since");
        // Others come, change or leave while the server is being notified.
        let carl = union.add(client("carl"));
        assert!(changes.next().now_or_never().is_some());
        drop(bob);
        assert!(changes.next().now_or_never().is_some());
        ann.1.send_modify(|n_changes| *n_changes += 1);
        assert!(changes.next().now_or_never().is_some());
        assert!(changes.next().now_or_never().is_none());
        drop(carl);
    }
}
