//! `pegboard add`: one more server, service, tool or agent in the configuration.

use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use pegboard::config::edit::Way;
use serde_json::{Map, Value, json};

use super::own_file::{OwnFile, Section, Target, shown};
use crate::cli::{Exit, Failure, Globals};

mod agent;
mod openapi;
mod rest;

/// What is added.
#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    override_usage = "pegboard add [OPTIONS] <NAME> <URL>\n       pegboard add [OPTIONS] <NAME> -- <COMMAND>...\n       pegboard add <KIND> ...",
    after_help = "Examples:\n  pegboard add github https://api.example.com/mcp -H 'Authorization: Bearer ${GITHUB_TOKEN}'\n  pegboard add files -e ROOT=/srv -- npx -y @modelcontextprotocol/server-filesystem /srv"
)]
pub(crate) struct Add {
    #[command(subcommand)]
    kind: Option<Kind>,
    #[command(flatten)]
    server: Server,
}

#[derive(Subcommand)]
enum Kind {
    /// A tool that is one request to a web service
    Rest(rest::Rest),
    /// A web service with an OpenAPI document
    Openapi(openapi::Openapi),
    /// An agent, by its file
    Agent(agent::Agent),
    /// A server, as the JSON that a client would have
    Json(Json),
}

/// Where it is put.
#[derive(Args, Clone)]
struct Spot {
    /// The toolbox that it is put into; without it, default
    #[arg(long, short = 'b', value_name = "TOOLBOX")]
    toolbox: Option<String>,
    /// Replace what has this name
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    target: Target,
}

/// A server: an address, or a program behind `--`.
#[derive(Args)]
struct Server {
    /// What it is called: letters, digits, - and _
    #[arg(required = true)]
    name: Option<String>,
    /// Where it is
    #[arg(value_name = "URL")]
    address: Option<String>,
    /// The program and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
    /// Where it is, for those who name it like this
    #[arg(long, value_name = "URL", hide = true, conflicts_with_all = ["address", "command"])]
    url: Option<String>,
    /// How it is spoken to; without it as the address says
    #[arg(long, short, value_enum)]
    transport: Option<Transport>,
    /// A variable of the program: NAME=VALUE, or NAME for the one of that name when it starts
    #[arg(long, short, value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// A header of every request
    #[arg(long, short = 'H', value_name = "NAME: VALUE")]
    header: Vec<String>,
    /// The variable that holds the token which is shown to the server
    #[arg(long, value_name = "VARIABLE")]
    bearer_token_env_var: Option<String>,
    /// The folder that the program starts in
    #[arg(long, value_name = "FOLDER")]
    cwd: Option<String>,
    #[command(flatten)]
    rules: Rules,
    #[command(flatten)]
    spot: Spot,
}

/// What holds for the tools of what is added.
#[derive(Args, Clone, Default)]
struct Rules {
    /// Let these tools be used and no others: names and globs
    #[arg(long, value_name = "GLOB", value_delimiter = ',')]
    allow: Vec<String>,
    /// Let these tools not be used: names and globs
    #[arg(long, value_name = "GLOB", value_delimiter = ',')]
    deny: Vec<String>,
    /// The queue that calls go through
    #[arg(long)]
    queue: Option<String>,
    /// How long answers may be given again: 5m, 1h
    #[arg(long, value_name = "TIME")]
    cache: Option<String>,
    /// Add it switched off
    #[arg(long)]
    disabled: bool,
}

/// A server, as the JSON that a client would have.
#[derive(Args)]
struct Json {
    /// What it is called
    name: String,
    /// What it is: {"command": …} or {"url": …}
    #[arg(value_name = "JSON")]
    definition: String,
    #[command(flatten)]
    spot: Spot,
}

/// How a server is spoken to.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Transport {
    Stdio,
    #[value(alias = "streamable-http", alias = "streamableHttp", alias = "streamable_http")]
    Http,
    Sse,
    #[value(alias = "ws")]
    Websocket,
}

impl Transport {
    fn word(self) -> &'static str {
        match self {
            Self::Stdio => "stdio",
            Self::Http => "http",
            Self::Sse => "sse",
            Self::Websocket => "websocket",
        }
    }
}

impl Add {
    pub(crate) fn run(self, globals: &Globals) -> Result<ExitCode, Failure> {
        match self.kind {
            Some(Kind::Rest(rest)) => rest.run(globals),
            Some(Kind::Openapi(openapi)) => openapi.run(globals),
            Some(Kind::Agent(agent)) => agent.run(globals),
            Some(Kind::Json(json)) => json.run(globals),
            None => {
                let name = self.server.name.as_deref().unwrap_or_default();
                let entry = self.server.entry(name)?;
                put(globals, &self.server.spot, Section::Servers, name, &entry)
            }
        }
    }
}

