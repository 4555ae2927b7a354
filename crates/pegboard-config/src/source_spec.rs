//! Source arguments of the command line: a file, a directory, a client, a URL, or a command.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::Environment;
use crate::clients::{KnownClient, Platform, clients, find_client};
use crate::configuration::Configuration;
use crate::dialect::sanitize_name;
use crate::error::ConfigurationError;
use crate::find;
use crate::inventory::{Inventory, inventory_found, inventory_layers, inventory_selection};
use crate::layers::{Layers, SourceSelection, load_layers};
use crate::suggest;
use crate::trust::FileOrigin;

/// Launchers: a server is named after the program that they run.
const RUNNERS: [&str; 10] =
    ["npx", "bunx", "uvx", "pipx", "node", "bun", "deno", "python", "python3", "docker"];

/// A source of servers, as given on the command line.
///
/// ```
/// use pegboard_config::SourceSpec;
/// # use std::path::Path;
///
/// # let folder = tempfile::tempdir()?;
/// # let folder = folder.path();
/// let SourceSpec::Client { client, only } = SourceSpec::parse("cursor:weather", folder)? else { panic!("no client") };
/// assert_eq!((client.title(), only.as_deref()), ("Cursor", Some("weather")));
/// assert!(matches!(SourceSpec::parse("https://example.com/mcp", folder)?, SourceSpec::Url(_)));
/// let error = SourceSpec::parse("cursr", folder).unwrap_err().to_string();
/// assert_eq!(error, "no file, directory or client named 'cursr'. Did you mean cursor?");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub enum SourceSpec {
    /// A file in any dialect.
    File(PathBuf),
    /// A directory: its native file, or else the files of clients in it.
    Folder(PathBuf),
    /// A client, and optionally one of its servers.
    Client {
        /// The client.
        client: &'static KnownClient,
        /// Name of the only server to use.
        only: Option<String>,
    },
    /// URL of a server.
    Url(String),
    /// URL of an OpenAPI document.
    Document(String),
    /// Command of a server with its arguments.
    Command(Vec<String>),
}

/// Context in which a source is resolved.
pub struct SpecContext<'a> {
    /// Current directory.
    pub folder: &'a Path,
    /// Environment variables.
    pub environment: Environment<'a>,
    /// Platform.
    pub platform: Platform,
    /// Toolbox of entries that are in none; `default` if `None`.
    pub toolbox: Option<&'a str>,
}

impl SourceSpec {
    /// Parses a source. Existing files in `folder` take precedence over names of clients.
    pub fn parse(text: &str, folder: &Path) -> Result<Self, ConfigurationError> {
        if ["http://", "https://", "ws://", "wss://"].iter().any(|scheme| text.starts_with(scheme)) {
            let url = text.to_owned();
            return Ok(if is_document(text) { Self::Document(url) } else { Self::Url(url) });
        }
        let path = folder.join(text);
        if path.is_dir() {
            return Ok(Self::Folder(path));
        }
        if path.exists() {
            return Ok(Self::File(path));
        }
        let (word, only) = text.split_once(':').map_or((text, None), |(word, only)| (word, Some(only)));
        if let Some(client) = find_client(word) {
            let only = only.filter(|only| !only.is_empty()).map(str::to_owned);
            return Ok(Self::Client { client, only });
        }
        if text.contains(['/', '\\']) {
            return Err(ConfigurationError::NotFound { path });
        }
        Err(ConfigurationError::UnknownSource {
            written: text.to_owned(),
            suggestion: suggestion(text, word, folder),
        })
    }

    /// Adds the source on top of the layers, with the priority of a named file.
    pub fn add_to(&self, layers: Layers, context: &SpecContext<'_>) -> Result<Layers, ConfigurationError> {
        let files = self.files(context)?;
        let layers = files.into_iter().fold(layers, |layers, SpecFile { path, origin, selection }| {
            layers.part_from(origin, &path, selection)
        });
        Ok(match self.value(context.toolbox) {
            Some((name, value)) => layers.value(name, value),
            None => layers,
        })
    }

    /// Takes inventory of the source, file by file, without using anything of it.
    pub fn inventory(&self, context: &SpecContext<'_>) -> Result<Vec<Inventory>, ConfigurationError> {
        let files = self.files(context)?;
        let mut inventories = Vec::new();
        for SpecFile { path, origin, selection } in files {
            inventories.push(inventory_found((&path, origin), &selection, context.environment)?);
        }
        if let Some((name, value)) = self.value(context.toolbox) {
            let path = PathBuf::from(&name);
            let layers = Layers::new(context.folder).value(name, value);
            inventories.push(inventory_layers(&path, &layers, context.environment)?);
        }
        Ok(inventories)
    }

