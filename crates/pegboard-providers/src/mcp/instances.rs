//! Routing of each session's calls to the shared instance of a server or to a dedicated one.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use futures_util::future::{BoxFuture, FutureExt, join_all};
use parking_lot::{Mutex, MutexGuard};
use pegboard_core::call::{CallContext, ValidCall};
use pegboard_core::error::CallError;
use pegboard_core::handler::Handler;
use pegboard_core::output::Output;
use pegboard_core::provider::ProviderRequest;
use pegboard_core::session_extensions::{ExtensionKey, SessionExtensions};
use pegboard_json::RawJson;
use tokio::time;

use super::call::ServerCaller;
use super::connect::Connector;
use super::handle::ServerHandle;
use super::{McpServer, SHUT_DOWN_TIMEOUT};

/// Maximum number of dedicated instances per server.
const MAX_DEDICATED: usize = 100;

/// Maximum number of idle instances kept for callers without a session.
const MAX_IDLE: usize = 4;

/// Routes the calls of every session to an instance of the server.
///
/// Sessions share one instance unless the settings forbid it; then each gets a dedicated one, which ends with
/// the session. If a server sends requests that name no call, one session keeps the shared instance and every
/// other one gets a dedicated instance. A caller without a session then gets an instance for the duration of
/// its call.
pub(super) struct InstanceRouter {
    /// The shared instance.
    shared: Arc<ServerHandle>,
    connector: Arc<dyn Connector>,
    session_key: ExtensionKey,
    state: Arc<Mutex<InstanceTable>>,
}

#[derive(Default)]
struct InstanceTable {
    /// The session that has the shared instance to itself.
    shared_owner: Weak<Instance>,
    dedicated: Vec<DedicatedInstance>,
    /// Instances left by calls of callers without a session.
    idle: Vec<Arc<Instance>>,
}

/// A dedicated instance, until it has ended.
struct DedicatedInstance {
    instance: Weak<Instance>,
    handle: Arc<ServerHandle>,
}

impl DedicatedInstance {
    /// Returns `true` if it is unused and has ended.
    fn is_gone(&self) -> bool {
        self.instance.strong_count() == 0 && self.handle.ended.is_cancelled()
    }
}

/// Keeps the instance of a call alive.
enum InstanceGuard {
    /// The shared instance.
    Shared,
    /// The instance of the call's session.
    Session { _instance: Arc<Instance> },
    /// An instance borrowed for one call.
    Borrowed { instance: Option<Arc<Instance>>, state: Arc<Mutex<InstanceTable>> },
}

impl Drop for InstanceGuard {
    fn drop(&mut self) {
        if let Self::Borrowed { instance, state } = self
            && let Some(instance) = instance.take()
            && matches!(*instance, Instance::Dedicated(_))
        {
            let mut state = state.lock();
            if state.idle.len() < MAX_IDLE {
                state.idle.push(instance);
            }
        }
    }
}

/// The instance that serves a session.
enum Instance {
    /// The shared instance, reserved for one session.
    Shared(Arc<ServerHandle>),
    /// A dedicated instance.
    Dedicated(McpServer),
}

impl Instance {
    fn handle(&self) -> Arc<ServerHandle> {
        match self {
            Self::Shared(handle) => Arc::clone(handle),
            Self::Dedicated(server) => Arc::clone(&server.handle),
        }
    }
}

impl InstanceRouter {
    pub(super) fn new(shared: Arc<ServerHandle>, connector: Arc<dyn Connector>) -> Self {
        Self { shared, connector, session_key: ExtensionKey::new(), state: Arc::default() }
    }

    /// Returns `true` if the calls of sessions must be kept apart.
    fn needs_isolation(&self) -> bool {
        !self.shared.settings.is_shared || self.shared.sends_ambiguous_requests.load(Ordering::Relaxed)
    }

    /// Returns the instance for a call, and a guard that must live as long as the call.
    fn route(&self, context: &CallContext) -> Result<(Arc<ServerHandle>, InstanceGuard), CallError> {
        if !self.needs_isolation() {
            return Ok((Arc::clone(&self.shared), InstanceGuard::Shared));
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
            None if !self.shared.settings.is_shared => self.start_dedicated(&mut self.state())?,
            None => {
                let instance = self.borrow_instance()?;
                return Ok((
                    instance.handle(),
                    InstanceGuard::Borrowed { instance: Some(instance), state: Arc::clone(&self.state) },
                ));
            }
        };
        Ok((instance.handle(), InstanceGuard::Session { _instance: instance }))
    }

