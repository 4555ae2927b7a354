//! What an agent is asked with: its schema, and the prompt that the arguments of a call make.

use pegboard_core::call::Origin;
use pegboard_core::schema::Schema;
use pegboard_core::settings::agent::{AgentSettings, InputFormat, ReportFormat};
use serde_json::{Map, Value, json};

/// What a call asks of an agent.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Task {
    /// What the model is asked.
    pub(super) prompt: String,
    /// Why, for people.
    pub(super) title: String,
    /// The format that the caller wants.
    pub(super) format: ReportFormat,
}

/// How an agent is asked.
#[derive(Clone, Debug)]
pub(super) enum Input {
    /// With a prompt.
    Prompt,
    /// With what its file says, and a reason.
    Object(Schema),
}

impl Input {
    pub(super) fn of(settings: &AgentSettings) -> Self {
        match (settings.input.format, &settings.input.schema) {
            (InputFormat::Json, Some(schema)) => Self::Object(Schema::new(with_reason(schema.clone()))),
            (InputFormat::Json, None) => Self::Object(Schema::new(with_reason(json!({"type": "object"})))),
            (InputFormat::Text, _) => Self::Prompt,
        }
    }

    /// The schema of the arguments.
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
                    "reason": reason(),
                    "format": {"type": "string", "const": ReportFormat::SubAgent.as_str()}
                },
                "required": ["prompt", "reason", "format"],
                "additionalProperties": false
            })),
        }
    }

    /// What the arguments of a call ask, or what is wrong with them.
    pub(super) fn read(&self, arguments: &Value, origin: Origin) -> Result<Task, String> {
        let none = Map::new();
        let members = arguments.as_object().unwrap_or(&none);
        match self {
            Self::Prompt => prompt(members, origin),
            Self::Object(schema) => {
                let title = text(members, "reason")?;
                let verdict = schema.check(arguments);
                if !verdict.valid {
                    let errors = verdict.errors.iter().map(pegboard_core::validation::Violation::text);
                    return Err(format!("invalid_parameters: {}", errors.collect::<Vec<_>>().join("; ")));
                }
                let mut asked = members.clone();
                asked.shift_remove("reason");
                let prompt = Value::Object(asked).to_string();
                Ok(Task { prompt, title, format: ReportFormat::SubAgent })
            }
        }
    }
}

fn prompt(members: &Map<String, Value>, origin: Origin) -> Result<Task, String> {
    let format = match origin {
        // The program knows where the answer goes; everybody else is another agent, or as good as one.
        Origin::Program => {
            let word = members.get("format").and_then(Value::as_str).unwrap_or_default();
            word.parse().map_err(|error| format!("invalid_parameters: format: {error}"))?
        }
        Origin::Client | Origin::Agent => {
            let is_right = members.get("format").and_then(Value::as_str) == Some("sub-agent");
            if !is_right {
                return Err("invalid_parameters: format must be \"sub-agent\"".to_owned());
            }
            ReportFormat::SubAgent
        }
    };
    let (prompt, title) = (text(members, "prompt")?, text(members, "reason")?);
    let is_known = |name: &&String| ["prompt", "reason", "format"].contains(&name.as_str());
    if let Some(extra) = members.keys().find(|name| !is_known(name)) {
        let extra: String = extra.chars().take(40).collect();
        return Err(format!("invalid_parameters: there is no '{extra}'; use prompt, reason and format"));
    }
    Ok(Task { prompt, title, format })
}

fn text(members: &Map<String, Value>, name: &str) -> Result<String, String> {
    let text = members.get(name).and_then(Value::as_str).map(str::trim).filter(|text| !text.is_empty());
    text.map(ToOwned::to_owned).ok_or_else(|| format!("invalid_parameters: {name} (string) is required"))
}

fn reason() -> Value {
    json!({"type": "string", "minLength": 1, "description": "Why you ask, in a few words for people."})
}

/// An agent's own schema with a reason, which every call must give.
fn with_reason(mut schema: Value) -> Value {
    if !schema.is_object() {
        schema = json!({"type": "object"});
    }
    if !schema["properties"].is_object() {
        schema["properties"] = json!({});
    }
    schema["properties"]["reason"] = reason();
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
