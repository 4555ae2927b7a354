//! The runtime: owner of the tools, and executor of their calls.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use foldhash::HashMap;
use futures_util::future::join_all;
use hmac_sha256::Hash as Sha256;
use indexmap::IndexMap;
use parking_lot::Mutex;
use pegboard_core::call::{Call, ToolRef};
use pegboard_core::error::CallError;
use pegboard_core::id::ToolId;
use pegboard_core::memory::MemoryPool;
use pegboard_core::model::OutputReader;
use pegboard_core::owner::{Owner, Principals};
use pegboard_core::provider::ServerState;
use pegboard_core::redact::{self, Redactor};
use pegboard_core::settings::{QueueSettings, RuntimeSettings};
use pegboard_core::store::{CacheStore, SlotStore};
use serde_json::Value;
use tokio::sync::{broadcast, watch};
use tokio::time;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::call::registry::{ActiveCalls, CallId};
use crate::call::requests::{ServerId, ServerUpdate};
use crate::call::suspended::SuspendedCallTable;
use crate::call_log::CallLogWriter;
use crate::caller::registry::CallerRegistry;
use crate::caller::{Caller, CallerOptions, Visibility};
use crate::catalogue::{Catalogue, CatalogueTool, ServerListing, Snapshot};
use crate::costly_validation::ValidationThreads;
use crate::drain::DrainGuard;
use crate::event::{EventBus, RuntimeEvent};
use crate::outputs::OutputStorage;
use crate::pipeline::{Pipeline, SingleFlight, start_limit};
use crate::queues::{QueueMap, Queues};
use crate::sessions::SessionRegistry;
use crate::spans::TracePropagator;
use crate::wall_clock::WallClock;

mod builder;
mod overview;
mod plan;
mod redacted_secrets;
mod reload;
mod watch_servers;

pub use builder::RuntimeBuilder;
pub use plan::{RuntimePlan, StartError};
pub use redacted_secrets::RedactedSecrets;
pub use reload::{PlanChanges, PreparedPlan};

use plan::ActivePlan;

/// Name of the toolbox of servers that name none.
pub(crate) const DEFAULT_TOOLBOX: &str = "default";
/// Name of the tool by which an agent reports its progress.
const TASK_STATUS: &str = "agent__task_status";
/// Timeout of shutting down a provider.
const PROVIDER_SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);

/// The tool runtime. Clones share the runtime.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use pegboard_core::call::Call;
/// use pegboard_core::entry::ToolEntry;
/// use pegboard_core::provider::LocalProvider;
/// use pegboard_runtime::{CallerOptions, Runtime};
/// use serde_json::json;
///
/// let double = ToolEntry::new("double", "Twice a number", |n: i64| async move { Ok(n * 2) });
/// let runtime = Runtime::builder().provide("math", LocalProvider::new([double])).start().await?;
/// let caller = runtime.caller(CallerOptions::default());
///
/// assert_eq!(caller.invoke(Call::new("math__double", json!(21))).await.data, 42);
/// println!("{}", caller.tree().snapshot());
/// runtime.shut_down(std::time::Duration::from_secs(1)).await;
/// # Ok::<(), pegboard_runtime::StartError>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct Runtime(Arc<RuntimeShared>);

