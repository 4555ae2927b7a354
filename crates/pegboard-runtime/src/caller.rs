//! A caller: its visible toolboxes, its calls, and its remaining budget.

use std::collections::BTreeSet;
use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::future::{BoxFuture, FutureExt};
use parking_lot::Mutex;
use pegboard_core::arguments::CallArguments;
use pegboard_core::call::{Call, CallHandle, CallOrigin, Invoker, SelectedTool, ToolRef};
use pegboard_core::entry::ToolEntry;
use pegboard_core::error::{CallError, Executed, NotFound};
use pegboard_core::extensions::Extensions;
use pegboard_core::id::ToolboxName;
use pegboard_core::memory::MemoryPool;
use pegboard_core::outcome::Outcome;
use pegboard_core::owner::Owner;
use pegboard_core::settings::AutoOpen;
use tokio::runtime::Handle;
use uuid::Uuid;

use crate::call::CallBuilder;
use crate::call::admit::not_validated;
use crate::call_log::EndedCall;
use crate::catalogue::{CatalogueTool, NameCorrections, NameScope, ToolboxScope};
use crate::event::StoreReason;
use crate::optree::{EndedOperation, OpPath, OpTree, SessionIdentity};
use crate::queue::SessionKey;
use crate::random;
use crate::runtime::{Runtime, RuntimeShared, caller_id};
use crate::sessions::SessionId;
use crate::toolbox::OpenedToolbox;
use crate::trace_id::TraceId;

mod options;
pub(crate) mod registry;
mod select;

pub use options::{CallerOptions, OutputRetention, ServerAffinity, SessionMode};

/// Maximum number of characters of a client's name.
const MAX_CLIENT_NAME: usize = 80;

/// A source of calls. Clones share state, which is released with the last clone.
#[derive(Clone)]
pub struct Caller(Arc<CallerInner>);

struct CallerInner {
    shared: Arc<RuntimeShared>,
    id: Arc<str>,
    key: SessionKey,
    /// Unique among all callers, including those that share an id.
    instance_id: Uuid,
    owner: Owner,
    session_mode: SessionMode,
    max_calls_per_turn: Option<u32>,
    output_retention: OutputRetention,
    visibility: ArcSwap<Visibility>,
    open_toolboxes: Mutex<BTreeSet<ToolboxName>>,
    tree: OpTree,
    /// The session of calls that name none.
    bound_session: OnceLock<SessionId>,
    n_tokens: AtomicU64,
    n_calls: AtomicU32,
    has_stored: AtomicBool,
    has_ended: AtomicBool,
    n_in_flight: AtomicUsize,
    /// Name that the client gave itself.
    client: OnceLock<Arc<str>>,
    /// `None` for a caller without a session.
    attachments: Option<Extensions>,
}

/// The toolboxes that a caller can see.
#[derive(Default, PartialEq)]
pub(crate) struct Visibility {
    mode: SessionMode,
    /// `None` for all.
    toolboxes: Option<BTreeSet<ToolboxName>>,
    corrections: NameCorrections,
}

impl Visibility {
    fn has(&self, toolbox: &ToolboxName) -> bool {
        self.toolboxes.as_ref().is_none_or(|toolboxes| toolboxes.contains(toolbox))
    }
}

