//! The tool with which an agent hands its session over to another agent.
//!
//! It exists if the agent has destinations. A hand-off ends the session; the destination continues with the
//! task and the message.

use std::sync::Arc;

use pegboard_core::call::PrivateTool;
use pegboard_core::entry::ToolEntry;
use pegboard_core::id::ToolName;
use serde_json::{Value, json};

use crate::builtin::{AgentProgress, BuiltinHandler, Handoff, private_tool};

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
    let names: Vec<ToolName> = destinations.iter().map(|destination| destination.name.clone()).collect();
    let progress = Arc::clone(progress);
    let handler = BuiltinHandler(move |arguments: &Value| {
        let handoff = read(arguments, &names)?;
        let answer = format!("Routed to agent: {}", handoff.agent);
        progress.set_handoff(handoff);
        Ok(answer.into())
    });
    let entry = ToolEntry::from_handler(HANDOFF_TO, description(destinations), Arc::new(handler));
    Some(private_tool(SERVER, entry.with_title("Hand over").with_input_schema(schema)))
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

/// Reads the arguments of a hand-off to one of these agents.
fn read(arguments: &Value, names: &[ToolName]) -> Result<Handoff, String> {
    let asked = arguments["agent"].as_str().ok_or("agent must be a string")?.trim();
    let agent = names.iter().find(|name| name.as_str() == asked).ok_or_else(|| {
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
