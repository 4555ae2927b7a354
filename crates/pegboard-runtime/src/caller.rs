//! Whoever makes calls: what is open for it, what it did, and what it may still use.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use arc_swap::ArcSwap;
use futures_util::future::{BoxFuture, FutureExt};
use pegboard_core::arguments::Arguments;
use pegboard_core::attachment::Attachments;
use pegboard_core::call::{Call, Invoker, Origin, Running, Selected, ToolRef};
use pegboard_core::entry::ToolEntry;
use pegboard_core::error::{CallError, Executed, NotFound};
use pegboard_core::id::ToolboxName;
use pegboard_core::outcome::Outcome;
use pegboard_core::settings::AutoOpen;
use tokio::runtime::Handle;
use uuid::Uuid;

use crate::calls::Begun;
use crate::carry;
use crate::catalogue::{Scope, Tool};
use crate::event::StoreReason;
use crate::history::Page;
use crate::optree::{About, OpPath, OpTree};
use crate::queue::SessionKey;
use crate::runtime::{Runtime, Shared};
use crate::sessions::SessionId;
use crate::toolbox::Opened;
use crate::trace_id::TraceId;

/// Who is to make calls.
#[derive(Clone, Debug, Default)]
pub struct CallerOptions {
    /// Who it is; empty if nobody in particular.
    pub principal: String,
    /// For whom it works; empty if nobody in particular.
    pub tenant: String,
    /// Whether it is remembered between its calls.
    pub memory: Memory,
    /// The toolboxes that exist for it; `None` for all.
    pub toolboxes: Option<BTreeSet<ToolboxName>>,
    /// How many calls it may make in one turn.
    pub max_calls_per_turn: Option<u32>,
    /// What becomes of the answers that were stored for it when it is gone.
    pub leaves: Leaves,
}

/// What becomes of the answers that were stored for a caller when it is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Leaves {
    /// They are gone, too. Nobody else could read them.
    #[default]
    Nothing,
    /// They are kept until they expire, for whoever is shown them in another way.
    Outputs,
}

/// Whether a caller is remembered between its calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Memory {
    /// It is, so it opens the toolboxes that it wants.
    Session,
    /// It is not.
    Stateless,
    /// It sees every toolbox as open.
    #[default]
    Everything,
}

/// Somebody who makes calls. Clones are the same one; when the last is gone, so is what was kept for it.
#[derive(Clone)]
pub struct Caller(Arc<Inner>);

struct Inner {
    shared: Arc<Shared>,
    id: Arc<str>,
    key: SessionKey,
    /// Tells it from every other, also from those that have its id.
    mark: Uuid,
    owner: Arc<str>,
    options: CallerOptions,
    sight: ArcSwap<Sight>,
    open: Mutex<BTreeSet<ToolboxName>>,
    tree: OpTree,
    /// The session that calls without a name of one belong to.
    bound: OnceLock<SessionId>,
    /// Where its calls are written down, once one has ended.
    page: OnceLock<Arc<Page>>,
    n_tokens: AtomicU64,
    n_calls: AtomicU32,
    has_stored: AtomicBool,
    has_ended: AtomicBool,
    n_under_way: AtomicUsize,
    attachments: Attachments,
}

/// What there is for a caller.
#[derive(PartialEq)]
struct Sight {
    memory: Memory,
    /// The toolboxes that exist for it; `None` for all.
    toolboxes: Option<BTreeSet<ToolboxName>>,
}

impl CallerOptions {
    /// Whose things are its own: the principal within its tenant, as one text.
    pub fn owner(&self) -> String {
        // The length tells where the one ends and the other begins.
        let Self { tenant, principal, .. } = self;
        format!("{}:{tenant}:{principal}", tenant.len())
    }

    /// The principal of an owner, without its tenant.
    ///
    /// ```
    /// use pegboard_runtime::CallerOptions;
    ///
    /// let ann = CallerOptions { principal: "ann".into(), tenant: "a:b".into(), ..CallerOptions::default() };
    /// assert_eq!(CallerOptions::principal_of(&ann.owner()), "ann");
    /// ```
    pub fn principal_of(owner: &str) -> &str {
        let parts = owner.split_once(':').and_then(|(length, rest)| Some((length.parse().ok()?, rest)));
        let principal = parts.and_then(|(length, rest): (usize, &str)| rest.get(length..)?.strip_prefix(':'));
        principal.unwrap_or(owner)
    }
}

impl Sight {
    fn has(&self, toolbox: &ToolboxName) -> bool {
        self.toolboxes.as_ref().is_none_or(|toolboxes| toolboxes.contains(toolbox))
    }
}

