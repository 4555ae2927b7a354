//! Finds a value in the concrete syntax tree and edits it.

use serde_json::{Map, Value};

use super::cst::{CollectionStyle, CstMember, CstNode, CstShape, YamlProperty};
use super::print::ValuePrinter;
use super::text::{EditText, Splice};
use super::{flow, yaml};
use crate::path::KeySegment;
use crate::source::ConfigFormat;
use crate::tree::Span;

/// The reason why an edit is impossible, and its location.
#[derive(Debug)]
pub(super) struct EditConflict {
    pub(super) span: Span,
    pub(super) message: String,
}

impl EditConflict {
    pub(super) fn new(span: Span, message: impl Into<String>) -> Self {
        Self { span, message: message.into() }
    }
}

/// A member and its position in the tree.
pub(super) struct MemberLocation<'p> {
    pub(super) container: &'p CstNode,
    pub(super) member: &'p CstMember,
    pub(super) index: usize,
    /// The member that has the container as its value.
    pub(super) holder: Option<&'p CstMember>,
}

/// Result of following a path as far as it exists.
struct CstTraversal<'p> {
    node: &'p CstNode,
    location: Option<MemberLocation<'p>>,
    n_segments: usize,
}

fn traverse<'p>(root: &'p CstNode, segments: &[KeySegment]) -> Result<CstTraversal<'p>, EditConflict> {
    let mut traversal = CstTraversal { node: root, location: None, n_segments: 0 };
    for segment in segments {
        let container = traversal.node;
        if container.mark == YamlProperty::Alias {
            return Err(EditConflict::new(container.span, "the value is an alias, defined elsewhere"));
        }
        let index = match (segment, &container.shape) {
            (KeySegment::Key(key), CstShape::Map(_, members)) => {
                members.iter().position(|member| matches!(&member.key, Some((name, _)) if name == key))
            }
            (KeySegment::Index(index), CstShape::List(_, members)) => {
                Some(*index).filter(|index| *index < members.len())
            }
            (KeySegment::Key(_), CstShape::Scalar | CstShape::List(..))
            | (KeySegment::Index(_), CstShape::Scalar | CstShape::Map(..)) => None,
        };
        let Some(index) = index else { break };
        let holder = traversal.location.as_ref().map(|location| location.member);
        let member = &container.members()[index];
        traversal = CstTraversal {
            node: &member.value,
            location: Some(MemberLocation { container, member, index, holder }),
            n_segments: traversal.n_segments + 1,
        };
    }
    Ok(traversal)
}

/// Sets the value at a path and creates missing parents. `old` is the current value of the whole.
pub(super) fn put(
    source: EditText<'_>,
    root: &CstNode,
    segments: &[KeySegment],
    (old, value): (&Value, &Value),
) -> Result<Vec<Splice>, EditConflict> {
    let traversal = traverse(root, segments)?;
    let rest = &segments[traversal.n_segments..];
    let Some((first, inner)) = rest.split_first() else {
        return replace(source, &traversal, value);
    };
    let present = value_at(old, &segments[..traversal.n_segments]);
    if value_at(old, &segments[..=traversal.n_segments]).is_some() && !inner.is_empty() {
        let message = "the value is defined elsewhere in the file";
        return Err(EditConflict::new(traversal.node.span, message));
    }
    if matches!(present, Some(Value::Null) | None) {
        return replace(source, &traversal, &nest(rest, value));
    }
    let (style, key) = match (&traversal.node.shape, first) {
        (CstShape::Map(style, _), KeySegment::Key(key)) => (*style, Some(key.as_str())),
        (CstShape::List(style, members), KeySegment::Index(index)) if *index == members.len() => {
            (*style, None)
        }
        (_, KeySegment::Key(_)) => {
            return Err(EditConflict::new(traversal.node.span, "expected an object here"));
        }
        (_, KeySegment::Index(_)) => {
            return Err(EditConflict::new(traversal.node.span, "expected a list here"));
        }
    };
    let value = nest(inner, value);
    if traversal.node.mark == YamlProperty::Alias {
        return Err(EditConflict::new(traversal.node.span, "the value is an alias, defined elsewhere"));
    }
    if style == CollectionStyle::Block {
        return Ok(yaml::append(source, traversal.node, key, &value));
    }
    if may_take_lines(source, &traversal) {
        let whole = key.map_or_else(
            || Value::Array(vec![value.clone()]),
            |key| Value::Object(Map::from_iter([(key.to_owned(), value.clone())])),
        );
        return replace(source, &traversal, &whole);
    }
    Ok(flow::append(source, traversal.node, &ValuePrinter { format: source.format, key, value: &value }))
}

/// Returns `true` for empty YAML brackets that block style may replace.
fn may_take_lines(source: EditText<'_>, traversal: &CstTraversal<'_>) -> bool {
    let span = traversal.node.span;
    let is_in_lines = traversal.location.as_ref().is_none_or(|location| is_in_lines(location.container));
    source.format == ConfigFormat::Yaml
        && is_in_lines
        && source
            .text
            .get(span.start + 1..span.end.saturating_sub(1))
            .is_some_and(|inside| inside.trim().is_empty())
}

fn is_in_lines(container: &CstNode) -> bool {
    matches!(
        container.shape,
        CstShape::Map(CollectionStyle::Block, _) | CstShape::List(CollectionStyle::Block, _)
    )
}

fn replace(
    source: EditText<'_>,
    traversal: &CstTraversal<'_>,
    value: &Value,
) -> Result<Vec<Splice>, EditConflict> {
    let print = ValuePrinter { format: source.format, key: None, value };
    match &traversal.location {
        Some(location) if is_in_lines(location.container) => yaml::replace(source, location.member, value),
        Some(location) => Ok(flow::replace(source, location.member.start, traversal.node, &print)),
        None if source.format == ConfigFormat::Yaml => {
            Ok(vec![yaml::replace_root(source, traversal.node, value)])
        }
        None => Ok(flow::replace(source, traversal.node.span.start, traversal.node, &print)),
    }
}

/// Removes the value at a path.
pub(super) fn remove(
    source: EditText<'_>,
    root: &CstNode,
    segments: &[KeySegment],
) -> Result<Vec<Splice>, EditConflict> {
    let traversal = traverse(root, segments)?;
    match &traversal.location {
        Some(location) if traversal.n_segments == segments.len() => {
            if is_in_lines(location.container) {
                yaml::remove(source, location)
            } else {
                Ok(flow::remove(source, location.container, location.index))
            }
        }
        _ => {
            let message = "the value is defined elsewhere in the file";
            Err(EditConflict::new(traversal.node.span, message))
        }
    }
}

/// Returns the value at a path.
pub(super) fn value_at<'v>(value: &'v Value, segments: &[KeySegment]) -> Option<&'v Value> {
    segments.iter().try_fold(value, |value, segment| match segment {
        KeySegment::Key(key) => value.as_object()?.get(key),
        KeySegment::Index(index) => value.as_array()?.get(*index),
    })
}

/// Wraps a value in one object or list per path segment.
pub(super) fn nest(segments: &[KeySegment], value: &Value) -> Value {
    segments.iter().rev().fold(value.clone(), |value, segment| match segment {
        KeySegment::Key(key) => Value::Object(Map::from_iter([(key.clone(), value)])),
        KeySegment::Index(_) => Value::Array(vec![value]),
    })
}
