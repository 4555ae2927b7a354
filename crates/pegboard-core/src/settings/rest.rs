//! How a person describes a tool that is one request to a web service, and what that comes to.

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

pub use template::{BodyTemplate, DataTemplate, InvalidTemplate, Part, Template, UrlTemplate};
pub use tool::{InvalidRestTool, QueryStyle, RestTool};

/// How long an answer may take to begin if nobody says otherwise.
const PATIENCE: Duration = Duration::from_mins(5);
/// The same for a tool that may run as long as it wants.
const LONG_PATIENCE: Duration = Duration::from_hours(24);

/// Everything that a person writes about one tool: what is sent, and what holds for its calls.
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
    /// What is sent.
    pub request: RestToolSettings,
    /// What holds for its calls.
    pub tool: ToolSettings,
}

impl RestToolEntry {
    /// What the entry comes to, or everything that is wrong with it.
    pub fn normalise(self, name: ToolName) -> Result<(RestTool, ToolSettings), Vec<InvalidRestTool>> {
        let patience = match self.tool.timeout.map(Duration::from) {
            None => PATIENCE,
            Some(Duration::ZERO) => LONG_PATIENCE,
            Some(timeout) => timeout,
        };
        let tool = self.request.normalise(name)?;
        Ok((RestTool { patience, ..tool }, self.tool))
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

/// A request to a web service as a person writes it down.
#[derive(Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RestToolSettings {
    /// What the tool does. Models choose by it.
    pub description: String,
    /// The method; GET unless this says otherwise.
    #[serde(default)]
    pub method: Method,
    /// The address. `${parameters.NAME}` may stand in its path and its query.
    pub url: Secret,
    /// Headers. `${parameters.NAME}` may stand in their values.
    #[serde(default)]
    pub headers: IndexMap<String, Secret>,
    /// What the arguments must look like.
    #[serde(default)]
    pub parameters_schema: Map<String, Value>,
    /// The body: a text, a list or an object, with `${parameters.NAME}` in its texts.
    #[serde(default)]
    pub body_template: Option<Value>,
    /// How an answer is read that comes line by line.
    #[serde(default)]
    pub streaming: Option<StreamingSettings>,
    /// Whether the parameters of `queryParamNames` may be objects and lists, which are then written as `a[0][b]=c`.
    #[serde(default)]
    pub has_complex_query_params: bool,
    /// Parameters that are sent in the query, in this order.
    #[serde(default)]
    pub query_param_names: Vec<String>,
    /// Whether the service is asked again when it is busy; without it, it is not.
    #[serde(default)]
    pub retry: Option<RetrySettings>,
    /// Whether further pages of an answer are fetched; without it, they are not.
    #[serde(default)]
    pub pagination: Option<PaginationSettings>,
    /// How many bytes of an answer are read, unpacked; 16 MiB unless this says otherwise.
    #[serde(default)]
    pub max_bytes: Option<usize>,
    /// Whether the name of the service may lead into a private network, or to this machine.
    #[serde(default)]
    pub allow_private_network: bool,
    /// Whether the tool is there; it is unless this says no.
    #[serde(default)]
    pub enabled: Option<bool>,
}

impl RestToolSettings {
    /// What the settings are called where a person writes them.
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

/// Says nothing that may hold a secret.
impl fmt::Debug for RestToolSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RestToolSettings").field("method", &self.method).finish_non_exhaustive()
    }
}

/// What is wanted of a web service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum Method {
    /// To be told something.
    #[default]
    Get,
    /// To do something.
    Post,
    /// To keep something in a place.
    Put,
    /// To change a part of something.
    Patch,
    /// To take something away.
    Delete,
}

impl Method {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }

    /// Whether asking again does no harm.
    pub fn is_safe(self) -> bool {
        self == Self::Get
    }
}

