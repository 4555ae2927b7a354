//! One call in flight: the state shared by the pipeline layers, the tool and the caller.

use std::sync::{Arc, OnceLock, Weak};

use pegboard_core::call::{Call, CallContext, CallOrigin};
use pegboard_core::client::Client;
use pegboard_core::memory::MemoryPool;
use pegboard_core::model::OutputReader;
use pegboard_core::task::{TaskMode, clamp_lifetime};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::cancellation::CallCancellation;
use super::clock::CallClock;
use super::execution::Execution;
use super::recorder::CallRecorder;
use super::registry::CallState;
use crate::caller::Caller;
use crate::optree::Operation;

/// State shared by everything that takes part in one call. To the tool it is both the client and the invoker
/// of nested calls.
pub(crate) struct ActiveCall {
    pub(crate) recorder: CallRecorder,
    pub(crate) execution: Execution,
    pub(crate) clock: CallClock,
    pub(crate) canceled: CallCancellation,
    pub(super) inherited: InheritedContext,
    pub(super) deadline: Option<Instant>,
    /// The call that made this one.
    parent: Option<Arc<ActiveCall>>,
    /// Memory for what the chains and batches of this call and of its nested calls collect; set in a call without parent.
    memory: OnceLock<MemoryPool>,
    this: Weak<ActiveCall>,
}

/// The part of a call's context that its nested calls inherit.
pub(super) struct InheritedContext {
    pub(super) client: Option<Arc<dyn Client>>,
    origin: CallOrigin,
    agents: Arc<[Arc<str>]>,
    reader: Option<Arc<OutputReader>>,
}

impl ActiveCall {
    pub(super) fn new(
        caller: Caller,
        call: &Call,
        parent: Option<Arc<Self>>,
        operation: Operation,
    ) -> Arc<Self> {
        // A nested call ends with its parent, even if its handle is still held.
        let canceled =
            parent.as_ref().map_or_else(CallCancellation::default, |parent| parent.canceled.nested());
        let context = &call.context;
        let clock = CallClock::default();
        if let Some(TaskMode::Requested(time)) = context.client.as_ref().map(|client| client.task_mode()) {
            clock.extend_until(Instant::now() + clamp_lifetime(Some(time)));
        }
        let parent_recorder = parent.as_ref().map(|parent| &parent.recorder);
        let recorder = CallRecorder::new(caller, operation, parent_recorder, context.trace_parent);
        Arc::new_cyclic(|this| Self {
            recorder,
            execution: Execution::default(),
            clock,
            canceled,
            inherited: InheritedContext::of(context),
            deadline: context.deadline,
            parent,
            memory: OnceLock::new(),
            this: Weak::clone(this),
        })
    }

    pub(crate) fn caller(&self) -> &Caller {
        &self.recorder.caller
    }

    /// Returns the current state of the call.
    pub(super) fn state(&self) -> CallState {
        match self.execution.running_since() {
            _ if self.clock.is_paused() => CallState::Waiting,
            Some(_) => CallState::Running,
            None => CallState::Queued,
        }
    }

    /// Returns the semaphore by which the nearest ancestor with a slot of this queue lends it to one nested
    /// call at a time. Waiting for another slot could deadlock.
    pub(crate) fn lendable_slot(&self, queue: &str) -> Option<Arc<Semaphore>> {
        self.ancestors().find_map(|ancestor| ancestor.execution.lendable_slot(queue).cloned())
    }

    /// Returns `true` if an ancestor holds a slot or leads a single flight: waiting for another call could
    /// deadlock.
    pub(crate) fn blocks_others(&self) -> bool {
        self.ancestors().any(|ancestor| ancestor.execution.blocks_others())
    }

    /// Returns `true` if this is a nested call.
    pub(super) fn has_parent(&self) -> bool {
        self.parent.is_some()
    }

    /// Returns the ancestors, nearest first.
    fn ancestors(&self) -> impl Iterator<Item = &Arc<Self>> {
        std::iter::successors(self.parent.as_ref(), |ancestor| ancestor.parent.as_ref())
    }

    /// Returns the memory for what chains and batches collect: one limit for a call of a client and all its nested calls.
    pub(super) fn collected_memory(&self) -> &MemoryPool {
        let root = self.ancestors().last().map_or(self, |root| root);
        root.memory.get_or_init(|| self.caller().shared().memory.part(MemoryPool::CALL_BYTES))
    }

    /// Returns this call as the client of its tool, if there is a client behind it.
    pub(super) fn as_client(&self) -> Option<Arc<dyn Client>> {
        self.inherited.client.as_ref().map(|_| self.this() as _)
    }

    /// Cancels the nested calls that are still in flight.
    pub(super) fn end_children(&self) {
        if self.recorder.has_children() {
            self.canceled.cancel();
        }
    }

    pub(super) fn this(&self) -> Arc<Self> {
        self.this.upgrade().expect("a call is borrowed from its `Arc`")
    }
}

impl InheritedContext {
    fn of(context: &CallContext) -> Self {
        Self {
            client: context.client.clone(),
            origin: context.origin,
            agents: Arc::clone(&context.agents),
            reader: context.reader.clone(),
        }
    }

    /// Completes the context of a nested call, except for its client.
    pub(super) fn pass_on(&self, context: &mut CallContext) {
        // The results of an agent's batch are read by the agent's model.
        if self.origin == CallOrigin::Agent {
            context.origin = CallOrigin::Agent;
        }
        if context.agents.len() < self.agents.len() {
            context.agents = Arc::clone(&self.agents);
        }
        context.reader = context.reader.take().or_else(|| self.reader.clone());
    }
}
