//! Builds a snapshot from the servers' listings.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use indexmap::IndexSet;
use indexmap::map::Entry;
use pegboard_core::entry::ToolEntry;
use pegboard_core::id::{ToolId, ToolName};
use pegboard_core::schema::Schema;
use pegboard_core::settings::{ServerSettings, ToolSettings};
use pegboard_core::similar::nearest;
use pegboard_json::RawJson;
use serde_json::Value;

use super::labels::LabelIndex;
use super::name_index::NameIndex;
use super::{CatalogueTool, Collision, ListingSlot, ServerListing, Snapshot, ToolPolicy, Warning};
use crate::call::requests::ServerId;
use crate::filter::ToolFilter;
use crate::names::{AssignedName, assign_agent_mode_names, assign_flat_names, server_labels};

/// Maximum number of tools compared with an unknown name.
const MAX_COMPARED: usize = 200;
/// Maximum number of warnings per server; the rest is only counted.
const MAX_WARNINGS: usize = 50;

impl Snapshot {
    /// Builds a snapshot from listings in configuration order. Names are limited to `name_limit` bytes.
    pub fn build(listings: &[ServerListing], name_limit: usize) -> Self {
        Self::default().rebuild(listings, name_limit)
    }

    /// Builds a snapshot that reuses every unchanged tool of this one.
    #[must_use]
    pub fn rebuild(&self, listings: &[ServerListing], name_limit: usize) -> Self {
        self.rebuild_beside(listings, &[], name_limit)
    }

    /// Same as [`rebuild`](Self::rebuild), beside servers that the configuration disables.
    #[must_use]
    pub(crate) fn rebuild_beside(
        &self,
        listings: &[ServerListing],
        disabled: &[ServerId],
        name_limit: usize,
    ) -> Self {
        let mut next = Self::default();
        let labels = server_labels(listings.iter().map(|listing| (&listing.toolbox, &listing.server)));
        for (listing, label) in listings.iter().zip(labels) {
            next.add(
                listing,
                label,
                UnnamedTools::reuse(self, listing).unwrap_or_else(|| UnnamedTools::of(listing)),
            );
        }
        let labels = LabelIndex::of(&next.slots, disabled, name_limit);
        let is_own = |name: &str, id: &ToolId| {
            next.slot_index(&id.toolbox, &id.server).is_some_and(|slot| labels.is_own(name, slot))
        };
        let flat_names = assign_flat_names(next.labelled(), name_limit, is_own);
        let agent_mode_names = assign_agent_mode_names(next.labelled(), &flat_names, name_limit, is_own);
        next.assign_names(&flat_names, &agent_mode_names);
        next.reuse_lists(self);
        for slot in &next.slots {
            next.warnings.extend(slot.warnings.iter().map(|text| warning(&slot.listing, text)));
        }
        next.names = NameIndex::of(&next.tools, &next.slots, labels, &mut next.warnings);
        next.record_collisions(&flat_names);
        next
    }

    fn add(&mut self, new: &ServerListing, label: String, unnamed: UnnamedTools) {
        let servers = self.toolboxes.entry(new.toolbox.clone()).or_default();
        let Entry::Vacant(vacant) = servers.entry(new.server.clone()) else {
            self.warnings.push(warning(new, "duplicate server in this toolbox; using the first"));
            return;
        };
        vacant.insert(self.slots.len());
        let start = self.tools.len();
        self.tools.extend(unnamed.tools);
        self.slots.push(ListingSlot {
            listing: new.clone(),
            label,
            span: start..self.tools.len(),
            by_name: unnamed.by_name,
            warnings: unnamed.warnings,
            list: Arc::default(),
        });
    }

    /// Shares the serialized tools of every server with the same tools as in the previous snapshot.
    fn reuse_lists(&mut self, previous: &Self) {
        for slot in &mut self.slots {
            let Some(before) = previous.slot(&slot.listing.toolbox, &slot.listing.server) else { continue };
            let (tools, tools_before) =
                (&self.tools[slot.span.clone()], &previous.tools[before.span.clone()]);
            let is_same = tools.len() == tools_before.len()
                && tools.iter().zip(tools_before).all(|(tool, before)| Arc::ptr_eq(tool, before));
            if is_same {
                slot.list = Arc::clone(&before.list);
            }
        }
    }

