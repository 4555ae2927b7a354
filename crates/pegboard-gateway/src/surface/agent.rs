//! The `agent` surface: one tool per server, with a `mode` argument that selects among its tools.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::future::{FutureExt, ready};
use pegboard_core::arguments::CallArguments;
use pegboard_core::call::{Call, CallResult, ToolRef};
use pegboard_core::error::{CallError, ErrorKind, NotFound};
use pegboard_core::id::{ToolId, ToolName};
use pegboard_core::settings::gateway::Expose;
use pegboard_core::similar::nearest;
use pegboard_core::text::{clip, clipped};
use pegboard_json::{RawJson, duplicate_member};
use pegboard_runtime::SessionMode;
use pegboard_runtime::catalogue::CatalogueTool;
use pegboard_wire::{RpcError, code};
use serde_json::json;

use super::{ListRequest, ReplyFuture, Surface, append, context, json_array, json_object};
use crate::agents::{AgentIndex, ServerAgent, find_mode};
use crate::catalogue_memo::CatalogueMemo;
use crate::client_request::ClientRequest;
use crate::meta;
use crate::profile::ActiveProfile;
use crate::resource_index::with_view;
use crate::result;

mod listing;

/// The argument that selects a tool.
const MODE: &str = "mode";
/// The argument that holds the arguments of a tool with a `mode` parameter of its own.
const ARGUMENTS: &str = "arguments";
/// Maximum length of echoed caller input.
const MAX_ECHO_BYTES: usize = 256;
/// Maximum number of suggested names.
const MAX_SUGGESTIONS: usize = 3;
/// Maximum number of modes named in an error.
const MAX_MODES: usize = 100;

/// One tool per server.
pub(super) struct AgentSurface {
    profile: Arc<ActiveProfile>,
    agents: AgentIndex,
    list: CatalogueMemo<RawJson>,
}

impl AgentSurface {
    pub(super) fn new(profile: Arc<ActiveProfile>) -> Self {
        Self { agents: AgentIndex::build(&profile), profile, list: CatalogueMemo::default() }
    }

    /// Calls a mode of an agent. The mode comes from the `mode` argument, or else from the suffix of the
    /// name.
    fn call_agent(
        &self,
        mut request: ClientRequest,
        (name, agent): (&str, &ServerAgent),
        mode: Option<&str>,
        arguments: &RawJson,
    ) -> ReplyFuture {
        let snapshot = self.profile.runtime.catalogue();
        let mode_call = ModeCall::new(&self.profile, (name, agent), mode);
        if let Some(name) = duplicate_member(arguments) {
            return ready(Ok(mode_call.duplicate_argument(&name).into())).boxed();
        }
        let Some(mode) = mode else { return ready(Ok(mode_call.missing_mode().into())).boxed() };
        let tool = find_mode(agent.tools(&snapshot), mode, self.profile.view().corrections);
        let tool_name = match tool {
            Some(tool) => Ok(tool.id.name.clone()),
            // The tools of its server may not be known yet.
            None => ToolName::new(mode),
        };
        let Ok(tool_name) = tool_name else { return ready(Ok(mode_call.unknown_mode(&[]).into())).boxed() };
        let id = ToolId { toolbox: agent.toolbox.clone(), server: agent.server.clone(), name: tool_name };
        request.label = Some(match tool {
            Some(tool) => Arc::clone(&tool.flat_name),
            None => format!("{}__{}", id.server, id.name).into(),
        });
        let arguments = tool_arguments(arguments, tool.map(|tool| &**tool));
        let view = self.profile.tool_view(&id);
        let call = Call::new(id, CallArguments::from(arguments));
        context::call(request, call, move |call_result| {
            let result = mode_call.render(call_result);
            Ok(if call_result.result.is_ok() { with_view(result, view.as_deref()) } else { result })
        })
    }

