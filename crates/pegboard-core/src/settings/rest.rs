//! Settings of REST tools.

use std::fmt;
use std::time::Duration;

use schemars::JsonSchema;
use serde::de::Visitor;
use serde::{Deserialize, Deserializer};

use crate::duration::HumanDuration;

mod template;
mod tool;

pub use template::{BodyTemplate, DataTemplate, InvalidTemplate, TemplatePart, TextTemplate, UrlTemplate};
pub use tool::{QueryStyle, RestTool};

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
