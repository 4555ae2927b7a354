//! Resolves the names of a `get_tools` query to tools.

use std::collections::HashMap;
use std::sync::Arc;

use pegboard_core::error::{CallError, NotFound};
use pegboard_core::id::{ServerName, ToolId, ToolName, ToolboxName};
use pegboard_core::provider::ServerState;
use pegboard_core::similar::nearest;
use pegboard_core::text::{clip, clipped};
use pegboard_runtime::catalogue::{CatalogueTool, NameCorrections, Snapshot};
use serde::Serialize;

use super::MAX_ECHO_BYTES;
use super::query::RequestedTool;
use crate::agents::{AgentIndex, ServerAgent, find_mode};
use crate::profile::ActiveProfile;

/// Maximum number of suggested names.
const MAX_SUGGESTIONS: usize = 3;
/// Maximum number of idle servers named.
const MAX_NOT_STARTED: usize = 50;

/// Finds known tools of a profile.
pub(super) struct ToolFinder<'b> {
    profile: &'b ActiveProfile,
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) agents: AgentIndex,
    states: HashMap<(ToolboxName, ServerName), ServerState>,
}

/// A name without a matching tool.
#[derive(Debug, Serialize)]
pub(super) struct MissingTool {
    name: String,
    /// Similar names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    nearest: Vec<String>,
    /// Reason why the tool may exist all the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

/// Kind of match between a name and a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NameMatch {
    /// A name of the tool.
    Exact,
    /// A similar name.
    Near,
}

impl<'b> ToolFinder<'b> {
    pub(super) fn new(profile: &'b ActiveProfile) -> Self {
        let states = profile.runtime.servers(&profile.scope()).into_iter();
        let states = states.map(|status| ((status.toolbox, status.server), status.state)).collect();
        Self { profile, snapshot: profile.runtime.catalogue(), agents: AgentIndex::build(profile), states }
    }

    /// Returns the tools that a name refers to; several for a server or toolbox.
    pub(super) fn find(&self, requested: &RequestedTool) -> Option<Vec<Arc<CatalogueTool>>> {
        let found = match requested {
            RequestedTool::Id(id) => {
                self.snapshot.by_id(id).filter(|tool| self.profile.has_toolbox(&tool.id.toolbox)).cloned()
            }
            RequestedTool::ServerTool { name, .. } => {
                let servers = self.candidate_servers(requested);
                let found = servers.iter().find_map(|agent| {
                    find_mode(agent.tools(&self.snapshot), name, NameCorrections::WithinServer)
                });
                found.cloned()
            }
            RequestedTool::Name(name) => {
                let found = self.resolve(name).ok();
                let all = match &found {
                    Some((_, NameMatch::Exact)) => Vec::new(),
                    Some((_, NameMatch::Near)) | None => self.tools_of(name),
                };
                if !all.is_empty() {
                    return Some(all);
                }
                found.map(|(tool, _)| tool)
            }
        };
        found.map(|tool| vec![tool])
    }

    /// Returns the servers that the requested tool may belong to.
    pub(super) fn candidate_servers(&self, requested: &RequestedTool) -> Vec<&ServerAgent> {
        match requested {
            RequestedTool::ServerTool { server, .. } => self.agents.resolve_all(server),
            RequestedTool::Id(id) => {
                let is_match = |agent: &&ServerAgent| {
                    agent.toolbox == id.toolbox && agent.server.as_str() == id.server.as_str()
                };
                self.agents.iter().map(|(_, agent)| agent).filter(is_match).collect()
            }
            RequestedTool::Name(name) => {
                let matching = self.agents.resolve_all(name);
                let find_by_prefix = || self.agents.find_by_prefix(name).map(|(_, agent, _)| agent);
                if matching.is_empty() { find_by_prefix().into_iter().collect() } else { matching }
            }
        }
    }

    /// Returns the names of servers with unknown tools because they have not been started, up to a limit.
    pub(super) fn not_started(&self) -> Vec<&str> {
        let is_idle = |agent: &ServerAgent| agent.tools(&self.snapshot).is_empty() && self.is_idle(agent);
        let idle = self.agents.iter().filter(|(_, agent)| is_idle(agent));
        idle.map(|(name, _)| name).take(MAX_NOT_STARTED).collect()
    }

    /// Returns the servers with unknown tools that have not been started.
    pub(super) fn unlisted_servers(&self) -> Vec<(ToolboxName, ServerName)> {
        let is_it = |(toolbox, server): &&(ToolboxName, ServerName)| {
            self.agents.iter().any(|(_, agent)| {
                agent.toolbox == *toolbox
                    && agent.server == *server
                    && agent.tools(&self.snapshot).is_empty()
                    && self.is_idle(agent)
            })
        };
        self.states.keys().filter(is_it).cloned().collect()
    }

    /// Returns the names of servers that are on their way, up to a limit.
    pub(super) fn starting(&self) -> Vec<&str> {
        let is_starting = |agent: &ServerAgent| {
            matches!(self.state(agent), Some(ServerState::Starting | ServerState::Restarting { .. }))
        };
        let starting = self.agents.iter().filter(|(_, agent)| is_starting(agent));
        starting.map(|(name, _)| name).take(MAX_NOT_STARTED).collect()
    }

