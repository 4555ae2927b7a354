//! Runs the tool.

use pegboard_core::error::CallError;
use pegboard_core::output::Output;

use super::Layer;
use crate::call::admit::AdmittedCall;

/// Runs the tool.
pub(crate) struct ExecuteLayer;

impl Layer for ExecuteLayer {
    async fn call(&self, admitted: &AdmittedCall) -> Result<Output, CallError> {
        admitted.active_call.execution.mark_running();
        admitted.call.run().await
    }
}
