//! Timeouts of store operations.

use std::time::Duration;

use pegboard_core::store::StoreError;
use tokio::time;

/// Runs a store operation; fails if it takes longer than the limit.
pub(crate) async fn with_timeout<T>(
    limit: Duration,
    operation: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    time::timeout(limit, operation)
        .await
        .unwrap_or_else(|_| Err(StoreError::Failed { reason: format!("no response within {limit:?}") }))
}
