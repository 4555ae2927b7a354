//! Tool arguments on the command line: `k=v`, `k:=json`, `k=@file`, `{…}` and `-`.

use std::io::{self, Read};
use std::path::Path;

use pegboard::config::did_you_mean;
use pegboard::error::ErrorKind;
use pegboard::json::RawJson;
use serde_json::{Map, Value};

use super::CliError;
pub(crate) use coercion::ArgumentSchema;

mod coercion;

/// Maximum size of a file or of standard input.
const MAX_BYTES: u64 = 64 * 1024 * 1024;
/// Help text on how to write arguments.
pub(crate) const HELP: &str = "Arguments:
  k=v        a value of the type in the tool's schema: string, integer, number, boolean, enum, null
  k=a k=b    a list, one element each; numbers, booleans and enums also with commas: k=1,2
  a.b=v      a nested value
  k:=JSON    any JSON value
  k=@FILE    the content of a file; k:=@FILE for JSON; @- is standard input
  '{…}'      a JSON object of arguments; - reads one from standard input";

/// Arguments in the order in which they were written.
#[derive(Clone, Debug, Default)]
pub(crate) struct RawArguments(Vec<RawArgument>);

#[derive(Clone, Debug)]
enum RawArgument {
    /// `{…}` or `-`: a whole object, kept verbatim.
    Object(RawJson),
    /// `k=v`: the type depends on the tool's schema.
    Text { key: String, text: String },
    /// `k:=json`.
    Json { key: String, value: Value },
}

impl RawArguments {
    /// Parses arguments. Files and standard input are read immediately.
    pub(crate) fn read(words: &[String]) -> Result<Self, CliError> {
        let mut input = StdinOnce::default();
        words.iter().map(|word| read_word(word, &mut input)).collect::<Result<_, _>>().map(Self)
    }

    /// Returns the arguments if they are a single JSON object or empty, so that no schema is needed to
    /// interpret them.
    pub(crate) fn as_json(&self) -> Option<RawJson> {
        match self.0.as_slice() {
            [] => Some(RawJson::empty_object()),
            [RawArgument::Object(object)] => Some(object.clone()),
            _ => None,
        }
    }

