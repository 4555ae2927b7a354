//! Outcome of a task.

use pegboard_core::call::CallResult;
use pegboard_json::RawJson;
use pegboard_wire::{RpcError, code};

use super::table::ResultRenderer;

/// Outcome of a task.
#[derive(Clone, Debug)]
pub(super) enum TaskOutcome {
    /// Finished with a tool result, which may be an error result.
    Completed(RawJson),
    /// Failed without a result.
    Failed(RpcError),
    /// Cancelled by its client.
    Cancelled,
}

impl TaskOutcome {
    /// Converts the result of a call.
    pub(super) fn from_result(call_result: &CallResult, render: ResultRenderer) -> Self {
        match render(call_result) {
            Err(error) => Self::Failed(error),
            // A server's `resultType` would be misread as the type of this result.
            Ok(result) => Self::Completed(result.without("resultType")),
        }
    }

    /// Outcome of a task that outlived its time to live.
    pub(super) fn expired() -> Self {
        Self::Failed(RpcError::new(code::INTERNAL_ERROR, "the task expired before it finished"))
    }

    /// Size of the stored result.
    pub(super) fn n_bytes(&self) -> usize {
        match self {
            Self::Completed(result) => result.as_bytes().len(),
            Self::Failed(_) | Self::Cancelled => 0,
        }
    }

    /// Returns `true` if the tool reported an error.
    pub(super) fn is_error(&self) -> bool {
        match self {
            Self::Completed(result) => result.get("isError").is_some_and(|value| value.as_str() == "true"),
            Self::Failed(_) => true,
            Self::Cancelled => false,
        }
    }
}
