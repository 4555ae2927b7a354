//! The keywords there are, and where schemas stand inside schemas.

use serde_json::Value;

/// What stands behind a keyword.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A value that is not a schema.
    Plain,
    /// A schema or a list of schemas.
    Schemas,
    /// Schemas by name.
    Map,
}

/// What stands behind a keyword; `None` if no draft knows it.
pub(super) fn kind(keyword: &str) -> Option<Kind> {
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

/// The schemas behind a keyword, each with its name or index below it; one that stands there alone has none.
pub(super) fn subschemas<'s>(keyword: &str, value: &'s Value) -> Vec<(Option<String>, &'s Value)> {
    match (kind(keyword), value) {
        (Some(Kind::Map), Value::Object(map)) => {
            map.iter().map(|(name, inner)| (Some(name.clone()), inner)).collect()
        }
        (Some(Kind::Schemas), Value::Array(list)) => {
            list.iter().enumerate().map(|(index, inner)| (Some(index.to_string()), inner)).collect()
        }
        (Some(Kind::Schemas), Value::Object(_) | Value::Bool(_)) => vec![(None, value)],
        _ => Vec::new(),
    }
}

/// Refuses a schema that uses a keyword no draft knows.
pub(super) fn refuse_unknown(schema: &Value) -> Result<(), String> {
    refuse_below(schema, "")
}

fn refuse_below(schema: &Value, place: &str) -> Result<(), String> {
    for (keyword, value) in schema.as_object().into_iter().flatten() {
        let place = format!("{place}/{keyword}");
        if kind(keyword).is_none() {
            return Err(format!("the keyword '{keyword}' is not known (at {place})"));
        }
        for (name, inner) in subschemas(keyword, value) {
            let place = name.map_or_else(|| place.clone(), |name| format!("{place}/{name}"));
            refuse_below(inner, &place)?;
        }
    }
    Ok(())
}

/// Whether `place` is that of a pattern whose absence can only make the schema around it accept more.
pub(super) fn is_pattern_that_may_go(schema: &Value, place: &str) -> bool {
    let mut node = schema;
    let mut parts =
        place.split('/').skip(1).map(|part| part.replace("~1", "/").replace("~0", "~")).peekable();
    while let Some(keyword) = parts.next() {
        let value = &node[&keyword];
        match (keyword.as_str(), kind(&keyword)) {
            ("pattern", _) => {
                return parts.peek().is_none() && !(has(schema, &REFERENCES) && has(schema, &REVERSING));
            }
            (reversing, _) if REVERSING.contains(&reversing) => return false,
            ("patternProperties", _) => {
                let Some(name) = parts.next() else { return false };
                if parts.peek().is_none() {
                    return ["additionalProperties", "unevaluatedProperties"]
                        .iter()
                        .all(|rest| node.get(rest).is_none())
                        && !(has(schema, &REFERENCES) && has(schema, &REVERSING));
                }
                node = &value[&name];
            }
            (_, Some(Kind::Map)) => {
                let Some(name) = parts.next() else { return false };
                node = &value[&name];
            }
            (_, Some(Kind::Schemas)) => {
                node = match (value, parts.peek().and_then(|index| index.parse::<usize>().ok())) {
                    (Value::Array(list), Some(index)) => {
                        parts.next();
                        list.get(index).unwrap_or(&Value::Null)
                    }
                    _ => value,
                };
            }
            (_, Some(Kind::Plain) | None) => return false,
        }
    }
    false
}

const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];
/// Keywords under which accepting more can mean accepting less.
const REVERSING: [&str; 4] = ["not", "oneOf", "if", "maxContains"];

/// Whether a schema uses one of these keywords anywhere.
fn has(schema: &Value, wanted: &[&str]) -> bool {
    schema.as_object().into_iter().flatten().any(|(keyword, value)| {
        wanted.contains(&keyword.as_str())
            || subschemas(keyword, value).iter().any(|(_, inner)| has(inner, wanted))
    })
}
