//! Liveness probes.

use std::time::Duration;

use pegboard_wire::RequestError;
use pegboard_wire::client::{Era, McpClient, RequestOptions};
use tokio::time;

use super::list::{self, ListKind};
use pegboard_core::settings::mcp::HealthProbe;

/// Time limit for a probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);

/// Returns `true` if the server answers a probe in time. An error response counts as an answer.
pub(super) async fn is_responsive(client: &McpClient, probe: HealthProbe) -> bool {
    let probing = async {
        match (probe, client.era()) {
            (HealthProbe::ListTools, _) => list::request_page(client, ListKind::Tools, None).await,
            (HealthProbe::Ping, Era::Session) => request(client, "ping").await,
            // The stateless era has no ping.
            (HealthProbe::Ping, Era::Stateless) => request(client, "server/discover").await,
        }
    };
    matches!(
        time::timeout(PROBE_TIMEOUT, probing).await,
        Ok(Ok(_) | Err(RequestError::Rpc(_) | RequestError::Overloaded))
    )
}

async fn request(client: &McpClient, method: &str) -> Result<pegboard_json::RawJson, RequestError> {
    client.request(method, None, RequestOptions::default()).await?.response().await
}
