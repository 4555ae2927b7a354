//! Resolved REST tools.

use std::time::Duration;

use serde_json::Value;

use super::template::{BodyTemplate, TextTemplate, UrlTemplate};
use super::{HttpMethod, PaginationSettings, RetrySettings, StreamingSettings};
use crate::id::ToolName;

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
