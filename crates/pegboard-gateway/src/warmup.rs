//! Starts servers for a list, and limits the wait for them.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use pegboard_runtime::SessionMode;
use tokio::sync::watch;
use tokio::time::{self, Instant};
use tokio_util::task::AbortOnDropHandle;

use crate::profile::ActiveProfile;

/// Maximum wait if no server starts at all.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(5);
/// Wait for further servers after one has started: this fraction of its startup time, and at least
/// `MIN_GRACE`.
const GRACE_DIVISOR: u32 = 7;
const MIN_GRACE: Duration = Duration::from_millis(20);

/// Maximum wait for listings other than tools.
const LISTING_TIMEOUT: Duration = Duration::from_secs(1);

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

    /// Waits until a list is as complete as it can be soon; returns at once without a warm-up.
    pub(crate) fn settled(&self, profile: &Arc<ActiveProfile>) -> impl Future<Output = ()> + use<> {
        let settled = self.0.lock().as_ref().map(|run| run.settled(profile));
        async move {
            if let Some(settled) = settled {
                settled.await;
            }
        }
    }
}

/// A warm-up in progress.
struct WarmupRun {
    started: Instant,
    progress: watch::Receiver<WarmupProgress>,
    _work: AbortOnDropHandle<()>,
}

/// Progress of a warm-up.
#[derive(Clone, Copy, Default)]
struct WarmupProgress {
    is_done: bool,
    /// Time at which a server last started.
    last_started: Option<Instant>,
}

impl WarmupRun {
    /// Starts all servers of a profile.
    fn start(profile: &Arc<ActiveProfile>) -> Self {
        let (sender, progress) = watch::channel(WarmupProgress::default());
        let mut catalogues = profile.runtime.catalogue_changes();
        let profile = Arc::clone(profile);
        let work = tokio::spawn(async move {
            let caller = profile.caller(SessionMode::AllOpen);
            let toolboxes = profile.toolboxes();
            let opening = join_all(toolboxes.iter().map(|toolbox| caller.open(toolbox.name.as_str())));
            let watching = async {
                while catalogues.changed().await.is_ok() {
                    sender.send_modify(|progress| progress.last_started = Some(Instant::now()));
                }
                std::future::pending::<()>().await;
            };
            let opened = tokio::select! {
                opened = opening => opened,
                () = watching => return,
            };
            for (toolbox, opened) in toolboxes.iter().zip(opened) {
                if let Err(error) = opened {
                    tracing::warn!(toolbox = %toolbox.name, %error, "Cannot open toolbox.");
                }
            }
            sender.send_modify(|progress| progress.is_done = true);
        });
        Self { started: Instant::now(), progress, _work: AbortOnDropHandle::new(work) }
    }

    /// Waits until the list is as complete as it can be soon; later additions are sent as changes.
    ///
    /// Servers with a cached listing are not waited for. Nor are servers that take much longer than the
    /// others, so that a hanging one does not delay the list.
    fn settled(&self, profile: &Arc<ActiveProfile>) -> impl Future<Output = ()> + use<> {
        let (started, mut progress, profile) = (self.started, self.progress.clone(), Arc::clone(profile));
        async move {
            loop {
                let WarmupProgress { is_done, last_started } = *progress.borrow_and_update();
                if is_done || !has_pending_servers(&profile) {
                    return;
                }
                let limit = match last_started {
                    Some(at) => at + (at.duration_since(started) / GRACE_DIVISOR).max(MIN_GRACE),
                    None => started + STARTUP_TIMEOUT,
                };
                match time::timeout_at(limit, progress.changed()).await {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) | Err(_) => return,
                }
            }
        }
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
