//! The HTTP API under `/api/`: plain JSON for people and programs that are not MCP clients.
//!
//! From the outside in:
//!
//! - [`Api`]: the data sources; [`router`]: the routes, for all principals or for a single one;
//! - `state`: state shared by the handlers; `problem`: the error response of every route;
//! - `extract` and `stream`: request extractors, and JSON and streaming responses;
//! - a file for each subject: `overview`, `servers`, `logs`, `tools`, `calls`, `chains`, `batch`, `traces`,
//!   `sessions`, `outputs`, `events`.

use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use pegboard_core::owner::{Owner, OwnerScope};
use pegboard_core::store::{CallLog, OutputStore, SessionStore};
use pegboard_runtime::Runtime;
use pegboard_runtime::metrics::Metrics;
use pegboard_runtime::wall_clock::WallClock;
use pegboard_wire::http::server::{HttpServerOptions, check_host_and_origin};
use pegboard_wire::server::ResponseMemory;

pub use attached::{AttachedClient, AttachedClients, AttachedGuard, ClientCredential, GatewayMode};
use calls::CallSubscribers;
use named_callers::NamedCallers;
pub use pending::{PendingChange, PendingChanges};
pub(crate) use problem::ApiProblem;
pub use problem::{ApiError, ApiErrorResponse};
pub use servers::DisabledServers;
use state::ApiState;

mod attached;
mod batch;
mod calls;
mod chains;
mod events;
mod extract;
mod history;
mod logs;
mod named_callers;
mod outputs;
mod overview;
mod pending;
mod problem;
mod servers;
mod sessions;
mod signature;
mod state;
mod stream;
mod tools;
mod traces;

/// Data sources of the API. Cloning is cheap; clones share state.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use pegboard_gateway::api::{Api, ApiScope, GatewayInfo, router};
/// use pegboard_runtime::Runtime;
/// use pegboard_wire::http::server::HttpServerOptions;
///
/// let runtime = Runtime::builder().start().await?;
/// let api = Api::new(GatewayInfo { version: "1.0.0".to_owned(), ..GatewayInfo::default() }).runtime(&runtime);
/// let _application = router(&api, ApiScope::All, &HttpServerOptions::default());
/// # Ok::<(), pegboard_runtime::StartError>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct Api {
    info: Arc<GatewayInfo>,
    clock: WallClock,
    started: std::time::SystemTime,
    runtime: Option<Runtime>,
    metrics: Option<Arc<Metrics>>,
    outputs: Option<Arc<dyn OutputStore>>,
    sessions: Option<Arc<dyn SessionStore>>,
    call_log: Option<Arc<dyn CallLog>>,
    named_callers: Arc<NamedCallers>,
    subscribers: Arc<CallSubscribers>,
    disabled: DisabledServers,
}

/// Facts about a gateway process.
#[derive(Clone, Debug, Default)]
pub struct GatewayInfo {
    /// Program version.
    pub version: String,
    /// Configuration files it was started with.
    pub configuration: Vec<PathBuf>,
    /// Those of which only the settings apply, not the tools.
    pub settings_only: Vec<PathBuf>,
    /// Addresses that clients connect to.
    pub addresses: Vec<String>,
    /// Credential that clients send to these addresses.
    pub credential: ClientCredential,
    /// Changes of its configuration that wait for approval.
    pub pending: PendingChanges,
    /// The way in which it was started.
    pub mode: GatewayMode,
    /// File with its own log, if there is one.
    pub log: Option<PathBuf>,
    /// Clients over stdio that are attached to it.
    pub clients: AttachedClients,
}

/// Data that is visible through a router, by principal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiScope {
    /// All data: the view of the operator. Its own calls are those of the [local](Owner::local) principal.
    All,
    /// Data of one principal, which also owns the calls.
    Principal(String),
}

impl Api {
    /// Creates an API without data sources; add them with the methods below.
    pub fn new(info: GatewayInfo) -> Self {
        let clock = WallClock::start();
        Self {
            info: Arc::new(info),
            clock,
            started: clock.now(),
            runtime: None,
            metrics: None,
            outputs: None,
            sessions: None,
            call_log: None,
            named_callers: Arc::default(),
            subscribers: Arc::default(),
            disabled: DisabledServers::default(),
        }
    }

    /// Sets the runtime. Without one, only stored history is available.
    #[must_use]
    pub fn runtime(mut self, runtime: &Runtime) -> Self {
        self.runtime = Some(runtime.clone());
        self
    }

