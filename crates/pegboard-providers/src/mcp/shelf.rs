//! What a server offers, kept up to date while it runs.

use std::sync::Arc;
use std::time::Duration;

use pegboard_core::entry::ToolEntry;
use pegboard_core::handler::Handler;
use pegboard_core::id::ServerName;
use pegboard_core::provider::Offer;
use pegboard_core::text::clipped;
use pegboard_json::RawJson;
use pegboard_wire::client::{Client, Era, RequestOptions};
use pegboard_wire::{Failure, Happening, code};
use serde_json::json;
use tokio::sync::watch;
use tokio::time;

use super::MAX_WHY_BYTES;
use super::life::Live;
use super::list::{self, Listed};
use super::traffic::{ASKS, LIST_CHANGED, Traffic};

/// How long at least between two readings of the list.
const MIN_GAP: Duration = Duration::from_millis(100);
/// How long at most, for a server that says again and again that its list changed, when it did not.
const MAX_GAP: Duration = Duration::from_secs(10);
/// How long until a stream of changes that ended is asked for again.
const LISTEN_GAP: Duration = Duration::from_secs(5);
/// How much of a server's instructions is kept.
const MAX_INSTRUCTIONS_BYTES: usize = 64 * 1024;

/// What a server offers.
pub(super) struct Shelf {
    server: ServerName,
    handler: Arc<dyn Handler>,
    offer: watch::Sender<Arc<Offer>>,
    /// How long the list may take to be read.
    limit: Duration,
}

impl Shelf {
    /// The shelf of a server whose calls `handler` carries out.
    pub(super) fn new(
        server: ServerName,
        limit: Duration,
        handler: Arc<dyn Handler>,
        offer: watch::Sender<Arc<Offer>>,
    ) -> Self {
        Self { server, handler, offer, limit }
    }

    /// Reads the whole list of tools.
    pub(super) async fn read(&self, client: &Client) -> Result<Listed, Failure> {
        list::read(client, &self.handler).await
    }

    /// Keeps what is offered up to date. Never ends.
    pub(super) async fn follow(&self, live: &Live) {
        tokio::join!(self.follow_list(live), self.note_asking(live), listen(live));
    }

    /// Reads the list again whenever it is not what it was: one reading at a time, at most one to come.
    async fn follow_list(&self, live: &Live) {
        let mut gap = MIN_GAP;
        loop {
            live.traffic().change().await;
            let problem = match time::timeout(self.limit, self.read(live.client())).await {
                Ok(Ok(listed)) => {
                    // One that cries for nothing is heard less often.
                    let is_news = !is_same(&listed.tools, &self.offer.borrow().tools);
                    gap = if is_news { MIN_GAP } else { (gap * 2).min(MAX_GAP) };
                    self.put(live, listed);
                    None
                }
                Ok(Err(failure)) => Some(failure.to_string()),
                Err(_elapsed) => Some("the server took too long".to_owned()),
            };
            if let Some(problem) = problem {
                let problem = clipped(&problem, MAX_WHY_BYTES);
                self.warn(format!(
                    "the list of tools is not the newest; reading it again ended with: {problem}"
                ));
            }
            time::sleep(gap).await;
        }
    }

    /// Offers what was listed, if that is news.
    pub(super) fn put(&self, live: &Live, listed: Listed) {
        let Listed { tools, mut warnings } = listed;
        if live.traffic().has_asked() {
            warnings.push(ASKS.to_owned());
        }
        let instructions = live.client().server().instructions.as_deref();
        let instructions = instructions.map(|text| clipped(text, MAX_INSTRUCTIONS_BYTES).into_owned());
        self.offer.send_if_modified(|old| {
            if is_same(&tools, &old.tools) && (&instructions, &warnings) == (&old.instructions, &old.warnings)
            {
                return false;
            }
            *old = Arc::new(Offer {
                tools,
                instructions,
                warnings,
                fingerprint: old.fingerprint.clone(),
                ..Offer::default()
            });
            true
        });
    }

    async fn note_asking(&self, live: &Live) {
        loop {
            live.traffic().asked().await;
            self.warn(ASKS.to_owned());
        }
    }

    /// Adds a warning to what is offered, unless it is there.
    fn warn(&self, warning: String) {
        tracing::warn!(server = %self.server, "{warning}");
        self.offer.send_if_modified(|offer| {
            let is_news = !offer.warnings.contains(&warning);
            if is_news {
                Arc::make_mut(offer).warnings.push(warning);
            }
            is_news
        });
    }
}

fn is_same(some: &[Arc<ToolEntry>], others: &[Arc<ToolEntry>]) -> bool {
    some.len() == others.len()
        && some.iter().zip(others).all(|(one, other)| one.definition() == other.definition())
}

/// Hears what changes from a server that says so only when asked; never ends.
async fn listen(live: &Live) {
    let client = live.client();
    let tells = client.server().capabilities.at(&["tools", "listChanged"]);
    if client.era() == Era::Session || tells.is_none_or(|tells| tells.as_str() != "true") {
        return std::future::pending().await;
    }
    loop {
        match listen_once(client, live.traffic()).await {
            Err(Failure::Refused(error)) if error.code == code::METHOD_NOT_FOUND => {
                return std::future::pending().await;
            }
            // A stream that breaks off may be the first sign that the server is gone.
            Err(Failure::Lost(_)) => live.traffic().note_doubt(),
            Ok(_) | Err(Failure::Refused(_) | Failure::Overloaded) => {}
        }
        time::sleep(LISTEN_GAP).await;
        // Something may have changed while nobody listened.
        live.traffic().note_change();
    }
}

async fn listen_once(client: &Client, traffic: &Traffic) -> Result<RawJson, Failure> {
    let params = RawJson::from(json!({"notifications": {"toolsListChanged": true}}));
    let mut stream = client.request("subscriptions/listen", Some(params), RequestOptions::default()).await?;
    loop {
        match stream.next().await {
            Happening::Notice(notice) if &*notice.method == LIST_CHANGED => traffic.note_change(),
            Happening::Notice(_) => {}
            Happening::End(end) => return end,
        }
    }
}