/// State shared by all handles of a runtime.
pub(crate) struct RuntimeShared {
    /// The plan in effect.
    active_plan: ArcSwap<ActivePlan>,
    pub(crate) catalogue: Catalogue,
    pub(crate) builtins: HashMap<&'static str, Arc<CatalogueTool>>,
    pub(crate) queues: Queues,
    pub(crate) cache: Option<Arc<dyn CacheStore>>,
    pub(crate) single_flight: SingleFlight,
    pub(crate) slots: Option<Arc<dyn SlotStore>>,
    pub(crate) outputs: OutputStorage,
    pub(crate) validation_threads: ValidationThreads,
    /// Default model that reads stored outputs.
    pub(crate) reader: Option<Arc<OutputReader>>,
    pub(crate) sessions: Option<SessionRegistry>,
    pub(crate) call_log: Option<CallLogWriter>,
    pub(crate) events: EventBus,
    pub(crate) spans: Option<Arc<dyn TracePropagator>>,
    pub(crate) calls: Arc<ActiveCalls>,
    pub(crate) callers: CallerRegistry,
    pub(crate) suspended: SuspendedCallTable,
    pub(crate) pipeline: Pipeline,
    /// Memory for what chains and batches collect.
    pub(crate) memory: MemoryPool,
    pub(crate) wall: WallClock,
    pub(crate) tasks: TaskTracker,
    pub(crate) closing: CancellationToken,
    pub(crate) redactor: Arc<ArcSwap<Redactor>>,
    pub(crate) updates: broadcast::Sender<ServerUpdate>,
    /// Listings from which the catalogue was last built. Held while the catalogue or the active plan changes.
    listings: Mutex<Vec<ServerListing>>,
    /// Number of catalogue builds.
    n_catalogues: watch::Sender<u64>,
    n_callers: AtomicU64,
    /// Distinguishes the stateless callers of this process from those of others.
    first_stateless_instance: (u64, u64),
    pub(crate) principals: Principals,
    /// The stateless caller of the last request, usually that of the next one, too.
    last_stateless: ArcSwapOption<StatelessIdentity>,
    /// Visibility of the last new caller, usually that of the next one, too.
    last_visibility: ArcSwap<Visibility>,
}

/// Identity of the stateless callers of one owner.
pub(crate) struct StatelessIdentity {
    owner: Owner,
    pub(crate) id: Arc<str>,
    pub(crate) key: u64,
}

/// A resolved tool.
pub(crate) struct ResolvedTool {
    pub(crate) tool: Arc<CatalogueTool>,
    pub(crate) corrected_from: Option<String>,
    /// Keeps its server from shutting down.
    pub(crate) drain_guard: DrainGuard,
    pub(crate) queues: Arc<QueueMap>,
}

impl ResolvedTool {
    /// A tool outside the catalogue.
    pub(crate) fn standalone(tool: Arc<CatalogueTool>, queues: Arc<QueueMap>) -> Self {
        let drain_guard = tool.drain_counter.acquire().expect("a standalone tool is never closed");
        Self { tool, corrected_from: None, drain_guard, queues }
    }
}

impl Runtime {
    /// Returns a builder.
    pub fn builder() -> RuntimeBuilder {
        RuntimeBuilder::default()
    }

    pub(crate) fn of(shared: Arc<RuntimeShared>) -> Self {
        Self(shared)
    }

    /// Creates a caller.
    pub fn caller(&self, options: CallerOptions) -> Caller {
        Caller::new(Arc::clone(&self.0), options)
    }

    /// Returns all callers, in order of creation.
    pub fn callers(&self) -> Vec<Caller> {
        self.0.callers.list()
    }

    /// Returns the current catalogue.
    pub fn catalogue(&self) -> Arc<Snapshot> {
        self.0.catalogue.load()
    }

    /// Returns a receiver that is notified of catalogue changes; the value is the number of builds.
    pub fn catalogue_changes(&self) -> watch::Receiver<u64> {
        self.0.n_catalogues.subscribe()
    }

    /// Returns `true` if an answer to a client may be stored instead of returned.
    pub fn may_store_outputs(&self) -> bool {
        let active_plan = self.0.active_plan();
        let ActivePlan { settings, toolboxes, .. } = &*active_plan;
        let has_limit = settings.tool_response_max_bytes.is_some()
            || settings.tool_output.session_token_budget.is_some()
            || toolboxes.has_output_limits();
        self.0.outputs.is_enabled() && settings.tool_output.enabled && has_limit
    }

    /// Subscribes to notifications of servers that belong to no call.
    pub fn updates(&self) -> broadcast::Receiver<ServerUpdate> {
        self.0.updates.subscribe()
    }

    /// Returns the event bus.
    pub fn events(&self) -> &EventBus {
        &self.0.events
    }

    /// Cancels one call; returns `false` if it is not in flight.
    pub fn cancel(&self, call: CallId) -> bool {
        self.0.calls.cancel(call)
    }

