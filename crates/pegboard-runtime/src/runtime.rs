//! The runtime: every tool there is, and how its calls are carried out.

use std::collections::HashMap;
use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use indexmap::IndexMap;
use pegboard_core::arguments::Arguments;
use pegboard_core::call::{Call, ToolRef};
use pegboard_core::error::CallError;
use pegboard_core::model::OutputReader;
use pegboard_core::provider::ServerState;
use pegboard_core::redact::{self, Redactor};
use pegboard_core::settings::{QueueSettings, RuntimeSettings};
use pegboard_core::store::{CacheStore, SlotStore};
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::sync::{broadcast, watch};
use tokio::time;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::caller::{Caller, CallerOptions};
use crate::callers::Callers;
use crate::calls::{CallId, Calls};
use crate::catalogue::{Catalogue, Shelf, Snapshot, Tool};
use crate::event::{Event, Events};
use crate::history::History;
use crate::outputs::Outputs;
use crate::park::Parking;
use crate::pipeline::{Flights, Pipeline};
use crate::queues::{QueueMap, Queues};
use crate::requests::ServerUpdate;
use crate::sessions::Sessions;
use crate::spans::Spans;
use crate::toolbox::{Server, Toolboxes};
use crate::trace::Traces;
use crate::usage::InUse;
use crate::wall::WallClock;

mod builder;
mod following;
mod overview;
mod plan;
mod reload;

pub use builder::Builder;
pub use plan::{Plan, StartError};
pub use reload::{Changes, Prepared};

use plan::Layout;

/// The toolbox of servers that name none.
pub(crate) const DEFAULT_TOOLBOX: &str = "default";
/// How long providers may take to end.
const PROVIDER_FAREWELL: Duration = Duration::from_secs(10);
/// How long servers that the name of a tool speaks of are waited for before all others are asked as well.
const LIKELY_FIRST: Duration = Duration::from_secs(1);

/// Every tool there is, and how its calls are carried out. Clones are the same runtime.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use pegboard_core::call::Call;
/// use pegboard_core::entry::ToolEntry;
/// use pegboard_core::provider::Local;
/// use pegboard_runtime::{CallerOptions, Runtime};
/// use serde_json::json;
///
/// let double = ToolEntry::new("double", "Twice a number", |n: i64| async move { Ok(n * 2) });
/// let runtime = Runtime::builder().provide("math", Local::new([double])).start().await?;
/// let caller = runtime.caller(CallerOptions::default());
///
/// assert_eq!(caller.invoke(Call::new("math__double", json!(21))).await.data, 42);
/// println!("{}", caller.tree().snapshot());
/// runtime.shut_down(std::time::Duration::from_secs(1)).await;
/// # Ok::<(), pegboard_runtime::StartError>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct Runtime(Arc<Shared>);

/// What everybody who carries out calls shares.
pub(crate) struct Shared {
    /// What is carried out now.
    layout: ArcSwap<Layout>,
    pub(crate) catalogue: Catalogue,
    pub(crate) builtins: HashMap<&'static str, Arc<Tool>>,
    pub(crate) queues: Queues,
    pub(crate) cache: Option<Arc<dyn CacheStore>>,
    pub(crate) flights: Flights,
    pub(crate) slots: Option<Arc<dyn SlotStore>>,
    pub(crate) outputs: Outputs,
    /// Who reads stored outputs for callers that have nobody for it.
    pub(crate) reader: Option<Arc<OutputReader>>,
    pub(crate) sessions: Option<Sessions>,
    pub(crate) traces: Option<Traces>,
    pub(crate) history: Option<History>,
    pub(crate) events: Events,
    pub(crate) spans: Option<Arc<dyn Spans>>,
    pub(crate) calls: Arc<Calls>,
    pub(crate) callers: Callers,
    pub(crate) parking: Parking,
    pub(crate) pipeline: Pipeline,
    pub(crate) wall: WallClock,
    pub(crate) tasks: TaskTracker,
    pub(crate) closing: CancellationToken,
    pub(crate) redactor: ArcSwap<Redactor>,
    pub(crate) updates: broadcast::Sender<ServerUpdate>,
    /// What the catalogue was last made from. Whoever changes the catalogue or the layout holds it.
    shelves: Mutex<Vec<Shelf>>,
    /// How often the catalogue was made.
    n_catalogues: watch::Sender<u64>,
    n_callers: AtomicU64,
}

