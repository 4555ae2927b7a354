//! Switches to another plan while calls are in flight.
//!
//! Calls in flight finish on the plan they started with. A server that is part of both plans continues
//! undisturbed; one that is not part of the new plan is shut down after its last call.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use pegboard_core::provider::ServerState;
use pegboard_core::redact::Redactor;
use pegboard_core::settings::ServerSettings;
use tokio::time;

use super::plan::{ActivePlan, CHAIN_SERVER, RuntimePlan, StartError};
use super::{PROVIDER_SHUTDOWN_TIMEOUT, Runtime, RuntimeShared, watch_servers};
use crate::call::requests::ServerId;
use crate::toolbox::ToolboxServer;

/// Maximum time to wait for replacement servers to open.
const HANDOVER_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time to drain a replaced server. The remaining calls then fail.
const DRAIN_TIMEOUT: Duration = Duration::from_hours(1);

/// A validated plan with its replacement servers already open.
pub struct PreparedPlan {
    shared: Arc<RuntimeShared>,
    active_plan: ActivePlan,
    secrets: Vec<String>,
}

/// Differences between two plans.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanChanges {
    /// Servers that were added.
    pub added: Vec<ServerId>,
    /// Servers that were removed.
    pub removed: Vec<ServerId>,
    /// Servers that were replaced.
    pub replaced: Vec<ServerId>,
    /// Servers that continue with changed settings of their tools.
    pub adjusted: Vec<ServerId>,
    /// `true` if general settings or toolbox descriptions changed.
    pub settings: bool,
}

impl PlanChanges {
    /// Returns `true` if there are no differences.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Runtime {
    /// Prepares the switch to another plan without changing anything yet. Replacements of servers in use are
    /// opened now, so that their tools are available at the switch; the wait is bounded.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// use pegboard_core::entry::ToolEntry;
    /// use pegboard_core::provider::LocalProvider;
    /// use pegboard_runtime::{RuntimePlan, Runtime};
    ///
    /// let tool = |name: &str| ToolEntry::new(name, "Says so", |(): ()| async { Ok("so") });
    /// let runtime = Runtime::builder().provide("old", LocalProvider::new([tool("a")])).start().await?;
    ///
    /// let plan = RuntimePlan::new().provide("new", LocalProvider::new([tool("b")]));
    /// let changes = runtime.prepare(plan).await?.apply();
    /// assert_eq!((changes.added.len(), changes.removed.len()), (1, 1));
    /// assert_eq!(&*runtime.catalogue().tools()[0].flat_name, "new__b");
    /// # Ok::<(), pegboard_runtime::StartError>(())
    /// # }).unwrap();
    /// ```
    pub async fn prepare(&self, plan: RuntimePlan) -> Result<PreparedPlan, StartError> {
        let (active_plan, secrets) = plan.check()?;
        let prepared = PreparedPlan { shared: Arc::clone(&self.0), active_plan, secrets };
        prepared.open_replacements().await;
        Ok(prepared)
    }
}

impl PreparedPlan {
    /// Opens the replacements of servers that have been used.
    async fn open_replacements(&self) {
        let before = self.shared.active_plan();
        let is_awaited = |(id, server): &(ServerId, ToolboxServer)| {
            let other = before.toolboxes.server(&id.toolbox, &id.server);
            other.is_some_and(|other| {
                !other.is_same(server) && (other.is_ready() || !other.offer.borrow().tools.is_empty())
            })
        };
        let awaited = self.active_plan.toolboxes.servers().filter(is_awaited);
        let opening: Vec<_> = awaited.map(|(_, server)| async move { server.open().await }).collect();
        let opening = stream::iter(opening).buffer_unordered(self.shared.max_concurrent_starts());
        // A server that cannot be used reports that when it is called.
        let _ = time::timeout(HANDOVER_TIMEOUT, opening.collect::<Vec<_>>()).await;
    }

