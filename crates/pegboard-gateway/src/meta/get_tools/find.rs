//! Which tools the names of a request mean.

use std::collections::HashMap;
use std::sync::Arc;

use pegboard_core::error::{CallError, NotFound};
use pegboard_core::id::{ServerName, ToolId, ToolName, ToolboxName};
use pegboard_core::provider::ServerState;
use pegboard_core::text::{clip, clipped};
use pegboard_runtime::catalogue::{Snapshot, Tool};
use pegboard_runtime::names::nearest;
use serde::Serialize;

use super::MAX_SAID_BYTES;
use super::request::Asked;
use crate::agents::{Agent, Agents, tool_of_mode};
use crate::profile::Board;

/// How many names are offered in place of one that is not there.
const N_NEAREST: usize = 3;
/// How many servers are named that have not been started.
const MAX_NOT_STARTED: usize = 50;

/// Finds tools among those of a board, as far as they are known.
pub(super) struct Finder<'b> {
    board: &'b Board,
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) agents: Agents,
    states: HashMap<(ToolboxName, ServerName), ServerState>,
}

/// A name that means no tool.
#[derive(Debug, Serialize)]
pub(super) struct Missing {
    name: String,
    /// Names that are like it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    nearest: Vec<String>,
    /// Why it may be there all the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

/// How a tool was named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spelling {
    /// By a name that it has.
    Exact,
    /// By something like it.
    Near,
}

impl<'b> Finder<'b> {
    pub(super) fn new(board: &'b Board) -> Self {
        let states = board.runtime.servers().into_iter();
        let states = states.map(|status| ((status.toolbox, status.server), status.state)).collect();
        Self { board, snapshot: board.runtime.catalogue(), agents: Agents::of(board), states }
    }

    /// The tools that a name means; several if it is that of a server or a toolbox.
    pub(super) fn find(&self, asked: &Asked) -> Option<Vec<Arc<Tool>>> {
        let found = match asked {
            Asked::Id(id) => self.snapshot.by_id(id).filter(|tool| self.board.has(&tool.id.toolbox)).cloned(),
            Asked::Of { name, .. } => {
                let places = self.places(asked);
                let found = places.iter().find_map(|agent| tool_of_mode(agent.tools(&self.snapshot), name));
                found.cloned()
            }
            Asked::Name(name) => {
                let found = self.resolve(name).ok();
                let all = match &found {
                    Some((_, Spelling::Exact)) => Vec::new(),
                    Some((_, Spelling::Near)) | None => self.all_of(name),
                };
                if !all.is_empty() {
                    return Some(all);
                }
                found.map(|(tool, _)| tool)
            }
        };
        found.map(|tool| vec![tool])
    }

    /// The servers where what was asked for would be.
    pub(super) fn places(&self, asked: &Asked) -> Vec<&Agent> {
        match asked {
            Asked::Of { server, .. } => self.agents.meant_by(server),
            Asked::Id(id) => {
                let is_meant = |agent: &&Agent| {
                    agent.toolbox == id.toolbox && agent.server.as_str() == id.server.as_str()
                };
                self.agents.iter().map(|(_, agent)| agent).filter(is_meant).collect()
            }
            Asked::Name(name) => {
                let meant = self.agents.meant_by(name);
                let by_prefix = || self.agents.by_prefix(name).map(|(_, agent, _)| agent);
                if meant.is_empty() { by_prefix().into_iter().collect() } else { meant }
            }
        }
    }

    /// The names of servers that have not been asked yet what they have, or some of them if they are many.
    pub(super) fn not_started(&self) -> Vec<&str> {
        let is_idle = |agent: &Agent| agent.tools(&self.snapshot).is_empty() && self.is_idle(agent);
        let idle = self.agents.iter().filter(|(_, agent)| is_idle(agent));
        idle.map(|(name, _)| name).take(MAX_NOT_STARTED).collect()
    }

    /// Why no tool of a server is known; `None` if some are.
    pub(super) fn silence(&self, agent: &Agent) -> Option<String> {
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
            Some(ServerState::Failed { why, fix }) => format!("it cannot be used: {why}. {fix}"),
        })
    }

    fn is_idle(&self, agent: &Agent) -> bool {
        matches!(self.state(agent), None | Some(ServerState::Idle | ServerState::Stopped))
    }

    fn state(&self, agent: &Agent) -> Option<&ServerState> {
        self.states.get(&(agent.toolbox.clone(), agent.server.clone()))
    }

    /// The tool that a name means.
    fn resolve(&self, name: &str) -> Result<(Arc<Tool>, Spelling), CallError> {
        self.board.with_scope(|scope| {
            let found = self.snapshot.resolve(name, scope, &|_| true)?;
            let spelling = if found.corrected_from.is_none() { Spelling::Exact } else { Spelling::Near };
            Ok((Arc::clone(found.tool), spelling))
        })
    }

    /// All tools of a server or toolbox.
    fn all_of(&self, name: &str) -> Vec<Arc<Tool>> {
        let places = self.agents.meant_by(name);
        places.iter().flat_map(|agent| agent.tools(&self.snapshot)).cloned().collect()
    }

    /// What to say of a name that means no tool.
    pub(super) fn missing(&self, asked: &Asked) -> Missing {
        let nearest = self.nearest(asked, &self.places(asked));
        Missing { nearest, ..self.missing_in_short(asked) }
    }

    /// The same without names that are like it, which take long to find.
    pub(super) fn missing_in_short(&self, asked: &Asked) -> Missing {
        let why = self.places(asked).into_iter().find_map(|agent| {
            let silence = self.silence(agent)?;
            Some(format!("server '{}': {silence}", agent.server))
        });
        let name = clipped(&asked.text(), MAX_SAID_BYTES).into_owned();
        Missing { name, nearest: Vec::new(), why }
    }

    fn nearest(&self, asked: &Asked, places: &[&Agent]) -> Vec<String> {
        let name = match asked {
            Asked::Of { server, .. } if places.is_empty() => {
                let agents = self.agents.iter().map(|(name, _)| name);
                let near = nearest(clip(server, MAX_SAID_BYTES), agents, N_NEAREST);
                return near.into_iter().map(str::to_owned).collect();
            }
            Asked::Of { name, .. } => name.as_str(),
            Asked::Id(id) => id.name.as_str(),
            Asked::Name(name) => {
                return match self.resolve(name) {
                    Err(CallError::NotFound(NotFound::Tool { nearest, .. })) => {
                        let tools = nearest.iter().filter_map(|name| self.resolve(name).ok());
                        tools.map(|(tool, _)| tool.agent_mode_name.to_string()).collect()
                    }
                    Err(_) | Ok(_) => Vec::new(),
                };
            }
        };
        let near = places.iter().flat_map(|agent| self.nearest_of(agent, name));
        near.take(N_NEAREST).map(|tool| tool.agent_mode_name.to_string()).collect()
    }

    /// The tools of a server whose names are like one that is not there.
    fn nearest_of(&self, agent: &Agent, name: &str) -> Vec<&Arc<Tool>> {
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
