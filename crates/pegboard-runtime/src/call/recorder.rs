//! Collects what is recorded of a call in flight: its operation, its description in events, its metadata and
//! its warnings.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use pegboard_core::call::{CallMeta, OperationRef};
use pegboard_core::error::{CallError, Executed};
use pegboard_core::trace::TraceParent;

use crate::caller::Caller;
use crate::event::CallInfo;
use crate::optree::{OpTree, Operation};

/// Maximum nesting depth of calls.
const MAX_DEPTH: usize = 16;
/// Maximum number of warnings per call.
const MAX_WARNINGS: usize = 100;

/// Recorder of a call in flight. The operation is open until the call ends.
pub(crate) struct CallRecorder {
    pub(super) caller: Caller,
    /// Number of ancestors of the call.
    depth: usize,
    operation: Mutex<Option<Operation>>,
    has_children: AtomicBool,
    info: Mutex<Option<Arc<CallInfo>>>,
    /// Span of the caller, if it sent one.
    caller_span: Option<TraceParent>,
    /// Span of this call, if spans are exported.
    own_span: OnceLock<TraceParent>,
    meta: Mutex<CallMeta>,
    warnings: Mutex<Vec<String>>,
}

impl CallRecorder {
    pub(super) fn new(
        caller: Caller,
        operation: Operation,
        parent: Option<&Self>,
        caller_span: Option<TraceParent>,
    ) -> Self {
        Self {
            caller,
            depth: parent.map_or(0, |parent| parent.depth + 1),
            operation: Mutex::new(Some(operation)),
            has_children: AtomicBool::new(false),
            info: Mutex::default(),
            caller_span,
            own_span: OnceLock::new(),
            meta: Mutex::default(),
            warnings: Mutex::default(),
        }
    }

    pub(crate) fn meta(&self) -> MutexGuard<'_, CallMeta> {
        self.meta.lock()
    }

    /// Adds a time for which the call waited for its server to start.
    pub(crate) fn add_start_wait(&self, waited: Duration) {
        *self.meta().start_wait.get_or_insert_default() += waited;
    }

    /// Adds a time for which the call waited for input from its caller.
    pub(crate) fn add_question_wait(&self, waited: Duration) {
        *self.meta().question_wait.get_or_insert_default() += waited;
    }

    pub(crate) fn add_warnings(&self, more: impl IntoIterator<Item = String>) {
        let mut more = more.into_iter().peekable();
        if more.peek().is_some() {
            let mut warnings = self.warnings();
            let n_left = MAX_WARNINGS.saturating_sub(warnings.len());
            warnings.extend(more.take(n_left));
        }
    }

    pub(super) fn warnings(&self) -> MutexGuard<'_, Vec<String>> {
        self.warnings.lock()
    }

    /// Returns the description of the call in events.
    pub(crate) fn info(&self) -> Arc<CallInfo> {
        self.announced_info().unwrap_or_else(|| {
            // A listener subscribed after the call began.
            let info = self.with_operation(|operation| CallInfo {
                session: self.caller.shared_id(),
                owner: self.caller.owner().clone(),
                operation: operation.path(),
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
        self.own_span.get().copied().or(self.caller_span)
    }

    pub(crate) fn with_operation<T>(&self, look: impl FnOnce(&mut Operation) -> T) -> Option<T> {
        self.operation.lock().as_mut().map(look)
    }

    pub(crate) fn take_operation(&self) -> Option<Operation> {
        self.operation.lock().take()
    }

    /// Returns `true` if nested calls were started.
    pub(super) fn has_children(&self) -> bool {
        self.has_children.load(Ordering::Relaxed)
    }

    pub(super) fn has_ended(&self) -> bool {
        self.operation.lock().is_none()
    }

    /// Returns the subtree of the operation tree for nested calls.
    pub(crate) fn child_tree(&self) -> Result<OpTree, CallError> {
        let too_deep = |reason: String| CallError::LimitExceeded { reason };
        if self.depth >= MAX_DEPTH {
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

    /// Returns the position of the call in the operation tree.
    pub(super) fn operation_ref(&self) -> Option<OperationRef> {
        self.with_operation(|operation| {
            let info = operation.tree().info();
            OperationRef {
                path: operation.path().to_string(),
                call_path: info.details().call_path.join(operation.name()).to_string(),
                session: self.caller.id().to_owned(),
                parent_transaction: info.id.to_string(),
                origin_transaction: info.outermost().to_string(),
            }
        })
    }
}
