//! One call in flight: the state shared by the pipeline layers, the tool and the caller.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use parking_lot::{Mutex, MutexGuard};
use pegboard_core::call::{
    Call, CallHandle, CallMeta, CallOrigin, CallResult, Invoker, OperationRef, PrivateTool, SelectedTool,
};
use pegboard_core::client::{
    AskError, Client, InputRequests, InputResponses, NoClient, Notice, SamplingSupport,
};
use pegboard_core::entry::ToolEntry;
use pegboard_core::error::{CallError, Executed};
use pegboard_core::model::OutputReader;
use pegboard_core::provider::ToolKind;
use pegboard_core::recorder::AgentRecorder;
use pegboard_core::session_extensions::SessionExtensions;
use pegboard_core::task::{TaskMode, clamp_lifetime};
use pegboard_core::text::clipped;
use pegboard_core::trace::TraceParent;
use pegboard_json::RawJson;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{self, Instant};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::clock::CallClock;
use super::registry::CallState;
use super::{CallBuilder, ParentCall};
use crate::caller::Caller;
use crate::catalogue::CatalogueTool;
use crate::event::{CallInfo, RuntimeEvent};
use crate::optree::{OpTree, Operation};
use crate::runtime::ResolvedTool;

/// Maximum nesting depth of calls.
const MAX_DEPTH: usize = 16;
/// Maximum number of warnings per call.
const MAX_WARNINGS: usize = 100;
/// Maximum total time that one call may wait for input from its caller.
const MAX_INPUT_WAIT: Duration = Duration::from_hours(1);
/// Maximum length of a progress message.
const MAX_PROGRESS_BYTES: usize = 512;

/// State shared by everything that takes part in one call. To the tool it is both the client and the invoker
/// of nested calls.
pub(crate) struct ActiveCall {
    pub(crate) caller: Caller,
    pub(crate) clock: CallClock,
    pub(crate) canceled: CancellationToken,
    this: Weak<ActiveCall>,
    /// The call that made this one.
    parent: Option<Arc<ActiveCall>>,
    origin: CallOrigin,
    client: Option<Arc<dyn Client>>,
    deadline: Option<Instant>,
    trace_parent: Option<TraceParent>,
    agents: Arc<[Arc<str>]>,
    reader: Option<Arc<OutputReader>>,
    /// Span of this call, if spans are exported.
    own_span: OnceLock<TraceParent>,
    operation: Mutex<Option<Operation>>,
    info: Mutex<Option<Arc<CallInfo>>>,
    /// Time at which the tool started to run.
    running_since: OnceLock<Instant>,
    running: Notify,
    held_slot: OnceLock<HeldSlot>,
    is_leader: AtomicBool,
    is_overdue: AtomicBool,
    has_children: AtomicBool,
    meta: Mutex<CallMeta>,
    warnings: Mutex<Vec<String>>,
}

/// A queue slot held by a call, which it may lend to its nested calls.
struct HeldSlot {
    queue: Arc<str>,
    lendable: Arc<Semaphore>,
}

impl ActiveCall {
    pub(crate) fn new(
        caller: Caller,
        call: &Call,
        parent: Option<Arc<Self>>,
        operation: Operation,
    ) -> Arc<Self> {
        // A nested call ends with its parent, even if its handle is still held.
        let canceled =
            parent.as_ref().map_or_else(CancellationToken::new, |parent| parent.canceled.child_token());
        let clock = CallClock::default();
        if let Some(TaskMode::Requested(time)) = call.context.client.as_ref().map(|client| client.task_mode())
        {
            clock.extend_until(Instant::now() + clamp_lifetime(Some(time)));
        }
        Arc::new_cyclic(|this| Self {
            caller,
            clock,
            canceled,
            this: Weak::clone(this),
            parent,
            origin: call.context.origin,
            client: call.context.client.clone(),
            deadline: call.context.deadline,
            trace_parent: call.context.trace_parent,
            agents: Arc::clone(&call.context.agents),
            reader: call.context.reader.clone(),
            own_span: OnceLock::new(),
            operation: Mutex::new(Some(operation)),
            info: Mutex::default(),
            running_since: OnceLock::new(),
            running: Notify::new(),
            held_slot: OnceLock::new(),
            is_leader: AtomicBool::new(false),
            is_overdue: AtomicBool::new(false),
            has_children: AtomicBool::new(false),
            meta: Mutex::new(CallMeta::default()),
            warnings: Mutex::default(),
        })
    }

