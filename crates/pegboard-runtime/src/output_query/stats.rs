//! The `stats` view: size and structure of an output.

use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::truncate::quoted;

/// Maximum number of keys listed of an object.
const MAX_KEYS: usize = 50;
/// Average line length above which the output is not considered line-oriented.
const LONG_LINE_BYTES: usize = 1_000;

/// Size of an output.
///
/// ```
/// use pegboard_runtime::output_query::OutputStats;
///
/// let stats = OutputStats::of(b"one\ntwo\n");
/// assert_eq!((stats.n_bytes, stats.n_lines, stats.n_tokens), (8, 3, 2));
/// assert_eq!(stats.to_string(), "8 bytes, 3 lines, about 2 tokens");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputStats {
    /// Size in bytes.
    pub n_bytes: usize,
    /// Number of lines: newlines plus one, or 0 if empty.
    pub n_lines: usize,
    /// Approximate number of tokens: one for every four characters.
    pub n_tokens: usize,
}

impl OutputStats {
    /// Measures an output, text or binary.
    pub fn of(body: &[u8]) -> Self {
        let n_chars: usize = body
            .utf8_chunks()
            .map(|chunk| chunk.valid().chars().count() + usize::from(!chunk.invalid().is_empty()))
            .sum();
        Self {
            n_bytes: body.len(),
            n_lines: if body.is_empty() { 0 } else { body.split(|byte| *byte == b'\n').count() },
            n_tokens: n_chars.div_ceil(4),
        }
    }

    /// Returns the average line length in bytes; 0 if there are no lines.
    pub fn average_line_bytes(&self) -> usize {
        self.n_bytes.checked_div(self.n_lines).unwrap_or_default()
    }
}

impl fmt::Display for OutputStats {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = counted(self.n_bytes, "byte");
        let lines = counted(self.n_lines, "line");
        write!(formatter, "{bytes}, {lines}, about {}", counted(self.n_tokens, "token"))
    }
}

/// Formats a count with a noun.
pub(super) fn counted(n: usize, thing: &str) -> String {
    if n == 1 { format!("1 {thing}") } else { format!("{n} {thing}s") }
}

/// Returns a summary of an output for a model.
pub(super) fn summary(body: &[u8], content_type: &str, max_bytes: usize) -> String {
    let stats = OutputStats::of(body);
    let mut lines = vec![format!("{stats}, content type {}", quoted(content_type))];
    if let Some(shape) = JsonShape::of(body) {
        lines.push(shape.to_string());
        lines.extend(shape.first_path().map(|path| {
            format!("Read parts of it with {}", serde_json::json!({"mode": "jsonpath", "path": path}))
        }));
    } else if std::str::from_utf8(body).is_err() {
        lines.push("It is not UTF-8 text, so it cannot be read by lines.".to_owned());
    }
    if stats.average_line_bytes() > LONG_LINE_BYTES {
        lines.push(format!("A line has {} on average.", counted(stats.average_line_bytes(), "byte")));
    }
    let mut summary = lines.join("\n");
    if summary.len() > max_bytes {
        summary.truncate(summary.floor_char_boundary(max_bytes - '…'.len_utf8()));
        summary.push('…');
    }
    summary
}

/// The outermost level of a JSON document.
#[derive(Debug, PartialEq, Eq)]
enum JsonShape {
    Object { keys: Vec<(String, JsonKind)>, n_keys: usize },
    Array { n_items: usize, first: Option<JsonKind> },
}

/// Type of a JSON value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JsonKind {
    Null,
    Boolean,
    Number,
    String,
    Array { n_items: usize },
    Object { n_keys: usize },
}

impl JsonShape {
    /// Parses the outermost level of a JSON object or array; `None` for any other body.
    fn of(body: &[u8]) -> Option<Self> {
        let first = body.iter().find(|byte| !byte.is_ascii_whitespace())?;
        // Skipped values are not built, so this costs neither memory nor stack.
        if matches!(first, b'{' | b'[') { serde_json::from_slice(body).ok() } else { None }
    }

