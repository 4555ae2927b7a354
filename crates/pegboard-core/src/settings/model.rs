//! How a person describes the providers of models.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Deserialize;

use super::mcp::Secret;
use crate::model::{ModelFacts, ModelName, Pricing};

/// A provider of models as a person writes it down. A model of it is called `NAME/model`.
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
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ModelProviderSettings {
    /// What it speaks.
    #[serde(rename = "type")]
    pub kind: ModelProviderKind,
    /// Its address, up to what all requests have in common: `https://api.openai.com/v1`.
    #[serde(default)]
    pub base_url: Option<String>,
    /// The key, from a variable: `${OPENAI_API_KEY}`.
    #[serde(default)]
    pub api_key: Option<Secret>,
    /// More headers of every request.
    #[serde(default)]
    pub headers: IndexMap<String, Secret>,
    /// What is known of its models, by the names that it gives them. Others can be used all the same.
    #[serde(default)]
    pub models: IndexMap<String, ModelSettings>,
}

impl ModelProviderSettings {
    /// The address of providers that have only one.
    pub const ANTHROPIC_URL: &str = "https://api.anthropic.com";

    /// A provider with nothing but its kind.
    pub fn new(kind: ModelProviderKind) -> Self {
        Self { kind, base_url: None, api_key: None, headers: IndexMap::new(), models: IndexMap::new() }
    }

    /// What is known of one of its models.
    pub fn facts(&self, name: &ModelName) -> ModelFacts {
        let known = self.models.get(name.model());
        ModelFacts {
            name: name.clone(),
            context_window: known.and_then(|model| model.context_window),
            pricing: known.and_then(|model| model.pricing),
        }
    }
}

/// What a provider of models speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub enum ModelProviderKind {
    /// Chat completions, which nearly everybody offers.
    #[serde(rename = "openai-compatible")]
    OpenAiCompatible,
    /// Messages, as Anthropic has them.
    #[serde(rename = "anthropic")]
    Anthropic,
    /// MCP: the client that made the call lends its own model.
    #[serde(rename = "sampling")]
    Sampling,
}

/// What is known of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ModelSettings {
    /// How many tokens it can read and write in one request.
    pub context_window: Option<u64>,
    /// What a million of its tokens cost, in US dollars.
    pub pricing: Option<Pricing>,
}
