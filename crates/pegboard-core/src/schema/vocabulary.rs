//! The keywords there are, for strict rules that refuse a misspelt one.

use serde_json::Value;

/// Refuses a schema that uses a keyword no draft knows.
pub(super) fn refuse_unknown(schema: &Value) -> Result<(), String> {
    subschemas(schema, "")
}

fn subschemas(schema: &Value, place: &str) -> Result<(), String> {
    let Some(keywords) = schema.as_object() else { return Ok(()) };
    for (keyword, value) in keywords {
        let place = format!("{place}/{keyword}");
        match kind(keyword) {
            None => return Err(format!("the keyword '{keyword}' is not known (at {place})")),
            Some(Kind::Plain) => {}
            Some(Kind::Schemas) => match value {
                Value::Array(items) => {
                    for (index, item) in items.iter().enumerate() {
                        subschemas(item, &format!("{place}/{index}"))?;
                    }
                }
                _ => subschemas(value, &place)?,
            },
            Some(Kind::Map) => {
                for (name, inner) in value.as_object().into_iter().flatten() {
                    subschemas(inner, &format!("{place}/{name}"))?;
                }
            }
        }
    }
    Ok(())
}

/// What stands behind a keyword.
enum Kind {
    /// A value that is not a schema.
    Plain,
    /// A schema or a list of schemas.
    Schemas,
    /// Schemas by name.
    Map,
}

fn kind(keyword: &str) -> Option<Kind> {
    Some(match keyword {
        "properties" | "patternProperties" | "dependentSchemas" | "$defs" | "definitions"
        | "dependencies" => Kind::Map,
        "items"
        | "prefixItems"
        | "additionalItems"
        | "unevaluatedItems"
        | "contains"
        | "additionalProperties"
        | "unevaluatedProperties"
        | "propertyNames"
        | "allOf"
        | "anyOf"
        | "oneOf"
        | "not"
        | "if"
        | "then"
        | "else"
        | "contentSchema" => Kind::Schemas,
        "$schema" | "$id" | "id" | "$ref" | "$anchor" | "$dynamicRef" | "$dynamicAnchor"
        | "$recursiveRef" | "$recursiveAnchor" | "$vocabulary" | "$comment" | "type" | "enum" | "const"
        | "multipleOf" | "maximum" | "exclusiveMaximum" | "minimum" | "exclusiveMinimum" | "maxLength"
        | "minLength" | "pattern" | "maxItems" | "minItems" | "uniqueItems" | "maxContains"
        | "minContains" | "maxProperties" | "minProperties" | "required" | "dependentRequired" | "format"
        | "contentEncoding" | "contentMediaType" | "title" | "description" | "default" | "deprecated"
        | "readOnly" | "writeOnly" | "examples" => Kind::Plain,
        _ => return None,
    })
}
