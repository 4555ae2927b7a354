//! `pegboard bench`: compares calls through Pegboard with direct calls, in one run.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use parking_lot::Mutex;
use pegboard::call::{CallContext, SchemaChecks, ValidCall};
use pegboard::config::{Configuration, ServerEntry};
use pegboard::duration::HumanDuration;
use pegboard::error::ErrorKind;
use pegboard::gateway::access::{self, TokenlessAccess};
use pegboard::gateway::serve;
use pegboard::id::{ServerName, ToolId, ToolboxName};
use pegboard::json::RawJson;
use pegboard::providers::mcp::{Connector, PoolOptions, ServerPool};
use pegboard::runtime::catalogue::CatalogueTool;
use pegboard::settings::mcp::ResolvedMcpServer;
use pegboard::telemetry::Telemetry;
use pegboard::wire::http::server::{self, HttpServerOptions};
use pegboard::wiring::App;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::time;

use super::call::{describe, unknown};
use super::serve::{shutdown_signal, supervisor};
use crate::api_client::{ApiClient, ToolView};
use crate::cli::arguments::{self, RawArguments};
use crate::cli::spinner::Spinner;
use crate::cli::{CliError, ExitReason, Globals, OutputFormat, notice, print};
use crate::paths::{self, ConfigSelection};
use crate::token_file::random_token;
use load::{DirectTarget, LoadPlan, LoadRun, LoadShape};
use report::{BenchReport, Comparison};

mod load;
mod report;

/// Default number of calls per side.
const DEFAULT_CALLS: usize = 1_000;
/// Time limit of a call without `--timeout`.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for the load to end after an interruption.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);
/// Interval of the progress bar.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);
/// Servers of tools that are made of other tools.
const COMPOSED: [&str; 2] = ["chain", "agent"];

/// Arguments of `pegboard bench`.
#[derive(Args)]
#[command(after_help = arguments::HELP)]
pub(crate) struct BenchArgs {
    /// Tool: toolbox/server/tool, or any unambiguous suffix of it
    tool: String,
    /// Arguments of the tool: k=v, k:=json, k=@file, '{…}', or - to read standard input
    #[arg(value_name = "ARGUMENT")]
    arguments: Vec<String>,
    /// Number of calls, direct and through Pegboard each [default: 1000]
    #[arg(long, short = 'n', value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    calls: Option<u32>,
    /// Run for this long instead of a number of calls: 10s, 1m
    #[arg(long, short = 't', value_name = "DURATION", conflicts_with = "calls")]
    duration: Option<HumanDuration>,
    /// Number of concurrent calls
    #[arg(long, short = 'c', value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1_024))]
    concurrency: u16,
    /// Call the tool even if it is not marked read-only or idempotent
    #[arg(long)]
    allow_writes: bool,
}

impl BenchArgs {
    pub(crate) async fn run(&self, globals: &Globals, telemetry: &Telemetry) -> Result<ExitCode, CliError> {
        let words = RawArguments::read(&self.arguments)?;
        let selection = ConfigSelection::from_globals(globals)?;
        let configuration = selection.require_trusted().await?;
        paths::print_problems(&configuration.get().problems);
        let servers = mcp_servers(configuration.get());
        let state = TemporaryState::create()?;
        let api = ApiClient::start(globals, Some(state.path().to_owned()), telemetry, configuration).await?;
        let done = self.run_with(globals, &api, &servers, words).await;
        // A second signal skips the shutdown.
        tokio::select! {
            () = api.close() => {}
            () = shutdown_signal() => {}
        }
        done
    }