    /// Cancels all calls; returns their number.
    pub fn cancel_all(&self) -> usize {
        self.0.calls.cancel_where(|_| true)
    }

    /// Returns the suspended calls.
    pub fn suspended_calls(&self) -> &SuspendedCallTable {
        &self.0.suspended
    }

    /// Waits, up to a timeout, until the calls that have ended so far are in the call log.
    pub async fn flush_call_log(&self) {
        if let Some(log) = &self.0.call_log {
            log.flush().await;
        }
    }

    /// Replaces the queues while in use.
    pub fn configure_queues(&self, queues: &IndexMap<String, QueueSettings>) {
        self.0.queues.configure(queues);
    }

    /// Returns the current settings.
    pub fn settings(&self) -> Arc<RuntimeSettings> {
        self.0.settings()
    }

    /// Shuts down gracefully: refuses new calls, gives calls in flight up to `grace` to finish and then
    /// cancels them, and shuts down all providers. Returns the number of cancelled calls.
    pub async fn shut_down(&self, grace: Duration) -> usize {
        let shared = &self.0;
        let n_canceled = shared.calls.close(grace).await;
        shared.suspended.clear();
        let active_plan = shared.close();
        let servers = active_plan.toolboxes.0.values().flat_map(|toolbox| toolbox.servers.values());
        let ending = join_all(servers.map(|server| server.provider.shut_down()));
        let _ = time::timeout(PROVIDER_SHUTDOWN_TIMEOUT, ending).await;
        // What is not written within the flush timeout is lost.
        self.flush_call_log().await;
        shared.tasks.close();
        // All tasks end when `closing` is cancelled.
        let _ = time::timeout(PROVIDER_SHUTDOWN_TIMEOUT, shared.tasks.wait()).await;
        shared.events.shut_down();
        n_canceled
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime").field("n_tools", &self.catalogue().tools().len()).finish_non_exhaustive()
    }
}

impl RuntimeShared {
    /// Returns the plan in effect.
    pub(crate) fn active_plan(&self) -> Arc<ActivePlan> {
        self.active_plan.load_full()
    }

    /// Returns `true` if the plan has not been replaced.
    pub(crate) fn is_current(&self, active_plan: &Arc<ActivePlan>) -> bool {
        Arc::ptr_eq(active_plan, &self.active_plan.load())
    }

    /// Returns the current settings.
    pub(crate) fn settings(&self) -> Arc<RuntimeSettings> {
        Arc::clone(&self.active_plan.load().settings)
    }

    /// Stops the background tasks. The active plan cannot be replaced from here on.
    fn close(&self) -> Arc<ActivePlan> {
        let _listings = self.listings.lock();
        self.closing.cancel();
        self.active_plan()
    }

    /// Resolves the tool of a call for a caller.
    pub(crate) fn resolve(&self, caller: &Caller, call: &Call) -> Result<ResolvedTool, CallError> {
        loop {
            // Loaded first, so that the tool's queue is in this map or in a later one.
            let queues = self.queues.load();
            let (tool, corrected_from) = match &call.tool {
                ToolRef::Id(id) => {
                    caller.check_access(&id.toolbox, call.context.origin)?;
                    (Arc::clone(self.catalogue.load().lookup(id)?), None)
                }
                ToolRef::Name(name) => self.resolve_name(caller, name)?,
            };
            // A closed counter means that the server has been replaced; resolve again.
            if let Some(drain_guard) = tool.drain_counter.acquire() {
                return Ok(ResolvedTool { tool, corrected_from, drain_guard, queues });
            }
        }
    }

    fn resolve_name(
        &self,
        caller: &Caller,
        name: &str,
    ) -> Result<(Arc<CatalogueTool>, Option<String>), CallError> {
        if let Some(tool) = self.builtins.get(name) {
            return Ok((Arc::clone(tool), None));
        }
        let snapshot = self.catalogue.load();
        caller.with_names(|scope| {
            let found = snapshot.resolve(name, scope).map_err(|error| refusal(name, error))?;
            Ok((Arc::clone(found.tool), found.corrected_from))
        })
    }

