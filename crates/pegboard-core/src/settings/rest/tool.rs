//! Resolved REST tools.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::template::{BodyTemplate, InvalidTemplate, TemplatePart, TextTemplate, UrlTemplate};
use super::{
    HttpMethod, PaginationSettings, RESPONSE_TIMEOUT, RestToolSettings, RetrySettings, StreamingSettings,
};
use crate::fingerprint::Fingerprint;
use crate::id::ToolName;

/// Default limit on the size of a response.
const MAX_BYTES: usize = 16 * 1024 * 1024;

/// Resolved settings of a REST tool.
#[derive(Clone, Debug, PartialEq)]
pub struct RestTool {
    /// Name of the tool.
    pub name: ToolName,
    /// Description of the tool.
    pub description: String,
    /// HTTP method.
    pub method: HttpMethod,
    /// URL template.
    pub url: UrlTemplate,
    /// Header templates by name.
    pub headers: Vec<(String, TextTemplate)>,
    /// Body template.
    pub body: Option<BodyTemplate>,
    /// Parameters sent in the query.
    pub query: Vec<String>,
    /// Encoding of query parameters.
    pub query_style: QueryStyle,
    /// JSON Schema of the arguments.
    pub parameters: Value,
    /// Reading of a streamed response.
    pub streaming: Option<StreamingSettings>,
    /// Retries when the service is busy.
    pub retry: Option<RetrySettings>,
    /// Fetching of further pages.
    pub pagination: Option<PaginationSettings>,
    /// Maximum size of a response in bytes.
    pub max_bytes: usize,
    /// Allows the host to resolve to a private network.
    pub allow_private_network: bool,
    /// Timeout for the start of a response.
    pub response_timeout: Duration,
    /// Hash of the settings. Reveals no secrets.
    pub fingerprint: String,
}

/// Encoding of query parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueryStyle {
    /// `a=1&a=2`; objects are not supported.
    Plain,
    /// `a[0][b]=1`.
    Brackets,
}

/// An error in the settings of a REST tool, with its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidRestTool {
    /// Path of the setting.
    pub path: Vec<String>,
    /// Error message.
    pub message: String,
    /// Unknown name and the known ones, if that is the error.
    pub unknown: Option<(String, Vec<String>)>,
}

impl InvalidRestTool {
    fn new(path: &[&str], message: impl Into<String>) -> Self {
        Self {
            path: path.iter().map(|&step| step.to_owned()).collect(),
            message: message.into(),
            unknown: None,
        }
    }
}

impl RestToolSettings {
    /// Resolves the settings; fails with all errors.
    pub fn normalise(self, name: ToolName) -> Result<RestTool, Vec<InvalidRestTool>> {
        let mut errors = Vec::new();
        let url = parse_or_report(&["url"], UrlTemplate::parse(self.url.reveal()), &mut errors);
        let schema = schema(&self.parameters_schema, url.as_ref(), &mut errors);
        let names = DeclaredParameters::of(&schema);
        names.check(&["url"], url.iter().flat_map(UrlTemplate::parameters), &mut errors);
        let body = self.body_template.as_ref().filter(|body| !body.is_null());
        let body =
            body.and_then(|body| parse_or_report(&["bodyTemplate"], BodyTemplate::parse(body), &mut errors));
        names.check(&["bodyTemplate"], body.iter().flat_map(BodyTemplate::parameters), &mut errors);
        let mut headers = Vec::new();
        for (header, value) in &self.headers {
            let path = ["headers", header.as_str()];
            if !is_token(header) {
                errors.push(InvalidRestTool::new(&path, "invalid header name"));
            }
            if let Some(value) = parse_or_report(&path, TextTemplate::parse(value.reveal()), &mut errors) {
                names.check(&path, value.parameters(), &mut errors);
                if value
                    .parts()
                    .iter()
                    .any(|part| matches!(part, TemplatePart::Text(text) if text.contains(char::is_control)))
                {
                    errors.push(InvalidRestTool::new(
                        &path,
                        "a header must not contain line breaks or other control characters",
                    ));
                }
                headers.push((header.clone(), value));
            }
        }
        names.check(&["queryParamNames"], self.query_param_names.iter().map(String::as_str), &mut errors);
        self.check_settings(&mut errors);
        let Some(url) = url.filter(|_| errors.is_empty()) else { return Err(errors) };
        Ok(self.finish(name, RestTemplates { url, headers, body }, schema))
    }

