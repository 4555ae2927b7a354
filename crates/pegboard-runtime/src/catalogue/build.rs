//! How a snapshot is made from what the servers offer.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use indexmap::IndexSet;
use indexmap::map::Entry;
use pegboard_core::entry::ToolEntry;
use pegboard_core::id::{ToolId, ToolName};
use pegboard_core::schema::Schema;
use pegboard_core::settings::{ServerSettings, ToolSettings};
use pegboard_json::RawJson;
use serde_json::Value;

use super::resolve::Names;
use super::{Collision, Rules, Shelf, Snapshot, Stand, Tool, Warning};
use crate::filter::ToolFilter;
use crate::names::{Given, agent_mode_names_of, flat_names_under, labels, nearest};

/// How many tools a name that no tool has is compared with.
const MAX_COMPARED: usize = 200;
/// How many warnings about one server there may be; of the others only their number is told.
const MAX_WARNINGS: usize = 50;

impl Snapshot {
    /// The tools of these shelves, which are in the order of the configuration. No name is longer than the limit.
    pub fn build(shelves: &[Shelf], name_limit: usize) -> Self {
        Self::default().rebuild(shelves, name_limit)
    }

    /// A snapshot of these shelves that shares every tool with this one that has not changed.
    #[must_use]
    pub fn rebuild(&self, shelves: &[Shelf], name_limit: usize) -> Self {
        let mut next = Self::default();
        let labels = labels(shelves.iter().map(|shelf| (&shelf.toolbox, &shelf.server)));
        for (shelf, label) in shelves.iter().zip(labels) {
            next.add(shelf, label, Stock::kept(self, shelf).unwrap_or_else(|| Stock::of(shelf)));
        }
        let flat_names = flat_names_under(next.labelled(), name_limit);
        let agent_mode_names = agent_mode_names_of(next.tools.iter().map(|tool| &tool.id), name_limit);
        next.name_tools(&flat_names, &agent_mode_names);
        for stand in &next.stands {
            next.warnings.extend(stand.warnings.iter().map(|text| warning(&stand.shelf, text)));
        }
        next.names = Names::of(&next.tools, &next.stands, &mut next.warnings);
        next.collide(&flat_names);
        next
    }

    fn add(&mut self, new: &Shelf, label: String, stock: Stock) {
        let servers = &mut self.toolboxes.entry(new.toolbox.clone()).or_default().servers;
        let Entry::Vacant(place) = servers.entry(new.server.clone()) else {
            self.warnings.push(warning(new, "the toolbox has this server twice; the first is used"));
            return;
        };
        place.insert(self.stands.len());
        let start = self.tools.len();
        self.tools.extend(stock.tools);
        self.stands.push(Stand {
            shelf: new.clone(),
            label,
            span: start..self.tools.len(),
            by_name: stock.by_name,
            warnings: stock.warnings,
        });
    }

    /// Every tool with the label of its server.
    fn labelled(&self) -> impl Iterator<Item = (&str, &ToolId)> {
        let tools = |stand: &Stand| self.tools[stand.span.clone()].iter().map(|tool| &tool.id);
        self.stands.iter().flat_map(move |stand| tools(stand).map(|id| (stand.label.as_str(), id)))
    }

    /// Gives every tool its names. One that has them already stays the same tool.
    fn name_tools(&mut self, flat_names: &[Given], agent_mode_names: &[Given]) {
        for (tool, (flat, agent_mode)) in self.tools.iter_mut().zip(flat_names.iter().zip(agent_mode_names)) {
            if *tool.flat_name != *flat.name || *tool.agent_mode_name != *agent_mode.name {
                let tool = Arc::make_mut(tool);
                tool.flat_name = flat.name.as_str().into();
                tool.agent_mode_name = agent_mode.name.as_str().into();
            }
        }
    }

    fn collide(&mut self, flat_names: &[Given]) {
        for (tool, given) in self.tools.iter().zip(flat_names) {
            let Some(wanted) = &given.wanted else { continue };
            let Some(holder) = self.names.flat(&self.tools, wanted) else { continue };
            self.collisions.push(Collision {
                tool: tool.id.clone(),
                wanted: wanted.clone(),
                given: Arc::clone(&tool.flat_name),
                taken_by: holder.id.clone(),
            });
        }
    }
}

fn warning(shelf: &Shelf, text: &str) -> Warning {
    Warning { toolbox: shelf.toolbox.clone(), server: shelf.server.clone(), text: text.to_owned() }
}

/// The tools of one shelf, before they have their names.
struct Stock {
    tools: Vec<Arc<Tool>>,
    by_name: Arc<HashMap<ToolName, usize>>,
    warnings: Arc<[String]>,
}

