//! The overview of all servers and modes.

use pegboard_core::text::clipped;
use serde_json::{Map, Value, json};

use super::finder::ToolFinder;

/// Maximum length of a server description.
const MAX_DESCRIPTION_BYTES: usize = 160;
/// Maximum length of a note about a server without known tools.
const MAX_NOTE_BYTES: usize = 300;
/// Maximum number of modes per server.
const MAX_MODES: usize = 100;
/// Maximum number of modes in total.
const MAX_ALL_MODES: usize = 1_000;
/// Maximum number of servers.
const MAX_SERVERS: usize = 1_000;

/// Lists every server with the names of its known tools. Starts no server.
pub(super) fn of(finder: &ToolFinder<'_>) -> Value {
    let mut n_left = MAX_ALL_MODES;
    let mut overview = Map::new();
    for (name, agent) in finder.agents.iter().take(MAX_SERVERS) {
        let tools = agent.tools(&finder.snapshot);
        let n_named = tools.len().min(MAX_MODES).min(n_left);
        n_left -= n_named;
        let modes: Vec<&str> = tools[..n_named].iter().map(|tool| tool.id.name.as_str()).collect();
        let mut entry = json!({"toolbox": agent.toolbox});
        if !agent.description.is_empty() {
            entry["description"] = clipped(&agent.description, MAX_DESCRIPTION_BYTES).into();
        }
        entry["modes"] = json!(modes);
        if n_named < tools.len() {
            entry["moreModes"] = (tools.len() - n_named).into();
        }
        if let Some(unavailable_reason) = finder.unavailable_reason(agent) {
            entry["note"] = clipped(&unavailable_reason, MAX_NOTE_BYTES).into();
        }
        overview.insert(name.to_owned(), entry);
    }
    Value::Object(overview)
}