    fn check_settings(&self, errors: &mut Vec<InvalidRestTool>) {
        if self.has_complex_query_params && self.query_param_names.is_empty() {
            let message = "list the query parameters in queryParamNames";
            errors.push(InvalidRestTool::new(&["hasComplexQueryParams"], message));
        }
        if self.retry.is_some_and(|retry| !(1..=10).contains(&retry.attempts)) {
            errors.push(InvalidRestTool::new(&["retry", "attempts"], "expected a number from 1 to 10"));
        }
        if self.pagination.is_some_and(|pages| !(1..=100).contains(&pages.max_pages)) {
            errors.push(InvalidRestTool::new(&["pagination", "maxPages"], "expected a number from 1 to 100"));
        }
        if self.pagination.is_some() && self.method != HttpMethod::Get {
            errors.push(InvalidRestTool::new(&["pagination"], "pagination requires the method GET"));
        }
        if self.streaming.is_some() && self.pagination.is_some() {
            let message = "a streamed response has no pages: remove streaming or pagination";
            errors.push(InvalidRestTool::new(&["pagination"], message));
        }
    }

    fn finish(self, name: ToolName, templates: RestTemplates, parameters: Value) -> RestTool {
        let fingerprint = self.fingerprint(&parameters);
        let RestTemplates { url, headers, body } = templates;
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
            response_timeout: RESPONSE_TIMEOUT,
            fingerprint,
        }
    }

    fn fingerprint(&self, parameters: &Value) -> String {
        let mut fingerprint = Fingerprint::default();
        fingerprint.add(self.method.as_str());
        fingerprint.add(self.url.reveal());
        fingerprint.add_all(self.headers.iter().flat_map(|(name, value)| [name, value.reveal()]));
        let request = json!([self.body_template, self.query_param_names, self.has_complex_query_params]);
        fingerprint.add(request.to_string());
        fingerprint.add(parameters.to_string());
        fingerprint.add(format!("{:?} {:?}", self.streaming, self.pagination));
        fingerprint.finish()
    }
}

/// Parsed templates of a tool.
struct RestTemplates {
    url: UrlTemplate,
    headers: Vec<(String, TextTemplate)>,
    body: Option<BodyTemplate>,
}

/// Returns `true` if a text is a valid header name.
fn is_token(name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(is_part)
}

/// Returns the template, or records its error and returns `None`.
fn parse_or_report<T>(
    path: &[&str],
    parsed: Result<T, InvalidTemplate>,
    errors: &mut Vec<InvalidRestTool>,
) -> Option<T> {
    parsed.map_err(|error| errors.push(InvalidRestTool::new(path, error.to_string()))).ok()
}

/// Builds the schema of the arguments. Parameters in the URL path are required.
fn schema(
    written: &Map<String, Value>,
    url: Option<&UrlTemplate>,
    errors: &mut Vec<InvalidRestTool>,
) -> Value {
    let mut schema = written.clone();
    if schema.get("type").is_some_and(|kind| kind != "object") {
        let message = "the arguments of a tool must be an object: use type: object";
        errors.push(InvalidRestTool::new(&["parametersSchema", "type"], message));
    }
    schema.entry("type").or_insert_with(|| "object".into());
    let in_path: Vec<_> = url.iter().flat_map(|url| &url.path).flat_map(TextTemplate::parameters).collect();
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

/// Parameters that the schema declares; `None` if it allows others.
struct DeclaredParameters(Option<Vec<String>>);

impl DeclaredParameters {
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
        let is_open =
            MORE.iter().any(|key| schema.get(key).is_some_and(|value| *value != Value::Bool(false)));
        let names = || Some(schema.get("properties")?.as_object()?.keys().cloned().collect());
        Self(if is_open { None } else { Some(names().unwrap_or_default()) })
    }

    fn check<'n>(
        &self,
        path: &[&str],
        used: impl IntoIterator<Item = &'n str>,
        errors: &mut Vec<InvalidRestTool>,
    ) {
        let Some(known) = &self.0 else { return };
        for name in used {
            if !known.iter().any(|each| each == name) {
                let message = format!("parameter '{name}' is not defined in parametersSchema");
                errors.push(InvalidRestTool {
                    unknown: Some((name.to_owned(), known.clone())),
                    ..InvalidRestTool::new(path, message)
                });
            }
        }
    }
}
