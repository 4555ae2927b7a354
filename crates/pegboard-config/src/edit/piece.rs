//! What a text is made of, as far as a change of it must know.

use crate::tree::{Node, Span, Value};

/// A value as it is written.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) span: Span,
    pub(super) shape: Shape,
    pub(super) mark: Mark,
}

/// How a value is written.
#[derive(Debug)]
pub(super) enum Shape {
    Scalar,
    Map(Style, Vec<Member>),
    List(Style, Vec<Member>),
}

/// How members are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// By commas, in brackets.
    Flow,
    /// By lines and how far they are indented.
    Block,
}

/// What YAML says about a value besides the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    Nothing,
    /// It is not here: an alias names it.
    Alias,
    /// An anchor or a tag stands before it.
    Property,
}

/// A value in a list or a map.
#[derive(Debug)]
pub(super) struct Member {
    /// Where it begins: with its key, with its dash, or with itself.
    pub(super) start: usize,
    /// The key, and where it ends.
    pub(super) key: Option<(String, usize)>,
    pub(super) value: Piece,
}

impl Member {
    pub(super) fn end(&self) -> usize {
        self.value.span.end
    }
}

impl Piece {
    pub(super) fn new(span: Span, shape: Shape) -> Self {
        Self { span, shape, mark: Mark::Nothing }
    }

    /// What brackets and commas are the whole structure of: JSON.
    pub(super) fn of_json(node: &Node) -> Self {
        let shape = match &node.value {
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) => Shape::Scalar,
            Value::List(items) => {
                let member =
                    |item: &Node| Member { start: item.span.start, key: None, value: Self::of_json(item) };
                Shape::List(Style::Flow, items.iter().map(member).collect())
            }
            Value::Map(entries) => {
                let members = entries.iter().map(|entry| Member {
                    start: entry.key_span.start,
                    key: Some((entry.key.clone(), entry.key_span.end)),
                    value: Self::of_json(&entry.value),
                });
                Shape::Map(Style::Flow, members.collect())
            }
        };
        Self::new(node.span, shape)
    }

    pub(super) fn members(&self) -> &[Member] {
        match &self.shape {
            Shape::Scalar => &[],
            Shape::Map(_, members) | Shape::List(_, members) => members,
        }
    }
}
