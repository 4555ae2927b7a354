//! Clients that use us instead of what they had.

use std::path::{Path, PathBuf};

use pegboard::config::clients::Client;
use pegboard::config::edit::{self, Way};

use super::plan::{Fate, Item, Plan};
use super::sources::{Source, Sources};
use crate::cli::{Failure, Globals};
use crate::commands::backups::Backups;
use crate::commands::client_file::{ClientFile, OWN_NAME, member, way_to};
use crate::commands::export::own_entry;
use crate::commands::own_file::{Target, here, refused, shown};

/// A client's file in which we stand for what it had.
pub(super) struct Taken {
    client: &'static Client,
    path: PathBuf,
    old: String,
    new: String,
    /// What we stand for.
    names: Vec<String>,
}

/// What is told of it.
pub(crate) struct Told {
    pub(super) client: &'static Client,
    pub(super) path: PathBuf,
    pub(super) names: Vec<String>,
    /// What would change, if it was only to be shown.
    pub(super) diff: Option<String>,
}

/// Puts us into the files of clients, in the place of all that our own file `file` has of them.
pub(super) fn take_over(
    globals: &Globals,
    sources: &Sources,
    plan: &Plan,
    (file, url): (&Path, Option<&str>),
) -> Result<Vec<Taken>, Failure> {
    let mut all: Vec<Taken> = Vec::new();
    for source in &sources.sources {
        let path = real(&source.survey.path);
        // Two names may lead to one file, of which both are a part.
        if all.iter().any(|taken| real(&taken.path) == path) {
            continue;
        }
        let is_ours = |item: &&Item| {
            real(&sources.sources[item.source].survey.path) == path && !matches!(item.fate, Fate::LeftOut(_))
        };
        let Some(client) = source.client else { continue };
        // What is for all folders, and off in this one alone, still works in the others.
        let local = client.local_way(&here()?);
        let is_used_elsewhere = |item: &&Item| {
            let is_for_all = |local| item.part.way.as_ref().is_some_and(|way| !way.is_below(local));
            item.part.is_off && local.as_deref().is_some_and(is_for_all)
        };
        let items = plan.items.iter().filter(|item| is_ours(item) && !is_used_elsewhere(item));
        let items: Vec<&Item> = items.collect();
        if items.is_empty() {
            continue;
        }
        all.push(take(globals, client, source, &items, (file, url))?);
    }
    Ok(all)
}

fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

fn take(
    globals: &Globals,
    client: &'static Client,
    source: &Source,
    items: &[&Item],
    (own, url): (&Path, Option<&str>),
) -> Result<Taken, Failure> {
    let path = source.survey.path.clone();
    let ClientFile { old, mut document } = ClientFile::open(client, &path)?;
    let mut ways: Vec<&Way> = Vec::new();
    for way in items.iter().filter_map(|item| item.part.way.as_ref()) {
        if !ways.contains(&way) {
            ways.push(way);
        }
    }
    // What was there for one folder alone is replaced for that folder alone.
    let of_folder = client.local_way(&here()?);
    let of_folder = of_folder.filter(|local| ways.iter().all(|way| way.is_below(local)));
    let own_way = match &of_folder {
        Some(local) => member(client, local, OWN_NAME),
        None => way_to(client, &document, OWN_NAME),
    };
    document.set(&own_way, &own_entry(globals, client, Some(own), url)?).map_err(refused)?;
    // From the last, so that those before it stay where they are.
    for way in ways.into_iter().rev().filter(|way| **way != own_way) {
        document.remove(way).map_err(refused)?;
    }
    let mut names: Vec<String> = Vec::new();
    for item in items {
        if !names.contains(&item.part.name) {
            names.push(item.part.name.clone());
        }
    }
    Ok(Taken { client, path, old: old.unwrap_or_default(), new: document.text(), names })
}

impl Taken {
    /// Writes the client's file and keeps what it said, or shows what would change.
    pub(super) fn write(self, globals: &Globals, target: Target) -> Result<Told, Failure> {
        let diff = target.dry_run.then(|| edit::diff(Path::new(&shown(&self.path)), &self.old, &self.new));
        if diff.is_none() {
            let mut backups = Backups::to_change(globals)?;
            backups.write(self.client.name(), &self.path, Some(&self.old), &self.new)?;
        }
        Ok(Told { client: self.client, path: self.path, names: self.names, diff })
    }
}
