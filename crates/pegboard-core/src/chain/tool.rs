//! Chains as tools, and execution plans.

use std::fmt;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use serde::Serialize;
use serde_json::{Value, json};

use super::run::{ChainMemory, StepOutputs};
use super::{ChainSpec, ExecuteOptions, Semantics, ToolChain, run};
use crate::call::ValidCall;
use crate::entry::{ToolAnnotations, ToolEntry};
use crate::error::CallError;
use crate::handler::Handler;
use crate::output::Output;

/// Lookup of tools by name.
pub type FindTool<'f> = &'f dyn Fn(&str) -> Option<Arc<ToolEntry>>;

impl ChainSpec {
    /// Converts the chain into a tool. It calls its tools through the invoker that runs it, so each of these
    /// calls is managed by itself. Its annotations combine those of its tools.
    ///
    /// ```
    /// use pegboard_core::chain::ChainSpec;
    ///
    /// let spec: ChainSpec = serde_json::from_str(r#"{"chain": "greet", "steps": [{"tool": "hello"}]}"#)?;
    /// let entry = spec.into_entry(&|_| None);
    /// assert_eq!((entry.name(), entry.annotations().read_only), ("greet", None));
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub fn into_entry(self, find: FindTool<'_>) -> ToolEntry {
        let name = self.name.clone().unwrap_or_else(|| "chain".to_owned());
        let steps: Vec<&str> = self.steps.iter().map(|step| step.tool_name.as_str()).collect();
        let description =
            self.description.clone().unwrap_or_else(|| format!("Runs {}.", steps.join(", then ")));
        let annotations = self.annotations(find);
        let input_schema = if self.input_schema.is_empty() {
            json!({"type": "object"}).into()
        } else {
            self.input_schema.clone()
        };
        ToolEntry::from_handler(name, description, Arc::new(ChainToolHandler(self)))
            .with_input_schema(input_schema)
            .with_annotations(annotations)
            .unmanaged()
    }

    /// Combines the annotations of the chain's tools. An annotation that one tool leaves unspecified is
    /// unspecified.
    pub fn annotations(&self, find: FindTool<'_>) -> ToolAnnotations {
        let tools: Vec<Option<ToolAnnotations>> = self
            .steps
            .iter()
            .map(|step| find(&step.tool_name).map(|entry| entry.annotations().clone()))
            .collect();
        let read_only = all(&tools, |tool| tool.read_only);
        let is_read_only = |tool: &ToolAnnotations| tool.read_only == Some(true);
        let destructive =
            |tool: &ToolAnnotations| if is_read_only(tool) { Some(false) } else { tool.destructive };
        // Repeating the chain is idempotent only if nothing has changed in between.
        let idempotent =
            |tool: &ToolAnnotations| if is_read_only(tool) { Some(true) } else { tool.idempotent };
        ToolAnnotations {
            read_only,
            destructive: any(&tools, destructive),
            idempotent: all(&tools, idempotent),
            open_world: any(&tools, |tool| tool.open_world),
        }
    }
}

/// Returns `Some(true)` if all hints are true, `Some(false)` if one is false, `None` otherwise.
fn all(tools: &[Option<ToolAnnotations>], hint: impl Fn(&ToolAnnotations) -> Option<bool>) -> Option<bool> {
    let hints = || tools.iter().map(|tool| tool.as_ref().and_then(&hint));
    if hints().any(|one| one == Some(false)) {
        return Some(false);
    }
    hints().all(|one| one == Some(true)).then_some(true).filter(|_| !tools.is_empty())
}

/// Returns `Some(true)` if one hint is true, `Some(false)` if all are false, `None` otherwise.
fn any(tools: &[Option<ToolAnnotations>], hint: impl Fn(&ToolAnnotations) -> Option<bool>) -> Option<bool> {
    all(tools, |tool| hint(tool).map(|yes| !yes)).map(|none| !none)
}

struct ChainToolHandler(ChainSpec);

