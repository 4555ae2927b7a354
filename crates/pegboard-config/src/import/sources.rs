//! Sources of an import: clients' files, and those named by the user.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::clients::{KnownClient, client_for_path, clients, is_user_file};
use crate::edit::{ConfigDocument, EditPath};
use crate::error::ConfigurationError;
use crate::inventory::{Inventory, inventory_found};
use crate::layers::SourceSelection;
use crate::source_spec::{SourceSpec, SpecContext};

/// All sources of an import.
#[derive(Default)]
pub struct ImportSources {
    /// Sources that could be read.
    pub sources: Vec<ImportSource>,
    /// Clients' files that could not be read.
    pub unread: Vec<(PathBuf, ConfigurationError)>,
}

/// One file or other source of servers.
pub struct ImportSource {
    /// Client that the file belongs to, if any.
    pub client: Option<&'static KnownClient>,
    /// Entries of the source.
    pub inventory: Inventory,
    /// `true` if it is a client's file of the user, not of a project.
    pub is_user_file: bool,
}

impl ImportSources {
    /// Reads the files of all clients. Unreadable ones are recorded and skipped.
    pub fn all(context: &SpecContext<'_>) -> Self {
        let mut all = Self::default();
        for client in clients() {
            for path in client.existing_files(context) {
                all.add_file(client, &path, context);
            }
        }
        all
    }

    /// Reads the given sources.
    pub fn of(specs: &[SourceSpec], context: &SpecContext<'_>) -> Result<Self, ConfigurationError> {
        let mut all = Self::default();
        for spec in specs {
            for inventory in spec.inventory(context)? {
                let client = match spec {
                    SourceSpec::Client { client, .. } => Some(*client),
                    _ => client_for_path(&inventory.path),
                };
                let is_user_file = is_user_file(&absolute(&inventory.path), context.environment);
                all.sources.push(ImportSource { client, inventory, is_user_file });
            }
        }
        Ok(all)
    }

    /// Removes the files of projects and returns their paths, if there are entries in files of the user as well: each
    /// belongs into another configuration.
    pub fn split_off_projects(&mut self) -> Vec<PathBuf> {
        let has_entries = |source: &ImportSource| source.is_user_file && !source.inventory.items.is_empty();
        if !self.sources.iter().any(has_entries) {
            return Vec::new();
        }
        let (of_user, of_projects) =
            std::mem::take(&mut self.sources).into_iter().partition(|source| source.is_user_file);
        self.sources = of_user;
        let paths =
            |sources: Vec<ImportSource>| sources.into_iter().map(|source| source.inventory.path).collect();
        paths(of_projects)
    }

    fn add_file(&mut self, client: &'static KnownClient, path: &Path, context: &SpecContext<'_>) {
        // Some clients share a file.
        let is_known = self.sources.iter().any(|source| source.inventory.path == path)
            || self.unread.iter().any(|(unread, _)| unread == path);
        if is_known {
            return;
        }
        match inventory_client(client, path, context) {
            Ok(Some(inventory)) => {
                let is_user_file = is_user_file(&absolute(path), context.environment);
                self.sources.push(ImportSource { client: Some(client), inventory, is_user_file });
            }
            Ok(None) => {}
            Err(error) => self.unread.push((path.to_owned(), error)),
        }
    }
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Reads a client's file; `None` if it has no servers.
fn inventory_client(
    client: &KnownClient,
    path: &Path,
    context: &SpecContext<'_>,
) -> Result<Option<Inventory>, ConfigurationError> {
    let document = ConfigDocument::read(path)?;
    let key_paths = [Some(client.servers_key(&document)), client.local_key_path(context.folder)];
    let has_some = |key_path: Vec<String>| match document
        .get(&EditPath::from_keys(key_path.iter().map(String::as_str)))
    {
        Some(Value::Object(entries)) => !entries.is_empty(),
        Some(Value::Array(items)) => !items.is_empty(),
        _ => false,
    };
    if !key_paths.into_iter().flatten().any(has_some) {
        return Ok(None);
    }
    let selection = SourceSelection {
        project: Some(context.folder.to_owned()),
        toolbox: context.toolbox.map(str::to_owned),
        only: None,
    };
    let origin = client.origin_of(path, context);
    inventory_found((path, origin), &selection, context.environment).map(Some)
}
