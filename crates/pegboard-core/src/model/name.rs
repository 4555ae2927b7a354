//! What a model is called: the provider, and what that provider calls it.

use std::borrow::{Borrow, Cow};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use schemars::{JsonSchema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// How long a name may be.
const MAX_BYTES: usize = 256;

/// What a model is called: `PROVIDER/model`. What follows the first slash is the provider's own business.
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
    /// Who has it.
    pub fn provider(&self) -> &ModelProviderName {
        &self.provider
    }

    /// What the provider calls it.
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
        let is_right = !model.is_empty()
            && model.len() <= MAX_BYTES
            && !model.contains(|each: char| each.is_control() || each.is_whitespace());
        if !is_right {
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

/// The name of a provider of models: letters, digits, `.`, `-` and `_`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelProviderName(Arc<str>);

impl ModelProviderName {
    /// The name, if the text can be one.
    pub fn new(name: &str) -> Result<Self, InvalidModelName> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        if name.is_empty() || name.len() > MAX_BYTES || !name.bytes().all(is_plain) {
            let name = name.chars().take(MAX_BYTES).collect();
            return Err(InvalidModelName::BadProvider { name });
        }
        Ok(Self(name.into()))
    }

    /// The name as text.
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

/// Why a text cannot be the name of a model or of a provider.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidModelName {
    /// It does not say whose model it is.
    #[error("'{name}' is no model: write PROVIDER/model, with one of the names under providers")]
    NoProvider {
        /// The text.
        name: String,
    },
    /// What follows the provider is no name.
    #[error(
        "'{name}' is no model: what follows the provider must be the name of a model, without white space and of at \
         most {MAX_BYTES} bytes"
    )]
    BadModel {
        /// The text.
        name: String,
    },
    /// The provider has characters that it may not have.
    #[error("'{name}' is no name of a provider: use letters, digits, '.', '-' and '_'")]
    BadProvider {
        /// The text.
        name: String,
    },
}
