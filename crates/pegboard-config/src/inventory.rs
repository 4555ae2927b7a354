//! Inventory of a source without using it, for imports.

use std::path::{Path, PathBuf};

use pegboard_core::settings::ServerSettings;
use pegboard_core::settings::mcp::McpTarget;
use serde_json::{Map, Value as Json};

use crate::Environment;
use crate::configuration::{Configuration, ServerEntry, ToolboxConfig, UnusableEntry};
use crate::dialect::{ConfigDialect, root_names};
use crate::edit::EditPath;
use crate::error::ConfigurationError;
use crate::layers::{Layers, RawSources, SourceSelection, load_layers, read_layers};
use crate::path::{KeyPath, KeySegment};
use crate::problem::ConfigProblem;
use crate::read::field_names;
use crate::redact::redact_value;
use crate::section::{EntrySection, SECTIONS};
use crate::settings::McpServerSettings;
use crate::source::SourceText;
use crate::to_json::to_json;
use crate::tree::{Node, Span, Value};
use crate::trust::{FileAction, FileOrigin};
use crate::variables::{FileWorkspace, escaped_path, with_absolute_references};

/// Settings that distinguish two servers with the same command or URL.
pub const IDENTITY_SETTINGS: [&str; 6] =
    ["cwd", "envFile", "passEnv", "toolsAllowed", "toolsDenied", "toolFilters"];

/// Sections at the root that single items depend on.
const SHARED_SECTIONS: [&str; 3] = ["queues", "inputs", "providers"];

/// The contents of a source.
#[derive(Clone, Debug)]
pub struct Inventory {
    /// Path of the file.
    pub path: PathBuf,
    /// Dialect of the file.
    pub dialect: ConfigDialect,
    /// Items, in file order.
    pub items: Vec<InventoryItem>,
    /// Other settings of its toolboxes, such as descriptions.
    pub toolboxes: Map<String, Json>,
    /// Names of global settings in the file.
    pub settings: Vec<String>,
    /// Programs that the file starts and requests that it sends.
    pub actions: Vec<FileAction>,
    /// Problems of the file and its items.
    pub problems: Vec<ConfigProblem>,
}

/// One server, service, tool, chain or agent of a source.
#[derive(Clone, Debug)]
pub struct InventoryItem {
    /// Section of the item.
    pub section: EntrySection,
    /// Toolbox of the item, if any.
    pub toolbox: Option<String>,
    /// Name of the item.
    pub name: String,
    /// Path of the item in its file, if it is written there.
    pub key_path: Option<EditPath>,
    /// The entry in the native format, without unknown keys. Variables are not expanded, but relative paths
    /// are made absolute, so that the entry means the same elsewhere.
    pub value: Json,
    /// The entry with secrets redacted.
    pub redacted: Json,
    /// Key that identifies the item whatever its name; `None` if it has none.
    pub identity: Option<String>,
    /// Transport: `stdio`, `http`, `sse`, `websocket`, or the kind of item.
    pub transport: &'static str,
    /// Directory of the project in which the program of a server runs, unless the entry says otherwise. `None` for
    /// other entries, and for those of files that belong to no project.
    pub project_dir: Option<PathBuf>,
    /// `true` if the item is disabled.
    pub is_disabled: bool,
    /// Short reason if the item is unusable, such as `needs: GITHUB_TOKEN`.
    pub unusable_reason: Option<String>,
    /// `true` if the item would be unusable even with every variable set.
    pub is_broken: bool,
    /// All problems of the item.
    pub problems: Vec<ConfigProblem>,
    /// Entries of other sections that the item depends on.
    pub dependencies: Vec<Dependency>,
}

/// An entry that an item depends on: a queue, an input or a model provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dependency {
    /// Section of the entry: `queues`, `inputs` or `providers`.
    pub section: &'static str,
    /// Name of the entry.
    pub name: String,
    /// The entry itself.
    pub value: Json,
}

