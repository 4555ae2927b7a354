//! Toolboxes: servers under one name, opened together.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use indexmap::IndexMap;
use pegboard_core::error::{CallError, NotFound};
use pegboard_core::id::{ServerName, ToolId, ToolboxName};
use pegboard_core::provider::{Offer, Particulars, Provider, ServerState, ToolKind};
use pegboard_core::settings::ServerSettings;
use pegboard_json::RawJson;
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::{self, Instant};
use tokio_util::sync::CancellationToken;

use crate::catalogue::{Form, Scope, Shelf, View};
use crate::event::Start;
use crate::requests::ServerId;
use crate::runtime::Shared;
use crate::usage::Usage;

/// How long a server may take to be ready.
const OPEN_TIMEOUT: Duration = Duration::from_mins(1);

/// How long at least others are waited for once a server is ready.
const STRAGGLERS: Duration = Duration::from_secs(2);

/// The toolboxes there are, in the order of the configuration.
#[derive(Default)]
pub(crate) struct Toolboxes(pub(crate) IndexMap<ToolboxName, Toolbox>);

/// Servers under one name.
#[derive(Default)]
pub(crate) struct Toolbox {
    pub(crate) description: String,
    pub(crate) servers: IndexMap<ServerName, Server>,
}

/// A server in a toolbox. Clones are the same server.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) provider: Arc<dyn Provider>,
    pub(crate) settings: Arc<ServerSettings>,
    pub(crate) offer: watch::Receiver<Arc<Offer>>,
    pub(crate) state: watch::Receiver<ServerState>,
    pub(crate) usage: Usage,
    /// Something else has taken its place.
    pub(crate) replaced: CancellationToken,
    opening: Arc<Opening>,
}

/// A toolbox as it is configured, open or not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConfiguredToolbox {
    /// The toolbox.
    pub name: ToolboxName,
    /// What it is for.
    pub description: String,
    /// Its servers, in order.
    pub servers: Vec<ServerName>,
}

/// What came of opening a toolbox.
#[derive(Clone, Debug, Serialize)]
pub struct Opened {
    /// The toolbox.
    pub toolbox: ToolboxName,
    /// What it is for.
    pub description: String,
    /// How many of its servers are ready.
    pub servers_connected: usize,
    /// Those that are not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub servers_failed: Vec<FailedServer>,
    /// Its tools, each as its server describes it, with `server` and `toolbox`.
    pub tools: RawJson,
}

/// How a server is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ServerStatus {
    /// The toolbox it is in.
    pub toolbox: ToolboxName,
    /// What it is called.
    pub server: ServerName,
    /// What sort of server it is.
    pub kind: ToolKind,
    /// How it is.
    #[serde(flatten)]
    pub state: ServerState,
    /// What runs behind it.
    pub particulars: Particulars,
    /// How many tools it offers, before the operator's filters.
    pub n_tools: usize,
    /// Whether that is what it offered when it was last there, and it has not been asked since.
    pub is_stale: bool,
    /// Whether some of its lists have yet to be read.
    pub is_partial: bool,
    /// What a person should look at.
    pub warnings: Vec<String>,
}

/// A server that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FailedServer {
    /// The server.
    pub server: ServerName,
    /// Why it cannot.
    pub error: String,
}

impl Toolboxes {
    pub(crate) fn contains(&self, toolbox: &ToolboxName) -> bool {
        self.0.contains_key(toolbox)
    }

    /// The names of all toolboxes that are allowed, in order.
    pub(crate) fn names(&self, allowed: Option<&BTreeSet<ToolboxName>>) -> Vec<String> {
        let is_allowed = |name: &&ToolboxName| allowed.is_none_or(|allowed| allowed.contains(*name));
        self.0.keys().filter(is_allowed).map(ToString::to_string).collect()
    }

    /// Every toolbox as it is configured, in order.
    pub(crate) fn configured(&self) -> Vec<ConfiguredToolbox> {
        let of = |(name, contents): (&ToolboxName, &Toolbox)| ConfiguredToolbox {
            name: name.clone(),
            description: contents.description.clone(),
            servers: contents.servers.keys().cloned().collect(),
        };
        self.0.iter().map(of).collect()
    }

    /// Whether somebody set how much of an answer a caller is handed, for a server or for one of its tools.
    pub(crate) fn has_caps(&self) -> bool {
        let has_cap = |server: &Server| {
            let settings = &server.settings;
            let mut tools = settings.tools.values();
            settings.tool_response_max_bytes.is_some()
                || tools.any(|tool| tool.tool_response_max_bytes.is_some())
        };
        self.0.values().flat_map(|toolbox| toolbox.servers.values()).any(has_cap)
    }

