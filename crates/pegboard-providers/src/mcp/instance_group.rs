//! Instances of a server for the clients of one era: one that they share, and dedicated ones.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use futures_util::future::join_all;
use parking_lot::Mutex;
use pegboard_core::call::CallContext;
use pegboard_core::error::CallError;
use pegboard_core::extensions::{ExtensionKey, Extensions};
use pegboard_wire::client::Era;
use tokio::time;
use tokio_util::sync::DropGuard;

use super::SHUT_DOWN_TIMEOUT;
use super::connect::Connector;
use super::eras::wanted_era;
use super::handle::{ServerHandle, ServerPhase};
use super::listing::LiveListing;
use super::supervisor::ServerSupervisor;

/// Maximum number of dedicated instances per server.
const MAX_DEDICATED: usize = 100;

/// Maximum number of idle instances kept for callers without a session.
const MAX_IDLE: usize = 4;

/// Instances of a server for the clients of one era.
///
/// Sessions share one instance unless the settings forbid it; then each gets a dedicated one, which ends with
/// the session. If a server sends requests that name no call, one session keeps the shared instance and every
/// other one gets a dedicated instance. A caller without a session then gets an instance for the duration of
/// its call.
pub(super) struct InstanceGroup {
    /// Era of the clients.
    pub(super) era: Era,
    pub(super) shared: Arc<Instance>,
    connector: Arc<dyn Connector>,
    session_key: ExtensionKey,
    table: Arc<Mutex<InstanceTable>>,
}

#[derive(Default)]
struct InstanceTable {
    /// The session that has the shared instance to itself.
    shared_owner: Weak<Instance>,
    /// Dedicated instances that have not ended.
    dedicated: Vec<Arc<ServerHandle>>,
    /// Instances left by calls of callers without a session.
    idle: Vec<Arc<Instance>>,
}

/// An instance of the server.
pub(super) struct Instance {
    pub(super) handle: Arc<ServerHandle>,
    /// Stops a dedicated instance when its last user is gone; `None` for the shared one.
    stop_guard: Option<DropGuard>,
}

/// Keeps the instance of a call alive.
pub(super) struct InstanceGuard {
    pub(super) instance: Arc<Instance>,
    /// Table that a dedicated instance is returned to after the call.
    return_to: Option<Arc<Mutex<InstanceTable>>>,
}

impl Drop for InstanceGuard {
    fn drop(&mut self) {
        if let Some(table) = &self.return_to
            && self.instance.stop_guard.is_some()
        {
            let mut table = table.lock();
            if table.idle.len() < MAX_IDLE {
                table.idle.push(Arc::clone(&self.instance));
            }
        }
    }
}

impl InstanceGroup {
    /// Creates the group with the instance that provides the listing, which has a supervisor already.
    pub(super) fn new(handle: Arc<ServerHandle>, connector: Arc<dyn Connector>) -> Self {
        let shared = Arc::new(Instance { handle, stop_guard: None });
        Self::of(Era::Stateless, shared, connector)
    }

    /// Creates the group of the same server for the clients of another era. Its shared instance starts on first use
    /// and stops with the group.
    pub(super) fn for_era(&self, era: Era) -> Self {
        let (shared, connector) = self.spawn_instance(self.shared.handle.shared_in_era(era));
        Self::of(era, shared, connector)
    }

    fn of(era: Era, shared: Arc<Instance>, connector: Arc<dyn Connector>) -> Self {
        Self { era, shared, connector, session_key: ExtensionKey::new(), table: Arc::default() }
    }

    /// Returns `true` if the calls of sessions must be kept apart.
    fn needs_isolation(&self) -> bool {
        let shared = &self.shared.handle;
        !shared.settings.is_shared || shared.sends_ambiguous_requests.load(Ordering::Relaxed)
    }

    /// Returns the instance for a call, which must be held for as long as the call.
    pub(super) fn route(&self, context: &CallContext) -> Result<InstanceGuard, CallError> {
        if !self.needs_isolation() {
            return Ok(self.shared_instance());
        }
        let instance = match context.tools.as_ref().and_then(|tools| tools.extensions()) {
            Some(session) => {
                let assigned: Arc<Mutex<Option<Arc<Instance>>>> =
                    session.get_or_insert_with(&self.session_key, Mutex::default);
                let mut assigned = assigned.lock();
                match &*assigned {
                    Some(instance) => Arc::clone(instance),
                    None => Arc::clone(assigned.insert(self.assign_instance(session, wanted_era(context))?)),
                }
            }
            // Without a session, state left in an instance would leak to another caller.
            None if !self.shared.handle.settings.is_shared => {
                self.start_dedicated(&mut self.table.lock(), wanted_era(context))?
            }
            None => {
                let return_to = Some(Arc::clone(&self.table));
                return Ok(InstanceGuard { instance: self.borrow_instance(wanted_era(context))?, return_to });
            }
        };
        Ok(InstanceGuard { instance, return_to: None })
    }

