//! `pegboard add`: adds a server, service, tool or agent to the configuration.

use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use pegboard::config::EntrySection;
use serde_json::{Map, Value, json};

use super::config_file::{EditTarget, display_path, purpose};
use super::stored_keys::StoredKeys;
use crate::cli::{CliError, ExitReason, Globals};

mod agent;
mod openapi;
mod rest;

/// Arguments of `pegboard add`.
#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    override_usage = "pegboard add [OPTIONS] <NAME> <URL>\n       pegboard add [OPTIONS] <NAME> -- <COMMAND>...\n       pegboard add <KIND> ...",
    after_help = "Examples:\n  pegboard add github https://api.example.com/mcp -H 'Authorization: Bearer ${GITHUB_TOKEN}'\n  pegboard add files -e ROOT=/srv -- npx -y @modelcontextprotocol/server-filesystem /srv"
)]
pub(crate) struct AddArgs {
    #[command(subcommand)]
    kind: Option<AddCommand>,
    #[command(flatten)]
    server: AddServerArgs,
}

#[derive(Subcommand)]
enum AddCommand {
    /// Add a tool that sends one HTTP request
    Rest(rest::AddRestArgs),
    /// Add a web service with an OpenAPI document
    Openapi(openapi::AddOpenapiArgs),
    /// Add an agent file
    Agent(agent::AddAgentArgs),
    /// Add a server from its JSON definition
    Json(AddJsonArgs),
}

/// Destination of a new entry.
#[derive(Args, Clone)]
struct EntryDestination {
    /// Toolbox of the entry [default: default]
    #[arg(long, short = 'b', value_name = "TOOLBOX")]
    toolbox: Option<String>,
    /// Replace an existing entry with this name
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    target: EditTarget,
}

/// Destination of a new entry that may contain keys.
#[derive(Args, Clone)]
struct KeyedDestination {
    #[command(flatten)]
    entry: EntryDestination,
    #[command(flatten)]
    stored_keys: StoredKeys,
}

/// A server: a URL, or a program after `--`.
#[derive(Args)]
struct AddServerArgs {
    /// Name of the server: letters, digits, - and _
    #[arg(required = true)]
    name: Option<String>,
    /// URL of the server
    #[arg(value_name = "URL")]
    address: Option<String>,
    /// Program and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
    /// URL of the server, as an option
    #[arg(long, value_name = "URL", hide = true, conflicts_with_all = ["address", "command"])]
    url: Option<String>,
    /// Transport; inferred from the URL by default
    #[arg(long, short, value_enum)]
    transport: Option<TransportArg>,
    /// Environment variable of the program: NAME=VALUE, or NAME to pass it through
    #[arg(long, short, value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// Header to send with every request
    #[arg(long, short = 'H', value_name = "NAME: VALUE")]
    header: Vec<String>,
    /// Environment variable with the server's bearer token
    #[arg(long, value_name = "VARIABLE")]
    bearer_token_env_var: Option<String>,
    /// Working directory of the program
    #[arg(long, value_name = "FOLDER")]
    cwd: Option<String>,
    #[command(flatten)]
    rules: ToolRules,
    #[command(flatten)]
    destination: KeyedDestination,
}

/// Options for the tools of a new entry.
#[derive(Args, Clone, Default)]
struct ToolRules {
    /// Allow only these tools: names and globs
    #[arg(long, value_name = "GLOB", value_delimiter = ',')]
    allow: Vec<String>,
    /// Deny these tools: names and globs
    #[arg(long, value_name = "GLOB", value_delimiter = ',')]
    deny: Vec<String>,
    /// Queue for calls
    #[arg(long)]
    queue: Option<String>,
    /// Cache answers for this long: 5m, 1h
    #[arg(long, value_name = "TIME")]
    cache: Option<String>,
    /// Add the entry disabled
    #[arg(long)]
    disabled: bool,
}

/// Arguments of `pegboard add json`.
#[derive(Args)]
struct AddJsonArgs {
    /// Name of the server
    name: String,
    /// Definition of the server: {"command": …} or {"url": …}
    #[arg(value_name = "JSON")]
    definition: String,
    #[command(flatten)]
    destination: KeyedDestination,
}

/// Transport of a server.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum TransportArg {
    Stdio,
    #[value(alias = "streamable-http", alias = "streamableHttp", alias = "streamable_http")]
    Http,
    Sse,
    #[value(alias = "ws")]
    Websocket,
}

