//! Arguments of a tool as people write them on the command line: `k=v`, `k:=json`, `k=@file`, `{…}` and `-`.

use std::io::{self, Read};
use std::path::Path;

use pegboard::config::near;
use pegboard::error::ErrorKind;
use pegboard::json::RawJson;
use serde_json::{Map, Value};

use super::Failure;
pub(crate) use shape::Shape;

mod shape;

/// How long a file or what is piped in may be.
const MAX_BYTES: u64 = 64 * 1024 * 1024;
/// How the help tells to write arguments.
pub(crate) const HELP: &str = "Arguments:
  k=v        a value, as the tool wants it: text, whole number, number, true or false, a choice, null
  k=a k=b    a list, one element each; numbers, choices, true and false also with commas: k=1,2
  a.b=v      a value inside an object
  k:=JSON    any JSON value
  k=@FILE    what a file says; k:=@FILE if that is JSON; @- is standard input
  '{…}'      a JSON object of arguments; - reads one from standard input";

/// Arguments as they were written, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Words(Vec<Word>);

#[derive(Clone, Debug)]
enum Word {
    /// `{…}` or `-`: all of it as it is.
    Object(RawJson),
    /// `k=v`: what it means depends on the tool.
    Text { key: String, text: String },
    /// `k:=json`.
    Json { key: String, value: Value },
}

impl Words {
    /// Reads words. Files and standard input are read at once.
    pub(crate) fn read(words: &[String]) -> Result<Self, Failure> {
        let mut input = Input::default();
        words.iter().map(|word| read_word(word, &mut input)).collect::<Result<_, _>>().map(Self)
    }

    /// All of them as they were written, if that is as JSON or not at all: then no schema says what they mean.
    pub(crate) fn as_they_are(&self) -> Option<RawJson> {
        match self.0.as_slice() {
            [] => Some(RawJson::empty_object()),
            [Word::Object(object)] => Some(object.clone()),
            _ => None,
        }
    }

    /// The arguments for a tool with this schema. What does not fit is told; where no schema says what they mean, texts
    /// stay texts.
    pub(crate) fn fit(self, schema: &Value) -> Result<Map<String, Value>, Failure> {
        let root = Shape::root(schema);
        let mut arguments = Map::new();
        // The keys that were written with texts, which may be elements of a list.
        let mut texts: Vec<String> = Vec::new();
        for word in self.0 {
            match word {
                Word::Object(object) => {
                    arguments.extend(object.read::<Map<String, Value>>().unwrap_or_default());
                }
                Word::Json { key, value } => *place(&mut arguments, &root, &key)?.1 = value,
                Word::Text { key, text } => {
                    let (shape, slot) = place(&mut arguments, &root, &key)?;
                    let is_again = texts.contains(&key);
                    let value = shape.read(&text).map_err(|why| refusal(&format!("{key}: {why}")))?;
                    match (slot, value) {
                        (Value::Array(known), Value::Array(more)) if is_again => known.extend(more),
                        (_, _) if is_again => {
                            return Err(refusal(&format!("{key} is given twice, and is no list")));
                        }
                        (slot, value) => *slot = value,
                    }
                    texts.push(key);
                }
            }
        }
        Ok(arguments)
    }
}

/// Arguments that are not as the tool wants them.
fn refusal(message: &str) -> Failure {
    Failure::of_kind(ErrorKind::InvalidParameters, message)
}

/// The place of a value: the member of this name, or the way to it through objects.
fn place<'a, 's>(
    arguments: &'a mut Map<String, Value>,
    root: &Shape<'s>,
    key: &str,
) -> Result<(Shape<'s>, &'a mut Value), Failure> {
    if let Some(shape) = root.member(key) {
        return Ok((shape, arguments.entry(key).or_insert(Value::Null)));
    }
    let mut parts = key.split('.');
    let first = parts.next().unwrap_or_default();
    let mut shape = step(root, first, first)?;
    let mut slot = arguments.entry(first).or_insert(Value::Null);
    let mut way = first.to_owned();
    for part in parts {
        way = format!("{way}.{part}");
        shape = step(&shape, part, &way)?;
        if slot.is_null() {
            *slot = Value::Object(Map::new());
        }
        let Value::Object(object) = slot else {
            return Err(refusal(&format!("{way}: there is another value already, which is no object")));
        };
        slot = object.entry(part).or_insert(Value::Null);
    }
    Ok((shape, slot))
}

