//! Serves a gateway over stdio and HTTP.

use pegboard_core::settings::messages::MessageLimits;
use pegboard_wire::server::ResponseMemory;
use pegboard_wire::stdio::{self, EndableInput, line_transport};
use pegboard_wire::transport::InputLimits;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use crate::gateway::{Gateway, ProfileError};

#[cfg(feature = "http")]
mod http;

#[cfg(feature = "http")]
pub use http::{application, http};

/// Serves one client over stdin and stdout until it disconnects.
///
/// ```no_run
/// # async fn serve(gateway: pegboard_gateway::Gateway) -> Result<(), pegboard_gateway::ProfileError> {
/// pegboard_gateway::serve::stdio(&gateway, Some("flat")).await
/// # }
/// ```
pub async fn stdio(gateway: &Gateway, profile: Option<&str>) -> Result<(), ProfileError> {
    stdio_until(gateway, profile, CancellationToken::new()).await
}

/// Serves one client over stdin and stdout until it disconnects, or until `end` is cancelled. Then the responses to
/// the requests in progress are written first.
pub async fn stdio_until(
    gateway: &Gateway,
    profile: Option<&str>,
    end: CancellationToken,
) -> Result<(), ProfileError> {
    let input = EndableInput::new(stdio::standard_input(), end);
    streams(gateway, profile, input, stdio::standard_output()).await
}

/// Serves one client over a pair of byte streams until it disconnects.
pub async fn streams<R, W>(
    gateway: &Gateway,
    profile: Option<&str>,
    reader: R,
    writer: W,
) -> Result<(), ProfileError>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let memory = gateway.response_memory().part(ResponseMemory::CLIENT_BYTES);
    let server = gateway.server(profile)?.with_response_memory(memory);
    let MessageLimits { max_bytes, max_depth } = gateway.message_limits();
    let limits = InputLimits { max_bytes, max_depth, ..InputLimits::server() };
    let (transport, pump) = line_transport(reader, writer, limits);
    server.serve(transport).await;
    // Flush pending output.
    let _ = pump.await;
    Ok(())
}
