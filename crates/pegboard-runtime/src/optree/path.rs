//! Operation paths and call paths.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Serialize, Serializer};

use super::text;

/// Maximum nesting depth of sessions.
///
/// An export uses five levels of JSON per session level, and many readers stop at 128.
pub const MAX_DEPTH: usize = 20;

/// Maximum length of a call path, in bytes.
const MAX_CALL_PATH: usize = 1_024;

/// Path of an operation in the tree: `1-2` is the second operation of turn 1, `1-2.1-1` the first of its
/// nested session, and `S0-1` a system step outside turns.
///
/// Paths are never reused, even after an operation is evicted. No operation has the default path, `S0-0`.
///
/// ```
/// use pegboard_runtime::optree::OpPath;
///
/// let path: OpPath = "1-2.S0-1".parse().unwrap();
/// assert_eq!(path.to_string(), "1-2.S0-1");
/// assert!("1-0".parse::<OpPath>().is_err());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct OpPath {
    /// Path of the parent operation, outermost segment first; never empty.
    pub(super) ancestors: Option<Arc<[OpSegment]>>,
    pub(super) last: OpSegment,
}

/// Position within one session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct OpSegment {
    /// Turn number, from 1; 0 for system steps.
    pub(super) turn: u32,
    /// Index within the turn, from 1.
    pub(super) index: u32,
}

/// The text is not a valid operation path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid operation path '{text}': expected 1-2, 1-2.1-1 or S0-1")]
pub struct InvalidOpPath {
    text: String,
}

impl OpPath {
    /// Returns all segments, outermost first.
    pub(super) fn segments(&self) -> impl Iterator<Item = OpSegment> {
        self.ancestors.iter().flat_map(|ancestors| ancestors.iter()).copied().chain([self.last])
    }

    /// Returns the turn and the index of the outermost operation as one number.
    pub(crate) fn top_bits(&self) -> u64 {
        let OpSegment { turn, index } = self.ancestors.as_ref().map_or(self.last, |ancestors| ancestors[0]);
        (u64::from(turn) << 32) | u64::from(index)
    }
}

impl fmt::Display for OpPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for segment in self.ancestors.iter().flat_map(|ancestors| ancestors.iter()) {
            write!(f, "{segment}.")?;
        }
        self.last.fmt(f)
    }
}

impl fmt::Display for OpSegment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.turn == 0 { "S" } else { "" };
        write!(f, "{mark}{}-{}", self.turn, self.index)
    }
}

impl FromStr for OpPath {
    type Err = InvalidOpPath;

    fn from_str(text: &str) -> Result<Self, InvalidOpPath> {
        let invalid = || InvalidOpPath { text: text::printable(text, 80) };
        // One segment more than the maximum suffices to detect an overlong path.
        let segments: Option<Vec<OpSegment>> = text.split('.').take(MAX_DEPTH + 2).map(segment).collect();
        let mut ancestors = segments.ok_or_else(invalid)?;
        if ancestors.len() > MAX_DEPTH + 1 {
            return Err(invalid());
        }
        let last = ancestors.pop().ok_or_else(invalid)?;
        Ok(Self { ancestors: (!ancestors.is_empty()).then(|| ancestors.into()), last })
    }
}

fn segment(text: &str) -> Option<OpSegment> {
    let (turn, index) = text.split_once('-')?;
    let turn = if turn == "S0" { 0 } else { number(turn)? };
    Some(OpSegment { turn, index: number(index)? })
}

/// Parses a number from 1 in canonical form: no sign, no leading zero.
fn number(text: &str) -> Option<u32> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    text.parse().ok().filter(|_| is_plain)
}

impl Serialize for OpPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Chain of callers, outermost first: `planner:researcher`.
///
/// A label for display; not used for lookups.
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
    /// Normalizes a path: drops empty parts and `tool`, and collapses repeated parts.
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
        Self(text::truncate(path.as_str(), MAX_CALL_PATH))
    }

    /// Appends a name.
    #[must_use]
    pub fn join(&self, name: &str) -> Self {
        Self::new(&format!("{self}:{name}"))
    }

    /// Returns the path as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CallPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