/// The shape of a member; a name that the schema does not know is told with those that it knows.
fn step<'s>(shape: &Shape<'s>, name: &str, way: &str) -> Result<Shape<'s>, Failure> {
    if let Some(member) = shape.member(name) {
        return Ok(member);
    }
    let known = shape.names();
    if known.is_empty() || shape.may_have_others() {
        return Ok(Shape::anything());
    }
    let hint = match near(name, known.iter().copied()) {
        Some(meant) => format!("did you mean {meant}?"),
        None => format!("it takes {}; any other goes as JSON: '{{\"{name}\": …}}'", known.join(", ")),
    };
    Err(refusal(&format!("{way}: the tool knows no such argument")).hint(hint))
}

/// Standard input, which can be read once.
#[derive(Default)]
struct Input {
    is_read: bool,
}

impl Input {
    fn read(&mut self) -> Result<String, Failure> {
        if std::mem::replace(&mut self.is_read, true) {
            return Err(Failure::usage("standard input can be read only once"));
        }
        text_of(&mut io::stdin(), "standard input")
    }

    fn read_from(&mut self, place: &str) -> Result<String, Failure> {
        if place == "-" {
            return self.read();
        }
        let unreadable = |error| Failure::usage(format!("{place} cannot be read: {error}"));
        let mut file = std::fs::File::open(Path::new(place)).map_err(unreadable)?;
        text_of(&mut file, place)
    }
}

fn text_of(source: &mut impl Read, name: &str) -> Result<String, Failure> {
    let mut text = String::new();
    let unreadable = |error| Failure::usage(format!("{name} cannot be read: {error}"));
    source.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(Failure::usage(format!("{name} is longer than {} MiB", MAX_BYTES / 1024 / 1024)));
    }
    Ok(text)
}

fn read_word(word: &str, input: &mut Input) -> Result<Word, Failure> {
    if word == "-" {
        return object(&input.read()?, "standard input");
    }
    if word.trim_start().starts_with('{') {
        return object(word, "the arguments");
    }
    let Some((key, text)) = word.split_once('=').filter(|(key, _)| !matches!(*key, "" | ":")) else {
        return Err(Failure::usage(format!("'{word}' is no argument"))
            .hint("write k=v, k:=json, k=@file, a JSON object, or - to read one from standard input"));
    };
    if let Some(key) = key.strip_suffix(':') {
        let text = match text.strip_prefix('@') {
            Some(file) => input.read_from(file)?,
            None => text.to_owned(),
        };
        let value = serde_json::from_str(&text).map_err(|error| {
            Failure::usage(format!("{key}: what follows := is no JSON: {error}"))
                .hint(format!("write {key}=… for a text"))
        })?;
        return Ok(Word::Json { key: key.to_owned(), value });
    }
    let text = match text.strip_prefix('@') {
        Some(file) => input.read_from(file)?,
        None => text.to_owned(),
    };
    Ok(Word::Text { key: key.to_owned(), text })
}