    /// Sets the metrics.
    #[must_use]
    pub fn metrics(mut self, metrics: Arc<Metrics>) -> Self {
        self.metrics = Some(metrics);
        self
    }

    /// Sets the servers that the configuration disables, which are listed as such.
    #[must_use]
    pub fn disabled(mut self, servers: DisabledServers) -> Self {
        self.disabled = servers;
        self
    }

    /// Sets the store of outputs that were too large to return.
    #[must_use]
    pub fn outputs(mut self, store: Arc<dyn OutputStore>) -> Self {
        self.outputs = Some(store);
        self
    }

    /// Sets the store of named sessions.
    #[must_use]
    pub fn sessions(mut self, store: Arc<dyn SessionStore>) -> Self {
        self.sessions = Some(store);
        self
    }

    /// Sets the log of finished calls, and of trace records of named sessions.
    #[must_use]
    pub fn call_log(mut self, store: Arc<dyn CallLog>) -> Self {
        self.call_log = Some(store);
        self
    }
}

impl ApiScope {
    /// Returns the owners with visible data, and the owner of calls.
    fn into_owners(self) -> (OwnerScope, Owner) {
        match self {
            Self::All => (OwnerScope::All, Owner::local()),
            Self::Principal(name) => {
                let owner = Owner::new(&name);
                (OwnerScope::Only(owner.clone()), owner)
            }
        }
    }
}

/// Returns the routes under `/api/`, for all principals or for a single one.
///
/// Requests pass the same `Host` and `Origin` checks as those of MCP clients.
pub fn router(api: &Api, scope: ApiScope, options: &HttpServerOptions) -> Router {
    let state = Arc::new(ApiState::new(api.clone(), scope, options.clone()));
    let routes = Router::new()
        .route("/", get(overview::paths))
        .route("/status", get(overview::status))
        .route("/toolboxes", get(overview::toolboxes))
        .route("/toolboxes/open", post(tools::open))
        .route("/queues", get(overview::queues))
        .route("/metrics", get(overview::metrics))
        .route("/servers", get(servers::list))
        .route("/servers/open", post(servers::open_all))
        .route("/servers/{toolbox}/{server}/open", post(servers::open))
        .route("/servers/{toolbox}/{server}/restart", post(servers::restart))
        .route("/servers/{toolbox}/{server}/logs", get(logs::read))
        .route("/tools", get(tools::list))
        .route("/tool", get(tools::known).post(tools::find))
        .route("/calls", get(calls::list).post(calls::start))
        .route("/calls/{call}", delete(calls::cancel))
        .route("/calls/{call}/answers", post(calls::answer))
        .route("/chains", get(chains::list))
        .route("/chains/check", post(chains::check))
        .route("/chains/run", post(chains::run))
        .route("/batch", post(batch::run))
        .route("/traces", get(traces::list))
        .route("/traces/{trace}", get(traces::one))
        .route("/sessions", get(sessions::list))
        .route("/sessions/{session}", get(sessions::one))
        .route("/outputs", get(outputs::list))
        .route("/outputs/{*handle}", get(outputs::read).delete(outputs::remove))
        .route("/events", get(events::listen));
    Router::new()
        .nest("/api", routes)
        .route("/api/", get(overview::paths))
        .fallback(async || ApiProblem::unknown_path())
        .method_not_allowed_fallback(async || ApiProblem::method_not_allowed())
        .layer(middleware::from_fn_with_state(Arc::clone(&state), guard))
        .with_state(state)
}

/// Counts a large body until the client has read it, or replaces it by an error.
async fn limited(response: Response, memory: &ResponseMemory) -> Response {
    let n_bytes = response.body().size_hint().exact().unwrap_or_default();
    if n_bytes < ResponseMemory::MIN_COUNTED_BYTES as u64 {
        return response;
    }
    let (parts, body) = response.into_parts();
    // The body is complete: its size is known.
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap_or_default();
    match memory.hold_body(body) {
        Ok(body) => Response::from_parts(parts, Body::from(body)),
        Err(full) => ApiProblem::response_too_large(&full).into_response(),
    }
}

/// Rejects requests with a foreign `Host` or `Origin` header.
async fn guard(State(state): State<Arc<ApiState>>, request: Request, next: Next) -> Response {
    match check_host_and_origin(request.headers(), request.uri(), &state.options) {
        Ok(_) => limited(next.run(request).await, &state.options.response_memory).await,
        Err(rejection) => ApiProblem::from(rejection).into_response(),
    }
}
