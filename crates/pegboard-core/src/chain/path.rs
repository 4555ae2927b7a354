//! Where in the context something is: `page.links[0].url`.

use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// A place in the context.
///
/// `a.b[0].c` goes down names and indexes (`$.a.b[0].c` does too), `["odd.name"]` quotes a name, `/a/b/0` is a JSON pointer and `$` is
/// the whole context. A key that contains the dots literally is found before the way through them.
///
/// ```
/// use pegboard_core::chain::Path;
/// use serde_json::json;
///
/// let context = json!({"a": {"b": {"c": 5}}, "list": [{"id": 7}]});
/// let at = |path: &str| Path::new(path).resolve(&context).cloned();
/// assert_eq!(at("a.b.c"), Some(json!(5)));
/// assert_eq!(at("list[0].id"), Some(json!(7)));
/// assert_eq!(at("/list/0/id"), Some(json!(7)));
/// assert_eq!(at("a.x"), None);
/// ```
#[derive(Clone, PartialEq)]
pub struct Path {
    text: String,
    parsed: Result<Way, InvalidPath>,
}

/// Why a text is no path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPath {
    /// Two dots follow each other, or one stands at an end.
    #[error("a part of it is empty")]
    EmptyPart,
    /// It is longer than a path needs to be.
    #[error("it is longer than {MAX_BYTES} bytes")]
    TooLong,
    /// A bracket holds neither a number nor a quoted name, or is not closed.
    #[error("a bracket must hold an index or a quoted name, like [0] or [\"name\"]")]
    BadBracket,
}

/// How long a path may be; looking for literal keys takes time that grows with its square.
const MAX_BYTES: usize = 1_024;

#[derive(Clone, Debug, PartialEq)]
enum Way {
    Whole,
    Segments(Vec<Segment>),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Segment {
    pub(super) key: Key,
    /// Where it stands in the text, so that several segments can be read as one literal key; nowhere in a pointer.
    at: Option<Range<usize>>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Key {
    Name(String),
    Index(usize),
}

impl Segment {
    /// Where it leads in a list, if it can.
    pub(super) fn index(&self) -> Option<usize> {
        match &self.key {
            Key::Index(index) => Some(*index),
            Key::Name(name) if name.len() > 1 && name.starts_with(['0', '+']) => None,
            Key::Name(name) => name.parse().ok(),
        }
    }
}

impl Path {
    /// The path that a text spells. A text that spells none leads nowhere; [`Path::problem`] says why.
    pub fn new(text: impl Into<String>) -> Self {
        let text = text.into();
        let parsed = parse(&text);
        Self { text, parsed }
    }

    /// The path as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Why the text is no path, if it is none.
    pub fn problem(&self) -> Option<&InvalidPath> {
        self.parsed.as_ref().err()
    }

    /// What is at this place of the context.
    pub fn resolve<'c>(&self, context: &'c Value) -> Option<&'c Value> {
        match self.parsed.as_ref().ok()? {
            Way::Whole => context.get(&self.text).or(Some(context)),
            Way::Segments(segments) => self.in_value(context, segments),
        }
    }

    /// What is at this place by the original's rule: the text is split at its first dot only.
    pub(super) fn resolve_compat<'c>(&self, context: &'c Value) -> Option<&'c Value> {
        match self.text.split_once('.') {
            None => context.get(&self.text),
            Some((first, rest)) => context.get(first)?.get(rest),
        }
    }

    /// Whether this path can be about the item that a step has at hand.
    pub(super) fn is_about_item(&self) -> bool {
        let first = self.segments().and_then(<[Segment]>::first).map(|segment| &segment.key);
        matches!(first, Some(Key::Name(name)) if name == "item" || name == "index")
    }

    /// The segments of a dotted path; none for the other forms.
    pub(super) fn segments(&self) -> Option<&[Segment]> {
        match self.parsed.as_ref().ok()? {
            Way::Segments(segments) => Some(segments),
            Way::Whole => None,
        }
    }

    /// Every literal key that `segments` may begin with, longest first, and what remains after it.
    pub(super) fn literal_heads<'s>(
        &'s self,
        segments: &'s [Segment],
    ) -> impl Iterator<Item = (&'s str, &'s [Segment])> {
        (1..=segments.len()).rev().filter_map(move |n| {
            let (head, rest) = segments.split_at(n);
            let key = match head {
                [Segment { key: Key::Name(name), .. }] => name.as_str(),
                [first, .., last] => &self.text[first.at.as_ref()?.start..last.at.as_ref()?.end],
                _ => return None,
            };
            Some((key, rest))
        })
    }

    pub(super) fn in_value<'c>(&self, value: &'c Value, segments: &[Segment]) -> Option<&'c Value> {
        let Some((first, rest)) = segments.split_first() else { return Some(value) };
        match value {
            Value::Object(members) => {
                self.literal_heads(segments).find_map(|(key, rest)| self.in_value(members.get(key)?, rest))
            }
            Value::Array(items) => self.in_value(items.get(first.index()?)?, rest),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        }
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for Path {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for Path {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::new)
    }
}

fn parse(text: &str) -> Result<Way, InvalidPath> {
    if text == "$" {
        return Ok(Way::Whole);
    }
    if text.len() > MAX_BYTES {
        return Err(InvalidPath::TooLong);
    }
    if let Some(pointer) = text.strip_prefix('/') {
        let name = |part: &str| Key::Name(part.replace("~1", "/").replace("~0", "~"));
        return Ok(Way::Segments(
            pointer.split('/').map(|part| Segment { key: name(part), at: None }).collect(),
        ));
    }
    let mut segments = Vec::new();
    // The messages of validation begin their paths like this.
    let mut at = if text.starts_with("$.") { 2 } else { 0 };
    loop {
        let rest = &text[at..];
        let (key, len) = if rest.starts_with('[') { bracket(rest)? } else { name(rest)? };
        segments.push(Segment { key, at: Some(at..at + len) });
        at += len;
        match text[at..].chars().next() {
            None => return Ok(Way::Segments(segments)),
            Some('.') => at += 1,
            Some(_) => {}
        }
    }
}

/// A name: everything up to the next dot or bracket.
fn name(text: &str) -> Result<(Key, usize), InvalidPath> {
    let len = text.find(['.', '[']).unwrap_or(text.len());
    if len == 0 { Err(InvalidPath::EmptyPart) } else { Ok((Key::Name(text[..len].to_owned()), len)) }
}

/// `[7]` or `["name"]`, with the name as a JSON string.
fn bracket(text: &str) -> Result<(Key, usize), InvalidPath> {
    let inner = &text[1..];
    if inner.starts_with('"') {
        let mut strings = serde_json::Deserializer::from_str(inner).into_iter::<String>();
        let Some(Ok(name)) = strings.next() else { return Err(InvalidPath::BadBracket) };
        let len = 1 + strings.byte_offset();
        return if text[len..].starts_with(']') {
            Ok((Key::Name(name), len + 1))
        } else {
            Err(InvalidPath::BadBracket)
        };
    }
    let len = inner.find(']').ok_or(InvalidPath::BadBracket)?;
    let index = inner[..len].parse().map_err(|_| InvalidPath::BadBracket)?;
    Ok((Key::Index(index), len + 2))
}