    /// Returns the tool with exactly this name.
    fn exact_tool(&self, name: &str) -> Option<Arc<CatalogueTool>> {
        let snapshot = self.profile.runtime.catalogue();
        self.profile.with_scope(|scope| {
            let found = snapshot.resolve(name, scope).ok()?;
            found.corrected_from.is_none().then(|| Arc::clone(found.tool))
        })
    }

    /// Returns the error for an unknown name, if an agent has a similar one.
    fn unknown_agent(&self, name: &str) -> Option<RpcError> {
        let snapshot = self.profile.runtime.catalogue();
        if self.profile.with_scope(|scope| snapshot.resolve(name, scope).is_ok()) {
            return None;
        }
        let near =
            nearest(clip(name, MAX_ECHO_BYTES), self.agents.iter().map(|(name, _)| name), MAX_SUGGESTIONS);
        if near.is_empty() {
            return None;
        }
        let text = format!(
            "There is no agent '{}'. Did you mean one of: {}?",
            clipped(name, MAX_ECHO_BYTES),
            near.join(", ")
        );
        let error =
            json!({"kind": ErrorKind::UnknownTool, "message": text, "executed": false, "nearest": near});
        Some(RpcError::new(code::INVALID_PARAMS, text).with_data(error))
    }
}

impl Surface for AgentSurface {
    fn session_mode(&self) -> SessionMode {
        SessionMode::AllOpen
    }

    fn instructions(&self) -> Option<String> {
        let snapshot = self.profile.runtime.catalogue();
        Some(self.profile.with_scope(|scope| snapshot.instructions(scope))).filter(|text| !text.is_empty())
    }

    fn expose(&self) -> Expose {
        Expose::Agent
    }

    fn list(&self, request: &ListRequest<'_>) -> RawJson {
        let list = self.list.get(&self.profile.runtime.catalogue(), |snapshot| {
            let listed = |(name, agent): (&str, &ServerAgent)| {
                listing::agent_tool(name, &agent.description, agent.tools(snapshot))
            };
            json_array(self.agents.iter().filter_map(listed))
        });
        append(&list, meta::TOOL_OUTPUT.definition_for(request))
    }

    fn follows_catalogue(&self) -> bool {
        true
    }

    fn owns_name(&self, name: &str) -> bool {
        self.agents.find(name).is_some() || meta::find(name).is_some()
    }

    /// Agent names take precedence, then tool names. What remains may be an agent name with a mode suffix, as
    /// older clients call it.
    fn call(&self, request: ClientRequest, name: &str, arguments: RawJson) -> ReplyFuture {
        let mode = arguments.get(MODE);
        let mode = mode.as_ref().and_then(RawJson::text);
        let mode = mode.as_deref().map(str::trim).filter(|mode| !mode.is_empty());
        if let Some(agent) = self.agents.find(name) {
            return self.call_agent(request, (name, agent), mode, &arguments);
        }
        if let Some(tool) = meta::find(name) {
            return tool.call(request, arguments);
        }
        if let Some(tool) = self.exact_tool(name) {
            let is_agent =
                |agent: &ServerAgent| agent.toolbox == tool.id.toolbox && agent.server == tool.id.server;
            let agent = self.agents.iter().find(|(_, agent)| is_agent(agent));
            return match agent {
                Some(agent) if *tool.agent_mode_name == *name && !declares(&tool, MODE) => {
                    let mode = mode.unwrap_or(tool.id.name.as_str());
                    self.call_agent(request, agent, Some(mode), &arguments)
                }
                _ => call_in_context(request, ToolRef::Id(tool.id.clone()), arguments),
            };
        }
        if let Some((name, agent, rest)) = self.agents.find_by_prefix(name) {
            let mode = mode.or(Some(rest).filter(|rest| !rest.is_empty()));
            return self.call_agent(request, (name, agent), mode, &arguments);
        }
        match self.unknown_agent(name) {
            Some(error) => ready(Err(error)).boxed(),
            // It may be a tool name without its server.
            None => call_in_context(request, ToolRef::Name(name.to_owned()), arguments),
        }
    }
}

