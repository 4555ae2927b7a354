//! `pegboard serve`: serves a configuration to clients.

use std::convert::Infallible;
use std::ffi::OsString;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use axum::Router;
use clap::Args;
use pegboard::gateway::api::{self, Api, ApiScope, GatewayInfo};
use pegboard::gateway::serve;
use pegboard::providers::mcp::PoolOptions;
use pegboard::runtime::event::{NotificationDropReason, RuntimeEvent};
use pegboard::settings::gateway::GatewaySettings;
use pegboard::settings::{MAX_THREADS, RuntimeSettings};
use pegboard::telemetry::{Telemetry, TelemetryOptions, write_stderr};
use pegboard::wire::http;
use pegboard::wire::http::server::{
    DroppedNotifications, EventMemory, HttpServerOptions, NotificationLoss, ServerThreads,
};
use pegboard::wire::server::ResponseMemory;
use pegboard::wiring::{App, AppOptions};
use tokio::net::TcpSocket;

use crate::cli::{CliError, Globals};
use crate::logins;
use crate::onboarding::{self, FIRST_STEPS};
use crate::paths::{self, ConfigSelection};
use crate::run_with_telemetry_options;
use crate::trust::TrustedConfiguration;
use access::{AdmittedClients, server_options};
use activity::Activity;
use approval::{ReloadRequests, TerminalAnswers};
#[cfg(unix)]
use claim::GatewayClaim;
use claim_error::ClaimError;
use control::{ControlRequests, ServeEnd};
#[cfg(not(unix))]
use no_claim::UnsharedClaim as GatewayClaim;
use reload::{ConfigWatcher, ReloadSignal, ReloadTriggers, WatchMode};
use server_reports::{ReportVerbosity, ServerReporter};
use shutdown::ShutdownSignals;
pub(crate) use shutdown::shutdown_signal;
#[cfg(unix)]
use socket::LocalSocket;
use stdio_client::StdioClient;

pub(crate) mod access;
pub(crate) mod activity;
mod approval;
#[cfg(unix)]
mod attached;
#[cfg(unix)]
mod attachment;
#[cfg(unix)]
pub(crate) mod background;
#[cfg(unix)]
mod claim;
mod claim_error;
mod control;
#[cfg(unix)]
mod gateway_lock;
#[cfg(unix)]
pub(crate) mod last_logs;
#[cfg(unix)]
pub(crate) mod log_file;
#[cfg(not(unix))]
mod no_claim;
#[cfg(unix)]
mod pass_through;
#[cfg(target_os = "linux")]
mod program_pages;
mod reload;
mod server_reports;
mod server_table;
mod shutdown;
mod sigusr1;
#[cfg(unix)]
mod socket;
mod stdio_client;
mod stdout_closed;

/// Default listen address.
pub(crate) const DEFAULT_ADDRESS: &str = "127.0.0.1:7332";
/// Default log filter. Server states have their own report, so their events are not logged.
const DEFAULT_LOG_FILTER: &str = "pegboard::server=error,warn";
/// Grace period for calls in flight at shutdown.
const GRACE: Duration = Duration::from_secs(5);

/// Arguments of `pegboard serve`.
#[derive(Args)]
pub(crate) struct ServeArgs {
    #[arg(
        value_name = "SOURCE",
        help = "Sources to serve: files, directories, clients such as cursor or cursor:weather, or URLs; \
                by default the file in WORKBENCH_CONFIG, or the pegboard.yaml of the project"
    )]
    sources: Vec<PathBuf>,
    /// Command and arguments of an additional server
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
    /// Toolbox for entries without one
    #[arg(long, value_name = "NAME")]
    toolbox: Option<String>,
    /// Serve the parent process over stdin and stdout
    #[arg(long, conflicts_with_all = ["http", "token_env", "open", "threads"])]
    stdio: bool,
    /// Listen on this address for HTTP clients; port 0 picks a free port
    #[arg(long, value_name = "ADDRESS", default_value = DEFAULT_ADDRESS)]
    http: SocketAddr,
    /// Default profile of clients: meta, flat, agent, hybrid, auto, or one from the configuration
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// Environment variable with the token that HTTP clients must send; repeat it to separate the sessions of
    /// several clients
    #[arg(long, value_name = "VARIABLE")]
    token_env: Vec<String>,
    /// Serve every user of this machine without a token
    #[arg(long, conflicts_with = "token_env")]
    open: bool,
    /// Number of threads that serve HTTP clients; as many as there are cores by default
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_THREADS)))]
    threads: Option<u16>,
    /// Do not reload the configuration when its files change
    #[arg(long)]
    no_watch: bool,
    /// Serve clients over stdio only, until none is left; started by this client
    #[arg(long, value_name = "CLIENT", hide = true, conflicts_with = "stdio")]
    background: Option<String>,
}