impl Caller {
    pub(crate) fn new(shared: Arc<Shared>, options: CallerOptions) -> Self {
        let (owner, mark): (Arc<str>, _) = (options.owner().into(), Uuid::new_v4());
        let (id, key) = match options.memory {
            // It comes back without a word of having been here: whose it is, is who it is.
            Memory::Stateless => Shared::stateless_identity(&owner),
            Memory::Session | Memory::Everything => (mark, shared.next_key()),
        };
        let (id, key): (Arc<str>, _) = (format!("session-{id}").into(), SessionKey(key));
        let about = About::new(&id, shared.wall.now());
        let sight = Sight { memory: options.memory, toolboxes: options.toolboxes.clone() };
        let caller = Self(Arc::new(Inner {
            shared,
            id,
            key,
            mark,
            owner,
            options,
            sight: ArcSwap::from_pointee(sight),
            open: Mutex::default(),
            tree: OpTree::new(about),
            bound: OnceLock::new(),
            page: OnceLock::new(),
            n_tokens: AtomicU64::new(0),
            n_calls: AtomicU32::new(0),
            has_stored: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
            n_under_way: AtomicUsize::new(0),
            attachments: Attachments::default(),
        }));
        caller.shared().callers.add(&caller);
        caller
    }

    /// Its id: `session-<uuid>`.
    pub fn id(&self) -> &str {
        &self.0.id
    }

    /// Who it is.
    pub fn principal(&self) -> &str {
        &self.0.options.principal
    }

    /// For whom it works.
    pub fn tenant(&self) -> &str {
        &self.0.options.tenant
    }

    /// Whose things are its own: the principal within its tenant, as one text.
    pub fn owner(&self) -> &str {
        &self.0.owner
    }

    /// The same, to be kept.
    pub(crate) fn shared_owner(&self) -> Arc<str> {
        Arc::clone(&self.0.owner)
    }

    /// Changes what there is for it: whether all toolboxes are open to it or it opens those that it wants, and which
    /// exist for it. One that is not remembered stays so, and the toolboxes that it has opened stay open.
    pub fn see(&self, memory: Memory, toolboxes: Option<&BTreeSet<ToolboxName>>) {
        let sight = self.0.sight.load();
        let memory = match (sight.memory, memory) {
            (Memory::Stateless, _) | (_, Memory::Stateless) => sight.memory,
            (Memory::Session | Memory::Everything, wanted) => wanted,
        };
        if sight.memory != memory || sight.toolboxes.as_ref() != toolboxes {
            self.0.sight.store(Arc::new(Sight { memory, toolboxes: toolboxes.cloned() }));
        }
    }

    /// What is kept for it; `None` if it is not remembered.
    pub fn attachments(&self) -> Option<&Attachments> {
        match self.0.options.memory {
            Memory::Session | Memory::Everything => Some(&self.0.attachments),
            Memory::Stateless => None,
        }
    }

    /// All that it did.
    pub fn tree(&self) -> &OpTree {
        &self.0.tree
    }

    /// Begins another turn.
    pub fn next_turn(&self) {
        self.0.n_calls.store(0, Ordering::Relaxed);
        self.0.tree.next_turn();
    }

    /// The runtime that carries its calls out.
    pub fn runtime(&self) -> Runtime {
        Runtime::of(Arc::clone(&self.0.shared))
    }

    /// Whether an answer was stored for it, so that there is something to read back.
    pub fn has_stored_output(&self) -> bool {
        self.0.has_stored.load(Ordering::Relaxed)
    }

    /// Makes a call and waits for its outcome.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// use pegboard_core::call::Call;
    /// use pegboard_core::entry::ToolEntry;
    /// use pegboard_core::provider::Local;
    /// use pegboard_runtime::{CallerOptions, Runtime};
    /// use serde_json::json;
    ///
    /// let echo = ToolEntry::from_fn("echo", "Its argument again", |value: serde_json::Value| async move { Ok(value) });
    /// let runtime = Runtime::builder().provide("text", Local::new([echo])).start().await.unwrap();
    /// let caller = runtime.caller(CallerOptions::default());
    /// let outcome = caller.invoke(Call::new("text__echo", json!({"a": 1}))).await;
    /// assert_eq!(outcome.data, json!({"a": 1}));
    /// # });
    /// ```
    pub async fn invoke(&self, call: Call) -> Outcome {
        let name = call.tool.to_string();
        Outcome::of(&name, self.start(call).await)
    }

