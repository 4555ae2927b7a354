//! Settings of REST tools: as written, and resolved.

use std::fmt;
use std::time::Duration;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::ToolSettings;
use super::mcp::Secret;
use crate::duration::HumanDuration;
use crate::id::ToolName;

mod template;
mod tool;

pub use template::{BodyTemplate, DataTemplate, InvalidTemplate, TemplatePart, TextTemplate, UrlTemplate};
pub use tool::{InvalidRestTool, QueryStyle, RestTool};

/// Default timeout for the start of a response.
const RESPONSE_TIMEOUT: Duration = Duration::from_mins(5);
/// Timeout for the start of a response if the tool has none.
const MAX_RESPONSE_TIMEOUT: Duration = Duration::from_hours(24);

/// Configuration entry of a REST tool: request and tool settings.
///
/// ```
/// use pegboard_core::id::ToolName;
/// use pegboard_core::settings::rest::RestToolEntry;
///
/// let entry: RestToolEntry = serde_json::from_str(
///     r#"{
///         "description": "One user",
///         "url": "https://api.example.org/users/${parameters.id}",
///         "parametersSchema": {"type": "object", "properties": {"id": {"type": "string"}}},
///         "cache": "5m"
///     }"#,
/// ).unwrap();
/// let (tool, settings) = entry.normalise(ToolName::new("user").unwrap()).unwrap();
/// assert_eq!(tool.parameters["required"], serde_json::json!(["id"]));
/// assert!(settings.cache.is_some());
/// ```
#[derive(Clone, Debug)]
pub struct RestToolEntry {
    /// Request settings.
    pub request: RestToolSettings,
    /// Tool settings.
    pub tool: ToolSettings,
}

impl RestToolEntry {
    /// Resolves the entry; fails with all errors.
    pub fn normalise(self, name: ToolName) -> Result<(RestTool, ToolSettings), Vec<InvalidRestTool>> {
        let response_timeout = match self.tool.timeout.map(Duration::from) {
            None => RESPONSE_TIMEOUT,
            Some(Duration::ZERO) => MAX_RESPONSE_TIMEOUT,
            Some(timeout) => timeout,
        };
        let tool = self.request.normalise(name)?;
        Ok((RestTool { response_timeout, ..tool }, self.tool))
    }
}

impl<'de> Deserialize<'de> for RestToolEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = Map::<String, Value>::deserialize(deserializer)?;
        let (request, tool): (Map<_, _>, Map<_, _>) =
            written.into_iter().partition(|(name, _)| RestToolSettings::FIELDS.contains(&name.as_str()));
        Ok(Self {
            request: RestToolSettings::deserialize(Value::Object(request)).map_err(de::Error::custom)?,
            tool: ToolSettings::deserialize(Value::Object(tool)).map_err(de::Error::custom)?,
        })
    }
}

/// Request of a REST tool, as written.
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

impl RestToolSettings {
    /// Names of the fields as written.
    pub const FIELDS: [&str; 14] = [
        "description",
        "method",
        "url",
        "headers",
        "parametersSchema",
        "bodyTemplate",
        "streaming",
        "hasComplexQueryParams",
        "queryParamNames",
        "retry",
        "pagination",
        "maxBytes",
        "allowPrivateNetwork",
        "enabled",
    ];
}

/// Omits everything that may hold a secret.
impl fmt::Debug for RestToolSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RestToolSettings").field("method", &self.method).finish_non_exhaustive()
    }
}

/// HTTP method.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum HttpMethod {
    /// GET.
    #[default]
    Get,
    /// POST.
    Post,
    /// PUT.
    Put,
    /// PATCH.
    Patch,
    /// DELETE.
    Delete,
}

impl HttpMethod {
    /// Returns the method as text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }

    /// Returns `true` if a repeated request has no side effects.
    pub fn is_safe(self) -> bool {
        self == Self::Get
    }
}

/// Reading of a streamed response.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct StreamingSettings {
    /// Format of the lines.
    pub mode: StreamMode,
    /// Prefix of each line before the JSON, such as `data:`.
    pub line_prefix: String,
    /// Member that holds the type of a line.
    pub discriminator_field: String,
    /// Type of the last line.
    #[serde(deserialize_with = "scalar_text")]
    #[schemars(schema_with = "scalar_schema")]
    pub done_value: String,
    /// Member of the last line that holds the whole answer.
    pub answer_field: String,
    /// Type of a line with a chunk of the answer.
    #[serde(deserialize_with = "scalar_text")]
    #[schemars(schema_with = "scalar_schema")]
    pub token_value: String,
    /// Member of such a line that holds the chunk.
    pub token_field: String,
    /// Timeout of the whole response.
    pub timeout_ms: Option<HumanDuration>,
    /// Maximum size of the response in bytes; `maxBytes` of the tool by default.
    pub max_bytes: Option<usize>,
}

