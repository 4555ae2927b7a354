//! The files of clients, as commands change them.

use std::path::{Path, PathBuf};

use clap::Args;
use pegboard::config::clients::{Client, Layout, System, client, clients, near_client};
use pegboard::config::edit::{Document, Way};
use pegboard::config::{ConfigurationError, Spec};
use serde_json::Value;

use super::own_file::here;
use crate::cli::{Failure, Globals};
use crate::place;

/// What we are called in the files of clients.
pub(crate) const OWN_NAME: &str = "pegboard";

/// Which of a client's files is meant.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct Scope {
    /// The client's file of this user
    #[arg(long)]
    user: bool,
    /// The client's file of this folder
    #[arg(long, conflicts_with = "user")]
    project: bool,
}

/// A file of a client.
pub(crate) struct ClientFile {
    /// What it says on disk; `None` if there is none.
    pub(crate) old: Option<String>,
    pub(crate) document: Document,
}

/// The client of a name.
pub(crate) fn known(name: &str) -> Result<&'static Client, Failure> {
    client(name).ok_or_else(|| {
        let failure = Failure::not_found("unknown_client", format!("there is no client '{name}'"));
        if let Some(meant) = near_client(name) {
            return failure.hint(format!("did you mean {meant}?"));
        }
        let names: Vec<&str> = clients().iter().map(Client::name).collect();
        failure.hint(format!("there are {}", names.join(", ")))
    })
}

impl Scope {
    /// The file of a client that is meant, there or not: that of the user, unless it is said otherwise or there is none.
    pub(crate) fn path(self, client: &Client) -> Result<PathBuf, Failure> {
        let folder = here()?;
        let of_project = client.project_places(&folder);
        let of_user = client.user_places(&place::environment, System::here());
        let places = match (self.user, self.project) {
            (true, _) => of_user,
            (_, true) => of_project,
            _ if of_user.is_empty() => of_project,
            _ => of_user,
        };
        let there = places.iter().find(|path| path.exists()).or(places.first());
        there.cloned().ok_or_else(|| {
            let (what, other) = if self.project { ("folders", "--user") } else { ("users", "--project") };
            Failure::usage(format!("{} has no file of {what} here", client.title()))
                .hint(format!("try {other}"))
        })
    }

    /// All files of a client that may be meant.
    pub(crate) fn paths(self, client: &Client) -> Result<Vec<PathBuf>, Failure> {
        let folder = here()?;
        let mut paths = Vec::new();
        if !self.user {
            paths.extend(client.project_places(&folder));
        }
        if !self.project {
            paths.extend(client.user_places(&place::environment, System::here()));
        }
        Ok(paths)
    }
}

impl ClientFile {
    /// Reads a file of a client, or begins one.
    pub(crate) fn open(client: &Client, path: &Path) -> Result<Self, Failure> {
        let (old, document) = match Document::read(path) {
            Ok(document) => (Some(document.text()), document),
            Err(ConfigurationError::NotThere { .. }) => (None, Document::new(path, String::new())?),
            Err(error) => return Err(error.into()),
        };
        debug_assert!(old.is_some() || document.format() == client.format(), "the table knows its files");
        Ok(Self { old, document })
    }
}

/// The way to a server in a file of a client.
pub(crate) fn way_to(client: &Client, document: &Document, name: &str) -> Way {
    member(client, &servers(client, document), name)
}

/// The way to one of several servers.
pub(crate) fn member(client: &Client, servers: &[String], name: &str) -> Way {
    let way = Way::to(servers.iter().map(String::as_str));
    match client.layout() {
        Layout::Object => way.key(name),
        Layout::List { .. } => way.named(name),
    }
}

/// The keys that lead to the servers of a client, in this file.
pub(crate) fn servers(client: &Client, document: &Document) -> Vec<String> {
    let mut way = client.way().to_vec();
    // The newer files of one client have them one level further in.
    let deeper = Way::to(way.iter().map(String::as_str)).key("servers");
    let is_deeper = |inside: &Value| inside.as_object().is_some_and(|entries| !entries.contains_key("type"));
    if way == ["mcp"] && document.get(&deeper).is_some_and(is_deeper) {
        way.push("servers".to_owned());
    }
    way
}

/// How a client starts this program: by its name if that is enough, and else by its whole path.
pub(crate) fn own_program() -> Result<String, Failure> {
    let program = std::env::current_exe().map_err(|error| {
        Failure::system(format!("the system does not say where this program is: {error}"))
    })?;
    let file = format!("{OWN_NAME}{}", std::env::consts::EXE_SUFFIX);
    let real = |path: &Path| path.canonicalize().ok();
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let first = std::env::split_paths(&paths).map(|folder| folder.join(&file)).find(|path| path.is_file());
    let is_own = first.is_some_and(|first| real(&first).is_some() && real(&first) == real(&program));
    Ok(if is_own { OWN_NAME.to_owned() } else { program.display().to_string() })
}

/// The arguments that a client starts this program with, so that it serves the configuration of this command.
pub(crate) fn own_arguments(globals: &Globals, file: Option<&Path>) -> Result<Vec<String>, Failure> {
    let mut arguments = vec!["serve".to_owned(), "--stdio".to_owned()];
    let mut name = |source: String| arguments.extend(["--config".to_owned(), source]);
    if let Some(file) = file {
        name(absolute(file)?);
    } else if globals.config.is_empty() {
        // A client may start it anywhere.
        if let Ok(path) = pegboard::config::find(&here()?, &place::environment) {
            name(absolute(&path)?);
        }
    } else {
        for source in &globals.config {
            name(everywhere(source)?);
        }
    }
    for setting in &globals.set {
        arguments.extend(["--set".to_owned(), setting.clone()]);
    }
    Ok(arguments)
}

/// A source in words that mean the same in every folder.
fn everywhere(source: &Path) -> Result<String, Failure> {
    match place::spec(source, &here()?)? {
        Spec::File(path) if !path.exists() => Err(Failure::from(ConfigurationError::NotThere { path })),
        Spec::File(path) | Spec::Folder(path) => absolute(&path),
        Spec::Client { .. } | Spec::Url(_) | Spec::Document(_) | Spec::Command(_) => {
            Ok(source.display().to_string())
        }
    }
}

fn absolute(path: &Path) -> Result<String, Failure> {
    let path =
        std::path::absolute(path).map_err(|error| Failure::system(format!("{}: {error}", path.display())))?;
    Ok(path.display().to_string())
}
