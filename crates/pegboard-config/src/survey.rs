//! What a file names, before anything of it is used: for whoever takes over what others have.

use std::path::{Path, PathBuf};

use pegboard_core::settings::ServerSettings;
use pegboard_core::settings::mcp::McpServerSettings;
use serde_json::Value as Json;

use crate::configuration::{Configuration, RestEntry, Server};
use crate::dialect::Dialect;
use crate::error::ConfigurationError;
use crate::layers::{Layers, View, load_layers, tree_of};
use crate::plain::plain;
use crate::problem::Problem;
use crate::read::field_names;
use crate::tree::{Node, Value};
use crate::variables::anchored;

/// What a file names.
#[derive(Clone, Debug)]
pub struct Survey {
    /// The file.
    pub path: PathBuf,
    /// Whose words it uses.
    pub dialect: Dialect,
    /// What it names, in the order of the file.
    pub parts: Vec<FoundPart>,
    /// What is worth saying about it, and about its parts.
    pub problems: Vec<Problem>,
}

/// One thing that a file names.
#[derive(Clone, Debug)]
pub struct FoundPart {
    /// What kind of thing it is, as our files call it: `mcpServers`, `openapiSpecs`, `restTools`, `chains` or `agents`.
    pub section: &'static str,
    /// The toolbox it is in, if it is in one.
    pub toolbox: Option<String>,
    /// What it is called.
    pub name: String,
    /// Its description in our own words, and nothing else. Variables are as they were written, but what begins in the folder of the file is
    /// written out, so that it means the same elsewhere.
    pub value: Json,
    /// What tells it from others, whatever it is called; `None` if nothing does.
    pub identity: Option<String>,
    /// How it is reached: `stdio`, `http`, `sse`, `websocket`, or what else it is.
    pub transport: &'static str,
    /// Whether it is switched off.
    pub is_off: bool,
    /// Why it cannot be used, in a few words: `needs: GITHUB_TOKEN`.
    pub obstacle: Option<String>,
    /// All that is wrong with it.
    pub problems: Vec<Problem>,
}

/// Looks at what a file names. Variables are not filled in, but what is missing in `environment` is told.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("mcp.json");
/// std::fs::write(&path, r#"{"servers": {"notes": {"command": "notes-server", "args": ["${env:ROOT}"]}}}"#)?;
/// let survey = pegboard_config::survey::survey(&path, &|_| None)?;
/// let notes = &survey.parts[0];
/// assert_eq!(notes.value["args"][0], "${env:ROOT}");
/// assert_eq!((notes.transport, notes.obstacle.as_deref()), ("stdio", Some("needs: ROOT")));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn survey(
    path: &Path,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<Survey, ConfigurationError> {
    survey_view(path, &View::default(), environment)
}

/// The same for a part of a file, or for a file as it is seen from a folder.
pub fn survey_view(
    path: &Path,
    view: &View,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<Survey, ConfigurationError> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let layers = Layers::new(folder).part(path, view.clone());
    let configuration = load_layers(&layers, environment)?;
    let (root, sources) = tree_of(&layers)?;
    let dialect = sources.first().map_or(Dialect::Native, |source| source.dialect);
    let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    let mut parts = Vec::new();
    add_parts(&root, None, &configuration, &mut parts);
    for toolbox in root.get("toolboxes").and_then(Node::entries).unwrap_or_default() {
        add_parts(&toolbox.value, Some(&toolbox.key), &configuration, &mut parts);
    }
    for part in &mut parts {
        anchor(&mut part.value, &folder);
        if part.section == "agents" {
            anchor_path(&mut part.value, &folder);
        }
        part.identity = identity(part.section, &part.value);
    }
    Ok(Survey { path: path.to_owned(), dialect, parts, problems: configuration.problems })
}

fn add_parts(
    parent: &Node,
    toolbox: Option<&str>,
    configuration: &Configuration,
    parts: &mut Vec<FoundPart>,
) {
    for section in ["mcpServers", "openapiSpecs", "restTools", "chains", "agents"] {
        let Some(found) = parent.get(section) else { continue };
        let named: Vec<(String, &Node)> = match &found.value {
            Value::Map(entries) => entries.iter().map(|entry| (entry.key.clone(), &entry.value)).collect(),
            Value::List(items) => items.iter().filter_map(|item| Some((text(item)?, item))).collect(),
            Value::Text(name) => vec![(name.clone(), found)],
            Value::Null | Value::Bool(_) | Value::Number(_) => Vec::new(),
        };
        for (name, node) in named {
            let value = known(section, plain(node));
            let (obstacle, problems) = obstacle(configuration, (section, toolbox), &name);
            parts.push(FoundPart {
                section,
                toolbox: toolbox.map(str::to_owned),
                identity: None,
                transport: transport(section, &value),
                is_off: value["enabled"] == Json::Bool(false) || value["disabled"] == Json::Bool(true),
                name,
                value,
                obstacle,
                problems,
            });
        }
    }
}

