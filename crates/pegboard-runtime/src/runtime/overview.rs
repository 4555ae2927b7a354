//! What runs, and how it is: for people who look.

use pegboard_core::chain::ChainSpec;
use pegboard_core::error::{CallError, NotFound};
use pegboard_core::id::ToolboxName;
use pegboard_core::server_log::ServerLog;

use super::{Layout, Runtime};
use crate::calls::{CallId, CallStatus};
use crate::event::Event;
use crate::optree::OpNode;
use crate::toolbox::{ConfiguredToolbox, Server, ServerStatus};

impl Runtime {
    /// How every server is, in the order of the configuration.
    pub fn servers(&self) -> Vec<ServerStatus> {
        self.0.layout().toolboxes.status(&self.0)
    }

    /// Makes one server ready, or waits for it, and says how it is then. One that cannot be used says why.
    pub async fn open_server(&self, toolbox: &str, server: &str) -> Result<ServerStatus, CallError> {
        let opened = self.find_server(toolbox, server)?.open().await;
        self.0.refresh();
        let is_it =
            |status: &ServerStatus| status.toolbox.as_str() == toolbox && status.server.as_str() == server;
        match (self.servers().into_iter().find(is_it), opened) {
            (Some(status), Err(_)) if status.state.is_hopeless() => Ok(status),
            (Some(status), Ok(())) => Ok(status),
            (_, Err(error)) => Err(error),
            // Something else has taken its place, without it.
            (None, Ok(())) => Err(unknown_server(&self.0.layout(), toolbox, server)),
        }
    }

    /// What a server said beside its answers, as it may be told.
    pub fn server_log(&self, toolbox: &str, server: &str) -> Result<ServerLog, CallError> {
        self.find_server(toolbox, server).map(|server| server.provider.log())
    }

    /// A text of somebody else without the secrets that are known here.
    pub fn without_secrets(&self, text: &str) -> String {
        self.0.redactor.load().text(text).into_owned()
    }

    fn find_server(&self, toolbox: &str, server: &str) -> Result<Server, CallError> {
        let layout = self.0.layout();
        let contents = ToolboxName::new(toolbox).ok().and_then(|name| layout.toolboxes.0.get(&name));
        let found = contents.and_then(|contents| contents.servers.get(server)).cloned();
        found.ok_or_else(|| unknown_server(&layout, toolbox, server))
    }

    /// The toolboxes as they are configured, open or not, in order.
    pub fn toolboxes(&self) -> Vec<ConfiguredToolbox> {
        self.0.layout().toolboxes.configured()
    }

    /// The chains that are configured, each with its toolbox, in order.
    pub fn chains(&self) -> Vec<(ToolboxName, ChainSpec)> {
        let layout = self.0.layout();
        let chains = layout.chains.iter();
        chains
            .flat_map(|(toolbox, chains)| chains.specs().into_iter().map(|spec| (toolbox.clone(), spec)))
            .collect()
    }

    /// The calls that are under way, the oldest first.
    pub fn calls(&self) -> Vec<CallStatus> {
        self.0.calls.list()
    }

    /// What a call that is under way has done so far.
    pub fn operation(&self, call: CallId) -> Option<OpNode> {
        self.0.calls.operation(call)
    }

    /// How busy every queue is.
    pub fn queues(&self) -> Vec<Event> {
        self.0.queues.depths()
    }
}

/// There is no such server, or not even its toolbox.
fn unknown_server(layout: &Layout, toolbox: &str, server: &str) -> CallError {
    let toolboxes = &layout.toolboxes;
    let (toolbox, server) = (toolbox.to_owned(), server.to_owned());
    CallError::NotFound(match ToolboxName::new(&*toolbox).ok().filter(|name| toolboxes.contains(name)) {
        Some(name) => NotFound::Server { toolbox, server, available: toolboxes.servers_of(&name) },
        None => NotFound::Toolbox { toolbox, available: toolboxes.names(None) },
    })
}
