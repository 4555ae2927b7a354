//! What runs, and how it is: for people who look.

use pegboard_core::chain::ChainSpec;
use pegboard_core::error::{CallError, NotFound};
use pegboard_core::id::ToolboxName;

use super::Runtime;
use crate::calls::{CallId, CallStatus};
use crate::event::Event;
use crate::optree::OpNode;
use crate::toolbox::{ConfiguredToolbox, ServerStatus};

impl Runtime {
    /// How every server is, in the order of the configuration.
    pub fn servers(&self) -> Vec<ServerStatus> {
        self.0.layout().toolboxes.status(&self.0)
    }

    /// Makes one server ready, or waits for it, and says how it is then. One that cannot be used says why.
    pub async fn open_server(&self, toolbox: &str, server: &str) -> Result<ServerStatus, CallError> {
        let unknown_toolbox = || {
            let available = self.0.layout().toolboxes.names(None);
            CallError::NotFound(NotFound::Toolbox { toolbox: toolbox.to_owned(), available })
        };
        let name = ToolboxName::new(toolbox).map_err(|_| unknown_toolbox())?;
        let layout = self.0.layout();
        let contents = layout.toolboxes.0.get(&name).ok_or_else(unknown_toolbox)?;
        let unknown_server = || {
            CallError::NotFound(NotFound::Server {
                toolbox: toolbox.to_owned(),
                server: server.to_owned(),
                available: layout.toolboxes.servers_of(&name),
            })
        };
        let found = contents.servers.get(server).ok_or_else(unknown_server)?;
        let opened = found.open().await;
        self.0.refresh();
        let is_it = |status: &ServerStatus| status.toolbox == name && status.server.as_str() == server;
        match (self.servers().into_iter().find(is_it), opened) {
            (Some(status), Err(_)) if status.state.is_hopeless() => Ok(status),
            (Some(status), Ok(())) => Ok(status),
            (_, Err(error)) => Err(error),
            // Something else has taken its place, without it.
            (None, Ok(())) => Err(unknown_server()),
        }
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
