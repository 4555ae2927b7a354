//! The one task that starts a server, watches it, starts it again and ends it.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use pegboard_json::RawJson;
use pegboard_wire::Failure;
use pegboard_wire::client::{ClientOptions, Era};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{self, Instant};

use pegboard_core::server_log::Stream;
use pegboard_core::text::{clipped, ending};

use super::MAX_WHY_BYTES;
use super::connect::{Backing, Connect, ConnectError, Connected, Introduction, login};
use super::life::{Cause, Down, End, Life, Live, Phase, Trouble};
use super::list::Listed;
use super::patience::Patience;
use super::probe::answers;
use super::shelf::Shelf;
use super::traffic::Traffic;
use pegboard_core::settings::mcp::{Revival, Settings};

/// How long what is behind a connection may take to end.
const END_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the end of what is behind a connection is waited for once the connection has ended.
const SOON: Duration = Duration::from_millis(500);
/// How long what a server said before it went away may take to arrive.
const LAST_WORDS: Duration = Duration::from_millis(250);
/// How long at least until a login is tried again.
const LOGIN_GAP: Duration = Duration::from_secs(1);

/// Keeps one server.
pub(super) struct Keeper {
    life: Arc<Life>,
    connect: Arc<dyn Connect>,
    shelf: Shelf,
    patience: Patience,
    /// How the server was spoken to the last time.
    era: Option<Era>,
    n_started: u64,
    /// How often it was lost after a start.
    n_lost: u64,
    current: Option<Current>,
}

/// A server that runs.
struct Current {
    live: Live,
    backing: Option<Box<dyn Backing>>,
    ends: mpsc::Receiver<End>,
    since: Instant,
}

/// Why a start came to nothing.
enum NoStart {
    NeedsLogin { fix: String },
    Trouble(Trouble),
}

impl Keeper {
    pub(super) fn new(life: Arc<Life>, connect: Arc<dyn Connect>, shelf: Shelf) -> Self {
        let patience = Patience::default();
        Self { life, connect, shelf, patience, era: None, n_started: 0, n_lost: 0, current: None }
    }

    /// Keeps the server until it is to be ended for good.
    pub(super) async fn run(mut self) {
        let life = Arc::clone(&self.life);
        let _ended = life.ended.clone().drop_guard();
        // A way to a server that panics must not leave those waiting who want to use it.
        let keeping = AssertUnwindSafe(self.keep()).catch_unwind();
        if let Some(Err(_panic)) = life.stop.run_until_cancelled(keeping).await {
            tracing::error!(server = %life.settings.name, "The keeper of an MCP server panicked.");
        }
        life.publish(Phase::Stopped);
        self.close("it was shut down").await;
    }

    async fn keep(&mut self) {
        loop {
            self.life.wish().await;
            let mut cause = Some(Cause::Use);
            self.life.publish(Phase::Starting);
            let mut attempt = 1;
            while let Some(why) = cause {
                cause = match self.start().await {
                    Ok(()) => {
                        attempt = 1;
                        let end = self.watch().await;
                        self.part(end).await
                    }
                    Err(NoStart::NeedsLogin { fix }) => Some(self.wait_for_login(fix).await),
                    Err(NoStart::Trouble(trouble)) => {
                        attempt += 1;
                        self.wait_to_retry(why, attempt, trouble).await;
                        Some(why)
                    }
                };
            }
        }
    }

    /// Starts the server.
    async fn start(&mut self) -> Result<(), NoStart> {
        let begun = Instant::now();
        let traffic = Traffic::new(Arc::clone(&self.life.asks), self.life.updates.clone());
        let (Connected { client, backing }, listed) = match self.reach(&traffic).await {
            Ok(started) => started,
            Err(problem) => {
                // It may have been replaced by one that speaks otherwise.
                self.era = None;
                return Err(problem);
            }
        };
        self.patience.started();
        self.era = Some(client.era());
        self.n_started += 1;
        // Only what was started can be lost, so there were as many restarts as losses.
        self.life.note_start(begun.elapsed(), self.n_lost);
        let (live, ends) = Live::new(self.n_started, client, traffic);
        self.shelf.put(&live, listed);
        self.current = Some(Current { live: live.clone(), backing, ends, since: Instant::now() });
        self.note("started");
        self.life.publish(Phase::Ready(live));
        Ok(())
    }

