//! Starts servers for a list, and limits the wait for them.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pegboard_json::RawJson;
use pegboard_runtime::toolbox::ListingLimit;
use pegboard_wire::era::Era;
use pegboard_wire::server::ClientDescription;
use tokio::time::{self, Instant};
use tokio_util::task::AbortOnDropHandle;

use crate::profile::ActiveProfile;

/// Maximum wait for listings other than tools.
const LISTING_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum wait of `server/discover`, which clients use to probe for the era of a server.
const DISCOVER_TIMEOUT: Duration = Duration::from_secs(2);

/// Wait of a handshake for further servers once one can be used.
const HANDSHAKE_GRACE: Duration = Duration::from_millis(800);

/// Clients with a short time limit for the start of a server, by the beginning of their name.
const CLIENT_TIMEOUTS: [(&str, Duration); 1] = [("codex", Duration::from_secs(10))];

/// Part of a client's time limit that a list may take.
const CLIENT_TIMEOUT_SHARE: f64 = 0.7;

/// Warm-up of the servers of a profile.
#[derive(Default)]
pub(crate) struct ServerWarmup(Mutex<Option<WarmupRun>>);

impl ServerWarmup {
    /// Starts all servers of a profile, once.
    pub(crate) fn start(&self, profile: &Arc<ActiveProfile>) {
        self.0.lock().get_or_insert_with(|| WarmupRun::start(profile));
    }

    /// Starts servers added since, if there was a warm-up before.
    pub(crate) fn restart(&self, profile: &Arc<ActiveProfile>) {
        if let Some(run) = &mut *self.0.lock() {
            *run = WarmupRun::start(profile);
        }
    }

    /// Waits until every server has listed its tools or failed, for at most `limit`; returns at once without a
    /// warm-up. Later additions are sent as changes.
    ///
    /// Servers with a last known listing are not waited for.
    pub(crate) fn settled(
        &self,
        profile: &Arc<ActiveProfile>,
        limit: ListingLimit,
    ) -> impl Future<Output = ()> + use<> {
        let started_at = self.0.lock().as_ref().map(|run| run.started_at);
        let profile = Arc::clone(profile);
        async move {
            if let Some(started_at) = started_at
                && has_pending_servers(&profile)
            {
                let view = profile.view();
                let is_included = |toolbox: &_| view.has_toolbox(toolbox);
                let since = match limit {
                    ListingLimit::AfterStart(_) => started_at,
                    ListingLimit::AfterFirstList(_) => Instant::now(),
                };
                profile.runtime.wait_until_listed(limit, since + limit.time(), is_included).await;
            }
        }
    }

    /// Waits for servers, so that a client gets their instructions in its handshake. Once a server can be used, the
    /// others are not waited for any longer than [`HANDSHAKE_GRACE`], so that none delays its calls.
    pub(crate) fn settled_for_handshake(
        &self,
        profile: &Arc<ActiveProfile>,
        client: &ClientDescription,
        era: Era,
    ) -> impl Future<Output = ()> + use<> {
        let limit = list_limit(profile, client).time();
        let limit = match era {
            Era::Session => limit,
            Era::Stateless => limit.min(DISCOVER_TIMEOUT),
        };
        let (settled, profile) =
            (self.settled(profile, ListingLimit::AfterStart(limit)), Arc::clone(profile));
        async move {
            tokio::select! {
                () = settled => {}
                () = usable_after_grace(&profile) => {}
            }
        }
    }
}

/// Waits until a tool is known, and for at least [`HANDSHAKE_GRACE`].
async fn usable_after_grace(profile: &ActiveProfile) {
    time::sleep(HANDSHAKE_GRACE).await;
    let mut catalogues = profile.runtime.catalogue_changes();
    while profile.tools(&profile.runtime.catalogue()).is_empty() && catalogues.changed().await.is_ok() {}
}

/// A warm-up in progress.
struct WarmupRun {
    started_at: Instant,
    _work: AbortOnDropHandle<()>,
}

impl WarmupRun {
    /// Starts all servers of a profile.
    fn start(profile: &Arc<ActiveProfile>) -> Self {
        let profile = Arc::clone(profile);
        let work = tokio::spawn(async move {
            let view = profile.view();
            profile.runtime.open_servers(|toolbox, _| view.has_toolbox(toolbox)).await;
        });
        Self { started_at: Instant::now(), _work: AbortOnDropHandle::new(work) }
    }
}

/// Returns the maximum wait of a client's list: that of the settings, or less if the client waits less. The time limit
/// of such a client includes the handshake.
pub(crate) fn list_limit(profile: &ActiveProfile, client: &ClientDescription) -> ListingLimit {
    let configured: Duration = profile.runtime.settings().list_timeout.into();
    let name = client.info.as_ref().and_then(|info| info.get("name"));
    let name = name.as_ref().and_then(RawJson::text).unwrap_or_default();
    match CLIENT_TIMEOUTS.iter().find(|(client, _)| name.starts_with(client)) {
        Some((_, timeout)) => ListingLimit::AfterStart(configured.min(timeout.mul_f64(CLIENT_TIMEOUT_SHARE))),
        None => ListingLimit::AfterFirstList(configured),
    }
}

/// Returns `true` if a server with unknown tools may report them soon.
pub(crate) fn has_pending_servers(profile: &ActiveProfile) -> bool {
    profile.listing_progress().has_unlisted_server
}

/// Waits briefly until the listings other than tools are complete.
pub(crate) async fn wait_for_complete_listings(profile: &Arc<ActiveProfile>) {
    // The catalogue lags behind the servers, and it is what clients see.
    let is_behind = || {
        let snapshot = profile.runtime.catalogue();
        snapshot
            .listings()
            .any(|(listing, _)| listing.offer.is_partial && profile.has_toolbox(&listing.toolbox))
    };
    let is_partial = || profile.listing_progress().is_partial || is_behind();
    if !is_partial() {
        return;
    }
    let mut catalogues = profile.runtime.catalogue_changes();
    let reading = async { while is_partial() && catalogues.changed().await.is_ok() {} };
    // Later additions are sent as changes.
    let _ = time::timeout(LISTING_TIMEOUT, reading).await;
}