    /// What every server offers now, in order.
    pub(crate) fn shelves(&self) -> Vec<Shelf> {
        let mut shelves = Vec::new();
        for (toolbox, contents) in &self.0 {
            for (name, server) in &contents.servers {
                shelves.push(Shelf {
                    toolbox: toolbox.clone(),
                    server: name.clone(),
                    kind: server.provider.kind(),
                    settings: Arc::clone(&server.settings),
                    offer: Arc::clone(&server.offer.borrow()),
                    usage: server.usage.clone(),
                });
            }
        }
        shelves
    }

    /// Every server and where it is, in order.
    pub(crate) fn servers(&self) -> impl Iterator<Item = (ServerId, Server)> {
        self.0.iter().flat_map(|(toolbox, contents)| {
            let place = |server: &ServerName| ServerId { toolbox: toolbox.clone(), server: server.clone() };
            contents.servers.iter().map(move |(name, server)| (place(name), server.clone()))
        })
    }

    /// The servers of this name, and their toolboxes, in order.
    pub(crate) fn called(&self, server: &str) -> impl Iterator<Item = (ToolboxName, &Server)> {
        self.0.iter().filter_map(move |(toolbox, contents)| {
            contents.servers.get(server).map(|server| (toolbox.clone(), server))
        })
    }

    /// A server of a toolbox.
    pub(crate) fn server(&self, toolbox: &ToolboxName, server: &ServerName) -> Option<&Server> {
        self.0.get(toolbox)?.servers.get(server)
    }

    /// The names of a toolbox's servers, in order.
    pub(crate) fn servers_of(&self, toolbox: &ToolboxName) -> Vec<String> {
        let servers = self.0.get(toolbox).into_iter().flat_map(|contents| contents.servers.keys());
        servers.map(ToString::to_string).collect()
    }

    /// How every server is, in order.
    pub(crate) fn status(&self, shared: &Shared) -> Vec<ServerStatus> {
        let mut all = Vec::new();
        for (toolbox, contents) in &self.0 {
            for (name, server) in &contents.servers {
                let offer = server.offer.borrow();
                all.push(ServerStatus {
                    toolbox: toolbox.clone(),
                    server: name.clone(),
                    kind: server.provider.kind(),
                    state: shared.without_secrets(&server.state.borrow()),
                    particulars: server.provider.particulars(),
                    n_tools: offer.tools.len(),
                    is_stale: offer.is_stale,
                    is_partial: offer.is_partial,
                    warnings: offer.warnings.clone(),
                });
            }
        }
        all
    }

    /// Makes all servers of a toolbox ready, at the same time.
    pub(crate) async fn open(
        &self,
        shared: &Shared,
        toolbox: &str,
        allowed: Option<&BTreeSet<ToolboxName>>,
    ) -> Result<(ToolboxName, Opened), CallError> {
        let is_allowed = |name: &ToolboxName| allowed.is_none_or(|allowed| allowed.contains(name));
        let Some((name, contents)) = self.0.get_key_value(toolbox).filter(|(name, _)| is_allowed(name))
        else {
            let available = self.names(allowed);
            return Err(CallError::NotFound(NotFound::Toolbox { toolbox: toolbox.to_owned(), available }));
        };
        let servers_failed = self.open_all(contents, shared.n_starts_at_once()).await;
        let servers_connected = contents.servers.len() - servers_failed.len();
        if servers_connected == 0 && !servers_failed.is_empty() {
            let each = servers_failed.iter().map(|failed| {
                format!("Failed to connect to MCP server '{}': {}", failed.server, failed.error)
            });
            let reason = format!("Error opening toolbox '{name}': {}", each.collect::<Vec<_>>().join("; "));
            return Err(CallError::ServerUnavailable { reason });
        }
        shared.refresh();
        let opened = Opened {
            toolbox: name.clone(),
            description: contents.description.clone(),
            servers_connected,
            servers_failed,
            tools: shared.catalogue.load().list(
                View { form: Form::Toolbox, ..View::default() },
                Scope::Only(&|toolbox| toolbox == name),
            ),
        };
        Ok((name.clone(), opened))
    }

    /// Makes the servers of a toolbox ready; those that are not, in order. One that takes much longer than others is not
    /// waited for.
    async fn open_all(&self, contents: &Toolbox, n_at_once: usize) -> Vec<FailedServer> {
        let begun = Instant::now();
        let opening: Vec<_> = contents
            .servers
            .iter()
            .map(|(name, server)| async move { (name, server.open().await) })
            .collect();
        let mut opening = stream::iter(opening).buffer_unordered(n_at_once);
        let mut results = HashMap::new();
        let mut limit = None;
        while let Some(opened) = before(limit, opening.next()).await.flatten() {
            let (name, result) = opened;
            if result.is_ok() {
                limit = Some(Instant::now() + (begun.elapsed() / 2).max(STRAGGLERS));
            }
            results.insert(name, result);
        }
        let failed = contents.servers.keys().filter_map(|server| {
            let error = match results.get(server) {
                Some(Ok(())) => return None,
                Some(Err(error)) => error.text(),
                None => {
                    format!("MCP server '{server}' is still starting. Open the toolbox again in a moment")
                }
            };
            Some(FailedServer { server: server.clone(), error })
        });
        failed.collect()
    }

