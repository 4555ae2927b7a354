//! Status queries about the runtime.

use pegboard_core::chain::ChainSpec;
use pegboard_core::error::{CallError, NotFound};
use pegboard_core::id::{ServerName, ToolboxName};
use pegboard_core::owner::{Owner, OwnerScope};
use pegboard_core::provider::ServerState;
use pegboard_core::server_log::ServerLog;
use tokio::time::Instant;

use super::{ActivePlan, Runtime, RuntimeShared};
use crate::call::registry::{CallId, CallStatus};
use crate::call::requests::ServerId;
use crate::event::RuntimeEvent;
use crate::optree::OpNode;
use crate::toolbox::{ConfiguredToolbox, ListingLimit, ListingProgress, ServerStatus, ToolboxServer};

impl Runtime {
    /// Announces a principal before its first caller. What belongs to no call, such as the log of a server, is
    /// shown to principals only while there is just one.
    pub fn add_principal(&self, owner: &Owner) {
        self.0.principals.observe(owner);
    }

    /// Returns `true` if what belongs to no call, such as the output of a server, is visible within a scope: to the
    /// operator always, to a principal while it is the only one.
    pub fn shows_unowned(&self, scope: &OwnerScope) -> bool {
        self.0.shows_unowned(scope)
    }

    /// Returns the status of every server, in configuration order, as visible within a scope.
    pub fn servers(&self, scope: &OwnerScope) -> Vec<ServerStatus> {
        self.0.active_plan().toolboxes.status(&self.0, scope)
    }

    /// Returns the progress of the listings of the accepted toolboxes.
    pub fn listing_progress(&self, is_included: impl Fn(&ToolboxName) -> bool) -> ListingProgress {
        self.0.active_plan().toolboxes.listing_progress(is_included)
    }

    /// Opens all accepted servers; returns when each is open or has failed.
    pub async fn open_servers(&self, is_included: impl Fn(&ToolboxName, &ServerName) -> bool) {
        self.0.active_plan().toolboxes.open_servers(self.0.max_concurrent_starts(), is_included).await;
        self.0.refresh();
    }

    /// Waits until the servers of the accepted toolboxes have listed their tools or failed: each for at most
    /// `limit`, and all until the deadline. Servers with last known tools are not waited for.
    pub async fn wait_until_listed(
        &self,
        limit: ListingLimit,
        deadline: Instant,
        is_included: impl Fn(&ToolboxName) -> bool,
    ) {
        self.0.active_plan().toolboxes.wait_until_listed(limit, deadline, is_included).await;
        self.0.refresh();
    }

    /// Opens a server, or waits until it is open, and returns its status, also if it has failed.
    pub async fn open_server(
        &self,
        scope: &OwnerScope,
        toolbox: &str,
        server: &str,
    ) -> Result<ServerStatus, CallError> {
        let opened = self.find_server(toolbox, server)?.open().await;
        self.status_after(scope, (toolbox, server), opened)
    }

    /// Restarts a server and returns its status once it is ready or has failed; `None` if it has nothing that could be
    /// restarted.
    pub async fn restart_server(
        &self,
        scope: &OwnerScope,
        toolbox: &str,
        server: &str,
    ) -> Result<Option<ServerStatus>, CallError> {
        let provider = self.find_server(toolbox, server)?.provider;
        let restarted = match provider.restart().await {
            Ok(false) => return Ok(None),
            Ok(true) => Ok(()),
            Err(error) => Err(error),
        };
        self.status_after(scope, (toolbox, server), restarted).map(Some)
    }

    /// Returns the status of a server, also if its start has failed.
    fn status_after(
        &self,
        scope: &OwnerScope,
        (toolbox, server): (&str, &str),
        opened: Result<(), CallError>,
    ) -> Result<ServerStatus, CallError> {
        self.0.refresh();
        let is_it =
            |status: &ServerStatus| status.toolbox.as_str() == toolbox && status.server.as_str() == server;
        match (self.servers(scope).into_iter().find(is_it), opened) {
            (Some(status), Err(_)) if status.state.is_failure() => Ok(status),
            (Some(status), Ok(())) => Ok(status),
            (_, Err(error)) => Err(self.0.redacted_error(error)),
            // It was replaced by a plan that does not contain it.
            (None, Ok(())) => Err(unknown_server(&self.0.active_plan(), toolbox, server)),
        }
    }

    /// Returns the log of a server.
    pub fn server_log(&self, toolbox: &str, server: &str) -> Result<ServerLog, CallError> {
        self.find_server(toolbox, server).map(|server| server.provider.log())
    }

    /// Returns the logs of all servers, in configuration order.
    pub fn server_logs(&self) -> Vec<(ServerId, ServerLog)> {
        let active_plan = self.0.active_plan();
        active_plan.toolboxes.servers().map(|(id, server)| (id, server.provider.log())).collect()
    }

    /// Redacts the known secrets in a text.
    pub fn redact(&self, text: &str) -> String {
        self.0.redactor.load().text(text).into_owned()
    }

    fn find_server(&self, toolbox: &str, server: &str) -> Result<ToolboxServer, CallError> {
        let active_plan = self.0.active_plan();
        let contents = ToolboxName::new(toolbox).ok().and_then(|name| active_plan.toolboxes.0.get(&name));
        let found = contents.and_then(|contents| contents.servers.get(server)).cloned();
        found.ok_or_else(|| unknown_server(&active_plan, toolbox, server))
    }

    /// Returns the configured toolboxes, in order.
    pub fn toolboxes(&self) -> Vec<ConfiguredToolbox> {
        self.0.active_plan().toolboxes.configured()
    }

    /// Returns the configured chains with their toolboxes, in order.
    pub fn chains(&self) -> Vec<(ToolboxName, ChainSpec)> {
        let active_plan = self.0.active_plan();
        let chains = active_plan.chains.iter();
        chains
            .flat_map(|(toolbox, chains)| chains.specs().into_iter().map(|spec| (toolbox.clone(), spec)))
            .collect()
    }

    /// Returns the calls in flight, oldest first.
    pub fn calls(&self) -> Vec<CallStatus> {
        self.0.calls.list()
    }

    /// Returns the operation of a call in flight.
    pub fn operation(&self, call: CallId) -> Option<OpNode> {
        self.0.calls.operation(call)
    }

    /// Returns the load of every queue.
    pub fn queues(&self) -> Vec<RuntimeEvent> {
        self.0.queues.depths()
    }
}

/// Returns the error for an unknown server or toolbox.
fn unknown_server(active_plan: &ActivePlan, toolbox: &str, server: &str) -> CallError {
    let toolboxes = &active_plan.toolboxes;
    let (toolbox, server) = (toolbox.to_owned(), server.to_owned());
    CallError::NotFound(match ToolboxName::new(&*toolbox).ok().filter(|name| toolboxes.contains(name)) {
        Some(name) => NotFound::Server { toolbox, server, available: toolboxes.servers_of(&name) },
        None => NotFound::Toolbox { toolbox, available: toolboxes.names(None) },
    })
}

impl RuntimeShared {
    /// Returns the state as shown within a scope: what the server wrote to stderr may be about another principal.
    pub(crate) fn visible_state(&self, state: &ServerState, scope: &OwnerScope) -> ServerState {
        let state = self.without_secrets(state);
        if self.shows_unowned(scope) { state.with_stderr() } else { state.without_stderr() }
    }

    /// Returns `true` if what belongs to no call is visible within a scope.
    pub(crate) fn shows_unowned(&self, scope: &OwnerScope) -> bool {
        *scope == OwnerScope::All || !self.principals.are_several()
    }
}
