//! Import plan: which entries are added, and under which names.

use serde_json::{Map, Value};

use super::known_item::KnownItem;
use super::sources::ImportSource;
use super::{Import, ImportItem, ImportOutcome, ToolboxGrouping};
use crate::config_file::ConfigFileError;
use crate::dialect::{ConfigDialect, has_name_prefix};
use crate::edit::{ConfigDocument, EditError, EditPath};
use crate::error::ConfigurationError;
use crate::export::unused_name;
use crate::inventory::{IDENTITY_SETTINGS, InventoryItem};
use crate::section::EntrySection;
use crate::variables::{escaped_path, runs_command};

/// Decides on the outcome for every entry of the sources. `known` are the entries of the file.
pub(super) fn plan(
    known: &[KnownItem<'_>],
    sources: &[ImportSource],
    grouping: ToolboxGrouping,
) -> Vec<ImportItem> {
    let mut items = Vec::new();
    for (index, source) in sources.iter().enumerate() {
        let is_server = |part: &InventoryItem| {
            matches!(part.section, EntrySection::Servers | EntrySection::OpenApiServices)
        };
        // Chains, agents and single tools at the root belong together with the servers there.
        let is_grouped = grouping == ToolboxGrouping::PerServer
            && source.inventory.dialect != ConfigDialect::Native
            && source.inventory.items.iter().all(|part| part.toolbox.is_some() || is_server(part));
        for part in &source.inventory.items {
            let has_own_toolbox = is_grouped && part.toolbox.is_none();
            let outcome = outcome(&mut items, (known, has_own_toolbox), source, part);
            let toolbox = match &outcome {
                ImportOutcome::New(name) if has_own_toolbox => Some(name.clone()),
                ImportOutcome::Duplicate(name) => toolbox_of(&items, name, part),
                ImportOutcome::New(_) | ImportOutcome::AlreadyPresent(_) | ImportOutcome::Skipped(_) => {
                    part.toolbox.clone()
                }
            };
            items.push(ImportItem { source: index, part: part.clone(), toolbox, outcome });
        }
    }
    items
}

/// Returns the toolbox of the new entry that another one duplicates.
fn toolbox_of(items: &[ImportItem], name: &str, part: &InventoryItem) -> Option<String> {
    let is_first = |item: &&ImportItem| {
        matches!(&item.outcome, ImportOutcome::New(new) if new == name) && is_same(&item.part, part)
    };
    items.iter().find(is_first).and_then(|item| item.toolbox.clone())
}

fn outcome(
    items: &mut [ImportItem],
    (known, has_own_toolbox): (&[KnownItem<'_>], bool),
    source: &ImportSource,
    part: &InventoryItem,
) -> ImportOutcome {
    if part.is_broken {
        return ImportOutcome::Skipped(part.unusable_reason.clone().unwrap_or_default());
    }
    // In the user's file it would run.
    let mut written = std::iter::once(&part.value).chain(part.dependencies.iter().map(|other| &other.value));
    if !source.is_user_file && written.any(runs_command_inside) {
        return ImportOutcome::Skipped(
            "it runs a command with ${cmd:…}, which only your own file may do".to_owned(),
        );
    }
    // A disabled entry does not replace a working one.
    let stands_for = |there: &&KnownItem<'_>| {
        (!there.item.is_disabled || part.is_disabled)
            && (is_same(there.item, part)
                || is_same_place(there.item, part)
                    && there.revealed().is_some_and(|there| is_same(there, part)))
    };
    if let Some(there) = known.iter().find(stands_for) {
        return ImportOutcome::AlreadyPresent(there.item.name.clone());
    }
    let new_items = items.iter_mut().filter_map(|item| match &item.outcome {
        ImportOutcome::New(name) => Some((name.as_str(), &mut item.part)),
        ImportOutcome::Duplicate(_) | ImportOutcome::AlreadyPresent(_) | ImportOutcome::Skipped(_) => None,
    });
    let mut taken: Vec<(&str, &InventoryItem)> =
        known.iter().map(|known| (known.item.name.as_str(), known.item)).collect();
    for (name, first) in new_items {
        if is_same(first, part) {
            merge_definitions(first, part);
            return ImportOutcome::Duplicate(name.to_owned());
        }
        taken.push((name, first));
    }
    // The name is that of the toolbox, too, which may have been imported before.
    let is_taken =
        |other: &InventoryItem| names_collide(other, part) || (has_own_toolbox && is_same_kind(other, part));
    let is_free = |name: &str| !taken.iter().any(|(taken, other)| *taken == name && is_taken(other));
    let of_client = source.client.map(|client| format!("{}-{}", part.name, client.name()));
    ImportOutcome::New(unused_name(&part.name, of_client, is_free))
}

impl Import<'_> {
    /// Writes new entries to the document. Entries that would be invalid there are skipped.
    pub(super) fn apply(&mut self) -> Result<(), ConfigFileError> {
        let before = self.file.document.text();
        for index in 0..self.items.len() {
            self.apply_item(index)?;
        }
        if self.new_problem()?.is_none() {
            return Ok(());
        }
        // At least one entry is invalid, so each is tried by itself.
        self.replace_text(before)?;
        for index in 0..self.items.len() {
            let before = self.file.document.text();
            self.apply_item(index)?;
            if let Some(reason) = self.new_problem()? {
                self.replace_text(before)?;
                self.skip(index, &reason);
            }
        }
        Ok(())
    }

    /// Writes a new entry, together with its toolbox and the entries it refers to.
    fn apply_item(&mut self, index: usize) -> Result<(), EditError> {
        let item = &self.items[index];
        let ImportOutcome::New(name) = &item.outcome else { return Ok(()) };
        if item.toolbox != item.part.toolbox && !has_name_prefix(&self.file.path, "pegboard") {
            // A file of toolboxes alone is another program's, and needs descriptions.
            self.file.document.set(&EditPath::from_keys(["pegboard"]), &1.into())?;
        }
        let source = &self.sources.sources[item.source];
        let may_run = |value: &Value| source.is_user_file || !runs_command_inside(value);
        let toolboxes = &source.inventory.toolboxes;
        describe_toolbox(&mut self.file.document, (item.toolbox.as_deref(), toolboxes), &may_run)?;
        let mut value = item.part.value.clone();
        let elsewhere = item.part.project_dir.as_ref().filter(|folder| **folder != self.file.working_dir());
        if let (Some(folder), Value::Object(entries)) = (elsewhere, &mut value) {
            // Programs of a project run in its directory.
            entries.insert("cwd".to_owned(), escaped_path(folder).into());
        }
        write_item(&mut self.file.document, item, (name, &value))
    }

    fn replace_text(&mut self, text: String) -> Result<(), ConfigFileError> {
        self.file.document = ConfigDocument::new(&self.file.path, text)?;
        Ok(())
    }

    /// First problem that the edit would introduce.
    fn new_problem(&self) -> Result<Option<String>, ConfigFileError> {
        match self.file.check() {
            Ok(_) => Ok(None),
            Err(ConfigFileError::InvalidAfter {
                error: ConfigurationError::Invalid { problems }, ..
            }) => Ok(problems.first().map(|problem| format!("{}: {}", problem.path, problem.message))),
            Err(error) => Err(error),
        }
    }

    /// Skips a new entry together with its duplicates, since nothing in the file stands for them.
    fn skip(&mut self, index: usize, reason: &str) {
        let ImportOutcome::New(name) = self.items[index].outcome.clone() else { return };
        let (first, later) = self.items.split_at_mut(index + 1);
        let first = &mut first[index];
        first.outcome = ImportOutcome::Skipped(reason.to_owned());
        let same = ImportOutcome::Duplicate(name);
        for item in later.iter_mut().filter(|item| item.outcome == same && is_same(&first.part, &item.part)) {
            item.outcome = ImportOutcome::Skipped(reason.to_owned());
        }
    }
}

/// Returns `true` if two entries are the same program or URL, with any use and credentials.
fn is_same_place(one: &InventoryItem, other: &InventoryItem) -> bool {
    one.section == other.section && one.identity.is_some() && one.identity == other.identity
}

/// Returns `true` if two entries are the same server: the same program or URL with the same use and credentials.
fn is_same(one: &InventoryItem, other: &InventoryItem) -> bool {
    let is_elsewhere = one.toolbox.is_some() && other.toolbox.is_some() && one.toolbox != other.toolbox;
    if one.section != other.section || is_elsewhere {
        return false;
    }
    match (one.section, &one.identity, &other.identity) {
        (
            EntrySection::Servers | EntrySection::OpenApiServices | EntrySection::Agents,
            Some(first),
            Some(second),
        ) => {
            let is_alike = |key: &&str| match *key {
                "cwd" => runs_in_same_folder(one, other),
                key => one.value[key] == other.value[key],
            };
            first == second && IDENTITY_SETTINGS.iter().all(is_alike) && has_same_credentials(one, other)
        }
        _ => one.name == other.name && one.value == other.value,
    }
}

/// Returns `true` if both run in the same directory, as far as they say. An import may have written the default.
fn runs_in_same_folder(one: &InventoryItem, other: &InventoryItem) -> bool {
    let is_default_of = |written: &Value, other: &InventoryItem| {
        other.project_dir.as_deref().is_some_and(|folder| folder.to_str() == written.as_str())
    };
    match (&one.value["cwd"], &other.value["cwd"]) {
        (Value::Null, Value::Null) => true,
        (written, Value::Null) => is_default_of(written, other),
        (Value::Null, written) => is_default_of(written, one),
        (one, other) => one == other,
    }
}

/// Returns `true` if both have the same `env` and `headers`: with other ones a server may be another user's.
fn has_same_credentials(one: &InventoryItem, other: &InventoryItem) -> bool {
    let entries = |part: &InventoryItem, key: &str| part.value[key].as_object().cloned().unwrap_or_default();
    ["env", "headers"].iter().all(|key| entries(one, key) == entries(other, key))
}

/// Takes over the definition that is enabled.
fn merge_definitions(first: &mut InventoryItem, other: &InventoryItem) {
    if first.is_disabled && !other.is_disabled {
        first.value = other.value.clone();
        first.dependencies.clone_from(&other.dependencies);
        first.is_disabled = other.is_disabled;
        first.unusable_reason.clone_from(&other.unusable_reason);
    }
}

/// Returns `true` if two entries must not have the same name.
fn names_collide(one: &InventoryItem, other: &InventoryItem) -> bool {
    one.toolbox == other.toolbox && is_same_kind(one, other)
}

/// Returns `true` if two entries share a namespace within a toolbox.
fn is_same_kind(one: &InventoryItem, other: &InventoryItem) -> bool {
    let kind = |part: &InventoryItem| match part.section {
        EntrySection::OpenApiServices => EntrySection::Servers,
        section => section,
    };
    kind(one) == kind(other)
}

/// Returns `true` if a value, or one inside, refers to the output of a command.
fn runs_command_inside(value: &Value) -> bool {
    match value {
        Value::String(text) => runs_command(text),
        Value::Array(items) => items.iter().any(runs_command_inside),
        Value::Object(entries) => {
            entries.iter().any(|(key, value)| runs_command(key) || runs_command_inside(value))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Copies the settings of a new toolbox from the source, as far as `is_copied` allows it.
fn describe_toolbox(
    document: &mut ConfigDocument,
    (toolbox, toolboxes): (Option<&str>, &Map<String, Value>),
    is_copied: &dyn Fn(&Value) -> bool,
) -> Result<(), EditError> {
    let Some(toolbox) = toolbox else { return Ok(()) };
    let path = EditPath::from_keys(["toolboxes", toolbox]);
    if document.get(&path).is_some() {
        return Ok(());
    }
    let own = toolboxes.get(toolbox).and_then(Value::as_object);
    let mut copied = own.into_iter().flatten().filter(|(_, value)| is_copied(value));
    copied.try_for_each(|(key, value)| document.set(&path.clone().key(key), value))
}

/// Writes an entry, together with the entries it refers to.
fn write_item(
    document: &mut ConfigDocument,
    item: &ImportItem,
    (name, value): (&str, &Value),
) -> Result<(), EditError> {
    let part = &item.part;
    for dependency in &part.dependencies {
        let path = EditPath::from_keys([dependency.section, &dependency.name]);
        if document.get(&path).is_none() {
            document.set(&path, &dependency.value)?;
        }
    }
    let path = part.section.path(item.toolbox.as_deref());
    if part.section == EntrySection::Agents {
        document.append(&path, value)
    } else {
        document.set(&path.key(name), value)
    }
}
