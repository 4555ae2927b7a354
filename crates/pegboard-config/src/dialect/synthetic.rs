//! Synthetic tree nodes with the spans of the values that they replace.

use crate::tree::{Node, Span, TreeEntry, Value};

pub(super) fn text(span: Span, text: impl Into<String>) -> Node {
    Node::new(span, Value::Text(text.into()))
}

pub(super) fn list(span: Span, items: Vec<Node>) -> Node {
    Node::new(span, Value::List(items))
}

pub(super) fn map(span: Span, entries: Vec<TreeEntry>) -> Node {
    Node::new(span, Value::Map(entries))
}

pub(super) fn entry(key: impl Into<String>, key_span: Span, value: Node) -> TreeEntry {
    TreeEntry { key: key.into(), key_span, value }
}

/// Returns the text of a node.
pub(super) fn as_text(node: &Node) -> Option<&str> {
    if let Value::Text(text) = &node.value { Some(text) } else { None }
}

/// Returns the items of a list.
pub(super) fn items(node: &Node) -> Option<&[Node]> {
    if let Value::List(items) = &node.value { Some(items) } else { None }
}

/// A native server entry under construction.
#[derive(Default)]
pub(super) struct ServerDraft {
    pub(super) entries: Vec<TreeEntry>,
}

impl ServerDraft {
    pub(super) fn get(&self, key: &str) -> Option<&Node> {
        self.entries.iter().find(|entry| entry.key == key).map(|entry| &entry.value)
    }

    /// Sets a value unless the key is set already.
    pub(super) fn set(&mut self, key: &str, key_span: Span, value: Node) {
        if self.get(key).is_none() {
            self.entries.push(entry(key, key_span, value));
        }
    }

    /// Adds entries to an object. Existing entries win, and a value of another type is kept.
    pub(super) fn add_entries(&mut self, key: &str, key_span: Span, span: Span, more: Vec<TreeEntry>) {
        self.set(key, key_span, map(span, Vec::new()));
        let Some(found) = self.entries.iter_mut().find(|entry| entry.key == key) else { return };
        let Value::Map(entries) = &mut found.value.value else { return };
        for new in more {
            if !entries.iter().any(|old| old.key == new.key) {
                entries.push(new);
            }
        }
    }

    /// Adds items to a list. A value of another type is kept.
    pub(super) fn add_items(&mut self, key: &str, key_span: Span, span: Span, more: Vec<Node>) {
        self.set(key, key_span, list(span, Vec::new()));
        let Some(found) = self.entries.iter_mut().find(|entry| entry.key == key) else { return };
        if let Value::List(items) = &mut found.value.value {
            items.extend(more);
        }
    }
}