    /// Returns a path to a value one level down.
    fn first_path(&self) -> Option<String> {
        match self {
            Self::Object { keys, .. } => keys.first().map(|(key, _)| member_path(key)),
            Self::Array { first, .. } => first.map(|_| "$[0]".to_owned()),
        }
    }
}

fn member_path(key: &str) -> String {
    let is_plain =
        !key.is_empty() && key.len() <= 60 && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if is_plain { format!("$.{key}") } else { "$[*]".to_owned() }
}

impl fmt::Display for JsonShape {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Object { keys, n_keys } => {
                write!(formatter, "JSON object with {}", counted(*n_keys, "key"))?;
                for (place, (key, kind)) in keys.iter().enumerate() {
                    let before = if place == 0 { ":" } else { "," };
                    write!(formatter, "{before} {} ({kind})", quoted(key))?;
                }
                if *n_keys > keys.len() { write!(formatter, ", …") } else { Ok(()) }
            }
            Self::Array { n_items, first } => {
                write!(formatter, "JSON array with {}", counted(*n_items, "item"))?;
                first.map_or(Ok(()), |kind| write!(formatter, ", the first one: {kind}"))
            }
        }
    }
}

impl fmt::Display for JsonKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => write!(formatter, "null"),
            Self::Boolean => write!(formatter, "boolean"),
            Self::Number => write!(formatter, "number"),
            Self::String => write!(formatter, "string"),
            Self::Array { n_items } => write!(formatter, "array of {n_items}"),
            Self::Object { n_keys } => write!(formatter, "object, {}", counted(*n_keys, "key")),
        }
    }
}

impl<'de> Deserialize<'de> for JsonShape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(JsonShapeVisitor)
    }
}

struct JsonShapeVisitor;

impl<'de> Visitor<'de> for JsonShapeVisitor {
    type Value = JsonShape;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object or an array")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<JsonShape, A::Error> {
        let (mut keys, mut n_keys) = (Vec::new(), 0);
        while keys.len() < MAX_KEYS
            && let Some(member) = members.next_entry()?
        {
            keys.push(member);
            n_keys += 1;
        }
        while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
            n_keys += 1;
        }
        Ok(JsonShape::Object { keys, n_keys })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<JsonShape, A::Error> {
        let first = items.next_element()?;
        let mut n_items = usize::from(first.is_some());
        while items.next_element::<IgnoredAny>()?.is_some() {
            n_items += 1;
        }
        Ok(JsonShape::Array { n_items, first })
    }
}

impl<'de> Deserialize<'de> for JsonKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(JsonKindVisitor)
    }
}

struct JsonKindVisitor;

impl<'de> Visitor<'de> for JsonKindVisitor {
    type Value = JsonKind;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<JsonKind, E> {
        Ok(JsonKind::Null)
    }

    fn visit_bool<E>(self, _: bool) -> Result<JsonKind, E> {
        Ok(JsonKind::Boolean)
    }

    fn visit_i64<E>(self, _: i64) -> Result<JsonKind, E> {
        Ok(JsonKind::Number)
    }

    fn visit_u64<E>(self, _: u64) -> Result<JsonKind, E> {
        Ok(JsonKind::Number)
    }

    fn visit_f64<E>(self, _: f64) -> Result<JsonKind, E> {
        Ok(JsonKind::Number)
    }

    fn visit_str<E>(self, _: &str) -> Result<JsonKind, E> {
        Ok(JsonKind::String)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<JsonKind, A::Error> {
        let mut n_keys = 0;
        while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
            n_keys += 1;
        }
        Ok(JsonKind::Object { n_keys })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<JsonKind, A::Error> {
        let mut n_items = 0;
        while items.next_element::<IgnoredAny>()?.is_some() {
            n_items += 1;
        }
        Ok(JsonKind::Array { n_items })
    }
}
