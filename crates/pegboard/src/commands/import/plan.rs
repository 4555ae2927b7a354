//! Import plan: which entries are added, and under which names.

use pegboard::config::ConfigProblem;
use pegboard::config::edit::EditPath;
use pegboard::config::inventory::{IDENTITY_SETTINGS, Inventory, InventoryItem};
use pegboard::redact::is_secret_name;
use serde_json::{Map, Value};

use super::sources::{ImportSource, ImportSources};
use crate::cli::CliError;
use crate::commands::config_file::{ConfigFile, unused_name};

/// Outcome for every entry that was found.
pub(super) struct ImportPlan {
    pub(super) items: Vec<ImportItem>,
}

/// Entry that was found.
pub(super) struct ImportItem {
    /// Index of its source.
    pub(super) source: usize,
    pub(super) part: InventoryItem,
    pub(super) outcome: ImportOutcome,
}

/// Outcome of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ImportOutcome {
    /// Added to the file under this name.
    New(String),
    /// Duplicate of another found entry, which is added under this name.
    Duplicate(String),
    /// Already in the file under this name.
    AlreadyPresent(String),
    /// Skipped for this reason.
    Skipped(String),
}

impl ImportItem {
    /// Writes a new entry to the file, together with its toolbox and the entries it refers to.
    fn write_to(&self, file: &mut ConfigFile, sources: &ImportSources) -> Result<(), CliError> {
        let ImportOutcome::New(name) = &self.outcome else { return Ok(()) };
        let toolboxes = &sources.sources[self.source].inventory.toolboxes;
        describe_toolbox(file, self.part.toolbox.as_deref(), toolboxes)?;
        write_item(file, &self.part, name)
    }
}

impl ImportPlan {
    pub(super) fn new(present: Option<&Inventory>, sources: &ImportSources) -> Self {
        let known: Vec<&InventoryItem> = present.iter().flat_map(|inventory| &inventory.items).collect();
        let mut plan = Self { items: Vec::new() };
        for (index, source) in sources.sources.iter().enumerate() {
            for part in &source.inventory.items {
                let outcome = plan.outcome(&known, source, part);
                plan.items.push(ImportItem { source: index, part: part.clone(), outcome });
            }
        }
        plan
    }

    fn outcome(
        &mut self,
        known: &[&InventoryItem],
        source: &ImportSource,
        part: &InventoryItem,
    ) -> ImportOutcome {
        if part.is_broken {
            return ImportOutcome::Skipped(part.unusable_reason.clone().unwrap_or_default());
        }
        // An entry that is disabled or has fewer settings does not replace a working one.
        let stands_for = |there: &&&InventoryItem| {
            is_same(there, part) && (!there.is_disabled || part.is_disabled) && covers(there, part)
        };
        if let Some(there) = known.iter().find(stands_for) {
            return ImportOutcome::AlreadyPresent(there.name.clone());
        }
        let mut new_items = self.items.iter_mut().filter_map(|item| match &item.outcome {
            ImportOutcome::New(name) if is_same(&item.part, part) => Some((name.clone(), &mut item.part)),
            _ => None,
        });
        if let Some((name, first)) = new_items.next() {
            merge_definitions(first, part);
            return ImportOutcome::Duplicate(name);
        }
        let new_items = self.items.iter().filter_map(|item| match &item.outcome {
            ImportOutcome::New(name) => Some((name.as_str(), &item.part)),
            _ => None,
        });
        let taken: Vec<(&str, &InventoryItem)> =
            known.iter().map(|part| (part.name.as_str(), *part)).chain(new_items).collect();
        let is_free =
            |name: &str| !taken.iter().any(|(taken, other)| *taken == name && names_collide(other, part));
        let of_client = source.client.map(|client| format!("{}-{}", part.name, client.name()));
        ImportOutcome::New(unused_name(&part.name, of_client, is_free))
    }

    /// Writes new entries to the file. Entries that would be invalid there are skipped.
    pub(super) fn apply(&mut self, file: &mut ConfigFile, sources: &ImportSources) -> Result<(), CliError> {
        let before = file.document.text();
        for item in &self.items {
            item.write_to(file, sources)?;
        }
        if file.new_problems()?.is_empty() {
            return Ok(());
        }
        // At least one entry is invalid, so each is tried by itself.
        file.replace_text(before)?;
        for index in 0..self.items.len() {
            let before = file.document.text();
            self.items[index].write_to(file, sources)?;
            if let Some(problem) = file.new_problems()?.first() {
                let reason = format!("{}: {}", problem.path, problem.message);
                file.replace_text(before)?;
                self.skip(index, &reason);
            }
        }
        Ok(())
    }

    /// Skips a new entry together with its duplicates, since nothing in the file stands for them.
    fn skip(&mut self, index: usize, reason: &str) {
        let same = ImportOutcome::Duplicate(match &self.items[index].outcome {
            ImportOutcome::New(name) => name.clone(),
            ImportOutcome::Duplicate(_) | ImportOutcome::AlreadyPresent(_) | ImportOutcome::Skipped(_) => {
                return;
            }
        });
        let (first, later) = self.items.split_at_mut(index + 1);
        first[index].outcome = ImportOutcome::Skipped(reason.to_owned());
        for item in
            later.iter_mut().filter(|item| item.outcome == same && is_same(&first[index].part, &item.part))
        {
            item.outcome = ImportOutcome::Skipped(reason.to_owned());
        }
    }

