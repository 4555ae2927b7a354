//! One client request: starts or resumes a call, drives it, and builds the reply.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pegboard_core::call::{Call, CallContext, CallHandle, CallOrigin, CallResult, Invoker};
use pegboard_core::client::ClientMeta;
use pegboard_core::provider::ProviderRequest;
use pegboard_core::task::{ServerTask, TaskMode};
use pegboard_core::trace::TraceParent;
use pegboard_json::RawJson;
use pegboard_runtime::Caller;
use pegboard_runtime::requests::ServerId;
use pegboard_wire::era::Era;
use pegboard_wire::server::{ClientCapability, ClientDescription, ClientSessionId, Peer, ServiceReply};
use pegboard_wire::{RpcError, code};

use crate::profile::ActiveProfile;
use crate::result;
use crate::tasks::{ResultRenderer, TaskCall, TaskOwner, TaskTable, new_server_task, supports_tasks};
use bridge::{CallStep, ClientBridge, InputBatch};
use suspended::SuspendedCalls;

pub(crate) mod bridge;
mod notice_queue;
pub(crate) mod session_peer;
pub(crate) mod suspended;

/// One client request with all that is needed to serve it.
pub(crate) struct ClientRequest {
    pub(crate) profile: Arc<ActiveProfile>,
    pub(crate) caller: Caller,
    pub(crate) era: Era,
    pub(crate) client: Arc<ClientDescription>,
    pub(crate) peer: Peer,
    /// The client's answers to input requests of this call.
    pub(crate) answers: Option<RawJson>,
    /// Request state from an earlier `input_required` reply.
    pub(crate) state: Option<Bytes>,
    pub(crate) trace_parent: Option<TraceParent>,
    /// `_meta` to forward to the server.
    pub(crate) meta: ClientMeta,
    pub(crate) suspended: Arc<SuspendedCalls>,
    pub(crate) tasks: Arc<TaskTable>,
    /// The session; `None` for a stateless client.
    pub(crate) session: Option<ClientSessionId>,
    /// Requested time to live if the call is to become a task.
    pub(crate) task: Option<Duration>,
    /// Display name of the tool in notifications, if the client called it through another tool.
    pub(crate) label: Option<Arc<str>>,
}

impl ClientRequest {
    /// Executes a call and renders its result. Dropping the future cancels the call, unless it has become a
    /// task.
    pub(crate) async fn call(
        self,
        call: Call,
        render: impl FnOnce(&CallResult) -> RawJson + Send + 'static,
    ) -> Result<ServiceReply, RpcError> {
        self.call_with_rpc_errors(call, |call_result| Ok(render(call_result))).await
    }

    /// Executes a call with a result that may be a JSON-RPC error.
    pub(crate) async fn call_with_rpc_errors(
        self,
        call: Call,
        render: impl FnOnce(&CallResult) -> Result<RawJson, RpcError> + Send + 'static,
    ) -> Result<ServiceReply, RpcError> {
        let start = |caller: &Caller, mut context: CallContext| {
            context.options = call.context.options;
            caller.start(Call { context, ..call })
        };
        let (bridge, mut running) = self.start_or_resume(start)?;
        if let Some(time_to_live) = self.task {
            let task_call = TaskCall { running, bridge, render: Box::new(render) };
            return match self.create_task(&new_server_task(time_to_live), task_call) {
                Ok(created) => Ok(ServiceReply::Result(created)),
                Err(_call) => Err(RpcError::new(
                    code::INTERNAL_ERROR,
                    "too many tasks; retry when one has expired, or call without `task`",
                )),
            };
        }
        let had_stored = self.caller.has_stored_output();
        let mut render: ResultRenderer = Box::new(render);
        loop {
            match bridge.drive(running, &self.peer).await {
                CallStep::Finished(call_result) => {
                    if let Some(error) = self.capability_error(&bridge, &call_result) {
                        return Err(error);
                    }
                    return self.finish(had_stored, render(&call_result)).await;
                }
                CallStep::InputRequired(running, batch) => return self.suspend(running, bridge, batch),
                CallStep::Task(unfinished, server_task) => {
                    let task_call = TaskCall { running: unfinished, bridge: Arc::clone(&bridge), render };
                    match self.create_task(&server_task, task_call) {
                        Ok(created) => return Ok(ServiceReply::Result(created)),
                        Err(task_call) => {
                            bridge.decline_task();
                            (running, render) = (task_call.running, task_call.render);
                        }
                    }
                }
            }
        }
    }

