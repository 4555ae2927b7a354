//! Several tools, one after another or side by side, over one shared context.

use std::fmt;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::call::Invoker;
use crate::duration::serialize_millis;
use crate::outcome::Outcome;
use crate::schema::Schema;
use crate::validation::ValidationResult;

mod check;
mod path;
mod run;
mod source;
mod step;
mod tool;

pub use check::{Flaw, FlawPlace};
pub use path::{InvalidPath, Path};
pub use source::{Absent, Condition, InvalidSource, Source, Template};
pub use step::{ChainStep, OnPartial};
pub use tool::{Find, Plan, PlannedStep};

/// Steps and the tools they call. What a step gives back is there for every later step.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use pegboard_core::chain::{ChainStep, ToolChain};
/// use pegboard_core::entry::ToolEntry;
/// use pegboard_core::registry::ToolRegistry;
/// use serde_json::json;
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Text {
///     text: String,
/// }
/// let registry = ToolRegistry::new().with([
///     ToolEntry::new("shout", "Upper-case text", |it: Text| async move { Ok(it.text.to_uppercase()) }),
///     ToolEntry::new("count", "The length of a text", |it: Text| async move { Ok(it.text.len()) }),
/// ])?;
///
/// let chain = ToolChain::new(&registry)
///     .add_step(ChainStep::new("shout").map("text", "page.body").output_key("loud"))
///     .add_step(ChainStep::new("count").map("text", "loud").output_key("length"));
/// assert!(chain.validate().valid);
///
/// let run = chain.execute(json!({"page": {"body": "hello"}})).await;
/// assert!(run.success);
/// assert_eq!((&run.context["loud"], &run.context["length"]), (&json!("HELLO"), &json!(5)));
/// # Ok::<(), pegboard_core::registry::RegisterError>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct ToolChain<'t> {
    spec: ChainSpec,
    tools: &'t dyn Invoker,
}

impl<'t> ToolChain<'t> {
    /// A chain without steps over these tools.
    pub fn new(tools: &'t dyn Invoker) -> Self {
        Self::from_spec(ChainSpec::default(), tools)
    }

    /// The chain that a file describes, over these tools.
    ///
    /// ```
    /// use pegboard_core::chain::{ChainSpec, ToolChain};
    /// use pegboard_core::registry::ToolRegistry;
    ///
    /// let spec: ChainSpec = serde_json::from_str(r#"{"chain": "greet", "steps": [{"tool": "hello", "as": "greeting"}]}"#)?;
    /// let registry = ToolRegistry::new();
    /// let verdict = ToolChain::from_spec(spec, &registry).validate();
    /// assert_eq!(verdict.errors, ["Step 0: tool 'hello' not found in registry."]);
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub fn from_spec(spec: ChainSpec, tools: &'t dyn Invoker) -> Self {
        Self { spec, tools }
    }

    /// The chain with one more step at its end.
    #[must_use]
    pub fn add_step(mut self, step: ChainStep) -> Self {
        self.spec.steps.push(step);
        self
    }

    /// The chain read by other rules.
    #[must_use]
    pub fn semantics(mut self, semantics: Semantics) -> Self {
        self.spec.semantics = semantics;
        self
    }

    /// A copy of the steps.
    pub fn steps(&self) -> Vec<ChainStep> {
        self.spec.steps.clone()
    }

    /// The chain as data, to be written to a file.
    pub fn spec(&self) -> &ChainSpec {
        &self.spec
    }

    /// How many steps there are.
    pub fn len(&self) -> usize {
        self.spec.steps.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.spec.steps.is_empty()
    }

    /// Takes all steps away.
    pub fn clear(&mut self) {
        self.spec.steps.clear();
    }

    /// Looks the chain over without running anything: every tool exists, and every source can resolve.
    ///
    /// ```
    /// # use pegboard_core::{chain::ToolChain, registry::ToolRegistry};
    /// assert_eq!(ToolChain::new(&ToolRegistry::new()).validate().errors, ["Chain has no steps."]);
    /// ```
    pub fn validate(&self) -> ValidationResult {
        check::verdict(&self.spec, self.tools, None)
    }

    /// Runs the chain: it is looked over first, and stops at the first failure.
    ///
    /// The input is an object, or `null` for none.
    pub async fn execute(&self, initial_input: impl Into<Value>) -> ChainResult {
        self.execute_with(initial_input, ExecuteOptions::default()).await
    }

    /// Runs the chain in another manner.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// use pegboard_core::chain::{ExecuteOptions, ToolChain};
    /// use pegboard_core::registry::ToolRegistry;
    ///
    /// let registry = ToolRegistry::new();
    /// let keep_going = ExecuteOptions { stop_on_failure: false, validate_tools: false };
    /// assert!(ToolChain::new(&registry).execute_with(None::<bool>, keep_going).await.success);
    /// # });
    /// ```
    pub async fn execute_with(
        &self,
        initial_input: impl Into<Value>,
        options: ExecuteOptions,
    ) -> ChainResult {
        run::execute(&self.spec, self.tools, initial_input.into(), options).await
    }
}

impl fmt::Debug for ToolChain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.spec.steps.iter().map(|step| step.tool_name.as_str()).collect();
        write!(f, "ToolChain(steps={names:?})")
    }
}

/// A chain as data: what a file holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChainSpec {
    /// The name of the chain.
    #[serde(rename = "chain", alias = "name", default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// What its input must look like.
    #[serde(default, skip_serializing_if = "Schema::is_empty")]
    #[schemars(with = "Value")]
    pub input_schema: Schema,
    /// What of the context it gives back as a tool; all of it if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub output: Option<Path>,
    /// The rules it is read by.
    #[serde(default, skip_serializing_if = "Semantics::is_full")]
    pub semantics: Semantics,
    /// What it does, in order.
    #[schemars(length(min = 1))]
    pub steps: Vec<ChainStep>,
}

/// The rules a chain is read by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Semantics {
    /// A path leads as deep as it says, and a source that is not there is an error.
    #[default]
    Full,
    /// A path is split at its first dot only, and a source that is not there is `null`.
    Compat,
}

impl Semantics {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "the shape that serde asks for")]
    fn is_full(&self) -> bool {
        *self == Self::Full
    }
}

/// How a chain is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecuteOptions {
    /// Whether the first failure ends the chain.
    pub stop_on_failure: bool,
    /// Whether the chain is looked over before anything runs.
    pub validate_tools: bool,
}

impl Default for ExecuteOptions {
    fn default() -> Self {
        Self { stop_on_failure: true, validate_tools: true }
    }
}

/// How the run of a chain went.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChainResult {
    /// Whether every step went well.
    pub success: bool,
    /// The input, and everything the steps added to it.
    pub context: Map<String, Value>,
    /// How each step went, in the order of the steps.
    pub step_results: Vec<Outcome>,
    /// Everything that went wrong.
    pub errors: Vec<String>,
    /// How long it took.
    #[serde(rename = "duration_ms", serialize_with = "serialize_millis")]
    pub duration: Duration,
}
