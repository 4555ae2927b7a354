//! Name resolution: names are looked up whole, and a name with the prefix of a server belongs to that server.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use pegboard_core::error::{CallError, NotFound};
use pegboard_core::id::ToolboxName;
use pegboard_core::provider::ToolKind;
use pegboard_core::text::clipped;

use super::labels::NameOwner;
use super::name_index::{AliasTarget, MAX_SUGGESTIONS, NameField};
use super::{CatalogueTool, ListingSlot, ServerListing, Snapshot, to_strings};
use crate::call::requests::ServerId;
use crate::names::{sanitize, try_sanitize};

/// Maximum length of a text that is looked up as a tool name.
const MAX_NAME_BYTES: usize = 1024;
/// Maximum length of an unknown name repeated in an error.
const MAX_ECHOED_BYTES: usize = 256;

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

/// The scope in which a name is resolved.
#[derive(Clone, Copy, Debug, Default)]
pub struct NameScope<'s> {
    /// Toolboxes that exist for the caller.
    pub visible: ToolboxScope<'s>,
    /// Toolboxes with tools that can be called. A name of another visible toolbox is refused with its name.
    pub open: ToolboxScope<'s>,
    /// Treatment of names that no tool has.
    pub corrections: NameCorrections,
}

impl<'s> From<ToolboxScope<'s>> for NameScope<'s> {
    fn from(scope: ToolboxScope<'s>) -> Self {
        Self { visible: scope, open: scope, corrections: NameCorrections::Off }
    }
}

/// Treatment of a name that no tool has but that differs from one only in spelling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NameCorrections {
    /// The name is refused with suggestions.
    #[default]
    Off,
    /// The name means the only tool of the named server that is spelled alike: ignoring case, `-`, `_` and
    /// characters that names cannot have.
    WithinServer,
}

/// A tool found by name.
#[derive(Clone, Debug)]
pub struct Resolved<'s> {
    /// The tool.
    pub tool: &'s Arc<CatalogueTool>,
    /// The requested text, if it is not a name of the tool.
    pub corrected_from: Option<String>,
}