impl Caller {
    pub(crate) fn new(shared: Arc<RuntimeShared>, options: CallerOptions) -> Self {
        let CallerOptions {
            owner,
            session_mode,
            toolboxes,
            corrections,
            max_calls_per_turn,
            output_retention,
            affinity,
        } = options;
        let (id, key, instance_id) = match session_mode {
            // A stateless caller has no identifier of its own across requests, so the id derives from its
            // owner.
            SessionMode::Stateless => {
                let identity = shared.stateless_identity(&owner);
                (Arc::clone(&identity.id), SessionKey(identity.key), shared.stateless_instance_id())
            }
            SessionMode::Session | SessionMode::AllOpen => {
                let instance_id = random::uuid();
                (caller_id(instance_id), SessionKey(shared.next_session_key()), instance_id)
            }
        };
        let attachments = match (session_mode, affinity) {
            (SessionMode::Session | SessionMode::AllOpen, ServerAffinity::Session) => {
                Some(Extensions::default())
            }
            (SessionMode::Stateless, _) | (_, ServerAffinity::Principal) => None,
        };
        let info = SessionIdentity::new(Arc::clone(&id), shared.wall.now());
        let visibility = shared.share_visibility(Visibility { mode: session_mode, toolboxes, corrections });
        let caller = Self(Arc::new(CallerInner {
            shared,
            id,
            key,
            instance_id,
            owner,
            session_mode,
            max_calls_per_turn,
            output_retention,
            visibility: ArcSwap::new(visibility),
            open_toolboxes: Mutex::default(),
            tree: OpTree::new(info),
            bound_session: OnceLock::new(),
            n_tokens: AtomicU64::new(0),
            n_calls: AtomicU32::new(0),
            has_stored: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
            n_in_flight: AtomicUsize::new(0),
            client: OnceLock::new(),
            attachments,
        }));
        caller.shared().callers.add(&caller);
        caller
    }

    /// Returns the id: `session-<uuid>`.
    pub fn id(&self) -> &str {
        &self.0.id
    }

    /// Returns the id as a shared string.
    pub(crate) fn shared_id(&self) -> Arc<str> {
        Arc::clone(&self.0.id)
    }

    /// Sets the name that the client gave itself, once. Its first characters are kept.
    pub fn name_client(&self, name: &str) {
        self.0.client.get_or_init(|| name.chars().take(MAX_CLIENT_NAME).collect::<String>().into());
    }

    /// Returns the name that the client gave itself.
    pub fn client(&self) -> Option<&str> {
        self.0.client.get().map(|name| &**name)
    }

    /// Returns the owner of its data: its principal.
    pub fn owner(&self) -> &Owner {
        &self.0.owner
    }

    /// Changes the session mode, the visible toolboxes and the treatment of unknown names. A stateless caller
    /// stays stateless, and toolboxes that are already open stay open.
    pub fn set_visibility(
        &self,
        mode: SessionMode,
        toolboxes: Option<&BTreeSet<ToolboxName>>,
        corrections: NameCorrections,
    ) {
        let visibility = self.0.visibility.load();
        let mode = match (visibility.mode, mode) {
            (SessionMode::Stateless, _) | (_, SessionMode::Stateless) => visibility.mode,
            (SessionMode::Session | SessionMode::AllOpen, wanted) => wanted,
        };
        let now = (visibility.mode, visibility.toolboxes.as_ref(), visibility.corrections);
        if now != (mode, toolboxes, corrections) {
            let toolboxes = toolboxes.cloned();
            self.0.visibility.store(Arc::new(Visibility { mode, toolboxes, corrections }));
        }
    }

    /// Returns the session extensions; `None` for a caller without a session.
    pub fn attachments(&self) -> Option<&Extensions> {
        self.0.attachments.as_ref()
    }

    /// Returns the operation tree of all its calls.
    pub fn tree(&self) -> &OpTree {
        &self.0.tree
    }

    /// Starts the next turn.
    pub fn next_turn(&self) {
        self.0.n_calls.store(0, Ordering::Relaxed);
        self.0.tree.next_turn();
    }

    /// Returns the runtime that executes its calls.
    pub fn runtime(&self) -> Runtime {
        Runtime::of(Arc::clone(&self.0.shared))
    }

    /// Returns `true` if an output was stored for this caller.
    pub fn has_stored_output(&self) -> bool {
        self.0.has_stored.load(Ordering::Relaxed)
    }