    /// Returns every tool with the prefix of its server.
    fn labelled(&self) -> impl Iterator<Item = (&str, &ToolId)> {
        let tools = |slot: &ListingSlot| self.tools[slot.span.clone()].iter().map(|tool| &tool.id);
        self.slots.iter().flat_map(move |slot| tools(slot).map(|id| (slot.label.as_str(), id)))
    }

    /// Assigns names. A tool with unchanged names is not cloned.
    fn assign_names(&mut self, flat_names: &[AssignedName], agent_mode_names: &[AssignedName]) {
        for (tool, (flat, agent_mode)) in self.tools.iter_mut().zip(flat_names.iter().zip(agent_mode_names)) {
            if *tool.flat_name != *flat.name || *tool.agent_mode_name != *agent_mode.name {
                let tool = Arc::make_mut(tool);
                tool.flat_name = flat.name.as_str().into();
                tool.agent_mode_name = agent_mode.name.as_str().into();
            }
        }
    }

    fn record_collisions(&mut self, flat_names: &[AssignedName]) {
        for (tool, assigned) in self.tools.iter().zip(flat_names) {
            let Some(desired) = &assigned.desired else { continue };
            let Some(holder) = self.names.flat(&self.tools, desired) else { continue };
            self.collisions.push(Collision {
                tool: tool.id.clone(),
                wanted: desired.clone(),
                given: Arc::clone(&tool.flat_name),
                taken_by: holder.id.clone(),
            });
        }
    }
}

fn warning(listing: &ServerListing, text: &str) -> Warning {
    Warning { toolbox: listing.toolbox.clone(), server: listing.server.clone(), text: text.to_owned() }
}

/// The tools of one listing, before names are assigned.
struct UnnamedTools {
    tools: Vec<Arc<CatalogueTool>>,
    by_name: Arc<HashMap<ToolName, usize>>,
    warnings: Arc<[String]>,
}

impl UnnamedTools {
    /// Reuses the tools of the previous snapshot if the listing is unchanged.
    fn reuse(previous: &Snapshot, listing: &ServerListing) -> Option<Self> {
        let slot = previous.slot(&listing.toolbox, &listing.server)?;
        let is_same = Arc::ptr_eq(&slot.listing.offer, &listing.offer)
            && Arc::ptr_eq(&slot.listing.settings, &listing.settings)
            && slot.listing.drain_counter.is_same(&listing.drain_counter)
            && slot.listing.kind == listing.kind;
        is_same.then(|| Self {
            tools: previous.tools[slot.span.clone()].to_vec(),
            by_name: Arc::clone(&slot.by_name),
            warnings: Arc::clone(&slot.warnings),
        })
    }

    fn of(listing: &ServerListing) -> Self {
        let settings = &*listing.settings;
        let offered: IndexSet<&str> = listing.offer.tools.iter().map(|entry| entry.name()).collect();
        let filters = filters(settings);
        let filters: Vec<_> = filters.iter().map(|filter| filter.compile(offered.iter().copied())).collect();
        let mut warnings = listing.offer.warnings.clone();
        let (fingerprint, unnamed): (Arc<str>, Arc<str>) =
            (listing.offer.fingerprint.as_str().into(), "".into());
        let rules = ToolPolicy::of_server(settings);
        let mut tools = Vec::with_capacity(listing.offer.tools.len());
        let mut by_name = HashMap::with_capacity(listing.offer.tools.len());
        for entry in &listing.offer.tools {
            let name = match ToolName::new(entry.name()) {
                Ok(name) => name,
                Err(invalid) => {
                    warnings.push(format!("skipped a tool: {invalid}"));
                    continue;
                }
            };
            if !filters.iter().all(|filter| filter.permits(entry.name())) {
                continue;
            }
            if by_name.contains_key(&name) {
                warnings.push(format!("the tool '{name}' is listed more than once; using the first"));
                continue;
            }
            by_name.insert(name.clone(), tools.len());
            tools.push(Arc::new(CatalogueTool {
                policy: rules.for_tool(entry, settings),
                entry: with_settings(entry, settings, &mut warnings),
                id: ToolId { toolbox: listing.toolbox.clone(), server: listing.server.clone(), name },
                kind: listing.kind,
                flat_name: Arc::clone(&unnamed),
                agent_mode_name: Arc::clone(&unnamed),
                aliases: aliases(settings.tools.get(entry.name())),
                fingerprint: Arc::clone(&fingerprint),
                drain_counter: listing.drain_counter.clone(),
                schema_digest: OnceLock::new(),
                is_standalone: false,
            }));
        }
        warnings.extend(unknown_tool_warnings(settings, &offered));
        Self { tools, by_name: Arc::new(by_name), warnings: truncate_warnings(warnings).into() }
    }
}

