//! Selects a part of a file.

use std::path::PathBuf;

use crate::section::SECTIONS;
use crate::tree::{Node, Span, TreeEntry, Value};

/// The part of a file to use, and the toolbox it goes into.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceSelection {
    /// Directory that the file is read for: some clients keep servers for single directories.
    pub project: Option<PathBuf>,
    /// Only the server, service, tool or chain with this name; all if `None`.
    pub only: Option<String>,
    /// Toolbox of entries that are in none; `default` if `None`.
    pub toolbox: Option<String>,
}

impl SourceSelection {
    /// Applies the selection to a tree.
    pub(super) fn of(&self, mut root: Node) -> Node {
        if let Some(only) = &self.only {
            root = one_of(root, only);
        }
        match &self.toolbox {
            Some(toolbox) => into_toolbox(root, toolbox),
            None => root,
        }
    }
}

/// Keeps only the entries with this name, and the toolboxes that contain one.
fn one_of(mut root: Node, only: &str) -> Node {
    keep(&mut root, only);
    let Value::Map(entries) = &mut root.value else { return root };
    entries.retain(|entry| entry.key != "agents");
    for toolboxes in entries.iter_mut().filter(|entry| entry.key == "toolboxes") {
        let Value::Map(toolboxes) = &mut toolboxes.value.value else { continue };
        for toolbox in toolboxes.iter_mut() {
            keep(&mut toolbox.value, only);
        }
        let has_some = |toolbox: &TreeEntry| {
            let sections = toolbox.value.entries().unwrap_or_default().iter();
            let mut sections = sections.filter(|entry| SECTIONS.contains(&entry.key.as_str()));
            sections.any(|section| section.value.entries().is_some_and(|entries| !entries.is_empty()))
        };
        toolboxes.retain(has_some);
    }
    root
}

fn keep(parent: &mut Node, only: &str) {
    let Value::Map(entries) = &mut parent.value else { return };
    for section in entries.iter_mut().filter(|entry| SECTIONS.contains(&entry.key.as_str())) {
        if let Value::Map(parts) = &mut section.value.value {
            parts.retain(|part| part.key == only);
        }
    }
}

/// Moves the sections at the root into a toolbox.
fn into_toolbox(mut root: Node, toolbox: &str) -> Node {
    let span = root.span;
    let Value::Map(entries) = &mut root.value else { return root };
    let (sections, others): (Vec<TreeEntry>, Vec<TreeEntry>) =
        std::mem::take(entries).into_iter().partition(|entry| SECTIONS.contains(&entry.key.as_str()));
    *entries = others;
    for section in sections {
        let place = (section.key_span, span);
        let toolboxes = object(entries, "toolboxes", place);
        let named = object(toolboxes, toolbox, place);
        match section.value.value {
            Value::Map(parts) => object(named, &section.key, place).extend(parts),
            _ => named.push(section),
        }
    }
    root
}

/// Returns the entries of the object under a key, which is created if it does not exist.
fn object<'e>(
    entries: &'e mut Vec<TreeEntry>,
    key: &str,
    (key_span, span): (Span, Span),
) -> &'e mut Vec<TreeEntry> {
    let is_match = |entry: &TreeEntry| entry.key == key && entry.value.entries().is_some();
    let at = entries.iter().position(is_match).unwrap_or_else(|| {
        let value = Node::new(span, Value::Map(Vec::new()));
        entries.push(TreeEntry { key: key.to_owned(), key_span, value });
        entries.len() - 1
    });
    match &mut entries[at].value.value {
        Value::Map(inner) => inner,
        _ => unreachable!("the entry is an object"),
    }
}
