//! Known keywords, and the location of subschemas.

use serde_json::Value;

/// Kind of value that a keyword takes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum KeywordKind {
    /// A value that is not a schema.
    Plain,
    /// A schema or a list of schemas.
    Schemas,
    /// Schemas by name.
    Map,
}

/// Returns the kind of value that a keyword takes; `None` if it is unknown to all drafts.
pub(super) fn kind(keyword: &str) -> Option<KeywordKind> {
    Some(match keyword {
        "properties" | "patternProperties" | "dependentSchemas" | "$defs" | "definitions"
        | "dependencies" => KeywordKind::Map,
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
        | "contentSchema" => KeywordKind::Schemas,
        "$schema" | "$id" | "id" | "$ref" | "$anchor" | "$dynamicRef" | "$dynamicAnchor"
        | "$recursiveRef" | "$recursiveAnchor" | "$vocabulary" | "$comment" | "type" | "enum" | "const"
        | "multipleOf" | "maximum" | "exclusiveMaximum" | "minimum" | "exclusiveMinimum" | "maxLength"
        | "minLength" | "pattern" | "maxItems" | "minItems" | "uniqueItems" | "maxContains"
        | "minContains" | "maxProperties" | "minProperties" | "required" | "dependentRequired" | "format"
        | "contentEncoding" | "contentMediaType" | "title" | "description" | "default" | "deprecated"
        | "readOnly" | "writeOnly" | "examples" => KeywordKind::Plain,
        _ => return None,
    })
}

/// Returns the subschemas of a keyword, each with its name or index; `None` for a single one.
pub(super) fn subschemas<'s>(keyword: &str, value: &'s Value) -> Vec<(Option<String>, &'s Value)> {
    match (kind(keyword), value) {
        (Some(KeywordKind::Map), Value::Object(map)) => {
            map.iter().map(|(name, inner)| (Some(name.clone()), inner)).collect()
        }
        (Some(KeywordKind::Schemas), Value::Array(list)) => {
            list.iter().enumerate().map(|(index, inner)| (Some(index.to_string()), inner)).collect()
        }
        (Some(KeywordKind::Schemas), Value::Object(_) | Value::Bool(_)) => vec![(None, value)],
        _ => Vec::new(),
    }
}

/// Rejects a schema with keywords unknown to all drafts.
pub(super) fn reject_unknown_keywords(schema: &Value) -> Result<(), String> {
    reject_unknown_below(schema, "")
}

fn reject_unknown_below(schema: &Value, pointer: &str) -> Result<(), String> {
    for (keyword, value) in schema.as_object().into_iter().flatten() {
        let pointer = format!("{pointer}/{keyword}");
        if kind(keyword).is_none() {
            return Err(format!("unknown keyword '{keyword}' (at {pointer})"));
        }
        for (name, inner) in subschemas(keyword, value) {
            let pointer = name.map_or_else(|| pointer.clone(), |name| format!("{pointer}/{name}"));
            reject_unknown_below(inner, &pointer)?;
        }
    }
    Ok(())
}

/// Returns `true` if `pointer` is a pattern without which the schema accepts more values, but rejects no
/// others.
pub(super) fn is_removable_pattern(schema: &Value, pointer: &str) -> bool {
    let mut node = schema;
    let mut parts =
        pointer.split('/').skip(1).map(|part| part.replace("~1", "/").replace("~0", "~")).peekable();
    while let Some(keyword) = parts.next() {
        let value = &node[&keyword];
        match (keyword.as_str(), kind(&keyword)) {
            ("pattern", _) => {
                return parts.peek().is_none()
                    && !(uses_keyword(schema, &REFERENCES) && uses_keyword(schema, &REVERSING));
            }
            (reversing, _) if REVERSING.contains(&reversing) => return false,
            ("patternProperties", _) => {
                let Some(name) = parts.next() else { return false };
                if parts.peek().is_none() {
                    return ["additionalProperties", "unevaluatedProperties"]
                        .iter()
                        .all(|rest| node.get(rest).is_none())
                        && !(uses_keyword(schema, &REFERENCES) && uses_keyword(schema, &REVERSING));
                }
                node = &value[&name];
            }
            (_, Some(KeywordKind::Map)) => {
                let Some(name) = parts.next() else { return false };
                node = &value[&name];
            }
            (_, Some(KeywordKind::Schemas)) => {
                node = match (value, parts.peek().and_then(|index| index.parse::<usize>().ok())) {
                    (Value::Array(list), Some(index)) => {
                        parts.next();
                        list.get(index).unwrap_or(&Value::Null)
                    }
                    _ => value,
                };
            }
            (_, Some(KeywordKind::Plain) | None) => return false,
        }
    }
    false
}

const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];
/// Keywords under which accepting more can mean accepting less.
const REVERSING: [&str; 4] = ["not", "oneOf", "if", "maxContains"];

/// Returns `true` if a schema uses one of these keywords at any depth.
fn uses_keyword(schema: &Value, keywords: &[&str]) -> bool {
    schema.as_object().into_iter().flatten().any(|(keyword, value)| {
        keywords.contains(&keyword.as_str())
            || subschemas(keyword, value).iter().any(|(_, inner)| uses_keyword(inner, keywords))
    })
}
