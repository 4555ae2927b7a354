//! The layers of the call pipeline, from the outside in.

mod cache;
mod execute;
mod output_check;
mod output_limit;
mod queue;
mod shared_slot;
mod timeout;

use pegboard_core::error::CallError;
use pegboard_core::output::Output;

use crate::call::admit::AdmittedCall;

pub(crate) use cache::{CacheLayer, SingleFlight};
pub(crate) use execute::ExecuteLayer;
pub(crate) use output_check::OutputCheckLayer;
pub(crate) use output_limit::OutputLimitLayer;
pub(crate) use queue::QueueLayer;
pub(crate) use timeout::{TimeoutLayer, start_limit};

/// The layer order. The output limit is outside the cache, so that complete answers are cached; the cache is
/// outside the queue, so that a hit takes no slot; the timeout is inside the queue, so that waiting does not
/// count as running. The output is checked outside of the timeout, since its check may wait for others, and inside the
/// cache, so that only checked answers are cached.
pub(crate) type Pipeline =
    OutputLimitLayer<CacheLayer<QueueLayer<OutputCheckLayer<TimeoutLayer<ExecuteLayer>>>>>;

/// Builds the pipeline.
pub(crate) fn pipeline() -> Pipeline {
    OutputLimitLayer(CacheLayer(QueueLayer(OutputCheckLayer(TimeoutLayer(ExecuteLayer)))))
}

/// One layer of the pipeline.
pub(crate) trait Layer: Send + Sync {
    /// Handles a call, delegating to the inner layers.
    fn call(&self, admitted: &AdmittedCall) -> impl Future<Output = Result<Output, CallError>> + Send;
}
