//! Snapshots of the last known listing of a server, in a store.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use pegboard_core::handler::Handler;
use pegboard_core::id::ServerName;
use pegboard_core::provider::{ServerFeatures, ServerOffering};
use pegboard_core::store::CatalogueStore;
use pegboard_json::RawJson;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::{self, Instant};
use tokio_util::sync::CancellationToken;

use super::list::{ListKind, ListWarnings, check_required_keys, keep_valid};
use super::tool;

/// Version of the snapshot format. Other versions are not read.
const SNAPSHOT_VERSION: u32 = 1;
/// Delay before a changed listing is saved: a server that has just started is about to report more.
const SAVE_DELAY: Duration = Duration::from_secs(1);
/// Time limit for a store operation.
const STORE_TIMEOUT: Duration = Duration::from_secs(5);

/// Cached listing of one server.
pub(super) struct ListingCache {
    pub(super) server: ServerName,
    pub(super) fingerprint: String,
    pub(super) store: Arc<dyn CatalogueStore>,
    /// Wall-clock time, and the instant at which it was taken.
    pub(super) clock: (SystemTime, Instant),
}

impl ListingCache {
    /// Loads the last known listing, if there is one.
    pub(super) async fn load(&self, handler: &Arc<dyn Handler>) -> Option<ServerOffering> {
        let loading = self.store.load(self.fingerprint.clone());
        let problem = match time::timeout(STORE_TIMEOUT, loading).await {
            Ok(Ok(snapshot)) => match decode(&snapshot?, handler) {
                Ok(offering) => return Some(offering),
                Err(problem) => problem.to_string(),
            },
            Ok(Err(error)) => error.to_string(),
            Err(_elapsed) => "the store timed out".to_owned(),
        };
        tracing::warn!(server = %self.server, "Could not load the cached listing of an MCP server: {problem}");
        None
    }

    /// Saves the listing whenever it changes, until `stop`.
    pub(super) async fn save_changes(
        self,
        mut listings: watch::Receiver<Arc<ServerOffering>>,
        stop: CancellationToken,
    ) {
        let mut saved = Bytes::new();
        while let Some(Ok(())) = stop.run_until_cancelled(listings.changed()).await {
            stop.run_until_cancelled(time::sleep(SAVE_DELAY)).await;
            self.save_latest(&mut listings, &mut saved).await;
        }
        // The last change is saved even if it came just before the shutdown.
        if listings.has_changed().unwrap_or_default() {
            self.save_latest(&mut listings, &mut saved).await;
        }
    }

    async fn save_latest(&self, listings: &mut watch::Receiver<Arc<ServerOffering>>, saved: &mut Bytes) {
        let offering = Arc::clone(&listings.borrow_and_update());
        let snapshot = encode(&offering);
        if offering.is_stale || snapshot == *saved {
            return;
        }
        let now = self.clock.0 + self.clock.1.elapsed();
        let saving = self.store.save(self.fingerprint.clone(), snapshot.clone(), now);
        let problem = match time::timeout(STORE_TIMEOUT, saving).await {
            Ok(Ok(())) => {
                *saved = snapshot;
                return;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_elapsed) => "the store timed out".to_owned(),
        };
        tracing::warn!(server = %self.server, "Could not save the listing of an MCP server: {problem}");
    }
}

/// Format of a stored listing.
#[derive(Serialize, Deserialize)]
struct ListingSnapshot {
    version: u32,
    tools: Vec<RawJson>,
    prompts: Vec<RawJson>,
    resources: Vec<RawJson>,
    templates: Vec<RawJson>,
    features: ServerFeatures,
    instructions: Option<String>,
}

#[derive(Deserialize)]
struct SnapshotVersion {
    version: u32,
}

#[derive(Debug, thiserror::Error)]
enum SnapshotError {
    #[error("snapshot version {0} is not supported (expected {SNAPSHOT_VERSION})")]
    OtherVersion(u32),
    #[error("malformed snapshot: {0}")]
    Malformed(#[from] serde_json::Error),
}

fn encode(offering: &ServerOffering) -> Bytes {
    let snapshot = ListingSnapshot {
        version: SNAPSHOT_VERSION,
        tools: offering.tools.iter().map(|tool| tool.definition()).collect(),
        prompts: offering.prompts.clone(),
        resources: offering.resources.clone(),
        templates: offering.templates.clone(),
        features: offering.features,
        instructions: offering.instructions.clone(),
    };
    RawJson::of(&snapshot).into_bytes()
}

fn decode(snapshot: &[u8], handler: &Arc<dyn Handler>) -> Result<ServerOffering, SnapshotError> {
    let SnapshotVersion { version } = serde_json::from_slice(snapshot)?;
    if version != SNAPSHOT_VERSION {
        return Err(SnapshotError::OtherVersion(version));
    }
    let snapshot: ListingSnapshot = serde_json::from_slice(snapshot)?;
    // Entries were valid when they were saved. Those that no longer are get skipped; the server will report
    // them.
    let mut ignored = ListWarnings::default();
    let tools = keep_valid(ListKind::Tools, &snapshot.tools, &mut ignored, |item| tool::entry(item, handler));
    let mut keep = |list, items: &[RawJson]| {
        keep_valid(list, items, &mut ignored, |item| check_required_keys(list, item))
    };
    Ok(ServerOffering {
        tools,
        prompts: keep(ListKind::Prompts, &snapshot.prompts),
        resources: keep(ListKind::Resources, &snapshot.resources),
        templates: keep(ListKind::Templates, &snapshot.templates),
        features: snapshot.features,
        instructions: snapshot.instructions,
        is_stale: true,
        ..ServerOffering::default()
    })
}
