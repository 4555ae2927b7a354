//! `pegboard auth`: logins at servers.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use pegboard::config::{Configuration, ServerEntry, did_you_mean};
use pegboard::error::ErrorKind;
use pegboard::json::RawJson;
use pegboard::settings::mcp::{McpTarget, RemoteEndpoint};
use pegboard_auth::oauth::{LoginDetails, LoginState, OAuthClient, OAuthError};
use serde_json::{Value, json};

use super::serve::shutdown_signal;
use crate::api_client::{ApiClient, ApiPath};
use crate::cli::format::{columns, format_millis, now_millis, one_line};
use crate::cli::prompt::terminal;
use crate::cli::{CliError, Globals, notice, print};
use crate::logins;
use crate::paths::{ConfigSelection, unblocked};
pub(crate) use login::{can_offer_login, offer_login};

mod browser;
mod login;

/// Maximum length of a text of a server.
const MAX_CHARACTERS: usize = 300;

/// Arguments of `pegboard auth`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  pegboard add linear https://mcp.linear.app/mcp\n  pegboard auth login linear\n  pegboard auth login linear --no-browser\n  pegboard auth status"
)]
pub(crate) struct AuthArgs {
    #[command(subcommand)]
    command: AuthCommand,
}

#[derive(Subcommand)]
enum AuthCommand {
    /// Log in to a server, in the browser
    Login(login::LoginArgs),
    /// Show the logins at servers
    Status {
        /// Server: its name, or toolbox/server; all by default
        server: Option<String>,
    },
    /// Forget the login at a server
    Logout {
        /// Server: its name, or toolbox/server
        server: String,
    },
    /// Print the access token of a login, after a refresh if it is about to expire
    Token {
        /// Server: its name, or toolbox/server
        server: String,
    },
}

impl AuthArgs {
    /// Runs the command until it completes, times out or is interrupted.
    pub(crate) async fn run(self, globals: &Globals) -> Result<ExitCode, CliError> {
        let work = async {
            match self.command {
                AuthCommand::Login(login) => login.run(globals).await,
                AuthCommand::Status { server } => status(globals, server.as_deref()).await,
                AuthCommand::Logout { server } => log_out(globals, &server).await,
                AuthCommand::Token { server } => print_token(globals, &server).await,
            }
        };
        let done = tokio::select! {
            done = work => done,
            failure = globals.deadline(std::time::Duration::ZERO) => Err(failure),
            () = shutdown_signal() => Err(CliError::interrupted()),
        };
        terminal::restore();
        done
    }
}

/// A server of the configuration that is reached over HTTP.
#[derive(Clone)]
pub(crate) struct RemoteServer {
    toolbox: String,
    name: String,
    endpoint: RemoteEndpoint,
}

impl RemoteServer {
    fn address(&self) -> String {
        format!("{}/{}", self.toolbox, self.name)
    }

    /// Returns `true` if the configuration has the credentials.
    fn has_configured_credentials(&self) -> bool {
        self.endpoint.headers.keys().any(|name| name.eq_ignore_ascii_case("authorization"))
    }

    fn client(&self, logins: &pegboard::wiring::logins::Logins) -> Result<OAuthClient, CliError> {
        let client = logins.client(&self.endpoint.url);
        client.ok_or_else(|| CliError::configuration(format!("{} has an invalid URL", self.address())))
    }
}

/// Loads the configuration, after consent to project files: their servers get requests.
async fn configuration(globals: &Globals) -> Result<Configuration, CliError> {
    let selection = ConfigSelection::without_probing(globals)?;
    unblocked(move || selection.inspect_trusted()).await
}

/// Returns all servers over HTTP.
fn remote_servers(configuration: &Configuration) -> Vec<RemoteServer> {
    let servers = configuration.toolboxes.iter().flat_map(|(toolbox, contents)| {
        contents.servers.iter().filter_map(move |(name, entry)| {
            let ServerEntry::Mcp { connection, .. } = entry else { return None };
            let (McpTarget::Http(endpoint) | McpTarget::Sse(endpoint)) = &connection.target else {
                return None;
            };
            let (toolbox, name) = (toolbox.to_string(), name.to_string());
            Some(RemoteServer { toolbox, name, endpoint: endpoint.clone() })
        })
    });
    servers.collect()
}

