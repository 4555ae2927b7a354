//! `pegboard serve`: serves a configuration to clients.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::future::Future;
use std::io::{self, IsTerminal};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anstream::eprintln;
use clap::Args;
use pegboard::config::Configuration;
use pegboard::gateway::api::{self, Api, ApiScope, GatewayInfo};
use pegboard::gateway::{Gateway, serve, token};
use pegboard::providers::mcp::PoolOptions;
use pegboard::runtime::event::{NotificationDropReason, RuntimeEvent};
use pegboard::settings::mcp::Secret;
use pegboard::settings::{MAX_THREADS, RuntimeSettings};
use pegboard::telemetry::{Telemetry, TelemetryOptions};
use pegboard::wire::http;
use pegboard::wire::http::server::{
    DroppedNotifications, EventMemory, HttpServerOptions, NotificationLoss, ServerThreads,
};
use pegboard::wiring::{self, App, AppOptions};
use tokio::net::TcpListener;

use crate::cli::{CliError, Globals};
use crate::onboarding::{self, FIRST_STEPS};
use crate::paths::{self, ConfigSelection};
use crate::run_with_telemetry_options;
use reload::{ConfigWatcher, ReloadSignal, WatchMode};
use server_reports::{ReportVerbosity, ServerReporter};
#[cfg(unix)]
use socket::LocalSocket;
use stdio_client::StdioClient;

mod reload;
mod server_reports;
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
    #[arg(long, conflicts_with_all = ["http", "token_env", "threads"])]
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
    /// Number of threads that serve HTTP clients; as many as there are cores by default
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_THREADS)))]
    threads: Option<u16>,
    /// Do not reload the configuration when its files change
    #[arg(long)]
    no_watch: bool,
}

impl ServeArgs {
    pub(crate) fn run(self, globals: &Globals) -> Result<ExitCode, CliError> {
        let selection = ConfigSelection::with_sources(globals, &self.sources, &self.command)?;
        let selection = selection.in_toolbox(self.toolbox.clone());
        // Created before the configuration is read, so that no change is missed.
        let mut watcher = ConfigWatcher::new(
            selection.clone(),
            if self.no_watch { WatchMode::Disabled } else { WatchMode::Enabled },
        );
        let configuration = selection.read()?;
        watcher.watch_references(&configuration);
        paths::print_problems(&configuration);
        let options = TelemetryOptions::from_settings(
            &configuration.telemetry,
            &configuration.settings,
            DEFAULT_LOG_FILTER,
        );
        run_with_telemetry_options(globals, options, async |telemetry| {
            self.serve(globals, telemetry, configuration, watcher).await
        })
    }

