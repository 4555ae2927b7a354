//! The path from the root of a file to a value: `mcpServers.github.args[0]`.

use std::fmt;

/// One segment of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeySegment {
    Key(String),
    Index(usize),
}

/// The path to a value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeyPath(Vec<KeySegment>);

impl KeyPath {
    pub(crate) fn key(&self, key: &str) -> Self {
        self.segment(KeySegment::Key(key.to_owned()))
    }

    pub(crate) fn segment(&self, segment: KeySegment) -> Self {
        let mut segments = self.0.clone();
        segments.push(segment);
        Self(segments)
    }

    /// Returns the last key, if there is one after all indexes.
    pub(crate) fn last_key(&self) -> Option<&str> {
        match self.0.last()? {
            KeySegment::Key(key) => Some(key),
            KeySegment::Index(_) => None,
        }
    }

    /// Returns `true` if `other` is a proper prefix of this path.
    pub(crate) fn is_inside(&self, other: &Self) -> bool {
        self.0.len() > other.0.len() && self.0.starts_with(&other.0)
    }

    pub(crate) fn segments(&self) -> &[KeySegment] {
        &self.0
    }

    pub(crate) fn join(&self, other: &Self) -> Self {
        self.extended(&other.0)
    }

    pub(crate) fn extended(&self, segments: &[KeySegment]) -> Self {
        Self(self.0.iter().chain(segments).cloned().collect())
    }
}

impl fmt::Display for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, segment) in self.0.iter().enumerate() {
            match segment {
                KeySegment::Index(index) => write!(f, "[{index}]")?,
                KeySegment::Key(key) if is_plain(key) && at == 0 => f.write_str(key)?,
                KeySegment::Key(key) if is_plain(key) => write!(f, ".{key}")?,
                KeySegment::Key(key) => write!(f, "[{key:?}]")?,
            }
        }
        Ok(())
    }
}

/// Returns `true` if the key needs no quotes in a dotted path.
fn is_plain(key: &str) -> bool {
    !key.is_empty() && key.chars().all(|each| each.is_alphanumeric() || matches!(each, '-' | '_' | '$'))
}
