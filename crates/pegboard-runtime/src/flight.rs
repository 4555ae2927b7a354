//! One call under way: what the rings, the tool and its caller share.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use pegboard_core::attachment::Attachments;
use pegboard_core::call::{
    Call, Checks, Ended, Invoker, Journey, Origin, OwnTool, Place, Running, Selected, ValidCall,
};
use pegboard_core::client::{Answers, AskError, Client, Lending, NoClient, Notice, Questions};
use pegboard_core::diary::Diary;
use pegboard_core::entry::ToolEntry;
use pegboard_core::error::{CallError, Executed};
use pegboard_core::model::OutputReader;
use pegboard_core::provider::ToolKind;
use pegboard_core::task::{TaskUse, lifetime};
use pegboard_core::text::clipped;
use pegboard_core::trace::TraceParent;
use pegboard_json::RawJson;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{self, Instant};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::caller::Caller;
use crate::calls::CallState;
use crate::carry;
use crate::catalogue::Tool;
use crate::clock::Clock;
use crate::event::{Event, Subject};
use crate::optree::{OpTree, Operation};
use crate::queues::QueueMap;
use crate::runtime::{Found, Shared};

/// How deep calls may be made by calls.
const MAX_DEPTH: usize = 16;
/// How many warnings one call may have.
const MAX_WARNINGS: usize = 100;
/// How long a caller may be asked things in the course of one call, in all.
const MAX_ASKED: Duration = Duration::from_hours(1);
/// How much of what a tool says about its progress is told.
const MAX_PROGRESS_BYTES: usize = 512;

/// A call that was admitted, on its way through the rings.
pub(crate) struct Flight {
    pub(crate) track: Arc<Track>,
    pub(crate) tool: Arc<Tool>,
    pub(crate) call: ValidCall,
    pub(crate) checks: Checks,
    /// The queues there were when the tool was found.
    pub(crate) queues: Arc<QueueMap>,
}

impl Flight {
    pub(crate) fn runtime(&self) -> &Shared {
        self.track.caller.shared()
    }

    pub(crate) fn subject(&self) -> Arc<Subject> {
        self.track.subject()
    }
}

/// What is shared by everybody who has to do with one call. To the tool it is both its client and what it can call
/// tools through.
pub(crate) struct Track {
    pub(crate) caller: Caller,
    pub(crate) clock: Clock,
    pub(crate) canceled: CancellationToken,
    this: Weak<Track>,
    /// The call that makes this call.
    parent: Option<Arc<Track>>,
    origin: Origin,
    client: Option<Arc<dyn Client>>,
    deadline: Option<Instant>,
    trace_parent: Option<TraceParent>,
    agents: Arc<[Arc<str>]>,
    reader: Option<Arc<OutputReader>>,
    /// The span of this call, if somebody keeps spans.
    own_span: OnceLock<TraceParent>,
    operation: Mutex<Option<Operation>>,
    subject: Mutex<Option<Arc<Subject>>>,
    /// When the tool began to run.
    begun: OnceLock<Instant>,
    runs: Notify,
    held: OnceLock<Held>,
    leads: AtomicBool,
    is_overdue: AtomicBool,
    has_children: AtomicBool,
    journey: Mutex<Journey>,
    warnings: Mutex<Vec<String>>,
}

/// A slot that a call holds, and may lend to the calls that it makes.
struct Held {
    queue: Arc<str>,
    lent: Arc<Semaphore>,
}

