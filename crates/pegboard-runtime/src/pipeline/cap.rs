//! An answer that is too large is stored, and the caller gets a handle.

use pegboard_core::call::Origin;
use pegboard_core::error::CallError;
use pegboard_core::output::Output;

use super::Ring;
use crate::event::StoreReason;
use crate::flight::Flight;
use crate::outputs::{self, Body};

/// How many bytes of an answer an agent's model is handed if nobody says otherwise.
const AGENT_MAX_BYTES: usize = 12_288;

/// How much may stand beside a text that is small enough.
const SLACK_BYTES: usize = 4_096;

/// Hands over what is small enough, and stores the rest.
pub(crate) struct Cap<R>(pub(crate) R);

impl<R: Ring> Ring for Cap<R> {
    async fn call(&self, flight: &Flight) -> Result<Output, CallError> {
        let output = self.0.call(flight).await?;
        if !flight.call.entry().is_managed() {
            return Ok(output);
        }
        let max_bytes = max_bytes(flight).unwrap_or(usize::MAX);
        let budget = flight.runtime().settings().tool_output.session_token_budget;
        if output.n_bytes() <= max_bytes && budget.is_none() {
            return Ok(output);
        }
        let mut body = Body::of(&output);
        // What stands beside the text is handed over too, so it must not be much more than that.
        if body.bytes.len() <= max_bytes
            && output.n_bytes() > max_bytes.saturating_mul(2).saturating_add(SLACK_BYTES)
        {
            body = Body::whole(&output);
        }
        let reason = if body.bytes.len() > max_bytes {
            StoreReason::SizeCap
        } else if let Some(budget) = budget {
            match flight.track.caller.spend(body.n_tokens(), budget) {
                Ok(()) => return Ok(output),
                Err(reason) => reason,
            }
        } else {
            return Ok(output);
        };
        Ok(outputs::replace(flight, &output, body, reason, max_bytes).await)
    }
}

/// How many bytes of an answer this caller is handed.
fn max_bytes(flight: &Flight) -> Option<usize> {
    let for_all = flight.tool.rules.max_output.or(flight.runtime().settings().tool_response_max_bytes);
    let configured = for_all.or(match flight.call.context().origin {
        Origin::Agent => Some(AGENT_MAX_BYTES),
        // What a server answers a client is passed on as it is.
        Origin::Program | Origin::Client => None,
    });
    let wanted = flight.call.context().options.max_output;
    configured.into_iter().chain(wanted).min()
}
