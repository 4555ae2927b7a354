//! Serialization styles of OpenAPI for URLs, headers and forms.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

/// Serializer for the values of one parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StyleSerializer {
    pub(super) style: SerializationStyle,
    /// `true` if items and members are written separately.
    pub(super) explode: bool,
    /// Delimiter of items that are joined.
    pub(super) delimiter: char,
    pub(super) escape: Escape,
}

/// Serialization style.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SerializationStyle {
    /// `a,b`.
    Simple,
    /// `.a.b`.
    Label,
    /// `;name=a,b`.
    Matrix,
    /// `name=a&name=b`.
    Form,
    /// `name[member]=a`.
    Deep,
}

/// Characters that are percent-encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Escape {
    /// All reserved characters.
    Reserved,
    /// Only characters that would end a query value.
    Delimiting,
    /// None, for headers.
    Nothing,
}

/// All characters but letters, digits, `-`, `.`, `_` and `~`.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// Characters that would end a query value or are invalid in a URL.
const DELIMITING: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'&')
    .add(b'+')
    .add(b'<')
    .add(b'>')
    .add(b'\\')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}')
    .add(b'%');

/// Maximum nesting depth of a value in a URL.
const MAX_DEPTH: usize = 16;

impl Escape {
    pub(super) fn apply(self, text: &str) -> Cow<'_, str> {
        match self {
            Self::Reserved => utf8_percent_encode(text, RESERVED).into(),
            Self::Delimiting => utf8_percent_encode(text, DELIMITING).into(),
            Self::Nothing => text.into(),
        }
    }
}

impl StyleSerializer {
    /// Default style of paths and headers.
    pub(super) const SIMPLE: Self =
        Self { style: SerializationStyle::Simple, explode: false, delimiter: ',', escape: Escape::Reserved };
    /// Default style of queries, cookies and forms.
    pub(super) const FORM: Self =
        Self { style: SerializationStyle::Form, explode: true, delimiter: ',', escape: Escape::Reserved };

    /// Serializes a value as one text, for paths and headers.
    pub(super) fn text(self, name: &str, value: &Value) -> String {
        let name = self.escape.apply(name);
        match self.style {
            SerializationStyle::Simple | SerializationStyle::Form | SerializationStyle::Deep => {
                self.joined(value, self.delimiter)
            }
            SerializationStyle::Label => {
                let delimiter = if self.explode { '.' } else { self.delimiter };
                format!(".{}", self.joined(value, delimiter))
            }
            SerializationStyle::Matrix => match value {
                Value::Array(items) if self.explode => {
                    let parts: Vec<String> =
                        items.iter().map(|item| format!(";{name}={}", self.scalar(item))).collect();
                    parts.concat()
                }
                Value::Object(members) if self.explode => {
                    let part = |(member, value): (&String, &Value)| {
                        format!(";{}={}", self.escape.apply(member), self.scalar(value))
                    };
                    members.iter().map(part).collect::<Vec<String>>().concat()
                }
                value => match self.joined(value, self.delimiter) {
                    empty if empty.is_empty() => format!(";{name}"),
                    text => format!(";{name}={text}"),
                },
            },
        }
    }

    /// Serializes a value as pairs, for queries, cookies and forms.
    pub(super) fn pairs(self, name: &str, value: &Value) -> Vec<(String, String)> {
        let mut pairs = Vec::new();
        match (self.style, value) {
            (SerializationStyle::Deep, Value::Object(_) | Value::Array(_)) => {
                self.deep(name, value, 0, &mut pairs);
            }
            (_, Value::Array(items)) if self.explode => {
                pairs.extend(items.iter().map(|item| (self.name(name), self.scalar(item))));
            }
            (_, Value::Object(members)) if self.explode => {
                pairs.extend(members.iter().map(|(member, value)| (self.name(member), self.scalar(value))));
            }
            (_, value) => pairs.push((self.name(name), self.joined(value, self.delimiter))),
        }
        pairs
    }

    /// Writes `name[member][member]=value` for every leaf. Lists of scalars are `name[]=value`.
    fn deep(self, name: &str, value: &Value, depth: usize, pairs: &mut Vec<(String, String)>) {
        match value {
            Value::Object(members) if depth < MAX_DEPTH => {
                for (member, value) in members {
                    self.deep(&format!("{name}[{member}]"), value, depth + 1, pairs);
                }
            }
            Value::Array(items) if depth < MAX_DEPTH => {
                for (at, item) in items.iter().enumerate() {
                    let is_plain = !(item.is_array() || item.is_object());
                    let name = if is_plain { format!("{name}[]") } else { format!("{name}[{at}]") };
                    self.deep(&name, item, depth + 1, pairs);
                }
            }
            value => pairs.push((self.name(name), self.scalar(value))),
        }
    }

    fn name(self, name: &str) -> String {
        // Reserved characters in a name are always encoded.
        let escape = if self.escape == Escape::Nothing { Escape::Nothing } else { Escape::Reserved };
        escape.apply(name).into_owned()
    }

    fn joined(self, value: &Value, delimiter: char) -> String {
        let parts: Vec<String> = match value {
            Value::Array(items) => items.iter().map(|item| self.scalar(item)).collect(),
            Value::Object(members) if self.explode => members
                .iter()
                .map(|(name, value)| format!("{}={}", self.escape.apply(name), self.scalar(value)))
                .collect(),
            Value::Object(members) => members
                .iter()
                .flat_map(|(name, value)| [self.escape.apply(name).into_owned(), self.scalar(value)])
                .collect(),
            value => return self.scalar(value),
        };
        let delimiter = match (delimiter, self.escape) {
            (',' | '.', _) | (_, Escape::Nothing) => delimiter.to_string(),
            (other, Escape::Reserved | Escape::Delimiting) => {
                Escape::Reserved.apply(other.encode_utf8(&mut [0; 4])).into_owned()
            }
        };
        parts.join(&delimiter)
    }

