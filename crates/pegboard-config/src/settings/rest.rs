//! Settings of REST tools, as written.

use std::fmt;
use std::time::Duration;

use indexmap::IndexMap;
use pegboard_core::fingerprint::Fingerprint;
use pegboard_core::id::ToolName;
use pegboard_core::secret::Secret;
use pegboard_core::settings::ToolSettings;
use pegboard_core::settings::rest::{
    BodyTemplate, HttpMethod, InvalidTemplate, PaginationSettings, QueryStyle, RestTool, RetrySettings,
    StreamingSettings, TemplatePart, TextTemplate, UrlTemplate,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::configuration::RestEntry;

/// Default timeout for the start of a response.
const RESPONSE_TIMEOUT: Duration = Duration::from_mins(5);
/// Timeout for the start of a response if the tool has none.
const MAX_RESPONSE_TIMEOUT: Duration = Duration::from_hours(24);

/// Default limit on the size of a response.
const MAX_BYTES: usize = 16 * 1024 * 1024;

/// Request of a REST tool, as written.
///
/// ```
/// use pegboard_config::RestEntry;
/// use pegboard_config::settings::RestToolSettings;
/// use pegboard_core::id::ToolName;
/// use pegboard_core::settings::ToolSettings;
///
/// let written: RestToolSettings = serde_json::from_str(
///     r#"{
///         "description": "One user",
///         "url": "https://api.example.org/users/${parameters.id}",
///         "parametersSchema": {"type": "object", "properties": {"id": {"type": "string"}}}
///     }"#,
/// ).unwrap();
/// let entry = written.resolve(ToolName::new("user").unwrap(), ToolSettings::default()).unwrap();
/// let RestEntry::Usable { request, .. } = entry else { panic!("it is usable") };
/// assert_eq!(request.parameters["required"], serde_json::json!(["id"]));
/// ```
#[derive(Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RestToolSettings {
    /// Description, which models choose by.
    pub description: String,
    /// HTTP method; GET by default.
    #[serde(default)]
    pub method: HttpMethod,
    /// URL, with `${parameters.NAME}` in its path and query.
    pub url: Secret,
    /// HTTP headers, with `${parameters.NAME}` in their values.
    #[serde(default)]
    pub headers: IndexMap<String, Secret>,
    /// JSON Schema of the arguments.
    #[serde(default)]
    pub parameters_schema: Map<String, Value>,
    /// Body: a string, list or object, with `${parameters.NAME}` in its strings.
    #[serde(default)]
    pub body_template: Option<Value>,
    /// Reading of a streamed response.
    #[serde(default)]
    pub streaming: Option<StreamingSettings>,
    /// Allows objects and lists in the parameters of `queryParamNames`, encoded as `a[0][b]=c`.
    #[serde(default)]
    pub has_complex_query_params: bool,
    /// Parameters sent in the query, in this order.
    #[serde(default)]
    pub query_param_names: Vec<String>,
    /// Retries when the service is busy; off by default.
    #[serde(default)]
    pub retry: Option<RetrySettings>,
    /// Fetching of further pages; off by default.
    #[serde(default)]
    pub pagination: Option<PaginationSettings>,
    /// Maximum size of a decompressed response in bytes; 16 MiB by default.
    #[serde(default)]
    pub max_bytes: Option<usize>,
    /// Allows the host to resolve to a private network or this machine.
    #[serde(default)]
    pub allow_private_network: bool,
    /// Enables the tool; `true` by default.
    #[serde(default)]
    pub enabled: Option<bool>,
}

