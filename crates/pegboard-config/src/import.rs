//! Imports the servers of clients and other sources into a configuration file.

use pegboard_core::secret::Secret;

use crate::config_file::{ConfigFile, ConfigFileError};
use crate::dialect::PEGBOARD_ITSELF;
use crate::inventory::InventoryItem;
use crate::plaintext_keys::plaintext_keys;
use crate::problem::ConfigProblem;
use crate::trust::{ActionTarget, FileAction};

mod known_item;
mod plan;
mod sources;
mod take_over;

use known_item::KnownItem;
pub use sources::{ImportSource, ImportSources};
pub use take_over::{Takeover, TakeoverScope};

/// Import of entries into a configuration file. Nothing is written.
///
/// ```
/// use pegboard_config::clients::Platform;
/// use pegboard_config::import::{Import, ImportOutcome, ImportSources, ToolboxGrouping};
/// use pegboard_config::{ConfigFile, SourceSpec, SpecContext};
/// # let folder = tempfile::tempdir()?;
/// # let folder = folder.path();
/// std::fs::write(folder.join("mcp.json"), r#"{"mcpServers": {"notes": {"command": "notes-server"}}}"#)?;
/// let context = SpecContext { folder, environment: &|_| None, platform: Platform::Linux, toolbox: None };
/// let sources = ImportSources::of(&[SourceSpec::File(folder.join("mcp.json"))], &context)?;
/// let file = ConfigFile::open(&folder.join("pegboard.yaml"), &|_| None)?;
/// let import = Import::new(file, sources, ToolboxGrouping::PerServer, &|_| None)?;
/// assert_eq!(import.items[0].outcome, ImportOutcome::New("notes".to_owned()));
/// assert_eq!(import.items[0].toolbox.as_deref(), Some("notes"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Import<'e> {
    /// The file with the new entries.
    pub file: ConfigFile<'e>,
    /// Sources of the entries.
    pub sources: ImportSources,
    /// Entries that were found, in the order of their sources.
    pub items: Vec<ImportItem>,
}

/// Entry that was found.
pub struct ImportItem {
    /// Index of its source.
    pub source: usize,
    /// The entry.
    pub part: InventoryItem,
    /// Toolbox in the file; `None` for an entry at its root.
    pub toolbox: Option<String>,
    /// Outcome for the entry.
    pub outcome: ImportOutcome,
}

/// Toolboxes of entries that have none in their source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolboxGrouping {
    /// A toolbox for each server, so that a client opens only what it needs. Native files are left as they are.
    PerServer,
    /// No toolbox: the entries are at the root of the file.
    Root,
}

/// Outcome for an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImportOutcome {
    /// Added to the file under this name.
    New(String),
    /// Duplicate of another found entry, which is added under this name.
    Duplicate(String),
    /// Already in the file under this name.
    AlreadyPresent(String),
    /// Skipped for this reason.
    Skipped(String),
}

impl<'e> Import<'e> {
    /// Adds the entries of the sources that the file does not have yet. `secret` returns the values of references to
    /// the keyring in the file, so that an entry with a stored key is recognized.
    pub fn new(
        file: ConfigFile<'e>,
        sources: ImportSources,
        grouping: ToolboxGrouping,
        secret: &dyn Fn(&str) -> Option<Secret>,
    ) -> Result<Self, ConfigFileError> {
        let present = file.inventory()?;
        let items = present.iter().flat_map(|inventory| &inventory.items);
        let known: Vec<KnownItem<'_>> = items.map(|item| KnownItem::new(item, secret)).collect();
        let items = plan::plan(&known, &sources.sources, grouping);
        let mut import = Self { file, sources, items };
        import.apply()?;
        Ok(import)
    }

    /// Returns `true` if there are entries to add.
    pub fn has_new_items(&self) -> bool {
        self.items.iter().any(|item| matches!(item.outcome, ImportOutcome::New(_)))
    }

    /// Locations of plaintext keys in new entries: `github (env.GITHUB_TOKEN)`.
    pub fn plaintext_keys(&self) -> Vec<String> {
        let mut found = Vec::new();
        for item in &self.items {
            let ImportOutcome::New(name) = &item.outcome else { continue };
            let keys = plaintext_keys(&item.part.value).into_iter();
            found.extend(keys.map(|key| format!("{name} ({key})")));
        }
        found
    }

    /// Returns the new entries that stem from certain actions of the sources, as they are called in the file.
    /// Chains, agents and model providers are included as well.
    pub fn targets_of(&self, is_meant: impl Fn(&FileAction) -> bool) -> Vec<ActionTarget> {
        let mut targets = Vec::new();
        for (index, source) in self.sources.sources.iter().enumerate() {
            for action in source.inventory.actions.iter().filter(|action| is_meant(action)) {
                let ActionTarget::Entry { section, name: in_source, .. } = &action.target else {
                    targets.push(action.target.clone());
                    continue;
                };
                let is_it = |item: &&ImportItem| {
                    item.source == index && item.part.section == *section && item.part.name == *in_source
                };
                for item in self.items.iter().filter(is_it) {
                    // A duplicate may have completed the entry that was found first.
                    if let ImportOutcome::New(name) | ImportOutcome::Duplicate(name) = &item.outcome {
                        let toolbox = item.toolbox.as_deref().unwrap_or("default");
                        targets.push(ActionTarget::entry(toolbox, *section, name));
                    }
                }
            }
        }
        targets.sort();
        targets.dedup();
        targets
    }

    /// Problems of the sources that do not belong to an entry, without the remark that an entry is Pegboard itself: it is
    /// there after every takeover.
    pub fn remarks(&self) -> Vec<&ConfigProblem> {
        let of_parts: Vec<&ConfigProblem> = self.items.iter().flat_map(|item| &item.part.problems).collect();
        let all = self.sources.sources.iter().flat_map(|source| &source.inventory.problems);
        let is_expected = |problem: &&ConfigProblem| problem.message.ends_with(PEGBOARD_ITSELF);
        all.filter(|problem| !of_parts.contains(problem) && !is_expected(problem)).collect()
    }
}
