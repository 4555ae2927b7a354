//! A concrete syntax tree with the details that edits need.

use crate::tree::{Node, Span, Value};

/// A value as written.
#[derive(Debug)]
pub(super) struct CstNode {
    pub(super) span: Span,
    pub(super) shape: CstShape,
    pub(super) mark: YamlProperty,
}

/// Structure of a value.
#[derive(Debug)]
pub(super) enum CstShape {
    Scalar,
    Map(CollectionStyle, Vec<CstMember>),
    List(CollectionStyle, Vec<CstMember>),
}

/// Style of a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CollectionStyle {
    /// Members in brackets, separated by commas.
    Flow,
    /// Members on indented lines.
    Block,
}

/// YAML properties of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum YamlProperty {
    Nothing,
    /// The value is an alias of another one.
    Alias,
    /// The value has an anchor or a tag.
    Property,
}

/// A member of a list or a map.
#[derive(Debug)]
pub(super) struct CstMember {
    /// Start of the key, the dash, or the value.
    pub(super) start: usize,
    /// The key and its end.
    pub(super) key: Option<(String, usize)>,
    pub(super) value: CstNode,
}

impl CstMember {
    pub(super) fn end(&self) -> usize {
        self.value.span.end
    }
}

impl CstNode {
    pub(super) fn new(span: Span, shape: CstShape) -> Self {
        Self { span, shape, mark: YamlProperty::Nothing }
    }

    /// Builds the tree of a JSON document.
    pub(super) fn of_json(node: &Node) -> Self {
        let shape = match &node.value {
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) => CstShape::Scalar,
            Value::List(items) => {
                let member =
                    |item: &Node| CstMember { start: item.span.start, key: None, value: Self::of_json(item) };
                CstShape::List(CollectionStyle::Flow, items.iter().map(member).collect())
            }
            Value::Map(entries) => {
                let members = entries.iter().map(|entry| CstMember {
                    start: entry.key_span.start,
                    key: Some((entry.key.clone(), entry.key_span.end)),
                    value: Self::of_json(&entry.value),
                });
                CstShape::Map(CollectionStyle::Flow, members.collect())
            }
        };
        Self::new(node.span, shape)
    }

    pub(super) fn members(&self) -> &[CstMember] {
        match &self.shape {
            CstShape::Scalar => &[],
            CstShape::Map(_, members) | CstShape::List(_, members) => members,
        }
    }
}
