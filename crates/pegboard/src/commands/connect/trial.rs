//! The trial of a client's entry: connects as the client does, and lists what it is offered.

use std::ffi::OsString;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use pegboard::config::export::{SERVER_NAME, ServeTarget};
use pegboard::id::ServerName;
use pegboard::json::RawJson;
use pegboard::providers::mcp::{
    ConnectorError, EstablishedConnection, HandshakeOptions, PoolOptions, ServerPool,
};
use pegboard::providers::process::is_inherited_name;
use pegboard::secret::Secret;
use pegboard::settings::mcp::{McpTarget, RemoteEndpoint, ResolvedMcpServer, ServerProgram};
use pegboard::wire::client::{ClientOptions, Era, McpClient};
use pegboard_core::server_log::ServerLog;
use pegboard_core::settings::messages::MessageLimits;
use serde_json::{Value, json};
use tokio::time;

use crate::api_client::ApiClient;
use crate::cli::format::{one_line, plural};
use crate::cli::spinner::Spinner;
use crate::cli::{CliError, ExitReason, Globals};
use crate::commands::rejecting_receiver::RejectingReceiver;
use crate::commands::serve::supervisor;
use crate::environment;

/// Time limit of the whole trial. The first list waits for servers for at most ten seconds.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of names of tools that are shown.
const MAX_NAMES: usize = 12;
/// Maximum number of lines of the instructions that are shown.
const MAX_LINES: usize = 4;
/// Maximum number of characters of a name or a line that is shown.
const MAX_CHARACTERS: usize = 72;

/// Tools and instructions for a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientOffer {
    /// Names of the tools.
    tools: Vec<String>,
    instructions: String,
}

/// Connects as a client with this entry does.
pub(crate) async fn try_entry(globals: &Globals, target: &ServeTarget) -> Result<ClientOffer, CliError> {
    let is_running = ApiClient::running(globals).await.is_ok();
    let connection = match target {
        ServeTarget::Program { command, args } => {
            let mut args = args.clone();
            if !is_running {
                // Leaves no gateway behind.
                args.push("--no-daemon".to_owned());
            }
            // The others are passed on anyway, and may be shown.
            let is_passed = |name: &str| !is_inherited_name(name) && !["PWD", "OLDPWD"].contains(&name);
            let text = |(name, value): (OsString, OsString)| {
                let name = name.into_string().ok().filter(|name| is_passed(name))?;
                Some((name, Secret::new(value.into_string().ok()?)))
            };
            let env = environment::vars_os().filter_map(text).collect();
            McpTarget::Program(ServerProgram { args, env, ..ServerProgram::new(command) })
        }
        ServeTarget::Url { url, token } => {
            let mut endpoint = RemoteEndpoint::new(url);
            if let Some(token) = token {
                let header = Secret::new(format!("Bearer {}", token.reveal()));
                endpoint.headers.insert("Authorization".to_owned(), header);
            }
            McpTarget::Http(endpoint)
        }
    };
    let place = match target {
        ServeTarget::Program { .. } => "the program in the entry".to_owned(),
        ServeTarget::Url { url, .. } => url.clone(),
    };
    let name = ServerName::new(SERVER_NAME).expect("the name is valid");
    let spinner = Spinner::new(globals, "Trying the entry");
    let trying = time::timeout(TIMEOUT, offer(ResolvedMcpServer::new(name, connection), &place));
    match spinner.during(trying).await {
        Ok(offer) => offer.map_err(|failure| failure.detail("nothing was written")),
        Err(_elapsed) => {
            let message = format!("{place} did not answer within {} s", TIMEOUT.as_secs());
            Err(CliError::new(ExitReason::TimedOut, "timeout", message)
                .hint("add --no-check to write it untried"))
        }
    }
}