impl TransportArg {
    fn as_str(self) -> &'static str {
        match self {
            Self::Stdio => "stdio",
            Self::Http => "http",
            Self::Sse => "sse",
            Self::Websocket => "websocket",
        }
    }
}

impl AddArgs {
    pub(crate) fn run(self, globals: &Globals) -> Result<ExitCode, CliError> {
        match self.kind {
            Some(AddCommand::Rest(rest)) => rest.run(globals),
            Some(AddCommand::Openapi(openapi)) => openapi.run(globals),
            Some(AddCommand::Agent(agent)) => agent.run(globals),
            Some(AddCommand::Json(json)) => json.run(globals),
            None => {
                let name = self.server.name.as_deref().unwrap_or_default();
                let entry = self.server.entry(name)?;
                write_entry(globals, &self.server.destination, EntrySection::Servers, name, &entry)
            }
        }
    }
}

impl AddArgs {
    /// Returns the name of a server that may require a login: one with a URL and without credentials.
    pub(crate) fn remote_server(&self) -> Option<&str> {
        let AddServerArgs { name, address, url, header, bearer_token_env_var, rules, destination, .. } =
            &self.server;
        let has_url = address.is_some() || url.is_some();
        let has_credentials = !header.is_empty() || bearer_token_env_var.is_some();
        let is_used = !rules.disabled && !destination.entry.target.dry_run;
        name.as_deref().filter(|_| self.kind.is_none() && has_url && !has_credentials && is_used)
    }
}

impl AddServerArgs {
    /// Builds the configuration entry.
    fn entry(&self, name: &str) -> Result<Value, CliError> {
        let mut entry = Map::new();
        let address = self.address.as_ref().or(self.url.as_ref());
        match (address, self.command.split_first()) {
            (Some(address), None) => {
                if !address.contains("://") {
                    let again = format!("pegboard add {name} -- {address}");
                    return Err(CliError::usage(format!("invalid URL '{address}'"))
                        .hint(format!("a URL starts with http:// or https://; for a program use: {again}")));
                }
                match self.transport {
                    Some(TransportArg::Stdio) => {
                        return Err(CliError::usage("the stdio transport needs a program, not a URL")
                            .hint(format!("pegboard add {name} -- COMMAND")));
                    }
                    Some(transport) => drop(entry.insert("type".to_owned(), json!(transport.as_str()))),
                    None => {}
                }
                entry.insert("url".to_owned(), json!(address));
                self.add_headers(&mut entry)?;
                reject_options(
                    &[("--env", !self.env.is_empty()), ("--cwd", self.cwd.is_some())],
                    "a program",
                )?;
            }
            (None, Some((command, arguments))) => {
                if let Some(transport) = self.transport.filter(|transport| *transport != TransportArg::Stdio)
                {
                    let word = transport.as_str();
                    return Err(CliError::usage(format!("the {word} transport needs a URL, not a program"))
                        .hint("remove --transport"));
                }
                let has_token = self.bearer_token_env_var.is_some();
                let of_address =
                    [("--header", !self.header.is_empty()), ("--bearer-token-env-var", has_token)];
                reject_options(&of_address, "a URL")?;
                entry.insert("command".to_owned(), json!(command));
                if !arguments.is_empty() {
                    entry.insert("args".to_owned(), json!(arguments));
                }
                if !self.env.is_empty() {
                    let pairs: Result<Map<_, _>, _> =
                        self.env.iter().map(|pair| parse_variable(pair)).collect();
                    entry.insert("env".to_owned(), Value::Object(pairs?));
                }
                if let Some(folder) = &self.cwd {
                    entry.insert("cwd".to_owned(), json!(folder));
                }
            }
            (Some(_), Some(_)) => {
                return Err(CliError::usage("a server is either a URL or a program, not both")
                    .hint("remove one of them"));
            }
            (None, None) => {
                return Err(CliError::usage(format!("missing URL or command for '{name}'"))
                    .hint(format!("pegboard add {name} URL   or   pegboard add {name} -- COMMAND")));
            }
        }
        self.rules.add_to(&mut entry);
        Ok(Value::Object(entry))
    }

    fn add_headers(&self, entry: &mut Map<String, Value>) -> Result<(), CliError> {
        let mut headers = parse_headers(&self.header)?;
        if let Some(variable) = &self.bearer_token_env_var {
            headers.insert("Authorization".to_owned(), json!(format!("Bearer ${{{variable}}}")));
        }
        if !headers.is_empty() {
            entry.insert("headers".to_owned(), Value::Object(headers));
        }
        Ok(())
    }
}