impl Server {
    /// The server as the file has it.
    fn entry(&self, name: &str) -> Result<Value, Failure> {
        let mut entry = Map::new();
        let address = self.address.as_ref().or(self.url.as_ref());
        match (address, self.command.split_first()) {
            (Some(address), None) => {
                if !address.contains("://") {
                    let again = format!("pegboard add {name} -- {address}");
                    return Err(Failure::usage(format!("'{address}' is no address")).hint(format!(
                        "an address begins with http:// or https://; for a program:  {again}"
                    )));
                }
                match self.transport {
                    Some(Transport::Stdio) => {
                        return Err(Failure::usage(
                            "stdio is how programs are spoken to, and this is an address",
                        )
                        .hint(format!("pegboard add {name} -- COMMAND")));
                    }
                    Some(transport) => drop(entry.insert("type".to_owned(), json!(transport.word()))),
                    None => {}
                }
                entry.insert("url".to_owned(), json!(address));
                self.add_headers(&mut entry)?;
                refuse_for(&[("--env", !self.env.is_empty()), ("--cwd", self.cwd.is_some())], "a program")?;
            }
            (None, Some((command, arguments))) => {
                if let Some(transport) = self.transport.filter(|transport| *transport != Transport::Stdio) {
                    let word = transport.word();
                    return Err(Failure::usage(format!(
                        "{word} is how addresses are spoken to, and this is a program"
                    ))
                    .hint("leave out --transport"));
                }
                let has_token = self.bearer_token_env_var.is_some();
                let of_address =
                    [("--header", !self.header.is_empty()), ("--bearer-token-env-var", has_token)];
                refuse_for(&of_address, "an address")?;
                entry.insert("command".to_owned(), json!(command));
                if !arguments.is_empty() {
                    entry.insert("args".to_owned(), json!(arguments));
                }
                if !self.env.is_empty() {
                    let pairs: Result<Map<_, _>, _> = self.env.iter().map(|pair| variable(pair)).collect();
                    entry.insert("env".to_owned(), Value::Object(pairs?));
                }
                if let Some(folder) = &self.cwd {
                    entry.insert("cwd".to_owned(), json!(folder));
                }
            }
            (Some(_), Some(_)) => {
                return Err(Failure::usage("a server is an address or a program, and this is both")
                    .hint("leave out one of them"));
            }
            (None, None) => {
                return Err(Failure::usage(format!("nothing says what '{name}' is"))
                    .hint(format!("pegboard add {name} URL   or   pegboard add {name} -- COMMAND")));
            }
        }
        self.rules.add_to(&mut entry);
        Ok(Value::Object(entry))
    }

    fn add_headers(&self, entry: &mut Map<String, Value>) -> Result<(), Failure> {
        let mut headers = headers(&self.header)?;
        if let Some(variable) = &self.bearer_token_env_var {
            headers.insert("Authorization".to_owned(), json!(format!("Bearer ${{{variable}}}")));
        }
        if !headers.is_empty() {
            entry.insert("headers".to_owned(), Value::Object(headers));
        }
        Ok(())
    }
}

impl Rules {
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

impl Json {
    fn run(self, globals: &Globals) -> Result<ExitCode, Failure> {
        let name = &self.name;
        let value: Value = serde_json::from_str(&self.definition).map_err(|error| {
            Failure::usage(format!("this is no JSON: {error}"))
                .hint(format!("pegboard add json {name} '{{\"command\": \"my-server\"}}'"))
        })?;
        if !value.is_object() {
            return Err(Failure::usage("a server is an object")
                .hint(format!("pegboard add json {name} '{{\"command\": \"my-server\"}}'")));
        }
        put(globals, &self.spot, Section::Servers, name, &value)
    }
}

/// Puts something into the file under a name.
fn put(
    globals: &Globals,
    spot: &Spot,
    section: Section,
    name: &str,
    entry: &Value,
) -> Result<ExitCode, Failure> {
    let mut file = OwnFile::open(globals, spot.target)?;
    let toolbox = file.toolbox(spot.toolbox.as_deref())?;
    let way: Way = section.way(toolbox.as_deref()).key(name);
    let word = section.word();
    let is_there = file.document.get(&way).is_some();
    if is_there && !spot.force {
        let place = shown(&file.path);
        let failure =
            Failure::new(Exit::Usage, "name_taken", format!("there is a {word} '{name}' in {place}"));
        return Err(failure.hint("choose another name, or replace it with --force"));
    }
    file.set(&way, entry)?;
    let changed = file.finish(spot.target.writing())?;
    let verb = if is_there { "Replaced" } else { "Added" };
    let place = shown(&changed.path);
    let in_box = toolbox.as_ref().map(|toolbox| format!(" (toolbox {toolbox})")).unwrap_or_default();
    let text = format!("{verb} {word} {name}: {place}{in_box}");
    let document = json!({
        "name": name,
        "section": section.key(),
        "toolbox": toolbox.as_deref().unwrap_or("default"),
        "replaced": is_there,
    });
    changed.tell(globals, &[name], object(document), &text);
    Ok(ExitCode::SUCCESS)
}

/// `NAME=VALUE`, or `NAME` for the variable of that name.
fn variable(pair: &str) -> Result<(String, Value), Failure> {
    let (name, value) = pair
        .split_once('=')
        .map_or_else(|| (pair, format!("${{{pair}}}")), |(name, value)| (name, value.to_owned()));
    if name.is_empty() {
        return Err(Failure::usage("a variable has no name").hint("-e NAME=VALUE, or -e NAME"));
    }
    Ok((name.to_owned(), json!(value)))
}

/// `NAME: VALUE`, each.
fn headers(written: &[String]) -> Result<Map<String, Value>, Failure> {
    let header = |header: &String| {
        let (name, value) = header.split_once(':').ok_or_else(|| {
            Failure::usage("a header has no colon").hint("-H 'Authorization: Bearer ${TOKEN}'")
        })?;
        Ok((name.trim().to_owned(), json!(value.trim())))
    };
    written.iter().map(header).collect()
}

/// Refuses options that mean something else.
fn refuse_for(options: &[(&str, bool)], what: &str) -> Result<(), Failure> {
    match options.iter().find(|(_, is_given)| *is_given) {
        Some((option, _)) => Err(Failure::usage(format!("{option} is for {what}, and this is none"))),
        None => Ok(()),
    }
}

/// A document that is an object.
fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(entries) => entries,
        _ => Map::new(),
    }
}
