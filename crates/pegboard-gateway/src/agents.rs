//! Every server under the name that it has as an agent, and its tools as modes.

use std::sync::Arc;

use indexmap::IndexMap;
use pegboard_core::id::{ServerName, ToolboxName};
use pegboard_runtime::catalogue::{Snapshot, Tool};
use pegboard_runtime::names::{agent_names, sanitised};

use crate::meta::{self, MetaTool};
use crate::profile::Board;

/// Every server of a board under the name that it has as an agent, in order.
pub(crate) struct Agents(IndexMap<String, Agent>);

/// A server in its toolbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Agent {
    pub(crate) toolbox: ToolboxName,
    pub(crate) server: ServerName,
    /// What its toolbox is for.
    pub(crate) description: Arc<str>,
}

impl Agents {
    /// The servers of a board. They are known from the start, whatever they turn out to have.
    pub(crate) fn of(board: &Board) -> Self {
        let mut agents = Vec::new();
        for toolbox in board.toolboxes() {
            let description: Arc<str> = toolbox.description.trim().into();
            agents.extend(toolbox.servers.into_iter().map(|server| Agent {
                toolbox: toolbox.name.clone(),
                server,
                description: Arc::clone(&description),
            }));
        }
        let taken = meta::ALL.map(MetaTool::name);
        let limit = board.runtime.settings().tool_name_max_length;
        let names = agent_names(agents.iter().map(|agent| (&agent.toolbox, &agent.server)), &taken, limit);
        Self(names.into_iter().zip(agents).collect())
    }

    /// All of them, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Agent)> {
        self.0.iter().map(|(name, agent)| (name.as_str(), agent))
    }

    /// The agent of this name.
    pub(crate) fn find(&self, name: &str) -> Option<&Agent> {
        self.0.get(name)
    }

    /// The agents that a name means: the one that has it, or else the servers of that name, or the servers of that
    /// toolbox.
    pub(crate) fn meant_by(&self, name: &str) -> Vec<&Agent> {
        let all = |is_meant: &dyn Fn(&Agent) -> bool| -> Vec<&Agent> {
            self.0.values().filter(|agent| is_meant(agent)).collect()
        };
        if let Some(agent) = self.find(name) {
            return vec![agent];
        }
        let servers = all(&|agent| agent.server.as_str() == name);
        if servers.is_empty() { all(&|agent| agent.toolbox.as_str() == name) } else { servers }
    }

    /// The agent whose name a text begins with, and what follows the `_` behind it. Of several it is the longest
    /// name, which is what stands before the first `_` where no name has one.
    pub(crate) fn by_prefix<'n>(&self, text: &'n str) -> Option<(&str, &Agent, &'n str)> {
        let rest = |name: &str| Some(text.strip_prefix(name)?.strip_prefix('_')?.trim_start_matches('_'));
        let begun = self.iter().filter_map(|(name, agent)| Some((name, agent, rest(name)?)));
        begun.max_by_key(|(name, ..)| name.len())
    }
}

impl Agent {
    /// Its tools, as far as they are known.
    pub(crate) fn tools<'s>(&self, snapshot: &'s Snapshot) -> &'s [Arc<Tool>] {
        snapshot.tools_of_server(&self.toolbox, &self.server)
    }
}

/// The tool that a mode means among those of an agent: the one of that name, or the only one that is spelled so in one
/// of its other names.
pub(crate) fn tool_of_mode<'t>(tools: &'t [Arc<Tool>], mode: &str) -> Option<&'t Arc<Tool>> {
    let exact = tools.iter().find(|tool| tool.id.name.as_str() == mode);
    exact.or_else(|| {
        let is_meant = |tool: &&Arc<Tool>| {
            let name = tool.id.name.as_str();
            [&*tool.flat_name, &*tool.agent_mode_name].contains(&mode)
                || name.eq_ignore_ascii_case(mode)
                || sanitised(name) == mode
        };
        let mut meant = tools.iter().filter(is_meant);
        meant.next().filter(|_| meant.next().is_none())
    })
}
