//! Loaded configurations, and diagnostics of invalid files.

#![expect(clippy::unwrap_used, reason = "a panic is a test failure")]

use std::path::Path;

use indexmap::IndexMap;
use pegboard_config::{ConfigProblem, Configuration, ConfigurationError, ServerEntry};
use pegboard_core::secret::Secret;
use pegboard_core::settings::RuntimeSettings;
use pegboard_core::settings::gateway::GatewaySettings;
use pegboard_core::settings::mcp::McpTarget;
use serde_json::{Map, Value, json};

mod agents;
mod agreement;
mod bad;
mod clients;
mod dialects;
mod docs;
mod edits;
mod edits_at_random;
mod foreign;
mod found;
mod good;
mod layers;
mod limits;
mod mcp_settings;
mod openapi;
mod pages;
mod providers;
mod rest;
mod schema;
mod secrets;
mod specs;
mod surveys;
mod trust;
mod variables;

/// The environment of all tests.
fn environment(name: &str) -> Option<String> {
    let value = match name {
        "A" => "1",
        "API_KEY" => "key-of-the-api",
        "EMPTY" => "",
        "GITHUB_TOKEN" => "ghp_0123456789",
        "HOME" => "/home/ada",
        "KEY" => "sk-from-outside",
        "PEGBOARD_INPUT_KEY_OF_THE_API" => "typed-by-ada",
        _ => return None,
    };
    Some(value.to_owned())
}

/// Loads one of the files beside the tests.
fn load(name: &str) -> Result<Configuration, ConfigurationError> {
    pegboard_config::load(&Path::new("tests/files").join(name), &environment)
}

/// Loads a text as a file with this name.
fn load_text(name: &str, text: &str) -> Result<Configuration, ConfigurationError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    pegboard_config::load(&path, &environment)
}

/// Summarizes a file, or its error, without the directory.
fn summarize_file(name: &str) -> String {
    let text = load(name).map_or_else(|error| error.to_string(), |configuration| summary(&configuration));
    text.replace("tests/files/good/", "").replace("tests/files/bad/", "")
}

/// Summarizes a configuration in a few lines.
fn summary(configuration: &Configuration) -> String {
    let mut lines = Vec::new();
    for source in &configuration.sources {
        lines.push(format!("{} {:?} {:?}", source.path.display(), source.format, source.dialect));
    }
    let settings = json!(configuration.settings);
    let gateway = json!(configuration.gateway);
    lines.extend(changes(&settings, &json!(RuntimeSettings::default())));
    lines.extend(changes(&gateway, &json!(GatewaySettings::default())));
    for (name, toolbox) in &configuration.toolboxes {
        lines.push(format!("{name}: {}", toolbox.description).trim_end().to_owned());
        for (name, server) in &toolbox.servers {
            lines.push(format!("  {name}: {}", server_line(server)));
        }
        for (name, tool) in &toolbox.rest_tools {
            let line = tool.unusable().map_or("usable".to_owned(), |entry| format!("({})", entry.reason()));
            lines.push(format!("  tool {name}: {line}"));
        }
        for (name, chain) in &toolbox.chains {
            lines.push(format!("  chain {name}: {} steps", chain.steps.len()));
        }
    }
    lines.extend(configuration.problems.iter().map(ConfigProblem::render));
    lines.join("\n").replace(&std::env::current_dir().unwrap().display().to_string(), "HERE")
}

fn server_line(server: &ServerEntry) -> String {
    let ServerEntry::Mcp { connection, tools } = server else {
        return format!("({})", server.unusable().unwrap().reason());
    };
    let target = match &connection.target {
        McpTarget::Program(program) => {
            let env: Vec<String> =
                program.env.iter().map(|(name, value)| format!("{name}={}", value.reveal())).collect();
            format!("{} {:?} {env:?}", program.command, program.args)
        }
        McpTarget::WebSocket(address) => format!("websocket {} {}", address.url, hidden(&address.headers)),
        McpTarget::Http(address) => format!("http {} {}", address.url, hidden(&address.headers)),
        McpTarget::Sse(address) => format!("sse {} {}", address.url, hidden(&address.headers)),
        McpTarget::Embedded => "embedded".to_owned(),
    };
    let state = if connection.is_enabled { "" } else { " (off)" };
    let changed = changes(&json!(**tools), &json!(pegboard_core::settings::ServerSettings::default()));
    format!("{target}{state} {}", changed.join(" ")).trim_end().to_owned()
}

/// Shows the names of headers, without their values.
fn hidden(headers: &IndexMap<String, Secret>) -> String {
    let headers: Vec<String> = headers.keys().map(|name| format!("{name:?}: ***")).collect();
    format!("{{{}}}", headers.join(", "))
}

/// Returns the settings that differ from the defaults.
fn changes(settings: &Value, usual: &Value) -> Vec<String> {
    let empty = Map::new();
    let settings = settings.as_object().unwrap_or(&empty);
    let differs = |(name, value): &(&String, &Value)| usual[name.as_str()] != **value;
    settings.iter().filter(differs).map(|(name, value)| format!("{name}={value}")).collect()
}