    /// Reaches the server and reads its list, both within its time.
    async fn reach(&mut self, traffic: &Traffic) -> Result<(Connected, Listed), NoStart> {
        let Settings { name, start_timeout, .. } = &self.life.settings;
        let log = self.life.updates.log().clone();
        let introduction = Introduction { receiver: Arc::new(traffic.clone()), options: self.options(), log };
        let reaching = async {
            let connected = self.connect.connect(introduction).await?;
            let listed = self.shelf.read(&connected.client).await;
            listed.map(|listed| (connected, listed)).map_err(unlisted)
        };
        match time::timeout(*start_timeout, reaching).await {
            Ok(Ok(reached)) => Ok(reached),
            Ok(Err(ConnectError::NeedsLogin { fix })) => Err(NoStart::NeedsLogin { fix }),
            Ok(Err(ConnectError::Unavailable { why, fix })) => {
                let why = clipped(&why, MAX_WHY_BYTES);
                self.note(&format!("did not start: {why}"));
                let why = format!("MCP server '{name}' did not start: {why}");
                let why = self.with_last_words(why);
                Err(NoStart::Trouble(Trouble { why, fix }))
            }
            Err(_elapsed) => {
                let seconds = start_timeout.as_secs();
                self.note(&format!("did not start within {seconds} s"));
                let why = format!("MCP server '{name}' initialization timed out after {seconds}s");
                let why = self.with_last_words(why);
                let fix = "Give it more time with `startTimeout`, or look at its log.".to_owned();
                Err(NoStart::Trouble(Trouble { why, fix }))
            }
        }
    }

    fn options(&self) -> ClientOptions {
        ClientOptions {
            capabilities: capabilities(),
            era: self.era,
            // The start as a whole has a limit, with words of its own.
            start_time: self.life.settings.start_timeout.saturating_mul(2),
            traced_as: Some(self.life.settings.name.as_str().into()),
            ..ClientOptions::new("pegboard", env!("CARGO_PKG_VERSION"))
        }
    }

    /// Notes in the server's log what becomes of it.
    fn note(&self, what: &str) {
        self.life.updates.log().write(Stream::Keeper, None, what);
    }

    /// What is wrong with a server, and what it said last.
    fn with_last_words(&self, why: String) -> String {
        match self.connect.last_words() {
            Some(words) => format!("{why}. It wrote: {}", ending(&words, MAX_WHY_BYTES)),
            None => why,
        }
    }

    /// Looks after a server that runs, until there is a reason to give it up.
    async fn watch(&mut self) -> End {
        let Some(Current { live, backing, ends, .. }) = &mut self.current else { return End::Unused };
        let settings = &self.life.settings;
        let reason = tokio::select! {
            Some(end) = ends.recv() => return end,
            why = gone(backing.as_mut()) => {
                if !live.traffic().is_idle() {
                    // An answer may still be on its way, unless somebody else holds its output open.
                    let _ = time::timeout(LAST_WORDS, live.client().connection().closed()).await;
                }
                return End::Lost { why };
            }
            () = silence(live, settings) => return End::Silent,
            () = disuse(live, settings.idle_stop) => return End::Unused,
            // It goes on for as long as the server does.
            () = self.shelf.follow(live) => return End::Unused,
            reason = live.client().connection().closed() => reason,
        };
        // What is behind the connection may say more in a moment.
        let why = match backing {
            Some(backing) => time::timeout(SOON, backing.gone()).await.ok(),
            None => None,
        };
        End::Lost { why: why.unwrap_or_else(|| reason.to_string()) }
    }

    /// Parts from a server; why it is to be started again, if it is.
    async fn part(&mut self, end: End) -> Option<Cause> {
        let name = self.life.settings.name.clone();
        let (is_unused, uptime) = self.current.as_ref().map_or((true, Duration::ZERO), |current| {
            (current.live.traffic().is_idle(), current.since.elapsed())
        });
        self.patience.ran(uptime);
        // A session that was forgotten is made anew, and nobody notices.
        if matches!(end, End::Lost { .. } | End::Silent) {
            self.n_lost += 1;
        }
        let (why, is_lost) = match end {
            End::Unused => {
                self.life.rest(Phase::Idle);
                self.close("nobody used it").await;
                self.note("ended, since nobody used it");
                return None;
            }
            End::NeedsLogin { fix } => return Some(self.wait_for_login(fix).await),
            End::Lost { why } => (why, true),
            End::Silent => ("it does not answer any more".to_owned(), false),
            End::Expired => ("it has forgotten the session".to_owned(), false),
        };
        let why = clipped(&why, MAX_WHY_BYTES).into_owned();
        self.note(&format!("went away: {why}"));
        let why_in_full = self.with_last_words(why.clone());
        tracing::warn!(server = %name, "MCP server went away: {why_in_full}");
        let is_unused = is_unused && !self.life.is_awaited();
        if is_lost && is_unused && self.life.settings.revival == Revival::WhenUsed {
            self.life.rest(Phase::Idle);
            self.close(&why).await;
            return None;
        }
        let delay = self.patience.lost();
        let trouble = Trouble {
            why: format!("MCP server '{name}' went away: {why_in_full}"),
            fix: "Look at its log.".to_owned(),
        };
        let down = Down {
            cause: Cause::Loss,
            attempt: 1,
            n_failed: 0,
            trouble,
            since: Instant::now(),
            next: Some(Instant::now() + delay),
        };
        self.wait_down(down, &why).await;
        Some(Cause::Loss)
    }

