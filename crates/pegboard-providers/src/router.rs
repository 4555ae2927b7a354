//! The tool with which an agent hands its session over to another agent.
//!
//! It exists if the agent has destinations. A hand-off ends the session; the destination continues with the
//! task and the message.

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt, ready};
use pegboard_core::call::{PrivateTool, ValidCall};
use pegboard_core::entry::ToolEntry;
use pegboard_core::error::CallError;
use pegboard_core::handler::Handler;
use pegboard_core::id::{ServerName, ToolName};
use pegboard_core::output::Output;
use serde_json::{Value, json};

use crate::builtin::{AgentProgress, Handoff};

/// Name of the tool's server.
const SERVER: &str = "router";
/// Name of the tool.
const HANDOFF_TO: &str = "handoff-to";
/// Maximum number of characters of a model's argument quoted in an error.
const MAX_QUOTED_CHARS: usize = 80;

/// Destination of a hand-off.
#[derive(Clone, Debug)]
pub(crate) struct HandoffDestination {
    pub(crate) name: ToolName,
    pub(crate) description: String,
}

/// Creates the hand-off tool; `None` without destinations.
pub(crate) fn handoff_to(
    progress: &Arc<AgentProgress>,
    destinations: &[HandoffDestination],
) -> Option<PrivateTool> {
    if destinations.is_empty() {
        return None;
    }
    let names: Vec<&str> = destinations.iter().map(|destination| destination.name.as_str()).collect();
    let schema = json!({
        "type": "object",
        "properties": {
            "agent": {"type": "string", "enum": names, "description": "The agent that takes over."},
            "message": {"type": "string", "description": "What it must know in addition to your own task."}
        },
        "required": ["agent"],
        "additionalProperties": false
    });
    let handler = HandoffTool {
        progress: Arc::clone(progress),
        names: destinations.iter().map(|one| one.name.clone()).collect(),
    };
    let entry = ToolEntry::from_handler(HANDOFF_TO, description(destinations), Arc::new(handler))
        .with_title("Hand over")
        .with_input_schema(schema)
        .unmanaged()
        .validating_own_arguments();
    let server = ServerName::new(SERVER).expect("it is neither empty nor long");
    Some(PrivateTool { server, entry: Arc::new(entry), fingerprint: String::new() })
}

fn description(destinations: &[HandoffDestination]) -> String {
    let mut text =
        "Hand the whole task over to another agent, which answers in your place. It ends your work. \
                    The agents:"
            .to_owned();
    for HandoffDestination { name, description } in destinations {
        text.push_str("\n- ");
        text.push_str(name.as_str());
        if !description.is_empty() {
            text.push_str(": ");
            text.push_str(description);
        }
    }
    text
}

struct HandoffTool {
    progress: Arc<AgentProgress>,
    names: Vec<ToolName>,
}

impl Handler for HandoffTool {
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        let answer = match self.read(call.arguments()) {
            Ok(handoff) => {
                let answer = Output::new(format!("Routed to agent: {}", handoff.agent).into());
                self.progress.set_handoff(handoff);
                answer
            }
            Err(problem) => Output::failure(problem),
        };
        ready(Ok(answer)).boxed()
    }
}

impl HandoffTool {
    fn read(&self, arguments: &Value) -> Result<Handoff, String> {
        let asked = arguments["agent"].as_str().ok_or("agent must be a string")?.trim();
        let agent = self.names.iter().find(|name| name.as_str() == asked).ok_or_else(|| {
            let asked: String = asked.chars().take(MAX_QUOTED_CHARS).collect();
            format!("Unknown agent: {asked}")
        })?;
        let message = match &arguments["message"] {
            Value::Null => None,
            Value::String(message) => Some(message.trim().to_owned()).filter(|message| !message.is_empty()),
            _ => return Err("message must be a string when provided".to_owned()),
        };
        Ok(Handoff { agent: agent.clone(), message })
    }
}