    /// Returns the files of the source with the part of each to use.
    fn files(&self, context: &SpecContext<'_>) -> Result<Vec<SpecFile>, ConfigurationError> {
        let selection =
            SourceSelection { toolbox: context.toolbox.map(str::to_owned), ..SourceSelection::default() };
        match self {
            Self::File(path) => {
                Ok(vec![SpecFile { path: path.clone(), origin: FileOrigin::Named, selection }])
            }
            Self::Folder(folder) => {
                let files = folder_files(folder);
                if files.is_empty() {
                    return Err(ConfigurationError::NoConfiguration { folder: folder.clone() });
                }
                // The user named the directory, and not what is in it.
                let file =
                    |path| SpecFile { path, origin: FileOrigin::Project, selection: selection.clone() };
                Ok(files.into_iter().map(file).collect())
            }
            Self::Client { client, only } => {
                let selection = SourceSelection { project: Some(absolute(context.folder)), ..selection };
                client_files(client, only.as_deref(), (context, selection))
            }
            Self::Url(_) | Self::Document(_) | Self::Command(_) => Ok(Vec::new()),
        }
    }

    /// Returns the native value of a source that is not a file, with its display name.
    fn value(&self, toolbox: Option<&str>) -> Option<(String, Value)> {
        // The rest of the URL or command may be a secret and is not part of the name.
        let (name, sections) = match self {
            Self::Url(url) => (format!("the address at {}", host_name(url)), url_sections(url)),
            Self::Document(url) => {
                let sections =
                    json!({"openapiSpecs": {sanitize_name(site_name(url)): {"spec": escape_variables(url)}}});
                (format!("the document at {}", host_name(url)), sections)
            }
            Self::Command(command) => {
                let program = command.first().map_or("nothing", String::as_str);
                (format!("the command of {program}"), command_sections(command))
            }
            Self::File(_) | Self::Folder(_) | Self::Client { .. } => return None,
        };
        Some((name, in_toolbox(sections, toolbox)))
    }

    /// Returns every file that could belong to the source, whether it exists or not.
    pub fn candidates(&self, context: &SpecContext<'_>) -> Vec<PathBuf> {
        match self {
            Self::File(path) => vec![path.clone()],
            Self::Folder(folder) => {
                let of_clients = clients().iter().flat_map(|client| client.project_paths(folder));
                find::FILE_NAMES.iter().map(|name| folder.join(name)).chain(of_clients).collect()
            }
            Self::Client { client, .. } => {
                client.config_paths(context.environment, &absolute(context.folder), context.platform)
            }
            Self::Url(_) | Self::Document(_) | Self::Command(_) => Vec::new(),
        }
    }
}

/// A file of a source.
struct SpecFile {
    path: PathBuf,
    origin: FileOrigin,
    selection: SourceSelection,
}

/// Loads a configuration from a single source.
///
/// ```
/// use pegboard_config::clients::Platform;
/// use pegboard_config::{SpecContext, SourceSpec, load_spec};
/// # use std::path::Path;
///
/// let command = ["npx", "-y", "@example/notes-server@1.2"].map(str::to_owned).to_vec();
/// let context = SpecContext { folder: Path::new("."), environment: &|_| None, platform: Platform::current(), toolbox: Some("dev") };
/// let configuration = load_spec(&SourceSpec::Command(command), &context)?;
/// assert!(configuration.toolboxes["dev"].servers.contains_key("notes-server"));
/// # Ok::<(), pegboard_config::ConfigurationError>(())
/// ```
pub fn load_spec(spec: &SourceSpec, context: &SpecContext<'_>) -> Result<Configuration, ConfigurationError> {
    let layers = spec.add_to(Layers::new(context.folder), context)?;
    load_layers(&layers.assuming_secrets(), context.environment)
}

fn absolute(folder: &Path) -> PathBuf {
    std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned())
}

/// Returns the most similar client or file in the directory.
fn suggestion(text: &str, word: &str, folder: &Path) -> Option<String> {
    let names = clients()
        .iter()
        .flat_map(|client| std::iter::once(client.name()).chain(client.aliases().iter().map(String::as_str)));
    if let Some(suggestion) = suggest(word, names) {
        let rest = &text[word.len()..];
        return Some(format!("{suggestion}{rest}"));
    }
    // The directory may be very large.
    let files = std::fs::read_dir(folder).into_iter().flatten().take(1_000).flatten();
    let files: Vec<String> = files.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    suggest(text, files.iter().map(String::as_str)).map(str::to_owned)
}

/// Returns the native file of a directory, or else the files of clients in it.
fn folder_files(folder: &Path) -> Vec<PathBuf> {
    if let Some(native) = find::first_existing(folder, &find::FILE_NAMES) {
        return vec![native];
    }
    let mut files: Vec<PathBuf> = Vec::new();
    for path in clients().iter().flat_map(|client| client.project_paths(folder)) {
        if path.is_file() && !files.contains(&path) {
            files.push(path);
        }
    }
    files
}