/// A description without what only other programs know.
fn known(section: &str, mut value: Json) -> Json {
    let names = field_names::<ServerSettings>();
    if let (Json::Object(entries), "mcpServers") = (&mut value, section) {
        entries.retain(|key, _| {
            McpServerSettings::FIELDS.contains(&key.as_str()) || names.contains(&key.as_str())
        });
    }
    value
}

/// Writes out what begins in the folder of the file.
fn anchor(value: &mut Json, folder: &Path) {
    match value {
        Json::String(text) => *text = anchored(text, folder),
        Json::Array(items) => items.iter_mut().for_each(|item| anchor(item, folder)),
        Json::Object(entries) => {
            for (key, value) in entries.iter_mut().filter(|(key, _)| *key != "toolSchemas") {
                anchor(value, folder);
                if key == "spec" || key == "envFile" {
                    anchor_path(value, folder);
                }
            }
        }
        Json::Null | Json::Bool(_) | Json::Number(_) => {}
    }
}

fn anchor_path(value: &mut Json, folder: &Path) {
    let Json::String(path) = value else { return };
    if !path.contains("://") && !path.starts_with("${") {
        *path = folder.join(path.trim_start_matches("./")).display().to_string();
    }
}

fn text(node: &Node) -> Option<String> {
    if let Value::Text(text) = &node.value { Some(text.clone()) } else { None }
}

fn obstacle(
    configuration: &Configuration,
    (section, toolbox): (&str, Option<&str>),
    name: &str,
) -> (Option<String>, Vec<Problem>) {
    let toolbox = configuration.toolboxes.get(toolbox.unwrap_or("default"));
    match section {
        "mcpServers" | "openapiSpecs" => match toolbox.and_then(|toolbox| toolbox.servers.get(name)) {
            Some(server @ Server::Unusable { problems, .. }) => (server.obstacle(), problems.clone()),
            Some(Server::Mcp { .. } | Server::OpenApi { .. }) | None => (None, Vec::new()),
        },
        "restTools" => match toolbox.and_then(|toolbox| toolbox.rest_tools.get(name)) {
            Some(tool @ RestEntry::Unusable { problems, .. }) => (tool.obstacle(), problems.clone()),
            Some(RestEntry::Usable { .. }) | None => (None, Vec::new()),
        },
        _ => (None, Vec::new()),
    }
}

/// The words of a program, or the address: two of the same are one thing.
fn identity(section: &str, value: &Json) -> Option<String> {
    let address = |key: &str| value[key].as_str().map(|url| url.trim().trim_end_matches('/').to_owned());
    match section {
        "mcpServers" => {
            if let Some(url) = address("url") {
                return Some(url);
            }
            let words = |value: &Json| match value {
                Json::Array(items) => items
                    .iter()
                    .map(|item| item.as_str().map_or_else(|| item.to_string(), str::to_owned))
                    .collect(),
                Json::String(word) => vec![word.clone()],
                _ => Vec::new(),
            };
            let line: Vec<String> =
                words(&value["command"]).into_iter().chain(words(&value["args"])).collect();
            // With its quotes, so that no two lists of words look alike.
            (!line.is_empty()).then(|| Json::from(line).to_string())
        }
        "openapiSpecs" => address("spec"),
        "restTools" => Some(format!("{} {}", value["method"].as_str().unwrap_or("GET"), address("url")?)),
        "agents" => value.as_str().map(str::to_owned),
        _ => None,
    }
}

fn transport(section: &str, value: &Json) -> &'static str {
    let kind = value["type"].as_str().or(value["transport"].as_str()).unwrap_or_default();
    let url = value["url"].as_str().unwrap_or_default();
    match (section, kind) {
        ("openapiSpecs", _) => "openapi",
        ("restTools", _) => "rest",
        ("chains", _) => "chain",
        ("agents", _) => "agent",
        (_, "stdio" | "local") => "stdio",
        (_, "sse") => "sse",
        (_, "ws" | "websocket") => "websocket",
        (_, "http" | "streamable-http" | "streamableHttp" | "streamable_http") => "http",
        (_, _) if url.starts_with("ws://") || url.starts_with("wss://") => "websocket",
        (_, _) if url.contains("/sse") => "sse",
        (_, _) if !url.is_empty() => "http",
        (_, _) => "stdio",
    }
}