fn call_in_context(request: ClientRequest, tool: ToolRef, arguments: RawJson) -> ReplyFuture {
    context::call(
        request,
        Call::new(tool, CallArguments::from(arguments)),
        result::named_tool_result_in_session,
    )
}

/// Returns `true` if a tool has a parameter of this name.
fn declares(tool: &CatalogueTool, name: &str) -> bool {
    let properties = tool.entry.input_schema().as_json().get("properties");
    properties.is_some_and(|properties| properties.get(name).is_some())
}

/// Returns the tool's own arguments. A tool with a `mode` parameter of its own takes it from `arguments`.
fn tool_arguments(arguments: &RawJson, tool: Option<&CatalogueTool>) -> RawJson {
    let rest = arguments.without(MODE);
    match (tool, rest.get(ARGUMENTS)) {
        (Some(tool), Some(inner))
            if inner.is_object() && declares(tool, MODE) && !declares(tool, ARGUMENTS) =>
        {
            let inner_names: HashSet<String> = inner.names().into_iter().collect();
            let outer = rest.without(ARGUMENTS);
            json_object(
                outer.members().filter(|(name, _)| !inner_names.contains(name)).chain(inner.members()),
            )
        }
        _ => rest,
    }
}

/// A call of a mode, as the caller named it.
struct ModeCall {
    profile: Arc<ActiveProfile>,
    agent: ServerAgent,
    name: String,
    mode: String,
}

impl ModeCall {
    fn new(profile: &Arc<ActiveProfile>, (name, agent): (&str, &ServerAgent), mode: Option<&str>) -> Self {
        let mode = clipped(mode.unwrap_or_default(), MAX_ECHO_BYTES).into_owned();
        Self { profile: Arc::clone(profile), agent: agent.clone(), name: name.to_owned(), mode }
    }

    /// Names of the modes.
    fn modes(&self) -> Vec<String> {
        let snapshot = self.profile.runtime.catalogue();
        let tools = self.agent.tools(&snapshot);
        tools.iter().take(MAX_MODES).map(|tool| tool.id.name.to_string()).collect()
    }

    fn render(&self, call_result: &CallResult) -> RawJson {
        match &call_result.result {
            Err(CallError::NotFound(NotFound::ToolOfServer { nearest, .. })) => self.unknown_mode(nearest),
            Ok(_) | Err(_) => result::tool_result_in_session(call_result),
        }
    }

    /// JSON parsers differ in which of two duplicate members they keep, so the call is ambiguous.
    fn duplicate_argument(&self, name: &str) -> RawJson {
        let name = clipped(name, MAX_ECHO_BYTES);
        let text = format!("Agent '{}': duplicate argument '{name}'. Give it once.", self.name);
        self.error_result(ErrorKind::InvalidParameters, &text)
    }

    fn missing_mode(&self) -> RawJson {
        let text = format!("Agent '{}' needs a mode. Give `mode`: {}.", self.name, self.mode_hint());
        self.error_result(ErrorKind::InvalidParameters, &text)
    }

    fn unknown_mode(&self, nearest: &[String]) -> RawJson {
        let suggestion = match nearest {
            [] => format!("Give `mode`: {}.", self.mode_hint()),
            nearest => format!("Did you mean one of: {}?", nearest.join(", ")),
        };
        let text = format!("Agent '{}' has no mode '{}'. {suggestion}", self.name, self.mode);
        self.error_result(ErrorKind::UnknownTool, &text)
    }

    fn mode_hint(&self) -> String {
        match &self.modes()[..] {
            [] => "the name of one of its tools".to_owned(),
            modes => format!("one of {}", modes.join(", ")),
        }
    }

    fn error_result(&self, kind: ErrorKind, text: &str) -> RawJson {
        let (agent, modes) = (&self.name, self.modes());
        let error = json!({"kind": kind, "message": text, "executed": false, "agent": agent, "modes": modes});
        result::tool_error(text, &error)
    }
}
