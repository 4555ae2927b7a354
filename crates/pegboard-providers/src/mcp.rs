//! MCP servers as providers of tools.
//!
//! A [`Server`] is one server and one task that keeps it: it is started when somebody uses it, watched, started again
//! when it goes away, and ended. How it is reached is a [`Connect`]; the ways there are [`Stdio`], [`Http`], [`Sse`],
//! [`WebSocket`] and [`Pipe`]. A [`Pool`] makes servers from settings, and has those shared that can be.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use futures_util::future::{BoxFuture, FutureExt};
use pegboard_core::call::CallContext;
use pegboard_core::error::CallError;
use pegboard_core::handler::Handler;
use pegboard_core::provider::{Offer, Particulars, Provider, Request, ServerState, ToolKind, Update};
use pegboard_core::server_log::ServerLog;
use pegboard_core::settings::mcp::Settings;
use pegboard_core::store::CatalogueStore;
use pegboard_json::RawJson;
use tokio::sync::{broadcast, watch};
use tokio::task::JoinHandle;
use tokio::time::{self, Instant};
use tokio_util::sync::DropGuard;

pub use connect::{Backing, Connect, ConnectError, Connected, Introduction};
pub use pipe::Pipe;
pub use pool::{Lease, Pool, PoolOptions};
pub use remote::{Http, Sse, WebSocket};
pub use stdio::Stdio;

use call::Calls;
use homes::Homes;
use keeper::Keeper;
use life::{End, Life, Phase};
use memory::Memory;
use shelf::Shelf;

mod call;
mod connect;
mod elsewhere;
mod homes;
mod instructions;
mod keeper;
mod life;
mod list;
mod listen;
mod memory;
mod patience;
mod pipe;
mod pool;
mod probe;
mod remote;
mod request;
mod shelf;
mod stdio;
mod tasks;
mod tool;
mod traffic;
mod updates;
mod wishes;

/// How much of what a server says is told when it cannot be used.
const MAX_WHY_BYTES: usize = 2_000;

/// How long ending a server may take.
const SHUT_DOWN_TIMEOUT: Duration = Duration::from_secs(12);

/// How long saving what it offered may take then.
const SAVE_TIMEOUT: Duration = Duration::from_secs(2);

/// One MCP server. Dropping it ends the server without waiting.
///
/// ```
/// use std::sync::Arc;
///
/// use pegboard_core::id::ServerName;
/// use pegboard_core::provider::{Provider, ServerState};
/// use pegboard_core::settings::mcp::{Address, Settings, Target};
/// use pegboard_providers::mcp::{Http, Server};
///
/// let address = Address::new("https://example.org/mcp");
/// let settings = Settings::new(ServerName::new("example").unwrap(), Target::Http(address.clone()));
/// let server = Server::new(settings, Arc::new(Http::new(&address).unwrap()));
/// assert_eq!(*server.state().borrow(), ServerState::Idle);
/// ```
pub struct Server {
    life: Arc<Life>,
    shelf: Shelf,
    connect: Arc<dyn Connect>,
    /// There until the server is used for the first time.
    keeper: Mutex<Option<Keeper>>,
    /// Where the calls of sessions go; `None` for a server of one session.
    homes: Option<Arc<Homes>>,
    /// Saves what is offered, if somebody wants that.
    saver: Mutex<Option<JoinHandle<()>>>,
    _stop: DropGuard,
}

/// What a probe found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// The server answers.
    Answers,
    /// It does not answer, and is started again.
    Silent,
    /// It does not run.
    Absent,
}

impl Server {
    /// A server that is reached like this. It is started when somebody uses it.
    pub fn new(settings: Settings, connect: Arc<dyn Connect>) -> Self {
        let life = Arc::new(Life::new(settings));
        let homes = Arc::new(Homes::new(Arc::clone(&life), Arc::clone(&connect)));
        let handler = Arc::clone(&homes) as Arc<dyn Handler>;
        Self { homes: Some(homes), ..Self::kept(life, connect, handler) }
    }

    /// A server like another that serves one session. What it says that belongs to no call is heard where the other is.
    fn alone(base: &Life, connect: Arc<dyn Connect>) -> Self {
        let mut life = Life::new(base.settings.clone());
        life.updates = base.updates.of_one_session();
        let life = Arc::new(life);
        let handler = Arc::new(Calls(Arc::clone(&life)));
        Self::kept(life, connect.apart().unwrap_or(connect), handler)
    }

