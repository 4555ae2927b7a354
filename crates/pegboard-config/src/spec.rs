//! What somebody types to say where servers are: a file, a folder, a client, an address, or a command.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::clients::{Client, System, client, clients};
use crate::configuration::Configuration;
use crate::dialect::plain_name;
use crate::error::ConfigurationError;
use crate::find;
use crate::layers::{Layers, View, load_layers};
use crate::near::near;
use crate::survey::{Survey, survey_layers, survey_view};

/// Programs that run others: what they run is what a server is called after.
const RUNNERS: [&str; 10] =
    ["npx", "bunx", "uvx", "pipx", "node", "bun", "deno", "python", "python3", "docker"];

/// Where servers are, as somebody typed it.
///
/// ```
/// use pegboard_config::Spec;
/// # use std::path::Path;
///
/// # let folder = tempfile::tempdir()?;
/// # let folder = folder.path();
/// let Spec::Client { client, only } = Spec::parse("cursor:weather", folder)? else { panic!("no client") };
/// assert_eq!((client.title(), only.as_deref()), ("Cursor", Some("weather")));
/// assert!(matches!(Spec::parse("https://example.com/mcp", folder)?, Spec::Url(_)));
/// let refused = Spec::parse("cursr", folder).unwrap_err().to_string();
/// assert_eq!(refused, "there is no file, folder or client 'cursr'. Did you mean cursor?");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub enum Spec {
    /// A file, whoever's it is.
    File(PathBuf),
    /// A folder: our file in it, or else those that clients have in it.
    Folder(PathBuf),
    /// A client, and one of its servers if that is named.
    Client {
        /// The client.
        client: &'static Client,
        /// The only server that counts.
        only: Option<String>,
    },
    /// The address of a server.
    Url(String),
    /// The address of the description of a web service.
    Document(String),
    /// The program of a server, and its arguments.
    Command(Vec<String>),
}

/// What is known where somebody names servers.
pub struct Around<'a> {
    /// The folder that they are named in.
    pub folder: &'a Path,
    /// The variables of the environment.
    pub environment: &'a dyn Fn(&str) -> Option<String>,
    /// The system.
    pub system: System,
    /// The toolbox of what stands in none; without it, `default`.
    pub toolbox: Option<&'a str>,
}

impl Spec {
    /// What a text names. What is there in `folder` counts before the name of a client.
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
        if let Some(client) = client(word) {
            let only = only.filter(|only| !only.is_empty()).map(str::to_owned);
            return Ok(Self::Client { client, only });
        }
        if text.contains(['/', '\\']) {
            return Err(ConfigurationError::NotThere { path });
        }
        Err(ConfigurationError::Unknown { written: text.to_owned(), meant: meant(text, word, folder) })
    }

    /// Puts what is named upon the layers that there are, as something that somebody names.
    pub fn add_to(&self, layers: Layers, around: &Around<'_>) -> Result<Layers, ConfigurationError> {
        let files = self.files(around)?;
        let layers = files.into_iter().fold(layers, |layers, (file, view)| layers.part(&file, view));
        Ok(match self.value(around.toolbox) {
            Some((name, value)) => layers.value(name, value),
            None => layers,
        })
    }

    /// Looks at what is named, file by file, before anything of it is used.
    pub fn survey(&self, around: &Around<'_>) -> Result<Vec<Survey>, ConfigurationError> {
        let files = self.files(around)?;
        let mut surveys = Vec::new();
        for (file, view) in files {
            surveys.push(survey_view(&file, &view, around.environment)?);
        }
        if let Some((name, value)) = self.value(around.toolbox) {
            let path = PathBuf::from(&name);
            let layers = Layers::new(around.folder).value(name, value);
            surveys.push(survey_layers(&path, &layers, around.environment)?);
        }
        Ok(surveys)
    }

    /// The files that it is in, and what of them counts.
    fn files(&self, around: &Around<'_>) -> Result<Vec<(PathBuf, View)>, ConfigurationError> {
        let view = View { toolbox: around.toolbox.map(str::to_owned), ..View::default() };
        match self {
            Self::File(path) => Ok(vec![(path.clone(), view)]),
            Self::Folder(folder) => {
                let files = files_in(folder);
                if files.is_empty() {
                    return Err(ConfigurationError::NoneFound { folder: folder.clone() });
                }
                Ok(files.into_iter().map(|file| (file, view.clone())).collect())
            }
            Self::Client { client, only } => {
                let view = View { project: Some(absolute(around.folder)), ..view };
                files_of(client, only.as_deref(), (around, view))
            }
            Self::Url(_) | Self::Document(_) | Self::Command(_) => Ok(Vec::new()),
        }
    }

    /// What it is if it is in no file, and what that is called.
    fn value(&self, toolbox: Option<&str>) -> Option<(String, Value)> {
        // What is behind the host or the program may be a secret, and is no part of the name.
        let (name, sections) = match self {
            Self::Url(url) => (format!("the address at {}", host(url)), of_url(url)),
            Self::Document(url) => {
                let sections = json!({"openapiSpecs": {plain_name(site(url)): {"spec": literal(url)}}});
                (format!("the document at {}", host(url)), sections)
            }
            Self::Command(words) => {
                let program = words.first().map_or("nothing", String::as_str);
                (format!("the command of {program}"), of_command(words))
            }
            Self::File(_) | Self::Folder(_) | Self::Client { .. } => return None,
        };
        Some((name, placed(sections, toolbox)))
    }

    /// Every file that could say something about it, there or not.
    pub fn candidates(&self, around: &Around<'_>) -> Vec<PathBuf> {
        match self {
            Self::File(path) => vec![path.clone()],
            Self::Folder(folder) => {
                let of_clients = clients().iter().flat_map(|client| client.project_places(folder));
                find::NAMES.iter().map(|name| folder.join(name)).chain(of_clients).collect()
            }
            Self::Client { client, .. } => {
                client.places(around.environment, &absolute(around.folder), around.system)
            }
            Self::Url(_) | Self::Document(_) | Self::Command(_) => Vec::new(),
        }
    }
}

