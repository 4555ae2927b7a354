//! What a file names, before anything of it is used: for whoever takes over what others have.

use std::path::{Path, PathBuf};

use pegboard_core::settings::ServerSettings;
use pegboard_core::settings::mcp::McpServerSettings;
use serde_json::{Map, Value as Json};

use crate::configuration::{Configuration, RestEntry, Server};
use crate::dialect::native::SECTIONS;
use crate::dialect::{Dialect, root_names};
use crate::edit::Way;
use crate::error::ConfigurationError;
use crate::layers::{Layers, Read, View, load_layers, read_layers};
use crate::mask::masked;
use crate::path::{Path as Places, Step};
use crate::plain::plain;
use crate::problem::Problem;
use crate::read::field_names;
use crate::source::Text;
use crate::tree::{Node, Span, Value};
use crate::variables::{anchored, workspace_of};

/// What makes two servers of the same program or address two servers, if it differs.
pub const TELLING: [&str; 6] = ["cwd", "envFile", "passEnv", "toolsAllowed", "toolsDenied", "toolFilters"];

/// What stands at the root for the sake of single parts.
const BESIDE: [&str; 3] = ["queues", "inputs", "providers"];

/// What a file names.
#[derive(Clone, Debug)]
pub struct Survey {
    /// The file.
    pub path: PathBuf,
    /// Whose words it uses.
    pub dialect: Dialect,
    /// What it names, in the order of the file.
    pub parts: Vec<FoundPart>,
    /// What its toolboxes say of themselves, such as their descriptions.
    pub toolboxes: Map<String, Json>,
    /// The settings in it that hold for the whole, and belong to no part.
    pub settings: Vec<String>,
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
    /// The way to it in its file, if it stands there by itself.
    pub way: Option<Way>,
    /// Its description in our own words, and nothing else. Variables are as they were written, but what begins in the folder of the file is
    /// written out, so that it means the same elsewhere.
    pub value: Json,
    /// The same, without what nobody should see.
    pub masked: Json,
    /// What tells it from others, whatever it is called; `None` if nothing does.
    pub identity: Option<String>,
    /// How it is reached: `stdio`, `http`, `sse`, `websocket`, or what else it is.
    pub transport: &'static str,
    /// Whether it is switched off.
    pub is_off: bool,
    /// Why it cannot be used, in a few words: `needs: GITHUB_TOKEN`.
    pub obstacle: Option<String>,
    /// Whether it could not be used even if every variable were set.
    pub is_broken: bool,
    /// All that is wrong with it.
    pub problems: Vec<Problem>,
    /// What it names elsewhere in its file and is nothing without.
    pub beside: Vec<Beside>,
}

/// Something that a part names: a queue, what a person is asked for, or a provider of models.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beside {
    /// The setting that it stands under: `queues`, `inputs` or `providers`.
    pub section: &'static str,
    /// What it is called.
    pub name: String,
    /// Its description.
    pub value: Json,
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
    survey_layers(path, &Layers::new(folder).part(path, view.clone()), environment)
}

/// The same for what several sources come to. `path` is what that is called.
pub fn survey_layers(
    path: &Path,
    layers: &Layers,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<Survey, ConfigurationError> {
    let configuration = load_layers(layers, environment)?;
    let Read { root, texts, sources } = read_layers(layers)?;
    let dialect = sources.first().map_or(Dialect::Native, |source| source.dialect);
    let mut parts = Vec::new();
    let mut toolboxes = Map::new();
    let found = Found { root: &root, texts: &texts, configuration: &configuration };
    found.add_parts(&root, None, &mut parts);
    for toolbox in root.get("toolboxes").and_then(Node::entries).unwrap_or_default() {
        found.add_parts(&toolbox.value, Some(&toolbox.key), &mut parts);
        let mut own = plain(&toolbox.value);
        if let Json::Object(entries) = &mut own {
            entries.retain(|key, _| !SECTIONS.contains(&key.as_str()));
            toolboxes.insert(toolbox.key.clone(), own);
        }
    }
    let is_setting = |key: &&str| {
        let belongs = SECTIONS.contains(key) || BESIDE.contains(key);
        root_names().contains(key)
            && !belongs
            && !["$schema", "pegboard", "toolboxes", "defaults"].contains(key)
    };
    let keys = root.entries().unwrap_or_default().iter().map(|entry| entry.key.as_str());
    let settings = keys.filter(is_setting).map(str::to_owned).collect();
    Ok(Survey {
        path: path.to_owned(),
        dialect,
        parts,
        toolboxes,
        settings,
        problems: configuration.problems,
    })
}

/// What was found in a file.
struct Found<'f> {
    root: &'f Node,
    texts: &'f [Text],
    configuration: &'f Configuration,
}