    /// Marks the tool as running, for this call or for one that it has joined.
    pub(crate) fn mark_running(&self) {
        self.running_since.get_or_init(Instant::now);
        self.running.notify_waiters();
    }

    /// Waits until the tool runs. The wait ends with the call at the latest: callers select on its end as
    /// well.
    pub(crate) async fn wait_until_running(&self) {
        let running = self.running.notified();
        if self.running_since.get().is_none() {
            running.await;
        }
    }

    /// Returns the time at which the tool started to run.
    pub(crate) fn running_since(&self) -> Option<Instant> {
        self.running_since.get().copied()
    }

    /// Returns whether the tool may have had effects.
    pub(crate) fn executed(&self) -> Executed {
        if self.running_since.get().is_some() { Executed::Yes } else { Executed::No }
    }

    /// Returns the current state of the call.
    pub(crate) fn state(&self) -> CallState {
        match self.running_since() {
            _ if self.clock.is_paused() => CallState::Waiting,
            Some(_) => CallState::Running,
            None => CallState::Queued,
        }
    }

    /// Records that the call holds a slot, its own or one lent by an ancestor.
    pub(crate) fn hold_slot(&self, queue: &Arc<str>) {
        self.held_slot
            .get_or_init(|| HeldSlot { queue: Arc::clone(queue), lendable: Arc::new(Semaphore::new(1)) });
    }

    /// Returns the semaphore by which the nearest ancestor with a slot of this queue lends it to one nested
    /// call at a time. Waiting for another slot could deadlock.
    pub(crate) fn lendable_slot(&self, queue: &str) -> Option<Arc<Semaphore>> {
        let mut held_slot = self.ancestors().filter_map(|active_call| active_call.held_slot.get());
        held_slot
            .find(|held_slot| *held_slot.queue == *queue)
            .map(|held_slot| Arc::clone(&held_slot.lendable))
    }

    /// Marks the call as a single-flight leader: followers wait for its end.
    pub(crate) fn mark_leader(&self) {
        self.is_leader.store(true, Ordering::Relaxed);
    }

    /// Returns `true` if an ancestor holds a slot or leads a single flight: waiting for another call could
    /// deadlock.
    pub(crate) fn blocks_others(&self) -> bool {
        self.ancestors().any(|active_call| {
            active_call.held_slot.get().is_some() || active_call.is_leader.load(Ordering::Relaxed)
        })
    }

    /// Returns `true` if this is a nested call.
    pub(crate) fn has_parent(&self) -> bool {
        self.parent.is_some()
    }

    /// Returns the ancestors, nearest first.
    fn ancestors(&self) -> impl Iterator<Item = &Arc<Self>> {
        std::iter::successors(self.parent.as_ref(), |active_call| active_call.parent.as_ref())
    }