/// A tool that was found.
pub(crate) struct Found {
    pub(crate) tool: Arc<Tool>,
    pub(crate) corrected_from: Option<String>,
    /// Keeps its server from ending.
    pub(crate) in_use: InUse,
    pub(crate) queues: Arc<QueueMap>,
}

impl Found {
    /// A tool that is in no catalogue.
    pub(crate) fn lone(tool: Arc<Tool>, queues: Arc<QueueMap>) -> Self {
        let in_use = tool.usage.begin().expect("nobody else can have ended it");
        Self { tool, corrected_from: None, in_use, queues }
    }
}

impl Runtime {
    /// A runtime to be put together.
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(crate) fn of(shared: Arc<Shared>) -> Self {
        Self(shared)
    }

    /// Somebody who makes calls.
    pub fn caller(&self, options: CallerOptions) -> Caller {
        Caller::new(Arc::clone(&self.0), options)
    }

    /// The caller of this id, if it is still there.
    pub fn find_caller(&self, id: &str) -> Option<Caller> {
        self.0.callers.get(id)
    }

    /// The callers there are, in the order they came.
    pub fn callers(&self) -> Vec<Caller> {
        self.0.callers.list()
    }

    /// The tools there are now.
    pub fn catalogue(&self) -> Arc<Snapshot> {
        self.0.catalogue.load()
    }

    /// Tells when the catalogue has changed; the value is how often it has.
    pub fn catalogue_changes(&self) -> watch::Receiver<u64> {
        self.0.n_catalogues.subscribe()
    }

    /// Whether an answer to a client may be stored and not handed over, so that there may be something to read back.
    pub fn may_store_outputs(&self) -> bool {
        let layout = self.0.layout();
        let Layout { settings, toolboxes, .. } = &*layout;
        let has_limit = settings.tool_response_max_bytes.is_some()
            || settings.tool_output.session_token_budget.is_some()
            || toolboxes.has_caps();
        self.0.outputs.is_on() && settings.tool_output.enabled && has_limit
    }

    /// What servers say that belongs to no call.
    pub fn updates(&self) -> broadcast::Receiver<ServerUpdate> {
        self.0.updates.subscribe()
    }

    /// Everything that happens.
    pub fn events(&self) -> &Events {
        &self.0.events
    }

    /// Calls one call off; `false` if it is not under way.
    pub fn cancel(&self, call: CallId) -> bool {
        self.0.calls.cancel(call)
    }

    /// Calls every call off; gives their number.
    pub fn cancel_all(&self) -> usize {
        self.0.calls.cancel_where(|_| true)
    }

    /// Calls that go on while nobody waits for them.
    pub fn parking(&self) -> &Parking {
        &self.0.parking
    }

    /// Waits, for some seconds at most, until the calls that have ended so far are written down.
    pub async fn write_history(&self) {
        if let Some(history) = &self.0.history {
            history.flush().await;
        }
    }

    /// Changes the queues while they are in use.
    pub fn configure_queues(&self, queues: &IndexMap<String, QueueSettings>) {
        self.0.queues.configure(queues);
    }

    /// The settings of now.
    pub fn settings(&self) -> Arc<RuntimeSettings> {
        self.0.settings()
    }

    /// Ends everything: new calls are refused, those under way may take `grace` to end and are called off then, and
    /// every provider is ended. Gives the number of calls that were called off.
    pub async fn shut_down(&self, grace: Duration) -> usize {
        let shared = &self.0;
        let n_canceled = shared.calls.close(grace).await;
        shared.parking.clear();
        let layout = shared.close();
        let servers = layout.toolboxes.0.values().flat_map(|toolbox| toolbox.servers.values());
        let ending = join_all(servers.map(|server| server.provider.shut_down()));
        let _ = time::timeout(PROVIDER_FAREWELL, ending).await;
        if let Some(traces) = &shared.traces {
            // What is left unwritten after its own limit is lost.
            let _ = traces.flush().await;
        }
        self.write_history().await;
        shared.tasks.close();
        // They all end when `closing` is cancelled.
        let _ = time::timeout(PROVIDER_FAREWELL, shared.tasks.wait()).await;
        n_canceled
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime").field("n_tools", &self.catalogue().tools().len()).finish_non_exhaustive()
    }
}