/// Number of tools that the settings of their server permit.
pub(crate) fn n_permitted(tools: &[Arc<ToolEntry>], settings: &ServerSettings) -> usize {
    let names = || tools.iter().map(|tool| tool.name());
    let filters = filters(settings);
    let compiled = filters.each_ref().map(|filter| filter.compile(names()));
    names().filter(|name| compiled.iter().all(|filter| filter.permits(name))).count()
}

/// Filters that a tool must pass to be listed.
fn filters(settings: &ServerSettings) -> [ToolFilter; 2] {
    let allowed = settings.tools_allowed.as_ref().filter(|names| !names.is_empty());
    let allowing = |names: Option<&Vec<String>>| {
        names.map_or_else(ToolFilter::allow_all, |names| ToolFilter::allowing(names.iter().cloned()))
    };
    [
        allowing(allowed).denying(settings.tools_denied.iter().cloned()),
        allowing(settings.tool_filters.as_ref()),
    ]
}

fn aliases(settings: Option<&ToolSettings>) -> Vec<Arc<str>> {
    settings.into_iter().flat_map(|tool| &tool.aliases).map(|alias| alias.as_str().into()).collect()
}

/// Applies the operator's settings to an entry; returns the same entry if there are none.
fn with_settings(
    entry: &Arc<ToolEntry>,
    settings: &ServerSettings,
    warnings: &mut Vec<String>,
) -> Arc<ToolEntry> {
    let name = entry.name();
    let mut changed: Option<ToolEntry> = None;
    match settings.tool_schemas.get(name) {
        None => {}
        Some(Value::Object(schema)) => {
            let mut schema = schema.clone();
            // MCP requires input schemas to be of type object.
            schema.entry("type").or_insert_with(|| "object".into());
            let schema = Value::Object(schema);
            let definition = entry.definition().with("inputSchema", &RawJson::of(&schema));
            let entry = ToolEntry::clone(entry).with_definition(definition);
            changed = Some(entry.with_input_schema(Schema::new(schema)));
        }
        Some(_) => {
            warnings.push(format!("toolSchemas.{name} is not a JSON object; using the tool's own schema"));
        }
    }
    if let Some(tool) = settings.tools.get(name) {
        let tags: Vec<&String> = tool.tags.iter().filter(|tag| !entry.tags().contains(tag)).collect();
        if !tags.is_empty() {
            changed = Some(changed.unwrap_or_else(|| ToolEntry::clone(entry)).with_tags(tags));
        }
        if let Some(text) = &tool.instructions {
            changed = Some(changed.unwrap_or_else(|| ToolEntry::clone(entry)).with_instructions(text));
        }
    }
    changed.map_or_else(|| Arc::clone(entry), Arc::new)
}

/// Returns a warning for every tool that the settings name but the server does not offer.
fn unknown_tool_warnings(settings: &ServerSettings, offered: &IndexSet<&str>) -> Vec<String> {
    // A server that has not started yet offers nothing, which is no evidence against its settings.
    if offered.is_empty() {
        return Vec::new();
    }
    let named = (settings.tools.keys().map(|name| ("tools", name)))
        .chain(settings.tools_cache.keys().map(|name| ("toolsCache", name)))
        .chain(settings.tool_schemas.keys().map(|name| ("toolSchemas", name)));
    named
        .filter(|(_, name)| !offered.contains(name.as_str()))
        .take(MAX_WARNINGS)
        .map(|(key, name)| match nearest(name, offered.iter().copied().take(MAX_COMPARED), 1).first() {
            Some(near) => format!("{key}.{name}: the server has no such tool. Did you mean '{near}'?"),
            None => format!("{key}.{name}: the server has no such tool"),
        })
        .collect()
}

fn truncate_warnings(mut warnings: Vec<String>) -> Vec<String> {
    let n_more = warnings.len().saturating_sub(MAX_WARNINGS);
    if n_more > 0 {
        warnings.truncate(MAX_WARNINGS);
        warnings.push(format!("and {n_more} more"));
    }
    warnings
}
