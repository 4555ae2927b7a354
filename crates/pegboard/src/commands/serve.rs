//! `pegboard serve`: a configuration, served to clients.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::future::Future;
use std::io::{self, IsTerminal};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anstream::eprintln;
use clap::Args;
use pegboard::config::Configuration;
use pegboard::gateway::api::{self, About, Api, Principal};
use pegboard::gateway::{Gateway, serve, token};
use pegboard::providers::mcp::PoolOptions;
use pegboard::settings::mcp::Secret;
use pegboard::telemetry::{Options, Telemetry};
use pegboard::wire::http::server::HttpServerOptions;
use pegboard::wiring::{self, Board, Surroundings};
use tokio::net::TcpListener;

use crate::cli::{Failure, Globals};
use crate::observed_with;
use crate::place::{self, Wanted};
use crate::welcome::{self, FIRST_STEPS};
use reload::{Calls, Reloading, Watching};
use reports::{Loudness, Reports};
#[cfg(unix)]
use socket::LocalSocket;
use unread::unread;

mod reload;
mod reports;
#[cfg(unix)]
mod socket;
mod status;
mod unread;

/// Where clients are waited for if nobody says so.
pub(crate) const USUAL_ADDRESS: &str = "127.0.0.1:7332";
/// What is logged if nobody says otherwise. How servers are is told in words of its own.
const USUALLY_LOGGED: &str = "pegboard::server=error,warn";
/// How long calls may take to end when everything does.
const GRACE: Duration = Duration::from_secs(5);

/// What is served, and where.
#[derive(Args)]
pub(crate) struct Serve {
    #[arg(
        value_name = "SOURCE",
        help = "What is served: files of ours or of clients, folders, clients such as cursor or cursor:weather, addresses; \
                without any the file that WORKBENCH_CONFIG names, or the pegboard.yaml of this folder"
    )]
    sources: Vec<PathBuf>,
    /// The command of one more server, and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
    /// The toolbox of what stands in none
    #[arg(long, value_name = "NAME")]
    toolbox: Option<String>,
    /// Serve the client that started this, over standard input and output
    #[arg(long, conflicts_with_all = ["http", "token_env"])]
    stdio: bool,
    /// Serve clients over HTTP at this address; port 0 takes any that is free
    #[arg(long, value_name = "ADDRESS", default_value = USUAL_ADDRESS)]
    http: SocketAddr,
    /// What clients see who ask for nothing else: meta, flat, agent, hybrid, auto, or one of the configuration
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// The variable that holds the token which clients over HTTP must show; more than one for clients that must not
    /// find each other's sessions
    #[arg(long, value_name = "VARIABLE")]
    token_env: Vec<String>,
    /// Do not read the configuration again when its file changes
    #[arg(long)]
    no_watch: bool,
}

impl Serve {
    pub(crate) fn run(self, globals: &Globals) -> Result<ExitCode, Failure> {
        let wanted = Wanted::with(globals, &self.sources, &self.command)?;
        let wanted = wanted.in_toolbox(self.toolbox.clone());
        // Before it is read, so that no change of it is missed.
        let mut reloading =
            Reloading::of(wanted.clone(), if self.no_watch { Watching::No } else { Watching::Yes });
        let configuration = wanted.read()?;
        reloading.follow(&configuration);
        place::tell_problems(&configuration);
        let options = Options::configured(&configuration.telemetry, &configuration.settings, USUALLY_LOGGED);
        observed_with(globals, options, async |telemetry| {
            self.serve(globals, telemetry, configuration, reloading).await
        })
    }

    async fn serve(
        &self,
        globals: &Globals,
        telemetry: &Telemetry,
        configuration: Configuration,
        mut reloading: Reloading,
    ) -> Result<ExitCode, Failure> {
        let calls = Calls::listen();
        let tokens = self.tokens()?;
        let listener = if self.stdio { None } else { Some(self.listen(&tokens).await?) };
        let servers = PoolOptions { supervisor: supervisor() };
        let state = place::state(globals.state.as_deref());
        let surroundings =
            Surroundings { state: state.clone(), servers, otherwise: Some(welcome::toolbox()) };
        let board = wiring::start(configuration, surroundings, telemetry)
            .await
            .map_err(|error| Failure::configuration(error.to_string()))?;
        let address = listener.as_ref().map(TcpListener::local_addr).transpose();
        let address = address.map_err(|error| Failure::system(error.to_string()))?;
        let api = board.api(About {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            configuration: reloading.wanted().paths(),
            addresses: address.iter().map(|address| format!("http://{address}/mcp")).collect(),
        });
        let serving = async {
            if let Some(listener) = listener {
                self.over_http(&board, &api, listener, tokens).await
            } else {
                tokio::select! {
                    served = serve::stdio(&board.gateway, self.profile.as_deref()) => {
                        served.map_err(|error| Failure::usage(error.to_string()))
                    }
                    // What the client asked for ends with it.
                    () = unread() => Ok(()),
                }
            }
        };
        // The client that started this reads only what goes wrong, if anything.
        let loudness = if self.stdio || globals.quiet { Loudness::Faults } else { Loudness::Usual };
        let mut reports = Reports::of(&board.runtime, loudness);
        let served = tokio::select! {
            served = until_told(serving) => served,
            never = reports.follow() => match never {},
            () = reloading.keep_up(calls, &board, self.profile.as_deref(), telemetry) => Ok(()),
            () = status::say_when_asked(&board) => Ok(()),
            () = answer_commands(&api, state.as_deref()) => Ok(()),
        };
        // Who says so again does not want to wait.
        tokio::select! {
            _ = board.runtime.shut_down(GRACE) => {}
            () = told() => {}
        }
        served.map(|()| ExitCode::SUCCESS)
    }

