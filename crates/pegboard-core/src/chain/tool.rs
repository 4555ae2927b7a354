//! A chain as a tool among tools, and what it would do.

use std::fmt;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use serde::Serialize;
use serde_json::{Value, json};

use super::{ChainSpec, Semantics, ToolChain, run};
use crate::call::ValidCall;
use crate::entry::{Annotations, ToolEntry};
use crate::error::CallError;
use crate::handler::Handler;
use crate::output::Output;

/// How the tools of a chain are found.
pub type Find<'f> = &'f dyn Fn(&str) -> Option<Arc<ToolEntry>>;

impl ChainSpec {
    /// The chain as a tool. It calls its own tools through whatever carries it out, so each of their calls is managed
    /// by itself. What it says of its effects is what all of its tools say.
    ///
    /// ```
    /// use pegboard_core::chain::ChainSpec;
    ///
    /// let spec: ChainSpec = serde_json::from_str(r#"{"chain": "greet", "steps": [{"tool": "hello"}]}"#)?;
    /// let entry = spec.into_entry(&|_| None);
    /// assert_eq!((entry.name(), entry.annotations().read_only), ("greet", None));
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub fn into_entry(self, find: Find<'_>) -> ToolEntry {
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
        ToolEntry::from_handler(name, description, Arc::new(Published(self)))
            .with_input_schema(input_schema)
            .with_annotations(annotations)
            .unmanaged()
    }

    /// What the chain's tools say together of their effects. What one of them leaves open is open.
    pub fn annotations(&self, find: Find<'_>) -> Annotations {
        let tools: Vec<Option<Annotations>> = self
            .steps
            .iter()
            .map(|step| find(&step.tool_name).map(|entry| entry.annotations().clone()))
            .collect();
        let read_only = all(&tools, |tool| tool.read_only);
        let is_read_only = |tool: &Annotations| tool.read_only == Some(true);
        let harmless = |tool: &Annotations| if is_read_only(tool) { Some(false) } else { tool.destructive };
        // Doing everything twice is doing it once only if nothing in between has changed.
        let repeatable = |tool: &Annotations| if is_read_only(tool) { Some(true) } else { tool.idempotent };
        Annotations {
            read_only,
            destructive: any(&tools, harmless),
            idempotent: all(&tools, repeatable),
            open_world: any(&tools, |tool| tool.open_world),
        }
    }
}

/// True if all say so, false if one says no, and open otherwise.
fn all(tools: &[Option<Annotations>], says: impl Fn(&Annotations) -> Option<bool>) -> Option<bool> {
    let said = || tools.iter().map(|tool| tool.as_ref().and_then(&says));
    if said().any(|one| one == Some(false)) {
        return Some(false);
    }
    said().all(|one| one == Some(true)).then_some(true).filter(|_| !tools.is_empty())
}

/// True if one says so, false if all say no, and open otherwise.
fn any(tools: &[Option<Annotations>], says: impl Fn(&Annotations) -> Option<bool>) -> Option<bool> {
    all(tools, |tool| says(tool).map(|yes| !yes)).map(|none| !none)
}

struct Published(ChainSpec);

impl Handler for Published {
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        async move {
            let Some(tools) = call.context().tools.as_deref() else {
                return Ok(Output::failure("a chain needs something to call its tools through"));
            };
            let chain = ToolChain::from_spec(self.0.clone(), tools);
            let result = chain.execute(call.arguments().clone()).await;
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
                                "the chain has no '{}' to give back",
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

/// What a chain would do, without doing it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// The steps, those that run side by side together.
    pub stages: Vec<Vec<PlannedStep>>,
    /// Everything that stands in its way.
    pub problems: Vec<String>,
}

/// One step of a plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlannedStep {
    /// Its number, from 0.
    pub index: usize,
    /// The tool.
    pub tool: String,
    /// Whether the tool is there.
    pub is_there: bool,
    /// Whether the tool says that it changes nothing.
    pub read_only: Option<bool>,
    /// Its inputs, each with where it comes from; none for the whole context.
    pub inputs: Vec<(String, Value)>,
    /// Where its output goes; empty for into the context.
    pub output: String,
    /// What has to hold for it to run.
    pub when: Option<Value>,
    /// The list that it goes through.
    pub for_each: Option<String>,
}

impl ToolChain<'_> {
    /// What the chain would do with this input, without doing it.
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
    pub fn plan(&self) -> Plan {
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
        Plan {
            stages: stages.collect(),
            problems: self.validate().errors.iter().map(|problem| problem.text().to_owned()).collect(),
        }
    }
}

fn as_json(value: &impl Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for stage in &self.stages {
            if let [_, _, ..] = &stage[..] {
                writeln!(f, "side by side:")?;
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
                        (true, Some(true)) => " (reads only)",
                        (true, _) => "",
                    }
                )?;
            }
        }
        self.problems.iter().try_for_each(|problem| writeln!(f, "! {problem}"))
    }
}
