//! Requests to servers other than tool calls, executed like calls: recorded, with a timeout, cancelled by
//! dropping.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use pegboard_core::arguments::CallArguments;
use pegboard_core::call::{Call, CallContext, CallHandle, CallOrigin, CallResult, ToolRef, ValidCall};
use pegboard_core::entry::ToolEntry;
use pegboard_core::error::{CallError, NotFound};
use pegboard_core::handler::Handler;
use pegboard_core::id::{ServerName, ToolboxName};
use pegboard_core::output::Output;
use pegboard_core::provider::{Provider, ProviderMethod, ProviderRequest, ProviderUpdate};
use pegboard_core::settings::ValidatedBy;

use crate::caller::Caller;
use crate::catalogue::CatalogueTool;
use crate::runtime::ResolvedTool;

/// Identifies a server of a toolbox.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId {
    /// Toolbox of the server.
    pub toolbox: ToolboxName,
    /// Name of the server.
    pub server: ServerName,
}

/// A notification of a server that belongs to no call.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerUpdate {
    /// Server that sent it.
    pub from: ServerId,
    /// The notification.
    pub update: ProviderUpdate,
}

impl Caller {
    /// Sends a request to a server.
    pub fn request(
        &self,
        server: &ServerId,
        request: ProviderRequest,
        mut context: CallContext,
    ) -> CallHandle {
        let found = match self.method_tool(server, &request.method) {
            Ok(found) => found,
            Err(error) => return CallHandle::new(std::future::ready(CallResult::rejected(error))),
        };
        context.options.timeout = context.options.timeout.or(Some(self.request_limit(server)));
        let call = Call {
            context,
            ..Call::new(ToolRef::Name(found.tool.flat_name.to_string()), CallArguments::from(request.params))
        };
        self.prepare(call).tool(found).start()
    }

    /// Returns a tool outside the catalogue that forwards one method to the server.
    fn method_tool(&self, id: &ServerId, method: &ProviderMethod) -> Result<ResolvedTool, CallError> {
        self.check_access(&id.toolbox, CallOrigin::Client)?;
        let (server, drain_guard) = loop {
            let toolboxes = &self.shared().active_plan().toolboxes;
            let server = toolboxes.server(&id.toolbox, &id.server).ok_or_else(|| {
                CallError::NotFound(NotFound::Server {
                    toolbox: id.toolbox.to_string(),
                    server: id.server.to_string(),
                    available: toolboxes.servers_of(&id.toolbox),
                })
            })?;
            // A closed counter means that the server has been replaced; look it up again.
            if let Some(drain_guard) = server.drain_counter.acquire() {
                break (server.clone(), drain_guard);
            }
        };
        let handler =
            Arc::new(MethodHandler { provider: Arc::clone(&server.provider), method: method.clone() });
        let entry = ToolEntry::from_handler(method.as_str(), "", handler).unmanaged();
        let mut tool = CatalogueTool::standalone(&id.server, Arc::new(entry), server.provider.kind(), "");
        let method_tool = Arc::make_mut(&mut tool);
        method_tool.id.toolbox = id.toolbox.clone();
        method_tool.policy.judge = Some(ValidatedBy::Server);
        Ok(ResolvedTool { tool, corrected_from: None, drain_guard, queues: self.shared().queues.load() })
    }

    fn request_limit(&self, id: &ServerId) -> Duration {
        let active_plan = self.shared().active_plan();
        let of_server = active_plan.toolboxes.server(&id.toolbox, &id.server);
        let of_server = of_server.and_then(|server| server.settings.request_timeout_ms);
        of_server.unwrap_or(self.shared().settings().tool_timeout).into()
    }
}

/// Handler that forwards one method to a provider.
struct MethodHandler {
    provider: Arc<dyn Provider>,
    method: ProviderMethod,
}

impl Handler for MethodHandler {
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        async move {
            let request =
                ProviderRequest { method: self.method.clone(), params: call.raw_arguments().clone() };
            self.provider.request(&request, call.context()).await.map(Output::result)
        }
        .boxed()
    }
}
