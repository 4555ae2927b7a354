//! Lookup tables of the names of all tools.

use std::ops::Range;
use std::sync::Arc;

use foldhash::HashMap;
use pegboard_core::id::{ToolId, ToolName};
use pegboard_core::similar::similarity;

use super::labels::LabelIndex;
use super::{CatalogueTool, ListingSlot, Warning};
use crate::call::requests::ServerId;
use crate::names::try_sanitize;

/// Minimum similarity of two name sketches, in thousandths, for the names to be compared.
const MIN_SIMILARITY: u32 = 350;
/// Maximum number of names compared by edit distance.
const MAX_COMPARED: usize = 32;
/// Maximum number of suggestions for an unknown name.
pub(super) const MAX_SUGGESTIONS: usize = 3;

/// Name lookup tables. A tool is represented by its index.
#[derive(Debug, Default)]
pub(super) struct NameIndex {
    pub(super) flat: HashMap<Arc<str>, usize>,
    pub(super) aliases: HashMap<Arc<str>, AliasTarget>,
    pub(super) agent_mode: HashMap<Arc<str>, usize>,
    /// Names without a server, as the server gave them and as they are listed. Several tools may share one.
    pub(super) plain: HashMap<Box<str>, Vec<usize>>,
    pub(super) labels: LabelIndex,
    sketches: Vec<[NameSketch; 2]>,
}

/// Tool that an alias was declared for.
#[derive(Debug)]
pub(super) enum AliasTarget {
    Tool(usize),
    /// The tool is not in the listing of its server, given as a slot.
    Missing(usize, ToolName),
}

impl NameIndex {
    /// Builds the lookup tables.
    pub(super) fn of(
        tools: &[Arc<CatalogueTool>],
        slots: &[ListingSlot],
        labels: LabelIndex,
        warnings: &mut Vec<Warning>,
    ) -> Self {
        let mut names = Self {
            flat: index_by_name(tools, |tool| &tool.flat_name),
            agent_mode: index_by_name(tools, |tool| &tool.agent_mode_name),
            sketches: tools
                .iter()
                .map(|tool| [&*tool.flat_name, tool.id.name.as_str()].map(NameSketch::of))
                .collect(),
            labels,
            ..Self::default()
        };
        names.plain.reserve(tools.len());
        for (at, tool) in tools.iter().enumerate() {
            let name = tool.id.name.as_str();
            names.add_plain(name, at);
            if let Some(clean) = try_sanitize(name).filter(|clean| clean != name) {
                names.add_plain(&clean, at);
            }
        }
        for at in 0..slots.len() {
            names.add_aliases(tools, slots, at, warnings);
        }
        names
    }

    fn add_plain(&mut self, name: &str, at: usize) {
        match self.plain.get_mut(name) {
            Some(namesakes) => namesakes.push(at),
            None => drop(self.plain.insert(name.into(), vec![at])),
        }
    }

    /// Adds the declared aliases of a server's tools, listed or not.
    fn add_aliases(
        &mut self,
        tools: &[Arc<CatalogueTool>],
        slots: &[ListingSlot],
        at: usize,
        warnings: &mut Vec<Warning>,
    ) {
        let slot = &slots[at];
        let ServerId { toolbox, server } = slot.id();
        let mut warn =
            |text| warnings.push(Warning { toolbox: toolbox.clone(), server: server.clone(), text });
        for (name, settings) in &slot.listing.settings.tools {
            let Ok(name) = ToolName::new(name) else { continue };
            let tool = slot.by_name.get(&name).map(|offset| slot.span.start + offset);
            for alias in &settings.aliases {
                if alias.trim().is_empty() {
                    warn(format!("an alias of tool '{name}' is empty"));
                    continue;
                }
                let holder = self.holder(tools, slots, alias, at);
                match holder {
                    Some(holder) if tool.is_some_and(|tool| tools[tool].id.to_string() == holder) => {}
                    Some(holder) => warn(format!(
                        "the alias '{alias}' of tool '{name}' is already a name of {holder}; choose another"
                    )),
                    None => {
                        let target =
                            tool.map_or_else(|| AliasTarget::Missing(at, name.clone()), AliasTarget::Tool);
                        self.aliases.insert(alias.as_str().into(), target);
                    }
                }
            }
        }
    }

    /// Returns the tool or server that an alias is a name of already.
    fn holder(
        &self,
        tools: &[Arc<CatalogueTool>],
        slots: &[ListingSlot],
        alias: &str,
        slot: usize,
    ) -> Option<String> {
        if let Some(at) = self.flat.get(alias) {
            return Some(tools[*at].id.to_string());
        }
        match self.aliases.get(alias) {
            Some(AliasTarget::Tool(at)) => return Some(tools[*at].id.to_string()),
            Some(AliasTarget::Missing(at, name)) => {
                let ServerId { toolbox, server } = slots[*at].id();
                return Some(ToolId { toolbox, server, name: name.clone() }.to_string());
            }
            None => {}
        }
        // The tools of that server may not be known yet, and the warning must not depend on it.
        let owner = self.labels.owner(alias)?;
        let is_flat = alias[owner.prefix.len()..].starts_with("__") || owner.is_path(alias);
        let other = owner.slots.iter().find(|at| **at != slot)?;
        is_flat.then(|| format!("server '{}'", slots[*other].label))
    }

    /// Returns the tool with this flat name.
    pub(super) fn flat<'t>(
        &self,
        tools: &'t [Arc<CatalogueTool>],
        name: &str,
    ) -> Option<&'t Arc<CatalogueTool>> {
        self.flat.get(name).map(|at| &tools[*at])
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
    pub(super) fn closest(
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

/// The name of a tool that is compared.
#[derive(Clone, Copy)]
pub(super) enum NameField {
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