    /// Returns an instance for one call of a caller without a session.
    fn borrow_instance(&self) -> Result<Arc<Instance>, CallError> {
        let mut state = self.state();
        // Calls from before the first ambiguous request may still be in flight there.
        let is_shared_taken = state.shared_owner.strong_count() > 0 || self.shared.is_busy();
        if !is_shared_taken {
            return Ok(self.reserve_shared(&mut state));
        }
        match state.idle.pop() {
            Some(instance) => Ok(instance),
            None => self.start_dedicated(&mut state),
        }
    }

    /// Assigns an instance to a session: the shared one if it is free. With an unshared server it never is,
    /// because its listing is published to all sessions and may depend on what a session did.
    fn assign_instance(&self, session: &SessionExtensions) -> Result<Arc<Instance>, CallError> {
        let mut state = self.state();
        // Calls of others from before the first ambiguous request may still be in flight there, for long if a
        // caller has yet to return with an answer.
        let is_shared_taken =
            state.shared_owner.strong_count() > 0 || self.shared.is_busy_for_others(session);
        if !self.shared.settings.is_shared || is_shared_taken {
            return self.start_dedicated(&mut state);
        }
        Ok(self.reserve_shared(&mut state))
    }

    fn reserve_shared(&self, state: &mut InstanceTable) -> Arc<Instance> {
        let instance = Arc::new(Instance::Shared(Arc::clone(&self.shared)));
        state.shared_owner = Arc::downgrade(&instance);
        instance
    }

    fn start_dedicated(&self, state: &mut InstanceTable) -> Result<Arc<Instance>, CallError> {
        state.dedicated.retain(|dedicated| !dedicated.is_gone());
        let name = &self.shared.settings.name;
        if state.dedicated.len() >= MAX_DEDICATED || self.shared.stop.is_cancelled() {
            let reason =
                format!("MCP server '{name}' has reached the limit of {MAX_DEDICATED} dedicated instances");
            return Err(CallError::ServerUnavailable { reason });
        }
        let server = McpServer::dedicated_to_session(&self.shared, Arc::clone(&self.connector));
        // Without a supervisor the instance would never end.
        server.spawn_supervisor();
        let handle = Arc::clone(&server.handle);
        let instance = Arc::new(Instance::Dedicated(server));
        state.dedicated.push(DedicatedInstance { instance: Arc::downgrade(&instance), handle });
        Ok(instance)
    }

    /// Executes a request that is not a tool call, on the instance of its session.
    pub(super) async fn request(
        &self,
        request: &ProviderRequest,
        context: &CallContext,
    ) -> Result<RawJson, CallError> {
        let has_session = context.tools.as_ref().is_some_and(|tools| tools.extensions().is_some());
        // A setting from a caller without a session applies to the instance that stays.
        let (handle, _guard) = if request.method.outlives_response() && !has_session {
            (Arc::clone(&self.shared), InstanceGuard::Shared)
        } else {
            self.route(context)?
        };
        ServerCaller(handle).request(request, context).await
    }

    /// Shuts down every dedicated instance, and waits for those that are ending.
    pub(super) async fn shut_down(&self) {
        self.state().idle.clear();
        let handles: Vec<Arc<ServerHandle>> =
            self.state().dedicated.iter().map(|dedicated| Arc::clone(&dedicated.handle)).collect();
        for handle in &handles {
            handle.stop.cancel();
        }
        let ended = join_all(handles.iter().map(|handle| handle.ended.cancelled()));
        if time::timeout(SHUT_DOWN_TIMEOUT, ended).await.is_err() {
            let server = &self.shared.settings.name;
            tracing::warn!(%server, "Dedicated instances of an MCP server did not shut down in time.");
        }
    }

    fn state(&self) -> MutexGuard<'_, InstanceTable> {
        self.state.lock()
    }
}

impl Handler for InstanceRouter {
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        async move {
            let (handle, _guard) = self.route(call.context())?;
            ServerCaller(handle).call(call).await
        }
        .boxed()
    }
}