impl Default for StreamingSettings {
    fn default() -> Self {
        Self {
            mode: StreamMode::default(),
            line_prefix: String::new(),
            discriminator_field: "type".to_owned(),
            done_value: "done".to_owned(),
            answer_field: "answer".to_owned(),
            token_value: "token".to_owned(),
            token_field: "content".to_owned(),
            timeout_ms: None,
            max_bytes: None,
        }
    }
}

/// Format of a streamed response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StreamMode {
    /// One JSON object per line.
    #[default]
    JsonStream,
}

/// Retries after 429 and 503 responses, honouring `Retry-After`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RetrySettings {
    /// Maximum number of attempts.
    #[schemars(range(min = 1, max = 10))]
    pub attempts: u32,
    /// Maximum wait between two attempts. A service that asks for more is not retried.
    pub max_wait: HumanDuration,
    /// Retries requests of any method. GET requests are always retried.
    pub any_method: bool,
}

impl Default for RetrySettings {
    fn default() -> Self {
        Self { attempts: 3, max_wait: Duration::from_secs(30).into(), any_method: false }
    }
}

/// Fetching of further pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PaginationSettings {
    /// Location of the next page's URL.
    pub mode: PageMode,
    /// Maximum number of pages.
    #[schemars(range(min = 1, max = 100))]
    pub max_pages: u32,
}

impl Default for PaginationSettings {
    fn default() -> Self {
        Self { mode: PageMode::default(), max_pages: 5 }
    }
}

/// Location of the next page's URL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PageMode {
    /// The `Link` header with `rel="next"`.
    #[default]
    Link,
}

/// Deserializes a string, which may be written as a number or boolean.
fn scalar_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    struct ScalarVisitor;

    impl Visitor<'_> for ScalarVisitor {
        type Value = String;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a string, number or boolean")
        }

        fn visit_str<E>(self, value: &str) -> Result<String, E> {
            Ok(value.to_owned())
        }

        fn visit_bool<E>(self, value: bool) -> Result<String, E> {
            Ok(value.to_string())
        }

        fn visit_u64<E>(self, value: u64) -> Result<String, E> {
            Ok(value.to_string())
        }

        fn visit_i64<E>(self, value: i64) -> Result<String, E> {
            Ok(value.to_string())
        }
    }

    deserializer.deserialize_any(ScalarVisitor)
}

/// Schema for [`scalar_text`].
fn scalar_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": ["string", "integer", "boolean"]})
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_list_of_fields_matches_the_schema() {
        let schema = schemars::schema_for!(RestToolSettings).to_value();
        let names: Vec<_> = schema["properties"].as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(names, RestToolSettings::FIELDS);
    }

    fn errors_of(settings: Value) -> Vec<String> {
        let entry: RestToolEntry = serde_json::from_value(settings).unwrap();
        let errors = entry.normalise(ToolName::new("it").unwrap()).map(drop).unwrap_err();
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
            let entry: RestToolEntry = serde_json::from_value(settings).unwrap();
            assert!(entry.normalise(ToolName::new("it").unwrap()).is_ok());
        }
    }

    #[test]
    fn path_parameters_are_required_unless_they_have_a_default() {
        let entry: RestToolEntry = serde_json::from_value(json!({
            "description": "",
            "url": "https://x.org/${parameters.a}/${parameters.b}?c=${parameters.c}",
            "parametersSchema": {"properties": {"a": {}, "b": {"default": 1}, "c": {}}},
        }))
        .unwrap();
        let (tool, _) = entry.normalise(ToolName::new("it").unwrap()).unwrap();
        assert_eq!(tool.parameters["required"], json!(["a"]));
    }

    #[test]
    fn debug_output_contains_no_secrets() {
        let entry: RestToolEntry = serde_json::from_value(json!({
            "description": "",
            "url": "https://x.org/hush?key=hush",
            "headers": {"A": "hush"},
            "bodyTemplate": {"a": "hush"},
        }))
        .unwrap();
        let printed = format!("{entry:?} {:?}", entry.clone().normalise(ToolName::new("it").unwrap()));
        assert!(!printed.contains("hush"), "{printed}");
    }
}
