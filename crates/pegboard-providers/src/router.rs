//! The tool by which an agent hands its session over to another one.
//!
//! It exists where an agent has destinations. A hand-off ends the session, and the destination takes over with what was
//! asked and the message.

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt, ready};
use pegboard_core::call::{OwnTool, ValidCall};
use pegboard_core::entry::ToolEntry;
use pegboard_core::error::CallError;
use pegboard_core::handler::Handler;
use pegboard_core::id::{ServerName, ToolName};
use pegboard_core::output::Output;
use serde_json::{Value, json};

use crate::builtin::{Desk, Handoff};

/// The server of the tool.
const SERVER: &str = "router";
/// The tool.
const HANDOFF_TO: &str = "handoff-to";
/// How much of a model's word an error says.
const MAX_QUOTED_CHARS: usize = 80;

/// A destination and what it is for.
#[derive(Clone, Debug)]
pub(crate) struct Destination {
    pub(crate) name: ToolName,
    pub(crate) description: String,
}

/// The tool that hands over to one of these destinations; `None` if there are none.
pub(crate) fn handoff_to(desk: &Arc<Desk>, destinations: &[Destination]) -> Option<OwnTool> {
    if destinations.is_empty() {
        return None;
    }
    let names: Vec<&str> = destinations.iter().map(|destination| destination.name.as_str()).collect();
    let schema = json!({
        "type": "object",
        "properties": {
            "agent": {"type": "string", "enum": names, "description": "The agent that takes over."},
            "message": {"type": "string", "description": "What it should know beside what you were asked."}
        },
        "required": ["agent"],
        "additionalProperties": false
    });
    let handler =
        Router { desk: Arc::clone(desk), names: destinations.iter().map(|one| one.name.clone()).collect() };
    let entry = ToolEntry::from_handler(HANDOFF_TO, description(destinations), Arc::new(handler))
        .with_title("Hand over")
        .with_input_schema(schema)
        .unmanaged()
        .judging_itself();
    let server = ServerName::new(SERVER).expect("it is neither empty nor long");
    Some(OwnTool { server, entry: Arc::new(entry), fingerprint: String::new() })
}

fn description(destinations: &[Destination]) -> String {
    let mut text =
        "Hand the whole task over to another agent, which answers in your place. It ends your work. \
                    The agents:"
            .to_owned();
    for Destination { name, description } in destinations {
        text.push_str("\n- ");
        text.push_str(name.as_str());
        if !description.is_empty() {
            text.push_str(": ");
            text.push_str(description);
        }
    }
    text
}

struct Router {
    desk: Arc<Desk>,
    names: Vec<ToolName>,
}

impl Handler for Router {
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        let answer = match self.read(call.arguments()) {
            Ok(handoff) => {
                let answer = Output::new(format!("Routed to agent: {}", handoff.agent).into());
                self.desk.hand_off(handoff);
                answer
            }
            Err(problem) => Output::failure(problem),
        };
        ready(Ok(answer)).boxed()
    }
}

impl Router {
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