    /// Returns the listed tool that a name means.
    pub(crate) fn find(&self, caller: &Caller, name: &str) -> Option<Arc<CatalogueTool>> {
        self.resolve_name(caller, name).ok().map(|(tool, _)| tool)
    }

    /// Resolves the tool of a call after starting the server that its name points to, within the time limit of the
    /// call; `None` if that cannot help. The start goes on without the call.
    pub(crate) async fn resolve_after_start(
        &self,
        caller: &Caller,
        call: &Call,
    ) -> Option<Result<ResolvedTool, CallError>> {
        let server = self.unlisted_server(caller, call);
        let starting = self.resolve_after_opening(caller, call);
        let limit = server.as_ref().and_then(|server| start_limit(self, call, server));
        let (Some(server), Some(limit)) = (server, limit) else { return starting.await };
        time::timeout(limit, starting).await.unwrap_or_else(|_elapsed| {
            let reason =
                format!("MCP server '{}' is still starting. Call it again in a moment", server.server);
            Some(Err(CallError::ServerUnavailable { reason }))
        })
    }

    /// Returns the server to which the tool of a call belongs, if it does not list the tool.
    fn unlisted_server(&self, caller: &Caller, call: &Call) -> Option<ServerId> {
        match &call.tool {
            ToolRef::Id(ToolId { toolbox, server, .. }) => {
                caller.check_access(toolbox, call.context.origin).ok()?;
                Some(ServerId { toolbox: toolbox.clone(), server: server.clone() })
            }
            ToolRef::Name(name) => {
                let snapshot = self.catalogue.load();
                caller.with_names(|scope| snapshot.server_of(name, scope))
            }
        }
    }

    /// Resolves the tool of a call after opening the server that its name points to; `None` if that cannot help.
    async fn resolve_after_opening(
        &self,
        caller: &Caller,
        call: &Call,
    ) -> Option<Result<ResolvedTool, CallError>> {
        loop {
            let active_plan = self.active_plan();
            let found = self.resolve_by_opening(&active_plan, caller, call).await;
            if matches!(found, Some(Ok(_))) {
                return found;
            }
            // Another call may have opened the server in the meantime.
            self.refresh();
            if let Ok(found) = self.resolve(caller, call) {
                return Some(Ok(found));
            }
            // The plan may have been replaced while the servers were opening.
            if self.is_current(&active_plan) {
                return found;
            }
        }
    }

    async fn resolve_by_opening(
        &self,
        ActivePlan { toolboxes, .. }: &ActivePlan,
        caller: &Caller,
        call: &Call,
    ) -> Option<Result<ResolvedTool, CallError>> {
        let server = self.unlisted_server(caller, call)?;
        match toolboxes.open_server(&server).await {
            Ok(true) => {
                self.refresh();
                Some(self.resolve(caller, call))
            }
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        }
    }

    /// Rebuilds the catalogue if a listing has changed.
    pub(crate) fn refresh(&self) {
        let mut built = self.listings.lock();
        let active_plan = self.active_plan();
        let listings = active_plan.toolboxes.listings();
        let is_same = built.len() == listings.len()
            && built.iter().zip(&listings).all(|(before, now)| {
                Arc::ptr_eq(&before.offer, &now.offer) && before.is_known == now.is_known
            });
        if is_same {
            return;
        }
        self.publish(&active_plan, listings, &mut built);
        drop(built);
        self.announce_catalogue();
    }

    /// Rebuilds the catalogue from the listings of a plan.
    fn publish(
        &self,
        active_plan: &ActivePlan,
        listings: Vec<ServerListing>,
        built: &mut Vec<ServerListing>,
    ) {
        let name_limit = active_plan.settings.tool_name_max_length;
        let snapshot = self.catalogue.load().rebuild_beside(&listings, &active_plan.disabled, name_limit);
        self.catalogue.publish(snapshot);
        *built = listings;
    }