    async fn run_with(
        &self,
        globals: &Globals,
        api: &ApiClient,
        servers: &McpServers,
        words: RawArguments,
    ) -> Result<ExitCode, CliError> {
        let app = api.app().expect("the gateway was started in this process");
        let spinner = Spinner::new(globals, &self.tool);
        let limit = globals.timeout.map_or(CALL_TIMEOUT, Duration::from);
        let finding = time::timeout(limit, describe(api, &self.tool));
        let view = tokio::select! {
            found = spinner.during(finding) => found.map_err(|_elapsed| no_answer(limit))?.map_err(unknown)?,
            () = shutdown_signal() => return Err(CliError::interrupted()),
        };
        self.check(&view)?;
        let arguments = coerce(words, &view)?;
        let tool = catalogue_tool(app, &view)?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.map_err(|error| CliError::system(format!("cannot listen: {error}")))?;
        let address = listener.local_addr().map_err(|error| CliError::system(error.to_string()))?;
        let options = HttpServerOptions::default();
        let application = serve::application(&app.gateway, None, &options);
        let application = application.map_err(|error| CliError::usage(error.to_string()))?;
        let token = random_token();
        let tokenless = TokenlessAccess::SameUser(application.clone());
        let application = access::restrict([(token.clone(), application)], tokenless, &options);
        let comparison = Arc::new(Mutex::new(Comparison::default()));
        let run = LoadRun {
            plan: LoadPlan { shape: self.shape(), concurrency: self.concurrency.into(), call_timeout: limit },
            direct: direct_target(servers, &tool, arguments.clone())?,
            url: format!("http://{address}/mcp/flat"),
            // Where it is not needed, it would be measured as well.
            token: (!server::can_identify_users()).then_some(token),
            listed_as: tool.flat_name.to_string(),
            arguments,
            runtime: app.runtime.clone(),
            comparison: Arc::clone(&comparison),
        };
        let load = LoadThread::start(run);
        let serving = server::serve(listener, application);
        let is_interrupted = tokio::select! {
            ended = load.follow(&spinner, &comparison) => ended.map(|()| false)?,
            served = serving => {
                let error = served.err().map_or_else(String::new, |error| error.to_string());
                return Err(CliError::system(format!("the gateway stopped: {error}")));
            }
            () = shutdown_signal() => true,
        };
        let measured = std::mem::take(&mut *comparison.lock());
        if is_interrupted && measured.is_empty() {
            return Err(CliError::interrupted());
        }
        let report =
            BenchReport { tool: view.address, concurrency: self.concurrency, is_interrupted, measured };
        print::document(globals.format_or(OutputFormat::Text), &report.document(), || report.text());
        for line in report.failures() {
            notice(globals, &line);
        }
        Ok(match (is_interrupted, report.has_failures()) {
            (true, _) => ExitReason::Interrupted.into(),
            (false, true) => ExitReason::Failed.into(),
            (false, false) => ExitCode::SUCCESS,
        })
    }

    /// Refuses tools that must not be called many times, or that have nothing to be compared with.
    fn check(&self, tool: &ToolView) -> Result<(), CliError> {
        if COMPOSED.contains(&tool.server.as_str()) {
            let message = format!("{} is made of other tools and has no server of its own", tool.address);
            return Err(CliError::usage(message).hint("measure one of the tools that it calls"));
        }
        let annotations = tool.annotations;
        let may_repeat = annotations.read_only == Some(true) || annotations.idempotent == Some(true);
        if may_repeat || self.allow_writes {
            return Ok(());
        }
        let message =
            format!("{} is not marked read-only or idempotent, and would be called many times", tool.address);
        Err(CliError::usage(message).hint("add --allow-writes if repeated calls do no harm"))
    }

    fn shape(&self) -> LoadShape {
        match (self.duration, self.calls) {
            (Some(duration), _) => LoadShape::Duration(duration.into()),
            (None, calls) => LoadShape::Calls(calls.map_or(DEFAULT_CALLS, |calls| calls as usize)),
        }
    }
}

/// Settings of the MCP servers, by toolbox and name.
type McpServers = HashMap<(ToolboxName, ServerName), ResolvedMcpServer>;

fn mcp_servers(configuration: &Configuration) -> McpServers {
    let toolboxes = configuration.toolboxes.iter();
    let servers = toolboxes.flat_map(|(name, toolbox)| {
        toolbox.servers.iter().filter_map(move |(server, entry)| match entry {
            ServerEntry::Mcp { connection, .. } => {
                Some(((name.clone(), server.clone()), (**connection).clone()))
            }
            ServerEntry::OpenApi { .. } | ServerEntry::Unusable(_) => None,
        })
    });
    servers.collect()
}

