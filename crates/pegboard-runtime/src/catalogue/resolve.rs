//! Name resolution: names are looked up whole and never split.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use pegboard_core::error::NotFound;
use pegboard_core::id::{ToolId, ToolboxName};
use pegboard_core::similar::similarity;
use pegboard_core::text::clipped;

use super::{CatalogueTool, ListingSlot, Warning};
use crate::names::{sanitize, try_sanitize};

/// Maximum length of a text that is looked up as a tool name.
const MAX_NAME_BYTES: usize = 1024;
/// Maximum length of an unknown name repeated in an error.
const MAX_ECHOED_BYTES: usize = 256;
/// Maximum number of tools sharing a plain name that arguments can disambiguate.
const MAX_NAMESAKES: usize = 64;
/// Minimum similarity of two name sketches, in thousandths, for the names to be compared.
const MIN_SIMILARITY: u32 = 350;
/// Maximum number of names compared by edit distance.
const MAX_COMPARED: usize = 32;
/// Maximum number of suggestions for an unknown name.
const MAX_SUGGESTIONS: usize = 3;

/// The toolboxes that a caller can see. Tools of other toolboxes do not exist for the caller.
#[derive(Clone, Copy, Default)]
pub enum ToolboxScope<'s> {
    /// All toolboxes.
    #[default]
    All,
    /// The toolboxes accepted by the predicate.
    Only(&'s (dyn Fn(&ToolboxName) -> bool + Sync)),
}

impl ToolboxScope<'_> {
    /// Returns `true` if a toolbox is in scope.
    pub fn has(self, toolbox: &ToolboxName) -> bool {
        match self {
            Self::All => true,
            Self::Only(has) => has(toolbox),
        }
    }
}

impl fmt::Debug for ToolboxScope<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("All"),
            Self::Only(_) => f.write_str("Only(..)"),
        }
    }
}

/// A tool found by name.
#[derive(Clone, Debug)]
pub struct Resolved<'s> {
    /// The tool.
    pub tool: &'s Arc<CatalogueTool>,
    /// The requested text, if it is not a name of the tool.
    pub corrected_from: Option<String>,
}

/// Name lookup tables. A tool is represented by its index.
#[derive(Debug, Default)]
pub(super) struct NameIndex {
    flat: HashMap<Arc<str>, usize>,
    aliases: HashMap<Arc<str>, usize>,
    agent_mode: HashMap<Arc<str>, usize>,
    /// Names without a server, or without a toolbox where others need one. Several tools may share one.
    plain: HashMap<Box<str>, Vec<usize>>,
    sketches: Vec<[NameSketch; 2]>,
}

impl NameIndex {
    /// Builds the lookup tables.
    pub(super) fn of(
        tools: &[Arc<CatalogueTool>],
        slots: &[ListingSlot],
        warnings: &mut Vec<Warning>,
    ) -> Self {
        let mut names = Self {
            flat: index_by_name(tools, |tool| &tool.flat_name),
            agent_mode: index_by_name(tools, |tool| &tool.agent_mode_name),
            sketches: tools
                .iter()
                .map(|tool| [&*tool.flat_name, tool.id.name.as_str()].map(NameSketch::of))
                .collect(),
            ..Self::default()
        };
        names.plain.reserve(tools.len());
        for (at, tool) in tools.iter().enumerate() {
            names.add_aliases(tools, at, warnings);
            let name = tool.id.name.as_str();
            names.add_plain(name, at);
            if let Some(clean) = try_sanitize(name).filter(|clean| clean != name) {
                names.add_plain(&clean, at);
            }
        }
        for at in slots.iter().filter(|slot| slot.is_shared()).flat_map(|slot| slot.span.clone()) {
            let (server, name) = (&tools[at].id.server, sanitize(tools[at].id.name.as_str()));
            names.add_plain(&format!("{server}__{name}"), at);
            names.add_plain(&format!("{server}_{name}"), at);
        }
        names
    }

    fn add_plain(&mut self, name: &str, at: usize) {
        match self.plain.get_mut(name) {
            Some(namesakes) => namesakes.push(at),
            None => drop(self.plain.insert(name.into(), vec![at])),
        }
    }