impl Track {
    pub(crate) fn new(
        caller: Caller,
        call: &Call,
        parent: Option<Arc<Self>>,
        operation: Operation,
    ) -> Arc<Self> {
        // A call by a call ends with it, even if somebody holds on to it.
        let canceled =
            parent.as_ref().map_or_else(CancellationToken::new, |parent| parent.canceled.child_token());
        let clock = Clock::default();
        if let Some(TaskUse::Wanted(time)) = call.context.client.as_ref().map(|client| client.task_use()) {
            clock.keep_until(Instant::now() + lifetime(Some(time)));
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
            subject: Mutex::default(),
            begun: OnceLock::new(),
            runs: Notify::new(),
            held: OnceLock::new(),
            leads: AtomicBool::new(false),
            is_overdue: AtomicBool::new(false),
            has_children: AtomicBool::new(false),
            journey: Mutex::new(Journey::default()),
            warnings: Mutex::default(),
        })
    }

    /// Notes that the tool runs from here on, for this call or for one that it has joined.
    pub(crate) fn begin(&self) {
        self.begun.get_or_init(Instant::now);
        self.runs.notify_waiters();
    }

    /// Waits until the tool runs. Ends with the call at the latest, whose end is waited for beside it.
    pub(crate) async fn runs(&self) {
        let runs = self.runs.notified();
        if self.begun.get().is_none() {
            runs.await;
        }
    }

    /// When the tool began to run, if it has.
    pub(crate) fn begun(&self) -> Option<Instant> {
        self.begun.get().copied()
    }

    /// Whether the tool may have done something.
    pub(crate) fn executed(&self) -> Executed {
        if self.begun.get().is_some() { Executed::Yes } else { Executed::No }
    }

    /// What the call does now.
    pub(crate) fn state(&self) -> CallState {
        match self.begun() {
            _ if self.clock.is_stopped() => CallState::Waiting,
            Some(_) => CallState::Running,
            None => CallState::Queued,
        }
    }

    /// Notes that the call holds a slot, of its own or lent by a call above it.
    pub(crate) fn hold(&self, queue: &Arc<str>) {
        self.held.get_or_init(|| Held { queue: Arc::clone(queue), lent: Arc::new(Semaphore::new(1)) });
    }

    /// What the nearest call above this one that holds a slot of the queue lends it by, to one call at a time. Waiting
    /// for another slot would be waiting for oneself.
    pub(crate) fn lender(&self, queue: &str) -> Option<Arc<Semaphore>> {
        let mut held = self.above().filter_map(|track| track.held.get());
        held.find(|held| *held.queue == *queue).map(|held| Arc::clone(&held.lent))
    }

    /// Notes that others wait for the end of this call.
    pub(crate) fn lead(&self) {
        self.leads.store(true, Ordering::Relaxed);
    }

    /// Whether a call above this one has something that others wait for: whoever waits for them might wait for itself.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.above().any(|track| track.held.get().is_some() || track.leads.load(Ordering::Relaxed))
    }

    /// Whether a call has made this one.
    pub(crate) fn has_parent(&self) -> bool {
        self.parent.is_some()
    }

    /// The calls that made this one, the nearest first.
    fn above(&self) -> impl Iterator<Item = &Arc<Self>> {
        std::iter::successors(self.parent.as_ref(), |track| track.parent.as_ref())
    }

    pub(crate) fn journey(&self) -> MutexGuard<'_, Journey> {
        self.journey.lock().unwrap_or_else(PoisonError::into_inner)
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
        self.warnings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What events say of the call.
    pub(crate) fn subject(&self) -> Arc<Subject> {
        self.announced().unwrap_or_else(|| {
            // Somebody began to listen in the middle of the call.
            let subject = self.with_operation(|operation| Subject {
                session: self.caller.id().into(),
                owner: self.caller.shared_owner(),
                operation: operation.path().to_string(),
                tool: operation.name().into(),
                ..Subject::default()
            });
            let subject = Arc::new(subject.unwrap_or_default());
            self.describe(Arc::clone(&subject));
            subject
        })
    }

    /// What events say of the call, if it was announced.
    pub(crate) fn announced(&self) -> Option<Arc<Subject>> {
        self.subject.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn describe(&self, subject: Arc<Subject>) {
        *self.subject.lock().unwrap_or_else(PoisonError::into_inner) = Some(subject);
    }

    /// The call has a span of its own from now on.
    pub(crate) fn set_span(&self, span: TraceParent) {
        self.own_span.get_or_init(|| span);
    }

    /// The span that servers and calls of this call are told of.
    pub(crate) fn trace_parent(&self) -> Option<TraceParent> {
        self.own_span.get().copied().or(self.trace_parent)
    }

    /// The time of the call is used up, so it will be given up.
    pub(crate) fn note_overdue(&self) {
        self.is_overdue.store(true, Ordering::Relaxed);
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// The client that the tool speaks to: this call itself, if there is anybody behind it.
    pub(crate) fn as_client(&self) -> Option<Arc<dyn Client>> {
        self.client.as_ref()?;
        self.this.upgrade().map(|this| this as Arc<dyn Client>)
    }

    pub(crate) fn with_operation<T>(&self, look: impl FnOnce(&mut Operation) -> T) -> Option<T> {
        self.operation.lock().unwrap_or_else(PoisonError::into_inner).as_mut().map(look)
    }

    pub(crate) fn take_operation(&self) -> Option<Operation> {
        self.operation.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Ends the calls that this call has made, if any are left.
    pub(crate) fn end_children(&self) {
        if self.has_children.load(Ordering::Relaxed) {
            self.canceled.cancel();
        }
    }

    fn has_ended(&self) -> bool {
        self.operation.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// The part of the op tree that calls made by this call belong to.
    pub(crate) fn tree(&self) -> Result<OpTree, CallError> {
        let too_deep = |reason: String| CallError::LimitExceeded { reason };
        if self.above().count() >= MAX_DEPTH {
            return Err(too_deep(format!("calls may call calls at most {MAX_DEPTH} deep")));
        }
        let child = |operation: &mut Operation| {
            // Before anybody can end this call: its end ends what it has begun.
            self.has_children.store(true, Ordering::Relaxed);
            operation.child("")
        };
        match self.with_operation(child) {
            Some(tree) => tree.map_err(|error| too_deep(error.to_string())),
            None => Err(CallError::Canceled {
                reason: "the call that makes this call has ended".to_owned(),
                executed: Executed::No,
            }),
        }
    }

    fn client(&self) -> &dyn Client {
        self.client.as_deref().unwrap_or(&NoClient)
    }

    /// Starts a call by this call: it belongs under this one, and ends with it.
    fn launch(&self, mut call: Call, start: impl FnOnce(OpTree, Call) -> Running) -> Running {
        let tree = match self.tree() {
            Ok(tree) => tree,
            Err(error) => return Running::new(std::future::ready(Ended::refused(error))),
        };
        let context = &mut call.context;
        // Through this call, so that its time stands still, too. Its deadline ends both.
        context.client = context.client.take().or_else(|| self.as_client());
        context.trace_parent = context.trace_parent.or_else(|| self.trace_parent());
        // What an agent's batch hands on is read by the agent's model.
        if self.origin == Origin::Agent {
            context.origin = Origin::Agent;
        }
        if context.agents.len() < self.agents.len() {
            context.agents = Arc::clone(&self.agents);
        }
        context.reader = context.reader.take().or_else(|| self.reader.clone());
        let running = start(tree, call);
        let tasks = self.caller.shared().tasks.clone();
        // On a task of its own, so that calls in calls in calls do not pile up on one stack.
        Running::new(async move {
            AbortOnDropHandle::new(tasks.spawn(running)).await.unwrap_or_else(|error| {
                let reason = format!("the call was given up: {error}");
                Ended::refused(CallError::Canceled { reason, executed: Executed::Yes })
            })
        })
    }
}

impl Client for Track {
    fn notify(&self, notice: Notice) {
        if self.has_ended() {
            return;
        }
        if let Notice::Progress(progress) = &notice {
            self.clock.progress();
            self.caller.shared().events.emit(|| Event::Progress {
                call: self.subject(),
                done: progress.done,
                total: progress.total,
                message: progress
                    .message
                    .as_deref()
                    .map(|said| clipped(said, MAX_PROGRESS_BYTES).into_owned()),
            });
        }
        if let Notice::Task(task) = &notice
            && self.task_use() == TaskUse::Taken
        {
            self.clock.keep_until(Instant::now() + lifetime(task.time_to_live));
        }
        self.client().notify(notice);
    }

    fn remarks(&self) -> Option<RawJson> {
        self.client().remarks()
    }

    fn task_use(&self) -> TaskUse {
        self.client().task_use()
    }

    fn is_asked_in_rounds(&self) -> bool {
        self.client().is_asked_in_rounds()
    }

    fn lends(&self) -> Lending {
        self.client().lends()
    }

    fn ask(&self, questions: Questions) -> BoxFuture<'_, Result<Answers, AskError>> {
        async move {
            if self.has_ended() {
                return Err(AskError::Gone);
            }
            // Time stands still for whoever asks, so asking must come to an end, too.
            let elapsed = self.clock.elapsed();
            let limit = match elapsed.kept_until {
                // Whoever looks after a task now and then may take long to answer.
                Some(end) => end.saturating_duration_since(Instant::now()),
                None => MAX_ASKED
                    .saturating_sub(elapsed.stopped)
                    .min(self.caller.shared().settings().question_timeout.into()),
            };
            if limit.is_zero() {
                return Err(AskError::TimedOut(MAX_ASKED));
            }
            let _stopped = self.clock.stop();
            time::timeout(limit, self.client().ask(questions)).await.unwrap_or(Err(AskError::TimedOut(limit)))
        }
        .boxed()
    }
}

impl Invoker for Track {
    fn find(&self, name: &str) -> Option<Arc<ToolEntry>> {
        self.caller.find(name)
    }

    /// A call by a call: it belongs under this one, and ends with it.
    fn start(&self, call: Call) -> Running {
        self.launch(call, |tree, call| carry::start(self.caller.clone(), tree, self.this.upgrade(), call))
    }

    fn start_own(&self, OwnTool { server, entry, fingerprint }: OwnTool, call: Call) -> Running {
        let tool = Tool::lone(&server, entry, ToolKind::Agent, &fingerprint);
        let queues = self.caller.shared().queues.load();
        let found = Found::lone(tool, queues);
        self.launch(call, |tree, call| {
            carry::start_at(self.caller.clone(), tree, self.this.upgrade(), call, found)
        })
    }

    fn select<'a>(&'a self, word: &'a str) -> BoxFuture<'a, Result<Vec<Selected>, CallError>> {
        self.caller.select(word).boxed()
    }

    fn diary(&self) -> &dyn Diary {
        self
    }

    fn is_overdue(&self) -> bool {
        self.is_overdue.load(Ordering::Relaxed)
    }

    fn attachments(&self) -> Option<&Attachments> {
        self.caller.attachments()
    }

    fn place(&self) -> Option<Place> {
        self.with_operation(|operation| {
            let about = operation.tree().about();
            Place {
                path: operation.path().to_string(),
                call_path: about.call_path.join(operation.name()).to_string(),
                session: self.caller.id().to_owned(),
                parent_transaction: about.id.to_string(),
                origin_transaction: about.origin.clone().unwrap_or_else(|| Arc::clone(&about.id)).to_string(),
            }
        })
    }
}