/// Takes inventory of a file. Variables are not expanded, but those missing in `environment` are reported.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("mcp.json");
/// std::fs::write(&path, r#"{"servers": {"notes": {"command": "notes-server", "args": ["${env:ROOT}"]}}}"#)?;
/// let inventory = pegboard_config::inventory::take_inventory(&path, &|_| None)?;
/// let notes = &inventory.items[0];
/// assert_eq!(notes.value["args"][0], "${env:ROOT}");
/// assert_eq!((notes.transport, notes.unusable_reason.as_deref()), ("stdio", Some("needs: ROOT")));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn take_inventory(path: &Path, environment: Environment<'_>) -> Result<Inventory, ConfigurationError> {
    inventory_selection(path, &SourceSelection::default(), environment)
}

/// Takes inventory of a part of a file, or of a file as seen from a directory.
pub fn inventory_selection(
    path: &Path,
    selection: &SourceSelection,
    environment: Environment<'_>,
) -> Result<Inventory, ConfigurationError> {
    inventory_found((path, FileOrigin::Named), selection, environment)
}

/// Same as [`inventory_selection`], for a file that may have been found rather than named.
pub(crate) fn inventory_found(
    (path, origin): (&Path, FileOrigin),
    selection: &SourceSelection,
    environment: Environment<'_>,
) -> Result<Inventory, ConfigurationError> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let layers = Layers::new(folder).part_from(origin, path, selection.clone()).assuming_secrets();
    inventory_layers(path, &layers, environment)
}

/// Takes inventory of merged layers. `path` identifies them.
pub fn inventory_layers(
    path: &Path,
    layers: &Layers,
    environment: Environment<'_>,
) -> Result<Inventory, ConfigurationError> {
    let configuration = load_layers(layers, environment)?;
    let RawSources { root, texts, sources } = read_layers(layers)?;
    let dialect = sources.first().map_or(ConfigDialect::Native, |source| source.dialect);
    let mut items = Vec::new();
    let mut toolboxes = Map::new();
    let builder = InventoryBuilder { root: &root, texts: &texts, configuration: &configuration, environment };
    builder.add_items(&root, None, &mut items);
    for toolbox in root.get("toolboxes").and_then(Node::entries).unwrap_or_default() {
        builder.add_items(&toolbox.value, Some(&toolbox.key), &mut items);
        let mut own = to_json(&toolbox.value);
        if let Json::Object(entries) = &mut own {
            entries.retain(|key, _| !SECTIONS.contains(&key.as_str()));
            toolboxes.insert(toolbox.key.clone(), own);
        }
    }
    let is_setting = |key: &&str| {
        let belongs = SECTIONS.contains(key) || SHARED_SECTIONS.contains(key);
        root_names().contains(key)
            && !belongs
            && !["$schema", "pegboard", "toolboxes", "defaults"].contains(key)
    };
    let keys = root.entries().unwrap_or_default().iter().map(|entry| entry.key.as_str());
    let settings = keys.filter(is_setting).map(str::to_owned).collect();
    Ok(Inventory {
        path: path.to_owned(),
        dialect,
        items,
        toolboxes,
        settings,
        actions: configuration.actions,
        problems: configuration.problems,
    })
}

/// Builds the inventory of a source.
struct InventoryBuilder<'f> {
    root: &'f Node,
    texts: &'f [SourceText],
    configuration: &'f Configuration,
    environment: Environment<'f>,
}