impl Handler for ChainToolHandler {
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        async move {
            let Some(tools) = call.context().tools.as_deref() else {
                return Ok(Output::failure("a chain needs an invoker to call its tools"));
            };
            let chain = ToolChain::from_spec(self.0.clone(), tools);
            chain.admit(call.arguments()).await?;
            let memory = ChainMemory::admit(tools, call.arguments())
                .map_err(|full| CallError::LimitExceeded { reason: run::input_too_large(full) })?;
            let input = (call.arguments().clone(), memory);
            let options = (ExecuteOptions::default(), StepOutputs::Moved);
            let result = run::execute(&self.0, tools, input, options).await;
            if !result.success {
                return Ok(Output::failure(result.errors.join("\n")));
            }
            let context = Value::Object(result.context);
            let data = match &self.0.output {
                None => context,
                Some(path) => {
                    let found = match self.0.semantics {
                        Semantics::Full => path.resolve(&context),
                        Semantics::Compat => path.resolve_compat(&context),
                    };
                    match found {
                        Some(value) => value.clone(),
                        None => {
                            return Ok(Output::failure(format!(
                                "the context has no value at the output path '{}'",
                                path.as_str()
                            )));
                        }
                    }
                }
            };
            Ok(Output::new(data))
        }
        .boxed()
    }
}

/// Execution plan of a chain.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChainPlan {
    /// Steps grouped by stage; the steps of a stage run in parallel.
    pub stages: Vec<Vec<PlannedStep>>,
    /// Errors that prevent the chain from running.
    pub problems: Vec<String>,
    /// Parts of the context that a step does not get.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// One step of a plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlannedStep {
    /// Zero-based index.
    pub index: usize,
    /// Name of the tool.
    pub tool: String,
    /// `true` if the tool exists.
    pub is_there: bool,
    /// The tool's `readOnlyHint`.
    pub read_only: Option<bool>,
    /// Inputs with their sources; empty for the whole context.
    pub inputs: Vec<(String, Value)>,
    /// Key of the output; empty if it is merged into the context.
    pub output: String,
    /// Condition of the step.
    pub when: Option<Value>,
    /// Path of the list that the step iterates over.
    pub for_each: Option<String>,
}

impl ToolChain<'_> {
    /// Returns the execution plan of the chain, without running it.
    ///
    /// ```
    /// use pegboard_core::chain::{ChainStep, ToolChain};
    /// use pegboard_core::registry::ToolRegistry;
    ///
    /// let registry = ToolRegistry::new();
    /// let plan = ToolChain::new(&registry).add_step(ChainStep::new("fetch").map("url", "start.url")).plan();
    /// assert_eq!(plan.stages[0][0].tool, "fetch");
    /// assert!(plan.problems[0].contains("not found"));
    /// ```
    pub fn plan(&self) -> ChainPlan {
        let mut index = 0;
        let stages = run::groups(&self.spec.steps).map(|group| {
            let steps = group.iter().map(|step| {
                let entry = self.tools.find(&step.tool_name);
                let planned = PlannedStep {
                    index,
                    tool: step.tool_name.clone(),
                    is_there: entry.is_some(),
                    read_only: entry.and_then(|entry| entry.annotations().read_only),
                    inputs: step
                        .input_mapping
                        .iter()
                        .map(|(name, source)| (name.clone(), as_json(source)))
                        .collect(),
                    output: step.output_key.clone(),
                    when: step.when.as_ref().map(as_json),
                    for_each: step.for_each.as_ref().map(|list| list.as_str().to_owned()),
                };
                index += 1;
                planned
            });
            steps.collect()
        });
        let stages = stages.collect();
        let verdict = self.validate();
        ChainPlan {
            stages,
            problems: verdict.errors.iter().map(|problem| problem.text().to_owned()).collect(),
            warnings: verdict.warnings,
        }
    }
}

fn as_json(value: &impl Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}

impl fmt::Display for ChainPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for stage in &self.stages {
            if let [_, _, ..] = &stage[..] {
                writeln!(f, "in parallel:")?;
            }
            for step in stage {
                let indent = if stage.len() > 1 { "  " } else { "" };
                write!(f, "{indent}{}. {}", step.index, step.tool)?;
                if let Some(list) = &step.for_each {
                    write!(f, " for each of {list}")?;
                }
                if let Some(when) = &step.when {
                    write!(f, " when {when}")?;
                }
                let inputs: Vec<String> =
                    step.inputs.iter().map(|(name, source)| format!("{name} = {source}")).collect();
                write!(
                    f,
                    " with {}",
                    if inputs.is_empty() { "the whole context".to_owned() } else { inputs.join(", ") }
                )?;
                let output = if step.output.is_empty() { "merged into the context" } else { &step.output };
                write!(f, " -> {output}")?;
                writeln!(
                    f,
                    "{}",
                    match (step.is_there, step.read_only) {
                        (false, _) => " (no such tool)",
                        (true, Some(true)) => " (read-only)",
                        (true, _) => "",
                    }
                )?;
            }
        }
        self.problems.iter().try_for_each(|problem| writeln!(f, "! {problem}"))
    }
}
