//! The tools that an agent's file gives it, by the words that it has for them.

use std::sync::Arc;

use futures_util::future::join_all;
use pegboard_core::call::Selected;
use pegboard_core::error::CallError;
use pegboard_core::id::{ServerName, ToolboxName};
use pegboard_core::provider::ToolKind;

use crate::caller::Caller;
use crate::catalogue::{Scope, Tool};
use crate::toolbox::Server;

/// What stands before the name of a service that an OpenAPI document describes.
const OPENAPI: &str = "openapi:";
/// The server of tools that are requests to web services.
const REST: &str = "rest";

impl Caller {
    /// The tools that a word stands for: all of a server, or the one of that name, in toolboxes that exist for the
    /// caller. Servers that nobody has asked yet what they have are asked first.
    pub(crate) async fn select(&self, word: &str) -> Result<Vec<Selected>, CallError> {
        let shared = self.shared();
        if let Some(tool) = shared.builtins.get(word) {
            return Ok(vec![selected(tool)]);
        }
        let (server, kind) = match word.strip_prefix(OPENAPI) {
            Some(name) => (name, Some(ToolKind::Rest)),
            None => (word, None),
        };
        let layout = shared.layout();
        let is_meant = |(place, server): &(ToolboxName, &Server)| {
            self.sees(place) && kind.is_none_or(|kind| server.provider.kind() == kind)
        };
        let servers: Vec<(ToolboxName, &Server)> = layout.toolboxes.called(server).filter(is_meant).collect();
        if !servers.is_empty() {
            let opened = join_all(servers.iter().map(|(_, server)| server.open())).await;
            // Those of other toolboxes may be enough.
            if opened.iter().all(Result::is_err) {
                opened.into_iter().collect::<Result<(), _>>()?;
            }
            shared.refresh();
            let snapshot = shared.catalogue.load();
            let name = ServerName::new(server).map_err(|_| CallError::unknown_tool(word))?;
            let tools = servers.iter().flat_map(|(toolbox, _)| snapshot.tools_of_server(toolbox, &name));
            return Ok(tools.map(selected).collect());
        }
        self.select_one(word).await
    }

    /// The tool of this name, or the request to a web service that is called so.
    async fn select_one(&self, word: &str) -> Result<Vec<Selected>, CallError> {
        let shared = self.shared();
        let names = [word.to_owned(), format!("{REST}__{word}")];
        let find = || {
            let snapshot = shared.catalogue.load();
            let sees = |toolbox: &ToolboxName| self.sees(toolbox);
            let scope = Scope::Only(&sees);
            let found = names.iter().find_map(|name| {
                let found = snapshot.resolve(name, scope, &|_| false).ok()?;
                found.corrected_from.is_none().then(|| Arc::clone(found.tool))
            });
            found.ok_or_else(|| match snapshot.resolve(word, scope, &|_| false) {
                Err(error) => error,
                Ok(_) => CallError::unknown_tool(word),
            })
        };
        if let Ok(tool) = find() {
            return Ok(vec![selected(&tool)]);
        }
        let layout = shared.layout();
        let (likely, _) = layout.toolboxes.unknown(word, |toolbox| self.sees(toolbox));
        for server in likely {
            // One that cannot be used has no tools; that there is none of this name is what is told.
            let _ = server.open().await;
        }
        shared.refresh();
        find().map(|tool| vec![selected(&tool)])
    }
}

fn selected(tool: &Arc<Tool>) -> Selected {
    let tool_ref = if tool.is_lone() { (&*tool.flat_name).into() } else { tool.id.clone().into() };
    Selected { tool: tool_ref, name: Arc::clone(&tool.flat_name), entry: Arc::clone(&tool.entry) }
}
