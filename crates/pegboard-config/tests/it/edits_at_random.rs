//! Random edits of random texts with comments: the value is right, and all other lines are unchanged.

use std::fmt::Write;
use std::path::Path;

use pegboard_config::edit::{ConfigDocument, EditPath};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// A random document.
#[derive(Clone, Debug)]
struct RandomDocument {
    /// The root object.
    value: Value,
    /// Random choices of formatting; reused cyclically.
    style_choices: Vec<u8>,
}

/// Writes a sketch as text.
struct DocumentWriter<'s> {
    style_choices: std::iter::Cycle<std::slice::Iter<'s, u8>>,
    text: String,
    n_comments: usize,
    unit: &'static str,
}

impl<'s> DocumentWriter<'s> {
    fn new(sketch: &'s RandomDocument) -> Self {
        let units = ["  ", "    ", "   "];
        let unit = units[usize::from(sketch.style_choices[0]) % units.len()];
        Self { style_choices: sketch.style_choices.iter().cycle(), text: String::new(), n_comments: 0, unit }
    }

    /// Returns a random number below `n_choices`.
    fn pick(&mut self, n_choices: u8) -> u8 {
        self.style_choices.next().unwrap() % n_choices
    }

    fn comment(&mut self, sign: &str) -> String {
        self.n_comments += 1;
        format!("{sign} remark {}: {{ [ \" ' , x = 1", self.n_comments)
    }

    /// Writes blank lines and comments.
    fn gap(&mut self, indent: &str, sign: &str) {
        match self.pick(6) {
            0 => self.text.push('\n'),
            1 => {
                let comment = self.comment(sign);
                writeln!(self.text, "{indent}{comment}").unwrap();
            }
            2 => {
                let comment = self.comment(sign);
                write!(self.text, "\n{indent}{comment}\n").unwrap();
            }
            _ => {}
        }
    }

    /// Ends a line, possibly with a comment.
    fn end_line(&mut self, sign: &str) {
        if self.pick(5) == 0 {
            let comment = self.comment(sign);
            write!(self.text, " {comment}").unwrap();
        }
        self.text.push('\n');
    }

    fn json(&mut self, value: &Value, indent: &str) {
        let members: Vec<(String, &Value)> = match value {
            Value::Object(entries) => {
                entries.iter().map(|(key, value)| (format!("{}: ", json!(key)), value)).collect()
            }
            Value::Array(items) => items.iter().map(|item| (String::new(), item)).collect(),
            _ => return self.text.push_str(&value.to_string()),
        };
        let (open, close) = if value.is_object() { ('{', '}') } else { ('[', ']') };
        if members.is_empty() || (self.pick(4) == 0 && !indent.is_empty()) {
            return self.text.push_str(&value.to_string());
        }
        let inner = format!("{indent}{}", self.unit);
        self.text.push(open);
        self.end_line("//");
        let has_trailing = self.pick(3) == 0;
        for (at, (key, value)) in members.iter().enumerate() {
            self.gap(&inner, "//");
            write!(self.text, "{inner}{key}").unwrap();
            self.json(value, &inner);
            if at + 1 < members.len() || has_trailing {
                self.text.push(',');
            }
            self.end_line("//");
        }
        self.gap(&inner, "//");
        write!(self.text, "{indent}{close}").unwrap();
    }

    fn yaml(&mut self, value: &Value, indent: &str) {
        let members: Vec<(String, &Value)> = match value {
            Value::Object(entries) => {
                entries.iter().map(|(key, value)| (format!("{}:", json!(key)), value)).collect()
            }
            Value::Array(items) => items.iter().map(|item| ("-".to_owned(), item)).collect(),
            _ => return,
        };
        for (key, value) in members {
            self.gap(indent, "#");
            write!(self.text, "{indent}{key}").unwrap();
            let is_flow = match value {
                Value::Object(entries) => entries.is_empty() || self.pick(4) == 0,
                Value::Array(items) => items.is_empty() || self.pick(3) == 0,
                _ => true,
            };
            if is_flow {
                write!(self.text, " {value}").unwrap();
                self.end_line("#");
            } else {
                self.end_line("#");
                let unit = if value.is_array() && key != "-" && self.pick(2) == 0 { "" } else { self.unit };
                self.yaml(value, &format!("{indent}{unit}"));
            }
        }
    }

    fn toml(&mut self, value: &Value, key_path: &str) {
        let Value::Object(entries) = value else { return };
        let mut tables = Vec::new();
        for (key, value) in entries {
            if value.is_object() && self.pick(3) > 0 {
                tables.push((key, value));
                continue;
            }
            self.gap("", "#");
            write!(self.text, "{key} = {}", toml_value(value)).unwrap();
            self.end_line("#");
        }
        for (key, value) in tables {
            self.gap("", "#");
            let key_path = if key_path.is_empty() { key.clone() } else { format!("{key_path}.{key}") };
            write!(self.text, "[{key_path}]").unwrap();
            self.end_line("#");
            self.toml(value, &key_path);
        }
    }
}

fn toml_value(value: &Value) -> String {
    match value {
        Value::Object(entries) => {
            let member = |(key, value): (&String, &Value)| format!("{key} = {}", toml_value(value));
            format!("{{{}}}", entries.iter().map(member).collect::<Vec<_>>().join(","))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(toml_value).collect::<Vec<_>>().join(",")),
        _ => value.to_string(),
    }
}

