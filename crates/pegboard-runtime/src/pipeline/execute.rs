//! Runs the tool and validates its answer against the output schema.

use pegboard_core::call::SchemaChecks;
use pegboard_core::error::CallError;
use pegboard_core::output::Output;
use pegboard_core::settings::OutputRule;

use super::Layer;
use crate::call::admit::AdmittedCall;

/// Runs the tool.
pub(crate) struct ExecuteLayer;

impl Layer for ExecuteLayer {
    async fn call(&self, admitted: &AdmittedCall) -> Result<Output, CallError> {
        admitted.active_call.execution.mark_running();
        let mut output = admitted.call.run().await?;
        if admitted.checks == SchemaChecks::None {
            return Ok(output);
        }
        let warnings = output.check(admitted.call.entry().output_schema());
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
