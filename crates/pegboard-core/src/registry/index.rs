//! Search index of a registry: one text of all names, and the tools of each tag.

use std::collections::HashMap;
use std::sync::Arc;

use memchr::memmem::Finder;

use super::ToolSearch;
use crate::entry::ToolEntry;

/// Separator between names; not part of any name.
const SEPARATOR: char = '\n';

pub(super) struct RegistryIndex {
    /// Sorted by name.
    entries: Vec<Arc<ToolEntry>>,
    /// All names in lower case, each followed by the separator.
    names: String,
    /// Offset of each name in `names`.
    starts: Vec<usize>,
    /// Positions in `entries`, ascending.
    by_tag: HashMap<String, Vec<usize>>,
}

impl RegistryIndex {
    pub(super) fn of(entries: impl Iterator<Item = Arc<ToolEntry>>) -> Self {
        let mut entries: Vec<_> = entries.collect();
        entries.sort_unstable_by(|a, b| a.name().cmp(b.name()));
        let mut index = Self { names: String::new(), starts: Vec::new(), by_tag: HashMap::new(), entries };
        for (position, entry) in index.entries.iter().enumerate() {
            index.starts.push(index.names.len());
            index.names.push_str(&entry.name().to_lowercase());
            index.names.push(SEPARATOR);
            for tag in entry.tags() {
                let tagged = index.by_tag.entry(tag.clone()).or_default();
                // A tool may have the same tag twice.
                if tagged.last() != Some(&position) {
                    tagged.push(position);
                }
            }
        }
        index
    }

    pub(super) fn entries(&self) -> &[Arc<ToolEntry>] {
        &self.entries
    }

    pub(super) fn search(&self, search: &ToolSearch) -> Vec<Arc<ToolEntry>> {
        let part = search.name.to_lowercase();
        let found = match self.tagged(search) {
            Some(tagged) => {
                tagged.into_iter().filter(|&position| self.name(position).contains(&part)).collect()
            }
            None => self.named(&part),
        };
        found.into_iter().map(|position| Arc::clone(&self.entries[position])).collect()
    }

    /// Returns the tools with the requested tags; `None` if no tags are requested.
    fn tagged(&self, search: &ToolSearch) -> Option<Vec<usize>> {
        let with = |tag: &String| self.by_tag.get(tag).map_or(&[][..], Vec::as_slice);
        let mut all: Vec<&[usize]> = search.all_tags.iter().map(with).collect();
        // Start with the rarest tag, which leaves the fewest candidates.
        all.sort_unstable_by_key(|tagged| tagged.len());
        let found: Option<Vec<usize>> = all.split_first().map(|(rarest, others)| {
            let has_all = |at: &&usize| others.iter().all(|tagged| tagged.binary_search(at).is_ok());
            rarest.iter().filter(has_all).copied().collect()
        });
        if search.any_tags.is_empty() {
            return found;
        }
        let mut any: Vec<usize> = search.any_tags.iter().flat_map(with).copied().collect();
        any.sort_unstable();
        any.dedup();
        Some(match found {
            None => any,
            Some(found) => found.into_iter().filter(|at| any.binary_search(at).is_ok()).collect(),
        })
    }

    /// Returns the tools with `part` in their name, in one pass over all names.
    fn named(&self, part: &str) -> Vec<usize> {
        if part.is_empty() {
            return (0..self.entries.len()).collect();
        }
        let finder = Finder::new(part);
        let mut found = Vec::new();
        let mut from = 0;
        while let Some(hit) = finder.find(&self.names.as_bytes()[from..]) {
            let position = self.starts.partition_point(|&start| start <= from + hit) - 1;
            // A part that contains the separator could only match across two names.
            if self.name(position).contains(part) {
                found.push(position);
            }
            from = self.starts.get(position + 1).copied().unwrap_or(self.names.len());
        }
        found
    }

    fn name(&self, position: usize) -> &str {
        let end = self.starts.get(position + 1).copied().unwrap_or(self.names.len());
        self.names[self.starts[position]..end].trim_end_matches(SEPARATOR)
    }
}
