//! One call under way: what the rings, the tool and its caller share.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use futures_util::future::{BoxFuture, FutureExt};
use pegboard_core::call::{Call, Checks, Ended, Invoker, Journey, Origin, Place, Running, ValidCall};
use pegboard_core::client::{Answers, AskError, Client, NoClient, Notice, Questions};
use pegboard_core::entry::ToolEntry;
use pegboard_core::error::{CallError, Executed};
use pegboard_core::trace::TraceParent;
use tokio::time::{self, Instant};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::caller::Caller;
use crate::carry;
use crate::catalogue::Tool;
use crate::clock::Clock;
use crate::event::{Event, Subject};
use crate::optree::{OpTree, Operation};
use crate::runtime::Shared;

/// How deep calls may be made by calls.
const MAX_DEPTH: usize = 16;
/// How many warnings one call may have.
const MAX_WARNINGS: usize = 100;

/// A call that was admitted, on its way through the rings.
pub(crate) struct Flight {
    pub(crate) track: Arc<Track>,
    pub(crate) tool: Arc<Tool>,
    pub(crate) call: ValidCall,
    pub(crate) checks: Checks,
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
    /// The client, deadline and trace that calls of this call inherit.
    origin: Origin,
    client: Option<Arc<dyn Client>>,
    deadline: Option<Instant>,
    trace_parent: Option<TraceParent>,
    /// The span of this call, if somebody keeps spans.
    own_span: OnceLock<TraceParent>,
    depth: usize,
    operation: Mutex<Option<Operation>>,
    subject: OnceLock<Arc<Subject>>,
    has_begun: AtomicBool,
    journey: Mutex<Journey>,
    warnings: Mutex<Vec<String>>,
}

impl Track {
    pub(crate) fn new(caller: Caller, call: &Call, depth: usize, operation: Operation) -> Self {
        Self {
            caller,
            clock: Clock::default(),
            canceled: CancellationToken::new(),
            origin: call.context.origin,
            client: call.context.client.clone(),
            deadline: call.context.deadline,
            trace_parent: call.context.trace_parent,
            own_span: OnceLock::new(),
            depth,
            operation: Mutex::new(Some(operation)),
            subject: OnceLock::new(),
            has_begun: AtomicBool::new(false),
            journey: Mutex::new(Journey::default()),
            warnings: Mutex::default(),
        }
    }

    /// Notes that the tool runs from here on.
    pub(crate) fn begin(&self) {
        self.has_begun.store(true, Ordering::Relaxed);
    }

    /// Whether the tool may have done something.
    pub(crate) fn executed(&self) -> Executed {
        if self.has_begun.load(Ordering::Relaxed) { Executed::Yes } else { Executed::No }
    }

    pub(crate) fn journey(&self) -> MutexGuard<'_, Journey> {
        self.journey.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn warn(&self, more: impl IntoIterator<Item = String>) {
        let mut more = more.into_iter().peekable();
        if more.peek().is_some() {
            let mut warnings = self.warnings.lock().unwrap_or_else(PoisonError::into_inner);
            let n_left = MAX_WARNINGS.saturating_sub(warnings.len());
            warnings.extend(more.take(n_left));
        }
    }

    pub(crate) fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut *self.warnings.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What events say of the call; made when the first of them is wanted.
    pub(crate) fn subject(&self) -> Arc<Subject> {
        Arc::clone(self.subject.get_or_init(|| {
            // Somebody began to listen in the middle of the call.
            Arc::new(Subject { session: self.caller.id().into(), ..Subject::default() })
        }))
    }

    pub(crate) fn describe(&self, subject: impl FnOnce() -> Subject) {
        self.subject.get_or_init(|| Arc::new(subject()));
    }

    /// What events say of the call, if it was announced.
    pub(crate) fn announced(&self) -> Option<Arc<Subject>> {
        self.subject.get().cloned()
    }

    /// The call has a span of its own from now on.
    pub(crate) fn set_span(&self, span: TraceParent) {
        self.own_span.get_or_init(|| span);
    }

    /// The span that servers and calls of this call are told of.
    pub(crate) fn trace_parent(&self) -> Option<TraceParent> {
        self.own_span.get().copied().or(self.trace_parent)
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    pub(crate) fn has_client(&self) -> bool {
        self.client.is_some()
    }

    pub(crate) fn with_operation<T>(&self, look: impl FnOnce(&Operation) -> T) -> Option<T> {
        self.operation.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(look)
    }

    pub(crate) fn take_operation(&self) -> Option<Operation> {
        self.operation.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The part of the op tree that calls made by this call belong to.
    fn tree(&self) -> Result<OpTree, CallError> {
        let too_deep = |reason: String| CallError::LimitExceeded { reason };
        if self.depth >= MAX_DEPTH {
            return Err(too_deep(format!("calls may call calls at most {MAX_DEPTH} deep")));
        }
        match self.with_operation(|operation| operation.child("")) {
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
}

impl Client for Track {
    fn notify(&self, notice: Notice) {
        if let Notice::Progress(progress) = &notice {
            self.clock.progress();
            self.caller.shared().events.emit(|| Event::Progress {
                call: self.subject(),
                done: progress.done,
                total: progress.total,
                message: progress.message.clone(),
            });
        }
        self.client().notify(notice);
    }

    fn ask(&self, questions: Questions) -> BoxFuture<'_, Result<Answers, AskError>> {
        async move {
            let limit = self.caller.shared().settings.question_timeout.into();
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
    fn start(&self, mut call: Call) -> Running {
        let tree = match self.tree() {
            Ok(tree) => tree,
            Err(error) => return Running::new(std::future::ready(Ended::refused(error))),
        };
        let context = &mut call.context;
        context.deadline = [context.deadline, self.deadline].into_iter().flatten().min();
        context.client = context.client.take().or_else(|| self.client.clone());
        context.trace_parent = context.trace_parent.or_else(|| self.trace_parent());
        // What an agent's batch hands on is read by the agent's model.
        if self.origin == Origin::Agent {
            context.origin = Origin::Agent;
        }
        let running = carry::start(self.caller.clone(), tree, self.depth + 1, call);
        let tasks = self.caller.shared().tasks.clone();
        // On a task of its own, so that calls in calls in calls do not pile up on one stack.
        Running::new(async move {
            AbortOnDropHandle::new(tasks.spawn(running)).await.unwrap_or_else(|error| {
                let reason = format!("the call was given up: {error}");
                Ended::refused(CallError::Canceled { reason, executed: Executed::Yes })
            })
        })
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