    pub(crate) fn meta(&self) -> MutexGuard<'_, CallMeta> {
        self.meta.lock()
    }

    pub(crate) fn warn(&self, more: impl IntoIterator<Item = String>) {
        let mut more = more.into_iter().peekable();
        if more.peek().is_some() {
            let mut warnings = self.warnings();
            let n_left = MAX_WARNINGS.saturating_sub(warnings.len());
            warnings.extend(more.take(n_left));
        }
    }

    pub(crate) fn warnings(&self) -> MutexGuard<'_, Vec<String>> {
        self.warnings.lock()
    }

    /// Returns the description of the call in events.
    pub(crate) fn info(&self) -> Arc<CallInfo> {
        self.announced_info().unwrap_or_else(|| {
            // A listener subscribed after the call began.
            let info = self.with_operation(|operation| CallInfo {
                session: self.caller.id().into(),
                owner: self.caller.shared_owner(),
                operation: operation.path().to_string(),
                tool: operation.name().into(),
                ..CallInfo::default()
            });
            let info = Arc::new(info.unwrap_or_default());
            self.set_info(Arc::clone(&info));
            info
        })
    }

    /// Returns the description in events, if the start was announced.
    pub(crate) fn announced_info(&self) -> Option<Arc<CallInfo>> {
        self.info.lock().clone()
    }

    pub(crate) fn set_info(&self, info: Arc<CallInfo>) {
        *self.info.lock() = Some(info);
    }

    /// Sets the span of the call.
    pub(crate) fn set_span(&self, span: TraceParent) {
        self.own_span.get_or_init(|| span);
    }

    /// Returns the trace parent to pass to servers and nested calls.
    pub(crate) fn trace_parent(&self) -> Option<TraceParent> {
        self.own_span.get().copied().or(self.trace_parent)
    }

    /// Marks the call as overdue before it is abandoned.
    pub(crate) fn mark_overdue(&self) {
        self.is_overdue.store(true, Ordering::Relaxed);
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Returns this call as the client of its tool, if there is a client behind it.
    pub(crate) fn as_client(&self) -> Option<Arc<dyn Client>> {
        self.client.as_ref().map(|_| self.this() as _)
    }

    pub(crate) fn with_operation<T>(&self, look: impl FnOnce(&mut Operation) -> T) -> Option<T> {
        self.operation.lock().as_mut().map(look)
    }

    pub(crate) fn take_operation(&self) -> Option<Operation> {
        self.operation.lock().take()
    }

    /// Cancels the nested calls that are still in flight.
    pub(crate) fn end_children(&self) {
        if self.has_children.load(Ordering::Relaxed) {
            self.canceled.cancel();
        }
    }

    fn has_ended(&self) -> bool {
        self.operation.lock().is_none()
    }

    /// Returns the subtree of the operation tree for nested calls.
    pub(crate) fn child_tree(&self) -> Result<OpTree, CallError> {
        let too_deep = |reason: String| CallError::LimitExceeded { reason };
        if self.ancestors().count() >= MAX_DEPTH {
            return Err(too_deep(format!("calls are nested deeper than {MAX_DEPTH} levels")));
        }
        let child = |operation: &mut Operation| {
            // Set before the operation can end: ending a call cancels its nested calls.
            self.has_children.store(true, Ordering::Relaxed);
            operation.child("")
        };
        match self.with_operation(child) {
            Some(tree) => tree.map_err(|error| too_deep(error.to_string())),
            None => Err(CallError::Canceled {
                reason: "the parent call has ended".to_owned(),
                executed: Executed::No,
            }),
        }
    }

    fn client(&self) -> &dyn Client {
        self.client.as_deref().unwrap_or(&NoClient)
    }

    /// Prepares a nested call, which ends with this one.
    fn prepare_child(&self, mut call: Call) -> Result<CallBuilder, CallError> {
        let tree = self.child_tree()?;
        let context = &mut call.context;
        // Routed through this call, so that its clock is paused, too; its deadline ends both.
        context.client = context.client.take().or_else(|| self.as_client());
        context.trace_parent = context.trace_parent.or_else(|| self.trace_parent());
        // The results of an agent's batch are read by the agent's model.
        if self.origin == CallOrigin::Agent {
            context.origin = CallOrigin::Agent;
        }
        if context.agents.len() < self.agents.len() {
            context.agents = Arc::clone(&self.agents);
        }
        context.reader = context.reader.take().or_else(|| self.reader.clone());
        let parent = ParentCall { call: self.this(), tree };
        Ok(CallBuilder::new(self.caller.clone(), call).parent(parent))
    }

    /// Starts a nested call on its own task, so that deeply nested calls do not accumulate on one stack.
    fn start_child(&self, child: Result<CallBuilder, CallError>) -> CallHandle {
        let running = match child {
            Ok(child) => child.start(),
            Err(error) => return CallHandle::new(std::future::ready(CallResult::rejected(error))),
        };
        let tasks = self.caller.shared().tasks.clone();
        CallHandle::new(async move {
            AbortOnDropHandle::new(tasks.spawn(running)).await.unwrap_or_else(|error| {
                let reason = format!("the call was aborted: {error}");
                CallResult::rejected(CallError::Canceled { reason, executed: Executed::Yes })
            })
        })
    }

    fn this(&self) -> Arc<Self> {
        self.this.upgrade().expect("a call is borrowed from its `Arc`")
    }
}

