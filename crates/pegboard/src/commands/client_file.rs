//! Edits of the configuration files of clients.

use std::path::{Path, PathBuf};

use clap::Args;
use pegboard::config::clients::{KnownClient, Platform, ServerLayout, clients, find_client, suggest_client};
use pegboard::config::edit::{ConfigDocument, EditPath};
use pegboard::config::{ConfigurationError, SourceSpec};
use serde_json::Value;

use super::config_file::working_dir;
use crate::cli::{CliError, Globals};
use crate::paths;

/// Name of Pegboard's entry in the files of clients.
pub(crate) const SERVER_NAME: &str = "pegboard";

/// Selects one of a client's files.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct ClientScope {
    /// Use the client's user-level file
    #[arg(long)]
    user: bool,
    /// Use the client's project-level file
    #[arg(long, conflicts_with = "user")]
    project: bool,
}

/// Configuration file of a client.
pub(crate) struct ClientConfigFile {
    /// Content on disk; `None` if the file does not exist.
    pub(crate) old: Option<String>,
    pub(crate) document: ConfigDocument,
}

/// Finds a client by name.
pub(crate) fn require_client(name: &str) -> Result<&'static KnownClient, CliError> {
    find_client(name).ok_or_else(|| {
        let failure = CliError::not_found("unknown_client", format!("unknown client '{name}'"));
        if let Some(meant) = suggest_client(name) {
            return failure.hint(format!("did you mean {meant}?"));
        }
        let names: Vec<&str> = clients().iter().map(KnownClient::name).collect();
        failure.hint(format!("expected one of {}", names.join(", ")))
    })
}

impl ClientScope {
    /// Path of the selected file, existing or not. Defaults to the user's file, if the client has one.
    pub(crate) fn path(self, client: &KnownClient) -> Result<PathBuf, CliError> {
        let folder = working_dir()?;
        let of_project = client.project_paths(&folder);
        let of_user = client.user_paths(&paths::env_var, Platform::current());
        let places = match (self.user, self.project) {
            (true, _) => of_user,
            (_, true) => of_project,
            _ if of_user.is_empty() => of_project,
            _ => of_user,
        };
        let there = places.iter().find(|path| path.exists()).or(places.first());
        there.cloned().ok_or_else(|| {
            let (what, other) =
                if self.project { ("project-level", "--user") } else { ("user-level", "--project") };
            CliError::usage(format!("{} has no {what} file here", client.title()))
                .hint(format!("try {other}"))
        })
    }

    /// All files of a client that match the selection.
    pub(crate) fn paths(self, client: &KnownClient) -> Result<Vec<PathBuf>, CliError> {
        let folder = working_dir()?;
        let mut paths = Vec::new();
        if !self.user {
            paths.extend(client.project_paths(&folder));
        }
        if !self.project {
            paths.extend(client.user_paths(&paths::env_var, Platform::current()));
        }
        Ok(paths)
    }
}

impl ClientConfigFile {
    /// Reads a client's file, or starts a new one.
    pub(crate) fn open(client: &KnownClient, path: &Path) -> Result<Self, CliError> {
        let (old, document) = match ConfigDocument::read(path) {
            Ok(document) => (Some(document.text()), document),
            Err(ConfigurationError::NotFound { .. }) => (None, ConfigDocument::new(path, String::new())?),
            Err(error) => return Err(error.into()),
        };
        debug_assert!(old.is_some() || document.format() == client.format(), "the table knows its files");
        Ok(Self { old, document })
    }
}

/// Key path of a server in a client's file.
pub(crate) fn server_key_path(client: &KnownClient, document: &ConfigDocument, name: &str) -> EditPath {
    member_key_path(client, &servers_key(client, document), name)
}

/// Key path of a server below `servers_key`.
pub(crate) fn member_key_path(client: &KnownClient, servers_key: &[String], name: &str) -> EditPath {
    let path = EditPath::from_keys(servers_key.iter().map(String::as_str));
    match client.layout() {
        ServerLayout::Object => path.key(name),
        ServerLayout::List { .. } => path.named(name),
    }
}

/// Keys that lead to the servers in this file.
pub(crate) fn servers_key(client: &KnownClient, document: &ConfigDocument) -> Vec<String> {
    let mut keys = client.key_path().to_vec();
    // One client nests them one level deeper in newer files.
    let deeper = EditPath::from_keys(keys.iter().map(String::as_str)).key("servers");
    let is_deeper = |inside: &Value| inside.as_object().is_some_and(|entries| !entries.contains_key("type"));
    if keys == ["mcp"] && document.get(&deeper).is_some_and(is_deeper) {
        keys.push("servers".to_owned());
    }
    keys
}

/// Command that starts this program: its name if it is first on `PATH`, or else its full path.
pub(crate) fn program_command() -> Result<String, CliError> {
    let program = std::env::current_exe()
        .map_err(|error| CliError::system(format!("cannot determine the path of this program: {error}")))?;
    let file = format!("{SERVER_NAME}{}", std::env::consts::EXE_SUFFIX);
    let real = |path: &Path| path.canonicalize().ok();
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let first = std::env::split_paths(&paths).map(|folder| folder.join(&file)).find(|path| path.is_file());
    let is_own = first.is_some_and(|first| real(&first).is_some() && real(&first) == real(&program));
    Ok(if is_own { SERVER_NAME.to_owned() } else { program.display().to_string() })
}

/// Arguments with which a client starts this program, so that it serves the configuration of this command.
pub(crate) fn serve_arguments(globals: &Globals, file: Option<&Path>) -> Result<Vec<String>, CliError> {
    let mut arguments = vec!["serve".to_owned(), "--stdio".to_owned()];
    let mut name = |source: String| arguments.extend(["--config".to_owned(), source]);
    if let Some(file) = file {
        name(absolute(file)?);
    } else if globals.config.is_empty() {
        // A client may start it in any directory.
        if let Ok(path) = pegboard::config::find(&working_dir()?, &paths::env_var) {
            name(absolute(&path)?);
        }
    } else {
        for source in &globals.config {
            name(absolute_source(source)?);
        }
    }
    for setting in &globals.set {
        arguments.extend(["--set".to_owned(), setting.clone()]);
    }
    Ok(arguments)
}

/// Returns a source in a form that is valid in every directory.
fn absolute_source(source: &Path) -> Result<String, CliError> {
    match paths::source_spec(source, &working_dir()?)? {
        SourceSpec::File(path) if !path.exists() => {
            Err(CliError::from(ConfigurationError::NotFound { path }))
        }
        SourceSpec::File(path) | SourceSpec::Folder(path) => absolute(&path),
        SourceSpec::Client { .. } | SourceSpec::Url(_) | SourceSpec::Document(_) | SourceSpec::Command(_) => {
            Ok(source.display().to_string())
        }
    }
}

fn absolute(path: &Path) -> Result<String, CliError> {
    let path = std::path::absolute(path)
        .map_err(|error| CliError::system(format!("{}: {error}", path.display())))?;
    Ok(path.display().to_string())
}