    fn scalar(self, value: &Value) -> String {
        self.escape.apply(&scalar_text(value)).into_owned()
    }
}

/// Returns a scalar as text; lists and objects as JSON.
pub(super) fn scalar_text(value: &Value) -> Cow<'_, str> {
    match value {
        Value::String(text) => text.into(),
        Value::Null => "".into(),
        value => value.to_string().into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Table of styles from the specification for an empty string, a string, a list and an object. `-` is
    /// undefined.
    const TABLE: &str = "
        matrix         false  ;color  ;color=blue  ;color=blue,black,brown              ;color=R,100,G,200,B,150
        matrix         true   ;color  ;color=blue  ;color=blue;color=black;color=brown  ;R=100;G=200;B=150
        label          false  .       .blue        .blue,black,brown                    .R,100,G,200,B,150
        label          true   .       .blue        .blue.black.brown                    .R=100.G=200.B=150
        simple         false  _       blue         blue,black,brown                     R,100,G,200,B,150
        simple         true   _       blue         blue,black,brown                     R=100,G=200,B=150
        form           false  color=  color=blue   color=blue,black,brown               color=R,100,G,200,B,150
        form           true   color=  color=blue   color=blue&color=black&color=brown   R=100&G=200&B=150
        spaceDelimited false  -       -            color=blue%20black%20brown           color=R%20100%20G%20200%20B%20150
        pipeDelimited  false  -       -            color=blue%7Cblack%7Cbrown           color=R%7C100%7CG%7C200%7CB%7C150
        tabs           false  -       -            color=blue%09black%09brown           -
        deepObject     true   -       -            color%5B%5D=blue&color%5B%5D=black&color%5B%5D=brown color%5BR%5D=100&color%5BG%5D=200&color%5BB%5D=150
    ";

    fn serializer(style: &str, explode: bool) -> StyleSerializer {
        let (style, delimiter) = match style {
            "matrix" => (SerializationStyle::Matrix, ','),
            "label" => (SerializationStyle::Label, ','),
            "simple" => (SerializationStyle::Simple, ','),
            "spaceDelimited" => (SerializationStyle::Form, ' '),
            "pipeDelimited" => (SerializationStyle::Form, '|'),
            "tabs" => (SerializationStyle::Form, '\t'),
            "deepObject" => (SerializationStyle::Deep, ','),
            _ => (SerializationStyle::Form, ','),
        };
        StyleSerializer { style, explode, delimiter, escape: Escape::Reserved }
    }

    fn written(serializer: StyleSerializer, value: &Value) -> String {
        match serializer.style {
            SerializationStyle::Form | SerializationStyle::Deep => {
                let pairs = serializer.pairs("color", value).into_iter();
                pairs.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&")
            }
            SerializationStyle::Simple | SerializationStyle::Label | SerializationStyle::Matrix => {
                serializer.text("color", value)
            }
        }
    }

    #[test]
    fn every_style_matches_the_specification() {
        let values = [
            json!(""),
            json!("blue"),
            json!(["blue", "black", "brown"]),
            json!({"R": 100, "G": 200, "B": 150}),
        ];
        for line in TABLE.lines().filter(|line| !line.trim().is_empty()) {
            let [style, explode, expected @ ..] = &line.split_whitespace().collect::<Vec<_>>()[..] else {
                panic!("{line}")
            };
            assert_eq!(expected.len(), values.len(), "{line}");
            for (value, expected) in values.iter().zip(expected).filter(|(_, expected)| **expected != "-") {
                let expected = if *expected == "_" { "" } else { expected };
                assert_eq!(written(serializer(style, *explode == "true"), value), expected, "{line}");
            }
        }
    }

    #[test]
    fn reserved_characters_are_escaped() {
        let hostile = "a/b?c#d&e=f+g h;i,j%2e\r\n..é";
        let escaped = "a%2Fb%3Fc%23d%26e%3Df%2Bg%20h%3Bi%2Cj%252e%0D%0A..%C3%A9";
        assert_eq!(StyleSerializer::SIMPLE.text("x", &json!(hostile)), escaped);
        assert_eq!(StyleSerializer::FORM.pairs("x", &json!(hostile)), [("x".to_owned(), escaped.to_owned())]);
        let reserved = StyleSerializer { escape: Escape::Delimiting, ..StyleSerializer::FORM };
        assert_eq!(
            reserved.pairs("x&y", &json!(hostile)),
            [("x%26y".to_owned(), "a/b?c%23d%26e=f%2Bg%20h;i,j%252e%0D%0A..%C3%A9".to_owned())]
        );
    }

    #[test]
    fn nested_query_values_use_brackets_or_json() {
        let value = json!({"price": {"gte": 5}, "tags": ["a", "b"], "lines": [{"id": 1}]});
        let deep = StyleSerializer { style: SerializationStyle::Deep, ..StyleSerializer::FORM };
        let pairs = deep.pairs("f", &value);
        let names: Vec<&str> = pairs.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            names,
            [
                "f%5Bprice%5D%5Bgte%5D",
                "f%5Btags%5D%5B%5D",
                "f%5Btags%5D%5B%5D",
                "f%5Blines%5D%5B0%5D%5Bid%5D"
            ]
        );
        assert_eq!(
            StyleSerializer::FORM.pairs("f", &value)[0],
            ("price".to_owned(), "%7B%22gte%22%3A5%7D".to_owned())
        );
        assert_eq!(StyleSerializer::FORM.pairs("none", &json!([])), []);
        assert_eq!(scalar_text(&json!(true)), "true");
    }
}
