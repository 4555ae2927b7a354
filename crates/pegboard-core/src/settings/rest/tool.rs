//! A tool that is one request to a web service, with nothing left open.

use std::time::Duration;

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::template::{BodyTemplate, InvalidTemplate, Part, Template, UrlTemplate};
use super::{Method, PATIENCE, PaginationSettings, RestToolSettings, RetrySettings, StreamingSettings};
use crate::id::ToolName;

/// How many bytes of an answer are read if nobody says otherwise.
const MAX_BYTES: usize = 16 * 1024 * 1024;

/// A tool that is a request to a web service, with nothing left open.
#[derive(Clone, Debug, PartialEq)]
pub struct RestTool {
    /// What it is called.
    pub name: ToolName,
    /// What it does.
    pub description: String,
    /// What is wanted.
    pub method: Method,
    /// Where.
    pub url: UrlTemplate,
    /// Headers, by name.
    pub headers: Vec<(String, Template)>,
    /// What is sent.
    pub body: Option<BodyTemplate>,
    /// Parameters that are sent in the query, and how.
    pub query: Vec<String>,
    /// How they are written.
    pub query_style: QueryStyle,
    /// The schema of its arguments.
    pub parameters: Value,
    /// How an answer is read that comes line by line.
    pub streaming: Option<StreamingSettings>,
    /// Whether the service is asked again when it is busy.
    pub retry: Option<RetrySettings>,
    /// Whether further pages are fetched.
    pub pagination: Option<PaginationSettings>,
    /// How many bytes of an answer are read.
    pub max_bytes: usize,
    /// Whether the name of the service may lead into a private network.
    pub allow_private_network: bool,
    /// How long an answer may take to begin.
    pub patience: Duration,
    /// Tells this tool from every other, and says nothing of the secrets in it.
    pub fingerprint: String,
}

/// How parameters are written in a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueryStyle {
    /// `a=1&a=2`; an object cannot be written.
    Plain,
    /// `a[0][b]=1`.
    Brackets,
}

/// Something wrong with a tool, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidRestTool {
    /// The settings on the way to it.
    pub way: Vec<String>,
    /// What is wrong.
    pub message: String,
    /// The name that is not there, if that is what is wrong, and those that are.
    pub unknown: Option<(String, Vec<String>)>,
}

impl InvalidRestTool {
    fn new(way: &[&str], message: impl Into<String>) -> Self {
        Self {
            way: way.iter().map(|&step| step.to_owned()).collect(),
            message: message.into(),
            unknown: None,
        }
    }
}

impl RestToolSettings {
    /// What the settings come to, or everything that is wrong with them.
    pub fn normalise(self, name: ToolName) -> Result<RestTool, Vec<InvalidRestTool>> {
        let mut wrong = Vec::new();
        let url = kept(&["url"], UrlTemplate::parse(self.url.reveal()), &mut wrong);
        let schema = schema(&self.parameters_schema, url.as_ref(), &mut wrong);
        let names = Names::of(&schema);
        names.check(&["url"], url.iter().flat_map(UrlTemplate::parameters), &mut wrong);
        let body = self.body_template.as_ref().filter(|body| !body.is_null());
        let body = body.and_then(|body| kept(&["bodyTemplate"], BodyTemplate::parse(body), &mut wrong));
        names.check(&["bodyTemplate"], body.iter().flat_map(BodyTemplate::parameters), &mut wrong);
        let mut headers = Vec::new();
        for (header, value) in &self.headers {
            let way = ["headers", header.as_str()];
            if !is_token(header) {
                wrong.push(InvalidRestTool::new(&way, "this is no name of a header"));
            }
            if let Some(value) = kept(&way, Template::parse(value.reveal()), &mut wrong) {
                names.check(&way, value.parameters(), &mut wrong);
                if value
                    .parts()
                    .iter()
                    .any(|part| matches!(part, Part::Text(text) if text.contains(char::is_control)))
                {
                    wrong.push(InvalidRestTool::new(
                        &way,
                        "a header has no line breaks or other control characters",
                    ));
                }
                headers.push((header.clone(), value));
            }
        }
        names.check(&["queryParamNames"], self.query_param_names.iter().map(String::as_str), &mut wrong);
        self.check_settings(&mut wrong);
        let Some(url) = url.filter(|_| wrong.is_empty()) else { return Err(wrong) };
        Ok(self.finish(name, Templates { url, headers, body }, schema))
    }