    /// The servers of which nobody knows yet what they have, in toolboxes of which `is_meant` is true: those that `tool`
    /// may be named after, and the others.
    pub(crate) fn unknown(
        &self,
        tool: &str,
        is_meant: impl Fn(&ToolboxName) -> bool,
    ) -> (Vec<&Server>, Vec<&Server>) {
        let meant = self.0.iter().filter(|(name, _)| is_meant(name));
        let servers = meant.flat_map(|(_, contents)| &contents.servers);
        let (mut likely, mut others) = (Vec::new(), Vec::new());
        for (name, server) in servers.filter(|(_, server)| server.is_unknown()) {
            if tool.contains(name.as_str()) { likely.push(server) } else { others.push(server) }
        }
        (likely, others)
    }

    /// The server that a tool of this name would be of, if that one cannot be used. It is for the words of an error alone.
    pub(crate) fn down(&self, tool: &str, is_meant: impl Fn(&ToolboxName) -> bool) -> Option<&Server> {
        let meant = self.0.iter().filter(|(name, _)| is_meant(name));
        let servers = meant.flat_map(|(_, contents)| &contents.servers);
        let is_named =
            |name: &ServerName| tool.strip_prefix(name.as_str()).is_some_and(|rest| rest.starts_with("__"));
        servers.filter(|(name, server)| is_named(name) && !server.is_ready()).map(|(_, server)| server).next()
    }

    /// Makes the server of a tool ready if it is there and is not; `false` if there was nothing to do.
    pub(crate) async fn open_server_of(&self, tool: &ToolId) -> Result<bool, CallError> {
        let server = self.0.get(&tool.toolbox).and_then(|contents| contents.servers.get(&tool.server));
        match server {
            Some(server) if !server.is_ready() => server.open().await.map(|()| true),
            Some(_) | None => Ok(false),
        }
    }
}

/// What comes before a time, if there is one.
async fn before<T>(limit: Option<Instant>, coming: impl Future<Output = T>) -> Option<T> {
    match limit {
        Some(limit) => time::timeout_at(limit, coming).await.ok(),
        None => Some(coming.await),
    }
}

impl Server {
    pub(crate) fn new(provider: Arc<dyn Provider>, settings: ServerSettings) -> Self {
        let (offer, state) = (provider.offer(), provider.state());
        Self {
            provider,
            settings: Arc::new(settings),
            offer,
            state,
            usage: Usage::default(),
            replaced: CancellationToken::new(),
            opening: Arc::default(),
        }
    }

    /// The same server, with other settings for its tools.
    pub(crate) fn with_settings(&self, settings: &Arc<ServerSettings>) -> Self {
        Self { settings: Arc::clone(settings), ..self.clone() }
    }

    /// Whether both are handles of one server.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.offer.same_channel(&other.offer)
    }

    pub(crate) fn is_ready(&self) -> bool {
        *self.state.borrow() == ServerState::Ready
    }

    /// Makes it ready, and says how that went.
    pub(crate) async fn started(&self, place: &ServerId) -> Start {
        let begun = Instant::now();
        let error = self.open().await.err().map(|error| error.text());
        let ServerId { toolbox, server } = place;
        Start { toolbox: toolbox.to_string(), server: server.to_string(), took: begun.elapsed(), error }
    }

    /// Whether it has yet to say what it has.
    fn is_unknown(&self) -> bool {
        matches!(*self.state.borrow(), ServerState::Idle | ServerState::Starting)
    }

    /// Makes it ready. Whoever comes while somebody is at it gets the same answer.
    pub(crate) async fn open(&self) -> Result<(), CallError> {
        let seen = self.opening.n_done();
        let turn = self.opening.turn.lock().await;
        if self.is_ready() {
            return Ok(());
        }
        if let Some(result) = self.opening.since(seen) {
            return result;
        }
        let result = time::timeout(OPEN_TIMEOUT, self.provider.open()).await.unwrap_or_else(|_| {
            let reason = format!("initialization timed out after {}s", OPEN_TIMEOUT.as_secs());
            Err(CallError::ServerUnavailable { reason })
        });
        self.opening.note(&result);
        drop(turn);
        result
    }
}

/// Attempts to open a server, one at a time.
#[derive(Default)]
struct Opening {
    turn: tokio::sync::Mutex<()>,
    last: Mutex<(u64, Option<Result<(), CallError>>)>,
}

impl Opening {
    fn n_done(&self) -> u64 {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).0
    }

    /// The result of an attempt that ended after `seen` had.
    fn since(&self, seen: u64) -> Option<Result<(), CallError>> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.0 > seen { last.1.clone() } else { None }
    }

    fn note(&self, result: &Result<(), CallError>) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        *last = (last.0 + 1, Some(result.clone()));
    }
}