    /// Returns the reason why no tool of a server is known; `None` if some are.
    pub(super) fn unavailable_reason(&self, agent: &ServerAgent) -> Option<String> {
        if !agent.tools(&self.snapshot).is_empty() {
            return None;
        }
        Some(match self.state(agent) {
            None | Some(ServerState::Idle | ServerState::Stopped) => format!(
                "not started yet: open_toolbox {{\"toolbox\": \"{}\"}}, or name it in `tools` with connect: true",
                agent.toolbox
            ),
            Some(ServerState::Starting | ServerState::Restarting { .. }) => {
                "being started: ask again in a moment".to_owned()
            }
            Some(ServerState::Ready) => "it has no tools".to_owned(),
            Some(ServerState::NeedsLogin { fix }) => fix.clone(),
            Some(ServerState::Failed { why, fix, stderr: _ }) => format!("it cannot be used: {why}. {fix}"),
        })
    }

    fn is_idle(&self, agent: &ServerAgent) -> bool {
        matches!(self.state(agent), None | Some(ServerState::Idle | ServerState::Stopped))
    }

    fn state(&self, agent: &ServerAgent) -> Option<&ServerState> {
        self.states.get(&(agent.toolbox.clone(), agent.server.clone()))
    }

    /// Resolves a tool name.
    fn resolve(&self, name: &str) -> Result<(Arc<CatalogueTool>, NameMatch), CallError> {
        self.profile.with_scope(|scope| {
            let found = self.snapshot.resolve(name, scope)?;
            let name_match = if found.corrected_from.is_none() { NameMatch::Exact } else { NameMatch::Near };
            Ok((Arc::clone(found.tool), name_match))
        })
    }

    /// Returns all tools of a server or toolbox.
    fn tools_of(&self, name: &str) -> Vec<Arc<CatalogueTool>> {
        let servers = self.agents.resolve_all(name);
        servers.iter().flat_map(|agent| agent.tools(&self.snapshot)).cloned().collect()
    }

    /// Describes a missing tool.
    pub(super) fn missing(&self, requested: &RequestedTool) -> MissingTool {
        let nearest = self.nearest(requested, &self.candidate_servers(requested));
        MissingTool { nearest, ..self.missing_without_suggestions(requested) }
    }

    /// Describes a missing tool without similar names, which are expensive to compute.
    pub(super) fn missing_without_suggestions(&self, requested: &RequestedTool) -> MissingTool {
        let why = self.candidate_servers(requested).into_iter().find_map(|agent| {
            let unavailable_reason = self.unavailable_reason(agent)?;
            Some(format!("server '{}': {unavailable_reason}", agent.server))
        });
        let name = clipped(&requested.text(), MAX_ECHO_BYTES).into_owned();
        MissingTool { name, nearest: Vec::new(), why }
    }

    fn nearest(&self, requested: &RequestedTool, servers: &[&ServerAgent]) -> Vec<String> {
        let name = match requested {
            RequestedTool::ServerTool { server, .. } if servers.is_empty() => {
                let agents = self.agents.iter().map(|(name, _)| name);
                let near = nearest(clip(server, MAX_ECHO_BYTES), agents, MAX_SUGGESTIONS);
                return near.into_iter().map(str::to_owned).collect();
            }
            RequestedTool::ServerTool { name, .. } => name.as_str(),
            RequestedTool::Id(id) => id.name.as_str(),
            RequestedTool::Name(name) => {
                return match self.resolve(name) {
                    Err(CallError::NotFound(
                        missing @ (NotFound::Tool { .. } | NotFound::Ambiguous { .. }),
                    )) => {
                        let nearest = missing.nearest();
                        let tools = nearest.iter().filter_map(|name| self.resolve(name).ok());
                        tools.map(|(tool, _)| tool.agent_mode_name.to_string()).collect()
                    }
                    Err(_) | Ok(_) => Vec::new(),
                };
            }
        };
        let near = servers.iter().flat_map(|agent| self.nearest_of(agent, name));
        near.take(MAX_SUGGESTIONS).map(|tool| tool.agent_mode_name.to_string()).collect()
    }

    /// Returns the tools of a server with similar names.
    fn nearest_of(&self, agent: &ServerAgent, name: &str) -> Vec<&Arc<CatalogueTool>> {
        let id = |name: &str| {
            let (toolbox, server) = (agent.toolbox.clone(), agent.server.clone());
            Some(ToolId { toolbox, server, name: ToolName::new(name).ok()? })
        };
        match id(name).map(|id| self.snapshot.lookup(&id)) {
            Some(Err(CallError::NotFound(NotFound::ToolOfServer { nearest, .. }))) => {
                nearest.iter().filter_map(|name| self.snapshot.by_id(&id(name)?)).collect()
            }
            Some(Ok(_) | Err(_)) | None => Vec::new(),
        }
    }
}