    /// Returns the shared instance.
    pub(super) fn shared_instance(&self) -> InstanceGuard {
        InstanceGuard { instance: Arc::clone(&self.shared), return_to: None }
    }

    /// Returns an instance for one call of a caller without a session.
    fn borrow_instance(&self, era: Era) -> Result<Arc<Instance>, CallError> {
        let mut table = self.table.lock();
        // Calls from before the first ambiguous request may still be in flight there.
        let is_shared_taken = table.shared_owner.strong_count() > 0 || self.shared.handle.is_busy();
        if !is_shared_taken {
            return Ok(self.reserve_shared(&mut table));
        }
        match table.idle.pop() {
            Some(instance) => Ok(instance),
            None => self.start_dedicated(&mut table, era),
        }
    }

    /// Assigns an instance to a session: the shared one if it is free. With an unshared server it never is,
    /// because its listing is published to all sessions and may depend on what a session did.
    fn assign_instance(&self, session: &Extensions, era: Era) -> Result<Arc<Instance>, CallError> {
        let mut table = self.table.lock();
        // Calls of others from before the first ambiguous request may still be in flight there, for long if a
        // caller has yet to return with an answer.
        let is_shared_taken =
            table.shared_owner.strong_count() > 0 || self.shared.handle.is_busy_for_others(session);
        if !self.shared.handle.settings.is_shared || is_shared_taken {
            return self.start_dedicated(&mut table, era);
        }
        Ok(self.reserve_shared(&mut table))
    }

    fn reserve_shared(&self, table: &mut InstanceTable) -> Arc<Instance> {
        let instance = Arc::new(Instance { handle: Arc::clone(&self.shared.handle), stop_guard: None });
        table.shared_owner = Arc::downgrade(&instance);
        instance
    }

    fn start_dedicated(&self, table: &mut InstanceTable, era: Era) -> Result<Arc<Instance>, CallError> {
        table.dedicated.retain(|handle| !handle.ended.is_cancelled());
        let shared = &self.shared.handle;
        if shared.stop.is_cancelled() {
            return Err(shared.unavailable_error(&ServerPhase::Stopped));
        }
        if table.dedicated.len() >= MAX_DEDICATED {
            let name = &shared.settings.name;
            let reason =
                format!("MCP server '{name}' has reached the limit of {MAX_DEDICATED} dedicated instances");
            return Err(CallError::ServerUnavailable { reason });
        }
        let (instance, _) = self.spawn_instance(shared.dedicated_to_session(era));
        table.dedicated.push(Arc::clone(&instance.handle));
        Ok(instance)
    }

    /// Creates an instance with its own supervisor, which ends with it.
    fn spawn_instance(&self, handle: ServerHandle) -> (Arc<Instance>, Arc<dyn Connector>) {
        let handle = Arc::new(handle);
        let connector = self.connector.dedicated().unwrap_or_else(|| Arc::clone(&self.connector));
        let listing = LiveListing::new(&handle, None);
        let supervisor = ServerSupervisor::new(Arc::clone(&handle), Arc::clone(&connector), listing);
        // The task ends when the instance is dropped or shut down.
        tokio::spawn(supervisor.run());
        let stop_guard = Some(handle.stop.clone().drop_guard());
        (Arc::new(Instance { handle, stop_guard }), connector)
    }

    /// Shuts down every instance that the group has started, and waits for those that are ending.
    pub(super) async fn shut_down(&self) {
        let handles = {
            let mut table = self.table.lock();
            table.idle.clear();
            let own = self.shared.stop_guard.is_some().then(|| Arc::clone(&self.shared.handle));
            table.dedicated.iter().cloned().chain(own).collect::<Vec<_>>()
        };
        for handle in &handles {
            handle.stop.cancel();
        }
        let ended = join_all(handles.iter().map(|handle| handle.ended.cancelled()));
        if time::timeout(SHUT_DOWN_TIMEOUT, ended).await.is_err() {
            let server = &self.shared.handle.settings.name;
            tracing::warn!(%server, "Dedicated instances of an MCP server did not shut down in time.");
        }
    }
}
