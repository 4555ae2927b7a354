//! Limits the size of answers: larger ones are stored, and the caller receives a handle.

use pegboard_core::call::CallOrigin;
use pegboard_core::error::CallError;
use pegboard_core::output::Output;

use super::Layer;
use crate::call::admit::AdmittedCall;
use crate::event::StoreReason;
use crate::outputs::{self, OutputBody};

/// Default maximum size of an answer for an agent's model, in bytes.
const AGENT_MAX_BYTES: usize = 12_288;

/// Allowance for content beside a text that is within the limit.
const EXTRA_CONTENT_BYTES: usize = 4_096;

/// Returns answers within the limit and stores larger ones.
pub(crate) struct OutputLimitLayer<R>(pub(crate) R);

impl<R: Layer> Layer for OutputLimitLayer<R> {
    async fn call(&self, admitted: &AdmittedCall) -> Result<Output, CallError> {
        let output = self.0.call(admitted).await?;
        if !admitted.call.entry().is_managed() {
            return Ok(output);
        }
        let max_bytes = max_bytes(admitted).unwrap_or(usize::MAX);
        let budget = admitted.shared().settings().tool_output.session_token_budget;
        if output.n_bytes() <= max_bytes && budget.is_none() {
            return Ok(output);
        }
        let mut body = OutputBody::of(&output);
        // Content beside the text is returned as well, so it must not be much larger than the text.
        if body.bytes.len() <= max_bytes
            && output.n_bytes() > max_bytes.saturating_mul(2).saturating_add(EXTRA_CONTENT_BYTES)
        {
            body = OutputBody::whole(&output);
        }
        let reason = if body.bytes.len() > max_bytes {
            StoreReason::SizeCap
        } else if let Some(budget) = budget {
            match admitted.active_call.caller().reserve_tokens(body.n_tokens(), budget) {
                Ok(()) => return Ok(output),
                Err(reason) => reason,
            }
        } else {
            return Ok(output);
        };
        Ok(Box::pin(outputs::store_or_truncate(admitted, &output, body, reason, max_bytes)).await)
    }
}

/// Returns the maximum answer size for this caller, in bytes.
fn max_bytes(admitted: &AdmittedCall) -> Option<usize> {
    let for_all = admitted.tool.policy.max_output.or(admitted.shared().settings().tool_response_max_bytes);
    let configured = for_all.or(match admitted.call.context().origin {
        CallOrigin::Agent => Some(AGENT_MAX_BYTES),
        // A server's answer to a client is passed through unlimited.
        CallOrigin::Program | CallOrigin::Client => None,
    });
    let requested = admitted.call.context().options.max_output;
    configured.into_iter().chain(requested).min()
}