impl ServeArgs {
    pub(crate) fn run(self, globals: &Globals) -> Result<ExitCode, CliError> {
        let selection = ConfigSelection::with_sources(globals, &self.sources, &self.command)?;
        let selection = selection.in_toolbox(self.toolbox.clone());
        #[cfg(unix)]
        if self.stdio
            && let Some(code) = pass_through::run(&self, globals, &selection)?
        {
            return Ok(code);
        }
        let mut watcher = self.watcher(&selection);
        let mut configuration = selection.read_trusted()?;
        watcher.started(&configuration);
        let (telemetry, settings) = (&configuration.get().telemetry, &configuration.get().settings);
        let options = TelemetryOptions::from_settings(telemetry, settings, DEFAULT_LOG_FILTER);
        run_with_telemetry_options(globals, options, async |telemetry| {
            let taken = GatewayClaim::take(&self, globals, &selection, configuration.get()).await;
            let mut claim = match taken {
                Ok(claim) => claim,
                Err(ClaimError::InUse(gateway)) => return gateway.offer(globals),
                Err(ClaimError::Failed(failure)) => return Err(failure),
            };
            let mut signals = ShutdownSignals::listen();
            loop {
                let loaded = (configuration, watcher);
                let serving = self.serve(globals, telemetry, (&mut claim, &mut signals), loaded);
                match Box::pin(serving).await? {
                    ServeEnd::Stop => return Ok(ExitCode::SUCCESS),
                    ServeEnd::Restart => write_stderr("Restarting"),
                }
                watcher = self.watcher(&selection);
                let again = selection.clone();
                configuration = tokio::select! {
                    configuration = paths::unblocked(move || again.read_trusted()) => configuration?,
                    () = signals.next() => return Ok(ExitCode::SUCCESS),
                };
                watcher.started(&configuration);
            }
        })
    }

    /// Watches the configuration. Created before it is read, so that no change is missed.
    fn watcher(&self, selection: &ConfigSelection) -> ConfigWatcher {
        let mode = if self.no_watch { WatchMode::Disabled } else { WatchMode::Enabled };
        ConfigWatcher::new(selection.clone(), mode)
    }

    async fn serve(
        &self,
        globals: &Globals,
        telemetry: &Telemetry,
        (claim, signals): (&mut GatewayClaim, &mut ShutdownSignals),
        (configuration, mut watcher): (TrustedConfiguration, ConfigWatcher),
    ) -> Result<ServeEnd, CliError> {
        let (reload_route, triggers) = self.reload_triggers(globals);
        let (control_routes, mut control) = ControlRequests::new(watcher.selection());
        let state = paths::state_dir(globals.state.as_deref());
        let http = self.http_front(&configuration.get().gateway, state.as_deref())?;
        let threads = ServerThreads::new(self.n_threads(&configuration.get().settings));
        let app = configuration.start(app_options(state.as_deref())?, telemetry).await?;
        let address = http.as_ref().map(|http| http.port.local_addr()).transpose();
        let address = address.map_err(|error| CliError::system(error.to_string()))?;
        let files = watcher.selection().files();
        let api = app.api(GatewayInfo {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            configuration: files.all,
            settings_only: files.settings_only,
            addresses: address.iter().map(|address| format!("http://{address}/mcp")).collect(),
            credential: http.as_ref().map(|http| http.access.credential()).unwrap_or_default(),
            pending: watcher.pending().clone(),
            mode: claim.mode(),
            log: claim.log(),
            clients: claim.list(),
        });
        let routes = reload_route.merge(control_routes).merge(claim.route(&app.gateway));
        // Opened before the port, so that commands find every gateway that clients can reach.
        let local_socket = open_local_socket(state.as_deref());
        claim.publish();
        // Runs in a task, so that calls in flight are answered during the shutdown.
        let mut stdio = self.stdio.then(|| StdioClient::serve(&app.gateway, self.profile.clone()));
        let serving = async {
            match (http, &mut stdio) {
                (Some(http), _) => self.serve_http((&app, &api), &threads, http).await,
                (None, Some(stdio)) => stdio.served().await,
                (None, None) => std::future::pending().await,
            }
        };
        // The parent process may show stderr to its user, so only failures are printed.
        let verbosity =
            if self.stdio || globals.quiet { ReportVerbosity::FailuresOnly } else { ReportVerbosity::All };
        let mut reports = ServerReporter::new(&app.runtime, verbosity);
        let stop = Ok(ServeEnd::Stop);
        let end = tokio::select! {
            served = until_shutdown(signals, serving) => served.map(|()| ServeEnd::Stop),
            never = reports.follow() => match never {},
            () = watcher.run(triggers, &app, self.profile.as_deref()) => stop,
            () = sigusr1::report_on_signal(&app, &threads) => stop,
            () = serve_local_api(&api, local_socket, routes, claim.activity()) => stop,
            () = claim.idle(&app.runtime) => stop,
            never = unmap_program_pages() => match never {},
            end = control.next() => Ok(end),
        };
        claim.save_logs(&app.runtime);
        if !matches!(end, Ok(ServeEnd::Restart)) {
            claim.release();
        }
        shut_down(&app, stdio, claim, signals).await;
        // Calls in flight were still served on their threads.
        drop(threads);
        end
    }