/// Generates a value.
fn value() -> impl Strategy<Value = Value> {
    let text = "[ -~]{0,12}|yes|no|null|~|-|- a|a: b|a #b|\\$\\{A\\}|\u{e9}\u{4e2d}|12|0x1f|1e3|é\n\t\"";
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        text.prop_map(Value::from)
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![vec(inner.clone(), 0..4).prop_map(Value::from), object(inner).prop_map(Value::from)]
    })
}

fn object(inner: impl Strategy<Value = Value>) -> impl Strategy<Value = Map<String, Value>> {
    vec(("[a-e]", inner), 0..5).prop_map(|entries| entries.into_iter().collect())
}

fn sketch() -> impl Strategy<Value = RandomDocument> {
    (object(value()), vec(any::<u8>(), 1..64))
        .prop_map(|(value, style_choices)| RandomDocument { value: value.into(), style_choices })
}

/// Returns a path into a value, possibly one that does not exist.
fn key_path(value: &Value, choices: &[u8]) -> EditPath {
    let (mut key_path, mut value) = (EditPath::default(), value);
    for choice in choices {
        let choice = usize::from(*choice);
        match value {
            Value::Object(entries) if choice % 5 == 0 || entries.is_empty() => {
                return key_path.key("new key");
            }
            Value::Object(entries) => {
                let (key, inner) = entries.iter().nth(choice % entries.len()).unwrap();
                (key_path, value) = (key_path.key(key), inner);
            }
            Value::Array(items) if choice % 5 == 0 || items.is_empty() => return key_path.index(items.len()),
            Value::Array(items) => {
                let index = choice % items.len();
                (key_path, value) = (key_path.index(index), &items[index]);
            }
            _ => break,
        }
    }
    if key_path == EditPath::default() { key_path.key("new") } else { key_path }
}

/// Parses a text.
fn read(name: &str, text: &str) -> Value {
    ConfigDocument::new(Path::new(name), text.to_owned()).unwrap().value().clone()
}

fn texts(sketch: &RandomDocument) -> [(&'static str, String); 3] {
    let write = |write: &dyn Fn(&mut DocumentWriter<'_>)| {
        let mut writer = DocumentWriter::new(sketch);
        write(&mut writer);
        writer.text
    };
    [
        (
            "it.json",
            write(&|writer| {
                writer.gap("", "//");
                writer.json(&sketch.value, "");
                writer.end_line("//");
            }),
        ),
        ("it.yaml", write(&|writer| writer.yaml(&sketch.value, ""))),
        ("it.toml", write(&|writer| writer.toml(&sketch.value, ""))),
    ]
}

/// Returns the number of common lines at the start and the end of two texts.
fn n_same_lines(one: &str, other: &str) -> usize {
    let (one, other): (Vec<&str>, Vec<&str>) = (one.split('\n').collect(), other.split('\n').collect());
    let n_first = one.iter().zip(&other).take_while(|(one, other)| one == other).count();
    let most = one.len().min(other.len()) - n_first;
    n_first
        + one.iter().rev().zip(other.iter().rev()).take(most).take_while(|(one, other)| one == other).count()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn setting_a_value_preserves_everything_else(
        sketch in sketch(),
        choices in vec(any::<u8>(), 1..5),
        new in value(),
        is_windows in any::<bool>(),
    ) {
        for (name, text) in texts(&sketch) {
            let text = if is_windows { text.replace('\n', "\r\n") } else { text };
            let mut document = ConfigDocument::new(Path::new(name), text.clone()).unwrap();
            let key_path = key_path(document.value(), &choices);
            let before = document.value().clone();
            let replaced = document.get(&key_path).cloned();
            document.set(&key_path, &new).map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
            prop_assert_eq!(document.get(&key_path), Some(&new));
            let after = document.text();
            prop_assert_eq!(&read(name, &after), document.value());
            // All lines outside of the replaced value are preserved, in order.
            let n_lines = text.split('\n').count();
            if replaced.is_none() {
                // One more line may have got a comma, or lost empty brackets.
                prop_assert!(n_same_lines(&text, &after) + 1 >= n_lines, "{text}\n---\n{after}");
            }
            for comment in text.lines().filter(|line| line.trim_start().starts_with(['#', '/'])) {
                let is_inside = replaced.as_ref().is_some_and(|old| old.is_object() || old.is_array());
                prop_assert!(is_inside || after.contains(comment), "{text}\n---\n{after}");
            }
            // And back again.
            match replaced {
                Some(old) => document.set(&key_path, &old).unwrap(),
                None => drop(document.remove(&key_path).unwrap()),
            }
            // An implicit table of TOML disappears when it is empty.
            if name != "it.toml" {
                prop_assert_eq!(document.value(), &before);
            }
        }
    }

    #[test]
    fn removing_a_value_preserves_everything_else(
        sketch in sketch(),
        choices in vec(any::<u8>(), 1..5),
        is_windows in any::<bool>(),
    ) {
        for (name, text) in texts(&sketch) {
            let text = if is_windows { text.replace('\n', "\r\n") } else { text };
            let mut document = ConfigDocument::new(Path::new(name), text.clone()).unwrap();
            let key_path = key_path(document.value(), &choices);
            let there = document.get(&key_path).cloned();
            let removed = document.remove(&key_path).map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
            prop_assert_eq!(&removed, &there);
            let after = document.text();
            if there.is_none() {
                prop_assert_eq!(&text, &after);
                continue;
            }
            // Nothing is added but empty brackets.
            let n_lines = after.split('\n').count();
            prop_assert!(n_same_lines(&text, &after) + 2 >= n_lines, "{text}\n---\n{after}");
            prop_assert!(after.len() <= text.len() + 3, "{text}\n---\n{after}");
        }
    }
}
