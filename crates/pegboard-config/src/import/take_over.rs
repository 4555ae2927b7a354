//! Replacement of imported servers by Pegboard in clients' files.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use pegboard_core::redact::is_secret_name;
use serde_json::{Map, Value};

use super::{Import, ImportItem, ImportOutcome};
use crate::clients::KnownClient;
use crate::config_file::ConfigFileError;
use crate::edit::{EditPath, FileChange};
use crate::export::{ClientConfigFile, SERVER_NAME, ServeTarget};
use crate::redact::secret_ranges;

/// A client's file with Pegboard in place of its servers.
pub struct Takeover {
    /// Client that the file belongs to.
    pub client: &'static KnownClient,
    /// Change of the file.
    pub change: FileChange,
    /// Names of the replaced servers.
    pub names: Vec<String>,
}

/// Servers that are replaced in clients' files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakeoverScope {
    /// Those that Pegboard can use as they are.
    Usable,
    /// All of them.
    All,
}

impl ImportItem {
    /// Returns the reason why the server may work in its client only: a variable or an input that is not set here, or a
    /// login.
    pub fn client_only_reason(&self) -> Option<String> {
        if self.part.unusable_reason.is_some() {
            return self.part.unusable_reason.clone();
        }
        let url = self.part.value["url"].as_str()?;
        let has_key = |headers: &Map<String, Value>| headers.keys().any(|name| is_secret_name(name));
        let has_credentials = self.part.value["headers"].as_object().is_some_and(has_key)
            || !secret_ranges(url).is_empty()
            || url.contains("${");
        (!has_credentials && !is_loopback(url)).then(|| "may need a login".to_owned())
    }
}

/// Returns `true` if a URL leads to this machine.
fn is_loopback(url: &str) -> bool {
    let authority = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = authority.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    let host = match host.strip_prefix('[') {
        Some(address) => address.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let address = host.parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

impl Import<'_> {
    /// Replaces the imported servers in clients' files by Pegboard. Writes nothing. `folder` is the current
    /// directory.
    pub fn take_over(
        &self,
        folder: &Path,
        target: &ServeTarget,
        scope: TakeoverScope,
    ) -> Result<Vec<Takeover>, ConfigFileError> {
        let mut all: Vec<Takeover> = Vec::new();
        for source in &self.sources.sources {
            let path = real(&source.inventory.path);
            // Two sources may be parts of the same file.
            if all.iter().any(|taken| real(&taken.change.path) == path) {
                continue;
            }
            let Some(client) = source.client else { continue };
            let is_ours = |item: &&ImportItem| {
                real(&self.sources.sources[item.source].inventory.path) == path
                    && !matches!(item.outcome, ImportOutcome::Skipped(_))
                    && (scope == TakeoverScope::All || item.client_only_reason().is_none())
            };
            // A global server that is disabled only in this directory still works in others.
            let local = client.local_key_path(folder);
            let is_used_elsewhere = |item: &&ImportItem| {
                let is_for_all =
                    |local| item.part.key_path.as_ref().is_some_and(|key_path| !key_path.is_below(local));
                item.part.is_disabled && local.as_deref().is_some_and(is_for_all)
            };
            let items: Vec<&ImportItem> =
                self.items.iter().filter(|item| is_ours(item) && !is_used_elsewhere(item)).collect();
            if !items.is_empty() {
                let file = ClientConfigFile::open(client, &source.inventory.path)?;
                let is_shared = client.project_paths(folder).iter().any(|shared| real(shared) == path);
                let target = if is_shared { &target.without_token() } else { target };
                all.push(take_over_file(file, &items, local, target)?);
            }
        }
        Ok(all)
    }
}

fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

fn take_over_file(
    mut file: ClientConfigFile,
    items: &[&ImportItem],
    local: Option<Vec<String>>,
    target: &ServeTarget,
) -> Result<Takeover, ConfigFileError> {
    let client = file.client;
    let mut key_paths: Vec<&EditPath> = Vec::new();
    let mut names: Vec<String> = Vec::new();
    for item in items {
        if let Some(key_path) = item.part.key_path.as_ref().filter(|path| !key_paths.contains(path)) {
            key_paths.push(key_path);
        }
        if !names.contains(&item.part.name) {
            names.push(item.part.name.clone());
        }
    }
    // Servers of a single directory are replaced only for that directory.
    let own_key_path = match local.filter(|local| key_paths.iter().all(|path| path.is_below(local))) {
        Some(local) => client.member_key_path(&local, SERVER_NAME),
        None => file.key_path(SERVER_NAME),
    };
    file.document.set(&own_key_path, &target.entry_for(client)?)?;
    // In reverse order, so that indexes stay valid.
    for key_path in key_paths.into_iter().rev().filter(|key_path| **key_path != own_key_path) {
        file.document.remove(key_path)?;
    }
    Ok(Takeover { client, change: file.change(), names })
}