    /// Makes a call and waits for its outcome.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// use pegboard_core::call::Call;
    /// use pegboard_core::entry::ToolEntry;
    /// use pegboard_core::provider::LocalProvider;
    /// use pegboard_runtime::{CallerOptions, Runtime};
    /// use serde_json::json;
    ///
    /// let echo = ToolEntry::from_fn("echo", "Its argument again", |value: serde_json::Value| async move { Ok(value) });
    /// let runtime = Runtime::builder().provide("text", LocalProvider::new([echo])).start().await.unwrap();
    /// let caller = runtime.caller(CallerOptions::default());
    /// let outcome = caller.invoke(Call::new("text__echo", json!({"a": 1}))).await;
    /// assert_eq!(outcome.data, json!({"a": 1}));
    /// # });
    /// ```
    pub async fn invoke(&self, call: Call) -> Outcome {
        let name = call.tool.to_string();
        Outcome::of(&name, self.start(call).await)
    }

    /// Prepares a call, to start it with options that [`Invoker::start`] does not have.
    pub fn prepare(&self, call: Call) -> CallBuilder {
        CallBuilder::new(self.clone(), call)
    }

    /// Returns the trace id of the call at a path.
    pub(crate) fn trace_id(&self, path: &OpPath) -> TraceId {
        TraceId::of(self.0.instance_id, path)
    }

    /// Returns the log entry of a call that has ended.
    pub(crate) fn ended_call(&self, operation: EndedOperation) -> EndedCall {
        let client = self.0.client.get().cloned();
        EndedCall { owner: self.owner().clone(), client, instance_id: self.0.instance_id, operation }
    }

    /// Resolves a tool. If its name points to a server that has not listed its tools yet, the server is opened
    /// first, as for a call with this timeout, or with the configured one.
    pub async fn find_tool(
        &self,
        tool: &ToolRef,
        timeout: Option<Duration>,
    ) -> Result<Arc<CatalogueTool>, CallError> {
        if let Ok(tool) = self.find_known_tool(tool) {
            return Ok(tool);
        }
        let mut call = Call::new(tool.clone(), CallArguments::default());
        call.context.options.timeout = timeout;
        match self.shared().resolve_after_start(self, &call).await {
            Some(found) => found.map(|found| found.tool),
            None => self.find_known_tool(tool),
        }
    }

    /// Returns a tool of the current catalogue; starts nothing.
    pub fn find_known_tool(&self, tool: &ToolRef) -> Result<Arc<CatalogueTool>, CallError> {
        let shared = self.shared();
        let snapshot = shared.catalogue.load();
        match tool {
            ToolRef::Id(id) => {
                self.check_access(&id.toolbox, CallOrigin::Program)?;
                snapshot.lookup(id).cloned()
            }
            ToolRef::Name(name) => match shared.builtins.get(name.as_str()) {
                Some(tool) => Ok(Arc::clone(tool)),
                None => {
                    self.with_names(|scope| snapshot.resolve(name, scope).map(|found| Arc::clone(found.tool)))
                }
            },
        }
    }

    /// Opens a toolbox: starts its servers and makes its tools callable.
    ///
    /// Opening an open toolbox has no effect. Servers that cannot be used are reported; if all fail, the
    /// toolbox stays closed.
    pub async fn open(&self, toolbox: &str) -> Result<OpenedToolbox, CallError> {
        let shared = self.shared();
        loop {
            let active_plan = shared.active_plan();
            let visibility = self.0.visibility.load_full();
            let opened = active_plan.toolboxes.open(shared, toolbox, visibility.toolboxes.as_ref()).await;
            // The plan may have been replaced while the servers were starting.
            if shared.is_current(&active_plan) {
                let (name, opened) = opened?;
                self.0.open_toolboxes.lock().insert(name);
                return Ok(opened);
            }
        }
    }

    /// Makes the tools of a visible toolbox callable and starts nothing: a server starts with its first call. Has no
    /// effect if toolboxes never open automatically.
    pub fn open_on_use(&self, toolbox: &ToolboxName) {
        let shared = self.shared();
        let may_open = shared.settings().auto_open != AutoOpen::Never && self.can_see(toolbox);
        if may_open && shared.active_plan().toolboxes.contains(toolbox) && !self.is_toolbox_open(toolbox) {
            self.0.open_toolboxes.lock().insert(toolbox.clone());
        }
    }