    async fn serve(
        &self,
        globals: &Globals,
        telemetry: &Telemetry,
        configuration: Configuration,
        mut watcher: ConfigWatcher,
    ) -> Result<ExitCode, CliError> {
        let signal = ReloadSignal::listen();
        let tokens = self.tokens()?;
        let listener = if self.stdio { None } else { Some(self.listen(&tokens)?) };
        let threads = ServerThreads::new(self.n_threads(&configuration.settings));
        let servers = PoolOptions { supervisor: supervisor() };
        let state = paths::state_dir(globals.state.as_deref());
        let options = AppOptions { state: state.clone(), servers, fallback: Some(onboarding::toolbox()) };
        let app = wiring::start(configuration, options, telemetry)
            .await
            .map_err(|error| CliError::configuration(error.to_string()))?;
        let address = listener.as_ref().map(TcpListener::local_addr).transpose();
        let address = address.map_err(|error| CliError::system(error.to_string()))?;
        let api = app.api(GatewayInfo {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            configuration: watcher.selection().paths(),
            addresses: address.iter().map(|address| format!("http://{address}/mcp")).collect(),
        });
        // Runs in a task, so that calls in flight are answered during the shutdown.
        let mut stdio = self.stdio.then(|| StdioClient::serve(&app.gateway, self.profile.clone()));
        let serving = async {
            match (listener, &mut stdio) {
                (Some(listener), _) => self.serve_http((&app, &api), &threads, listener, tokens).await,
                (None, Some(stdio)) => stdio.served().await,
                (None, None) => Ok(()),
            }
        };
        // The parent process may show stderr to its user, so only failures are printed.
        let verbosity =
            if self.stdio || globals.quiet { ReportVerbosity::FailuresOnly } else { ReportVerbosity::All };
        let mut reports = ServerReporter::new(&app.runtime, verbosity);
        let served = tokio::select! {
            served = until_shutdown(serving) => served,
            never = reports.follow() => match never {},
            () = watcher.run(signal, &app, self.profile.as_deref(), telemetry) => Ok(()),
            () = sigusr1::report_on_signal(&app, &threads) => Ok(()),
            () = serve_local_api(&api, state.as_deref()) => Ok(()),
        };
        let shutting_down = async {
            app.runtime.shut_down(GRACE).await;
            if let Some(stdio) = stdio {
                stdio.close().await;
            }
        };
        // A second signal skips the shutdown.
        tokio::select! {
            () = shutting_down => {}
            () = shutdown_signal() => {}
        }
        // Calls in flight were still served on their threads.
        drop(threads);
        served.map(|()| ExitCode::SUCCESS)
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

    /// Tokens by the name of their variable.
    fn tokens(&self) -> Result<BTreeMap<String, Secret>, CliError> {
        let mut tokens = BTreeMap::new();
        for variable in &self.token_env {
            let token = std::env::var(variable).unwrap_or_default();
            if token.trim().is_empty() {
                return Err(CliError::usage(format!("--token-env: {variable} is not set"))
                    .hint("set it to the token that clients must send"));
            }
            let token = Secret::new(token.trim());
            if let Some((other, _)) = tokens.iter().find(|(_, known)| **known == token) {
                return Err(CliError::usage(format!(
                    "--token-env: {variable} and {other} have the same token"
                ))
                .hint("use a different token for each"));
            }
            tokens.insert(variable.clone(), token);
        }
        Ok(tokens)
    }

    fn listen(&self, tokens: &BTreeMap<String, Secret>) -> Result<TcpListener, CliError> {
        if !self.http.ip().is_loopback() && tokens.is_empty() {
            return Err(CliError::usage(format!("refusing to listen on {} without a token", self.http))
                .hint("set --token-env, or use a loopback address such as 127.0.0.1"));
        }
        http::server::listen(self.http).map_err(|error| {
            let failure = CliError::system(format!("cannot listen on {}: {error}", self.http));
            match error.kind() {
                io::ErrorKind::AddrInUse => failure.hint("the port is in use; choose another with --http"),
                _ => failure,
            }
        })
    }

    async fn serve_http(
        &self,
        (app, api): (&App, &Api),
        threads: &ServerThreads,
        listener: TcpListener,
        tokens: BTreeMap<String, Secret>,
    ) -> Result<(), CliError> {
        let events = app.runtime.events().clone();
        let event_memory = EventMemory::new(EventMemory::DEFAULT_BYTES, move |dropped| {
            events.emit(|| dropped_notifications(dropped));
        });
        let mut options = HttpServerOptions { event_memory, ..HttpServerOptions::default() };
        if !tokens.is_empty() {
            // A client with a token is not a web page using DNS rebinding.
            options.allowed_hosts.push("*".to_owned());
        }
        let system = |error: io::Error| CliError::system(error.to_string());
        let application = |gateway: &Gateway, scope: ApiScope, options: &HttpServerOptions| {
            let clients = serve::application(gateway, self.profile.as_deref(), options);
            let clients = clients.map_err(|error| CliError::usage(error.to_string()))?;
            Ok::<_, CliError>(clients.merge(api::router(api, scope, options)))
        };
        let application = if tokens.is_empty() {
            application(&app.gateway, ApiScope::All, &options)?
        } else {
            let applications = tokens.into_iter();
            let applications = applications.map(|(name, token)| {
                let event_memory = options.event_memory.part(EventMemory::PRINCIPAL_BYTES);
                let options = HttpServerOptions { event_memory, ..options.clone() };
                let gateway = app.gateway.for_principal(&name);
                Ok((token, application(&gateway, ApiScope::Principal(name), &options)?))
            });
            token::require_token(applications.collect::<Result<Vec<_>, CliError>>()?)
        };
        let address = listener.local_addr().map_err(system)?;
        eprintln!("Ready  MCP http://{address}/mcp");
        if app.is_fallback_only() {
            eprintln!("No configuration found; serving a toolbox with the first steps:\n{FIRST_STEPS}");
        }
        threads.serve(listener, application).await.map_err(system)
    }
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

/// Serves the API on the local socket while it is polled. Never completes.
#[cfg(unix)]
pub(crate) async fn serve_local_api(api: &Api, state: Option<&Path>) {
    if let Some(state) = state {
        let routes = api::router(api, ApiScope::All, &HttpServerOptions::default());
        match LocalSocket::open(&paths::socket_dir(state)) {
            Ok(socket) => match socket.serve(routes).await {},
            Err(error) => {
                tracing::warn!("Commands cannot reach this gateway: cannot open the local socket: {error}");
            }
        }
    }
    std::future::pending::<()>().await;
}

/// There is no local socket on this platform.
#[cfg(not(unix))]
pub(crate) async fn serve_local_api(_api: &Api, _state: Option<&Path>) {
    std::future::pending::<()>().await;
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

/// Runs `work` until it completes or a shutdown signal arrives.
async fn until_shutdown(work: impl Future<Output = Result<(), CliError>>) -> Result<(), CliError> {
    tokio::select! {
        result = work => result,
        () = shutdown_signal() => Ok(()),
    }
}

/// Waits for a shutdown signal.
#[cfg(unix)]
pub(crate) async fn shutdown_signal() {
    use tokio::signal::unix::{SignalKind, signal};

    let wait = async |kind| match signal(kind) {
        Ok(mut signal) => {
            signal.recv().await;
        }
        // The signal then terminates the process by default.
        Err(_) => std::future::pending().await,
    };
    tokio::select! {
        () = wait(SignalKind::interrupt()) => {}
        () = wait(SignalKind::terminate()) => {}
        // Without a terminal, SIGHUP means reload.
        () = wait(SignalKind::hangup()), if io::stdin().is_terminal() => {}
    }
}

/// Waits for a shutdown signal.
#[cfg(not(unix))]
pub(crate) async fn shutdown_signal() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}
