//! One-line signatures of tools: `create_issue(repo:str, [labels:str[]])`.

use std::fmt::Write as _;

use serde_json::Value;

/// Maximum number of parameters shown.
const MAX_PARAMETERS: usize = 12;
/// Maximum number of enum values shown.
const MAX_CHOICES: usize = 6;
/// Maximum length of an enum value shown, in characters.
const MAX_CHOICE_CHARS: usize = 24;
/// Maximum nesting depth.
const MAX_DEPTH: usize = 4;

/// Returns the signature of a tool: required parameters first, then optional ones in brackets.
pub(super) fn signature(name: &str, schema: &Value) -> String {
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let properties = schema["properties"].as_object();
    let (mut needed, mut others) = (Vec::new(), Vec::new());
    for (parameter, property) in properties.into_iter().flatten() {
        let kind = format!("{parameter}:{}{}", type_name(schema, property, 0), range(property));
        if required.contains(&parameter.as_str()) {
            needed.push(kind);
        } else {
            others.push(format!("[{kind}]"));
        }
    }
    let n_all = needed.len() + others.len();
    let mut shown: Vec<String> = needed.into_iter().chain(others).take(MAX_PARAMETERS).collect();
    if n_all > shown.len() {
        shown.push("…".to_owned());
    }
    format!("{name}({})", shown.join(", "))
}

/// Returns the short type name of a schema.
fn type_name(root: &Value, property: &Value, depth: usize) -> String {
    if depth > MAX_DEPTH {
        return "any".to_owned();
    }
    if let Some(target) = property["$ref"].as_str() {
        let target = target.strip_prefix('#').and_then(|pointer| root.pointer(pointer));
        return target.map_or_else(|| "any".to_owned(), |target| type_name(root, target, depth + 1));
    }
    if let Some(only) = property.get("const") {
        return choices(std::slice::from_ref(only));
    }
    if let Some(values) = property["enum"].as_array() {
        return choices(values);
    }
    for name in ["anyOf", "oneOf"] {
        if let Some(variants) = property[name].as_array() {
            return union_of(variants.iter().map(|variant| type_name(root, variant, depth + 1)));
        }
    }
    match &property["type"] {
        Value::String(word) => type_from_keyword(root, property, word, depth),
        Value::Array(words) => union_of(
            words.iter().filter_map(Value::as_str).map(|word| type_from_keyword(root, property, word, depth)),
        ),
        _ => "any".to_owned(),
    }
}

fn type_from_keyword(root: &Value, property: &Value, word: &str, depth: usize) -> String {
    match word {
        "string" => "str".to_owned(),
        "integer" => "int".to_owned(),
        "number" => "num".to_owned(),
        "boolean" => "bool".to_owned(),
        "object" => "obj".to_owned(),
        "array" => match property.get("items") {
            Some(items) => {
                let item = type_name(root, items, depth + 1);
                if item.contains('|') { format!("({item})[]") } else { format!("{item}[]") }
            }
            None => "any[]".to_owned(),
        },
        other => other.to_owned(),
    }
}

/// Joins type names with `|`. `null` is left out: the parameter is optional anyway.
fn union_of(words: impl Iterator<Item = String>) -> String {
    let mut all: Vec<String> = Vec::new();
    for word in words.filter(|word| word != "null") {
        if !all.contains(&word) {
            all.push(word);
        }
    }
    if all.is_empty() { "any".to_owned() } else { all.join("|") }
}

/// Joins the values of an enum, as long as they are few and short.
fn choices(values: &[Value]) -> String {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let mut shown: Vec<String> = values
        .iter()
        .map(text)
        .filter(|text| text.chars().count() <= MAX_CHOICE_CHARS)
        .take(MAX_CHOICES)
        .collect();
    if shown.len() < values.len() {
        shown.push("…".to_owned());
    }
    shown.join("|")
}

/// Returns the range of a number, such as ` 1..5`.
fn range(property: &Value) -> String {
    let mut text = String::new();
    let (least, most) = (property.get("minimum"), property.get("maximum"));
    if least.or(most).is_some() {
        let shown = |bound: Option<&Value>| bound.map(Value::to_string).unwrap_or_default();
        write!(text, " {}..{}", shown(least), shown(most)).expect("writing to a String cannot fail");
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn signatures_are_one_line() {
        let cases = [
            (json!({"type": "object"}), "t()"),
            (json!(true), "t()"),
            (
                json!({
                    "properties": {
                        "labels": {"type": "array", "items": {"type": "string"}},
                        "repo": {"type": "string"},
                        "priority": {"type": "integer", "minimum": 1, "maximum": 5},
                        "title": {"type": ["string", "null"]},
                    },
                    "required": ["title", "repo"],
                }),
                "t(repo:str, title:str, [labels:str[]], [priority:int 1..5])",
            ),
            (
                json!({"properties": {
                    "a": {"enum": ["x", "y", 3]},
                    "b": {"anyOf": [{"type": "number"}, {"type": "null"}, {"type": "boolean"}]},
                    "c": {"$ref": "#/$defs/C"},
                    "d": {},
                    "e": {"type": "array", "items": {"type": ["string", "integer"]}},
                    "f": {"const": "only"},
                    "g": {"$ref": "https://example.org/g"},
                    "h": {"type": "number", "minimum": 0},
                }, "$defs": {"C": {"type": "object"}}}),
                "t([a:x|y|3], [b:num|bool], [c:obj], [d:any], [e:(str|int)[]], [f:only], [g:any], [h:num 0..])",
            ),
            (json!({"properties": {"a": {"$ref": "#/properties/a"}}}), "t([a:any])"),
        ];
        for (schema, expected) in cases {
            assert_eq!(signature("t", &schema), expected, "{schema}");
        }
    }

    #[test]
    fn long_parameter_and_enum_lists_are_truncated() {
        let many: serde_json::Map<String, Value> =
            (10..40).map(|n| (format!("p{n}"), json!({"type": "boolean"}))).collect();
        assert!(signature("t", &json!({"properties": many})).ends_with("[p20:bool], [p21:bool], …)"));
        let values: Vec<String> = (0..20).map(|n| format!("v{n}")).collect();
        assert_eq!(
            signature("t", &json!({"properties": {"a": {"enum": values}}})),
            "t([a:v0|v1|v2|v3|v4|v5|…])"
        );
    }
}