    /// Starts a call, and tells what it is known by once it is under way, before its tool can say anything. One that is
    /// refused at the door has nothing to be known by.
    pub fn start_telling(&self, call: Call, begun: impl FnOnce(Begun) + Send + 'static) -> Running {
        carry::start_telling(self.clone(), call, Box::new(begun))
    }

    /// What the call at a path is found again by when it has ended.
    pub(crate) fn trace_of(&self, path: &OpPath) -> TraceId {
        TraceId::of(self.0.mark, path)
    }

    /// Where its calls are written down.
    pub(crate) fn page(&self) -> &Arc<Page> {
        self.0.page.get_or_init(|| {
            let Inner { id, mark, owner, tree, .. } = &*self.0;
            Arc::new(Page::new(Arc::clone(id), *mark, Arc::clone(owner), tree.clone()))
        })
    }

    /// The tool that a name means. Servers that may have it and were not asked yet what they have are asked first, as
    /// they are for a call.
    pub async fn find_tool(&self, tool: &ToolRef) -> Result<Arc<Tool>, CallError> {
        if let Ok(tool) = self.known_tool(tool) {
            return Ok(tool);
        }
        let call = Call::new(tool.clone(), Arguments::default());
        let opened = self.shared().resolve_after_opening(self, &call).await;
        self.known_tool(tool).map_err(|error| match opened {
            // Why its server cannot be used says more than that nobody knows the tool.
            Some(Err(why @ CallError::ServerUnavailable { .. })) => why,
            _ => error,
        })
    }

    fn known_tool(&self, tool: &ToolRef) -> Result<Arc<Tool>, CallError> {
        let shared = self.shared();
        let snapshot = shared.catalogue.load();
        match tool {
            ToolRef::Id(id) => {
                self.permit(&id.toolbox, Origin::Program)?;
                snapshot.lookup(id).cloned()
            }
            ToolRef::Name(name) => match shared.builtins.get(name.as_str()) {
                Some(tool) => Ok(Arc::clone(tool)),
                None => self.with_scope(|scope| {
                    snapshot.resolve(name, scope, &|_| true).map(|found| Arc::clone(found.tool))
                }),
            },
        }
    }

    /// Opens a toolbox: its servers are made ready, and its tools can be called.
    ///
    /// A toolbox that is open already stays so. Servers that cannot be used are named; if none can, nothing is open.
    pub async fn open(&self, toolbox: &str) -> Result<Opened, CallError> {
        let shared = self.shared();
        loop {
            let layout = shared.layout();
            let sight = self.0.sight.load_full();
            let opened = layout.toolboxes.open(shared, toolbox, sight.toolboxes.as_ref()).await;
            // What was made ready may have been replaced in the meantime.
            if shared.is_current(&layout) {
                let (name, opened) = opened?;
                self.opened().insert(name);
                return Ok(opened);
            }
        }
    }

    /// Whether a toolbox is open for it.
    pub fn has_open(&self, toolbox: &ToolboxName) -> bool {
        let sight = self.0.sight.load();
        sight.has(toolbox)
            && match (sight.memory, self.shared().settings().auto_open) {
                (Memory::Everything, _)
                | (Memory::Stateless, AutoOpen::Stateless | AutoOpen::Always)
                | (Memory::Session, AutoOpen::Always) => true,
                (Memory::Stateless | Memory::Session, AutoOpen::Never)
                | (Memory::Session, AutoOpen::Stateless) => self.opened().contains(toolbox),
            }
    }

    /// Whether a toolbox exists for it, open or not.
    pub(crate) fn sees(&self, toolbox: &ToolboxName) -> bool {
        self.0.sight.load().has(toolbox)
    }

    /// Refuses a toolbox that is not there, or not open. The tools of an agent are those that its file gives it, whatever
    /// is open.
    pub(crate) fn permit(&self, toolbox: &ToolboxName, origin: Origin) -> Result<(), CallError> {
        let toolboxes = &self.shared().layout().toolboxes;
        let sight = self.0.sight.load();
        if !sight.has(toolbox) || !toolboxes.contains(toolbox) {
            return Err(CallError::NotFound(NotFound::Toolbox {
                toolbox: toolbox.to_string(),
                available: toolboxes.names(sight.toolboxes.as_ref()),
            }));
        }
        if self.has_open(toolbox) || origin == Origin::Agent {
            return Ok(());
        }
        Err(CallError::NotFound(NotFound::NotOpen { toolbox: toolbox.to_string() }))
    }

