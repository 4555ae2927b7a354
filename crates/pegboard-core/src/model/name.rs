//! Model names: `PROVIDER/model`.

use std::borrow::{Borrow, Cow};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use schemars::{JsonSchema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Maximum length of a name.
const MAX_BYTES: usize = 256;

/// Name of a model: `PROVIDER/model`. The part behind the first slash is defined by the provider.
///
/// ```
/// use pegboard_core::model::ModelName;
///
/// let name: ModelName = "router/meta/llama-4".parse()?;
/// assert_eq!((name.provider().as_str(), name.model()), ("router", "meta/llama-4"));
/// assert_eq!(name.to_string(), "router/meta/llama-4");
/// assert!("llama-4".parse::<ModelName>().is_err());
/// # Ok::<(), pegboard_core::model::InvalidModelName>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ModelName {
    provider: ModelProviderName,
    model: Arc<str>,
}

impl ModelName {
    /// Returns the provider.
    pub fn provider(&self) -> &ModelProviderName {
        &self.provider
    }

    /// Returns the provider's name for the model.
    pub fn model(&self) -> &str {
        &self.model
    }
}

impl fmt::Display for ModelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.provider, self.model)
    }
}

impl FromStr for ModelName {
    type Err = InvalidModelName;

    fn from_str(text: &str) -> Result<Self, InvalidModelName> {
        let quoted = || text.chars().take(MAX_BYTES).collect::<String>();
        let (provider, model) =
            text.split_once('/').ok_or_else(|| InvalidModelName::NoProvider { name: quoted() })?;
        let is_valid = !model.is_empty()
            && model.len() <= MAX_BYTES
            && !model.contains(|each: char| each.is_control() || each.is_whitespace());
        if !is_valid {
            return Err(InvalidModelName::BadModel { name: quoted() });
        }
        Ok(Self { provider: ModelProviderName::new(provider)?, model: model.into() })
    }
}

impl Serialize for ModelName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ModelName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for ModelName {
    fn schema_name() -> Cow<'static, str> {
        "ModelName".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> schemars::Schema {
        json_schema!({"type": "string", "pattern": "^[A-Za-z0-9._-]+/.+$"})
    }
}

/// Name of a model provider: letters, digits, `.`, `-` and `_`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelProviderName(Arc<str>);

impl ModelProviderName {
    /// Validates a name.
    pub fn new(name: &str) -> Result<Self, InvalidModelName> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        if name.is_empty() || name.len() > MAX_BYTES || !name.bytes().all(is_plain) {
            let name = name.chars().take(MAX_BYTES).collect();
            return Err(InvalidModelName::BadProvider { name });
        }
        Ok(Self(name.into()))
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ModelProviderName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ModelProviderName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl Borrow<str> for ModelProviderName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// Reason why a text is not a valid model or provider name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidModelName {
    /// The provider is missing.
    #[error("invalid model '{name}': expected PROVIDER/model, with a name defined under providers")]
    NoProvider {
        /// Rejected name.
        name: String,
    },
    /// The part behind the provider is invalid.
    #[error(
        "invalid model '{name}': the name behind the provider must be non-empty, without white space and at most \
         {MAX_BYTES} bytes long"
    )]
    BadModel {
        /// Rejected name.
        name: String,
    },
    /// The provider name has invalid characters.
    #[error("invalid provider name '{name}': use letters, digits, '.', '-' and '_'")]
    BadProvider {
        /// Rejected name.
        name: String,
    },
}