/// Omits everything that may hold a secret.
impl fmt::Debug for RestToolSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RestToolSettings").field("method", &self.method).finish_non_exhaustive()
    }
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
    /// Resolves the settings of a request and its calls; fails with all errors.
    pub fn resolve(self, name: ToolName, settings: ToolSettings) -> Result<RestEntry, Vec<InvalidRestTool>> {
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
        let is_enabled = self.enabled.unwrap_or(true);
        let fingerprint = self.fingerprint(&schema);
        let request = RestTool {
            name,
            description: self.description,
            method: self.method,
            url,
            headers,
            body,
            query: self.query_param_names,
            query_style: if self.has_complex_query_params { QueryStyle::Brackets } else { QueryStyle::Plain },
            parameters: schema,
            streaming: self.streaming,
            retry: self.retry,
            pagination: self.pagination,
            max_bytes: self.max_bytes.unwrap_or(MAX_BYTES),
            allow_private_network: self.allow_private_network,
            response_timeout: match settings.timeout.map(Duration::from) {
                None => RESPONSE_TIMEOUT,
                Some(Duration::ZERO) => MAX_RESPONSE_TIMEOUT,
                Some(timeout) => timeout,
            },
            fingerprint,
        };
        Ok(RestEntry::Usable { is_enabled, request: Box::new(request), settings: Box::new(settings) })
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

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(settings: Value) -> Result<RestEntry, Vec<InvalidRestTool>> {
        let written: RestToolSettings = serde_json::from_value(settings).unwrap();
        written.resolve(ToolName::new("it").unwrap(), ToolSettings::default())
    }

    fn errors_of(settings: Value) -> Vec<String> {
        let errors = resolve(settings).unwrap_err();
        errors.iter().map(|error| format!("{}: {}", error.path.join("."), error.message)).collect()
    }

    #[test]
    fn all_errors_are_reported_with_their_path() {
        let errors = errors_of(json!({
            "description": "",
            "url": "https://x.org/${parameters.ident}",
            "headers": {"A": "${parameters.", "B": "${parameters.gone}", "C:": "", "D": "a\r\nb"},
            "bodyTemplate": {"a": ["${parameters.body}"]},
            "queryParamNames": ["id", "q"],
            "parametersSchema": {"type": "array", "properties": {"id": {}}},
            "retry": {"attempts": 0},
            "pagination": {"maxPages": 1000},
            "streaming": {},
        }));
        insta::assert_snapshot!(errors.join("\n"), @r"
        parametersSchema.type: the arguments of a tool must be an object: use type: object
        url: parameter 'ident' is not defined in parametersSchema
        bodyTemplate: parameter 'body' is not defined in parametersSchema
        headers.A: unclosed ${parameters.: end it with }
        headers.B: parameter 'gone' is not defined in parametersSchema
        headers.C:: invalid header name
        headers.D: a header must not contain line breaks or other control characters
        queryParamNames: parameter 'q' is not defined in parametersSchema
        retry.attempts: expected a number from 1 to 10
        pagination.maxPages: expected a number from 1 to 100
        pagination: a streamed response has no pages: remove streaming or pagination
        ");
    }

    #[test]
    fn an_open_schema_accepts_every_parameter() {
        for open in
            [json!({"additionalProperties": true}), json!({"$ref": "#/$defs/a"}), json!({"allOf": [{}]})]
        {
            let settings =
                json!({"description": "", "url": "https://x.org/${parameters.id}", "parametersSchema": open});
            assert!(resolve(settings).is_ok());
        }
    }

    #[test]
    fn path_parameters_are_required_unless_they_have_a_default() {
        let entry = resolve(json!({
            "description": "",
            "url": "https://x.org/${parameters.a}/${parameters.b}?c=${parameters.c}",
            "parametersSchema": {"properties": {"a": {}, "b": {"default": 1}, "c": {}}},
        }));
        let Ok(RestEntry::Usable { request, .. }) = entry else { panic!("{entry:?}") };
        assert_eq!(request.parameters["required"], json!(["a"]));
    }

    #[test]
    fn debug_output_contains_no_secrets() {
        let settings = json!({
            "description": "",
            "url": "https://x.org/hush?key=hush",
            "headers": {"A": "hush"},
            "bodyTemplate": {"a": "hush"},
        });
        let written: RestToolSettings = serde_json::from_value(settings.clone()).unwrap();
        let printed = format!("{written:?} {:?}", resolve(settings).unwrap());
        assert!(!printed.contains("hush"), "{printed}");
    }
}
