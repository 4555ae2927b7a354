//! Sources of an import: clients' files, and those named on the command line.

use std::path::{Path, PathBuf};

use pegboard::config::clients::{KnownClient, client_for_path, clients};
use pegboard::config::edit::{ConfigDocument, EditPath};
use pegboard::config::inventory::{Inventory, inventory_selection};
use pegboard::config::{ConfigurationError, SourceSelection, SourceSpec, SpecContext};
use serde_json::Value;

use crate::cli::CliError;
use crate::commands::client_file::servers_key;
use crate::commands::config_file::display_path;
use crate::paths;

/// All sources of an import.
#[derive(Default)]
pub(super) struct ImportSources {
    pub(super) sources: Vec<ImportSource>,
    /// Clients' files that could not be read.
    pub(super) unread: Vec<UnreadableSource>,
}

/// One file or other source of servers.
pub(super) struct ImportSource {
    /// Client that the file belongs to, if any.
    pub(super) client: Option<&'static KnownClient>,
    pub(super) inventory: Inventory,
}

/// File that could not be read.
pub(super) struct UnreadableSource {
    pub(super) path: PathBuf,
    pub(super) why: String,
}

impl ImportSource {
    /// Label of the source.
    pub(super) fn label(&self) -> String {
        self.client.map_or_else(|| display_path(&self.inventory.path), |client| client.name().to_owned())
    }
}

impl ImportSources {
    /// Reads the files of all clients. Unreadable ones are recorded and skipped.
    pub(super) fn all(context: &SpecContext<'_>) -> Self {
        let mut all = Self::default();
        for client in clients() {
            let first = |places: Vec<PathBuf>| places.into_iter().find(|place| place.is_file());
            let of_user = first(client.user_paths(context.environment, context.platform));
            let of_project = first(client.project_paths(context.folder));
            for path in of_user.into_iter().chain(of_project) {
                all.add_file(client, &path, context);
            }
        }
        all
    }

    /// Reads the named sources.
    pub(super) fn named(named: &[PathBuf], context: &SpecContext<'_>) -> Result<Self, CliError> {
        let mut all = Self::default();
        for name in named {
            let spec = paths::source_spec(name, context.folder)?;
            for inventory in spec.inventory(context)? {
                let client = match &spec {
                    SourceSpec::Client { client, .. } => Some(*client),
                    _ => client_for_path(&inventory.path),
                };
                all.sources.push(ImportSource { client, inventory });
            }
        }
        Ok(all)
    }

    fn add_file(&mut self, client: &'static KnownClient, path: &Path, context: &SpecContext<'_>) {
        // Some clients share a file.
        let is_known = self.sources.iter().any(|source| source.inventory.path == path)
            || self.unread.iter().any(|unread| unread.path == path);
        if is_known {
            return;
        }
        match inventory_client(client, path, context) {
            Ok(Some(inventory)) => self.sources.push(ImportSource { client: Some(client), inventory }),
            Ok(None) => {}
            Err(error) => {
                self.unread.push(UnreadableSource { path: path.to_owned(), why: error.to_string() });
            }
        }
    }
}

/// Reads a client's file; `None` if it has no servers.
fn inventory_client(
    client: &KnownClient,
    path: &Path,
    context: &SpecContext<'_>,
) -> Result<Option<Inventory>, ConfigurationError> {
    let document = ConfigDocument::read(path)?;
    let of_all = servers_key(client, &document);
    let key_paths = [Some(of_all), client.local_key_path(context.folder)];
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
    inventory_selection(path, &selection, context.environment).map(Some)
}