    fn kept(life: Arc<Life>, connect: Arc<dyn Connect>, handler: Arc<dyn Handler>) -> Self {
        let shelf = Shelf::new(&life, handler);
        let keeper = Keeper::new(Arc::clone(&life), Arc::clone(&connect), shelf.clone());
        let stop = life.stop.clone().drop_guard();
        let (keeper, saver) = (Mutex::new(Some(keeper)), Mutex::default());
        Self { life, shelf, connect, keeper, homes: None, saver, _stop: stop }
    }

    /// Offers what the server offered when it was last there, as far as the store knows and until the server says
    /// itself what it offers; from then on that is saved. `now` is the time of day.
    ///
    /// The server is not started by this, but by the first use of what is offered.
    pub async fn recall(&self, store: Arc<dyn CatalogueStore>, now: SystemTime) {
        self.wake();
        let Settings { name, .. } = self.settings();
        let (server, fingerprint) = (name.clone(), self.settings().fingerprint());
        let memory = Memory { server, fingerprint, store, clock: (now, Instant::now()) };
        let mut offers = self.shelf.offer();
        if let Some(last_known) = memory.load(self.shelf.handler()).await {
            self.shelf.put_stale(last_known);
        }
        if self.shelf.is_fresh() {
            offers.mark_changed();
        }
        // It ends when the server is dropped or shut down.
        let saver = tokio::spawn(memory.save_all(offers, self.life.stop.clone()));
        if let Some(before) = lock(&self.saver).replace(saver) {
            before.abort();
        }
    }

    /// The settings it was made with.
    pub fn settings(&self) -> &Settings {
        &self.life.settings
    }

    /// Finds out whether the server still answers. One that does not is started again.
    pub async fn probe(&self) -> Health {
        let Some(live) = self.life.live() else { return Health::Absent };
        if probe::answers(live.client(), self.life.settings.health_probe).await {
            return Health::Answers;
        }
        live.give_up(End::Silent);
        Health::Silent
    }

    /// Has somebody who keeps it from now on.
    fn wake(&self) {
        if let Some(keeper) = self.take_keeper() {
            // It ends when the server is dropped or shut down.
            tokio::spawn(keeper.run());
        }
    }

    fn take_keeper(&self) -> Option<Keeper> {
        lock(&self.keeper).take()
    }

    /// Waits for what is still to be saved, but not for long.
    async fn finish_saving(&self) {
        let saver = lock(&self.saver).take();
        if let Some(saver) = saver
            && time::timeout(SAVE_TIMEOUT, saver).await.is_err()
        {
            tracing::warn!(server = %self.life.settings.name, "What an MCP server offers was not saved in time.");
        }
    }
}

fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing is done while the lock is held but to take or to put.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Provider for Server {
    fn kind(&self) -> ToolKind {
        ToolKind::Mcp
    }

    fn offer(&self) -> watch::Receiver<Arc<Offer>> {
        self.shelf.offer()
    }

    fn state(&self) -> watch::Receiver<ServerState> {
        self.life.state()
    }

    /// Those of the server that all share, whoever has one of its own.
    fn particulars(&self) -> Particulars {
        Particulars { pid: self.connect.pid(), ..self.life.particulars() }
    }

    fn open(&self) -> BoxFuture<'_, Result<(), CallError>> {
        async move {
            self.wake();
            self.life.ready().await.map(drop)
        }
        .boxed()
    }

    fn request<'a>(
        &'a self,
        request: &'a Request,
        context: &'a CallContext,
    ) -> BoxFuture<'a, Result<RawJson, CallError>> {
        async move {
            self.wake();
            match &self.homes {
                Some(homes) => homes.request(request, context).await,
                None => Calls(Arc::clone(&self.life)).request(request, context).await,
            }
        }
        .boxed()
    }

    fn updates(&self) -> broadcast::Receiver<Update> {
        self.life.updates.hear()
    }

    fn log(&self) -> ServerLog {
        self.life.updates.log().clone()
    }

    fn shut_down(&self) -> BoxFuture<'_, ()> {
        async move {
            self.life.stop.cancel();
            self.finish_saving().await;
            let homes = async {
                if let Some(homes) = &self.homes {
                    homes.shut_down().await;
                }
            };
            if self.take_keeper().is_some() {
                self.life.publish(Phase::Stopped);
                return homes.await;
            }
            let ended = async { tokio::join!(self.life.ended.cancelled(), homes) };
            if time::timeout(SHUT_DOWN_TIMEOUT, ended).await.is_err() {
                tracing::warn!(server = %self.life.settings.name, "MCP server did not end in time");
            }
        }
        .boxed()
    }
}