    /// Announces a rebuilt catalogue.
    fn announce_catalogue(&self) {
        // The annotations of a chain's tools may have changed.
        let snapshot = self.catalogue.load();
        self.active_plan.load().chains.values().for_each(|chains| chains.update_annotations(&snapshot));
        self.n_catalogues.send_modify(|n_catalogues| *n_catalogues += 1);
        self.events.emit(|| RuntimeEvent::Catalogue { n_tools: snapshot.tools().len() });
    }

    /// Returns the maximum number of servers that start concurrently.
    pub(crate) fn max_concurrent_starts(&self) -> usize {
        self.settings().mcp_init_concurrency.unwrap_or(usize::MAX).max(1)
    }

    /// Returns the redacted JSON text of a value.
    pub(crate) fn redacted(&self, value: &Value) -> String {
        // Redacted value by value: in the serialized text a secret may be escaped.
        self.redactor.load().value(&redact::redacted(value)).to_string()
    }

    /// Returns an error with secrets redacted: a server may repeat a key that it does not accept.
    pub(crate) fn redacted_error(&self, error: CallError) -> CallError {
        error.map_reason(|reason| self.redactor.load().text(reason).into_owned())
    }

    /// Returns the state with secrets redacted.
    pub(crate) fn without_secrets(&self, state: &ServerState) -> ServerState {
        let clean = |text: &str| self.redactor.load().text(text).into_owned();
        match state {
            ServerState::Failed { why, fix, stderr } => {
                ServerState::Failed { why: clean(why), fix: clean(fix), stderr: stderr.as_deref().map(clean) }
            }
            ServerState::NeedsLogin { fix } => ServerState::NeedsLogin { fix: clean(fix) },
            ServerState::Idle
            | ServerState::Starting
            | ServerState::Ready
            | ServerState::Restarting { .. }
            | ServerState::Stopped => state.clone(),
        }
    }

    pub(crate) fn next_session_key(&self) -> u64 {
        self.n_callers.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns an instance id without a system call, since every stateless request is a caller of its own. It
    /// only needs to be unique.
    pub(crate) fn stateless_instance_id(&self) -> Uuid {
        let n_callers = self.next_session_key();
        let (high, low) = self.first_stateless_instance;
        Uuid::from_u64_pair(high.wrapping_add(n_callers), low.wrapping_add(n_callers))
    }

    /// Derives the identity of a stateless caller: the same for the same owner, in every process. Knowing it
    /// grants no access: data kept under it is returned to its owner only.
    pub(crate) fn stateless_identity(&self, owner: &Owner) -> Arc<StatelessIdentity> {
        if let Some(last) = self.last_stateless.load_full().filter(|last| last.owner == *owner) {
            return last;
        }
        let digest = Sha256::hash(format!("stateless {}", owner.as_str()).as_bytes());
        let mut id = [0; 16];
        id.copy_from_slice(&digest[..16]);
        let mut key = [0; 8];
        key.copy_from_slice(&digest[16..24]);
        // The highest bit separates it from counted keys.
        let key = u64::from_le_bytes(key) | 1 << 63;
        let id = caller_id(Uuid::from_bytes(id));
        let identity = Arc::new(StatelessIdentity { owner: owner.clone(), id, key });
        self.last_stateless.store(Some(Arc::clone(&identity)));
        identity
    }

    /// Returns an equal value, which callers share if possible: there may be very many.
    pub(crate) fn share_visibility(&self, visibility: Visibility) -> Arc<Visibility> {
        let last = self.last_visibility.load();
        if **last == visibility {
            return Arc::clone(&last);
        }
        let visibility = Arc::new(visibility);
        self.last_visibility.store(Arc::clone(&visibility));
        visibility
    }
}

/// Returns the id of a caller.
pub(crate) fn caller_id(unique: Uuid) -> Arc<str> {
    format!("session-{unique}").into()
}

/// Returns the error for a name that no tool has here: a tool of agents is not enabled, others are unknown.
fn refusal(name: &str, error: CallError) -> CallError {
    if name == TASK_STATUS {
        let reason =
            format!("'{name}' is not enabled here: it belongs to the session of an agent that lists it");
        return CallError::NotPermitted { reason };
    }
    error
}