async fn offer(server: ResolvedMcpServer, place: &str) -> Result<ClientOffer, CliError> {
    let pool = ServerPool::new(PoolOptions { supervisor: supervisor(), ..PoolOptions::default() });
    let connector = pool.connector(&server).map_err(|error| CliError::configuration(error.to_string()))?;
    // As most clients do today.
    let options = ClientOptions {
        era: Some(Era::Session),
        ..ClientOptions::new("pegboard-connect", env!("CARGO_PKG_VERSION"))
    };
    let handshake = HandshakeOptions {
        receiver: Arc::new(RejectingReceiver),
        options,
        log: ServerLog::default(),
        message_limits: MessageLimits::default(),
    };
    let established = connector.connect(handshake).await;
    let EstablishedConnection { client, backend } = established.map_err(|error| {
        let (why, hint) = match error {
            ConnectorError::NeedsLogin { fix } => ("it rejects the token".to_owned(), fix),
            ConnectorError::Unavailable { why, fix } => (why, fix),
        };
        let stderr = connector.stderr_tail().unwrap_or_default();
        own_error(&stderr).unwrap_or_else(|| {
            let message = format!("{place}: {why}");
            let failure = CliError::new(ExitReason::Unavailable, "server_unavailable", message);
            let lines = stderr.lines().map(|line| format!("stderr: {line}"));
            lines.fold(failure, CliError::detail).hint(hint)
        })
    })?;
    let listed = listed_tools(&client).await;
    if let Some(backend) = backend {
        backend.shut_down().await;
    }
    let tools = listed.map_err(|why| {
        CliError::new(ExitReason::Unavailable, "server_unavailable", format!("{place}: {why}"))
    })?;
    Ok(ClientOffer { tools, instructions: client.server().instructions.clone().unwrap_or_default() })
}

/// Returns the error that the program has printed as the last thing.
fn own_error(stderr: &str) -> Option<CliError> {
    let lines: Vec<&str> = stderr.lines().collect();
    let at = lines.iter().rposition(|line| line.starts_with("error["))?;
    let (code, message) = lines[at].strip_prefix("error[")?.split_once("]: ")?;
    let mut failure = CliError::from_code(code, message);
    for line in lines[at + 1..].iter().map(|line| line.trim()) {
        failure = match line.strip_prefix("help: ") {
            Some(hint) => failure.hint(hint),
            None => failure.detail(line),
        };
    }
    Some(failure)
}

/// Lists the names of all tools.
async fn listed_tools(client: &McpClient) -> Result<Vec<String>, String> {
    let mut names = Vec::new();
    let mut cursor: Option<Value> = None;
    loop {
        let params = cursor.take().map(|cursor| RawJson::from(json!({"cursor": cursor})));
        let page = client.call("tools/list", params).await.map_err(|error| error.to_string())?.to_value();
        let tools = page["tools"].as_array().into_iter().flatten();
        names.extend(tools.filter_map(|tool| tool["name"].as_str()).map(str::to_owned));
        match &page["nextCursor"] {
            Value::String(next) => cursor = Some(json!(next)),
            _ => return Ok(names),
        }
    }
}

impl ClientOffer {
    /// Renders it as JSON.
    pub(crate) fn document(&self) -> Value {
        json!({"tools": self.tools, "instructions": self.instructions})
    }

    /// Lines for the terminal.
    pub(crate) fn text(&self) -> String {
        let n_tools = self.tools.len();
        let names = self.tools.iter().take(MAX_NAMES).map(|name| one_line(name, MAX_CHARACTERS));
        let mut names = names.collect::<Vec<_>>().join(", ");
        if n_tools > MAX_NAMES {
            names = format!("{names}, … {} more", n_tools - MAX_NAMES);
        }
        let number = |number: usize, thing: &str| plural(u64::try_from(number).unwrap_or(u64::MAX), thing);
        let mut text = match n_tools {
            0 => "  It sees no tools".to_owned(),
            n_tools => format!("  It sees {}: {names}", number(n_tools, "tool")),
        };
        if self.instructions.is_empty() {
            return text;
        }
        let n_characters = self.instructions.chars().count();
        let _ = write!(text, "\n  It gets instructions of {}:", number(n_characters, "character"));
        let mut lines = self.instructions.lines().map(str::trim_end).filter(|line| !line.is_empty());
        for line in lines.by_ref().take(MAX_LINES) {
            let _ = write!(text, "\n    {}", one_line(line, MAX_CHARACTERS));
        }
        if lines.next().is_some() {
            text.push_str("\n    …");
        }
        text
    }
}
