//! JSON-RPC request ids.

use std::fmt;
use std::sync::Arc;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use pegboard_json::scan;

/// The id of a request: a string or an integer.
///
/// ```
/// use pegboard_wire::{Id, RawJson};
///
/// let read = |text: &'static str| RawJson::parse(text.into()).unwrap().read::<Id>().ok();
/// assert_eq!(read("-7"), Some(Id::Number(-7)));
/// assert_eq!(read(r#""7""#), Some(Id::Text("7".into())));
/// assert_eq!(read("7.0"), None);
/// assert_eq!(read("null"), None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Id {
    /// An integer.
    Number(i64),
    /// A string.
    Text(Arc<str>),
}

impl Id {
    /// Parses a JSON value as an id.
    pub(super) fn parse(value: &[u8]) -> Option<Self> {
        match scan::decode_string(value) {
            Some(text) => Some(Self::Text(text.into())),
            None => integer(value).map(Self::Number),
        }
    }
}

/// Parses an integer literal. `-0` is rejected: it would be sent back as `0`.
pub(super) fn integer(value: &[u8]) -> Option<i64> {
    let (digits, is_negative) = match value.strip_prefix(b"-") {
        Some(digits) => (digits, true),
        None => (value, false),
    };
    if digits.is_empty() || value == b"-0" {
        return None;
    }
    // Negative, since the smallest number has no positive counterpart.
    let negative = digits.iter().try_fold(0_i64, |so_far, byte| {
        let digit = byte.is_ascii_digit().then(|| i64::from(byte - b'0'))?;
        so_far.checked_mul(10)?.checked_sub(digit)
    })?;
    if is_negative { Some(negative) } else { negative.checked_neg() }
}

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Number(number) => serializer.serialize_i64(*number),
            Self::Text(text) => serializer.serialize_str(text),
        }
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(IdVisitor)
    }
}

struct IdVisitor;

impl Visitor<'_> for IdVisitor {
    type Value = Id;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string or a 64-bit integer")
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Id, E> {
        Ok(Id::Number(number))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Id, E> {
        i64::try_from(number).map(Id::Number).map_err(E::custom)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Id, E> {
        Ok(Id::Text(text.into()))
    }
}