    /// Reserves the port for HTTP clients, if the gateway serves them.
    fn http_front(
        &self,
        settings: &GatewaySettings,
        state: Option<&Path>,
    ) -> Result<Option<HttpFront>, CliError> {
        if self.stdio || self.background.is_some() {
            return Ok(None);
        }
        let access = self.access(state)?;
        Ok(Some(HttpFront { port: self.reserve_port()?, access, settings: settings.clone() }))
    }

    /// Returns the ways in which the user reloads the configuration, and the route of one of them.
    fn reload_triggers(&self, globals: &Globals) -> (Router, ReloadTriggers) {
        let (route, requests) = ReloadRequests::new();
        let may_ask = !self.stdio && !globals.no_input;
        let terminal = if may_ask { TerminalAnswers::detect() } else { TerminalAnswers::none() };
        (route, ReloadTriggers { signal: ReloadSignal::listen(), requests, terminal })
    }

    /// Returns the number of threads: that of the option, of the configuration, or of the cores that this process may
    /// use.
    fn n_threads(&self, settings: &RuntimeSettings) -> usize {
        match self.threads.or(settings.threads) {
            Some(n_threads) => n_threads.into(),
            None => {
                thread::available_parallelism().map_or(1, |n_cores| n_cores.get().min(MAX_THREADS.into()))
            }
        }
    }

    /// Clients that are admitted over HTTP.
    fn access(&self, state: Option<&Path>) -> Result<AdmittedClients, CliError> {
        if !self.http.ip().is_loopback() && self.token_env.is_empty() {
            return Err(CliError::usage(format!("refusing to listen on {} without a token", self.http))
                .hint("set --token-env, or use a loopback address such as 127.0.0.1"));
        }
        match (self.open, self.token_env.as_slice()) {
            (true, _) => Ok(AdmittedClients::Everyone),
            (false, []) => AdmittedClients::own_user(state),
            (false, variables) => AdmittedClients::from_variables(variables),
        }
    }

    /// Binds the port. Clients can connect only once it listens.
    fn reserve_port(&self) -> Result<TcpSocket, CliError> {
        http::server::bind(self.http).map_err(|error| self.listen_error(&error))
    }

    fn listen_error(&self, error: &io::Error) -> CliError {
        let failure = CliError::system(format!("cannot listen on {}: {error}", self.http));
        match error.kind() {
            io::ErrorKind::AddrInUse => failure.hint("the port is in use; choose another with --http"),
            _ => failure,
        }
    }

    async fn serve_http(
        &self,
        (app, api): (&App, &Api),
        threads: &ServerThreads,
        HttpFront { port, access, settings }: HttpFront,
    ) -> Result<(), CliError> {
        let system = |error: io::Error| CliError::system(error.to_string());
        let listener = port.listen(http::server::BACKLOG).map_err(|error| self.listen_error(&error))?;
        let address = listener.local_addr().map_err(system)?;
        let events = app.runtime.events().clone();
        let event_memory = EventMemory::new(EventMemory::DEFAULT_BYTES, move |dropped| {
            events.emit(|| dropped_notifications(dropped));
        });
        let options = HttpServerOptions { event_memory, ..server_options(address, &settings) };
        let application = access.restrict(&options, |principal| {
            let mut options = options.clone();
            let (gateway, scope) = match principal {
                Some(name) => {
                    options.event_memory = options.event_memory.part(EventMemory::PRINCIPAL_BYTES);
                    options.request_memory = options.request_memory.part(ResponseMemory::PRINCIPAL_BYTES);
                    (app.gateway.for_principal(name), ApiScope::Principal(name.to_owned()))
                }
                None => (app.gateway.clone(), ApiScope::All),
            };
            options.response_memory = gateway.response_memory().clone();
            let clients = serve::application(&gateway, self.profile.as_deref(), &options);
            let clients = clients.map_err(|error| CliError::usage(error.to_string()))?;
            Ok(clients.merge(api::router(api, scope, &options)))
        })?;
        if let Some(notice) = access.notice() {
            write_stderr(&notice);
        }
        write_stderr(&format!("Ready  MCP http://{address}/mcp"));
        if app.is_fallback_only() {
            write_stderr(&format!(
                "No configuration found; serving a toolbox with the first steps:\n{FIRST_STEPS}"
            ));
        }
        threads.serve(listener, application).await.map_err(system)
    }
}

