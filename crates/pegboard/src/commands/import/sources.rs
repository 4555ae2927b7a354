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
    pub(super) survey: Inventory,
}

/// File that could not be read.
pub(super) struct UnreadableSource {
    pub(super) path: PathBuf,
    pub(super) why: String,
}

impl ImportSource {
    /// Label of the source.
    pub(super) fn label(&self) -> String {
        self.client.map_or_else(|| display_path(&self.survey.path), |client| client.name().to_owned())
    }
}

impl ImportSources {
    /// Reads the files of all clients. Unreadable ones are recorded and skipped.
    pub(super) fn all(around: &SpecContext<'_>) -> Self {
        let mut all = Self::default();
        for client in clients() {
            let first = |places: Vec<PathBuf>| places.into_iter().find(|place| place.is_file());
            let user_config_path = first(client.user_paths(around.environment, around.platform));
            let of_project = first(client.project_paths(around.folder));
            for path in user_config_path.into_iter().chain(of_project) {
                all.add_file(client, &path, around);
            }
        }
        all
    }

    /// Reads the named sources.
    pub(super) fn named(named: &[PathBuf], around: &SpecContext<'_>) -> Result<Self, CliError> {
        let mut all = Self::default();
        for name in named {
            let spec = paths::source_spec(name, around.folder)?;
            for survey in spec.inventory(around)? {
                let client = match &spec {
                    SourceSpec::Client { client, .. } => Some(*client),
                    _ => client_for_path(&survey.path),
                };
                all.sources.push(ImportSource { client, survey });
            }
        }
        Ok(all)
    }

    fn add_file(&mut self, client: &'static KnownClient, path: &Path, around: &SpecContext<'_>) {
        // Some clients share a file.
        let is_known = self.sources.iter().any(|source| source.survey.path == path)
            || self.unread.iter().any(|unread| unread.path == path);
        if is_known {
            return;
        }
        match survey_client(client, path, around) {
            Ok(Some(survey)) => self.sources.push(ImportSource { client: Some(client), survey }),
            Ok(None) => {}
            Err(error) => {
                self.unread.push(UnreadableSource { path: path.to_owned(), why: error.to_string() });
            }
        }
    }
}

/// Reads a client's file; `None` if it has no servers.
fn survey_client(
    client: &KnownClient,
    path: &Path,
    around: &SpecContext<'_>,
) -> Result<Option<Inventory>, ConfigurationError> {
    let document = ConfigDocument::read(path)?;
    let of_all = servers_key(client, &document);
    let ways = [Some(of_all), client.local_key_path(around.folder)];
    let has_some = |way: Vec<String>| match document.get(&EditPath::from_keys(way.iter().map(String::as_str)))
    {
        Some(Value::Object(entries)) => !entries.is_empty(),
        Some(Value::Array(items)) => !items.is_empty(),
        _ => false,
    };
    if !ways.into_iter().flatten().any(has_some) {
        return Ok(None);
    }
    let view = SourceSelection {
        project: Some(around.folder.to_owned()),
        toolbox: around.toolbox.map(str::to_owned),
        only: None,
    };
    inventory_selection(path, &view, around.environment).map(Some)
}