    fn add_aliases(&mut self, tools: &[Arc<CatalogueTool>], at: usize, warnings: &mut Vec<Warning>) {
        let ToolId { toolbox, server, name } = &tools[at].id;
        let mut warn =
            |text| warnings.push(Warning { toolbox: toolbox.clone(), server: server.clone(), text });
        for alias in &tools[at].aliases {
            if alias.trim().is_empty() {
                warn(format!("an alias of tool '{name}' is empty"));
                continue;
            }
            match self.flat.get(alias).or_else(|| self.aliases.get(alias)) {
                Some(holder) if *holder == at => {}
                Some(holder) => warn(format!(
                    "the alias '{alias}' of tool '{name}' is already a name of {}; choose another",
                    tools[*holder].id
                )),
                None => drop(self.aliases.insert(Arc::clone(alias), at)),
            }
        }
    }

    /// Returns the tool with this flat name.
    pub(super) fn flat<'t>(
        &self,
        tools: &'t [Arc<CatalogueTool>],
        name: &str,
    ) -> Option<&'t Arc<CatalogueTool>> {
        self.flat.get(name).map(|at| &tools[*at])
    }

    /// Returns the tool with exactly this name.
    pub(super) fn exact<'t>(
        &self,
        tools: &'t [Arc<CatalogueTool>],
        name: &str,
        scope: ToolboxScope<'_>,
    ) -> Option<&'t Arc<CatalogueTool>> {
        first_in_scope(tools, scope, [&self.flat, &self.aliases, &self.agent_mode].map(|table| (table, name)))
    }

    /// Returns the tool that a text most likely means.
    pub(super) fn guess<'t>(
        &self,
        tools: &'t [Arc<CatalogueTool>],
        requested: &str,
        scope: ToolboxScope<'_>,
        accepts: &dyn Fn(&CatalogueTool) -> bool,
    ) -> Option<&'t Arc<CatalogueTool>> {
        if requested.len() > MAX_NAME_BYTES {
            return None;
        }
        if let Some(clean) = try_sanitize(requested) {
            let (agent, rest) = (format!("agent__{clean}"), format!("rest__{clean}"));
            let places = [
                (&self.flat, &*clean),
                (&self.aliases, &*clean),
                (&self.flat, &*agent),
                (&self.flat, &*rest),
                (&self.agent_mode, &*clean),
            ];
            if let Some(tool) = first_in_scope(tools, scope, places) {
                return Some(tool);
            }
        }
        let namesakes = self.namesakes(tools, requested, scope);
        if namesakes.len() > MAX_NAMESAKES {
            return None;
        }
        let mut accepting = namesakes.into_iter().filter(|tool| accepts(tool));
        accepting.next().filter(|_| accepting.next().is_none())
    }

    /// Returns the tools with this plain name, in order; at most one more than the limit.
    fn namesakes<'t>(
        &self,
        tools: &'t [Arc<CatalogueTool>],
        requested: &str,
        scope: ToolboxScope<'_>,
    ) -> Vec<&'t Arc<CatalogueTool>> {
        let of = |name: &str| self.plain.get(name).map_or(&[][..], Vec::as_slice);
        let clean = try_sanitize(requested).filter(|clean| clean != requested);
        let spelled = of(requested);
        let cleaned = clean.as_deref().map_or(&[][..], of).iter();
        let cleaned = cleaned.filter(|at| tools[**at].id.name.as_str() != requested);
        let in_scope = spelled.iter().chain(cleaned).map(|at| &tools[*at]);
        in_scope.filter(|tool| scope.has(&tool.id.toolbox)).take(MAX_NAMESAKES + 1).collect()
    }

    /// Returns the error for an unknown name, with suggestions.
    pub(super) fn not_found<'s>(
        &self,
        tools: &[Arc<CatalogueTool>],
        requested: &str,
        scope: ToolboxScope<'_>,
        spans: impl Iterator<Item = &'s Range<usize>>,
    ) -> NotFound {
        let name = clipped(requested, MAX_ECHOED_BYTES).into_owned();
        if requested.starts_with("agent__") {
            return NotFound::Agent { name };
        }
        let mut nearest: Vec<String> = Vec::new();
        if requested.len() <= MAX_NAME_BYTES {
            let namesakes = self.namesakes(tools, requested, scope).into_iter().take(MAX_SUGGESTIONS);
            nearest.extend(namesakes.map(|tool| tool.flat_name.to_string()));
            for at in self.closest(
                tools,
                spans.flat_map(Clone::clone),
                requested,
                &[NameField::Flat, NameField::Name],
            ) {
                let flat_name = &*tools[at].flat_name;
                if nearest.len() < MAX_SUGGESTIONS && !nearest.iter().any(|name| name == flat_name) {
                    nearest.push(flat_name.to_owned());
                }
            }
        }
        NotFound::Tool { name, nearest }
    }

    /// Returns the names of a server's tools that are similar to an unknown one.
    pub(super) fn closest_of_server(
        &self,
        tools: &[Arc<CatalogueTool>],
        span: &Range<usize>,
        requested: &str,
    ) -> Vec<String> {
        let closest = self.closest(tools, span.clone(), requested, &[NameField::Name]);
        closest.into_iter().map(|at| tools[at].id.name.to_string()).collect()
    }

    /// Returns the tools with the most similar names, best first. Sketches preselect the few that are
    /// compared by edit distance.
    fn closest(
        &self,
        tools: &[Arc<CatalogueTool>],
        among: impl Iterator<Item = usize>,
        requested: &str,
        name_fields: &[NameField],
    ) -> Vec<usize> {
        let sketch = NameSketch::of(requested);
        let score = |at: usize| {
            let similarity =
                |name_field: &NameField| sketch.similarity(&self.sketches[at][*name_field as usize]);
            (name_fields.iter().map(similarity).max().unwrap_or_default(), at)
        };
        let mut candidates: Vec<(u32, usize)> =
            among.map(score).filter(|(similarity, _)| *similarity >= MIN_SIMILARITY).collect();
        let best_first = |a: &(u32, usize), b: &(u32, usize)| b.0.cmp(&a.0).then(a.1.cmp(&b.1));
        if candidates.len() > MAX_COMPARED {
            candidates.select_nth_unstable_by(MAX_COMPARED, best_first);
            candidates.truncate(MAX_COMPARED);
        }
        let lower = requested.to_lowercase();
        let mut scored: Vec<(f64, usize)> = candidates
            .into_iter()
            .filter_map(|(_, at)| {
                let similarities =
                    name_fields.iter().filter_map(|name_field| similarity(&lower, name_field.of(&tools[at])));
                Some((similarities.max_by(f64::total_cmp)?, at))
            })
            .collect();
        scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        scored.into_iter().take(MAX_SUGGESTIONS).map(|(_, at)| at).collect()
    }
}