    /// Counts a call of this turn, unless there were enough already.
    pub(crate) fn count(&self) -> Result<(), CallError> {
        if self.0.has_ended.load(Ordering::Relaxed) {
            let reason = "the session has ended".to_owned();
            return Err(CallError::Canceled { reason, executed: Executed::No });
        }
        let Some(most) = self.0.options.max_calls_per_turn else { return Ok(()) };
        if self.0.n_calls.fetch_add(1, Ordering::Relaxed) < most {
            return Ok(());
        }
        Err(CallError::LimitExceeded {
            reason: format!(
                "tool_calls_per_turn_limit_exceeded: at most {most} tool calls are made in one turn"
            ),
        })
    }

    /// Takes tokens from the session's budget, or says why it cannot.
    pub(crate) fn spend(&self, n_tokens: u64, budget: u64) -> Result<(), StoreReason> {
        let used = self.0.n_tokens.load(Ordering::Relaxed);
        if used.saturating_add(n_tokens) > budget {
            return Err(StoreReason::TokenBudget);
        }
        let reserve = |used: u64| Some(used.saturating_add(n_tokens)).filter(|used| *used <= budget);
        // Another call may have taken them in the meantime.
        self.0
            .n_tokens
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, reserve)
            .map_or(Err(StoreReason::ReserveFailed), |_| Ok(()))
    }

    /// The session that calls without a name of one belong to.
    pub(crate) fn bound_session(&self) -> Option<SessionId> {
        self.0.bound.get().cloned()
    }

    /// The first session that a caller enters is the one it is in when it names none.
    pub(crate) fn bind_session(&self, session: &SessionId) {
        self.0.bound.get_or_init(|| session.clone());
    }

    /// The number of its calls that are under way.
    pub(crate) fn n_under_way(&self) -> &AtomicUsize {
        &self.0.n_under_way
    }

    /// Ends it: its calls are called off, new ones are refused, and what was stored for it is forgotten.
    pub async fn end(self) {
        self.0.has_ended.store(true, Ordering::Relaxed);
        self.cancel_all();
        self.shared().outputs.forget(self.id().to_owned()).await;
    }

    /// Calls off all calls that it makes; gives their number.
    pub fn cancel_all(&self) -> usize {
        self.shared().calls.cancel_where(|track| Arc::ptr_eq(&track.caller.0, &self.0))
    }

    pub(crate) fn note_stored(&self) {
        self.0.has_stored.store(true, Ordering::Relaxed);
    }

    pub(crate) fn key(&self) -> SessionKey {
        self.0.key
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0.shared
    }

    /// What a name may mean for it.
    pub(crate) fn with_scope<T>(&self, look: impl FnOnce(Scope<'_>) -> T) -> T {
        let sight = self.0.sight.load();
        if sight.memory == Memory::Everything && sight.toolboxes.is_none() {
            return look(Scope::All);
        }
        look(Scope::Only(&|toolbox| self.has_open(toolbox)))
    }

    fn opened(&self) -> MutexGuard<'_, BTreeSet<ToolboxName>> {
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn downgrade(&self) -> WeakCaller {
        WeakCaller(Arc::downgrade(&self.0))
    }
}

impl Invoker for Caller {
    fn find(&self, name: &str) -> Option<Arc<ToolEntry>> {
        self.shared().find(self, name).map(|tool| Arc::clone(&tool.entry))
    }

    fn start(&self, call: Call) -> Running {
        carry::start(self.clone(), self.0.tree.clone(), None, call)
    }

    fn select<'a>(&'a self, word: &'a str) -> BoxFuture<'a, Result<Vec<Selected>, CallError>> {
        self.select(word).boxed()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shared.callers.remove(&self.id);
        let is_left = match self.options.memory {
            // It may come back.
            Memory::Stateless => false,
            Memory::Session | Memory::Everything => {
                let is_stored = *self.has_stored.get_mut() && !*self.has_ended.get_mut();
                is_stored && self.options.leaves == Leaves::Nothing
            }
        };
        if is_left && let Ok(handle) = Handle::try_current() {
            let (shared, id) = (Arc::clone(&self.shared), self.id.to_string());
            self.shared.tasks.spawn_on(async move { shared.outputs.forget(id).await }, &handle);
        }
    }
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller").field("id", &self.0.id).finish_non_exhaustive()
    }
}

/// A caller that may be gone.
pub(crate) struct WeakCaller(Weak<Inner>);

impl WeakCaller {
    /// Whether somebody still holds it.
    pub(crate) fn is_there(&self) -> bool {
        self.0.strong_count() > 0
    }

    pub(crate) fn upgrade(&self) -> Option<Caller> {
        self.0.upgrade().map(Caller)
    }
}
