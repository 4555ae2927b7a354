//! Which tool a text means: names are looked up whole, and none is ever taken apart.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use pegboard_core::error::NotFound;
use pegboard_core::id::{ToolId, ToolboxName};
use pegboard_core::text::clipped;

use super::{Stand, Tool, Warning};
use crate::names::{likeness, sanitised, usable};

/// How long a text may be to be taken for the name of a tool.
const MAX_ASKED_BYTES: usize = 1024;
/// How much of a text that names no tool is said again.
const MAX_SAID_BYTES: usize = 256;
/// How many tools may share a plain name for arguments to decide between them.
const MAX_NAMESAKES: usize = 64;
/// How much of two names' outlines must be the same, in a thousand, for the names to be compared.
const MIN_LIKENESS: u32 = 350;
/// How many names are compared letter by letter with one that is not there.
const MAX_COMPARED: usize = 32;
/// How many names are offered in place of one that is not there.
const N_NEAREST: usize = 3;

/// Which toolboxes there are for somebody. The tools of others do not exist for them.
#[derive(Clone, Copy, Default)]
pub enum Scope<'s> {
    /// All of them.
    #[default]
    All,
    /// Those for which the function says so.
    Only(&'s (dyn Fn(&ToolboxName) -> bool + Sync)),
}

impl Scope<'_> {
    /// Whether a toolbox is in it.
    pub fn has(self, toolbox: &ToolboxName) -> bool {
        match self {
            Self::All => true,
            Self::Only(has) => has(toolbox),
        }
    }
}

impl fmt::Debug for Scope<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("All"),
            Self::Only(_) => f.write_str("Only(..)"),
        }
    }
}

/// A tool that was found by a text.
#[derive(Clone, Debug)]
pub struct Resolved<'s> {
    /// The tool.
    pub tool: &'s Arc<Tool>,
    /// What was asked for, if that is no name of the tool.
    pub corrected_from: Option<String>,
}

/// The tables of names. A tool is its position.
#[derive(Debug, Default)]
pub(super) struct Names {
    flat: HashMap<Arc<str>, usize>,
    aliases: HashMap<Arc<str>, usize>,
    agent_mode: HashMap<Arc<str>, usize>,
    /// Names without a server, or without a toolbox where others need one. Several tools may share one.
    plain: HashMap<Box<str>, Vec<usize>>,
    outlines: Vec<[Outline; 2]>,
}