impl ToolRules {
    fn add_to(&self, entry: &mut Map<String, Value>) {
        if !self.allow.is_empty() {
            entry.insert("toolsAllowed".to_owned(), json!(self.allow));
        }
        if !self.deny.is_empty() {
            entry.insert("toolsDenied".to_owned(), json!(self.deny));
        }
        for (key, value) in [("queue", &self.queue), ("cache", &self.cache)] {
            if let Some(value) = value {
                entry.insert(key.to_owned(), json!(value));
            }
        }
        if self.disabled {
            entry.insert("enabled".to_owned(), json!(false));
        }
    }
}

impl AddJsonArgs {
    fn run(self, globals: &Globals) -> Result<ExitCode, CliError> {
        let name = &self.name;
        let value: Value = serde_json::from_str(&self.definition).map_err(|error| {
            CliError::usage(format!("invalid JSON: {error}"))
                .hint(format!("pegboard add json {name} '{{\"command\": \"my-server\"}}'"))
        })?;
        if !value.is_object() {
            return Err(CliError::usage("a server must be a JSON object")
                .hint(format!("pegboard add json {name} '{{\"command\": \"my-server\"}}'")));
        }
        write_entry(globals, &self.destination, EntrySection::Servers, name, &value)
    }
}

/// Writes an entry to the file.
fn write_entry(
    globals: &Globals,
    KeyedDestination { entry: destination, stored_keys }: &KeyedDestination,
    section: EntrySection,
    name: &str,
    entry: &Value,
) -> Result<ExitCode, CliError> {
    let mut file = destination.target.open(globals)?;
    let is_new = file.is_new();
    let toolbox = file.toolbox(destination.toolbox.as_deref())?;
    let path = section.path(toolbox.as_deref()).key(name);
    let noun = section.noun();
    let is_there = file.document.get(&path).is_some();
    if is_there && !destination.force {
        let place = display_path(&file.path);
        let failure = CliError::new(
            ExitReason::Usage,
            "name_taken",
            format!("{noun} '{name}' already exists in {place}"),
        );
        return Err(failure.hint("choose another name, or replace it with --force"));
    }
    file.document.set(&path, entry)?;
    let secrets = stored_keys.apply(globals, &mut file, destination.target.dry_run)?;
    let edited = destination.target.finish(globals, &file)?;
    secrets.keep(globals);
    let verb = if is_there { "Replaced" } else { "Added" };
    let place = edited.place();
    let in_box = toolbox.as_ref().map(|toolbox| format!(" (toolbox {toolbox})")).unwrap_or_default();
    let why = if is_new { format!(", {}", purpose(&edited.change.path)) } else { String::new() };
    let text = format!("{verb} {noun} {name}: {place}{in_box}{why}");
    let document = json!({
        "name": name,
        "section": section.key(),
        "toolbox": toolbox.as_deref().unwrap_or("default"),
        "replaced": is_there,
    });
    edited.report(globals, &[name], object(document), &text);
    Ok(ExitCode::SUCCESS)
}

/// Parses `NAME=VALUE`, or `NAME` for the variable of that name.
fn parse_variable(pair: &str) -> Result<(String, Value), CliError> {
    let (name, value) = pair
        .split_once('=')
        .map_or_else(|| (pair, format!("${{{pair}}}")), |(name, value)| (name, value.to_owned()));
    if name.is_empty() {
        return Err(CliError::usage("missing variable name").hint("use -e NAME=VALUE or -e NAME"));
    }
    Ok((name.to_owned(), json!(value)))
}

/// Parses `NAME: VALUE` headers.
fn parse_headers(written: &[String]) -> Result<Map<String, Value>, CliError> {
    let header = |header: &String| {
        let (name, value) = header.split_once(':').ok_or_else(|| {
            CliError::usage("invalid header: expected NAME: VALUE")
                .hint("use -H 'Authorization: Bearer ${TOKEN}'")
        })?;
        Ok((name.trim().to_owned(), json!(value.trim())))
    };
    written.iter().map(header).collect()
}

/// Rejects options that do not apply to this kind of server.
fn reject_options(options: &[(&str, bool)], what: &str) -> Result<(), CliError> {
    match options.iter().find(|(_, is_given)| *is_given) {
        Some((option, _)) => Err(CliError::usage(format!("{option} applies only to {what}"))),
        None => Ok(()),
    }
}

/// Unwraps an object.
fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(entries) => entries,
        _ => Map::new(),
    }
}
