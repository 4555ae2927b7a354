//! Percent-encoding and query strings.

use pegboard_core::error::CallError;
use pegboard_core::settings::rest::QueryStyle;
use pegboard_json::RawJson;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::parameters::{invalid_parameter, scalar_text};

/// All characters but those that `encodeURIComponent` keeps.
const COMPONENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'!')
    .remove(b'~')
    .remove(b'*')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')');

/// Percent-encodes a text for any part of a URL.
pub(super) fn percent_encode(text: &str) -> String {
    utf8_percent_encode(text, COMPONENT).to_string()
}

/// Appends a parameter to the pairs of a query. Null is omitted.
pub(super) fn add(
    pairs: &mut Vec<String>,
    name: &str,
    value: &RawJson,
    style: QueryStyle,
) -> Result<(), CallError> {
    let key = percent_encode(name);
    match (value_kind(value), style) {
        (QueryValueKind::Null, _) => {}
        (QueryValueKind::Scalar, _) => pairs.push(pair(&key, value)),
        // A single object is sent as a list of one.
        (QueryValueKind::Object, QueryStyle::Brackets) => add_nested(pairs, &format!("{key}[0]"), value),
        (QueryValueKind::List, QueryStyle::Brackets) => add_nested(pairs, &key, value),
        (QueryValueKind::List, QueryStyle::Plain) => {
            for item in value.items() {
                if !matches!(value_kind(&item), QueryValueKind::Scalar) {
                    return Err(invalid_parameter(
                        name,
                        "a list in the query may only contain strings, numbers and booleans",
                    ));
                }
                pairs.push(pair(&key, &item));
            }
        }
        (QueryValueKind::Object, QueryStyle::Plain) => {
            return Err(invalid_parameter(name, "an object cannot be sent in the query"));
        }
    }
    Ok(())
}

/// Appends the leaves of a value, each under its path in brackets.
pub(super) fn add_nested(pairs: &mut Vec<String>, key: &str, value: &RawJson) {
    match value_kind(value) {
        QueryValueKind::Null | QueryValueKind::Scalar => pairs.push(pair(key, value)),
        QueryValueKind::List => {
            for (index, item) in value.items().enumerate() {
                add_nested(pairs, &format!("{key}[{index}]"), &item);
            }
        }
        QueryValueKind::Object => {
            for (name, member) in value.members() {
                add_nested(pairs, &format!("{key}[{}]", percent_encode(&name)), &member);
            }
        }
    }
}

fn pair(key: &str, value: &RawJson) -> String {
    format!("{key}={}", percent_encode(&scalar_text(value).unwrap_or_default()))
}

enum QueryValueKind {
    Null,
    Scalar,
    List,
    Object,
}

fn value_kind(value: &RawJson) -> QueryValueKind {
    match value.as_str().as_bytes().first() {
        Some(b'{') => QueryValueKind::Object,
        Some(b'[') => QueryValueKind::List,
        Some(b'n') | None => QueryValueKind::Null,
        Some(_) => QueryValueKind::Scalar,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(name: &str, value: &str, style: QueryStyle) -> String {
        let mut pairs = Vec::new();
        let value = RawJson::parse(value.to_owned().into()).unwrap();
        add(&mut pairs, name, &value, style).map_or_else(|error| error.text(), |()| pairs.join("&"))
    }

    #[test]
    fn query_values_use_brackets_or_repetition() {
        use QueryStyle::{Brackets, Plain};
        let cases = [
            ("f", r#"{"email": "a@b c", "n": {"d": 1}}"#, Brackets, "f[0][email]=a%40b%20c&f[0][n][d]=1"),
            ("f", r#"[{"a": 1}, {"b": [true]}]"#, Brackets, "f[0][a]=1&f[1][b][0]=true"),
            ("p", r#"[1, "x&y=z", null]"#, Brackets, "p[0]=1&p[1]=x%26y%3Dz&p[2]="),
            ("n", "null", Brackets, ""),
            ("s", r#""a b""#, Brackets, "s=a%20b"),
            ("a]=1&b", r#"{"c]=&d": 1}"#, Brackets, "a%5D%3D1%26b[0][c%5D%3D%26d]=1"),
            ("p", r#"[1, "é"]"#, Plain, "p=1&p=%C3%A9"),
            ("big", "12345678901234567890", Plain, "big=12345678901234567890"),
            (
                "p",
                "[[1]]",
                Plain,
                "Invalid arguments: $.p: a list in the query may only contain strings, numbers and booleans",
            ),
            ("p", "{}", Plain, "Invalid arguments: $.p: an object cannot be sent in the query"),
        ];
        for (name, value, style, expected) in cases {
            assert_eq!(written(name, value, style), expected, "{value}");
        }
    }
}
