//! Values that no file has, in the place of those that they stand for.

use crate::tree::{Entry, Node, Span, Value};

pub(super) fn text(span: Span, text: impl Into<String>) -> Node {
    Node::new(span, Value::Text(text.into()))
}

pub(super) fn list(span: Span, items: Vec<Node>) -> Node {
    Node::new(span, Value::List(items))
}

pub(super) fn map(span: Span, entries: Vec<Entry>) -> Node {
    Node::new(span, Value::Map(entries))
}

pub(super) fn entry(key: impl Into<String>, key_span: Span, value: Node) -> Entry {
    Entry { key: key.into(), key_span, value }
}

/// The text of a node, if it is one.
pub(super) fn as_text(node: &Node) -> Option<&str> {
    if let Value::Text(text) = &node.value { Some(text) } else { None }
}

/// The items of a node, if it is a list.
pub(super) fn items(node: &Node) -> Option<&[Node]> {
    if let Value::List(items) = &node.value { Some(items) } else { None }
}

/// A server that is being put together from the words of others.
#[derive(Default)]
pub(super) struct Draft {
    pub(super) entries: Vec<Entry>,
}

impl Draft {
    pub(super) fn get(&self, key: &str) -> Option<&Node> {
        self.entries.iter().find(|entry| entry.key == key).map(|entry| &entry.value)
    }

    /// Sets a value. What is there already stays.
    pub(super) fn set(&mut self, key: &str, key_span: Span, value: Node) {
        if self.get(key).is_none() {
            self.entries.push(entry(key, key_span, value));
        }
    }

    /// Adds entries to an object. Those that are there already stay, and so does what is no object.
    pub(super) fn add_entries(&mut self, key: &str, key_span: Span, span: Span, more: Vec<Entry>) {
        self.set(key, key_span, map(span, Vec::new()));
        let Some(found) = self.entries.iter_mut().find(|entry| entry.key == key) else { return };
        let Value::Map(entries) = &mut found.value.value else { return };
        for new in more {
            if !entries.iter().any(|old| old.key == new.key) {
                entries.push(new);
            }
        }
    }

    /// Adds items to a list. What is no list stays.
    pub(super) fn add_items(&mut self, key: &str, key_span: Span, span: Span, more: Vec<Node>) {
        self.set(key, key_span, list(span, Vec::new()));
        let Some(found) = self.entries.iter_mut().find(|entry| entry.key == key) else { return };
        if let Value::List(items) = &mut found.value.value {
            items.extend(more);
        }
    }
}