/// Returns the server with a name or address.
async fn find(globals: &Globals, selected: &str) -> Result<RemoteServer, CliError> {
    let configuration = configuration(globals).await?;
    let servers = remote_servers(&configuration);
    let matches = |server: &&RemoteServer| server.name == selected || server.address() == selected;
    let found: Vec<&RemoteServer> = servers.iter().filter(matches).collect();
    match found.as_slice() {
        [server] => Ok((*server).clone()),
        [] => {
            let name = selected.split_once('/').map_or(selected, |(_, server)| server);
            let is_other = configuration
                .toolboxes
                .values()
                .any(|toolbox| toolbox.servers.keys().any(|server| server.as_str() == name));
            if is_other {
                let message = format!("'{selected}' is not reached over HTTP, so it has no login");
                return Err(CliError::usage(message).hint("its credentials are set under env or headers"));
            }
            let failure = CliError::not_found("unknown_server", format!("no server '{selected}'"));
            let meant = did_you_mean(selected, servers.iter().map(|server| server.name.as_str()));
            Err(failure.hint(meant.as_deref().unwrap_or("add it with pegboard add NAME URL")))
        }
        several => {
            let several: Vec<String> = several.iter().map(|server| server.address()).collect();
            let message = format!("'{selected}' is ambiguous: {}", several.join(" or "));
            Err(CliError::not_found("unknown_server", message).hint("use one of them"))
        }
    }
}

/// Error of a login, or of its token.
fn failure(server: &RemoteServer, error: &OAuthError) -> CliError {
    let name = &server.name;
    let message = format!("{name}: {}", one_line(&error.to_string(), MAX_CHARACTERS));
    match error {
        OAuthError::NotLoggedIn | OAuthError::LoginRequired { .. } => {
            CliError::from_kind(ErrorKind::AuthRequired, message).hint(format!("pegboard auth login {name}"))
        }
        OAuthError::Refused { .. } => CliError::from_kind(ErrorKind::AuthRequired, message),
        OAuthError::Unsupported { .. } => CliError::from_kind(ErrorKind::ServerUnavailable, message).hint(
            format!("create a token in the settings of the service, and set it under headers of {name}"),
        ),
        OAuthError::Temporary { .. } => CliError::from_kind(ErrorKind::ServerUnavailable, message),
        OAuthError::Vault(_) => CliError::system(message),
    }
}

async fn status(globals: &Globals, selected: Option<&str>) -> Result<ExitCode, CliError> {
    let servers = match selected {
        Some(selected) => vec![find(globals, selected).await?],
        None => remote_servers(&configuration(globals).await?),
    };
    let logins = logins::existing(globals);
    let mut listed = Vec::new();
    for server in &servers {
        let state = match &logins {
            _ if server.has_configured_credentials() => Ok(None),
            Some(logins) => server.client(logins)?.state().await.map(Some),
            None => Ok(Some(LoginState::LoggedOut)),
        };
        listed.push(state_document(server, state));
    }
    let document = json!({"logins": listed});
    print::listing(globals, &document, "logins", rows, "no servers over HTTP");
    Ok(ExitCode::SUCCESS)
}

/// Describes the login at a server.
fn state_document(server: &RemoteServer, state: Result<Option<LoginState>, OAuthError>) -> Value {
    let mut document = json!({"toolbox": server.toolbox, "server": server.name, "url": server.endpoint.url});
    let details = match state {
        Ok(None) => json!({"state": "configured"}),
        Ok(Some(LoginState::LoggedOut)) => json!({"state": "none"}),
        Ok(Some(LoginState::Lost(reason))) => json!({"state": "lost", "reason": reason}),
        Ok(Some(LoginState::LoggedIn(details))) => details_document(&details),
        Err(error) => json!({"state": "unreadable", "reason": error.to_string()}),
    };
    if let (Value::Object(document), Value::Object(details)) = (&mut document, details) {
        document.extend(details);
    }
    document
}

