//! Chains: tools that run in sequence or in parallel over a shared context.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use futures_util::future::join_all;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::call::Invoker;
use crate::duration::serialize_millis;
use crate::error::CallError;
use crate::outcome::Outcome;
use crate::schema::Schema;
use crate::validation::ValidationResult;

mod check;
mod costly_validation;
mod path;
mod run;
mod source;
mod step;
mod tool;

pub use check::{ChainError, ChainErrorLocation};
use run::{ChainMemory, StepOutputs};

pub use path::{ContextPath, InvalidContextPath};
pub use source::{Condition, ContextTemplate, InputSource, InvalidInputSource, OnMissing};
pub use step::{ChainStep, OnPartial};
pub use tool::{ChainPlan, FindTool, PlannedStep};

/// A sequence of steps and the tools they call. The output of a step is available to all later steps.
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
    /// Creates a chain without steps.
    pub fn new(tools: &'t dyn Invoker) -> Self {
        Self::from_spec(ChainSpec::default(), tools)
    }

    /// Creates a chain from its specification.
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

    /// Appends a step.
    #[must_use]
    pub fn add_step(mut self, step: ChainStep) -> Self {
        self.spec.steps.push(step);
        self
    }

    /// Sets the semantics.
    #[must_use]
    pub fn semantics(mut self, semantics: Semantics) -> Self {
        self.spec.semantics = semantics;
        self
    }

    /// Returns a copy of the steps.
    pub fn steps(&self) -> Vec<ChainStep> {
        self.spec.steps.clone()
    }

    /// Returns the specification of the chain.
    pub fn spec(&self) -> &ChainSpec {
        &self.spec
    }

    /// Returns the number of steps.
    pub fn len(&self) -> usize {
        self.spec.steps.len()
    }

    /// Returns `true` if there are no steps.
    pub fn is_empty(&self) -> bool {
        self.spec.steps.is_empty()
    }

    /// Removes all steps.
    pub fn clear(&mut self) {
        self.spec.steps.clear();
    }

    /// Validates the chain without running it: every tool exists, and every source can resolve.
    ///
    /// ```
    /// # use pegboard_core::{chain::ToolChain, registry::ToolRegistry};
    /// assert_eq!(ToolChain::new(&ToolRegistry::new()).validate().errors, ["Chain has no steps."]);
    /// ```
    pub fn validate(&self) -> ValidationResult {
        check::verdict(&self.spec, self.tools)
    }

    /// Looks up the tools of all steps, which starts the servers that they name; returns the reason why the
    /// first missing one cannot be called.
    pub async fn find_tools(&self) -> Result<(), CallError> {
        let names: BTreeSet<&str> = self.spec.steps.iter().map(|step| step.tool_name.as_str()).collect();
        let missing = names.into_iter().filter(|name| self.tools.find(name).is_none());
        let located = join_all(missing.map(|name| self.tools.locate(name))).await;
        located.into_iter().try_for_each(|located| located.map(drop))
    }

    /// Fails if no step can run: the chain is invalid for this input, or a tool cannot be called.
    pub(crate) async fn admit(&self, input: &Value) -> Result<(), CallError> {
        self.compile().await?;
        let structural = self.spec.structural_errors();
        if structural.is_empty() {
            self.find_tools().await?;
        }
        let options = ExecuteOptions::default();
        let verdict = check::verdict_of_run(&self.spec, self.tools, input, options).await;
        if verdict.valid { Ok(()) } else { Err(CallError::InvalidParameters { violations: verdict.errors }) }
    }

    /// Compiles the schemas of the chain and of its tools, apart from other calls if that takes long.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// use pegboard_core::chain::ToolChain;
    /// use pegboard_core::registry::ToolRegistry;
    ///
    /// assert!(ToolChain::new(&ToolRegistry::new()).compile().await.is_ok());
    /// # });
    /// ```
    pub async fn compile(&self) -> Result<(), CallError> {
        costly_validation::compile(&self.spec, self.tools).await
    }

    /// Validates the input of the chain, apart from other calls if that takes long.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// use pegboard_core::chain::{ChainSpec, ToolChain};
    /// use pegboard_core::registry::ToolRegistry;
    /// use serde_json::json;
    ///
    /// let spec: ChainSpec = serde_json::from_value(json!({"input_schema": {"required": ["url"]}, "steps": []})).unwrap();
    /// let verdict = ToolChain::from_spec(spec, &ToolRegistry::new()).check_input(&json!({})).await.unwrap();
    /// assert_eq!(verdict.errors, ["$.url: required field missing"]);
    /// # });
    /// ```
    pub async fn check_input(&self, input: &Value) -> Result<ValidationResult, CallError> {
        self.compile().await?;
        costly_validation::check(&self.spec.input_schema, input, self.tools).await
    }

    /// Runs the chain with default options: validates it first, and stops at the first failure.
    ///
    /// The input is an object, or `null` for none.
    pub async fn execute(&self, initial_input: impl Into<Value>) -> ChainResult {
        self.execute_with(initial_input, ExecuteOptions::default()).await
    }

    /// Runs the chain with these options.
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
        let input = initial_input.into();
        match ChainMemory::admit(self.tools, &input) {
            Ok(memory) => {
                run::execute(&self.spec, self.tools, (input, memory), (options, StepOutputs::Copied)).await
            }
            Err(full) => run::refused(run::input_too_large(full)),
        }
    }
}

impl fmt::Debug for ToolChain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.spec.steps.iter().map(|step| step.tool_name.as_str()).collect();
        write!(f, "ToolChain(steps={names:?})")
    }
}

/// Specification of a chain, as stored in a file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChainSpec {
    /// Name of the chain.
    #[serde(rename = "chain", alias = "name", default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Description of the chain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// JSON Schema of the input.
    #[serde(default, skip_serializing_if = "Schema::is_empty")]
    #[schemars(with = "Value")]
    pub input_schema: Schema,
    /// Path of the output in the context when the chain is called as a tool; without it, the whole context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub output: Option<ContextPath>,
    /// Semantics of paths and missing values.
    #[serde(default, skip_serializing_if = "Semantics::is_full")]
    pub semantics: Semantics,
    /// Steps in order.
    #[schemars(length(min = 1))]
    pub steps: Vec<ChainStep>,
}

/// Semantics of paths and missing values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Semantics {
    /// Paths have any depth, and a missing source is an error.
    #[default]
    Full,
    /// A path is split at its first dot only, and a missing source is `null`.
    Compat,
}

impl Semantics {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "signature required by serde")]
    fn is_full(&self) -> bool {
        *self == Self::Full
    }
}

/// Options of a chain run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecuteOptions {
    /// Stops at the first failure.
    pub stop_on_failure: bool,
    /// Validates the chain before running it.
    pub validate_tools: bool,
}

impl Default for ExecuteOptions {
    fn default() -> Self {
        Self { stop_on_failure: true, validate_tools: true }
    }
}

/// Result of a chain run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChainResult {
    /// `true` if every step succeeded.
    pub success: bool,
    /// The input and everything the steps added to it.
    pub context: Map<String, Value>,
    /// Outcome of each step, in order.
    pub step_results: Vec<Outcome>,
    /// Errors of all steps.
    pub errors: Vec<String>,
    /// Total run time.
    #[serde(rename = "duration_ms", serialize_with = "serialize_millis")]
    pub duration: Duration,
}
