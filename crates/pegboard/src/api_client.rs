//! Client of the gateway's HTTP API: through the socket of a running gateway, or in process.

use std::path::PathBuf;

use axum::body::{Body, Bytes};
use axum::http::{Method, Request, Response, header};
use http_body_util::{BodyExt, Limited};
use pegboard::config::Severity;
use pegboard::error::ErrorKind;
use pegboard::json::RawJson;
use pegboard::telemetry::Telemetry;
use pegboard::wiring::App;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use tower::ServiceExt;

use crate::cli::{CliError, ExitReason, Globals};
use crate::logins;
use crate::paths::{self, ConfigSelection};
use crate::trust::TrustedConfiguration;
use in_process::InProcessGateway;
pub(crate) use stream::ApiEvents;
pub(crate) use views::{ServerView, ToolView, ToolboxView, missing_variables, view};

mod api_error;
mod in_process;
#[cfg(unix)]
mod socket;
mod stream;
mod views;

/// Maximum size of a response that is read as a whole.
const MAX_BYTES: usize = 1024 * 1024 * 1024;
/// Name of the command line among the clients of a gateway.
pub(crate) const CLIENT_NAME: &str = "pegboard-cli";
/// Characters that need no escape in a URL.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Client of the gateway's HTTP API.
pub(crate) struct ApiClient {
    backend: ApiBackend,
}

enum ApiBackend {
    /// A running gateway.
    #[cfg(unix)]
    Running(socket::GatewaySocket),
    /// A gateway in this process.
    InProcess(Box<InProcessGateway>),
}

/// Kind of gateway that a command needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GatewayNeed {
    /// Needs tools: starts a gateway if none is running.
    Tools,
    /// Same for the tools that are named: what other entries need is not reported.
    NamedTools,
    /// Needs stored records: starts no servers.
    Records,
    /// Needs a running gateway.
    Running,
}

/// Format of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResponseKind {
    Document,
    Events,
}

impl ApiClient {
    /// Connects to a running gateway, or starts one in this process.
    pub(crate) async fn open(
        globals: &Globals,
        telemetry: &Telemetry,
        need: GatewayNeed,
    ) -> Result<Self, CliError> {
        match (Self::running(globals).await, need) {
            (Ok(api), _) => Ok(api),
            (Err(_), GatewayNeed::Tools) => {
                let gateway = InProcessGateway::with_tools(globals, telemetry, Severity::Warning).await;
                gateway.map(Self::in_process)
            }
            (Err(_), GatewayNeed::NamedTools) => {
                let gateway = InProcessGateway::with_tools(globals, telemetry, Severity::Error).await;
                gateway.map(Self::in_process)
            }
            (Err(_), GatewayNeed::Records) => {
                InProcessGateway::with_records(globals, telemetry).await.map(Self::in_process)
            }
            (Err(failure), GatewayNeed::Running) => Err(failure),
        }
    }

    /// Connects to the running gateway that serves the selected configuration; to any if none is selected.
    pub(crate) async fn running(globals: &Globals) -> Result<Self, CliError> {
        let selection = ConfigSelection::without_probing(globals)?;
        #[cfg(unix)]
        let may_use_running = may_use_running(globals) && !selection.names_server();
        #[cfg(unix)]
        if let Some(state) = paths::state_dir(globals.state.as_deref()).filter(|_| may_use_running)
            && let Some(api) = socket::find(&paths::socket_dir(&state), &selection.files()).await
        {
            return Ok(api);
        }
        let files = selection.files();
        let message = if files.all.is_empty() {
            "no gateway is running".to_owned()
        } else {
            format!("no running gateway serves {files}")
        };
        Err(CliError::new(ExitReason::Unavailable, "not_running", message)
            .hint("start one with `pegboard serve`"))
    }

    /// Returns the status of the newest running gateway of this user that matches.
    pub(crate) async fn status_where(globals: &Globals, is_wanted: impl Fn(&Value) -> bool) -> Option<Value> {
        #[cfg(unix)]
        if let Some(state) = paths::state_dir(globals.state.as_deref())
            && let Some((_, status)) = socket::find_where(&paths::socket_dir(&state), is_wanted).await
        {
            return Some(status);
        }
        None
    }

    /// Connects to the gateway of a process, with its socket in this directory.
    #[cfg(unix)]
    pub(crate) fn of_process(folder: &paths::PrivateDir, pid: u32) -> Self {
        let socket = socket::GatewaySocket::new(folder.path().join(format!("{pid}.sock")));
        Self { backend: ApiBackend::Running(socket) }
    }

    /// Starts a gateway in this process with its own configuration, and state in a directory or in memory. It uses
    /// the logins of the user.
    pub(crate) async fn start(
        globals: &Globals,
        state: Option<PathBuf>,
        telemetry: &Telemetry,
        configuration: TrustedConfiguration,
    ) -> Result<Self, CliError> {
        let started =
            InProcessGateway::start((state, logins::existing(globals)), telemetry, configuration, Vec::new())
                .await;
        started.map(Self::in_process)
    }

    fn in_process(gateway: InProcessGateway) -> Self {
        Self { backend: ApiBackend::InProcess(Box::new(gateway)) }
    }

    /// Returns `true` if the gateway was just started in this process, so that its servers are not ready yet.
    pub(crate) fn is_in_process(&self) -> bool {
        matches!(self.backend, ApiBackend::InProcess(_))
    }

    /// Returns the gateway, if it runs in this process.
    pub(crate) fn app(&self) -> Option<&App> {
        match &self.backend {
            #[cfg(unix)]
            ApiBackend::Running(_) => None,
            ApiBackend::InProcess(gateway) => Some(gateway.app()),
        }
    }