    fn check_settings(&self, wrong: &mut Vec<InvalidRestTool>) {
        if self.has_complex_query_params && self.query_param_names.is_empty() {
            let message = "name the parameters of the query in queryParamNames";
            wrong.push(InvalidRestTool::new(&["hasComplexQueryParams"], message));
        }
        if self.retry.is_some_and(|retry| !(1..=10).contains(&retry.attempts)) {
            wrong.push(InvalidRestTool::new(&["retry", "attempts"], "expected a number from 1 to 10"));
        }
        if self.pagination.is_some_and(|pages| !(1..=100).contains(&pages.max_pages)) {
            wrong.push(InvalidRestTool::new(&["pagination", "maxPages"], "expected a number from 1 to 100"));
        }
        if self.pagination.is_some() && self.method != Method::Get {
            wrong.push(InvalidRestTool::new(&["pagination"], "only a GET request has pages"));
        }
        if self.streaming.is_some() && self.pagination.is_some() {
            let message = "an answer that comes line by line has no pages: take one of the two away";
            wrong.push(InvalidRestTool::new(&["pagination"], message));
        }
    }

    fn finish(self, name: ToolName, templates: Templates, parameters: Value) -> RestTool {
        let fingerprint = self.fingerprint(&parameters);
        let Templates { url, headers, body } = templates;
        RestTool {
            name,
            description: self.description,
            method: self.method,
            url,
            headers,
            body,
            query: self.query_param_names,
            query_style: if self.has_complex_query_params { QueryStyle::Brackets } else { QueryStyle::Plain },
            parameters,
            streaming: self.streaming,
            retry: self.retry,
            pagination: self.pagination,
            max_bytes: self.max_bytes.unwrap_or(MAX_BYTES),
            allow_private_network: self.allow_private_network,
            patience: PATIENCE,
            fingerprint,
        }
    }

    fn fingerprint(&self, parameters: &Value) -> String {
        let mut digest = Sha256::new();
        let mut add = |part: &str| {
            // With its length, so that no two lists of parts are written alike.
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
        };
        add(self.method.as_str());
        add(self.url.reveal());
        for (name, value) in &self.headers {
            add(name);
            add(value.reveal());
        }
        add(&json!([self.body_template, self.query_param_names, self.has_complex_query_params]).to_string());
        add(&parameters.to_string());
        add(&format!("{:?} {:?}", self.streaming, self.pagination));
        digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat()
    }
}

/// The templates of a tool, all of them read.
struct Templates {
    url: UrlTemplate,
    headers: Vec<(String, Template)>,
    body: Option<BodyTemplate>,
}

/// Whether a text can be the name of a header.
fn is_token(name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(is_part)
}

/// A template, or none if it is wrong, which is noted.
fn kept<T>(way: &[&str], read: Result<T, InvalidTemplate>, wrong: &mut Vec<InvalidRestTool>) -> Option<T> {
    read.map_err(|error| wrong.push(InvalidRestTool::new(way, error.to_string()))).ok()
}

/// The schema of the arguments. What the path of the address needs is required, since no address can do without it.
fn schema(
    written: &Map<String, Value>,
    url: Option<&UrlTemplate>,
    wrong: &mut Vec<InvalidRestTool>,
) -> Value {
    let mut schema = written.clone();
    if schema.get("type").is_some_and(|kind| kind != "object") {
        let message = "the arguments of a tool are an object: write type: object";
        wrong.push(InvalidRestTool::new(&["parametersSchema", "type"], message));
    }
    schema.entry("type").or_insert_with(|| "object".into());
    let in_path: Vec<_> = url.iter().flat_map(|url| &url.path).flat_map(Template::parameters).collect();
    for name in in_path {
        let has_default = written.get("properties").is_some_and(|known| known[name].get("default").is_some());
        let required = schema.entry("required").or_insert_with(|| json!([]));
        if let Value::Array(required) = required
            && !has_default
            && !required.iter().any(|each| each == name)
        {
            required.push(name.into());
        }
    }
    if schema.get("required").is_some_and(|required| *required == json!([])) {
        schema.shift_remove("required");
    }
    Value::Object(schema)
}

/// The names of parameters, as far as a schema says them all.
struct Names(Option<Vec<String>>);

impl Names {
    fn of(schema: &Value) -> Self {
        const MORE: [&str; 9] = [
            "$ref",
            "$dynamicRef",
            "allOf",
            "anyOf",
            "oneOf",
            "if",
            "dependentSchemas",
            "patternProperties",
            "additionalProperties",
        ];
        let is_open = MORE.iter().any(|key| schema.get(key).is_some_and(|said| *said != Value::Bool(false)));
        let names = || Some(schema.get("properties")?.as_object()?.keys().cloned().collect());
        Self(if is_open { None } else { Some(names().unwrap_or_default()) })
    }

    fn check<'n>(
        &self,
        way: &[&str],
        used: impl IntoIterator<Item = &'n str>,
        wrong: &mut Vec<InvalidRestTool>,
    ) {
        let Some(known) = &self.0 else { return };
        for name in used {
            if !known.iter().any(|each| each == name) {
                let message =
                    format!("the parameter '{name}' is not among the properties of parametersSchema");
                wrong.push(InvalidRestTool {
                    unknown: Some((name.to_owned(), known.clone())),
                    ..InvalidRestTool::new(way, message)
                });
            }
        }
    }
}