    pub(super) fn has_new_items(&self) -> bool {
        self.items.iter().any(|item| matches!(item.outcome, ImportOutcome::New(_)))
    }

    /// Plaintext keys in new entries: `github (env.GITHUB_TOKEN)`.
    pub(super) fn plaintext_keys(&self) -> Vec<String> {
        let mut found = Vec::new();
        for item in &self.items {
            let ImportOutcome::New(name) = &item.outcome else { continue };
            let redacted_keys = ["url", "args", "spec"].into_iter();
            let redacted_keys = redacted_keys.filter(|key| item.part.value[*key] != item.part.redacted[*key]);
            found.extend(redacted_keys.map(|key| format!("{name} ({key})")));
            for section in ["env", "headers"] {
                let values = item.part.value[section].as_object();
                let is_plaintext_secret = |(key, value): &(&String, &Value)| {
                    let text = value.as_str().unwrap_or_default();
                    let sounds_secret = is_secret_name(key) || key.to_uppercase().ends_with("KEY");
                    sounds_secret && !text.is_empty() && !text.contains("${")
                };
                let keys = values.into_iter().flatten().filter(is_plaintext_secret);
                found.extend(keys.map(|(key, _)| format!("{name} ({section}.{key})")));
            }
        }
        found
    }

    /// Problems of the sources that do not belong to an entry.
    pub(super) fn remarks<'s>(&self, sources: &'s ImportSources) -> Vec<&'s ConfigProblem> {
        let of_parts: Vec<&ConfigProblem> = self.items.iter().flat_map(|item| &item.part.problems).collect();
        let all = sources.sources.iter().flat_map(|source| &source.inventory.problems);
        all.filter(|problem| !of_parts.contains(problem)).collect()
    }
}

/// Returns `true` if two entries are the same server: the same program or URL with the same use, where one
/// has all `env` and `headers` of the other.
fn is_same(one: &InventoryItem, other: &InventoryItem) -> bool {
    let is_elsewhere = one.toolbox.is_some() && other.toolbox.is_some() && one.toolbox != other.toolbox;
    if one.section != other.section || is_elsewhere {
        return false;
    }
    match (one.section, &one.identity, &other.identity) {
        ("mcpServers" | "openapiSpecs" | "agents", Some(first), Some(second)) => {
            let is_alike = |key: &&str| one.value[*key] == other.value[*key];
            first == second
                && IDENTITY_SETTINGS.iter().all(is_alike)
                && (covers(one, other) || covers(other, one))
        }
        _ => one.name == other.name && one.value == other.value,
    }
}

/// Returns `true` if `one` has all `env` and `headers` of `other`.
fn covers(one: &InventoryItem, other: &InventoryItem) -> bool {
    let entries = |part: &InventoryItem, key: &str| part.value[key].as_object().cloned().unwrap_or_default();
    ["env", "headers"].iter().all(|key| is_subset(&entries(other, key), &entries(one, key)))
}

/// Takes over the more complete definition of the same entry.
fn merge_definitions(first: &mut InventoryItem, other: &InventoryItem) {
    let n_values = |part: &InventoryItem| {
        let entries = |key: &str| part.value[key].as_object().map_or(0, Map::len);
        entries("env") + entries("headers")
    };
    if (first.is_disabled && !other.is_disabled) || n_values(other) > n_values(first) {
        first.value = other.value.clone();
        first.dependencies.clone_from(&other.dependencies);
        first.is_disabled = other.is_disabled;
        first.unusable_reason.clone_from(&other.unusable_reason);
    }
}

fn is_subset(inner: &Map<String, Value>, outer: &Map<String, Value>) -> bool {
    inner.iter().all(|(key, value)| outer.get(key) == Some(value))
}

/// Returns `true` if two entries must not have the same name.
fn names_collide(one: &InventoryItem, other: &InventoryItem) -> bool {
    let kind = |part: &InventoryItem| match part.section {
        "openapiSpecs" => "mcpServers",
        section => section,
    };
    one.toolbox == other.toolbox && kind(one) == kind(other)
}

/// Copies the settings of a new toolbox from the source.
fn describe_toolbox(
    file: &mut ConfigFile,
    toolbox: Option<&str>,
    toolboxes: &Map<String, Value>,
) -> Result<(), CliError> {
    let Some(toolbox) = toolbox else { return Ok(()) };
    let path = EditPath::from_keys(["toolboxes", toolbox]);
    if file.document.get(&path).is_some() {
        return Ok(());
    }
    let own = toolboxes.get(toolbox).and_then(Value::as_object);
    own.into_iter().flatten().try_for_each(|(key, value)| file.set(&path.clone().key(key), value))
}

/// Writes an entry to the file, together with the entries it refers to.
fn write_item(file: &mut ConfigFile, part: &InventoryItem, name: &str) -> Result<(), CliError> {
    for dependency in &part.dependencies {
        let path = EditPath::from_keys([dependency.section, &dependency.name]);
        if file.document.get(&path).is_none() {
            file.set(&path, &dependency.value)?;
        }
    }
    let toolbox = part.toolbox.as_deref().map(|toolbox| ["toolboxes", toolbox]);
    let path = EditPath::from_keys(toolbox.into_iter().flatten().chain([part.section]));
    if part.section == "agents" {
        file.append(&path, &part.value)
    } else {
        file.set(&path.key(name), &part.value)
    }
}
