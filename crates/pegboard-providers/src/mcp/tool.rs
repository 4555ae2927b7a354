//! A tool, as its server describes it.

use std::sync::Arc;

use pegboard_core::entry::{Annotations, ToolEntry};
use pegboard_core::handler::Handler;
use pegboard_core::id::ToolName;
use pegboard_json::RawJson;
use serde_json::{Value, json};

/// The tool that a server describes, with what carries out its calls; or what is wrong with it.
pub(super) fn entry(tool: &RawJson, handler: &Arc<dyn Handler>) -> Result<Arc<ToolEntry>, String> {
    let text = |name: &str| tool.get(name).and_then(|text| text.read::<String>().ok());
    let name = text("name").ok_or("it has no name, or one that is no text")?;
    let name = ToolName::new(name).map_err(|error| error.to_string())?;
    let input = schema(tool, "inputSchema")?.or(schema(tool, "parameters")?);
    let output = schema(tool, "outputSchema")?;
    let annotations = tool.get("annotations");
    let title =
        text("title").or_else(|| annotations.as_ref()?.get("title").and_then(|title| title.read().ok()));
    let mut entry =
        ToolEntry::from_handler(name.shared(), text("description").unwrap_or_default(), Arc::clone(handler))
            .with_definition(definition(tool, input.as_ref()))
            .with_input_schema(input.unwrap_or_else(|| json!({"type": "object"})))
            .with_annotations(
                annotations
                    .and_then(|annotations| annotations.read::<Annotations>().ok())
                    .unwrap_or_default(),
            );
    if let Some(title) = title {
        entry = entry.with_title(title);
    }
    if let Some(output) = output {
        entry = entry.with_output_schema(output);
    }
    Ok(Arc::new(entry))
}

/// A schema of a tool, which is an object if it is there.
fn schema(tool: &RawJson, name: &str) -> Result<Option<Value>, String> {
    match tool.get(name).filter(|schema| schema.as_str() != "null") {
        None => Ok(None),
        Some(schema) => match schema.to_value() {
            object @ Value::Object(_) => Ok(Some(object)),
            _ => Err(format!("its `{name}` is no object, or cannot be read")),
        },
    }
}

/// The definition as the server wrote it, with the schema in its place if it was somewhere else.
fn definition(tool: &RawJson, input: Option<&Value>) -> RawJson {
    if tool.get("inputSchema").is_some_and(|schema| schema.is_object()) {
        return tool.clone();
    }
    let input = input.map_or_else(|| RawJson::from(json!({"type": "object"})), RawJson::of);
    tool.without("parameters").with("inputSchema", &input)
}
