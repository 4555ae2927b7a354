//! Finding out whether a server still answers.

use std::time::Duration;

use pegboard_wire::Failure;
use pegboard_wire::client::{Client, Era, RequestOptions};
use tokio::time;

use super::list::{self, List};
use pegboard_core::settings::mcp::HealthProbe;

/// How long a server has to answer.
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);

/// Whether a server answers a simple question in time. A refusal is an answer.
pub(super) async fn answers(client: &Client, probe: HealthProbe) -> bool {
    let asking = async {
        match (probe, client.era()) {
            (HealthProbe::ListTools, _) => list::ask(client, List::Tools, None).await,
            (HealthProbe::Ping, Era::Session) => ask(client, "ping").await,
            // There are no pings any more.
            (HealthProbe::Ping, Era::Stateless) => ask(client, "server/discover").await,
        }
    };
    matches!(
        time::timeout(PROBE_TIMEOUT, asking).await,
        Ok(Ok(_) | Err(Failure::Refused(_) | Failure::Overloaded))
    )
}

async fn ask(client: &Client, method: &str) -> Result<pegboard_json::RawJson, Failure> {
    client.request(method, None, RequestOptions::default()).await?.answer().await
}