/// Meaning of a name.
enum NameTarget<'s> {
    /// A tool, by one of its names.
    Exact(&'s Arc<CatalogueTool>),
    /// A tool, by its short name or a corrected one.
    Near(&'s Arc<CatalogueTool>),
    /// A tool of this server, which does not list it, or not yet.
    Missing(&'s ListingSlot, NotFound),
    /// Nothing that can be called.
    Unknown(NotFound),
}

impl Snapshot {
    /// Resolves a name within a scope.
    ///
    /// A flat name, an alias or an `agent_mode` name is a tool's own. Any other name that begins with the
    /// prefix of a server belongs to that server, whether it is running or not. A short name, without a
    /// server, means a tool only if the listing of every other server is known and lacks it.
    pub fn resolve<'s>(
        &self,
        name: &str,
        scope: impl Into<NameScope<'s>>,
    ) -> Result<Resolved<'_>, CallError> {
        match self.target(name, scope.into()) {
            NameTarget::Exact(tool) => Ok(Resolved { tool, corrected_from: None }),
            NameTarget::Near(tool) => Ok(Resolved { tool, corrected_from: Some(name.to_owned()) }),
            NameTarget::Missing(_, error) | NameTarget::Unknown(error) => Err(CallError::NotFound(error)),
        }
    }

    /// Returns the server that a name points to but that does not list the tool. Starting it may help; starting
    /// any other cannot.
    pub(crate) fn server_of(&self, name: &str, scope: NameScope<'_>) -> Option<ServerId> {
        match self.target(name, scope) {
            NameTarget::Missing(slot, _) => Some(slot.id()),
            NameTarget::Exact(_) | NameTarget::Near(_) | NameTarget::Unknown(_) => None,
        }
    }

    /// Returns the server with the prefix of a name, and the rest of the name. `None` if there is none, or if
    /// toolboxes share the server name.
    pub fn owner<'n>(&self, name: &'n str) -> Option<(&ServerListing, &'n str)> {
        let owner = self.names.labels.owner(name)?;
        let [slot] = owner.slots else { return None };
        Some((&self.slots[*slot].listing, owner.tool))
    }

    /// Returns `true` if a name belongs to no other server than this one.
    pub fn is_own_name(&self, name: &str, server: &ServerListing) -> bool {
        let slot = self.slot_index(&server.toolbox, &server.server);
        slot.is_some_and(|slot| self.names.labels.is_own(name, slot))
    }

    /// Returns `true` if the name that the server gave a tool means this tool and no other: it is a name of
    /// nothing else, and the listings of all other visible servers are known and lack it.
    pub fn is_unique_name(&self, tool: &CatalogueTool, visible: ToolboxScope<'_>) -> bool {
        let name = tool.id.name.as_str();
        let Some(own) = self.slot_index(&tool.id.toolbox, &tool.id.server) else { return false };
        let is_other = |(at, slot): &(usize, &ListingSlot)| *at != own && visible.has(&slot.listing.toolbox);
        let may_have = |slot: &ListingSlot| {
            let namesakes = self.names.plain.get(name).map_or(&[][..], Vec::as_slice);
            !slot.listing.is_known || namesakes.iter().any(|at| slot.span.contains(at))
        };
        self.exact(name, NameScope::default()).is_none()
            && self.names.labels.is_own(name, own)
            && !self.slots.iter().enumerate().filter(is_other).any(|(_, slot)| may_have(slot))
    }

    /// Returns `true` if a name has no prefix of a server, and is refused because several servers may have a tool of
    /// this name.
    pub fn is_ambiguous_short_name<'s>(&self, name: &str, scope: impl Into<NameScope<'s>>) -> bool {
        let target = self.target(name, scope.into());
        matches!(target, NameTarget::Unknown(NotFound::Ambiguous { .. }))
            && !has_separator(name)
            && self.names.labels.owner(name).is_none()
    }

    fn target(&self, name: &str, scope: NameScope<'_>) -> NameTarget<'_> {
        if name.len() > MAX_NAME_BYTES {
            return NameTarget::Unknown(unknown_tool(name, Vec::new()));
        }
        if let Some(found) = self.exact(name, scope) {
            return found;
        }
        if let Some(disabled) = self.names.labels.disabled_owner(name) {
            return of_disabled(name, disabled, scope);
        }
        let owner = self.names.labels.owner(name);
        let target = owner.map(|owner| self.owned(name, owner, scope));
        if let Some(NameTarget::Exact(_) | NameTarget::Near(_)) = target {
            return target.expect("it was just matched");
        }
        // `rest` is the server of single REST tools, and also the specification's prefix of services.
        let is_rest = |owner: NameOwner<'_, '_>| {
            owner.slots.iter().all(|at| self.slots[*at].listing.kind == ToolKind::Rest)
        };
        let service = self.names.labels.service(name).filter(|_| owner.is_none_or(is_rest));
        let service = service.map(|service| self.owned(name, service, scope));
        let found = service.or(target).or_else(|| self.unknown_path(name, scope));
        found.unwrap_or_else(|| self.short(name, scope))
    }

    /// Returns the meaning of a flat name, an alias or an `agent_mode` name.
    fn exact(&self, name: &str, scope: NameScope<'_>) -> Option<NameTarget<'_>> {
        let names = &self.names;
        let tool = match names.flat.get(name) {
            Some(at) => *at,
            None => match names.aliases.get(name) {
                Some(AliasTarget::Tool(at)) => *at,
                Some(AliasTarget::Missing(slot, tool)) => {
                    let slot = &self.slots[*slot];
                    return Some(self.in_slot(name, slot, tool.as_str(), scope));
                }
                None => *names.agent_mode.get(name)?,
            },
        };
        let tool = &self.tools[tool];
        Some(self.reachable(name, &tool.id.toolbox, scope).unwrap_or(NameTarget::Exact(tool)))
    }

    /// Returns the refusal of a name in a toolbox that is not open or does not exist for the caller.
    fn reachable(&self, name: &str, toolbox: &ToolboxName, scope: NameScope<'_>) -> Option<NameTarget<'_>> {
        if scope.open.has(toolbox) {
            return None;
        }
        Some(NameTarget::Unknown(if scope.visible.has(toolbox) {
            NotFound::NotOpen { toolbox: toolbox.to_string() }
        } else {
            self.unknown(name, scope)
        }))
    }

    /// Returns the meaning of a name that begins with the prefix of a server.
    fn owned(&self, name: &str, owner: NameOwner<'_, '_>, scope: NameScope<'_>) -> NameTarget<'_> {
        let slots = owner.slots.iter().map(|at| &self.slots[*at]);
        let visible: Vec<&ListingSlot> =
            slots.filter(|slot| scope.visible.has(&slot.listing.toolbox)).collect();
        let [first, ..] = visible[..] else {
            let hidden = self.slots[owner.slots[0]].listing.toolbox.to_string();
            return NameTarget::Unknown(if owner.prefix.contains('/') {
                self.unknown_toolbox(&hidden, scope)
            } else {
                self.unknown(name, scope)
            });
        };
        let may_have = |slot: &&&ListingSlot| {
            !slot.listing.is_known || self.find_in(slot, owner.tool, name, scope.corrections).is_some()
        };
        let candidates: Vec<&&ListingSlot> = visible.iter().filter(may_have).collect();
        match candidates[..] {
            [slot] => self.in_slot(name, slot, owner.tool, scope),
            [] if visible.len() == 1 => self.in_slot(name, first, owner.tool, scope),
            [] => NameTarget::Unknown(unknown_tool(name, self.closest_flat_names(name, &visible))),
            _ => {
                let tool = sanitize(owner.tool);
                let names = candidates.iter().map(|slot| format!("{}__{tool}", slot.label));
                NameTarget::Unknown(ambiguous(name, names.take(MAX_SUGGESTIONS).collect()))
            }
        }
    }

    /// Returns the meaning of a name within its server.
    fn in_slot<'s>(
        &'s self,
        name: &str,
        slot: &'s ListingSlot,
        tool: &str,
        scope: NameScope<'_>,
    ) -> NameTarget<'s> {
        if let Some(refusal) = self.reachable(name, &slot.listing.toolbox, scope) {
            return refusal;
        }
        self.find_in(slot, tool, name, scope.corrections).unwrap_or_else(|| {
            let error = if name.contains('/') {
                let nearest = self.names.closest_of_server(&self.tools, &slot.span, tool);
                let ServerId { toolbox, server } = slot.id();
                let name = clipped(tool, MAX_ECHOED_BYTES).into_owned();
                NotFound::ToolOfServer {
                    name,
                    nearest,
                    server: server.to_string(),
                    toolbox: toolbox.to_string(),
                }
            } else if name.starts_with("agent__") {
                unknown_agent(name)
            } else {
                unknown_tool(name, self.closest_flat_names(name, &[slot]))
            };
            NameTarget::Missing(slot, error)
        })
    }

    /// Returns the tool of a server that a name means: by the part after the prefix, or by the whole name if it
    /// is a short name, without a separator, that begins like the prefix.
    fn find_in(
        &self,
        slot: &ListingSlot,
        tool: &str,
        name: &str,
        corrections: NameCorrections,
    ) -> Option<NameTarget<'_>> {
        let by_name = |name: &str| slot.by_name.get(name).map(|at| &self.tools[slot.span.start + at]);
        let by_flat_name = || {
            let at = *self.names.flat.get(format!("{}__{tool}", slot.label).as_str())?;
            slot.span.contains(&at).then(|| &self.tools[at])
        };
        if let Some(tool) = by_name(tool).or_else(by_flat_name) {
            return Some(NameTarget::Exact(tool));
        }
        if let Some(tool) = by_name(name).filter(|_| !has_separator(name)) {
            return Some(NameTarget::Near(tool));
        }
        let wanted = match corrections {
            NameCorrections::Off => return None,
            NameCorrections::WithinServer => normalized(tool)?,
        };
        let is_alike =
            |tool: &&Arc<CatalogueTool>| normalized(tool.id.name.as_str()).as_ref() == Some(&wanted);
        let mut alike = self.tools[slot.span.clone()].iter().filter(is_alike);
        alike.next().filter(|_| alike.next().is_none()).map(NameTarget::Near)
    }

    /// Returns the meaning of a name without a server.
    fn short(&self, name: &str, scope: NameScope<'_>) -> NameTarget<'_> {
        // With a separator it is the name of a server that is not configured, or no longer.
        if has_separator(name) {
            return self.corrected(name, scope);
        }
        let is_visible = |slot: &&ListingSlot| scope.visible.has(&slot.listing.toolbox);
        let namesakes = self.names.plain.get(name).map_or(&[][..], Vec::as_slice);
        let named: HashSet<usize> = namesakes.iter().map(|at| self.slot_of(*at)).collect();
        let mut candidates = Vec::new();
        let mut n_others = 0;
        for (at, slot) in self.slots.iter().enumerate().filter(|(_, slot)| is_visible(slot)) {
            if named.contains(&at) || !slot.listing.is_known {
                candidates.push((at, slot));
            } else if slot.listing.kind == ToolKind::Mcp {
                n_others += 1;
            }
        }
        match candidates[..] {
            [] => self.corrected(name, scope),
            [(at, slot)] if named.contains(&at) => self.namesake(name, slot, namesakes, scope),
            // It can only be a tool of the one server there is.
            [(_, slot)] if n_others == 0 => self.in_slot(name, slot, name, scope),
            _ => {
                // A similar name that exists is a better suggestion than a server that may have the tool.
                let similar = if named.is_empty() { self.similar(name, scope) } else { Vec::new() };
                NameTarget::Unknown(if similar.is_empty() {
                    ambiguous(name, qualified(name, &candidates, &named))
                } else {
                    unknown_tool(name, similar)
                })
            }
        }
    }

    /// Returns the tool of a server with this short name.
    fn namesake(
        &self,
        name: &str,
        slot: &ListingSlot,
        namesakes: &[usize],
        scope: NameScope<'_>,
    ) -> NameTarget<'_> {
        if let Some(refusal) = self.reachable(name, &slot.listing.toolbox, scope) {
            return refusal;
        }
        let tools = namesakes.iter().filter(|at| slot.span.contains(at)).map(|at| &self.tools[*at]);
        let tools: Vec<&Arc<CatalogueTool>> = tools.collect();
        let own = tools.iter().find(|tool| tool.id.name.as_str() == name);
        match (own, &tools[..]) {
            (Some(tool), _) | (None, [tool]) => NameTarget::Near(tool),
            (None, several) => {
                let names = several.iter().take(MAX_SUGGESTIONS).map(|tool| tool.flat_name.to_string());
                NameTarget::Unknown(unknown_tool(name, names.collect()))
            }
        }
    }

    /// Returns the meaning of a name in sanitized form, if corrections are on and it names a server.
    fn corrected(&self, name: &str, scope: NameScope<'_>) -> NameTarget<'_> {
        let clean = match scope.corrections {
            NameCorrections::Off => None,
            NameCorrections::WithinServer => try_sanitize(name).filter(|clean| clean != name),
        };
        let corrected = clean.and_then(|clean| {
            if let Some(found) = self.exact(&clean, scope) {
                return Some(found);
            }
            let owner = self.names.labels.owner(&clean)?;
            Some(self.owned(&clean, owner, scope))
        });
        match corrected {
            Some(NameTarget::Exact(tool) | NameTarget::Near(tool)) => NameTarget::Near(tool),
            Some(NameTarget::Missing(slot, _)) => NameTarget::Missing(slot, self.unknown(name, scope)),
            Some(NameTarget::Unknown(_)) | None => NameTarget::Unknown(self.unknown(name, scope)),
        }
    }

    /// Returns the refusal of a path with an unknown toolbox or server.
    fn unknown_path(&self, name: &str, scope: NameScope<'_>) -> Option<NameTarget<'_>> {
        let mut parts = name.splitn(3, '/');
        let (toolbox, server, _) = (parts.next()?, parts.next()?, parts.next()?);
        let known = self.toolboxes.get_key_value(toolbox).filter(|(name, _)| scope.visible.has(name));
        Some(NameTarget::Unknown(match known {
            None => self.unknown_toolbox(toolbox, scope),
            Some((toolbox, servers)) => NotFound::Server {
                server: clipped(server, MAX_ECHOED_BYTES).into_owned(),
                toolbox: toolbox.to_string(),
                available: to_strings(servers.keys()),
            },
        }))
    }

    fn unknown_toolbox(&self, toolbox: &str, scope: NameScope<'_>) -> NotFound {
        let available = self.toolboxes.keys().filter(|name| scope.visible.has(name));
        let toolbox = clipped(toolbox, MAX_ECHOED_BYTES).into_owned();
        NotFound::Toolbox { toolbox, available: to_strings(available) }
    }

    /// Returns the error for a name that belongs to no server, with similar names.
    fn unknown(&self, name: &str, scope: NameScope<'_>) -> NotFound {
        if name.starts_with("agent__") {
            return unknown_agent(name);
        }
        unknown_tool(name, self.similar(name, scope))
    }

    /// Returns the flat names of the visible tools with the most similar names.
    fn similar(&self, name: &str, scope: NameScope<'_>) -> Vec<String> {
        let visible = self.slots.iter().filter(|slot| scope.visible.has(&slot.listing.toolbox));
        self.closest_flat_names(name, &visible.collect::<Vec<_>>())
    }

    fn closest_flat_names(&self, name: &str, among: &[&ListingSlot]) -> Vec<String> {
        let tools = among.iter().flat_map(|slot| slot.span.clone());
        let closest = self.names.closest(&self.tools, tools, name, &[NameField::Flat, NameField::Name]);
        closest.into_iter().map(|at| self.tools[at].flat_name.to_string()).collect()
    }

    /// Returns the slot of a tool.
    fn slot_of(&self, tool: usize) -> usize {
        self.slots.partition_point(|slot| slot.span.end <= tool)
    }
}

/// Returns the refusal of a name that belongs to a disabled server. It is no other server's, and none is suggested.
fn of_disabled<'s>(
    name: &str,
    ServerId { toolbox, server }: &ServerId,
    scope: NameScope<'_>,
) -> NameTarget<'s> {
    NameTarget::Unknown(if scope.visible.has(toolbox) {
        NotFound::Disabled { server: server.to_string(), toolbox: toolbox.to_string() }
    } else {
        unknown_tool(name, Vec::new())
    })
}