impl Shared {
    /// What is carried out now.
    pub(crate) fn layout(&self) -> Arc<Layout> {
        self.layout.load_full()
    }

    /// Whether nothing has taken the place of a layout yet.
    pub(crate) fn is_current(&self, layout: &Arc<Layout>) -> bool {
        Arc::ptr_eq(layout, &self.layout.load())
    }

    /// The settings of now.
    pub(crate) fn settings(&self) -> Arc<RuntimeSettings> {
        Arc::clone(&self.layout.load().settings)
    }

    /// Ends what goes on in the background. Nothing takes the place of the layout from now on.
    fn close(&self) -> Arc<Layout> {
        let _shelves = self.shelves.lock().unwrap_or_else(PoisonError::into_inner);
        self.closing.cancel();
        self.layout()
    }

    /// The tool that a call means for this caller.
    pub(crate) fn resolve(&self, caller: &Caller, call: &Call) -> Result<Found, CallError> {
        loop {
            // First, so that the queues of the tool are among these or among those that come after.
            let queues = self.queues.load();
            let (tool, corrected_from) = match &call.tool {
                ToolRef::Id(id) => {
                    caller.permit(&id.toolbox, call.context.origin)?;
                    (Arc::clone(self.catalogue.load().lookup(id)?), None)
                }
                ToolRef::Name(name) => self.resolve_name(caller, name, Some(&call.arguments))?,
            };
            // Where a server has ended, something else has taken its place already.
            if let Some(in_use) = tool.usage.begin() {
                return Ok(Found { tool, corrected_from, in_use, queues });
            }
        }
    }

    fn resolve_name(
        &self,
        caller: &Caller,
        name: &str,
        arguments: Option<&Arguments>,
    ) -> Result<(Arc<Tool>, Option<String>), CallError> {
        if let Some(tool) = self.builtins.get(name) {
            return Ok((Arc::clone(tool), None));
        }
        let snapshot = self.catalogue.load();
        let accepts =
            |tool: &Tool| arguments.is_some_and(|given| tool.entry.input_schema().check(given.value()).valid);
        caller.with_scope(|scope| {
            let found = snapshot.resolve(name, scope, &accepts)?;
            Ok((Arc::clone(found.tool), found.corrected_from))
        })
    }

    /// The tool of exactly this name.
    pub(crate) fn find(&self, caller: &Caller, name: &str) -> Option<Arc<Tool>> {
        // Without arguments nothing can be guessed from them.
        let (tool, corrected_from) = self.resolve_name(caller, name, None).ok()?;
        corrected_from.is_none().then_some(tool)
    }

    /// The tool that a call means, after its server was asked what it has; `None` if that would change nothing.
    pub(crate) async fn resolve_after_opening(
        &self,
        caller: &Caller,
        call: &Call,
    ) -> Option<Result<Found, CallError>> {
        loop {
            let layout = self.layout();
            let found = self.resolve_by_opening(&layout, caller, call).await;
            if matches!(found, Some(Ok(_))) {
                return found;
            }
            // Somebody else may have made its server ready a moment ago.
            self.refresh();
            if let Ok(found) = self.resolve(caller, call) {
                return Some(Ok(found));
            }
            // What was asked may have been replaced in the meantime.
            if self.is_current(&layout) {
                return found;
            }
        }
    }

    async fn resolve_by_opening(
        &self,
        Layout { toolboxes, .. }: &Layout,
        caller: &Caller,
        call: &Call,
    ) -> Option<Result<Found, CallError>> {
        let is_changed = match &call.tool {
            ToolRef::Id(id) => {
                caller.permit(&id.toolbox, call.context.origin).ok()?;
                match toolboxes.open_server_of(id).await {
                    Ok(is_changed) => is_changed,
                    Err(error) => return Some(Err(error)),
                }
            }
            ToolRef::Name(name) => {
                if let Some(found) = self.find_by_opening(toolboxes, caller, call, name).await {
                    return Some(Ok(found));
                }
                // Why its server cannot be used says more than that nobody knows the tool.
                let server = toolboxes.down(name, |toolbox| caller.has_open(toolbox))?;
                return server.open().await.err().map(Err);
            }
        };
        if !is_changed {
            return None;
        }
        self.refresh();
        Some(self.resolve(caller, call))
    }

