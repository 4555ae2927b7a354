//! How many tokens a reply took, and what that costs.

use std::ops::AddAssign;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How many tokens a reply took. Every token is counted once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Tokens that the model read anew.
    pub input: u64,
    /// Tokens that it wrote, its thoughts included.
    pub output: u64,
    /// Tokens that the provider had kept from an earlier request.
    pub cache_read: u64,
    /// Tokens that it read anew and keeps for the next request.
    pub cache_write: u64,
}

impl Usage {
    /// All that the model read.
    pub fn all_input(&self) -> u64 {
        self.input.saturating_add(self.cache_read).saturating_add(self.cache_write)
    }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.input = self.input.saturating_add(other.input);
        self.output = self.output.saturating_add(other.output);
        self.cache_read = self.cache_read.saturating_add(other.cache_read);
        self.cache_write = self.cache_write.saturating_add(other.cache_write);
    }
}

/// What a million tokens of a model cost, in US dollars.
///
/// ```
/// use pegboard_core::model::{Pricing, Usage};
///
/// let pricing = Pricing { input: 3.0, output: 15.0, cache_read: Some(0.3), cache_write: None };
/// let usage = Usage { input: 1_000, output: 200, cache_read: 10_000, cache_write: 0 };
/// assert!((pricing.cost(&usage) - 0.009).abs() < 1e-9);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Pricing {
    /// Those that it reads.
    #[schemars(range(min = 0))]
    pub input: f64,
    /// Those that it writes.
    #[schemars(range(min = 0))]
    pub output: f64,
    /// Those that were kept from an earlier request; without it, like those that it reads.
    #[schemars(range(min = 0))]
    pub cache_read: Option<f64>,
    /// Those that are kept for the next request; without it, like those that it reads.
    #[schemars(range(min = 0))]
    pub cache_write: Option<f64>,
}

impl Pricing {
    /// What these tokens cost in US dollars.
    #[expect(clippy::cast_precision_loss, reason = "nobody pays for 2^53 tokens")]
    pub fn cost(&self, usage: &Usage) -> f64 {
        let parts = [
            (usage.input, self.input),
            (usage.output, self.output),
            (usage.cache_read, self.cache_read.unwrap_or(self.input)),
            (usage.cache_write, self.cache_write.unwrap_or(self.input)),
        ];
        parts.iter().map(|(n_tokens, price)| *n_tokens as f64 * price).sum::<f64>() / 1e6
    }
}