    async fn wait_to_retry(&mut self, cause: Cause, attempt: u32, trouble: Trouble) {
        // Whoever follows the state hears of the first time.
        tracing::debug!("{}", trouble.why);
        let next = Instant::now() + self.patience.failed();
        let n_failed = self.patience.n_failed();
        let down = Down { cause, attempt, n_failed, trouble, since: Instant::now(), next: Some(next) };
        self.wait_down(down, "it did not start").await;
    }

    /// Says that the server is down, ends what is left of it, and waits until it is to be tried again.
    async fn wait_down(&mut self, mut down: Down, why: &str) {
        let next = down.next.take();
        self.life.publish(Phase::Down(Down { next, ..down.clone() }));
        self.close(why).await;
        if let Some(next) = next {
            time::sleep_until(next).await;
        }
        self.life.publish(Phase::Down(down));
    }

    /// Waits until somebody uses the server again, who may have logged in.
    async fn wait_for_login(&mut self, fix: String) -> Cause {
        let not_before = Instant::now() + self.patience.failed().max(LOGIN_GAP);
        self.life.rest(Phase::NeedsLogin { fix, not_before });
        self.close("it wants a login").await;
        self.life.wish().await;
        self.life.publish(Phase::Starting);
        Cause::Use
    }

    /// Ends what is left of a server, in bounded time.
    async fn close(&mut self, why: &str) {
        let Some(Current { live, backing, .. }) = self.current.take() else { return };
        live.close(why);
        drop(live);
        if let Some(backing) = backing
            && time::timeout(END_TIMEOUT, backing.end()).await.is_err()
        {
            tracing::warn!(server = %self.life.settings.name, "What was behind an MCP server did not end in time.");
        }
    }
}

/// Why a server whose list cannot be read cannot be used.
fn unlisted(failure: Failure) -> ConnectError {
    match failure {
        Failure::Lost(error) if login(&error).is_some() => error.into(),
        Failure::Refused(_) | Failure::Lost(_) | Failure::Overloaded => ConnectError::Unavailable {
            why: format!("it does not list its tools: {failure}"),
            fix: "Look at the server's log.".to_owned(),
        },
    }
}

/// Waits until what is behind a connection is gone; for ever if there is nothing.
async fn gone(backing: Option<&mut Box<dyn Backing>>) -> String {
    match backing {
        Some(backing) => backing.gone().await,
        None => std::future::pending().await,
    }
}

/// Waits until a server does not answer that is in doubt, or that has had nothing to do for a while.
async fn silence(live: &Live, settings: &Settings) {
    let traffic = live.traffic();
    loop {
        let in_doubt = tokio::select! {
            () = traffic.doubt() => true,
            () = passes(settings.health_interval) => false,
        };
        // A server may be too busy with its calls to answer; they have limits of their own, and doubt comes with them.
        if !in_doubt && traffic.is_busy() {
            continue;
        }
        if !answers(live.client(), settings.health_probe).await && (in_doubt || !traffic.is_busy()) {
            return;
        }
    }
}

/// Waits for so long; for ever if nobody says how long.
async fn passes(time: Option<Duration>) {
    match time {
        Some(time) => time::sleep(time).await,
        None => std::future::pending().await,
    }
}

/// Waits until nobody has used the server for so long; for ever if that does not matter.
async fn disuse(live: &Live, limit: Option<Duration>) {
    match limit {
        Some(limit) => live.traffic().idle_for(limit).await,
        None => std::future::pending().await,
    }
}

/// What callers can do for a server. It differs from caller to caller; one that cannot is found out when it is asked.
pub(super) fn capabilities() -> RawJson {
    RawJson::from(json!({
        "elicitation": {"form": {}, "url": {}},
        "sampling": {"tools": {}},
        "roots": {},
        "extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}},
    }))
}
