//! How a task ended.

use pegboard_core::call::Ended;
use pegboard_json::RawJson;
use pegboard_wire::{RpcError, code};

use super::table::Words;

/// How a task ended.
#[derive(Clone, Debug)]
pub(super) enum End {
    /// With the result of its tool, which may tell of an error.
    Completed(RawJson),
    /// Without a result.
    Failed(RpcError),
    /// Its client called it off.
    Cancelled,
}

impl End {
    /// What the end of a call is to its task.
    pub(super) fn of(ended: &Ended, words: Words) -> Self {
        match words(ended) {
            Err(error) => Self::Failed(error),
            // A server that says so of its answer would have it taken for another kind.
            Ok(result) => Self::Completed(result.without("resultType")),
        }
    }

    /// The end of a task that took longer than it is kept.
    pub(super) fn expired() -> Self {
        Self::Failed(RpcError::new(code::INTERNAL_ERROR, "The task has expired before it was done"))
    }

    /// How much of it is kept.
    pub(super) fn n_bytes(&self) -> usize {
        match self {
            Self::Completed(result) => result.as_bytes().len(),
            Self::Failed(_) | Self::Cancelled => 0,
        }
    }

    /// Whether the tool says that it could not do it.
    pub(super) fn is_error(&self) -> bool {
        match self {
            Self::Completed(result) => result.get("isError").is_some_and(|says| says.as_str() == "true"),
            Self::Failed(_) => true,
            Self::Cancelled => false,
        }
    }
}
