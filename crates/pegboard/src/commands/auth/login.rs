//! `pegboard auth login`: a login in the browser.

use std::io::BufRead;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use pegboard::wire::client::{ClientOptions, HandshakeError, McpClient};
use pegboard::wire::http::client::{HttpOptions, connect};
use pegboard::wire::transport::TransportError;
use pegboard::wiring::logins::Logins;
use pegboard::wiring::logins::callback::CallbackListener;
use pegboard_auth::oauth::{LoginRequest, LoginState, OAuthSettings, PendingLogin, Url};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::time;

use super::{MAX_CHARACTERS, RemoteServer, browser, details_document, failure, find, tell_gateway};
use crate::cli::format::{one_line, plural};
use crate::cli::prompt::terminal::Terminal;
use crate::cli::prompt::{Echo, Prompter};
use crate::cli::{CliError, ExitReason, Globals, notice, print};
use crate::commands::rejecting_receiver::RejectingReceiver;
use crate::logins;
use crate::paths::unblocked;

/// Time that a user has for a login.
const LOGIN_TIMEOUT: Duration = Duration::from_mins(15);

/// Time limit for asking a server whether it requires a login.
const PROBE_TIMEOUT: Duration = Duration::from_secs(20);

/// Maximum number of lines that wait to be read.
const MAX_LINES: usize = 4;

/// Arguments of `pegboard auth login`.
#[derive(Args)]
pub(super) struct LoginArgs {
    /// Server: its name, or toolbox/server
    server: String,
    #[command(flatten)]
    options: LoginOptions,
}

/// Options of a login.
#[derive(Args, Default)]
pub(crate) struct LoginOptions {
    /// Do not open a browser: print the URL, and read the URL of the page that the browser shows in the end
    #[arg(long)]
    no_browser: bool,
    /// Port on this machine to which the browser is sent back; any by default
    #[arg(long, value_name = "PORT", default_value_t = 0, hide_default_value = true)]
    port: u16,
    /// Permission to ask for, instead of those that the server names; can be repeated
    #[arg(long, value_name = "SCOPE")]
    scope: Vec<String>,
    /// Id of a client that is registered at the authorization server
    #[arg(long, value_name = "ID")]
    client_id: Option<String>,
    /// Environment variable with the secret of that client, if it has one
    #[arg(long, value_name = "VARIABLE", requires = "client_id")]
    client_secret_env: Option<String>,
}

impl LoginArgs {
    pub(super) async fn run(self, globals: &Globals) -> Result<ExitCode, CliError> {
        let server = find(globals, &self.server).await?;
        log_in(globals, &server, self.options).await
    }
}

/// Returns `true` if there is a user who could log in now.
pub(crate) fn can_offer_login(globals: &Globals) -> bool {
    !globals.no_input && Terminal::detect().is_some()
}

/// Offers to log in to a server that was added, if it requires that.
pub(crate) async fn offer_login(globals: &Globals, name: &str) -> Result<(), CliError> {
    let Ok(server) = find(globals, name).await else { return Ok(()) };
    if server.has_configured_credentials() || !matches!(probe(&server).await, Probe::LoginRequired(_)) {
        return Ok(());
    }
    let question = format!("{name} requires a login. Log in now? [Y/n] ");
    let answer = unblocked(move || {
        let line = Terminal::detect().and_then(|mut terminal| terminal.read_line(&question, Echo::Shown));
        Ok(line.unwrap_or_else(|| "n".to_owned()))
    });
    if matches!(answer.await?.trim().to_lowercase().as_str(), "" | "y" | "yes") {
        return log_in(globals, &server, LoginOptions::default()).await.map(drop);
    }
    notice(globals, &format!("Log in later with pegboard auth login {name}"));
    Ok(())
}

async fn log_in(
    globals: &Globals,
    server: &RemoteServer,
    options: LoginOptions,
) -> Result<ExitCode, CliError> {
    let name = &server.name;
    if server.has_configured_credentials() {
        let message = format!("{name} sends the Authorization header of its configuration");
        return Err(CliError::usage(message).hint(format!("remove it from the headers of {name} first")));
    }
    let challenge = match probe(server).await {
        Probe::LoginRequired(challenge) => challenge,
        // Some servers require a login for their tools only.
        Probe::Anonymous => None,
        Probe::Failed(why) => {
            let message = format!("{name}: {}", one_line(&why, MAX_CHARACTERS));
            return Err(CliError::new(ExitReason::Unavailable, "server_unavailable", message));
        }
    };
    let logins = logins::open(globals).await?;
    let settings = options.settings()?;
    let client = logins
        .client_with(&server.endpoint.url, settings)
        .ok_or_else(|| CliError::configuration(format!("{} has an invalid URL", server.address())))?;
    let mut listener = CallbackListener::bind(options.port).await.map_err(|error| {
        CliError::system(format!("cannot listen for the end of the login: {error}"))
            .hint("choose another port with --port")
    })?;
    let request = LoginRequest { redirect_uri: listener.url().clone(), challenge };
    let login = client.begin_login(&request).await.map_err(|error| failure(server, &error))?;
    let is_opened = !options.no_browser && browser::open(login.url());
    show_url(globals, login.url(), is_opened);
    let mut pasted = if is_opened { None } else { Some(read_lines()) };
    let waiting = time::timeout(LOGIN_TIMEOUT, complete(login, &mut listener, pasted.as_mut(), server));
    let done = waiting.await.unwrap_or_else(|_elapsed| {
        let message = format!("{name}: the login was not completed in time");
        Err(CliError::new(ExitReason::TimedOut, "timeout", message))
    });
    listener.close().await;
    done?;
    report(globals, server, &logins).await
}

