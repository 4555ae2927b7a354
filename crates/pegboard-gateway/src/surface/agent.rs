//! The surface `agent`: one tool for each server, whose `mode` selects among its tools.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::future::{FutureExt, ready};
use pegboard_core::arguments::Arguments;
use pegboard_core::call::{Call, Ended, ToolRef};
use pegboard_core::error::{CallError, ErrorKind, NotFound};
use pegboard_core::id::{ToolId, ToolName};
use pegboard_core::text::{clip, clipped};
use pegboard_json::{RawJson, twin_member};
use pegboard_runtime::Memory;
use pegboard_runtime::catalogue::Tool;
use pegboard_runtime::names::nearest;
use serde_json::json;

use super::{Answering, Derived, Surface, Viewer, array, context, followed_by, object};
use crate::agents::{Agent, Agents, tool_of_mode};
use crate::meta;
use crate::profile::Board;
use crate::result;
use crate::visit::Visit;

mod listing;

/// The argument that selects a tool.
const MODE: &str = "mode";
/// The argument that holds the arguments of a tool with a `mode` of its own.
const ARGUMENTS: &str = "arguments";
/// How much of a caller's word is said again.
const MAX_SAID_BYTES: usize = 256;
/// How many names are offered in place of one that is not there.
const N_NEAREST: usize = 3;
/// How many modes are named to somebody who named none.
const MAX_MODES: usize = 100;

/// One tool for each server.
pub(super) struct OnePerServer {
    board: Arc<Board>,
    agents: Agents,
    list: Derived<RawJson>,
}

impl OnePerServer {
    pub(super) fn new(board: Arc<Board>) -> Self {
        Self { agents: Agents::of(&board), board, list: Derived::default() }
    }

    /// A call of an agent. Its mode is what the call says, or else what its name ends with.
    fn call_agent(
        &self,
        mut visit: Visit,
        (name, agent): (&str, &Agent),
        mode: Option<&str>,
        arguments: &RawJson,
    ) -> Answering {
        let snapshot = self.board.runtime.catalogue();
        let wanted = Wanted::new(&self.board, (name, agent), mode);
        if let Some(name) = twin_member(arguments) {
            return ready(Ok(wanted.said_twice(&name).into())).boxed();
        }
        let Some(mode) = mode else { return ready(Ok(wanted.without_mode().into())).boxed() };
        let tool = tool_of_mode(agent.tools(&snapshot), mode);
        let tool_name = match tool {
            Some(tool) => Ok(tool.id.name.clone()),
            // Its server may not have been asked yet what it has.
            None => ToolName::new(mode),
        };
        let Ok(tool_name) = tool_name else { return ready(Ok(wanted.unknown_mode(&[]).into())).boxed() };
        let id = ToolId { toolbox: agent.toolbox.clone(), server: agent.server.clone(), name: tool_name };
        visit.label = Some(match tool {
            Some(tool) => Arc::clone(&tool.flat_name),
            None => format!("{}__{}", id.server, id.name).into(),
        });
        let arguments = of_tool(arguments, tool.map(|tool| &**tool));
        let call = Call::new(id, Arguments::from(arguments));
        context::call(visit, call, move |ended| wanted.words(ended))
    }

    /// The tool that has exactly this name.
    fn tool(&self, name: &str) -> Option<Arc<Tool>> {
        let snapshot = self.board.runtime.catalogue();
        self.board.with_scope(|scope| {
            let found = snapshot.resolve(name, scope, &|_| false).ok()?;
            found.corrected_from.is_none().then(|| Arc::clone(found.tool))
        })
    }

    /// What to say of a name that no tool is called by, if some agent has one like it.
    fn unknown(&self, name: &str) -> Option<RawJson> {
        let snapshot = self.board.runtime.catalogue();
        if self.board.with_scope(|scope| snapshot.resolve(name, scope, &|_| true).is_ok()) {
            return None;
        }
        let near = nearest(clip(name, MAX_SAID_BYTES), self.agents.iter().map(|(name, _)| name), N_NEAREST);
        if near.is_empty() {
            return None;
        }
        let text = format!(
            "There is no agent '{}'. Did you mean one of: {}?",
            clipped(name, MAX_SAID_BYTES),
            near.join(", ")
        );
        let error =
            json!({"kind": ErrorKind::UnknownTool, "message": text, "executed": false, "nearest": near});
        Some(result::refusal_of_tool(&text, &error))
    }
}

impl Surface for OnePerServer {
    fn memory(&self) -> Memory {
        Memory::Everything
    }

    fn instructions(&self) -> Option<String> {
        let snapshot = self.board.runtime.catalogue();
        Some(self.board.with_scope(|scope| snapshot.instructions(scope))).filter(|text| !text.is_empty())
    }

    fn list(&self, viewer: &Viewer<'_>) -> RawJson {
        let list = self.list.get(self.board.runtime.catalogue(), |snapshot| {
            let listed = |(name, agent): (&str, &Agent)| {
                listing::listed(name, &agent.description, agent.tools(snapshot))
            };
            array(self.agents.iter().filter_map(listed))
        });
        followed_by(&list, meta::TOOL_OUTPUT.listed(viewer))
    }

    fn follows_catalogue(&self) -> bool {
        true
    }

    fn is_own(&self, name: &str) -> bool {
        self.agents.find(name).is_some() || meta::find(name).is_some()
    }

