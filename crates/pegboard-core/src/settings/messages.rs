//! Limits of protocol messages.

use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

/// Limits of the messages that are read from a client or a server. What exceeds them is refused with the reason.
///
/// ```
/// use pegboard_core::settings::messages::MessageLimits;
///
/// let limits: MessageLimits = serde_json::from_str(r#"{"maxBytes": 1048576}"#).unwrap();
/// assert_eq!((limits.max_bytes, limits.max_depth), (1_048_576, 128));
/// assert!(serde_json::from_str::<MessageLimits>(r#"{"maxDepth": 4096}"#).is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct MessageLimits {
    /// Maximum size of a message in bytes, from 64 KiB to 1 GiB.
    #[serde(deserialize_with = "max_bytes")]
    #[schemars(range(min = 65_536, max = 1_073_741_824))]
    pub max_bytes: usize,
    /// Maximum nesting depth of its JSON, from 16 to 128.
    #[serde(deserialize_with = "max_depth")]
    #[schemars(range(min = 16, max = 128))]
    pub max_depth: usize,
}

impl MessageLimits {
    /// Permitted sizes in bytes.
    const BYTES: std::ops::RangeInclusive<usize> = 64 << 10..=1 << 30;
    /// Permitted nesting depths. Most JSON parsers stop at 128.
    const DEPTHS: std::ops::RangeInclusive<usize> = 16..=128;
}

impl Default for MessageLimits {
    fn default() -> Self {
        Self { max_bytes: 16 << 20, max_depth: 128 }
    }
}

fn max_bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    within(deserializer, &MessageLimits::BYTES)
}

fn max_depth<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    within(deserializer, &MessageLimits::DEPTHS)
}

fn within<'de, D: Deserializer<'de>>(
    deserializer: D,
    range: &std::ops::RangeInclusive<usize>,
) -> Result<usize, D::Error> {
    let number = usize::deserialize(deserializer)?;
    if range.contains(&number) {
        return Ok(number);
    }
    Err(D::Error::custom(format_args!("{number} is not between {} and {}", range.start(), range.end())))
}