    /// Switches to the plan atomically: a reader sees either the old or the new one. Returns the differences;
    /// none if the runtime has been shut down in the meantime.
    pub fn apply(self) -> PlanChanges {
        let Self { shared, mut active_plan, secrets } = self;
        let mut built = shared.listings.lock();
        if shared.closing.is_cancelled() {
            return PlanChanges::default();
        }
        let before = shared.active_plan();
        let (changes, new) = active_plan.carry_over(&before);
        let active_plan = Arc::new(active_plan);
        shared.redactor.store(Arc::new(Redactor::with_escapes(secrets)));
        // Until the switch is complete, calls of both plans must find their queues.
        shared.queues.add(&active_plan.settings.queues);
        shared.active_plan.store(Arc::clone(&active_plan));
        shared.publish(&active_plan, active_plan.toolboxes.listings(), &mut built);
        shared.queues.configure(&active_plan.settings.queues);
        drop(built);
        shared.announce_catalogue();
        for (id, server) in &new {
            watch_servers::watch_server(&shared, id, server);
        }
        watch_servers::start_eager(&shared, new);
        for (id, server) in before.toolboxes.servers() {
            let next = active_plan.toolboxes.server(&id.toolbox, &id.server);
            if !next.is_some_and(|next| next.drain_counter.is_same(&server.drain_counter)) {
                shared.retire(id, server, &active_plan);
            }
        }
        changes
    }
}

impl ActivePlan {
    /// Carries over every unchanged server. Returns the differences, and the new servers.
    fn carry_over(&mut self, before: &Self) -> (PlanChanges, Vec<(ServerId, ToolboxServer)>) {
        self.reuse_chains(before);
        let mut changes = PlanChanges {
            settings: self.settings != before.settings || self.descriptions().ne(before.descriptions()),
            ..PlanChanges::default()
        };
        let mut new = Vec::new();
        for (toolbox, contents) in &mut self.toolboxes.0 {
            for (name, server) in &mut contents.servers {
                let id = ServerId { toolbox: toolbox.clone(), server: name.clone() };
                let Some(other) = before.toolboxes.server(toolbox, name) else {
                    changes.added.push(id.clone());
                    new.push((id, server.clone()));
                    continue;
                };
                if other.settings == server.settings {
                    server.settings = Arc::clone(&other.settings);
                } else if other.is_same(server) {
                    changes.adjusted.push(id.clone());
                }
                if other.is_same(server) {
                    *server = other.with_settings(&server.settings);
                } else {
                    changes.replaced.push(id.clone());
                    new.push((id, server.clone()));
                }
            }
        }
        let is_gone = |id: &ServerId| self.toolboxes.server(&id.toolbox, &id.server).is_none();
        changes.removed = before.toolboxes.servers().map(|(id, _)| id).filter(is_gone).collect();
        (changes, new)
    }

    /// Carries over the chains of every toolbox with unchanged chains.
    fn reuse_chains(&mut self, before: &Self) {
        for (toolbox, chains) in &mut self.chains {
            let Some(other) = before.chains.get(toolbox).filter(|other| other.has_same_chains(chains)) else {
                continue;
            };
            *chains = Arc::clone(other);
            let contents = self.toolboxes.0.get_mut(toolbox);
            if let Some(server) = contents.and_then(|contents| contents.servers.get_mut(CHAIN_SERVER)) {
                *server = ToolboxServer::new(chains.provider(), ServerSettings::clone(&server.settings));
            }
        }
    }

    fn descriptions(&self) -> impl Iterator<Item = (&str, &str)> {
        self.toolboxes.0.iter().map(|(name, contents)| (name.as_str(), contents.description.as_str()))
    }
}

impl RuntimeShared {
    /// Shuts down a server that is no longer in the active plan, after its last call.
    fn retire(self: &Arc<Self>, id: ServerId, server: ToolboxServer, active_plan: &ActivePlan) {
        server.replaced.cancel();
        let (closing, shared) = (self.closing.clone(), Arc::downgrade(self));
        // The same provider may be used elsewhere in the plan.
        let is_still_used =
            active_plan.toolboxes.servers().any(|(_, other)| Arc::ptr_eq(&other.provider, &server.provider));
        self.tasks.spawn(async move {
            tokio::select! {
                () = server.drain_counter.drained() => {}
                () = closing.cancelled() => {}
                () = time::sleep(DRAIN_TIMEOUT) => {}
            }
            server.drain_counter.close();
            if is_still_used
                || time::timeout(PROVIDER_SHUTDOWN_TIMEOUT, server.provider.shut_down()).await.is_err()
            {
                return;
            }
            let Some(shared) = shared.upgrade() else { return };
            let is_gone = shared.active_plan().toolboxes.server(&id.toolbox, &id.server).is_none();
            if is_gone {
                let (toolbox, server) = (id.toolbox.to_string(), id.server.to_string());
                shared.events.emit_server(toolbox, server, ServerState::Stopped);
            }
        });
    }
}
