//! `pegboard add rest`: a tool that is one request to a web service.

use std::process::ExitCode;

use clap::Args;
use serde_json::{Map, Value, json};

use super::{Spot, headers, put};
use crate::cli::{Failure, Globals};
use crate::commands::own_file::Section;

/// The kinds of values that a parameter may have.
const KINDS: [&str; 6] = ["string", "integer", "number", "boolean", "array", "object"];

/// The tool.
#[derive(Args)]
#[command(
    after_help = "A parameter that the address names, as {id} or ${parameters.id}, goes there. Others go into the query, or into the body of POST, PUT and PATCH.\n\nExample:\n  pegboard add rest get_user 'https://api.example.org/users/{id}' -d 'One user' --param id:string --param verbose:boolean?"
)]
pub(super) struct Rest {
    /// What it is called: letters, digits, - and _
    name: String,
    /// The address, with {name} for parameters
    url: String,
    /// What it does; models choose by it
    #[arg(long, short, value_name = "TEXT")]
    description: Option<String>,
    /// The method
    #[arg(long, short = 'X', value_name = "METHOD", default_value = "GET")]
    method: String,
    /// A parameter and its kind (string, integer, number, boolean, array, object); ? behind it if it may be left out
    #[arg(long, value_name = "NAME:KIND[?]")]
    param: Vec<String>,
    /// A header of every request
    #[arg(long, short = 'H', value_name = "NAME: VALUE")]
    header: Vec<String>,
    /// The queue that calls go through
    #[arg(long)]
    queue: Option<String>,
    /// How long answers may be given again: 5m, 1h
    #[arg(long, value_name = "TIME")]
    cache: Option<String>,
    #[command(flatten)]
    spot: Spot,
}

/// A parameter.
struct Parameter {
    name: String,
    kind: &'static str,
    is_required: bool,
}

impl Rest {
    pub(super) fn run(self, globals: &Globals) -> Result<ExitCode, Failure> {
        let entry = self.entry()?;
        put(globals, &self.spot, Section::RestTools, &self.name, &entry)
    }

    fn entry(&self) -> Result<Value, Failure> {
        let mut parameters: Vec<Parameter> =
            self.param.iter().map(|written| parameter(written)).collect::<Result<_, _>>()?;
        let (url, in_url) = placed(&self.url);
        for name in &in_url {
            // An address without one of its parts is another address.
            match parameters.iter_mut().find(|parameter| parameter.name == *name) {
                Some(parameter) => parameter.is_required = true,
                None => parameters.push(Parameter { name: name.clone(), kind: "string", is_required: true }),
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
        let headers = headers(&self.header)?;
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

/// `NAME`, `NAME:KIND`, `NAME:KIND?`.
fn parameter(written: &str) -> Result<Parameter, Failure> {
    let is_required = !written.ends_with('?');
    let (name, kind) =
        written.trim_end_matches('?').split_once(':').unwrap_or((written.trim_end_matches('?'), "string"));
    let known = KINDS.iter().find(|known| **known == kind).copied();
    let kind = known.ok_or_else(|| {
        let failure = Failure::usage(format!("'{kind}' is no kind of value"));
        match pegboard::config::near(kind, KINDS) {
            Some(meant) => failure.hint(format!("did you mean {meant}?")),
            None => failure.hint(format!("there are {}", KINDS.join(", "))),
        }
    })?;
    if name.is_empty() {
        return Err(Failure::usage("a parameter has no name").hint("--param NAME:KIND"));
    }
    Ok(Parameter { name: name.to_owned(), kind, is_required })
}

fn schema(parameters: &[Parameter]) -> Value {
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

/// An address with its parameters as the file names them, and their names.
fn placed(url: &str) -> (String, Vec<String>) {
    let mut placed = String::new();
    let mut names = Vec::new();
    let mut rest = url;
    while let Some(open) = rest.find('{') {
        let Some(length) = rest[open..].find('}') else { break };
        let (before, inside) = (&rest[..open], &rest[open + 1..open + length]);
        let is_variable = before.ends_with('$');
        let name = inside.strip_prefix("parameters.").unwrap_or(inside);
        if is_variable && !inside.starts_with("parameters.") {
            // A variable of the file, and no parameter.
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
