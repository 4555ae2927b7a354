//! Replacement of imported servers by Pegboard in clients' files.

use std::path::{Path, PathBuf};

use pegboard::config::clients::KnownClient;
use pegboard::config::edit::{self, EditPath};

use super::plan::{ImportItem, ImportOutcome, ImportPlan};
use super::sources::{ImportSource, ImportSources};
use crate::cli::{CliError, Globals};
use crate::commands::backups::Backups;
use crate::commands::client_file::{ClientConfigFile, SERVER_NAME, member_key_path, server_key_path};
use crate::commands::config_file::{EditTarget, display_path, edit_error, working_dir};
use crate::commands::export::pegboard_entry;

/// A client's file with Pegboard in place of its servers.
pub(super) struct Takeover {
    client: &'static KnownClient,
    path: PathBuf,
    old: String,
    new: String,
    /// Names of the replaced servers.
    names: Vec<String>,
}

/// Result of a takeover.
pub(crate) struct TakeoverResult {
    pub(super) client: &'static KnownClient,
    pub(super) path: PathBuf,
    pub(super) names: Vec<String>,
    /// Diff, in a dry run.
    pub(super) diff: Option<String>,
}

/// Replaces the imported servers in clients' files by an entry that serves the configuration file `file`.
pub(super) fn take_over(
    globals: &Globals,
    sources: &ImportSources,
    plan: &ImportPlan,
    (file, url): (&Path, Option<&str>),
) -> Result<Vec<Takeover>, CliError> {
    let mut all: Vec<Takeover> = Vec::new();
    for source in &sources.sources {
        let path = real(&source.inventory.path);
        // Two sources may be parts of the same file.
        if all.iter().any(|taken| real(&taken.path) == path) {
            continue;
        }
        let is_ours = |item: &&ImportItem| {
            real(&sources.sources[item.source].inventory.path) == path
                && !matches!(item.outcome, ImportOutcome::Skipped(_))
        };
        let Some(client) = source.client else { continue };
        // A global server that is disabled only in this directory still works in others.
        let local = client.local_key_path(&working_dir()?);
        let is_used_elsewhere = |item: &&ImportItem| {
            let is_for_all =
                |local| item.part.key_path.as_ref().is_some_and(|key_path| !key_path.is_below(local));
            item.part.is_disabled && local.as_deref().is_some_and(is_for_all)
        };
        let items = plan.items.iter().filter(|item| is_ours(item) && !is_used_elsewhere(item));
        let items: Vec<&ImportItem> = items.collect();
        if items.is_empty() {
            continue;
        }
        all.push(take_over_file(globals, client, source, &items, (file, url))?);
    }
    Ok(all)
}

fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

fn take_over_file(
    globals: &Globals,
    client: &'static KnownClient,
    source: &ImportSource,
    items: &[&ImportItem],
    (own, url): (&Path, Option<&str>),
) -> Result<Takeover, CliError> {
    let path = source.inventory.path.clone();
    let ClientConfigFile { old, mut document } = ClientConfigFile::open(client, &path)?;
    let mut key_paths: Vec<&EditPath> = Vec::new();
    for key_path in items.iter().filter_map(|item| item.part.key_path.as_ref()) {
        if !key_paths.contains(&key_path) {
            key_paths.push(key_path);
        }
    }
    // Servers of a single directory are replaced only for that directory.
    let of_folder = client.local_key_path(&working_dir()?);
    let of_folder = of_folder.filter(|local| key_paths.iter().all(|key_path| key_path.is_below(local)));
    let own_key_path = match &of_folder {
        Some(local) => member_key_path(client, local, SERVER_NAME),
        None => server_key_path(client, &document, SERVER_NAME),
    };
    document.set(&own_key_path, &pegboard_entry(globals, client, Some(own), url)?).map_err(edit_error)?;
    // In reverse order, so that indexes stay valid.
    for key_path in key_paths.into_iter().rev().filter(|key_path| **key_path != own_key_path) {
        document.remove(key_path).map_err(edit_error)?;
    }
    let mut names: Vec<String> = Vec::new();
    for item in items {
        if !names.contains(&item.part.name) {
            names.push(item.part.name.clone());
        }
    }
    Ok(Takeover { client, path, old: old.unwrap_or_default(), new: document.text(), names })
}

impl Takeover {
    /// Writes the client's file with a backup, or shows the diff.
    pub(super) fn write(self, globals: &Globals, target: EditTarget) -> Result<TakeoverResult, CliError> {
        let diff =
            target.dry_run.then(|| edit::diff(Path::new(&display_path(&self.path)), &self.old, &self.new));
        if diff.is_none() {
            let mut backups = Backups::open_locked(globals)?;
            backups.write(self.client.name(), &self.path, Some(&self.old), &self.new)?;
        }
        Ok(TakeoverResult { client: self.client, path: self.path, names: self.names, diff })
    }
}
