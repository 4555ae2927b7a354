//! Load generator: calls of one tool, directly and through the gateway, in alternate batches.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderValue;
use axum::http::header::AUTHORIZATION;
use futures_util::future::join_all;
use parking_lot::Mutex;
use pegboard::call::ValidCall;
use pegboard::duration::HumanDuration;
use pegboard::error::ErrorKind;
use pegboard::gateway::access::AccessToken;
use pegboard::json::RawJson;
use pegboard::providers::mcp::{Backend, Connector, HandshakeOptions};
use pegboard::runtime::Runtime;
use pegboard::wire::client::{ClientOptions, McpClient};
use pegboard::wire::http::client::{HttpOptions, connect};
use pegboard_core::server_log::ServerLog;
use pegboard_core::settings::messages::MessageLimits;
use serde_json::json;
use tokio::sync::oneshot;
use tokio::time::{self, Instant};

use super::report::{CallBatch, Comparison};
use crate::cli::CliError;
use crate::commands::rejecting_receiver::RejectingReceiver;

/// Time after which a batch starts no more calls, so that both sides meet the same conditions.
const BATCH_TIME: Duration = Duration::from_millis(100);
/// Number of calls per side before the measurement.
const WARM_UP_CALLS: usize = 20;
/// Time limit of the calls before the measurement, except for the first.
const WARM_UP_TIME: Duration = Duration::from_secs(1);

/// Amount and concurrency of calls.
pub(super) struct LoadPlan {
    pub(super) shape: LoadShape,
    pub(super) concurrency: usize,
    /// Time limit of one call.
    pub(super) call_timeout: Duration,
}

/// End of the load.
#[derive(Clone, Copy)]
pub(super) enum LoadShape {
    /// After this number of calls per side.
    Calls(usize),
    /// After this time.
    Duration(Duration),
}

/// A way to call the tool without the gateway.
pub(super) enum DirectTarget {
    /// A tool of an MCP server, through a separate connection.
    Server { connector: Arc<dyn Connector>, tool: String },
    /// The handler of a tool that has no MCP server.
    Handler(Arc<ValidCall>),
}

/// A whole run: both targets and the place of the results.
pub(super) struct LoadRun {
    pub(super) plan: LoadPlan,
    pub(super) direct: DirectTarget,
    /// Endpoint of the gateway, and the tool's name there.
    pub(super) url: String,
    /// Token that it requires.
    pub(super) token: Option<AccessToken>,
    pub(super) listed_as: String,
    pub(super) arguments: RawJson,
    pub(super) runtime: Runtime,
    pub(super) comparison: Arc<Mutex<Comparison>>,
}

impl LoadRun {
    /// Makes all calls, or stops when `stopped` is closed. Results are added to the comparison after each pair of
    /// batches.
    pub(super) async fn run(self, stopped: oneshot::Receiver<()>) -> Result<(), CliError> {
        let mut backend = None;
        let done = tokio::select! {
            done = self.compare(&mut backend) => done,
            _ = stopped => Ok(()),
        };
        if let Some(backend) = backend {
            backend.shut_down().await;
        }
        done
    }

    async fn compare(&self, backend: &mut Option<Box<dyn Backend>>) -> Result<(), CliError> {
        let direct = self.direct_calls(backend).await?;
        let through = self.gateway_calls().await?;
        self.warm_up(&direct, "directly").await?;
        self.warm_up(&through, "through Pegboard").await?;
        self.runtime.flush_call_log().await;
        let started_at = Instant::now();
        let mut n_done = 0;
        for round in 0_usize.. {
            let n_left = match self.plan.shape {
                LoadShape::Calls(n_calls) => n_calls - n_done,
                LoadShape::Duration(limit) if started_at.elapsed() < limit => usize::MAX,
                LoadShape::Duration(_) => 0,
            };
            if n_left == 0 {
                break;
            }
            // Both sides make the same number of calls, and take turns in going first.
            let (one, other) = if round % 2 == 0 { (&direct, &through) } else { (&through, &direct) };
            let first = self.batch(one, n_left, Some(Instant::now() + BATCH_TIME)).await;
            let second = self.batch(other, first.n_calls(), None).await;
            n_done += first.n_calls();
            let (direct, through) = if round % 2 == 0 { (first, second) } else { (second, first) };
            let is_hopeless = direct.is_failure() || through.is_failure();
            let total = match self.plan.shape {
                LoadShape::Calls(n_calls) => Some(n_calls),
                LoadShape::Duration(_) => None,
            };
            self.comparison.lock().add(direct, through, total);
            if is_hopeless {
                break;
            }
        }
        Ok(())
    }

    /// Calls the tool a few times. An error of the first call is an error of the command.
    async fn warm_up(&self, target: &CallTarget, how: &str) -> Result<(), CliError> {
        let failed = |why: String| {
            let message = format!("the tool cannot be called {how}: {why}");
            CliError::from_kind(ErrorKind::ExecutionError, message)
        };
        self.call(target).await.map_err(failed)?;
        self.batch(target, WARM_UP_CALLS, Some(Instant::now() + WARM_UP_TIME)).await;
        Ok(())
    }

