//! The tool runs, and its answer is held against its schema.

use pegboard_core::call::Checks;
use pegboard_core::error::CallError;
use pegboard_core::output::Output;
use pegboard_core::settings::OutputRule;

use super::Ring;
use crate::flight::Flight;

/// Runs the tool.
pub(crate) struct Execute;

impl Ring for Execute {
    async fn call(&self, flight: &Flight) -> Result<Output, CallError> {
        flight.track.begin();
        let mut output = flight.call.run().await?;
        if flight.checks == Checks::None {
            return Ok(output);
        }
        let warnings = output.check(flight.call.entry().output_schema());
        flight.track.warn(warnings);
        if output.mismatches.is_empty() {
            return Ok(output);
        }
        match flight.tool.rules.output {
            OutputRule::Strict => Err(CallError::OutputInvalid { violations: output.mismatches }),
            // What a server answered stands; that it is not what was announced is for the operator.
            OutputRule::Warn if output.is_from_server() => {
                let masked = output.mismatches.drain(..).map(|mismatch| mismatch.masked().to_owned());
                flight.track.warn(masked);
                Ok(output)
            }
            OutputRule::Warn => Ok(output),
        }
    }
}