impl InventoryBuilder<'_> {
    fn add_items(&self, parent: &Node, toolbox: Option<&str>, inventory: &mut Vec<InventoryItem>) {
        for section in EntrySection::ALL {
            let Some(found) = parent.get(section.key()) else { continue };
            let named: Vec<(String, Span, &Node)> = match &found.value {
                // Native agents are a list of files; an object belongs to another program.
                Value::Map(_) if section == EntrySection::Agents => Vec::new(),
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
                inventory.push(self.item((section, toolbox), name, span, node));
            }
        }
    }

    fn item(
        &self,
        (section, toolbox): (EntrySection, Option<&str>),
        name: String,
        span: Span,
        node: &Node,
    ) -> InventoryItem {
        let mut value = native_fields(section, to_json(node));
        let dependencies = self.dependencies_of(section, &value);
        let written = self.texts.get(span.text);
        let mut project_dir = None;
        if let Some(text) = written {
            let (folder, workspace) = (&text.folder, text.workspace(self.environment));
            project_dir = self.project_dir((section, toolbox), &name, &value, &workspace);
            make_absolute(&mut value, (folder, &workspace));
            if section == EntrySection::Agents {
                make_path_absolute(&mut value, folder);
            }
        }
        let unusable = self.unusable((section, toolbox), &name);
        InventoryItem {
            section,
            toolbox: toolbox.map(str::to_owned),
            key_path: written.map(|text| match text.original_path(span) {
                Some(written) => item_path(&written),
                None => section.path(toolbox).key(&name),
            }),
            identity: identity(section, &value),
            redacted: redact_value(&value, &[section.key(), &name]),
            transport: transport(section, &value),
            project_dir,
            is_disabled: value["enabled"] == Json::Bool(false) || value["disabled"] == Json::Bool(true),
            name,
            value,
            unusable_reason: unusable.map(UnusableEntry::reason),
            is_broken: unusable.is_some_and(|entry| entry.needs.is_empty()),
            problems: unusable.map(|entry| entry.problems.clone()).unwrap_or_default(),
            dependencies,
        }
    }

    /// Returns the directory of the project that a program runs in by default.
    fn project_dir(
        &self,
        (section, toolbox): (EntrySection, Option<&str>),
        name: &str,
        value: &Json,
        workspace: &FileWorkspace,
    ) -> Option<PathBuf> {
        if section != EntrySection::Servers || value["command"].is_null() || !value["cwd"].is_null() {
            return None;
        }
        let of_project = match workspace {
            FileWorkspace::Project(folder) => Some(folder.clone()),
            FileWorkspace::Home(_) | FileWorkspace::AnyProject(_) => None,
        };
        let toolbox = self.configuration.toolboxes.get(toolbox.unwrap_or("default"));
        let ServerEntry::Mcp { connection, .. } = toolbox?.servers.get(name)? else { return of_project };
        let McpTarget::Program(program) = &connection.target else { return of_project };
        // A client's file of the user may have servers of single directories.
        program.cwd.clone().filter(|cwd| cwd != workspace.folder()).or(of_project)
    }

    fn unusable(
        &self,
        (section, toolbox): (EntrySection, Option<&str>),
        name: &str,
    ) -> Option<&UnusableEntry> {
        let toolbox = self.configuration.toolboxes.get(toolbox.unwrap_or("default"))?;
        match section {
            EntrySection::Servers => toolbox.servers.get(name)?.unusable(),
            EntrySection::OpenApiServices => {
                let beside_server = toolbox.servers.get(ToolboxConfig::service_name(name).as_str());
                beside_server.or_else(|| toolbox.servers.get(name))?.unusable()
            }
            EntrySection::RestTools => toolbox.rest_tools.get(name)?.unusable(),
            EntrySection::Chains | EntrySection::Agents => None,
        }
    }

    /// Returns the entries of other sections that an item depends on.
    fn dependencies_of(&self, section: EntrySection, value: &Json) -> Vec<Dependency> {
        let mut dependencies = Vec::new();
        for kind in SHARED_SECTIONS {
            let described = self.root.get(kind).and_then(Node::entries).unwrap_or_default();
            for entry in described {
                let is_named = match kind {
                    "queues" => names_queue(value, &entry.key),
                    "inputs" => value.to_string().contains(&format!("${{input:{}", entry.key)),
                    // The models of an agent are named in its own file.
                    _ => section == EntrySection::Agents,
                };
                if is_named {
                    let name = entry.key.clone();
                    dependencies.push(Dependency { section: kind, name, value: to_json(&entry.value) });
                }
            }
        }
        dependencies
    }
}

/// Returns the path of an item as written. A list item is addressed by its index, not by its name.
fn item_path(written: &KeyPath) -> EditPath {
    match written.segments() {
        [item @ .., KeySegment::Key(_)] if matches!(item.last(), Some(KeySegment::Index(_))) => {
            EditPath::from_segments(item)
        }
        segments => EditPath::from_segments(segments),
    }
}