    /// Makes up to `n_calls` calls, and starts none after `until` except the first of each worker.
    async fn batch(&self, target: &CallTarget, n_calls: usize, until: Option<Instant>) -> CallBatch {
        let n_left = Cell::new(n_calls);
        let batch = Mutex::new(CallBatch::default());
        let (started_at, used_before) = (Instant::now(), processor_time());
        let workers = (0..self.plan.concurrency).map(|_| async {
            while n_left.get() > 0 {
                n_left.set(n_left.get() - 1);
                let called_at = Instant::now();
                let outcome = self.call(target).await;
                batch.lock().add(called_at.elapsed(), outcome);
                if until.is_some_and(|until| Instant::now() >= until) {
                    return;
                }
            }
        });
        join_all(workers).await;
        let elapsed = started_at.elapsed();
        // The gateway records calls in the background, which is part of their cost.
        self.runtime.flush_call_log().await;
        let used = processor_time().zip(used_before).map(|(after, before)| after.saturating_sub(before));
        let mut batch = batch.into_inner();
        batch.elapsed = elapsed;
        batch.processor_time = used;
        batch
    }

    async fn call(&self, target: &CallTarget) -> Result<(), String> {
        let limit = self.plan.call_timeout;
        let elapsed = |_| Err(format!("no answer within {}", HumanDuration::from(limit)));
        time::timeout(limit, target.call()).await.unwrap_or_else(elapsed)
    }

    async fn direct_calls(&self, backend: &mut Option<Box<dyn Backend>>) -> Result<CallTarget, CliError> {
        let (connector, tool) = match &self.direct {
            DirectTarget::Server { connector, tool } => (connector, tool),
            DirectTarget::Handler(call) => return Ok(CallTarget::Handler(Arc::clone(call))),
        };
        let handshake = HandshakeOptions {
            receiver: Arc::new(RejectingReceiver),
            options: client_options(self.plan.call_timeout),
            log: ServerLog::default(),
            message_limits: MessageLimits::default(),
        };
        let unavailable = |why: String| {
            CliError::from_kind(ErrorKind::ServerUnavailable, format!("cannot connect to the server: {why}"))
        };
        let connection =
            connector.connect(handshake).await.map_err(|error| unavailable(error.to_string()))?;
        *backend = connection.backend;
        CallTarget::of(connection.client, tool, &self.arguments, unavailable).await
    }

    async fn gateway_calls(&self) -> Result<CallTarget, CliError> {
        let unavailable = |why: String| {
            CliError::from_kind(ErrorKind::InternalError, format!("cannot connect to the gateway: {why}"))
        };
        let Ok(url) = self.url.parse() else { return Err(unavailable(format!("invalid URL {}", self.url))) };
        let mut http = HttpOptions::new(url);
        if let Some(token) = &self.token {
            let header = HeaderValue::try_from(format!("Bearer {}", token.reveal()));
            http.headers.extend(header.ok().map(|header| (AUTHORIZATION, header)));
        }
        let transport = connect(http).map_err(|error| unavailable(error.to_string()))?;
        let options = client_options(self.plan.call_timeout);
        let client = McpClient::connect(transport, Arc::new(RejectingReceiver), options).await;
        let client = client.map_err(|error| unavailable(error.to_string()))?;
        CallTarget::of(client, &self.listed_as, &self.arguments, unavailable).await
    }
}

/// A tool that can be called.
enum CallTarget {
    /// Through an MCP client, with the parameters of `tools/call`.
    Client {
        client: McpClient,
        params: RawJson,
    },
    Handler(Arc<ValidCall>),
}

impl CallTarget {
    /// Lists the tools, because the arguments of some are mirrored in headers.
    async fn of(
        client: McpClient,
        tool: &str,
        arguments: &RawJson,
        unavailable: impl Fn(String) -> CliError,
    ) -> Result<Self, CliError> {
        let tools = client.call("tools/list", None).await.map_err(|error| unavailable(error.to_string()))?;
        client.register_tools(&tools);
        let params = RawJson::from(json!({"name": tool})).with("arguments", arguments);
        Ok(Self::Client { client, params })
    }

    /// Calls the tool; an error that it reports is an error, too.
    async fn call(&self) -> Result<(), String> {
        match self {
            Self::Client { client, params } => {
                let result = client.call("tools/call", Some(params.clone())).await;
                let result = result.map_err(|error| error.to_string())?;
                match result.get("isError") {
                    Some(is_error) if is_error.as_str() == "true" => Err(error_text(&result)),
                    _ => Ok(()),
                }
            }
            Self::Handler(call) => match call.run().await {
                Ok(output) if output.is_error() => Err(output.text().into_owned()),
                Ok(_) => Ok(()),
                Err(error) => Err(error.to_string()),
            },
        }
    }
}

fn error_text(result: &RawJson) -> String {
    let text = result.to_value()["content"][0]["text"].as_str().map(str::to_owned);
    text.unwrap_or_else(|| "the tool reported an error".to_owned())
}

fn client_options(handshake_timeout: Duration) -> ClientOptions {
    ClientOptions { handshake_timeout, ..ClientOptions::new("pegboard-bench", env!("CARGO_PKG_VERSION")) }
}

/// Returns the processor time of this process: of the client and the gateway, but not of servers.
#[cfg(unix)]
#[expect(clippy::unnecessary_wraps, reason = "not every platform has it")]
fn processor_time() -> Option<Duration> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Some(Duration::try_from(time).unwrap_or_default())
}

/// The processor time is not available on this platform.
#[cfg(not(unix))]
fn processor_time() -> Option<Duration> {
    None
}
