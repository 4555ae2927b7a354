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
use axum::Router;
use clap::Args;
use pegboard::gateway::api::{self, Api, ApiScope, GatewayInfo};
use pegboard::gateway::{Gateway, serve, token};
use pegboard::providers::mcp::PoolOptions;
use pegboard::settings::mcp::Secret;
use pegboard::settings::{MAX_THREADS, RuntimeSettings};
use pegboard::telemetry::{Telemetry, TelemetryOptions};
use pegboard::wire::http::server::{HttpServerOptions, ServerThreads};
use pegboard::wiring::{App, AppOptions};
use tokio::net::TcpListener;

use crate::cli::{CliError, Globals};
use crate::onboarding::{self, FIRST_STEPS};
use crate::paths::{self, ConfigSelection};
use crate::run_with_telemetry_options;
use crate::trust::TrustedConfiguration;
use approval::{ReloadRequests, TerminalAnswers};
use reload::{ConfigWatcher, ReloadSignal, ReloadTriggers, WatchMode};
use server_reports::{ReportVerbosity, ServerReporter};
#[cfg(unix)]
use socket::LocalSocket;
use stdout_closed::stdout_closed;

mod approval;
mod reload;
mod server_reports;
mod sigusr1;
#[cfg(unix)]
mod socket;
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
        let configuration = selection.read_trusted()?;
        watcher.started(&configuration);
        paths::print_problems(configuration.get());
        let (telemetry, settings) = (&configuration.get().telemetry, &configuration.get().settings);
        let options = TelemetryOptions::from_settings(telemetry, settings, DEFAULT_LOG_FILTER);
        run_with_telemetry_options(globals, options, async |telemetry| {
            self.serve(globals, telemetry, configuration, watcher).await
        })
    }

    async fn serve(
        &self,
        globals: &Globals,
        telemetry: &Telemetry,
        configuration: TrustedConfiguration,
        mut watcher: ConfigWatcher,
    ) -> Result<ExitCode, CliError> {
        let (reload_route, triggers) = self.reload_triggers(globals);
        let tokens = self.tokens()?;
        let listener = if self.stdio { None } else { Some(self.listen(&tokens).await?) };
        let threads = ServerThreads::new(self.n_threads(&configuration.get().settings));
        let servers = PoolOptions { supervisor: supervisor() };
        let state = paths::state_dir(globals.state.as_deref());
        let options = AppOptions { state: state.clone(), servers, fallback: Some(onboarding::toolbox()) };
        let app = configuration.start(options, telemetry).await?;
        let address = listener.as_ref().map(TcpListener::local_addr).transpose();
        let address = address.map_err(|error| CliError::system(error.to_string()))?;
        let api = app.api(GatewayInfo {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            configuration: watcher.selection().paths(),
            addresses: address.iter().map(|address| format!("http://{address}/mcp")).collect(),
            pending: watcher.pending().clone(),
        });
        let serving = async {
            if let Some(listener) = listener {
                self.serve_http((&app, &api), &threads, listener, tokens).await
            } else {
                tokio::select! {
                    served = serve::stdio(&app.gateway, self.profile.as_deref()) => {
                        served.map_err(|error| CliError::usage(error.to_string()))
                    }
                    // Calls of the client end with it.
                    () = stdout_closed() => Ok(()),
                }
            }
        };
        // The parent process may show stderr to its user, so only failures are printed.
        let verbosity =
            if self.stdio || globals.quiet { ReportVerbosity::FailuresOnly } else { ReportVerbosity::All };
        let mut reports = ServerReporter::new(&app.runtime, verbosity);
        let served = tokio::select! {
            served = until_shutdown(serving) => served,
            never = reports.follow() => match never {},
            () = watcher.run(triggers, &app, self.profile.as_deref(), telemetry) => Ok(()),
            () = sigusr1::report_on_signal(&app, &threads) => Ok(()),
            () = serve_local_api(&api, state.as_deref(), reload_route) => Ok(()),
        };
        // A second signal skips the shutdown.
        tokio::select! {
            _ = app.runtime.shut_down(GRACE) => {}
            () = shutdown_signal() => {}
        }
        // Calls in flight were still served on their threads.
        drop(threads);
        served.map(|()| ExitCode::SUCCESS)
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

    async fn listen(&self, tokens: &BTreeMap<String, Secret>) -> Result<TcpListener, CliError> {
        if !self.http.ip().is_loopback() && tokens.is_empty() {
            return Err(CliError::usage(format!("refusing to listen on {} without a token", self.http))
                .hint("set --token-env, or use a loopback address such as 127.0.0.1"));
        }
        TcpListener::bind(self.http).await.map_err(|error| {
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
        let mut options = HttpServerOptions::default();
        if !tokens.is_empty() {
            // A client with a token is not a web page using DNS rebinding.
            options.allowed_hosts.push("*".to_owned());
        }
        let system = |error: io::Error| CliError::system(error.to_string());
        let application = |gateway: &Gateway, scope: ApiScope| {
            let clients = serve::application(gateway, self.profile.as_deref(), &options);
            let clients = clients.map_err(|error| CliError::usage(error.to_string()))?;
            Ok::<_, CliError>(clients.merge(api::router(api, scope, &options)))
        };
        let application = if tokens.is_empty() {
            application(&app.gateway, ApiScope::All)?
        } else {
            let applications = tokens.into_iter();
            let applications = applications.map(|(name, token)| {
                Ok((token, application(&app.gateway.for_principal(&name), ApiScope::Principal(name))?))
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

/// Serves the API, and further routes, on the local socket while it is polled. Never completes.
#[cfg(unix)]
pub(crate) async fn serve_local_api(api: &Api, state: Option<&Path>, more: Router) {
    if let Some(state) = state {
        let routes = api::router(api, ApiScope::All, &HttpServerOptions::default()).merge(more);
        let served = match LocalSocket::open(&paths::socket_dir(state)) {
            Ok(socket) => socket.serve(routes).await,
            Err(error) => Err(error),
        };
        if let Err(error) = served {
            tracing::warn!("Commands cannot reach this gateway: cannot open the local socket: {error}");
        }
    }
    std::future::pending::<()>().await;
}

/// There is no local socket on this platform.
#[cfg(not(unix))]
pub(crate) async fn serve_local_api(_api: &Api, _state: Option<&Path>, _more: Router) {
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
