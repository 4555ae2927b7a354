//! Final report: its requirements, and how it is parsed from a model's output.

use pegboard_core::schema::Schema;
use pegboard_core::settings::agent::ReportFormat;
use serde_json::{Map, Value, json};

/// Maximum number of strings that are reparsed as JSON.
const MAX_REPAIRS: usize = 4;
/// Maximum number of characters of a model's argument quoted in an error.
const MAX_QUOTED_CHARS: usize = 40;

/// Requirements for a final report.
#[derive(Clone, Debug)]
pub(crate) struct ReportSpec {
    /// Required format.
    pub(crate) format: ReportFormat,
    /// Schema of JSON content.
    pub(crate) schema: Option<Schema>,
}

/// Final report of an agent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AgentReport {
    pub(crate) status: ReportStatus,
    pub(crate) content: ReportContent,
    /// Additional metadata from the agent.
    pub(crate) metadata: Map<String, Value>,
}

/// Outcome as declared by the agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ReportStatus {
    /// The task is done.
    #[default]
    Success,
    /// Part of the task is done.
    Partial,
    /// The task could not be done.
    Failure,
}

/// Content of a report.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ReportContent {
    Text(String),
    Json(Value),
}

impl ReportContent {
    /// Returns the content as text.
    pub(crate) fn to_text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Json(value) => value.to_string(),
        }
    }
}

impl ReportStatus {
    const ALL: [(&str, Self); 3] =
        [("success", Self::Success), ("failure", Self::Failure), ("partial", Self::Partial)];

    /// Returns the name of the status.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Partial => "partial",
            Self::Failure => "failure",
        }
    }

    /// Parses a status; a missing one means success.
    pub(crate) fn read(word: Option<&str>) -> Result<Self, String> {
        let Some(word) = word.map(str::trim).filter(|word| !word.is_empty()) else {
            return Ok(Self::default());
        };
        let lower = word.to_lowercase();
        Self::ALL.into_iter().find(|(name, _)| *name == lower).map(|(_, status)| status).ok_or_else(|| {
            let words = Self::ALL.map(|(name, _)| name).join(", ");
            format!("Invalid status '{}'. Must be one of: {words}", clipped_word(word))
        })
    }
}

impl ReportSpec {
    /// Returns the schema of the tool's arguments.
    pub(crate) fn input_schema(&self) -> Value {
        let content = match (self.format, &self.schema) {
            (ReportFormat::Json, Some(schema)) => schema.as_json().clone(),
            (ReportFormat::Json, None) => json!({"type": "object"}),
            _ => json!({"type": "string", "minLength": 1, "description": "The whole report."}),
        };
        let name = self.content_name();
        json!({
            "type": "object",
            "properties": {
                "status": {"type": "string", "enum": ReportStatus::ALL.map(|(name, _)| name)},
                "format": {"const": self.format.as_str()},
                name: content,
                "metadata": {"type": "object"}
            },
            "required": ["status", "format", name],
        })
    }

