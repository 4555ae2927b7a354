//! What a server offered when it was last there.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use pegboard_core::handler::Handler;
use pegboard_core::id::ServerName;
use pegboard_core::provider::{Features, Offer};
use pegboard_core::store::CatalogueStore;
use pegboard_json::RawJson;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::{self, Instant};
use tokio_util::sync::CancellationToken;

use super::list::{List, Warnings, as_written, sift};
use super::tool;

/// How an offer is written. What was written otherwise is not read.
const VERSION: u32 = 1;
/// How long an offer must stand before it is saved: a server that has just started says more in a moment.
const SAVE_GAP: Duration = Duration::from_secs(1);
/// How long a store may take.
const STORE_TIMEOUT: Duration = Duration::from_secs(5);

/// The memory of one server.
pub(super) struct Memory {
    pub(super) server: ServerName,
    pub(super) fingerprint: String,
    pub(super) store: Arc<dyn CatalogueStore>,
    /// What time of day it was, and when that was.
    pub(super) clock: (SystemTime, Instant),
}

impl Memory {
    /// What the server offered when it was last there, if that is known.
    pub(super) async fn load(&self, handler: &Arc<dyn Handler>) -> Option<Offer> {
        let loading = self.store.load(self.fingerprint.clone());
        let problem = match time::timeout(STORE_TIMEOUT, loading).await {
            Ok(Ok(written)) => match read(&written?, handler) {
                Ok(offer) => return Some(offer),
                Err(problem) => problem.to_string(),
            },
            Ok(Err(error)) => error.to_string(),
            Err(_elapsed) => "the store took too long".to_owned(),
        };
        tracing::warn!(server = %self.server, "What an MCP server offered last is not known: {problem}");
        None
    }

    /// Saves what the server offers, and again whenever that changes, until `stop`.
    pub(super) async fn save_all(self, mut offers: watch::Receiver<Arc<Offer>>, stop: CancellationToken) {
        let mut saved = Bytes::new();
        while let Some(Ok(())) = stop.run_until_cancelled(offers.changed()).await {
            stop.run_until_cancelled(time::sleep(SAVE_GAP)).await;
            self.save_one(&mut offers, &mut saved).await;
        }
        // What came last must not be lost because it came late.
        if offers.has_changed().unwrap_or_default() {
            self.save_one(&mut offers, &mut saved).await;
        }
    }

    async fn save_one(&self, offers: &mut watch::Receiver<Arc<Offer>>, saved: &mut Bytes) {
        let offer = Arc::clone(&offers.borrow_and_update());
        let written = write(&offer);
        if offer.is_stale || written == *saved {
            return;
        }
        let now = self.clock.0 + self.clock.1.elapsed();
        let saving = self.store.save(self.fingerprint.clone(), written.clone(), now);
        let problem = match time::timeout(STORE_TIMEOUT, saving).await {
            Ok(Ok(())) => {
                *saved = written;
                return;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_elapsed) => "the store took too long".to_owned(),
        };
        tracing::warn!(server = %self.server, "What an MCP server offers was not saved: {problem}");
    }
}

/// An offer as it is kept.
#[derive(Serialize, Deserialize)]
struct Written {
    version: u32,
    tools: Vec<RawJson>,
    prompts: Vec<RawJson>,
    resources: Vec<RawJson>,
    templates: Vec<RawJson>,
    features: Features,
    instructions: Option<String>,
}

#[derive(Deserialize)]
struct Version {
    version: u32,
}

#[derive(Debug, thiserror::Error)]
enum Unreadable {
    #[error("it was written by another version of this program (version {0}, this one knows {VERSION})")]
    OtherVersion(u32),
    #[error("it cannot be read: {0}")]
    Garbage(#[from] serde_json::Error),
}

fn write(offer: &Offer) -> Bytes {
    let written = Written {
        version: VERSION,
        tools: offer.tools.iter().map(|tool| tool.definition()).collect(),
        prompts: offer.prompts.clone(),
        resources: offer.resources.clone(),
        templates: offer.templates.clone(),
        features: offer.features,
        instructions: offer.instructions.clone(),
    };
    RawJson::of(&written).into_bytes()
}

fn read(written: &[u8], handler: &Arc<dyn Handler>) -> Result<Offer, Unreadable> {
    let Version { version } = serde_json::from_slice(written)?;
    if version != VERSION {
        return Err(Unreadable::OtherVersion(version));
    }
    let written: Written = serde_json::from_slice(written)?;
    // It made sense when it was written. What does not any more is left out, and the server will say why.
    let mut unheard = Warnings::default();
    let tools = sift(List::Tools, &written.tools, &mut unheard, |item| tool::entry(item, handler));
    let mut raw = |list, items: &[RawJson]| sift(list, items, &mut unheard, |item| as_written(list, item));
    Ok(Offer {
        tools,
        prompts: raw(List::Prompts, &written.prompts),
        resources: raw(List::Resources, &written.resources),
        templates: raw(List::Templates, &written.templates),
        features: written.features,
        instructions: written.instructions,
        is_stale: true,
        ..Offer::default()
    })
}