impl LoginOptions {
    fn settings(&self) -> Result<OAuthSettings, CliError> {
        let secret = |variable: &String| {
            let value = crate::environment::var(variable).filter(|value| !value.is_empty());
            value
                .map(pegboard::secret::Secret::new)
                .ok_or_else(|| CliError::usage(format!("--client-secret-env: {variable} is not set")))
        };
        Ok(OAuthSettings {
            client_id: self.client_id.clone(),
            client_secret: self.client_secret_env.as_ref().map(secret).transpose()?,
            scopes: self.scope.clone(),
            ..OAuthSettings::default()
        })
    }
}

/// Answer of a server to a client without a login.
enum Probe {
    /// It requires one, with this challenge.
    LoginRequired(Option<String>),
    /// It requires none.
    Anonymous,
    /// It cannot be reached.
    Failed(String),
}

/// Asks a server whether it requires a login, as a client that connects does.
async fn probe(server: &RemoteServer) -> Probe {
    let connecting = async {
        let url = server.endpoint.url.trim().parse().map_err(TransportError::failed)?;
        let transport = connect(HttpOptions::new(url))?;
        let options = ClientOptions::new("pegboard", env!("CARGO_PKG_VERSION"));
        McpClient::connect(transport, Arc::new(RejectingReceiver), options).await.map(drop)
    };
    match time::timeout(PROBE_TIMEOUT, connecting).await {
        Ok(Ok(())) => Probe::Anonymous,
        Ok(Err(HandshakeError::Transport(TransportError::Status { status: 401, authenticate, .. }))) => {
            Probe::LoginRequired(authenticate)
        }
        // It answers, if not as expected.
        Ok(Err(HandshakeError::Transport(TransportError::Status { .. }) | HandshakeError::Refused(_))) => {
            Probe::Anonymous
        }
        Ok(Err(error)) => Probe::Failed(error.to_string()),
        Err(_elapsed) => Probe::Failed(format!("no answer within {} s", PROBE_TIMEOUT.as_secs())),
    }
}

fn show_url(globals: &Globals, url: &Url, is_opened: bool) {
    if is_opened {
        notice(globals, "Log in with the page in your browser. If none has opened, use this URL:");
    } else {
        notice(globals, "Open this URL in a browser and log in:");
    }
    print::error_line(&format!("  {url}"));
    if !is_opened {
        notice(
            globals,
            "If the browser runs on another machine, its last page fails to load: paste the URL of that page here.",
        );
    }
}

/// Waits until the browser comes back, or its last URL is pasted, and completes the login.
async fn complete(
    login: PendingLogin,
    listener: &mut CallbackListener,
    mut pasted: Option<&mut mpsc::Receiver<String>>,
    server: &RemoteServer,
) -> Result<(), CliError> {
    loop {
        tokio::select! {
            visit = listener.visit() => if let Some(visit) = visit.belongs_to(&login) {
                return visit.complete(login, &server.name).await.map_err(|error| failure(server, &error));
            },
            line = next_line(pasted.as_deref_mut()) => match line.trim().parse::<Url>() {
                Ok(url) if login.is_answered_by(&url) => {
                    return login.complete(&url).await.map_err(|error| failure(server, &error));
                }
                _ if line.trim().is_empty() => {}
                _ => print::error_line("That is not the URL of the last page of this login."),
            },
        }
    }
}

/// Waits for a line; forever once there are no more.
async fn next_line(lines: Option<&mut mpsc::Receiver<String>>) -> String {
    match lines {
        Some(lines) => match lines.recv().await {
            Some(line) => line,
            None => std::future::pending().await,
        },
        None => std::future::pending().await,
    }
}

/// Reads lines of standard input in a thread, which may outlive the command: nothing can wake it.
fn read_lines() -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel(MAX_LINES);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { return };
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    lines
}

/// Tells the running gateway and prints the result.
async fn report(globals: &Globals, server: &RemoteServer, logins: &Logins) -> Result<ExitCode, CliError> {
    let state = server.client(logins)?.state().await.map_err(|error| failure(server, &error))?;
    let mut document = json!({"server": server.name, "url": server.endpoint.url});
    if let (LoginState::LoggedIn(details), Value::Object(document)) = (&state, &mut document)
        && let Value::Object(details) = details_document(details)
    {
        document.extend(details);
    }
    let gateway = tell_gateway(globals, server).await;
    print::document(globals.data_format(), &document, || {
        let tools = gateway
            .as_ref()
            .filter(|state| state["state"] == "ready")
            .and_then(|state| state["tools"].as_u64());
        let tools = tools.map(|tools| format!(": {}", plural(tools, "tool"))).unwrap_or_default();
        format!("Logged in to {}{tools}", server.name)
    });
    Ok(ExitCode::SUCCESS)
}
