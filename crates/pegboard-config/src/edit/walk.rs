//! The way to a value through what a text is made of, and what is changed at its end.

use serde_json::{Map, Value};

use super::page::{Page, Splice};
use super::piece::{Mark, Member, Piece, Shape, Style};
use super::print::Print;
use super::{flow, yaml};
use crate::path::Step;
use crate::source::Format;
use crate::tree::Span;

/// What stands in the way of a change, and where.
#[derive(Debug)]
pub(super) struct Obstacle {
    pub(super) span: Span,
    pub(super) message: String,
}

impl Obstacle {
    pub(super) fn new(span: Span, message: impl Into<String>) -> Self {
        Self { span, message: message.into() }
    }
}

/// A member, and where it stands.
pub(super) struct Site<'p> {
    pub(super) container: &'p Piece,
    pub(super) member: &'p Member,
    pub(super) index: usize,
    /// The member that the container is the value of.
    pub(super) holder: Option<&'p Member>,
}

/// How far a way leads.
struct Walk<'p> {
    piece: &'p Piece,
    site: Option<Site<'p>>,
    n_steps: usize,
}

fn walk<'p>(root: &'p Piece, steps: &[Step]) -> Result<Walk<'p>, Obstacle> {
    let mut walk = Walk { piece: root, site: None, n_steps: 0 };
    for step in steps {
        let container = walk.piece;
        if container.mark == Mark::Alias {
            return Err(Obstacle::new(
                container.span,
                "an alias stands here, and what it names is elsewhere",
            ));
        }
        let index = match (step, &container.shape) {
            (Step::Key(key), Shape::Map(_, members)) => {
                members.iter().position(|member| matches!(&member.key, Some((name, _)) if name == key))
            }
            (Step::Index(index), Shape::List(_, members)) => {
                Some(*index).filter(|index| *index < members.len())
            }
            (Step::Key(_), Shape::Scalar | Shape::List(..))
            | (Step::Index(_), Shape::Scalar | Shape::Map(..)) => None,
        };
        let Some(index) = index else { break };
        let holder = walk.site.as_ref().map(|site| site.member);
        let member = &container.members()[index];
        walk = Walk {
            piece: &member.value,
            site: Some(Site { container, member, index, holder }),
            n_steps: walk.n_steps + 1,
        };
    }
    Ok(walk)
}

/// Puts a value at the end of a way, with all that is missing on it. `old` is what the whole means so far.
pub(super) fn put(
    page: Page<'_>,
    root: &Piece,
    steps: &[Step],
    (old, value): (&Value, &Value),
) -> Result<Vec<Splice>, Obstacle> {
    let walk = walk(root, steps)?;
    let rest = &steps[walk.n_steps..];
    let Some((first, inner)) = rest.split_first() else {
        return replace(page, &walk, value);
    };
    let present = at(old, &steps[..walk.n_steps]);
    if at(old, &steps[..=walk.n_steps]).is_some() && !inner.is_empty() {
        let message = "what is to be changed is not written here: it comes from elsewhere in the file";
        return Err(Obstacle::new(walk.piece.span, message));
    }
    if matches!(present, Some(Value::Null) | None) {
        return replace(page, &walk, &wrapped(rest, value));
    }
    let (style, key) = match (&walk.piece.shape, first) {
        (Shape::Map(style, _), Step::Key(key)) => (*style, Some(key.as_str())),
        (Shape::List(style, members), Step::Index(index)) if *index == members.len() => (*style, None),
        (_, Step::Key(_)) => return Err(Obstacle::new(walk.piece.span, "an object is needed here")),
        (_, Step::Index(_)) => return Err(Obstacle::new(walk.piece.span, "a list is needed here")),
    };
    let value = wrapped(inner, value);
    if walk.piece.mark == Mark::Alias {
        return Err(Obstacle::new(walk.piece.span, "an alias stands here, and what it names is elsewhere"));
    }
    if style == Style::Block {
        return Ok(yaml::append(page, walk.piece, key, &value));
    }
    if may_take_lines(page, &walk) {
        let whole = key.map_or_else(
            || Value::Array(vec![value.clone()]),
            |key| Value::Object(Map::from_iter([(key.to_owned(), value.clone())])),
        );
        return replace(page, &walk, &whole);
    }
    Ok(flow::append(page, walk.piece, &Print { format: page.format, key, value: &value }))
}

/// Whether these are empty brackets of YAML where lines may stand just as well.
fn may_take_lines(page: Page<'_>, walk: &Walk<'_>) -> bool {
    let span = walk.piece.span;
    let is_in_lines = walk.site.as_ref().is_none_or(|site| is_in_lines(site.container));
    page.format == Format::Yaml
        && is_in_lines
        && page
            .text
            .get(span.start + 1..span.end.saturating_sub(1))
            .is_some_and(|inside| inside.trim().is_empty())
}

fn is_in_lines(container: &Piece) -> bool {
    matches!(container.shape, Shape::Map(Style::Block, _) | Shape::List(Style::Block, _))
}

fn replace(page: Page<'_>, walk: &Walk<'_>, value: &Value) -> Result<Vec<Splice>, Obstacle> {
    let print = Print { format: page.format, key: None, value };
    match &walk.site {
        Some(site) if is_in_lines(site.container) => yaml::replace(page, site.member, value),
        Some(site) => Ok(flow::replace(page, site.member.start, walk.piece, &print)),
        None if page.format == Format::Yaml => Ok(vec![yaml::replace_root(page, walk.piece, value)]),
        None => Ok(flow::replace(page, walk.piece.span.start, walk.piece, &print)),
    }
}

/// Takes away what is at the end of a way.
pub(super) fn remove(page: Page<'_>, root: &Piece, steps: &[Step]) -> Result<Vec<Splice>, Obstacle> {
    let walk = walk(root, steps)?;
    match &walk.site {
        Some(site) if walk.n_steps == steps.len() => {
            if is_in_lines(site.container) {
                yaml::remove(page, site)
            } else {
                Ok(flow::remove(page, site.container, site.index))
            }
        }
        _ => {
            let message = "what is to be removed is not written here: it comes from elsewhere in the file";
            Err(Obstacle::new(walk.piece.span, message))
        }
    }
}

/// The value at the end of a way.
pub(super) fn at<'v>(value: &'v Value, steps: &[Step]) -> Option<&'v Value> {
    steps.iter().try_fold(value, |value, step| match step {
        Step::Key(key) => value.as_object()?.get(key),
        Step::Index(index) => value.as_array()?.get(*index),
    })
}

/// A value inside as many objects and lists as the way to it has steps.
pub(super) fn wrapped(steps: &[Step], value: &Value) -> Value {
    steps.iter().rev().fold(value.clone(), |value, step| match step {
        Step::Key(key) => Value::Object(Map::from_iter([(key.clone(), value)])),
        Step::Index(_) => Value::Array(vec![value]),
    })
}
