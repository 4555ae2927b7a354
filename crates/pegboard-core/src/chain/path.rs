//! Paths into the context of a chain: `page.links[0].url`.

use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// A path into the context of a chain.
///
/// `a.b[0].c` (or `$.a.b[0].c`) consists of names and indexes, `["odd.name"]` quotes a name, `/a/b/0` is a
/// JSON pointer and `$` is the whole context. A key that contains the dots literally takes precedence over
/// nesting.
///
/// ```
/// use pegboard_core::chain::ContextPath;
/// use serde_json::json;
///
/// let context = json!({"a": {"b": {"c": 5}}, "list": [{"id": 7}]});
/// let at = |path: &str| ContextPath::new(path).resolve(&context).cloned();
/// assert_eq!(at("a.b.c"), Some(json!(5)));
/// assert_eq!(at("list[0].id"), Some(json!(7)));
/// assert_eq!(at("/list/0/id"), Some(json!(7)));
/// assert_eq!(at("a.x"), None);
/// ```
#[derive(Clone, PartialEq)]
pub struct ContextPath {
    text: String,
    parsed: Result<ParsedPath, InvalidContextPath>,
}

/// Reason why a text is not a valid path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidContextPath {
    /// Two adjacent dots, or a dot at an end.
    #[error("empty segment")]
    EmptyPart,
    /// The path is too long.
    #[error("longer than {MAX_BYTES} bytes")]
    TooLong,
    /// A bracket holds neither an index nor a quoted name, or is not closed.
    #[error("a bracket must contain an index or a quoted name, such as [0] or [\"name\"]")]
    BadBracket,
}

/// Maximum length of a path; the search for literal keys takes quadratic time.
const MAX_BYTES: usize = 1_024;

#[derive(Clone, Debug, PartialEq)]
enum ParsedPath {
    Root,
    Segments(Vec<PathSegment>),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct PathSegment {
    pub(super) key: SegmentKey,
    /// Span in the text, so that several segments can be read as one literal key; `None` in a JSON pointer.
    at: Option<Range<usize>>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum SegmentKey {
    Name(String),
    Index(usize),
}

impl PathSegment {
    /// Returns the index in a list that the segment stands for, if any.
    pub(super) fn index(&self) -> Option<usize> {
        match &self.key {
            SegmentKey::Index(index) => Some(*index),
            SegmentKey::Name(name) if name.len() > 1 && name.starts_with(['0', '+']) => None,
            SegmentKey::Name(name) => name.parse().ok(),
        }
    }
}

impl ContextPath {
    /// Parses a path. An invalid path resolves to nothing; [`ContextPath::problem`] returns the reason.
    pub fn new(text: impl Into<String>) -> Self {
        let text = text.into();
        let parsed = parse(&text);
        Self { text, parsed }
    }

    /// Returns the path as written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the reason why the path is invalid, if it is.
    pub fn problem(&self) -> Option<&InvalidContextPath> {
        self.parsed.as_ref().err()
    }

    /// Returns the value at this path of the context.
    pub fn resolve<'c>(&self, context: &'c Value) -> Option<&'c Value> {
        match self.parsed.as_ref().ok()? {
            ParsedPath::Root => context.get(&self.text).or(Some(context)),
            ParsedPath::Segments(segments) => self.resolve_segments(context, segments),
        }
    }

