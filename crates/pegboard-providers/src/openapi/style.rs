//! How a value is written into an address, a header or a form: the styles of OpenAPI.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

/// How the values of one parameter are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Writing {
    pub(super) style: Style,
    /// Whether each item of a list and each member of an object stands by itself.
    pub(super) explode: bool,
    /// What stands between items that do not.
    pub(super) delimiter: char,
    pub(super) escape: Escape,
}

/// The shape of what is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
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

/// Which characters are written as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Escape {
    /// Those that mean nothing anywhere in an address.
    Reserved,
    /// All that cannot end a value of a query.
    Delimiting,
    /// All: it is for a header.
    Nothing,
}

/// Everything but letters, digits, `-`, `.`, `_` and `~`.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// What would end a value of a query, or is no part of an address.
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

/// How deep a value in an address may be nested.
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

impl Writing {
    /// The style that a parameter in this place has if nobody says otherwise.
    pub(super) const SIMPLE: Self =
        Self { style: Style::Simple, explode: false, delimiter: ',', escape: Escape::Reserved };
    /// The same for queries, cookies and forms.
    pub(super) const FORM: Self =
        Self { style: Style::Form, explode: true, delimiter: ',', escape: Escape::Reserved };

    /// The value as one text: for paths and headers.
    pub(super) fn text(self, name: &str, value: &Value) -> String {
        let name = self.escape.apply(name);
        match self.style {
            Style::Simple | Style::Form | Style::Deep => self.joined(value, self.delimiter),
            Style::Label => {
                let delimiter = if self.explode { '.' } else { self.delimiter };
                format!(".{}", self.joined(value, delimiter))
            }
            Style::Matrix => match value {
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

    /// The value as pairs of names and values: for queries, cookies and forms.
    pub(super) fn pairs(self, name: &str, value: &Value) -> Vec<(String, String)> {
        let mut pairs = Vec::new();
        match (self.style, value) {
            (Style::Deep, Value::Object(_) | Value::Array(_)) => {
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

    /// Writes `name[member][member]=value` for every value inside. Lists of plain values are `name[]=value`.
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
        // A reserved character in a name would be read as something else, whatever values may hold.
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
        self.escape.apply(&plain(value)).into_owned()
    }
}

/// A value as the text that it is written as. What has parts is JSON.
pub(super) fn plain(value: &Value) -> Cow<'_, str> {
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

    /// The table of styles, with the values that it uses: empty, a text, a list, an object. What it leaves open is `-`.
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

    fn writing(style: &str, explode: bool) -> Writing {
        let (style, delimiter) = match style {
            "matrix" => (Style::Matrix, ','),
            "label" => (Style::Label, ','),
            "simple" => (Style::Simple, ','),
            "spaceDelimited" => (Style::Form, ' '),
            "pipeDelimited" => (Style::Form, '|'),
            "tabs" => (Style::Form, '\t'),
            "deepObject" => (Style::Deep, ','),
            _ => (Style::Form, ','),
        };
        Writing { style, explode, delimiter, escape: Escape::Reserved }
    }

    fn written(writing: Writing, value: &Value) -> String {
        match writing.style {
            Style::Form | Style::Deep => {
                let pairs = writing.pairs("color", value).into_iter();
                pairs.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&")
            }
            Style::Simple | Style::Label | Style::Matrix => writing.text("color", value),
        }
    }

    #[test]
    fn every_style_is_written_as_the_table_says() {
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
                assert_eq!(written(writing(style, *explode == "true"), value), expected, "{line}");
            }
        }
    }

    #[test]
    fn what_a_value_holds_stays_in_the_value() {
        let hostile = "a/b?c#d&e=f+g h;i,j%2e\r\n..é";
        let escaped = "a%2Fb%3Fc%23d%26e%3Df%2Bg%20h%3Bi%2Cj%252e%0D%0A..%C3%A9";
        assert_eq!(Writing::SIMPLE.text("x", &json!(hostile)), escaped);
        assert_eq!(Writing::FORM.pairs("x", &json!(hostile)), [("x".to_owned(), escaped.to_owned())]);
        let reserved = Writing { escape: Escape::Delimiting, ..Writing::FORM };
        assert_eq!(
            reserved.pairs("x&y", &json!(hostile)),
            [("x%26y".to_owned(), "a/b?c%23d%26e=f%2Bg%20h;i,j%252e%0D%0A..%C3%A9".to_owned())]
        );
    }

    #[test]
    fn what_nests_in_a_query_is_written_with_brackets_or_as_json() {
        let value = json!({"price": {"gte": 5}, "tags": ["a", "b"], "lines": [{"id": 1}]});
        let deep = Writing { style: Style::Deep, ..Writing::FORM };
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
            Writing::FORM.pairs("f", &value)[0],
            ("price".to_owned(), "%7B%22gte%22%3A5%7D".to_owned())
        );
        assert_eq!(Writing::FORM.pairs("none", &json!([])), []);
        assert_eq!(plain(&json!(true)), "true");
    }
}
