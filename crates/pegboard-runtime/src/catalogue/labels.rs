//! Ownership of names: a text that begins with the name of a server belongs to that server.

use std::collections::HashMap;

use pegboard_core::provider::ToolKind;

use super::ListingSlot;
use crate::call::requests::ServerId;
use crate::names::shortened_head;

/// Prefix that the specification of tool names gives the services of a web API.
const REST_PREFIX: &str = "rest__";

/// Servers by the prefixes of their tools' names. It depends on the configuration alone, never on the state of
/// a server or on the tools that it offers.
#[derive(Debug, Default)]
pub(super) struct LabelIndex {
    /// Slots by label, by `toolbox/server`, and by the server name that several toolboxes share.
    by_prefix: HashMap<Box<str>, Vec<usize>>,
    /// Slots by the beginning of names with a label that is too long for them, which all have the same length.
    by_shortened: HashMap<Box<str>, Vec<usize>>,
    /// Servers that the configuration disables, by their names and by `toolbox/server`. Their names are theirs.
    disabled: HashMap<Box<str>, ServerId>,
    /// Services by `rest__{label}`.
    by_rest_prefix: HashMap<Box<str>, Vec<usize>>,
    max_prefix_bytes: usize,
}

/// The servers that a name belongs to.
#[derive(Clone, Copy, Debug)]
pub(super) struct NameOwner<'i, 'n> {
    /// Slots of the servers; several if toolboxes share the server name.
    pub(super) slots: &'i [usize],
    /// The prefix, without the separator.
    pub(super) prefix: &'n str,
    /// The rest of the name, after the separator.
    pub(super) tool: &'n str,
}

impl NameOwner<'_, '_> {
    /// Returns `true` if the name is a path: `server/tool` or `toolbox/server/tool`.
    pub(super) fn is_path(&self, name: &str) -> bool {
        name[self.prefix.len()..].starts_with('/')
    }
}

impl LabelIndex {
    /// Builds the index of all servers. Names are limited to `name_limit` bytes.
    pub(super) fn of(slots: &[ListingSlot], disabled: &[ServerId], name_limit: usize) -> Self {
        let mut index = Self::default();
        for (at, slot) in slots.iter().enumerate() {
            let path = format!("{}/{}", slot.listing.toolbox, slot.listing.server);
            index.by_prefix.insert(slot.label.as_str().into(), vec![at]);
            index.by_prefix.insert(path.into(), vec![at]);
            if let Some(head) = shortened_head(&slot.label, name_limit) {
                index.by_shortened.entry(head.into()).or_default().push(at);
            }
            if slot.listing.kind == ToolKind::Rest {
                let prefix = format!("{REST_PREFIX}{}", slot.label);
                index.by_rest_prefix.insert(prefix.into(), vec![at]);
            }
        }
        let mut shared: HashMap<&str, Vec<usize>> = HashMap::new();
        for (at, slot) in slots.iter().enumerate().filter(|(_, slot)| slot.is_shared()) {
            shared.entry(slot.listing.server.as_str()).or_default().push(at);
        }
        for (server, at) in shared {
            // A label is never shared, so it takes precedence.
            index.by_prefix.entry(server.into()).or_insert(at);
        }
        for id in disabled {
            let prefixes = [id.server.to_string(), format!("{}/{}", id.toolbox, id.server)];
            // A server that is there takes precedence.
            for prefix in prefixes.into_iter().filter(|prefix| !index.by_prefix.contains_key(prefix.as_str()))
            {
                index.disabled.entry(prefix.into()).or_insert_with(|| id.clone());
            }
        }
        let prefixes = index.by_prefix.keys().chain(index.by_rest_prefix.keys()).chain(index.disabled.keys());
        index.max_prefix_bytes = prefixes.map(|prefix| prefix.len()).max().unwrap_or_default();
        index
    }

    /// Returns the servers that a name belongs to: those with the longest prefix of it.
    pub(super) fn owner<'n>(&self, name: &'n str) -> Option<NameOwner<'_, 'n>> {
        let owner = longest(&self.by_prefix, self.max_prefix_bytes, name);
        let n_shortened = self.by_shortened.keys().next().map(|head| head.len());
        let Some((prefix, tool)) = n_shortened.and_then(|n_bytes| name.split_at_checked(n_bytes)) else {
            return owner;
        };
        match self.by_shortened.get(prefix) {
            Some(slots) if owner.is_none_or(|owner| owner.prefix.len() < prefix.len()) => {
                Some(NameOwner { slots, prefix, tool })
            }
            Some(_) | None => owner,
        }
    }

    /// Returns the disabled server that a name belongs to, if no other has a longer prefix of it.
    pub(super) fn disabled_owner(&self, name: &str) -> Option<&ServerId> {
        if self.disabled.is_empty() {
            return None;
        }
        let (prefix, id) = longest_prefix(&self.disabled, self.max_prefix_bytes, name)?;
        self.owner(name).is_none_or(|owner| owner.prefix.len() < prefix.len()).then_some(id)
    }

    /// Returns the service that a name in the form `rest__{service}_{operation}` belongs to.
    pub(super) fn service<'n>(&self, name: &'n str) -> Option<NameOwner<'_, 'n>> {
        if !name.starts_with(REST_PREFIX) {
            return None;
        }
        longest(&self.by_rest_prefix, self.max_prefix_bytes, name)
    }

    /// Returns `true` if a name belongs to no other server than this one.
    pub(super) fn is_own(&self, name: &str, slot: usize) -> bool {
        self.disabled_owner(name).is_none()
            && self.owner(name).is_none_or(|owner| owner.slots.contains(&slot))
    }
}

/// Returns the owner with the longest prefix that a separator follows in the name.
fn longest<'i, 'n>(
    by_prefix: &'i HashMap<Box<str>, Vec<usize>>,
    max_prefix_bytes: usize,
    name: &'n str,
) -> Option<NameOwner<'i, 'n>> {
    let (prefix, slots) = longest_prefix(by_prefix, max_prefix_bytes, name)?;
    Some(NameOwner { slots, prefix, tool: tool_part(prefix, &name[prefix.len()..])? })
}

/// Returns the entry with the longest prefix that a separator follows in the name.
fn longest_prefix<'i, 'n, V>(
    by_prefix: &'i HashMap<Box<str>, V>,
    max_prefix_bytes: usize,
    name: &'n str,
) -> Option<(&'n str, &'i V)> {
    let ends = name.match_indices(['_', '/']).map(|(at, _)| at);
    let ends = ends.filter(|at| *at <= max_prefix_bytes).collect::<Vec<_>>();
    ends.into_iter().rev().find_map(|at| {
        let (prefix, rest) = name.split_at(at);
        let found = by_prefix.get(prefix)?;
        tool_part(prefix, rest).map(|_| (prefix, found))
    })
}

/// Returns the part after the separator, if the prefix can be followed by this one.
fn tool_part<'n>(prefix: &str, rest: &'n str) -> Option<&'n str> {
    let is_path = prefix.contains('/');
    match rest.strip_prefix('/') {
        Some(tool) => Some(tool),
        None if is_path => None,
        None => rest.strip_prefix("__").or_else(|| {
            // The names of `a` and of a server `a_` must differ.
            if prefix.ends_with('_') { None } else { rest.strip_prefix('_') }
        }),
    }
}
