//! What servers do beside calls of their tools, on the same way: recorded, limited in time, called off by dropping.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use pegboard_core::arguments::Arguments;
use pegboard_core::call::{Call, CallContext, Ended, Origin, Running, ToolRef, ValidCall};
use pegboard_core::entry::ToolEntry;
use pegboard_core::error::{CallError, NotFound};
use pegboard_core::handler::Handler;
use pegboard_core::id::{ServerName, ToolboxName};
use pegboard_core::output::Output;
use pegboard_core::provider::{Method, Provider, Request, Update};
use pegboard_core::settings::Judge;

use crate::caller::Caller;
use crate::carry;
use crate::catalogue::Tool;
use crate::runtime::Found;

/// A server of a toolbox.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId {
    /// The toolbox.
    pub toolbox: ToolboxName,
    /// The server.
    pub server: ServerName,
}

/// Something that a server says and that belongs to no call.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerUpdate {
    /// Who says it.
    pub from: ServerId,
    /// What it says.
    pub update: Update,
}

impl Caller {
    /// Starts something at a server that is no call of a tool.
    pub fn request(&self, server: &ServerId, request: Request, mut context: CallContext) -> Running {
        let found = match self.desk(server, request.method) {
            Ok(found) => found,
            Err(error) => return Running::new(std::future::ready(Ended::refused(error))),
        };
        context.options.timeout = context.options.timeout.or(Some(self.request_limit(server)));
        let call = Call {
            context,
            ..Call::new(ToolRef::Name(found.tool.flat_name.to_string()), Arguments::from(request.params))
        };
        carry::start_at(self.clone(), self.tree().clone(), None, call, found)
    }

    /// The server's answers to one method, as a tool that is in no list.
    fn desk(&self, id: &ServerId, method: Method) -> Result<Found, CallError> {
        self.permit(&id.toolbox, Origin::Client)?;
        let (server, in_use) = loop {
            let toolboxes = &self.shared().layout().toolboxes;
            let server = toolboxes.server(&id.toolbox, &id.server).ok_or_else(|| {
                CallError::NotFound(NotFound::Server {
                    toolbox: id.toolbox.to_string(),
                    server: id.server.to_string(),
                    available: toolboxes.servers_of(&id.toolbox),
                })
            })?;
            // Where one has ended, something else has taken its place already.
            if let Some(in_use) = server.usage.begin() {
                break (server.clone(), in_use);
            }
        };
        let handler = Arc::new(Desk { provider: Arc::clone(&server.provider), method });
        let entry = ToolEntry::from_handler(method.as_str(), "", handler).unmanaged();
        let mut tool = Tool::lone(&id.server, Arc::new(entry), server.provider.kind(), "");
        let desk = Arc::make_mut(&mut tool);
        desk.id.toolbox = id.toolbox.clone();
        desk.rules.judge = Some(Judge::Server);
        Ok(Found { tool, corrected_from: None, in_use, queues: self.shared().queues.load() })
    }

    fn request_limit(&self, id: &ServerId) -> Duration {
        let layout = self.shared().layout();
        let of_server = layout.toolboxes.server(&id.toolbox, &id.server);
        let of_server = of_server.and_then(|server| server.settings.request_timeout_ms);
        of_server.unwrap_or(self.shared().settings().tool_timeout).into()
    }
}

/// What carries out one method of a provider.
struct Desk {
    provider: Arc<dyn Provider>,
    method: Method,
}

impl Handler for Desk {
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        async move {
            let request = Request { method: self.method, params: call.raw_arguments().clone() };
            self.provider.request(&request, call.context()).await.map(Output::result)
        }
        .boxed()
    }
}
