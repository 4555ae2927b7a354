//! Settings of model providers.

use std::fmt;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::model::{ModelInfo, ModelName, Pricing};
use crate::secret::Secret;

/// A model provider, as written. Its models are named `NAME/model`.
///
/// ```
/// use pegboard_core::settings::model::{ModelProviderKind, ModelProviderSettings};
///
/// let settings: ModelProviderSettings = serde_json::from_str(
///     r#"{"type": "openai-compatible", "baseUrl": "http://127.0.0.1:11434/v1"}"#,
/// ).unwrap();
/// assert_eq!(settings.kind, ModelProviderKind::OpenAiCompatible);
/// assert!(settings.api_key.is_none());
/// ```
#[derive(Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ModelProviderSettings {
    /// API of the provider.
    #[serde(rename = "type")]
    pub kind: ModelProviderKind,
    /// Base URL of the API: `https://api.openai.com/v1`.
    #[serde(default)]
    pub base_url: Option<String>,
    /// API key, from a variable: `${OPENAI_API_KEY}`.
    #[serde(default)]
    pub api_key: Option<Secret>,
    /// Additional HTTP headers.
    #[serde(default)]
    pub headers: IndexMap<String, Secret>,
    /// Model settings by the provider's model names. Other models can be used as well.
    #[serde(default)]
    pub models: IndexMap<String, ModelSettings>,
}

/// Omits secrets.
impl fmt::Debug for ModelProviderSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelProviderSettings").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl ModelProviderSettings {
    /// Default base URL of Anthropic.
    pub const ANTHROPIC_URL: &str = "https://api.anthropic.com";

    /// Creates a provider with default settings.
    pub fn new(kind: ModelProviderKind) -> Self {
        Self { kind, base_url: None, api_key: None, headers: IndexMap::new(), models: IndexMap::new() }
    }

    /// Returns the known information about a model.
    pub fn model_info(&self, name: &ModelName) -> ModelInfo {
        let known = self.models.get(name.model());
        ModelInfo {
            name: name.clone(),
            context_window: known.and_then(|model| model.context_window),
            pricing: known.and_then(|model| model.pricing),
        }
    }
}

/// API of a model provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub enum ModelProviderKind {
    /// OpenAI-compatible chat completions.
    #[serde(rename = "openai-compatible")]
    OpenAiCompatible,
    /// Anthropic messages.
    #[serde(rename = "anthropic")]
    Anthropic,
    /// MCP sampling: the client that made the call provides the model.
    #[serde(rename = "sampling")]
    Sampling,
}

/// Settings of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ModelSettings {
    /// Size of the context window in tokens.
    pub context_window: Option<u64>,
    /// Price per million tokens, in US dollars.
    pub pricing: Option<Pricing>,
}