    /// The tokens of which clients must show one, by their variables.
    fn tokens(&self) -> Result<BTreeMap<String, Secret>, Failure> {
        let mut tokens = BTreeMap::new();
        for variable in &self.token_env {
            let token = std::env::var(variable).unwrap_or_default();
            if token.trim().is_empty() {
                return Err(Failure::usage(format!("--token-env: the variable {variable} is not set"))
                    .hint("set it to the token that clients must show"));
            }
            let token = Secret::new(token.trim());
            if let Some((other, _)) = tokens.iter().find(|(_, known)| **known == token) {
                return Err(Failure::usage(format!(
                    "--token-env: {variable} and {other} hold the same token"
                ))
                .hint("give each a token of its own"));
            }
            tokens.insert(variable.clone(), token);
        }
        Ok(tokens)
    }

    async fn listen(&self, tokens: &BTreeMap<String, Secret>) -> Result<TcpListener, Failure> {
        if !self.http.ip().is_loopback() && tokens.is_empty() {
            return Err(Failure::usage(format!("whoever reaches {} could use every tool here", self.http))
                .hint("name the variable of a token with --token-env, or bind to 127.0.0.1"));
        }
        TcpListener::bind(self.http).await.map_err(|error| {
            let failure = Failure::system(format!("nobody can be served at {}: {error}", self.http));
            match error.kind() {
                io::ErrorKind::AddrInUse => {
                    failure.hint("something else listens there; choose another port with --http")
                }
                _ => failure,
            }
        })
    }

    async fn over_http(
        &self,
        board: &Board,
        api: &Api,
        listener: TcpListener,
        tokens: BTreeMap<String, Secret>,
    ) -> Result<(), Failure> {
        let mut options = HttpServerOptions::default();
        if !tokens.is_empty() {
            // Who has a token is no web page that found its way here.
            options.allowed_hosts.push("*".to_owned());
        }
        let system = |error: io::Error| Failure::system(error.to_string());
        let router = |gateway: &Gateway, who: Principal| {
            let clients = serve::router(gateway, self.profile.as_deref(), &options);
            let clients = clients.map_err(|error| Failure::usage(error.to_string()))?;
            Ok::<_, Failure>(api::router(api, who, &options).merge(clients))
        };
        let application = if tokens.is_empty() {
            router(&board.gateway, Principal::Everybody)?
        } else {
            let doors = tokens.into_iter();
            let doors = doors
                .map(|(name, token)| Ok((token, router(&board.gateway.of(&name), Principal::One(name))?)));
            token::guarded(doors.collect::<Result<Vec<_>, Failure>>()?)
        };
        let address = listener.local_addr().map_err(system)?;
        eprintln!("Ready  MCP http://{address}/mcp");
        if board.is_bare() {
            eprintln!(
                "There is no configuration yet, so clients find a toolbox that tells how to begin:\n{FIRST_STEPS}"
            );
        }
        pegboard::wire::http::server::serve(listener, application).await.map_err(system)
    }
}

/// Answers commands of this user through a socket, for as long as it is polled. Never ends.
#[cfg(unix)]
pub(crate) async fn answer_commands(api: &Api, state: Option<&Path>) {
    if let Some(state) = state {
        let routes = api::router(api, Principal::Everybody, &HttpServerOptions::default());
        let served = match LocalSocket::open(&place::sockets(state)) {
            Ok(socket) => socket.serve(routes).await,
            Err(error) => Err(error),
        };
        if let Err(error) = served {
            tracing::warn!("Commands do not find this gateway: no socket can be opened: {error}");
        }
    }
    std::future::pending::<()>().await;
}

/// There are no such sockets there.
#[cfg(not(unix))]
pub(crate) async fn answer_commands(_api: &Api, _state: Option<&Path>) {
    std::future::pending::<()>().await;
}

/// This program as the supervisor of the programs that it starts.
#[cfg(unix)]
pub(crate) fn supervisor() -> Option<pegboard::providers::process::Supervisor> {
    let program = std::env::current_exe().ok()?;
    Some(pegboard::providers::process::Supervisor { program, arguments: vec![OsString::from("supervise")] })
}

/// Jobs of the system do it there.
#[cfg(not(unix))]
pub(crate) fn supervisor() -> Option<pegboard::providers::process::Supervisor> {
    None
}

/// Does something until it ends, or until somebody wants this program to end.
async fn until_told(work: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    tokio::select! {
        result = work => result,
        () = told() => Ok(()),
    }
}

/// Waits until somebody wants this program to end.
#[cfg(unix)]
pub(crate) async fn told() {
    use tokio::signal::unix::{SignalKind, signal};

    let wait = async |kind| match signal(kind) {
        Ok(mut signal) => {
            signal.recv().await;
        }
        // Then it ends this program as it would any other.
        Err(_) => std::future::pending().await,
    };
    tokio::select! {
        () = wait(SignalKind::interrupt()) => {}
        () = wait(SignalKind::terminate()) => {}
        // Without a terminal it means to read the configuration again.
        () = wait(SignalKind::hangup()), if io::stdin().is_terminal() => {}
    }
}

/// Waits until somebody wants this program to end.
#[cfg(not(unix))]
pub(crate) async fn told() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}