/// How an answer is read that comes line by line.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct StreamingSettings {
    /// What the lines are.
    pub mode: StreamMode,
    /// What stands before the JSON of each line, such as `data:`.
    pub line_prefix: String,
    /// The member that says what a line is.
    pub discriminator_field: String,
    /// What it says in the last line.
    #[serde(deserialize_with = "word")]
    #[schemars(schema_with = "word_schema")]
    pub done_value: String,
    /// The member of the last line that is the whole answer.
    pub answer_field: String,
    /// What it says in a line with a piece of the answer.
    #[serde(deserialize_with = "word")]
    #[schemars(schema_with = "word_schema")]
    pub token_value: String,
    /// The member of such a line that is the piece.
    pub token_field: String,
    /// How long the whole answer may take.
    pub timeout_ms: Option<HumanDuration>,
    /// How many bytes of it are read; as many as `maxBytes` of the tool unless this says otherwise.
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

/// What the lines of an answer are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StreamMode {
    /// Each is a JSON object.
    #[default]
    JsonStream,
}

/// When a service that is busy is asked again: after 429 and 503, when it says so or after a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RetrySettings {
    /// How often it is asked in all.
    #[schemars(range(min = 1, max = 10))]
    pub attempts: u32,
    /// How long is waited between two requests at most. A service that wants more time is not asked again.
    pub max_wait: HumanDuration,
    /// Whether requests are repeated that may change something. GET requests always are.
    pub any_method: bool,
}

impl Default for RetrySettings {
    fn default() -> Self {
        Self { attempts: 3, max_wait: Duration::from_secs(30).into(), any_method: false }
    }
}

/// How further pages of an answer are fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PaginationSettings {
    /// Where the address of the next page is.
    pub mode: PageMode,
    /// How many pages are fetched in all.
    #[schemars(range(min = 1, max = 100))]
    pub max_pages: u32,
}

impl Default for PaginationSettings {
    fn default() -> Self {
        Self { mode: PageMode::default(), max_pages: 5 }
    }
}

/// Where the address of the next page is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PageMode {
    /// In the `Link` header, as `rel="next"`.
    #[default]
    Link,
}

/// Reads a word, which may be written as a number or as true or false.
fn word<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    struct Word;

    impl Visitor<'_> for Word {
        type Value = String;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a word, a number, or true or false")
        }

        fn visit_str<E>(self, word: &str) -> Result<String, E> {
            Ok(word.to_owned())
        }

        fn visit_bool<E>(self, word: bool) -> Result<String, E> {
            Ok(word.to_string())
        }

        fn visit_u64<E>(self, word: u64) -> Result<String, E> {
            Ok(word.to_string())
        }

        fn visit_i64<E>(self, word: i64) -> Result<String, E> {
            Ok(word.to_string())
        }
    }

    deserializer.deserialize_any(Word)
}

/// What `word` reads.
fn word_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": ["string", "integer", "boolean"]})
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_names_of_the_settings_are_those_that_are_read() {
        let schema = schemars::schema_for!(RestToolSettings).to_value();
        let names: Vec<_> = schema["properties"].as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(names, RestToolSettings::FIELDS);
    }

    fn wrong(settings: Value) -> Vec<String> {
        let entry: RestToolEntry = serde_json::from_value(settings).unwrap();
        let wrong = entry.normalise(ToolName::new("it").unwrap()).map(drop).unwrap_err();
        wrong.iter().map(|wrong| format!("{}: {}", wrong.way.join("."), wrong.message)).collect()
    }

    #[test]
    fn everything_wrong_is_told_at_once_and_where() {
        let told = wrong(json!({
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
        insta::assert_snapshot!(told.join("\n"), @r"
        parametersSchema.type: the arguments of a tool are an object: write type: object
        url: the parameter 'ident' is not among the properties of parametersSchema
        bodyTemplate: the parameter 'body' is not among the properties of parametersSchema
        headers.A: a ${parameters. is not closed: end it with }
        headers.B: the parameter 'gone' is not among the properties of parametersSchema
        headers.C:: this is no name of a header
        headers.D: a header has no line breaks or other control characters
        queryParamNames: the parameter 'q' is not among the properties of parametersSchema
        retry.attempts: expected a number from 1 to 10
        pagination.maxPages: expected a number from 1 to 100
        pagination: an answer that comes line by line has no pages: take one of the two away
        ");
    }

    #[test]
    fn a_schema_that_leaves_names_open_takes_every_parameter() {
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
    fn what_the_path_needs_is_required_unless_it_has_a_default() {
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
    fn nothing_of_a_tool_is_printed_that_may_be_secret() {
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
