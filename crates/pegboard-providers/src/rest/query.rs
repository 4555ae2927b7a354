//! Values as parts of an address.

use std::fmt::Write as _;

use pegboard_core::error::CallError;
use pegboard_core::settings::rest::QueryStyle;
use pegboard_json::RawJson;

use super::parameters::{scalar, wrong};

/// A text so that it can stand anywhere in an address and is read as itself.
pub(super) fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z'
            | b'a'..=b'z'
            | b'0'..=b'9'
            | b'-'
            | b'_'
            | b'.'
            | b'!'
            | b'~'
            | b'*'
            | b'\''
            | b'('
            | b')' => {
                encoded.push(char::from(byte));
            }
            _ => {
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
    }
    encoded
}

/// Adds a parameter to the pairs of a query. One that is null is left out.
pub(super) fn add(
    pairs: &mut Vec<String>,
    name: &str,
    value: &RawJson,
    style: QueryStyle,
) -> Result<(), CallError> {
    let key = encoded(name);
    match (kind(value), style) {
        (Kind::Null, _) => {}
        (Kind::Scalar, _) => pairs.push(pair(&key, value)),
        // An object stands for a list of one.
        (Kind::Object, QueryStyle::Brackets) => add_nested(pairs, &format!("{key}[0]"), value),
        (Kind::List, QueryStyle::Brackets) => add_nested(pairs, &key, value),
        (Kind::List, QueryStyle::Plain) => {
            for item in value.items() {
                if !matches!(kind(&item), Kind::Scalar) {
                    return Err(wrong(name, "a list in the query holds texts, numbers, true or false"));
                }
                pairs.push(pair(&key, &item));
            }
        }
        (Kind::Object, QueryStyle::Plain) => {
            return Err(wrong(name, "an object cannot be written in the query"));
        }
    }
    Ok(())
}

/// Adds what is in a value, each with the way to it in brackets.
pub(super) fn add_nested(pairs: &mut Vec<String>, key: &str, value: &RawJson) {
    match kind(value) {
        Kind::Null | Kind::Scalar => pairs.push(pair(key, value)),
        Kind::List => {
            for (index, item) in value.items().enumerate() {
                add_nested(pairs, &format!("{key}[{index}]"), &item);
            }
        }
        Kind::Object => {
            for (name, member) in value.members() {
                add_nested(pairs, &format!("{key}[{}]", encoded(&name)), &member);
            }
        }
    }
}

fn pair(key: &str, value: &RawJson) -> String {
    format!("{key}={}", encoded(&scalar(value).unwrap_or_default()))
}

enum Kind {
    Null,
    Scalar,
    List,
    Object,
}

fn kind(value: &RawJson) -> Kind {
    match value.as_str().as_bytes().first() {
        Some(b'{') => Kind::Object,
        Some(b'[') => Kind::List,
        Some(b'n') | None => Kind::Null,
        Some(_) => Kind::Scalar,
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
    fn values_are_written_in_brackets_or_one_by_one() {
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
                "Invalid arguments: $.p: a list in the query holds texts, numbers, true or false",
            ),
            ("p", "{}", Plain, "Invalid arguments: $.p: an object cannot be written in the query"),
        ];
        for (name, value, style, expected) in cases {
            assert_eq!(written(name, value, style), expected, "{value}");
        }
    }
}