/// Returns the files of a client: the user's, and on top of it the project's.
fn client_files(
    client: &KnownClient,
    only: Option<&str>,
    (context, selection): (&SpecContext<'_>, SourceSelection),
) -> Result<Vec<SpecFile>, ConfigurationError> {
    let folder = absolute(context.folder);
    let files = client.existing_files(&SpecContext { folder: &folder, ..*context });

    if files.is_empty() {
        let paths = client.config_paths(context.environment, &folder, context.platform);
        return Err(ConfigurationError::NoClientFile { client: client.title().to_owned(), paths });
    }
    let only =
        only.map(|only| resolve_server_name(client, only, &files, (context, &selection))).transpose()?;
    let selection = SourceSelection { only, ..selection };
    let file = |path: PathBuf| SpecFile {
        origin: client.origin_of(&path, context),
        path,
        selection: selection.clone(),
    };
    Ok(files.into_iter().map(file).collect())
}

/// Returns the sanitized name of a client's server. The original name is accepted, too.
fn resolve_server_name(
    client: &KnownClient,
    written: &str,
    files: &[PathBuf],
    (context, selection): (&SpecContext<'_>, &SourceSelection),
) -> Result<String, ConfigurationError> {
    let mut names = Vec::new();
    for file in files {
        let inventory = inventory_selection(file, selection, context.environment)?;
        names.extend(inventory.items.into_iter().map(|part| part.name));
    }
    if let Some(found) = names.iter().find(|name| *name == written || **name == sanitize_name(written)) {
        return Ok(found.clone());
    }
    let suggestion = suggest(written, names.iter().map(String::as_str))
        .map(|suggestion| format!("{}:{suggestion}", client.name()));
    let source_name = client.title().to_owned();
    Err(ConfigurationError::NoSuchServer { source_name, written: written.to_owned(), suggestion })
}

/// Puts sections at the root or into a toolbox.
fn in_toolbox(sections: Value, toolbox: Option<&str>) -> Value {
    match toolbox {
        Some(toolbox) => json!({"toolboxes": {toolbox: sections}}),
        None => sections,
    }
}

/// Returns the host of a URL.
fn host_name(url: &str) -> &str {
    let (_, behind) = url.split_once("://").unwrap_or_default();
    let authority = behind.split(['/', '?', '#']).next().unwrap_or_default();
    let authority = authority.rsplit('@').next().unwrap_or_default();
    authority.split(':').next().unwrap_or_default()
}

/// Returns the host of a URL without `www.`.
fn site_name(url: &str) -> &str {
    host_name(url).trim_start_matches("www.")
}

/// Returns `true` if the URL looks like that of a document.
fn is_document(url: &str) -> bool {
    let path = url.split(['?', '#']).next().unwrap_or_default().to_lowercase();
    [".json", ".yaml", ".yml"].iter().any(|ending| path.ends_with(ending))
}

/// Creates a server for a URL, named after its host and path.
fn url_sections(url: &str) -> Value {
    let path = url.split(['?', '#']).next().unwrap_or_default();
    let segments = path.split('/').skip(3).filter(|segment| !["", "mcp", "sse"].contains(segment));
    let name = std::iter::once(site_name(url)).chain(segments).collect::<Vec<_>>().join("/");
    json!({"mcpServers": {sanitize_name(&name): {"url": escape_variables(url)}}})
}

/// Creates a server for a command, named after the program it runs.
fn command_sections(command: &[String]) -> Value {
    let escaped: Vec<String> = command.iter().map(|word| escape_variables(word)).collect();
    let (command, args) = escaped.split_first().map_or(("", &[][..]), |(first, rest)| (first.as_str(), rest));
    json!({"mcpServers": {server_name_for(command, args): {"command": command, "args": args}}})
}

/// Escapes variable references: the shell has expanded variables already.
fn escape_variables(text: &str) -> String {
    text.replace("${", "$${")
}

/// Returns the server name for a command: the program itself, or the one that it runs.
fn server_name_for(command: &str, args: &[String]) -> String {
    let last = |path: &str| path.rsplit(['/', '\\']).next().unwrap_or_default().to_owned();
    let program = last(command);
    let program = program.strip_suffix(".exe").unwrap_or(&program);
    let mut positional = args.iter().filter(|word| !word.starts_with('-'));
    let run = match program {
        "docker" => positional.next_back(),
        _ if RUNNERS.contains(&program) => {
            positional.find(|word| !["run", "exec", "x"].contains(&word.as_str()))
        }
        _ => None,
    };
    let Some(run) = run.map(|run| last(run)) else { return sanitize_name(program) };
    let run = run.split(['@', ':']).find(|part| !part.is_empty()).unwrap_or_default();
    let endings = [".js", ".mjs", ".ts", ".py"];
    sanitize_name(endings.iter().find_map(|ending| run.strip_suffix(ending)).unwrap_or(run))
}
