//! Where an operation stands in the tree, and who called whom.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Serialize, Serializer};

use super::text;

/// How deep sessions may be nested under the first one.
///
/// An export has five levels of JSON for each level of sessions, and many readers stop at 128.
pub const MAX_DEPTH: usize = 20;

/// How long a call path may be, in bytes.
const MAX_CALL_PATH: usize = 1_024;

/// Where an operation stands in the tree: `1-2` is the second of turn 1, `1-2.1-1` the first of its child session,
/// and `S0-1` a step of the system outside all turns.
///
/// A path is never given to another operation, even when this one is no longer kept.
///
/// ```
/// use pegboard_runtime::optree::OpPath;
///
/// let path: OpPath = "1-2.S0-1".parse().unwrap();
/// assert_eq!(path.to_string(), "1-2.S0-1");
/// assert!("1-0".parse::<OpPath>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OpPath {
    /// The operations above, outermost first; never an empty list.
    pub(super) above: Option<Arc<[Segment]>>,
    pub(super) last: Segment,
}

/// A place within one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Segment {
    /// The turn from 1; 0 for the steps of the system.
    pub(super) turn: u32,
    /// The place within the turn, from 1.
    pub(super) index: u32,
}

/// A text that is no path of an operation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the path of an operation looks like 1-2, 1-2.1-1 or S0-1, not '{text}'")]
pub struct InvalidPath {
    text: String,
}

impl OpPath {
    /// All places, outermost first.
    pub(super) fn segments(&self) -> impl Iterator<Item = Segment> {
        self.above.iter().flat_map(|above| above.iter()).copied().chain([self.last])
    }
}

impl OpPath {
    /// The operation of the first session that it is, or is under.
    #[must_use]
    pub fn top(&self) -> Self {
        Self { above: None, last: self.segments().next().unwrap_or(self.last) }
    }
}

impl fmt::Display for OpPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for segment in self.above.iter().flat_map(|above| above.iter()) {
            write!(f, "{segment}.")?;
        }
        self.last.fmt(f)
    }
}

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.turn == 0 { "S" } else { "" };
        write!(f, "{mark}{}-{}", self.turn, self.index)
    }
}

impl FromStr for OpPath {
    type Err = InvalidPath;

    fn from_str(text: &str) -> Result<Self, InvalidPath> {
        let invalid = || InvalidPath { text: text::printable(text, 80) };
        // One more than may be is enough to know that there are too many.
        let segments: Option<Vec<Segment>> = text.split('.').take(MAX_DEPTH + 2).map(segment).collect();
        let mut above = segments.ok_or_else(invalid)?;
        if above.len() > MAX_DEPTH + 1 {
            return Err(invalid());
        }
        let last = above.pop().ok_or_else(invalid)?;
        Ok(Self { above: (!above.is_empty()).then(|| above.into()), last })
    }
}

fn segment(text: &str) -> Option<Segment> {
    let (turn, index) = text.split_once('-')?;
    let turn = if turn == "S0" { 0 } else { number(turn)? };
    Some(Segment { turn, index: number(index)? })
}

/// A number from 1, as it is printed: no sign, no leading zero.
fn number(text: &str) -> Option<u32> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    text.parse().ok().filter(|_| is_plain)
}

impl Serialize for OpPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Who called whom, outermost first: `planner:researcher`.
///
/// It is a label for people; nothing is looked up by it.
///
/// ```
/// use pegboard_runtime::optree::CallPath;
///
/// let path = CallPath::new("a: b ::tool:b:b:c");
/// assert_eq!(path.as_str(), "a:b:c");
/// assert_eq!(path.join("c"), path);
/// assert_eq!(path.join("d").as_str(), "a:b:c:d");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct CallPath(Arc<str>);

impl CallPath {
    /// The path without empty parts, without `tool`, and with each part once where it is repeated.
    pub fn new(text: &str) -> Self {
        let mut path = String::new();
        let mut last = "";
        for part in text.split(':').map(str::trim) {
            if part.is_empty() || part == "tool" || part == last {
                continue;
            }
            if !path.is_empty() {
                path.push(':');
            }
            path.push_str(part);
            last = part;
            if path.len() > MAX_CALL_PATH {
                break;
            }
        }
        Self(text::bounded(path.as_str(), MAX_CALL_PATH))
    }

    /// The path of what `name` does for this one.
    #[must_use]
    pub fn join(&self, name: &str) -> Self {
        Self::new(&format!("{self}:{name}"))
    }

    /// The path as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CallPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
