//! One step of a chain.

use std::time::Duration;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::path::ContextPath;
use super::source::{Condition, InputSource};
use crate::duration::HumanDuration;

/// One step of a chain.
///
/// Files may use the short keys `tool` for `tool_name`, `with` for `input_mapping` and `as` for `output_key`.
///
/// ```
/// use pegboard_core::chain::ChainStep;
///
/// let step = ChainStep::new("summarise").map("text", "page.body").output_key("summary");
/// assert_eq!(
///     serde_json::to_string(&step).unwrap(),
///     r#"{"tool_name":"summarise","input_mapping":{"text":"page.body"},"output_key":"summary"}"#
/// );
/// let short = r#"{"tool": "summarise", "with": {"text": "page.body"}, "as": "summary"}"#;
/// assert_eq!(serde_json::from_str::<ChainStep>(short).unwrap(), step);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChainStep {
    /// Tool to call.
    #[serde(alias = "tool")]
    pub tool_name: String,
    /// Source of each input. Without a mapping, the tool gets the whole context.
    #[serde(alias = "with", default)]
    #[schemars(with = "IndexMap<String, Value>")]
    pub input_mapping: IndexMap<String, InputSource>,
    /// Key of the output in the context. Without a key, an object is merged into the context.
    #[serde(alias = "as", default)]
    pub output_key: String,
    /// Timeout of each call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<HumanDuration>,
    /// Condition; the step is skipped if it does not hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Value")]
    pub when: Option<Condition>,
    /// Path of a list; the step runs once for each item, available as `item` with its `index`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub for_each: Option<ContextPath>,
    /// Number of items processed concurrently; 1 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<usize>,
    /// Group label; adjacent steps with the same label run in parallel and do not see each other's outputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallel: Option<String>,
    /// Treatment of an output that violates the tool's schema.
    #[serde(default, skip_serializing_if = "OnPartial::is_fail")]
    pub on_partial: OnPartial,
}

/// Treatment of an output that violates the tool's schema.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnPartial {
    /// Fail the step.
    #[default]
    Fail,
    /// Accept the output.
    Accept,
}

impl OnPartial {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "signature required by serde")]
    fn is_fail(&self) -> bool {
        *self == Self::Fail
    }
}

impl ChainStep {
    /// Creates a step that passes the whole context to the tool and merges its output back.
    pub fn new(tool_name: impl Into<String>) -> Self {
        Self {
            tool_name: tool_name.into(),
            input_mapping: IndexMap::new(),
            output_key: String::new(),
            timeout: None,
            when: None,
            for_each: None,
            concurrency: None,
            parallel: None,
            on_partial: OnPartial::Fail,
        }
    }

    /// Adds an input.
    #[must_use]
    pub fn map(mut self, input: impl Into<String>, source: impl Into<InputSource>) -> Self {
        self.input_mapping.insert(input.into(), source.into());
        self
    }

    /// Sets the key of the output in the context.
    #[must_use]
    pub fn output_key(mut self, key: impl Into<String>) -> Self {
        self.output_key = key.into();
        self
    }

    /// Sets the timeout of each call.
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = Some(limit.into());
        self
    }

    /// Sets the condition.
    #[must_use]
    pub fn when(mut self, condition: impl Into<Condition>) -> Self {
        self.when = Some(condition.into());
        self
    }

    /// Runs the step once for each item of the list at `path`.
    #[must_use]
    pub fn for_each(mut self, path: impl Into<String>) -> Self {
        self.for_each = Some(ContextPath::new(path));
        self
    }

    /// Sets the number of items processed concurrently.
    #[must_use]
    pub fn concurrency(mut self, n_items: usize) -> Self {
        self.concurrency = Some(n_items);
        self
    }

    /// Sets the label of the parallel group.
    #[must_use]
    pub fn parallel(mut self, label: impl Into<String>) -> Self {
        self.parallel = Some(label.into());
        self
    }

    /// Sets the treatment of an output that violates the tool's schema.
    #[must_use]
    pub fn on_partial(mut self, on_partial: OnPartial) -> Self {
        self.on_partial = on_partial;
        self
    }
}

impl From<&str> for ChainStep {
    fn from(tool_name: &str) -> Self {
        Self::new(tool_name)
    }
}
