//! All there is, in few words.

use pegboard_core::text::clipped;
use serde_json::{Map, Value, json};

use super::find::Finder;

/// How much is said of each server.
const MAX_DESCRIPTION_BYTES: usize = 160;
/// How much is said of a server whose tools are not known.
const MAX_NOTE_BYTES: usize = 300;
/// How many modes of one server are named.
const MAX_MODES: usize = 100;
/// How many modes are named altogether.
const MAX_ALL_MODES: usize = 1_000;
/// How many servers are named.
const MAX_SERVERS: usize = 1_000;

/// Every server with the names of its tools, as far as they are known. No server is started for it.
pub(super) fn of(finder: &Finder<'_>) -> Value {
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
        if let Some(silence) = finder.silence(agent) {
            entry["note"] = clipped(&silence, MAX_NOTE_BYTES).into();
        }
        overview.insert(name.to_owned(), entry);
    }
    Value::Object(overview)
}
