//! Resolves the tool selectors of an agent file.

use std::sync::Arc;

use futures_util::future::join_all;
use pegboard_core::call::{SelectedTool, ToolRef};
use pegboard_core::error::CallError;
use pegboard_core::id::{ServerName, ToolboxName};
use pegboard_core::provider::ToolKind;

use crate::caller::Caller;
use crate::catalogue::{CatalogueTool, ToolboxScope};
use crate::toolbox::ToolboxServer;

/// Prefix of a selector for a service described by an OpenAPI document.
const OPENAPI: &str = "openapi:";
/// Name of the server of REST tools.
const REST: &str = "rest";

impl Caller {
    /// Resolves a selector: all tools of a server, or the tool of that name, in toolboxes visible to the
    /// caller. Servers that have not listed their tools yet are opened first.
    pub(crate) async fn select(&self, word: &str) -> Result<Vec<SelectedTool>, CallError> {
        let shared = self.shared();
        if let Some(tool) = shared.builtins.get(word) {
            return Ok(vec![selected(tool)]);
        }
        let (server, kind) = match word.strip_prefix(OPENAPI) {
            Some(name) => (name, Some(ToolKind::Rest)),
            None => (word, None),
        };
        let active_plan = shared.active_plan();
        let is_meant = |(toolbox, server): &(ToolboxName, &ToolboxServer)| {
            self.can_see(toolbox) && kind.is_none_or(|kind| server.provider.kind() == kind)
        };
        let servers = |server: &str| -> Vec<(ToolboxName, &ToolboxServer)> {
            active_plan.toolboxes.servers_named(server).filter(is_meant).collect()
        };
        let (server, servers) = match (servers(server), kind) {
            // A service beside an MCP server of its name has the prefix of REST tools.
            (found, Some(ToolKind::Rest)) if found.is_empty() => {
                let server = format!("{REST}__{server}");
                let found = servers(&server);
                (server, found)
            }
            (found, _) => (server.to_owned(), found),
        };
        if !servers.is_empty() {
            let opened = join_all(servers.iter().map(|(_, server)| server.open())).await;
            // The servers of other toolboxes may suffice.
            if opened.iter().all(Result::is_err) {
                let opened = opened.into_iter().collect::<Result<(), _>>();
                opened.map_err(|error| shared.redacted_error(error))?;
            }
            shared.refresh();
            let snapshot = shared.catalogue.load();
            let name = ServerName::new(server).map_err(|_| CallError::unknown_tool(word))?;
            let tools = servers.iter().flat_map(|(toolbox, _)| snapshot.tools_of_server(toolbox, &name));
            return Ok(tools.map(selected).collect());
        }
        self.select_one(word).await
    }

    /// Returns the tool that a name means in toolboxes visible to the caller, if its server has listed it.
    pub(crate) fn find_selected(&self, name: &str) -> Option<ToolRef> {
        let sees = |toolbox: &ToolboxName| self.can_see(toolbox);
        let snapshot = self.shared().catalogue.load();
        snapshot.resolve(name, ToolboxScope::Only(&sees)).ok().map(|found| tool_ref(found.tool))
    }

    /// Resolves the name of a tool, or of a REST tool without its prefix.
    async fn select_one(&self, word: &str) -> Result<Vec<SelectedTool>, CallError> {
        let shared = self.shared();
        let names = [word.to_owned(), format!("{REST}__{word}")];
        let sees = |toolbox: &ToolboxName| self.can_see(toolbox);
        let scope = ToolboxScope::Only(&sees);
        let find = || {
            let snapshot = shared.catalogue.load();
            let found = snapshot
                .resolve(word, scope)
                .or_else(|error| snapshot.resolve(&names[1], scope).map_err(|_| error));
            found.map(|found| Arc::clone(found.tool))
        };
        if let Ok(tool) = find() {
            return Ok(vec![selected(&tool)]);
        }
        let active_plan = shared.active_plan();
        for name in &names {
            let server = shared.catalogue.load().server_of(name, scope.into());
            if let Some(server) = server {
                active_plan.toolboxes.open_server(&server).await?;
            }
        }
        shared.refresh();
        find().map(|tool| vec![selected(&tool)])
    }
}

fn tool_ref(tool: &CatalogueTool) -> ToolRef {
    if tool.is_standalone() { (&*tool.flat_name).into() } else { tool.id.clone().into() }
}

fn selected(tool: &Arc<CatalogueTool>) -> SelectedTool {
    SelectedTool { tool: tool_ref(tool), name: Arc::clone(&tool.flat_name), entry: Arc::clone(&tool.entry) }
}
