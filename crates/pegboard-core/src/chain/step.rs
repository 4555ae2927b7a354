//! One step of a chain: a tool, its input, the place of its output, and when and how often it runs.

use std::time::Duration;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::path::Path;
use super::source::{Condition, Source};
use crate::duration::HumanDuration;

/// One step of a chain.
///
/// In a file the short names do as well: `tool` for `tool_name`, `with` for `input_mapping`, `as` for `output_key`.
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
    /// The tool it calls.
    #[serde(alias = "tool")]
    pub tool_name: String,
    /// Where each input comes from. Without one the tool gets the whole context.
    #[serde(alias = "with", default)]
    #[schemars(with = "IndexMap<String, Value>")]
    pub input_mapping: IndexMap<String, Source>,
    /// Where the output goes in the context. Without one an object is merged into it.
    #[serde(alias = "as", default)]
    pub output_key: String,
    /// How long each call may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<HumanDuration>,
    /// Runs only if this holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Value")]
    pub when: Option<Condition>,
    /// Runs once for each item of this list, which the mapping knows as `item`, with its `index`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub for_each: Option<Path>,
    /// How many items are worked on at a time; one if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<usize>,
    /// Neighbours with the same label run side by side and do not see each other's outputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallel: Option<String>,
    /// What an output that breaks the tool's schema means.
    #[serde(default, skip_serializing_if = "OnPartial::is_fail")]
    pub on_partial: OnPartial,
}

/// What an output that breaks the tool's schema means for the chain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnPartial {
    /// The step has failed.
    #[default]
    Fail,
    /// The output is good enough.
    Accept,
}

impl OnPartial {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "the shape that serde asks for")]
    fn is_fail(&self) -> bool {
        *self == Self::Fail
    }
}

impl ChainStep {
    /// A step that gives the tool the whole context and merges its output back.
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

    /// The step with one more input.
    #[must_use]
    pub fn map(mut self, input: impl Into<String>, source: impl Into<Source>) -> Self {
        self.input_mapping.insert(input.into(), source.into());
        self
    }

    /// The step with its output under a key of the context.
    #[must_use]
    pub fn output_key(mut self, key: impl Into<String>) -> Self {
        self.output_key = key.into();
        self
    }

    /// The step with a limit on each call.
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = Some(limit.into());
        self
    }

    /// The step, if a condition holds.
    #[must_use]
    pub fn when(mut self, condition: impl Into<Condition>) -> Self {
        self.when = Some(condition.into());
        self
    }

    /// The step, once for each item of the list at `path`.
    #[must_use]
    pub fn for_each(mut self, path: impl Into<String>) -> Self {
        self.for_each = Some(Path::new(path));
        self
    }

    /// The step with several items worked on at a time.
    #[must_use]
    pub fn concurrency(mut self, n_items: usize) -> Self {
        self.concurrency = Some(n_items);
        self
    }

    /// The step beside its neighbours of the same label.
    #[must_use]
    pub fn parallel(mut self, label: impl Into<String>) -> Self {
        self.parallel = Some(label.into());
        self
    }

    /// The step with another view of outputs that break the tool's schema.
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