    fn content_name(&self) -> &'static str {
        match self.format {
            ReportFormat::Json => "content_json",
            ReportFormat::Markdown
            | ReportFormat::SlackBlockKit
            | ReportFormat::Tty
            | ReportFormat::Pipe
            | ReportFormat::Text
            | ReportFormat::SubAgent => "content",
        }
    }

    /// Parses the report from the arguments of a call.
    pub(crate) fn read(&self, arguments: &Value) -> Result<AgentReport, String> {
        let given = |names: [&str; 2]| {
            names.iter().map(|name| &arguments[*name]).find(|value| !value.is_null()).cloned()
        };
        let status = ReportStatus::read(arguments["status"].as_str())?;
        let format = given(["format", "report_format"]);
        self.check_format(format.as_ref().and_then(Value::as_str))?;
        let text = given(["content", "report_content"]);
        let content = match self.format {
            ReportFormat::Json => {
                self.json(given(["content_json", "report_json"]).or(text).unwrap_or_default())?
            }
            ReportFormat::SlackBlockKit => match text {
                Some(list @ Value::Array(_)) => ReportContent::Json(list),
                text => self.text(text.as_ref().and_then(Value::as_str).unwrap_or_default())?,
            },
            _ => self.text(text.as_ref().and_then(Value::as_str).unwrap_or_default())?,
        };
        let metadata = arguments["metadata"].as_object().cloned().unwrap_or_default();
        Ok(AgentReport { status, content, metadata })
    }

    /// Parses the report from a text.
    pub(crate) fn read_text(
        &self,
        format: Option<&str>,
        status: Option<&str>,
        text: &str,
    ) -> Result<AgentReport, String> {
        self.check_format(format)?;
        let status = ReportStatus::read(status)?;
        let content = match self.format {
            ReportFormat::Json => self.json(Value::String(text.to_owned()))?,
            _ => self.text(text)?,
        };
        Ok(AgentReport { status, content, metadata: Map::new() })
    }

    fn check_format(&self, given: Option<&str>) -> Result<(), String> {
        let wanted = self.format.as_str();
        match given.map(str::trim) {
            Some(format) if format != wanted => {
                let format = clipped_word(format);
                Err(format!("agent__final_report: received report_format='{format}', expected '{wanted}'."))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn text(&self, text: &str) -> Result<ReportContent, String> {
        let text = text.trim();
        if text.is_empty() {
            return Err("agent__final_report requires non-empty report_content field.".to_owned());
        }
        if self.format != ReportFormat::SlackBlockKit {
            return Ok(ReportContent::Text(text.to_owned()));
        }
        match serde_json::from_str(strip_code_fence(text)) {
            Ok(blocks @ (Value::Array(_) | Value::Object(_))) => Ok(ReportContent::Json(blocks)),
            Ok(_) | Err(_) => {
                Err("final_report(slack-block-kit) requires a JSON array of messages with blocks.".to_owned())
            }
        }
    }

    fn json(&self, given: Value) -> Result<ReportContent, String> {
        let value = match given {
            Value::String(text) => serde_json::from_str(strip_code_fence(&text)).unwrap_or_default(),
            other => other,
        };
        let Value::Object(_) = value else {
            return Err("final_report(json) requires `content_json` (object).".to_owned());
        };
        let Some(schema) = &self.schema else { return Ok(ReportContent::Json(value)) };
        let value = parse_embedded_json(schema, value);
        let verdict = schema.check(&value);
        if verdict.valid {
            return Ok(ReportContent::Json(value));
        }
        let errors: Vec<&str> =
            verdict.errors.iter().map(pegboard_core::validation::Violation::text).collect();
        Err(format!("final_report(json) schema validation failed: {}", errors.join("; ")))
    }
}

/// Parses strings that should have been JSON, as long as that reduces the number of schema violations.
fn parse_embedded_json(schema: &Schema, mut value: Value) -> Value {
    let mut n_wrong = schema.check(&value).errors.len();
    let mut places = Vec::new();
    find_json_strings(&value, &mut String::new(), &mut places);
    for place in places.into_iter().take(MAX_REPAIRS) {
        if n_wrong == 0 {
            break;
        }
        let mut better = value.clone();
        let Some(text) = better.pointer_mut(&place) else { continue };
        let Some(parsed) = text.as_str().and_then(|text| serde_json::from_str(text).ok()) else { continue };
        *text = parsed;
        let n_left = schema.check(&better).errors.len();
        if n_left < n_wrong {
            (value, n_wrong) = (better, n_left);
        }
    }
    value
}

/// Collects the JSON pointers of strings that look like JSON.
fn find_json_strings(value: &Value, at: &mut String, places: &mut Vec<String>) {
    let n_bytes = at.len();
    let mut enter = |name: &str, member: &Value| {
        at.push('/');
        at.push_str(&name.replace('~', "~0").replace('/', "~1"));
        find_json_strings(member, at, places);
        at.truncate(n_bytes);
    };
    match value {
        Value::String(text) if text.trim_start().starts_with(['{', '[']) => places.push(at.clone()),
        Value::Object(members) => members.iter().for_each(|(name, member)| enter(name, member)),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, item)| enter(&index.to_string(), item));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Removes a surrounding code fence.
fn strip_code_fence(text: &str) -> &str {
    let text = text.trim();
    let Some(inner) = text.strip_prefix("```").and_then(|rest| rest.strip_suffix("```")) else { return text };
    inner.split_once('\n').map_or(inner, |(_language, code)| code).trim()
}

fn clipped_word(word: &str) -> String {
    word.chars().take(MAX_QUOTED_CHARS).collect()
}
