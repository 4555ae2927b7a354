//! What of a file counts, and for whom.

use std::path::PathBuf;

use crate::dialect::native::SECTIONS;
use crate::tree::{Entry, Node, Span, Value};

/// What of a file counts, and where it goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// The folder that the file is read for: some clients keep servers for single folders.
    pub project: Option<PathBuf>,
    /// The one server, service, tool or chain that counts; without it, all do.
    pub only: Option<String>,
    /// The toolbox of what stands in none; without it, `default`.
    pub toolbox: Option<String>,
}

impl View {
    /// The part of a tree that counts, where it goes.
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

/// What has one name, in all sections, and the toolboxes that have something of it.
fn one_of(mut root: Node, only: &str) -> Node {
    keep(&mut root, only);
    let Value::Map(entries) = &mut root.value else { return root };
    entries.retain(|entry| entry.key != "agents");
    for toolboxes in entries.iter_mut().filter(|entry| entry.key == "toolboxes") {
        let Value::Map(toolboxes) = &mut toolboxes.value.value else { continue };
        for toolbox in toolboxes.iter_mut() {
            keep(&mut toolbox.value, only);
        }
        let has_some = |toolbox: &Entry| {
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

/// What stands at the root, in a toolbox.
fn into_toolbox(mut root: Node, toolbox: &str) -> Node {
    let span = root.span;
    let Value::Map(entries) = &mut root.value else { return root };
    let (sections, others): (Vec<Entry>, Vec<Entry>) =
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

/// The entries of an object under a key, which is made if there is none.
fn object<'e>(entries: &'e mut Vec<Entry>, key: &str, (key_span, span): (Span, Span)) -> &'e mut Vec<Entry> {
    let is_it = |entry: &Entry| entry.key == key && entry.value.entries().is_some();
    let at = entries.iter().position(is_it).unwrap_or_else(|| {
        let value = Node::new(span, Value::Map(Vec::new()));
        entries.push(Entry { key: key.to_owned(), key_span, value });
        entries.len() - 1
    });
    match &mut entries[at].value.value {
        Value::Map(inner) => inner,
        _ => unreachable!("it is an object, or it was made as one"),
    }
}