/// Ends the calls in flight, then the clients over stdio. A second signal skips it.
async fn shut_down(
    app: &App,
    stdio: Option<StdioClient>,
    claim: &mut GatewayClaim,
    signals: &mut ShutdownSignals,
) {
    let shutting_down = async {
        app.runtime.shut_down(GRACE).await;
        if let Some(stdio) = stdio {
            stdio.close().await;
        }
        claim.close_clients().await;
    };
    tokio::select! {
        () = shutting_down => {}
        () = signals.next() => {}
    }
}

/// Port for HTTP clients, with the rules of access to it.
struct HttpFront {
    port: TcpSocket,
    access: AdmittedClients,
    settings: GatewaySettings,
}

/// Returns the event for notifications that a client did not read.
fn dropped_notifications(dropped: DroppedNotifications) -> RuntimeEvent {
    let DroppedNotifications { n_notifications, reason } = dropped;
    let reason = match reason {
        NotificationLoss::NoReader => NotificationDropReason::NoReader,
        NotificationLoss::SlowReader => NotificationDropReason::SlowReader,
    };
    RuntimeEvent::NotificationsDropped { n_notifications, reason }
}

/// Opens the local socket for commands, if there is a state directory.
#[cfg(unix)]
pub(crate) fn open_local_socket(state: Option<&Path>) -> Option<LocalSocket> {
    let opened = LocalSocket::open(&paths::socket_dir(state?));
    opened.inspect_err(warn_without_socket).ok()
}

/// Serves the API, and further routes, on the local socket while it is polled. Never completes.
#[cfg(unix)]
pub(crate) async fn serve_local_api(
    api: &Api,
    socket: Option<LocalSocket>,
    more: Router,
    activity: &Activity,
) {
    if let Some(socket) = socket {
        let routes = api::router(api, ApiScope::All, &HttpServerOptions::default()).merge(more);
        match socket.serve(routes, activity).await {}
    }
    std::future::pending::<()>().await;
}

#[cfg(unix)]
fn warn_without_socket(error: &io::Error) {
    tracing::warn!("Commands cannot reach this gateway: cannot open the local socket: {error}");
}

/// There is no local socket on this platform.
#[cfg(not(unix))]
type LocalSocket = std::convert::Infallible;

/// There is no local socket on this platform.
#[cfg(not(unix))]
pub(crate) fn open_local_socket(_state: Option<&Path>) -> Option<LocalSocket> {
    None
}

/// There is no local socket on this platform.
#[cfg(not(unix))]
pub(crate) async fn serve_local_api(
    _api: &Api,
    _socket: Option<LocalSocket>,
    _more: Router,
    _activity: &Activity,
) {
    std::future::pending::<()>().await;
}

/// Returns the options of a gateway with this state directory.
fn app_options(state: Option<&Path>) -> Result<AppOptions, CliError> {
    Ok(AppOptions {
        secrets: logins::key_storage(state)?,
        state: state.map(Path::to_owned),
        servers: PoolOptions { supervisor: supervisor(), ..PoolOptions::default() },
        fallback: Some(onboarding::toolbox()),
        ..AppOptions::default()
    })
}

/// Returns the supervisor that wraps child processes: this program with the `supervise` command.
#[cfg(unix)]
pub(crate) fn supervisor() -> Option<pegboard::providers::process::SupervisorCommand> {
    let program = std::env::current_exe().ok()?;
    Some(pegboard::providers::process::SupervisorCommand {
        program,
        arguments: vec![OsString::from("supervise")],
    })
}

/// Job objects take this role on this platform.
#[cfg(not(unix))]
pub(crate) fn supervisor() -> Option<pegboard::providers::process::SupervisorCommand> {
    None
}

/// Unmaps the pages of the program that only its start needs. Never completes.
#[cfg(target_os = "linux")]
async fn unmap_program_pages() -> Infallible {
    program_pages::unmap_after_start().await
}

/// The system does it on this platform, or not at all.
#[cfg(not(target_os = "linux"))]
async fn unmap_program_pages() -> Infallible {
    std::future::pending().await
}

/// Runs `work` until it completes or a shutdown signal arrives.
async fn until_shutdown(
    signals: &mut ShutdownSignals,
    work: impl Future<Output = Result<(), CliError>>,
) -> Result<(), CliError> {
    tokio::select! {
        result = work => result,
        () = signals.next() => Ok(()),
    }
}