    /// The name of an agent is looked up first, then the names that tools have; what is left may be an agent with
    /// something behind it, as clients of old call it.
    fn call(&self, visit: Visit, name: &str, arguments: RawJson) -> Answering {
        let said = arguments.get(MODE);
        let said = said.as_ref().and_then(RawJson::text);
        let said = said.as_deref().map(str::trim).filter(|mode| !mode.is_empty());
        if let Some(agent) = self.agents.find(name) {
            return self.call_agent(visit, (name, agent), said, &arguments);
        }
        if let Some(tool) = meta::find(name) {
            return tool.call(visit, arguments);
        }
        if let Some(tool) = self.tool(name) {
            let is_agent = |agent: &Agent| agent.toolbox == tool.id.toolbox && agent.server == tool.id.server;
            let agent = self.agents.iter().find(|(_, agent)| is_agent(agent));
            return match agent {
                Some(agent) if *tool.agent_mode_name == *name && !declares(&tool, MODE) => {
                    let mode = said.unwrap_or(tool.id.name.as_str());
                    self.call_agent(visit, agent, Some(mode), &arguments)
                }
                _ => in_context(visit, ToolRef::Id(tool.id.clone()), arguments),
            };
        }
        if let Some((name, agent, rest)) = self.agents.by_prefix(name) {
            let mode = said.or(Some(rest).filter(|rest| !rest.is_empty()));
            return self.call_agent(visit, (name, agent), mode, &arguments);
        }
        match self.unknown(name) {
            Some(refusal) => ready(Ok(refusal.into())).boxed(),
            // It may be what a tool is called without its server.
            None => in_context(visit, ToolRef::Name(name.to_owned()), arguments),
        }
    }
}

fn in_context(visit: Visit, tool: ToolRef, arguments: RawJson) -> Answering {
    context::call(visit, Call::new(tool, Arguments::from(arguments)), result::of_tool_in_session)
}

/// Whether a tool has a parameter of this name.
fn declares(tool: &Tool, name: &str) -> bool {
    let properties = tool.entry.input_schema().as_json().get("properties");
    properties.is_some_and(|properties| properties.get(name).is_some())
}

/// The arguments without what is for the agent. A tool with a `mode` of its own takes it from `arguments`.
fn of_tool(arguments: &RawJson, tool: Option<&Tool>) -> RawJson {
    let rest = arguments.without(MODE);
    match (tool, rest.get(ARGUMENTS)) {
        (Some(tool), Some(inner))
            if inner.is_object() && declares(tool, MODE) && !declares(tool, ARGUMENTS) =>
        {
            let said: HashSet<String> = inner.names().into_iter().collect();
            let outer = rest.without(ARGUMENTS);
            object(outer.members().filter(|(name, _)| !said.contains(name)).chain(inner.members()))
        }
        _ => rest,
    }
}

/// An agent and a mode as a caller names them.
struct Wanted {
    board: Arc<Board>,
    agent: Agent,
    name: String,
    mode: String,
}

impl Wanted {
    fn new(board: &Arc<Board>, (name, agent): (&str, &Agent), mode: Option<&str>) -> Self {
        let mode = clipped(mode.unwrap_or_default(), MAX_SAID_BYTES).into_owned();
        Self { board: Arc::clone(board), agent: agent.clone(), name: name.to_owned(), mode }
    }

    /// What there is.
    fn modes(&self) -> Vec<String> {
        let snapshot = self.board.runtime.catalogue();
        let tools = self.agent.tools(&snapshot);
        tools.iter().take(MAX_MODES).map(|tool| tool.id.name.to_string()).collect()
    }

    fn words(&self, ended: &Ended) -> RawJson {
        match &ended.result {
            Err(CallError::NotFound(NotFound::ToolOfServer { nearest, .. })) => self.unknown_mode(nearest),
            Ok(_) | Err(_) => result::of_tool_in_session(ended),
        }
    }

    /// Readers differ in which of two members they take, so nobody could know what is meant.
    fn said_twice(&self, name: &str) -> RawJson {
        let name = clipped(name, MAX_SAID_BYTES);
        let text = format!("Agent '{}': '{name}' is there twice. Give it once.", self.name);
        self.refusal(ErrorKind::InvalidParameters, &text)
    }

    fn without_mode(&self) -> RawJson {
        let text = format!("Agent '{}' needs a mode. Give `mode`: {}.", self.name, self.choice());
        self.refusal(ErrorKind::InvalidParameters, &text)
    }

    fn unknown_mode(&self, nearest: &[String]) -> RawJson {
        let meant = match nearest {
            [] => format!("Give `mode`: {}.", self.choice()),
            nearest => format!("Did you mean one of: {}?", nearest.join(", ")),
        };
        let text = format!("Agent '{}' has no mode '{}'. {meant}", self.name, self.mode);
        self.refusal(ErrorKind::UnknownTool, &text)
    }

    fn choice(&self) -> String {
        match &self.modes()[..] {
            [] => "the name of one of its tools".to_owned(),
            modes => format!("one of {}", modes.join(", ")),
        }
    }

    fn refusal(&self, kind: ErrorKind, text: &str) -> RawJson {
        let (agent, modes) = (&self.name, self.modes());
        let error = json!({"kind": kind, "message": text, "executed": false, "agent": agent, "modes": modes});
        result::refusal_of_tool(text, &error)
    }
}