    /// Returns `true` if a toolbox is open for this caller.
    pub fn is_toolbox_open(&self, toolbox: &ToolboxName) -> bool {
        let visibility = self.0.visibility.load();
        visibility.has(toolbox)
            && match (visibility.mode, self.shared().settings().auto_open) {
                (SessionMode::AllOpen, _)
                | (SessionMode::Stateless, AutoOpen::Stateless | AutoOpen::Always)
                | (SessionMode::Session, AutoOpen::Always) => true,
                (SessionMode::Stateless | SessionMode::Session, AutoOpen::Never)
                | (SessionMode::Session, AutoOpen::Stateless) => {
                    self.0.open_toolboxes.lock().contains(toolbox)
                }
            }
    }

    /// Returns `true` if a toolbox is visible to this caller, open or not.
    pub(crate) fn can_see(&self, toolbox: &ToolboxName) -> bool {
        self.0.visibility.load().has(toolbox)
    }

    /// Fails if a toolbox does not exist or is not open. The tools of an agent come from its file and do not
    /// depend on open toolboxes.
    pub(crate) fn check_access(&self, toolbox: &ToolboxName, origin: CallOrigin) -> Result<(), CallError> {
        let toolboxes = &self.shared().active_plan().toolboxes;
        let visibility = self.0.visibility.load();
        if !visibility.has(toolbox) || !toolboxes.contains(toolbox) {
            return Err(CallError::NotFound(NotFound::Toolbox {
                toolbox: toolbox.to_string(),
                available: toolboxes.names(visibility.toolboxes.as_ref()),
            }));
        }
        if self.is_toolbox_open(toolbox) || origin == CallOrigin::Agent {
            return Ok(());
        }
        Err(CallError::NotFound(NotFound::NotOpen { toolbox: toolbox.to_string() }))
    }

    /// Counts a call of this turn; fails if the limit is reached.
    pub(crate) fn count_call(&self) -> Result<(), CallError> {
        if self.0.has_ended.load(Ordering::Relaxed) {
            let reason = "the session has ended".to_owned();
            return Err(CallError::Canceled { reason, executed: Executed::No });
        }
        let Some(most) = self.0.max_calls_per_turn else { return Ok(()) };
        if self.0.n_calls.fetch_add(1, Ordering::Relaxed) < most {
            return Ok(());
        }
        Err(CallError::LimitExceeded {
            reason: format!(
                "tool_calls_per_turn_limit_exceeded: at most {most} tool calls are made in one turn"
            ),
        })
    }