    /// The tool that a name means, as soon as one server turns out to have it, so that nobody waits for one that hangs.
    ///
    /// Servers that the name speaks of are asked first: a call of one server's tool does not start all others.
    async fn find_by_opening(
        &self,
        toolboxes: &Toolboxes,
        caller: &Caller,
        call: &Call,
        name: &str,
    ) -> Option<Found> {
        let (likely, mut others) = toolboxes.unknown(name, |toolbox| caller.has_open(toolbox));
        let mut opening: FuturesUnordered<_> = likely.into_iter().map(Server::open).collect();
        let mut patience = pin!(time::sleep(LIKELY_FIRST));
        loop {
            tokio::select! {
                biased;
                Some(_opened) = opening.next() => {
                    self.refresh();
                    if let Ok(found) = self.resolve(caller, call) {
                        return Some(found);
                    }
                }
                () = &mut patience, if !opening.is_empty() && !others.is_empty() => {
                    opening.extend(others.drain(..).map(Server::open));
                }
                else => {
                    if others.is_empty() {
                        return None;
                    }
                    opening.extend(others.drain(..).map(Server::open));
                }
            }
        }
    }

    /// Makes the catalogue anew if a server offers something else than when it was last made.
    pub(crate) fn refresh(&self) {
        let mut built = self.shelves.lock().unwrap_or_else(PoisonError::into_inner);
        let layout = self.layout();
        let shelves = layout.toolboxes.shelves();
        let is_same = built.len() == shelves.len()
            && built.iter().zip(&shelves).all(|(before, now)| Arc::ptr_eq(&before.offer, &now.offer));
        if is_same {
            return;
        }
        self.publish(&layout, shelves, &mut built);
        drop(built);
        self.tell_of_catalogue();
    }

    /// Makes the catalogue anew from what the servers of a layout offer.
    fn publish(&self, layout: &Layout, shelves: Vec<Shelf>, built: &mut Vec<Shelf>) {
        let snapshot = self.catalogue.load().rebuild(&shelves, layout.settings.tool_name_max_length);
        self.catalogue.publish(snapshot);
        *built = shelves;
    }

    /// Tells everybody that the catalogue was made anew.
    fn tell_of_catalogue(&self) {
        // Their tools may say other things of themselves than before.
        let snapshot = self.catalogue.load();
        self.layout.load().chains.values().for_each(|chains| chains.follow(&snapshot));
        self.n_catalogues.send_modify(|n_catalogues| *n_catalogues += 1);
        self.events.emit(|| Event::Catalogue { n_tools: snapshot.tools().len() });
    }

    /// How many servers are started at once when many are.
    pub(crate) fn n_starts_at_once(&self) -> usize {
        self.settings().mcp_init_concurrency.unwrap_or(usize::MAX).max(1)
    }

    /// A value as it may be written down.
    pub(crate) fn redacted(&self, value: &Value) -> String {
        // Value by value: in the text of the whole a secret may be spelled with escapes.
        self.redactor.load().value(&redact::redacted(value)).to_string()
    }

    /// A state as it may be told.
    pub(crate) fn without_secrets(&self, state: &ServerState) -> ServerState {
        let clean = |text: &str| self.redactor.load().text(text).into_owned();
        match state {
            ServerState::Failed { why, fix } => ServerState::Failed { why: clean(why), fix: clean(fix) },
            ServerState::NeedsLogin { fix } => ServerState::NeedsLogin { fix: clean(fix) },
            ServerState::Idle
            | ServerState::Starting
            | ServerState::Ready
            | ServerState::Restarting { .. }
            | ServerState::Stopped => state.clone(),
        }
    }

    pub(crate) fn next_key(&self) -> u64 {
        self.n_callers.fetch_add(1, Ordering::Relaxed)
    }

    /// The identity of a caller that is not remembered: the same for the same owner, in every process. It opens no
    /// door: what is kept under it is given to its owner alone.
    pub(crate) fn stateless_identity(owner: &str) -> (Uuid, u64) {
        let digest = Sha256::digest(format!("stateless {owner}"));
        let mut id = [0; 16];
        id.copy_from_slice(&digest[..16]);
        let mut key = [0; 8];
        key.copy_from_slice(&digest[16..24]);
        // The highest bit keeps it apart from keys that are counted.
        (Uuid::from_bytes(id), u64::from_le_bytes(key) | 1 << 63)
    }
}