fn details_document(details: &LoginDetails) -> Value {
    let LoginDetails { issuer, scopes, expires, is_renewable } = details;
    let expires = expires.and_then(|expires| expires.duration_since(std::time::UNIX_EPOCH).ok());
    json!({
        "state": "logged_in",
        "issuer": issuer,
        "scopes": scopes,
        "expiresAt": expires.map(|expires| expires.as_secs()),
        "renewable": is_renewable,
    })
}

/// Renders the logins as a table.
fn rows(logins: &Value) -> String {
    let word = |value: &Value| one_line(value.as_str().unwrap_or_default(), MAX_CHARACTERS);
    let row = |login: &Value| {
        let address = format!("{}/{}", word(&login["toolbox"]), word(&login["server"]));
        let state = match login["state"].as_str() {
            Some("configured") => "token in its headers".to_owned(),
            Some("none") => "not logged in".to_owned(),
            Some("lost") => format!("login required: {}", word(&login["reason"])),
            Some("unreadable") => word(&login["reason"]),
            _ => format!("logged in{}", expiry(login)),
        };
        vec![address, state]
    };
    columns(&logins.as_array().into_iter().flatten().map(row).collect::<Vec<_>>())
}

/// Says when a token expires, if that ends the login.
fn expiry(login: &Value) -> String {
    let Some(expires) = login["expiresAt"].as_u64() else { return String::new() };
    if login["renewable"] == true {
        return ", renewed automatically".to_owned();
    }
    match expires.saturating_mul(1_000).checked_sub(now_millis()) {
        Some(left) if left > 0 => format!(" for {}", format_millis(left)),
        _ => ", expired".to_owned(),
    }
}

async fn log_out(globals: &Globals, selected: &str) -> Result<ExitCode, CliError> {
    let server = find(globals, selected).await?;
    let logins = logins::open(globals).await?;
    let client = server.client(&logins)?;
    let was_logged_in = client.log_out().await.map_err(|error| failure(&server, &error))?;
    if was_logged_in {
        tell_gateway(globals, &server).await;
    }
    let document = json!({"server": server.name, "loggedOut": was_logged_in});
    print::document(globals.data_format(), &document, || {
        if was_logged_in {
            format!("Logged out of {}", server.name)
        } else {
            format!("There was no login at {}", server.name)
        }
    });
    Ok(ExitCode::SUCCESS)
}

async fn print_token(globals: &Globals, selected: &str) -> Result<ExitCode, CliError> {
    let server = find(globals, selected).await?;
    let logins = logins::open(globals).await?;
    let authorization = server.client(&logins)?.authorization().await;
    let authorization = authorization.and_then(|header| header.ok_or(OAuthError::NotLoggedIn));
    let authorization = authorization.map_err(|error| failure(&server, &error))?;
    let token = authorization.to_str().unwrap_or_default().trim_start_matches("Bearer ").to_owned();
    print::document(globals.data_format(), &json!({"token": token}), || token.clone());
    Ok(ExitCode::SUCCESS)
}

/// Has the running gateway connect to a server again, if there is one. Returns the state of the server then.
async fn tell_gateway(globals: &Globals, server: &RemoteServer) -> Option<Value> {
    let api = ApiClient::running(globals).await.ok()?;
    let path = ApiPath::new(&["servers", &server.toolbox, &server.name, "restart"]);
    match api.post(&path, &RawJson::empty_object()).await {
        Ok(state) => Some(state),
        Err(failure) => {
            // Another configuration may be served.
            if !failure.is_not_found() {
                notice(
                    globals,
                    &format!("The running gateway does not reach {}: {}", server.name, failure.summary()),
                );
            }
            None
        }
    }
}