/// Reads a configuration from what somebody names.
///
/// ```
/// use pegboard_config::clients::System;
/// use pegboard_config::{Around, Spec, load_spec};
/// # use std::path::Path;
///
/// let words = ["npx", "-y", "@example/notes-server@1.2"].map(str::to_owned).to_vec();
/// let around = Around { folder: Path::new("."), environment: &|_| None, system: System::here(), toolbox: Some("dev") };
/// let configuration = load_spec(&Spec::Command(words), &around)?;
/// assert!(configuration.toolboxes["dev"].servers.contains_key("notes-server"));
/// # Ok::<(), pegboard_config::ConfigurationError>(())
/// ```
pub fn load_spec(spec: &Spec, around: &Around<'_>) -> Result<Configuration, ConfigurationError> {
    let layers = spec.add_to(Layers::new(around.folder), around)?;
    load_layers(&layers, around.environment)
}

fn absolute(folder: &Path) -> PathBuf {
    std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned())
}

/// What somebody probably meant: a client, or a file of the folder.
fn meant(text: &str, word: &str, folder: &Path) -> Option<String> {
    let names = clients()
        .iter()
        .flat_map(|client| std::iter::once(client.name()).chain(client.aliases().iter().map(String::as_str)));
    if let Some(meant) = near(word, names) {
        let rest = &text[word.len()..];
        return Some(format!("{meant}{rest}"));
    }
    // A folder may hold very many, and nobody waits for a guess.
    let files = std::fs::read_dir(folder).into_iter().flatten().take(1_000).flatten();
    let files: Vec<String> = files.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    near(text, files.iter().map(String::as_str)).map(str::to_owned)
}

/// Our file in a folder, or else those that clients have in it.
fn files_in(folder: &Path) -> Vec<PathBuf> {
    if let Some(ours) = find::first_of(folder, &find::NAMES) {
        return vec![ours];
    }
    let mut files: Vec<PathBuf> = Vec::new();
    for place in clients().iter().flat_map(|client| client.project_places(folder)) {
        if place.is_file() && !files.contains(&place) {
            files.push(place);
        }
    }
    files
}