fn index_by_name(
    tools: &[Arc<CatalogueTool>],
    name: impl Fn(&CatalogueTool) -> &Arc<str>,
) -> HashMap<Arc<str>, usize> {
    tools.iter().enumerate().map(|(at, tool)| (Arc::clone(name(tool)), at)).collect()
}

/// Returns the first tool of the scope that one of the tables has under its name.
fn first_in_scope<'t, const N: usize>(
    tools: &'t [Arc<CatalogueTool>],
    scope: ToolboxScope<'_>,
    places: [(&HashMap<Arc<str>, usize>, &str); N],
) -> Option<&'t Arc<CatalogueTool>> {
    let found = places.into_iter().filter_map(|(table, name)| table.get(name));
    found.map(|at| &tools[*at]).find(|tool| scope.has(&tool.id.toolbox))
}

/// The name of a tool that is compared.
#[derive(Clone, Copy)]
enum NameField {
    Flat,
    Name,
}

impl NameField {
    fn of(self, tool: &CatalogueTool) -> &str {
        match self {
            Self::Flat => &tool.flat_name,
            Self::Name => tool.id.name.as_str(),
        }
    }
}

/// A bit set of the letters and letter pairs of a name; a cheap filter for dissimilar names.
#[derive(Clone, Copy, Debug)]
struct NameSketch {
    bits: u128,
    n_bits: u32,
    n_bytes: usize,
}

impl NameSketch {
    fn of(name: &str) -> Self {
        const N_LETTERS: u32 = 32;
        let mut bits = 0_u128;
        let mut last = None;
        for byte in name.bytes().map(|byte| u32::from(byte.to_ascii_lowercase())) {
            bits |= 1 << (byte % N_LETTERS);
            if let Some(last) = last.replace(byte) {
                bits |= 1 << (N_LETTERS + (last * 31 + byte) % (u128::BITS - N_LETTERS));
            }
        }
        Self { bits, n_bits: bits.count_ones(), n_bytes: name.len() }
    }

    /// Returns the similarity from 0 to 1000; 0 if one name is more than twice as long as the other.
    fn similarity(&self, other: &Self) -> u32 {
        let (short, long) = (self.n_bytes.min(other.n_bytes), self.n_bytes.max(other.n_bytes));
        let n_bits = self.n_bits + other.n_bits;
        if short * 2 < long || n_bits == 0 {
            return 0;
        }
        (self.bits & other.bits).count_ones() * 2_000 / n_bits
    }
}
