//! A gateway for people and programs beside its clients: plain JSON over HTTP, under `/api/`.
//!
//! From the outside in:
//!
//! - [`Api`]: what there is to tell of; [`router`]: the routes, for everybody or for one principal alone;
//! - `window`: what one principal sees of it; `problem`: why something is not answered, in one shape for all;
//! - `question` and `stream`: how requests are read, and how answers are sent that take a while;
//! - a file for each subject: `overview`, `servers`, `logs`, `tools`, `calls`, `chains`, `batch`, `traces`,
//!   `sessions`, `outputs`, `events`.

use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use pegboard_core::store::{HistoryStore, OutputStore, SessionStore, TraceStore};
use pegboard_runtime::metrics::Metrics;
use pegboard_runtime::wall::WallClock;
use pegboard_runtime::{CallerOptions, Runtime};
use pegboard_wire::http::server::{HttpServerOptions, check_sender};

use calls::Talks;
pub(crate) use problem::Problem;
use visitors::Visitors;
use window::Window;

mod batch;
mod calls;
mod chains;
mod events;
mod logs;
mod outputs;
mod overview;
mod past;
mod problem;
mod question;
mod servers;
mod sessions;
mod signature;
mod stream;
mod tools;
mod traces;
mod visitors;
mod window;

/// What there is to tell of. Clones are the same.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use pegboard_gateway::api::{About, Api, Principal, router};
/// use pegboard_runtime::Runtime;
/// use pegboard_wire::http::server::HttpServerOptions;
///
/// let runtime = Runtime::builder().start().await?;
/// let api = Api::new(About { version: "1.0.0".to_owned(), ..About::default() }).runtime(&runtime);
/// let _application = router(&api, Principal::Everybody, &HttpServerOptions::default());
/// # Ok::<(), pegboard_runtime::StartError>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct Api {
    about: Arc<About>,
    clock: WallClock,
    started: std::time::SystemTime,
    runtime: Option<Runtime>,
    metrics: Option<Arc<Metrics>>,
    outputs: Option<Arc<dyn OutputStore>>,
    sessions: Option<Arc<dyn SessionStore>>,
    traces: Option<Arc<dyn TraceStore>>,
    history: Option<Arc<dyn HistoryStore>>,
    visitors: Arc<Visitors>,
    talks: Arc<Talks>,
}

/// What a gateway is, for whoever asks.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// The version of this program.
    pub version: String,
    /// The files that it was configured by.
    pub configuration: Vec<PathBuf>,
    /// Where its clients find it.
    pub addresses: Vec<String>,
}

/// Whose things are shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Principal {
    /// Those of everybody. Calls that are made are nobody's in particular.
    Everybody,
    /// Those of one principal alone, who also makes the calls.
    One(String),
}

impl Api {
    /// Nothing but what a gateway is; everything else is said by what follows.
    pub fn new(about: About) -> Self {
        let clock = WallClock::start();
        Self {
            about: Arc::new(about),
            clock,
            started: clock.now(),
            runtime: None,
            metrics: None,
            outputs: None,
            sessions: None,
            traces: None,
            history: None,
            visitors: Arc::default(),
            talks: Arc::default(),
        }
    }

    /// With what carries out calls. Without it only what is past is told.
    #[must_use]
    pub fn runtime(mut self, runtime: &Runtime) -> Self {
        self.runtime = Some(runtime.clone());
        self
    }

    /// With what happened, in numbers.
    #[must_use]
    pub fn metrics(mut self, metrics: Arc<Metrics>) -> Self {
        self.metrics = Some(metrics);
        self
    }

    /// With the answers that were too large to hand over.
    #[must_use]
    pub fn outputs(mut self, store: Arc<dyn OutputStore>) -> Self {
        self.outputs = Some(store);
        self
    }

    /// With the sessions that callers name.
    #[must_use]
    pub fn sessions(mut self, store: Arc<dyn SessionStore>) -> Self {
        self.sessions = Some(store);
        self
    }

    /// With what was done in such sessions.
    #[must_use]
    pub fn traces(mut self, store: Arc<dyn TraceStore>) -> Self {
        self.traces = Some(store);
        self
    }

    /// With the calls that have ended.
    #[must_use]
    pub fn history(mut self, store: Arc<dyn HistoryStore>) -> Self {
        self.history = Some(store);
        self
    }
}

impl Principal {
    /// Whose calls it makes: empty if nobody's in particular.
    fn name(&self) -> &str {
        match self {
            Self::Everybody => "",
            Self::One(name) => name,
        }
    }

    /// Whose things are shown, as stores ask for them.
    fn owner(&self) -> Option<String> {
        match self {
            Self::Everybody => None,
            Self::One(name) => {
                let options = CallerOptions { principal: name.clone(), ..CallerOptions::default() };
                Some(options.owner())
            }
        }
    }

    /// Whether what belongs to an [owner](pegboard_runtime::Caller::owner) is shown.
    fn sees(&self, owner: &str) -> bool {
        self.owner().is_none_or(|own| own == owner)
    }
}

/// The routes under `/api/`, for everybody or for one principal alone.
///
/// Requests are let in by the rules that the clients of the gateway are let in by.
pub fn router(api: &Api, who: Principal, options: &HttpServerOptions) -> Router {
    let window = Arc::new(Window::new(api.clone(), who, options.clone()));
    let routes = Router::new()
        .route("/", get(overview::paths))
        .route("/status", get(overview::status))
        .route("/toolboxes", get(overview::toolboxes))
        .route("/queues", get(overview::queues))
        .route("/metrics", get(overview::metrics))
        .route("/servers", get(servers::list))
        .route("/servers/{toolbox}/{server}/open", post(servers::open))
        .route("/servers/{toolbox}/{server}/logs", get(logs::read))
        .route("/tools", get(tools::list))
        .route("/tool", get(tools::one))
        .route("/calls", get(calls::list).post(calls::make))
        .route("/calls/{call}", delete(calls::cancel))
        .route("/calls/{call}/answers", post(calls::answer))
        .route("/chains", get(chains::list))
        .route("/chains/check", post(chains::check))
        .route("/chains/run", post(chains::run))
        .route("/batch", post(batch::make))
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
        .fallback(async || Problem::no_route())
        .method_not_allowed_fallback(async || Problem::no_method())
        .layer(middleware::from_fn_with_state(Arc::clone(&window), guard))
        .with_state(window)
}

/// Lets nobody in who names another host, and no foreign web page.
async fn guard(State(window): State<Arc<Window>>, request: Request, next: Next) -> Response {
    match check_sender(request.headers(), request.uri(), &window.options) {
        Ok(()) => next.run(request).await,
        Err(refusal) => Problem::from(refusal).into_response(),
    }
}
