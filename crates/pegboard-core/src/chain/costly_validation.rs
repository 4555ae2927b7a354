//! Validations of a chain that take long, which run apart from other calls.

use std::iter;

use serde_json::Value;
use tokio::sync::oneshot;

use super::ChainSpec;
use super::check::MAX_STEPS;
use crate::call::Invoker;
use crate::error::{CallError, ToolError};
use crate::schema::Schema;
use crate::validation::ValidationResult;

/// Maximum number of schemas that are compiled at once without a thread of their own.
const MAX_CHEAP_SCHEMAS: usize = 16;

/// Compiles the schemas of a chain and of its tools, apart if that takes long.
pub(super) async fn compile(spec: &ChainSpec, tools: &dyn Invoker) -> Result<(), CallError> {
    let steps = || spec.steps.iter().take(MAX_STEPS);
    let outputs = steps().filter_map(|step| tools.find(&step.tool_name));
    let conditions = steps().filter_map(|step| step.when.as_ref()?.schema().cloned());
    let pending: Vec<Schema> = iter::once(spec.input_schema.clone())
        .chain(outputs.map(|entry| entry.output_schema().clone()))
        .chain(conditions)
        .filter(|schema| !schema.is_compiled())
        .collect();
    if pending.len() <= MAX_CHEAP_SCHEMAS && !pending.iter().any(Schema::is_costly_to_compile) {
        return Ok(());
    }
    let compile_all = move || {
        for schema in &pending {
            schema.problem();
        }
    };
    tools.run_apart(Box::new(compile_all)).await
}

/// Validates a value, apart if that takes long.
pub(super) async fn check(
    schema: &Schema,
    value: &Value,
    tools: &dyn Invoker,
) -> Result<ValidationResult, CallError> {
    if !schema.is_costly(value) {
        return Ok(schema.check(value));
    }
    let (schema, value) = (schema.clone(), value.clone());
    let (sender, checked) = oneshot::channel();
    let check = move || {
        let _ = sender.send(schema.check(&value));
    };
    tools.run_apart(Box::new(check)).await?;
    checked.await.map_err(|_| CallError::Failed(ToolError::new("the validator failed")))
}