impl Found<'_> {
    fn add_parts(&self, parent: &Node, toolbox: Option<&str>, parts: &mut Vec<FoundPart>) {
        for section in SECTIONS {
            let Some(found) = parent.get(section) else { continue };
            let named: Vec<(String, Span, &Node)> = match &found.value {
                // Agents are a list of files, and an object of them is somebody else's.
                Value::Map(_) if section == "agents" => Vec::new(),
                Value::Map(entries) => {
                    entries.iter().map(|entry| (entry.key.clone(), entry.key_span, &entry.value)).collect()
                }
                Value::List(items) => {
                    items.iter().filter_map(|item| Some((text(item)?, item.span, item))).collect()
                }
                Value::Text(name) => vec![(name.clone(), found.span, found)],
                Value::Null | Value::Bool(_) | Value::Number(_) => Vec::new(),
            };
            for (name, span, node) in named {
                parts.push(self.part((section, toolbox), name, span, node));
            }
        }
    }

    fn part(
        &self,
        (section, toolbox): (&'static str, Option<&str>),
        name: String,
        span: Span,
        node: &Node,
    ) -> FoundPart {
        let mut value = known(section, plain(node));
        let beside = self.beside(section, &value);
        let written = self.texts.get(span.text);
        if let Some(folder) = written.map(|text| &text.folder) {
            anchor(&mut value, folder);
            if section == "agents" {
                anchor_path(&mut value, folder);
            }
        }
        let Fault { obstacle, is_broken, problems } =
            fault(self.configuration, (section, toolbox), &name).unwrap_or_default();
        FoundPart {
            section,
            toolbox: toolbox.map(str::to_owned),
            way: written.map(|text| way((section, toolbox), &name, text.written_way(span))),
            identity: identity(section, &value),
            masked: masked(&value, &[section, &name]),
            transport: transport(section, &value),
            is_off: value["enabled"] == Json::Bool(false) || value["disabled"] == Json::Bool(true),
            name,
            value,
            obstacle,
            is_broken,
            problems,
            beside,
        }
    }

    /// What a part names elsewhere in the file.
    fn beside(&self, section: &str, value: &Json) -> Vec<Beside> {
        let mut beside = Vec::new();
        for kind in BESIDE {
            let described = self.root.get(kind).and_then(Node::entries).unwrap_or_default();
            for entry in described {
                let is_named = match kind {
                    "queues" => names_queue(value, &entry.key),
                    "inputs" => value.to_string().contains(&format!("${{input:{}", entry.key)),
                    // What models an agent thinks with is in its own file.
                    _ => section == "agents",
                };
                if is_named {
                    let name = entry.key.clone();
                    beside.push(Beside { section: kind, name, value: plain(&entry.value) });
                }
            }
        }
        beside
    }
}

/// The way to a part: as it was written, or as we would write it if that is the same.
fn way((section, toolbox): (&str, Option<&str>), name: &str, written: Option<Places>) -> Way {
    let Some(written) = written else {
        let toolbox = toolbox.map(|toolbox| ["toolboxes", toolbox]);
        return Way::to(toolbox.into_iter().flatten().chain([section, name]));
    };
    match written.steps() {
        // In a list it is known by the name that is in it.
        [item @ .., Step::Key(_)] if matches!(item.last(), Some(Step::Index(_))) => Way::along(item),
        steps => Way::along(steps),
    }
}

/// Whether a queue is named, for all tools or for one.
fn names_queue(value: &Json, queue: &str) -> bool {
    let is_it = |value: &Json| value["queue"].as_str() == Some(queue);
    is_it(value) || value["tools"].as_object().is_some_and(|tools| tools.values().any(is_it))
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
                match key.as_str() {
                    "spec" | "envFile" => anchor_path(value, folder),
                    // Programs of a project run in its folder, wherever in it the client has its file.
                    "cwd" => anchor_path(value, workspace_of(folder)),
                    "command" if is_relative(value) => anchor_path(value, workspace_of(folder)),
                    _ => {}
                }
            }
        }
        Json::Null | Json::Bool(_) | Json::Number(_) => {}
    }
}

/// Whether a command names a file by the way from where it is started, and no program that is looked for.
fn is_relative(value: &Json) -> bool {
    value.as_str().is_some_and(|command| command.starts_with("./") || command.starts_with("../"))
}

fn anchor_path(value: &mut Json, folder: &Path) {
    let Json::String(path) = value else { return };
    let is_of_windows = path.as_bytes().get(1) == Some(&b':');
    if !path.contains("://") && !path.starts_with("${") && !path.starts_with('~') && !is_of_windows {
        *path = folder.join(path.trim_start_matches("./")).display().to_string();
    }
}

fn text(node: &Node) -> Option<String> {
    if let Value::Text(text) = &node.value { Some(text.clone()) } else { None }
}

/// Why a part cannot be used.
#[derive(Default)]
struct Fault {
    obstacle: Option<String>,
    is_broken: bool,
    problems: Vec<Problem>,
}

fn fault(
    configuration: &Configuration,
    (section, toolbox): (&str, Option<&str>),
    name: &str,
) -> Option<Fault> {
    let toolbox = configuration.toolboxes.get(toolbox.unwrap_or("default"))?;
    let (obstacle, needs, problems) = match section {
        "mcpServers" | "openapiSpecs" => match toolbox.servers.get(name)? {
            server @ Server::Unusable { needs, problems } => (server.obstacle(), needs, problems),
            Server::Mcp { .. } | Server::OpenApi { .. } => return None,
        },
        "restTools" => match toolbox.rest_tools.get(name)? {
            tool @ RestEntry::Unusable { needs, problems } => (tool.obstacle(), needs, problems),
            RestEntry::Usable { .. } => return None,
        },
        _ => return None,
    };
    Some(Fault { obstacle, is_broken: needs.is_empty(), problems: problems.clone() })
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
