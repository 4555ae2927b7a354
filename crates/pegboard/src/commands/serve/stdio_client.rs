//! The client on standard input and output.

use std::time::Duration;

use pegboard::gateway::{Gateway, ProfileError, serve};
use tokio::time;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::stdout_closed::stdout_closed;
use crate::cli::CliError;

/// Time that the last responses may take to be written.
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);

/// A task that serves the parent process. Dropping it cancels the client's calls.
pub(super) struct StdioClient {
    /// `None` once it has ended.
    task: Option<AbortOnDropHandle<Result<(), ProfileError>>>,
    end_of_input: CancellationToken,
}

impl StdioClient {
    /// Starts serving the client.
    pub(super) fn serve(gateway: &Gateway, profile: Option<String>) -> Self {
        let (gateway, end_of_input) = (gateway.clone(), CancellationToken::new());
        let end = end_of_input.clone();
        let task = tokio::spawn(async move { serve::stdio_until(&gateway, profile.as_deref(), end).await });
        Self { task: Some(AbortOnDropHandle::new(task)), end_of_input }
    }

    /// Waits until the client has disconnected.
    pub(super) async fn served(&mut self) -> Result<(), CliError> {
        let Some(task) = &mut self.task else { return Ok(()) };
        let served = tokio::select! {
            served = task => served.unwrap_or(Ok(())),
            // Calls of the client end with it.
            () = stdout_closed() => Ok(()),
        };
        self.task = None;
        served.map_err(|error| CliError::usage(error.to_string()))
    }

    /// Ends the input, and waits until the responses to all requests are written.
    pub(super) async fn close(self) {
        self.end_of_input.cancel();
        if let Some(task) = self.task {
            let _ = time::timeout(WRITE_TIMEOUT, task).await;
        }
    }
}