impl Client for ActiveCall {
    fn notify(&self, notice: Notice) {
        if self.has_ended() {
            return;
        }
        if let Notice::Progress(progress) = &notice {
            self.clock.record_progress();
            self.caller.shared().events.emit(|| RuntimeEvent::Progress {
                call: self.info(),
                done: progress.done,
                total: progress.total,
                message: progress
                    .message
                    .as_deref()
                    .map(|message| clipped(message, MAX_PROGRESS_BYTES).into_owned()),
            });
        }
        if let Notice::Task(task) = &notice
            && self.task_mode() == TaskMode::Accepted
        {
            self.clock.extend_until(Instant::now() + clamp_lifetime(task.time_to_live));
        }
        self.client().notify(notice);
    }

    fn request_meta(&self) -> Option<RawJson> {
        self.client().request_meta()
    }

    fn task_mode(&self) -> TaskMode {
        self.client().task_mode()
    }

    fn needs_input_rounds(&self) -> bool {
        self.client().needs_input_rounds()
    }

    fn sampling_support(&self) -> SamplingSupport {
        self.client().sampling_support()
    }

    fn ask(&self, questions: InputRequests) -> BoxFuture<'_, Result<InputResponses, AskError>> {
        async move {
            if self.has_ended() {
                return Err(AskError::Gone);
            }
            // The clock is paused while waiting for input, so the wait needs a limit of its own.
            let elapsed = self.clock.reading();
            let limit = match elapsed.extended_until {
                // The caller of a task polls it and may take long to answer.
                Some(end) => end.saturating_duration_since(Instant::now()),
                None => MAX_INPUT_WAIT
                    .saturating_sub(elapsed.paused)
                    .min(self.caller.shared().settings().question_timeout.into()),
            };
            if limit.is_zero() {
                return Err(AskError::TimedOut(MAX_INPUT_WAIT));
            }
            let _pause = self.clock.pause();
            time::timeout(limit, self.client().ask(questions)).await.unwrap_or(Err(AskError::TimedOut(limit)))
        }
        .boxed()
    }
}

impl Invoker for ActiveCall {
    fn find(&self, name: &str) -> Option<Arc<ToolEntry>> {
        self.caller.find(name)
    }

    /// Starts a nested call, which ends with this one.
    fn start(&self, call: Call) -> CallHandle {
        self.start_child(self.prepare_child(call))
    }

    fn start_private(
        &self,
        PrivateTool { server, entry, fingerprint }: PrivateTool,
        call: Call,
    ) -> CallHandle {
        let tool = CatalogueTool::standalone(&server, entry, ToolKind::Agent, &fingerprint);
        let tool = ResolvedTool::standalone(tool, self.caller.shared().queues.load());
        self.start_child(self.prepare_child(call).map(|child| child.tool(tool)))
    }

    fn select<'a>(&'a self, word: &'a str) -> BoxFuture<'a, Result<Vec<SelectedTool>, CallError>> {
        self.caller.select(word).boxed()
    }

    fn recorder(&self) -> &dyn AgentRecorder {
        self
    }

    fn is_overdue(&self) -> bool {
        self.is_overdue.load(Ordering::Relaxed)
    }

    fn extensions(&self) -> Option<&SessionExtensions> {
        self.caller.attachments()
    }

    fn operation(&self) -> Option<OperationRef> {
        self.with_operation(|operation| {
            let info = operation.tree().info();
            OperationRef {
                path: operation.path().to_string(),
                call_path: info.call_path.join(operation.name()).to_string(),
                session: self.caller.id().to_owned(),
                parent_transaction: info.id.to_string(),
                origin_transaction: info.origin.clone().unwrap_or_else(|| Arc::clone(&info.id)).to_string(),
            }
        })
    }
}
