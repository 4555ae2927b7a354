//! Validates the answer of a tool against its output schema.

use pegboard_core::call::SchemaChecks;
use pegboard_core::error::CallError;
use pegboard_core::output::Output;
use pegboard_core::settings::OutputRule;
use pegboard_core::validation::Violation;

use super::Layer;
use crate::call::admit::AdmittedCall;
use crate::runtime::RuntimeShared;

/// Validates the answer of a tool.
pub(crate) struct OutputCheckLayer<R>(pub(crate) R);

impl<R: Layer> Layer for OutputCheckLayer<R> {
    async fn call(&self, admitted: &AdmittedCall) -> Result<Output, CallError> {
        let mut output = self.0.call(admitted).await?;
        if admitted.checks == SchemaChecks::None {
            return Ok(output);
        }
        let schema = admitted.call.entry().output_schema();
        let checked = match output.check_if_cheap(schema) {
            Some(warnings) => Ok(warnings),
            // Boxed, so that the future of every other call stays small.
            None => Box::pin(check_on_thread(admitted, &mut output)).await,
        };
        let warnings = match (checked, admitted.tool.policy.output) {
            (Ok(warnings), _) => warnings,
            (Err(unchecked), OutputRule::Strict) => {
                return Err(CallError::OutputInvalid { violations: vec![Violation::plain(unchecked)] });
            }
            // The tool has run.
            (Err(unchecked), OutputRule::Warn) => vec![unchecked],
        };
        admitted.active_call.recorder.add_warnings(warnings);
        if output.mismatches.is_empty() {
            return Ok(output);
        }
        match admitted.tool.policy.output {
            OutputRule::Strict => Err(CallError::OutputInvalid { violations: output.mismatches }),
            // A server's answer is returned as it is; the mismatch is a warning for the operator.
            OutputRule::Warn if output.is_from_server() => {
                let masked = output.mismatches.drain(..).map(|mismatch| mismatch.masked().to_owned());
                admitted.active_call.recorder.add_warnings(masked);
                Ok(output)
            }
            OutputRule::Warn => Ok(output),
        }
    }
}

/// Validates an answer on a thread of its own; returns the warnings, or the reason why it was not validated.
async fn check_on_thread(admitted: &AdmittedCall, output: &mut Output) -> Result<Vec<String>, String> {
    let schema = admitted.call.entry().output_schema().clone();
    let mut checked = output.clone();
    let check = move || {
        let warnings = checked.check(&schema);
        (checked, warnings)
    };
    let RuntimeShared { validation_threads: threads, tasks, .. } = admitted.shared();
    let run = threads.run(tasks, admitted.active_call.caller().owner(), check).await;
    let (checked, warnings) =
        run.map_err(|failure| format!("the answer was not validated: it is costly, and {failure}"))?;
    *output = checked;
    Ok(warnings)
}
