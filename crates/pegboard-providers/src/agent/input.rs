//! Arguments of an agent's tool: their schema, and the task they describe.

use pegboard_core::call::CallOrigin;
use pegboard_core::schema::Schema;
use pegboard_core::settings::agent::{AgentSettings, InputFormat, ReportFormat};
use serde_json::{Map, Value, json};

/// Task for an agent.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct AgentTask {
    /// Prompt for the model.
    pub(super) prompt: String,
    /// Reason for the call, shown to users.
    pub(super) title: String,
    /// Report format requested by the caller.
    pub(super) format: ReportFormat,
}

/// Kind of arguments an agent accepts.
#[derive(Clone, Debug)]
pub(super) enum AgentInput {
    /// A prompt.
    Prompt,
    /// An object of the agent's own schema, plus a reason.
    Object(Schema),
}

impl AgentInput {
    pub(super) fn of(settings: &AgentSettings) -> Self {
        match (settings.input.format, &settings.input.schema) {
            (InputFormat::Json, Some(schema)) => Self::Object(Schema::new(with_reason(schema.clone()))),
            (InputFormat::Json, None) => Self::Object(Schema::new(with_reason(json!({"type": "object"})))),
            (InputFormat::Text, _) => Self::Prompt,
        }
    }

    /// Returns the schema of the arguments.
    pub(super) fn schema(&self) -> Schema {
        match self {
            Self::Object(schema) => schema.clone(),
            Self::Prompt => Schema::new(json!({
                "type": "object",
                "properties": {
                    "prompt": {
                        "type": "string", "minLength": 1,
                        "description": "What the agent should do, with all that it needs to know: it sees nothing else."
                    },
                    "reason": reason_schema(),
                    "format": {"type": "string", "const": ReportFormat::SubAgent.as_str()}
                },
                "required": ["prompt", "reason", "format"],
                "additionalProperties": false
            })),
        }
    }

    /// Reads the task from the arguments of a call.
    pub(super) fn read(&self, arguments: &Value, origin: CallOrigin) -> Result<AgentTask, String> {
        let none = Map::new();
        let members = arguments.as_object().unwrap_or(&none);
        match self {
            Self::Prompt => read_prompt(members, origin),
            Self::Object(schema) => {
                let title = required_text(members, "reason")?;
                let verdict = schema.check(arguments);
                if !verdict.valid {
                    let errors = verdict.errors.iter().map(pegboard_core::validation::Violation::text);
                    return Err(format!("invalid_parameters: {}", errors.collect::<Vec<_>>().join("; ")));
                }
                let mut asked = members.clone();
                asked.shift_remove("reason");
                let prompt = Value::Object(asked).to_string();
                Ok(AgentTask { prompt, title, format: ReportFormat::SubAgent })
            }
        }
    }
}

fn read_prompt(members: &Map<String, Value>, origin: CallOrigin) -> Result<AgentTask, String> {
    let format = match origin {
        // Only the program knows where the report goes; any other caller counts as an agent.
        CallOrigin::Program => {
            let word = members.get("format").and_then(Value::as_str).unwrap_or_default();
            word.parse().map_err(|error| format!("invalid_parameters: format: {error}"))?
        }
        CallOrigin::Client | CallOrigin::Agent => {
            let is_right = members.get("format").and_then(Value::as_str) == Some("sub-agent");
            if !is_right {
                return Err("invalid_parameters: format must be \"sub-agent\"".to_owned());
            }
            ReportFormat::SubAgent
        }
    };
    let (prompt, title) = (required_text(members, "prompt")?, required_text(members, "reason")?);
    let is_known = |name: &&String| ["prompt", "reason", "format"].contains(&name.as_str());
    if let Some(extra) = members.keys().find(|name| !is_known(name)) {
        let extra: String = extra.chars().take(40).collect();
        return Err(format!("invalid_parameters: there is no '{extra}'; use prompt, reason and format"));
    }
    Ok(AgentTask { prompt, title, format })
}

fn required_text(members: &Map<String, Value>, name: &str) -> Result<String, String> {
    let text = members.get(name).and_then(Value::as_str).map(str::trim).filter(|text| !text.is_empty());
    text.map(ToOwned::to_owned).ok_or_else(|| format!("invalid_parameters: {name} (string) is required"))
}

fn reason_schema() -> Value {
    json!({"type": "string", "minLength": 1, "description": "Why you ask, in a few words for people."})
}

/// Adds the required property `reason` to an agent's schema.
fn with_reason(mut schema: Value) -> Value {
    if !schema.is_object() {
        schema = json!({"type": "object"});
    }
    if !schema["properties"].is_object() {
        schema["properties"] = json!({});
    }
    schema["properties"]["reason"] = reason_schema();
    match &mut schema["required"] {
        Value::Array(names) => {
            if !names.contains(&json!("reason")) {
                names.push("reason".into());
            }
        }
        other => *other = json!(["reason"]),
    }
    schema
}