fn coerce(words: RawArguments, tool: &ToolView) -> Result<RawJson, CliError> {
    if let Some(arguments) = words.as_json() {
        return Ok(arguments);
    }
    let schema = tool.input_schema.as_ref().unwrap_or(&Value::Null);
    let arguments = words.coerce(schema).map_err(|failure| failure.detail(&tool.signature))?;
    Ok(RawJson::from(Value::Object(arguments)))
}

fn catalogue_tool(app: &App, view: &ToolView) -> Result<Arc<CatalogueTool>, CliError> {
    let snapshot = app.runtime.catalogue();
    let is_it = |id: &ToolId| {
        id.toolbox.as_str() == view.toolbox
            && id.server.as_str() == view.server
            && id.name.as_str() == view.name
    };
    let found = snapshot.tools().iter().find(|tool| is_it(&tool.id)).cloned();
    found.ok_or_else(|| CliError::from_kind(ErrorKind::UnknownTool, format!("no tool {}", view.address)))
}

/// Returns the way to call a tool without Pegboard: a connection of its own to the MCP server, or else the
/// tool's handler.
fn direct_target(
    servers: &McpServers,
    tool: &CatalogueTool,
    arguments: RawJson,
) -> Result<DirectTarget, CliError> {
    if let Some(connection) = servers.get(&(tool.id.toolbox.clone(), tool.id.server.clone())) {
        let connector = connector(connection)?;
        return Ok(DirectTarget::Server { connector, tool: tool.id.name.to_string() });
    }
    let call = ValidCall::admit(
        Arc::clone(&tool.entry),
        arguments.into(),
        CallContext::default(),
        SchemaChecks::default(),
    );
    let call = call.map_err(|error| CliError::from_kind(error.kind(), error.to_string()))?;
    Ok(DirectTarget::Handler(Arc::new(call)))
}

fn connector(connection: &ResolvedMcpServer) -> Result<Arc<dyn Connector>, CliError> {
    let pool = ServerPool::new(PoolOptions { supervisor: supervisor(), ..PoolOptions::default() });
    pool.connector(connection).map_err(|error| CliError::configuration(error.to_string()))
}

fn no_answer(limit: Duration) -> CliError {
    let message = format!("no answer within {}", HumanDuration::from(limit));
    CliError::from_kind(ErrorKind::Timeout, message).hint("increase it with --timeout")
}

/// Thread that makes the calls, so that they do not compete with the gateway. Dropping it stops the load and
/// waits for a moment.
struct LoadThread {
    ended: oneshot::Receiver<Result<(), CliError>>,
    /// Stops the load when dropped.
    _stop: oneshot::Sender<()>,
}

impl LoadThread {
    fn start(run: LoadRun) -> Self {
        let (end, ended) = oneshot::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let done = match runtime {
                Ok(runtime) => {
                    let done = runtime.block_on(run.run(stopped));
                    runtime.shutdown_timeout(STOP_TIMEOUT);
                    done
                }
                Err(error) => Err(CliError::system(format!("cannot start the async runtime: {error}"))),
            };
            // The command may have ended.
            let _ = end.send(done);
        });
        Self { ended, _stop: stop }
    }

    /// Waits for the end of the load, and shows its progress.
    async fn follow(mut self, spinner: &Spinner, comparison: &Mutex<Comparison>) -> Result<(), CliError> {
        let mut ticks = time::interval(PROGRESS_INTERVAL);
        let following = async {
            loop {
                tokio::select! {
                    ended = &mut self.ended => {
                        let lost = || CliError::new(ExitReason::Bug, "internal_error", "the load thread panicked");
                        return ended.unwrap_or_else(|_closed| Err(lost()));
                    }
                    _ = ticks.tick() => {
                        let (done, total) = comparison.lock().progress();
                        spinner.set_progress(done, total);
                    }
                }
            }
        };
        spinner.during(following).await
    }
}

/// State directory of the measured gateway: its records must not mix with the user's. Removed when dropped.
struct TemporaryState(PathBuf);

impl TemporaryState {
    fn create() -> Result<Self, CliError> {
        let path = std::env::temp_dir().join(format!("pegboard-bench-{}", std::process::id()));
        let failed = |error| CliError::system(format!("cannot create {}: {error}", path.display()));
        std::fs::create_dir_all(&path).map_err(failed)?;
        Ok(Self(path))
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TemporaryState {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
