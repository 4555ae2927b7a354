//! Runs the tool and validates its answer against the output schema.

use pegboard_core::call::SchemaChecks;
use pegboard_core::error::{CallError, Executed};
use pegboard_core::output::Output;
use pegboard_core::settings::OutputRule;

use super::Layer;
use crate::call::admit::AdmittedCall;
use crate::runtime::RuntimeShared;

/// Runs the tool.
pub(crate) struct ExecuteLayer;

impl Layer for ExecuteLayer {
    async fn call(&self, admitted: &AdmittedCall) -> Result<Output, CallError> {
        admitted.active_call.execution.mark_running();
        let mut output = admitted.call.run().await?;
        if admitted.checks == SchemaChecks::None {
            return Ok(output);
        }
        let schema = admitted.call.entry().output_schema();
        let warnings = if let Some(warnings) = output.check_if_cheap(schema) {
            warnings
        } else {
            let schema = schema.clone();
            let check = move || {
                let warnings = output.check(&schema);
                (output, warnings)
            };
            let RuntimeShared { validation_threads: threads, tasks, .. } = admitted.shared();
            let warnings;
            // Boxed, so that the future of every other call stays small.
            (output, warnings) = Box::pin(threads.run(tasks, Executed::Yes, check)).await?;
            warnings
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
