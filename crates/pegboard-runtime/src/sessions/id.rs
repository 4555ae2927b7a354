//! Session ids: `s-20260102030405`, with a tag such as `-9f3c` if two sessions began in the same second.

use std::fmt;
use std::time::SystemTime;

use pegboard_core::utc::UtcTime;
use serde::Serialize;

use crate::random;

const PREFIX: &str = "s-";
const STAMP_DIGITS: usize = 14;
const TAG_DIGITS: usize = 4;

/// The id of a session, in the standard form: `s-`, fourteen digits, and optionally a tag of four.
///
/// ```
/// use pegboard_runtime::sessions::SessionId;
///
/// assert!(SessionId::parse("s-20260102030405").is_some());
/// assert!(SessionId::parse("s-20260102030405-9f3c").is_some());
/// assert!(SessionId::parse("budget work").is_none());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct SessionId(String);

impl SessionId {
    /// Parses an id in the standard form.
    pub fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix(PREFIX)?;
        let (stamp, tag) = rest.split_once('-').map_or((rest, None), |(stamp, tag)| (stamp, Some(tag)));
        let is_stamp = stamp.len() == STAMP_DIGITS && stamp.bytes().all(|byte| byte.is_ascii_digit());
        let is_tag = |tag: &str| {
            tag.len() == TAG_DIGITS && tag.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        };
        (is_stamp && tag.is_none_or(is_tag)).then(|| Self(text.to_owned()))
    }

    /// Creates the id of a session that begins now, assuming that it is the only one in this second.
    pub(super) fn at(now: SystemTime) -> Self {
        Self(format!("{PREFIX}{}", UtcTime::from(now).digits()))
    }

    /// Creates an id with a random tag.
    pub(super) fn tagged_at(now: SystemTime) -> Self {
        let Self(stamp) = Self::at(now);
        Self(format!("{stamp}-{:04x}", u16::from_be_bytes(random::bytes())))
    }

    /// Returns the id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