/// Returns `true` if the entry references a queue, for all tools or a single one.
fn names_queue(value: &Json, queue: &str) -> bool {
    let is_match = |value: &Json| value["queue"].as_str() == Some(queue);
    is_match(value) || value["tools"].as_object().is_some_and(|tools| tools.values().any(is_match))
}

/// Removes keys that only other programs know.
fn native_fields(section: EntrySection, mut value: Json) -> Json {
    let names = field_names::<ServerSettings>();
    if let (Json::Object(entries), EntrySection::Servers) = (&mut value, section) {
        entries.retain(|key, _| {
            field_names::<McpServerSettings>().contains(&key.as_str()) || names.contains(&key.as_str())
        });
    }
    value
}

/// Makes paths relative to the file absolute.
fn make_absolute(value: &mut Json, (folder, workspace): (&Path, &FileWorkspace)) {
    match value {
        Json::String(text) => *text = with_absolute_references(text, (folder, workspace)),
        Json::Array(items) => items.iter_mut().for_each(|item| make_absolute(item, (folder, workspace))),
        Json::Object(entries) => {
            for (key, value) in entries.iter_mut().filter(|(key, _)| *key != "toolSchemas") {
                make_absolute(value, (folder, workspace));
                match key.as_str() {
                    "spec" | "envFile" => make_path_absolute(value, folder),
                    // Programs of a project run in its directory, wherever in it the client keeps its file.
                    "cwd" => make_path_absolute(value, workspace.folder()),
                    "command" if is_relative(value) => make_path_absolute(value, workspace.folder()),
                    _ => {}
                }
            }
        }
        Json::Null | Json::Bool(_) | Json::Number(_) => {}
    }
}

/// Returns `true` if the command is a relative path rather than a name in `PATH`.
fn is_relative(value: &Json) -> bool {
    value.as_str().is_some_and(|command| command.starts_with("./") || command.starts_with("../"))
}

fn make_path_absolute(value: &mut Json, folder: &Path) {
    let Json::String(path) = value else { return };
    let is_of_windows = path.as_bytes().get(1) == Some(&b':');
    if !path.contains("://") && !path.starts_with("${") && !path.starts_with('~') && !is_of_windows {
        let folder = PathBuf::from(escaped_path(folder));
        *path = folder.join(path.trim_start_matches("./")).display().to_string();
    }
}

fn text(node: &Node) -> Option<String> {
    if let Value::Text(text) = &node.value { Some(text.clone()) } else { None }
}

/// Returns the command line or the URL: two items with the same one are the same.
fn identity(section: EntrySection, value: &Json) -> Option<String> {
    let address = |key: &str| value[key].as_str().map(|url| url.trim().trim_end_matches('/').to_owned());
    match section {
        EntrySection::Servers => {
            if let Some(url) = address("url") {
                return Some(url);
            }
            let line = command_line(value);
            // As JSON, so that different argument lists never look alike.
            (!line.is_empty()).then(|| Json::from(line).to_string())
        }
        EntrySection::OpenApiServices => address("spec"),
        EntrySection::RestTools => {
            Some(format!("{} {}", value["method"].as_str().unwrap_or("GET"), address("url")?))
        }
        EntrySection::Agents => value.as_str().map(str::to_owned),
        EntrySection::Chains => None,
    }
}

/// Returns the command and the arguments of a server.
pub(crate) fn command_line(server: &Json) -> Vec<String> {
    let text = |item: &Json| item.as_str().map_or_else(|| item.to_string(), str::to_owned);
    let words = |key: &str| match &server[key] {
        Json::Array(items) => items.iter().map(text).collect(),
        Json::String(word) => vec![word.clone()],
        _ => Vec::new(),
    };
    [words("command"), words("args")].concat()
}

fn transport(section: EntrySection, value: &Json) -> &'static str {
    let kind = value["type"].as_str().or(value["transport"].as_str()).unwrap_or_default();
    let url = value["url"].as_str().unwrap_or_default();
    match (section, kind) {
        (EntrySection::OpenApiServices, _) => "openapi",
        (EntrySection::RestTools, _) => "rest",
        (EntrySection::Chains, _) => "chain",
        (EntrySection::Agents, _) => "agent",
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