    /// Sends a request other than a tool call to a server.
    pub(crate) async fn request(
        self,
        server: &ServerId,
        request: ProviderRequest,
        render: impl FnOnce(&CallResult) -> Result<RawJson, RpcError>,
    ) -> Result<ServiceReply, RpcError> {
        let start = |caller: &Caller, context: CallContext| caller.request(server, request, context);
        let (bridge, mut running) = self.start_or_resume(start)?;
        let had_stored = self.caller.has_stored_output();
        loop {
            match bridge.drive(running, &self.peer).await {
                CallStep::Finished(call_result) => {
                    if let Some(error) = self.capability_error(&bridge, &call_result) {
                        return Err(error);
                    }
                    return self.finish(had_stored, render(&call_result)).await;
                }
                CallStep::InputRequired(running, batch) => return self.suspend(running, bridge, batch),
                // Only tool calls become tasks.
                CallStep::Task(unfinished, _) => {
                    bridge.decline_task();
                    running = unfinished;
                }
            }
        }
    }

    /// Returns the client's use of tasks.
    fn task_mode(&self) -> TaskMode {
        match (self.era, self.task) {
            (Era::Session, None) => TaskMode::Hidden,
            (Era::Session, Some(time_to_live)) => TaskMode::Requested(time_to_live),
            (Era::Stateless, _) if supports_tasks(&self.client) => TaskMode::Accepted,
            (Era::Stateless, _) => TaskMode::Declined,
        }
    }

    /// Returns the context of a call that never asks for input.
    pub(crate) fn context(&self) -> CallContext {
        let mut context = CallContext::default();
        context.origin = CallOrigin::Client;
        context.trace_parent = self.trace_parent;
        context
    }

    /// Starts a call, or resumes the suspended one that the client has returned to.
    fn start_or_resume(
        &self,
        start: impl FnOnce(&Caller, CallContext) -> CallHandle,
    ) -> Result<(Arc<ClientBridge>, CallHandle), RpcError> {
        if let Some(state) = &self.state {
            return self.suspended.resume(&self.caller, state, self.answers.as_ref());
        }
        let bridge = ClientBridge::new(self);
        let mut context = self.context();
        context.client = Some(Arc::clone(&bridge) as _);
        let running = start(&self.caller, context);
        Ok((bridge, running))
    }

    /// Returns the reply to a finished call.
    async fn finish(
        &self,
        had_stored: bool,
        result: Result<RawJson, RpcError>,
    ) -> Result<ServiceReply, RpcError> {
        let result = result?;
        // From now on there is a stored output, so `tool_output` is listed.
        if self.era == Era::Session && !had_stored && self.caller.has_stored_output() {
            // Boxed like all that few calls need, so that the future of every other call stays small.
            Box::pin(self.peer.notify("notifications/tools/list_changed", RawJson::empty_object())).await;
        }
        Ok(ServiceReply::Result(match self.era {
            Era::Session => result,
            // A server's own `resultType` could pass its questions off as the gateway's.
            Era::Stateless => result.remove(&["resultType"]),
        }))
    }

    /// Suspends a call until its client returns with answers.
    fn suspend(
        &self,
        running: CallHandle,
        bridge: Arc<ClientBridge>,
        batch: InputBatch,
    ) -> Result<ServiceReply, RpcError> {
        let questions = batch.as_json();
        let state = self
            .suspended
            .suspend(&self.caller, running, bridge, batch)
            .map_err(|error| RpcError::new(code::INTERNAL_ERROR, error.to_string()))?;
        Ok(ServiceReply::InputRequired { input_requests: questions, state: Some(state) })
    }

    /// Turns a call into a task; returns the call if there are too many tasks.
    fn create_task(&self, server_task: &ServerTask, task_call: TaskCall) -> Result<RawJson, Box<TaskCall>> {
        let owner = match &self.session {
            Some(session) => TaskOwner::Session(session.clone()),
            None => TaskOwner::Extension { owner: self.caller.owner().clone() },
        };
        self.tasks.insert(owner, server_task, task_call)
    }

    /// Returns the error for a call that ended because the client lacks a capability: a stateless client may declare
    /// it in its next request.
    fn capability_error(&self, bridge: &ClientBridge, call_result: &CallResult) -> Option<RpcError> {
        if self.era != Era::Stateless || call_result.result.is_ok() {
            return None;
        }
        let refused =
            result::upstream_error(call_result).filter(|error| error.code == code::MISSING_CAPABILITY);
        refused.or_else(|| bridge.missing_capability().map(ClientCapability::missing_error))
    }
}
