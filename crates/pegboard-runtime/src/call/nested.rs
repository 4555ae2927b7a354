//! Nested calls: a call is the invoker of the calls that its tool makes.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use pegboard_core::call::{
    Call, CallHandle, CallResult, Invoker, OperationRef, PrivateTool, SelectedTool, ToolRef,
};
use pegboard_core::entry::ToolEntry;
use pegboard_core::error::{CallError, Executed};
use pegboard_core::extensions::Extensions;
use pegboard_core::memory::MemoryPool;
use pegboard_core::owner::Owner;
use pegboard_core::provider::ToolKind;
use pegboard_core::recorder::AgentRecorder;
use tokio_util::task::AbortOnDropHandle;

use super::active::ActiveCall;
use super::{CallBuilder, ParentCall};
use crate::catalogue::CatalogueTool;
use crate::runtime::ResolvedTool;

impl Invoker for ActiveCall {
    fn find(&self, name: &str) -> Option<Arc<ToolEntry>> {
        self.caller().find(name)
    }

    fn locate<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Arc<ToolEntry>, CallError>> {
        Invoker::locate(self.caller(), name)
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
        let tool = ResolvedTool::standalone(tool, self.caller().shared().queues.load());
        self.start_child(self.prepare_child(call).map(|child| child.tool(tool)))
    }

    fn select<'a>(&'a self, word: &'a str) -> BoxFuture<'a, Result<Vec<SelectedTool>, CallError>> {
        self.caller().select(word).boxed()
    }

    fn find_selected(&self, name: &str) -> Option<ToolRef> {
        self.caller().find_selected(name)
    }

    fn recorder(&self) -> &dyn AgentRecorder {
        &self.recorder
    }

    fn run_apart(&self, work: Box<dyn FnOnce() + Send>) -> BoxFuture<'_, Result<(), CallError>> {
        self.caller().run_apart(work)
    }

    fn is_overdue(&self) -> bool {
        self.execution.is_overdue()
    }

    fn record_start_wait(&self, waited: Duration) {
        self.recorder.add_start_wait(waited);
    }

    fn extensions(&self) -> Option<&Extensions> {
        self.caller().attachments()
    }

    fn memory(&self) -> Option<MemoryPool> {
        Some(self.collected_memory().clone())
    }

    fn owner(&self) -> Option<&Owner> {
        Some(self.caller().owner())
    }

    fn operation(&self) -> Option<OperationRef> {
        self.recorder.operation_ref()
    }
}

impl ActiveCall {
    /// Prepares a nested call, which ends with this one.
    fn prepare_child(&self, mut call: Call) -> Result<CallBuilder, CallError> {
        let tree = self.recorder.child_tree()?;
        let context = &mut call.context;
        // Routed through this call, so that its clock is paused, too; its deadline ends both.
        context.client = context.client.take().or_else(|| self.as_client());
        context.trace_parent = context.trace_parent.or_else(|| self.recorder.trace_parent());
        self.inherited.pass_on(context);
        let parent = ParentCall { call: self.this(), tree };
        Ok(CallBuilder::new(self.caller().clone(), call).parent(parent))
    }

    /// Starts a nested call on its own task, so that deeply nested calls do not accumulate on one stack.
    fn start_child(&self, child: Result<CallBuilder, CallError>) -> CallHandle {
        let running = match child {
            Ok(child) => child.start(),
            Err(error) => return CallHandle::new(std::future::ready(CallResult::rejected(error))),
        };
        let tasks = self.caller().shared().tasks.clone();
        CallHandle::new(async move {
            AbortOnDropHandle::new(tasks.spawn(running)).await.unwrap_or_else(|error| {
                let reason = format!("the call was aborted: {error}");
                CallResult::rejected(CallError::Canceled { reason, executed: Executed::Yes })
            })
        })
    }
}
