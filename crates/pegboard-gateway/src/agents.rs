//! Servers as agents, and their tools as modes.

use std::sync::Arc;

use indexmap::IndexMap;
use pegboard_core::id::{ServerName, ToolboxName};
use pegboard_runtime::catalogue::{CatalogueTool, NameCorrections, Snapshot};
use pegboard_runtime::names::{agent_names, sanitize};

use crate::meta::{self, MetaTool};
use crate::profile::ActiveProfile;

/// The servers of a profile by agent name, in configuration order.
pub(crate) struct AgentIndex(IndexMap<String, ServerAgent>);

/// A server that is exposed as an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerAgent {
    pub(crate) toolbox: ToolboxName,
    pub(crate) server: ServerName,
    /// Description of its toolbox.
    pub(crate) description: Arc<str>,
}

impl AgentIndex {
    /// Builds the index of a profile. Servers are included before their tools are known.
    pub(crate) fn build(profile: &ActiveProfile) -> Self {
        let mut agents = Vec::new();
        for toolbox in profile.toolboxes() {
            let description: Arc<str> = toolbox.description.trim().into();
            agents.extend(toolbox.servers.into_iter().map(|server| ServerAgent {
                toolbox: toolbox.name.clone(),
                server,
                description: Arc::clone(&description),
            }));
        }
        let taken = meta::META_TOOLS.map(MetaTool::name);
        let limit = profile.runtime.settings().tool_name_max_length;
        let names = agent_names(agents.iter().map(|agent| (&agent.toolbox, &agent.server)), &taken, limit);
        Self(names.into_iter().zip(agents).collect())
    }

    /// Iterates over all agents with their names, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &ServerAgent)> {
        self.0.iter().map(|(name, agent)| (name.as_str(), agent))
    }

    /// Returns the agent with this name.
    pub(crate) fn find(&self, name: &str) -> Option<&ServerAgent> {
        self.0.get(name)
    }

    /// Returns the agents that a name refers to: the agent of that name, or else the servers of that name, or
    /// else the servers of the toolbox of that name.
    pub(crate) fn resolve_all(&self, name: &str) -> Vec<&ServerAgent> {
        let all = |is_match: &dyn Fn(&ServerAgent) -> bool| -> Vec<&ServerAgent> {
            self.0.values().filter(|agent| is_match(agent)).collect()
        };
        if let Some(agent) = self.find(name) {
            return vec![agent];
        }
        let servers = all(&|agent| agent.server.as_str() == name);
        if servers.is_empty() { all(&|agent| agent.toolbox.as_str() == name) } else { servers }
    }

    /// Returns the agent with the longest name that is a prefix of `text` before a `_`, and the rest after
    /// it.
    pub(crate) fn find_by_prefix<'n>(&self, text: &'n str) -> Option<(&str, &ServerAgent, &'n str)> {
        let rest = |name: &str| Some(text.strip_prefix(name)?.strip_prefix('_')?.trim_start_matches('_'));
        let candidates = self.iter().filter_map(|(name, agent)| Some((name, agent, rest(name)?)));
        candidates.max_by_key(|(name, ..)| name.len())
    }
}

impl ServerAgent {
    /// Returns its known tools.
    pub(crate) fn tools<'s>(&self, snapshot: &'s Snapshot) -> &'s [Arc<CatalogueTool>] {
        snapshot.tools_of_server(&self.toolbox, &self.server)
    }
}

/// Returns the tool that a mode refers to: an exact match, or else the only tool with that flat name,
/// agent-mode name or sanitized name, or with corrections that spelling.
pub(crate) fn find_mode<'t>(
    tools: &'t [Arc<CatalogueTool>],
    mode: &str,
    corrections: NameCorrections,
) -> Option<&'t Arc<CatalogueTool>> {
    let exact = tools.iter().find(|tool| tool.id.name.as_str() == mode);
    exact.or_else(|| {
        let is_match = |tool: &&Arc<CatalogueTool>| {
            let name = tool.id.name.as_str();
            [&*tool.flat_name, &*tool.agent_mode_name].contains(&mode)
                || sanitize(name) == mode
                || corrections == NameCorrections::WithinServer && name.eq_ignore_ascii_case(mode)
        };
        let mut matching = tools.iter().filter(is_match);
        matching.next().filter(|_| matching.next().is_none())
    })
}