/// The files of a client: that of the user, and upon it that of the project.
fn files_of(
    client: &Client,
    only: Option<&str>,
    (around, view): (&Around<'_>, View),
) -> Result<Vec<(PathBuf, View)>, ConfigurationError> {
    let folder = absolute(around.folder);
    let first = |places: Vec<PathBuf>| places.into_iter().find(|place| place.is_file());
    let user = first(client.user_places(around.environment, around.system));
    let files: Vec<PathBuf> = user.into_iter().chain(first(client.project_places(&folder))).collect();
    if files.is_empty() {
        let places = client.places(around.environment, &folder, around.system);
        return Err(ConfigurationError::NoClientFile { client: client.title().to_owned(), places });
    }
    let only = only.map(|only| whole_name(client, only, &files, (around, &view))).transpose()?;
    let view = View { only, ..view };
    Ok(files.into_iter().map(|file| (file, view.clone())).collect())
}

/// The name of a server of a client. It may be given as the client has it, or as we call it.
fn whole_name(
    client: &Client,
    written: &str,
    files: &[PathBuf],
    (around, view): (&Around<'_>, &View),
) -> Result<String, ConfigurationError> {
    let mut names = Vec::new();
    for file in files {
        let survey = survey_view(file, view, around.environment)?;
        names.extend(survey.parts.into_iter().map(|part| part.name));
    }
    if let Some(found) = names.iter().find(|name| *name == written || **name == plain_name(written)) {
        return Ok(found.clone());
    }
    let meant =
        near(written, names.iter().map(String::as_str)).map(|meant| format!("{}:{meant}", client.name()));
    let source_name = client.title().to_owned();
    Err(ConfigurationError::NoSuchPart { source_name, written: written.to_owned(), meant })
}

/// What stands at the root, or in the toolbox that somebody wants.
fn placed(sections: Value, toolbox: Option<&str>) -> Value {
    match toolbox {
        Some(toolbox) => json!({"toolboxes": {toolbox: sections}}),
        None => sections,
    }
}

/// The host of an address.
fn host(url: &str) -> &str {
    let (_, behind) = url.split_once("://").unwrap_or_default();
    let host = behind.split(['/', '?', '#']).next().unwrap_or_default();
    let host = host.rsplit('@').next().unwrap_or_default();
    host.split(':').next().unwrap_or_default()
}

/// The host of an address, as people call it.
fn site(url: &str) -> &str {
    host(url).trim_start_matches("www.")
}

/// Whether an address looks like that of a document.
fn is_document(url: &str) -> bool {
    let path = url.split(['?', '#']).next().unwrap_or_default().to_lowercase();
    [".json", ".yaml", ".yml"].iter().any(|ending| path.ends_with(ending))
}

/// A server at an address, called after its host and what tells it from others there.
fn of_url(url: &str) -> Value {
    let path = url.split(['?', '#']).next().unwrap_or_default();
    let steps = path.split('/').skip(3).filter(|step| !["", "mcp", "sse"].contains(step));
    let name = std::iter::once(site(url)).chain(steps).collect::<Vec<_>>().join("/");
    json!({"mcpServers": {plain_name(&name): {"url": literal(url)}}})
}

/// A server that is a program, called after what is run.
fn of_command(words: &[String]) -> Value {
    let words: Vec<String> = words.iter().map(|word| literal(word)).collect();
    let (command, args) = words.split_first().map_or(("", &[][..]), |(first, rest)| (first.as_str(), rest));
    json!({"mcpServers": {name_of(command, args): {"command": command, "args": args}}})
}

/// A text in which nothing is a variable: whoever types a command has a shell for that.
fn literal(text: &str) -> String {
    text.replace("${", "$${")
}

/// What a program is called after: itself, or what it runs.
fn name_of(command: &str, args: &[String]) -> String {
    let last = |path: &str| path.rsplit(['/', '\\']).next().unwrap_or_default().to_owned();
    let program = last(command);
    let program = program.strip_suffix(".exe").unwrap_or(&program);
    let mut words = args.iter().filter(|word| !word.starts_with('-'));
    let run = match program {
        "docker" => words.next_back(),
        _ if RUNNERS.contains(&program) => words.find(|word| !["run", "exec", "x"].contains(&word.as_str())),
        _ => None,
    };
    let Some(run) = run.map(|run| last(run)) else { return plain_name(program) };
    let run = run.split(['@', ':']).find(|part| !part.is_empty()).unwrap_or_default();
    let endings = [".js", ".mjs", ".ts", ".py"];
    plain_name(endings.iter().find_map(|ending| run.strip_suffix(ending)).unwrap_or(run))
}
