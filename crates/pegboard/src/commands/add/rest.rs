//! `pegboard add rest`: adds a tool that sends one HTTP request.

use std::process::ExitCode;

use clap::Args;
use pegboard::config::{EntrySection, did_you_mean};
use serde_json::{Map, Value, json};

use super::{KeyedDestination, parse_headers, write_entry};
use crate::cli::{CliError, Globals};

/// JSON types of a parameter.
const KINDS: [&str; 6] = ["string", "integer", "number", "boolean", "array", "object"];

/// Arguments of `pegboard add rest`.
#[derive(Args)]
#[command(
    after_help = "Parameters named in the URL, as {id} or ${parameters.id}, are inserted there. Others go into the query, or into the body of POST, PUT and PATCH.\n\nExample:\n  pegboard add rest get_user 'https://api.example.org/users/{id}' -d 'One user' --param id:string --param verbose:boolean?"
)]
pub(super) struct AddRestArgs {
    /// Name of the tool: letters, digits, - and _
    name: String,
    /// URL, with {name} for parameters
    url: String,
    /// Description of the tool; models choose tools by it
    #[arg(long, short, value_name = "TEXT")]
    description: Option<String>,
    /// HTTP method
    #[arg(long, short = 'X', value_name = "METHOD", default_value = "GET")]
    method: String,
    /// Parameter and its type (string, integer, number, boolean, array, object); append ? if it is optional
    #[arg(long, value_name = "NAME:KIND[?]")]
    param: Vec<String>,
    /// Header to send with every request
    #[arg(long, short = 'H', value_name = "NAME: VALUE")]
    header: Vec<String>,
    /// Queue for calls
    #[arg(long)]
    queue: Option<String>,
    /// Cache answers for this long: 5m, 1h
    #[arg(long, value_name = "TIME")]
    cache: Option<String>,
    #[command(flatten)]
    destination: KeyedDestination,
}

/// Parameter of the tool.
struct RestParameter {
    name: String,
    kind: &'static str,
    is_required: bool,
}

impl AddRestArgs {
    pub(super) fn run(self, globals: &Globals) -> Result<ExitCode, CliError> {
        let entry = self.entry()?;
        write_entry(globals, &self.destination, EntrySection::RestTools, &self.name, &entry)
    }

    fn entry(&self) -> Result<Value, CliError> {
        let mut parameters: Vec<RestParameter> =
            self.param.iter().map(|written| parse_parameter(written)).collect::<Result<_, _>>()?;
        let (url, in_url) = expand_url(&self.url);
        for name in &in_url {
            // Parameters in the URL are always required.
            match parameters.iter_mut().find(|parameter| parameter.name == *name) {
                Some(parameter) => parameter.is_required = true,
                None => {
                    parameters.push(RestParameter { name: name.clone(), kind: "string", is_required: true });
                }
            }
        }
        let method = self.method.to_uppercase();
        let description = self.description.clone().unwrap_or_else(|| format!("{method} {}", self.url));
        let mut entry = Map::new();
        entry.insert("description".to_owned(), json!(description));
        if method != "GET" {
            entry.insert("method".to_owned(), json!(method));
        }
        entry.insert("url".to_owned(), json!(url));
        let headers = parse_headers(&self.header)?;
        if !headers.is_empty() {
            entry.insert("headers".to_owned(), Value::Object(headers));
        }
        let others: Vec<&str> = parameters
            .iter()
            .map(|parameter| parameter.name.as_str())
            .filter(|name| !in_url.iter().any(|at| at == name))
            .collect();
        if !parameters.is_empty() {
            entry.insert("parametersSchema".to_owned(), schema(&parameters));
        }
        if !others.is_empty() {
            if matches!(method.as_str(), "POST" | "PUT" | "PATCH") {
                let body =
                    others.iter().map(|name| ((*name).to_owned(), json!(format!("${{parameters.{name}}}"))));
                entry.insert("bodyTemplate".to_owned(), Value::Object(body.collect()));
            } else {
                entry.insert("queryParamNames".to_owned(), json!(others));
            }
        }
        for (key, value) in [("queue", &self.queue), ("cache", &self.cache)] {
            if let Some(value) = value {
                entry.insert(key.to_owned(), json!(value));
            }
        }
        Ok(Value::Object(entry))
    }
}

/// Parses `NAME`, `NAME:KIND` or `NAME:KIND?`.
fn parse_parameter(written: &str) -> Result<RestParameter, CliError> {
    let is_required = !written.ends_with('?');
    let (name, kind) =
        written.trim_end_matches('?').split_once(':').unwrap_or((written.trim_end_matches('?'), "string"));
    let known = KINDS.iter().find(|known| **known == kind).copied();
    let kind = known.ok_or_else(|| {
        let failure = CliError::usage(format!("unknown type '{kind}'"));
        let meant = did_you_mean(kind, KINDS);
        failure.hint(meant.unwrap_or_else(|| format!("expected one of {}", KINDS.join(", "))))
    })?;
    if name.is_empty() {
        return Err(CliError::usage("missing parameter name").hint("use --param NAME:KIND"));
    }
    Ok(RestParameter { name: name.to_owned(), kind, is_required })
}

fn schema(parameters: &[RestParameter]) -> Value {
    let properties: Map<String, Value> = parameters
        .iter()
        .map(|parameter| (parameter.name.clone(), json!({"type": parameter.kind})))
        .collect();
    let required: Vec<&str> = parameters
        .iter()
        .filter(|parameter| parameter.is_required)
        .map(|parameter| parameter.name.as_str())
        .collect();
    let mut schema =
        Map::from_iter([("type".to_owned(), json!("object")), ("properties".to_owned(), json!(properties))]);
    if !required.is_empty() {
        schema.insert("required".to_owned(), json!(required));
    }
    Value::Object(schema)
}

/// Rewrites parameters in a URL to the configuration's syntax; returns the URL and their names.
fn expand_url(url: &str) -> (String, Vec<String>) {
    let mut placed = String::new();
    let mut names = Vec::new();
    let mut rest = url;
    while let Some(open) = rest.find('{') {
        let Some(length) = rest[open..].find('}') else { break };
        let (before, inside) = (&rest[..open], &rest[open + 1..open + length]);
        let is_variable = before.ends_with('$');
        let name = inside.strip_prefix("parameters.").unwrap_or(inside);
        if is_variable && !inside.starts_with("parameters.") {
            // A variable of the configuration, not a parameter.
            placed.push_str(&rest[..=open + length]);
        } else {
            placed.push_str(before.strip_suffix('$').unwrap_or(before));
            placed.push_str("${parameters.");
            placed.push_str(name);
            placed.push('}');
            if !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
        rest = &rest[open + length + 1..];
    }
    placed.push_str(rest);
    (placed, names)
}
