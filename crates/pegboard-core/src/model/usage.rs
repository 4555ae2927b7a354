//! Token usage and pricing.

use std::ops::AddAssign;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Token usage of a reply. Every token is counted once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TokenUsage {
    /// Uncached input tokens.
    pub input: u64,
    /// Output tokens, thinking included.
    pub output: u64,
    /// Input tokens read from the prompt cache.
    pub cache_read: u64,
    /// Input tokens written to the prompt cache.
    pub cache_write: u64,
}

impl TokenUsage {
    /// Returns the total number of input tokens.
    pub fn total_input(&self) -> u64 {
        self.input.saturating_add(self.cache_read).saturating_add(self.cache_write)
    }
}

impl AddAssign for TokenUsage {
    fn add_assign(&mut self, other: Self) {
        self.input = self.input.saturating_add(other.input);
        self.output = self.output.saturating_add(other.output);
        self.cache_read = self.cache_read.saturating_add(other.cache_read);
        self.cache_write = self.cache_write.saturating_add(other.cache_write);
    }
}

/// Price of a model per million tokens, in US dollars.
///
/// ```
/// use pegboard_core::model::{Pricing, TokenUsage};
///
/// let pricing = Pricing { input: 3.0, output: 15.0, cache_read: Some(0.3), cache_write: None };
/// let usage = TokenUsage { input: 1_000, output: 200, cache_read: 10_000, cache_write: 0 };
/// assert!((pricing.cost(&usage) - 0.009).abs() < 1e-9);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Pricing {
    /// Input tokens.
    #[schemars(range(min = 0))]
    pub input: f64,
    /// Output tokens.
    #[schemars(range(min = 0))]
    pub output: f64,
    /// Input tokens read from the prompt cache; defaults to the input price.
    #[schemars(range(min = 0))]
    pub cache_read: Option<f64>,
    /// Input tokens written to the prompt cache; defaults to the input price.
    #[schemars(range(min = 0))]
    pub cache_write: Option<f64>,
}

impl Pricing {
    /// Returns the cost in US dollars.
    #[expect(clippy::cast_precision_loss, reason = "token counts stay far below 2^53")]
    pub fn cost(&self, usage: &TokenUsage) -> f64 {
        let parts = [
            (usage.input, self.input),
            (usage.output, self.output),
            (usage.cache_read, self.cache_read.unwrap_or(self.input)),
            (usage.cache_write, self.cache_write.unwrap_or(self.input)),
        ];
        parts.iter().map(|(n_tokens, price)| *n_tokens as f64 * price).sum::<f64>() / 1e6
    }
}
