//! Conversion of a listed tool into a catalogue entry.

use std::sync::{Arc, LazyLock};

use pegboard_core::entry::{ToolAnnotations, ToolEntry};
use pegboard_core::handler::Handler;
use pegboard_core::id::ToolName;
use pegboard_core::schema::Schema;
use pegboard_json::RawJson;
use serde::de::IgnoredAny;
use serde_json::json;

/// Returns the entry for a listed tool, or the problem with its definition.
pub(super) fn entry(tool: &RawJson, handler: &Arc<dyn Handler>) -> Result<Arc<ToolEntry>, String> {
    let text = |name: &str| tool.get(name).and_then(|text| text.read::<String>().ok());
    let name = text("name").ok_or("`name` is missing or not a string")?;
    let name = ToolName::new(name).map_err(|error| error.to_string())?;
    let input = schema(tool, "inputSchema")?.or(schema(tool, "parameters")?);
    let output = schema(tool, "outputSchema")?;
    let annotations = tool.get("annotations");
    let title =
        text("title").or_else(|| annotations.as_ref()?.get("title").and_then(|title| title.read().ok()));
    let mut entry =
        ToolEntry::from_handler(name.shared(), text("description").unwrap_or_default(), Arc::clone(handler))
            .with_definition(definition(tool, input.as_ref()))
            .with_input_schema(input.map_or_else(any_object, Schema::from_raw))
            .with_annotations(
                annotations
                    .and_then(|annotations| annotations.read::<ToolAnnotations>().ok())
                    .unwrap_or_default(),
            );
    if let Some(title) = title {
        entry = entry.with_title(title);
    }
    if let Some(output) = output {
        entry = entry.with_output_schema(Schema::from_raw(output));
    }
    Ok(Arc::new(entry))
}

/// Returns the schema of a tool that declares none. All such tools share it.
fn any_object() -> Schema {
    static ANY: LazyLock<Schema> = LazyLock::new(|| Schema::new(json!({"type": "object"})));
    ANY.clone()
}

/// Returns a schema of a tool; it must be an object if present.
fn schema(tool: &RawJson, name: &str) -> Result<Option<RawJson>, String> {
    match tool.get(name).filter(|schema| schema.as_str() != "null") {
        None => Ok(None),
        Some(schema) if schema.is_object() && schema.read::<IgnoredAny>().is_ok() => Ok(Some(schema)),
        Some(_) => Err(format!("`{name}` is not a valid object")),
    }
}

/// Returns the definition as the server wrote it, with the schema moved to `inputSchema` if necessary.
fn definition(tool: &RawJson, input: Option<&RawJson>) -> RawJson {
    if tool.get("inputSchema").is_some_and(|schema| schema.is_object()) {
        return tool.clone();
    }
    let input = input.cloned().unwrap_or_else(|| RawJson::from(json!({"type": "object"})));
    tool.without("parameters").with("inputSchema", &input)
}