    /// Resolves the path with compat semantics: the text is split at its first dot only.
    pub(super) fn resolve_compat<'c>(&self, context: &'c Value) -> Option<&'c Value> {
        match self.text.split_once('.') {
            None => context.get(&self.text),
            Some((first, rest)) => context.get(first)?.get(rest),
        }
    }

    /// Returns `true` if the path starts with `item` or `index`, the variables of a `for_each` step.
    pub(super) fn refers_to_item(&self) -> bool {
        let first = self.segments().and_then(<[PathSegment]>::first).map(|segment| &segment.key);
        matches!(first, Some(SegmentKey::Name(name)) if name == "item" || name == "index")
    }

    /// Returns the segments of the path; `None` for the whole context or an invalid path.
    pub(super) fn segments(&self) -> Option<&[PathSegment]> {
        match self.parsed.as_ref().ok()? {
            ParsedPath::Segments(segments) => Some(segments),
            ParsedPath::Root => None,
        }
    }

    /// Returns every literal key that `segments` may begin with, longest first, and the remaining segments.
    pub(super) fn literal_heads<'s>(
        &'s self,
        segments: &'s [PathSegment],
    ) -> impl Iterator<Item = (&'s str, &'s [PathSegment])> {
        (1..=segments.len()).rev().filter_map(move |n| {
            let (head, rest) = segments.split_at(n);
            let key = match head {
                [PathSegment { key: SegmentKey::Name(name), .. }] => name.as_str(),
                [first, .., last] => &self.text[first.at.as_ref()?.start..last.at.as_ref()?.end],
                _ => return None,
            };
            Some((key, rest))
        })
    }

    pub(super) fn resolve_segments<'c>(
        &self,
        value: &'c Value,
        segments: &[PathSegment],
    ) -> Option<&'c Value> {
        let Some((first, rest)) = segments.split_first() else { return Some(value) };
        match value {
            Value::Object(members) => self
                .literal_heads(segments)
                .find_map(|(key, rest)| self.resolve_segments(members.get(key)?, rest)),
            Value::Array(items) => self.resolve_segments(items.get(first.index()?)?, rest),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        }
    }
}

impl fmt::Debug for ContextPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for ContextPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for ContextPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::new)
    }
}

fn parse(text: &str) -> Result<ParsedPath, InvalidContextPath> {
    if text == "$" {
        return Ok(ParsedPath::Root);
    }
    if text.len() > MAX_BYTES {
        return Err(InvalidContextPath::TooLong);
    }
    if let Some(pointer) = text.strip_prefix('/') {
        let name = |part: &str| SegmentKey::Name(part.replace("~1", "/").replace("~0", "~"));
        return Ok(ParsedPath::Segments(
            pointer.split('/').map(|part| PathSegment { key: name(part), at: None }).collect(),
        ));
    }
    let mut segments = Vec::new();
    // Validation messages print paths with this prefix.
    let mut at = if text.starts_with("$.") { 2 } else { 0 };
    loop {
        let rest = &text[at..];
        let (key, len) = if rest.starts_with('[') { bracket(rest)? } else { name(rest)? };
        segments.push(PathSegment { key, at: Some(at..at + len) });
        at += len;
        match text[at..].chars().next() {
            None => return Ok(ParsedPath::Segments(segments)),
            Some('.') => at += 1,
            Some(_) => {}
        }
    }
}

/// Parses a name: everything up to the next dot or bracket.
fn name(text: &str) -> Result<(SegmentKey, usize), InvalidContextPath> {
    let len = text.find(['.', '[']).unwrap_or(text.len());
    if len == 0 {
        Err(InvalidContextPath::EmptyPart)
    } else {
        Ok((SegmentKey::Name(text[..len].to_owned()), len))
    }
}

/// Parses `[7]` or `["name"]`, with the name as a JSON string.
fn bracket(text: &str) -> Result<(SegmentKey, usize), InvalidContextPath> {
    let inner = &text[1..];
    if inner.starts_with('"') {
        let mut strings = serde_json::Deserializer::from_str(inner).into_iter::<String>();
        let Some(Ok(name)) = strings.next() else { return Err(InvalidContextPath::BadBracket) };
        let len = 1 + strings.byte_offset();
        return if text[len..].starts_with(']') {
            Ok((SegmentKey::Name(name), len + 1))
        } else {
            Err(InvalidContextPath::BadBracket)
        };
    }
    let len = inner.find(']').ok_or(InvalidContextPath::BadBracket)?;
    let index = inner[..len].parse().map_err(|_| InvalidContextPath::BadBracket)?;
    Ok((SegmentKey::Index(index), len + 2))
}