/// Returns the names with a server that a short name may mean, in configuration order. They are the same
/// before and after the servers have listed their tools.
fn qualified(name: &str, candidates: &[(usize, &ListingSlot)], named: &HashSet<usize>) -> Vec<String> {
    let (known, unknown): (Vec<_>, Vec<_>) = candidates.iter().partition(|(at, _)| named.contains(at));
    let mut suggested: Vec<&(usize, &ListingSlot)> =
        known.into_iter().chain(unknown).take(MAX_SUGGESTIONS).collect();
    suggested.sort_by_key(|(at, _)| *at);
    let tool = sanitize(name);
    suggested.into_iter().map(|(_, slot)| format!("{}__{tool}", slot.label)).collect()
}

/// Returns `true` if a name has a separator between a server and a tool.
fn has_separator(name: &str) -> bool {
    name.contains("__") || name.contains('/')
}

fn unknown_tool(name: &str, nearest: Vec<String>) -> NotFound {
    NotFound::Tool { name: clipped(name, MAX_ECHOED_BYTES).into_owned(), nearest }
}

fn ambiguous(name: &str, candidates: Vec<String>) -> NotFound {
    NotFound::Ambiguous { name: clipped(name, MAX_ECHOED_BYTES).into_owned(), candidates }
}

fn unknown_agent(name: &str) -> NotFound {
    NotFound::Agent { name: clipped(name, MAX_ECHOED_BYTES).into_owned() }
}

/// Returns the letters and digits of a name in lower case; `None` if there are none.
fn normalized(name: &str) -> Option<String> {
    let mut clean = try_sanitize(name)?;
    clean.retain(|letter| letter.is_ascii_alphanumeric());
    clean.make_ascii_lowercase();
    Some(clean).filter(|clean| !clean.is_empty())
}