    /// Converts the arguments to the types of the tool's schema. A value that does not fit is an error; a
    /// value without a schema stays a string.
    pub(crate) fn coerce(self, schema: &Value) -> Result<Map<String, Value>, CliError> {
        let root = ArgumentSchema::root(schema);
        let mut arguments = Map::new();
        // Keys that were given as text; a repeated key may add elements to a list.
        let mut texts: Vec<String> = Vec::new();
        for word in self.0 {
            match word {
                RawArgument::Object(object) => {
                    arguments.extend(object.read::<Map<String, Value>>().unwrap_or_default());
                }
                RawArgument::Json { key, value } => *slot_for(&mut arguments, &root, &key)?.1 = value,
                RawArgument::Text { key, text } => {
                    let (shape, slot) = slot_for(&mut arguments, &root, &key)?;
                    let is_again = texts.contains(&key);
                    let value =
                        shape.read(&text).map_err(|why| invalid_argument(&format!("{key}: {why}")))?;
                    match (slot, value) {
                        (Value::Array(known), Value::Array(more)) if is_again => known.extend(more),
                        (_, _) if is_again => {
                            return Err(invalid_argument(&format!("{key} is given twice but is not a list")));
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

/// Error for an argument that does not match the schema.
fn invalid_argument(message: &str) -> CliError {
    CliError::from_kind(ErrorKind::InvalidParameters, message)
}

/// Returns the slot of a key: the member of this name, or the nested member of a dotted path.
fn slot_for<'a, 's>(
    arguments: &'a mut Map<String, Value>,
    root: &ArgumentSchema<'s>,
    key: &str,
) -> Result<(ArgumentSchema<'s>, &'a mut Value), CliError> {
    if let Some(shape) = root.member(key) {
        return Ok((shape, arguments.entry(key).or_insert(Value::Null)));
    }
    let mut parts = key.split('.');
    let first = parts.next().unwrap_or_default();
    let mut shape = member_schema(root, first, first)?;
    let mut slot = arguments.entry(first).or_insert(Value::Null);
    let mut path = first.to_owned();
    for part in parts {
        path = format!("{path}.{part}");
        shape = member_schema(&shape, part, &path)?;
        if slot.is_null() {
            *slot = Value::Object(Map::new());
        }
        let Value::Object(object) = slot else {
            return Err(invalid_argument(&format!("{path}: the parent value is not an object")));
        };
        slot = object.entry(part).or_insert(Value::Null);
    }
    Ok((shape, slot))
}

/// Returns the schema of a member, or an error that suggests known names.
fn member_schema<'s>(
    shape: &ArgumentSchema<'s>,
    name: &str,
    path: &str,
) -> Result<ArgumentSchema<'s>, CliError> {
    if let Some(member) = shape.member(name) {
        return Ok(member);
    }
    let known = shape.names();
    if known.is_empty() || shape.allows_other_members() {
        return Ok(ArgumentSchema::anything());
    }
    let hint = did_you_mean(name, known.iter().copied()).unwrap_or_else(|| {
        format!("expected {}; pass other arguments as JSON: '{{\"{name}\": …}}'", known.join(", "))
    });
    Err(invalid_argument(&format!("{path}: unknown argument")).hint(hint))
}

/// Standard input, which can be read only once.
#[derive(Default)]
struct StdinOnce {
    is_read: bool,
}

impl StdinOnce {
    fn read(&mut self) -> Result<String, CliError> {
        if std::mem::replace(&mut self.is_read, true) {
            return Err(CliError::usage("standard input can be read only once"));
        }
        read_text(io::stdin(), "standard input", MAX_BYTES)
    }

    fn read_from(&mut self, source: &str) -> Result<String, CliError> {
        if source == "-" {
            return self.read();
        }
        let unreadable = |error| CliError::usage(format!("cannot read {source}: {error}"));
        read_text(std::fs::File::open(Path::new(source)).map_err(unreadable)?, source, MAX_BYTES)
    }
}

/// Reads a text of at most `max_bytes`.
pub(crate) fn read_text(source: impl Read, name: &str, max_bytes: u64) -> Result<String, CliError> {
    let mut text = String::new();
    let unreadable = |error| CliError::usage(format!("cannot read {name}: {error}"));
    source.take(max_bytes + 1).read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > max_bytes {
        return Err(CliError::usage(format!("{name} is larger than {} MiB", max_bytes / 1024 / 1024)));
    }
    Ok(text)
}

fn read_word(word: &str, input: &mut StdinOnce) -> Result<RawArgument, CliError> {
    if word == "-" {
        return object(&input.read()?, "standard input");
    }
    if word.trim_start().starts_with('{') {
        return object(word, "the arguments");
    }
    let Some((key, text)) = word.split_once('=').filter(|(key, _)| !matches!(*key, "" | ":")) else {
        return Err(CliError::usage(format!("invalid argument '{word}': expected key=value"))
            .hint("use k=v, k:=json, k=@file, a JSON object, or - to read one from standard input"));
    };
    if let Some(key) = key.strip_suffix(':') {
        let text = match text.strip_prefix('@') {
            Some(file) => input.read_from(file)?,
            None => text.to_owned(),
        };
        let value = serde_json::from_str(&text).map_err(|error| {
            CliError::usage(format!("{key}: invalid JSON after :=: {error}"))
                .hint(format!("use {key}=… for a string"))
        })?;
        return Ok(RawArgument::Json { key: key.to_owned(), value });
    }
    let text = match text.strip_prefix('@') {
        Some(file) => input.read_from(file)?,
        None => text.to_owned(),
    };
    Ok(RawArgument::Text { key: key.to_owned(), text })
}

fn object(text: &str, name: &str) -> Result<RawArgument, CliError> {
    // serde_json gives the better error message; `RawJson` keeps every digit.
    serde_json::from_str::<Map<String, Value>>(text)
        .map_err(|error| error.to_string())
        .and_then(|_| RawJson::parse(text.trim().to_owned().into()).map_err(|error| error.to_string()))
        .map(RawArgument::Object)
        .map_err(|error| CliError::usage(format!("{name} must be a JSON object: {error}")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(words: &[&str], schema: &Value) -> String {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        match RawArguments::read(&words).and_then(|words| words.coerce(schema)) {
            Ok(arguments) => Value::Object(arguments).to_string(),
            Err(failure) => failure.text(),
        }
    }

    #[test]
    fn values_are_coerced_to_the_schema() {
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
    fn invalid_values_are_reported() {
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
        let messages: Vec<String> =
            cases[..16].iter().map(|words| format!("{words:?} {}", read(words, &schema))).collect();
        insta::assert_snapshot!(messages.join("\n"), @r#"
        ["count=many"] error[invalid_parameters]: count: 'many' is not an integer
        ["count=1.5"] error[invalid_parameters]: count: '1.5' is not an integer
        ["sure=maybe"] error[invalid_parameters]: sure: 'maybe' is not a boolean
        ["level=hihg"] error[invalid_parameters]: level: 'hihg' is not one of low, high; did you mean high?
        ["numbers=1,x"] error[invalid_parameters]: numbers: 'x' is not an integer
        ["numbers=[1"] error[invalid_parameters]: numbers: invalid JSON array: EOF while parsing a list at line 1 column 2
        ["cuont=1"] error[invalid_parameters]: cuont: unknown argument
          help: did you mean count?
        ["colour=red"] error[invalid_parameters]: colour: unknown argument
          help: expected count, sure, level, place, numbers; pass other arguments as JSON: '{"colour": …}'
        ["place.flor=1"] error[invalid_parameters]: place.flor: unknown argument
          help: did you mean floor?
        ["place=upstairs"] error[invalid_parameters]: place: 'upstairs' is not an object
        ["count=1", "count=2"] error[invalid_parameters]: count is given twice but is not a list
        ["count=1", "count.inner=2"] error[invalid_parameters]: count.inner: the parent value is not an object
        ["count:=one"] error[usage]: count: invalid JSON after :=: expected value at line 1 column 1
          help: use count=… for a string
        ["many"] error[usage]: invalid argument 'many': expected key=value
          help: use k=v, k:=json, k=@file, a JSON object, or - to read one from standard input
        ["=x"] error[usage]: invalid argument '=x': expected key=value
          help: use k=v, k:=json, k=@file, a JSON object, or - to read one from standard input
        ["{\"count\": }"] error[usage]: the arguments must be a JSON object: expected value at line 1 column 11
        "#);
        assert!(read(cases[17], &schema).starts_with("error[usage]: cannot read /nowhere/at/all"));
    }

    #[test]
    fn a_schema_without_types_accepts_anything() {
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