    /// Returns a future that completes when the process of the running gateway has ended.
    pub(crate) async fn watch_end(&self) -> Result<impl Future<Output = ()> + use<>, CliError> {
        #[cfg(unix)]
        let connection = match &self.backend {
            ApiBackend::Running(socket) => Some(socket.connect().await?),
            ApiBackend::InProcess(_) => None,
        };
        Ok(async move {
            #[cfg(unix)]
            if let Some(mut connection) = connection {
                // Nothing is sent, so the end of the process is the only event.
                let _ = tokio::io::AsyncReadExt::read(&mut connection, &mut [0]).await;
            }
        })
    }

    /// Shuts down what was started for this client.
    pub(crate) async fn close(self) {
        match self.backend {
            #[cfg(unix)]
            ApiBackend::Running(_) => {}
            ApiBackend::InProcess(gateway) => gateway.close().await,
        }
    }

    /// Sends `GET` and returns a JSON document.
    pub(crate) async fn get(&self, address: &ApiPath) -> Result<Value, CliError> {
        let answer = self.send(Method::GET, address, None, ResponseKind::Document).await?;
        read_json(answer).await
    }

    /// Sends `POST` and returns a JSON document.
    pub(crate) async fn post(&self, address: &ApiPath, body: &RawJson) -> Result<Value, CliError> {
        let answer = self.send(Method::POST, address, Some(body), ResponseKind::Document).await?;
        read_json(answer).await
    }

    /// Sends `DELETE`.
    pub(crate) async fn delete(&self, address: &ApiPath) -> Result<(), CliError> {
        self.send(Method::DELETE, address, None, ResponseKind::Document).await.map(|_| ())
    }

    /// Sends `GET` and returns the body.
    pub(crate) async fn bytes(&self, address: &ApiPath) -> Result<Bytes, CliError> {
        read_body(self.send(Method::GET, address, None, ResponseKind::Document).await?).await
    }

    /// Sends `GET` and returns a stream of events.
    pub(crate) async fn follow(&self, address: &ApiPath) -> Result<ApiEvents, CliError> {
        let answer = self.send(Method::GET, address, None, ResponseKind::Events).await?;
        Ok(ApiEvents::new(answer.into_body()))
    }

    /// Sends `POST` and returns a stream of events.
    pub(crate) async fn events(&self, address: &ApiPath, body: &RawJson) -> Result<ApiEvents, CliError> {
        let answer = self.send(Method::POST, address, Some(body), ResponseKind::Events).await?;
        Ok(ApiEvents::new(answer.into_body()))
    }

    async fn send(
        &self,
        method: Method,
        address: &ApiPath,
        body: Option<&RawJson>,
        form: ResponseKind,
    ) -> Result<Response<Body>, CliError> {
        let form = match form {
            ResponseKind::Document => "application/json",
            ResponseKind::Events => "text/event-stream",
        };
        let request = Request::builder()
            .method(method)
            .uri(&address.0)
            .header(header::HOST, "localhost")
            .header(header::ACCEPT, form)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::USER_AGENT, CLIENT_NAME)
            .body(body.map(|body| Body::from(body.clone().into_bytes())).unwrap_or_default())
            .map_err(|error| CliError::new(ExitReason::Bug, "internal_error", error.to_string()))?;
        let answer = match &self.backend {
            #[cfg(unix)]
            ApiBackend::Running(socket) => socket.send(request).await?,
            ApiBackend::InProcess(gateway) => match gateway.routes().oneshot(request).await {
                Ok(answer) => answer,
                Err(never) => match never {},
            },
        };
        if answer.status().is_success() {
            return Ok(answer);
        }
        let status = answer.status();
        let body = read_body(answer).await?;
        Err(api_error::read(status, &body))
    }
}

/// Returns `true` if a running gateway may be used. One with the `--set` options of this command cannot
/// exist.
#[cfg(unix)]
fn may_use_running(globals: &Globals) -> bool {
    !globals.no_daemon && globals.set.is_empty()
}

async fn read_body(answer: Response<Body>) -> Result<Bytes, CliError> {
    let read = Limited::new(answer.into_body(), MAX_BYTES).collect().await;
    read.map(http_body_util::Collected::to_bytes).map_err(|_| gateway_gone())
}

async fn read_json(answer: Response<Body>) -> Result<Value, CliError> {
    let bytes = read_body(answer).await?;
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(&bytes).map_err(invalid_json)
}

fn invalid_json(error: impl std::fmt::Display) -> CliError {
    CliError::from_kind(ErrorKind::InternalError, format!("invalid JSON from the gateway: {error}"))
}

/// Error for a gateway that went away before it answered.
fn gateway_gone() -> CliError {
    CliError::new(ExitReason::Unavailable, "not_running", "the gateway exited before it answered")
        .hint("check its output, then restart it: pegboard serve")
}

/// Path and query of an API request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiPath(String);

impl ApiPath {
    /// Creates a path from segments: `/api/servers/dev/github`.
    pub(crate) fn new(parts: &[&str]) -> Self {
        let parts = parts.iter().map(|part| format!("/{}", utf8_percent_encode(part, UNRESERVED)));
        Self(std::iter::once("/api".to_owned()).chain(parts).collect())
    }

    /// Adds a query parameter.
    #[must_use]
    pub(crate) fn with(mut self, name: &str, value: &impl ToString) -> Self {
        self.0.push(if self.0.contains('?') { '&' } else { '?' });
        self.0.push_str(name);
        self.0.push('=');
        self.0.extend(utf8_percent_encode(&value.to_string(), UNRESERVED));
        self
    }

    /// Adds a query parameter, if there is a value.
    #[must_use]
    pub(crate) fn with_some(self, name: &str, value: Option<&impl ToString>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }
}
