//! Secrets in memory.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer};
use zeroize::Zeroizing;

/// Minimum length of a secret. Shorter ones occur in innocent text, so they cannot be redacted.
pub const MIN_SECRET_CHARACTERS: usize = 4;

/// A secret string. It cannot be printed, only revealed, and is overwritten when it is dropped.
///
/// ```compile_fail
/// println!("{:?}", pegboard_core::secret::Secret::new("s3cret"));
/// ```
///
/// ```compile_fail
/// println!("{}", pegboard_core::secret::Secret::new("s3cret"));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Wraps a string.
    pub fn new(text: impl Into<String>) -> Self {
        Self(Zeroizing::new(text.into()))
    }

    /// Returns the secret.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::new)
    }
}

/// As a string.
impl JsonSchema for Secret {
    fn schema_name() -> Cow<'static, str> {
        "Secret".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = String::json_schema(generator);
        schema.insert("description".to_owned(), "A secret string. Cannot be printed, only revealed.".into());
        schema
    }
}