fn object(text: &str, name: &str) -> Result<Word, Failure> {
    // One reads it to tell what is wrong, the other keeps every digit.
    serde_json::from_str::<Map<String, Value>>(text)
        .map_err(|error| error.to_string())
        .and_then(|_| RawJson::parse(text.trim().to_owned().into()).map_err(|error| error.to_string()))
        .map(Word::Object)
        .map_err(|error| Failure::usage(format!("{name} must be a JSON object: {error}")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(words: &[&str], schema: &Value) -> String {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        match Words::read(&words).and_then(|words| words.fit(schema)) {
            Ok(arguments) => Value::Object(arguments).to_string(),
            Err(failure) => failure.text(),
        }
    }

    #[test]
    fn values_are_as_the_schema_says() {
        let schema = json!({
            "type": "object",
            "properties": {
                "text": {"type": "string"},
                "maybe": {"type": ["string", "null"]},
                "count": {"type": "integer"},
                "ratio": {"type": "number"},
                "sure": {"type": "boolean"},
                "level": {"enum": ["low", "high", 3]},
                "either": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
                "labels": {"type": "array", "items": {"type": "string"}},
                "numbers": {"type": "array", "items": {"type": "integer"}},
                "place": {"$ref": "#/$defs/place"},
                "free": {},
                "dotted.name": {"type": "integer"},
            },
            "$defs": {"place": {"type": "object", "properties": {"floor": {"type": "integer"}}}},
        });
        for (words, expected) in [
            (&["text=12"][..], r#"{"text":"12"}"#),
            (&["text=a=b, c"], r#"{"text":"a=b, c"}"#),
            (&["maybe=null"], r#"{"maybe":null}"#),
            (&["maybe=x"], r#"{"maybe":"x"}"#),
            (&["count=12"], r#"{"count":12}"#),
            (&["count=3.0"], r#"{"count":3}"#),
            (&["ratio=1e2"], r#"{"ratio":100.0}"#),
            (&["sure=true"], r#"{"sure":true}"#),
            (&["sure=no"], r#"{"sure":false}"#),
            (&["level=high"], r#"{"level":"high"}"#),
            (&["level=3"], r#"{"level":3}"#),
            (&["either=3"], r#"{"either":3}"#),
            (&["either=three"], r#"{"either":"three"}"#),
            (&["labels=a, b"], r#"{"labels":["a, b"]}"#),
            (&["labels=a", "text=x", "labels=b"], r#"{"labels":["a","b"],"text":"x"}"#),
            (&["labels="], r#"{"labels":[]}"#),
            (&["labels=[\"a\"]"], r#"{"labels":["a"]}"#),
            (&["numbers=1,2", "numbers=3"], r#"{"numbers":[1,2,3]}"#),
            (&["place.floor=2", "free.room=x"], r#"{"place":{"floor":2},"free":{"room":"x"}}"#),
            (&["place={\"floor\": 1}"], r#"{"place":{"floor":1}}"#),
            (&["dotted.name=2"], r#"{"dotted.name":2}"#),
            (&["free=12"], r#"{"free":"12"}"#),
            (&["free:=[12]"], r#"{"free":[12]}"#),
            (&[r#"{"count": 1, "text": "x"}"#, "count=2"], r#"{"count":2,"text":"x"}"#),
        ] {
            assert_eq!(read(words, &schema), expected, "{words:?}");
        }
    }

    #[test]
    fn what_does_not_fit_is_told() {
        let schema = json!({
            "type": "object",
            "properties": {
                "count": {"type": "integer"},
                "sure": {"type": "boolean"},
                "level": {"enum": ["low", "high"]},
                "place": {"type": "object", "properties": {"floor": {}}, "additionalProperties": false},
                "numbers": {"type": "array", "items": {"type": "integer"}},
            },
        });
        let cases: &[&[&str]] = &[
            &["count=many"],
            &["count=1.5"],
            &["sure=maybe"],
            &["level=hihg"],
            &["numbers=1,x"],
            &["numbers=[1"],
            &["cuont=1"],
            &["colour=red"],
            &["place.flor=1"],
            &["place=upstairs"],
            &["count=1", "count=2"],
            &["count=1", "count.inner=2"],
            &["count:=one"],
            &["many"],
            &["=x"],
            &["{\"count\": }"],
            &["-", "-"],
            &["count=@/nowhere/at/all"],
        ];
        let told: Vec<String> =
            cases[..16].iter().map(|words| format!("{words:?} {}", read(words, &schema))).collect();
        insta::assert_snapshot!(told.join("\n"), @r#"
        ["count=many"] error[invalid_parameters]: count: 'many' is not a whole number
        ["count=1.5"] error[invalid_parameters]: count: '1.5' is not a whole number
        ["sure=maybe"] error[invalid_parameters]: sure: 'maybe' is not true or false
        ["level=hihg"] error[invalid_parameters]: level: 'hihg' is none of low, high; did you mean high?
        ["numbers=1,x"] error[invalid_parameters]: numbers: 'x' is not a whole number
        ["numbers=[1"] error[invalid_parameters]: numbers: it is no JSON list: EOF while parsing a list at line 1 column 2
        ["cuont=1"] error[invalid_parameters]: cuont: the tool knows no such argument
          help: did you mean count?
        ["colour=red"] error[invalid_parameters]: colour: the tool knows no such argument
          help: it takes count, sure, level, place, numbers; any other goes as JSON: '{"colour": …}'
        ["place.flor=1"] error[invalid_parameters]: place.flor: the tool knows no such argument
          help: did you mean floor?
        ["place=upstairs"] error[invalid_parameters]: place: 'upstairs' is not an object
        ["count=1", "count=2"] error[invalid_parameters]: count is given twice, and is no list
        ["count=1", "count.inner=2"] error[invalid_parameters]: count.inner: there is another value already, which is no object
        ["count:=one"] error[usage]: count: what follows := is no JSON: expected value at line 1 column 1
          help: write count=… for a text
        ["many"] error[usage]: 'many' is no argument
          help: write k=v, k:=json, k=@file, a JSON object, or - to read one from standard input
        ["=x"] error[usage]: '=x' is no argument
          help: write k=v, k:=json, k=@file, a JSON object, or - to read one from standard input
        ["{\"count\": }"] error[usage]: the arguments must be a JSON object: expected value at line 1 column 11
        "#);
        assert!(read(cases[17], &schema).starts_with("error[usage]: /nowhere/at/all cannot be read"));
    }

    #[test]
    fn a_schema_that_says_nothing_refuses_nothing() {
        for schema in [
            json!({"type": "object"}),
            Value::Null,
            json!(true),
            json!({"properties": {"a": {}}, "additionalProperties": true}),
        ] {
            assert_eq!(read(&["b.c=1", "d:=2"], &schema), r#"{"b":{"c":"1"},"d":2}"#, "{schema}");
        }
    }
}