impl Stock {
    /// What a snapshot knows of a shelf, if nothing about it has changed.
    fn kept(previous: &Snapshot, shelf: &Shelf) -> Option<Self> {
        let stand = previous.stand(&shelf.toolbox, &shelf.server)?;
        let is_same = Arc::ptr_eq(&stand.shelf.offer, &shelf.offer)
            && Arc::ptr_eq(&stand.shelf.settings, &shelf.settings)
            && stand.shelf.usage.is_same(&shelf.usage)
            && stand.shelf.kind == shelf.kind;
        is_same.then(|| Self {
            tools: previous.tools[stand.span.clone()].to_vec(),
            by_name: Arc::clone(&stand.by_name),
            warnings: Arc::clone(&stand.warnings),
        })
    }

    fn of(shelf: &Shelf) -> Self {
        let settings = &*shelf.settings;
        let offered: IndexSet<&str> = shelf.offer.tools.iter().map(|entry| entry.name()).collect();
        let filters = filters(settings);
        let filters: Vec<_> = filters.iter().map(|filter| filter.among(offered.iter().copied())).collect();
        let mut warnings = shelf.offer.warnings.clone();
        let (fingerprint, unnamed): (Arc<str>, Arc<str>) =
            (shelf.offer.fingerprint.as_str().into(), "".into());
        let rules = Rules::of_server(settings);
        let mut tools = Vec::with_capacity(shelf.offer.tools.len());
        let mut by_name = HashMap::with_capacity(shelf.offer.tools.len());
        for entry in &shelf.offer.tools {
            let name = match ToolName::new(entry.name()) {
                Ok(name) => name,
                Err(invalid) => {
                    warnings.push(format!("a tool was left out: {invalid}"));
                    continue;
                }
            };
            if !filters.iter().all(|filter| filter.permits(entry.name())) {
                continue;
            }
            if by_name.contains_key(&name) {
                warnings.push(format!("the tool '{name}' is offered more than once; the first is used"));
                continue;
            }
            by_name.insert(name.clone(), tools.len());
            tools.push(Arc::new(Tool {
                rules: rules.for_tool(entry, settings),
                entry: with_settings(entry, settings, &mut warnings),
                id: ToolId { toolbox: shelf.toolbox.clone(), server: shelf.server.clone(), name },
                kind: shelf.kind,
                flat_name: Arc::clone(&unnamed),
                agent_mode_name: Arc::clone(&unnamed),
                aliases: aliases(settings.tools.get(entry.name())),
                fingerprint: Arc::clone(&fingerprint),
                usage: shelf.usage.clone(),
                schema_digest: OnceLock::new(),
                is_lone: false,
            }));
        }
        warnings.extend(strangers(settings, &offered));
        Self { tools, by_name: Arc::new(by_name), warnings: capped(warnings).into() }
    }
}

/// What a tool must pass to be there at all.
fn filters(settings: &ServerSettings) -> [ToolFilter; 2] {
    let allowed = settings.tools_allowed.as_ref().filter(|names| !names.is_empty());
    let allowing = |names: Option<&Vec<String>>| {
        names.map_or_else(ToolFilter::everything, |names| ToolFilter::allowing(names.iter().cloned()))
    };
    [
        allowing(allowed).denying(settings.tools_denied.iter().cloned()),
        allowing(settings.tool_filters.as_ref()),
    ]
}

fn aliases(settings: Option<&ToolSettings>) -> Vec<Arc<str>> {
    settings.into_iter().flat_map(|tool| &tool.aliases).map(|alias| alias.as_str().into()).collect()
}

/// The entry with what the operator says of it; the same one if that is nothing.
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
            // A list may only have schemas of objects.
            schema.entry("type").or_insert_with(|| "object".into());
            let schema = Value::Object(schema);
            let definition = entry.definition().with("inputSchema", &RawJson::of(&schema));
            let entry = ToolEntry::clone(entry).with_definition(definition);
            changed = Some(entry.with_input_schema(Schema::new(schema)));
        }
        Some(_) => warnings.push(format!(
            "toolSchemas.{name} is no JSON object; the tool's own schema is used until it is one"
        )),
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

/// A remark on every tool that the settings name and the server does not offer.
fn strangers(settings: &ServerSettings, offered: &IndexSet<&str>) -> Vec<String> {
    // A server that is not there yet offers nothing, and that says nothing about its settings.
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

fn capped(mut warnings: Vec<String>) -> Vec<String> {
    let n_more = warnings.len().saturating_sub(MAX_WARNINGS);
    if n_more > 0 {
        warnings.truncate(MAX_WARNINGS);
        warnings.push(format!("and {n_more} more"));
    }
    warnings
}