    /// Reserves tokens from the session's budget.
    pub(crate) fn reserve_tokens(&self, n_tokens: u64, budget: u64) -> Result<(), StoreReason> {
        let used = self.0.n_tokens.load(Ordering::Relaxed);
        if used.saturating_add(n_tokens) > budget {
            return Err(StoreReason::TokenBudget);
        }
        let reserve = |used: u64| Some(used.saturating_add(n_tokens)).filter(|used| *used <= budget);
        // A concurrent call may have taken the tokens since the check above.
        self.0
            .n_tokens
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, reserve)
            .map_or(Err(StoreReason::ReserveFailed), |_| Ok(()))
    }

    /// Returns the session of calls that name none.
    pub(crate) fn bound_session(&self) -> Option<SessionId> {
        self.0.bound_session.get().cloned()
    }

    /// Binds the caller to the first session that it enters.
    pub(crate) fn bind_session(&self, session: &SessionId) {
        self.0.bound_session.get_or_init(|| session.clone());
    }

    /// Returns the number of its calls in flight.
    pub(crate) fn n_in_flight(&self) -> &AtomicUsize {
        &self.0.n_in_flight
    }

    /// Ends the caller: cancels its calls, refuses new ones and removes its stored outputs.
    pub async fn end(self) {
        self.0.has_ended.store(true, Ordering::Relaxed);
        self.cancel_all();
        self.shared().outputs.remove_session(self.owner().clone(), self.id().to_owned()).await;
    }

    /// Cancels all its calls; returns their number.
    pub fn cancel_all(&self) -> usize {
        self.shared().calls.cancel_where(|active_call| Arc::ptr_eq(&active_call.caller().0, &self.0))
    }

    pub(crate) fn mark_output_stored(&self) {
        self.0.has_stored.store(true, Ordering::Relaxed);
    }

    pub(crate) fn key(&self) -> SessionKey {
        self.0.key
    }

    pub(crate) fn shared(&self) -> &Arc<RuntimeShared> {
        &self.0.shared
    }

    /// Runs a closure with the scope in which names are resolved for this caller.
    pub(crate) fn with_names<T>(&self, look: impl FnOnce(NameScope<'_>) -> T) -> T {
        let visibility = self.0.visibility.load();
        let corrections = visibility.corrections;
        if visibility.mode == SessionMode::AllOpen && visibility.toolboxes.is_none() {
            return look(NameScope { corrections, ..NameScope::default() });
        }
        look(NameScope {
            visible: ToolboxScope::Only(&|toolbox| visibility.has(toolbox)),
            open: ToolboxScope::Only(&|toolbox| self.is_toolbox_open(toolbox)),
            corrections,
        })
    }

    /// Returns the address of its state, which no other caller has.
    pub(crate) fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    pub(crate) fn downgrade(&self) -> WeakCaller {
        WeakCaller(Arc::downgrade(&self.0))
    }
}

impl Invoker for Caller {
    fn find(&self, name: &str) -> Option<Arc<ToolEntry>> {
        self.shared().find(self, name).map(|tool| Arc::clone(&tool.entry))
    }

    fn locate<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Arc<ToolEntry>, CallError>> {
        async move { Ok(Arc::clone(&self.find_tool(&name.into(), None).await?.entry)) }.boxed()
    }

    fn start(&self, call: Call) -> CallHandle {
        self.prepare(call).start()
    }

    fn run_apart(&self, work: Box<dyn FnOnce() + Send>) -> BoxFuture<'_, Result<(), CallError>> {
        let RuntimeShared { validation_threads: threads, tasks, .. } = &**self.shared();
        async move { threads.run(tasks, self.owner(), work).await.map_err(not_validated) }.boxed()
    }

    fn select<'a>(&'a self, word: &'a str) -> BoxFuture<'a, Result<Vec<SelectedTool>, CallError>> {
        self.select(word).boxed()
    }

    fn find_selected(&self, name: &str) -> Option<ToolRef> {
        self.find_selected(name)
    }

    fn memory(&self) -> Option<MemoryPool> {
        Some(self.shared().memory.part(MemoryPool::CALL_BYTES))
    }
}

impl Drop for CallerInner {
    fn drop(&mut self) {
        self.shared.callers.remove(ptr::from_ref(self).addr());
        let is_left = match self.session_mode {
            // A stateless caller may return.
            SessionMode::Stateless => false,
            SessionMode::Session | SessionMode::AllOpen => {
                let is_stored = *self.has_stored.get_mut() && !*self.has_ended.get_mut();
                is_stored && self.output_retention == OutputRetention::RemoveWithCaller
            }
        };
        if is_left && let Ok(handle) = Handle::try_current() {
            let (shared, owner) = (Arc::clone(&self.shared), self.owner.clone());
            let id = self.id.to_string();
            self.shared
                .tasks
                .spawn_on(async move { shared.outputs.remove_session(owner, id).await }, &handle);
        }
    }
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller").field("id", &self.0.id).finish_non_exhaustive()
    }
}

/// A weak reference to a caller.
pub(crate) struct WeakCaller(Weak<CallerInner>);

impl WeakCaller {
    pub(crate) fn upgrade(&self) -> Option<Caller> {
        self.0.upgrade().map(Caller)
    }
}
