//! Compat validation: twelve keywords with Python's types and literals.

use std::fmt::Display;

use serde_json::{Map, Value};

use super::literal::{LiteralStyle, literal, literal_list};
use super::report;
use crate::validation::Violation;

/// Returns all violations of `data`, in the order of the rules.
pub(super) fn violations(data: &Value, schema: &Value) -> Vec<Violation> {
    let mut validator = CompatValidator::default();
    validator.value(data, schema, "$");
    report::capped(validator.found, false)
}

#[derive(Default)]
struct CompatValidator {
    found: Vec<Violation>,
}

impl CompatValidator {
    fn value(&mut self, data: &Value, schema: &Value, path: &str) {
        if self.found.len() > report::MAX_VIOLATIONS {
            return;
        }
        let Some(keywords) = schema.as_object() else { return };
        if let Some(expected) = keywords.get("type")
            && !has_type(data, expected)
        {
            let expected = match expected.as_str() {
                Some(name) => name.to_owned(),
                None => literal(expected, LiteralStyle::Python),
            };
            return self.report(path, format!("expected type {expected}, got {}", python_type(data)));
        }
        if let Some(options) = keywords.get("enum").and_then(Value::as_array)
            && !options.iter().any(|option| python_equal(option, data))
        {
            let options = literal_list(options, LiteralStyle::Python);
            let value = literal(data, LiteralStyle::Python);
            self.found.push(Violation::new(
                format!("{path}: value {value} not in enum {options}"),
                format!("{path}: value not in enum {options}"),
            ));
        }
        match data {
            Value::String(text) => self.length(text.chars().count(), ("string", "Length"), keywords, path),
            Value::Number(_) => self.limits(data, keywords, path),
            Value::Array(items) => {
                self.length(items.len(), ("array", "Items"), keywords, path);
                if let Some(schema) = keywords.get("items") {
                    for (index, item) in items.iter().enumerate() {
                        self.value(item, schema, &format!("{path}[{index}]"));
                    }
                }
            }
            Value::Object(members) => self.members(members, keywords, path),
            Value::Null | Value::Bool(_) => {}
        }
    }

    fn length(&mut self, n: usize, (kind, unit): (&str, &str), keywords: &Map<String, Value>, path: &str) {
        #[expect(clippy::cast_precision_loss, reason = "lengths are exact in f64")]
        let length = n as f64;
        let limit = |end: &str| keywords.get(&format!("{end}{unit}")).filter(|limit| limit.is_number());
        if let Some(min) = limit("min")
            && min.as_f64().is_some_and(|min| length < min)
        {
            self.report(path, format!("{kind} length {n} < min{unit} {min}"));
        }
        if let Some(max) = limit("max")
            && max.as_f64().is_some_and(|max| length > max)
        {
            self.report(path, format!("{kind} length {n} > max{unit} {max}"));
        }
    }

    fn limits(&mut self, data: &Value, keywords: &Map<String, Value>, path: &str) {
        let Some(number) = data.as_f64() else { return };
        let mut limit = |keyword: &str, sign: &str, is_broken: fn(f64, f64) -> bool| {
            if let Some(bound) = keywords.get(keyword)
                && bound.as_f64().is_some_and(|bound| is_broken(number, bound))
            {
                self.found.push(Violation::new(
                    format!("{path}: value {data} {sign} {keyword} {bound}"),
                    format!("{path}: value {sign} {keyword} {bound}"),
                ));
            }
        };
        limit("minimum", "<", |number, bound| number < bound);
        limit("maximum", ">", |number, bound| number > bound);
    }

    fn members(&mut self, members: &Map<String, Value>, keywords: &Map<String, Value>, path: &str) {
        let required = keywords.get("required").and_then(Value::as_array);
        for name in required.into_iter().flatten().filter_map(Value::as_str) {
            if !members.contains_key(name) {
                self.report(&format!("{path}.{name}"), "required field missing");
            }
        }
        let properties = keywords.get("properties").and_then(Value::as_object);
        for (name, schema) in properties.into_iter().flatten() {
            if let Some(member) = members.get(name) {
                self.value(member, schema, &format!("{path}.{name}"));
            }
        }
        if keywords.get("additionalProperties") == Some(&Value::Bool(false)) {
            let is_declared = |name: &&String| properties.is_some_and(|map| map.contains_key(name.as_str()));
            let mut extras: Vec<&String> = members.keys().filter(|name| !is_declared(name)).collect();
            extras.sort();
            for name in extras {
                self.found.push(Violation::new(
                    format!("{path}.{name}: additional property not allowed"),
                    format!("{path}.*: additional property not allowed"),
                ));
            }
        }
    }

    fn report(&mut self, path: &str, problem: impl Display) {
        self.found.push(Violation::plain(format!("{path}: {problem}")));
    }
}

/// Returns `true` if the value has one of the named types. Unknown names are ignored; if all are, the check
/// passes.
fn has_type(data: &Value, expected: &Value) -> bool {
    let names: Vec<&str> = match expected {
        Value::String(name) => vec![name],
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
        _ => return true,
    };
    let mut verdicts = names.into_iter().filter_map(|name| is_of_type(data, name)).peekable();
    verdicts.peek().is_none() || verdicts.any(|verdict| verdict)
}

fn is_of_type(data: &Value, name: &str) -> Option<bool> {
    Some(match name {
        "string" => data.is_string(),
        "integer" => data.is_i64() || data.is_u64() || data.is_boolean(),
        "number" => data.is_number() || data.is_boolean(),
        "boolean" => data.is_boolean(),
        "array" => data.is_array(),
        "object" => data.is_object(),
        "null" => data.is_null(),
        _ => return None,
    })
}

fn python_type(data: &Value) -> &'static str {
    match data {
        Value::Null => "NoneType",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float",
        Value::Number(_) => "int",
        Value::String(_) => "str",
        Value::Array(_) => "list",
        Value::Object(_) => "dict",
    }
}

/// Equality as in Python: `1`, `1.0` and `True` are equal.
fn python_equal(a: &Value, b: &Value) -> bool {
    let as_integer = |value: &Value| match value {
        Value::Bool(flag) => Some(i128::from(*flag)),
        Value::Number(number) => number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from)),
        _ => None,
    };
    let as_float =
        |value: &Value| value.as_f64().or_else(|| value.as_bool().map(|flag| f64::from(u8::from(flag))));
    match (a, b) {
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| python_equal(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| python_equal(a, b)))
        }
        _ => match (as_integer(a), as_integer(b), as_float(a), as_float(b)) {
            (Some(a), Some(b), _, _) => a == b,
            #[expect(clippy::float_cmp, reason = "Python compares exactly as well")]
            (_, _, Some(a), Some(b)) => a == b,
            _ => a == b,
        },
    }
}