impl Names {
    /// The tables of these tools.
    pub(super) fn of(tools: &[Arc<Tool>], stands: &[Stand], warnings: &mut Vec<Warning>) -> Self {
        let mut names = Self {
            flat: table(tools, |tool| &tool.flat_name),
            agent_mode: table(tools, |tool| &tool.agent_mode_name),
            outlines: tools
                .iter()
                .map(|tool| [&*tool.flat_name, tool.id.name.as_str()].map(Outline::of))
                .collect(),
            ..Self::default()
        };
        names.plain.reserve(tools.len());
        for (at, tool) in tools.iter().enumerate() {
            names.add_aliases(tools, at, warnings);
            let name = tool.id.name.as_str();
            names.add_plain(name, at);
            if let Some(clean) = usable(name).filter(|clean| clean != name) {
                names.add_plain(&clean, at);
            }
        }
        for at in stands.iter().filter(|stand| stand.is_shared()).flat_map(|stand| stand.span.clone()) {
            let (server, name) = (&tools[at].id.server, sanitised(tools[at].id.name.as_str()));
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

    fn add_aliases(&mut self, tools: &[Arc<Tool>], at: usize, warnings: &mut Vec<Warning>) {
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
                    "the alias '{alias}' of tool '{name}' is a name of {} already; give it another",
                    tools[*holder].id
                )),
                None => drop(self.aliases.insert(Arc::clone(alias), at)),
            }
        }
    }

    /// The tool of this flat name.
    pub(super) fn flat<'t>(&self, tools: &'t [Arc<Tool>], name: &str) -> Option<&'t Arc<Tool>> {
        self.flat.get(name).map(|at| &tools[*at])
    }

    /// The tool that has exactly this name.
    pub(super) fn exact<'t>(
        &self,
        tools: &'t [Arc<Tool>],
        name: &str,
        scope: Scope<'_>,
    ) -> Option<&'t Arc<Tool>> {
        first(tools, scope, [&self.flat, &self.aliases, &self.agent_mode].map(|table| (table, name)))
    }

    /// The tool that is meant by a text that is no name of it.
    pub(super) fn guess<'t>(
        &self,
        tools: &'t [Arc<Tool>],
        asked: &str,
        scope: Scope<'_>,
        accepts: &dyn Fn(&Tool) -> bool,
    ) -> Option<&'t Arc<Tool>> {
        if asked.len() > MAX_ASKED_BYTES {
            return None;
        }
        if let Some(clean) = usable(asked) {
            let (agent, rest) = (format!("agent__{clean}"), format!("rest__{clean}"));
            let places = [
                (&self.flat, &*clean),
                (&self.aliases, &*clean),
                (&self.flat, &*agent),
                (&self.flat, &*rest),
                (&self.agent_mode, &*clean),
            ];
            if let Some(tool) = first(tools, scope, places) {
                return Some(tool);
            }
        }
        let namesakes = self.namesakes(tools, asked, scope);
        if namesakes.len() > MAX_NAMESAKES {
            return None;
        }
        let mut accepting = namesakes.into_iter().filter(|tool| accepts(tool));
        accepting.next().filter(|_| accepting.next().is_none())
    }

    /// The tools with this plain name, in order; one more than may share it at most.
    fn namesakes<'t>(&self, tools: &'t [Arc<Tool>], asked: &str, scope: Scope<'_>) -> Vec<&'t Arc<Tool>> {
        let of = |name: &str| self.plain.get(name).map_or(&[][..], Vec::as_slice);
        let clean = usable(asked).filter(|clean| clean != asked);
        let spelled = of(asked);
        let cleaned = clean.as_deref().map_or(&[][..], of).iter();
        let cleaned = cleaned.filter(|at| tools[**at].id.name.as_str() != asked);
        let in_scope = spelled.iter().chain(cleaned).map(|at| &tools[*at]);
        in_scope.filter(|tool| scope.has(&tool.id.toolbox)).take(MAX_NAMESAKES + 1).collect()
    }

    /// What to say of a text that means no tool.
    pub(super) fn unknown<'s>(
        &self,
        tools: &[Arc<Tool>],
        asked: &str,
        scope: Scope<'_>,
        spans: impl Iterator<Item = &'s Range<usize>>,
    ) -> NotFound {
        let name = clipped(asked, MAX_SAID_BYTES).into_owned();
        if asked.starts_with("agent__") {
            return NotFound::Agent { name };
        }
        let mut nearest: Vec<String> = Vec::new();
        if asked.len() <= MAX_ASKED_BYTES {
            let namesakes = self.namesakes(tools, asked, scope).into_iter().take(N_NEAREST);
            nearest.extend(namesakes.map(|tool| tool.flat_name.to_string()));
            for at in self.closest(tools, spans.flat_map(Clone::clone), asked, &[Face::Flat, Face::Name]) {
                let flat_name = &*tools[at].flat_name;
                if nearest.len() < N_NEAREST && !nearest.iter().any(|name| name == flat_name) {
                    nearest.push(flat_name.to_owned());
                }
            }
        }
        NotFound::Tool { name, nearest }
    }

    /// The names of a server's tools that are near to one that is not there.
    pub(super) fn closest_of_server(
        &self,
        tools: &[Arc<Tool>],
        span: &Range<usize>,
        asked: &str,
    ) -> Vec<String> {
        let closest = self.closest(tools, span.clone(), asked, &[Face::Name]);
        closest.into_iter().map(|at| tools[at].id.name.to_string()).collect()
    }

    /// The tools whose name is nearest, best first. All are looked at, but few are compared letter by letter.
    fn closest(
        &self,
        tools: &[Arc<Tool>],
        among: impl Iterator<Item = usize>,
        asked: &str,
        faces: &[Face],
    ) -> Vec<usize> {
        let outline = Outline::of(asked);
        let likely = |at: usize| {
            let likeness = |face: &Face| outline.likeness(&self.outlines[at][*face as usize]);
            (faces.iter().map(likeness).max().unwrap_or_default(), at)
        };
        let mut candidates: Vec<(u32, usize)> =
            among.map(likely).filter(|(likeness, _)| *likeness >= MIN_LIKENESS).collect();
        let best_first = |a: &(u32, usize), b: &(u32, usize)| b.0.cmp(&a.0).then(a.1.cmp(&b.1));
        if candidates.len() > MAX_COMPARED {
            candidates.select_nth_unstable_by(MAX_COMPARED, best_first);
            candidates.truncate(MAX_COMPARED);
        }
        let lower = asked.to_lowercase();
        let mut scored: Vec<(f64, usize)> = candidates
            .into_iter()
            .filter_map(|(_, at)| {
                let likenesses = faces.iter().filter_map(|face| likeness(&lower, face.of(&tools[at])));
                Some((likenesses.max_by(f64::total_cmp)?, at))
            })
            .collect();
        scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        scored.into_iter().take(N_NEAREST).map(|(_, at)| at).collect()
    }
}

fn table(tools: &[Arc<Tool>], name: impl Fn(&Tool) -> &Arc<str>) -> HashMap<Arc<str>, usize> {
    tools.iter().enumerate().map(|(at, tool)| (Arc::clone(name(tool)), at)).collect()
}

/// The first tool of the scope that one of the tables has under its name.
fn first<'t, const N: usize>(
    tools: &'t [Arc<Tool>],
    scope: Scope<'_>,
    places: [(&HashMap<Arc<str>, usize>, &str); N],
) -> Option<&'t Arc<Tool>> {
    let found = places.into_iter().filter_map(|(table, name)| table.get(name));
    found.map(|at| &tools[*at]).find(|tool| scope.has(&tool.id.toolbox))
}

/// Which name of a tool is compared.
#[derive(Clone, Copy)]
enum Face {
    Flat,
    Name,
}

impl Face {
    fn of(self, tool: &Tool) -> &str {
        match self {
            Self::Flat => &tool.flat_name,
            Self::Name => tool.id.name.as_str(),
        }
    }
}

/// The letters and pairs of letters of a name, a bit for each: enough to tell what cannot be near.
#[derive(Clone, Copy, Debug)]
struct Outline {
    bits: u128,
    n_bits: u32,
    n_bytes: usize,
}

impl Outline {
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

    /// From 0 to 1000. Names of which one is more than twice as long as the other are not alike.
    fn likeness(&self, other: &Self) -> u32 {
        let (short, long) = (self.n_bytes.min(other.n_bytes), self.n_bytes.max(other.n_bytes));
        let n_bits = self.n_bits + other.n_bits;
        if short * 2 < long || n_bits == 0 {
            return 0;
        }
        (self.bits & other.bits).count_ones() * 2_000 / n_bits
    }
}
