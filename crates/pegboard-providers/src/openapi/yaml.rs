//! YAML to JSON.

use pegboard_yaml::{YamlLimits, YamlNode, YamlValue};
use serde_json::Value;

/// Limits of a document; the depth is the same as for JSON.
const LIMITS: YamlLimits = YamlLimits { max_depth: 127, max_nodes: 4_000_000 };

/// Parses one document.
pub(super) fn parse(text: &str) -> Result<Value, String> {
    let at_line = |offset: usize, problem: &dyn std::fmt::Display| {
        let n_before = text.bytes().take(offset).filter(|byte| *byte == b'\n').count();
        format!("line {}: {problem}", n_before + 1)
    };
    let document = pegboard_yaml::parse(text, LIMITS).map_err(|error| at_line(error.span.start, &error))?;
    if let Some(repeated) = document.repeated_keys.first() {
        return Err(at_line(repeated.span.start, &format_args!("duplicate key '{}'", repeated.key)));
    }
    document.root.map(|root| to_json(root, text)).ok_or_else(|| "it is empty".to_owned())
}

fn to_json(node: YamlNode, text: &str) -> Value {
    match node.value {
        YamlValue::Null => Value::Null,
        YamlValue::Bool(value) => value.into(),
        YamlValue::Number(number) => match text.get(node.span) {
            // In descriptions of services it is an address or a colour.
            Some(written) if written.starts_with("0x") => written.into(),
            Some(_) | None => Value::Number(number),
        },
        YamlValue::Text(content) => content.into(),
        YamlValue::List(items) => items.into_iter().map(|item| to_json(item, text)).collect(),
        YamlValue::Map(entries) => {
            entries.into_iter().map(|(key, entry)| (key, to_json(entry.value, text))).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_are_verbatim_and_no_is_a_string() {
        let text =
            "responses: {200: {x: no}, 1.10: 1.10, null: ~}\nbase: &b {a: 1, c: 2}\nmore: {<<: *b, a: 3}";
        assert_eq!(
            parse(text),
            Ok(json!({
                "responses": {"200": {"x": "no"}, "1.10": 1.10, "null": null},
                "base": {"a": 1, "c": 2},
                "more": {"a": 3, "c": 2},
            }))
        );
    }

    #[test]
    fn alias_bombs_are_rejected() {
        let laughs: String = (1..30).fold("l0: &l0 [x, x]\n".to_owned(), |text, at| {
            format!("{text}l{at}: &l{at} [{}]\n", vec![format!("*l{}", at - 1); 10].join(", "))
        });
        assert_eq!(parse(&laughs), Err("line 7: the file has more than 4000000 values".to_owned()));
        assert!(parse(&"[".repeat(10_000)).is_err());
        assert!(parse(&"{a: ".repeat(10_000)).is_err());
        assert!(parse("a: &a [*a]").is_err());
        assert!(parse("a: 1\na: 2").is_err());
    }
}
