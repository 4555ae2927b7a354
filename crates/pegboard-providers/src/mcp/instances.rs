//! Routing of each session's calls to the shared instance of a server or to a dedicated one.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use futures_util::future::{BoxFuture, FutureExt, join_all};
use parking_lot::Mutex;
use pegboard_core::call::{CallContext, ValidCall};
use pegboard_core::error::CallError;
use pegboard_core::extensions::{ExtensionKey, Extensions};
use pegboard_core::handler::Handler;
use pegboard_core::output::Output;
use pegboard_core::provider::ProviderRequest;
use pegboard_json::RawJson;
use tokio::time;
use tokio_util::sync::DropGuard;

use super::SHUT_DOWN_TIMEOUT;
use super::call::ServerCall;
use super::connect::Connector;
use super::handle::{ServerHandle, ServerPhase};
use super::listing::LiveListing;
use super::supervisor::ServerSupervisor;

/// Maximum number of dedicated instances per server.
const MAX_DEDICATED: usize = 100;

/// Maximum number of idle instances kept for callers without a session.
const MAX_IDLE: usize = 4;

/// Handler of the tools of a server, which routes the calls of every session to an instance.
///
/// Sessions share one instance unless the settings forbid it; then each gets a dedicated one, which ends with
/// the session. If a server sends requests that name no call, one session keeps the shared instance and every
/// other one gets a dedicated instance. A caller without a session then gets an instance for the duration of
/// its call.
pub(super) struct InstanceRouter {
    shared: Arc<Instance>,
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
struct Instance {
    handle: Arc<ServerHandle>,
    /// Stops a dedicated instance when its last user is gone; `None` for the shared one.
    stop_guard: Option<DropGuard>,
}

/// Keeps the instance of a call alive.
struct InstanceGuard {
    instance: Arc<Instance>,
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

impl InstanceRouter {
    pub(super) fn new(handle: Arc<ServerHandle>, connector: Arc<dyn Connector>) -> Self {
        let shared = Arc::new(Instance { handle, stop_guard: None });
        Self { shared, connector, session_key: ExtensionKey::new(), table: Arc::default() }
    }

    /// Returns `true` if the calls of sessions must be kept apart.
    fn needs_isolation(&self) -> bool {
        let shared = &self.shared.handle;
        !shared.settings.is_shared || shared.sends_ambiguous_requests.load(Ordering::Relaxed)
    }

    /// Returns the instance for a call, which must be held for as long as the call.
    fn route(&self, context: &CallContext) -> Result<InstanceGuard, CallError> {
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
                    None => Arc::clone(assigned.insert(self.assign_instance(session)?)),
                }
            }
            // Without a session, state left in an instance would leak to another caller.
            None if !self.shared.handle.settings.is_shared => self.start_dedicated(&mut self.table.lock())?,
            None => {
                let return_to = Some(Arc::clone(&self.table));
                return Ok(InstanceGuard { instance: self.borrow_instance()?, return_to });
            }
        };
        Ok(InstanceGuard { instance, return_to: None })
    }

    fn shared_instance(&self) -> InstanceGuard {
        InstanceGuard { instance: Arc::clone(&self.shared), return_to: None }
    }

    /// Returns an instance for one call of a caller without a session.
    fn borrow_instance(&self) -> Result<Arc<Instance>, CallError> {
        let mut table = self.table.lock();
        // Calls from before the first ambiguous request may still be in flight there.
        let is_shared_taken = table.shared_owner.strong_count() > 0 || self.shared.handle.is_busy();
        if !is_shared_taken {
            return Ok(self.reserve_shared(&mut table));
        }
        match table.idle.pop() {
            Some(instance) => Ok(instance),
            None => self.start_dedicated(&mut table),
        }
    }

    /// Assigns an instance to a session: the shared one if it is free. With an unshared server it never is,
    /// because its listing is published to all sessions and may depend on what a session did.
    fn assign_instance(&self, session: &Extensions) -> Result<Arc<Instance>, CallError> {
        let mut table = self.table.lock();
        // Calls of others from before the first ambiguous request may still be in flight there, for long if a
        // caller has yet to return with an answer.
        let is_shared_taken =
            table.shared_owner.strong_count() > 0 || self.shared.handle.is_busy_for_others(session);
        if !self.shared.handle.settings.is_shared || is_shared_taken {
            return self.start_dedicated(&mut table);
        }
        Ok(self.reserve_shared(&mut table))
    }

    fn reserve_shared(&self, table: &mut InstanceTable) -> Arc<Instance> {
        let instance = Arc::new(Instance { handle: Arc::clone(&self.shared.handle), stop_guard: None });
        table.shared_owner = Arc::downgrade(&instance);
        instance
    }

    fn start_dedicated(&self, table: &mut InstanceTable) -> Result<Arc<Instance>, CallError> {
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
        let handle = Arc::new(shared.dedicated_to_session());
        let connector = self.connector.dedicated().unwrap_or_else(|| Arc::clone(&self.connector));
        let listing = LiveListing::new(&handle, None);
        // The task ends when the instance is dropped or shut down.
        tokio::spawn(ServerSupervisor::new(Arc::clone(&handle), connector, listing).run());
        table.dedicated.push(Arc::clone(&handle));
        let stop_guard = Some(handle.stop.clone().drop_guard());
        Ok(Arc::new(Instance { handle, stop_guard }))
    }

    /// Executes a request that is not a tool call, on the instance of its session.
    pub(super) async fn request(
        &self,
        request: &ProviderRequest,
        context: &CallContext,
    ) -> Result<RawJson, CallError> {
        let has_session = context.tools.as_ref().is_some_and(|tools| tools.extensions().is_some());
        // A setting from a caller without a session applies to the instance that stays.
        let is_shared = request.method.outlives_response() && !has_session;
        let guard = if is_shared { self.shared_instance() } else { self.route(context)? };
        guard.instance.handle.request(request, context).await
    }

    /// Shuts down every dedicated instance, and waits for those that are ending.
    pub(super) async fn shut_down(&self) {
        let handles = {
            let mut table = self.table.lock();
            table.idle.clear();
            table.dedicated.clone()
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

impl Handler for InstanceRouter {
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        async move {
            let guard = self.route(call.context())?;
            let handle = &guard.instance.handle;
            let result = handle.execute(&ServerCall::call(call)).await?;
            Output::from_server(result).map_err(|problem| handle.invalid_result(problem))
        }
        .boxed()
    }
}
